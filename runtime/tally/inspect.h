/* `tally inspect`: what its files share.
 *
 *     runtime/tally/inspect.c          options, files and folders
 *     runtime/tally/inspect_read.c     one file: its images, unpacked and judged, container by container
 *     runtime/tally/inspect_gpu.c      which images a GPU can load
 *     runtime/tally/inspect_total.c    sums, and what to do about kernels that are not preemptible
 *     runtime/tally/inspect_text.c     the report for people
 *     runtime/tally/inspect_json.c     the report for programs
 *     runtime/tally/inspect_extract.c  images as files
 *
 * A container usually holds the same kernels several times: machine code for a few GPUs, and
 * perhaps PTX.  So kernels are counted by container and name, and what is known of a container is
 * kept until all of it has been read; then it is reported, added up and forgotten.  Memory is
 * bounded by the largest container, not by the file. */
#ifndef TALLY_RUNTIME_TALLY_INSPECT_H
#define TALLY_RUNTIME_TALLY_INSPECT_H

#include "runtime/tally/cli.h"
#include "tally/cubin.h"
#include "tally/image.h"
#include "tally/ptx.h"
#include "tally/table.h"

struct inspect_options {
    bool as_json;
    bool with_kernels; /* list every kernel */
    bool only_totals;
    const char *extract; /* folder for the images, or NULL */
    uint32_t gpu;        /* 90: look only into images that sm_90 can load; 0: into all */
};

/* --- a container --- */

/* A kernel of a container. */
struct inspect_kernel {
    struct tl_str name;
    bool has_ptx, has_sass;
    bool is_judged; /* by some PTX; the reasons hold only then */
    /* if several images have PTX, a refusal by any of them counts */
    enum tl_ptx_reason reasons[TL_PTX_VARIANTS];
    /* the same for machine code and the gate; the reason holds if has_sass */
    enum tl_cubin_reason gate;
    bool wants_twin;
};

/* A kernel of an image. */
struct inspect_entry {
    struct inspect_kernel *kernel;
    const struct tl_ptx_verdict *verdicts; /* PTX: one per variant; NULL if judging failed */
    struct tl_cubin_kernel sass;           /* cubin; without the name */
    enum tl_cubin_reason gate;             /* cubin: whether it can be gated */
    bool wants_twin;
    const char *gate_note; /* what was against it; may be empty */
    const char *problem;   /* why judging failed, or NULL */
};

struct inspect_image {
    struct tl_image image;
    bool is_for_gpu; /* else its kernels were not looked at */
    bool is_relocatable;
    struct inspect_entry *entries;
    uint32_t n_entries, max_entries;
    const char *problem; /* why the kernels are unknown, or NULL */
};

/* Everything in it belongs to its arena, but for the table itself. */
struct inspect_container {
    struct tl_arena arena;
    struct inspect_image *images;
    uint32_t n_images, max_images;
    struct tl_table kernels; /* by name: struct inspect_kernel */
};

/* "sm_90" or "90" is 90; 0 if that is no architecture. */
uint32_t inspect_gpu_of(const char *text);
/* Whether that GPU can load the image; any can if `gpu` is 0. */
bool inspect_is_for_gpu(const struct tl_image *image, uint32_t gpu);

/* --- sums --- */

enum { INSPECT_MAX_ARCHS = 32 };

/* Architectures in order, without repetition: 10 * number, plus 1 for `a` and 2 for `f`. */
struct inspect_archs {
    uint32_t codes[INSPECT_MAX_ARCHS];
    uint32_t n;
};

struct inspect_totals {
    uint64_t files, containers, problems;
    uint64_t scanned_containers; /* found by their magic only */
    struct inspect_kind_totals {
        uint64_t images, stored_bytes, full_bytes;
        uint64_t kernels; /* by image and name */
        uint64_t relocatable;
        uint64_t not_for_gpu;
        struct inspect_archs archs;
    } kinds[TL_IMAGE_KINDS];
    /* By container and name: */
    uint64_t kernels, with_ptx, judged;
    uint64_t preemptible;               /* in any variant */
    uint64_t variants[TL_PTX_VARIANTS]; /* in this one */
    uint64_t reasons[TL_PTX_VARIANTS][TL_PTX_REASON_COUNT];
    uint64_t hopeless[TL_PTX_REASON_COUNT]; /* in no variant, by what is against slicing */
    uint64_t with_sass;
    uint64_t gateable, twins; /* of those; twins are those that share a module with variables */
    uint64_t stoppable;       /* gateable, or preemptible by their PTX */
    uint64_t gate_reasons[TL_CUBIN_REASON_COUNT];
};

void inspect_totals_add_container(struct inspect_totals *t, const struct inspect_container *c);
void inspect_totals_add(struct inspect_totals *t, const struct inspect_totals *more);
/* What to do about kernels with that refusal, in a sentence or two. */
const char *inspect_advice(enum tl_ptx_reason r);

/* --- reports --- */

struct inspect_report;

/* Called in this order; a file that is opened by `begin_file` has any number of containers and
 * problems. */
struct inspect_report_ops {
    void (*begin)(struct inspect_report *r);
    void (*begin_file)(struct inspect_report *r, const char *path, uint64_t bytes);
    void (*container)(struct inspect_report *r, const struct inspect_container *c);
    void (*problem)(struct inspect_report *r, const char *text);
    void (*end_file)(struct inspect_report *r, const struct inspect_totals *of_file);
    void (*end)(struct inspect_report *r, const struct inspect_totals *of_all);
};

struct inspect_report {
    const struct inspect_report_ops *ops;
    const struct inspect_options *options;
    struct tl_buf out; /* what has not been written yet */
    struct tl_json json;
    struct tl_buf problems; /* JSON: they wait for the end of their file, each terminated */
};

extern const struct inspect_report_ops inspect_text_ops, inspect_json_ops;

/* The sums as a member `totals` of the object that is open. */
void inspect_json_totals(struct tl_json *j, const struct inspect_totals *t);
/* Writes what has gathered to standard output. */
void inspect_report_flush(struct inspect_report *r);

/* --- the run --- */

struct inspect {
    const struct inspect_options *options;
    struct inspect_report *report;
    struct cli_progress progress;
    struct inspect_totals totals;
};

/* Reads a regular file.  `name` is what its extracted images are called.  A file without images is
 * reported only if `is_named`, that is, if the user asked for this very file.  0, or a negative
 * errno value with a message. */
int inspect_file(struct inspect *in, const char *path, const char *name, bool is_named,
                 struct tl_error *err);

/* A file, or a folder with all that is in it; what cannot be read is complained about. */
enum cli_status inspect_path(struct inspect *in, char *path);

/* Writes an image into the folder for extraction, which exists.  0, or a negative errno value with
 * a message. */
int inspect_extract(const char *folder, const char *name, const struct tl_image *image,
                    const void *bytes, size_t n, struct tl_error *err);

#endif

/* Measuring the PTX library on what real software ships, one library (cuBLAS, TensorFlow, ...) per
 * run.
 *
 * The steps run one after the other over one `struct corpus`; each has a file and fills its own
 * part of the results: load, read, judge, rewrite, registers, identical, report.  This is a program
 * for developers: running out of memory ends it, and what it finds wrong goes to stdout, one line
 * each, so that a log is enough to go on. */
#ifndef TALLY_CORPUS_H
#define TALLY_CORPUS_H

#include "tally/image.h"
#include "tally/ptx.h"

enum {
    CORPUS_EXAMPLES = 3,
    /* bytes; ptxas itself trades a register or two for more blocks per SM */
    CORPUS_LARGE_SPILL = 16,
};

struct corpus_options {
    const char *library;   /* what the results are called */
    const char *folder;    /* results go here, texts that failed into failed/ below */
    const char *ptxas;     /* NULL: leave out what needs it */
    const char *new_ptxas; /* for texts that `ptxas` is too old for; may be NULL */
    uint32_t sample;       /* kernels to hand to ptxas, 0 for all */
    uint32_t identical;    /* modules whose machine code is compared */
    uint32_t seed;         /* for another sample */
    uint32_t jobs;         /* ptxas runs at once */
    uint32_t passes;       /* speed is the best of so many */
    bool skips_rewriting;  /* rewrite only the sample, not every kernel */
};

struct corpus_image {
    char *origin; /* "libcurand.so.10:3.0": file, container, image */
    char *text;
    size_t n;
    /* for ptxas, as the fatbin asks: "--register-usage-level=3"; often empty */
    const char *options;
    struct tl_ptx_index *index; /* NULL if the text could not be indexed */
};

struct corpus_kernel {
    const struct corpus_image *image;
    struct tl_str name;
    uint32_t order; /* a hash: the sample is what comes first */
    bool was_judged;
    uint8_t reasons[TL_PTX_VARIANTS];    /* enum tl_ptx_reason */
    uint8_t conditions[TL_PTX_VARIANTS]; /* enum tl_ptx_condition */
};

/* --- results --- */

struct corpus_found {
    uint32_t ptx, cubins, others;
    uint32_t listed_ptx, listed_cubins; /* those in sections for fatbins, which cuobjdump lists */
    uint32_t problems;                  /* broken containers and images */
    uint64_t text_bytes;
};

struct corpus_reading {
    uint32_t indexed, parsed, fixpoint; /* images */
    double index_s, parse_s;            /* CPU time for the whole library, best of the passes */
    /* bytes of tree per byte of text, the worst image over 100 KB */
    double memory_ratio;
    const char *memory_image;
    uint64_t largest_bytes; /* of the largest image with a kernel that can be rewritten */
    double largest_index_ms, largest_rewrite_ms;
};

struct corpus_verdicts {
    uint32_t failed; /* kernels that could not be judged */
    uint32_t count[TL_PTX_VARIANTS][TL_PTX_REASON_COUNT];
    uint32_t with_conditions[TL_PTX_VARIANTS];
    struct tl_str examples[TL_PTX_VARIANTS][TL_PTX_REASON_COUNT][CORPUS_EXAMPLES];
    double seconds;
};

struct corpus_rewriting {
    uint32_t tried, done, reread; /* variants: rewritten without error, and parsed again */
    double seconds;
};

struct corpus_growth {
    const struct corpus_kernel *kernel;
    enum tl_ptx_variant variant;
    uint32_t dims;
    struct tl_ptx_cost before; /* local memory: bytes of spilling stores and loads */
    struct tl_ptx_cost first;  /* of the variant as it is */
    struct tl_ptx_cost after;  /* the same, or with a limit on registers where that helps */
};

struct corpus_registers {
    uint32_t kernels;         /* in the sample */
    uint32_t tried, accepted; /* rewritten texts */
    /* kernels that cannot be compared, because ptxas takes them in no form */
    uint32_t refused_originals;
    /* kernels tried under an older ISA version, for a newer architecture */
    uint32_t lowered, raised;
    uint32_t limit_tried, limit_helped, limit_refused;
    /* with a variant that spills, while the original does not: without limits */
    uint32_t first_spill_kernels;
    uint32_t new_spill_kernels; /* and with them where they help */
    uint32_t new_large_spill_kernels;
    struct corpus_growth *growths; /* ascending */
    uint32_t n_growths, max_growths;
};

struct corpus_identity {
    uint32_t tried, identical;
};

struct corpus {
    const struct corpus_options *options;
    struct tl_arena arena; /* small things that live to the end */
    struct corpus_image *images;
    uint32_t n_images, max_images;
    struct corpus_kernel *kernels;
    uint32_t n_kernels, max_kernels;
    struct ptxas_choice *choices;

    struct corpus_found found;
    struct corpus_reading reading;
    struct corpus_verdicts verdicts;
    struct corpus_rewriting rewriting;
    struct corpus_registers registers;
    struct corpus_identity identity;
};

/* --- the steps, in order --- */

/* files and folders, NULL at the end */
int corpus_load(struct corpus *c, char *const *paths, struct tl_error *err);
/* needs load; finds the kernels */
void corpus_read(struct corpus *c);
int corpus_judge(struct corpus *c, struct tl_error *err);             /* needs read */
void corpus_time_rewriting(struct corpus *c);                         /* needs judge */
void corpus_rewrite(struct corpus *c);                                /* needs judge */
int corpus_measure_registers(struct corpus *c, struct tl_error *err); /* needs judge */
int corpus_compare_code(struct corpus *c, struct tl_error *err);      /* needs read */
int corpus_report(const struct corpus *c, struct tl_error *err);

/* Sorts what corpus_measure_registers found, tells and writes it. */
int corpus_sum_up_growth(struct corpus *c, struct tl_error *err);
/* Growth of registers at a share of the sample, 0.5 for the median; `variant` TL_PTX_VARIANTS for
 * all together. */
int32_t corpus_growth_at(const struct corpus_registers *r, enum tl_ptx_variant variant,
                         double share);
/* The same for all variants as they are, before any limit. */
int32_t corpus_first_growth_at(const struct corpus_registers *r, double share);

/* --- shared by the steps --- */

void corpus_say(const struct corpus *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *corpus_must(void *memory); /* ends the program if NULL */
/* Room for one more item of `size` bytes; returns the array, perhaps moved. */
void *corpus_one_more(void *array, uint32_t n, uint32_t *max, size_t size);
double corpus_cpu_seconds(void);
int corpus_write(const char *path, const char *bytes, size_t n, struct tl_error *err);
/* Parses every function and variable of an index into one tree.  0 and the tree's bytes, or as
 * tl_ptx_parse_func. */
int corpus_parse_all(const struct tl_ptx_index *index, size_t *tree_bytes, struct tl_error *err);
/* 1 or 3 dimensions, in turn from kernel to kernel and variant to variant, as far as the kernel's
 * conditions allow. */
uint32_t corpus_dims(const struct corpus_kernel *k, enum tl_ptx_variant v);
/* The kernels that have a variant, those of least `order` first, at most `n` of them (0 for all);
 * NULL-terminated, the caller's to free. */
const struct corpus_kernel **corpus_sample(const struct corpus *c, uint32_t n);

#endif

/* `tally doctor`: finds out what a device and its driver do, as far as Tally depends on it.
 *
 *     host.c      what the machine tells: GPUs, MPS, limits
 *     driver.c    the functions of the driver
 *     group.c     a group of checks in a process of its own, with a limit of time
 *     facts.c     what driver and devices say of themselves
 *     memory.c    registration, visibility and order of stores, counters
 *     variant.c   a kernel in one of its forms, on the device
 *     machine.c   machine code, with a gate in front (lines.c: what it prints)
 *     rung.c      each rung over all kernels, with random stops
 *     latency.c   how long a stop takes
 *     streams.c   events, copies, the legacy stream, captures, occupancy
 *     green.c     a part of the SMs
 *     kernels.c, kernels_gate.c  the kernels, with what they must compute (data.c: what they work on)
 *     examine.c   all of it in order, and what follows: verdicts, the qualification
 *     text.c, json.c  what is told
 *
 * The driver is never loaded into the process that reports: each group of checks has a child, and
 * one that crashes or hangs is a finding. */
#ifndef TALLY_RUNTIME_DOCTOR_DOCTOR_H
#define TALLY_RUNTIME_DOCTOR_DOCTOR_H

#include "runtime/job/qualified.h"
#include "tally/base.h"

/* --- findings --------------------------------------------------------------------------------- */

enum tl_doc_kind {
    TL_DOC_BEGIN, /* a check begins: if nothing follows, it hung or crashed */
    TL_DOC_FACT,
    TL_DOC_CHECK,
    TL_DOC_END, /* the group is through */
    TL_DOC_KINDS,
};

enum { TL_DOC_NUMBERS = 16 };

/* What a child tells, in one write of less than PIPE_BUF bytes. */
struct tl_doc_finding {
    uint32_t kind;
    uint32_t verdict; /* of a check: enum tl_verdict */
    uint32_t costs;   /* of a refusal: Tally can do less without it */
    int32_t gpu;      /* -1: of the driver or the machine */
    char group[16], name[40];
    char text[256];
    uint32_t n_numbers;
    struct {
        char key[28];
        double value;
    } numbers[TL_DOC_NUMBERS];
};

struct tl_doctor {
    /* Asked for: */
    const char *driver; /* path of the library */
    const char *why;    /* it is that one, in words */
    uint64_t seed;
    uint32_t patience_s; /* for a check that does not come back */
    int gpu;             /* only this one; -1: all */
    const char *only;    /* one group, by its name; NULL: all */
    void (*progress)(void *data, int gpu, const char *group, const char *name);
    void *progress_data;
    /* Found: */
    struct tl_doc_finding *findings;
    uint32_t n, cap;
    bool has_failed_memory;
    uint32_t n_gpus; /* that were examined: those numbers from 0 on, or `gpu` */
};

/* Whether a group of checks has that name. */
bool tl_doctor_has_group(const char *name);
/* 0, or -ENOMEM. */
int tl_doctor_examine(struct tl_doctor *d);
void tl_doctor_finish(struct tl_doctor *d);

/* The verdict on a rung of a GPU: the worst of its checks, in their words. */
enum tl_verdict tl_doctor_rung(const struct tl_doctor *d, int gpu, enum tl_qualified_rung r,
                               char *why, size_t size);
/* The exit status: 0 all is well; 1 something is wrong; 3 something was refused that costs
 * something. */
int tl_doctor_status(const struct tl_doctor *d);
/* Keeps the verdicts on a GPU's rungs for jobs.  0, -ENODATA (too little was found out), another
 * negative errno value; with a message. */
int tl_doctor_keep(const struct tl_doctor *d, int gpu, char *path, size_t path_n,
                   struct tl_error *err);

/* A fact's text, or NULL. */
const char *tl_doctor_fact(const struct tl_doctor *d, int gpu, const char *name);
/* "sm_90", or empty. */
void tl_doctor_arch(const struct tl_doctor *d, int gpu, char *text, size_t size);

/* --- what is told ----------------------------------------------------------------------------- */

void tl_doctor_text(const struct tl_doctor *d, struct tl_buf *out);
/* The members of an object that the caller has begun. */
void tl_doctor_json(const struct tl_doctor *d, struct tl_json *j);

#endif

/* In a child: kernels in their forms on the device, and what they are launched with. */
#ifndef TALLY_RUNTIME_DOCTOR_BENCH_H
#define TALLY_RUNTIME_DOCTOR_BENCH_H

#include <stdatomic.h>

#include "runtime/doctor/driver.h"
#include "runtime/doctor/group.h"
#include "runtime/doctor/kernels.h"
#include "tally/ptx.h"

enum { TL_DOC_PAGE = 4096 };

/* --- a page of host memory that kernels reach --- */
struct tl_doc_page {
    void *host;
    CUdeviceptr device;
};
/* A shared mapping, as jobs hand them to each other, registered with the driver.  `is_writable`
 * says what the CPU may do with it, `flags` are added to those that Tally uses. */
CUresult tl_doc_page_make(struct tl_doc_page *p, bool is_writable, unsigned flags);
void tl_doc_page_free(struct tl_doc_page *p);

/* --- a kernel in one of its forms --- */
enum { TL_DOC_ORIGINAL = TL_PTX_VARIANTS, TL_DOC_GATED };

struct tl_doc_form {
    const struct tl_doc_kernel *kernel;
    int variant;     /* enum tl_ptx_variant, TL_DOC_ORIGINAL or TL_DOC_GATED */
    CUmodule module; /* NULL of a twin: it is its original's */
    CUfunction function;
    struct tl_ptx_rewritten r; /* of a variant */
    uint64_t variables[32];    /* of r.args[i] that is VARIABLE, at [i] */
    uint32_t shared_bytes;     /* dynamic, as launched */
    uint32_t occupancy;        /* blocks per SM */
    uint32_t gate_offset;      /* where the gate's parameters begin */
};

/* Rewrites, loads and sets it up.  `original` is the same kernel's, whose variables are used; NULL
 * for the original itself.  0, -EPERM (the rewriter refuses it), -EIO (the driver does), -ENOMEM;
 * with a message. */
int tl_doc_form_make(struct tl_doc_form *f, const struct tl_doc_kernel *k, int variant,
                     const struct tl_doc_form *original, struct tl_error *err);
void tl_doc_form_free(struct tl_doc_form *f);
/* What a form has once it is loaded: its occupancy.  0, -EIO. */
int tl_doc_form_measure(struct tl_doc_form *f, struct tl_error *err);

/* --- what it is launched with --- */
struct tl_doc_bench {
    CUstream stream;
    CUevent begin, end;
    uint32_t sms;
    uint32_t max_blocks; /* for which there is memory */
    CUdeviceptr in, out, runs, aux;
    const struct tl_doc_data *data; /* whose `big` is passed */
    /* The stop word, as another job writes it. */
    struct tl_doc_page page;
    _Atomic uint64_t *stop;
    /* The counter: in the host's memory if the device has atomics there, else copied to and fro. */
    bool has_host_atomics;
    uint32_t *count; /* pinned */
    CUdeviceptr counter;
};

/* With memory for so many blocks; slices need no word.  False if the driver refuses something,
 * which is told as a check of that name. */
bool tl_doc_bench_make(struct tl_doc_exam *e, struct tl_doc_bench *b, uint32_t max_blocks,
                       bool needs_word, const char *name);
/* Zeroes what kernels write, and copies `in` there. */
CUresult tl_doc_bench_clear(struct tl_doc_bench *b, const struct tl_doc_form *original,
                            const struct tl_doc_data *d);

struct tl_doc_piece {
    uint32_t first; /* slices, gates: its first block */
    uint32_t last;  /* gates: the one behind its last */
    bool
        /* gates: parameters in one piece; else one by one, where the code says they go */
        by_buffer;
    uint32_t grid;  /* blocks or workers that are launched */
    uint32_t batch; /* persistent: a power of two */
};
/* Launches a piece of it, or all of the original, between the two events. */
CUresult tl_doc_launch(struct tl_doc_bench *b, const struct tl_doc_form *f,
                       const struct tl_doc_shape *s, const struct tl_doc_piece *p);
/* Sets the counter in stream order, and tells what it is when the stream has come there. */
CUresult tl_doc_counter_set(struct tl_doc_bench *b, uint32_t value);
CUresult tl_doc_counter_get(struct tl_doc_bench *b, uint32_t *value);

/* The word says stop, or go on; nothing without one. */
void tl_doc_stop(struct tl_doc_bench *b, bool is_busy);

/* How long one block lasts alone, by the device's clock, with that many steps; 0 if it cannot be
 * told. */
uint64_t tl_doc_block_ns(struct tl_doc_bench *b, const struct tl_doc_form *original, uint32_t spin);
/* Steps for a block of about that time. */
uint32_t tl_doc_spin_for(struct tl_doc_bench *b, const struct tl_doc_form *original, uint64_t ns);

/* Loads a text and finds its entry. */
CUresult tl_doc_load(const char *text, const char *entry, CUmodule *module, CUfunction *function);
void tl_doc_sleep(uint64_t ns);
/* A grid of lines. */
CUresult tl_doc_launch_plain(CUfunction f, uint32_t blocks, uint32_t threads, CUstream stream,
                             void **params);

/* How long a stop takes on that rung (latency.c): of a kernel that was made, with its original. */
void tl_doc_latency(struct tl_doc_exam *e, const struct tl_doc_form *original,
                    const struct tl_doc_form *form);

#endif

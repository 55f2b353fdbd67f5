/* Contexts and streams as the job knows them, and the real ones behind. */
#ifndef TALLY_EFFORT_STREAM_H
#define TALLY_EFFORT_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/whose.h"

struct tl_eff_item;
struct tl_eff_control_slab;

/* A part of the SMs.  The executor's own, but for the spare streams: the lock. */
struct tl_eff_cap {
    uint32_t sms;
    CUgreenCtx green;
    CUstream spare[16]; /* of streams that the job has destroyed */
    uint32_t n_spare;
};

enum {
    TL_EFF_SIDES = 8,
    TL_EFF_CAPS = 8, /* sizes of parts */
    TL_EFF_STREAM_SLOTS = 256,
    TL_EFF_KICKS = 2,
    TL_EFF_SPARES = 16,
    TL_EFF_SCRATCH_GATE = 32,
    TL_EFF_BESIDE = 4, /* streams for what is launched beside a kernel that stands still */
};

/* Under the lock, but for what it says otherwise. */
struct tl_eff_context {
    struct tl_eff_context *next;
    CUcontext handle;
    _Atomic bool is_placed; /* the shim knows that it has work */
    /* where the page counts for its GPU; NULL until it is placed, or if there is no room */
    struct tl_share_gpu *_Atomic gpu;
    struct tl_eff_stream *streams; /* all, the legacy one included */
    struct tl_eff_stream *legacy;
    CUresult error; /* of something that was queued; told at the next wait */
    /* A kernel stands still for good (runtime/effort/rescue.c): what waits for the device is told
     * this error and does not wait.  Set once, under the lock. */
    _Atomic CUresult lost;
    /* What pieces need, made when the first is launched; the executor's own. */
    bool is_prepared, is_unfit;
    bool has_host_atomics;
    int n_sms;
    /* an SM has one block at a time, whatever its occupancy: the software device */
    bool runs_block_by_block;
    CUdevice device;
    bool tells_work; /* how much processor time its kernels have had: the software device */
    /* where host functions stand that tell of ends, beside the streams */
    CUstream sides[TL_EFF_SIDES];
    CUstream clock_side; /* nothing else stands in it, so that waiting there takes a moment only */
    CUstream beside[TL_EFF_BESIDE];
    uint32_t n_beside;              /* uses of them so far */
    CUstream spares[TL_EFF_SPARES]; /* `other` ones of streams that are gone: the lock */
    uint32_t n_spares;
    CUevent *events;
    uint32_t n_events, cap_events;
    struct tl_eff_control_slab *slab;
    /* Tell what was launched to leave: the grant was withdrawn, or there are other words.  Launches
     * with one set of words have another than those with the next. */
    _Atomic uint64_t *kick_words[TL_EFF_KICKS];
    CUdeviceptr kick_device[TL_EFF_KICKS];
    CUdeviceptr never_device;    /* a word that never says stop, */
    CUdeviceptr always_device;   /* and one that always does */
    const uint32_t *unreachable; /* in host memory: what no counter says */
    const uint64_t *zeros;       /* in host memory */
    /* when to try again to find it idle, and how often that was in vain
     * (runtime/effort/moment.c) */
    uint64_t next_moment_ns;
    uint32_t n_moments_missed;
    CUstream work; /* in which variants are tried; the builder's own, as what follows */
    /* words and counter of launches that do nothing, and from TL_EFF_SCRATCH_GATE on, of gated
     * ones */
    CUdeviceptr scratch;
    CUevent clock; /* an event whose time is known: when it was done by the host's clock */
    uint64_t clock_ns;
    struct tl_eff_cap caps[TL_EFF_CAPS];
    uint32_t n_caps;
    bool is_capless; /* there are no such parts, or they were refused */
    /* bit per enum tl_rung: not to be used on this device (runtime/effort/qualified.h) */
    uint32_t unqualified;
    enum tl_eff_examined examined; /* what is known of the gate there */
};

/* Under the lock, but for handle, number and what kind it is, which never change, and for
 * `is_capturing`, which only its own calls change. */
struct tl_eff_stream {
    struct tl_eff_stream *next;         /* in the context's list */
    struct tl_eff_stream *next_in_hash; /* by handle */
    struct tl_eff_stream *next_busy;    /* in the executor's list */
    struct tl_eff_context *context;
    CUstream handle; /* the real one; NULL for the legacy stream */
    uint32_t number; /* for the timeline */
    bool is_legacy, is_blocking;
    bool is_capturing;
    bool is_busy;        /* in the executor's list */
    bool is_destroyed;   /* by the job; it goes when nothing is queued any more */
    bool has_attributes; /* besides its priority; the executor's streams beside it have them, too */
    bool is_held;        /* its head has to wait for a permit or the rate */
    struct tl_eff_item *first, *last;
    uint32_t n_items;
    /* Pieces on the device, oldest first, and what may not go on before they are over. */
    uint32_t n_flying;
    /* a piece came back before its work was done: what was launched behind it has to come back
     * first */
    bool is_stalled;
    /* Whole kernels that were given to the driver and whose end nobody watches for yet. */
    uint32_t n_unmarked;
    uint64_t unmarked_ns;    /* predicted */
    uint64_t unmarked_since; /* when the first of them was launched */
    uint32_t n_marked;       /* that were such and are over or watched, since the stream began */
    uint64_t last_done_ns;   /* end of the last piece seen */
    /* A mark put behind them while the job begins to capture the stream would become part of its
     * graph. */
    bool is_being_marked;
    uint32_t n_unmarkable; /* callers who may be about to capture it */
    /* Its kernels on a part of the SMs stand in a stream of that part, one for each, or streams
     * would wait for one another. */
    CUstream capped;
    CUgreenCtx capped_in;
    /* Where every other slice stands, so that none has to wait for the end of the one before it,
     * which may wait for its blocks.  NULL until there is one; the executor's. */
    CUstream other;
};

struct tl_eff_streams {
    struct tl_eff_context *contexts;
    /* legacy ones are found by context */
    struct tl_eff_stream *by_handle[TL_EFF_STREAM_SLOTS];
    uint32_t n; /* numbers given so far */
};
extern struct tl_eff_streams tl_eff_streams TL_EFF_GUARDED;

/* Forgets all. */
void tl_eff_streams_start(void) TL_EFF_UNLOCKED;
void tl_eff_streams_forked(void);

/* The stream behind a handle: 0, 1 and 2 included; `is_per_thread` is how the caller means 0.  An
 * error is what the driver would have said to such a handle. */
CUresult tl_eff_stream(CUstream handle, bool is_per_thread,
                       struct tl_eff_stream **out) TL_EFF_UNLOCKED;
/* Made if new, NULL without memory. */
struct tl_eff_context *tl_eff_context(CUcontext handle) TL_EFF_LOCKED;
static inline CUresult tl_eff_lost(const struct tl_eff_context *c)
{
    return c != NULL ? atomic_load_explicit(&c->lost, memory_order_acquire) : CUDA_SUCCESS;
}
/* The current context's, or NULL if there is none. */
struct tl_eff_context *tl_eff_current(void) TL_EFF_UNLOCKED;
/* Of the calling thread of ours. */
void tl_eff_make_current(struct tl_eff_context *c) TL_EFF_UNLOCKED;
/* Its handle means nothing any more. */
void tl_eff_stream_forget(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* Nothing is queued in it. */
void tl_eff_stream_free(struct tl_eff_stream *s) TL_EFF_LOCKED;
void tl_eff_context_free(struct tl_eff_context *c) TL_EFF_LOCKED;

#endif

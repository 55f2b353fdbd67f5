/* Operations: work on its way through the device.
 *
 * Work is a graph of operations.  An operation knows how many predecessors are unfinished and who
 * comes after it; streams, events, legacy-stream rules and CUDA graphs only differ in which
 * predecessors they give it.  See device/driver/op.c. */
#ifndef TALLY_DEVICE_DRIVER_OP_H
#define TALLY_DEVICE_DRIVER_OP_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum tl_drv_state {
    TL_DRV_PENDING, /* predecessors are unfinished */
    TL_DRV_READY,   /* to be run, by the pool or by the caller that waits for it */
    TL_DRV_RUNNING,
    TL_DRV_DONE,
};

enum { TL_DRV_INLINE_SUCCESSORS = 4 };

struct tl_drv_op {
    /* enum tl_drv_state; written under the lock, read anywhere; also a futex */
    _Atomic uint32_t state;
    uint32_t refs;
    uint32_t waits; /* unfinished predecessors, one more while it is being set up */
    bool caller_runs;
    atomic_bool has_waiters;
    bool was_dropped;       /* its context had failed before it could run */
    struct tl_drv_op *next; /* in the pool's queue or in the list of free ones */
    struct tl_drv_op **after, *inline_after[TL_DRV_INLINE_SUCCESSORS];
    uint32_t n_after, cap_after;
    struct CUctx_st *ctx;
    struct tl_drv_work work;
    uint64_t done_ns;            /* CLOCK_MONOTONIC; stable once DONE */
    struct tl_exec_launch *exec; /* made for the first kernel, kept for later ones */
};

/* lock held; one reference */
struct tl_drv_op *tl_drv_op_create(struct CUctx_st *ctx, const struct tl_drv_work *work);
/* lock held */
void tl_drv_op_after(struct tl_drv_op *op, struct tl_drv_op *predecessor);
/* Puts what follows a gate between it and its end (device/driver/graph_exec.c), and drops a
 * reference (device/driver/graph_conditional.c). */
void tl_drv_gate_open(struct tl_drv_op *gate);
void tl_drv_conditional_unref(struct tl_drv_conditional *c);
void tl_drv_op_order(struct tl_drv_op *op,
                     /* behind the stream's work, and its new tail; lock held */
                     struct CUstream_st *s);
/* All predecessors are named: may run from now on.  Lock held; returns it released. */
void tl_drv_op_start_unlock(struct tl_drv_op *op);
void tl_drv_op_finished(struct tl_drv_op *op, CUresult result); /* lock not held */
void tl_drv_op_unref(struct tl_drv_op *op);                     /* lock held */
bool tl_drv_op_is_done(const struct tl_drv_op *op);
void tl_drv_op_wait(struct tl_drv_op *op); /* lock not held, the caller has a reference */
/* Puts work into a stream, or into the graph that the stream is captured to.  Owns `work`'s parts
 * in any case.  With `wait`, returns when it is done; its bytes are then moved by the calling
 * thread. */
CUresult tl_drv_submit(struct CUstream_st *s, struct tl_drv_work *work, bool wait);

#endif

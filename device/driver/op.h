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

/* Guarded by the driver's lock while it waits; who runs it has `work`, `exec` and `next` to
 * itself. */
struct tl_drv_op {
    /* enum tl_drv_state; written under the lock, read anywhere; also a futex */
    _Atomic uint32_t state;
    uint32_t refs TL_DRV_GUARDED;
    uint32_t waits TL_DRV_GUARDED; /* unfinished predecessors, one more while it is being set up */
    bool caller_runs;
    atomic_bool has_waiters;
    bool was_dropped;       /* its context had failed before it could run */
    struct tl_drv_op *next; /* in the pool's queue or in the list of free ones */
    struct tl_drv_op **after TL_DRV_GUARDED;
    struct tl_drv_op *inline_after[TL_DRV_INLINE_SUCCESSORS] TL_DRV_GUARDED;
    uint32_t n_after TL_DRV_GUARDED, cap_after TL_DRV_GUARDED;
    struct CUctx_st *ctx;
    struct tl_drv_work work;
    uint64_t done_ns;                /* CLOCK_MONOTONIC; stable once DONE */
    struct tl_drv_exec_launch *exec; /* made for the first kernel, kept for later ones */
};

/* one reference */
struct tl_drv_op *tl_drv_op_create(struct CUctx_st *ctx,
                                   const struct tl_drv_work *work) TL_DRV_LOCKED;
void tl_drv_op_after(struct tl_drv_op *op, struct tl_drv_op *predecessor) TL_DRV_LOCKED;
/* Puts what follows a gate between it and its end (device/driver/graph_launch.c), and drops a
 * reference (device/driver/graph_conditional.c). */
void tl_drv_gate_open(struct tl_drv_op *gate) TL_DRV_UNLOCKED;
void tl_drv_conditional_unref(struct tl_drv_conditional *c) TL_DRV_LOCKED;
/* behind the stream's work, and its new tail */
void tl_drv_op_order(struct tl_drv_op *op, struct CUstream_st *s) TL_DRV_LOCKED;
/* All predecessors are named: may run from now on. */
void tl_drv_op_start_unlock(struct tl_drv_op *op) TL_RELEASE(tl_drv_mutex);
/* The same; what the caller has to run then, without the lock, goes to the end of the list. */
void tl_drv_op_start(struct tl_drv_op *op, struct tl_drv_op **ready) TL_DRV_LOCKED;
void tl_drv_op_finished(struct tl_drv_op *op, CUresult result) TL_DRV_UNLOCKED;
void tl_drv_op_unref(struct tl_drv_op *op) TL_DRV_LOCKED;
bool tl_drv_op_is_done(const struct tl_drv_op *op);
void tl_drv_op_wait(struct tl_drv_op *op) TL_DRV_UNLOCKED; /* the caller has a reference */
/* Puts work into a stream, or into the graph that the stream is captured to.  Owns `work`'s parts
 * in any case.  With `wait`, returns when it is done; its bytes are then moved by the calling
 * thread. */
CUresult tl_drv_submit(struct CUstream_st *s, struct tl_drv_work *work, bool wait) TL_DRV_UNLOCKED;

#endif

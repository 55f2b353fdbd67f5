/* Streams and events (device/driver/stream.c, device/driver/event.c). */
#ifndef TALLY_DEVICE_DRIVER_STREAM_H
#define TALLY_DEVICE_DRIVER_STREAM_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tl_drv_capture;
struct tl_drv_op;

/* Guarded by the driver's lock, but for what never changes. */
struct CUstream_st {
    uint32_t magic;
    unsigned flags;
    struct CUctx_st *ctx;
    struct CUstream_st *next TL_DRV_GUARDED; /* in the context's list */
    int priority;
    uint64_t id;
    bool is_legacy, is_per_thread;
    struct tl_drv_op *tail
        TL_DRV_GUARDED; /* last operation, a reference; NULL if there never was one */
    struct tl_drv_capture *capture;
    struct CUgraphNode_st **capture_tail; /* what the next captured node depends on */
    CUgraphEdgeData *capture_edges;       /* of these dependencies: plain ones, all of them */
    size_t n_capture_tail;
    CUstreamAttrValue attributes[8];
};

/* Guarded by the driver's lock, but for what never changes. */
struct CUevent_st {
    uint32_t magic;
    unsigned flags;
    struct CUctx_st *ctx;
    struct tl_drv_op *op TL_DRV_GUARDED; /* last record, a reference */
    struct tl_drv_shared_event *shared;  /* between processes: what counts then, NULL otherwise */
    int shared_fd;
    struct tl_drv_capture *capture; /* recorded in this capture, behind these nodes */
    uint64_t capture_id;
    struct CUgraphNode_st **nodes;
    size_t n_nodes;
};

/* An event's record as processes share it: it is done when as many were completed as issued.
 * Nobody's lock: both count up only. */
struct tl_drv_shared_event {
    _Atomic uint64_t issued, completed;
};

/* The stream behind a handle (0, 1 and 2 included), with its context checked. */
CUresult tl_drv_stream(CUstream handle, struct CUstream_st **out);
struct CUstream_st *tl_drv_stream_create(struct CUctx_st *ctx, unsigned flags,
                                         int priority) TL_DRV_LOCKED;
/* Waits for everything submitted to a context so far; refused while one of its streams is
 * captured. */
CUresult tl_drv_context_wait(struct CUctx_st *ctx) TL_DRV_UNLOCKED;
/* The same for the driver's own sake: what is captured is no work, and has no say. */
CUresult tl_drv_context_drain(struct CUctx_st *ctx) TL_DRV_UNLOCKED;
/* For what the documentation says may wait for the context: allocations, loads of modules.  A
 * strict profile does. */
void tl_drv_context_may_drain(struct CUctx_st *ctx) TL_DRV_UNLOCKED;
CUresult tl_drv_stream_wait(struct CUstream_st *s) TL_DRV_UNLOCKED;

/* Everything that stands in the context's streams now; the event's new record. */
CUresult tl_drv_event_record_context(struct CUevent_st *e, struct CUctx_st *ctx) TL_DRV_UNLOCKED;
CUresult tl_drv_event_wait(struct CUstream_st *s, struct CUevent_st *e) TL_DRV_UNLOCKED;

#endif

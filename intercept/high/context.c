/* What comes and goes under the counters of a job that never gives way: current contexts, streams,
 * contexts, captures.
 *
 * The watcher asks the driver about streams from its own thread.  So whoever ends a stream or a
 * context, or begins to capture, does it under the watcher's lock; the way of a launch never takes
 * it. */
#include "intercept/high/high.h"
#include "intercept/memory/memory.h"

#include <stdlib.h>

#include "tally/lock.h"

/* --- the thread's current context --- */

/* The default streams of a thread are those of its current context. */
#define SWITCH(name, PARAMETERS, ARGUMENTS)                                                        \
    static CUresult hook_##name PARAMETERS                                                         \
    {                                                                                              \
        tl_stream_forget_context();                                                                \
        return TL_REAL(name) ARGUMENTS;                                                            \
    }
SWITCH(cuCtxSetCurrent, (CUcontext ctx), (ctx))
SWITCH(cuCtxPushCurrent, (CUcontext ctx), (ctx))
SWITCH(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))
SWITCH(cuCtxPopCurrent, (CUcontext * ctx), (ctx))
SWITCH(cuCtxPopCurrent_v2, (CUcontext * ctx), (ctx))
SWITCH(cuCtxCreate, (CUcontext * ctx, unsigned flags, CUdevice dev), (ctx, flags, dev))
SWITCH(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice dev), (ctx, flags, dev))
SWITCH(cuCtxCreate_v3,
       (CUcontext * ctx, CUexecAffinityParam *params, int n, unsigned flags, CUdevice dev),
       (ctx, params, n, flags, dev))
SWITCH(cuCtxCreate_v4, (CUcontext * ctx, CUctxCreateParams *params, unsigned flags, CUdevice dev),
       (ctx, params, flags, dev))

/* --- contexts that go --- */

/* With the context, its work is over. */
static void context_gone(CUcontext ctx) TL_REQUIRES(tl_watch_mutex);
static void context_gone(CUcontext ctx)
{
    for (struct tl_stream *s = tl_stream_first(); s != NULL; s = s->next) {
        if (s->ctx != ctx || atomic_load_explicit(&s->is_gone, memory_order_relaxed))
            continue;
        if (s->is_origin) {
            s->is_origin = false;
            atomic_fetch_sub(&tl_high_captures, 1);
        }
        tl_stream_gone(s);
        tl_stream_complete(s, tl_stream_submitted(s));
    }
    tl_sample_context_gone(ctx);
    tl_priority_context_gone(ctx);
    tl_memory_context_gone(ctx);
}

#define DESTROY(name)                                                                              \
    static CUresult hook_##name(CUcontext ctx)                                                     \
    {                                                                                              \
        tl_watch_lock();                                                                           \
        tl_stream_forget_context();                                                                \
        CUresult r = TL_REAL(name)(ctx);                                                           \
        if (r == CUDA_SUCCESS)                                                                     \
            context_gone(ctx);                                                                     \
        tl_watch_unlock();                                                                         \
        return r;                                                                                  \
    }
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

static CUresult hook_cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext ctx = NULL;
    tl_watch_lock();
    tl_stream_forget_context();
    if (TL_REAL(cuCtxFromGreenCtx)(&ctx, green) != CUDA_SUCCESS)
        ctx = NULL;
    CUresult r = TL_REAL(cuGreenCtxDestroy)(green);
    if (r == CUDA_SUCCESS && ctx != NULL)
        context_gone(ctx);
    tl_watch_unlock();
    return r;
}

/* A primary context goes with its last user: whether that was so, only the device's state tells. */
static CUcontext primary_of(CUdevice dev)
{
    unsigned flags;
    int is_active = 0;
    CUcontext ctx = NULL;
    if (TL_REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &is_active) != CUDA_SUCCESS || !is_active)
        return NULL;
    /* Its handle is only told to who retains it. */
    if (TL_REAL(cuDevicePrimaryCtxRetain)(&ctx, dev) != CUDA_SUCCESS)
        return NULL;
    TL_REAL(cuDevicePrimaryCtxRelease_v2)(dev);
    return ctx;
}

static void primary_left(CUcontext before, CUdevice dev) TL_REQUIRES(tl_watch_mutex);
static void primary_left(CUcontext before, CUdevice dev)
{
    unsigned flags;
    int is_active = 1;
    if (before != NULL &&
        TL_REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &is_active) == CUDA_SUCCESS && !is_active)
        context_gone(before);
}

#define PRIMARY(name)                                                                              \
    static CUresult hook_##name(CUdevice dev)                                                      \
    {                                                                                              \
        tl_watch_lock();                                                                           \
        tl_stream_forget_context();                                                                \
        CUcontext before = primary_of(dev);                                                        \
        CUresult r = TL_REAL(name)(dev);                                                           \
        primary_left(before, dev);                                                                 \
        tl_watch_unlock();                                                                         \
        return r;                                                                                  \
    }
PRIMARY(cuDevicePrimaryCtxRelease)
PRIMARY(cuDevicePrimaryCtxRelease_v2)
PRIMARY(cuDevicePrimaryCtxReset)
PRIMARY(cuDevicePrimaryCtxReset_v2)

/* --- streams that go --- */

/* A stream may be destroyed with work in it, which then goes on: an event behind that work tells
 * when it ends. */
#define STREAM_DESTROY(name)                                                                       \
    static CUresult hook_##name(CUstream stream)                                                   \
    {                                                                                              \
        if ((uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD)                                  \
            return TL_REAL(name)(stream);                                                          \
        tl_watch_lock();                                                                           \
        tl_priority_gone(stream);                                                                  \
        struct tl_stream *s = tl_stream_find(stream, false);                                       \
        if (s != NULL && s->is_origin) {                                                           \
            s->is_origin = false;                                                                  \
            atomic_fetch_sub(&tl_high_captures, 1);                                                \
        } else if (s != NULL && tl_stream_is_busy(s)) {                                            \
            tl_watch_orphan(s, stream);                                                            \
        }                                                                                          \
        CUresult r = TL_REAL(name)(stream);                                                        \
        if (s != NULL && r == CUDA_SUCCESS)                                                        \
            tl_stream_gone(s);                                                                     \
        tl_watch_unlock();                                                                         \
        return r;                                                                                  \
    }
STREAM_DESTROY(cuStreamDestroy)
STREAM_DESTROY(cuStreamDestroy_v2)

/* --- captures --- */

static void capture_began(CUstream stream, bool is_per_thread, CUresult r)
    TL_REQUIRES(tl_watch_mutex);
static void capture_began(CUstream stream, bool is_per_thread, CUresult r)
{
    struct tl_stream *s = r == CUDA_SUCCESS ? tl_stream_find(stream, is_per_thread) : NULL;
    if (s != NULL && !s->is_origin) {
        s->is_origin = true;
        atomic_fetch_add(&tl_high_captures, 1);
    }
}

/* Also a capture that fails may be over: the stream says. */
static void capture_ended(CUstream stream, bool is_per_thread) TL_REQUIRES(tl_watch_mutex);
static void capture_ended(CUstream stream, bool is_per_thread)
{
    struct tl_stream *s = tl_stream_find(stream, is_per_thread);
    if (s != NULL && s->is_origin && !tl_stream_is_capturing(stream, is_per_thread)) {
        s->is_origin = false;
        atomic_fetch_sub(&tl_high_captures, 1);
    }
}

#define BEGIN_CAPTURE(name, is_per_thread, PARAMETERS, ARGUMENTS)                                  \
    static CUresult hook_##name PARAMETERS                                                         \
    {                                                                                              \
        tl_watch_lock();                                                                           \
        CUresult r = TL_REAL(name) ARGUMENTS;                                                      \
        capture_began(stream, is_per_thread, r);                                                   \
        tl_watch_unlock();                                                                         \
        return r;                                                                                  \
    }
BEGIN_CAPTURE(cuStreamBeginCapture, false, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, true, (CUstream stream), (stream))
BEGIN_CAPTURE(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, true, (CUstream stream, CUstreamCaptureMode mode),
              (stream, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, false,
              (CUstream stream, CUgraph graph, const CUgraphNode *nodes,
               const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode),
              (stream, graph, nodes, data, n, mode))
BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, true,
              (CUstream stream, CUgraph graph, const CUgraphNode *nodes,
               const CUgraphEdgeData *data, size_t n, CUstreamCaptureMode mode),
              (stream, graph, nodes, data, n, mode))

#define END_CAPTURE(name, is_per_thread)                                                           \
    static CUresult hook_##name(CUstream stream, CUgraph *graph)                                   \
    {                                                                                              \
        tl_watch_lock();                                                                           \
        CUresult r = TL_REAL(name)(stream, graph);                                                 \
        capture_ended(stream, is_per_thread);                                                      \
        tl_watch_unlock();                                                                         \
        return r;                                                                                  \
    }
END_CAPTURE(cuStreamEndCapture, false)
END_CAPTURE(cuStreamEndCapture_ptsz, true)

/* A stream joins a capture by waiting for an event of it: not while the watcher asks about the
 * stream. */
#define JOIN_CAPTURE(name)                                                                         \
    static CUresult hook_##name(CUstream stream, CUevent event, unsigned flags)                    \
    {                                                                                              \
        if (atomic_load_explicit(&tl_high_captures, memory_order_relaxed) == 0)                    \
            return TL_REAL(name)(stream, event, flags);                                            \
        tl_watch_lock();                                                                           \
        CUresult r = TL_REAL(name)(stream, event, flags);                                          \
        tl_watch_unlock();                                                                         \
        return r;                                                                                  \
    }
JOIN_CAPTURE(cuStreamWaitEvent)
JOIN_CAPTURE(cuStreamWaitEvent_ptsz)

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_high_context_hooks[] = {
    HOOK(cuCtxSetCurrent), HOOK(cuCtxPushCurrent), HOOK(cuCtxPushCurrent_v2), HOOK(cuCtxPopCurrent), HOOK(cuCtxPopCurrent_v2),
    HOOK(cuCtxCreate), HOOK(cuCtxCreate_v2), HOOK(cuCtxCreate_v3), HOOK(cuCtxCreate_v4), HOOK(cuCtxDestroy), HOOK(cuCtxDestroy_v2),
    HOOK(cuGreenCtxDestroy), HOOK(cuDevicePrimaryCtxRelease), HOOK(cuDevicePrimaryCtxRelease_v2),
    HOOK(cuDevicePrimaryCtxReset), HOOK(cuDevicePrimaryCtxReset_v2),
    HOOK(cuStreamDestroy), HOOK(cuStreamDestroy_v2),
    HOOK(cuStreamBeginCapture), HOOK(cuStreamBeginCapture_ptsz), HOOK(cuStreamBeginCapture_v2), HOOK(cuStreamBeginCapture_v2_ptsz),
    HOOK(cuStreamBeginCaptureToGraph), HOOK(cuStreamBeginCaptureToGraph_ptsz), HOOK(cuStreamEndCapture), HOOK(cuStreamEndCapture_ptsz),
    HOOK(cuStreamWaitEvent), HOOK(cuStreamWaitEvent_ptsz),
    {NULL, NULL},
};
/* clang-format on */

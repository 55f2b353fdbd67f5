/* Waits of jobs that never give way: what a wait that has returned proves is done.
 *
 * What counts is what was submitted before the wait began; a thread that submits meanwhile is not
 * vouched for.  An event proves what its stream had when it was recorded. */
#include "intercept/capture/map.h"
#include "intercept/high/high.h"

#include <stdlib.h>

/* of a context that a wait for it proves; the watcher sees to the rest */
enum { MAX_STREAMS = 128 };

/* --- streams --- */

/* A wait for one stream, on its way. */
struct wait {
    struct tl_stream *s;
    uint32_t upto;
};

static struct wait begin_wait(struct tl_stream *s, uint32_t upto)
{
    if (s != NULL)
        atomic_fetch_add_explicit(&s->waiters, 1, memory_order_relaxed);
    return (struct wait){.s = s, .upto = upto};
}

static void end_wait(struct wait w, bool is_proven)
{
    if (w.s == NULL)
        return;
    if (is_proven)
        tl_stream_complete(w.s, w.upto);
    atomic_fetch_sub_explicit(&w.s->waiters, 1, memory_order_release);
}

static struct tl_stream *waited_stream(CUstream stream, bool is_per_thread)
{
    bool is_captured = atomic_load_explicit(&tl_high_captures, memory_order_relaxed) != 0 &&
                       tl_stream_is_capturing(stream, is_per_thread);
    return is_captured ? NULL : tl_stream_of(stream, is_per_thread);
}

/* Both forms: the one that waits, and the one that looks. */
#define STREAM_WAIT(name, is_per_thread)                                                           \
    static CUresult hook_##name(CUstream stream)                                                   \
    {                                                                                              \
        struct tl_stream *s = waited_stream(stream, is_per_thread);                                \
        struct wait w = begin_wait(s, tl_stream_submitted(s));                                     \
        CUresult r = TL_REAL(name)(stream);                                                        \
        end_wait(w, r == CUDA_SUCCESS);                                                            \
        if (r == CUDA_SUCCESS)                                                                     \
            tl_request_waited();                                                                   \
        return r;                                                                                  \
    }
STREAM_WAIT(cuStreamSynchronize, false)
STREAM_WAIT(cuStreamSynchronize_ptsz, true)
STREAM_WAIT(cuStreamQuery, false)
STREAM_WAIT(cuStreamQuery_ptsz, true)

/* --- contexts --- */

static size_t begin_waits(struct wait *waits, CUcontext ctx)
{
    size_t n = 0;
    for (struct tl_stream *s = tl_stream_first(); s != NULL && n < MAX_STREAMS; s = s->next)
        if (!atomic_load_explicit(&s->is_gone, memory_order_acquire) && s->ctx == ctx &&
            tl_stream_is_busy(s))
            waits[n++] = begin_wait(s, tl_stream_submitted(s));
    return n;
}

static CUresult end_waits(const struct wait *waits, size_t n, CUresult r)
{
    for (size_t i = 0; i < n; i++)
        end_wait(waits[i], r == CUDA_SUCCESS);
    if (r == CUDA_SUCCESS)
        tl_request_waited();
    return r;
}

static CUresult hook_cuCtxSynchronize(void)
{
    struct wait waits[MAX_STREAMS];
    CUcontext ctx = NULL;
    TL_REAL(cuCtxGetCurrent)(&ctx);
    size_t n = begin_waits(waits, ctx);
    return end_waits(waits, n, TL_REAL(cuCtxSynchronize)());
}

static CUresult hook_cuCtxSynchronize_v2(CUcontext ctx)
{
    struct wait waits[MAX_STREAMS];
    size_t n = begin_waits(waits, ctx);
    return end_waits(waits, n, TL_REAL(cuCtxSynchronize_v2)(ctx));
}

/* --- events --- */

/* What the last record of an event proves.  Kept for the handle's next event. */
struct event {
    struct tl_stream *_Atomic s; /* NULL: nothing */
    _Atomic uint32_t upto;
};

static struct tl_map events = TL_MAP_EMPTY;

void tl_wait_forked(void)
{
    tl_map_forked(&events);
}

static void recorded(CUevent handle, struct tl_stream *s, uint32_t upto)
{
    struct event *e = tl_map_find(&events, (uintptr_t)handle);
    if (e == NULL && s != NULL) {
        struct event *made = calloc(1, sizeof *made);
        e = made != NULL ? tl_map_keep(&events, (uintptr_t)handle, made) : NULL;
        if (e != made)
            free(made);
    }
    if (e == NULL)
        return;
    atomic_store_explicit(&e->s, NULL, memory_order_relaxed);
    atomic_store_explicit(&e->upto, upto, memory_order_release);
    atomic_store_explicit(&e->s, s, memory_order_release);
}

static struct wait begin_event(CUevent handle)
{
    struct event *e = tl_map_find(&events, (uintptr_t)handle);
    struct tl_stream *s = e != NULL ? atomic_load_explicit(&e->s, memory_order_acquire) : NULL;
    return begin_wait(s, s != NULL ? atomic_load_explicit(&e->upto, memory_order_acquire) : 0);
}

#define EVENT_RECORD(name, is_per_thread, PARAMETERS, ARGUMENTS)                                   \
    static CUresult hook_##name PARAMETERS                                                         \
    {                                                                                              \
        struct tl_stream *s = waited_stream(stream, is_per_thread);                                \
        uint32_t upto = tl_stream_submitted(s);                                                    \
        CUresult r = TL_REAL(name) ARGUMENTS;                                                      \
        if (r == CUDA_SUCCESS)                                                                     \
            recorded(event, s, upto);                                                              \
        return r;                                                                                  \
    }
EVENT_RECORD(cuEventRecord, false, (CUevent event, CUstream stream), (event, stream))
EVENT_RECORD(cuEventRecord_ptsz, true, (CUevent event, CUstream stream), (event, stream))
EVENT_RECORD(cuEventRecordWithFlags, false, (CUevent event, CUstream stream, unsigned flags),
             (event, stream, flags))
EVENT_RECORD(cuEventRecordWithFlags_ptsz, true, (CUevent event, CUstream stream, unsigned flags),
             (event, stream, flags))

#define EVENT_WAIT(name)                                                                           \
    static CUresult hook_##name(CUevent event)                                                     \
    {                                                                                              \
        struct wait w = begin_event(event);                                                        \
        CUresult r = TL_REAL(name)(event);                                                         \
        end_wait(w, r == CUDA_SUCCESS);                                                            \
        if (r == CUDA_SUCCESS && w.s != NULL)                                                      \
            tl_request_waited();                                                                   \
        return r;                                                                                  \
    }
EVENT_WAIT(cuEventSynchronize)
EVENT_WAIT(cuEventQuery)

#define EVENT_DESTROY(name)                                                                        \
    static CUresult hook_##name(CUevent event)                                                     \
    {                                                                                              \
        recorded(event, NULL, 0);                                                                  \
        return TL_REAL(name)(event);                                                               \
    }
EVENT_DESTROY(cuEventDestroy)
EVENT_DESTROY(cuEventDestroy_v2)

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
const struct tl_hook tl_high_wait_hooks[] = {
    HOOK(cuStreamSynchronize), HOOK(cuStreamSynchronize_ptsz), HOOK(cuStreamQuery), HOOK(cuStreamQuery_ptsz),
    HOOK(cuCtxSynchronize), HOOK(cuCtxSynchronize_v2),
    HOOK(cuEventRecord), HOOK(cuEventRecord_ptsz), HOOK(cuEventRecordWithFlags), HOOK(cuEventRecordWithFlags_ptsz),
    HOOK(cuEventSynchronize), HOOK(cuEventQuery), HOOK(cuEventDestroy), HOOK(cuEventDestroy_v2),
    {NULL, NULL},
};
/* clang-format on */

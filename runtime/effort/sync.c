/* Waiting, capture, and the ends of streams, memory, modules and contexts: what must find nothing
 * of it queued any more. */
#include "runtime/effort/alloc.h"
#include "runtime/effort/cap.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/hooks.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

/* --- waiting ---------------------------------------------------------------------------------- */

static CUresult stream_synchronize(CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_eff_lock();
    if (!s->is_capturing)
        tl_eff_drain_stream(s);
    struct tl_eff_unwatched before = tl_eff_unwatched(s);
    tl_eff_unlock();
    if (tl_eff_lost(s->context) != CUDA_SUCCESS)
        return tl_eff_lost(s->context);
    r = tl_eff_real.cuStreamSynchronize(s->handle);
    if (r == CUDA_SUCCESS && before.n > 0) {
        tl_eff_lock();
        tl_eff_unmark(s, &before);
        tl_eff_unlock();
    }
    return tl_eff_result(s->context, r);
}

static CUresult hook_cuStreamSynchronize(CUstream stream)
{
    return stream_synchronize(stream, false);
}

static CUresult hook_cuStreamSynchronize_ptsz(CUstream stream)
{
    return stream_synchronize(stream, true);
}

static CUresult stream_query(CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_eff_lock();
    bool is_empty = s->first == NULL && (!s->is_legacy || tl_eff_passes(s));
    tl_eff_unlock();
    if (tl_eff_lost(s->context) != CUDA_SUCCESS)
        return tl_eff_lost(s->context);
    return is_empty ? tl_eff_real.cuStreamQuery(s->handle) : CUDA_ERROR_NOT_READY;
}

static CUresult hook_cuStreamQuery(CUstream stream)
{
    return stream_query(stream, false);
}

static CUresult hook_cuStreamQuery_ptsz(CUstream stream)
{
    return stream_query(stream, true);
}

/* Everything of a context is over. */
static void unmark_all(struct tl_eff_context *c)
{
    tl_eff_lock();
    for (struct tl_eff_stream *s = c->streams; s != NULL; s = s->next) {
        struct tl_eff_unwatched all = tl_eff_unwatched(s);
        if (s->first == NULL)
            tl_eff_unmark(s, &all);
    }
    tl_eff_unlock();
}

static CUresult hook_cuCtxSynchronize(void)
{
    struct tl_eff_context *c = tl_eff_current();
    if (c == NULL)
        return tl_eff_real.cuCtxSynchronize();
    tl_eff_lock();
    tl_eff_drain_context(c);
    tl_eff_unlock();
    if (tl_eff_lost(c) != CUDA_SUCCESS)
        return tl_eff_lost(c);
    CUresult r = tl_eff_real.cuCtxSynchronize();
    if (r == CUDA_SUCCESS)
        unmark_all(c);
    return tl_eff_result(c, r);
}

/* Drains a context by handle before the call. */
static CUresult after_context(CUcontext handle, const struct tl_eff_call *call)
{
    tl_eff_lock();
    struct tl_eff_context *c = handle != NULL ? tl_eff_context(handle) : NULL;
    if (c != NULL)
        tl_eff_drain_context(c);
    tl_eff_unlock();
    if (tl_eff_lost(c) != CUDA_SUCCESS)
        return tl_eff_lost(c);
    return tl_eff_result(c, tl_eff_invoke(call));
}

static CUresult hook_cuCtxSynchronize_v2(CUcontext handle)
{
    return after_context(
        handle,
        &(struct tl_eff_call){tl_eff.shim->real("cuCtxSynchronize_v2"), 1, {(uintptr_t)handle}});
}

/* --- what frees or unloads -------------------------------------------------------------------- */

static CUresult after_all(const struct tl_eff_call *call)
{
    struct tl_eff_context *c = tl_eff_current();
    tl_eff_lock();
    tl_eff_drain_all();
    tl_eff_unlock();
    /* the driver would wait for the device before it frees */
    return tl_eff_lost(c) != CUDA_SUCCESS ? tl_eff_lost(c) : tl_eff_invoke(call);
}

#define FREEING(X)                                                                                 \
    X(cuMemFreeHost)                                                                               \
    X(cuMemHostUnregister)                                                                         \
    X(cuArrayDestroy)                                                                              \
    X(cuMipmappedArrayDestroy)                                                                     \
    X(cuTexObjectDestroy)                                                                          \
    X(cuSurfObjectDestroy)                                                                         \
    X(cuIpcCloseMemHandle)                                                                         \
    X(cuMemPoolDestroy)
#define FREEING_HOOK(name)                                                                         \
    static CUresult hook_##name(uintptr_t what)                                                    \
    {                                                                                              \
        return after_all(&(struct tl_eff_call){tl_eff.shim->real(#name), 1, {what}});              \
    }
FREEING(FREEING_HOOK)

static CUresult hook_cuMemFree_v2(CUdeviceptr at)
{
    tl_eff_alloc_forget(at);
    return after_all(&(struct tl_eff_call){tl_eff.shim->real("cuMemFree_v2"), 1, {at}});
}

static CUresult hook_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    return after_all(&(struct tl_eff_call){tl_eff.shim->real("cuMemUnmap"), 2, {address, bytes}});
}

int tl_eff_unloading(const void *module, const void *library)
{
    CUresult lost = CUDA_SUCCESS;
    tl_eff_lock();
    tl_eff_drain_all();
    for (const struct tl_eff_context *c = tl_eff_streams.contexts; c != NULL; c = c->next)
        lost = lost != CUDA_SUCCESS ? lost : tl_eff_lost(c);
    if (lost == CUDA_SUCCESS) /* else the driver would wait for a kernel that stands still */
        tl_eff_kernels_forget(module, library, NULL);
    tl_eff_unlock();
    return (int)lost;
}

/* The context goes, and everything in it. */
static void forget_context(CUcontext handle)
{
    tl_eff_lock();
    struct tl_eff_context *c = tl_eff_streams.contexts;
    while (c != NULL && c->handle != handle)
        c = c->next;
    if (c != NULL) {
        tl_eff_drain_context(c);
        tl_eff_kernels_forget(NULL, NULL, c);
        tl_eff_context_free(c);
    }
    tl_eff_unlock();
}

static CUresult hook_cuCtxDestroy_v2(CUcontext handle)
{
    forget_context(handle);
    return tl_eff_invoke(
        &(struct tl_eff_call){tl_eff.shim->real("cuCtxDestroy_v2"), 1, {(uintptr_t)handle}});
}

/* A device's primary context goes when it is reset, or released by its last user. */
static CUresult release_primary(const struct tl_eff_call *call, bool is_reset)
{
    struct tl_eff_call retain = {
        tl_eff.shim->real("cuDevicePrimaryCtxRetain"), 2, {0, call->args[0]}};
    struct tl_eff_call release = {
        tl_eff.shim->real("cuDevicePrimaryCtxRelease_v2"), 1, {call->args[0]}};
    struct tl_eff_call state = {
        tl_eff.shim->real("cuDevicePrimaryCtxGetState"), 3, {call->args[0]}};
    CUcontext handle = NULL;
    unsigned flags = 0;
    int is_active = 0;
    state.args[1] = (uintptr_t)&flags;
    state.args[2] = (uintptr_t)&is_active;
    retain.args[0] = (uintptr_t)&handle;
    if (retain.function == NULL || release.function == NULL || state.function == NULL)
        return after_all(call);
    if (tl_eff_invoke(&state) == CUDA_SUCCESS && is_active &&
        tl_eff_invoke(&retain) == CUDA_SUCCESS)
        tl_eff_invoke(&release); /* only its name was wanted */
    if (handle != NULL) {
        tl_eff_lock();
        tl_eff_drain_all();
        tl_eff_unlock();
        tl_eff_caps_free(handle);
    }
    CUresult r = after_all(call);
    if (handle != NULL && tl_eff_invoke(&state) == CUDA_SUCCESS && (is_reset || !is_active))
        forget_context(handle);
    return r;
}

#define RELEASING(X)                                                                               \
    X(cuDevicePrimaryCtxRelease, false)                                                            \
    X(cuDevicePrimaryCtxRelease_v2, false)                                                         \
    X(cuDevicePrimaryCtxReset, true)                                                               \
    X(cuDevicePrimaryCtxReset_v2, true)
#define RELEASING_HOOK(name, is_reset)                                                             \
    static CUresult hook_##name(uintptr_t device)                                                  \
    {                                                                                              \
        return release_primary(&(struct tl_eff_call){tl_eff.shim->real(#name), 1, {device}},       \
                               is_reset);                                                          \
    }
RELEASING(RELEASING_HOOK)

/* --- streams ---------------------------------------------------------------------------------- */

static CUresult hook_cuStreamDestroy(CUstream stream)
{
    struct tl_eff_stream *s;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return tl_eff_real.cuStreamDestroy_v2(stream);
    CUresult r = tl_eff_stream(stream, false, &s);
    if (r != CUDA_SUCCESS)
        return r;
    tl_eff_lock();
    tl_eff_stream_forget(s);
    bool is_idle = s->first == NULL && tl_eff_passes(s) && !s->is_busy && s->n_flying == 0 &&
                   s->n_unmarked == 0;
    if (is_idle)
        tl_eff_stream_free(s);
    tl_eff_unlock();
    if (is_idle)
        return tl_eff_real.cuStreamDestroy_v2(stream);
    return tl_eff_defer(
        s, &(struct tl_eff_call){*(void **)&tl_eff_real.cuStreamDestroy_v2, 1, {(uintptr_t)stream}},
        0, NULL);
}

/* --- capture ---------------------------------------------------------------------------------- */

/* A stream is captured from its beginning on; what it was asked before that is submitted first. */
static CUresult begin_capture(CUstream stream, bool is_per_thread, struct tl_eff_call *call)
{
    struct tl_eff_stream *s;
    struct tl_eff_turn turn;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    call->args[0] = (uintptr_t)s->handle;
    tl_eff_turn_begin(&turn, s, false);
    tl_eff_lock();
    tl_eff_marks_off(s);
    tl_eff_unlock();
    r = tl_eff_invoke(call);
    tl_eff_lock();
    s->is_capturing |= r == CUDA_SUCCESS;
    tl_eff_marks_on(s);
    tl_eff_unlock();
    tl_eff_turn_end(&turn, r);
    return r;
}

#define CAPTURE_HOOKS(name, PARAMS, n, ...)                                                        \
    static CUresult hook_##name PARAMS                                                             \
    {                                                                                              \
        return begin_capture(stream, false,                                                        \
                             &(struct tl_eff_call){tl_eff.shim->real(#name), n, {__VA_ARGS__}});   \
    }                                                                                              \
    static CUresult hook_##name##_ptsz PARAMS                                                      \
    {                                                                                              \
        return begin_capture(stream, true,                                                         \
                             &(struct tl_eff_call){tl_eff.shim->real(#name), n, {__VA_ARGS__}});   \
    }
CAPTURE_HOOKS(cuStreamBeginCapture, (CUstream stream), 1, 0)
CAPTURE_HOOKS(cuStreamBeginCapture_v2, (CUstream stream, uintptr_t mode), 2, 0, mode)
CAPTURE_HOOKS(cuStreamBeginCaptureToGraph,
              (CUstream stream, uintptr_t graph, uintptr_t deps, uintptr_t data, uintptr_t n,
               uintptr_t mode),
              6, 0, graph, deps, data, n, mode)

/* The end of a capture releases every stream that had joined it. */
static void release_captured(struct tl_eff_context *c)
{
    enum { AT_MOST = 64 };
    struct tl_eff_stream *streams[AT_MOST];
    uint32_t n = 0;
    tl_eff_lock();
    for (struct tl_eff_stream *s = c->streams; s != NULL && n < AT_MOST; s = s->next) {
        if (s->is_capturing && !s->is_destroyed)
            streams[n++] = s;
    }
    tl_eff_unlock();
    for (uint32_t i = 0; i < n; i++) {
        CUstreamCaptureStatus status;
        if (tl_eff_real.cuStreamIsCapturing(streams[i]->handle, &status) != CUDA_SUCCESS ||
            status == CU_STREAM_CAPTURE_STATUS_NONE)
            streams[i]->is_capturing = false;
    }
}

static CUresult end_capture(CUstream stream, CUgraph *graph, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    r = tl_eff_invoke(&(struct tl_eff_call){
        tl_eff.shim->real("cuStreamEndCapture"), 2, {(uintptr_t)s->handle, (uintptr_t)graph}});
    release_captured(s->context);
    return r;
}

static CUresult hook_cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end_capture(stream, graph, false);
}

static CUresult hook_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end_capture(stream, graph, true);
}

#define ROW(name) {#name, (void *)hook_##name},
#define RELEASING_ROW(name, is_reset) ROW(name)
#define ROW_PTSZ(name) ROW(name){#name "_ptsz", (void *)hook_##name##_ptsz},
const struct tl_hook tl_eff_sync_hooks[] = {
    ROW_PTSZ(cuStreamSynchronize) ROW_PTSZ(cuStreamQuery) ROW(cuCtxSynchronize)
        ROW(cuCtxSynchronize_v2) FREEING(ROW) ROW(cuMemFree_v2) ROW(cuMemUnmap) ROW(cuCtxDestroy_v2)
            RELEASING(RELEASING_ROW){"cuStreamDestroy", (void *)hook_cuStreamDestroy},
    {"cuStreamDestroy_v2", (void *)hook_cuStreamDestroy},
    ROW_PTSZ(cuStreamBeginCapture) ROW_PTSZ(cuStreamBeginCapture_v2)
        ROW_PTSZ(cuStreamBeginCaptureToGraph) ROW_PTSZ(cuStreamEndCapture){NULL, NULL},
};

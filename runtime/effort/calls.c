/* Hooks of the calls that only have to keep their place in a stream, made from one table.
 *
 *     LATER  the call is kept and made by the executor when its turn comes: all its arguments are values
 *     TURN   the caller waits for its turn and makes it then: an argument points to something that we do not copy
 *     LOOK   only the stream's handle is translated */
#include "runtime/effort/hooks.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum mode { LATER, TURN, LOOK };

/* X(name, number of arguments, which of them is the stream, mode); each has a twin _ptsz. */
#define CALLS(X)                                                                                   \
    X(cuMemsetD8Async, 4, 3, LATER)                                                                \
    X(cuMemsetD16Async, 4, 3, LATER)                                                               \
    X(cuMemsetD32Async, 4, 3, LATER)                                                               \
    X(cuMemsetD2D8Async, 6, 5, LATER)                                                              \
    X(cuMemsetD2D16Async, 6, 5, LATER)                                                             \
    X(cuMemsetD2D32Async, 6, 5, LATER)                                                             \
    X(cuMemcpyPeerAsync, 6, 5, LATER)                                                              \
    X(cuMemPrefetchAsync, 4, 3, LATER)                                                             \
    X(cuMemPrefetchAsync_v2, 5, 4, LATER)                                                          \
    X(cuStreamAttachMemAsync, 4, 0, LATER)                                                         \
    X(cuLaunchHostFunc, 3, 0, LATER)                                                               \
    X(cuStreamAddCallback, 4, 0, LATER)                                                            \
    X(cuStreamWaitValue32, 4, 0, LATER)                                                            \
    X(cuStreamWaitValue64, 4, 0, LATER)                                                            \
    X(cuStreamWriteValue32, 4, 0, LATER)                                                           \
    X(cuStreamWriteValue64, 4, 0, LATER)                                                           \
    X(cuStreamWaitValue32_v2, 4, 0, LATER)                                                         \
    X(cuStreamWaitValue64_v2, 4, 0, LATER)                                                         \
    X(cuStreamWriteValue32_v2, 4, 0, LATER)                                                        \
    X(cuStreamWriteValue64_v2, 4, 0, LATER)                                                        \
    X(cuStreamBatchMemOp, 4, 0, TURN)                                                              \
    X(cuStreamBatchMemOp_v2, 4, 0, TURN)                                                           \
    X(cuMemcpyBatchAsync, 9, 8, TURN)                                                              \
    X(cuMemcpyBatchAsync_v2, 8, 7, TURN)                                                           \
    X(cuMemcpy3DBatchAsync, 5, 4, TURN)                                                            \
    X(cuMemcpy3DBatchAsync_v2, 4, 3, TURN)                                                         \
    X(cuMemBatchDecompressAsync, 5, 4, TURN)                                                       \
    X(cuMemMapArrayAsync, 3, 2, TURN)                                                              \
    X(cuMemPrefetchBatchAsync, 8, 7, TURN)                                                         \
    X(cuMemDiscardBatchAsync, 5, 4, TURN)                                                          \
    X(cuMemDiscardAndPrefetchBatchAsync, 8, 7, TURN)                                               \
    X(cuSignalExternalSemaphoresAsync, 4, 3, TURN)                                                 \
    X(cuWaitExternalSemaphoresAsync, 4, 3, TURN)                                                   \
    X(cuGraphicsMapResources, 3, 2, TURN)                                                          \
    X(cuGraphicsUnmapResources, 3, 2, TURN)                                                        \
    X(cuGraphUpload, 2, 1, TURN)                                                                   \
    X(cuLaunchGridAsync, 4, 3, TURN)                                                               \
    X(cuStreamGetPriority, 2, 0, LOOK)                                                             \
    X(cuStreamGetFlags, 2, 0, LOOK)                                                                \
    X(cuStreamGetId, 2, 0, LOOK)                                                                   \
    X(cuStreamGetDevice, 2, 0, LOOK)                                                               \
    X(cuStreamGetCtx, 2, 0, LOOK)                                                                  \
    X(cuStreamGetCtx_v2, 3, 0, LOOK)                                                               \
    X(cuStreamGetGreenCtx, 2, 0, LOOK)                                                             \
    X(cuStreamGetAttribute, 3, 0, LOOK)                                                            \
    X(cuStreamIsCapturing, 2, 0, LOOK)                                                             \
    X(cuStreamGetCaptureInfo, 3, 0, LOOK)                                                          \
    X(cuStreamGetCaptureInfo_v2, 6, 0, LOOK)                                                       \
    X(cuStreamGetCaptureInfo_v3, 7, 0, LOOK)                                                       \
    X(cuStreamUpdateCaptureDependencies, 4, 0, LOOK)                                               \
    X(cuStreamUpdateCaptureDependencies_v2, 5, 0, LOOK)

/* Without a stream argument: the legacy stream is meant, and the host does not wait.  X(name,
 * number of arguments); the twin is called _ptds. */
#define LEGACY_CALLS(X)                                                                            \
    X(cuMemsetD8_v2, 3)                                                                            \
    X(cuMemsetD16_v2, 3)                                                                           \
    X(cuMemsetD32_v2, 3)                                                                           \
    X(cuMemsetD2D8_v2, 5)                                                                          \
    X(cuMemsetD2D16_v2, 5)                                                                         \
    X(cuMemsetD2D32_v2, 5)                                                                         \
    X(cuMemcpyPeer, 5)

enum number {
#define CALL_NUMBER(name, n, at, mode) NUMBER_##name,
#define LEGACY_NUMBER(name, n) NUMBER_##name, NUMBER_##name##_ptds,
    CALLS(CALL_NUMBER) LEGACY_CALLS(LEGACY_NUMBER) NUMBERS
};

/* of the real driver, found at the first call; the same for all threads */
static void *functions[NUMBERS];

static void *function(enum number i, const char *name)
{
    void *f = __atomic_load_n(&functions[i], __ATOMIC_RELAXED); /* any thread finds the same */
    if (f == NULL) {
        f = tl_eff.shim->real(name);
        __atomic_store_n(&functions[i], f, __ATOMIC_RELAXED);
    }
    return f;
}

static CUresult call(struct tl_eff_call *c, int at, enum mode mode, bool is_per_thread)
{
    struct tl_eff_stream *s;
    if (c->function == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    /* NOLINT(performance-no-int-to-ptr) */
    CUresult r = tl_eff_stream((CUstream)c->args[at], is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (mode == LATER)
        return tl_eff_defer(s, c, at, NULL);
    c->args[at] = (uintptr_t)s->handle;
    if (mode == LOOK)
        return tl_eff_invoke(c);
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, false);
    r = tl_eff_invoke(c);
    tl_eff_turn_end(&turn, r);
    return r;
}

static CUresult call_legacy(struct tl_eff_call *c)
{
    struct tl_eff_stream *s;
    if (c->function == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult r = tl_eff_stream(NULL, false, &s);
    return r == CUDA_SUCCESS ? tl_eff_defer(s, c, -1, NULL) : tl_eff_invoke(c);
}

CUresult tl_eff_in_own_turn(const struct tl_eff_call *c, struct tl_eff_stream **own)
{
    struct tl_eff_turn turn;
    CUresult r = tl_eff_stream(NULL, true, own);
    if (r != CUDA_SUCCESS)
        return r;
    struct tl_eff_stream *s = *own;
    tl_eff_turn_begin(&turn, s, false);
    r = tl_eff_lost(s->context);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuStreamSynchronize(s->handle);
    if (r == CUDA_SUCCESS)
        r = tl_eff_invoke(c);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuStreamSynchronize(CU_STREAM_PER_THREAD);
    tl_eff_turn_end(&turn, r);
    return r;
}

static CUresult call_per_thread(const struct tl_eff_call *c)
{
    struct tl_eff_stream *s;
    return c->function != NULL ? tl_eff_in_own_turn(c, &s) : CUDA_ERROR_NOT_SUPPORTED;
}

typedef uintptr_t word;
#define PARAMS_2 word a0, word a1
#define PARAMS_3 PARAMS_2, word a2
#define PARAMS_4 PARAMS_3, word a3
#define PARAMS_5 PARAMS_4, word a4
#define PARAMS_6 PARAMS_5, word a5
#define PARAMS_7 PARAMS_6, word a6
#define PARAMS_8 PARAMS_7, word a7
#define PARAMS_9 PARAMS_8, word a8
#define ARGS_2 a0, a1
#define ARGS_3 ARGS_2, a2
#define ARGS_4 ARGS_3, a3
#define ARGS_5 ARGS_4, a4
#define ARGS_6 ARGS_5, a5
#define ARGS_7 ARGS_6, a6
#define ARGS_8 ARGS_7, a7
#define ARGS_9 ARGS_8, a8

#define CALL_HOOK(name, n, at, mode)                                                               \
    static CUresult hook_##name(PARAMS_##n)                                                        \
    {                                                                                              \
        return call(&(struct tl_eff_call){function(NUMBER_##name, #name), n, {ARGS_##n}}, at,      \
                    mode, false);                                                                  \
    }                                                                                              \
    static CUresult hook_##name##_ptsz(PARAMS_##n)                                                 \
    {                                                                                              \
        return call(&(struct tl_eff_call){function(NUMBER_##name, #name), n, {ARGS_##n}}, at,      \
                    mode, true);                                                                   \
    }
#define LEGACY_HOOK(name, n)                                                                       \
    static CUresult hook_##name(PARAMS_##n)                                                        \
    {                                                                                              \
        return call_legacy(&(struct tl_eff_call){function(NUMBER_##name, #name), n, {ARGS_##n}});  \
    }                                                                                              \
    static CUresult hook_##name##_ptds(PARAMS_##n)                                                 \
    {                                                                                              \
        return call_per_thread(                                                                    \
            &(struct tl_eff_call){function(NUMBER_##name##_ptds, #name "_ptds"), n, {ARGS_##n}});  \
    }
CALLS(CALL_HOOK)
LEGACY_CALLS(LEGACY_HOOK)

const struct tl_hook tl_eff_call_hooks[] = {
#define CALL_ROW(name, n, at, mode)                                                                \
    {#name, (void *)hook_##name}, {#name "_ptsz", (void *)hook_##name##_ptsz},
#define LEGACY_ROW(name, n)                                                                        \
    {#name, (void *)hook_##name}, {#name "_ptds", (void *)hook_##name##_ptds},
    CALLS(CALL_ROW) LEGACY_CALLS(LEGACY_ROW){NULL, NULL},
};

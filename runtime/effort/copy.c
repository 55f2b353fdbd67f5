/* Copies between host and device.
 *
 * Asynchronous copies from pageable memory read it before they return; those into pageable memory
 * may return when it is written. So with work in front of them, a small source is kept as it is
 * now, and everything else waits for its turn in the calling thread.  Pinned memory is the job's to
 * leave alone until the copy is done, so such copies are queued as they are. Synchronous copies
 * stand in the legacy stream: they wait for their turn there. */
#include <stdlib.h>
#include <string.h>

#include "runtime/effort/hooks.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/split.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum { SNAPSHOT_BYTES = 64 << 10, LINE_ARGS = 4 /* to, from, bytes, stream */ };

/* Whether the driver knows the memory: device memory, managed, or pinned host memory. */
static bool is_known_memory(uintptr_t address)
{
    CUmemorytype type = 0;
    return tl_eff_real.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
               CUDA_SUCCESS &&
           type != 0;
}

static CUresult in_turn(struct tl_eff_stream *s, const struct tl_eff_call *c)
{
    struct tl_eff_turn turn;
    tl_eff_turn_begin(&turn, s, false);
    CUresult r = tl_eff_lost(s->context);
    if (r == CUDA_SUCCESS)
        r = tl_eff_invoke(c);
    tl_eff_turn_end(&turn, r);
    return r;
}

/* If it does, it is given to the driver at once, and tl_eff_direct_end follows. */
static bool passes(struct tl_eff_stream *s)
{
    tl_eff_lock();
    bool it_does = tl_eff_passes(s);
    if (it_does)
        tl_eff_direct_begin();
    tl_eff_unlock();
    return it_does;
}

static void count(enum tl_record_copy kind, uint64_t bytes)
{
    tl_record_copied(tl_eff.record, kind, bytes);
}

/* A line of bytes; the stream is the last of the call's arguments, `from` the number of the
 * source's. */
static CUresult copy_line(struct tl_eff_call *c, int from, uintptr_t to, size_t bytes,
                          CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    int at = (int)c->n - 1;
    struct tl_eff_split split;
    c->args[at] = (uintptr_t)s->handle;
    bool is_split = c->n == LINE_ARGS && tl_eff_split_line(s, c, false, &split);
    if (!is_split && passes(s)) {
        r = tl_eff_invoke(c);
        tl_eff_direct_end();
        return r;
    }
    if (to != 0 && !is_known_memory(to))
        return is_split ? tl_eff_split_in_turn(s, &split) : in_turn(s, c);
    if (is_known_memory(c->args[from]))
        return is_split ? tl_eff_split_queue(s, &split) : tl_eff_defer(s, c, at, NULL);
    if (is_split)
        return tl_eff_split_in_turn(s, &split);
    if (bytes > SNAPSHOT_BYTES || bytes == 0)
        return in_turn(s, c);
    void *snapshot = malloc(bytes);
    if (snapshot == NULL)
        return in_turn(s, c);
    memcpy(snapshot, (const void *)c->args[from], bytes); /* NOLINT(performance-no-int-to-ptr) */
    c->args[from] = (uintptr_t)snapshot;
    /* The driver must not read it after it is freed: from pageable memory it has read all when the
     * call returns. */
    return tl_eff_defer(s, c, at, snapshot);
}

#define REAL(name) tl_eff.shim->real(#name)
#define LINE_HOOKS(name, PARAMS, ARGS, from, to, bytes, kind)                                      \
    static CUresult name##_as(PARAMS, CUstream stream, bool is_per_thread)                         \
    {                                                                                              \
        static void *_Atomic real;                                                                 \
        if (real == NULL)                                                                          \
            real = REAL(name);                                                                     \
        struct tl_eff_call c = {real, 0, {ARGS, 0}};                                               \
        c.n = sizeof((uintptr_t[]){ARGS, 0}) / sizeof(uintptr_t);                                  \
        count(kind, bytes);                                                                        \
        return copy_line(&c, from, to, bytes, stream, is_per_thread);                              \
    }                                                                                              \
    static CUresult hook_##name(PARAMS, CUstream stream)                                           \
    {                                                                                              \
        return name##_as(NAMES_##name, stream, false);                                             \
    }                                                                                              \
    static CUresult hook_##name##_ptsz(PARAMS, CUstream stream)                                    \
    {                                                                                              \
        return name##_as(NAMES_##name, stream, true);                                              \
    }
#define COMMA ,
#define NAMES_cuMemcpyAsync to, from, n
#define NAMES_cuMemcpyHtoDAsync_v2 to, from, n
#define NAMES_cuMemcpyDtoHAsync_v2 to, from, n
#define NAMES_cuMemcpyHtoAAsync_v2 to, offset, from, n
#define NAMES_cuMemcpyAtoHAsync_v2 to, from, offset, n
LINE_HOOKS(cuMemcpyAsync, CUdeviceptr to COMMA CUdeviceptr from COMMA size_t n,
           to COMMA from COMMA n, 1, to, n, TL_COPY_ON_DEVICE)
LINE_HOOKS(cuMemcpyHtoDAsync_v2, CUdeviceptr to COMMA const void *from COMMA size_t n,
           to COMMA(uintptr_t) from COMMA n, 1, 0, n, TL_COPY_TO_DEVICE)
LINE_HOOKS(cuMemcpyDtoHAsync_v2, void *to COMMA CUdeviceptr from COMMA size_t n,
           (uintptr_t)to COMMA from COMMA n, 1, (uintptr_t)to, n, TL_COPY_FROM_DEVICE)
LINE_HOOKS(cuMemcpyHtoAAsync_v2,
           CUarray to COMMA size_t offset COMMA const void *from COMMA size_t n,
           (uintptr_t)to COMMA offset COMMA(uintptr_t) from COMMA n, 2, 0, n, TL_COPY_TO_DEVICE)

/* Out of an array: nothing of the source is the host's. */
static CUresult array_to_host(void *to, CUarray from, size_t offset, size_t n, CUstream stream,
                              bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    count(TL_COPY_FROM_DEVICE, n);
    struct tl_eff_call c = {REAL(cuMemcpyAtoHAsync_v2),
                            5,
                            {(uintptr_t)to, (uintptr_t)from, offset, n, (uintptr_t)s->handle}};
    return is_known_memory((uintptr_t)to) ? tl_eff_defer(s, &c, 4, NULL) : in_turn(s, &c);
}

static CUresult hook_cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t n,
                                          CUstream stream)
{
    return array_to_host(to, from, offset, n, stream, false);
}

static CUresult hook_cuMemcpyAtoHAsync_v2_ptsz(void *to, CUarray from, size_t offset, size_t n,
                                               CUstream stream)
{
    return array_to_host(to, from, offset, n, stream, true);
}

/* On the device: nothing of it is the host's, and the host does not wait.  `other` is the function
 * without a stream that makes it whole, or NULL. */
static CUresult copy_on_device(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream,
                               bool is_per_thread, void *other)
{
    struct tl_eff_stream *s;
    struct tl_eff_split split;
    struct tl_eff_call whole = {other, LINE_ARGS - 1, {to, from, n}};
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return other != NULL ? tl_eff_invoke(&whole) : r;
    struct tl_eff_call c = {
        REAL(cuMemcpyDtoDAsync_v2), LINE_ARGS, {to, from, n, (uintptr_t)s->handle}};
    count(TL_COPY_ON_DEVICE, n);
    if (tl_eff_split_line(s, &c, true, &split))
        return tl_eff_split_queue(s, &split);
    if (other == NULL)
        return tl_eff_defer(s, &c, LINE_ARGS - 1, NULL);
    return is_per_thread ? tl_eff_in_own_turn(&whole, &s) : tl_eff_defer(s, &whole, -1, NULL);
}

static CUresult hook_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n,
                                          CUstream stream)
{
    return copy_on_device(to, from, n, stream, false, NULL);
}

static CUresult hook_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t n,
                                               CUstream stream)
{
    return copy_on_device(to, from, n, stream, true, NULL);
}

static CUresult hook_cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    return copy_on_device(to, from, n, CU_STREAM_LEGACY, false, REAL(cuMemcpyDtoD_v2));
}

static CUresult hook_cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    return copy_on_device(to, from, n, CU_STREAM_PER_THREAD, true, REAL(cuMemcpyDtoD_v2_ptds));
}

/* --- boxes ------------------------------------------------------------------------------------ */

/* Whether one side of a box copy is memory that must be read or written before the call returns. */
static bool is_pageable(CUmemorytype type, const void *host, CUdeviceptr device)
{
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST:
        return !is_known_memory((uintptr_t)host);
    case CU_MEMORYTYPE_UNIFIED:
        return !is_known_memory(device);
    default:
        return false;
    }
}

/* `shape` is the structure that describes the copy, of `bytes` bytes. */
static CUresult copy_box(void *function, const void *shape, size_t bytes, bool has_pageable,
                         CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    struct tl_eff_call c = {function, 2, {(uintptr_t)shape, (uintptr_t)s->handle}};
    struct tl_eff_split split;
    if (bytes == sizeof(CUDA_MEMCPY2D) && tl_eff_split_box(s, &c, &split))
        return has_pageable ? tl_eff_split_in_turn(s, &split) : tl_eff_split_queue(s, &split);
    void *copy = has_pageable ? NULL : malloc(bytes);
    if (copy == NULL)
        return in_turn(s, &c);
    memcpy(copy, shape, bytes);
    c.args[0] = (uintptr_t)copy;
    return tl_eff_defer(s, &c, 1, copy);
}

#define BOX_HOOKS(name, type)                                                                      \
    static CUresult name##_as(const type *p, CUstream stream, bool is_per_thread)                  \
    {                                                                                              \
        if (p == NULL)                                                                             \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        bool has_pageable = is_pageable(p->srcMemoryType, p->srcHost, p->srcDevice) ||             \
                            is_pageable(p->dstMemoryType, p->dstHost, p->dstDevice);               \
        return copy_box(REAL(name), p, sizeof *p, has_pageable, stream, is_per_thread);            \
    }                                                                                              \
    static CUresult hook_##name(const type *p, CUstream stream)                                    \
    {                                                                                              \
        return name##_as(p, stream, false);                                                        \
    }                                                                                              \
    static CUresult hook_##name##_ptsz(const type *p, CUstream stream)                             \
    {                                                                                              \
        return name##_as(p, stream, true);                                                         \
    }
BOX_HOOKS(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
BOX_HOOKS(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
BOX_HOOKS(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER)

/* --- synchronous ones ------------------------------------------------------------------------- */

/* `is_line`: its arguments are {to, from, bytes}; `is_box`: a CUDA_MEMCPY2D. */
static CUresult in_legacy_turn(const struct tl_eff_call *c, bool is_line, bool is_box)
{
    struct tl_eff_stream *s;
    if (tl_eff_stream(NULL, false, &s) != CUDA_SUCCESS)
        return tl_eff_invoke(c);
    struct tl_eff_split split;
    bool is_split = is_line ? tl_eff_split_line(s, c, false, &split)
                            : is_box && tl_eff_split_box(s, c, &split);
    return tl_eff_result(s->context, is_split ? tl_eff_split_in_turn(s, &split) : in_turn(s, c));
}

static CUresult in_own_turn_once(const struct tl_eff_call *c)
{
    struct tl_eff_stream *s;
    return tl_eff_in_own_turn(c, &s);
}

static CUresult in_own_turn(const struct tl_eff_call *c, bool is_line, bool is_box)
{
    struct tl_eff_stream *s = NULL;
    struct tl_eff_split split;
    if (tl_eff_stream(NULL, true, &s) == CUDA_SUCCESS &&
        (is_line ? tl_eff_split_line(s, c, false, &split)
                 : is_box && tl_eff_split_box(s, c, &split)))
        return tl_eff_result(s->context, tl_eff_split_each(&split, in_own_turn_once));
    CUresult r = tl_eff_in_own_turn(c, &s);
    return s != NULL ? tl_eff_result(s->context, r) : r;
}

enum shape { LINE, BOX, ODD };
/* X(name, number of arguments, kind of copy, bytes or 0, what its arguments are) */
#define WAITING(X)                                                                                 \
    X(cuMemcpy, 3, TL_COPY_ON_DEVICE, a2, LINE)                                                    \
    X(cuMemcpyHtoD_v2, 3, TL_COPY_TO_DEVICE, a2, LINE)                                             \
    X(cuMemcpyDtoH_v2, 3, TL_COPY_FROM_DEVICE, a2, LINE)                                           \
    X(cuMemcpyDtoA_v2, 4, TL_COPY_ON_DEVICE, a3, ODD)                                              \
    X(cuMemcpyAtoD_v2, 4, TL_COPY_ON_DEVICE, a3, ODD)                                              \
    X(cuMemcpyHtoA_v2, 4, TL_COPY_TO_DEVICE, a3, ODD)                                              \
    X(cuMemcpyAtoH_v2, 4, TL_COPY_FROM_DEVICE, a3, ODD)                                            \
    X(cuMemcpyAtoA_v2, 5, TL_COPY_ON_DEVICE, a4, ODD)                                              \
    X(cuMemcpy2D_v2, 1, TL_COPY_ON_DEVICE, 0, BOX)                                                 \
    X(cuMemcpy2DUnaligned_v2, 1, TL_COPY_ON_DEVICE, 0, BOX)                                        \
    X(cuMemcpy3D_v2, 1, TL_COPY_ON_DEVICE, 0, ODD)                                                 \
    X(cuMemcpy3DPeer, 1, TL_COPY_ON_DEVICE, 0, ODD)

typedef uintptr_t word;
#define PARAMS_1 word a0
#define PARAMS_3 word a0, word a1, word a2
#define PARAMS_4 PARAMS_3, word a3
#define PARAMS_5 PARAMS_4, word a4
#define ARGS_1 a0
#define ARGS_3 a0, a1, a2
#define ARGS_4 ARGS_3, a3
#define ARGS_5 ARGS_4, a4
#define WAITING_HOOK(name, n, kind, bytes, shape)                                                  \
    static CUresult hook_##name(PARAMS_##n)                                                        \
    {                                                                                              \
        static void *_Atomic real;                                                                 \
        if (real == NULL)                                                                          \
            real = REAL(name);                                                                     \
        count(kind, bytes);                                                                        \
        return in_legacy_turn(&(struct tl_eff_call){real, n, {ARGS_##n}}, shape == LINE,           \
                              shape == BOX);                                                       \
    }                                                                                              \
    static CUresult hook_##name##_ptds(PARAMS_##n)                                                 \
    {                                                                                              \
        static void *_Atomic real;                                                                 \
        if (real == NULL)                                                                          \
            real = REAL(name##_ptds);                                                              \
        count(kind, bytes);                                                                        \
        return in_own_turn(&(struct tl_eff_call){real, n, {ARGS_##n}}, shape == LINE,              \
                           shape == BOX);                                                          \
    }
WAITING(WAITING_HOOK)

#define ROW_OF(name)                                                                               \
    {#name, (void *)hook_##name},                                                                  \
    {                                                                                              \
#name "_ptsz", (void *)hook_##name##_ptsz                                                  \
    }
#define WAITING_ROW(name, n, kind, bytes, shape)                                                   \
    {#name, (void *)hook_##name}, {#name "_ptds", (void *)hook_##name##_ptds},
const struct tl_hook tl_eff_copy_hooks[] = {
    {"cuMemcpyDtoD_v2", (void *)hook_cuMemcpyDtoD_v2},
    {"cuMemcpyDtoD_v2_ptds", (void *)hook_cuMemcpyDtoD_v2_ptds},
    ROW_OF(cuMemcpyDtoDAsync_v2),
    ROW_OF(cuMemcpyAsync),
    ROW_OF(cuMemcpyHtoDAsync_v2),
    ROW_OF(cuMemcpyDtoHAsync_v2),
    ROW_OF(cuMemcpyHtoAAsync_v2),
    ROW_OF(cuMemcpyAtoHAsync_v2),
    ROW_OF(cuMemcpy2DAsync_v2),
    ROW_OF(cuMemcpy3DAsync_v2),
    ROW_OF(cuMemcpy3DPeerAsync),
    WAITING(WAITING_ROW){NULL, NULL},
};

/* Copies and memsets of jobs that never give way.
 *
 * Asynchronous ones are work like a launch.  Of the synchronous ones, those that touch host memory
 * return when everything before them in the default stream is done; copies inside the device and
 * memsets may return earlier, and are work as well. */
#include "intercept/high/high.h"

#include <string.h>

static void count(enum tl_record_copy kind, uint64_t bytes)
{
    if (tl_job.record != NULL)
        tl_record_copied(tl_job.record, kind, bytes);
}

static enum tl_record_copy direction(CUmemorytype from, CUmemorytype to)
{
    if (from == CU_MEMORYTYPE_HOST && to != CU_MEMORYTYPE_HOST)
        return TL_COPY_TO_DEVICE;
    return to == CU_MEMORYTYPE_HOST && from != CU_MEMORYTYPE_HOST ? TL_COPY_FROM_DEVICE
                                                                  : TL_COPY_ON_DEVICE;
}

static bool touches_host(CUmemorytype from, CUmemorytype to)
{
    return from == CU_MEMORYTYPE_HOST || to == CU_MEMORYTYPE_HOST;
}

static void count_2d(const CUDA_MEMCPY2D *p)
{
    if (p != NULL)
        count(direction(p->srcMemoryType, p->dstMemoryType), (uint64_t)p->WidthInBytes * p->Height);
}

static void count_3d(const CUDA_MEMCPY3D *p)
{
    if (p != NULL)
        count(direction(p->srcMemoryType, p->dstMemoryType),
              (uint64_t)p->WidthInBytes * p->Height * p->Depth);
}

static void count_peer(const CUDA_MEMCPY3D_PEER *p)
{
    if (p != NULL)
        count(direction(p->srcMemoryType, p->dstMemoryType),
              (uint64_t)p->WidthInBytes * p->Height * p->Depth);
}

static void count_many(const size_t *sizes, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; sizes != NULL && i < n; i++)
        bytes += sizes[i];
    count(TL_COPY_ON_DEVICE, bytes);
}

/* PARAMETERS and ARGUMENTS in brackets; the stream is called `stream`. */
#define ASYNC_ONE(name, is_per_thread, counted, PARAMETERS, ARGUMENTS)                             \
    static CUresult hook_##name PARAMETERS                                                         \
    {                                                                                              \
        struct tl_stream *s = tl_high_begin(stream, is_per_thread);                                \
        if (s != NULL)                                                                             \
            counted;                                                                               \
        return tl_high_end(s, TL_REAL(name) ARGUMENTS);                                            \
    }
#define ASYNC(name, counted, PARAMETERS, ARGUMENTS)                                                \
    ASYNC_ONE(name, false, counted, PARAMETERS, ARGUMENTS)                                         \
    ASYNC_ONE(name##_ptsz, true, counted, PARAMETERS, ARGUMENTS)

/* Of those that touch host memory, what the default stream had before is done when they return, and
 * so is the copy. */
#define SYNCHRONOUS_ONE(name, is_per_thread, touches, counted, PARAMETERS, ARGUMENTS)              \
    static CUresult hook_##name PARAMETERS                                                         \
    {                                                                                              \
        struct tl_stream *s = tl_high_begin(NULL, is_per_thread);                                  \
        uint32_t before = tl_stream_submitted(s);                                                  \
        if (s != NULL)                                                                             \
            counted;                                                                               \
        CUresult r = tl_high_end(s, TL_REAL(name) ARGUMENTS);                                      \
        if (s != NULL && r == CUDA_SUCCESS && (touches)) {                                         \
            tl_stream_complete(s, before + 1);                                                     \
            tl_request_waited();                                                                   \
        }                                                                                          \
        return r;                                                                                  \
    }
#define SYNCHRONOUS(name, touches, counted, PARAMETERS, ARGUMENTS)                                 \
    SYNCHRONOUS_ONE(name, false, touches, counted, PARAMETERS, ARGUMENTS)                          \
    SYNCHRONOUS_ONE(name##_ptds, true, touches, counted, PARAMETERS, ARGUMENTS)

/* --- asynchronous --- */

ASYNC(cuMemcpyAsync, count(TL_COPY_ON_DEVICE, n),
      (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream))
ASYNC(cuMemcpyHtoDAsync_v2, count(TL_COPY_TO_DEVICE, n),
      (CUdeviceptr to, const void *from, size_t n, CUstream stream), (to, from, n, stream))
ASYNC(cuMemcpyDtoHAsync_v2, count(TL_COPY_FROM_DEVICE, n),
      (void *to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream))
ASYNC(cuMemcpyDtoDAsync_v2, count(TL_COPY_ON_DEVICE, n),
      (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream), (to, from, n, stream))
ASYNC(cuMemcpyHtoAAsync_v2, count(TL_COPY_TO_DEVICE, n),
      (CUarray to, size_t at, const void *from, size_t n, CUstream stream),
      (to, at, from, n, stream))
ASYNC(cuMemcpyAtoHAsync_v2, count(TL_COPY_FROM_DEVICE, n),
      (void *to, CUarray from, size_t at, size_t n, CUstream stream), (to, from, at, n, stream))
ASYNC(cuMemcpyPeerAsync, count(TL_COPY_ON_DEVICE, n),
      (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t n,
       CUstream stream),
      (to, to_ctx, from, from_ctx, n, stream))
ASYNC(cuMemcpy2DAsync_v2, count_2d(p), (const CUDA_MEMCPY2D *p, CUstream stream), (p, stream))
ASYNC(cuMemcpy3DAsync_v2, count_3d(p), (const CUDA_MEMCPY3D *p, CUstream stream), (p, stream))
ASYNC(cuMemcpy3DPeerAsync, count_peer(p), (const CUDA_MEMCPY3D_PEER *p, CUstream stream),
      (p, stream))
ASYNC(cuMemcpyBatchAsync, count_many(sizes, n),
      (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
       size_t *indices, size_t n_attributes, size_t *failed, CUstream stream),
      (to, from, sizes, n, attributes, indices, n_attributes, failed, stream))
ASYNC(cuMemcpyBatchAsync_v2, count_many(sizes, n),
      (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
       size_t *indices, size_t n_attributes, CUstream stream),
      (to, from, sizes, n, attributes, indices, n_attributes, stream))
ASYNC(cuMemcpy3DBatchAsync, (void)0,
      (size_t n, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, unsigned long long flags,
       CUstream stream),
      (n, list, failed, flags, stream))
ASYNC(cuMemcpy3DBatchAsync_v2, (void)0,
      (size_t n, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream stream),
      (n, list, flags, stream))
ASYNC(cuMemPrefetchAsync, (void)0, (CUdeviceptr at, size_t n, CUdevice to, CUstream stream),
      (at, n, to, stream))
ASYNC(cuMemPrefetchAsync_v2, (void)0,
      (CUdeviceptr at, size_t n, CUmemLocation to, unsigned flags, CUstream stream),
      (at, n, to, flags, stream))
ASYNC(cuMemsetD8Async, count(TL_COPY_SET, n),
      (CUdeviceptr to, unsigned char value, size_t n, CUstream stream), (to, value, n, stream))
ASYNC(cuMemsetD16Async, count(TL_COPY_SET, 2 * (uint64_t)n),
      (CUdeviceptr to, unsigned short value, size_t n, CUstream stream), (to, value, n, stream))
ASYNC(cuMemsetD32Async, count(TL_COPY_SET, 4 * (uint64_t)n),
      (CUdeviceptr to, unsigned value, size_t n, CUstream stream), (to, value, n, stream))
ASYNC(cuMemsetD2D8Async, count(TL_COPY_SET, (uint64_t)width *height),
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
       CUstream stream),
      (to, pitch, value, width, height, stream))
ASYNC(cuMemsetD2D16Async, count(TL_COPY_SET, 2 * (uint64_t)width * height),
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
       CUstream stream),
      (to, pitch, value, width, height, stream))
ASYNC(cuMemsetD2D32Async, count(TL_COPY_SET, 4 * (uint64_t)width * height),
      (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),
      (to, pitch, value, width, height, stream))

/* --- synchronous --- */

SYNCHRONOUS(cuMemcpyHtoD_v2, true, count(TL_COPY_TO_DEVICE, n),
            (CUdeviceptr to, const void *from, size_t n), (to, from, n))
SYNCHRONOUS(cuMemcpyDtoH_v2, true, count(TL_COPY_FROM_DEVICE, n),
            (void *to, CUdeviceptr from, size_t n), (to, from, n))
SYNCHRONOUS(cuMemcpyHtoA_v2, true, count(TL_COPY_TO_DEVICE, n),
            (CUarray to, size_t at, const void *from, size_t n), (to, at, from, n))
SYNCHRONOUS(cuMemcpyAtoH_v2, true, count(TL_COPY_FROM_DEVICE, n),
            (void *to, CUarray from, size_t at, size_t n), (to, from, at, n))
SYNCHRONOUS(cuMemcpy, false, count(TL_COPY_ON_DEVICE, n),
            (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n))
SYNCHRONOUS(cuMemcpyDtoD_v2, false, count(TL_COPY_ON_DEVICE, n),
            (CUdeviceptr to, CUdeviceptr from, size_t n), (to, from, n))
SYNCHRONOUS(cuMemcpyPeer, false, count(TL_COPY_ON_DEVICE, n),
            (CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx, size_t n),
            (to, to_ctx, from, from_ctx, n))
SYNCHRONOUS(cuMemcpyDtoA_v2, false, count(TL_COPY_ON_DEVICE, n),
            (CUarray to, size_t at, CUdeviceptr from, size_t n), (to, at, from, n))
SYNCHRONOUS(cuMemcpyAtoD_v2, false, count(TL_COPY_ON_DEVICE, n),
            (CUdeviceptr to, CUarray from, size_t at, size_t n), (to, from, at, n))
SYNCHRONOUS(cuMemcpyAtoA_v2, false, count(TL_COPY_ON_DEVICE, n),
            (CUarray to, size_t to_at, CUarray from, size_t at, size_t n), (to, to_at, from, at, n))
SYNCHRONOUS(cuMemcpy2D_v2, p != NULL && touches_host(p->srcMemoryType, p->dstMemoryType),
            count_2d(p), (const CUDA_MEMCPY2D *p), (p))
SYNCHRONOUS(cuMemcpy2DUnaligned_v2, p != NULL && touches_host(p->srcMemoryType, p->dstMemoryType),
            count_2d(p), (const CUDA_MEMCPY2D *p), (p))
SYNCHRONOUS(cuMemcpy3D_v2, p != NULL && touches_host(p->srcMemoryType, p->dstMemoryType),
            count_3d(p), (const CUDA_MEMCPY3D *p), (p))
SYNCHRONOUS(cuMemcpy3DPeer, p != NULL && touches_host(p->srcMemoryType, p->dstMemoryType),
            count_peer(p), (const CUDA_MEMCPY3D_PEER *p), (p))
SYNCHRONOUS(cuMemsetD8_v2, false, count(TL_COPY_SET, n),
            (CUdeviceptr to, unsigned char value, size_t n), (to, value, n))
SYNCHRONOUS(cuMemsetD16_v2, false, count(TL_COPY_SET, 2 * (uint64_t)n),
            (CUdeviceptr to, unsigned short value, size_t n), (to, value, n))
SYNCHRONOUS(cuMemsetD32_v2, false, count(TL_COPY_SET, 4 * (uint64_t)n),
            (CUdeviceptr to, unsigned value, size_t n), (to, value, n))
SYNCHRONOUS(cuMemsetD2D8_v2, false, count(TL_COPY_SET, (uint64_t)width *height),
            (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
            (to, pitch, value, width, height))
SYNCHRONOUS(cuMemsetD2D16_v2, false, count(TL_COPY_SET, 2 * (uint64_t)width * height),
            (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
            (to, pitch, value, width, height))
SYNCHRONOUS(cuMemsetD2D32_v2, false, count(TL_COPY_SET, 4 * (uint64_t)width * height),
            (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
            (to, pitch, value, width, height))

/* clang-format off */
#define HOOK(name) {#name, (void *)hook_##name}
#define SZ(name) HOOK(name), HOOK(name##_ptsz)
#define DS(name) HOOK(name), HOOK(name##_ptds)
const struct tl_hook tl_high_copy_hooks[] = {
    SZ(cuMemcpyAsync), SZ(cuMemcpyHtoDAsync_v2), SZ(cuMemcpyDtoHAsync_v2), SZ(cuMemcpyDtoDAsync_v2), SZ(cuMemcpyHtoAAsync_v2),
    SZ(cuMemcpyAtoHAsync_v2), SZ(cuMemcpyPeerAsync), SZ(cuMemcpy2DAsync_v2), SZ(cuMemcpy3DAsync_v2), SZ(cuMemcpy3DPeerAsync),
    SZ(cuMemcpyBatchAsync), SZ(cuMemcpyBatchAsync_v2), SZ(cuMemcpy3DBatchAsync), SZ(cuMemcpy3DBatchAsync_v2),
    SZ(cuMemPrefetchAsync), SZ(cuMemPrefetchAsync_v2),
    SZ(cuMemsetD8Async), SZ(cuMemsetD16Async), SZ(cuMemsetD32Async),
    SZ(cuMemsetD2D8Async), SZ(cuMemsetD2D16Async), SZ(cuMemsetD2D32Async),
    DS(cuMemcpyHtoD_v2), DS(cuMemcpyDtoH_v2), DS(cuMemcpyHtoA_v2), DS(cuMemcpyAtoH_v2),
    DS(cuMemcpy), DS(cuMemcpyDtoD_v2), DS(cuMemcpyPeer), DS(cuMemcpyDtoA_v2), DS(cuMemcpyAtoD_v2), DS(cuMemcpyAtoA_v2),
    DS(cuMemcpy2D_v2), DS(cuMemcpy2DUnaligned_v2), DS(cuMemcpy3D_v2), DS(cuMemcpy3DPeer),
    DS(cuMemsetD8_v2), DS(cuMemsetD16_v2), DS(cuMemsetD32_v2), DS(cuMemsetD2D8_v2), DS(cuMemsetD2D16_v2), DS(cuMemsetD2D32_v2),
    {NULL, NULL},
};
/* clang-format on */

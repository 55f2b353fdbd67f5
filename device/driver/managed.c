/* Advice and prefetching of managed memory.  Advice is taken where it says whose pages stay
 * (device/driver/pages.c). */
#include "device/driver/capture.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/op.h"
#include "device/driver/pages.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "device/driver/work.h"

#include <stdlib.h>
#include <string.h>

static CUresult is_known(CUdeviceptr p, size_t count)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    bool fits = a != NULL && count <= a->bytes - ((uintptr_t)p - a->base);
    tl_drv_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult advise(CUdeviceptr p, size_t count, CUmem_advise advice, bool is_device)
{
    CUresult r = is_known(p, count);
    if (r == CUDA_SUCCESS && advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        tl_drv_pages_rank(p, count, is_device ? TL_DRV_FIRM : TL_DRV_SOFT);
    else if (r == CUDA_SUCCESS && advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
        tl_drv_pages_rank(p, count, TL_DRV_SOFT);
    return r;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    return advise(devPtr, count, advice, device != CU_DEVICE_CPU);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    return advise(devPtr, count, advice, location.type == CU_MEM_LOCATION_TYPE_DEVICE);
}

struct move {
    CUdeviceptr at;
    size_t n;
    bool to_device;
};

static void CUDA_CB move_pages(void *data)
{
    const struct move *m = data;
    tl_drv_pages_move(m->at, m->n, m->to_device);
    free(data);
}

/* In the order of the stream.  A graph has no node for it: while one is captured, nothing moves. */
static CUresult prefetch(CUdeviceptr p, size_t count, bool to_device, CUstream stream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(stream, &s);
    if (r == CUDA_SUCCESS)
        r = is_known(p, count);
    if (r != CUDA_SUCCESS || !tl_drv_pages_are_there() || tl_drv_is_capturing(s))
        return r;
    struct move *m = malloc(sizeof *m);
    if (m == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *m = (struct move){p, count, to_device};
    struct tl_drv_work work = {.kind = TL_DRV_HOST, .host = {move_pages, m}};
    return tl_drv_submit(s, &work, false); /* NOLINT(clang-analyzer-unix.Malloc): that takes it */
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return prefetch(devPtr, count, dstDevice != CU_DEVICE_CPU, hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream)
{
    (void)flags;
    return prefetch(devPtr, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE, hStream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                 CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
    CUresult r = CUDA_SUCCESS;
    (void)flags;
    if (dptrs == NULL || sizes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    /* prefetchLocIdxs says from which range on each location counts. */
    for (size_t i = 0, at = 0; i < count && r == CUDA_SUCCESS; i++) {
        while (at + 1 < numPrefetchLocs && prefetchLocIdxs != NULL && prefetchLocIdxs[at + 1] <= i)
            at++;
        bool to_device = prefetchLocs == NULL || numPrefetchLocs == 0 ||
                         prefetchLocs[at].type == CU_MEM_LOCATION_TYPE_DEVICE;
        r = prefetch(dptrs[i], sizes[i], to_device, hStream);
    }
    return r;
}

/* Discarded contents are undefined; keeping them is one of the things that may happen. */
CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                unsigned long long flags, CUstream hStream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(hStream, &s);
    (void)flags;
    if (dptrs == NULL || sizes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = is_known(dptrs[i], sizes[i]);
    return r;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream)
{
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                   numPrefetchLocs, flags, hStream);
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count)
{
    CUresult r = is_known(devPtr, count);
    if (r != CUDA_SUCCESS)
        return r;
    if (data == NULL || dataSize < 4)
        return CUDA_ERROR_INVALID_VALUE;
    memset(data, 0, dataSize);
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ||
        attribute == CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
        *(int *)data = CU_DEVICE_INVALID;
    uint32_t rank = TL_DRV_SOFT;
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) {
        tl_drv_pages_on_device(devPtr, count, &rank);
        if (rank == TL_DRV_FIRM)
            *(int *)data = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < numAttributes && r == CUDA_SUCCESS; i++)
        r = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    return r;
}

/* Advice and prefetching of managed memory.  All of it is remembered (device/driver/advice.c) and
 * taken where it says whose pages stay (device/driver/pages.c). */
#include "device/driver/capture.h"
#include "device/driver/device.h"
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

/* Of managed memory, and only of that. */
static CUresult is_known(CUdeviceptr p, size_t count)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    bool fits = a != NULL && a->kind == TL_DRV_MANAGED &&
                count <= a->bytes - ((uintptr_t)p - a->base);
    tl_drv_unlock();
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- advice ----------------------------------------------------------------------------------- */

struct advice {
    CUmem_advise kind;
    CUmemLocation at;
};

static void take_advice(struct tl_drv_said *said, const void *data)
{
    const struct advice *a = data;
    bool is_device = a->at.type == CU_MEM_LOCATION_TYPE_DEVICE;
    uint32_t who = 1u << (is_device ? a->at.id : 31);
    switch (a->kind) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        said->is_read_mostly = a->kind == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        said->preferred = a->at;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        said->preferred = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_INVALID};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        said->accessed_by |= who;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        said->accessed_by &= ~who;
        break;
    }
}

static void take_sending(struct tl_drv_said *said, const void *data)
{
    said->sent = *(const CUmemLocation *)data;
}

/* A place that there is; the number of a host's is its node's or nothing. */
static CUresult check_place(CUmemLocation *l)
{
    struct tl_drv_device *d;
    switch (l->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return tl_drv_device(l->id, &d);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return l->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: /* all threads are near it */
        *l = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
        l->id = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Changes what is said of a range.  Its allocation may be gone by now. */
static CUresult change(CUdeviceptr p, size_t count, void (*how)(struct tl_drv_said *, const void *),
                       const void *data)
{
    CUresult r = CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a != NULL && a->kind == TL_DRV_MANAGED && count <= a->bytes - ((uintptr_t)p - a->base))
        r = tl_drv_advice_change(a, (uintptr_t)p, count, how, data);
    tl_drv_unlock();
    return r;
}

static CUresult advise(CUdeviceptr p, size_t count, CUmem_advise kind, CUmemLocation location)
{
    struct advice a = {kind, location};
    bool needs_place = kind == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                       kind == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                       kind == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    CUresult r = is_known(p, count);
    if (r == CUDA_SUCCESS &&
        (kind < CU_MEM_ADVISE_SET_READ_MOSTLY || kind > CU_MEM_ADVISE_UNSET_ACCESSED_BY))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && needs_place)
        r = check_place(&a.at);
    if (r == CUDA_SUCCESS)
        r = change(p, count, take_advice, &a);
    if (r != CUDA_SUCCESS)
        return r;
    if (kind == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        tl_drv_pages_rank(p, count,
                          a.at.type == CU_MEM_LOCATION_TYPE_DEVICE ? TL_DRV_FIRM : TL_DRV_SOFT);
    else if (kind == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
        tl_drv_pages_rank(p, count, TL_DRV_SOFT);
    return CUDA_SUCCESS;
}

/* What a number meant before places had types. */
static CUmemLocation place_of(CUdevice device)
{
    return device == CU_DEVICE_CPU
               ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
               : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    return advise(devPtr, count, advice, place_of(device));
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    return advise(devPtr, count, advice, location);
}

/* --- prefetching ------------------------------------------------------------------------------ */

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
static CUresult prefetch(CUdeviceptr p, size_t count, CUmemLocation to, CUstream stream)
{
    struct CUstream_st *s;
    CUresult r = tl_drv_stream(stream, &s);
    if (r == CUDA_SUCCESS)
        r = is_known(p, count);
    if (r == CUDA_SUCCESS)
        r = check_place(&to);
    if (r == CUDA_SUCCESS)
        r = change(p, count, take_sending, &to);
    if (r != CUDA_SUCCESS || !tl_drv_pages_are_there() || tl_drv_is_capturing(s))
        return r;
    struct move *m = malloc(sizeof *m);
    if (m == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *m = (struct move){p, count, to.type == CU_MEM_LOCATION_TYPE_DEVICE};
    struct tl_drv_work work = {.kind = TL_DRV_HOST, .host = {move_pages, m}};
    return tl_drv_submit(s, &work, false); /* NOLINT(clang-analyzer-unix.Malloc): that takes it */
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return prefetch(devPtr, count, place_of(dstDevice), hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream)
{
    return flags == 0 ? prefetch(devPtr, count, location, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                 CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
    CUresult r = CUDA_SUCCESS;
    if (dptrs == NULL || sizes == NULL || count == 0 || prefetchLocs == NULL ||
        prefetchLocIdxs == NULL || numPrefetchLocs == 0 || numPrefetchLocs > count || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* prefetchLocIdxs says from which range on each location counts. */
    for (size_t i = 0, at = 0; i < count && r == CUDA_SUCCESS; i++) {
        while (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] <= i)
            at++;
        r = prefetch(dptrs[i], sizes[i], prefetchLocs[at], hStream);
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

/* --- what was said ---------------------------------------------------------------------------- */

/* As a device's number: the host's is CU_DEVICE_CPU. */
static int number_of(const CUmemLocation *l)
{
    return l->type == CU_MEM_LOCATION_TYPE_DEVICE    ? l->id
           : l->type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID
                                                     : CU_DEVICE_CPU;
}

static void tell_users(uint32_t accessed_by, int *out, size_t n)
{
    size_t k = 0;
    for (int i = 0; i < tl_drv.n_devices && k < n; i++)
        if ((accessed_by >> i & 1) != 0)
            out[k++] = i;
    if (k < n && (accessed_by >> 31 & 1) != 0)
        out[k++] = CU_DEVICE_CPU;
    while (k < n)
        out[k++] = CU_DEVICE_INVALID;
}

/* What was said of all pages of a range: 32 bits, but for the list of those who use it. */
CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count)
{
    CUresult r = is_known(devPtr, count);
    if (r != CUDA_SUCCESS)
        return r;
    bool is_list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    if (data == NULL || dataSize < 4 || dataSize % 4 != 0 || (!is_list && dataSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_said said = {0};
    tl_drv_lock();
    const struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)devPtr);
    if (a != NULL)
        said = tl_drv_advice_of(a, (uintptr_t)devPtr, count);
    tl_drv_unlock();
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *(int *)data = said.is_read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        tell_users(said.accessed_by, data, dataSize / 4);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *(int *)data = number_of(&said.preferred);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *(int *)data = number_of(&said.sent);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *(int *)data = (int)said.preferred.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *(int *)data = (int)said.sent.type;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *(int *)data = said.preferred.id;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *(int *)data = said.sent.id;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
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

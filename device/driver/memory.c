/* Memory: the table of everything allocated, device memory and managed memory.
 *
 * Device memory is ordinary memory of this process, reserved at once and backed when touched, with
 * an inaccessible page before and behind each allocation.  Its capacity is that of the shared
 * device's ledger. */
#include "device/driver/memory.h"
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/exec.h"
#include "device/driver/graph_memory.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/pages.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "tally/array.h"
#include "tally/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    HUGE = 2 << 20,
    /* A process may have 65530 mappings, and guards keep neighbours from becoming one.  Small
     * allocations beyond so many go without. */
    MAX_GUARDED = 12000,
};

/* --- the table -------------------------------------------------------------------------------- */

/* Index of the first allocation that begins behind `address`. */
static size_t behind(uintptr_t address) TL_DRV_LOCKED
{
    size_t low = 0, high = tl_drv.n_allocs;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (tl_drv.allocs[mid]->base <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct tl_drv_alloc *tl_drv_alloc_find(uintptr_t address)
{
    size_t i = behind(address);
    if (i == 0)
        return NULL;
    struct tl_drv_alloc *a = tl_drv.allocs[i - 1];
    return address - a->base < (a->bytes > 0 ? a->bytes : 1) ? a : NULL;
}

bool tl_drv_alloc_overlaps(uintptr_t base, size_t bytes)
{
    size_t next = behind(base);
    return tl_drv_alloc_find(base) != NULL ||
           (next < tl_drv.n_allocs && bytes > tl_drv.allocs[next]->base - base);
}

bool tl_drv_memory_covers(uintptr_t address, size_t bytes, bool is_written)
{
    const unsigned needed = is_written ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                       : CU_MEM_ACCESS_FLAGS_PROT_READ;
    for (;;) {
        const struct tl_drv_alloc *a = tl_drv_alloc_find(address);
        if (a == NULL || (a->kind == TL_DRV_VIRTUAL && a->flags < needed))
            return false;
        size_t left = a->bytes - (address - a->base);
        if (bytes <= left)
            return true;
        if (a->kind !=
            TL_DRV_VIRTUAL) /* neighbours may be mapped to be one piece; others are not */
            return false;
        address += left;
        bytes -= left;
    }
}

CUresult tl_drv_alloc_insert(struct tl_drv_alloc *a)
{
    if (!TL_ARRAY_FIT(tl_drv.allocs, tl_drv.cap_allocs, tl_drv.n_allocs + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t i = behind(a->base);
    TL_CHECK(i == 0 || tl_drv.allocs[i - 1]->base < a->base);
    memmove(&tl_drv.allocs[i + 1], &tl_drv.allocs[i],
            (tl_drv.n_allocs - i) * sizeof(struct tl_drv_alloc *));
    tl_drv.allocs[i] = a;
    tl_drv.n_allocs++;
    a->id = tl_drv.next_id++;
    if (a->ctx != NULL)
        a->ctx = a->ctx->home;
    return CUDA_SUCCESS;
}

void tl_drv_alloc_remove(struct tl_drv_alloc *a)
{
    size_t i = behind(a->base);
    if (i == 0 || tl_drv.allocs[i - 1] != a)
        return;
    tl_drv.n_allocs--;
    memmove(&tl_drv.allocs[i - 1], &tl_drv.allocs[i],
            (tl_drv.n_allocs - (i - 1)) * sizeof(struct tl_drv_alloc *));
}

/* Address space for `mapped` bytes with a guard page on both sides, large ones aligned for huge
 * pages. */
static void *map_guarded(size_t mapped) TL_DRV_LOCKED
{
    if (tl_drv.n_allocs >= MAX_GUARDED && mapped < HUGE) {
        uint8_t *plain = mmap(NULL, mapped + 2 * TL_DRV_PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return plain != MAP_FAILED ? plain + TL_DRV_PAGE : NULL;
    }
    size_t align = mapped >= HUGE ? HUGE : TL_DRV_PAGE;
    size_t whole = mapped + 2 * align;
    uint8_t *p = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    uint8_t *base = p + TL_DRV_PAGE;
    base += -(uintptr_t)base & (align - 1);
    uint8_t *end = base + mapped;
    /* What alignment left over goes back, one page on each side stays. */
    if (base - TL_DRV_PAGE > p)
        munmap(p, (size_t)(base - TL_DRV_PAGE - p));
    if (p + whole > end + TL_DRV_PAGE)
        munmap(end + TL_DRV_PAGE, (size_t)(p + whole - (end + TL_DRV_PAGE)));
    if (mprotect(base, mapped, PROT_READ | PROT_WRITE) != 0) {
        munmap(base - TL_DRV_PAGE, mapped + 2 * TL_DRV_PAGE);
        return NULL;
    }
    if (mapped >= HUGE)
        madvise(base, mapped, MADV_HUGEPAGE);
    return base;
}

/* From the ledger: what is kept for reuse is given up for it, and so are pages of managed memory,
 * the own and others'. */
bool tl_drv_memory_charge(struct tl_drv_device *device, uint64_t bytes)
{
    if (tl_drv_exec_take(device, bytes) == 0)
        return true;
    tl_drv_pool_trim(device->default_pool, 0);
    tl_drv_pool_trim(device->graph_pool, 0);
    return tl_drv_exec_take(device, bytes) == 0 || tl_drv_pages_make_room(device, bytes) ||
           tl_drv_exec_demand(device, bytes, TL_DRV_FIRM + 1) == 0;
}

/* Charges the ledger first, unless it is host memory, so that what was mapped is always paid for;
 * takes everything back if one step fails. */
CUresult tl_drv_alloc_create(struct tl_drv_device *device, struct CUctx_st *ctx, size_t bytes,
                             enum tl_drv_memory kind, struct tl_drv_alloc **out)
{
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > (size_t)1 << 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t mapped = (bytes + TL_DRV_PAGE - 1) & ~(size_t)(TL_DRV_PAGE - 1);
    bool is_charged = kind != TL_DRV_HOST_MEMORY;
    struct tl_drv_alloc *a = calloc(1, sizeof *a);
    if (a == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (is_charged && !tl_drv_memory_charge(device, mapped)) {
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void *p = map_guarded(mapped);
    *a = (struct tl_drv_alloc){.base = (uintptr_t)p,
                               .bytes = bytes,
                               .mapped = mapped,
                               .kind = kind,
                               .is_charged = is_charged,
                               .ctx = ctx,
                               .device = device,
                               .fd = -1};
    TL_CHECK(((uintptr_t)p & (TL_DRV_PAGE - 1)) == 0);
    if (p != NULL && tl_drv_alloc_insert(a) == CUDA_SUCCESS) {
        *out = a;
        return CUDA_SUCCESS;
    }
    if (p != NULL)
        munmap((uint8_t *)p - TL_DRV_PAGE, mapped + 2 * TL_DRV_PAGE);
    if (is_charged)
        tl_drv_exec_give(device, mapped);
    free(a);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void tl_drv_alloc_destroy(struct tl_drv_alloc *a)
{
    if (a == NULL)
        return;
    tl_drv_alloc_remove(a);
    if (a->pages != NULL)
        tl_drv_pages_destroy(a->pages);
    if (a->kind == TL_DRV_VIRTUAL || a->is_imported)
        munmap(tl_drv_pointer(a->base), a->mapped);
    else if (a->kind != TL_DRV_REGISTERED)
        munmap(tl_drv_pointer(a->base - TL_DRV_PAGE), a->mapped + 2 * TL_DRV_PAGE);
    if (a->is_charged)
        tl_drv_exec_give(a->device, a->mapped);
    if (a->fd >= 0)
        close(a->fd);
    tl_drv_advice_drop(a);
    free(a->graph);
    free(a);
}

bool tl_drv_is_pinned(const void *p)
{
    return tl_drv_alloc_find((uintptr_t)p) != NULL;
}

/* --- device memory ---------------------------------------------------------------------------- */

/* Allocating is no work of a stream, so a capture may forbid it; and two commands of different
 * streams may not overlap if memory is allocated between them (programming guide, "Implicit
 * Synchronization"). */
static CUresult may_allocate(struct CUctx_st **ctx) TL_DRV_UNLOCKED
{
    CUresult r = tl_drv_enter(ctx);
    if (r == CUDA_SUCCESS)
        r = tl_drv_capture_permit();
    if (r == CUDA_SUCCESS)
        tl_drv_context_may_drain((*ctx)->home);
    return r;
}

CUresult tl_drv_memory_take(size_t bytes, enum tl_drv_memory kind, unsigned flags, uintptr_t *out)
{
    struct CUctx_st *ctx;
    struct tl_drv_alloc *a;
    CUresult r = may_allocate(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    r = tl_drv_alloc_create(ctx->device, ctx, bytes, kind, &a);
    if (r == CUDA_SUCCESS) {
        a->flags = flags;
        *out = a->base;
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    uintptr_t p;
    if (dptr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = tl_drv_memory_take(bytesize, TL_DRV_DEVICE_MEMORY, 0, &p);
    if (r == CUDA_SUCCESS)
        *dptr = p;
    return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    if (dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t pitch = (WidthInBytes + 511) & ~(size_t)511;
    if (Height > SIZE_MAX / pitch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = cuMemAlloc_v2(dptr, pitch * Height);
    if (r == CUDA_SUCCESS)
        *pPitch = pitch;
    return r;
}

/* Address space as for host memory, and then pages in it. */
CUresult tl_drv_managed_create(struct tl_drv_device *device, struct CUctx_st *ctx, size_t bytes,
                               struct tl_drv_alloc **out)
{
    struct tl_drv_alloc *a;
    CUresult r = tl_drv_alloc_create(device, ctx, bytes, TL_DRV_HOST_MEMORY, &a);
    if (r != CUDA_SUCCESS)
        return r;
    a->kind = TL_DRV_MANAGED;
    a->flags = CU_MEM_ATTACH_GLOBAL;
    a->pages = tl_drv_pages_create(device, tl_drv_pointer(a->base), a->mapped);
    if (a->pages == NULL) {
        tl_drv_alloc_destroy(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = a;
    return CUDA_SUCCESS;
}

static CUresult take_managed(size_t bytes, unsigned flags, uintptr_t *out)
{
    struct CUctx_st *ctx;
    struct tl_drv_alloc *a;
    CUresult r = may_allocate(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    r = tl_drv_managed_create(ctx->device, ctx, bytes, &a);
    if (r == CUDA_SUCCESS) {
        a->flags = flags;
        *out = a->base;
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    uintptr_t p;
    if (dptr == NULL || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = take_managed(bytesize, flags, &p);
    if (r == CUDA_SUCCESS)
        *dptr = p;
    return r;
}

CUresult tl_drv_memory_free(CUdeviceptr address)
{
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)address);
    if (a == NULL || a->base != address || a->is_internal ||
        (a->kind != TL_DRV_DEVICE_MEMORY && a->kind != TL_DRV_MANAGED && a->pool == NULL &&
         a->graph == NULL) ||
        (a->is_imported && a->pool == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (a->graph != NULL)
        tl_drv_graph_memory_reached(a);
    else if (!tl_drv_pool_take_back(a))
        tl_drv_alloc_destroy(a);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (dptr == 0)
        return CUDA_SUCCESS;
    r = tl_drv_capture_permit();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    struct CUctx_st *owner = a != NULL ? a->ctx : NULL;
    if (a != NULL && a->base == dptr && a->graph != NULL && !tl_drv_graph_memory_free(a))
        r = CUDA_ERROR_INVALID_VALUE;
    tl_drv_unlock();
    if (r != CUDA_SUCCESS)
        return r;
    /* Freeing waits for what may still use the memory, as on hardware. */
    if (owner != NULL)
        tl_drv_context_drain(owner);
    tl_drv_lock();
    r = tl_drv_memory_free(dptr);
    tl_drv_unlock();
    return r;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    struct CUctx_st *ctx;
    uint64_t left, all;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_exec_info(ctx->device, &left, &all);
    if (free_bytes != NULL)
        *free_bytes = left;
    if (total != NULL)
        *total = all;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    if (a == NULL) {
        r = CUDA_ERROR_NOT_FOUND;
    } else {
        if (pbase != NULL)
            *pbase = a->base;
        if (psize != NULL)
            *psize = a->bytes;
    }
    tl_drv_unlock();
    return r;
}

/* Memory: the table of everything allocated, device, host and managed memory, and what a pointer is.
 *
 * Device memory is ordinary memory of this process, reserved at once and backed when touched, with an inaccessible page
 * before and behind each allocation.  Its capacity is that of the shared device's ledger. */
#include "device/driver.h"
#include "device/driver_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HUGE = 2 << 20,
    /* A process may have 65530 mappings, and guards keep neighbours from becoming one.  Small allocations beyond so many
     * go without. */
    MAX_GUARDED = 12000,
};

/* --- the table --------------------------------------------------------------------------------------------------- */

/* Index of the first allocation that begins behind `address`. */
static size_t behind(uintptr_t address)
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

CUresult tl_drv_alloc_insert(struct tl_drv_alloc *a)
{
    if (tl_drv.n_allocs == tl_drv.cap_allocs) {
        size_t cap = tl_drv.cap_allocs > 0 ? tl_drv.cap_allocs * 2 : 256;
        struct tl_drv_alloc **list = realloc(tl_drv.allocs, cap * sizeof(struct tl_drv_alloc *));
        if (list == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        tl_drv.allocs = list;
        tl_drv.cap_allocs = cap;
    }
    size_t i = behind(a->base);
    memmove(&tl_drv.allocs[i + 1], &tl_drv.allocs[i], (tl_drv.n_allocs - i) * sizeof(struct tl_drv_alloc *));
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
    memmove(&tl_drv.allocs[i - 1], &tl_drv.allocs[i], (tl_drv.n_allocs - (i - 1)) * sizeof(struct tl_drv_alloc *));
}

/* Address space for `mapped` bytes with a guard page on both sides, large ones aligned for huge pages. */
static void *map_guarded(size_t mapped)
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

/* From the ledger: what is kept for reuse is given up for it, and so are pages of managed memory, the own and others'. */
static bool charge(struct tl_drv_device *device, uint64_t bytes)
{
    if (tl_drv_exec_take(device, bytes) == 0)
        return true;
    tl_drv_pool_trim(device->default_pool, 0);
    return tl_drv_exec_take(device, bytes) == 0 || tl_drv_pages_make_room(device, bytes) ||
           tl_drv_exec_demand(device, bytes, TL_DRV_FIRM + 1) == 0;
}

CUresult tl_drv_alloc_create(struct tl_drv_device *device, struct CUctx_st *ctx, size_t bytes, enum tl_drv_memory kind,
                             struct tl_drv_alloc **out)
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
    if (is_charged && !charge(device, mapped)) {
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
    free(a);
}

bool tl_drv_is_pinned(const void *p)
{
    return tl_drv_alloc_find((uintptr_t)p) != NULL;
}

/* --- device memory ----------------------------------------------------------------------------------------------- */

static CUresult take(size_t bytes, enum tl_drv_memory kind, unsigned flags, uintptr_t *out)
{
    struct CUctx_st *ctx;
    struct tl_drv_alloc *a;
    CUresult r = tl_drv_enter(&ctx);
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
    CUresult r = take(bytesize, TL_DRV_DEVICE_MEMORY, 0, &p);
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
static CUresult take_managed(size_t bytes, unsigned flags, uintptr_t *out)
{
    struct CUctx_st *ctx;
    struct tl_drv_alloc *a;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_lock();
    r = tl_drv_alloc_create(ctx->device, ctx, bytes, TL_DRV_HOST_MEMORY, &a);
    if (r == CUDA_SUCCESS) {
        a->kind = TL_DRV_MANAGED;
        a->flags = flags;
        a->pages = tl_drv_pages_create(ctx->device, tl_drv_pointer(a->base), a->mapped);
        *out = a->base;
        if (a->pages == NULL) {
            tl_drv_alloc_destroy(a);
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
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
        (a->kind != TL_DRV_DEVICE_MEMORY && a->kind != TL_DRV_MANAGED) || a->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (!tl_drv_pool_take_back(a))
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
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    struct CUctx_st *owner = a != NULL ? a->ctx : NULL;
    tl_drv_unlock();
    /* Freeing waits for what may still use the memory, as on hardware. */
    if (owner != NULL)
        tl_drv_context_wait(owner);
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

/* --- host memory ------------------------------------------------------------------------------------------------- */

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    uintptr_t p;
    if (pp == NULL || (Flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = take(bytesize, TL_DRV_HOST_MEMORY, Flags, &p);
    if (r == CUDA_SUCCESS)
        *pp = tl_drv_pointer(p);
    return r;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (p == NULL)
        return CUDA_SUCCESS;
    tl_drv_context_wait(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a == NULL || a->base != (uintptr_t)p || a->kind != TL_DRV_HOST_MEMORY)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        tl_drv_alloc_destroy(a);
    tl_drv_unlock();
    return r;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    if (p == NULL || bytesize == 0 || (Flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_alloc *a = calloc(1, sizeof *a);
    if (a == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *a = (struct tl_drv_alloc){.base = (uintptr_t)p,
                               .bytes = bytesize,
                               .mapped = bytesize,
                               .kind = TL_DRV_REGISTERED,
                               .flags = Flags,
                               .ctx = ctx,
                               .device = ctx->device,
                               .fd = -1};
    tl_drv_lock();
    size_t next = behind(a->base);
    bool overlaps = tl_drv_alloc_find(a->base) != NULL ||
                    (next < tl_drv.n_allocs && tl_drv.allocs[next]->base < a->base + bytesize);
    r = overlaps ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : tl_drv_alloc_insert(a);
    tl_drv_unlock();
    if (r != CUDA_SUCCESS)
        free(a);
    return r;
}

CUresult cuMemHostUnregister(void *p)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_context_wait(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a == NULL || a->base != (uintptr_t)p || a->kind != TL_DRV_REGISTERED)
        r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    else
        tl_drv_alloc_destroy(a);
    tl_drv_unlock();
    return r;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pdptr == NULL || Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a == NULL || (a->kind != TL_DRV_HOST_MEMORY && a->kind != TL_DRV_REGISTERED))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        *pdptr = (CUdeviceptr)(uintptr_t)p;
    tl_drv_unlock();
    return r;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pFlags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a == NULL || a->kind != TL_DRV_HOST_MEMORY)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        *pFlags = a->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    tl_drv_unlock();
    return r;
}

/* --- what a pointer is ------------------------------------------------------------------------------------------- */

static bool is_host(const struct tl_drv_alloc *a)
{
    return a->kind == TL_DRV_HOST_MEMORY || a->kind == TL_DRV_REGISTERED;
}

/* One attribute of a pointer into `a`, or into nothing we know (NULL). */
static CUresult pointer_attribute(const struct tl_drv_alloc *a, CUdeviceptr p, CUpointer_attribute attribute, void *out)
{
    if (a == NULL && attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
        attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL && attribute != CU_POINTER_ATTRIBUTE_CONTEXT &&
        attribute != CU_POINTER_ATTRIBUTE_MAPPED && attribute != CU_POINTER_ATTRIBUTE_IS_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (a == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        *(CUcontext *)out = a->ctx;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        if (a == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        *(unsigned *)out = is_host(a) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)out = p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(a) && a->kind != TL_DRV_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)out = tl_drv_pointer(p);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)out = a->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)out = a->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        if (a == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        *(int *)out = a->kind == TL_DRV_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        if (a == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        *(int *)out = a->device->ordinal;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)out = a->kind == TL_DRV_DEVICE_MEMORY && a->pool == NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = a->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = a->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)out = a != NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(int *)out = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)out = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)out = a->pool;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)out = a->mapped;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)out = a->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(uint64_t *)out = a->id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    r = pointer_attribute(tl_drv_alloc_find((uintptr_t)ptr), ptr, attribute, data);
    tl_drv_unlock();
    return r;
}

/* Unlike the single form, this one answers for any pointer: unknown ones get zeroes and no device. */
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr ptr)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (attributes == NULL || data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    const struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        if (data[i] == NULL)
            continue;
        if (pointer_attribute(a, ptr, attributes[i], data[i]) == CUDA_SUCCESS)
            continue;
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            memset(data[i], 0, 8);
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data[i] = -2;
            break;
        default:
            memset(data[i], 0, 4);
        }
    }
    tl_drv_unlock();
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)ptr);
    if (a != NULL)
        a->sync_memops = *(const int *)value != 0;
    tl_drv_unlock();
    return a != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- managed memory: advice is taken where it says whose pages stay ------------------------------------------------ */

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

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
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
    return tl_drv_submit(s, &(struct tl_drv_work){.kind = TL_DRV_HOST, .host = {move_pages, m}}, false);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    return prefetch(devPtr, count, dstDevice != CU_DEVICE_CPU, hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream)
{
    (void)flags;
    return prefetch(devPtr, count, location.type == CU_MEM_LOCATION_TYPE_DEVICE, hStream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                 size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream)
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
CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags,
                                CUstream hStream)
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

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,
                                           size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream)
{
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags, hStream);
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                size_t count)
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

/* --- sharing with other processes -------------------------------------------------------------------------------- */

/* What a CUipcMemHandle holds.  The other side opens the memory through /proc, so the kernel decides who may. */
struct ipc_handle {
    char magic[8];
    int32_t pid, fd;
    uint64_t bytes, mapped;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "has to fit");

/* Moves an allocation's bytes into a file in memory, at the same address.  Nothing may be running. */
static int make_shared(struct tl_drv_alloc *a)
{
    int fd = memfd_create("tally-ipc", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)a->mapped) != 0)
        goto fail;
    void *other = mmap(NULL, a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (other == MAP_FAILED)
        goto fail;
    memcpy(other, tl_drv_pointer(a->base), a->mapped);
    munmap(other, a->mapped);
    if (mmap(tl_drv_pointer(a->base), a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        goto fail;
    a->fd = fd;
    return 0;
fail:
    close(fd);
    return -ENOMEM;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (pHandle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_context_wait(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    if (a == NULL || a->kind != TL_DRV_DEVICE_MEMORY || a->is_imported || a->pool != NULL || a->is_internal) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (a->fd < 0 && make_shared(a) != 0) {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        struct ipc_handle h = {"tallyipc", getpid(), a->fd, a->bytes, a->mapped};
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, &h, sizeof h);
    }
    tl_drv_unlock();
    return r;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct CUctx_st *ctx;
    struct ipc_handle h;
    char path[64];
    struct stat st;
    CUresult r = tl_drv_enter(&ctx);
    (void)Flags;
    if (r != CUDA_SUCCESS)
        return r;
    memcpy(&h, &handle, sizeof h);
    if (pdptr == NULL || memcmp(h.magic, "tallyipc", 8) != 0 || h.pid == getpid())
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    struct tl_drv_alloc *a = calloc(1, sizeof *a);
    void *p = MAP_FAILED;
    if (a != NULL && fstat(fd, &st) == 0 && (uint64_t)st.st_size == h.mapped && h.bytes <= h.mapped)
        p = mmap(NULL, h.mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) {
        free(a);
        return CUDA_ERROR_MAP_FAILED;
    }
    *a = (struct tl_drv_alloc){.base = (uintptr_t)p,
                               .bytes = h.bytes,
                               .mapped = h.mapped,
                               .is_imported = true,
                               .kind = TL_DRV_DEVICE_MEMORY,
                               .ctx = ctx,
                               .device = ctx->device,
                               .fd = -1};
    tl_drv_lock();
    r = tl_drv_alloc_insert(a);
    tl_drv_unlock();
    if (r != CUDA_SUCCESS) {
        munmap(p, h.mapped);
        free(a);
        return r;
    }
    *pdptr = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    return cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_context_wait(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    if (a == NULL || a->base != dptr || !a->is_imported)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        tl_drv_alloc_destroy(a);
    tl_drv_unlock();
    return r;
}

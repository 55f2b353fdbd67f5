/* Host memory that the device may use: allocated here, or the program's own and registered. */
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/profile.h"
#include "device/driver/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    uintptr_t p;
    if (pp == NULL || (Flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                 CU_MEMHOSTALLOC_WRITECOMBINED)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = tl_drv_memory_take(bytesize, TL_DRV_HOST_MEMORY, Flags, &p);
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
    r = tl_drv_capture_permit();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_context_drain(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a == NULL || a->base != (uintptr_t)p || a->kind != TL_DRV_HOST_MEMORY)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        tl_drv_alloc_destroy(a);
    tl_drv_unlock();
    return r;
}

/* Whether the whole range is mapped, and with what rights: PROT_READ, PROT_WRITE. */
static int rights_of(uintptr_t from, uintptr_t end)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int rights = PROT_READ | PROT_WRITE;
    while (maps != NULL && from < end && fgets(line, sizeof line, maps) != NULL) {
        char *at;
        uintptr_t low = strtoull(line, &at, 16), high = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
        if (from < low || from >= high || *at != ' ')
            continue;
        rights &= (at[1] == 'r' ? PROT_READ : 0) | (at[2] == 'w' ? PROT_WRITE : 0);
        from = high;
    }
    if (maps != NULL)
        fclose(maps);
    return from >= end ? rights : 0;
}

/* What the profile's driver lets be registered.  The flag for memory that is only read "is required
 * in order to register memory mapped to the CPU as read-only", and without its device attribute it
 * is CUDA_ERROR_NOT_SUPPORTED (cuda.h).  What a driver says without the flag is from a public
 * report (device/driver/profile.c). */
static CUresult may_register(uintptr_t p, size_t bytes, unsigned flags)
{
    const struct tl_drv_profile *profile = tl_drv_profile();
    bool reads_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    if (reads_only && profile->read_only_registration == 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!profile->is_strict || (flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
        return CUDA_SUCCESS;
    int needed = reads_only ? PROT_READ : PROT_READ | PROT_WRITE;
    return (rights_of(p, p + bytes) & needed) == needed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The device can reach all of the host's memory anyway, so what remains is to refuse as a driver
 * would (may_register), and to remember the range. */
CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if (p == NULL || bytesize == 0 || (Flags & ~known) != 0 ||
        bytesize > UINTPTR_MAX - (uintptr_t)p)
        return CUDA_ERROR_INVALID_VALUE;
    r = tl_drv_capture_permit();
    if (r == CUDA_SUCCESS)
        r = may_register((uintptr_t)p, bytesize, Flags);
    if (r != CUDA_SUCCESS)
        return r;
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
    r = tl_drv_alloc_overlaps(a->base, bytesize) ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                 : tl_drv_alloc_insert(a);
    tl_drv_unlock();
    if (r != CUDA_SUCCESS)
        free(a);
    return r;
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
    struct CUctx_st *ctx;
    CUresult r = tl_drv_enter(&ctx);
    if (r == CUDA_SUCCESS)
        r = tl_drv_capture_permit();
    if (r != CUDA_SUCCESS)
        return r;
    tl_drv_context_drain(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)p);
    if (a == NULL || a->kind != TL_DRV_REGISTERED)
        r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    else if (a->base != (uintptr_t)p)
        r = CUDA_ERROR_INVALID_VALUE; /* somewhere inside */
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

/* Host memory that the device may use: allocated here, or the program's own and registered. */
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/stream.h"

#include <stdlib.h>

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
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
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

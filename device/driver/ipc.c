/* Device memory that processes share by handles. */
#include "device/driver/context.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/state.h"
#include "device/driver/stream.h"
#include "tally/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a CUipcMemHandle holds.  The other side opens the memory through /proc, so the kernel
 * decides who may. */
struct ipc_handle {
    char magic[8];
    int32_t pid, fd;
    uint64_t bytes, mapped;
};
_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "has to fit");

int tl_drv_alloc_share(struct tl_drv_alloc *a, bool is_new)
{
    int fd = tl_memfd_create("tally-ipc", a->mapped);
    if (fd < 0)
        return fd;
    if (!is_new) {
        void *other = mmap(NULL, a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (other == MAP_FAILED)
            goto fail;
        memcpy(other, tl_drv_pointer(a->base), a->mapped);
        munmap(other, a->mapped);
    }
    if (mmap(tl_drv_pointer(a->base), a->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             0) == MAP_FAILED)
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
    tl_drv_context_drain(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    if (a == NULL || a->kind != TL_DRV_DEVICE_MEMORY || a->is_imported || a->pool != NULL ||
        a->graph != NULL || a->is_internal) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (a->fd < 0 && tl_drv_alloc_share(a, false) != 0) {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        struct ipc_handle h = {"tallyipc", getpid(), a->fd, a->bytes, a->mapped};
        memset(pHandle, 0, sizeof *pHandle);
        memcpy(pHandle, &h, sizeof h);
    }
    tl_drv_unlock();
    return r;
}

/* Maps what a handle of another process leads to. */
static CUresult open_shared(const struct ipc_handle *h, struct CUctx_st *ctx,
                            struct CUmemPoolHandle_st *pool, CUdeviceptr *out)
{
    char path[64];
    uint64_t mapped = 0;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    struct tl_drv_alloc *a = calloc(1, sizeof *a);
    void *p = MAP_FAILED;
    /* what its owner could make shorter would kill us at the next touch */
    if (a != NULL && tl_memfd_check(fd, &mapped) == 0 && mapped == h->mapped &&
        h->bytes <= h->mapped)
        p = mmap(NULL, h->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) {
        free(a);
        return CUDA_ERROR_MAP_FAILED;
    }
    *a = (struct tl_drv_alloc){.base = (uintptr_t)p,
                               .bytes = h->bytes,
                               .mapped = h->mapped,
                               .is_imported = true,
                               .kind = TL_DRV_DEVICE_MEMORY,
                               .ctx = ctx,
                               .device = ctx->device,
                               .pool = pool,
                               .fd = -1};
    tl_drv_lock();
    CUresult r = tl_drv_alloc_insert(a);
    if (r == CUDA_SUCCESS && pool != NULL) {
        pool->used += a->mapped;
        pool->reserved += a->mapped;
    }
    tl_drv_unlock();
    if (r != CUDA_SUCCESS) {
        munmap(p, h->mapped);
        free(a);
        return r;
    }
    *out = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    struct CUctx_st *ctx;
    struct ipc_handle h;
    CUresult r = tl_drv_enter(&ctx);
    (void)Flags;
    if (r != CUDA_SUCCESS)
        return r;
    memcpy(&h, &handle, sizeof h);
    if (pdptr == NULL || memcmp(h.magic, "tallyipc", 8) != 0 || h.pid == getpid())
        return CUDA_ERROR_INVALID_VALUE;
    return open_shared(&h, ctx, NULL, pdptr);
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
    tl_drv_context_drain(ctx);
    tl_drv_lock();
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)dptr);
    if (a == NULL || a->base != dptr || !a->is_imported || a->pool != NULL)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        tl_drv_alloc_destroy(a);
    tl_drv_unlock();
    return r;
}

/* --- pools ------------------------------------------------------------------------------------ */

/* What the file that stands for a pool holds. */
struct pool_handle {
    char magic[8];
    int64_t pid;
    uint64_t id;
    int32_t device;
};

/* What a CUmemPoolPtrExportData holds. */
struct pointer_handle {
    struct ipc_handle memory; /* magic: "tallyptr" */
    uint64_t pool;
};
_Static_assert(sizeof(struct pointer_handle) <= sizeof(CUmemPoolPtrExportData), "has to fit");

static bool is_pool(CUmemoryPool pool)
{
    return pool != NULL && pool->magic == TL_DRV_POOL && !pool->is_destroyed;
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (handle_out == NULL || !is_pool(pool) || !pool->is_shareable ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct pool_handle h = {"tallypol", getpid(), pool->id, pool->device->number};
    int fd = tl_memfd_may_have(sizeof h) ? memfd_create("tally-pool", MFD_CLOEXEC) : -1;
    if (fd < 0 || pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *(int *)handle_out = fd;
    return CUDA_SUCCESS;
}

/* A pool that gives nothing out: it stands for the other process's, so that pointers of that can be
 * opened. */
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handleType,
                                            unsigned long long flags)
{
    struct pool_handle h;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (pool_out == NULL || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 ||
        pread((int)(intptr_t)handle, &h, sizeof h, 0) != (ssize_t)sizeof h ||
        memcmp(h.magic, "tallypol", 8) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct tl_drv_device *d = NULL;
    for (int i = 0; i < tl_drv.n_devices && d == NULL; i++)
        d = tl_drv.devices[i].number == h.device ? &tl_drv.devices[i] : NULL;
    if (d == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    tl_drv_lock();
    struct CUmemPoolHandle_st *pool = tl_drv_pool_create(d);
    if (pool != NULL) {
        pool->is_imported = true;
        pool->id = h.id;
        *pool_out = pool;
    }
    tl_drv_unlock();
    return pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What was allocated there in a pool that others may open; NULL if nothing was. */
static struct tl_drv_alloc *find_shareable(CUdeviceptr ptr) TL_DRV_LOCKED
{
    struct tl_drv_alloc *a = tl_drv_alloc_find((uintptr_t)ptr);
    return a != NULL && a->base == ptr && a->pool != NULL && a->pool->is_shareable ? a : NULL;
}

/* Needs no current context, and waits for nothing: Python's queues call it in a thread of their
 * own, while kernels run that wait for what the other process does.  Only what found no descriptor
 * when it was allocated is moved now. */
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (shareData_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    tl_drv_lock();
    struct tl_drv_alloc *a = find_shareable(ptr);
    struct CUctx_st *ctx = a != NULL && a->fd < 0 ? a->ctx : NULL;
    tl_drv_unlock();
    if (ctx != NULL)
        tl_drv_context_drain(ctx);
    tl_drv_lock();
    a = find_shareable(ptr);
    if (a == NULL) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else if (a->fd < 0 && tl_drv_alloc_share(a, false) != 0) {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        struct pointer_handle h = {{"tallyptr", getpid(), a->fd, a->bytes, a->mapped}, a->pool->id};
        memset(shareData_out, 0, sizeof *shareData_out);
        memcpy(shareData_out, &h, sizeof h);
    }
    tl_drv_unlock();
    return r;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData *shareData)
{
    struct CUctx_st *ctx;
    struct pointer_handle h;
    CUresult r = tl_drv_check_init();
    if (r != CUDA_SUCCESS)
        return r;
    if (ptr_out == NULL || shareData == NULL || !is_pool(pool) || !pool->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    r = tl_drv_enter(&ctx);
    if (r == CUDA_ERROR_INVALID_CONTEXT) { /* the pool knows which device it is */
        tl_drv_lock();
        ctx = tl_drv_primary(pool->device);
        tl_drv_unlock();
        r = ctx != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r != CUDA_SUCCESS)
        return r;
    memcpy(&h, shareData, sizeof h);
    if (memcmp(h.memory.magic, "tallyptr", 8) != 0 || h.pool != pool->id)
        return CUDA_ERROR_INVALID_VALUE;
    return open_shared(&h.memory, ctx, pool, ptr_out);
}

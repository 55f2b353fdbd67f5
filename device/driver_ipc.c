/* Device memory that processes share by handles. */
#include "device/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

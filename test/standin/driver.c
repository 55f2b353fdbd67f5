/* A driver that does nothing at once: every piece of work is done when the call returns.  It is
 * what the cost of the interception library is measured against, and what its tests of lookups use,
 * because what it answers is known exactly.
 *
 * Handles are small numbers.  `standin_calls` counts launches; `standin_busy`, if set, makes
 * streams and events answer that they are not ready. */
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
extern _Atomic unsigned long standin_calls;
extern _Atomic int standin_busy;
#pragma GCC visibility pop

#include <elf.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Atomic unsigned long standin_calls;
_Atomic int standin_busy;

static _Atomic uintptr_t next_handle = 0x1000;
static _Thread_local CUcontext current;

static void *new_handle(void)
{
    return (void *)atomic_fetch_add(&next_handle, 0x100); /* NOLINT(performance-no-int-to-ptr) */
}

static CUresult state(void)
{
    return atomic_load_explicit(&standin_busy, memory_order_relaxed) ? CUDA_ERROR_NOT_READY
                                                                     : CUDA_SUCCESS;
}

/* --- the device and its contexts --- */

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
    *dev = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    (void)dev;
    *ctx = (CUcontext)0x100; /* NOLINT(performance-no-int-to-ptr) */
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
    (void)dev;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    (void)dev;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    current = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
    *ctx = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return CUDA_SUCCESS;
}

/* --- streams and events --- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = new_handle();
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
    (void)stream;
    *ctx = (CUcontext)0x100; /* NOLINT(performance-no-int-to-ptr) */
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    (void)stream;
    return state();
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = new_handle();
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    (void)event;
    return state();
}

CUresult cuEventSynchronize(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
    (void)from, (void)to;
    *ms = 0.001f;
    return CUDA_SUCCESS;
}

/* --- kernels --- */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    if (getenv("STANDIN_TEXT_ONLY") != NULL && memcmp(image, ELFMAG, SELFMAG) == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU; /* as the software device */
    *module = new_handle();
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module, (void)name;
    *function = new_handle();
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params,
                        void **extra)
{
    (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream,
        (void)extra;
    (void)params;
    atomic_store_explicit(&standin_calls,
                          atomic_load_explicit(&standin_calls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    return CUDA_SUCCESS;
}

/* --- linking: what comes out is the smallest cubin there is --- */

CUresult cuLinkCreate_v2(unsigned n, CUjit_option *options, void **values, CUlinkState *state_out)
{
    (void)n, (void)options, (void)values;
    *state_out = new_handle();
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t bytes,
                          const char *name, unsigned n, CUjit_option *options, void **values)
{
    (void)link, (void)type, (void)data, (void)bytes, (void)name, (void)n, (void)options,
        (void)values;
    return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState link, void **cubin, size_t *bytes)
{
    static Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_machine = EM_CUDA,
        .e_ehsize = sizeof header};
    header.e_entry = (uintptr_t)link; /* each is another */
    *cubin = &header;
    *bytes = sizeof header;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState link)
{
    (void)link;
    return CUDA_SUCCESS;
}

/* --- two versions and a twin of one name, and an address that is not exported --- */

CUresult cuMemAlloc(CUdeviceptr_v1 *address, unsigned bytes)
{
    (void)bytes;
    *address = 1;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    (void)bytes;
    *address = 2;
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    (void)to, (void)from, (void)n, (void)stream;
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    (void)to, (void)from, (void)n, (void)stream;
    return CUDA_SUCCESS;
}

static CUresult hidden_function(void)
{
    return CUDA_ERROR_ALREADY_MAPPED; /* to be recognised by */
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    static const struct {
        const char *name;
        int version, is_per_thread;
        void *function;
    } rows[] = {
        {"cuInit", 2000, 0, (void *)cuInit},
        {"cuMemAlloc", 2000, 0, (void *)cuMemAlloc},
        {"cuMemAlloc", 3020, 0, (void *)cuMemAlloc_v2},
        {"cuMemcpyDtoHAsync", 3020, 0, (void *)cuMemcpyDtoHAsync_v2},
        {"cuMemcpyDtoHAsync", 7000, 1, (void *)cuMemcpyDtoHAsync_v2_ptsz},
        {"cuLaunchKernel", 4000, 0, (void *)cuLaunchKernel},
        {"cuFromTheFuture", 14000, 0, (void *)hidden_function},
    };
    *pfn = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, symbol) == 0 && rows[i].version <= version &&
            (!rows[i].is_per_thread || (flags & 2) != 0))
            *pfn = rows[i].function;
    if (status != NULL)
        *status = *pfn != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *pfn != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
}

/* Newer than the headers that the interception library was built with. */
CUresult cuNewerThanThat(void);
__attribute__((visibility("default"))) CUresult cuNewerThanThat(void)
{
    return CUDA_ERROR_ALREADY_MAPPED;
}

/* CUDA's types and functions as all files of the driver see them, and what tells a handle of one
 * kind from another. */
#ifndef TALLY_DEVICE_DRIVER_HANDLE_H
#define TALLY_DEVICE_DRIVER_HANDLE_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1 /* every version of a function under its own name */
#endif
#pragma GCC visibility push(default)
#include <cuda.h>
CUresult cuProfilerStart(void); /* of cudaProfiler.h, which not every package of the headers has */
CUresult cuProfilerStop(void);
CUresult cuProfilerInitialize(const char *configFile, const char *outputFile, int outputMode);
#pragma GCC visibility pop
#include <stdint.h>

/* First word of every handle: tells a handle of another kind from the right one. */
enum tl_drv_magic {
    TL_DRV_CONTEXT = 0x43747801,
    TL_DRV_STREAM,
    TL_DRV_EVENT,
    TL_DRV_MODULE,
    TL_DRV_FUNCTION,
    TL_DRV_LIBRARY,
    TL_DRV_KERNEL,
    TL_DRV_ARRAY,
    TL_DRV_TEXREF,
    TL_DRV_MIPMAP,
    TL_DRV_POOL,
    TL_DRV_GRAPH,
    TL_DRV_NODE,
    TL_DRV_GRAPH_EXEC,
    TL_DRV_LINK,
    TL_DRV_GREEN,
    TL_DRV_RESOURCE,
    TL_DRV_DEAD,
};

/* Device addresses are addresses of this process. */
static inline void *tl_drv_pointer(uintptr_t address)
{
    return (void *)address; /* NOLINT(performance-no-int-to-ptr) */
}

#endif

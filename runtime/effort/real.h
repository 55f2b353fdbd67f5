/* The real driver, as the shim hands it out by name. */
#ifndef TALLY_EFFORT_REAL_H
#define TALLY_EFFORT_REAL_H

#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "tally/base.h"
#include "tally/effort.h"
#include "tally/needs.h"

/* Functions that are called with their own types, beside those of TL_DRIVER_NEEDS: older drivers
 * may lack them. */
#define TL_EFF_REAL_NEWER(X)                                                                       \
    X(cuLinkCreate_v2)                                                                             \
    X(cuLinkAddData_v2)                                                                            \
    X(cuLinkComplete)                                                                              \
    X(cuLinkDestroy)                                                                               \
    X(cuFuncLoad)                                                                                  \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuEventRecordWithFlags)                                                                      \
    X(cuKernelGetFunction)                                                                         \
    X(cuKernelGetParamInfo)                                                                        \
    X(cuFuncGetParamInfo)                                                                          \
    X(cuLibraryGetGlobal)                                                                          \
    X(cuLibraryGetKernel)                                                                          \
    X(cuFuncSetCacheConfig)                                                                        \
    X(cuKernelSetAttribute)                                                                        \
    X(cuStreamGetAttribute)                                                                        \
    X(cuStreamCopyAttributes)                                                                      \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphNodeGetType)                                                                          \
    X(cuGraphNodeGetDependencies)                                                                  \
    X(cuGraphKernelNodeGetParams_v2)                                                               \
    X(cuGraphKernelNodeGetAttribute)                                                               \
    X(cuGraphMemcpyNodeGetParams)                                                                  \
    X(cuGraphMemsetNodeGetParams)                                                                  \
    X(cuGraphHostNodeGetParams)                                                                    \
    X(cuGraphChildGraphNodeGetGraph)                                                               \
    X(cuGraphEventRecordNodeGetEvent)                                                              \
    X(cuGraphEventWaitNodeGetEvent)                                                                \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuDeviceGetDevResource)                                                                      \
    X(cuDevSmResourceSplitByCount)                                                                 \
    X(cuDevResourceGenerateDesc)                                                                   \
    X(cuGreenCtxCreate)                                                                            \
    X(cuGreenCtxStreamCreate)                                                                      \
    X(cuGreenCtxDestroy)                                                                           \
    X(cuGraphCreate)                                                                               \
    X(cuGraphDestroy)                                                                              \
    X(cuGraphAddKernelNode_v2)                                                                     \
    X(cuGraphAddMemcpyNode)                                                                        \
    X(cuGraphAddMemsetNode)                                                                        \
    X(cuGraphAddEmptyNode)                                                                         \
    X(cuGraphKernelNodeSetAttribute)                                                               \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphLaunch)                                                                               \
    X(cuGraphExecDestroy)                                                                          \
    X(cuMemcpy3DAsync_v2)                                                                          \
    X(cuMemsetD2D8Async)                                                                           \
    X(cuMemsetD2D16Async)                                                                          \
    X(cuMemsetD2D32Async)

/* Constant from the start on; no lock. */
struct tl_eff_real {
#define TL_EFF_REAL_FIELD(name) __typeof__(name) *name;
    TL_DRIVER_NEEDS(TL_EFF_REAL_FIELD)
    TL_EFF_REAL_NEWER(TL_EFF_REAL_FIELD)
#undef TL_EFF_REAL_FIELD
};

/* A call that is made later.  Every argument of the functions that are kept so is an integer, a
 * pointer or a structure of eight bytes, each of which travels in one register or stack place of 64
 * bits on the machines that CUDA has. */
enum { TL_EFF_MAX_ARGS = 9 };
struct tl_eff_call {
    void *function;
    uint32_t n;
    uintptr_t args[TL_EFF_MAX_ARGS];
};
CUresult tl_eff_invoke(const struct tl_eff_call *c) TL_EFF_UNLOCKED;
/* 0, or -ENOENT naming what the driver lacks. */
int tl_eff_real_find(const struct tl_shim *shim, struct tl_error *err);

extern struct tl_eff_real tl_eff_real;

#endif

/* The driver that is examined: every function that Tally uses, by name, with what is lost where the
 * driver has none. */
#ifndef TALLY_RUNTIME_DOCTOR_DRIVER_H
#define TALLY_RUNTIME_DOCTOR_DRIVER_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#include <cuda.h>

#include "tally/base.h"
#include "tally/needs.h"

/* Without these there is no best-effort control at all, or nothing to examine it with. */
#define TL_DOC_NEEDED(X)                                                                           \
    TL_DRIVER_NEEDS(X)                                                                             \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceTotalMem_v2)                                                                         \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuMemFree_v2)                                                                                \
    X(cuMemFreeHost)                                                                               \
    X(cuMemcpyHtoD_v2)                                                                             \
    X(cuMemcpyDtoH_v2)                                                                             \
    X(cuMemcpyDtoDAsync_v2)                                                                        \
    X(cuMemsetD8_v2)

/* Without these less is possible; the second column says what. */
#define TL_DOC_WANTED(X)                                                                           \
    X(cuDeviceGetUuid, "GPUs cannot be told apart")                                                \
    X(cuDeviceGetUuid_v2, "parts of a GPU (MIG) cannot be told apart")                             \
    X(cuFuncGetParamInfo, "parameters of kernels are not told by the driver")                      \
    X(cuKernelGetParamInfo, "parameters of kernels in libraries are not told by the driver")       \
    X(cuKernelGetFunction, "kernels of libraries are not known as functions")                      \
    X(cuLibraryGetGlobal, "kernels of libraries that use module variables run whole")              \
    X(cuLibraryLoadData, "programs of CUDA 12 and later load their code otherwise")                \
    X(cuLibraryEnumerateKernels, "kernels that are asked for without names are not found")         \
    X(cuLaunchKernelEx, "launches with attributes cannot be repeated")                             \
    X(cuLaunchCooperativeKernel, "cooperative launches fail, with and without Tally")              \
    X(cuThreadExchangeStreamCaptureMode, "building variants may spoil a capture")                  \
    X(cuEventRecordWithFlags, "events of graphs are not kept in order")                            \
    X(cuStreamBeginCapture_v2, "there are no captures")                                            \
    X(cuStreamEndCapture, "there are no captures")                                                 \
    X(cuGraphInstantiateWithFlags, "there are no graphs")                                          \
    X(cuGraphLaunch, "there are no graphs")                                                        \
    X(cuGraphExecDestroy, "there are no graphs")                                                   \
    X(cuGraphDestroy, "there are no graphs")                                                       \
    X(cuGraphKernelNodeGetParams_v2, "graphs are launched whole")                                  \
    X(cuGraphGetNodes, "graphs are launched whole")                                                \
    X(cuDeviceGetDevResource, "kernels that cannot be stopped run on all SMs")                     \
    X(cuDevSmResourceSplitByCount, "kernels that cannot be stopped run on all SMs")                \
    X(cuDevResourceGenerateDesc, "kernels that cannot be stopped run on all SMs")                  \
    X(cuGreenCtxCreate, "kernels that cannot be stopped run on all SMs")                           \
    X(cuGreenCtxStreamCreate, "kernels that cannot be stopped run on all SMs")                     \
    X(cuGreenCtxDestroy, "kernels that cannot be stopped run on all SMs")                          \
    X(cuStreamWaitValue32_v2, "streams cannot wait for words in memory")                           \
    X(cuStreamWriteValue32_v2, "streams cannot write words into memory")                           \
    X(cuCtxGetStreamPriorityRange, "streams have no priorities")                                   \
    X(cuStreamCreateWithPriority, "streams have no priorities")                                    \
    X(cuMemAllocAsync, "there are no allocations in stream order")                                 \
    X(cuLinkCreate_v2, "without ptxas, machine code gets no gate")                                 \
    X(cuLinkAddData_v2, "without ptxas, machine code gets no gate")                                \
    X(cuLinkComplete, "without ptxas, machine code gets no gate")                                  \
    X(cuLinkDestroy, "without ptxas, machine code gets no gate")                                   \
    X(cuGetErrorName, "errors are told as numbers")

struct tl_doc_driver {
#define TL_DOC_FIELD(name, ...) __typeof__(name) *name;
    TL_DOC_NEEDED(TL_DOC_FIELD)
    TL_DOC_WANTED(TL_DOC_FIELD)
#undef TL_DOC_FIELD
};

/* Of the process that examines; filled by tl_doc_driver_load. */
extern struct tl_doc_driver tl_doc_driver;

/* Opens the library and looks all functions up.  0, -ENOENT (it cannot be opened, or lacks what is
 * needed); with a message. */
int tl_doc_driver_load(const char *path, struct tl_error *err);

/* Functions that were not found, with what is lost; `i` from 0, false behind the last. */
bool tl_doc_driver_missing(uint32_t i, const char **name, const char **lost);

/* "CUDA_ERROR_NOT_SUPPORTED (801)"; valid until the next call. */
const char *tl_doc_error(CUresult r);

#endif

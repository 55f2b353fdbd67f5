/* What the best-effort part cannot do without: it refuses a driver that lacks one of these, and
 * `tally doctor` says so beforehand. */
#ifndef TALLY_NEEDS_H
#define TALLY_NEEDS_H

#define TL_DRIVER_NEEDS(X)                                                                         \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxSynchronize)                                                                            \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDriverGetVersion)                                                                          \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy_v2)                                                                          \
    X(cuStreamGetFlags)                                                                            \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamQuery)                                                                               \
    X(cuStreamWaitEvent)                                                                           \
    X(cuStreamIsCapturing)                                                                         \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy_v2)                                                                           \
    X(cuEventRecord)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchHostFunc)                                                                            \
    X(cuFuncGetAttribute)                                                                          \
    X(cuFuncSetAttribute)                                                                          \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuModuleGetGlobal_v2)                                                                        \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemHostRegister_v2)                                                                        \
    X(cuMemHostUnregister)                                                                         \
    X(cuMemHostGetDevicePointer_v2)                                                                \
    X(cuMemcpyHtoDAsync_v2)                                                                        \
    X(cuMemcpyDtoHAsync_v2)                                                                        \
    X(cuPointerGetAttribute)                                                                       \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor)

#endif

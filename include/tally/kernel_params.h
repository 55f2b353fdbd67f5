/* The parameters of a graph's kernel node, in the older of the two forms that the driver API has.
 *
 * For those who include CUDA's header: the software device, which is given them, and the
 * best-effort part, which reads them on their way. */
#ifndef TALLY_KERNEL_PARAMS_H
#define TALLY_KERNEL_PARAMS_H

#include <cuda.h>

/* The same in the newer form; what only that one has is zero. */
static inline CUDA_KERNEL_NODE_PARAMS_v2 tl_kernel_params_of_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    return (CUDA_KERNEL_NODE_PARAMS_v2){.func = p->func,
                                        .gridDimX = p->gridDimX,
                                        .gridDimY = p->gridDimY,
                                        .gridDimZ = p->gridDimZ,
                                        .blockDimX = p->blockDimX,
                                        .blockDimY = p->blockDimY,
                                        .blockDimZ = p->blockDimZ,
                                        .sharedMemBytes = p->sharedMemBytes,
                                        .kernelParams = p->kernelParams,
                                        .extra = p->extra};
}

#endif

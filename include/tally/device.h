/* What the software CUDA device says beyond the driver API.  On another driver these questions are
 * answered with CUDA_ERROR_INVALID_VALUE, so whoever asks need not know which driver is
 * underneath. */
#ifndef TALLY_DEVICE_H
#define TALLY_DEVICE_H

/* For cuFuncGetAttribute and cuKernelGetAttribute: 1 if the function is opaque
 * (TALLY_DEVICE_OPAQUE=time), that is, if it occupies SMs for a modelled time and computes nothing;
 * 0 if it computes what its PTX says. */
#define TL_DEVICE_ATTRIBUTE_OPAQUE 0x54414c59

/* For cuDeviceGetAttribute: what kernels of this process did to the host's memory so far, modulo
 * 2^31, where that is counted (TALLY_DEVICE_PCIE): loads that others may race with, such stores and
 * reductions, atomics that return something, and how often something waited for what was read. */
#define TL_DEVICE_ATTRIBUTE_HOST_READS 0x54414c5a
#define TL_DEVICE_ATTRIBUTE_HOST_WRITES 0x54414c5b
#define TL_DEVICE_ATTRIBUTE_HOST_ATOMICS 0x54414c5c
#define TL_DEVICE_ATTRIBUTE_HOST_WAITS 0x54414c5d

/* For cuDeviceGetAttribute: 1 if an SM runs one block at a time, however many it has room for,
 * unless they wait for each other.  That is how this device computes, whatever it answers as. */
#define TL_DEVICE_ATTRIBUTE_BLOCK_BY_BLOCK 0x54414c5e

/* For cuDeviceGetAttribute: how much processor time kernels of this process have had so far, in
 * microseconds modulo 2^31.  A kernel that does not move while this does not grow has not been let
 * run by the machine. */
#define TL_DEVICE_ATTRIBUTE_WORKED_US 0x54414c5f

/* What TALLY_DEVICE_PROFILE may name: the device as it is, and GPUs with drivers as strict as
 * NVIDIA's (docs/device.md). */
#define TL_DEVICE_PROFILES(X)                                                                      \
    X("soft")                                                                                      \
    X("a100-r535")                                                                                 \
    X("rtx4090-r550")                                                                              \
    X("h100-r550")                                                                                 \
    X("h100-r580")                                                                                 \
    X("b200-r580")

#endif

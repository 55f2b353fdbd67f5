/* What the software CUDA device says beyond the driver API.  On another driver these questions are
 * answered with CUDA_ERROR_INVALID_VALUE, so whoever asks need not know which driver is
 * underneath. */
#ifndef TALLY_DEVICE_H
#define TALLY_DEVICE_H

/* For cuFuncGetAttribute and cuKernelGetAttribute: 1 if the function is opaque
 * (TALLY_DEVICE_OPAQUE=time), that is, if it occupies SMs for a modelled time and computes nothing;
 * 0 if it computes what its PTX says. */
#define TL_DEVICE_ATTRIBUTE_OPAQUE 0x54414c59

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

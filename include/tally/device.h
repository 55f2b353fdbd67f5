/* What the software CUDA device says beyond the driver API.  On another driver these questions are
 * answered with CUDA_ERROR_INVALID_VALUE, so whoever asks need not know which driver is
 * underneath. */
#ifndef TALLY_DEVICE_H
#define TALLY_DEVICE_H

/* For cuFuncGetAttribute and cuKernelGetAttribute: 1 if the function is opaque
 * (TALLY_DEVICE_OPAQUE=time), that is, if it occupies SMs for a modelled time and computes nothing;
 * 0 if it computes what its PTX says. */
#define TL_DEVICE_ATTRIBUTE_OPAQUE 0x54414c59

#endif

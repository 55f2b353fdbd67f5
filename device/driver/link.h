/* Linking of PTX (device/driver/link.c, device/driver/link_join.c).  A state is its creator's:
 * calls on one do not overlap. */
#ifndef TALLY_DEVICE_DRIVER_LINK_H
#define TALLY_DEVICE_DRIVER_LINK_H

#include "device/driver/handle.h"
#include "device/driver/module.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TL_DRV_LINK_INPUTS = 256 };

struct tl_drv_link_input {
    struct tl_drv_image *image;
    bool is_wanted; /* else it is a library's, and nobody has asked for it so far */
};

struct CUlinkState_st {
    uint32_t magic;
    struct tl_drv_link_input inputs[TL_DRV_LINK_INPUTS];
    size_t n;
    uint32_t max_registers; /* CU_JIT_MAX_REGISTERS; 0 if not said */
    char *text;             /* the result, kept until the state is destroyed */
};

/* Writes one module of all that is wanted, and wants of libraries what is declared and not defined.
 * CUDA_ERROR_INVALID_PTX if two texts define the same name for others to use. */
CUresult tl_drv_link_join(struct CUlinkState_st *s, struct tl_buf *out);

/* Adds the driver's own part of the device runtime (device/driver/link_runtime.c). */
CUresult tl_drv_link_add_runtime(struct CUlinkState_st *s);

#endif

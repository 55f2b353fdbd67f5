/* Linking of PTX (device/driver/link.c, device/driver/link_join.c).  A state is its creator's:
 * calls on one do not overlap. */
#ifndef TALLY_DEVICE_DRIVER_LINK_H
#define TALLY_DEVICE_DRIVER_LINK_H

#include "device/driver/handle.h"
#include "device/driver/module.h"
#include "tally/join.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TL_DRV_LINK_INPUTS = 256 };

struct tl_drv_link_input {
    struct tl_drv_image *image;
    bool is_library; /* comes in only if somebody wants something of it */
};

struct CUlinkState_st {
    uint32_t magic;
    struct tl_drv_link_input inputs[TL_DRV_LINK_INPUTS];
    size_t n;
    uint32_t max_registers; /* CU_JIT_MAX_REGISTERS; 0 if not said */
    char *text;             /* the result, kept until the state is destroyed */
};

/* tl_ptx_join.  CUDA_ERROR_INVALID_PTX, with a line that says why, if the parts do not fit
 * together. */
CUresult tl_drv_join(struct tl_ptx_part *parts, uint32_t n, uint32_t max_registers, char **text,
                     size_t *n_text);
/* The same of all inputs of a state. */
CUresult tl_drv_link_join(const struct CUlinkState_st *s, char **text, size_t *n);

/* The driver's own parts of the device runtime, libraries: to synchronise a grid, and to launch
 * kernels from kernels (link_runtime.c and link_nest.c of device/driver). */
extern const char tl_drv_link_runtime[], tl_drv_link_nest[];

#endif

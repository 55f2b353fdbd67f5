/* Images without PTX as kernels that only last a while; see device/driver/opaque.c. */
#ifndef TALLY_DEVICE_DRIVER_OPAQUE_H
#define TALLY_DEVICE_DRIVER_OPAQUE_H

#include "device/driver/module.h"

struct tl_drv_opaque;
struct tl_exec_object;

/* Whether TALLY_DEVICE_OPAQUE asks for it, and how long a block shall take (0: by the model). */
bool tl_drv_opaque_is_on(double *block_us);
/* An image with empty kernels in place of a cubin's. */
CUresult tl_drv_opaque_load(const void *bytes, size_t n, uint32_t arch,
                            struct tl_drv_image **out) TL_DRV_UNLOCKED;
/* NULL is fine */
void tl_drv_opaque_destroy(struct tl_drv_opaque *o);
/* 0 if the cubin does not say */
uint32_t tl_drv_opaque_registers(const struct tl_drv_opaque *o, const char *name);
/* What runs in place of such a function; the caller holds its code_lock and frees the variables.
 * 0, -ENOMEM. */
int tl_drv_opaque_code(struct CUfunc_st *function, const uint32_t block[3],
                       struct tl_exec_object **object, uint64_t **variables,
                       struct tl_error *err) TL_DRV_UNLOCKED;

#endif

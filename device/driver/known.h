/* Machine code whose PTX is known, so that it can be run (device/driver/known.c), alone or with a
 * gate in front (device/driver/gated.c; docs/gate.md). */
#ifndef TALLY_DEVICE_DRIVER_KNOWN_H
#define TALLY_DEVICE_DRIVER_KNOWN_H

#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "tally/origin.h"

/* A cubin, and the PTX that it was made of.  Immutable, and never forgotten. */
struct tl_drv_known {
    struct tl_drv_known *next;
    struct tl_drv_image *image;
    struct tl_origin *cubin;
};

/* `cubin`, which is taken, was made of `image`.  NULL if there is no room for more. */
const struct tl_drv_known *tl_drv_known_add(struct tl_origin *cubin,
                                            struct tl_drv_image *image) TL_DRV_UNLOCKED;
/* All that the process has shown, newest first. */
const struct tl_drv_known *tl_drv_known_first(void);
/* Looks on disk for what a compiler has kept of a cubin with a kernel of that name, whose code is
 * the end of this; NULL if there is nothing. */
const struct tl_drv_known *tl_drv_known_recall(struct tl_str name, const uint8_t *code,
                                               uint64_t n) TL_DRV_UNLOCKED;

/* An image of machine code whose kernels are all known by their code, some of them perhaps with a
 * gate in front, or beside a twin that has one.  CUDA_ERROR_NOT_FOUND if it is not known at all,
 * or has no gates and `has_ptx`, so that there is a shorter way; CUDA_ERROR_INVALID_IMAGE if it is
 * known, but was changed in another way. */
CUresult tl_drv_gated_load(const void *cubin, size_t n, uint32_t arch, bool has_ptx,
                           struct tl_drv_image **out) TL_DRV_UNLOCKED;

/* A container has a cubin and, as `*image`, the PTX that it was made of: from now on the code is
 * known.  If it is gated, or has twins, `*image` becomes that of the gated cubin.
 * CUDA_ERROR_INVALID_IMAGE if that cannot be, and then `*image` is gone. */
CUresult tl_drv_gated_learn(const void *cubin, size_t n, uint32_t arch,
                            struct tl_drv_image **image) TL_DRV_UNLOCKED;

#endif

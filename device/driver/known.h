/* Machine code whose PTX is known, so that it can be run (device/driver/known.c), alone or with a
 * gate in front (device/driver/gated.c; docs/gate.md). */
#ifndef TALLY_DEVICE_DRIVER_KNOWN_H
#define TALLY_DEVICE_DRIVER_KNOWN_H

#include "device/driver/elf.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "tally/digest.h"

/* A kernel of it, by its code. */
struct tl_drv_known_kernel {
    char *name;
    uint64_t code_bytes;
    uint8_t code[TL_DIGEST_BYTES];
    uint32_t registers;
};

/* A cubin, and the PTX that it was made of.  Immutable, and never forgotten. */
struct tl_drv_known {
    struct tl_drv_known *next;
    uint32_t arch;
    struct tl_drv_image *image;
    struct tl_drv_known_kernel *kernels;
    uint32_t n;
};

/* The code of `image`'s kernels: a container had both.  What cannot be read is not learnt. */
void tl_drv_known_learn(const void *cubin, size_t n, uint32_t arch,
                        struct tl_drv_image *image) TL_DRV_UNLOCKED;
/* All of them, newest first. */
const struct tl_drv_known *tl_drv_known_first(void);
/* NULL if it has none of that name. */
const struct tl_drv_known_kernel *tl_drv_known_kernel(const struct tl_drv_known *k,
                                                      struct tl_str name);

/* An image of machine code whose kernels are all known by their code, some of them perhaps with a
 * gate in front, or beside a twin that has one.  CUDA_ERROR_NOT_FOUND if it is not known at all,
 * or has no gates and `has_ptx`, so that there is a shorter way; CUDA_ERROR_INVALID_IMAGE if it is
 * known, but was changed in another way. */
CUresult tl_drv_gated_load(const void *cubin, size_t n, uint32_t arch, bool has_ptx,
                           struct tl_drv_image **out) TL_DRV_UNLOCKED;

#endif

/* Kernels that kernels launch (device/driver/nest.c). */
#ifndef TALLY_DEVICE_DRIVER_NEST_H
#define TALLY_DEVICE_DRIVER_NEST_H

#include "device/driver/lock.h"
#include "device/driver/op.h"

#include <stdbool.h>
#include <stdint.h>

/* Errors of cudart, which kernels know. */
enum {
    NEST_OK = 0,
    NEST_INVALID_VALUE = 1,
    NEST_OUT_OF_MEMORY = 2,
    NEST_INVALID_CONFIGURATION = 9,
    NEST_TOO_DEEP = 65,
    NEST_TOO_MANY = 69,
    NEST_INVALID_FUNCTION = 98,
    NEST_INVALID_HANDLE = 400,
};

/* What a kernel that is under way has launched. */
struct tl_drv_nest;

/* A question of device/nest.h by thread `thread` of block `block` of the kernel that `op` is;
 * `*nest` is NULL at first.  Called by a worker inside the kernel. */
uint64_t tl_drv_nest_ask(struct tl_drv_op *op, struct tl_drv_nest **nest, uint64_t block,
                         uint32_t thread, uint32_t what, const uint64_t args[7]) TL_DRV_UNLOCKED;
/* The kernel's blocks are over.  It is finished when all that it launched is: by
 * tl_drv_nest_close. */
void tl_drv_nest_over(struct tl_drv_nest *nest) TL_DRV_UNLOCKED;
/* All that was under way is done: the operation of the kernel, which is to be finished now, or NULL
 * if what it left for last has been started.  What is to be run next goes to `ready`. */
struct tl_drv_op *tl_drv_nest_close(struct tl_drv_nest *nest,
                                    struct tl_drv_op **ready) TL_DRV_UNLOCKED;
/* Counts a launch that a kernel made, and no other work, as begun (1) or done (-1). */
void tl_drv_nest_count(struct CUctx_st *ctx, const struct tl_drv_work *work,
                       int difference) TL_DRV_LOCKED;

#endif

/* Compiled kernels (device/driver/code.c). */
#ifndef TALLY_DEVICE_DRIVER_CODE_H
#define TALLY_DEVICE_DRIVER_CODE_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/work.h"

#include <stdint.h>

/* A kernel compiled for one block size, in one context.  Immutable once it is in its function's
 * list, which the function's code_lock guards. */
struct tl_drv_code {
    struct tl_drv_code *next;
    uint32_t block[3];
    struct tl_exec_object *object;
    uint64_t *variables;
};

/* The code for a launch's function and block size, compiled if need be; launch->code. */
CUresult tl_drv_code_prepare(struct tl_drv_launch *launch) TL_DRV_UNLOCKED;
/* A function was asked for by name: if its PTX says with which block size it will be launched, it
 * is compiled meanwhile. */
void tl_drv_code_expect(const struct CUfunc_st *f);
/* The whole list. */
void tl_drv_code_free(struct tl_drv_code *code);

#endif

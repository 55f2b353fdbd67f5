/* Compiled kernels (device/driver/code.c). */
#ifndef TALLY_DEVICE_DRIVER_CODE_H
#define TALLY_DEVICE_DRIVER_CODE_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/module.h"
#include "device/driver/work.h"

#include <stdint.h>

/* A kernel compiled for one block size, in one context.  Object and variables stay as they are once
 * it is in its function's list, as long as the function; the list and the rest are guarded by the
 * function's code_lock. */
struct tl_drv_code {
    struct tl_drv_code *next;
    uint32_t block[3];
    struct tl_exec_object *object;
    uint64_t *variables;
    /* of a quick version, which is replaced by a good one when it has run for long enough */
    bool is_quick, is_asked, is_replaced;
    uint64_t price_ns;        /* what to compile it well may cost */
    uint64_t look_ns;         /* not before then */
    _Atomic uint64_t used_ns; /* that launches took */
};

/* The code for a launch's function and block size, compiled if need be; launch->code. */
CUresult tl_drv_code_prepare(struct tl_drv_launch *launch) TL_DRV_UNLOCKED;
/* A launch of it has ended; any thread. */
void tl_drv_code_ran(struct tl_drv_code *code, uint64_t ns);
/* A function was asked for by name: if its PTX says with which block size it will be launched, it
 * is compiled meanwhile. */
void tl_drv_code_expect(const struct CUfunc_st *f);
/* The whole list. */
void tl_drv_code_free(struct tl_drv_code *code);

#endif

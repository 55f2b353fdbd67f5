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
    struct CUfunc_st *function;
    /* Of a quick version, see device/driver/quick.c: */
    bool is_quick;            /* constant */
    struct tl_drv_code *good; /* for later launches, or NULL; written with the lock of quick.c */
    bool is_asked;            /* guarded by that, as used_ns is */
    uint64_t used_ns;         /* that launches took */
    uint64_t price_ns;        /* of compiling it well, about; constant */
};

/* The PTX that a function is compiled from, the caller's to free.  A table of functions may lead to
 * more than the compiler gets through in its time (NCCL's: 100 MB).  Then it is without them: so
 * many bytes are left out, and a launch that does call one ends with an error. */
int tl_drv_code_text(const struct CUfunc_st *f, char **text, size_t *n, uint64_t *left_out,
                     struct tl_error *err);
/* The code for a launch's function and block size, compiled if need be; launch->code. */
CUresult tl_drv_code_prepare(struct tl_drv_launch *launch) TL_DRV_UNLOCKED;
/* A function was asked for by name: if its PTX says with which block size it will be launched, it
 * is compiled meanwhile. */
void tl_drv_code_expect(const struct CUfunc_st *f);
/* All that a function has, which ends now; none of its launches is under way. */
void tl_drv_code_finish(struct CUfunc_st *f) TL_DRV_UNLOCKED;

#endif

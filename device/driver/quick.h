/* Quick versions of kernels, and how good ones take their place (device/driver/quick.c). */
#ifndef TALLY_DEVICE_DRIVER_QUICK_H
#define TALLY_DEVICE_DRIVER_QUICK_H

#include "device/driver/code.h"
#include "device/driver/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tl_exec_device;
struct tl_exec_launch;

/* A launch of a quick version that is with the device; in its owner's memory from begin to end. */
struct tl_drv_quick_run {
    struct tl_drv_quick_run *next, **at; /* at: who points here; NULL: nobody looks after it */
    struct tl_drv_code *code;
    struct tl_exec_device *device;
    struct tl_exec_launch *launch;
};

/* Whether a kernel whose PTX has so many bytes is to be compiled quickly first, and what compiling
 * it well costs, about: UINT64_MAX if it is never to be. */
bool tl_drv_quick_is_wanted(size_t ptx_bytes);
uint64_t tl_drv_quick_price_ns(size_t ptx_bytes);

/* Before it is submitted; its launch is zeroed.  The code that it is to run: a node of a graph, and
 * what waited for its turn, may have been given the quick one before there was a good one. */
struct tl_drv_code *tl_drv_quick_begin(struct tl_drv_quick_run *r) TL_DRV_UNLOCKED;
/* When it is over, having run for `ns`; of a run that has no code, nothing. */
void tl_drv_quick_end(struct tl_drv_quick_run *r, uint64_t ns) TL_DRV_UNLOCKED;
/* The function ends: its code is not looked at any more.  None of its launches is under way. */
void tl_drv_quick_forget(const struct CUfunc_st *f) TL_DRV_UNLOCKED;

#endif

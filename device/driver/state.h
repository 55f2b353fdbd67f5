/* All that the driver has one of.  cuInit sets it; what changes afterwards says who guards it. */
#ifndef TALLY_DEVICE_DRIVER_STATE_H
#define TALLY_DEVICE_DRIVER_STATE_H

#include "device/driver/device.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A function of the API.  Immutable. */
struct tl_drv_proc {
    const char *name, *symbol;
    void *pointer; /* NULL if not implemented */
    int version;
    int is_per_thread;
};

struct tl_drv_state_all {
    atomic_bool is_initialised;
    bool is_forked_child;
    struct tl_drv_device devices[TL_DRV_MAX_DEVICES];
    int n_devices;
    int n_physical; /* with those that CUDA_VISIBLE_DEVICES hides */
    int cc_major, cc_minor;
    /* 16 if this process is a client of low priority to MPS: all its streams rank behind normal
     * ones */
    int below_normal;
    struct tl_drv_alloc **allocs TL_DRV_GUARDED; /* sorted by base */
    size_t n_allocs TL_DRV_GUARDED, cap_allocs TL_DRV_GUARDED;
    /* All that there ever were: they are never freed, so that a handle that was destroyed is
     * recognised as such. */
    struct CUctx_st *contexts TL_DRV_GUARDED;
    struct CUmemPoolHandle_st *pools TL_DRV_GUARDED;
    uint64_t next_id TL_DRV_GUARDED;
};

extern struct tl_drv_state_all tl_drv;
extern const struct tl_drv_proc tl_drv_procs[]; /* generated */
extern const size_t tl_drv_n_procs;

CUresult tl_drv_check_init(void) TL_DRV_UNLOCKED;

#endif

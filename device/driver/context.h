/* Contexts, green ones included (device/driver/context.c, device/driver/green.c). */
#ifndef TALLY_DEVICE_DRIVER_CONTEXT_H
#define TALLY_DEVICE_DRIVER_CONTEXT_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TL_DRV_MAX_STACK = 64 };

/* Context-local storage of cudart; guarded by the driver's lock. */
struct tl_drv_local {
    struct tl_drv_local *next;
    void *key, *value;
    void (*destroy)(CUcontext, void *, void *);
};

/* Guarded by the driver's lock, but for what never changes and what says otherwise. */
struct CUctx_st {
    uint32_t magic;
    uint32_t refs;          /* primary: retains */
    struct CUctx_st *older; /* in the list of all */
    struct tl_drv_device *device;
    /* whose memory, modules and errors it has: itself, or the primary one of a green context */
    struct CUctx_st *home;
    struct CUgreenCtx_st *green;
    /* what a new stream begins behind, a reference or NULL */
    struct tl_drv_op *gate TL_DRV_GUARDED;
    bool is_primary;
    _Atomic bool is_alive; /* read anywhere */
    unsigned flags;
    uint64_t id;
    _Atomic int sticky; /* CUresult of the first fault; read anywhere, of `home` only */
    struct CUstream_st *streams TL_DRV_GUARDED; /* all, the legacy one included */
    struct CUstream_st *legacy;
    struct CUmod_st *modules TL_DRV_GUARDED;
    struct tl_drv_local *locals TL_DRV_GUARDED;
    size_t limits[CU_LIMIT_MAX];
    uint64_t n_nested TL_DRV_GUARDED; /* launches by kernels that are not done; of `home` only */
    struct tl_drv_core *core TL_DRV_GUARDED; /* device/driver/coredump.c; NULL: nothing is set */
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    uint32_t peers; /* bit per device */
};

/* The current context, ready for use: initialised, not destroyed, no sticky error. */
CUresult tl_drv_enter(struct CUctx_st **ctx);
CUresult tl_drv_context_check(CUcontext ctx); /* the same of a given one */
CUcontext tl_drv_current(void);
/* made if need be, not retained */
struct CUctx_st *tl_drv_primary(struct tl_drv_device *device) TL_DRV_LOCKED;
void tl_drv_context_fail(struct CUctx_st *ctx, CUresult result);
CUresult tl_drv_context_error(const struct CUctx_st *ctx); /* the first fault, or CUDA_SUCCESS */
/* The context that stands for a green one. */
struct CUctx_st *tl_drv_context_create_green(struct CUctx_st *home,
                                             struct CUgreenCtx_st *green) TL_DRV_LOCKED;
bool tl_drv_per_thread_begin(void);
CUresult tl_drv_per_thread_end(bool was, CUresult result);
bool tl_drv_is_per_thread(void);

/* NULL: the whole device */
struct tl_exec_partition *tl_drv_green_partition(const struct CUctx_st *ctx);
int tl_drv_context_sms(const struct CUctx_st *ctx);
/* The next green context of a list that begins with device->greens; its context. */
struct CUctx_st *tl_drv_green_next(struct CUgreenCtx_st **at) TL_DRV_LOCKED;

#endif

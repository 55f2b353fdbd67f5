/* The driver's lock.
 *
 * It guards all bookkeeping: contexts, streams, events, operations, allocations, modules, graphs.
 * It is never held while anything is computed, copied, compiled or waited for.  What is guarded
 * otherwise says so.
 *
 * Contracts are written with these words and checked by `make lint-locks`: */
#ifndef TALLY_DEVICE_DRIVER_LOCK_H
#define TALLY_DEVICE_DRIVER_LOCK_H

#include "tally/lock.h"

extern struct tl_mutex tl_drv_mutex;

/* of a function: the lock is held when it is called; it is not; of a member: only with the lock */
#define TL_DRV_LOCKED TL_REQUIRES(tl_drv_mutex)
#define TL_DRV_UNLOCKED TL_EXCLUDES(tl_drv_mutex)
#define TL_DRV_GUARDED TL_GUARDED_BY(tl_drv_mutex)

static inline void tl_drv_lock(void) TL_ACQUIRE(tl_drv_mutex)
{
    tl_mutex_lock(&tl_drv_mutex);
}

static inline void tl_drv_unlock(void) TL_RELEASE(tl_drv_mutex)
{
    tl_mutex_unlock(&tl_drv_mutex);
}

#endif

/* Kernels to be launched, by a call or as nodes of graphs (device/driver/launch.c). */
#ifndef TALLY_DEVICE_DRIVER_LAUNCH_H
#define TALLY_DEVICE_DRIVER_LAUNCH_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/work.h"

/* Whether a launch of its function may have its shape. */
CUresult tl_drv_launch_check(const struct tl_drv_launch *launch);
/* Fills in function, parameters and code of a launch whose shape is set. */
CUresult tl_drv_launch_make(CUfunction handle, struct tl_drv_launch *launch, void **kernelParams,
                            void **extra) TL_DRV_UNLOCKED;

#endif

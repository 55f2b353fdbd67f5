/* Messages: where TALLY_LOG asks for them, and to programs that ask for the driver's own. */
#ifndef TALLY_DEVICE_DRIVER_LOG_H
#define TALLY_DEVICE_DRIVER_LOG_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>

bool tl_drv_log_is_on(void);               /* whether tl_drv_log puts anything out */
void tl_drv_logs_add(const char *message); /* device/driver/logs.c */

/* Each is a line on standard error from that word of TALLY_LOG on, which is warn if not said.  The
 * driver's lock may be held or not. */
#define TL_DRV_FORMAT __attribute__((format(printf, 1, 2)))
void tl_drv_trace(const char *format, ...) TL_DRV_FORMAT; /* debug */
void tl_drv_log(const char *format, ...) TL_DRV_FORMAT;   /* info */
/* warn, the same line once: what a program asked for and does not get, and what that was */
void tl_drv_warn(const char *format, ...) TL_DRV_FORMAT;
void tl_drv_tell_why_not(const char *format, ...) TL_DRV_FORMAT; /* error: why there is no device */

/* Warns that the device has not what is named; CUDA_ERROR_NOT_SUPPORTED. */
CUresult tl_drv_unimplemented(const char *name);

#endif

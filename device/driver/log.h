/* Messages: where TALLY_LOG asks for them, and to programs that ask for the driver's own. */
#ifndef TALLY_DEVICE_DRIVER_LOG_H
#define TALLY_DEVICE_DRIVER_LOG_H

#include "device/driver/handle.h"
#include "device/driver/lock.h"

#include <stdbool.h>

bool tl_drv_log_is_on(void);
void tl_drv_logs_add(const char *message); /* device/driver/logs.c */
void tl_drv_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Why there is no device: told also where TALLY_LOG does not ask for anything. */
void tl_drv_tell_why_not(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* logs once per name, NOT_SUPPORTED */
CUresult tl_drv_unimplemented(const char *name) TL_DRV_UNLOCKED;

#endif

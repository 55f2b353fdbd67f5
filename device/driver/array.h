/* What arrays and textures share. */
#ifndef TALLY_DEVICE_DRIVER_ARRAY_H
#define TALLY_DEVICE_DRIVER_ARRAY_H

#include "device/driver/driver.h"

uint32_t tl_drv_format_bytes(CUarray_format format); /* of one channel; 0 if not known */

#endif

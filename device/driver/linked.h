/* Separately compiled programs: the PTX of their parts (device/driver/linked.c). */
#ifndef TALLY_DEVICE_DRIVER_LINKED_H
#define TALLY_DEVICE_DRIVER_LINKED_H

#include "device/driver/choose.h"
#include "device/driver/handle.h"

/* One text of the parts that an image was linked of: of the PTX that the machine code in them was
 * made of, if `linked` has machine code that fits, else of what a driver would take of each.  The
 * text is the caller's.  CUDA_ERROR_NO_BINARY_FOR_GPU, with a line that names what is missing, if a
 * part has none, and without one if the image has no parts. */
CUresult tl_drv_linked_text(const void *image, const struct tl_drv_choice *linked, char **text,
                            size_t *n);

#endif

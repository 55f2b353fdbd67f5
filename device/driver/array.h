/* Arrays, and what they share with textures. */
#ifndef TALLY_DEVICE_DRIVER_ARRAY_H
#define TALLY_DEVICE_DRIVER_ARRAY_H

#include "device/driver/handle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Immutable once created; its bytes are the program's. */
struct CUarray_st {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    uint32_t element_bytes;
    size_t pitch, slice;  /* bytes */
    size_t height, depth; /* at least 1; depth includes layers */
    uint8_t *data;
    bool is_level; /* belongs to a mipmapped array */
};

uint32_t tl_drv_format_bytes(CUarray_format format); /* of one channel; 0 if not known */

#endif

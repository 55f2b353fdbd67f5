/* What textures and surfaces are made of. */
#ifndef TALLY_DEVICE_DRIVER_TEXTURE_H
#define TALLY_DEVICE_DRIVER_TEXTURE_H

#include "device/driver/handle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TL_DRV_MAX_LEVELS = 16 };

struct tl_drv_level {
    uint8_t *data;
    size_t width, height, depth; /* in elements; depth counts layers and faces too */
    size_t pitch, slice;         /* in bytes */
};

/* What a handle points at.  Immutable once created. */
struct tl_drv_texture {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
    CUarray_format format;
    uint32_t channels, element; /* bytes of an element */
    bool is_linear;             /* 1-D linear memory: integer coordinates only, outside is zero */
    uint32_t n_levels;
    struct tl_drv_level levels[TL_DRV_MAX_LEVELS];
};

/* --- device/driver/fetch.c: as parts of kernels, so without locks --- */
void tl_drv_tex(uint64_t handle, uint32_t kind, uint32_t is_float, const uint32_t *coords,
                uint32_t result[4]);
/* False if the kernel must end: outside, and it asked for that. */
bool tl_drv_surf(uint64_t handle, uint32_t kind, uint32_t is_store, const int32_t coords[4],
                 uint32_t bytes, uint32_t outside, uint32_t data[4]);

#endif

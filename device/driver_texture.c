/* placeholder */
#include "device/driver.h"
void tl_drv_tex(uint64_t handle, uint32_t kind, uint32_t is_float, const uint32_t coords[4], uint32_t result[4])
{
    (void)handle;
    (void)kind;
    (void)is_float;
    (void)coords;
    result[0] = result[1] = result[2] = result[3] = 0;
}
void tl_drv_surf(uint64_t handle, uint32_t kind, uint32_t is_store, const int32_t coords[4], uint32_t bytes,
                 uint32_t clamp, uint32_t data[4])
{
    (void)handle;
    (void)kind;
    (void)is_store;
    (void)coords;
    (void)bytes;
    (void)clamp;
    (void)data;
}

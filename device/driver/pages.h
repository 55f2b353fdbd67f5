/* Managed memory by pages (device/driver/pages.c).  A lock of its own guards it, which is taken
 * inside: the driver's lock may be held or not. */
#ifndef TALLY_DEVICE_DRIVER_PAGES_H
#define TALLY_DEVICE_DRIVER_PAGES_H

#include "device/driver/device.h"
#include "device/driver/handle.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TL_DRV_SOFT, TL_DRV_FIRM }; /* ranks of pages: soft ones leave the device first */
/* Makes [base, base + bytes), which is mapped, memory of pages.  NULL: not that much host memory is
 * left. */
struct tl_drv_pages *tl_drv_pages_create(struct tl_drv_device *device, void *base, size_t bytes);
void tl_drv_pages_destroy(struct tl_drv_pages *p); /* leaves the mapping at base to the caller */
bool tl_drv_pages_are_there(void);                 /* whether this process has any */
/* Brings what is needed to access the first bytes from `address` on and keeps it there until
 * released.  Returns how many bytes that is, at most n.  Memory without pages is always there. */
struct tl_drv_hold {
    void *chunk;
};
size_t tl_drv_pages_hold(const void *address, size_t n, struct tl_drv_hold *hold);
void tl_drv_pages_release(const struct tl_drv_hold *hold);
/* Moves a range to the device, as far as there is room, or to host memory. */
void tl_drv_pages_move(CUdeviceptr address, size_t n, bool to_device);
void tl_drv_pages_rank(CUdeviceptr address, size_t n, uint32_t rank);
/* How much of the range is on the device; the rank of its last chunk. */
uint64_t tl_drv_pages_on_device(CUdeviceptr address, size_t n, uint32_t *rank);
/* Takes bytes from the ledger for memory without pages, by moving own pages out. */
bool tl_drv_pages_make_room(struct tl_drv_device *device, uint64_t bytes);

#endif

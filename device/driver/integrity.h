/* cudart's handshake; see device/driver/integrity.c. */
#ifndef TALLY_DEVICE_DRIVER_INTEGRITY_H
#define TALLY_DEVICE_DRIVER_INTEGRITY_H

#include <stdint.h>

void tl_drv_integrity(uint32_t version, uint64_t seconds, const void *cudart_table,
                      const void *table, const void *function, uint8_t out[16]);

#endif

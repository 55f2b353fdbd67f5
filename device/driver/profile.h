/* Which GPU and which driver the device answers as (device/driver/profile.c). */
#ifndef TALLY_DEVICE_DRIVER_PROFILE_H
#define TALLY_DEVICE_DRIVER_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

/* A row of the table.  Immutable. */
struct tl_drv_profile {
    const char *name; /* as TALLY_DEVICE_PROFILE has it */
    int cc_major, cc_minor;
    /* as CUDA counts: 12020.  Functions that came later are not there. */
    int driver_version;
    int sms; /* that are reported; 0: as many as run */
    int sm_threads, sm_blocks, sm_shared, block_shared;
    int clock_khz, memory_khz, bus_bits, l2_bytes;
    int copy_engines, float_to_double, sync_domains;
    int has_ecc, has_preemption;
    /* until what a kernel reads of the host's memory is there, if that is modelled; ns */
    int reach_ns;
    /* what the host and the device can do with each other's memory */
    int host_atomics, read_only_registration, managed_from_host;
    /* all that the documentation allows a driver to refuse is refused, and all that it may wait for
     * is waited for */
    bool is_strict;
};

/* The one that TALLY_DEVICE_PROFILE names, for as long as the process lives; "soft" if it names
 * none.  Of a name that nobody knows, "soft" as well, and cuInit fails; see below. */
const struct tl_drv_profile *tl_drv_profile(void);
/* Whether that name is known; says on standard error which ones are, if not. */
bool tl_drv_profile_is_known(void);
/* What cuDriverGetVersion says: the profile's, unless TALLY_DEVICE_DRIVER_VERSION says another. */
int tl_drv_driver_version(void);
/* The last attribute of devices that a driver which says that knows. */
int tl_drv_last_attribute(void);

/* What the dynamic linker is told of an exported function of that version: it, or NULL if the
 * profile's driver is older. */
void *tl_drv_export(void *function, int version);

#endif

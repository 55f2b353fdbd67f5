/* Parameter sets of devices.  SMs, memory, bandwidth and L2 are the vendors' figures; what is
 * marked "assumed" is not published for these systems and was set once, before any comparison was
 * made: see docs/simulator.md. */
#include "sim/gpu.h"

#include <string.h>

#define GB (UINT64_C(1) << 30)

/* clang-format off */
const struct sim_device sim_devices[] = {
    {.name = "a100", .n_sms = 108, .memory_bytes = 40 * GB, .bandwidth = 1555e9, .pcie = 25e9, .l2_bytes = 40e6,
     .launch_ns = 2000, .signal_ns = 5000, .switch_ns = 100e3, .transform = 0.88, .gap_ns = 6000},
    {.name = "v100", .n_sms = 80, .memory_bytes = 32 * GB, .bandwidth = 900e9, .pcie = 12e9, .l2_bytes = 6e6,
     .launch_ns = 2500, .signal_ns = 5000, .switch_ns = 150e3, .transform = 0.88, .gap_ns = 6000},
    {.name = "p100", .n_sms = 56, .memory_bytes = 16 * GB, .bandwidth = 732e9, .pcie = 12e9, .l2_bytes = 4e6,
     .launch_ns = 3000, .signal_ns = 6000, .switch_ns = 200e3, .transform = 0.88, .gap_ns = 8000},
    {.name = "2080ti", .n_sms = 68, .memory_bytes = 11 * GB, .bandwidth = 616e9, .pcie = 12e9, .l2_bytes = 5.5e6,
     .launch_ns = 2500, .signal_ns = 5000, .switch_ns = 150e3, .transform = 0.88, .gap_ns = 6000},
    /* Our software device with its default of 8 SMs on a few CPU cores: a launch, and a turn of another process, is a wake-up of threads. */
    {.name = "software", .n_sms = 8, .memory_bytes = 8 * GB, .bandwidth = 10e9, .pcie = 5e9, .l2_bytes = 8e6,
     .launch_ns = 20e3, .signal_ns = 1000, .switch_ns = 50e3, .transform = 0.95, .gap_ns = 20e3,
     .is_in_order = true},
    {0},
};
/* clang-format on */

const struct sim_device *sim_device(const char *name)
{
    for (const struct sim_device *d = sim_devices; d->name != NULL; d++)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

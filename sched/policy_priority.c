/* priority: no control but the device's own: grids of higher levels are dispatched first when SMs
 * become free (stream priorities), running blocks stay. */
#include "sched/policy.h"

static uint64_t decide(struct tl_sched *s)
{
    (void)s; /* every want is open already; the device does the rest */
    return TL_NEVER;
}

const struct tl_policy tl_policy_priority = {
    .name = "priority",
    .alias = "mps-priority",
    .about = "no control but the device's stream priorities",
    .dispatch = "mps-priority",
    .decide = decide,
};

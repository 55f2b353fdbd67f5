/* none: everybody launches when it likes and the device sorts it out, in the order of arrival, as
 * under MPS. */
#include "sched/policy.h"

static uint64_t decide(struct tl_sched *s)
{
    (void)s; /* every want is open already */
    return TL_NEVER;
}

const struct tl_policy tl_policy_none = {
    .name = "none",
    .alias = "mps",
    .about = "no control: grids run in the order of arrival, as under MPS",
    .decide = decide,
};

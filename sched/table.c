/* The policies that there are.  A new one is a file that defines a `const struct tl_policy`, and a
 * line here. */
#include "sched/policy.h"

static const struct tl_policy *const policies[] = {
    &tl_policy_tally,
    &tl_policy_slo,
    &tl_policy_tgs,
    &tl_policy_salus,
    &tl_policy_gpulet,
    &tl_policy_herald,
    &tl_policy_none,
    &tl_policy_priority,
    &tl_policy_timeslice,
    &tl_policy_kernel,
    &tl_policy_reef,
    &tl_policy_orion,
    NULL,
};

const struct tl_policy *const *tl_sched_policies(void)
{
    return policies;
}

const char *tl_policy_name(const struct tl_policy *p)
{
    return p->name;
}

const char *tl_policy_about(const struct tl_policy *p)
{
    return p->about;
}

const char *tl_policy_dispatch(const struct tl_policy *p)
{
    return p->dispatch != NULL ? p->dispatch : "mps";
}

/* A share that a client has at most, whatever the policy: an allowance of device time that grows
 * with the clock, and is spent by use.  Who has spent it has no turn until it has grown again, so
 * that others have theirs. */
#include "sched/bound.h"

/* Of time that can be saved up. */
#define MOST_NS (100 * (int64_t)TL_MS)
/* And overdrawn, by kernels that cannot be stopped: those are made up for.  What is beyond this is
 * forgiven: the first launches of a job run whole, before they can be cut, and would keep it from
 * the device for long afterwards. */
#define DEEPEST_NS ((int64_t)TL_SECOND)
/* It goes on when it has so much again, so that it is not switched for every piece. */
#define ENOUGH_NS (2 * (int64_t)TL_MS)

static bool has_bound(const struct tl_sched_entry *e)
{
    return e->c.max_permille != 0 && e->c.max_permille < 1000;
}

void tl__bound_used(struct tl_sched_entry *e, uint64_t device_ns)
{
    if (!has_bound(e))
        return;
    e->allowance_ns -= (int64_t)tl__min(device_ns, 2 * (uint64_t)DEEPEST_NS);
    if (e->allowance_ns < -DEEPEST_NS)
        e->allowance_ns = -DEEPEST_NS;
}

uint64_t tl__bound_settle(struct tl_sched_entry *e, uint64_t now)
{
    uint64_t elapsed = tl__min(now - e->allowed_at, 100 * TL_SECOND);
    e->allowed_at = now;
    if (!has_bound(e)) {
        e->is_spent = false;
        e->allowance_ns = 0;
        return TL_NEVER;
    }
    e->allowance_ns += (int64_t)(elapsed * e->c.max_permille / 1000);
    if (e->allowance_ns > MOST_NS)
        e->allowance_ns = MOST_NS;
    if (e->allowance_ns <= 0)
        e->is_spent = true;
    else if (e->allowance_ns >= ENOUGH_NS)
        e->is_spent = false;
    if (!e->is_spent) /* also if it has no work yet: nobody else may look at it */
        return now + (uint64_t)e->allowance_ns;
    return now + (uint64_t)(ENOUGH_NS - e->allowance_ns) * 1000 / e->c.max_permille + 1;
}

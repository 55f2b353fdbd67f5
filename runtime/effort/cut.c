/* Which way a graph goes at a launch, and where a long one is cut; cut.h has the contracts.
 *
 *     alone, or short    as it is: one call
 *     else               in parts: runs of neighbouring steps that are short together become sub-graphs, one call each; a step
 *                        that is long, must be watched or is not known stands between them by itself
 *     not known, forced  node by node
 *
 * The steps stand in an order in which each comes behind all that it depends on.  So every run of
 * neighbours may be one sub-graph: what its steps depend on is inside it, or in front of it. */
#include "runtime/effort/cut.h"
#include "tally/check.h"

#include "runtime/effort/plan.h"

enum {
    MOST_TRIES = 8, /* launches to learn what kernels take; some never tell */
    MOST_HALVINGS = 4,
    FEW_LAUNCHES = 3, /* with which the sub-graphs do not pay for being made */
    SAMPLES = 4,      /* the least of so many counts: single ones are too long on a busy machine */
    COPY_NS = 2000,
    /* bytes per microsecond: PCIe 4.0 with 16 lanes, and what any memory of a device does */
    HOST_BYTES_PER_US = 20000,
    DEVICE_BYTES_PER_US = 80000,
};

enum tl_record_graph tl_eff_cut_way(const struct tl_eff_graph_facts *f)
{
    if (f->is_forced)
        return TL_GRAPH_FORCED;
    if (f->divides_sms)
        return TL_GRAPH_DIVIDED;
    if (f->is_due)
        return TL_GRAPH_MEASURED;
    if (f->has_unknown && f->n_tries < MOST_TRIES)
        return TL_GRAPH_UNKNOWN;
    bool may_be_whole = !f->has_unknown && !f->has_events && !f->has_rate && f->may_pass &&
                        tl_eff_plan_goes_whole(f->ns, f->turnaround_ns, f->is_alone);
    if (may_be_whole)
        return TL_GRAPH_AS_IT_IS;
    return f->n_same < FEW_LAUNCHES ? TL_GRAPH_CHANGED : TL_GRAPH_IN_PARTS;
}

uint64_t tl_eff_cut_bound(uint64_t turnaround_ns, bool is_alone, uint32_t halvings)
{
    uint64_t ns = is_alone && turnaround_ns < TL_EFF_ALONE_NS ? TL_EFF_ALONE_NS : turnaround_ns;
    return (ns / 2) >> (halvings < MOST_HALVINGS ? halvings : MOST_HALVINGS);
}

uint32_t tl_eff_cut_next(const struct tl_eff_cut_step *steps, uint32_t n, uint32_t at,
                         uint64_t bound_ns)
{
    uint64_t sum = 0;
    uint32_t end = at;
    TL_CHECK(at < n);
    while (end < n && !steps[end].is_alone && steps[end].ns <= bound_ns - sum)
        sum += steps[end++].ns;
    return end > at ? end - at : 1;
}

bool tl_eff_cut_still_fits(uint64_t was_ns, uint64_t bound_ns)
{
    return was_ns <= bound_ns && was_ns >= bound_ns / 4;
}

bool tl_eff_cut_is_too_long(uint64_t least_ns, uint32_t n_samples, uint64_t bound_ns)
{
    return n_samples >= SAMPLES && least_ns / 2 > bound_ns;
}

uint64_t tl_eff_cut_copy_ns(size_t bytes, bool is_on_device)
{
    uint64_t per_us = is_on_device ? DEVICE_BYTES_PER_US : HOST_BYTES_PER_US;
    uint64_t us = bytes / per_us + 1;
    return COPY_NS + (us < UINT32_MAX ? us : UINT32_MAX) * 1000;
}

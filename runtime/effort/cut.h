/* Which way a graph goes at a launch, and where a long one is cut.  Pure, as plan.h is: each answer
 * follows from the facts that are given. */
#ifndef TALLY_EFFORT_CUT_H
#define TALLY_EFFORT_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/record/record.h"

/* What is known of a graph and of the moment at which it is launched. */
struct tl_eff_graph_facts {
    bool is_forced;   /* the user asked for a rung: each kernel goes its own way */
    bool divides_sms; /* kernels have to keep to a part of the SMs, each in a form that does */
    bool has_rate;    /* blocks are counted out */
    bool has_events;  /* it records or waits for events, which others may be queued behind */
    bool is_due;      /* its kernels are to be measured again */
    bool has_unknown; /* kernels whose time is not known, or wants to be measured */
    uint32_t n_tries; /* launches in a row in which it went node by node to learn that */
    uint32_t n_same;  /* launches since it was made or changed */
    uint64_t ns;      /* all steps, one after the other, of known ones */
    uint64_t turnaround_ns;
    bool is_alone; /* nobody is above */
    bool may_pass; /* there is a permit, nothing stands in front, and there is room for all of it */
};
/* TL_GRAPH_AS_IT_IS, TL_GRAPH_IN_PARTS, or why it goes node by node. */
enum tl_record_graph tl_eff_cut_way(const struct tl_eff_graph_facts *f);

/* A step of a graph, in an order in which all may be done one after the other. */
struct tl_eff_cut_step {
    uint64_t ns;   /* that it takes, as far as known */
    bool is_alone; /* it must not be in a sub-graph with others */
};

/* How long a sub-graph may take: half of the budget for leaving the device, so that two of them may
 * be there; `halvings` of it if such were found to take longer than they should. */
uint64_t tl_eff_cut_bound(uint64_t turnaround_ns, bool is_alone, uint32_t halvings);
/* How many steps from `at` on make the next part: as many as stay within the bound, none of them
 * one that must be alone; or one.  `at` < `n`. */
uint32_t tl_eff_cut_next(const struct tl_eff_cut_step *steps, uint32_t n, uint32_t at,
                         uint64_t bound_ns);
/* Whether a graph that was cut by the one bound may be left as it is under the other. */
bool tl_eff_cut_still_fits(uint64_t was_ns, uint64_t bound_ns);
/* Whether a part takes so much longer than it should that the graph is cut finer. */
bool tl_eff_cut_is_too_long(uint64_t least_ns, uint32_t n_samples, uint64_t bound_ns);
/* What a copy or a fill is taken to last. */
uint64_t tl_eff_cut_copy_ns(size_t bytes, bool is_on_device);

#endif

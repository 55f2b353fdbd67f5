/* tally: strict levels at the granularity of thread blocks.  High priority launches at once;
 * everybody below leaves the device within its turnaround budget when a higher level has work in
 * flight, and starts again when that has been idle for longer than the gaps inside its requests.
 * Equals take turns by weighted device time. */
#include "sched/levels.h"

#include <stddef.h>

static const struct tl_param params[] = {
    {"turnaround", TL_PARAM_NS, offsetof(struct tl_levels, turnaround_ns), 0, 1e12, NULL},
    {"hysteresis", TL_PARAM_NS, offsetof(struct tl_levels, hysteresis_ns), 0, 1e12, NULL},
    {"hysteresis-max", TL_PARAM_NS, offsetof(struct tl_levels, hysteresis_max_ns), 0, 1e12, NULL},
    {"run-ahead", TL_PARAM_NS, offsetof(struct tl_levels, run_ahead_ns), 0, 1e12, NULL},
    {"quantum", TL_PARAM_NS, offsetof(struct tl_levels, quantum_ns), 1e3, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_tally = {
    .name = "tally",
    .dispatch = "mps-priority",
    .about = "high priority first, others retreat in mid-kernel; equals share by weight",
    .state_bytes = sizeof(struct tl_levels),
    .client_bytes = sizeof(struct tl_levels_client),
    .params = params,
    .init = tl__levels_init,
    .backlog = tl__levels_backlog,
    .used = tl__levels_used,
    .decide = tl__levels_decide,
};

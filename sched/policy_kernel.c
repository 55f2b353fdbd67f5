/* kernel: priorities between whole kernels.  As tally, but nothing retreats in mid-kernel: a lower
 * client only launches nothing more while a higher level has work.  It shows what splitting kernels
 * is worth. */
#include "sched/levels.h"

#include <stddef.h>

static void init(struct tl_sched *s)
{
    struct tl_levels *v = s->state;
    tl__levels_init(s);
    v->finest = TL_RUNG_WHOLE;
}

static const struct tl_param params[] = {
    {"hysteresis", TL_PARAM_NS, offsetof(struct tl_levels, hysteresis_ns), 0, 1e12, NULL},
    {"run-ahead", TL_PARAM_NS, offsetof(struct tl_levels, run_ahead_ns), 0, 1e12, NULL},
    {"quantum", TL_PARAM_NS, offsetof(struct tl_levels, quantum_ns), 1e3, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_kernel = {
    .name = "kernel",
    .dispatch = "mps-priority",
    .about = "high priority first, between whole kernels",
    .state_bytes = sizeof(struct tl_levels),
    .client_bytes = sizeof(struct tl_levels_client),
    .params = params,
    .init = init,
    .backlog = tl__levels_backlog,
    .used = tl__levels_used,
    .decide = tl__levels_decide,
};

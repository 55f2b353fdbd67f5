/* reef: after REEF.  Real-time (high) work takes the device at once: what runs of others is thrown
 * off it.  While real-time kernels leave SMs unused, others are padded into those: they run beside
 * it, capped to what its footprint leaves.  REEF kills running kernels because they can be
 * repeated; here they retreat, so nothing is lost or repeated. */
#include "sched/levels.h"

#include <stddef.h>

struct state {
    struct tl_levels levels;
    uint64_t least_permille; /* room for padding below this is not worth it */
};

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    tl__levels_init(s);
    st->levels.hysteresis_ns = s->options.hysteresis_ns; /* it starts again at once */
    st->least_permille = 200;
}

static uint64_t decide(struct tl_sched *s)
{
    const struct state *st = s->state;
    uint64_t next = tl__levels_decide(s);
    uint64_t taken = 0;
    bool is_known = true, is_busy = false;
    for (uint32_t i = 0; i < s->n && tl__is_high(s->clients[i]); i++) {
        if (!tl__is_ready(s->clients[i]))
            continue;
        is_busy = true;
        is_known &= s->clients[i]->next.sm_permille > 0;
        taken += s->clients[i]->next.sm_permille;
    }
    if (!is_busy || !is_known || taken + st->least_permille > 1000)
        return next;
    for (uint32_t i = 0; i < s->n; i++)
        if (!tl__is_high(s->clients[i])) {
            s->clients[i]->want.yields = false;
            s->clients[i]->want.sm_permille = (uint32_t)(1000 - taken);
        }
    return next;
}

static const struct tl_param params[] = {
    {"least", TL_PARAM_U64, offsetof(struct state, least_permille), 1, 1000, NULL},
    {"turnaround", TL_PARAM_NS, offsetof(struct state, levels.turnaround_ns), 0, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_reef = {
    .name = "reef",
    .dispatch = "mps-priority",
    .about =
        "real-time work throws others off; they are padded into SMs that it leaves (after REEF)",
    .state_bytes = sizeof(struct state),
    .client_bytes = sizeof(struct tl_levels_client),
    .params = params,
    .init = init,
    .backlog = tl__levels_backlog,
    .used = tl__levels_used,
    .decide = decide,
};

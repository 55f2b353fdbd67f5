/* orion: after Orion.  Nothing is preempted; a best-effort kernel is admitted beside high-priority
 * work only if it fits: it fills few SMs, it needs the other resource (compute against bandwidth),
 * and the time of what was admitted in a row stays in a budget.  Else it waits until the
 * high-priority work is over. */
#include "sched/levels.h"

#include <stddef.h>

struct state {
    struct tl_levels levels;
    uint64_t most_permille; /* of the SMs, for a kernel that runs beside */
    uint64_t budget_ns;     /* device time beside one stretch of high-priority work */
    uint64_t spent_ns;
};

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    tl__levels_init(s);
    st->levels.finest = TL_RUNG_WHOLE;
    st->most_permille = 500;
    st->budget_ns = 200 * TL_US;
}

static void used(struct tl_sched *s, struct tl_sched_entry *e, const struct tl_usage *u)
{
    struct state *st = s->state;
    tl__levels_used(s, e, u);
    if (!tl__is_high(e))
        st->spent_ns += u->device_ns;
}

static void backlog(struct tl_sched *s, struct tl_sched_entry *e)
{
    struct state *st = s->state;
    tl__levels_backlog(s, e);
    if (tl__is_high(e))
        st->spent_ns = 0;
}

static bool is_memory_bound(const struct tl_footprint *f)
{
    return f->bandwidth_permille > f->sm_permille;
}

static uint64_t decide(struct tl_sched *s)
{
    const struct state *st = s->state;
    uint64_t next = tl__levels_decide(s);
    const struct tl_sched_entry *high = NULL;
    for (uint32_t i = 0; i < s->n && tl__is_high(s->clients[i]); i++)
        if (tl__is_ready(s->clients[i]))
            high = s->clients[i];
    if (high == NULL || high->next.sm_permille == 0)
        return next;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        bool fits = e->next.sm_permille > 0 && e->next.sm_permille <= st->most_permille &&
                    is_memory_bound(&e->next) != is_memory_bound(&high->next) &&
                    st->spent_ns + e->next.duration_ns <= st->budget_ns;
        if (!tl__is_high(e) && fits)
            e->want.yields = false;
    }
    return next;
}

static const struct tl_param params[] = {
    {"sm", TL_PARAM_U64, offsetof(struct state, most_permille), 0, 1000, NULL},
    {"budget", TL_PARAM_NS, offsetof(struct state, budget_ns), 0, 1e12, NULL},
    {"hysteresis", TL_PARAM_NS, offsetof(struct state, levels.hysteresis_ns), 0, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_orion = {
    .name = "orion",
    .about = "whole kernels beside high priority only if they fit it (after Orion)",
    .dispatch = "mps-priority",
    .state_bytes = sizeof(struct state),
    .client_bytes = sizeof(struct tl_levels_client),
    .params = params,
    .init = init,
    .backlog = backlog,
    .used = used,
    .decide = decide,
};

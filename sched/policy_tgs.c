/* tgs: production runs as it likes, opportunistic jobs at a rate (thread blocks per second) that
 * adapts to how much production slows down, and with the device memory that production leaves.
 * Production is high priority; if nobody is, the highest level present. */
#include "sched/policy.h"
#include "sched/tgs_rate.h"
#include "sched/umem.h"

#include <stddef.h>

enum { MOST_CLIENTS = 64 }; /* that share memory by plan; more than that get none of it granted */

struct state {
    struct tl_tgs rate;
    uint64_t step_ns, alone_ns;
    uint64_t spare_bytes;
    uint64_t next_step;
    uint64_t last_current_ns;
    double production_blocks; /* since the last step */
    double current;           /* blocks of the opportunistic jobs per 50 ms, lately */
    double current_blocks;    /* counted since last_current_ns */
};

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    tl__tgs_init(&st->rate);
    st->step_ns = 5 * TL_SECOND;
    st->alone_ns = 2100 * TL_MS;
    st->spare_bytes = UINT64_C(1) << 30;
}

static int check(struct tl_sched *s, struct tl_error *err)
{
    (void)err;
    struct state *st = s->state;
    st->alone_ns = tl__min(st->alone_ns, st->step_ns);
    if (st->spare_bytes > s->options.memory_bytes / 4)
        /* a gibibyte is too much of a small device */
        st->spare_bytes = s->options.memory_bytes / 4;
    return 0;
}

static bool is_production(const struct tl_sched *s, const struct tl_sched_entry *e)
{
    return e->c.level == s->clients[0]->c.level &&
           (tl__is_high(e) || s->clients[s->n - 1]->c.level < e->c.level);
}

static void used(struct tl_sched *s, struct tl_sched_entry *e, const struct tl_usage *u)
{
    struct state *st = s->state;
    if (is_production(s, e)) {
        st->production_blocks += (double)u->blocks;
        return;
    }
    st->current_blocks += (double)u->blocks;
    uint64_t elapsed = s->now - st->last_current_ns;
    if (elapsed >= 50 * TL_MS) {
        st->current = st->current_blocks * 50e6 / (double)elapsed;
        st->current_blocks = 0;
        st->last_current_ns = s->now;
    }
}

/* Both kinds are there, or not any more. */
static void follow_presence(struct tl_sched *s)
{
    struct state *st = s->state;
    bool has_production = s->n > 0 && is_production(s, s->clients[0]);
    bool has_other = s->n > 0 && !is_production(s, s->clients[s->n - 1]);
    bool is_controlled = st->rate.phase != TL_TGS_ALONE;
    if (has_production && has_other && !is_controlled) {
        tl__tgs_connect(&st->rate);
        st->next_step = s->now + st->step_ns;
        st->production_blocks = 0;
    } else if (is_controlled && !(has_production && has_other)) {
        tl__tgs_disconnect(&st->rate);
        st->next_step = s->now + st->alone_ns;
        st->production_blocks = 0;
    }
}

static void step(struct tl_sched *s)
{
    struct state *st = s->state;
    if (s->now < st->next_step)
        return;
    if (st->rate.phase != TL_TGS_ALONE) {
        tl__tgs_step(&st->rate, st->production_blocks, st->current);
        st->next_step = s->now + st->step_ns;
    } else {
        /* The unit is blocks per step also while alone. */
        tl__tgs_alone(&st->rate,
                      st->production_blocks * (double)st->step_ns / (double)st->alone_ns);
        st->next_step = s->now + st->alone_ns;
    }
    st->production_blocks = 0;
}

static void plan_memory(struct tl_sched *s)
{
    const struct state *st = s->state;
    struct tl_umem_client plan[MOST_CLIENTS];
    for (uint32_t i = 0; i < s->n; i++)
        s->clients[i]->want.is_paged = true;
    if (s->options.memory_bytes == 0 || s->n > MOST_CLIENTS)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tl_sched_entry *e = s->clients[i];
        plan[i] = (struct tl_umem_client){.level = e->c.level,
                                          .need_bytes = e->persistent_b + e->ephemeral_b,
                                          .used_ns = e->work_since_ns};
    }
    tl__umem_plan(plan, s->n, s->options.memory_bytes, st->spare_bytes);
    for (uint32_t i = 0; i < s->n; i++)
        if (!is_production(s, s->clients[i]))
            /* 0 would be no limit */
            s->clients[i]->want.memory_bytes = tl__max(plan[i].room_bytes, 1);
}

static uint64_t decide(struct tl_sched *s)
{
    struct state *st = s->state;
    follow_presence(s);
    step(s);
    plan_memory(s);
    if (st->rate.phase == TL_TGS_ALONE)
        return st->next_step;
    uint32_t weights = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (!is_production(s, s->clients[i]))
            weights += s->clients[i]->c.weight;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_grant *g = &s->clients[i]->want;
        if (is_production(s, s->clients[i]))
            continue;
        double per_second = 20 * st->rate.limit * s->clients[i]->c.weight / weights;
        g->finest = TL_RUNG_RATE;
        g->may_run = per_second >= 1;
        /* At the upper end it is no limit, and the number stays one that others can multiply. */
        g->blocks_per_s = per_second < 1      ? 1
                          : per_second > 1e12 ? UINT64_C(1000000000000)
                                              : (uint64_t)per_second;
    }
    return st->next_step;
}

static const struct tl_param params[] = {
    {"step", TL_PARAM_NS, offsetof(struct state, step_ns), 1e6, 1e12, NULL},
    {"alone-step", TL_PARAM_NS, offsetof(struct state, alone_ns), 1e6, 1e12, NULL},
    {"limit-init", TL_PARAM_DOUBLE, offsetof(struct state, rate.limit_init), 1, 1e14, NULL},
    {"rate-min", TL_PARAM_DOUBLE, offsetof(struct state, rate.rate_min), 0, 1e14, NULL},
    {"threshold", TL_PARAM_DOUBLE, offsetof(struct state, rate.threshold), 0, 1, NULL},
    {"spare", TL_PARAM_U64, offsetof(struct state, spare_bytes), 0, 1e15, NULL},
    {0},
};

const struct tl_policy tl_policy_tgs = {
    .name = "tgs",
    .about =
        "opportunistic jobs at an adaptive rate and in the memory that production leaves (TGS)",
    .dispatch = "mps-priority",
    .state_bytes = sizeof(struct state),
    .params = params,
    .init = init,
    .check = check,
    .used = used,
    .decide = decide,
};

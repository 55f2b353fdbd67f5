/* slo: tally with a closed loop.  Clients above best effort may carry a latency bound (p99 under 8
 * ms, say); the measured percentile against it gives a pressure from 0 to 1, which sets how fast
 * and how much lower levels must give way:
 *
 *     pressure 0 .. 1/2   turnaround budget from 4x down to 1/4 of the default, hysteresis from 1/2x up to 4x
 *     pressure 1/2 .. 1   also the SMs of lower levels, from all of them down to a tenth
 *
 * Pressure rises in proportion to the miss and falls slowly, so that the loop settles below the
 * bound and does not swing. */
#include "sched/levels.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 128, FEWEST = 16 };

struct state {
    struct tl_levels levels; /* first, as levels.h asks */
    uint64_t period_ns;
    double target;   /* part of the SLO that the loop aims at */
    double pressure; /* 0..1 */
    uint64_t next_ns;
};

struct client {
    struct tl_levels_client levels; /* first, as levels.h asks */
    uint64_t latencies[WINDOW];
    uint32_t at, n, fresh; /* next place, how many there are, how many came since the last look */
};

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    tl__levels_init(s);
    st->period_ns = 100 * TL_MS;
    st->target = 0.9;
    st->pressure = 0.5;
}

static void request(struct tl_sched *s, struct tl_sched_entry *e, uint64_t latency_ns)
{
    (void)s;
    struct client *c = e->own;
    c->latencies[c->at] = latency_ns;
    c->at = (c->at + 1) % WINDOW;
    if (c->n < WINDOW)
        c->n++;
    c->fresh++;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The client's percentile over the window, as a part of its SLO. */
static double measured(const struct tl_sched_entry *e)
{
    const struct client *c = e->own;
    uint64_t sorted[WINDOW];
    memcpy(sorted, c->latencies, c->n * sizeof sorted[0]);
    qsort(sorted, c->n, sizeof sorted[0], ascending);
    uint32_t percentile = e->c.slo_percentile != 0 ? e->c.slo_percentile : 9900;
    uint32_t rank = (uint32_t)((uint64_t)c->n * tl__min(percentile, 9999) / 10000);
    return (double)sorted[rank] / (double)e->c.slo_ns;
}

static void adapt(struct tl_sched *s)
{
    struct state *st = s->state;
    double worst = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct client *c = s->clients[i]->own;
        if (s->clients[i]->c.slo_ns == 0 || c->n < FEWEST || c->fresh == 0)
            continue;
        c->fresh = 0;
        double ratio = measured(s->clients[i]);
        worst = ratio > worst ? ratio : worst;
    }
    if (worst <= 0)
        return; /* nothing new to learn from */
    double miss = worst - st->target;
    st->pressure += miss > 0 ? (miss < 1 ? 0.3 * miss : 0.3) : 0.03 * miss;
    st->pressure = st->pressure < 0 ? 0 : st->pressure > 1 ? 1 : st->pressure;
}

/* Between `at_0` and `at_half` while the pressure is in its lower half, `at_half` above. */
static double by_pressure(const struct state *st, double at_0, double at_half)
{
    double x = st->pressure < 0.5 ? 2 * st->pressure : 1;
    return at_0 + (at_half - at_0) * x;
}

static uint64_t decide(struct tl_sched *s)
{
    struct state *st = s->state;
    if (s->now >= st->next_ns) {
        adapt(s);
        st->next_ns = s->now + st->period_ns;
    }
    uint64_t next = tl__min(tl__levels_decide(s), st->next_ns);
    bool has_slo = false; /* of somebody above */
    uint32_t share = st->pressure <= 0.5 ? 1000 : (uint32_t)(1000 - 1800 * (st->pressure - 0.5));
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        struct tl_grant *g = &e->want;
        if (has_slo && !tl__is_high(e) && e->c.slo_ns == 0) {
            g->turnaround_ns = (uint64_t)((double)g->turnaround_ns * by_pressure(st, 4, 0.25));
            g->hysteresis_ns = (uint64_t)((double)g->hysteresis_ns * by_pressure(st, 0.5, 4));
            g->sm_permille = share;
        }
        has_slo |= e->c.slo_ns != 0;
    }
    return next;
}

static const struct tl_param params[] = {
    {"period", TL_PARAM_NS, offsetof(struct state, period_ns), 1e6, 1e12, NULL},
    {"target", TL_PARAM_DOUBLE, offsetof(struct state, target), 0.1, 1, NULL},
    {"turnaround", TL_PARAM_NS, offsetof(struct state, levels.turnaround_ns), 0, 1e12, NULL},
    {"hysteresis", TL_PARAM_NS, offsetof(struct state, levels.hysteresis_ns), 0, 1e12, NULL},
    {"run-ahead", TL_PARAM_NS, offsetof(struct state, levels.run_ahead_ns), 0, 1e12, NULL},
    {"quantum", TL_PARAM_NS, offsetof(struct state, levels.quantum_ns), 1e3, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_slo = {
    .name = "slo",
    .dispatch = "mps-priority",
    .about = "tally, tuned by measured latency against each client's SLO",
    .state_bytes = sizeof(struct state),
    .client_bytes = sizeof(struct client),
    .params = params,
    .init = init,
    .backlog = tl__levels_backlog,
    .used = tl__levels_used,
    .request = request,
    .decide = decide,
};

/* gpulet: every client with an SLO gets its own part of the SMs, in gpulet's sizes, and keeps it
 * for an epoch; the others share what is left.  Offline profiles are not at hand here: the size
 * that a client needs is learned from its own requests, one step per epoch, and the new sizes take
 * effect together at the next one.  `tally plan` is the planner that works from profiles.
 *
 * Nobody is stopped: shares are caps, so high priority never waits for a grant. */
#include "sched/gpulet.h"
#include "sched/policy.h"

#include <stddef.h>

enum { FEWEST = 8, BACKGROUND_LEAST = 100 };

struct state {
    uint64_t epoch_ns, next_ns;
};

struct client {
    int step;             /* index of its size */
    uint64_t n, late;     /* requests of this epoch, and those beyond the SLO */
    uint64_t worst_ns;    /* the longest of this epoch */
    uint32_t sm_permille; /* in force */
};

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    st->epoch_ns = 20 * TL_SECOND;
}

static void joined(struct tl_sched *s, struct tl_sched_entry *e)
{
    (void)s;
    struct client *c = e->own;
    c->step = 1; /* 40 %: beyond that latency hardly improves */
    c->sm_permille = 10 * tl_gpulet_sizes[c->step];
}

static void request(struct tl_sched *s, struct tl_sched_entry *e, uint64_t latency_ns)
{
    (void)s;
    struct client *c = e->own;
    c->n++;
    c->late += latency_ns > e->c.slo_ns;
    c->worst_ns = tl__max(c->worst_ns, latency_ns);
}

/* More than one in a hundred late: one size up.  All within half the bound: one down. */
static void learn(struct tl_sched_entry *e)
{
    struct client *c = e->own;
    if (c->n >= FEWEST) {
        if (100 * c->late > c->n && c->step + 1 < TL_GPULET_SIZES)
            c->step++;
        else if (2 * c->worst_ns < e->c.slo_ns && c->step > 0)
            c->step--;
    }
    c->n = c->late = c->worst_ns = 0;
    c->sm_permille = 10 * tl_gpulet_sizes[c->step];
}

static uint64_t decide(struct tl_sched *s)
{
    struct state *st = s->state;
    bool is_new_epoch = s->now >= st->next_ns;
    if (is_new_epoch)
        st->next_ns = s->now + st->epoch_ns;
    uint32_t wanted = 0, background = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct client *c = s->clients[i]->own;
        if (s->clients[i]->c.slo_ns == 0) {
            background++;
            continue;
        }
        if (is_new_epoch)
            learn(s->clients[i]);
        wanted += c->sm_permille;
    }
    uint32_t most = background > 0 ? 1000 - BACKGROUND_LEAST : 1000;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_grant *g = &s->clients[i]->want;
        const struct client *c = s->clients[i]->own;
        g->finest = TL_RUNG_CAP;
        if (s->clients[i]->c.slo_ns == 0)
            g->sm_permille = (1000 - (uint32_t)tl__min(wanted, most)) / background;
        else /* if they want more than there is, everybody gets its part of what there is */
            g->sm_permille = wanted <= most ? c->sm_permille : c->sm_permille * most / wanted;
        if (g->sm_permille == 0)
            g->sm_permille = 1;
    }
    return st->next_ns;
}

static const struct tl_param params[] = {
    {"epoch", TL_PARAM_NS, offsetof(struct state, epoch_ns), 1e6, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_gpulet = {
    .name = "gpulet",
    .about = "each client with an SLO on its own part of the SMs, sized by epochs (gpulet)",
    .state_bytes = sizeof(struct state),
    .client_bytes = sizeof(struct client),
    .params = params,
    .init = init,
    .joined = joined,
    .request = request,
    .decide = decide,
};

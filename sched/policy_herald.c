/* herald: light operations share the device in space, heavy ones have it alone, and jobs with an
 * SLO come first.  An operation runs to its end; each client tells the footprint of its next one.
 * Thresholds are parameters: the poster gives none.
 *
 * Over memory nobody starts.  A waiting heavy operation of an SLO job keeps best-effort work from
 * starting, and so does anybody who has waited for longer than `patience`, the one that waits
 * longest first: so nobody starves below high priority, which is never held back, only counted. */
#include "sched/policy.h"

#include <stddef.h>

struct state {
    uint64_t light_sm, light_bandwidth; /* permille: an operation is light up to both */
    uint64_t patience_ns;
};

struct client {
    bool is_running;     /* its operation was let go */
    uint64_t waiting_ns; /* since when it is ready and not running; 0: it is not */
    bool is_passed;      /* it must wait, and others may go before it */
};

static struct client *own(const struct tl_sched_entry *e)
{
    return e->own;
}

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    st->light_sm = st->light_bandwidth = 500;
    st->patience_ns = 100 * TL_MS;
}

/* A new operation: the one before has ended. */
static void footprint(struct tl_sched *s, struct tl_sched_entry *e)
{
    (void)s;
    own(e)->is_running = false;
}

static void backlog(struct tl_sched *s, struct tl_sched_entry *e)
{
    (void)s;
    if (!e->has_work)
        *own(e) = (struct client){0};
}

static bool is_light(const struct state *st, const struct tl_sched_entry *e)
{
    /* What is not known is heavy. */
    return e->next.sm_permille > 0 && e->next.sm_permille <= st->light_sm &&
           e->next.bandwidth_permille <= st->light_bandwidth;
}

static bool is_urgent(const struct tl_sched_entry *e)
{
    return tl__is_high(e) || e->c.slo_ns != 0;
}

/* Least slack first; without a deadline the bound itself stands for it. */
static uint64_t slack(const struct tl_sched *s, const struct tl_sched_entry *e)
{
    if (e->next.deadline_ns == 0)
        return e->c.slo_ns;
    uint64_t needed = s->now + e->next.duration_ns;
    return e->next.deadline_ns > needed ? e->next.deadline_ns - needed : 0;
}

static bool is_before(const struct tl_sched *s, const struct tl_sched_entry *a,
                      const struct tl_sched_entry *b)
{
    const struct state *st = s->state;
    bool a_waited = s->now - own(a)->waiting_ns >= st->patience_ns,
         b_waited = s->now - own(b)->waiting_ns >= st->patience_ns;
    if (a_waited != b_waited)
        return a_waited;
    if (a_waited)
        /* else the urgent ones could pass by for ever */
        return own(a)->waiting_ns < own(b)->waiting_ns;
    if (is_urgent(a) != is_urgent(b))
        return is_urgent(a);
    if (is_urgent(a))
        return slack(s, a) < slack(s, b);
    return a->used.device_ns < b->used.device_ns;
}

struct sums {
    uint32_t running, sm, bandwidth;
    bool has_heavy;
    uint64_t resident;
};

static void count(const struct state *st, struct sums *r, const struct tl_sched_entry *e)
{
    r->running++;
    r->sm += e->next.sm_permille;
    r->bandwidth += e->next.bandwidth_permille;
    r->has_heavy |= !is_light(st, e);
    r->resident += e->next.memory_bytes;
}

static bool may_start(const struct tl_sched *s, const struct sums *r,
                      const struct tl_sched_entry *e)
{
    const struct state *st = s->state;
    if (s->options.memory_bytes != 0 &&
        r->resident + e->next.memory_bytes > s->options.memory_bytes)
        /* it holds too much already: alone it may go on */
        return r->running == 0 && e->next.memory_bytes == 0;
    if (!is_light(st, e))
        return r->running == 0;
    return !r->has_heavy && r->sm + e->next.sm_permille <= 1000 &&
           r->bandwidth + e->next.bandwidth_permille <= 1000;
}

/* Who runs now, by what fits together; see the head of the file. */
static uint64_t decide(struct tl_sched *s)
{
    const struct state *st = s->state;
    struct sums r = {0};
    for (uint32_t i = 0; i < s->n; i++)
        r.resident += s->clients[i]->persistent_b;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        own(e)->is_running = tl__is_ready(e) && (own(e)->is_running || tl__is_high(e));
        if (own(e)->is_running)
            count(st, &r, e);
        if (!tl__is_ready(e) || own(e)->is_running)
            own(e)->waiting_ns = 0;
        else if (own(e)->waiting_ns == 0)
            own(e)->waiting_ns = tl__max(s->now, 1);
        own(e)->is_passed = false;
    }
    /* The best waiting one at a time; one that must wait for room keeps lesser ones from taking
     * it. */
    uint64_t next = TL_NEVER;
    for (;;) {
        struct tl_sched_entry *best = NULL;
        for (uint32_t i = 0; i < s->n; i++) {
            struct tl_sched_entry *e = s->clients[i];
            if (!tl__is_ready(e) || own(e)->is_running || own(e)->is_passed)
                continue;
            if (best == NULL || is_before(s, e, best))
                best = e;
        }
        if (best == NULL)
            break;
        if (may_start(s, &r, best)) {
            own(best)->is_running = true;
            own(best)->waiting_ns = 0;
            count(st, &r, best);
            continue;
        }
        bool has_waited = s->now - own(best)->waiting_ns >= st->patience_ns;
        if (has_waited || (is_urgent(best) && !is_light(st, best)))
            break;
        next = tl__min(next, own(best)->waiting_ns + st->patience_ns);
        own(best)->is_passed = true;
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->clients[i]->want.may_run = own(s->clients[i])->is_running ||
                                      tl__is_high(s->clients[i]) || !tl__is_ready(s->clients[i]);
    return next;
}

static const struct tl_param params[] = {
    {"light-sm", TL_PARAM_U64, offsetof(struct state, light_sm), 0, 1000, NULL},
    {"light-bandwidth", TL_PARAM_U64, offsetof(struct state, light_bandwidth), 0, 1000, NULL},
    {"patience", TL_PARAM_NS, offsetof(struct state, patience_ns), 0, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_herald = {
    .name = "herald",
    .about = "light operations share in space, heavy ones in time, SLO jobs first (Herald)",
    .state_bytes = sizeof(struct state),
    .client_bytes = sizeof(struct client),
    .params = params,
    .init = init,
    .backlog = backlog,
    .footprint = footprint,
    .decide = decide,
};

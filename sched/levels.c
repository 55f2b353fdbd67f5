/* Arbitration by levels.
 *
 * Across levels nothing is switched on and off here: everybody below the top has `yields` set and
 * follows the words of the levels above by itself, within microseconds, while this code is asked
 * every few milliseconds.  What it decides is slower: turns among equals, minimum shares, and the
 * hysteresis. */
#include "sched/levels.h"

#include <assert.h>

enum { OWED_LIMIT_QUANTA = 8, LAG_LIMIT_QUANTA = 40, PAUSE_QUANTA = 4, MOST_WASTED = 8 };
/* What a kernel that cannot be stopped took beyond that is forgiven, as in bound.c. */
#define DEEPEST_NS TL_SECOND

static struct tl_levels_client *own(const struct tl_sched_entry *e)
{
    return e->own;
}

void tl__levels_init(struct tl_sched *s)
{
    struct tl_levels *v = s->state;
    const struct tl_sched_options *o = &s->options;
    *v = (struct tl_levels){
        .quantum_ns = tl__or(o->quantum_ns, 5 * TL_MS),
        .patience_turns = 24,
        .turnaround_ns = tl__or(o->turnaround_ns, 31600),
        .hysteresis_ns = tl__or(o->hysteresis_ns, 100 * TL_US),
        .hysteresis_max_ns = 2 * TL_MS,
        .run_ahead_ns = tl__or(o->run_ahead_ns, 200 * TL_US),
        .finest = TL_RUNG_PERSISTENT,
    };
}

/* Where the least served of its working equals stands; TL_NEVER if it has none. */
static uint64_t least_of_equals(const struct tl_sched *s, const struct tl_sched_entry *e)
{
    uint64_t least = TL_NEVER;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tl_sched_entry *other = s->clients[i];
        if (other != e && other->c.level == e->c.level && tl__has_work(other))
            least = tl__min(least, own(other)->vtime);
    }
    return least;
}

/* Who slept does not come back with all the time that it saved up asleep; but neither does it lose
 * what it was behind, nor what others had in a pause of up to four turns.  Jobs run out of work for
 * moments all the time, between two steps of a trainer, and what they lose in each of them would be
 * lost for good.  So it comes back as far behind the least served of its working equals as it left,
 * and by the pause, within limits. */
void tl__levels_backlog(struct tl_sched *s, struct tl_sched_entry *e)
{
    const struct tl_levels *v = s->state;
    struct tl_levels_client *c = own(e);
    uint64_t least = least_of_equals(s, e);
    if (!e->has_work) {
        c->asked_ns = 0;
        c->owed_ns = 0;
        c->slept_at = s->now;
        c->lag = least != TL_NEVER && least > c->vtime
                     ? tl__min(least - c->vtime, LAG_LIMIT_QUANTA * v->quantum_ns)
                     : 0;
        return;
    }
    uint64_t behind = c->lag + tl__min(s->now - c->slept_at, PAUSE_QUANTA * v->quantum_ns);
    if (least != TL_NEVER)
        c->vtime = tl__max(c->vtime, least > behind ? least - behind : 0);
    c->owed_at = s->now;
}

static bool is_bounded(const struct tl_sched_entry *e)
{
    return e->c.max_permille != 0 && e->c.max_permille < 1000;
}

/* Who may have so much and no more falls behind its equals for as long as it is here.  It keeps its
 * place before them by a bit of that; all of it, once the bound is taken away, would be minutes in
 * which nobody else has a turn. */
static void forget_lag(const struct tl_sched *s, struct tl_sched_entry *e)
{
    const struct tl_levels *v = s->state;
    uint64_t least = TL_NEVER, lag = LAG_LIMIT_QUANTA * v->quantum_ns;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tl_sched_entry *other = s->clients[i];
        if (other->c.level == e->c.level && tl__has_work(other) && !is_bounded(other))
            least = tl__min(least, own(other)->vtime);
    }
    if (least != TL_NEVER && least > lag)
        own(e)->vtime = tl__max(own(e)->vtime, least - lag);
}

void tl__levels_used(struct tl_sched *s, struct tl_sched_entry *e, const struct tl_usage *u)
{
    const struct tl_levels *v = s->state;
    struct tl_levels_client *c = own(e);
    int64_t limit = (int64_t)(OWED_LIMIT_QUANTA * v->quantum_ns);
    uint64_t had = tl__min(u->device_ns, DEEPEST_NS);
    if (had == 0)
        return;
    c->vtime += had * 100 / e->c.weight;
    c->has_used = true;
    c->wasted = 0;
    if (had > v->quantum_ns)
        c->beyond_ns = tl__min(c->beyond_ns + had - v->quantum_ns, DEEPEST_NS);
    if (is_bounded(e))
        forget_lag(s, e);
    c->owed_ns -= (int64_t)tl__min(had, 2 * (uint64_t)limit);
    if (c->owed_ns < -limit)
        c->owed_ns = -limit;
}

/* Brings the debt to a client up to date.  Returns when a boost begins or has to be looked at, or
 * TL_NEVER. */
static uint64_t settle_share(const struct tl_sched *s, const struct tl_levels *v,
                             struct tl_sched_entry *e)
{
    struct tl_levels_client *c = own(e);
    uint64_t elapsed = s->now - c->owed_at;
    c->owed_at = s->now;
    if (e->c.min_permille == 0 || !tl__is_ready(e) || tl__is_high(e)) {
        c->is_boosted = false;
        c->owed_ns = 0;
        return TL_NEVER;
    }
    /* Longer ages would be too long for the product; the debt is at its limit by then anyway. */
    int64_t limit = (int64_t)(OWED_LIMIT_QUANTA * v->quantum_ns), quantum = (int64_t)v->quantum_ns;
    elapsed = tl__min(elapsed, 1000 * 2 * (uint64_t)limit);
    c->owed_ns += (int64_t)(elapsed * e->c.min_permille / 1000);
    if (c->owed_ns > limit)
        c->owed_ns = limit;
    if (c->owed_ns >= quantum)
        c->is_boosted = true;
    else if (c->owed_ns <= 0)
        c->is_boosted = false;
    if (c->is_boosted) /* when it can have had what it is owed */
        return s->now + (uint64_t)c->owed_ns;
    return s->now + (uint64_t)(quantum - c->owed_ns) * 1000 / e->c.min_permille + 1;
}

/* A turn ends.  Work of who had nothing in all of it, though nobody was on the device, waits for
 * something else, a compiler perhaps: others go first for as many turns as it has wasted in a row.
 * It loses nothing by that but time: only what it had counts. */
static void end_turn(const struct tl_sched *s, const struct tl_levels *v, struct tl_sched_entry *e)
{
    struct tl_levels_client *c = own(e);
    bool is_device_idle = true;
    for (uint32_t i = 0; i < s->n; i++)
        is_device_idle &= s->clients[i]->is_off;
    if (is_device_idle && !c->has_used && s->now >= c->turn_end) {
        c->wasted += c->wasted < MOST_WASTED;
        c->skip_until = s->now + c->wasted * v->quantum_ns;
    }
    if (tl__is_ready(e))
        c->asked_ns = tl__max(s->now, 1);
    c->turn_end = 0;
}

/* Comes to another level: what it had is no measure there. */
static void rebase(const struct tl_sched *s, struct tl_sched_entry *e)
{
    uint64_t least = least_of_equals(s, e);
    if (own(e)->level != e->c.level && least != TL_NEVER)
        own(e)->vtime = least;
    own(e)->level = e->c.level;
}

/* Who of the clients i..end has had least; one who is to be skipped only if all are.  NULL if none
 * has work that it may do; `ready` says how many have. */
static struct tl_sched_entry *find_next(const struct tl_sched *s, uint32_t i, uint32_t end,
                                        uint32_t *ready)
{
    struct tl_sched_entry *next = NULL;
    bool is_next_skipped = false;
    *ready = 0;
    for (uint32_t k = i; k < end; k++) {
        struct tl_sched_entry *e = s->clients[k];
        if (!tl__is_ready(e))
            continue;
        bool is_skipped = own(e)->skip_until > s->now;
        if (next == NULL || is_skipped < is_next_skipped ||
            (is_skipped == is_next_skipped && own(e)->vtime < own(next)->vtime)) {
            next = e;
            is_next_skipped = is_skipped;
        }
        ++*ready;
    }
    return next;
}

/* Who of the clients i..end has been passed over for so long that something must be wrong with who
 * is before it: it comes next, whatever it had.  What it had beyond a turn of its own is a good
 * reason to be passed over, and is waited for in addition.  NULL if nobody. */
static struct tl_sched_entry *find_impatient(const struct tl_sched *s, const struct tl_levels *v,
                                             uint32_t i, uint32_t end, uint32_t ready)
{
    struct tl_sched_entry *first = NULL;
    for (uint32_t k = i; k < end; k++) {
        struct tl_sched_entry *e = s->clients[k];
        struct tl_levels_client *c = own(e);
        if (!tl__is_ready(e) || c->turn_end != 0)
            continue;
        if (c->asked_ns == 0)
            c->asked_ns = tl__max(s->now, 1);
        uint64_t patience = v->patience_turns * ready * v->quantum_ns + c->beyond_ns * (ready - 1);
        if (s->now - c->asked_ns >= patience &&
            (first == NULL || c->asked_ns < own(first)->asked_ns))
            first = e;
    }
    return first;
}

/* The clients i..end of one level: one of those that have work gets the turn. */
static uint64_t give_turn(const struct tl_sched *s, const struct tl_levels *v, uint32_t i,
                          uint32_t end)
{
    struct tl_sched_entry *holder = NULL;
    uint32_t ready;
    for (uint32_t k = i; k < end; k++) {
        rebase(s, s->clients[k]);
        if (own(s->clients[k])->turn_end != 0)
            holder = s->clients[k];
    }
    if (holder != NULL && (!tl__is_ready(holder) || s->now >= own(holder)->turn_end)) {
        end_turn(s, v, holder);
        holder = NULL;
    }
    struct tl_sched_entry *next = find_next(s, i, end, &ready),
                          *impatient = find_impatient(s, v, i, end, ready);
    /* Who is a turn or more behind who has it has just come back: its pauses would cost it whole
     * turns of others if they were not ended for it. */
    if (holder != NULL && next != holder && !own(holder)->is_kept &&
        own(next)->vtime + v->quantum_ns < own(holder)->vtime) {
        end_turn(s, v, holder);
        holder = NULL;
    }
    if (holder == NULL && next != NULL) {
        holder = impatient != NULL ? impatient : next;
        own(holder)->is_kept = impatient != NULL;
        own(holder)->turn_end = s->now + v->quantum_ns;
        own(holder)->asked_ns = own(holder)->beyond_ns = 0;
        own(holder)->has_used = false;
    }
    /* Without the turn a client may only run if nobody else wants to: then its own next work starts
     * without asking. */
    for (uint32_t k = i; k < end; k++)
        s->clients[k]->want.may_run = holder == NULL || s->clients[k] == holder;
    assert((holder == NULL) == (ready == 0)); /* while somebody has work, somebody has the turn */
    if (holder == NULL)
        return TL_NEVER;
    if (ready < 2) /* nobody to hand over to */
        return TL_NEVER;
    return own(holder)->turn_end;
}

uint64_t tl__levels_decide(struct tl_sched *s)
{
    const struct tl_levels *v = s->state;
    uint64_t next = TL_NEVER;
    uint64_t gap = 0; /* worth waiting out, of the levels above */
    for (uint32_t i = 0, end; i < s->n; i = end) {
        for (end = i; end < s->n && s->clients[end]->c.level == s->clients[i]->c.level; end++)
            ;
        if (!tl__is_high(s->clients[i])) {
            next = tl__min(next, give_turn(s, v, i, end));
            for (uint32_t k = i; k < end; k++) {
                struct tl_sched_entry *e = s->clients[k];
                next = tl__min(next, settle_share(s, v, e));
                struct tl_grant *g = &e->want;
                g->finest = v->finest;
                g->turnaround_ns = tl__or(e->c.turnaround_ns, v->turnaround_ns);
                g->run_ahead_ns = v->run_ahead_ns;
                g->yields = !own(e)->is_boosted;
                if (own(e)->is_boosted)
                    g->may_run = true;
                else /* a quarter more, so that a usual gap does not start anybody */
                    g->hysteresis_ns = gap == 0 ? v->hysteresis_ns
                                                : tl__min(v->hysteresis_max_ns, gap + gap / 4);
            }
        }
        for (uint32_t k = i; k < end; k++)
            gap = tl__max(gap, s->clients[k]->used.gap_ns);
    }
    return next;
}

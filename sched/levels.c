/* Arbitration by levels.
 *
 * Across levels nothing is switched on and off here: everybody below the top has `yields` set and
 * follows the words of the levels above by itself, within microseconds, while this code is asked
 * every few milliseconds.  What it decides is slower: turns among equals, minimum shares, and the
 * hysteresis. */
#include "sched/levels.h"

#include <assert.h>

enum { OWED_LIMIT_QUANTA = 8, LAG_LIMIT_QUANTA = 40, PAUSE_QUANTA = 4 };

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

void tl__levels_used(struct tl_sched *s, struct tl_sched_entry *e, const struct tl_usage *u)
{
    const struct tl_levels *v = s->state;
    int64_t limit = (int64_t)(OWED_LIMIT_QUANTA * v->quantum_ns);
    own(e)->vtime += u->device_ns * 100 / e->c.weight;
    own(e)->owed_ns -= (int64_t)tl__min(u->device_ns, 2 * (uint64_t)limit);
    if (own(e)->owed_ns < -limit)
        own(e)->owed_ns = -limit;
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

/* Whether somebody is a turn or more behind who has it.  Such a one has just come back: its pauses
 * would cost it whole turns of others if they were not ended for it. */
static bool is_overtaken(const struct tl_levels *v, const struct tl_sched_entry *holder,
                         const struct tl_sched_entry *next)
{
    return next != NULL && next != holder && !own(holder)->is_kept &&
           own(next)->vtime + v->quantum_ns < own(holder)->vtime;
}

/* The clients i..end of one level: one of those that have work gets the turn. */
static uint64_t give_turn(const struct tl_sched *s, const struct tl_levels *v, uint32_t i,
                          uint32_t end)
{
    struct tl_sched_entry *holder = NULL, *next = NULL, *patient = NULL;
    uint32_t ready = 0;
    for (uint32_t k = i; k < end; k++) {
        struct tl_sched_entry *e = s->clients[k];
        if (own(e)->turn_end != 0)
            holder = e;
        if (!tl__is_ready(e))
            continue;
        ready++;
        if (own(e)->turn_end == 0 && own(e)->asked_ns == 0)
            own(e)->asked_ns = tl__max(s->now, 1);
        if (next == NULL || own(e)->vtime < own(next)->vtime)
            next = e;
        if (own(e)->asked_ns != 0 && (patient == NULL || own(e)->asked_ns < own(patient)->asked_ns))
            patient = e;
    }
    if (holder != NULL && (!tl__is_ready(holder) || s->now >= own(holder)->turn_end ||
                           is_overtaken(v, holder, next))) {
        own(holder)->turn_end = 0;
        if (tl__is_ready(holder))
            own(holder)->asked_ns = tl__max(s->now, 1);
        holder = NULL;
    }
    if (holder == NULL && next != NULL) {
        uint64_t patience = v->patience_turns * ready * v->quantum_ns;
        bool is_impatient = patient != NULL && s->now - own(patient)->asked_ns >= patience;
        if (is_impatient)
            next = patient;
        holder = next;
        own(holder)->is_kept = is_impatient;
        own(holder)->turn_end = s->now + v->quantum_ns;
        own(holder)->asked_ns = 0;
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
                    g->hysteresis_ns = tl__min(v->hysteresis_max_ns,
                                               tl__max(v->hysteresis_ns, gap + gap / 4));
            }
        }
        for (uint32_t k = i; k < end; k++)
            gap = tl__max(gap, s->clients[k]->used.gap_ns);
    }
    return next;
}

/* salus: whole iterations take turns inside memory lanes.  A switch costs nothing but the wait for
 * the running iteration, because persistent memory of all jobs stays on the device (lanes.h).  Who
 * is not in a lane waits; inside a lane one session runs, chosen anew at each end of an iteration:
 *
 *     fifo  the oldest        srtf  least declared total - used time        fair  least used time
 *     rr    fewest iterations since the last arrival                        pack  in the order in which they ask
 *
 * pack fills all lanes and sorts nobody; where memory does not count there are no lanes, and it
 * lets everybody run at once.
 *
 * A job that marks no iterations is given turns of a quantum.  High priority is never held: it
 * stands outside the lanes. */
#include "sched/lanes.h"
#include "sched/policy.h"

#include <stddef.h>

enum order { FIFO, SRTF, FAIR, RR, PACK };

struct state {
    int order;
    /* a better job takes over at the end of an iteration, not only at the end of a job */
    bool preempts;
    uint64_t quantum_ns;
    uint64_t reserve_bytes;
    bool uses_lanes; /* no: everybody takes turns with everybody, whatever their memory */
    struct tl_lanes lanes;
    bool has_memory; /* a capacity was told, and counts; else one lane for all */
};

struct session {
    bool is_running; /* it is its lane's */
    uint64_t began_ns;
    uint64_t used_ns;    /* by finished iterations */
    uint64_t finished;   /* iterations since somebody joined */
    uint64_t iterations; /* seen so far */
    uint64_t ended_ns;   /* its last turn: since then it asks for the next */
};

static struct session *own(const struct tl_sched_entry *e)
{
    return e->own;
}

static void init(struct tl_sched *s)
{
    struct state *st = s->state;
    st->order = SRTF;
    st->preempts = st->uses_lanes = true;
    st->quantum_ns = tl__or(s->options.quantum_ns, 100 * TL_MS);
    st->reserve_bytes = UINT64_C(300) << 20;
}

static int check(struct tl_sched *s, struct tl_error *err)
{
    (void)err;
    struct state *st = s->state;
    st->has_memory = st->uses_lanes && s->options.memory_bytes > st->reserve_bytes;
    tl__lanes_init(&st->lanes, st->has_memory ? s->options.memory_bytes - st->reserve_bytes : 1);
    if (st->order == FIFO)
        st->preempts = false;
    return 0;
}

static void finish(struct tl_sched *s)
{
    struct state *st = s->state;
    tl__lanes_finish(&st->lanes);
}

/* Puts a client into the queue for a lane.  Without a capacity there is one lane of one byte for
 * all; a job that has told nothing yet is taken for one that needs an eighth of the device, so that
 * neither it nor the others wait for ever. */
static void place(struct tl_sched *s, struct tl_sched_entry *e)
{
    struct state *st = s->state;
    uint64_t persistent = e->persistent_b, ephemeral = e->ephemeral_b;
    if (!st->has_memory)
        persistent = 0, ephemeral = 1;
    else if (persistent + ephemeral == 0)
        ephemeral = st->lanes.capacity / 8;
    /* Out of memory for the list leaves it outside; decide tries again. */
    (void)tl__lanes_add(&st->lanes, e->id, persistent, ephemeral);
}

static void joined(struct tl_sched *s, struct tl_sched_entry *e)
{
    for (uint32_t i = 0; i < s->n; i++)
        own(s->clients[i])->finished = 0;
    if (!tl__is_high(e))
        place(s, e);
}

static void leaving(struct tl_sched *s, struct tl_sched_entry *e)
{
    struct state *st = s->state;
    tl__lanes_remove(&st->lanes, e->id);
}

static void memory(struct tl_sched *s, struct tl_sched_entry *e)
{
    struct state *st = s->state;
    const struct tl_lane_job *j = tl__lanes_job(&st->lanes, e->id);
    if (!st->has_memory || tl__is_high(e))
        return;
    /* Within its margins nothing changes: lanes are not cut anew for every small allocation. */
    if (j != NULL && j->is_placed && e->persistent_b <= j->persistent &&
        e->persistent_b + e->ephemeral_b <= j->persistent + j->ephemeral &&
        e->persistent_b + e->ephemeral_b >= (j->persistent + j->ephemeral) / 2)
        return;
    tl__lanes_remove(&st->lanes, e->id);
    place(s, e);
}

static void end_turn(const struct tl_sched *s, struct session *x)
{
    if (x->is_running)
        x->used_ns += s->now - x->began_ns, x->ended_ns = s->now;
    x->is_running = false;
}

static void iteration(struct tl_sched *s, struct tl_sched_entry *e)
{
    struct state *st = s->state;
    own(e)->finished++;
    own(e)->iterations++;
    tl__lanes_settle(&st->lanes, e->id);
    if (st->preempts)
        end_turn(s, own(e));
}

/* Whether `a` runs before `b`; NULL is nobody. */
static bool is_before(const struct state *st, const struct tl_sched_entry *a,
                      const struct tl_sched_entry *b)
{
    if (b == NULL)
        return true;
    const struct session *x = own(a), *y = own(b);
    uint64_t left, other;
    switch (st->order) {
    case SRTF: /* without a declared total it is taken for the longest */
        left = a->c.total_ns > x->used_ns ? a->c.total_ns - x->used_ns
               : a->c.total_ns != 0       ? 0
                                          : TL_NEVER;
        other = b->c.total_ns > y->used_ns ? b->c.total_ns - y->used_ns
                : b->c.total_ns != 0       ? 0
                                           : TL_NEVER;
        if (left != other)
            return left < other;
        break;
    case FAIR:
        if (x->used_ns != y->used_ns)
            return x->used_ns < y->used_ns;
        break;
    case RR:
        if (x->finished != y->finished)
            return x->finished < y->finished;
        break;
    case PACK:
        if (x->ended_ns != y->ended_ns)
            return x->ended_ns < y->ended_ns;
        break;
    default:
        break;
    }
    return a->order < b->order;
}

/* In one lane: keeps the running session, or chooses another.  Returns when to look again. */
static uint64_t run_lane(struct tl_sched *s, uint32_t lane)
{
    const struct state *st = s->state;
    struct tl_sched_entry *running = NULL, *best = NULL;
    uint32_t ready = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        const struct tl_lane_job *j = tl__lanes_job(&st->lanes, e->id);
        if (j == NULL || !j->is_placed || j->lane != lane)
            continue;
        /* FIFO holds its place while its oldest session lives, also when that idles for a
         * moment. */
        bool may_choose = tl__is_ready(e) ||
                          (st->order == FIFO && e->work_since_ns + st->quantum_ns > s->now);
        ready += may_choose;
        if (own(e)->is_running && may_choose)
            running = e;
        else
            end_turn(s, own(e));
        if (may_choose && is_before(st, e, best))
            best = e;
    }
    bool marks = running != NULL && own(running)->iterations > 0;
    if (running != NULL && !marks && st->preempts &&
        s->now >= own(running)->began_ns + st->quantum_ns) {
        end_turn(s, own(running));
        running = NULL;
    }
    if (running == NULL && best != NULL) {
        running = best;
        own(best)->is_running = true;
        own(best)->began_ns = s->now;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tl_lane_job *j = tl__lanes_job(&st->lanes, s->clients[i]->id);
        if (j != NULL && j->is_placed && j->lane == lane)
            s->clients[i]->want.may_run = running == NULL || s->clients[i] == running;
    }
    if (ready > 1 && running != NULL && (own(running)->iterations == 0 || st->order == FIFO))
        return s->now + st->quantum_ns;
    return TL_NEVER;
}

static uint64_t decide(struct tl_sched *s)
{
    struct state *st = s->state;
    uint64_t next = TL_NEVER;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        if (tl__is_high(e)) { /* it may have been raised since it joined */
            tl__lanes_remove(&st->lanes, e->id);
            continue;
        }
        if (tl__lanes_job(&st->lanes, e->id) == NULL)
            place(s, e);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tl_lane_job *j = tl__lanes_job(&st->lanes, s->clients[i]->id);
        s->clients[i]->want.may_run = tl__is_high(s->clients[i]) || (j != NULL && j->is_placed);
    }
    if (st->order == PACK && !st->has_memory)
        return TL_NEVER;
    for (uint32_t i = 0; i < st->lanes.n_lanes; i++)
        next = tl__min(next, run_lane(s, st->lanes.lanes[i].number));
    return next;
}

static const struct tl_param params[] = {
    {"order", TL_PARAM_CHOICE, offsetof(struct state, order), 0, 0, "fifo srtf fair rr pack"},
    {"preempt", TL_PARAM_BOOL, offsetof(struct state, preempts), 0, 0, NULL},
    {"quantum", TL_PARAM_NS, offsetof(struct state, quantum_ns), 1e3, 1e12, NULL},
    {"lanes", TL_PARAM_BOOL, offsetof(struct state, uses_lanes), 0, 0, NULL},
    {"reserve", TL_PARAM_U64, offsetof(struct state, reserve_bytes), 0, 1e15, NULL},
    {0},
};

const struct tl_policy tl_policy_salus = {
    .name = "salus",
    .about = "iterations take turns inside memory lanes: fifo, srtf, fair, rr, pack (Salus)",
    .state_bytes = sizeof(struct state),
    .client_bytes = sizeof(struct session),
    .params = params,
    .init = init,
    .check = check,
    .finish = finish,
    .joined = joined,
    .leaving = leaving,
    .iteration = iteration,
    .memory = memory,
    .decide = decide,
};

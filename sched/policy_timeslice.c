/* timeslice: clients that have work take turns on the whole device, a quantum each, whatever their
 * level.  Also high priority waits for its turn here: this is the baseline that shows why it should
 * not. */
#include "sched/policy.h"

#include <stddef.h>

struct state {
    uint64_t quantum_ns;
    uint64_t turn_end;
    uint32_t holder; /* its id */
    bool has_holder;
    uint64_t last_order; /* of who had the last turn: the next in the order of joining follows */
};

static void init(struct tl_sched *s)
{
    struct state *state = s->state;
    state->quantum_ns = tl__or(s->options.quantum_ns, 2 * TL_MS);
}

/* The one that joined next after `order` among those that have work, going round; NULL if nobody
 * has any. */
static struct tl_sched_entry *next_after(const struct tl_sched *s, uint64_t order)
{
    struct tl_sched_entry *after = NULL, *first = NULL;
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        if (!tl__is_ready(e))
            continue;
        if (first == NULL || e->order < first->order)
            first = e;
        if (e->order > order && (after == NULL || e->order < after->order))
            after = e;
    }
    return after != NULL ? after : first;
}

static uint64_t decide(struct tl_sched *s)
{
    struct state *state = s->state;
    struct tl_sched_entry *holder = NULL;
    uint32_t ready = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        ready += tl__is_ready(s->clients[i]);
        if (state->has_holder && s->clients[i]->id == state->holder)
            holder = s->clients[i];
    }
    if (holder == NULL || !tl__is_ready(holder) || s->now >= state->turn_end) {
        holder = next_after(s, state->last_order);
        state->has_holder = holder != NULL;
        if (holder != NULL) {
            state->holder = holder->id;
            state->last_order = holder->order;
            state->turn_end = s->now + state->quantum_ns;
        }
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_grant *g = &s->clients[i]->want;
        g->may_run = holder == NULL || s->clients[i] == holder;
        g->finest = TL_RUNG_PERSISTENT; /* so that a turn ends when it ends */
        g->run_ahead_ns = state->quantum_ns;
    }
    return ready > 1 ? state->turn_end : TL_NEVER;
}

static const struct tl_param params[] = {
    {"quantum", TL_PARAM_NS, offsetof(struct state, quantum_ns), 1e3, 1e12, NULL},
    {0},
};

const struct tl_policy tl_policy_timeslice = {
    .name = "timeslice",
    .about = "turns on the whole device, whatever the level",
    .state_bytes = sizeof(struct state),
    .params = params,
    .init = init,
    .decide = decide,
};

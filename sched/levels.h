/* Arbitration by levels, shared by the policies that have priorities: who of equals has the turn,
 * who is below its minimum share, how long the levels above must have been idle.  A policy has
 * tl_levels as the first member of its state and tl_levels_client as the first of what it keeps per
 * client. */
#ifndef TALLY_SCHED_LEVELS_H
#define TALLY_SCHED_LEVELS_H

#include "sched/policy.h"

struct tl_levels {
    uint64_t quantum_ns; /* length of a turn among equals */
    uint64_t
        /* who of n equals was passed over for n times as many turns comes next, whatever its
         * virtual time */
        patience_turns;
    uint64_t turnaround_ns, hysteresis_ns, hysteresis_max_ns, run_ahead_ns;
    enum tl_rung finest;
};

struct tl_levels_client {
    uint64_t vtime;      /* device time that it had, by its weight */
    uint64_t lag;        /* by how much it was behind its equals when its work ran out ... */
    uint64_t slept_at;   /* ... and when that was */
    int64_t owed_ns;     /* time that its minimum share lacks; below 0 what it had beyond it */
    uint64_t owed_at;    /* when that was last brought up to date */
    uint64_t turn_end;   /* while it has the turn; else 0 */
    uint64_t asked_ns;   /* since when it has work and no turn; 0 while it has one */
    uint64_t beyond_ns;  /* of what it had since its last turn, beyond a turn */
    bool is_kept;        /* its turn, which it has out of patience: nobody ends it early */
    int level;           /* whose equals its vtime belongs to */
    bool has_used;       /* it is known to have had something since its turn began */
    uint32_t wasted;     /* turns in a row in which it had nothing, */
    uint64_t skip_until; /* for which others go first until then */
    bool is_boosted;     /* it is below its share and runs beside higher levels */
};

void tl__levels_init(struct tl_sched *s);
void tl__levels_backlog(struct tl_sched *s, struct tl_sched_entry *e);
void tl__levels_used(struct tl_sched *s, struct tl_sched_entry *e, const struct tl_usage *u);
/* Fills the wants of all clients: high priority open, others yielding, equals in turns.  Returns
 * the next time. */
uint64_t tl__levels_decide(struct tl_sched *s);

#endif

/* Scheduling policies as pure state machines: time comes in as an argument; there is no I/O, no
 * thread and no global state. tallyd runs them on real clients, the simulator on modelled ones,
 * tests on random event sequences.
 *
 * The owner tells events (join, backlog, usage, request, memory, ...) and calls tl_sched_tick no
 * later than the time that the last call returned; between events the grants of all clients stand
 * still.  A policy never blocks anybody by itself: it publishes grants, and the executor of each
 * client obeys them.
 *
 *     struct tl_sched *s;
 *     tl_sched_create(&s, "tally", &options, &err);
 *     tl_sched_join(s, id, &client, now);
 *     tl_sched_backlog(s, id, true, now);
 *     next = tl_sched_tick(s, now);
 *     const struct tl_grant *g = tl_sched_grant(s, id);
 */
#ifndef TALLY_SCHED_H
#define TALLY_SCHED_H

#include "tally/base.h"
#include "tally/level.h"

/* How a best-effort kernel is fed to the device, from the finest to the coarsest control. */
enum tl_rung {
    TL_RUNG_PERSISTENT,
    TL_RUNG_TICKET,
    TL_RUNG_SLICE,
    TL_RUNG_GATE,  /* the original's machine code with a check in front of each block */
    TL_RUNG_WHOLE, /* the original, with bounded run-ahead */
    TL_RUNG_RATE,  /* the original, at a granted rate */
    TL_RUNG_CAP,   /* the original, on a granted part of the SMs */
    TL_RUNGS,
};
const char *tl_rung_name(enum tl_rung r);

/* A client as a policy sees it.  Zero means "not said". */
struct tl_sched_client {
    int level;             /* TL_LEVEL_MIN..TL_LEVEL_MAX; higher first */
    uint32_t weight;       /* of its share among equals; 0 is 100 */
    uint32_t min_permille; /* share of the device that it gets even below busy levels; 0: none */
    uint32_t max_permille; /* share that it gets at most, also if nobody else wants it; 0: all */
    /* how fast it must leave the device when told; 0: the policy's default */
    uint64_t turnaround_ns;
    uint32_t slo_percentile; /* in per ten thousand (9900: p99); 0: no SLO */
    uint64_t slo_ns;
    bool is_paused;
    /* device time that it will need altogether, for policies that run the shortest first */
    uint64_t total_ns;
    /* Device memory on each GPU, of all processes of its job together (docs/operations.md): what it
     * may hold at most, what is kept free for it, and beyond what its pages may leave.  No policy
     * goes by these; the owner sees to them. */
    uint64_t memory_limit, memory_request, memory_soft;
};

/* The next operation of a client, for policies that decide by what fits together.  Zero means "not
 * known". */
struct tl_footprint {
    uint64_t duration_ns;        /* alone */
    uint32_t sm_permille;        /* part of the SMs that it fills */
    uint32_t bandwidth_permille; /* part of the memory bandwidth that it takes */
    uint64_t memory_bytes;       /* that it needs beyond what its client holds */
    uint64_t deadline_ns;        /* of the request that it belongs to, on the owner's clock */
};

/* What a client may do now. */
struct tl_grant {
    bool may_run; /* false: launch nothing, and leave the device */
    /* true: retreat in mid-kernel while a higher level has work in flight */
    bool yields;
    /* true: its device memory is to be such that pages can leave the device */
    bool is_paged;
    /* finest rung to use: TL_RUNG_WHOLE makes a whole-kernel policy of it */
    enum tl_rung finest;
    uint64_t turnaround_ns; /* budget for leaving the device */
    uint64_t hysteresis_ns; /* how long higher levels must have been idle before it starts again */
    uint64_t run_ahead_ns;  /* predicted time of work that may be queued on the device */
    uint64_t blocks_per_s;  /* rate limit; 0: none */
    uint32_t sm_permille;   /* part of the SMs; 1000: all */
    /* device memory that it may hold (on the device, if it is paged); 0: no limit */
    uint64_t memory_bytes;
};

/* What a client did since it was asked last. */
struct tl_usage {
    uint64_t device_ns; /* time of the device that its work took (sum over kernels, not over SMs) */
    uint64_t blocks, launches;
    uint64_t waited_ns; /* time that work of it stood ready and was not on the device */
    /* gap between two bursts that is worth waiting out, for the hysteresis; 0: not known */
    uint64_t gap_ns;
    bool is_off; /* it is known to have nothing on the device at this moment */
};

struct tl_sched;
struct tl_policy;

/* Parameters that all policies share; zero means the policy's default. */
struct tl_sched_options {
    uint64_t turnaround_ns, hysteresis_ns, run_ahead_ns;
    uint64_t quantum_ns;   /* of time slicing and fair turns */
    uint32_t n_sms;        /* of the device */
    uint64_t memory_bytes; /* of the device */
    uint64_t seed;
    const char *parameters; /* "name=value,name=value" for the policy itself, or NULL */
};

/* 0, -ENOENT (no policy of that name; the message lists them), -EINVAL (bad parameters),
 * -ENOMEM. */
int tl_sched_create(struct tl_sched **out, const char *policy,
                    const struct tl_sched_options *options, struct tl_error *err);
void tl_sched_destroy(struct tl_sched *s);

/* The table of policies, ended by NULL. */
const struct tl_policy *const *tl_sched_policies(void);
const char *tl_policy_name(const struct tl_policy *p);
const char *tl_policy_about(const struct tl_policy *p); /* one line */
/* How the device should order grids of different clients while this policy reigns: "mps" or
 * "mps-priority". */
const char *tl_policy_dispatch(const struct tl_policy *p);

/* Clients are named by the owner.  0, -EEXIST, -ENOMEM, -ENOENT. */
int tl_sched_join(struct tl_sched *s, uint32_t id, const struct tl_sched_client *c, uint64_t now);
int tl_sched_change(struct tl_sched *s, uint32_t id, const struct tl_sched_client *c, uint64_t now);
void tl_sched_leave(struct tl_sched *s, uint32_t id, uint64_t now);

/* Events.  A client that is not known is ignored: it may have left a moment ago. */
void tl_sched_backlog(struct tl_sched *s, uint32_t id, bool has_work, uint64_t now);
void tl_sched_used(struct tl_sched *s, uint32_t id, const struct tl_usage *u, uint64_t now);
void tl_sched_request(struct tl_sched *s, uint32_t id, uint64_t latency_ns, uint64_t now);
/* an iteration (training step) has ended */
void tl_sched_iteration(struct tl_sched *s, uint32_t id, uint64_t now);
void tl_sched_memory(struct tl_sched *s, uint32_t id, uint64_t persistent, uint64_t ephemeral,
                     uint64_t now);

void tl_sched_footprint(struct tl_sched *s, uint32_t id, const struct tl_footprint *next,
                        uint64_t now);

/* Brings grants up to date; returns when to be called again at the latest (UINT64_MAX: only after
 * an event). */
uint64_t tl_sched_tick(struct tl_sched *s, uint64_t now);
/* Valid until the next call on `s`; NULL if there is no such client. */
const struct tl_grant *tl_sched_grant(const struct tl_sched *s, uint32_t id);
/* Grows with every change of the client's grant, so that an owner publishes only what changed. */
uint64_t tl_sched_version(const struct tl_sched *s, uint32_t id);

#endif

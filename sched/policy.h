/* What a policy sees of the core, and the core of a policy.  Private to sched/.
 *
 *     owner ──events──► core ──hooks──► policy
 *     owner ◄──grants── core ◄──want─── policy.decide
 *
 * The core keeps the clients (sorted: highest level first, then in the order of joining), their
 * sums and the time; a policy keeps what only it knows in `s->state` and `e->own`, both zeroed
 * memory of the sizes that it asks for. */
#ifndef TALLY_SCHED_POLICY_H
#define TALLY_SCHED_POLICY_H

#include "tally/sched.h"

#define TL_US UINT64_C(1000)
#define TL_MS UINT64_C(1000000)
#define TL_SECOND UINT64_C(1000000000)
#define TL_NEVER UINT64_MAX

/* One client. */
struct tl_sched_entry {
    uint32_t id;
    struct tl_sched_client c; /* weight is never 0 here */
    uint64_t joined_ns;
    uint64_t order; /* grows with every join: tells who came first at equal times */
    bool has_work;
    uint64_t work_since_ns;             /* of the last change of has_work */
    int64_t allowance_ns;               /* device time up to its largest share */
    uint64_t allowed_at;                /* when that was last brought up to date */
    bool is_spent;                      /* it has had its largest share: it has no turn */
    bool is_off;                        /* as last told in tl_usage */
    struct tl_usage used;               /* sums since it joined; gap_ns: the learned gap */
    uint64_t iterations;                /* ended so far */
    uint64_t persistent_b, ephemeral_b; /* device memory, as last told */
    struct tl_footprint next;           /* operation; zeroes: not known */
    struct tl_grant want;               /* filled by decide; open before it is called */
    struct tl_grant grant;              /* published */
    uint64_t version;
    void *own; /* the policy's */
};

struct tl_sched {
    const struct tl_policy *policy;
    struct tl_sched_options options;
    struct tl_sched_entry **clients;
    uint32_t n, cap;
    uint64_t now; /* never goes back */
    uint64_t joins;
    void *state; /* the policy's */
};

/* Hooks may be NULL, except decide.  They see the client's sums already updated. */
struct tl_policy {
    const char *name, *alias, *about;
    /* how the device should order grids of different clients: "mps" or "mps-priority" */
    const char *dispatch;
    size_t state_bytes, client_bytes;
    const struct tl_param *params; /* of state, ended by a zero name; or NULL */
    /* Defaults of the state; runs before the parameters are read into it. */
    void (*init)(struct tl_sched *s);
    /* Refuses parameters that do not go together, allocates. */
    int (*check)(struct tl_sched *s, struct tl_error *err);
    void (*finish)(struct tl_sched *s);
    void (*joined)(struct tl_sched *s, struct tl_sched_entry *e);
    void (*leaving)(struct tl_sched *s, struct tl_sched_entry *e); /* still in the list */
    void (*backlog)(struct tl_sched *s, struct tl_sched_entry *e); /* only if it changed */
    void (*used)(struct tl_sched *s, struct tl_sched_entry *e, const struct tl_usage *u);
    void (*request)(struct tl_sched *s, struct tl_sched_entry *e, uint64_t latency_ns);
    void (*iteration)(struct tl_sched *s, struct tl_sched_entry *e);
    void (*memory)(struct tl_sched *s, struct tl_sched_entry *e);
    void (*footprint)(struct tl_sched *s, struct tl_sched_entry *e);
    /* Writes every client's want; returns when it wants to be asked again without an event, or
     * TL_NEVER. */
    uint64_t (*decide)(struct tl_sched *s);
};

/* The table's lines, one per policy; table.c defines the order. */
extern const struct tl_policy tl_policy_tally, tl_policy_slo, tl_policy_tgs, tl_policy_salus,
    tl_policy_gpulet, tl_policy_herald, tl_policy_none, tl_policy_priority, tl_policy_timeslice,
    tl_policy_kernel, tl_policy_reef, tl_policy_orion;

/* --- parameters ------------------------------------------------------------------------------- */

enum tl_param_kind {
    TL_PARAM_U64,    /* uint64_t */
    TL_PARAM_NS,     /* uint64_t; "5ms", "31.6us", "2s", or a plain number of nanoseconds */
    TL_PARAM_DOUBLE, /* double */
    TL_PARAM_BOOL,   /* bool; yes, no, 1, 0 */
    TL_PARAM_CHOICE, /* int; the place in `choices`, a list of words with spaces between */
};

struct tl_param {
    const char *name;
    enum tl_param_kind kind;
    size_t offset; /* in the policy's state */
    double min, max;
    const char *choices;
};

/* Reads "name=value,name=value" into `state`.  0 or -EINVAL with a message that lists what there
 * is. */
int tl__params_read(const char *policy, const char *text, const struct tl_param *params,
                    void *state, struct tl_error *err);

/* --- for policies ----------------------------------------------------------------------------- */

/* Everything allowed, the original kernels, no limit: what high priority gets, and where every want
 * begins. */
struct tl_grant tl__grant_open(void);

static inline bool tl__is_high(const struct tl_sched_entry *e)
{
    return e->c.level >= TL_LEVEL_HIGH;
}
/* It has work that it could do; and it may have a turn for that. */
static inline bool tl__has_work(const struct tl_sched_entry *e)
{
    return e->has_work && !e->c.is_paused;
}
static inline bool tl__is_ready(const struct tl_sched_entry *e)
{
    return tl__has_work(e) && !e->is_spent;
}
static inline uint64_t tl__or(uint64_t value, uint64_t otherwise)
{
    return value != 0 ? value : otherwise;
}
static inline uint64_t tl__min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}
static inline uint64_t tl__max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif

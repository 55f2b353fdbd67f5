/* The clients of a scheduler and the way of events and grants between its owner and its policy. */
#include "sched/bound.h"
#include "sched/policy.h"
#include "tally/array.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *tl_rung_name(enum tl_rung r)
{
    static const char *const names[TL_RUNGS] = {"persistent", "ticket", "slice", "gate",
                                                "whole",      "rate",   "cap"};
    return (unsigned)r < TL_RUNGS ? names[r] : "unknown";
}

struct tl_grant tl__grant_open(void)
{
    return (struct tl_grant){
        .may_run = true,
        .finest = TL_RUNG_WHOLE,
        .turnaround_ns = TL_NEVER,
        .run_ahead_ns = TL_NEVER,
        .sm_permille = 1000,
    };
}

static bool same_grant(const struct tl_grant *a, const struct tl_grant *b)
{
    return a->may_run == b->may_run && a->yields == b->yields && a->is_paged == b->is_paged &&
           a->finest == b->finest && a->turnaround_ns == b->turnaround_ns &&
           a->hysteresis_ns == b->hysteresis_ns && a->run_ahead_ns == b->run_ahead_ns &&
           a->blocks_per_s == b->blocks_per_s && a->sm_permille == b->sm_permille &&
           a->memory_bytes == b->memory_bytes;
}

static void advance(struct tl_sched *s, uint64_t now)
{
    if (now > s->now)
        s->now = now;
}

static struct tl_sched_entry *find_entry(const struct tl_sched *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->clients[i]->id == id)
            return s->clients[i];
    return NULL;
}

/* Behind everybody of its level or above. */
static void insert(struct tl_sched *s, struct tl_sched_entry *e)
{
    uint32_t at = s->n;
    assert(s->n < s->cap);
    while (at > 0 && s->clients[at - 1]->c.level < e->c.level)
        at--;
    memmove(s->clients + at + 1, s->clients + at, (s->n - at) * sizeof(struct tl_sched_entry *));
    s->clients[at] = e;
    s->n++;
}

static void take_out(struct tl_sched *s, const struct tl_sched_entry *e)
{
    uint32_t at = 0;
    while (at < s->n && s->clients[at] != e)
        at++;
    assert(at < s->n);
    s->n--;
    memmove(s->clients + at, s->clients + at + 1, (s->n - at) * sizeof(struct tl_sched_entry *));
}

static void set_client(struct tl_sched_entry *e, const struct tl_sched_client *c)
{
    e->c = *c;
    if (e->c.weight == 0)
        e->c.weight = 100;
    if (e->c.level > TL_LEVEL_MAX)
        e->c.level = TL_LEVEL_MAX;
    if (e->c.level < TL_LEVEL_MIN)
        e->c.level = TL_LEVEL_MIN;
    if (e->c.min_permille > 1000)
        e->c.min_permille = 1000;
    if (e->c.max_permille > 1000)
        e->c.max_permille = 1000;
}

int tl_sched_create(struct tl_sched **out, const char *policy,
                    const struct tl_sched_options *options, struct tl_error *err)
{
    *out = NULL;
    const struct tl_policy *p = NULL;
    char names[512] = "";
    for (const struct tl_policy *const *at = tl_sched_policies(); *at != NULL; at++) {
        if (strcmp((*at)->name, policy) == 0 ||
            ((*at)->alias != NULL && strcmp((*at)->alias, policy) == 0))
            p = *at;
        size_t n = strlen(names);
        if (n + strlen((*at)->name) + 3 < sizeof names)
            strcat(strcat(names, n > 0 ? ", " : ""), (*at)->name);
    }
    if (p == NULL)
        return tl_error_set(err, -ENOENT, "there is no policy '%s'; choose one of: %s", policy,
                            names);

    struct tl_sched *s = calloc(1, sizeof *s);
    if (s == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for a scheduler");
    s->policy = p;
    if (options != NULL)
        s->options = *options;
    s->options.parameters = NULL; /* the caller's text may go away */
    if (p->state_bytes > 0) {
        s->state = calloc(1, p->state_bytes);
        if (s->state == NULL) {
            free(s);
            return tl_error_set(err, -ENOMEM, "out of memory for the policy '%s'", p->name);
        }
    }
    if (p->init != NULL)
        p->init(s);
    int rc = 0;
    if (options != NULL && options->parameters != NULL)
        rc = tl__params_read(p->name, options->parameters, p->params, s->state, err);
    if (rc == 0 && p->check != NULL)
        rc = p->check(s, err);
    if (rc < 0) {
        tl_sched_destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

void tl_sched_destroy(struct tl_sched *s)
{
    if (s == NULL)
        return;
    while (s->n > 0)
        tl_sched_leave(s, s->clients[s->n - 1]->id, s->now);
    if (s->policy->finish != NULL)
        s->policy->finish(s);
    free(s->clients);
    free(s->state);
    free(s);
}

/* What every policy must keep to, whatever it thinks. */
static void assert_sound(const struct tl_sched *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct tl_sched_entry *e = s->clients[i];
        assert(i == 0 || s->clients[i - 1]->c.level >= e->c.level);
        assert(e->c.weight > 0 && e->c.min_permille <= 1000);
        assert(e->want.finest < TL_RUNGS && e->want.sm_permille <= 1000);
        (void)e;
    }
}

/* Asks the policy and puts its grants in force; when it wants to be asked again. */
static uint64_t publish(struct tl_sched *s)
{
    uint64_t bound = TL_NEVER;
    for (uint32_t i = 0; i < s->n; i++) {
        s->clients[i]->want = tl__grant_open();
        bound = tl__min(bound, tl__bound_settle(s->clients[i], s->now));
    }
    uint64_t next = tl__min(s->policy->decide(s), bound);
    assert_sound(s);
    for (uint32_t i = 0; i < s->n; i++) {
        struct tl_sched_entry *e = s->clients[i];
        if (e->c.is_paused || e->is_spent)
            e->want.may_run = false;
        if (same_grant(&e->want, &e->grant))
            continue;
        e->grant = e->want;
        e->version++;
    }
    return next > s->now ? next : s->now + 1;
}

int tl_sched_join(struct tl_sched *s, uint32_t id, const struct tl_sched_client *c, uint64_t now)
{
    advance(s, now);
    if (find_entry(s, id) != NULL)
        return -EEXIST;
    if (!TL_ARRAY_FIT(s->clients, s->cap, s->n + 1))
        return -ENOMEM;
    /* The policy's part lies behind the core's, in one piece. */
    struct tl_sched_entry *e = calloc(1, sizeof *e + s->policy->client_bytes);
    if (e == NULL)
        return -ENOMEM;
    e->id = id;
    e->own = s->policy->client_bytes > 0 ? e + 1 : NULL;
    e->joined_ns = e->work_since_ns = e->allowed_at = s->now;
    e->order = s->joins++;
    set_client(e, c);
    insert(s, e);
    if (s->policy->joined != NULL)
        s->policy->joined(s, e);
    publish(s);
    return 0;
}

int tl_sched_change(struct tl_sched *s, uint32_t id, const struct tl_sched_client *c, uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL)
        return -ENOENT;
    take_out(s, e);
    set_client(e, c);
    insert(s, e);
    publish(s);
    return 0;
}

void tl_sched_leave(struct tl_sched *s, uint32_t id, uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL)
        return;
    if (s->policy->leaving != NULL)
        s->policy->leaving(s, e);
    take_out(s, e);
    free(e);
    publish(s);
}

void tl_sched_backlog(struct tl_sched *s, uint32_t id, bool has_work, uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL || e->has_work == has_work)
        return;
    e->has_work = has_work;
    if (s->policy->backlog != NULL)
        s->policy->backlog(s, e);
    e->work_since_ns = s->now;
}

void tl_sched_used(struct tl_sched *s, uint32_t id, const struct tl_usage *u, uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL)
        return;
    e->is_off = u->is_off;
    e->used.device_ns += u->device_ns;
    tl__bound_used(e, u->device_ns);
    e->used.blocks += u->blocks;
    e->used.launches += u->launches;
    e->used.waited_ns += u->waited_ns;
    /* A longer gap is believed at once, a shorter one slowly: starting in the middle of a request
     * costs more than starting late. */
    if (u->gap_ns > e->used.gap_ns)
        e->used.gap_ns = u->gap_ns;
    else if (u->gap_ns > 0)
        e->used.gap_ns -= (e->used.gap_ns - u->gap_ns) / 16;
    if (s->policy->used != NULL)
        s->policy->used(s, e, u);
}

void tl_sched_request(struct tl_sched *s, uint32_t id, uint64_t latency_ns, uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e != NULL && s->policy->request != NULL)
        s->policy->request(s, e, latency_ns);
}

void tl_sched_iteration(struct tl_sched *s, uint32_t id, uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL)
        return;
    e->iterations++;
    if (s->policy->iteration != NULL)
        s->policy->iteration(s, e);
}

void tl_sched_memory(struct tl_sched *s, uint32_t id, uint64_t persistent, uint64_t ephemeral,
                     uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL)
        return;
    e->persistent_b = persistent;
    e->ephemeral_b = ephemeral;
    if (s->policy->memory != NULL)
        s->policy->memory(s, e);
}

void tl_sched_footprint(struct tl_sched *s, uint32_t id, const struct tl_footprint *next,
                        uint64_t now)
{
    advance(s, now);
    struct tl_sched_entry *e = find_entry(s, id);
    if (e == NULL)
        return;
    e->next = *next;
    if (s->policy->footprint != NULL)
        s->policy->footprint(s, e);
}

uint64_t tl_sched_tick(struct tl_sched *s, uint64_t now)
{
    advance(s, now);
    return publish(s);
}

const struct tl_grant *tl_sched_grant(const struct tl_sched *s, uint32_t id)
{
    const struct tl_sched_entry *e = find_entry(s, id);
    return e != NULL ? &e->grant : NULL;
}

uint64_t tl_sched_version(const struct tl_sched *s, uint32_t id)
{
    const struct tl_sched_entry *e = find_entry(s, id);
    return e != NULL ? e->version : 0;
}

/* Who is where, and a policy for each GPU.
 *
 * A client says which GPUs its process uses when it first gives them work.  From then on it has to
 * do with those who use one of them too, and with those who have not used any yet: these count for
 * all, which costs nobody anything, for they have no work.  A client that uses several obeys the
 * policies of all of them. */
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool daemon_is_on(const struct daemon *d, const struct daemon_peer *p, uint32_t gpu)
{
    if (d->gpus[gpu].sched == NULL)
        return false;
    return p->gpus == 0 || (p->gpus >> gpu & 1) != 0;
}

uint32_t daemon_next_gpu(const struct daemon *d, const struct daemon_peer *p, uint32_t from)
{
    while (from < DAEMON_MAX_GPUS && !daemon_is_on(d, p, from))
        from++;
    return from;
}

bool daemon_do_meet(const struct daemon_peer *a, const struct daemon_peer *b)
{
    return a->gpus == 0 || b->gpus == 0 || (a->gpus & b->gpus) != 0;
}

/* --- policies --------------------------------------------------------------------------------- */

/* A policy for a GPU, with all who are on it. */
static int make_sched(const struct daemon *d, uint32_t gpu, const char *policy,
                      const char *parameters, struct tl_sched **out, struct tl_error *err)
{
    struct tl_sched_options options = {
        .parameters = parameters[0] != 0 ? parameters : NULL,
        .memory_bytes = d->gpus[gpu].memory_bytes,
        .n_sms = d->gpus[gpu].sms,
    };
    uint64_t now = tl_clock_ns();
    int rc = tl_sched_create(out, policy, &options, err);
    for (uint32_t i = 0; rc == 0 && i < d->n_clients; i++) {
        const struct daemon_peer *p = d->clients[i];
        if (p->gpus != 0 && (p->gpus >> gpu & 1) == 0)
            continue;
        rc = tl_sched_join(*out, p->id, &p->c, now);
        if (rc == 0)
            tl_sched_backlog(*out, p->id, p->seen.has_backlog, now);
        else
            tl_sched_destroy(*out);
    }
    return rc == -ENOMEM ? tl_error_set(err, rc, "out of memory for the policy '%s'", policy) : rc;
}

/* Who is told by it is told anew. */
static void put_in_force(struct daemon *d, uint32_t gpu, struct tl_sched *sched)
{
    if (d->gpus[gpu].sched != NULL)
        tl_sched_destroy(d->gpus[gpu].sched);
    d->gpus[gpu].sched = sched;
    for (uint32_t i = 0; i < d->n_clients; i++)
        if (daemon_is_on(d, d->clients[i], gpu)) {
            d->clients[i]->published = UINT64_MAX;
            d->clients[i]->seen.memory_bytes = 0;
        }
}

int daemon_set_policy(struct daemon *d, const char *policy, const char *parameters,
                      struct tl_error *err)
{
    struct tl_sched *made[DAEMON_MAX_GPUS] = {NULL};
    int rc = 0;
    for (uint32_t g = 0; rc == 0 && g < DAEMON_MAX_GPUS; g++)
        if (g == 0 || d->gpus[g].sched != NULL) {
            rc = make_sched(d, g, policy, parameters, &made[g], err);
            if (rc < 0)
                made[g] = NULL;
        }
    for (uint32_t g = 0; g < DAEMON_MAX_GPUS; g++) {
        if (made[g] != NULL && rc == 0)
            put_in_force(d, g, made[g]);
        else if (made[g] != NULL)
            tl_sched_destroy(made[g]);
    }
    if (rc < 0)
        return rc;
    if (policy != d->policy)
        snprintf(d->policy, sizeof d->policy, "%s", policy);
    if (parameters != d->parameters)
        snprintf(d->parameters, sizeof d->parameters, "%s", parameters);
    daemon_log(LOG_EVENTS, "the policy is '%s'%s%s", policy, parameters[0] != 0 ? " with " : "",
               parameters);
    return 0;
}

void daemon_gpus_learn(struct daemon *d)
{
    for (uint32_t i = 0; i < d->n_clients; i++) {
        const struct daemon_peer *p = d->clients[i];
        /* Of one that uses several it is not known which one it tells of. */
        uint32_t g = p->gpus == 0 ? 0 : (uint32_t)__builtin_ctzll(p->gpus);
        struct daemon_gpu *gpu = &d->gpus[g];
        if (gpu->memory_bytes != 0 || (p->gpus & (p->gpus - 1)) != 0)
            continue;
        struct tl_sched *sched;
        char name[TL_SHARE_NAME];
        gpu->memory_bytes = atomic_load_explicit(&p->page->device_memory_bytes,
                                                 memory_order_relaxed);
        gpu->sms = atomic_load_explicit(&p->page->device_sms, memory_order_relaxed);
        tl_share_get_name(p->page->device_name, name);
        tl_wire_text(gpu->name, sizeof gpu->name, name);
        if (gpu->memory_bytes == 0)
            continue;
        if (make_sched(d, g, d->policy, d->parameters, &sched, NULL) == 0)
            put_in_force(d, g, sched);
        else
            gpu->memory_bytes = 0;
    }
}

void daemon_gpus_finish(struct daemon *d)
{
    for (uint32_t g = 0; g < DAEMON_MAX_GPUS; g++)
        if (d->gpus[g].sched != NULL)
            tl_sched_destroy(d->gpus[g].sched);
}

/* --- clients ---------------------------------------------------------------------------------- */

int daemon_gpus_enter(struct daemon *d, struct daemon_peer *p, uint32_t id, uint64_t now)
{
    int rc = 0;
    uint32_t g = 0;
    for (; rc == 0 && g < DAEMON_MAX_GPUS; g++)
        if (daemon_is_on(d, p, g))
            rc = tl_sched_join(d->gpus[g].sched, id, &p->c, now);
    if (rc == 0)
        return 0;
    for (g--; g-- > 0;) /* the last one has not taken it */
        if (daemon_is_on(d, p, g))
            tl_sched_leave(d->gpus[g].sched, id, now);
    return rc;
}

void daemon_gpus_change(struct daemon *d, struct daemon_peer *p, uint64_t now)
{
    DAEMON_FOR_GPUS(d, p, g)
    (void)tl_sched_change(d->gpus[g].sched, p->id, &p->c, now);
}

/* A GPU that nobody uses any more needs no policy. */
static void retire(struct daemon *d)
{
    uint64_t used = 1;
    for (uint32_t i = 0; i < d->n_clients; i++)
        used |= d->clients[i]->gpus;
    for (uint32_t g = 1; g < DAEMON_MAX_GPUS; g++) {
        if (d->gpus[g].sched == NULL || (used >> g & 1) != 0)
            continue;
        tl_sched_destroy(d->gpus[g].sched);
        d->gpus[g] = (struct daemon_gpu){0};
    }
}

void daemon_gpus_leave(struct daemon *d, struct daemon_peer *p, uint64_t now)
{
    DAEMON_FOR_GPUS(d, p, g)
    tl_sched_leave(d->gpus[g].sched, p->id, now);
    p->gpus = 0;
    retire(d);
}

/* The number of a GPU, made known if it is new; 0 if there is no room or memory for another. */
static uint32_t find_gpu(struct daemon *d, const uint8_t uuid[16])
{
    uint32_t room = 0;
    struct tl_error err;
    for (uint32_t g = 1; g < DAEMON_MAX_GPUS; g++) {
        if (d->gpus[g].sched != NULL && memcmp(d->gpus[g].uuid, uuid, 16) == 0)
            return g;
        if (d->gpus[g].sched == NULL && room == 0)
            room = g;
    }
    struct tl_sched *sched;
    if (room == 0 || make_sched(d, room, d->policy, d->parameters, &sched, &err) < 0)
        return 0;
    memcpy(d->gpus[room].uuid, uuid, 16);
    put_in_force(d, room, sched);
    return room;
}

/* The set that a client names; 0, which is all, if it cannot be kept. */
static uint64_t find_gpus(struct daemon *d, const struct tl_wire_gpus *gpus)
{
    uint64_t set = 0;
    if (gpus->n > TL_WIRE_GPUS)
        return 0;
    for (uint32_t i = 0; i < gpus->n; i++) {
        uint32_t g = find_gpu(d, gpus->uuids[i]);
        if (g == 0) {
            daemon_log(LOG_WARNINGS, "more GPUs than tallyd can tell apart");
            return 0;
        }
        set |= UINT64_C(1) << g;
    }
    return set;
}

void daemon_use_gpus(struct daemon *d, struct daemon_peer *p, const struct tl_wire_gpus *gpus)
{
    uint64_t now = tl_clock_ns(), before = p->gpus, after = find_gpus(d, gpus);
    bool was_on[DAEMON_MAX_GPUS];
    assert(p->id != 0);
    for (uint32_t g = 0; g < DAEMON_MAX_GPUS; g++)
        was_on[g] = daemon_is_on(d, p, g);
    p->gpus = after;
    for (uint32_t g = 0; g < DAEMON_MAX_GPUS; g++) {
        bool is_on = daemon_is_on(d, p, g);
        if (is_on && !was_on[g] && tl_sched_join(d->gpus[g].sched, p->id, &p->c, now) < 0) {
            daemon_drop(d, p, "out of memory for its place");
            return;
        }
        if (was_on[g] && !is_on)
            tl_sched_leave(d->gpus[g].sched, p->id, now);
        else if (is_on && !was_on[g])
            tl_sched_backlog(d->gpus[g].sched, p->id, p->seen.has_backlog, now);
    }
    retire(d);
    p->published = UINT64_MAX;
    p->seen.memory_bytes = 0; /* policies that are new to it are told */
    if (after != before)
        daemon_log(LOG_DETAILS, "process %d (%s) uses %d GPUs", (int)p->who.pid, p->job,
                   __builtin_popcountll(after));
}

void daemon_gpus_of(const struct daemon *d, const struct daemon_peer *p, struct tl_wire_gpus *out)
{
    *out = (struct tl_wire_gpus){0};
    for (uint32_t g = 1; g < DAEMON_MAX_GPUS && out->n < TL_WIRE_GPUS; g++)
        if ((p->gpus >> g & 1) != 0)
            memcpy(out->uuids[out->n++], d->gpus[g].uuid, 16);
}

/* --- grants ----------------------------------------------------------------------------------- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Zero is no limit. */
static uint64_t tighter(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : less(a, b);
}

/* What both allow. */
static void restrict_by(struct tl_grant *g, const struct tl_grant *by)
{
    g->may_run &= by->may_run;
    g->yields |= by->yields;
    g->is_paged |= by->is_paged;
    if (by->finest < g->finest)
        g->finest = by->finest;
    g->turnaround_ns = less(g->turnaround_ns, by->turnaround_ns);
    if (by->hysteresis_ns > g->hysteresis_ns)
        g->hysteresis_ns = by->hysteresis_ns;
    g->run_ahead_ns = less(g->run_ahead_ns, by->run_ahead_ns);
    g->blocks_per_s = tighter(g->blocks_per_s, by->blocks_per_s);
    if (by->sm_permille < g->sm_permille)
        g->sm_permille = by->sm_permille;
    g->memory_bytes = tighter(g->memory_bytes, by->memory_bytes);
}

/* What the policies of its GPUs grant it. */
static struct tl_grant own_grant(const struct daemon *d, const struct daemon_peer *p,
                                 uint64_t *version)
{
    struct tl_grant all = {0};
    bool has_one = false;
    *version = 0;
    DAEMON_FOR_GPUS(d, p, g)
    {
        const struct tl_grant *grant = tl_sched_grant(d->gpus[g].sched, p->id);
        assert(grant != NULL); /* who is a client here is one of the policy */
        *version += tl_sched_version(d->gpus[g].sched, p->id);
        if (has_one)
            restrict_by(&all, grant);
        else
            all = *grant;
        has_one = true;
    }
    assert(has_one);
    return all;
}

static bool is_in_gang(const struct daemon_peer *p)
{
    return atomic_load_explicit(&p->page->is_in_gang, memory_order_relaxed) != 0;
}

/* Processes of one job whose kernels wait for each other. */
static bool are_gang(const struct daemon_peer *a, const struct daemon_peer *b)
{
    return a != b && a->who.uid == b->who.uid && a->c.level == b->c.level && is_in_gang(a) &&
           is_in_gang(b) && strcmp(a->job, b->job) == 0;
}

/* Of a gang all may run if one may: it might never come to the end of its turn, as its kernels wait
 * for those of the others. */
struct tl_grant daemon_grant(const struct daemon *d, const struct daemon_peer *p, uint64_t *version)
{
    uint64_t of_others;
    struct tl_grant grant = own_grant(d, p, version);
    for (uint32_t i = 0; i < d->n_clients && !p->c.is_paused && !grant.may_run; i++) {
        if (are_gang(p, d->clients[i]))
            grant.may_run = own_grant(d, d->clients[i], &of_others).may_run;
    }
    *version = 2 * *version + grant.may_run; /* the others decide nothing else */
    return grant;
}

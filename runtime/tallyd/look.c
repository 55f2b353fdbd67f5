/* Reads the clients' pages, tells the policy what happened, and publishes the grants that changed.
 *
 * That is the slow path: a kernel retreats because it sees a word, not because tallyd does.  So
 * tallyd looks every few milliseconds while clients compete, rarely while one works, and not at all
 * while nobody does or there is only one: then it sleeps, and asks to be woken (wants_kick) where
 * that matters.  Pages are written by others and may hold anything; each value is read once. */
#include "runtime/tallyd/tallyd.h"

#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define COMPETING_NS (2 * MS) /* between looks while several have work */
#define WORKING_NS (10 * MS)  /* while one has */
#define LINGER_NS                                                                                  \
    (100 *                                                                                         \
     MS) /* it stays awake after the last work, so that pauses between bursts cost no wake-up */
#define ASLEEP_NS (250 * MS) /* while none has, in case that one does not wake us */
#define MERGED_NS (MS / 5)   /* the same, if words are kept up to date here */
#define ALIVE_NS (500 * MS)  /* while somebody may not run: he looks whether we still live */
#define SHARE_NS (500 * MS)  /* over which shares are measured */
#define MOST_DEVICE_NS (1000 * MS * 60) /* believed of one look */
enum { MOST_ITERATIONS = 1000, RING = 64 };

/* How much a counter has grown.  One that went backwards is somebody's bad joke, and begins
 * anew. */
static uint64_t grown(uint64_t *seen, uint64_t value)
{
    uint64_t more = value > *seen ? value - *seen : 0;
    *seen = value;
    return more;
}

static uint64_t read_once(const _Atomic uint64_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void read_requests(struct daemon *d, struct daemon_peer *p, uint64_t now)
{
    uint64_t n = atomic_load_explicit(&p->page->n_requests, memory_order_acquire);
    uint64_t from = p->seen.requests;
    if (n < from || n - from > RING) /* the older ones are overwritten */
        from = n > RING ? n - RING : 0;
    for (uint64_t i = from; i < n; i++)
        DAEMON_FOR_GPUS(d, p, g)
    tl_sched_request(d->gpus[g].sched, p->id, read_once(&p->page->requests_ns[i % RING]), now);
    p->seen.requests = n;
}

/* What it will launch next, for policies that go by what fits together.  A launch since the last
 * look ends the operation that was told then, whether or not the next one looks the same. */
static void read_footprint(struct daemon *d, struct daemon_peer *p, bool has_launched, uint64_t now)
{
    const struct tl_client_page *page = p->page;
    struct tl_footprint next = {
        .duration_ns = read_once(&page->next_ns),
        .sm_permille = atomic_load_explicit(&page->next_sm_permille, memory_order_relaxed),
        .bandwidth_permille = atomic_load_explicit(&page->next_bandwidth_permille,
                                                   memory_order_relaxed),
        .memory_bytes = read_once(&page->next_memory_bytes),
    };
    next.sm_permille = next.sm_permille < 1000 ? next.sm_permille : 1000;
    next.bandwidth_permille = next.bandwidth_permille < 1000 ? next.bandwidth_permille : 1000;
    if (has_launched || memcmp(&next, &p->seen.next, sizeof next) != 0)
        DAEMON_FOR_GPUS(d, p, g)
    tl_sched_footprint(d->gpus[g].sched, p->id, &next, now);
    p->seen.next = next;
}

uint32_t daemon_share_of(const struct daemon_peer *p, uint64_t device_ns, uint64_t now)
{
    const struct daemon_seen *seen = &p->seen;
    uint64_t elapsed = now - seen->share_from_ns;
    if (elapsed < SHARE_NS)
        return seen->share_permille;
    uint64_t used = device_ns > seen->share_device_ns ? device_ns - seen->share_device_ns : 0;
    double share = (double)used * 1000 / (double)elapsed;
    return share < 1000 ? (uint32_t)share : 1000;
}

static void measure_share(struct daemon_peer *p, uint64_t device_ns, uint64_t now)
{
    struct daemon_seen *seen = &p->seen;
    if (now - seen->share_from_ns < SHARE_NS)
        return;
    seen->share_permille = daemon_share_of(p, device_ns, now);
    seen->share_from_ns = now;
    seen->share_device_ns = device_ns;
}

bool daemon_has_work(const struct daemon_peer *p)
{
    return atomic_load(&p->page->has_backlog) != 0 && !p->is_set_aside;
}

/* Reads one client's page and tells the policy what has changed since the last look. */
static void look_at(struct daemon *d, struct daemon_peer *p, uint64_t now)
{
    struct daemon_seen *seen = &p->seen;
    const struct tl_client_page *page = p->page;
    seen->has_backlog = daemon_has_work(p);
    DAEMON_FOR_GPUS(d, p, g)
    tl_sched_backlog(d->gpus[g].sched, p->id, seen->has_backlog, now);
    uint64_t device_ns = read_once(&page->device_ns), gap_ns = read_once(&page->gap_ns);
    struct tl_usage u = {
        .device_ns = grown(&seen->device_ns, device_ns),
        .blocks = grown(&seen->blocks, read_once(&page->blocks)),
        .launches = grown(&seen->launches, read_once(&page->launches)),
        .waited_ns = grown(&seen->waited_ns, read_once(&page->waited_ns)),
        .gap_ns = gap_ns,
        .is_off = atomic_load_explicit(&page->in_flight, memory_order_relaxed) == 0 &&
                  !tl_word_is_busy(read_once(&page->word)),
    };
    if (u.device_ns > MOST_DEVICE_NS)
        u.device_ns = MOST_DEVICE_NS;
    if (u.device_ns != 0 || u.blocks != 0 || u.launches != 0 || u.waited_ns != 0 ||
        gap_ns != seen->gap_ns || u.is_off != seen->is_off)
        DAEMON_FOR_GPUS(d, p, g)
    tl_sched_used(d->gpus[g].sched, p->id, &u, now);
    seen->gap_ns = gap_ns;
    seen->is_off = u.is_off;
    measure_share(p, device_ns, now);
    read_requests(d, p, now);
    uint64_t iterations = grown(&seen->iterations, read_once(&page->iterations));
    for (uint64_t i = 0; i < iterations && i < MOST_ITERATIONS; i++)
        DAEMON_FOR_GPUS(d, p, g)
    tl_sched_iteration(d->gpus[g].sched, p->id, now);
    /* What is not known to be ephemeral persists. */
    uint64_t memory = read_once(&page->memory_bytes), ephemeral = read_once(&page->ephemeral_bytes);
    uint64_t persistent = ephemeral != 0 ? read_once(&page->persistent_bytes) : memory;
    if (memory != seen->memory_bytes || ephemeral != seen->ephemeral_bytes)
        DAEMON_FOR_GPUS(d, p, g)
    tl_sched_memory(d->gpus[g].sched, p->id, persistent, ephemeral, now);
    seen->memory_bytes = memory;
    seen->ephemeral_bytes = ephemeral;
    read_footprint(d, p, u.launches != 0, now);
}

static void publish(struct daemon *d, struct daemon_peer *p, uint64_t now)
{
    uint64_t version;
    struct tl_grant grant = daemon_grant(d, p, &version);
    bool has_other_room = daemon_memory_grant(d, p, &grant);
    daemon_trees_publish(d, p);
    if (p->published != version || has_other_room || atomic_load(&p->grant->changed) == 0) {
        struct tl_share_grant g = {.grant = grant, .client = p->c};
        memcpy(g.policy, d->policy, sizeof g.policy);
        tl_share_publish(p->grant, &g);
        p->published = version;
    }
    atomic_store_explicit(&p->grant->alive_ns, now, memory_order_relaxed);
}

/* Says whether it is to be woken, then looks once more whether somebody has work: who has some now
 * stored that before it looked whether tallyd sleeps, so one of the two sees the other. */
static bool fall_asleep(struct daemon *d)
{
    bool has_work = false;
    for (uint32_t i = 0; i < d->n_clients; i++)
        atomic_store(&d->clients[i]->grant->wants_kick, 1);
    for (uint32_t i = 0; i < d->n_clients; i++)
        has_work |= daemon_has_work(d->clients[i]);
    return !has_work;
}

static void wake_up(struct daemon *d)
{
    for (uint32_t i = 0; i < d->n_clients; i++)
        if (atomic_load_explicit(&d->clients[i]->grant->wants_kick, memory_order_relaxed) != 0)
            atomic_store(&d->clients[i]->grant->wants_kick, 0);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t daemon_look(struct daemon *d, uint64_t now)
{
    uint32_t working = 0;
    bool is_held_back = false;
    daemon_gpus_learn(d);
    daemon_trees_sweep(d, now);
    daemon_look_for_stopped(d, now);
    for (uint32_t i = 0; i < d->n_clients; i++) {
        look_at(d, d->clients[i], now);
        working += d->clients[i]->seen.has_backlog;
    }
    uint64_t next = UINT64_MAX;
    for (uint32_t g = 0; g < DAEMON_MAX_GPUS; g++)
        if (d->gpus[g].sched != NULL)
            next = sooner(next, tl_sched_tick(d->gpus[g].sched, now));
    for (uint32_t i = 0; i < d->n_clients; i++) {
        struct daemon_peer *p = d->clients[i];
        publish(d, p, now);
        is_held_back |= !p->grant->grant.may_run && !p->c.is_paused;
    }
    bool has_merged = daemon_words_merge(d);
    if (working > 0)
        d->worked_ns = now;
    if (d->n_clients < 2) {
        wake_up(d);
    } else if (working > 0 || now - d->worked_ns < LINGER_NS || !fall_asleep(d)) {
        wake_up(d);
        next = sooner(next, now + (has_merged    ? MERGED_NS
                                   : working > 1 ? COMPETING_NS
                                                 : WORKING_NS));
    } else {
        next = sooner(next, now + ASLEEP_NS);
    }
    return is_held_back ? sooner(next, now + ALIVE_NS) : next;
}

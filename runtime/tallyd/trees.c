/* Trees of processes, and the device memory that they may hold.
 *
 * What one tally-run started shares a limit.  Such a tree has a ledger, a page that its processes
 * write (runtime/job/ledger.h): the first of them brings it, and the others are given it.  A tree
 * lives as long as one of its processes is a client; the ledger outlives tallyd, because each of
 * them brings it to the next one.
 *
 * The limit itself is kept by the processes.  What tallyd does: it clears the slots of the dead,
 * and tells everybody how much is kept free for others, and whose pages have to leave. */
#include "runtime/job/ledger.h"
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How long after a tree was first seen slots of processes that are no clients are left alone: they
 * may be on their way, from another tallyd. */
#define STRANGERS_NS (5 * TL_SECOND_NS)

struct daemon_tree {
    struct daemon_tree *next;
    uint8_t id[16]; /* zeroes: of one process that is in none */
    uid_t uid;
    int fd;
    struct tl_ledger_page *ledger;
    uint32_t members;
    uint64_t since_ns;
    uint64_t limit, request, soft;
};

static const uint8_t none[16];

static struct daemon_tree *find_tree(const struct daemon *d, const uint8_t id[16], uid_t uid)
{
    struct daemon_tree *t = d->trees;
    while (t != NULL &&
           (t->uid != uid || memcmp(t->id, none, 16) == 0 || memcmp(t->id, id, 16) != 0))
        t = t->next;
    return t;
}

/* A tree with the ledger that its first process brought; NULL if that is none. */
static struct daemon_tree *make(struct daemon *d, const struct daemon_peer *p, const uint8_t id[16],
                                int fd)
{
    struct tl_ledger_page *ledger = fd >= 0 ? tl_share_map(fd, true) : NULL;
    struct daemon_tree *t = ledger != NULL && tl_ledger_is(ledger) ? calloc(1, sizeof *t) : NULL;
    int kept = t != NULL ? dup(fd) : -1;
    if (kept < 0) {
        if (ledger != NULL)
            munmap(ledger, TL_SHARE_PAGE);
        free(t);
        return NULL;
    }
    memcpy(t->id, id, 16);
    t->uid = p->who.uid;
    t->fd = kept;
    t->ledger = ledger;
    t->since_ns = tl_clock_ns();
    t->limit = p->c.memory_limit;
    t->request = p->c.memory_request;
    t->soft = p->c.memory_soft;
    t->next = d->trees;
    d->trees = t;
    return t;
}

int daemon_tree_join(struct daemon *d, struct daemon_peer *p, const uint8_t id[16], int fd)
{
    struct daemon_tree *t = find_tree(d, id, p->who.uid);
    if (t == NULL)
        t = make(d, p, id, fd);
    if (t == NULL)
        return -1;
    t->members++;
    p->tree = t;
    daemon_tree_limits(t, &p->c);
    return t->fd;
}

void daemon_tree_leave(struct daemon *d, struct daemon_peer *p)
{
    struct daemon_tree *t = p->tree, **at = &d->trees;
    if (t == NULL)
        return;
    p->tree = NULL;
    tl_ledger_forget(t->ledger, p->page_number);
    if (--t->members > 0)
        return;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    munmap(t->ledger, TL_SHARE_PAGE);
    close(t->fd);
    free(t);
}

void daemon_tree_limits(const struct daemon_tree *t, struct tl_sched_client *c)
{
    if (t == NULL)
        return;
    c->memory_limit = t->limit;
    c->memory_request = t->request;
    c->memory_soft = t->soft;
}

void daemon_tree_set(struct daemon_tree *t, const struct tl_sched_client *c)
{
    if (t == NULL)
        return;
    t->limit = c->memory_limit;
    t->request = c->memory_request;
    t->soft = c->memory_soft;
}

uint64_t daemon_tree_held(const struct daemon_tree *t, const uint8_t uuid[16])
{
    return t != NULL ? tl_ledger_total(t->ledger, tl_ledger_gpu(uuid)) : 0;
}

/* --- the dead --------------------------------------------------------------------------------- */

static bool is_member(const struct daemon *d, const struct daemon_tree *t, uint64_t owner)
{
    for (uint32_t i = 0; i < d->n_clients; i++)
        if (d->clients[i]->tree == t && d->clients[i]->page_number == owner)
            return true;
    return false;
}

void daemon_trees_sweep(struct daemon *d, uint64_t now)
{
    for (struct daemon_tree *t = d->trees; t != NULL; t = t->next) {
        if (now < t->since_ns + STRANGERS_NS)
            continue;
        t->since_ns = now; /* and again so long after */
        for (uint32_t i = 0; i < TL_LEDGER_SLOTS; i++) {
            uint64_t owner = atomic_load(&t->ledger->slots[i].owner);
            if (owner != 0 && !is_member(d, t, owner))
                tl_ledger_forget(t->ledger, owner);
        }
    }
}

/* --- what is kept free ------------------------------------------------------------------------ */

/* Whether a tree uses a GPU, as its ledger tells: processes say where they work only when they do,
 * and memory comes before. */
static bool has_slot(const struct daemon_tree *t, uint64_t gpu)
{
    for (uint32_t i = 0; i < TL_LEDGER_SLOTS; i++)
        if (atomic_load(&t->ledger->slots[i].owner) != 0 &&
            (gpu == 0 || atomic_load(&t->ledger->slots[i].gpu) == gpu))
            return true;
    return false;
}

/* What a tree has been promised of a GPU and does not hold yet.  One that uses none so far may come
 * to this one. */
static uint64_t missing(const struct daemon_tree *t, uint64_t gpu)
{
    if (t->request == 0 || (!has_slot(t, gpu) && has_slot(t, 0)))
        return 0;
    uint64_t held = tl_ledger_total(t->ledger, gpu);
    return held < t->request ? t->request - held : 0;
}

/* What the others on a GPU miss. */
static uint64_t kept_from(const struct daemon *d, const struct daemon_peer *p, uint64_t gpu)
{
    uint64_t sum = 0;
    for (const struct daemon_tree *t = d->trees; t != NULL; t = t->next)
        if (t != p->tree)
            sum += missing(t, gpu);
    return sum;
}

/* The GPUs of which a tree holds something, at most so many. */
static uint32_t list_gpus(const struct daemon_tree *t, uint64_t gpus[TL_SHARE_KEPT])
{
    uint32_t n = 0;
    for (uint32_t i = 0; t != NULL && i < TL_LEDGER_SLOTS && n < TL_SHARE_KEPT; i++) {
        uint64_t gpu = atomic_load(&t->ledger->slots[i].gpu);
        uint32_t k = 0;
        while (k < n && gpus[k] != gpu)
            k++;
        if (k == n && gpu != 0)
            gpus[n++] = gpu;
    }
    return n;
}

void daemon_trees_publish(struct daemon *d, struct daemon_peer *p)
{
    uint64_t gpus[TL_SHARE_KEPT];
    bool has_requests = false;
    for (const struct daemon_tree *t = d->trees; t != NULL && !has_requests; t = t->next)
        has_requests = t->request != 0;
    if (!has_requests && !p->has_kept)
        return;
    p->has_kept = has_requests;
    uint32_t n = list_gpus(p->tree, gpus);
    for (uint32_t i = 0; i < TL_SHARE_KEPT; i++) {
        atomic_store(&p->grant->kept[i].bytes, i < n ? kept_from(d, p, gpus[i]) : 0);
        atomic_store(&p->grant->kept[i].gpu, i < n ? gpus[i] : 0);
    }
}

/* --- whose pages leave ------------------------------------------------------------------------ */

/* Whether the pages of `a` stay before those of `b`. */
static bool stays_before(const struct daemon_peer *a, const struct daemon_peer *b)
{
    return a->c.level != b->c.level ? a->c.level > b->c.level : a->id < b->id;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What others on its GPU need: all that they hold, but of those behind it that have a soft limit
 * only what they have up to that. */
static uint64_t needed_by_others(const struct daemon *d, const struct daemon_peer *p)
{
    uint64_t gpus[TL_SHARE_KEPT], sum = 0;
    for (uint32_t i = 0; i < d->n_clients; i++) {
        const struct daemon_peer *o = d->clients[i];
        if (o == p || !daemon_do_meet(o, p))
            continue;
        uint64_t soft = o->c.memory_soft, held = o->seen.memory_bytes;
        bool is_behind = soft != 0 && soft < held && !stays_before(o, p);
        sum += is_behind ? soft : held;
    }
    return list_gpus(p->tree, gpus) > 0 ? sum + kept_from(d, p, gpus[0]) : sum;
}

bool daemon_memory_grant(const struct daemon *d, struct daemon_peer *p, struct tl_grant *grant)
{
    uint64_t before = p->room_bytes, room = 0;
    if (p->c.memory_soft != 0) {
        uint32_t g = p->gpus != 0 ? (uint32_t)__builtin_ctzll(p->gpus) : 0;
        uint64_t all = d->gpus[g].memory_bytes, needed = needed_by_others(d, p);
        uint64_t spare = all / 16; /* so that others find some at once */
        room = all > needed + spare ? all - needed - spare : 0;
        room = larger(room, p->c.memory_soft);
        /* Steps, so that not every allocation of somebody wakes everybody. */
        room = larger(room / DAEMON_ROOM_STEP * DAEMON_ROOM_STEP, 1);
        grant->is_paged = true;
        grant->memory_bytes = grant->memory_bytes == 0 || room < grant->memory_bytes
                                  ? room
                                  : grant->memory_bytes;
    }
    p->room_bytes = room;
    return room != before;
}

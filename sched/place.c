/* Placement; see the header.
 *
 * Each rule has its own way to find a place soon.  Slurm takes the first: a bit per GPU says
 * whether it has a slot, another whether it has all.  Kubernetes looks at some nodes and scores
 * them: a count per node of what is free.  Ours looks for company: GPUs with one job stand in lists
 * by that job's level and load. */
#include "sched/place.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LOADS = 16, LISTS = 1 + 2 * LOADS, EMPTY_LIST = 0, NO_LIST = LISTS };

struct gpu {
    struct tl_place_job jobs[TL_PLACE_SLOTS];
    bool is_taken[TL_PLACE_SLOTS];
    uint32_t previous, next, list; /* of our rule */
};

struct tl_fleet {
    struct tl_fleet_options o;
    uint32_t slots, n_nodes;
    struct gpu *gpus;
    uint64_t *has_slot;  /* a bit per GPU */
    uint64_t *has_all;   /* likewise: nobody is there */
    uint32_t *node_free; /* free slots per node */
    uint32_t next_node;  /* where Kubernetes looks first */
    uint64_t random;
    uint32_t first[LISTS];
};

const char *const tl_placer_names[TL_PLACERS] = {
    [TL_PLACE_SLURM] = "slurm",           [TL_PLACE_SLURM_MPS] = "slurm-mps",
    [TL_PLACE_KUBERNETES] = "kubernetes", [TL_PLACE_REPLICAS] = "kubernetes-replicas",
    [TL_PLACE_TALLY] = "tally",
};

enum tl_placer tl_placer_of(const char *name)
{
    int i = 0;
    while (i < TL_PLACERS && strcmp(tl_placer_names[i], name) != 0)
        i++;
    return (enum tl_placer)i;
}

bool tl_placer_shares(enum tl_placer placer)
{
    return placer != TL_PLACE_SLURM && placer != TL_PLACE_KUBERNETES;
}

/* --- lists of GPUs by who is there alone ------------------------------------------------------ */

static uint32_t list_of(const struct tl_place_job *alone)
{
    if (alone == NULL)
        return EMPTY_LIST;
    double at = alone->load * LOADS;
    uint32_t step = at < 0 ? 0 : at >= LOADS ? LOADS - 1 : (uint32_t)at;
    return 1 + (alone->is_high ? 0 : LOADS) + step;
}

/* The list that a GPU belongs on. */
static uint32_t list_wanted(const struct gpu *g)
{
    if (g->is_taken[0] && g->is_taken[1])
        return NO_LIST;
    return list_of(g->is_taken[0] ? &g->jobs[0] : g->is_taken[1] ? &g->jobs[1] : NULL);
}

static void unlink_gpu(struct tl_fleet *f, uint32_t i)
{
    struct gpu *g = &f->gpus[i];
    if (g->list == NO_LIST)
        return;
    if (g->previous != TL_PLACE_NOWHERE)
        f->gpus[g->previous].next = g->next;
    else
        f->first[g->list] = g->next;
    if (g->next != TL_PLACE_NOWHERE)
        f->gpus[g->next].previous = g->previous;
    g->list = NO_LIST;
}

static void relink_gpu(struct tl_fleet *f, uint32_t i)
{
    struct gpu *g = &f->gpus[i];
    uint32_t list = list_wanted(g);
    if (list == g->list)
        return;
    unlink_gpu(f, i);
    if (list == NO_LIST)
        return;
    g->list = list;
    g->previous = TL_PLACE_NOWHERE;
    g->next = f->first[list];
    if (g->next != TL_PLACE_NOWHERE)
        f->gpus[g->next].previous = i;
    f->first[list] = i;
}

/* --- making and changing ---------------------------------------------------------------------- */

static uint32_t free_slots(const struct tl_fleet *f, uint32_t gpu)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < f->slots; s++)
        n += !f->gpus[gpu].is_taken[s];
    return n;
}

static void set_bit(uint64_t *bits, uint32_t i, bool is_set)
{
    uint64_t bit = UINT64_C(1) << i % 64;
    bits[i / 64] = is_set ? bits[i / 64] | bit : bits[i / 64] & ~bit;
}

/* What the rules look at, after somebody came or went. */
static void note_change(struct tl_fleet *f, uint32_t gpu)
{
    uint32_t n = free_slots(f, gpu);
    set_bit(f->has_slot, gpu, n > 0);
    set_bit(f->has_all, gpu, n == f->slots);
    relink_gpu(f, gpu);
}

int tl_fleet_create(struct tl_fleet **out, const struct tl_fleet_options *o, struct tl_error *err)
{
    *out = NULL;
    if (o->gpus == 0 || o->gpus >= TL_PLACE_NOWHERE / 2 || o->gpus_per_node == 0 ||
        o->placer >= TL_PLACERS)
        return tl_error_set(err, -EINVAL, "a fleet has at least one GPU, in nodes of at least one");
    struct tl_fleet *f = calloc(1, sizeof *f);
    if (f == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for a fleet");
    f->o = *o;
    f->slots = tl_placer_shares(o->placer) ? TL_PLACE_SLOTS : 1;
    f->n_nodes = (o->gpus - 1) / o->gpus_per_node + 1;
    f->random = o->seed;
    f->gpus = calloc(o->gpus, sizeof *f->gpus);
    f->has_slot = calloc(o->gpus / 64 + 1, sizeof *f->has_slot);
    f->has_all = calloc(o->gpus / 64 + 1, sizeof *f->has_all);
    f->node_free = calloc(f->n_nodes, sizeof *f->node_free);
    if (f->gpus == NULL || f->has_slot == NULL || f->has_all == NULL || f->node_free == NULL) {
        tl_fleet_destroy(f);
        return tl_error_set(err, -ENOMEM, "out of memory for a fleet of %u GPUs", o->gpus);
    }
    memset(f->first, 0xff, sizeof f->first);
    for (uint32_t i = o->gpus; i-- > 0;) { /* backwards: the first GPU stands first in its list */
        f->gpus[i].list = NO_LIST;
        f->node_free[i / o->gpus_per_node] += f->slots;
        note_change(f, i);
    }
    *out = f;
    return 0;
}

void tl_fleet_destroy(struct tl_fleet *f)
{
    if (f == NULL)
        return;
    free(f->gpus);
    free(f->has_slot);
    free(f->has_all);
    free(f->node_free);
    free(f);
}

struct tl_place tl_fleet_put_on(struct tl_fleet *f, uint32_t gpu, const struct tl_place_job *job)
{
    struct gpu *g = &f->gpus[gpu];
    uint32_t slot = 0;
    while (slot < f->slots && g->is_taken[slot])
        slot++;
    assert(slot < f->slots);
    g->jobs[slot] = *job;
    for (uint32_t i = slot; i < (job->is_whole ? f->slots : slot + 1); i++) {
        assert(!g->is_taken[i]);
        g->is_taken[i] = true;
        f->node_free[gpu / f->o.gpus_per_node]--;
    }
    note_change(f, gpu);
    return (struct tl_place){gpu, slot};
}

void tl_fleet_leave(struct tl_fleet *f, struct tl_place p)
{
    struct gpu *g = &f->gpus[p.gpu];
    assert(g->is_taken[p.slot]);
    for (uint32_t i = p.slot; i < (g->jobs[p.slot].is_whole ? f->slots : p.slot + 1); i++) {
        g->is_taken[i] = false;
        f->node_free[p.gpu / f->o.gpus_per_node]++;
    }
    note_change(f, p.gpu);
}

void tl_fleet_set_load(struct tl_fleet *f, struct tl_place p, double load)
{
    assert(f->gpus[p.gpu].is_taken[p.slot]);
    f->gpus[p.gpu].jobs[p.slot].load = load;
    relink_gpu(f, p.gpu);
}

const struct tl_place_job *tl_fleet_at(const struct tl_fleet *f, struct tl_place p)
{
    const struct gpu *g = &f->gpus[p.gpu];
    return p.slot < f->slots && g->is_taken[p.slot] ? &g->jobs[p.slot] : NULL;
}

/* --- the rules -------------------------------------------------------------------------------- */

/* Whether two may be neighbours under our rule. */
static bool go_together(const struct tl_fleet *f, const struct tl_place_job *a,
                        const struct tl_place_job *b)
{
    if (a->memory_mb + b->memory_mb > f->o.gpu_memory_mb || (a->is_high && b->is_high))
        return false;
    return a->is_high || b->is_high || a->load + b->load <= 1;
}

bool tl_fleet_fits(const struct tl_fleet *f, uint32_t gpu, const struct tl_place_job *job)
{
    const struct gpu *g = &f->gpus[gpu];
    if (free_slots(f, gpu) < (job->is_whole ? f->slots : 1))
        return false;
    if (f->o.placer != TL_PLACE_TALLY)
        return true;
    if (job->memory_mb > f->o.gpu_memory_mb)
        return false;
    for (uint32_t s = 0; s < f->slots; s++)
        if (g->is_taken[s] && !go_together(f, &g->jobs[s], job))
            return false;
    return true;
}

static uint32_t first_of(const struct tl_fleet *f, const uint64_t *bits)
{
    for (uint32_t w = 0; w <= f->o.gpus / 64; w++)
        if (bits[w] != 0)
            return w * 64 + (uint32_t)__builtin_ctzll(bits[w]);
    return TL_PLACE_NOWHERE;
}

/* Of a node that has room: the GPU that is shared by fewest, as NVIDIA's device plugin spreads
 * replicas.  (Nobody can ask it for all replicas of one GPU.) */
static uint32_t gpu_of_node(const struct tl_fleet *f, uint32_t node)
{
    uint32_t best = TL_PLACE_NOWHERE, most = 0, first = node * f->o.gpus_per_node;
    for (uint32_t i = first; i < f->o.gpus && i < first + f->o.gpus_per_node; i++)
        if (free_slots(f, i) > most) {
            most = free_slots(f, i);
            best = i;
        }
    return best;
}

/* How many nodes with room kube-scheduler looks for before it scores them: all of a small cluster,
 * a part of a large one that shrinks with its size (numFeasibleNodesToFind). */
static uint32_t nodes_to_find(uint32_t nodes)
{
    enum { LEAST_NODES = 100, LEAST_PERCENT = 5 };
    if (nodes < LEAST_NODES)
        return nodes;
    int64_t percent = 50 - (int64_t)nodes / 125;
    percent = percent < LEAST_PERCENT ? LEAST_PERCENT : percent;
    uint32_t n = (uint32_t)((uint64_t)nodes * (uint64_t)percent / 100);
    return n < LEAST_NODES ? LEAST_NODES : n;
}

/* Its score for spreading (LeastAllocated) counts processors and memory; pods that ask for those in
 * proportion to their GPUs make it what is free here.  Among equals it draws. */
static uint32_t most_free_node(struct tl_fleet *f)
{
    uint32_t wanted = nodes_to_find(f->n_nodes), found = 0, most = 0, equals = 0,
             best = TL_PLACE_NOWHERE, seen = 0;
    assert(f->n_nodes > 0);
    for (; seen < f->n_nodes && found < wanted; seen++) {
        uint32_t node = (f->next_node + seen) % f->n_nodes, room = f->node_free[node];
        if (room == 0)
            continue;
        found++;
        if (room < most)
            continue;
        equals = room > most ? 1 : equals + 1;
        most = room;
        f->random = f->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        if ((f->random >> 32) * equals >> 32 == 0) /* one time in `equals` */
            best = node;
    }
    f->next_node = (f->next_node + seen) % f->n_nodes;
    return best;
}

/* The first of the lists from `from` on that has a GPU for the job. */
static uint32_t search_lists(const struct tl_fleet *f, uint32_t from, uint32_t n,
                             const struct tl_place_job *job)
{
    for (uint32_t list = from; list < from + n; list++)
        for (uint32_t i = f->first[list]; i != TL_PLACE_NOWHERE; i = f->gpus[i].next)
            if (tl_fleet_fits(f, i, job))
                return i;
    return TL_PLACE_NOWHERE;
}

static uint32_t best_company(const struct tl_fleet *f, const struct tl_place_job *job)
{
    enum { WITH_HIGH = 1, WITH_LOW = 1 + LOADS };
    uint32_t gpu = search_lists(f, EMPTY_LIST, 1, job);
    if (gpu == TL_PLACE_NOWHERE && !job->is_high)
        gpu = search_lists(f, WITH_HIGH, LOADS, job);
    return gpu != TL_PLACE_NOWHERE ? gpu : search_lists(f, WITH_LOW, LOADS, job);
}

struct tl_place tl_fleet_put(struct tl_fleet *f, const struct tl_place_job *job)
{
    uint32_t gpu = TL_PLACE_NOWHERE;
    switch (f->o.placer) {
    case TL_PLACE_SLURM:
    case TL_PLACE_SLURM_MPS:
        gpu = first_of(f, job->is_whole ? f->has_all : f->has_slot);
        break;
    case TL_PLACE_KUBERNETES:
    case TL_PLACE_REPLICAS:
        gpu = most_free_node(f);
        if (gpu != TL_PLACE_NOWHERE)
            gpu = gpu_of_node(f, gpu);
        break;
    case TL_PLACE_TALLY:
    case TL_PLACERS:
        gpu = best_company(f, job);
        break;
    }
    return gpu == TL_PLACE_NOWHERE ? (struct tl_place){gpu, 0} : tl_fleet_put_on(f, gpu, job);
}

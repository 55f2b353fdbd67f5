/* Units: what a block in execution needs (memory, fibers with stacks), and which blocks it gets.
 *
 * A unit is made for the first block that needs one and kept for the kernels that come later; its
 * memory and its fibers only grow.  Blocks are claimed from the run in chunks that last about
 * CHUNK_NS, or one by one where blocks wait for each other. */
#include "device/exec/engine.h"
#include "tally/check.h"
#include "tally/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES                                                                                \
    ((size_t)256 << 10) /* for recursion and for what kernels call, besides their own frames */
#define MEMORY_GUARD ((size_t)64 << 10) /* on both sides of shared and local memory */
#define CHUNK_NS                                                                                   \
    50000 /* how long a claim should last: the grain of priorities and of time slices */

/* --- memory ----------------------------------------------------------------------------------- */

static void *map_guarded(size_t bytes)
{
    uint8_t *map = mmap(NULL, bytes + 2 * MEMORY_GUARD, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    if (mprotect(map + MEMORY_GUARD, bytes, PROT_READ | PROT_WRITE) < 0) {
        munmap(map, bytes + 2 * MEMORY_GUARD);
        return NULL;
    }
    return map + MEMORY_GUARD;
}

static void unmap_guarded(uint8_t *p, size_t bytes)
{
    if (p != NULL)
        munmap(p - MEMORY_GUARD, bytes + 2 * MEMORY_GUARD);
}

/* Makes `*p` at least `bytes` large; its contents are lost if it grows. */
static int ensure(uint8_t **p, size_t *have, size_t bytes)
{
    if (bytes <= *have)
        return 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t want = (bytes + page - 1) / page * page;
    uint8_t *fresh = map_guarded(want);
    if (fresh == NULL)
        return -ENOMEM;
    unmap_guarded(*p, *have);
    *p = fresh;
    *have = want;
    return 0;
}

static void destroy(struct tl__unit *u)
{
    for (uint32_t i = 0; i < u->n_made; i++) {
        tl__fiber_finish(u->fibers[i]);
        free(u->fibers[i]);
    }
    unmap_guarded(u->shared_map, u->shared_bytes);
    unmap_guarded(u->local_map, u->local_bytes);
    free(u);
}

/* --- claiming blocks -------------------------------------------------------------------------- */

/* Learns from the last claim how many blocks fill CHUNK_NS.  Halfway to the end of the grid, chunks
 * shrink so that all workers end together. */
static uint32_t chunk_size(struct tl__engine *e, struct tl_exec_run *run, uint64_t left)
{
    uint32_t chunk = atomic_load_explicit(&run->chunk, memory_order_relaxed); /* a hint only */
    uint64_t now = tl_clock_ns();
    if (e->claimed != 0 && e->claimed >= chunk) {
        uint64_t took = now - e->claimed_ns;
        uint64_t fitting = took == 0 ? (uint64_t)chunk * 4 : (uint64_t)e->claimed * CHUNK_NS / took;
        uint64_t limit = (uint64_t)chunk * 4;
        chunk = (uint32_t)(fitting < 1 ? 1 : fitting > limit ? limit : fitting);
        if (chunk > 1U << 20)
            chunk = 1U << 20;
        atomic_store_explicit(&run->chunk, chunk, memory_order_relaxed);
    }
    e->claimed_ns = now;
    uint64_t share = left / (2 * (uint64_t)e->env->n_slots) + 1;
    return chunk < share ? chunk : (uint32_t)share;
}

/* What waits in a loop may wait for a block that a unit of this very worker has claimed and not
 * begun. */
static bool take_over(struct tl__engine *e, struct tl__unit *u)
{
    for (struct tl__unit *v = e->units; v != NULL; v = v->next) {
        if (v->count > 0) {
            v->count--;
            u->first = v->first + v->count;
            u->count = 1;
            return true;
        }
    }
    return false;
}

bool tl__unit_claim(struct tl__engine *e, struct tl__unit *u)
{
    struct tl_exec_run *run = e->run;
    if (atomic_load_explicit(&run->stop, memory_order_relaxed))
        return false;
    if (u->count > 0 || (e->is_greedy && take_over(e, u)))
        return true;
    uint64_t next = atomic_load_explicit(&run->next_block, memory_order_relaxed);
    if (next >= run->total || (!e->is_greedy && e->env->must_stop(e, run)))
        return false;
    bool is_single = e->is_greedy || e->env->claims_singly ||
                     e->object->info->uses_grid_sync != 0 ||
                     atomic_load_explicit(&run->spins, memory_order_relaxed);
    uint32_t want = is_single ? 1 : chunk_size(e, run, run->total - next);
    /* Relaxed: what a block reads was published by the submission, which the worker has
     * synchronised with by the lock. */
    uint64_t first = atomic_fetch_add_explicit(&run->next_block, want, memory_order_relaxed);
    if (first >= run->total)
        return false;
    u->first = (uint32_t)first;
    u->count = run->total - first < want ? (uint32_t)(run->total - first) : want;
    e->claimed = u->count;
    if (first + want >= run->total)
        e->env->drained(e, run);
    return true;
}

void tl__unit_begin(struct tl__engine *e, struct tl__unit *u)
{
    const struct tl_exec_run *run = e->run;
    TL_CHECK(u->count > 0 && u->first < run->total);
    uint32_t n = u->first++;
    u->count--;
    uint32_t row = n / run->grid[0];
    u->frame.ctaid[0] = n - row * run->grid[0];
    u->frame.ctaid[2] = row / run->grid[1];
    u->frame.ctaid[1] = row - u->frame.ctaid[2] * run->grid[1];
    const struct tl_exec_object *o = e->object;
    for (uint32_t w = 0; w < o->n_warps; w++) {
        u->frame.exited[w] = 0;
        u->live[w] = UINT32_MAX;
        u->n_live[w] = TL_DEV_WARP;
    }
    u->live[o->n_warps - 1] = o->last_lanes;
    u->n_live[o->n_warps - 1] = (uint8_t)(o->n_threads - (o->n_warps - 1) * TL_DEV_WARP);
    u->live_threads = o->n_threads;
    u->live_fibers = o->n_fibers;
    while (u->active_barriers != 0) { /* left over: arrivals that nobody waited for */
        uint32_t id = (uint32_t)__builtin_ctz(u->active_barriers);
        memset(&u->barriers[id], 0, sizeof u->barriers[id]);
        u->active_barriers &= u->active_barriers - 1;
    }
}

/* --- making and dropping units ---------------------------------------------------------------- */

/* Stacks are backed by memory where they are touched, so large ones cost address space only; and
 * they stay for the kernels that come later.  A fiber of a unit that is not at work has nothing on
 * its stack, so it can be given another. */
static int give_larger_stack(struct tl__engine *e, struct tl__fiber *f, size_t stack_bytes)
{
    struct tl__fiber fresh;
    int rc = tl__fiber_init(&fresh, stack_bytes, e->n_stagger++, tl__engine_fiber);
    if (rc < 0)
        return rc;
    fresh.unit = f->unit;
    tl__fiber_finish(f);
    *f = fresh;
    tl__fiber_reset(f);
    return 0;
}

/* Gives a unit as many fibers as the kernel needs, with stacks that are large enough.  Made ones
 * are kept; what they ran before is forgotten if it was of the other kind. 0 or -ENOMEM. */
static int prepare_fibers(struct tl__engine *e, struct tl__unit *u, uint32_t n, size_t stack_bytes,
                          bool is_range, bool has_lanes)
{
    TL_CHECK(n > 0 && n <= TL_EXEC_MAX_FIBERS);
    for (uint32_t i = 0; i < n && i < u->n_made; i++) {
        int rc = tl__fiber_stack_bytes(u->fibers[i]) < stack_bytes
                     ? give_larger_stack(e, u->fibers[i], stack_bytes)
                     : 0;
        if (rc < 0)
            return rc;
    }
    for (; u->n_made < n; u->n_made++) {
        struct tl__fiber *f = calloc(1, sizeof *f);
        int rc = f != NULL ? tl__fiber_init(f, stack_bytes, e->n_stagger++, tl__engine_fiber)
                           : -ENOMEM;
        if (rc < 0) {
            free(f);
            return rc;
        }
        f->unit = u;
        u->fibers[u->n_made] = f;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct tl__fiber *f = u->fibers[i];
        f->warp = has_lanes ? i / TL_DEV_WARP : i;
        f->lanes = has_lanes ? 1U << i % TL_DEV_WARP : UINT32_MAX;
        f->argument = has_lanes ? f->warp | i % TL_DEV_WARP << 16 : i;
    }
    /* Fiber 0 is the only one that could be in the other loop. */
    if (u->is_range != is_range) {
        tl__fiber_reset(u->fibers[0]);
        u->is_range = is_range;
    }
    u->n_fibers = n;
    return 0;
}

int tl__unit_add(struct tl__engine *e, struct tl__unit **out)
{
    struct tl_exec_run *run = e->run;
    const struct tl_exec_object *o = e->object;
    *out = NULL;
    struct tl__unit *u = e->free_units;
    if (u == NULL) {
        u = calloc(1, sizeof *u);
        if (u == NULL)
            return -ENOMEM;
        u->engine = e;
    } else {
        e->free_units = u->next;
    }
    bool is_range = o->blocks != NULL;
    uint64_t shared = (uint64_t)o->info->shared_bytes + run->dynamic_shared_bytes;
    uint64_t local = (uint64_t)o->info->local_bytes * o->n_threads;
    int rc = ensure(&u->shared_map, &u->shared_bytes, shared);
    if (rc == 0)
        rc = ensure(&u->local_map, &u->local_bytes, local);
    if (rc == 0)
        rc = prepare_fibers(e, u, is_range ? 1 : o->n_fibers, STACK_BYTES + o->info->stack_bytes,
                            is_range, o->info->uses_lanes != 0);
    if (rc < 0 || !tl__unit_claim(e, u)) {
        u->next = e->free_units;
        e->free_units = u;
        return rc;
    }
    struct tl_dev_frame *f = &u->frame;
    f->calls = e->env->calls;
    f->params = run->params;
    f->shared = u->shared_map;
    f->local = u->local_map;
    f->variables = run->variables;
    memcpy(f->grid, run->grid, sizeof f->grid);
    f->dynamic_shared_bytes = run->dynamic_shared_bytes;
    f->smid = e->slot;
    f->nsmid = e->env->n_told;
    f->gridid = run->gridid;
    f->workspace = (uintptr_t)run->workspace;
    f->has_bus = e->env->is_host != NULL;
    u->reached_ns = 0;
    f->process = u;
    if (is_range)
        u->live_fibers = 1;
    else
        tl__unit_begin(e, u);
    TL_CHECK(u->n_fibers > 0 && u->n_fibers <= u->n_made && u->live_fibers <= u->n_fibers);
    for (uint32_t w = 0; w < u->n_fibers; w++)
        tl__ready_push(e, u->fibers[w]);
    u->next = e->units;
    e->units = u;
    e->n_units++;
    *out = u;
    return 0;
}

bool tl__units_collect(struct tl__engine *e)
{
    for (struct tl__unit **p = &e->units; *p != NULL;) {
        struct tl__unit *u = *p;
        if (u->live_fibers > 0) {
            p = &u->next;
            continue;
        }
        *p = u->next;
        u->next = e->free_units;
        e->free_units = u;
        TL_CHECK(e->n_units > 0);
        e->n_units--;
    }
    TL_CHECK((e->units == NULL) == (e->n_units == 0));
    return e->units != NULL;
}

void tl__units_drop(struct tl__engine *e)
{
    e->first = NULL;
    e->n_ready = 0;
    for (struct tl__unit *u = e->units; u != NULL; u = u->next) {
        for (uint32_t i = 0; i < u->n_made; i++)
            tl__fiber_reset(u->fibers[i]);
        memset(u->barriers, 0, sizeof u->barriers);
        u->active_barriers = 0;
        u->count = 0;
        u->live_fibers = 0;
    }
    tl__units_collect(e);
}

void tl__units_finish(struct tl__engine *e)
{
    while (e->free_units != NULL) {
        struct tl__unit *u = e->free_units;
        e->free_units = u->next;
        destroy(u);
    }
}

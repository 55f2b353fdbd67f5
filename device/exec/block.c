/* Blocks on one worker: the engine that runs warps as fibers, their barriers, and what to do when
 * all of them wait.
 *
 * Everything runs on fibers.  A kernel whose warps never wait for each other gets one fiber that is
 * given ranges of blocks; any other gets one fiber per warp, and a fiber that has finished its warp
 * stays where it is until the unit has its next block.  Fibers switch directly to each other; the
 * thread's own stack, `main`, is entered when nothing is ready, after a fault, and when all fibers
 * merely spin.  In that last case they wait for something outside: another worker's block, or a
 * block that nobody has begun (grid-wide synchronisation), so main begins another block beside them
 * if there is one.  What was begun is never put aside, so all blocks that were begun run; that is
 * all that a GPU promises for resident blocks. */
#include "device/exec/internal.h"
#include "tally/check.h"
#include "tally/clock.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BYTES                                                                                \
    ((size_t)256 << 10) /* for recursion and for what kernels call, besides their own frames */
#define MEMORY_GUARD ((size_t)64 << 10) /* on both sides of shared and local memory */
#define CHUNK_NS                                                                                   \
    50000 /* how long a claim should last: the grain of priorities and of time slices */
#define IDLE_YIELDS 64 /* rounds of mere spinning before main is asked for another block */

static const uint32_t default_mxcsr = 0x1f80;

/* --- ready fibers ----------------------------------------------------------------------------- */

static inline void push_ready(struct tl__engine *e, struct tl__fiber *f)
{
    f->next = NULL;
    if (e->first == NULL)
        e->first = f;
    else
        e->last->next = f;
    e->last = f;
    e->n_ready++;
}

static inline struct tl__fiber *pop_ready(struct tl__engine *e)
{
    struct tl__fiber *f = e->first;
    if (f != NULL) {
        e->first = f->next;
        e->n_ready--;
    }
    return f;
}

/* Leaves the current fiber for the next one that is ready, or for main. */
static inline void run_next(struct tl__engine *e)
{
    struct tl__fiber *self = e->current, *next = pop_ready(e);
    if (next == self)
        return;
    e->current = next;
    if (next == NULL) {
        e->in_kernel = 0;
        next = &e->main;
    }
#if TL_EXEC_ASAN || TL_EXEC_TSAN
    tl__fiber_switch(self, next);
#else
    tl__fiber_hop(self, next);
#endif
}

/* --- faults ----------------------------------------------------------------------------------- */

struct tl__engine *tl__engine_of(struct tl_dev_frame *f)
{
    return ((struct tl__unit *)f->process)->engine;
}

const char *tl_exec_fault_name(uint32_t what)
{
    static const char *const names[] = {
        [TL_DEV_FAULT_NONE] = "nothing",
        [TL_DEV_FAULT_TRAP] = "a trap",
        [TL_DEV_FAULT_ASSERT] = "a failed assertion",
        [TL_DEV_FAULT_MISALIGNED] = "a misaligned address",
        [TL_DEV_FAULT_ADDRESS] = "an illegal address",
        [TL_DEV_FAULT_STACK] = "a stack overflow",
        [TL_DEV_FAULT_TIMEOUT] = "the watchdog or a cancellation",
        [TL_DEV_FAULT_LANE_WRAP] = "index arithmetic that wrapped inside a warp",
        [TL_DEV_FAULT_DIVERGED_SYNC] = "a warp-wide operation whose lanes are elsewhere",
        [TL_DEV_FAULT_BARRIER] = "a barrier number or count out of range",
        [TL_DEV_FAULT_DEADLOCK] = "a deadlock of all warps of a block",
    };
    return what < sizeof names / sizeof *names ? names[what] : "an unknown fault";
}

/* Only what is safe in a signal handler on a fiber's or the alternate stack: glibc's vsnprintf is
 * for integers and strings. */
__attribute__((no_sanitize_address)) static void record(struct tl__engine *e, struct tl__fiber *at,
                                                        uint32_t warp, uint32_t what,
                                                        uint64_t detail, const char *format,
                                                        va_list args)
{
    struct tl_exec_fault *fault = &e->fault;
    memset(fault, 0, sizeof *fault);
    fault->what = what;
    fault->warp = warp;
    fault->detail = detail;
    int n = snprintf(fault->text, sizeof fault->text,
                     "kernel %.100s: ", e->run != NULL ? e->run->object->info->text : "(none)");
    if (at != NULL && at->unit != NULL) {
        memcpy(fault->ctaid, at->unit->frame.ctaid, sizeof fault->ctaid);
        n += snprintf(fault->text + n, sizeof fault->text - (size_t)n,
                      "block (%u, %u, %u), warp %u: ", fault->ctaid[0], fault->ctaid[1],
                      fault->ctaid[2], warp);
    }
    if (format != NULL)
        vsnprintf(fault->text + n, sizeof fault->text - (size_t)n, format, args);
    else
        snprintf(fault->text + n, sizeof fault->text - (size_t)n, "%s", tl_exec_fault_name(what));
}

static void record_here(struct tl__engine *e, struct tl__fiber *at, uint32_t what,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
static void record_here(struct tl__engine *e, struct tl__fiber *at, uint32_t what,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    record(e, at, at != NULL ? at->warp : 0, what, 0, format, args);
    va_end(args);
}

__attribute__((no_sanitize_address)) void tl__engine_fault(struct tl__engine *e, uint32_t warp,
                                                           uint32_t what, uint64_t detail,
                                                           const char *format, ...)
{
    e->in_kernel = 0;
    va_list args;
    va_start(args, format);
    record(e, e->current, warp, what, detail, format, args);
    va_end(args);
    e->current = NULL;
    tl__fiber_leave(&e->main);
}

__attribute__((no_sanitize_address)) void tl__engine_die(struct tl__engine *e)
{
    tl__engine_fault(e, e->current != NULL ? e->current->warp : 0, TL_DEV_FAULT_TIMEOUT, 0, NULL);
}

/* --- units: memory and fibers ----------------------------------------------------------------- */

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

static void destroy_unit(struct tl__unit *u)
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

/* The next blocks for `u`, unless there are none or this worker should do something else. */
static bool claim(struct tl__engine *e, struct tl__unit *u)
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
                     run->object->info->uses_grid_sync != 0 ||
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

/* Takes one claimed block and makes the frame say so. */
static void begin_block(struct tl__engine *e, struct tl__unit *u)
{
    const struct tl_exec_run *run = e->run;
    TL_CHECK(u->count > 0 && u->first < run->total);
    uint32_t n = u->first++;
    u->count--;
    uint32_t row = n / run->grid[0];
    u->frame.ctaid[0] = n - row * run->grid[0];
    u->frame.ctaid[2] = row / run->grid[1];
    u->frame.ctaid[1] = row - u->frame.ctaid[2] * run->grid[1];
    const struct tl_exec_object *o = run->object;
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

/* --- barriers --------------------------------------------------------------------------------- */

static bool is_complete(const struct tl__unit *u, const struct tl__barrier *b)
{
    return b->n >= (b->expected != 0 ? b->expected : u->live_threads);
}

/* Lets everybody go; the last to come, if it is somebody, goes on by itself. */
static inline void release(struct tl__engine *e, struct tl__unit *u, struct tl__barrier *b,
                           uint32_t id)
{
    e->idle_yields = 0;
    if (b->first != NULL) {
        if (e->first == NULL)
            e->first = b->first;
        else
            e->last->next = b->first;
        e->last = b->last;
        e->n_ready += b->n_waiting;
        b->n_waiting = 0;
        b->first = NULL;
    }
    b->n = 0;
    u->active_barriers &= ~(1U << id);
}

/* The same for any barrier. */
static void complete(struct tl__engine *e, struct tl__unit *u, uint32_t id)
{
    struct tl__barrier *b = &u->barriers[id];
    if (b->has_votes) {
        for (struct tl__fiber *f = b->first; f != NULL;
             f = f->next) /* each takes what it asked for */
            f->result = f->result == 2 ? b->popc : f->result == 3 ? b->all : b->any;
        b->has_votes = false;
    }
    if (b->has_masks) {
        b->has_masks = false;
        b->filled = 0;
        memset(b->arrived, 0, sizeof b->arrived);
    }
    b->expected = 0;
    b->is_special = false;
    release(e, u, b, id);
}

/* Waits at a barrier until somebody lets this fiber go. */
static inline __attribute__((always_inline)) void
wait_at(struct tl__engine *e, struct tl__barrier *b, uint32_t lanes, uint32_t kind)
{
    struct tl__fiber *self = e->current;
    self->waiting = lanes;
    self->result = kind;
    self->next = NULL;
    if (b->first == NULL)
        b->first = self;
    else
        b->last->next = self;
    b->last = self;
    b->n_waiting++;
    run_next(e);
    tl__engine_leave_call(e);
}

/* A warp that comes in parts, or only arrives: remember who, because they may exit or be followed
 * by their neighbours. Counts are in threads but rounded up to warps: once all living lanes of a
 * warp are here, its missing ones count too, as they do on hardware. */
static void arrive_in_part(struct tl__unit *u, struct tl__barrier *b, uint32_t warp, uint32_t lanes)
{
    b->has_masks = b->is_special = true;
    b->arrived[warp] |= lanes;
    b->n += (uint32_t)__builtin_popcount(lanes);
    if (b->expected != 0 && (u->live[warp] & ~b->arrived[warp]) == 0 &&
        (b->filled >> warp & 1) == 0) {
        b->filled |= 1U << warp;
        b->n += (uint32_t)__builtin_popcount(~b->arrived[warp]);
    }
}

/* Lanes of `warp` may have exited since we looked: barriers for all threads expect fewer now. */
static void note_exits(struct tl__engine *e, struct tl__unit *u, uint32_t warp)
{
    uint32_t gone = u->live[warp] & u->frame.exited[warp];
    if (gone == 0)
        return;
    u->live[warp] &= ~gone;
    u->n_live[warp] = (uint8_t)__builtin_popcount(u->live[warp]);
    u->live_threads -= (uint32_t)__builtin_popcount(gone);
    for (uint32_t left = u->active_barriers; left != 0; left &= left - 1) {
        uint32_t id = (uint32_t)__builtin_ctz(left);
        struct tl__barrier *b = &u->barriers[id];
        if (b->has_masks && b->expected == 0)
            b->n -= (uint32_t)__builtin_popcount(b->arrived[warp] & gone);
        else if (b->has_masks && b->arrived[warp] != 0)
            arrive_in_part(u, b, warp, 0);
        if (b->n > 0 && is_complete(u, b))
            complete(e, u, id);
    }
}

/* A barrier in all its forms: parts of a warp, counts, reductions, arrivals that do not wait.
 * Returns what the reduction gives, 0 without one.  What the kernel got wrong is a fault. */
static __attribute__((noinline)) uint32_t any_barrier(struct tl__unit *u, uint32_t warp,
                                                      uint32_t kind, uint32_t id, uint32_t count,
                                                      uint32_t arriving, uint32_t votes)
{
    struct tl__engine *e = u->engine;
    if (id >= TL_EXEC_BARRIERS || kind > 4 || count > 1024 || warp >= TL_EXEC_MAX_WARPS)
        tl__engine_fault(e, warp, TL_DEV_FAULT_BARRIER, id,
                         "barrier %u for %u threads, operation %u: out of range", id, count, kind);
    note_exits(e, u, warp);
    struct tl__barrier *b = &u->barriers[id];
    if ((u->active_barriers >> id & 1) == 0) {
        u->active_barriers |= 1U << id;
        b->expected = count;
        b->is_special = count != 0;
    } else if (b->expected != count) {
        tl__engine_fault(e, warp, TL_DEV_FAULT_BARRIER, id,
                         "barrier %u is waited at for %u threads and for %u", id, b->expected,
                         count);
    }
    if (kind >= 2) {
        if (!b->has_votes) {
            b->has_votes = b->is_special = true;
            b->popc = b->any = 0;
            b->all = 1;
        }
        b->popc += (uint32_t)__builtin_popcount(votes & arriving);
        b->all &= (votes & arriving) == arriving;
        b->any |= (votes & arriving) != 0;
    }
    if (arriving == u->live[warp] && kind != 1)
        b->n += count != 0 ? TL_DEV_WARP : u->n_live[warp];
    else
        arrive_in_part(u, b, warp, arriving);
    uint32_t result = 0;
    if (is_complete(u, b)) {
        result = kind == 2 ? b->popc : kind == 3 ? b->all : b->any;
        complete(e, u, id);
    } else if (kind != 1) {
        struct tl__fiber *self = e->current;
        wait_at(e, b, arriving, kind);
        result = self->result;
    }
    return kind >= 2 ? result : 0;
}

/* Barriers are the kernel's code as far as signals are concerned (in_kernel stays set): they hold
 * nothing, and a signal that ends the block throws away all that they might leave half done.  Only
 * main is not to be interrupted; see run_next. */
uint32_t tl__call_barrier(struct tl_dev_frame *f, uint32_t warp, uint32_t kind, uint32_t id,
                          uint32_t count, uint32_t arriving, uint32_t votes)
{
    struct tl__unit *u = f->process;
    uint32_t w = warp % TL_EXEC_MAX_WARPS, live = u->live[w];
    struct tl__barrier *b = &u->barriers[id % TL_EXEC_BARRIERS];
    /* The usual one: a whole warp at a barrier of the whole block. */
    bool is_usual = (kind | count) == 0 &&
                    ((warp / TL_EXEC_MAX_WARPS) | (id / TL_EXEC_BARRIERS)) == 0 &&
                    arriving == live && (f->exited[w] & live) == 0 && !b->is_special;
    if (__builtin_expect(!is_usual, 0))
        return any_barrier(u, warp, kind, id, count, arriving, votes);
    struct tl__engine *e = u->engine;
    uint32_t n = b->n + u->n_live[w];
    if (n >= u->live_threads) {
        release(e, u, b, id);
    } else {
        b->n = n;
        u->active_barriers |= 1U << id;
        wait_at(e, b, arriving, 0);
    }
    return 0;
}

void tl__call_yield(struct tl_dev_frame *f, uint32_t warp)
{
    struct tl__unit *u = f->process;
    struct tl__engine *e = u->engine;
    (void)warp;
    if (++e->idle_yields >= IDLE_YIELDS * (e->n_ready + 1)) {
        tl__engine_enter_call(e);
        e->idle_yields = 0;
        e->wants_more = true;
        struct tl__fiber *self = e->current;
        push_ready(e, self);
        e->current = NULL;
        tl__fiber_switch(self, &e->main);
    } else if (e->first != NULL) {
        push_ready(e, e->current);
        run_next(e);
    } else {
        __builtin_ia32_pause();
    }
    tl__engine_leave_call(e);
}

/* --- what fibers do --------------------------------------------------------------------------- */

/* A warp's life: one block after the other, as long as the unit gets any. */
static void warp_main(struct tl__fiber *self)
{
    struct tl__unit *u = self->unit;
    struct tl__engine *e = u->engine;
    for (;;) {
        const struct tl_exec_object *o = e->run->object;
        tl__engine_leave_call(e);
        o->warp(&u->frame, self->argument);
        tl__engine_enter_call(e);
        e->idle_yields = 0;
        u->frame.exited[self->warp] |= self->lanes;
        note_exits(e, u, self->warp);
        TL_CHECK(u->live_fibers > 0 && u->live_fibers <= u->n_fibers);
        if (--u->live_fibers > 0) {
            run_next(e);
        } else if (claim(e, u)) {
            begin_block(e, u);
            for (uint32_t w = 0; w < u->n_fibers; w++) {
                if (u->fibers[w] != self)
                    push_ready(e, u->fibers[w]);
            }
        } else {
            run_next(e); /* the unit is done; it may be given a block again at any time */
        }
    }
}

/* A kernel without barriers: ranges of blocks. */
static void range_main(struct tl__fiber *self)
{
    struct tl__unit *u = self->unit;
    struct tl__engine *e = u->engine;
    for (;;) {
        const struct tl_exec_object *o = e->run->object;
        while (u->count > 0) {
            uint32_t first = u->first, count = u->count;
            u->count = 0;
            tl__engine_leave_call(e);
            o->blocks(&u->frame, first, count);
            tl__engine_enter_call(e);
            e->idle_yields = 0;
            claim(e, u);
        }
        u->live_fibers = 0;
        run_next(e);
    }
}

static void fiber_main(struct tl__fiber *self)
{
    /* A unit serves kernels of both kinds in turn; fibers are reset when the kind changes. */
    if (self->unit->engine->run->object->blocks != NULL)
        range_main(self);
    else
        warp_main(self);
}

/* --- setting up ------------------------------------------------------------------------------- */

/* Stacks are backed by memory where they are touched, so large ones cost address space only; and
 * they stay for the kernels that come later.  A fiber of a unit that is not at work has nothing on
 * its stack, so it can be given another. */
static int give_larger_stack(struct tl__engine *e, struct tl__fiber *f, size_t stack_bytes)
{
    struct tl__fiber fresh;
    int rc = tl__fiber_init(&fresh, stack_bytes, e->n_stagger++, fiber_main);
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
        int rc = f != NULL ? tl__fiber_init(f, stack_bytes, e->n_stagger++, fiber_main) : -ENOMEM;
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

/* A unit fit for the run, with blocks claimed for it; NULL and 0 if there are none, or -ENOMEM. */
static int add_unit(struct tl__engine *e, struct tl__unit **out)
{
    struct tl_exec_run *run = e->run;
    const struct tl_exec_object *o = run->object;
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
    if (rc < 0 || !claim(e, u)) {
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
    f->nsmid = e->env->n_slots;
    f->gridid = run->gridid;
    f->workspace = (uintptr_t)run->workspace;
    f->process = u;
    if (is_range)
        u->live_fibers = 1;
    else
        begin_block(e, u);
    TL_CHECK(u->n_fibers > 0 && u->n_fibers <= u->n_made && u->live_fibers <= u->n_fibers);
    for (uint32_t w = 0; w < u->n_fibers; w++)
        push_ready(e, u->fibers[w]);
    u->next = e->units;
    e->units = u;
    e->n_units++;
    *out = u;
    return 0;
}

/* Puts units that are done aside.  False if none is left. */
static bool collect_units(struct tl__engine *e)
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

/* After a fault: nothing of what was begun goes on. */
static void drop_units(struct tl__engine *e)
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
    collect_units(e);
}

/* All warps of all units wait at barriers.  Lanes may have exited without our notice; if that moves
 * nobody, it is a fault. */
static bool is_deadlock(struct tl__engine *e)
{
    struct tl__fiber *stuck = NULL, *split = NULL;
    for (struct tl__unit *u = e->units; u != NULL; u = u->next) {
        for (uint32_t w = 0; w < e->run->object->n_warps; w++)
            note_exits(e, u, w);
        for (uint32_t left = u->active_barriers; left != 0; left &= left - 1) {
            for (struct tl__fiber *f = u->barriers[__builtin_ctz(left)].first; f != NULL;
                 f = f->next) {
                stuck = f;
                if (f->waiting != (u->live[f->warp] & f->lanes))
                    split = f;
            }
        }
    }
    if (e->first != NULL)
        return false;
    if (split != NULL)
        record_here(e, split, TL_DEV_FAULT_DIVERGED_SYNC,
                    "lanes %08x wait at a barrier for lanes of their own warp (%08x live)",
                    split->waiting, split->unit->live[split->warp]);
    else
        record_here(e, stuck, TL_DEV_FAULT_DEADLOCK,
                    "all warps wait at barriers that nobody will come to");
    return true;
}

/* What is wanted of main when all fibers spin: another block if there is one, else time for others
 * on this core. */
static int add_while_spinning(struct tl__engine *e)
{
    struct tl__unit *u = NULL;
    int rc = 0;
    atomic_store_explicit(&e->run->spins, true, memory_order_relaxed);
    if (e->n_units < e->env->max_units) {
        e->is_greedy = true;
        rc = add_unit(e, &u);
        e->is_greedy = false;
    }
    if (u == NULL)
        sched_yield();
    return rc;
}

/* Main's loop: runs whatever fiber is ready until no unit has anything left, and begins more
 * blocks when all of them spin. */
int tl__engine_run(struct tl__engine *e, struct tl_exec_run *run)
{
    struct tl__unit *u;
    TL_CHECK(e->run == NULL && e->units == NULL && e->first == NULL && e->current == NULL);
    e->must_die = 0; /* before `run`: a signal that comes for it from here on counts */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    e->run = run;
    e->fault.what = TL_DEV_FAULT_NONE;
    e->claimed = 0;
    e->wants_more = false;
    e->idle_yields = 0;
    uint32_t mxcsr = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(default_mxcsr);
    int rc = add_unit(e, &u);
    while (rc == 0 && collect_units(e)) {
        struct tl__fiber *f = pop_ready(e);
        if (f != NULL) {
            e->current = f;
            tl__fiber_switch(&e->main, f);
        } else if (is_deadlock(e)) {
            rc = -EFAULT;
            break;
        }
        if (e->fault.what != TL_DEV_FAULT_NONE)
            rc = -EFAULT;
        else if (e->wants_more) {
            e->wants_more = false;
            rc = add_while_spinning(e);
        }
    }
    __builtin_ia32_ldmxcsr(mxcsr);
    if (rc == -ENOMEM && e->fault.what == TL_DEV_FAULT_NONE)
        record_here(e, NULL, TL_DEV_FAULT_STACK,
                    "no memory for a block's stacks, shared or local memory");
    if (rc < 0)
        drop_units(e);
    e->run = NULL;
    return rc;
}

int tl__engine_init(struct tl__engine *e, struct tl__exec_env *env)
{
    memset(e, 0, sizeof *e);
    e->env = env;
    tl__fiber_init_thread(&e->main);
    return 0;
}

void tl__engine_finish(struct tl__engine *e)
{
    TL_CHECK(e->run == NULL && e->units == NULL);
    while (e->free_units != NULL) {
        struct tl__unit *u = e->free_units;
        e->free_units = u->next;
        destroy_unit(u);
    }
    tl_buf_finish(&e->scratch);
    tl__fiber_finish_thread(&e->main);
}

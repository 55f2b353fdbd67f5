/* Barriers of a block, in all the forms that PTX has, and yields: how a fiber waits for others of
 * its worker.
 *
 * A barrier counts threads.  The usual one, a whole warp at a barrier of the whole block, is
 * counted without a look at lanes; whatever else comes to it (parts of a warp, counts, votes,
 * arrivals that do not wait) makes it `is_special` until it is complete.  Lanes that exit lower
 * what a barrier of all threads expects. */
#include "device/exec/engine.h"
#include "tally/clock.h"

#include <string.h>
#include <time.h>

#define IDLE_YIELDS 64 /* rounds of mere spinning before main is asked for another block */
#define LONG_YIELDS                                                                                \
    4096 /* yields with barriers in between, which may be work as well as spinning */

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
    tl__ready_run_next(e);
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

void tl__barrier_note_exits(struct tl__engine *e, struct tl__unit *u, uint32_t warp)
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
    tl__barrier_note_exits(e, u, warp);
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
 * main is not to be interrupted; see tl__ready_run_next. */
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
    if (++e->idle_yields >= IDLE_YIELDS * (e->n_ready + 1) || ++e->long_yields >= LONG_YIELDS) {
        tl__engine_enter_call(e);
        e->idle_yields = 0;
        e->long_yields = 0;
        e->wants_more = true;
        struct tl__fiber *self = e->current;
        tl__ready_push(e, self);
        e->current = NULL;
        tl__fiber_switch(self, &e->main);
    } else if (e->first != NULL) {
        tl__ready_push(e, e->current);
        tl__ready_run_next(e);
    } else {
        __builtin_ia32_pause();
    }
    tl__engine_leave_call(e);
}

/* At most a millisecond, as PTX has it.  The processor is left alone while nothing else can run on
 * the SM, in steps after which somebody may be there. */
void tl__call_sleep(struct tl_dev_frame *f, uint32_t warp, uint32_t ns)
{
    enum { MOST_NS = 1000000, STEP_NS = 100000, SLACK_NS = 60000 };
    const struct tl__unit *u = f->process;
    uint64_t now = tl_clock_ns(), end = now + (ns < MOST_NS ? ns : MOST_NS);
    do {
        tl__call_yield(f, warp);
        struct tl__engine *e = u->engine; /* it may be another one now */
        now = tl_clock_ns();
        if (now + STEP_NS + SLACK_NS < end && e->first == NULL) {
            tl__engine_enter_call(e);
            nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
            tl__engine_leave_call(e);
            now = tl_clock_ns();
        }
    } while (now < end);
}

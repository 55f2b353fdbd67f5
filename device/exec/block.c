/* Blocks on one worker: the engine that runs warps as fibers, and what to do when all of them wait.
 * What a block needs and which ones are begun is in unit.c, how fibers wait in barrier.c.
 *
 * Everything runs on fibers.  A kernel whose warps never wait for each other gets one fiber that is
 * given ranges of blocks; any other gets one fiber per warp, and a fiber that has finished its warp
 * stays where it is until the unit has its next block.  Fibers switch directly to each other; the
 * thread's own stack, `main`, is entered when nothing is ready, after a fault, and when all fibers
 * merely spin.  In that last case they wait for something outside: another worker's block, or a
 * block that nobody has begun (grid-wide synchronisation), so main begins another block beside them
 * if there is one.  What was begun is never put aside, so all blocks that were begun run; that is
 * all that a GPU promises for resident blocks. */
#include "device/exec/engine.h"
#include "tally/check.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* rounds of main in which all fibers only spin and nothing can be begun, before others get the SM:
 * some hundred microseconds */
#define FUTILE_ROUNDS 64

static const uint32_t default_mxcsr = 0x1f80;

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
        [TL_DEV_FAULT_TENSOR] = "a tensor map that cannot be used",
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
                     "kernel %.100s: ", e->run != NULL ? e->object->info->text : "(none)");
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

/* --- what fibers do --------------------------------------------------------------------------- */

/* A warp's life: one block after the other, as long as the unit gets any. */
static void warp_main(struct tl__fiber *self)
{
    struct tl__unit *u = self->unit;
    struct tl__engine *e = u->engine;
    for (;;) {
        const struct tl_exec_object *o = e->object;
        tl__engine_leave_call(e);
        o->warp(&u->frame, self->argument);
        tl__engine_enter_call(e);
        e->idle_yields = 0;
        e->long_yields = 0;
        u->frame.exited[self->warp] |= self->lanes;
        tl__barrier_note_exits(e, u, self->warp);
        TL_CHECK(u->live_fibers > 0 && u->live_fibers <= u->n_fibers);
        if (--u->live_fibers > 0) {
            tl__ready_run_next(e);
        } else if (tl__unit_claim(e, u)) {
            tl__unit_begin(e, u);
            for (uint32_t w = 0; w < u->n_fibers; w++) {
                if (u->fibers[w] != self)
                    tl__ready_push(e, u->fibers[w]);
            }
        } else {
            tl__ready_run_next(e); /* the unit is done; it may be given a block again at any time */
        }
    }
}

/* A kernel without barriers: ranges of blocks. */
static void range_main(struct tl__fiber *self)
{
    struct tl__unit *u = self->unit;
    struct tl__engine *e = u->engine;
    for (;;) {
        const struct tl_exec_object *o = e->object;
        while (u->count > 0) {
            uint32_t first = u->first, count = u->count;
            u->count = 0;
            tl__engine_leave_call(e);
            o->blocks(&u->frame, first, count);
            tl__engine_enter_call(e);
            e->idle_yields = 0;
            e->long_yields = 0;
            tl__unit_claim(e, u);
        }
        u->live_fibers = 0;
        tl__ready_run_next(e);
    }
}

void tl__engine_fiber(struct tl__fiber *self)
{
    /* A unit serves kernels of both kinds in turn; fibers are reset when the kind changes. */
    if (self->unit->engine->object->blocks != NULL)
        range_main(self);
    else
        warp_main(self);
}

/* --- main ------------------------------------------------------------------------------------- */

/* All warps of all units wait at barriers.  Lanes may have exited without our notice; if that moves
 * nobody, it is a fault. */
static bool is_deadlock(struct tl__engine *e)
{
    struct tl__fiber *stuck = NULL, *split = NULL;
    for (struct tl__unit *u = e->units; u != NULL; u = u->next) {
        for (uint32_t w = 0; w < e->object->n_warps; w++)
            tl__barrier_note_exits(e, u, w);
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

/* What is wanted of main when all fibers spin: another block if there is one; else others may have
 * the SM, for blocks that are there already or if there is room for more, or the core. */
static int add_while_spinning(struct tl__engine *e)
{
    struct tl__unit *u = NULL;
    int rc = 0;
    atomic_store_explicit(&e->run->spins, true, memory_order_relaxed);
    bool has_room = e->n_units + e->n_lodged < e->env->max_units;
    if (has_room) {
        e->is_greedy = true;
        rc = tl__unit_add(e, &u);
        e->is_greedy = false;
    }
    e->n_futile = u == NULL ? e->n_futile + 1 : 0;
    if (e->n_futile >= FUTILE_ROUNDS && rc == 0 && e->env->lend != NULL) {
        e->n_futile = 0;
        e->env->lend(e, has_room);
    } else if (u == NULL) {
        sched_yield();
    }
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
    e->object = atomic_load_explicit(&run->object,
                                     memory_order_acquire); /* before `run`, as well */
    e->run = run;
    e->fault.what = TL_DEV_FAULT_NONE;
    e->claimed = 0;
    e->wants_more = false;
    e->idle_yields = 0;
    e->long_yields = 0;
    e->n_futile = 0;
    uint32_t mxcsr = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(default_mxcsr);
    int rc = tl__unit_add(e, &u);
    while (rc == 0 && tl__units_collect(e)) {
        struct tl__fiber *f = tl__ready_pop(e);
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
        tl__units_drop(e);
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
    tl__units_finish(e);
    tl_buf_finish(&e->scratch);
    tl__fiber_finish_thread(&e->main);
}

/* Operations: what streams, events and graphs are made of.
 *
 * An operation runs when all its predecessors are done.  Streams are chains of them, an event is
 * the operation that was recorded, a graph launch is a handful of them at once.  Who runs one
 * depends on what it is: kernels go to the SMs and come back from there; bookkeeping and small
 * copies run in whichever thread made them ready; long copies, host functions and waits on memory
 * go to a pool of threads; a synchronous copy is run by the thread that asked for it.
 *
 * When a context has failed, its operations are no longer run, only finished, so that whoever waits
 * comes free. */
#include "device/driver/op.h"
#include "device/driver/capture.h"
#include "device/driver/context.h"
#include "device/driver/exec.h"
#include "device/driver/graph_run.h"
#include "device/driver/handle.h"
#include "device/driver/lock.h"
#include "device/driver/memory.h"
#include "device/driver/nest.h"
#include "device/driver/pages.h"
#include "device/driver/state.h"
#include "device/driver/work.h"
#include "device/exec/exec.h"
#include "tally/check.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    /* copied at once by whoever comes along: handing it over would take longer */
    SMALL_BYTES = 32 << 10,
    MAX_THREADS = 64,
    SPINS = 400, /* about ten microseconds */
    CREDIT = 32, /* waits without spinning after spinning in vain, see wait_for */
};

static struct {
    struct tl_drv_op *first, **last; /* ready, for the pool */
    pthread_cond_t work;
    /* n_ready: in the list; who was woken for one is idle until it has the lock */
    unsigned threads, idle, n_ready;
    struct tl_drv_op *free_ops;
} pool TL_DRV_GUARDED = {.last = &pool.first, .work = PTHREAD_COND_INITIALIZER};

/* --- life of an operation --------------------------------------------------------------------- */

struct tl_drv_op *tl_drv_op_create(struct CUctx_st *ctx, const struct tl_drv_work *work)
{
    struct tl_drv_op *op = pool.free_ops;
    if (op != NULL)
        pool.free_ops = op->next;
    else
        op = calloc(1, sizeof *op);
    if (op == NULL)
        return NULL;
    TL_CHECK(op->refs == 0 && op->n_after == 0);
    if (op->after == NULL) {
        op->after = op->inline_after;
        op->cap_after = TL_DRV_INLINE_SUCCESSORS;
    }
    /* nobody else has it yet */
    atomic_store_explicit(&op->state, TL_DRV_PENDING, memory_order_relaxed);
    op->refs = 2; /* the caller's, and its own until it is done */
    op->waits = 1;
    op->caller_runs = op->was_dropped = false;
    atomic_store_explicit(&op->has_waiters, false, memory_order_relaxed);
    op->next = NULL;
    op->n_after = 0;
    op->ctx = ctx;
    op->work = *work;
    op->done_ns = 0;
    return op;
}

void tl_drv_op_unref(struct tl_drv_op *op)
{
    TL_CHECK(op == NULL || op->refs > 0);
    if (op == NULL || --op->refs > 0)
        return;
    /* its own reference lasts until it is done, and what followed it was told by then */
    TL_CHECK(tl_drv_op_is_done(op) && op->n_after == 0);
    op->next = pool.free_ops;
    pool.free_ops = op;
}

bool tl_drv_op_is_done(const struct tl_drv_op *op)
{
    /* acquire: what the operation did is seen by whoever finds it done. */
    return op == NULL || atomic_load_explicit(&op->state, memory_order_acquire) == TL_DRV_DONE;
}

void tl_drv_op_after(struct tl_drv_op *op, struct tl_drv_op *predecessor)
{
    if (tl_drv_op_is_done(predecessor) || predecessor == op)
        return;
    if (predecessor->n_after == predecessor->cap_after) {
        uint32_t cap = predecessor->cap_after * 2;
        struct tl_drv_op **list = malloc(cap * sizeof *list);
        if (list == NULL)
            abort(); /* an order that cannot be kept would be a wrong result */
        memcpy(list, predecessor->after, predecessor->n_after * sizeof *list);
        if (predecessor->after != predecessor->inline_after)
            free(predecessor->after);
        predecessor->after = list;
        predecessor->cap_after = cap;
    }
    /* else it might have run already */
    TL_CHECK(op->waits > 0 && atomic_load(&op->state) == TL_DRV_PENDING);
    predecessor->after[predecessor->n_after++] = op;
    op->waits++;
}

void tl_drv_op_order(struct tl_drv_op *op, struct CUstream_st *s)
{
    TL_CHECK(s->magic == TL_DRV_STREAM && s->tail != op && s->ctx->legacy != NULL);
    tl_drv_op_after(op, s->tail);
    if (s->is_legacy) {
        for (struct CUstream_st *other = s->ctx->streams; other != NULL; other = other->next)
            if (other != s && (other->flags & CU_STREAM_NON_BLOCKING) == 0)
                tl_drv_op_after(op, other->tail);
    } else if ((s->flags & CU_STREAM_NON_BLOCKING) == 0) {
        tl_drv_op_after(op, s->ctx->legacy->tail);
    }
    tl_drv_op_unref(s->tail);
    s->tail = op;
    op->refs++;
}

void tl_drv_work_finish(struct tl_drv_work *work)
{
    free(work->staging);
    work->staging = NULL;
    if (work->kind == TL_DRV_LAUNCH) {
        free(work->launch.params);
        work->launch.params = NULL;
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Spinning pays if the other side runs on another core and is about to be done.  Whether it does is
 * learnt: who has spun in vain spins less, down to a try now and then. */
static bool pays_to_spin(atomic_int *credit)
{
    return atomic_load_explicit(credit, memory_order_relaxed) > 0 ||
           atomic_fetch_add_explicit(credit, 1, memory_order_relaxed) == 0;
}

static void learn(atomic_int *credit, bool was_right)
{
    int had = atomic_load_explicit(credit, memory_order_relaxed);
    int now = was_right ? (had < CREDIT ? had + 1 : had) : had > 1 ? had - 1 : -CREDIT;
    /* a lost update is a lesson learnt later */
    atomic_store_explicit(credit, now, memory_order_relaxed);
}

/* Until the state is at least `least`.  Without the lock, which whoever wakes us is about to let go
 * of. */
static void wait_for(struct tl_drv_op *op, uint32_t least) TL_DRV_UNLOCKED
{
    static atomic_int credit = 1;
    uint32_t now = atomic_load_explicit(&op->state, memory_order_acquire);
    if (now >= least)
        return;
    if (pays_to_spin(&credit)) {
        for (int i = 0; i < SPINS && now < least; i++) {
            __builtin_ia32_pause();
            now = atomic_load_explicit(&op->state, memory_order_acquire);
        }
        learn(&credit, now >= least);
    }
    struct tl_exec_aside aside;
    tl_exec_wait_aside(&aside);
    /* Ours first, then the state; set_state the other way round: one of us sees the other. */
    atomic_store_explicit(&op->has_waiters, true, memory_order_seq_cst);
    while ((now = atomic_load_explicit(&op->state, memory_order_seq_cst)) < least)
        futex_wait(&op->state, now);
    tl_exec_waited(&aside);
}

void tl_drv_op_wait(struct tl_drv_op *op)
{
    wait_for(op, TL_DRV_DONE);
}

/* Whether somebody has to be woken: those who wait for the end, or the caller who is to run it. */
static bool set_state(struct tl_drv_op *op, uint32_t state) TL_DRV_LOCKED
{
    TL_CHECK(atomic_load(&op->state) < state); /* they only go on */
    atomic_store_explicit(&op->state, state, memory_order_seq_cst);
    return (state == TL_DRV_DONE || op->caller_runs) &&
           atomic_load_explicit(&op->has_waiters, memory_order_seq_cst);
}

/* --- doing it --------------------------------------------------------------------------------- */

/* Pages that are in host memory come first, piece by piece. */
static void move(uint8_t *to, const uint8_t *from, size_t n)
{
    if (!tl_drv_pages_are_there()) {
        memmove(to, from, n);
        return;
    }
    while (n > 0) {
        struct tl_drv_hold target, source;
        size_t piece = tl_drv_pages_hold(to, n, &target);
        piece = tl_drv_pages_hold(from, piece, &source);
        memmove(to, from, piece);
        tl_drv_pages_release(&target);
        tl_drv_pages_release(&source);
        to += piece;
        from += piece;
        n -= piece;
    }
}

void tl_drv_copy_run(const struct tl_drv_copy *c)
{
    size_t row = c->width, rows = c->height, slices = c->depth;
    if (row == 0 || rows == 0 || slices == 0)
        return;
    if (c->from_pitch == row && c->to_pitch == row &&
        (slices == 1 || (c->from_slice == row * rows && c->to_slice == row * rows))) {
        move(c->to, c->from, row * rows * slices);
        return;
    }
    for (size_t z = 0; z < slices; z++)
        for (size_t y = 0; y < rows; y++)
            move(c->to + z * c->to_slice + y * c->to_pitch,
                 c->from + z * c->from_slice + y * c->from_pitch, row);
}

static void fill_piece(const struct tl_drv_fill *f, uint8_t *to, size_t elements)
{
    bool is_byte = f->element == 1 ||
                   (f->element == 2 && (f->value & 0xff) == (f->value >> 8 & 0xff)) ||
                   (f->element == 4 && f->value == (f->value & 0xff) * 0x01010101u);
    if (is_byte) {
        memset(to, (int)(f->value & 0xff), elements * f->element);
    } else if (f->element == 2) {
        for (size_t x = 0; x < elements; x++)
            ((uint16_t *)(void *)to)[x] = (uint16_t)f->value;
    } else {
        for (size_t x = 0; x < elements; x++)
            ((uint32_t *)(void *)to)[x] = f->value;
    }
}

static void fill_run(const struct tl_drv_fill *f)
{
    for (size_t y = 0; y < f->height; y++) {
        uint8_t *to = f->to + y * f->pitch;
        size_t left = f->width * f->element;
        while (left > 0) {
            struct tl_drv_hold hold = {NULL};
            size_t n = tl_drv_pages_are_there() ? tl_drv_pages_hold(to, left, &hold) : left;
            fill_piece(f, to, n / f->element);
            tl_drv_pages_release(&hold);
            to += n;
            left -= n;
        }
    }
}

static bool memop_holds(const struct tl_drv_memop *m)
{
    uint64_t v, want = m->value;
    struct tl_drv_hold hold = {NULL};
    if (tl_drv_pages_are_there())
        tl_drv_pages_hold((void *)m->address, 1, &hold);
    /* acquire: what was written before the flag is seen after it. */
    if (m->is_wide)
        v = __atomic_load_n((uint64_t *)m->address, __ATOMIC_ACQUIRE);
    else
        v = __atomic_load_n((uint32_t *)m->address, __ATOMIC_ACQUIRE), want = (uint32_t)want;
    tl_drv_pages_release(&hold);
    switch (m->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return m->is_wide ? (int64_t)(v - want) >= 0 : (int32_t)((uint32_t)v - (uint32_t)want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return v == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (v & want) != 0;
    default:
        return (~(v | want) & (m->is_wide ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

static void memop_run(const struct tl_drv_memop *m, struct CUctx_st *ctx)
{
    if (m->is_barrier) {
        atomic_thread_fence(memory_order_seq_cst);
    } else if (!m->is_wait) {
        struct tl_drv_hold hold = {NULL};
        if (tl_drv_pages_are_there())
            tl_drv_pages_hold((void *)m->address, 1, &hold);
        /* release: what the stream did before comes before the flag. */
        if (m->is_wide)
            __atomic_store_n((uint64_t *)m->address, m->value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint32_t *)m->address, (uint32_t)m->value, __ATOMIC_RELEASE);
        tl_drv_pages_release(&hold);
    } else {
        struct timespec pause = {0, 2000};
        for (unsigned i = 0; !memop_holds(m) && tl_drv_context_error(ctx) == CUDA_SUCCESS; i++) {
            if (i < 64)
                sched_yield();
            else
                nanosleep(&pause, NULL);
            if (i > 1024)
                pause.tv_nsec = 50000;
        }
    }
}

static size_t work_bytes(const struct tl_drv_work *w)
{
    if (w->kind == TL_DRV_COPY)
        return w->copy.width * w->copy.height * w->copy.depth;
    return w->kind == TL_DRV_FILL ? w->fill.width * w->fill.element * w->fill.height : 0;
}

/* Whether it is done so quickly that any thread may do it on the way. */
static bool is_quick(const struct tl_drv_op *op)
{
    const struct tl_drv_work *w = &op->work;
    switch (w->kind) {
    case TL_DRV_HOST:
    case TL_DRV_CALLBACK:
        return false;
    case TL_DRV_MEMOP:
        return w->memop.n_more == 0 && (!w->memop.is_wait || memop_holds(&w->memop));
    case TL_DRV_COPY:
        return work_bytes(w) <= SMALL_BYTES && !tl_drv_exec_has_bus();
    default:
        return work_bytes(w) <= SMALL_BYTES;
    }
}

/* Runs what is neither kernel nor dropped. */
static void run(struct tl_drv_op *op) TL_DRV_UNLOCKED
{
    struct tl_drv_work *w = &op->work;
    switch (w->kind) {
    case TL_DRV_COPY: {
        struct tl_drv_turn turn;
        tl_drv_exec_copy_begin(op->ctx->device, &w->copy, &turn);
        tl_drv_copy_run(&w->copy);
        tl_drv_exec_copy_end(&turn);
        break;
    }
    case TL_DRV_FILL:
        fill_run(&w->fill);
        break;
    case TL_DRV_HOST:
        w->host.function(w->host.data);
        break;
    case TL_DRV_CALLBACK:
        w->callback.function(w->callback.stream, tl_drv_context_error(op->ctx), w->callback.data);
        break;
    case TL_DRV_MEMOP:
        memop_run(&w->memop, op->ctx);
        for (uint32_t i = 0; i < w->memop.n_more; i++)
            memop_run((const struct tl_drv_memop *)w->staging + i, op->ctx);
        break;
    case TL_DRV_CONDITIONAL:
        tl_drv_gate_open(op);
        break;
    case TL_DRV_FREE:
        tl_drv_lock();
        tl_drv_memory_free(w->memory.address);
        tl_drv_unlock();
        break;
    default:
        break;
    }
}

static void finish(struct tl_drv_op *op, struct tl_drv_op **ready) TL_DRV_UNLOCKED;

/* Runs everything in the list and whatever becomes ready through that, but for what goes
 * elsewhere. */
static void run_ready(struct tl_drv_op *list) TL_DRV_UNLOCKED
{
    while (list != NULL) {
        struct tl_drv_op *op = list;
        list = op->next;
        op->next = NULL;
        TL_CHECK(atomic_load(&op->state) == TL_DRV_READY);
        if (op->work.kind == TL_DRV_LAUNCH && !op->was_dropped) {
            tl_drv_exec_start(op);
            continue;
        }
        if (!op->was_dropped || op->work.kind == TL_DRV_CALLBACK || op->work.kind == TL_DRV_FREE)
            run(op);
        struct tl_drv_op *more = NULL, *ended = op;
        if (op->work.kind == TL_DRV_NEST_END)
            op->next = tl_drv_nest_close(op->work.nest, &more);
        else if (op->work.kind == TL_DRV_GRAPH_END)
            ended = tl_drv_graph_run_over(op->work.run, &more);
        while (ended != NULL) { /* here, since kernels launch each other to any length */
            struct tl_drv_op *next = ended->next;
            ended->next = NULL;
            finish(ended, &more);
            ended = next;
        }
        if (more != NULL) {
            struct tl_drv_op **end = &more;
            while (*end != NULL)
                end = &(*end)->next;
            *end = list;
            list = more;
        }
    }
}

static void *pool_thread(void *is_of_worker)
{
    tl_exec_stay_aside(is_of_worker != NULL);
    tl_drv_lock();
    for (;;) {
        struct tl_drv_op *op = pool.first;
        if (op == NULL) {
            pool.idle++;
            tl_mutex_wait(&tl_drv_mutex, &pool.work);
            TL_CHECK(pool.idle > 0);
            pool.idle--;
            continue;
        }
        TL_CHECK(pool.n_ready > 0 && pool.threads > 0);
        pool.first = op->next;
        pool.n_ready--;
        if (pool.first == NULL)
            pool.last = &pool.first;
        op->next = NULL;
        tl_drv_unlock();
        run_ready(op);
        tl_drv_lock();
    }
    return NULL;
}

/* False if there is no thread that could ever take it. */
static bool give_to_pool(struct tl_drv_op *op) TL_DRV_LOCKED
{
    bool is_one_idle = pool.n_ready + 1 <= pool.idle;
    /* One that waits for memory may keep its thread for ever, so each has one to itself. */
    if (!is_one_idle && pool.threads < MAX_THREADS) {
        static const struct tl_thread_kind kind = {.name = "tally-driver", .takes_faults = true};
        void *is_of_worker = tl_exec_is_worker() ? &pool : NULL;
        pool.threads += tl_thread_start(NULL, &kind, pool_thread, is_of_worker) == 0;
    }
    if (pool.threads == 0)
        return false;
    op->next = NULL;
    *pool.last = op;
    pool.last = &op->next;
    pool.n_ready++;
    if (is_one_idle)
        pthread_cond_signal(&pool.work);
    return true;
}

/* It has no unfinished predecessor any more.  What the calling thread shall run is put into
 * `mine`. */
static void became_ready(struct tl_drv_op *op, struct tl_drv_op **mine) TL_DRV_LOCKED
{
    TL_CHECK(op->waits == 0);
    op->was_dropped |= tl_drv_context_error(op->ctx) != CUDA_SUCCESS;
    if (set_state(op, TL_DRV_READY))
        futex_wake(&op->state);
    if (op->caller_runs)
        return;
    if (op->work.kind != TL_DRV_LAUNCH && !is_quick(op) && give_to_pool(op))
        return;
    struct tl_drv_op **end = mine;
    while (*end != NULL)
        end = &(*end)->next;
    op->next = NULL;
    *end = op;
}

/* Marks it done and gathers what may run now. */
static void finish(struct tl_drv_op *op, struct tl_drv_op **ready)
{
    tl_drv_work_finish(&op->work);
    tl_drv_lock();
    /* With the lock: the last reference to a gate's bodies takes graphs with it. */
    if (op->work.kind == TL_DRV_CONDITIONAL) {
        tl_drv_conditional_unref(op->work.conditional.what);
        op->work.conditional.what = NULL;
    }
    tl_drv_nest_count(op->ctx, &op->work, -1);
    op->done_ns = tl_clock_ns();
    bool wake = set_state(op, TL_DRV_DONE);
    for (uint32_t i = 0; i < op->n_after; i++) {
        TL_CHECK(op->after[i]->waits > 0);
        if (--op->after[i]->waits == 0)
            became_ready(op->after[i], ready);
    }
    op->n_after = 0;
    tl_drv_op_unref(op);
    tl_drv_unlock();
    /* It may be gone, but its memory is only ever used for others of its kind: at worst they look
     * once more. */
    if (wake)
        futex_wake(&op->state);
}

void tl_drv_op_finished(struct tl_drv_op *op, CUresult result)
{
    struct tl_drv_op *ready = NULL;
    if (result != CUDA_SUCCESS)
        tl_drv_context_fail(op->ctx, result);
    finish(op, &ready);
    run_ready(ready);
}

void tl_drv_op_start(struct tl_drv_op *op, struct tl_drv_op **ready)
{
    TL_CHECK(op->waits > 0);
    if (--op->waits == 0)
        became_ready(op, ready);
}

void tl_drv_op_start_unlock(struct tl_drv_op *op)
{
    struct tl_drv_op *ready = NULL;
    tl_drv_op_start(op, &ready);
    tl_drv_unlock();
    run_ready(ready);
}

/* --- submitting ------------------------------------------------------------------------------- */

/* How a copy treats memory that the driver cannot hold on to: pageable host memory is read before
 * the call returns and written before it returns (CUDA driver API, "API synchronization
 * behavior"). */
static CUresult mind_pageable(struct tl_drv_work *work, bool *wait) TL_DRV_LOCKED
{
    if (work->kind != TL_DRV_COPY || *wait)
        return CUDA_SUCCESS;
    const struct tl_drv_copy *c = &work->copy;
    if (!tl_drv_is_pinned(c->to) ||
        (!tl_drv_is_pinned(c->from) && work_bytes(work) > 2 * SMALL_BYTES)) {
        *wait = true;
        return CUDA_SUCCESS;
    }
    if (tl_drv_is_pinned(c->from) || work_bytes(work) == 0)
        return CUDA_SUCCESS;
    uint8_t *bytes = malloc(work_bytes(work));
    if (bytes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct tl_drv_copy staged = *c;
    staged.to = bytes;
    staged.to_pitch = c->width;
    staged.to_slice = c->width * c->height;
    tl_drv_copy_run(&staged);
    work->staging = bytes;
    work->copy.from = bytes;
    work->copy.from_pitch = staged.to_pitch;
    work->copy.from_slice = staged.to_slice;
    return CUDA_SUCCESS;
}

/* The one way into a stream.  What is captured goes into the graph; what has to be waited for is
 * waited for here, and copied by this thread. */
CUresult tl_drv_submit(struct CUstream_st *s, struct tl_drv_work *work, bool wait)
{
    CUresult r = wait ? tl_drv_capture_permit() : CUDA_SUCCESS;
    tl_drv_lock();
    CUresult implicit = tl_drv_capture_legacy(s);
    if (implicit != CUDA_SUCCESS || r != CUDA_SUCCESS) {
        tl_drv_unlock();
        tl_drv_work_finish(work);
        return implicit != CUDA_SUCCESS ? implicit : r;
    }
    if (tl_drv_is_capturing(s)) {
        if (wait) {
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            tl_drv_capture_spoil(s->capture);
            tl_drv_work_finish(work);
        } else {
            r = tl_drv_capture_add(s, work);
        }
        tl_drv_unlock();
        return r;
    }
    r = mind_pageable(work, &wait);
    struct tl_drv_op *op = r == CUDA_SUCCESS ? tl_drv_op_create(s->ctx, work) : NULL;
    if (op == NULL) {
        tl_drv_unlock();
        tl_drv_work_finish(work);
        return r != CUDA_SUCCESS ? r : CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool runs_here = wait && (work->kind == TL_DRV_COPY || work->kind == TL_DRV_FILL);
    op->caller_runs = runs_here;
    TL_CHECK(op->refs == 2);
    if (!wait)
        op->refs--; /* its own keeps it until it is done */
    tl_drv_op_order(op, s);
    tl_drv_op_start_unlock(op);
    if (!wait)
        return CUDA_SUCCESS;
    if (runs_here) {
        wait_for(op, TL_DRV_READY);
        run_ready(op);
    } else {
        tl_drv_op_wait(op);
    }
    tl_drv_lock();
    tl_drv_op_unref(op);
    tl_drv_unlock();
    return tl_drv_context_error(s->ctx);
}

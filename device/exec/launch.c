/* Launches and the worker threads that run them.
 *
 * A submitted launch becomes a run in the list of those with unclaimed blocks, ordered by priority
 * and arrival.  A worker that finds the list not empty takes an SM slot of the shared device, runs
 * chunks of the first run's blocks, and keeps the slot as long as the order of grids on the device
 * allows.  The worker that leaves a run as its last calls `done`.
 *
 * A worker that finds nothing spins for some 30 us, because waking a sleeping thread on another
 * core takes about as long, and then sleeps until there is something to run and a slot to run it
 * in.  It does not spin if another process waits for a slot, and not all workers spin at once: the
 * program's threads need a core to submit on.  Workers run at nice 5, all of them in all processes,
 * below the program's own threads: they get what the slots give them, and the CPU scheduler has no
 * reason to prefer one over the other. */
#include "device/exec/device.h"
#include "device/exec/stall.h"
#include "tally/check.h"
#include "tally/clock.h"
#include "tally/lock.h"
#include "tally/thread.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NICE 5
#define SPIN_NS 30000
#define LEFT_NS                                                                                    \
    2000000 /* how long a launch is left to those who have the slots: they may be stopped or dead */
#define MOST_LENT 4     /* threads more than slots, for each slot */
#define LEND_NS 1000000 /* how long a slot is offered */
#define MOMENT_NS 20000
#define SPARE_RUNS 64
#define SPARE_PARAMS 4096
#define STACK_BYTES ((size_t)256 << 10)

struct tl__worker {
    struct tl__worker *next;
    struct tl_exec_device *device;
    pthread_t thread;
    uint32_t number;
    enum { WORKER_BEGINS, WORKER_READY, WORKER_FAILED } state; /* guarded by the device's lock */
    struct tl_exec_run *run;                                   /* guarded by the device's lock */
    struct tl__engine engine;
};

/* --- the list of runs with unclaimed blocks ----------------------------------------------- */

static void publish_head(struct tl_exec_device *d) TL_REQUIRES(d->lock)
{
    struct tl_exec_run *first = d->pending;
    uint64_t head = first != NULL ? first->key : TL_EXEC_NO_KEY;
    atomic_store_explicit(&d->head_key, head, memory_order_relaxed);
    /* Other processes see the oldest grid, or with priorities the most urgent one. */
    if (tl__sm_mode(d->sm) != TL_EXEC_MPS_PRIORITY && first != NULL) {
        const uint64_t age = ((uint64_t)1 << 55) - 1;
        head &= age;
        for (struct tl_exec_run *run = first; run != NULL; run = run->next_pending)
            head = (run->key & age) < head ? run->key & age : head;
    }
    tl__sm_set_head(d->sm, head);
}

static void insert(struct tl_exec_run **list, struct tl_exec_run *run)
{
    while (*list != NULL && (*list)->key < run->key)
        list = &(*list)->next_pending;
    run->next_pending = *list;
    *list = run;
}

static void take_out(struct tl_exec_run **list, const struct tl_exec_run *run)
{
    while (*list != run) {
        TL_CHECK(*list != NULL); /* is_pending and is_held say in which list it is */
        list = &(*list)->next_pending;
    }
    *list = run->next_pending;
}

static void add_pending(struct tl_exec_device *d, struct tl_exec_run *run) TL_REQUIRES(d->lock)
{
    TL_CHECK(!run->is_pending && !run->is_held);
    insert(&d->pending, run);
    run->is_pending = true;
    /* before `work`, for sleepers */
    atomic_fetch_add_explicit(&d->n_pending, 1, memory_order_seq_cst);
    publish_head(d);
}

static void set_urgency(struct tl_exec_partition *p)
{
    atomic_store_explicit(&p->urgency, p->held != NULL ? UINT64_MAX - p->held->key : 0,
                          memory_order_relaxed);
}

static void remove_pending(struct tl_exec_device *d, struct tl_exec_run *run) TL_REQUIRES(d->lock)
{
    if (run->is_held) {
        take_out(&run->partition->held, run);
        run->is_held = false;
        set_urgency(run->partition);
    }
    if (!run->is_pending)
        return;
    take_out(&d->pending, run);
    run->is_pending = false;
    atomic_fetch_sub_explicit(&d->n_pending, 1, memory_order_seq_cst);
    publish_head(d);
}

/* --- partitions ------------------------------------------------------------------------------- */

/* Launches of a partition that has all the workers it may have are out of sight, for other
 * processes as well. */
static void hold(struct tl_exec_device *d, struct tl_exec_run *run) TL_REQUIRES(d->lock)
{
    TL_CHECK(run->partition != NULL);
    remove_pending(d, run);
    insert(&run->partition->held, run);
    run->is_held = true;
    set_urgency(run->partition);
}

static void unhold(struct tl_exec_device *d, struct tl_exec_run *run) TL_REQUIRES(d->lock)
{
    remove_pending(d, run);
    add_pending(d, run);
}

static void enter_partition(struct tl_exec_device *d, struct tl_exec_partition *p)
    TL_REQUIRES(d->lock)
{
    if (p == NULL || ++p->active < p->n_slots)
        return;
    for (struct tl_exec_run *run = d->pending, *next; run != NULL; run = next) {
        next = run->next_pending;
        if (run->partition == p)
            hold(d, run);
    }
}

/* True if there is work for another worker now. */
static bool leave_partition(struct tl_exec_device *d, struct tl_exec_partition *p)
    TL_REQUIRES(d->lock)
{
    TL_CHECK(p == NULL || p->active > 0);
    if (p == NULL || --p->active >= p->n_slots || p->held == NULL)
        return false;
    while (p->held != NULL)
        unhold(d, p->held);
    return true;
}

/* --- runs ------------------------------------------------------------------------------------- */

static struct tl_exec_run *take_run(struct tl_exec_device *d, uint32_t param_bytes)
{
    struct tl_exec_run *run = NULL;
    uint32_t room = SPARE_PARAMS;
    if (param_bytes <= SPARE_PARAMS) {
        tl_mutex_lock(&d->lock);
        run = d->spare;
        if (run != NULL) {
            TL_CHECK(d->n_spare > 0 && run->param_room == SPARE_PARAMS);
            d->spare = run->next_run;
            d->n_spare--;
        }
        tl_mutex_unlock(&d->lock);
    } else {
        room = (param_bytes + 63) & ~63U;
    }
    if (run == NULL)
        run = aligned_alloc(64, sizeof *run + room);
    if (run != NULL) {
        memset(run, 0, sizeof *run);
        run->param_room = room;
    }
    return run;
}

static void give_run(struct tl_exec_device *d, struct tl_exec_run *run) TL_REQUIRES(d->lock)
{
    if (run->param_room == SPARE_PARAMS && d->n_spare < SPARE_RUNS) {
        run->next_run = d->spare;
        d->spare = run;
        d->n_spare++;
    } else {
        free(run);
    }
}

static void set_fault(struct tl_exec_run *run, const struct tl_exec_fault *fault)
{
    if (!run->has_fault) { /* the first one counts */
        run->has_fault = true;
        run->launch->fault = *fault;
    }
    atomic_store_explicit(&run->stop, true, memory_order_relaxed);
}

void tl__run_cancel(struct tl_exec_device *d, struct tl_exec_run *run)
{
    struct tl_exec_fault fault;
    memset(&fault, 0, sizeof fault);
    fault.what = TL_DEV_FAULT_TIMEOUT;
    snprintf(fault.text, sizeof fault.text,
             "kernel %.100s: ended by the watchdog or a cancellation", run->first->info->text);
    set_fault(run, &fault);
    if (!atomic_exchange_explicit(&run->cancelled, true,
                                  memory_order_relaxed)) /* the signal orders it */
        atomic_fetch_add_explicit(&d->n_cancelled, 1, memory_order_relaxed);
    if (run->is_held)
        unhold(d, run); /* where it is found and ended */
    for (struct tl__worker *w = d->workers; w != NULL; w = w->next) {
        if (w->run == run)
            pthread_kill(w->thread, tl__fault_signal());
    }
    tl__sm_wake(d->sm, 1); /* to end it, if it waits for a slot */
}

/* --- waiting for work ------------------------------------------------------------------------- */

static bool has_work(struct tl_exec_device *d)
{
    return atomic_load_explicit(&d->n_pending, memory_order_seq_cst) > 0 ||
           atomic_load_explicit(&d->must_stop, memory_order_relaxed);
}

/* One more worker, if there is a slot for it. */
static void call_worker(struct tl_exec_device *d)
{
    if (atomic_load_explicit(&d->n_spinning, memory_order_seq_cst) == 0 &&
        tl__sm_chance(d->sm) == TL__SM_FREE)
        tl__sm_wake(d->sm, 1);
}

void tl__workers_nudge(struct tl_exec_device *d)
{
    if (has_work(d))
        tl__sm_wake(d->sm, 1);
}

/* Returns when there may be work. */
static void wait_for_work(struct tl_exec_device *d)
{
    uint32_t most = d->n_cores / 2 > 0 ? d->n_cores / 2 : 1;
    if (atomic_fetch_add_explicit(&d->n_spinning, 1, memory_order_seq_cst) < most) {
        uint64_t until = tl_clock_ns() + SPIN_NS;
        do {
            for (int i = 0; i < 64; i++) {
                if (has_work(d)) {
                    atomic_fetch_sub_explicit(&d->n_spinning, 1, memory_order_seq_cst);
                    return;
                }
                __builtin_ia32_pause();
            }
        } while (tl_clock_ns() < until && !tl__sm_others_wait(d->sm));
    }
    atomic_fetch_sub_explicit(&d->n_spinning, 1, memory_order_seq_cst);
    uint32_t seen = tl__sm_begin_wait(d->sm);
    if (!has_work(d))
        tl__sm_wait(d->sm, seen, NULL);
    tl__sm_end_wait(d->sm);
}

/* --- workers ---------------------------------------------------------------------------------- */

static bool env_must_stop(struct tl__engine *e, struct tl_exec_run *run)
{
    struct tl_exec_device *d = e->env->device;
    tl__sm_note_block(d->sm, e->slot);
    if (run->partition != NULL &&
        UINT64_MAX - atomic_load_explicit(&run->partition->urgency, memory_order_relaxed) <
            run->key)
        return true;
    return atomic_load_explicit(&d->head_key, memory_order_relaxed) < run->key ||
           atomic_load_explicit(&run->object, memory_order_relaxed) != e->object ||
           tl__sm_has_lost(d->sm, e->slot) || tl__sm_must_yield(d->sm, run->key);
}

static void env_drained(struct tl__engine *e, struct tl_exec_run *run)
{
    struct tl_exec_device *d = e->env->device;
    tl_mutex_lock(&d->lock);
    remove_pending(d, run);
    tl_mutex_unlock(&d->lock);
}

/* The first run with blocks to claim; this worker is inside it now. */
static struct tl_exec_run *enter_run(struct tl__worker *w)
{
    struct tl_exec_device *d = w->device;
    tl_mutex_lock(&d->lock);
    struct tl_exec_run *run = d->pending;
    TL_CHECK(w->run == NULL);
    if (run != NULL) {
        TL_CHECK(run->is_pending);
        run->active++;
        enter_partition(d, run->partition);
        w->run = run;
        if (atomic_load_explicit(&run->begin_ns, memory_order_relaxed) == 0)
            atomic_store_explicit(&run->begin_ns, tl_clock_ns(), memory_order_relaxed);
    }
    tl_mutex_unlock(&d->lock);
    return run;
}

/* The worker is done with it; the last one ends it: `done` is called without the lock, and the
 * run is gone then. rc < 0: the engine's fault is the run's. */
static void leave_run(struct tl__worker *w, struct tl_exec_run *run, int rc)
{
    struct tl_exec_device *d = w->device;
    struct tl_exec_launch *finished = NULL;
    struct tl_exec_object *first = NULL, *last = NULL;
    tl_mutex_lock(&d->lock);
    w->run = NULL;
    if (rc < 0)
        set_fault(run, &w->engine.fault);
    if (atomic_load_explicit(&run->stop, memory_order_relaxed))
        remove_pending(d, run);
    bool has_more = leave_partition(d, run->partition);
    TL_CHECK(run->active > 0 && !(run->is_pending && run->is_held));
    if (--run->active == 0 && !run->is_pending && !run->is_held) {
        finished = run->launch;
        first = run->first;
        last = atomic_load_explicit(&run->object, memory_order_relaxed);
        finished->begin_ns = atomic_load_explicit(&run->begin_ns, memory_order_relaxed);
        finished->end_ns = tl_clock_ns();
        finished->run = NULL;
        if (run->prev_run != NULL)
            run->prev_run->next_run = run->next_run;
        else
            d->runs = run->next_run;
        if (run->next_run != NULL)
            run->next_run->prev_run = run->prev_run;
        give_run(d, run);
    }
    tl_mutex_unlock(&d->lock);
    if (has_more)
        call_worker(d);
    if (finished != NULL) {
        /* Who sees the error must find what the kernel had to say about it. */
        if (finished->fault.what != TL_DEV_FAULT_NONE)
            tl_exec_printf_flush(d);
        finished->done(finished);
        if (last != first)
            tl_exec_object_unref(last);
        tl_exec_object_unref(first);
    }
}

static void run_with_slot(struct tl__worker *w, uint32_t slot)
{
    struct tl_exec_device *d = w->device;
    struct tl_exec_run *run;
    TL_CHECK(slot < d->env.n_slots && slot < TL__MAX_SLOTS);
    w->engine.slot = slot;
    w->engine.n_lodged = atomic_load_explicit(&d->lodged[slot], memory_order_relaxed);
    if (w->engine.n_lodged >= d->env.max_units) { /* it was left for those that are there */
        tl__sm_release(d->sm, slot);
        nanosleep(&(struct timespec){0, MOMENT_NS}, NULL);
        return;
    }
    while ((run = enter_run(w)) != NULL) {
        /* One wakes the next: nobody waits while all are woken. */
        if (run->total - 1 > atomic_load_explicit(&run->next_block, memory_order_relaxed))
            call_worker(d);
        tl__fault_enter();
        int rc = tl__engine_run(&w->engine, run);
        tl__fault_leave();
        leave_run(w, run, rc);
        /* who lent it may have become able to go on */
        if (w->engine.n_lodged > 0 || tl__sm_has_lost(d->sm, slot) || !tl__sm_may_keep(d->sm))
            break;
    }
    tl__sm_release(d->sm, slot);
}

/* Ends runs that were cancelled while they waited for a slot: that needs none. */
static void end_cancelled(struct tl__worker *w)
{
    struct tl_exec_device *d = w->device;
    for (;;) {
        tl_mutex_lock(&d->lock);
        struct tl_exec_run *run = d->pending;
        while (run != NULL && !atomic_load_explicit(&run->cancelled, memory_order_relaxed))
            run = run->next_pending;
        if (run == NULL)
            atomic_store_explicit(&d->n_cancelled, 0, memory_order_relaxed);
        else {
            run->active++;
            enter_partition(d, run->partition);
        }
        tl_mutex_unlock(&d->lock);
        if (run == NULL)
            break;
        leave_run(w, run, 0);
    }
}

/* A worker: tells whether it could begin, then runs blocks on slots that it gets, until the device
 * is closed. */
static void *worker_main(void *argument)
{
    struct tl__worker *w = argument;
    struct tl_exec_device *d = w->device;
    tl__place_worker();
    /* lowering oneself is always allowed; lower already is fine */
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    bool is_ready = tl__engine_init(&w->engine, &d->env) == 0 && tl__fault_attach(&w->engine) == 0;
    tl_mutex_lock(&d->lock);
    w->state = is_ready ? WORKER_READY : WORKER_FAILED;
    pthread_cond_broadcast(&d->changed);
    tl_mutex_unlock(&d->lock);
    if (is_ready) {
        while (!atomic_load_explicit(&d->must_stop, memory_order_relaxed)) {
            if (!has_work(d)) {
                wait_for_work(d);
                continue;
            }
            if (atomic_load_explicit(&d->n_cancelled, memory_order_relaxed) > 0) {
                end_cancelled(w);
                continue;
            }
            int slot = tl__sm_try_acquire(d->sm, w->number);
            if (slot < 0)
                slot = tl__sm_acquire_or_wait(d->sm, w->number);
            if (slot >= 0)
                run_with_slot(w, (uint32_t)slot);
        }
        tl__fault_attach(NULL);
    }
    tl__engine_finish(&w->engine);
    tl__stall_end_thread();
    return NULL;
}

/* Whether somebody is there who can run something: a worker that has no memory for its stack, or
 * may not have one, ends, and what was left to it would never be done. */
static bool has_come_up(struct tl_exec_device *d, struct tl__worker *w) TL_REQUIRES(d->lock)
{
    while (w->state == WORKER_BEGINS)
        tl_mutex_wait(&d->lock, &d->changed);
    if (w->state == WORKER_FAILED)
        pthread_join(w->thread, NULL);
    return w->state == WORKER_READY;
}

/* As many workers as the launch can use.  It is enough to have one. */
static int ensure_workers(struct tl_exec_device *d, uint64_t wanted) TL_REQUIRES(d->lock)
{
    while (d->n_workers < d->env.n_slots + d->n_lent && d->n_workers < wanted) {
        struct tl__worker *w = calloc(1, sizeof *w);
        if (w == NULL)
            break;
        w->device = d;
        w->number = d->n_workers;
        char name[16];
        snprintf(name, sizeof name, "tally-sm%u", w->number % 1000000);
        struct tl_thread_kind kind = {.name = name, .stack_bytes = STACK_BYTES};
        if (tl_thread_start(&w->thread, &kind, worker_main, w) < 0 ||
            (d->n_workers == 0 && !has_come_up(d, w))) {
            free(w);
            break;
        }
        w->next = d->workers;
        d->workers = w;
        d->n_workers++;
    }
    return d->n_workers > 0 ? 0 : -ENOMEM;
}

uint64_t tl_exec_worked_ns(struct tl_exec_device *d)
{
    uint64_t sum = 0;
    tl_mutex_lock(&d->lock);
    for (const struct tl__worker *w = d->workers; w != NULL; w = w->next) {
        clockid_t clock;
        struct timespec t;
        if (pthread_getcpuclockid(w->thread, &clock) == 0 && clock_gettime(clock, &t) == 0)
            sum += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    }
    tl_mutex_unlock(&d->lock);
    return sum;
}

/* On a GPU, blocks of several kernels share an SM; here a worker has one for itself.  If all its
 * blocks only wait, perhaps for a kernel that waits for a slot, others get it for one launch.  The
 * order among those is as ever; who has lent it takes it back when it is free.  And who has got it
 * that way lends it in turn, also on an SM that is full: what its blocks wait for may be one of
 * those that are there and do not run. */
static void env_lend(struct tl__engine *e, bool has_room)
{
    struct tl_exec_device *d = e->env->device;
    const struct timespec moment = {0, MOMENT_NS};
    bool has_own = has_room && atomic_load_explicit(&d->n_pending, memory_order_seq_cst) > 0;
    bool is_wanted = has_own || e->n_lodged > 0 || tl__sm_others_lodge(d->sm) ||
                     (has_room && tl__sm_others_wait(d->sm));
    if (tl__sm_mode(d->sm) == TL_EXEC_TIMESLICE || !is_wanted) {
        sched_yield();
        return;
    }
    tl_mutex_lock(&d->lock);
    bool is_counted = has_room && d->n_lent < MOST_LENT * d->env.n_slots;
    if (is_counted) { /* else there are enough threads for that many already */
        d->n_lent++;
        (void)ensure_workers(d, d->env.n_slots + d->n_lent);
    }
    tl_mutex_unlock(&d->lock);
    uint32_t units = e->n_units;
    atomic_fetch_add_explicit(&d->lodged[e->slot], units, memory_order_relaxed);
    tl__sm_lodge(d->sm, 1);
    tl__sm_release(d->sm, e->slot);
    if (has_own)
        tl__sm_wake(d->sm, 1);
    uint64_t until = tl_clock_ns() + LEND_NS;
    while (tl__sm_is_free(d->sm, e->slot) && tl_clock_ns() < until)
        nanosleep(&moment, NULL);
    while (!tl__sm_retake(d->sm, e->slot))
        nanosleep(&moment, NULL);
    tl__sm_lodge(d->sm, -1);
    e->n_lodged = atomic_fetch_sub_explicit(&d->lodged[e->slot], units, memory_order_relaxed) -
                  units;
    if (is_counted) {
        tl_mutex_lock(&d->lock);
        d->n_lent--;
        tl_mutex_unlock(&d->lock);
    }
}

void tl__workers_init(struct tl_exec_device *d)
{
    d->env.must_stop = env_must_stop;
    d->env.drained = env_drained;
    d->env.lend = env_lend;
    atomic_store(&d->head_key, TL_EXEC_NO_KEY);
}

void tl__workers_stop(struct tl_exec_device *d)
{
    atomic_store(&d->must_stop, true);
    if (d->sm != NULL)
        tl__sm_wake(d->sm, INT_MAX);
    while (d->workers != NULL) {
        struct tl__worker *w = d->workers;
        d->workers = w->next;
        pthread_join(w->thread, NULL);
        free(w);
    }
    while (d->spare != NULL) {
        struct tl_exec_run *run = d->spare;
        d->spare = run->next_run;
        free(run);
    }
}

void tl__workers_forget(struct tl_exec_device *d)
{
    d->runs = d->pending = NULL;
    d->workers = NULL;
    d->n_workers = 0;
    d->n_lent = 0;
    for (uint32_t i = 0; i < TL__MAX_SLOTS; i++)
        atomic_store(&d->lodged[i], 0);
    atomic_store(&d->n_pending, 0);
    atomic_store(&d->n_spinning, 0);
    atomic_store(&d->head_key, TL_EXEC_NO_KEY);
}

/* --- submitting ------------------------------------------------------------------------------- */

/* What the launch says, in a run of its own; NULL if there is no memory. */
static struct tl_exec_run *make_run(struct tl_exec_device *d, struct tl_exec_launch *l,
                                    uint64_t total)
{
    uint32_t param_bytes = l->object->info->param_bytes;
    struct tl_exec_run *run = take_run(d, param_bytes);
    if (run == NULL)
        return NULL;
    run->device = d;
    run->launch = l;
    run->first = tl_exec_object_ref(l->object);
    atomic_init(&run->object, run->first);
    run->partition = l->partition;
    run->variables = l->variables;
    memcpy(run->grid, l->grid, sizeof run->grid);
    run->dynamic_shared_bytes = l->dynamic_shared_bytes;
    run->total = total;
    atomic_store_explicit(&run->chunk, 1, memory_order_relaxed);
    if (param_bytes > 0 && l->params != NULL)
        memcpy(run->params, l->params, param_bytes);
    return run;
}

/* Copies what the launch has, so that the caller's parameters may go, and puts the run among
 * those that wait.  A worker is woken only if there is a slot for it. */
int tl_exec_submit(struct tl_exec_device *d, struct tl_exec_launch *l)
{
    const struct tl_dev_info *info = l->object->info;
    tl_exec_step_aside();
    uint64_t rows = (uint64_t)l->grid[0] * l->grid[1], total;
    if (rows == 0 || __builtin_mul_overflow(rows, (uint64_t)l->grid[2], &total) || total == 0 ||
        total > UINT32_MAX)
        return -EINVAL;
    if ((uint64_t)info->shared_bytes + l->dynamic_shared_bytes > TL_EXEC_MAX_SHARED ||
        l->done == NULL)
        return -EINVAL;
    struct tl_exec_run *run = make_run(d, l, total);
    if (run == NULL)
        return -ENOMEM;
    memset(&l->fault, 0, sizeof l->fault);

    tl_mutex_lock(&d->lock);
    int rc = tl__device_attach(d);
    if (rc == 0)
        rc = ensure_workers(d, total);
    if (rc < 0) {
        give_run(d, run);
        tl_mutex_unlock(&d->lock);
        tl_exec_object_unref(l->object);
        return -ENOMEM;
    }
    run->gridid = l->gridid != 0 ? l->gridid : ++d->next_gridid;
    run->key = tl__sm_arrive(d->sm, l->priority);
    l->run = run;
    run->next_run = d->runs;
    if (d->runs != NULL)
        d->runs->prev_run = run;
    d->runs = run;
    if (run->partition != NULL && run->partition->active >= run->partition->n_slots)
        hold(d, run);
    else
        add_pending(d, run);
    enum tl__sm_chance chance = tl__sm_chance(d->sm);
    bool is_left = chance == TL__SM_TAKEN && d->look_ns == 0;
    if (is_left)
        d->look_ns = tl_clock_ns() + LEFT_NS;
    if (d->watchdog_ns != 0 || d->sm_config.shares_faults || is_left)
        pthread_cond_broadcast(&d->changed);
    tl_mutex_unlock(&d->lock);

    if (chance == TL__SM_FREE && atomic_load_explicit(&d->n_spinning, memory_order_seq_cst) == 0)
        tl__sm_wake(d->sm, 1);
    return 0;
}

uint64_t tl_exec_running_ns(struct tl_exec_device *d, const struct tl_exec_launch *l)
{
    tl_mutex_lock(&d->lock);
    uint64_t begin = l->run != NULL ? atomic_load_explicit(&l->run->begin_ns, memory_order_relaxed)
                                    : 0;
    tl_mutex_unlock(&d->lock);
    uint64_t now = tl_clock_ns();
    return begin != 0 && now > begin ? now - begin : 0;
}

/* Workers that are inside go on with the old one until they claim blocks again: env_must_stop. */
int tl_exec_replace(struct tl_exec_device *d, struct tl_exec_launch *l,
                    struct tl_exec_object *object)
{
    int rc = -ENOENT;
    tl_mutex_lock(&d->lock);
    struct tl_exec_run *run = l->run;
    if (run != NULL)
        rc = tl_exec_object_is_like(object, run->first) ? 0 : -EINVAL;
    if (rc == 0 && atomic_load_explicit(&run->object, memory_order_relaxed) != run->first)
        rc = -EEXIST;
    if (rc == 0)
        atomic_store_explicit(&run->object, tl_exec_object_ref(object), memory_order_release);
    tl_mutex_unlock(&d->lock);
    return rc;
}

void tl_exec_cancel(struct tl_exec_device *d, struct tl_exec_launch *l)
{
    tl_mutex_lock(&d->lock);
    if (l->run != NULL)
        tl__run_cancel(d, l->run);
    tl_mutex_unlock(&d->lock);
}

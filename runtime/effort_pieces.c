/* Kernels on the device: whole, or in pieces, and the news of their end.
 *
 *     slice       ranges of blocks, two launches in flight; a preemption is that no further one is launched
 *     ticket      blocks take numbers from a counter; two launches of a bounded number of blocks in flight
 *     persistent  workers loop over the counter: one launch, until it is done or told to stop
 *     whole       the original; marks behind some of them tell how far the device has come
 *
 * Behind each launch that is watched stand an event and a host function.  The host function wakes the executor at once.  But
 * host functions may have to wait for one of the job's that waits itself, and they do not run in a context that has failed;
 * so after a while the event is asked.
 *
 * A chain: a kernel may be launched before the one in front of it is known to be done, if it stops by itself when that is not the
 * case.  Its last stop word then is the control word of the one in front: {expected, counter}, equal only if all went through.
 * That hides the time between two kernels. */
#include "runtime/effort_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CONTROLS = 512,
    CONTROL_BYTES = 64,    /* a cache line each */
    MARK_EVERY = 64,       /* whole kernels */
    TICKET_DRAIN_NS = 400, /* what a ticket block costs that only leaves, on one SM */
    LEARN_LATENCIES = 64,
    TRIAL_WAVES = 4,
    TRIAL_NS = 400000,
};

/* Memory that both sides can count in.  With atomics on host memory it is that; otherwise device memory is used, and copied there
 * and back by the stream. */
struct tl_eff_control_slab {
    uint8_t *host;
    CUdeviceptr device;
    struct tl_eff_control *free, all[CONTROLS];
};

/* --- what pieces need of a context --------------------------------------------------------------------------------- */

/* When a host function was called; stays in memory if that never happens. */
struct stamp {
    _Atomic uint64_t ns;
};

static void stamp_now(void *data)
{
    atomic_store(&((struct stamp *)data)->ns, tl_eff_now());
}

/* How long it takes at best until the executor knows of an end on this driver: from the call to the host function, and half as
 * long again for waking up.  0 if it cannot be told. */
static uint64_t measure_round_trip(struct tl_eff_context *c)
{
    enum { TRIES = 5, PATIENCE_NS = 2000000 };
    uint64_t best = UINT64_MAX;
    CUstream side = c->sides[0];
    for (int i = 0; i < TRIES; i++) {
        struct stamp *s = calloc(1, sizeof *s);
        uint64_t begin = tl_eff_now(), end = 0;
        if (s == NULL || tl_real.cuLaunchHostFunc(side, stamp_now, s) != CUDA_SUCCESS) {
            free(s);
            return 0;
        }
        while ((end = atomic_load(&s->ns)) == 0 && tl_eff_now() - begin < PATIENCE_NS)
            nanosleep(&(struct timespec){0, 5000}, NULL);
        if (end == 0)
            return 0; /* it may still come, so the stamp is left alone */
        free(s);
        best = end - begin < best ? end - begin : best;
    }
    return best + best / 2;
}

/* Executor only, lock not held, context current. */
static bool prepare(struct tl_eff_context *c)
{
    if (c->is_prepared)
        return !c->is_unfit;
    c->is_prepared = true;
    c->is_unfit = true;
    CUdevice device;
    int atomics = 0;
    struct tl_eff_control_slab *slab = calloc(1, sizeof *slab);
    void *host = NULL;
    if (slab == NULL || tl_real.cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        tl_real.cuDeviceGetAttribute(&c->n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) != CUDA_SUCCESS ||
        tl_real.cuMemHostAlloc(&host, (CONTROLS + 1) * CONTROL_BYTES,
                               CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        tl_real.cuMemHostGetDevicePointer_v2(&slab->device, host, 0) != CUDA_SUCCESS) {
        tl_eff_note("no memory for counters: kernels run whole");
        free(slab);
        return false;
    }
    tl_real.cuDeviceGetAttribute(&atomics, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, device);
    c->has_host_atomics = atomics != 0;
    slab->host = host;
    memset(host, 0, (CONTROLS + 1) * CONTROL_BYTES);
    c->kick_word = (_Atomic uint64_t *)(void *)(slab->host + CONTROLS * CONTROL_BYTES);
    c->kick_device = slab->device + CONTROLS * CONTROL_BYTES;
    if (!c->has_host_atomics && tl_real.cuMemAlloc_v2(&slab->device, CONTROLS * CONTROL_BYTES) != CUDA_SUCCESS) {
        tl_eff_note("no memory for counters: kernels run whole");
        return false;
    }
    for (uint32_t i = 0; i < CONTROLS; i++) {
        struct tl_eff_control *k = &slab->all[i];
        k->word = (_Atomic uint64_t *)(void *)(slab->host + i * CONTROL_BYTES);
        k->device = slab->device + i * CONTROL_BYTES;
        k->next = slab->free;
        slab->free = k;
    }
    c->slab = slab;
    if (tl_real.cuStreamCreate(&c->sides[0], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS)
        atomic_store_explicit(&tl_eff.round_trip_ns, measure_round_trip(c), memory_order_relaxed);
    tl_eff_log(3, "news of an end take %llu us", (unsigned long long)tl_eff.round_trip_ns / 1000);
    c->is_unfit = false;
    return true;
}

static CUevent take_event(struct tl_eff_context *c)
{
    CUevent e = NULL;
    if (c->n_events > 0)
        return c->events[--c->n_events];
    tl_real.cuEventCreate(&e, CU_EVENT_DEFAULT);
    return e;
}

static void give_event(struct tl_eff_context *c, CUevent e)
{
    if (e == NULL)
        return;
    if (c->n_events == c->cap_events) {
        uint32_t cap = c->cap_events != 0 ? 2 * c->cap_events : 16;
        CUevent *more = realloc(c->events, cap * sizeof(CUevent));
        if (more == NULL) {
            tl_real.cuEventDestroy_v2(e);
            return;
        }
        c->events = more;
        c->cap_events = cap;
    }
    c->events[c->n_events++] = e;
}

/* --- accounting ---------------------------------------------------------------------------------------------------- */

void tl_eff_tell_word(void)
{
    struct tl_client_page *p = tl_eff.page;
    bool is_busy = tl_eff.n_flying + tl_eff.n_unmarked > 0;
    uint32_t issued = atomic_load_explicit(&p->issued, memory_order_relaxed);
    uint32_t completed = atomic_load_explicit(&p->completed, memory_order_relaxed);
    if (is_busy && issued == completed)
        atomic_store_explicit(&p->issued, issued + 1, memory_order_release);
    else if (!is_busy && issued != completed)
        atomic_store_explicit(&p->completed, issued, memory_order_release);
    atomic_store_explicit(&p->in_flight, tl_eff.n_flying + tl_eff.n_unmarked, memory_order_relaxed);
    bool has_backlog = is_busy || tl_eff.n_items > 0;
    if (has_backlog != tl_eff.has_backlog)
        tl_client_backlog(tl_eff.client, has_backlog);
    tl_eff.has_backlog = has_backlog;
}

void tl_eff_unmarked(struct tl_eff_stream *s, uint64_t predicted_ns, uint64_t now)
{
    if (s->n_unmarked++ == 0)
        s->unmarked_since = now;
    s->unmarked_ns += predicted_ns;
    tl_eff.n_unmarked++;
    tl_eff.flying_ns += predicted_ns;
    if (!s->is_busy) { /* the executor sees to it that a mark comes if nobody waits */
        s->is_busy = true;
        s->next_busy = NULL;
        *tl_eff.busy_end = s;
        tl_eff.busy_end = &s->next_busy;
        tl_eff_executor_start();
        if (tl_eff.n_unmarked == 1)
            tl_eff_ring();
    }
    tl_eff_tell_word();
}

void tl_eff_unmark(struct tl_eff_stream *s, uint32_t n, uint64_t ns)
{
    if (n > s->n_unmarked)
        n = s->n_unmarked;
    if (n == 0)
        return;
    if (ns > s->unmarked_ns)
        ns = s->unmarked_ns;
    s->n_unmarked -= n;
    s->unmarked_ns -= ns;
    tl_eff.n_unmarked -= n;
    tl_eff.flying_ns -= ns < tl_eff.flying_ns ? ns : tl_eff.flying_ns;
    atomic_fetch_add_explicit(&tl_eff.page->device_ns, ns, memory_order_relaxed);
    tl_eff_tell_word();
}

/* Runs on a thread of the driver: no call to CUDA from here. */
static void tell(void *data)
{
    struct tl_eff_piece *p = data;
    atomic_store_explicit(&p->told_ns, tl_eff_now(), memory_order_relaxed);
    atomic_store_explicit(&p->told, 1, memory_order_release); /* what it says is there before the executor looks */
    tl_eff_ring();
}

/* Host functions stand in streams of their own, behind the event: in the job's stream they would hold up what comes next. */
static CUstream side_of(const struct tl_eff_stream *s)
{
    CUstream *side = &s->context->sides[s->number % TL_EFF_SIDES];
    if (*side == NULL && tl_real.cuStreamCreate(side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        *side = NULL;
    return *side;
}

/* Puts event and host function behind what was launched.  Executor only; lock not held. */
static CUresult watch(struct tl_eff_piece *p)
{
    CUstream side = side_of(p->stream);
    p->end = take_event(p->stream->context);
    CUresult r = p->end != NULL && side != NULL ? tl_real.cuEventRecord(p->end, p->stream->handle)
                                                : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = tl_real.cuStreamWaitEvent(side, p->end, 0);
    if (r == CUDA_SUCCESS)
        r = tl_real.cuLaunchHostFunc(side, tell, p);
    return r;
}

/* Lock held. */
static void add_flying(struct tl_eff_piece *p)
{
    p->next = NULL;
    *tl_eff.flying_end = p;
    tl_eff.flying_end = &p->next;
    tl_eff.n_flying++;
    tl_eff.flying_ns += p->predicted_ns;
    p->stream->n_flying++;
    tl_eff_tell_word();
}

static struct tl_eff_piece *make_piece(struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->stream = s;
        p->launched_ns = tl_eff_now();
    }
    return p;
}

/* --- whole kernels ------------------------------------------------------------------------------------------------- */

void tl_eff_mark(struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = make_piece(s);
    if (p == NULL || s->n_unmarked == 0 || s->is_capturing || s->n_unmarkable > 0) {
        free(p);
        return;
    }
    p->n_kernels = s->n_unmarked;
    p->predicted_ns = s->unmarked_ns;
    s->n_unmarked = 0;
    s->unmarked_ns = 0;
    tl_eff.n_unmarked -= p->n_kernels;
    tl_eff.flying_ns -= p->predicted_ns < tl_eff.flying_ns ? p->predicted_ns : tl_eff.flying_ns;
    add_flying(p);
    s->is_being_marked = true;
    tl_eff_unlock();
    tl_eff_make_current(s->context);
    if (watch(p) != CUDA_SUCCESS)
        p->is_lost = true;
    tl_eff_lock();
    s->is_being_marked = false;
    if (s->n_unmarkable > 0)
        pthread_cond_broadcast(&tl_eff.submitted);
}

void tl_eff_marks_off(struct tl_eff_stream *s)
{
    s->n_unmarkable++;
    while (s->is_being_marked)
        pthread_cond_wait(&tl_eff.submitted, &tl_eff.lock);
}

void tl_eff_marks_on(struct tl_eff_stream *s)
{
    s->n_unmarkable--;
}

CUresult tl_eff_launch_measured(struct tl_eff_stream *s, const struct tl_eff_launch *l)
{
    struct tl_eff_context *c = s->context;
    struct tl_eff_piece *p = make_piece(s);
    if (p != NULL) {
        p->kernel = l->kernel;
        p->profile = l->profile;
        p->shape = *l;
        p->shape.params = NULL;
        p->n_kernels = 1;
        p->blocks = l->blocks;
        p->predicted_ns = tl_eff_predicted_ns(l->profile);
        add_flying(p);
    }
    tl_eff_unlock();
    tl_eff_make_current(c);
    prepare(c);
    if (p != NULL) {
        p->begin = take_event(c);
        if (p->begin != NULL && tl_real.cuEventRecord(p->begin, s->handle) != CUDA_SUCCESS) {
            give_event(c, p->begin);
            p->begin = NULL;
        }
    }
    CUresult r = tl_eff_launch_whole(l, s->handle);
    if (p != NULL && (r != CUDA_SUCCESS || watch(p) != CUDA_SUCCESS))
        p->is_lost = true;
    tl_eff_lock();
    return r;
}

/* --- pieces -------------------------------------------------------------------------------------------------------- */

static struct tl_eff_control *take_control(struct tl_eff_context *c)
{
    struct tl_eff_control *k = c->slab->free;
    if (k != NULL)
        c->slab->free = k->next;
    return k;
}

static void give_control(struct tl_eff_context *c, struct tl_eff_control *k)
{
    if (k == NULL)
        return;
    k->next = c->slab->free;
    c->slab->free = k;
}

static uint32_t workers_of(struct tl_eff_context *c, struct tl_eff_variant *v, const struct tl_eff_launch *l)
{
    if (v->occupancy == 0) {
        int threads = (int)(l->block[0] * l->block[1] * l->block[2]);
        if (tl_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(&v->occupancy, v->function, threads,
                                                                TL_PTX_SHARED_BYTES(l->shared_bytes)) != CUDA_SUCCESS ||
            v->occupancy < 1)
            v->occupancy = 1;
    }
    uint32_t sms = (uint32_t)(c->n_sms > 0 ? c->n_sms : 1);
    if (tl_eff.grant.sm_permille > 0 && tl_eff.grant.sm_permille < 1000) {
        sms = (uint32_t)((uint64_t)sms * tl_eff.grant.sm_permille / 1000);
        sms = sms > 0 ? sms : 1;
    }
    uint32_t n = sms * (uint32_t)v->occupancy;
    return n < l->blocks ? n : l->blocks;
}

/* How many blocks the next piece may have, and how many pieces may be in flight. */
static uint32_t piece_blocks(struct tl_eff_context *c, const struct tl_eff_launch *l)
{
    uint32_t sms = (uint32_t)(c->n_sms > 0 ? c->n_sms : 1), left = l->blocks - l->launched, n;
    uint64_t budget = tl_eff_turnaround_ns() / 2;
    if (l->rung == TL_RUNG_SLICE) {
        uint64_t block_ns = l->profile != NULL ? l->profile->rungs[TL_RUNG_SLICE].block_ns : 0;
        block_ns = block_ns != 0 ? block_ns : budget;
        n = (uint32_t)(budget / block_ns) * sms;
    } else {
        n = (uint32_t)(budget / TICKET_DRAIN_NS) * sms;
    }
    if (n < sms)
        n = sms;
    return n < left ? n : left;
}

/* A variant is tried on a few blocks before it gets all of them. */
static bool is_trial(const struct tl_eff_launch *l)
{
    return tl_eff.settings->force < 0 && l->profile != NULL && l->profile->rungs[l->rung].n_samples < TL_EFF_TRIALS;
}

static uint32_t trial_blocks(const struct tl_eff_context *c, const struct tl_eff_launch *l)
{
    /* Long enough for the launch itself not to count, as far as the original tells. */
    uint64_t waves = l->profile->block_ns != 0 ? TRIAL_NS / l->profile->block_ns : 0;
    uint64_t n = (waves > TRIAL_WAVES ? waves : TRIAL_WAVES) * (uint64_t)(c->n_sms > 0 ? c->n_sms : 1);
    uint32_t left = l->blocks - l->launched;
    return n < left ? (uint32_t)n : left;
}

/* Launches one piece.  Lock held, given up meanwhile.  `before` is the kernel in front whose end is not known yet, or NULL. */
static void launch_piece(struct tl_eff_stream *s, struct tl_eff_item *item, struct tl_eff_item *before)
{
    struct tl_eff_launch *l = &item->launch;
    struct tl_eff_variant *v = l->variant;
    struct tl_eff_context *c = s->context;
    struct tl_eff_piece *p = make_piece(s);
    if (p == NULL) {
        s->is_held = true; /* later, perhaps */
        return;
    }
    struct tl_eff_extra x = {.grid = {l->grid[0], l->grid[1], l->grid[2]}, .first = l->launched, .blocks = l->blocks};
    p->item = item;
    item->refs++;
    p->profile = l->profile;
    p->kernel = l->kernel;
    p->first = l->done;
    uint64_t whole_ns = tl_eff_predicted_ns(l->profile);
    uint32_t launch_blocks;
    if (l->rung == TL_RUNG_PERSISTENT) {
        launch_blocks = 0; /* asked below, outside the lock */
        p->blocks = is_trial(l) ? trial_blocks(c, l) : l->blocks - l->done;
        l->launched = x.blocks = l->done + p->blocks;
    } else {
        launch_blocks = p->blocks = is_trial(l) ? trial_blocks(c, l) : before != NULL ? l->blocks : piece_blocks(c, l);
        l->launched += p->blocks;
    }
    p->predicted_ns = l->blocks > 0 ? whole_ns * p->blocks / l->blocks : 0;
    p->words_epoch = tl_eff.words_epoch;
    if (l->profile != NULL && l->profile->n_latencies < LEARN_LATENCIES && tl_eff.n_words > 0)
        tl_eff.wants_latency = true;
    l->n_flying++;
    add_flying(p);
    bool is_measured = is_trial(l) || tl_eff_wants_sample(l->profile);
    tl_eff_unlock();

    uint32_t n_words = 0;
    CUresult r = CUDA_SUCCESS;
    if (l->rung != TL_RUNG_SLICE) {
        if (!tl_eff_gate_words(x.words, &n_words, p->words_epoch))
            r = CUDA_ERROR_NOT_SUPPORTED;
        if (n_words < TL_SHARE_WORDS)
            x.words[TL_SHARE_WORDS - 1] = before != NULL ? before->launch.control->device : c->kick_device;
        uint32_t expected = x.blocks, done = l->done;
        if (l->rung == TL_RUNG_PERSISTENT) {
            launch_blocks = workers_of(c, v, l);
            launch_blocks = launch_blocks < p->blocks ? launch_blocks : p->blocks;
            expected += launch_blocks; /* each worker takes one number too many when it finds the end */
        }
        /* Nobody else writes while nothing of it is in flight.  Two words at once, so that nobody sees a mixture. */
        if (l->n_flying == 1)
            atomic_store_explicit(l->control->word, (uint64_t)done << 32 | expected, memory_order_release);
        x.counter = l->control->device + 4;
    }
    if (is_measured) {
        p->begin = take_event(c);
        if (p->begin != NULL && tl_real.cuEventRecord(p->begin, s->handle) != CUDA_SUCCESS) {
            give_event(c, p->begin);
            p->begin = NULL;
        }
    }
    tl_eff_variant_args(v, l->params, &x);
    size_t n = v->param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n, CU_LAUNCH_PARAM_END};
    bool copies = l->rung != TL_RUNG_SLICE && !c->has_host_atomics;
    if (r == CUDA_SUCCESS && copies && l->n_flying == 1)
        r = tl_real.cuMemcpyHtoDAsync_v2(l->control->device, (void *)l->control->word, 8, s->handle);
    if (r == CUDA_SUCCESS)
        r = tl_real.cuLaunchKernel(v->function, launch_blocks, 1, 1, l->block[0], l->block[1], l->block[2],
                                   v->uses_slot ? TL_PTX_SHARED_BYTES(l->shared_bytes) : l->shared_bytes, s->handle,
                                   NULL, extra);
    if (r == CUDA_SUCCESS && copies)
        r = tl_real.cuMemcpyDtoHAsync_v2((void *)l->control->word, l->control->device, 8, s->handle);
    p->refusal = r;
    if (r != CUDA_SUCCESS || watch(p) != CUDA_SUCCESS)
        p->is_lost = true;
    tl_eff_lock();
}

/* --- choosing a rung ----------------------------------------------------------------------------------------------- */

static const struct {
    enum tl_rung rung;
    enum tl_ptx_variant kind;
} by_rung[] = {{TL_RUNG_PERSISTENT, TL_PTX_PERSISTENT}, {TL_RUNG_TICKET, TL_PTX_TICKET}, {TL_RUNG_SLICE, TL_PTX_SLICE}};

/* Lock held, given up meanwhile if a rung is forced. */
static void choose(struct tl_eff_launch *l, bool is_chained)
{
    int force = tl_eff.settings->force;
    bool may_come;
    enum tl_rung was = l->rung;
    struct tl_eff_variant *old = l->variant;
    l->is_chosen = true;
    l->rung = TL_RUNG_WHOLE;
    l->variant = NULL;
    if (force >= 0) {
        for (uint32_t i = 0; i < 3; i++) {
            if ((int)by_rung[i].rung == force)
                l->variant = tl_eff_variant(l, by_rung[i].kind, true, &may_come);
        }
        if (l->variant != NULL)
            l->rung = (enum tl_rung)force;
        return;
    }
    bool is_known = l->profile != NULL && l->profile->whole_ns != 0;
    uint64_t ns = tl_eff_predicted_ns(l->profile);
    bool is_short = is_known && ns <= tl_eff_turnaround_ns();
    bool is_harmless = tl_eff_is_alone() && (!is_known || ns <= 20000000);
    for (uint32_t i = 0; i < 3 && l->variant == NULL; i++) {
        if (by_rung[i].rung < tl_eff.grant.finest || (is_short && !is_chained && l->done == 0) ||
            (l->profile != NULL && l->profile->rungs[by_rung[i].rung].is_slow))
            continue;
        if (!is_known && l->kernel->variants[by_rung[i].kind][0] == NULL)
            continue; /* its time decides whether one is worth building */
        l->variant = tl_eff_variant(l, by_rung[i].kind, false, &may_come);
        if (l->variant != NULL)
            l->rung = by_rung[i].rung;
        else if (may_come)
            break; /* the next best one is not worth building meanwhile */
    }
    if (l->done > 0 && l->variant == NULL) { /* what was begun in pieces ends in pieces */
        l->variant = old;
        l->rung = was;
    } else if (l->done == 0 && is_harmless && !is_chained) {
        l->variant = NULL;
        l->rung = TL_RUNG_WHOLE;
    }
}

/* --- one kernel's way ---------------------------------------------------------------------------------------------- */

/* How long it could have begun earlier: since it was asked for and all in front of it was submitted. */
static uint64_t stood_ready(const struct tl_eff_launch *l, uint64_t began_ns)
{
    uint64_t since = l->queued_ns > l->head_ns ? l->queued_ns : l->head_ns;
    return began_ns > since ? began_ns - since : 0;
}

static void finish_kernel(struct tl_eff_stream *s, struct tl_eff_item *item, CUresult result)
{
    struct tl_eff_launch *l = &item->launch;
    give_control(s->context, l->control);
    l->control = NULL;
    if (result == CUDA_SUCCESS && l->rung < TL_RUNG_WHOLE)
        tl_record_ran(l->kernel->record, stood_ready(l, l->began_ns), l->device_ns);
    tl_eff_submitted(item, result);
}

static void count_launch(const struct tl_eff_launch *l)
{
    tl_record_launched(l->kernel->record, l->rung, l->blocks);
    atomic_fetch_add_explicit(&tl_eff.page->launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&tl_eff.page->blocks, l->blocks, memory_order_relaxed);
    atomic_store_explicit(&tl_eff.page->rung, l->rung, memory_order_relaxed);
}

static bool advance_whole(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    uint64_t ns = tl_eff_predicted_ns(l->profile);
    CUresult r;
    if (l->profile != NULL)
        l->profile->n_launches++;
    l->began_ns = now;
    item->is_under_way = true;
    count_launch(l);
    if (tl_eff_wants_sample(l->profile)) {
        r = tl_eff_launch_measured(s, l);
    } else {
        tl_eff_unmarked(s, ns, now);
        tl_eff_unlock();
        tl_eff_make_current(s->context);
        r = tl_eff_launch_whole(l, s->handle);
        tl_eff_lock();
        if (s->n_unmarked >= MARK_EVERY || s->unmarked_ns >= tl_eff_run_ahead_ns() / 4)
            tl_eff_mark(s);
    }
    finish_kernel(s, item, r);
    return true;
}

/* The item in front of it in its stream. */
static struct tl_eff_item *in_front(struct tl_eff_stream *s, struct tl_eff_item *item)
{
    struct tl_eff_item *f = s->first;
    while (f != NULL && f->next != item)
        f = f->next;
    return f;
}

bool tl_eff_kernel_advance(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    bool is_first = s->first == item;
    if (l->head_ns == 0)
        l->head_ns = now;
    if (s->is_stalled)
        return false;
    if (!tl_eff_gate_is_open(now)) {
        if (l->ready_ns == 0)
            l->ready_ns = now;
        s->is_held = true;
        return false;
    }
    if (!l->is_chosen) {
        choose(l, !is_first);
        if (l->variant != NULL) {
            tl_eff_unlock();
            tl_eff_make_current(s->context);
            bool is_fit = prepare(s->context);
            tl_eff_lock();
            if (is_fit && l->rung != TL_RUNG_SLICE && l->control == NULL)
                l->control = take_control(s->context);
            bool is_lacking = !is_fit || (l->rung != TL_RUNG_SLICE && l->control == NULL);
            if (is_lacking && l->done > 0) { /* all counters are in use: one will be free */
                l->is_chosen = false;
                s->is_held = true;
                return false;
            }
            if (is_lacking) {
                l->variant = NULL;
                l->rung = TL_RUNG_WHOLE;
            }
        }
    }
    if (l->rung >= TL_RUNG_WHOLE) {
        if (!is_first) {
            l->is_chosen = false; /* it may look different when its turn comes */
            return false;
        }
        if (!tl_eff_has_room(s, tl_eff_predicted_ns(l->profile))) {
            if (s->n_flying == 0)
                tl_eff_mark(s); /* else the news will come anyway */
            return false;
        }
        s->is_held = !tl_eff_take_rate(l->blocks, now);
        return !s->is_held && advance_whole(s, item, now);
    }
    struct tl_eff_item *before = is_first ? NULL : in_front(s, item);
    uint32_t at_once = l->rung == TL_RUNG_PERSISTENT || before != NULL || is_trial(l) ? 1 : 2;
    if (l->launched >= l->blocks || l->n_flying >= at_once)
        return false;
    if (before != NULL &&
        (l->rung == TL_RUNG_SLICE || (l->rung == TL_RUNG_TICKET && piece_blocks(s->context, l) < l->blocks)))
        return false; /* it cannot stop by itself, or not fast enough */
    if (l->began_ns == 0 && !tl_eff_take_rate(l->blocks, now)) {
        s->is_held = true;
        return false;
    }
    if (l->began_ns == 0) {
        l->began_ns = now;
        if (l->profile != NULL)
            l->profile->n_launches++;
        count_launch(l);
    }
    if (l->ready_ns != 0) {
        atomic_fetch_add_explicit(&tl_eff.page->waited_ns, now - l->ready_ns, memory_order_relaxed);
        tl_record_spanned(tl_eff.record, TL_SPAN_WAIT, l->kernel->record, s->number, l->ready_ns, now);
        l->ready_ns = 0;
    }
    launch_piece(s, item, before);
    return true;
}

/* --- coming back --------------------------------------------------------------------------------------------------- */

/* All launches of a counting kernel are over: the counter tells how far it came.  Lock held. */
static void look_at_counter(struct tl_eff_stream *s, struct tl_eff_item *item, const struct tl_eff_piece *p,
                            uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    uint32_t taken = (uint32_t)(atomic_load_explicit(l->control->word, memory_order_acquire) >> 32), was = l->done;
    l->done = taken < l->launched ? taken : l->launched; /* workers go beyond the end by one each */
    if (l->done < l->launched) {
        s->is_stalled = s->n_flying > 0; /* what was launched behind it stops by itself */
        tl_eff.busy_ns = now;
        if (item == s->first) {
            atomic_fetch_add_explicit(&tl_eff.page->preemptions, 1, memory_order_relaxed);
            if (p->stop_seen_ns != 0) {
                tl_record_preempted(l->kernel->record, now - p->stop_seen_ns);
                tl_eff_profile_preempted(l->profile, now - p->stop_seen_ns);
            }
        }
    }
    l->launched = l->done;
    if (p->begin != NULL)
        tl_eff_profile_ran(l->profile, l, l->rung, l->since_ns, l->done - was, s->context->n_sms);
    l->since_ns = 0;
}

/* A piece of a kernel is over.  Lock held. */
static void piece_is_over(struct tl_eff_piece *p, uint64_t ns, uint64_t now)
{
    struct tl_eff_item *item = p->item;
    struct tl_eff_launch *l = &item->launch;
    l->n_flying--;
    l->since_ns += ns;
    l->device_ns += ns;
    if (item->is_submitted)
        return;
    if (p->is_lost && p->refusal != CUDA_SUCCESS && l->done == 0 && l->n_flying == 0) {
        /* The driver cannot run this form after all: the original it can. */
        tl_eff_note("%s: the driver refused a launch of its %s variant (error %d)", l->kernel->name,
                    tl_ptx_variant_name(l->variant->kind), p->refusal);
        l->variant->state = TL_EFF_REFUSED;
        l->variant = NULL;
        l->rung = TL_RUNG_WHOLE;
        l->launched = 0;
    } else if (p->is_lost) { /* the context failed: nothing more can be done for this kernel */
        if (p->refusal != CUDA_SUCCESS && p->stream->context->error == CUDA_SUCCESS)
            p->stream->context->error = p->refusal;
        l->launched = l->done = l->blocks;
    } else if (l->rung != TL_RUNG_SLICE) {
        if (l->n_flying == 0 && l->done < l->blocks)
            look_at_counter(p->stream, item, p, now);
    } else {
        l->done += p->blocks;
        if (p->begin != NULL)
            tl_eff_profile_ran(l->profile, l, l->rung, ns, p->blocks, p->stream->context->n_sms);
    }
    if (l->variant != NULL && l->n_flying == 0 && l->done < l->blocks && l->profile != NULL &&
        l->profile->rungs[l->rung].is_slow)
        l->is_chosen = false; /* the rest on another rung, if there is one */
}

/* Lock held, given up meanwhile.  The time on the device, or an estimate. */
static uint64_t time_of(struct tl_eff_piece *p)
{
    struct tl_eff_stream *s = p->stream;
    float ms = 0;
    if (p->begin != NULL && !p->is_lost) {
        tl_eff_unlock();
        CUresult r = tl_real.cuEventElapsedTime(&ms, p->begin, p->end);
        tl_eff_lock();
        if (r == CUDA_SUCCESS && ms > 0)
            return (uint64_t)((double)ms * 1e6);
    }
    uint64_t end = atomic_load_explicit(&p->told_ns, memory_order_relaxed);
    uint64_t begin = p->launched_ns > s->last_done_ns ? p->launched_ns : s->last_done_ns;
    return p->item == NULL ? p->predicted_ns : end > begin ? end - begin : 0;
}

/* Lock held, given up meanwhile. */
static void come_back(struct tl_eff_piece *p)
{
    struct tl_eff_stream *s = p->stream;
    uint64_t now = tl_eff_now(), ns = time_of(p);
    uint64_t end = atomic_load_explicit(&p->told_ns, memory_order_relaxed);
    p->is_over = true;
    tl_eff.n_flying--;
    s->n_flying--;
    tl_eff.flying_ns -= p->predicted_ns < tl_eff.flying_ns ? p->predicted_ns : tl_eff.flying_ns;
    atomic_fetch_add_explicit(&tl_eff.page->device_ns, ns, memory_order_relaxed);
    if (p->kernel != NULL)
        tl_record_spanned(tl_eff.record, TL_SPAN_RUN, p->kernel->record, s->number, (end != 0 ? end : now) - ns,
                          end != 0 ? end : now);
    if (p->item != NULL) {
        piece_is_over(p, ns, now);
    } else if (p->profile != NULL && p->kernel != NULL && !p->is_lost) {
        tl_eff_profile_ran(p->profile, &p->shape, TL_RUNG_WHOLE, ns, p->shape.blocks, s->context->n_sms);
        tl_record_ran(p->kernel->record, stood_ready(&p->shape, p->launched_ns), ns);
        if (tl_eff.n_words > 0 && ns > tl_eff_turnaround_ns()) {
            tl_record_uncontrolled(p->kernel->record, ns);
            atomic_fetch_add_explicit(&tl_eff.page->uncontrolled_ns, ns, memory_order_relaxed);
        }
    }
    if (p->item == NULL && tl_eff.caution > 0)
        tl_eff.caution--;
    s->last_done_ns = end != 0 ? end : now;
    if (s->n_flying == 0)
        s->is_stalled = false;
    /* Kernels at the head whose last block is done. */
    while (s->first != NULL && s->first->kind == TL_EFF_KERNEL && s->first->launch.rung < TL_RUNG_WHOLE &&
           s->first->launch.is_chosen && s->first->launch.n_flying == 0 &&
           s->first->launch.done >= s->first->launch.blocks)
        finish_kernel(s, s->first, CUDA_SUCCESS);
    give_event(s->context, p->begin);
    give_event(s->context, p->end);
    p->begin = p->end = NULL;
    tl_eff_item_unref(p->item);
    p->item = NULL;
    tl_eff_tell_word();
}

bool tl_eff_collect(bool ask)
{
    bool did = false;
    for (struct tl_eff_piece **at = &tl_eff.flying; *at != NULL;) {
        struct tl_eff_piece *p = *at;
        bool told = atomic_load_explicit(&p->told, memory_order_acquire) != 0;
        if (!p->is_over) {
            bool is_over = told || p->is_lost;
            if (!is_over && ask) {
                tl_eff_unlock();
                CUresult r = tl_real.cuEventQuery(p->end);
                tl_eff_lock();
                is_over = r != CUDA_ERROR_NOT_READY;
                p->is_lost |= is_over && r != CUDA_SUCCESS;
            }
            if (is_over) {
                come_back(p);
                did = true;
            }
        }
        if (p->is_over && (told || p->is_lost)) { /* its host function will not need it any more */
            *at = p->next;
            if (p->next == NULL)
                tl_eff.flying_end = at;
            if (told)
                free(p);
            continue;
        }
        at = &p->next;
    }
    return did;
}

void tl_eff_kick(uint64_t now)
{
    bool is_asked = !tl_eff.grant.may_run, has_pieces = false;
    for (struct tl_eff_piece *p = tl_eff.flying; p != NULL; p = p->next) {
        if (p->is_over || p->item == NULL || p->item->launch.rung == TL_RUNG_SLICE)
            continue;
        has_pieces = true;
        is_asked |= p->words_epoch != tl_eff.words_epoch;
    }
    bool kicks = has_pieces && is_asked;
    for (struct tl_eff_context *c = tl_eff.contexts; kicks != tl_eff.is_kicking && c != NULL; c = c->next) {
        if (c->kick_word != NULL)
            atomic_store_explicit(c->kick_word, kicks ? 1 : 0, memory_order_release);
    }
    tl_eff.is_kicking = kicks;
    /* Whoever sees a stop learns how long it takes. */
    if (!tl_eff.wants_latency || !has_pieces || !tl_client_is_preempted(tl_eff.client))
        return;
    for (struct tl_eff_piece *p = tl_eff.flying; p != NULL; p = p->next) {
        if (!p->is_over && p->stop_seen_ns == 0)
            p->stop_seen_ns = now;
    }
    tl_eff.wants_latency = false;
}

/* A kernel's way to the device: whole or in pieces, on which rung, and of what size.
 *
 *     slice       ranges of blocks, two launches in flight; a preemption is that no further one is launched
 *     ticket      blocks take numbers from a counter; two launches of a bounded number of blocks in flight
 *     persistent  workers loop over the counter: one launch, until it is done or told to stop
 *     whole       the original; marks behind some of them tell how far the device has come
 *
 * A chain: a kernel may be launched before the one in front of it is known to be done, if it stops
 * by itself when that is not the case.  Its last stop word then is the control word of the one in
 * front: {expected, counter}, equal only if all went through. That hides the time between two
 * kernels. */
#include "runtime/effort/internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MARK_EVERY = 64, /* whole kernels */
    /* what a ticket block costs that only leaves, on one SM, with all that it finds cold */
    TICKET_DRAIN_NS = 800,
    FINE_BLOCK_NS = 2000, /* shorter blocks are taken several at a time, */
    BATCH_NS = 8000,      /* for about as long as it takes to leave the device anyway, */
    MOST_BATCH = 64,
    BATCHES = 8, /* but each worker several times, so that all are done at about the same time */
    TRIAL_WAVES = 4,
    TRIAL_NS = 400000,
};

/* --- pieces ----------------------------------------------------------------------------------- */

/* The part of the SMs that the policy grants. */
static uint32_t granted_sms(const struct tl_eff_context *c)
{
    uint32_t sms = (uint32_t)(c->n_sms > 0 ? c->n_sms : 1), permille = tl_eff.grant.sm_permille;
    if (permille == 0 || permille >= 1000)
        return sms;
    sms = (uint32_t)((uint64_t)sms * permille / 1000);
    return sms > 0 ? sms : 1;
}

/* A policy that divides the SMs: then every kernel that can runs in a form that keeps to its part,
 * however short it is. */
static bool is_capped(void)
{
    return tl_eff.grant.finest == TL_RUNG_CAP && tl_eff.grant.sm_permille > 0 &&
           tl_eff.grant.sm_permille < 1000;
}

static uint32_t workers_of(struct tl_eff_context *c, struct tl_eff_variant *v,
                           const struct tl_eff_launch *l)
{
    if (v->occupancy == 0) {
        int threads = (int)(l->block[0] * l->block[1] * l->block[2]);
        if (tl_eff_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &v->occupancy, v->function, threads, TL_PTX_SHARED_BYTES(l->shared_bytes)) !=
                CUDA_SUCCESS ||
            v->occupancy < 1)
            v->occupancy = 1;
    }
    /* Workers that share an SM in turns are as good as one there; more of them would take longer to
     * leave, and spread over SMs that were not granted. */
    uint32_t n = granted_sms(c) * (c->runs_block_by_block ? 1 : (uint32_t)v->occupancy);
    return n < l->blocks ? n : l->blocks;
}

/* How many blocks a persistent worker takes from the counter at a time: to take and to ask costs as
 * much as to run a fine block, and such blocks are over so soon that some of them are no longer
 * than one of others. */
static uint32_t batch_of(const struct tl_eff_context *c, const struct tl_eff_launch *l)
{
    uint64_t ns = l->profile == NULL          ? 0
                  : l->profile->block_ns != 0 ? l->profile->block_ns
                                              : l->profile->rungs[TL_RUNG_PERSISTENT].block_ns;
    uint32_t n = 1, waves = (l->blocks - l->done) / granted_sms(c);
    if (ns == 0 || ns >= FINE_BLOCK_NS)
        return 1;
    while (2 * n * ns <= BATCH_NS && 2 * n <= MOST_BATCH && 2 * n * BATCHES <= waves)
        n *= 2;
    while (n > 1 && l->done % n != 0) /* a worker takes on where a multiple begins */
        n /= 2;
    return n;
}

/* How many blocks the next piece may have, and how many pieces may be in flight. */
static uint32_t piece_blocks(struct tl_eff_context *c, const struct tl_eff_launch *l)
{
    uint32_t sms = granted_sms(c), left = l->blocks - l->launched, n;
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
    return tl_eff.settings->force < 0 && l->profile != NULL &&
           tl_eff_is_on_trial(l->profile, l->rung);
}

static uint32_t trial_blocks(const struct tl_eff_context *c, const struct tl_eff_launch *l)
{
    /* Long enough for the launch itself not to count, as far as the original tells. */
    uint64_t waves = l->profile->block_ns != 0 ? TRIAL_NS / l->profile->block_ns : 0;
    uint64_t n = (waves > TRIAL_WAVES ? waves : TRIAL_WAVES) *
                 (uint64_t)(c->n_sms > 0 ? c->n_sms : 1);
    uint32_t left = l->blocks - l->launched;
    return n < left ? (uint32_t)n : left;
}

/* Launches one piece.  Lock held, given up meanwhile.  `before` is the kernel in front whose end is
 * not known yet, or NULL. */
static void launch_piece(struct tl_eff_stream *s, struct tl_eff_item *item,
                         struct tl_eff_item *before)
{
    struct tl_eff_launch *l = &item->launch;
    struct tl_eff_variant *v = l->variant;
    struct tl_eff_context *c = s->context;
    struct tl_eff_piece *p = tl_eff_make_piece(s);
    if (p == NULL) {
        s->is_held = true; /* later, perhaps */
        return;
    }
    struct tl_eff_extra x = {
        .grid = {l->grid[0], l->grid[1], l->grid[2]}, .first = l->launched, .blocks = l->blocks};
    p->item = item;
    item->refs++;
    p->profile = l->profile;
    p->kernel = l->kernel;
    p->first = l->done;
    uint64_t whole_ns = tl_eff_predicted_ns(l->profile);
    uint32_t launch_blocks;
    if (l->rung == TL_RUNG_PERSISTENT) {
        launch_blocks = 0; /* asked below, outside the lock */
        uint32_t batch = batch_of(c, l), left = l->blocks - l->done;
        uint32_t n = is_trial(l) ? (trial_blocks(c, l) + batch - 1) / batch * batch : left;
        p->blocks = n < left ? n : left;
        l->launched = x.blocks = l->done + p->blocks;
        x.batch_mask = batch - 1;
    } else {
        launch_blocks = p->blocks = is_trial(l)      ? trial_blocks(c, l)
                                    : before != NULL ? l->blocks
                                                     : piece_blocks(c, l);
        l->launched += p->blocks;
    }
    p->predicted_ns = l->blocks > 0 ? whole_ns * p->blocks / l->blocks : 0;
    p->words_epoch = tl_eff.words_epoch;
    if (before != NULL) {
        p->in_front = before->launch.control;
        p->in_front->refs++;
    }
    l->n_flying++;
    tl_eff_add_flying(p);
    bool is_measured = is_trial(l) || tl_eff_wants_sample(l->profile);
    tl_eff_unlock();

    uint32_t n_words = 0;
    CUresult r = CUDA_SUCCESS;
    if (l->rung != TL_RUNG_SLICE) {
        if (!tl_eff_gate_words(x.words, &n_words, p->words_epoch))
            r = CUDA_ERROR_NOT_SUPPORTED;
        if (n_words < TL_SHARE_WORDS)
            x.words[TL_SHARE_WORDS - 1] = p->in_front != NULL ? p->in_front->device
                                                              : c->kick_device;
        uint32_t expected = x.blocks, done = l->done;
        if (l->rung == TL_RUNG_PERSISTENT) {
            launch_blocks = workers_of(c, v, l);
            launch_blocks = launch_blocks < p->blocks ? launch_blocks : p->blocks;
            /* Each worker takes one batch too many when it finds the end, but for the one whose
             * batch is cut off there. */
            uint32_t batch = x.batch_mask + 1;
            expected = done + (p->blocks / batch + launch_blocks) * batch;
        }
        /* Nobody else writes while nothing of it is in flight.  Two words at once, so that nobody
         * sees a mixture. */
        if (l->n_flying == 1)
            atomic_store_explicit(l->control->word, (uint64_t)done << 32 | expected,
                                  memory_order_release);
        x.counter = l->control->device + 4;
    }
    if (is_measured) {
        p->begin = tl_eff_take_event(c);
        if (p->begin != NULL && tl_eff_real.cuEventRecord(p->begin, s->handle) != CUDA_SUCCESS) {
            tl_eff_give_event(c, p->begin);
            p->begin = NULL;
        }
    }
    tl_eff_variant_args(v, l->params, &x);
    size_t n = v->param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, l->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n,
                     CU_LAUNCH_PARAM_END};
    bool copies = l->rung != TL_RUNG_SLICE && !c->has_host_atomics;
    if (r == CUDA_SUCCESS && copies && l->n_flying == 1)
        r = tl_eff_real.cuMemcpyHtoDAsync_v2(l->control->device, (void *)l->control->word, 8,
                                             s->handle);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuLaunchKernel(
            v->function, launch_blocks, 1, 1, l->block[0], l->block[1], l->block[2],
            v->uses_slot ? TL_PTX_SHARED_BYTES(l->shared_bytes) : l->shared_bytes, s->handle, NULL,
            extra);
    if (r == CUDA_SUCCESS && copies)
        r = tl_eff_real.cuMemcpyDtoHAsync_v2((void *)l->control->word, l->control->device, 8,
                                             s->handle);
    p->refusal = r;
    if (r != CUDA_SUCCESS || tl_eff_watch(p) != CUDA_SUCCESS)
        p->is_lost = true;
    tl_eff_lock();
}

/* --- choosing a rung -------------------------------------------------------------------------- */

static const struct {
    enum tl_rung rung;
    enum tl_ptx_variant kind;
} by_rung[] = {{TL_RUNG_PERSISTENT, TL_PTX_PERSISTENT},
               {TL_RUNG_TICKET, TL_PTX_TICKET},
               {TL_RUNG_SLICE, TL_PTX_SLICE}};

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
    bool keeps_part = is_capped();
    bool is_short = is_known && ns <= tl_eff_turnaround_ns() && !keeps_part;
    bool is_harmless = tl_eff_is_alone() && (!is_known || ns <= TL_EFF_ALONE_NS) && !keeps_part;
    for (uint32_t i = 0; i < 3 && l->variant == NULL; i++) {
        if ((by_rung[i].rung < tl_eff.grant.finest && !keeps_part) ||
            (is_short && !is_chained && l->done == 0) ||
            (l->profile != NULL && tl_eff_is_slow(l->profile, by_rung[i].rung) && !keeps_part))
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

/* --- one kernel's way ------------------------------------------------------------------------- */

/* How long it could have begun earlier: since it was asked for and all in front of it was
 * submitted. */
uint64_t tl_eff_stood_ready(const struct tl_eff_launch *l, uint64_t began_ns)
{
    uint64_t since = l->queued_ns > l->head_ns ? l->queued_ns : l->head_ns;
    return began_ns > since ? began_ns - since : 0;
}

void tl_eff_finish_kernel(struct tl_eff_stream *s, struct tl_eff_item *item, CUresult result)
{
    struct tl_eff_launch *l = &item->launch;
    tl_eff_give_control(s->context, l->control);
    l->control = NULL;
    if (result == CUDA_SUCCESS && l->rung < TL_RUNG_WHOLE)
        tl_record_ran(l->kernel->record, tl_eff_stood_ready(l, l->began_ns), l->device_ns);
    tl_eff_submitted(item, result);
}

static void count_launch(const struct tl_eff_launch *l)
{
    tl_record_launched(l->kernel->record, l->rung, l->blocks);
    atomic_fetch_add_explicit(&tl_eff.page->launches, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&tl_eff.page->blocks, l->blocks, memory_order_relaxed);
    atomic_store_explicit(&tl_eff.page->rung, l->rung, memory_order_relaxed);
}

/* The SMs that a kernel which cannot be stopped is kept to; 0: all.  They are the granted part, or
 * if the policy leaves that to us, half of them for as long as a higher level could be kept waiting
 * for the end of a long one. */
static uint32_t cap_of(const struct tl_eff_context *c, const struct tl_eff_launch *l, uint64_t ns)
{
    uint32_t sms = (uint32_t)(c->n_sms > 0 ? c->n_sms : 0), granted = granted_sms(c);
    bool is_long = l->profile != NULL && l->profile->whole_ns != 0 && ns > tl_eff_turnaround_ns();
    bool is_forced = tl_eff.settings->force == TL_RUNG_CAP;
    if (sms < 2 || c->is_capless || (tl_eff.settings->force >= 0 && !is_forced))
        return 0;
    if (granted < sms)
        return granted;
    return is_forced || (is_long && !tl_eff_is_alone()) ? sms / 2 : 0;
}

static bool advance_whole(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    uint64_t ns = tl_eff_predicted_ns(l->profile);
    bool is_measured = tl_eff_wants_sample(l->profile) && tl_eff.settings->force != TL_RUNG_CAP;
    uint32_t sms = is_measured ? 0 : cap_of(s->context, l, ns);
    CUresult r;
    if (l->profile != NULL)
        l->profile->n_launches++;
    l->began_ns = now;
    item->is_under_way = true;
    if (sms != 0)
        l->rung = TL_RUNG_CAP;
    count_launch(l);
    if (is_measured) {
        r = tl_eff_launch_measured(s, l);
    } else {
        tl_eff_unmarked(s, sms != 0 ? ns * (uint64_t)s->context->n_sms / sms : ns, now);
        tl_eff_unlock();
        tl_eff_make_current(s->context);
        tl_eff_prepare(s->context);
        r = sms != 0 ? tl_eff_launch_capped(s, l, sms) : tl_eff_launch_whole(l, s->handle);
        tl_eff_lock();
        if (s->n_unmarked >= MARK_EVERY || s->unmarked_ns >= tl_eff_run_ahead_ns() / 4)
            tl_eff_mark(s);
    }
    tl_eff_finish_kernel(s, item, r);
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
        tl_eff_comes_next(s->context, l, now);
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
            bool is_fit = tl_eff_prepare(s->context);
            tl_eff_lock();
            if (is_fit && l->rung != TL_RUNG_SLICE && l->control == NULL)
                l->control = tl_eff_take_control(s->context);
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
    if (before != NULL && (l->rung == TL_RUNG_SLICE ||
                           (l->rung == TL_RUNG_TICKET && piece_blocks(s->context, l) < l->blocks)))
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
        tl_record_spanned(tl_eff.record, TL_SPAN_WAIT, l->kernel->record, s->number, l->ready_ns,
                          now);
        l->ready_ns = 0;
    }
    launch_piece(s, item, before);
    return true;
}

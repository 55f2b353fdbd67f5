/* What is on the device: accounted for when it is launched, and taken off when it comes back.
 *
 * Behind each launch that is watched stand an event and a host function.  The host function wakes
 * the executor at once.  But host functions may have to wait for one of the job's that waits
 * itself, and they do not run in a context that has failed; so after a while the event is asked. */
#include "runtime/effort/internal.h"

#include <assert.h>
#include <stdlib.h>

/* --- accounting ------------------------------------------------------------------------------- */

void tl_eff_tell_word(void)
{
    struct tl_client_page *p = tl_eff.page;
    bool is_busy = tl_eff.n_flying + tl_eff.n_unmarked > 0;
    uint32_t issued = atomic_load_explicit(&p->issued, memory_order_relaxed);
    uint32_t completed = atomic_load_explicit(&p->completed, memory_order_relaxed);
    if (is_busy && issued == completed) {
        atomic_store_explicit(&p->burst_ns, tl_eff_now(), memory_order_relaxed);
        atomic_store_explicit(&p->issued, issued + 1, memory_order_release);
    } else if (!is_busy && issued != completed) {
        atomic_store_explicit(&p->completed, issued, memory_order_release);
        /* levels between the highest and the lowest have some below */
        tl_client_tell_idle(tl_eff.client);
    }
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
    /* what it says is there before the executor looks */
    atomic_store_explicit(&p->told, 1, memory_order_release);
    tl_eff_ring();
}

/* Host functions stand in streams of their own, behind the event: in the job's stream they would
 * hold up what comes next. */
static CUstream side_of(const struct tl_eff_stream *s)
{
    CUstream *side = &s->context->sides[s->number % TL_EFF_SIDES];
    if (*side == NULL && tl_eff_real.cuStreamCreate(side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        *side = NULL;
    return *side;
}

/* Puts event and host function behind what was launched.  Executor only; lock not held. */
CUresult tl_eff_watch(struct tl_eff_piece *p)
{
    CUstream side = side_of(p->stream);
    p->end = tl_eff_take_event(p->stream->context);
    CUresult r = p->end != NULL && side != NULL
                     ? tl_eff_real.cuEventRecord(p->end, p->stream->handle)
                     : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuStreamWaitEvent(side, p->end, 0);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuLaunchHostFunc(side, tell, p);
    return r;
}

/* Lock held. */
void tl_eff_add_flying(struct tl_eff_piece *p)
{
    p->next = NULL;
    *tl_eff.flying_end = p;
    tl_eff.flying_end = &p->next;
    tl_eff.n_flying++;
    tl_eff.flying_ns += p->predicted_ns;
    p->stream->n_flying++;
    tl_eff_tell_word();
}

struct tl_eff_piece *tl_eff_make_piece(struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->stream = s;
        p->launched_ns = tl_eff_now();
    }
    return p;
}

/* --- whole kernels ---------------------------------------------------------------------------- */

void tl_eff_mark(struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = tl_eff_make_piece(s);
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
    tl_eff_add_flying(p);
    s->is_being_marked = true;
    tl_eff_unlock();
    tl_eff_make_current(s->context);
    if (tl_eff_watch(p) != CUDA_SUCCESS)
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
    struct tl_eff_piece *p = tl_eff_make_piece(s);
    if (p != NULL) {
        p->kernel = l->kernel;
        p->profile = l->profile;
        p->shape = *l;
        p->shape.params = NULL;
        p->n_kernels = 1;
        p->blocks = l->blocks;
        p->predicted_ns = tl_eff_predicted_ns(l->profile);
        tl_eff_add_flying(p);
    }
    tl_eff_unlock();
    tl_eff_make_current(c);
    tl_eff_prepare(c);
    if (p != NULL) {
        p->begin = tl_eff_take_event(c);
        if (p->begin != NULL && tl_eff_real.cuEventRecord(p->begin, s->handle) != CUDA_SUCCESS) {
            tl_eff_give_event(c, p->begin);
            p->begin = NULL;
        }
    }
    CUresult r = tl_eff_launch_whole(l, s->handle);
    if (p != NULL && (r != CUDA_SUCCESS || tl_eff_watch(p) != CUDA_SUCCESS))
        p->is_lost = true;
    tl_eff_lock();
    return r;
}

/* --- coming back ------------------------------------------------------------------------------ */

/* A kernel left the device before its last block, with `p` as the last piece, because somebody
 * above had work.  Lock held. */
static void was_preempted(const struct tl_eff_launch *l, const struct tl_eff_piece *p, uint64_t end)
{
    atomic_fetch_add_explicit(&tl_eff.page->preemptions, 1, memory_order_relaxed);
    uint64_t since = tl_client_preempted_since(tl_eff.client, p->launched_ns);
    if (since != 0 && end > since) {
        tl_record_preempted(l->kernel->record, end - since, tl_eff_block_ns(l->profile, l->rung));
        tl_eff_profile_preempted(l->profile, end - since);
    }
}

/* All launches of a counting kernel are over: the counter tells how far it came.  Lock held. */
static void look_at_counter(struct tl_eff_stream *s, struct tl_eff_item *item,
                            const struct tl_eff_piece *p, uint64_t end, uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    uint32_t taken = (uint32_t)(atomic_load_explicit(l->control->word, memory_order_acquire) >> 32),
             was = l->done;
    l->done = taken < l->launched ? taken : l->launched; /* workers go beyond the end by one each */
    if (l->done < l->launched) {
        s->is_stalled = s->n_flying > 0; /* what was launched behind it stops by itself */
        tl_eff.busy_ns = now;
        /* One that took no number was turned away before it began, and held nobody up. */
        if (item == s->first && l->done > was)
            was_preempted(l, p, end);
    }
    l->launched = l->done;
    if (p->begin != NULL)
        tl_eff_profile_ran(l->profile, l, l->rung, l->since_ns, l->done - was, s->context->n_sms);
    l->since_ns = 0;
}

/* A piece of a kernel is over.  Lock held. */
static void piece_is_over(struct tl_eff_piece *p, uint64_t ns, uint64_t end, uint64_t now)
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
            look_at_counter(p->stream, item, p, end, now);
    } else {
        l->done += p->blocks;
        if (p->begin != NULL)
            tl_eff_profile_ran(l->profile, l, l->rung, ns, p->blocks, p->stream->context->n_sms);
        if (l->n_flying == 0 && l->launched < l->blocks &&
            tl_client_preempted_since(tl_eff.client, p->launched_ns) != 0 &&
            !tl_eff_gate_is_open(now))
            was_preempted(l, p, end); /* the gate keeps back the next slice */
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
        CUresult r = tl_eff_real.cuEventElapsedTime(&ms, p->begin, p->end);
        tl_eff_lock();
        if (r == CUDA_SUCCESS && ms > 0)
            return (uint64_t)((double)ms * 1e6);
    }
    uint64_t end = atomic_load_explicit(&p->told_ns, memory_order_relaxed);
    uint64_t begin = p->launched_ns > s->last_done_ns ? p->launched_ns : s->last_done_ns;
    return p->item == NULL ? p->predicted_ns : end > begin ? end - begin : 0;
}

/* Whether this is the end of the last piece of a kernel that has more blocks, because somebody
 * above had work.  Lock held. */
static bool was_stopped_early(const struct tl_eff_piece *p)
{
    const struct tl_eff_launch *l = p->item != NULL ? &p->item->launch : NULL;
    if (l == NULL || p->is_lost || l->n_flying != 1)
        return false;
    if (l->rung == TL_RUNG_SLICE)
        return l->launched < l->blocks &&
               tl_client_preempted_since(tl_eff.client, p->launched_ns) != 0;
    return l->control != NULL &&
           (uint32_t)(atomic_load_explicit(l->control->word, memory_order_acquire) >> 32) <
               l->launched;
}

/* When the piece left the device, 0 if not known: as its host function was told, or if it was
 * stopped, as exactly as can be.  Lock held, given up meanwhile. */
static uint64_t end_of(struct tl_eff_piece *p)
{
    uint64_t told = atomic_load_explicit(&p->told_ns, memory_order_relaxed), exact = 0;
    if (was_stopped_early(p)) {
        tl_eff_unlock();
        tl_eff_make_current(p->stream->context);
        exact = tl_eff_time_of_event(p->stream->context, p->end);
        tl_eff_lock();
    }
    return exact != 0 ? exact : told;
}

/* Lock held, given up meanwhile. */
static void come_back(struct tl_eff_piece *p)
{
    struct tl_eff_stream *s = p->stream;
    uint64_t now = tl_eff_now(), ns = time_of(p);
    uint64_t end = end_of(p);
    p->is_over = true;
    tl_eff.n_flying--;
    s->n_flying--;
    tl_eff.flying_ns -= p->predicted_ns < tl_eff.flying_ns ? p->predicted_ns : tl_eff.flying_ns;
    atomic_fetch_add_explicit(&tl_eff.page->device_ns, ns, memory_order_relaxed);
    if (p->kernel != NULL)
        tl_record_spanned(tl_eff.record, TL_SPAN_RUN, p->kernel->record, s->number,
                          (end != 0 ? end : now) - ns, end != 0 ? end : now);
    if (p->item != NULL) {
        piece_is_over(p, ns, end, now);
    } else if (p->profile != NULL && p->kernel != NULL && !p->is_lost) {
        tl_eff_profile_ran(p->profile, &p->shape, TL_RUNG_WHOLE, ns, p->shape.blocks,
                           s->context->n_sms);
        tl_record_ran(p->kernel->record, tl_eff_stood_ready(&p->shape, p->launched_ns), ns);
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
    while (s->first != NULL && s->first->kind == TL_EFF_KERNEL &&
           s->first->launch.rung < TL_RUNG_WHOLE && s->first->launch.is_chosen &&
           s->first->launch.n_flying == 0 && s->first->launch.done >= s->first->launch.blocks)
        tl_eff_finish_kernel(s, s->first, CUDA_SUCCESS);
    tl_eff_give_event(s->context, p->begin);
    tl_eff_give_event(s->context, p->end);
    p->begin = p->end = NULL;
    tl_eff_give_control(s->context, p->in_front);
    p->in_front = NULL;
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
                CUresult r = tl_eff_real.cuEventQuery(p->end);
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

void tl_eff_kick(void)
{
    bool is_asked = !tl_eff.grant.may_run, has_pieces = false;
    for (struct tl_eff_piece *p = tl_eff.flying; p != NULL; p = p->next) {
        if (p->is_over || p->item == NULL || p->item->launch.rung == TL_RUNG_SLICE)
            continue;
        has_pieces = true;
        is_asked |= p->words_epoch != tl_eff.words_epoch;
    }
    bool kicks = has_pieces && is_asked;
    for (struct tl_eff_context *c = tl_eff.contexts; kicks != tl_eff.is_kicking && c != NULL;
         c = c->next) {
        if (c->kick_word != NULL)
            atomic_store_explicit(c->kick_word, kicks ? 1 : 0, memory_order_release);
    }
    tl_eff.is_kicking = kicks;
}

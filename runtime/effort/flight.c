/* What is on the device: accounted for when it is launched, and taken off when it comes back.
 *
 * Behind each launch that is watched stand an event and a host function.  The host function wakes
 * the executor at once.  But host functions may have to wait for one of the job's that waits
 * itself, and they do not run in a context that has failed; so after a while the event is asked. */
#include "runtime/effort/flight.h"
#include "tally/check.h"
#include "tally/cubin.h"

#include <stdlib.h>

#include "runtime/effort/count.h"
#include "runtime/effort/executor.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/parts.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/pieces.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/sums.h"
#include "runtime/effort/supply.h"
#include "runtime/effort/variant.h"

struct tl_eff_flight tl_eff_flight;

void tl_eff_flight_start(void)
{
    tl_eff_lock();
    tl_eff_flight = (struct tl_eff_flight){.end = &tl_eff_flight.pieces};
    tl_eff_unlock();
}

/* --- accounting ------------------------------------------------------------------------------- */

/* So much predicted time is over, or stands elsewhere now.  Predictions change while work is under
 * way, so the sum is only nearly right. */
TL_EFF_LOCKED static void take_off_ns(uint64_t ns)
{
    tl_eff_flight.ns -= ns < tl_eff_flight.ns ? ns : tl_eff_flight.ns;
}

void tl_eff_tell_word(void)
{
    tl_eff_assert_locked();
    struct tl_client_page *p = tl_eff.page;
    bool is_busy = tl_eff_flight.n_pieces + tl_eff_flight.n_unmarked > 0;
    uint32_t issued = atomic_load_explicit(&p->issued, memory_order_relaxed);
    uint32_t completed = atomic_load_explicit(&p->completed, memory_order_relaxed);
    if (is_busy && issued == completed) {
        atomic_store_explicit(&p->burst_ns, tl_eff_now(), memory_order_relaxed);
        tl_client_issue(tl_eff.client, 1);
    } else if (!is_busy && issued != completed) {
        tl_client_complete(tl_eff.client, issued - completed);
        atomic_store_explicit(&p->idle_ns, tl_eff_now(), memory_order_relaxed);
        /* levels between the highest and the lowest have some below */
        tl_client_tell_idle(tl_eff.client);
    }
    atomic_store_explicit(&p->in_flight, tl_eff_flight.n_pieces + tl_eff_flight.n_unmarked,
                          memory_order_relaxed);
    bool has_backlog = is_busy || tl_eff_queues.n_items > 0;
    if (has_backlog != tl_eff_flight.has_backlog)
        tl_client_backlog(tl_eff.client, has_backlog);
    tl_eff_flight.has_backlog = has_backlog;
}

void tl_eff_unmarked(struct tl_eff_stream *s, uint64_t predicted_ns, uint64_t now)
{
    tl_eff_assert_locked();
    TL_CHECK(tl_eff_flight.n_unmarked >= s->n_unmarked);
    if (s->n_unmarked++ == 0)
        s->unmarked_since = now;
    s->unmarked_ns += predicted_ns;
    tl_eff_flight.n_unmarked++;
    tl_eff_flight.ns += predicted_ns;
    if (tl_eff_make_busy(s)) { /* the executor sees to it that it is looked after if nobody waits */
        tl_eff_executor_start();
        if (tl_eff_flight.n_unmarked == 1)
            tl_eff_ring();
    }
    tl_eff_tell_word();
}

struct tl_eff_unwatched tl_eff_unwatched(const struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    return (struct tl_eff_unwatched){s->n_unmarked, s->n_marked, s->unmarked_ns};
}

void tl_eff_unmark(struct tl_eff_stream *s, const struct tl_eff_unwatched *then)
{
    tl_eff_assert_locked();
    TL_CHECK(tl_eff_flight.n_unmarked >= s->n_unmarked);
    uint32_t gone = s->n_marked - then->n_marked; /* meanwhile, by somebody else */
    if (gone >= then->n)
        return;
    uint32_t n = then->n - gone;
    uint64_t ns = then->ns / then->n * n;
    TL_CHECK(n <= s->n_unmarked);
    if (ns > s->unmarked_ns || n == s->n_unmarked)
        ns = s->unmarked_ns;
    s->n_marked += n;
    s->n_unmarked -= n;
    s->unmarked_ns -= ns;
    tl_eff_flight.n_unmarked -= n;
    take_off_ns(ns);
    tl_eff_sum_ran(s->context, ns);
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
TL_EFF_UNLOCKED static CUstream side_of(const struct tl_eff_stream *s)
{
    CUstream *side = &s->context->sides[s->number % TL_EFF_SIDES];
    if (*side == NULL && tl_eff_real.cuStreamCreate(side, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        *side = NULL;
    return *side;
}

void tl_eff_stamp(struct tl_eff_piece *p)
{
    struct tl_eff_context *c = p->stream->context;
    TL_CHECK(p->begin == NULL);
    p->begin = tl_eff_take_event(c);
    if (p->begin != NULL && tl_eff_real.cuEventRecord(p->begin, p->on) != CUDA_SUCCESS) {
        tl_eff_give_event(c, p->begin);
        p->begin = NULL;
    }
}

CUresult tl_eff_watch(struct tl_eff_piece *p)
{
    CUstream side = side_of(p->stream);
    p->end = tl_eff_take_event(p->stream->context);
    CUresult r = p->end != NULL && side != NULL ? tl_eff_real.cuEventRecord(p->end, p->on)
                                                : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuStreamWaitEvent(side, p->end, 0);
    if (r == CUDA_SUCCESS)
        r = tl_eff_real.cuLaunchHostFunc(side, tell, p);
    return r;
}

void tl_eff_add_flying(struct tl_eff_piece *p)
{
    tl_eff_assert_locked();
    TL_CHECK(!p->is_over && *tl_eff_flight.end == NULL);
    p->next = NULL;
    *tl_eff_flight.end = p;
    tl_eff_flight.end = &p->next;
    tl_eff_flight.n_pieces++;
    tl_eff_flight.ns += p->predicted_ns;
    p->stream->n_flying++;
    tl_eff_tell_word();
}

bool tl_eff_is_on_device(const struct tl_eff_kernel *k)
{
    tl_eff_assert_locked();
    const struct tl_eff_piece *p = tl_eff_flight.pieces;
    while (p != NULL && (p->is_over || p->kernel != k))
        p = p->next;
    return p != NULL;
}

struct tl_eff_piece *tl_eff_make_piece(struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->stream = s;
        p->on = s->handle;
        p->launched_ns = tl_eff_now();
    }
    return p;
}

/* --- whole kernels ---------------------------------------------------------------------------- */

/* Around calls to the driver about a stream that the job must not begin to capture meanwhile. */
TL_RELEASE(tl_eff_mutex) static void begin_marking(struct tl_eff_stream *s)
{
    s->is_being_marked = true;
    tl_eff_unlock();
    tl_eff_make_current(s->context);
}

TL_ACQUIRE(tl_eff_mutex) static void end_marking(struct tl_eff_stream *s)
{
    tl_eff_lock();
    s->is_being_marked = false;
    if (s->n_unmarkable > 0)
        pthread_cond_broadcast(&tl_eff_queues.submitted);
}

void tl_eff_mark(struct tl_eff_stream *s)
{
    struct tl_eff_piece *p = tl_eff_make_piece(s);
    if (p == NULL || s->n_unmarked == 0 || s->is_capturing || s->n_unmarkable > 0) {
        free(p);
        return;
    }
    p->n_kernels = s->n_unmarked;
    p->predicted_ns = s->unmarked_ns;
    s->n_marked += s->n_unmarked;
    s->n_unmarked = 0;
    s->unmarked_ns = 0;
    tl_eff_flight.n_unmarked -= p->n_kernels;
    take_off_ns(p->predicted_ns);
    tl_eff_add_flying(p);
    begin_marking(s);
    if (tl_eff_watch(p) != CUDA_SUCCESS)
        p->is_lost = true;
    end_marking(s);
}

void tl_eff_look(struct tl_eff_stream *s)
{
    if (s->n_unmarked == 0 || s->is_capturing || s->n_unmarkable > 0)
        return;
    struct tl_eff_unwatched then = tl_eff_unwatched(s);
    begin_marking(s);
    CUresult r = tl_eff_real.cuStreamQuery(s->handle);
    end_marking(s);
    if (r != CUDA_ERROR_NOT_READY) /* or the context has failed: nothing runs there any more */
        tl_eff_unmark(s, &then);
}

void tl_eff_marks_off(struct tl_eff_stream *s)
{
    s->n_unmarkable++;
    while (s->is_being_marked)
        tl_eff_wait_for(&tl_eff_queues.submitted);
}

void tl_eff_marks_on(struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    TL_CHECK(s->n_unmarkable > 0);
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
    if (p != NULL)
        tl_eff_stamp(p);
    CUresult r = tl_eff_launch_whole(l, s->handle);
    if (p != NULL && (r != CUDA_SUCCESS || tl_eff_watch(p) != CUDA_SUCCESS))
        p->is_lost = true;
    tl_eff_lock();
    return r;
}

/* --- coming back ------------------------------------------------------------------------------ */

/* How a launch went, as found out when it is over; the counter is looked at once. */
struct outcome {
    uint64_t now;
    uint64_t ns;  /* on the device, or an estimate */
    uint64_t end; /* when it left the device, by CLOCK_MONOTONIC; 0 if not known */
    bool is_last; /* nothing else of its kernel is on the device */
    uint32_t
        taken; /* numbers that the kernel's blocks have taken, if it counts and this is the last */
};

/* The time on the device, or an estimate.  The lock is given up meanwhile. */
TL_EFF_LOCKED static uint64_t time_of(const struct tl_eff_piece *p)
{
    const struct tl_eff_stream *s = p->stream;
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

/* Whether the kernel counts its blocks, so that its counter tells how far it came. */
static bool counts(const struct tl_eff_launch *l)
{
    return l->rung < TL_RUNG_WHOLE && l->rung != TL_RUNG_SLICE && l->control != NULL;
}

uint32_t tl_eff_taken(const struct tl_eff_launch *l)
{
    return tl_eff_count_taken(l->control) &
           (l->rung == TL_RUNG_GATE ? ~TL_CUBIN_CLOSED : UINT32_MAX);
}

/* Whether this is the end of the last piece of a kernel that has more blocks, because somebody
 * above had work. */
TL_EFF_LOCKED static bool was_stopped_early(const struct tl_eff_piece *p, const struct outcome *o)
{
    if (!o->is_last || p->is_lost)
        return false;
    const struct tl_eff_launch *l = &p->item->launch;
    if (l->rescue.n_tries > 0)
        return false;
    if (l->rung == TL_RUNG_SLICE)
        return l->launched < l->blocks &&
               tl_client_preempted_since(tl_eff.client, p->launched_ns) != 0;
    return counts(l) && o->taken < l->launched;
}

/* Finds out how the launch went.  The lock is given up meanwhile; nobody but the executor, which is
 * here, launches anything of the kernel or looks at what comes back. */
TL_EFF_LOCKED static struct outcome find_out(const struct tl_eff_piece *p)
{
    const struct tl_eff_launch *l = p->item != NULL ? &p->item->launch : NULL;
    struct outcome o = {.now = tl_eff_now(), .is_last = l != NULL && l->n_flying == 1};
    if (o.is_last && counts(l)) {
        tl_eff_count_end(l->control);
        o.taken = tl_eff_taken(l);
    }
    o.ns = time_of(p);
    /* as its host function was told, or if it was stopped, as exactly as can be */
    o.end = atomic_load_explicit(&p->told_ns, memory_order_relaxed);
    if (was_stopped_early(p, &o)) {
        tl_eff_unlock();
        tl_eff_make_current(p->stream->context);
        uint64_t exact = tl_eff_time_of_event(p->stream->context, p->end);
        tl_eff_lock();
        o.end = exact != 0 ? exact : o.end;
    }
    return o;
}

/* A kernel left the device before its last block, with `p` as the last piece, because somebody
 * above had work. */
TL_EFF_LOCKED static void was_preempted(const struct tl_eff_launch *l, const struct tl_eff_piece *p,
                                        uint64_t end)
{
    tl_eff_sum_preempted(p->stream->context);
    l->kernel->n_clean += l->rescue.n_tries == 0;
    uint64_t since = tl_client_preempted_since(tl_eff.client, p->launched_ns);
    if (since != 0 && end > since) {
        tl_record_preempted(l->kernel->record, end - since,
                            tl_eff_wave_ns(l->profile, l->rung) * l->beside);
        tl_eff_profile_preempted(l->profile, end - since);
        tl_share_took(&tl_eff.page->preempted, end - since);
    }
}

/* All launches of a kernel are over that counts and stood still once.  What was launched beside
 * them never stops, so all blocks are done, unless nothing could be launched. */
TL_EFF_LOCKED static void counted_rescued(struct tl_eff_launch *l, const struct outcome *o)
{
    uint32_t end = l->rescue.rest != NULL ? l->rescue.end : l->launched;
    l->done = o->taken < end ? o->taken : end;
    if (l->rescue.rest != NULL && l->done == end)
        l->done = l->launched;
    l->launched = l->done;
    l->since_ns = 0;
    l->rescue = (struct tl_eff_rescue){.rest = l->rescue.rest, .has_begun = true};
}

/* All launches of a counting kernel are over: the counter told how far it came. */
TL_EFF_LOCKED static void counted(const struct tl_eff_piece *p, const struct outcome *o)
{
    struct tl_eff_stream *s = p->stream;
    struct tl_eff_launch *l = &p->item->launch;
    uint32_t was = l->done;
    TL_CHECK(l->n_flying == 0 && l->done <= l->launched && l->launched <= l->blocks);
    /* workers go beyond the end by one each */
    l->done = o->taken < l->launched ? o->taken : l->launched;
    TL_CHECK(l->done >= was);
    /* of a gated one that was stopped, part of the time is that of blocks which only left */
    bool is_fair = l->rung != TL_RUNG_GATE || l->done == l->launched;
    if (l->done < l->launched) {
        s->is_stalled = s->n_flying > 0; /* what was launched behind it stops by itself */
        tl_eff_permit.busy_ns = o->now;
        /* One that took no number was turned away before it began, and held nobody up. */
        if (p->item == s->first && l->done > was)
            was_preempted(l, p, o->end);
    }
    l->launched = l->done;
    if (p->begin != NULL && is_fair)
        tl_eff_profile_ran(l->profile, l, l->rung, l->since_ns, l->done - was, s->context->n_sms);
    l->since_ns = 0;
}

/* A slice is done, all of it. */
TL_EFF_LOCKED static void sliced(const struct tl_eff_piece *p, const struct outcome *o)
{
    struct tl_eff_launch *l = &p->item->launch;
    l->done += p->blocks;
    TL_CHECK(l->done <= l->launched && l->launched <= l->blocks);
    if (p->begin != NULL && l->rescue.n_tries == 0)
        tl_eff_profile_ran(l->profile, l, l->rung, o->ns, p->blocks, p->stream->context->n_sms);
    if (o->is_last && l->launched < l->blocks &&
        tl_client_preempted_since(tl_eff.client, p->launched_ns) != 0 &&
        !tl_eff_permit_holds(o->now))
        was_preempted(l, p, o->end); /* there is no permit for the next slice */
}

/* The driver cannot run this form after all: the original it can. */
TL_EFF_LOCKED static void refused(const struct tl_eff_piece *p)
{
    struct tl_eff_launch *l = &p->item->launch;
    tl_eff_note("%s: the driver refused a launch of its %s variant (error %d)", l->kernel->name,
                tl_rung_name(l->variant->rung), p->refusal);
    l->variant->state = TL_EFF_REFUSED;
    l->variant = NULL;
    l->rung = TL_RUNG_WHOLE;
    l->launched = 0;
}

/* The context failed: nothing more can be done for this kernel. */
TL_EFF_LOCKED static void failed(const struct tl_eff_piece *p)
{
    struct tl_eff_launch *l = &p->item->launch;
    if (p->refusal != CUDA_SUCCESS && p->stream->context->error == CUDA_SUCCESS)
        p->stream->context->error = p->refusal;
    l->launched = l->done = l->blocks;
}

/* A piece of a kernel is over. */
TL_EFF_LOCKED static void piece_is_over(const struct tl_eff_piece *p, const struct outcome *o)
{
    struct tl_eff_launch *l = &p->item->launch;
    TL_CHECK(l->n_flying > 0 && o->is_last == (l->n_flying == 1));
    l->n_flying--;
    l->since_ns += o->ns;
    l->device_ns += o->ns;
    if (p->item->is_submitted)
        return;
    tl_eff_rescue_over(p, o->now);
    bool was_refused = p->is_lost && p->refusal != CUDA_SUCCESS;
    if (was_refused && !p->is_rescue && l->done == 0 && o->is_last)
        refused(p);
    else if (p->is_lost && !(was_refused && p->is_rescue))
        failed(p);
    else if (l->done < l->blocks && l->rung == TL_RUNG_SLICE && !was_refused)
        sliced(p, o);
    else if (l->done < l->blocks && o->is_last && counts(l) && l->rescue.n_tries > 0)
        counted_rescued(l, o);
    else if (l->done < l->blocks && o->is_last)
        counted(p, o);
    if (l->variant != NULL && o->is_last && l->done < l->blocks && l->profile != NULL &&
        l->profile->rungs[l->rung].is_slow)
        l->is_chosen = false; /* the rest on another rung, if there is one */
}

/* A whole kernel that was measured is over. */
TL_EFF_LOCKED static void whole_is_over(const struct tl_eff_piece *p, uint64_t ns)
{
    tl_eff_profile_ran(p->profile, &p->shape, TL_RUNG_WHOLE, ns, p->shape.blocks,
                       p->stream->context->n_sms);
    tl_record_ran(p->kernel->record, tl_eff_stood_ready(&p->shape, p->launched_ns), ns);
    if (tl_eff_permit.n_words > 0 && ns > tl_eff_turnaround_ns()) {
        tl_record_uncontrolled(p->kernel->record, ns);
        atomic_fetch_add_explicit(&tl_eff.page->uncontrolled_ns, ns, memory_order_relaxed);
    }
}

/* It is not on the device any more. */
TL_EFF_LOCKED static void take_off(struct tl_eff_piece *p, const struct outcome *o)
{
    struct tl_eff_stream *s = p->stream;
    uint64_t end = o->end != 0 ? o->end : o->now;
    TL_CHECK(!p->is_over && s->n_flying > 0 && tl_eff_flight.n_pieces >= s->n_flying);
    p->is_over = true;
    tl_eff_flight.n_pieces--;
    s->n_flying--;
    take_off_ns(p->predicted_ns);
    tl_eff_sum_ran(s->context, o->ns);
    if (p->kernel != NULL)
        tl_record_spanned(tl_eff.record, TL_SPAN_RUN, p->kernel->record, s->number, end - o->ns,
                          end);
}

/* Kernels at the head whose last block is done. */
TL_EFF_LOCKED static void finish_heads(struct tl_eff_stream *s)
{
    while (s->first != NULL && s->first->kind == TL_EFF_KERNEL &&
           s->first->launch.rung < TL_RUNG_WHOLE && s->first->launch.is_chosen &&
           s->first->launch.n_flying == 0 && s->first->launch.done >= s->first->launch.blocks)
        tl_eff_finish_kernel(s, s->first, tl_eff_lost(s->context));
}

/* What it had of its context and its kernel; the piece itself may still be needed by its host
 * function. */
TL_EFF_LOCKED static void give_back(struct tl_eff_piece *p)
{
    struct tl_eff_context *c = p->stream->context;
    tl_eff_give_event(c, p->begin);
    tl_eff_give_event(c, p->end);
    p->begin = p->end = NULL;
    tl_eff_give_control(c, p->in_front);
    p->in_front = NULL;
    tl_eff_item_unref(p->item);
    p->item = NULL;
    if (p->part != NULL)
        tl_eff_parts_unref(p->part->of);
    p->part = NULL;
}

/* The launch is over.  The lock is given up meanwhile. */
TL_EFF_LOCKED static void come_back(struct tl_eff_piece *p)
{
    struct tl_eff_stream *s = p->stream;
    struct outcome o = find_out(p);
    take_off(p, &o);
    if (p->item != NULL)
        piece_is_over(p, &o);
    else if (p->profile != NULL && p->kernel != NULL && !p->is_lost)
        whole_is_over(p, o.ns);
    else if (p->part != NULL && p->begin != NULL && !p->is_lost)
        tl_eff_part_ran(p->part, o.ns);
    if (p->item == NULL)
        tl_eff_permit_trust();
    s->last_done_ns = o.end != 0 ? o.end : o.now;
    if (s->n_flying == 0)
        s->is_stalled = false;
    finish_heads(s);
    give_back(p);
    tl_eff_tell_word();
}

bool tl_eff_collect(bool ask)
{
    bool did = false;
    tl_eff_assert_locked();
    for (struct tl_eff_piece **at = &tl_eff_flight.pieces; *at != NULL;) {
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
                tl_eff_flight.end = at;
            if (told)
                free(p);
            continue;
        }
        at = &p->next;
    }
    return did;
}

/* A launch may stand behind something that waits for what we have not launched yet.  It cannot
 * leave before that, so while old launches are told to leave, new ones must be able to run: those
 * with the next set of words have a word of their own.  Only with the set after that, which has the
 * word of the first again, everything waits until the first have left. */
void tl_eff_kick(void)
{
    bool kicks[TL_EFF_KICKS] = {false}, is_kicking = false;
    tl_eff_assert_locked();
    bool must_leave = !tl_eff_permit.grant.may_run || tl_eff_permit_must_tell();
    for (struct tl_eff_piece *p = tl_eff_flight.pieces; p != NULL; p = p->next) {
        if (p->is_over || p->is_rescue || p->item == NULL || p->item->launch.rung == TL_RUNG_SLICE)
            continue;
        uint32_t age = tl_eff_permit.words_epoch - p->words_epoch;
        if (!must_leave && age == 0)
            continue;
        kicks[p->words_epoch % TL_EFF_KICKS] = true;
        is_kicking |= must_leave || age >= TL_EFF_KICKS;
    }
    tl_eff_permit.is_kicking = is_kicking;
    for (uint32_t i = 0; i < TL_EFF_KICKS; i++) {
        if (kicks[i] == tl_eff_permit.is_kicked[i])
            continue;
        tl_eff_permit.is_kicked[i] = kicks[i];
        for (struct tl_eff_context *c = tl_eff_streams.contexts; c != NULL; c = c->next) {
            if (c->kick_words[i] != NULL)
                atomic_store_explicit(c->kick_words[i], kicks[i] ? 1 : 0, memory_order_release);
        }
    }
}

/* A kernel's way to the device: whole or in pieces, on which rung, and of what size.
 *
 *     slice       ranges of blocks, two launches in flight; a preemption is that no further one is launched
 *     ticket      blocks take numbers from a counter; two launches of a bounded number of blocks in flight
 *     persistent  workers loop over the counter: one launch, until it is done or told to stop
 *     gate        the whole grid of the original's machine code, with a check in front of each block: one launch;
 *                 of very large grids, some blocks at its begin are taken already (plan.c: bites)
 *     whole       the original; marks behind some of them tell how far the device has come
 *
 * A chain: a kernel may be launched before the one in front of it is known to be done, if it stops
 * by itself when that is not the case.  Its last stop word then is the control word of the one in
 * front: {expected, counter}, equal only if all went through. That hides the time between two
 * kernels. */
#include "runtime/effort/pieces.h"
#include "tally/check.h"

#include "runtime/effort/attribute.h"
#include "runtime/effort/cap.h"
#include "runtime/effort/count.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/kernel.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/plan.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/room.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/sums.h"
#include "runtime/effort/supply.h"
#include "runtime/effort/variant.h"

enum { MARK_EVERY = 64 }; /* whole kernels */

/* What blocks of the kernel's gated form cost that only leave, if there is one. */
TL_EFF_LOCKED static void add_leaving(const struct tl_eff_kernel *k, struct tl_eff_facts *f)
{
    const struct tl_eff_variant *v = k->variants[TL_RUNG_GATE][0];
    bool is_ready = v != NULL && v->state == TL_EFF_READY;
    f->leave_ns = is_ready ? v->leave_ns : 0;
    f->skip_ns = is_ready ? v->skip_ns : 0;
}

/* What plan.c decides by. */
TL_EFF_LOCKED static struct tl_eff_facts facts_of(const struct tl_eff_context *c,
                                                  const struct tl_eff_launch *l, bool is_chained)
{
    struct tl_eff_facts f = {.is_alone = tl_eff_is_alone(), /* brings the grant up to date */
                             .sms = c->n_sms > 0 ? (uint32_t)c->n_sms : 0,
                             .resident = l->resident,
                             .occupancy = l->variant != NULL ? l->occupancy : 0,
                             .runs_block_by_block = c->runs_block_by_block,
                             .is_capless = c->is_capless,
                             .force = tl_eff.settings->force,
                             .finest = tl_eff_permit.grant.finest,
                             .sm_permille = tl_eff_permit.grant.sm_permille,
                             .turnaround_ns = tl_eff_turnaround_ns(),
                             .strikes = l->kernel->is_gang
                                            ? TL_EFF_STRIKES
                                            : tl_eff_rescue_strikes(l->kernel->fingerprint),
                             .takes_singly = l->variant != NULL &&
                                             (l->variant->conditions & TL_PTX_IF_TAKEN_SINGLY) != 0,
                             .rung = l->rung,
                             .blocks = l->blocks,
                             .done = l->done,
                             .launched = l->launched,
                             .is_chained = is_chained};
    add_leaving(l->kernel, &f);
    tl_eff_profile_facts(l->profile, &f);
    return f;
}

/* --- launching a piece ------------------------------------------------------------------------ */

/* A piece on its way to the driver. */
struct departure {
    struct tl_eff_facts facts;
    struct tl_eff_size size;
    struct tl_eff_extra extra;
    bool is_first;  /* nothing else of its kernel is on the device */
    bool is_beside; /* it goes into the stream's other one, behind `front` if that is not NULL */
    CUevent front;
    bool is_measured; /* an event goes in front of it */
};

/* A slice that is stuck may wait for blocks of the one behind it, so that must not have to wait for
 * its end: they take turns with two streams.  What stands in front of the kernel in its own stream
 * is over when the event in front of its first slice is. */
TL_EFF_LOCKED static void find_place(const struct tl_eff_item *item, struct departure *d)
{
    if (item->launch.rung != TL_RUNG_SLICE || d->is_first)
        return;
    bool is_taken = false, is_known = item->launch.rescue.has_begun;
    for (const struct tl_eff_piece *p = tl_eff_flight.pieces; p != NULL; p = p->next) {
        if (p->item != item || p->is_over)
            continue;
        is_taken |= p->on == item->stream->other && p->on != NULL;
        if (p->begin != NULL && p->on == item->stream->handle)
            d->front = p->begin;
    }
    d->is_beside = !is_taken && (is_known || d->front != NULL);
    if (is_known)
        d->front = NULL;
}

/* For who wants to know how finely a kernel can be stopped. */
TL_EFF_LOCKED static void log_size(const struct departure *d, const struct tl_eff_launch *l)
{
    struct tl_eff_profile *p = l->profile;
    if (p == NULL || (p->said_beside == l->beside && p->said_batch == l->batch &&
                      p->said_bites == (l->bite > 0)))
        return;
    p->said_beside = l->beside;
    p->said_batch = l->batch;
    p->said_bites = l->bite > 0;
    uint64_t wave_ns = d->facts.wave_ns != 0 ? d->facts.wave_ns : d->facts.rungs[l->rung].wave_ns;
    tl_eff_log(3, "%s, %u blocks: %u share an SM, %llu ns each, taken %u at a time%s",
               l->kernel->name, l->blocks, l->beside,
               (unsigned long long)tl_eff_plan_block_ns(&d->facts, wave_ns), l->batch,
               l->bite > 0 ? ", in bites" : "");
}

/* Accounts for the next piece of the kernel.  NULL without memory. */
TL_EFF_LOCKED static struct tl_eff_piece *depart(struct tl_eff_item *item,
                                                 struct tl_eff_item *before, struct departure *d)
{
    struct tl_eff_stream *s = item->stream;
    struct tl_eff_launch *l = &item->launch;
    struct tl_eff_piece *p = tl_eff_make_piece(s);
    if (p == NULL)
        return NULL;
    *d = (struct departure){.facts = facts_of(s->context, l, before != NULL)};
    d->size = tl_eff_plan_size(&d->facts);
    d->is_first = l->n_flying == 0;
    find_place(item, d);
    /* where the counter does not tell that it has begun, the event in front of it does; and slices
     * that overlap cannot be measured */
    bool is_blind = l->rung == TL_RUNG_SLICE || !s->context->has_host_atomics;
    d->is_measured = tl_eff_plan_is_trial(&d->facts) || tl_eff_wants_sample(l->profile) ||
                     (is_blind && !l->rescue.has_begun);
    d->is_measured &= l->rung != TL_RUNG_SLICE || d->is_first;
    l->batch = d->size.batch;
    l->bite = d->size.bite;
    l->beside = tl_eff_plan_beside(&d->facts);
    log_size(d, l);
    d->extra = (struct tl_eff_extra){.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                     .first = l->launched,
                                     .blocks = l->blocks,
                                     .batch_mask = d->size.batch - 1};
    p->item = item;
    item->refs++;
    p->profile = l->profile;
    p->kernel = l->kernel;
    p->blocks = d->size.blocks;
    l->launched += p->blocks;
    if (l->rung == TL_RUNG_PERSISTENT)
        d->extra.blocks = l->launched; /* a trial ends before the kernel does */
    p->predicted_ns = tl_eff_predicted_ns(l->profile) * p->blocks / l->blocks;
    p->words_epoch = tl_eff_permit.words_epoch;
    if (before != NULL) {
        p->in_front = before->launch.control;
        p->in_front->refs++;
    }
    l->n_flying++;
    tl_eff_add_flying(p);
    return p;
}

/* The words that tell the piece to stop: those of the levels above and, in the last place, that of
 * the kernel in front or our own. */
TL_EFF_UNLOCKED static CUresult set_words(const struct tl_eff_piece *p, struct tl_eff_extra *x)
{
    uint32_t n = 0;
    CUresult r = tl_eff_permit_words(x->words, &n, p->words_epoch) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_NOT_SUPPORTED;
    if (n < TL_SHARE_WORDS)
        x->words[TL_SHARE_WORDS - 1] =
            p->in_front != NULL ? p->in_front->asked
                                : p->stream->context->kick_device[p->words_epoch % TL_EFF_KICKS];
    return r;
}

/* The launch itself, with what its counter needs around it. */
TL_EFF_UNLOCKED static CUresult give_to_driver(const struct tl_eff_piece *p,
                                               const struct departure *d, uint32_t grid)
{
    struct tl_eff_launch *l = &p->item->launch;
    CUstream stream = p->on;
    bool counts = l->rung != TL_RUNG_SLICE;
    CUresult r = counts ? tl_eff_count_before(p->stream->context, l->control, d->is_first, stream)
                        : CUDA_SUCCESS;
    tl_eff_variant_args(l->variant, l->params, &d->extra);
    if (r == CUDA_SUCCESS)
        r = tl_eff_launch_variant(l, grid, stream);
    if (r == CUDA_SUCCESS && counts)
        r = tl_eff_count_behind(l->control, stream);
    return r;
}

/* The stream's other one, made when it is first needed; the stream itself if that fails. */
TL_EFF_UNLOCKED static CUstream other_of(struct tl_eff_stream *s, CUevent front)
{
    if (s->other == NULL) {
        tl_eff_lock();
        struct tl_eff_context *c = s->context;
        s->other = c->n_spares > 0 ? c->spares[--c->n_spares] : NULL;
        tl_eff_unlock();
    }
    if (s->other == NULL &&
        tl_eff_real.cuStreamCreate(&s->other, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        s->other = NULL;
    if (s->other == NULL ||
        (front != NULL && tl_eff_real.cuStreamWaitEvent(s->other, front, 0) != CUDA_SUCCESS))
        return s->handle;
    tl_eff_follow_stream(s, s->other);
    return s->other;
}

/* Launches the next piece.  The lock is given up meanwhile. */
TL_EFF_LOCKED static void launch_piece(struct tl_eff_stream *s, struct tl_eff_item *item,
                                       struct tl_eff_item *before)
{
    struct tl_eff_launch *l = &item->launch;
    struct departure d;
    struct tl_eff_piece *p = depart(item, before, &d);
    if (p == NULL) {
        s->is_held = true; /* later, perhaps */
        return;
    }
    tl_eff_unlock();
    CUresult r = CUDA_SUCCESS;
    uint32_t grid = d.size.blocks, expected = d.extra.blocks;
    if (l->rung == TL_RUNG_PERSISTENT) {
        grid = tl_eff_plan_workers(&d.facts, d.size.blocks);
        expected = tl_eff_plan_expected(&d.facts, d.size, grid);
    }
    if (l->rung != TL_RUNG_SLICE) {
        r = set_words(p, &d.extra);
        if (d.is_first)
            tl_eff_count_begin(s->context, l->control, l->rung, l->done + d.size.bite, expected);
        tl_eff_count_args(l->control, grid, true, &d.extra);
    }
    if (d.is_beside)
        p->on = other_of(s, d.front);
    if (d.is_measured)
        tl_eff_stamp(p);
    p->refusal = r == CUDA_SUCCESS ? give_to_driver(p, &d, grid) : r;
    if (p->refusal != CUDA_SUCCESS && l->rung != TL_RUNG_SLICE)
        tl_eff_count_refused(l->control, grid);
    if (p->refusal != CUDA_SUCCESS || tl_eff_watch(p) != CUDA_SUCCESS)
        p->is_lost = true;
    tl_eff_lock();
}

/* --- choosing a rung -------------------------------------------------------------------------- */

/* For how long the kernel has been held back for a variant.  Only that counts, and not for how long
 * it has been coming: with nobody above, as long as that is so, nothing is held back. */
static uint64_t held_ns(const struct tl_eff_kernel *k, enum tl_rung rung, uint64_t now)
{
    uint64_t since = k->held[rung].since_ns;
    return k->held[rung].total_ns + (since != 0 && now > since ? now - since : 0);
}

static void note_held(struct tl_eff_kernel *k, enum tl_rung rung, bool is_held, uint64_t now)
{
    if (!is_held) {
        k->held[rung].total_ns = held_ns(k, rung, now);
        k->held[rung].since_ns = 0;
    } else if (k->held[rung].since_ns == 0) {
        k->held[rung].since_ns = now;
    }
}

/* Asks for variants as long as the plan wants to know of one.  False if the kernel is not to be
 * launched yet.  The lock is given up meanwhile if a rung is forced, or a variant's limits have to
 * be raised. */
TL_EFF_LOCKED static bool choose(const struct tl_eff_context *c, struct tl_eff_launch *l,
                                 bool is_chained)
{
    struct tl_eff_facts f = facts_of(c, l, is_chained);
    struct tl_eff_variant *found[TL_RUNG_WHOLE] = {NULL};
    struct tl_eff_choice choice;
    uint64_t now = tl_eff_now();
    TL_CHECK(l->n_flying == 0 && l->launched == l->done);
    for (enum tl_rung r = TL_RUNG_PERSISTENT; r < TL_RUNG_WHOLE; r++)
        f.rungs[r].was_asked_for = l->kernel->variants[r][0] != NULL;
    while ((choice = tl_eff_plan_rung(&f)).asks) {
        enum tl_rung r = choice.rung;
        bool may_come = false;
        tl_eff_profile_retry(f.force < 0 ? l->profile : NULL, r);
        found[r] = tl_eff_variant(l, r, f.force >= 0, &may_come);
        f.rungs[r].form = found[r] != NULL ? TL_EFF_FORM_READY
                          : may_come       ? TL_EFF_FORM_COMING
                                           : TL_EFF_FORM_NONE;
        f.rungs[r].held_ns = held_ns(l->kernel, r, now);
        add_leaving(l->kernel, &f);
    }
    for (enum tl_rung r = TL_RUNG_PERSISTENT; r < TL_RUNG_WHOLE; r++)
        note_held(l->kernel, r, choice.holds && f.rungs[r].form == TL_EFF_FORM_COMING, now);
    if (choice.holds)
        return false;
    l->is_chosen = true;
    l->rung = choice.rung;
    if (l->rung >= TL_RUNG_WHOLE)
        l->variant = NULL;
    else if (found[l->rung] != NULL) /* else it goes on as it was begun */
        l->variant = found[l->rung];
    TL_CHECK((l->rung < TL_RUNG_WHOLE) == (l->variant != NULL));
    return true;
}

/* What has to be known of device and kernel before anything is chosen; asked once per launch.  The
 * lock is given up meanwhile. */
TL_EFF_LOCKED static void ask_room(struct tl_eff_context *c, struct tl_eff_launch *l)
{
    if (l->resident != 0)
        return;
    tl_eff_unlock();
    tl_eff_make_current(c);
    tl_eff_prepare(c);
    uint32_t resident = tl_eff_room(l);
    tl_eff_lock();
    l->resident = resident;
}

/* Chooses the rung and brings what it needs: a fit context, a counter.  Without that the kernel
 * runs whole, or if it was begun in pieces, waits; then the answer is false, and also while a
 * variant is waited for.  The lock is given up
 * meanwhile. */
TL_EFF_LOCKED static bool settle(struct tl_eff_stream *s, struct tl_eff_launch *l, bool is_chained)
{
    ask_room(s->context, l);
    if (!choose(s->context, l, is_chained)) {
        s->is_held = true;
        return false;
    }
    if (l->variant == NULL)
        return true;
    tl_eff_unlock();
    tl_eff_make_current(s->context);
    bool is_fit = tl_eff_prepare(s->context);
    uint32_t occupancy = tl_eff_occupancy(l);
    tl_eff_lock();
    l->occupancy = occupancy;
    bool counts = l->rung != TL_RUNG_SLICE;
    if (is_fit && counts && l->control == NULL)
        l->control = tl_eff_take_control(s->context);
    if (is_fit && (!counts || l->control != NULL))
        return true;
    if (l->done > 0) { /* all counters are in use: one will be free */
        l->is_chosen = false;
        s->is_held = true;
        return false;
    }
    l->variant = NULL;
    l->rung = TL_RUNG_WHOLE;
    return true;
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
    tl_eff_assert_locked();
    TL_CHECK(l->n_flying == 0 &&
             (result != CUDA_SUCCESS || l->rung >= TL_RUNG_WHOLE || l->done >= l->blocks));
    tl_eff_give_control(s->context, l->control);
    tl_eff_give_control(s->context, l->rescue.rest);
    l->control = l->rescue.rest = NULL;
    if (result == CUDA_SUCCESS && l->rung < TL_RUNG_WHOLE)
        tl_record_ran(l->kernel->record, tl_eff_stood_ready(l, l->began_ns), l->device_ns);
    tl_eff_submitted(item, result);
}

TL_EFF_LOCKED static void count_launch(const struct tl_eff_stream *s, const struct tl_eff_launch *l)
{
    tl_record_launched(l->kernel->record, l->rung, l->blocks);
    tl_eff_sum_launched(s->context, 1, l->blocks);
    atomic_store_explicit(&tl_eff.page->rung, l->rung, memory_order_relaxed);
}

/* Somebody above would have to wait for the end of it, and the reader wants to know why it was not
 * cut. */
TL_EFF_LOCKED static void note_why_whole(const struct tl_eff_facts *f, struct tl_eff_kernel *k)
{
    if (f->is_alone || f->whole_ns <= f->turnaround_ns)
        return;
    if (tl_eff_plan_waits(f) && !k->is_gang && !k->was_said_to_wait) {
        k->was_said_to_wait = true;
        tl_eff_note("%s runs whole: when it was cut before, its blocks were found to wait for "
                    "blocks that had not begun",
                    k->name);
    }
    if (k->was_said_to_fit || !tl_eff_plan_fits_at_once(f))
        return;
    k->was_said_to_fit = true;
    tl_eff_note(
        "%s runs whole where its grid fits on the device at once (%u blocks, %u SMs with up "
        "to %u each)",
        k->name, f->blocks, f->sms, f->resident);
}

/* Launches the kernel as it is, on the SMs that it may have.  The lock is given up meanwhile. */
TL_EFF_LOCKED static void launch_whole(struct tl_eff_stream *s, struct tl_eff_item *item,
                                       uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    struct tl_eff_facts f = facts_of(s->context, l, false);
    uint64_t ns = tl_eff_predicted_ns(l->profile);
    bool is_measured = tl_eff_wants_sample(l->profile) && f.force != TL_RUNG_CAP;
    uint32_t sms = is_measured ? 0 : tl_eff_plan_cap(&f);
    CUresult r;
    TL_CHECK(l->done == 0 && l->n_flying == 0);
    note_why_whole(&f, l->kernel);
    if (l->profile != NULL)
        l->profile->n_launches++;
    l->began_ns = now;
    item->is_under_way = true;
    if (sms != 0)
        l->rung = TL_RUNG_CAP;
    count_launch(s, l);
    if (is_measured) {
        r = tl_eff_launch_measured(s, l);
    } else {
        tl_eff_unmarked(s, sms != 0 ? ns * f.sms / sms : ns, now);
        tl_eff_unlock();
        tl_eff_make_current(s->context);
        tl_eff_prepare(s->context);
        r = sms != 0 ? tl_eff_launch_capped(s, l, sms) : tl_eff_launch_whole(l, s->handle);
        tl_eff_lock();
        if (s->n_unmarked >= MARK_EVERY || s->unmarked_ns >= tl_eff_run_ahead_ns() / 4)
            tl_eff_mark(s);
    }
    tl_eff_finish_kernel(s, item, r);
}

/* A kernel that runs whole: at the head of its stream, when there is room for it. */
TL_EFF_LOCKED static bool advance_whole(struct tl_eff_stream *s, struct tl_eff_item *item,
                                        uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    if (s->first != item) {
        l->is_chosen = false; /* it may look different when its turn comes */
        return false;
    }
    if (!tl_eff_has_room(s, tl_eff_predicted_ns(l->profile))) {
        if (s->n_flying == 0)
            tl_eff_mark(s); /* else the news will come anyway */
        return false;
    }
    s->is_held = !tl_eff_take_rate(l->blocks, now);
    if (s->is_held)
        return false;
    launch_whole(s, item, now);
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

/* The first piece of a kernel: it is counted, once.  False if the rate does not allow it yet. */
TL_EFF_LOCKED static bool begin(struct tl_eff_stream *s, struct tl_eff_launch *l, uint64_t now)
{
    if (l->began_ns != 0)
        return true;
    if (!tl_eff_take_rate(l->blocks, now)) {
        s->is_held = true;
        return false;
    }
    l->began_ns = now;
    if (l->profile != NULL)
        l->profile->n_launches++;
    count_launch(s, l);
    return true;
}

/* It was kept waiting for a permit, until now. */
TL_EFF_LOCKED static void note_wait(const struct tl_eff_stream *s, struct tl_eff_launch *l,
                                    uint64_t now)
{
    if (l->ready_ns == 0)
        return;
    atomic_fetch_add_explicit(&tl_eff.page->waited_ns, now - l->ready_ns, memory_order_relaxed);
    tl_share_took(&tl_eff.page->waited, now - l->ready_ns);
    tl_record_spanned(tl_eff.record, TL_SPAN_WAIT, l->kernel->record, s->number, l->ready_ns, now);
    l->ready_ns = 0;
}

/* A kernel in pieces: one more of them, if so many may be on the device. */
TL_EFF_LOCKED static bool advance_pieces(struct tl_eff_stream *s, struct tl_eff_item *item,
                                         uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    struct tl_eff_item *before = s->first == item ? NULL : in_front(s, item);
    if (l->launched >= l->blocks)
        return false;
    struct tl_eff_facts f = facts_of(s->context, l, before != NULL);
    if (l->n_flying >= tl_eff_plan_at_once(&f) || (before != NULL && !tl_eff_plan_may_follow(&f)))
        return false;
    TL_CHECK(before == NULL || before->launch.control != NULL);
    if (!begin(s, l, now))
        return false;
    note_wait(s, l, now);
    launch_piece(s, item, before);
    return true;
}

bool tl_eff_kernel_advance(struct tl_eff_stream *s, struct tl_eff_item *item, uint64_t now)
{
    struct tl_eff_launch *l = &item->launch;
    tl_eff_assert_locked();
    TL_CHECK(item->stream == s && item->kind == TL_EFF_KERNEL && !item->is_submitted);
    if (l->head_ns == 0)
        tl_eff_comes_next(s->context, l, now);
    if (s->is_stalled)
        return false;
    if (!l->kernel->is_gang && !tl_eff_permit_holds(now)) {
        if (l->ready_ns == 0)
            l->ready_ns = now;
        s->is_held = true;
        return false;
    }
    if (!l->is_chosen && !settle(s, l, s->first != item))
        return false;
    return l->rung >= TL_RUNG_WHOLE ? advance_whole(s, item, now) : advance_pieces(s, item, now);
}

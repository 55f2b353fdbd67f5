/* Queues: what was asked for and could not be given to the driver at once, in order.
 *
 * An item is submitted when all items in front of it in its stream are, and all that it was put
 * behind: the legacy stream's rules make a submission on it wait for the ends of all blocking
 * queues of its context, and theirs for its own; an event makes the wait follow the record.
 * Because these are orders of submission only, and each is also an order that the driver keeps,
 * items never wait for anything that they would not wait for without us. */
#include "runtime/effort/queue.h"
#include "tally/array.h"
#include "tally/check.h"

#include <stdlib.h>

#include "runtime/effort/event.h"
#include "runtime/effort/executor.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"

enum { MAX_QUEUED = 1024 }; /* per stream, as the driver has its own bound */

struct tl_eff_queues tl_eff_queues;

void tl_eff_queues_start(void)
{
    pthread_condattr_t attr;
    tl_eff_lock();
    tl_eff_queues = (struct tl_eff_queues){.busy_end = &tl_eff_queues.busy};
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&tl_eff_queues.submitted, &attr);
    pthread_condattr_destroy(&attr);
    tl_eff_unlock();
}

/* --- items ------------------------------------------------------------------------------------ */

struct tl_eff_item *tl_eff_item_create(enum tl_eff_kind kind)
{
    struct tl_eff_item *item = calloc(1, sizeof *item);
    if (item == NULL)
        return NULL;
    item->kind = kind;
    item->refs = 1;
    return item;
}

void tl_eff_item_unref(struct tl_eff_item *item)
{
    tl_eff_assert_locked();
    TL_CHECK(item == NULL || item->refs > 0);
    if (item == NULL || --item->refs > 0)
        return;
    TL_CHECK(item->n_after == 0); /* whoever waits for it has a reference to what it waits for */
    if (item->event != NULL)
        tl_eff_event_unref(item->event);
    if (item->kind == TL_EFF_PART)
        tl_eff_parts_unref(item->part.part->of);
    free(item->owned);
    free(item->after);
    free(item);
}

void tl_eff_after(struct tl_eff_item *item, struct tl_eff_item *other)
{
    tl_eff_assert_locked();
    if (other == NULL || other == item || other->is_submitted)
        return;
    TL_CHECK(!item->is_submitted && !item->is_under_way);
    if (!TL_ARRAY_FIT(other->after, other->cap_after, other->n_after + 1)) {
        /* without a place to note the order, it is kept by waiting here */
        tl_eff_wait_submitted(other);
        return;
    }
    other->after[other->n_after++] = item;
    item->refs++;
    item->n_waits++;
}

/* --- queues ----------------------------------------------------------------------------------- */

TL_EFF_LOCKED static bool blocking_queues_are_empty(const struct tl_eff_context *c)
{
    for (const struct tl_eff_stream *s = c->streams; s != NULL; s = s->next) {
        if (s->is_blocking && s->first != NULL)
            return false;
    }
    return true;
}

bool tl_eff_passes(const struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    if (s->is_capturing)
        return true;
    if (tl_eff_is_holding())
        return false;
    if (tl_eff_queues.n_items == 0)
        return true;
    if (s->first != NULL)
        return false;
    if (s->is_legacy)
        return blocking_queues_are_empty(s->context);
    return !s->is_blocking || s->context->legacy->first == NULL;
}

bool tl_eff_make_busy(struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    if (s->is_busy)
        return false;
    s->is_busy = true;
    s->next_busy = NULL;
    *tl_eff_queues.busy_end = s;
    tl_eff_queues.busy_end = &s->next_busy;
    return true;
}

void tl_eff_enqueue(struct tl_eff_stream *s, struct tl_eff_item *item)
{
    tl_eff_assert_locked();
    TL_CHECK(item->stream == NULL && item->next == NULL && !item->is_submitted);
    TL_CHECK((s->first == NULL) == (s->n_items == 0));
    item->stream = s;
    if (s->is_legacy) {
        for (struct tl_eff_stream *o = s->context->streams; o != NULL; o = o->next) {
            if (o != s && o->is_blocking)
                tl_eff_after(item, o->last);
        }
    } else if (s->is_blocking) {
        tl_eff_after(item, s->context->legacy->last);
    }
    if (s->last != NULL)
        s->last->next = item;
    else
        s->first = item;
    s->last = item;
    s->n_items++;
    tl_eff_queues.n_items++;
    tl_eff_make_busy(s);
    tl_eff_tell_word();
    if (tl_eff_executor_start() < 0)
        tl_eff_log(0, "no thread for queued work: it waits");
    /* else it is not its turn for long, and what comes back rings as well */
    if (s->n_items <= TL_EFF_MAX_CHAIN)
        tl_eff_ring();
}

void tl_eff_submitted(struct tl_eff_item *item, CUresult result)
{
    struct tl_eff_stream *s = item->stream;
    tl_eff_assert_locked();
    TL_CHECK(s->first == item && item->n_waits == 0 && !item->is_submitted);
    TL_CHECK(s->n_items > 0 && tl_eff_queues.n_items >= s->n_items);
    s->first = item->next;
    if (s->first == NULL)
        s->last = NULL;
    s->n_items--;
    tl_eff_queues.n_items--;
    item->is_submitted = true;
    item->result = result;
    if (result != CUDA_SUCCESS && item->kind != TL_EFF_TURN && s->context->error == CUDA_SUCCESS)
        s->context->error = result;
    if (item->event != NULL)
        tl_eff_event_submitted(item->event, item);
    for (uint32_t i = 0; i < item->n_after; i++) {
        TL_CHECK(item->after[i]->n_waits > 0);
        item->after[i]->n_waits--;
        tl_eff_item_unref(item->after[i]);
    }
    item->n_after = 0;
    if (item->is_awaited || (tl_eff_queues.n_room_waiters > 0 && s->n_items < MAX_QUEUED * 3 / 4))
        pthread_cond_broadcast(&tl_eff_queues.submitted);
    tl_eff_item_unref(item);
}

void tl_eff_wait_submitted(struct tl_eff_item *item)
{
    if (item == NULL || item->is_submitted)
        return;
    item->refs++;
    item->is_awaited = true;
    while (!item->is_submitted && !atomic_load(&tl_eff.is_over))
        tl_eff_wait_for(&tl_eff_queues.submitted);
    tl_eff_item_unref(item);
}

void tl_eff_make_room(struct tl_eff_stream *s)
{
    tl_eff_queues.n_room_waiters++;
    while (s->n_items >= MAX_QUEUED && !atomic_load(&tl_eff.is_over))
        tl_eff_wait_for(&tl_eff_queues.submitted);
    tl_eff_queues.n_room_waiters--;
}

/* Waits for the ends of all queues as they are now: of one context or (NULL) of all, of blocking
 * streams or of all. */
TL_EFF_LOCKED static void drain(const struct tl_eff_context *only, bool only_blocking)
{
    enum { AT_A_TIME = 64 };
    struct tl_eff_item *ends[AT_A_TIME];
    uint32_t n = 0;
    for (struct tl_eff_context *c = tl_eff_streams.contexts; c != NULL; c = c->next) {
        for (struct tl_eff_stream *s = c->streams; s != NULL && (only == NULL || only == c);
             s = s->next) {
            if (s->last != NULL && n < AT_A_TIME && (s->is_blocking || !only_blocking)) {
                s->last->refs++;
                ends[n++] = s->last;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        tl_eff_wait_submitted(ends[i]);
        tl_eff_item_unref(ends[i]);
    }
    if (n == AT_A_TIME)
        drain(only, only_blocking);
}

void tl_eff_drain_stream(struct tl_eff_stream *s)
{
    if (s->is_legacy) /* its end is also that of the blocking streams */
        drain(s->context, true);
    else
        tl_eff_wait_submitted(s->last);
}

void tl_eff_drain_context(struct tl_eff_context *c)
{
    if (tl_eff_queues.n_items > 0)
        drain(c, false);
}

void tl_eff_drain_all(void)
{
    if (tl_eff_queues.n_items > 0)
        drain(NULL, false);
}

/* --- calls ------------------------------------------------------------------------------------ */

CUresult tl_eff_defer(struct tl_eff_stream *s, struct tl_eff_call *call, int at, void *owned)
{
    struct tl_eff_item *item = NULL;
    if (at >= 0)
        call->args[at] = (uintptr_t)s->handle;
    tl_eff_lock();
    tl_eff_make_room(s);
    bool passes = tl_eff_passes(s);
    if (!passes)
        item = tl_eff_item_create(TL_EFF_CALL);
    if (item != NULL) {
        item->call = *call;
        item->owned = owned;
        item->ends_stream = call->function == *(void **)&tl_eff_real.cuStreamDestroy_v2;
        tl_eff_enqueue(s, item);
    } else {
        if (!passes)
            tl_eff_drain_stream(s);
        tl_eff_direct_begin();
    }
    tl_eff_unlock();
    if (item != NULL)
        return CUDA_SUCCESS;
    CUresult r = tl_eff_invoke(call);
    tl_eff_direct_end();
    free(owned);
    return r;
}

CUresult tl_eff_turn_begin(struct tl_eff_turn *t, struct tl_eff_stream *s, bool needs_permit)
{
    t->item = NULL;
    tl_eff_lock();
    tl_eff_direct_begin();
    if (tl_eff_passes(s) &&
        (!needs_permit || s->is_capturing || tl_eff_permit_holds(tl_eff_now()))) {
        tl_eff_unlock();
        return CUDA_SUCCESS;
    }
    struct tl_eff_item *item = tl_eff_item_create(TL_EFF_TURN);
    if (item == NULL) {
        tl_eff_drain_stream(s);
        tl_eff_unlock();
        return CUDA_SUCCESS;
    }
    item->needs_permit = needs_permit;
    item->refs++; /* ours, beside the queue's */
    tl_eff_enqueue(s, item);
    tl_eff_direct_end(); /* it waits, and the queue tells of it */
    while (!item->is_under_way && !atomic_load(&tl_eff.is_over))
        tl_eff_wait_for(&tl_eff_queues.submitted);
    t->item = item;
    tl_eff_direct_begin();
    tl_eff_unlock();
    return CUDA_SUCCESS;
}

void tl_eff_turn_end(struct tl_eff_turn *t, CUresult result)
{
    tl_eff_direct_end();
    if (t->item == NULL)
        return;
    tl_eff_lock();
    if (t->item->is_under_way)
        tl_eff_submitted(t->item, result); /* gives up the queue's reference; ours is still there */
    tl_eff_item_unref(t->item);            /* NOLINT(clang-analyzer-unix.Malloc) */
    tl_eff_unlock();
    tl_eff_ring();
}

CUresult tl_eff_result(struct tl_eff_context *c, CUresult result)
{
    if (c == NULL)
        return result;
    tl_eff_lock();
    CUresult stored = c->error;
    c->error = CUDA_SUCCESS;
    tl_eff_unlock();
    return result != CUDA_SUCCESS ? result : stored;
}

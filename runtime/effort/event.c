/* Events whose record is still in a queue.
 *
 * To the real driver such an event is one that was recorded earlier, or never.  So as long as a
 * record is queued we answer for it: not ready; whoever waits for it is put behind it.  A wait that
 * is queued means the record that was the last when it was asked for: a new record of the event is
 * put behind such waits, else they would find the new one. */
#include "runtime/effort/event.h"
#include "tally/array.h"
#include "tally/check.h"
#include "tally/hash.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/effort/flight.h"
#include "runtime/effort/hooks.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/moment.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/stream.h"

struct tl_eff_event {
    struct tl_eff_event *next; /* in its hash slot */
    CUevent handle;
    uint32_t refs;              /* items about it; it goes with the last */
    bool is_destroyed;          /* by the job: destroyed with the last reference */
    bool is_captured;           /* its last record was in a capture: a reference */
    struct tl_eff_item *record; /* queued, a reference; NULL if the last record was submitted */
    struct tl_eff_item **waits; /* queued, references */
    uint32_t n_waits, cap_waits;
};

enum { SLOTS = 1024 };
static struct tl_eff_event *events[SLOTS] TL_EFF_GUARDED; /* by handle */

void tl_eff_events_start(void)
{
    tl_eff_lock();
    memset(events, 0, sizeof events);
    tl_eff_unlock();
}

TL_EFF_LOCKED static struct tl_eff_event **slot_of(CUevent handle)
{
    return &events[(tl_hash_number((uintptr_t)handle) >> 32) % SLOTS];
}

/* NULL if nothing of the event is queued. */
TL_EFF_LOCKED static struct tl_eff_event *find_event(CUevent handle)
{
    tl_eff_assert_locked();
    struct tl_eff_event *e = *slot_of(handle);
    while (e != NULL && (e->handle != handle || e->is_destroyed))
        e = e->next;
    return e;
}

/* NULL without memory. */
TL_EFF_LOCKED static struct tl_eff_event *find_or_make(CUevent handle)
{
    struct tl_eff_event *e = find_event(handle);
    if (e != NULL)
        return e;
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return NULL;
    e->handle = handle;
    e->next = *slot_of(handle);
    *slot_of(handle) = e;
    return e;
}

void tl_eff_event_unref(struct tl_eff_event *e)
{
    tl_eff_assert_locked();
    TL_CHECK(e->refs > 0);
    if (--e->refs > 0)
        return;
    TL_CHECK(e->record == NULL && e->n_waits == 0); /* each of these has a reference */
    for (struct tl_eff_event **at = slot_of(e->handle); *at != NULL; at = &(*at)->next) {
        if (*at == e) {
            *at = e->next;
            break;
        }
    }
    if (e->is_destroyed) {
        tl_eff_unlock();
        tl_eff_real.cuEventDestroy_v2(e->handle);
        tl_eff_lock();
    }
    free(e->waits);
    free(e);
}

void tl_eff_event_submitted(struct tl_eff_event *e, struct tl_eff_item *item)
{
    tl_eff_assert_locked();
    TL_CHECK(item->event == e && item->is_submitted);
    if (e->record == item) {
        e->record = NULL;
        tl_eff_item_unref(item);
    }
    for (uint32_t i = 0; i < e->n_waits; i++) {
        if (e->waits[i] == item) {
            e->waits[i] = e->waits[--e->n_waits];
            tl_eff_item_unref(item);
            break;
        }
    }
}

/* --- recording and waiting -------------------------------------------------------------------- */

TL_EFF_UNLOCKED static CUresult record_now(CUevent event, struct tl_eff_stream *s, unsigned flags)
{
    return flags != 0 && tl_eff_real.cuEventRecordWithFlags != NULL
               ? tl_eff_real.cuEventRecordWithFlags(event, s->handle, flags)
               : tl_eff_real.cuEventRecord(event, s->handle);
}

/* The item for a call about an event, which it refers to; NULL without memory. */
TL_EFF_LOCKED static struct tl_eff_item *item_about(CUevent handle, struct tl_eff_event **event)
{
    struct tl_eff_item *item = tl_eff_item_create(TL_EFF_CALL);
    struct tl_eff_event *e = item != NULL ? find_or_make(handle) : NULL;
    if (e == NULL) {
        free(item);
        return NULL;
    }
    e->refs++;
    item->event = e;
    *event = e;
    return item;
}

/* Whether an event is one of a capture cannot be asked: the question would make the capture
 * invalid. May free its entry. */
TL_EFF_LOCKED static void note_capture(CUevent event, bool is_captured)
{
    struct tl_eff_event *e = is_captured ? find_or_make(event) : find_event(event);
    if (e == NULL || e->is_captured == is_captured)
        return;
    e->is_captured = is_captured;
    if (is_captured)
        e->refs++;
    else
        tl_eff_event_unref(e);
}

CUresult tl_eff_record(CUevent event, struct tl_eff_stream *s, unsigned flags)
{
    struct tl_eff_event *e;
    tl_eff_lock();
    tl_eff_make_room(s);
    note_capture(event, s->is_capturing && flags == 0);
    e = find_event(event);
    bool is_free = e == NULL || (e->record == NULL && e->n_waits == 0);
    if (s->is_capturing || (is_free && tl_eff_passes(s))) {
        tl_eff_direct_begin();
        tl_eff_unlock();
        CUresult r = record_now(event, s, flags);
        tl_eff_direct_end();
        return r;
    }
    struct tl_eff_item *item = item_about(event, &e);
    if (item == NULL) {
        tl_eff_unlock();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < e->n_waits; i++)
        tl_eff_after(item, e->waits[i]);
    if (e->record != NULL) { /* an earlier record that nobody sees any more, but its order counts */
        tl_eff_after(item, e->record);
        tl_eff_item_unref(e->record);
    }
    e->record = item;
    item->refs++;
    if (flags != 0 && tl_eff_real.cuEventRecordWithFlags != NULL)
        item->call = (struct tl_eff_call){*(void **)&tl_eff_real.cuEventRecordWithFlags,
                                          3,
                                          {(uintptr_t)event, (uintptr_t)s->handle, flags}};
    else
        item->call = (struct tl_eff_call){
            *(void **)&tl_eff_real.cuEventRecord, 2, {(uintptr_t)event, (uintptr_t)s->handle}};
    tl_eff_enqueue(s, item);
    tl_eff_unlock();
    return CUDA_SUCCESS;
}

/* Notes that a queued wait means the event's present record; false without memory. */
TL_EFF_LOCKED static bool note_wait(struct tl_eff_event *e, struct tl_eff_item *item)
{
    if (!TL_ARRAY_FIT(e->waits, e->cap_waits, e->n_waits + 1))
        return false;
    e->waits[e->n_waits++] = item;
    item->refs++;
    return true;
}

/* A stream that waits for an event of a capture joins that capture. */
TL_EFF_UNLOCKED static CUresult wait_now(struct tl_eff_stream *s, CUevent event, unsigned flags)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    tl_eff_lock();
    tl_eff_marks_off(s);
    tl_eff_unlock();
    CUresult r = tl_eff_real.cuStreamWaitEvent(s->handle, event, flags);
    bool joins = r == CUDA_SUCCESS && !s->is_legacy &&
                 tl_eff_real.cuStreamIsCapturing(s->handle, &status) == CUDA_SUCCESS &&
                 status != CU_STREAM_CAPTURE_STATUS_NONE;
    tl_eff_lock();
    s->is_capturing |= joins;
    tl_eff_marks_on(s);
    tl_eff_unlock();
    return r;
}

CUresult tl_eff_wait(struct tl_eff_stream *s, CUevent event, unsigned flags)
{
    struct tl_eff_event *e;
    tl_eff_lock();
    tl_eff_make_room(s);
    e = find_event(event);
    bool is_with_driver = e == NULL || e->record == NULL;
    bool is_captured = e != NULL && e->is_captured;
    if (s->is_capturing || (is_with_driver && (is_captured || tl_eff_passes(s)))) {
        if (is_captured && !s->is_capturing)
            tl_eff_drain_stream(
                s); /* it joins the capture, and what it was asked before does not */
        tl_eff_direct_begin();
        tl_eff_unlock();
        CUresult r = wait_now(s, event, flags);
        tl_eff_direct_end();
        return r;
    }
    struct tl_eff_item *item = item_about(event, &e);
    if (item == NULL || !note_wait(e, item)) {
        tl_eff_item_unref(item);
        tl_eff_drain_stream(s);
        tl_eff_unlock();
        return wait_now(s, event, flags);
    }
    item->call = (struct tl_eff_call){*(void **)&tl_eff_real.cuStreamWaitEvent,
                                      3,
                                      {(uintptr_t)s->handle, (uintptr_t)event, flags}};
    tl_eff_after(item, e->record);
    tl_eff_enqueue(s, item);
    tl_eff_unlock();
    return CUDA_SUCCESS;
}

/* --- hooks ------------------------------------------------------------------------------------ */

static CUresult record_in(CUevent event, CUstream stream, unsigned flags, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    return r == CUDA_SUCCESS ? tl_eff_record(event, s, flags) : r;
}

static CUresult hook_cuEventRecord(CUevent event, CUstream stream)
{
    return record_in(event, stream, 0, false);
}

static CUresult hook_cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return record_in(event, stream, 0, true);
}

static CUresult hook_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    return record_in(event, stream, flags, false);
}

static CUresult hook_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
    return record_in(event, stream, flags, true);
}

static CUresult wait_in(CUstream stream, CUevent event, unsigned flags, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    return r == CUDA_SUCCESS ? tl_eff_wait(s, event, flags) : r;
}

static CUresult hook_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    return wait_in(stream, event, flags, false);
}

static CUresult hook_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    return wait_in(stream, event, flags, true);
}

/* Whether its last record is still queued. */
TL_EFF_UNLOCKED static bool is_pending(CUevent event)
{
    tl_eff_lock();
    struct tl_eff_event *e = find_event(event);
    bool is = e != NULL && e->record != NULL;
    tl_eff_unlock();
    return is;
}

static CUresult hook_cuEventQuery(CUevent event)
{
    CUresult lost = tl_eff_lost(tl_eff_current());
    if (lost != CUDA_SUCCESS)
        return lost;
    return is_pending(event) ? CUDA_ERROR_NOT_READY : tl_eff_real.cuEventQuery(event);
}

static CUresult hook_cuEventSynchronize(CUevent event)
{
    tl_eff_lock();
    struct tl_eff_event *e = find_event(event);
    tl_eff_wait_submitted(e != NULL ? e->record : NULL);
    tl_eff_unlock();
    CUresult lost = tl_eff_lost(tl_eff_current());
    return lost != CUDA_SUCCESS ? lost : tl_eff_real.cuEventSynchronize(event);
}

static CUresult hook_cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    return is_pending(start) || is_pending(end) ? CUDA_ERROR_NOT_READY
                                                : tl_eff_real.cuEventElapsedTime(ms, start, end);
}

CUresult tl_eff_event_destroy(CUevent event)
{
    tl_eff_lock();
    struct tl_eff_event *e;
    note_capture(event, false);
    e = find_event(event);
    if (e != NULL && (e->record != NULL || e->n_waits > 0)) {
        e->is_destroyed = true; /* really, when the last item about it has gone */
        tl_eff_unlock();
        return CUDA_SUCCESS;
    }
    tl_eff_unlock();
    return tl_eff_real.cuEventDestroy_v2(event);
}

const struct tl_hook tl_eff_event_hooks[] = {
    {"cuEventRecord", (void *)hook_cuEventRecord},
    {"cuEventRecord_ptsz", (void *)hook_cuEventRecord_ptsz},
    {"cuEventRecordWithFlags", (void *)hook_cuEventRecordWithFlags},
    {"cuEventRecordWithFlags_ptsz", (void *)hook_cuEventRecordWithFlags_ptsz},
    {"cuStreamWaitEvent", (void *)hook_cuStreamWaitEvent},
    {"cuStreamWaitEvent_ptsz", (void *)hook_cuStreamWaitEvent_ptsz},
    {"cuEventQuery", (void *)hook_cuEventQuery},
    {"cuEventSynchronize", (void *)hook_cuEventSynchronize},
    {"cuEventElapsedTime", (void *)hook_cuEventElapsedTime},
    {"cuEventElapsedTime_v2", (void *)hook_cuEventElapsedTime},
    {"cuEventDestroy", (void *)tl_eff_event_destroy},
    {"cuEventDestroy_v2", (void *)tl_eff_event_destroy},
    {NULL, NULL},
};

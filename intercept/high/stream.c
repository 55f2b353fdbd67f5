/* Streams and their counters: found by handle without a lock, never freed, and the in-flight word
 * that sums them up. */
#include "intercept/capture/map.h"
#include "intercept/high/high.h"
#include "tally/hash.h"

#include <stdlib.h>

#include "tally/lock.h"

TL_THREAD struct tl_high_thread tl_high_thread;
_Atomic uint32_t tl_high_captures;

static struct tl_map streams = TL_MAP_EMPTY;
static struct tl_stream *_Atomic all;
static _Atomic uint32_t n_streams;

/* --- finding --- */

static uintptr_t key_of(CUcontext ctx, bool is_per_thread)
{
    /* No handle is odd.  A thread is told by the address of something of its own; after it, another
     * may go on with its counters, which is as good. */
    uintptr_t key = (uintptr_t)ctx * 2 + 1;
    return is_per_thread ? key + (tl_hash_number((uintptr_t)&tl_high_thread) << 1) : key;
}

static struct tl_stream *make(uintptr_t key)
{
    struct tl_stream *s = aligned_alloc(64, sizeof *s), *head;
    if (s == NULL)
        return NULL;
    *s = (struct tl_stream){.is_gone = true};
    struct tl_stream *there = tl_map_keep(&streams, key, s);
    if (there != s) {
        free(s);
        return there;
    }
    s->number = atomic_fetch_add_explicit(&n_streams, 1, memory_order_relaxed);
    head = atomic_load_explicit(&all, memory_order_relaxed);
    do
        s->next = head;
    while (!atomic_compare_exchange_weak_explicit(&all, &head, s, memory_order_release,
                                                  memory_order_relaxed));
    return s;
}

/* Tells what a stream is that is new, or new under an old handle. */
static void describe(struct tl_stream *s, enum tl_stream_kind kind, CUstream handle, CUcontext ctx)
{
    struct tl_seat *seat = tl_seat_of(ctx);
    tl_watch_lock();
    if (atomic_load_explicit(&s->is_gone, memory_order_relaxed)) {
        if (s->seat != NULL && s->seat != seat) /* what is left of the old one counts there */
            tl_stream_complete(s, tl_stream_submitted(s));
        s->seat = seat;
        s->kind = kind;
        s->handle = handle;
        s->ctx = ctx;
        atomic_store_explicit(&s->is_gone, false, memory_order_release);
    }
    tl_watch_unlock();
}

struct tl_stream *tl_stream_find(CUstream stream, bool is_per_thread)
{
    struct tl_high_thread *t = &tl_high_thread;
    CUcontext ctx = NULL;
    bool is_ordinary = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
    bool is_own = stream == CU_STREAM_PER_THREAD || (stream == NULL && is_per_thread);
    if (!is_ordinary)
        TL_REAL(cuCtxGetCurrent)(&ctx);
    uintptr_t key = is_ordinary ? (uintptr_t)stream : key_of(ctx, is_own);
    struct tl_stream *s = tl_map_find(&streams, key);
    if (s == NULL)
        s = make(key);
    if (s == NULL)
        return NULL;
    if (atomic_load_explicit(&s->is_gone, memory_order_acquire)) {
        if (is_ordinary && TL_REAL(cuStreamGetCtx)(stream, &ctx) != CUDA_SUCCESS)
            TL_REAL(cuCtxGetCurrent)(&ctx);
        if (is_ordinary)
            describe(s, TL_STREAM_ORDINARY, stream, ctx);
        else
            describe(s, is_own ? TL_STREAM_PER_THREAD : TL_STREAM_LEGACY,
                     is_own ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY, ctx);
    }
    if (is_ordinary) {
        t->handle = (uintptr_t)stream;
        t->stream = s;
    } else {
        t->defaults[is_own] = s;
    }
    return s;
}

struct tl_stream *tl_stream_first(void)
{
    return atomic_load_explicit(&all, memory_order_acquire);
}

void tl_stream_forget_context(void)
{
    tl_high_thread.defaults[0] = tl_high_thread.defaults[1] = NULL;
}

bool tl_stream_is_capturing(CUstream stream, bool is_per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult r = is_per_thread ? TL_REAL(cuStreamIsCapturing_ptsz)(stream, &status)
                               : TL_REAL(cuStreamIsCapturing)(stream, &status);
    /* The legacy stream cannot say while a blocking stream is captured; whatever is launched there
     * then fails. */
    return r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* --- counting --- */

void tl_high_burst(struct tl_seat *seat)
{
    struct tl_high_thread *t = &tl_high_thread;
    if (t->told_at != NULL) /* one call with work for several GPUs; the addition is this piece's */
        tl_high_told();
    t->told_at = seat;
    t->told = tl_client_tell(seat->client);
    tl_request_burst(seat);
    tl_watch_wake();
}

void tl_high_told(void)
{
    struct tl_high_thread *t = &tl_high_thread;
    tl_client_told(t->told_at->client, t->told);
    t->told_at = NULL;
}

/* `n` pieces are not in flight any more. */
static void leave(struct tl_seat *seat, uint32_t n)
{
    struct tl_client_page *page = seat->page;
    uint32_t completed = atomic_fetch_add(&page->completed, n) + n;
    if (completed != atomic_load(&page->issued))
        return;
    tl_client_ended(seat->client, completed);
    tl_request_idle(seat);
}

void tl_high_refused(struct tl_stream *s)
{
    leave(s->seat, 1);
}

void tl_stream_complete(struct tl_stream *s, uint32_t upto)
{
    uint32_t done = atomic_load_explicit(&s->completed, memory_order_relaxed);
    while ((int32_t)(upto - done) > 0)
        if (atomic_compare_exchange_weak_explicit(&s->completed, &done, upto, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            leave(s->seat, upto - done);
            return;
        }
}

void tl_stream_gone(struct tl_stream *s)
{
    atomic_store_explicit(&s->is_gone, true, memory_order_release);
}

/* --- begin and end --- */

void tl_high_start(void)
{
    tl_seats_start();
    tl_driver_hook(tl_high_launch_hooks);
    tl_driver_hook(tl_high_copy_hooks);
    tl_driver_hook(tl_high_wait_hooks);
    tl_driver_hook(tl_high_context_hooks);
}

/* The parent's streams mean nothing here: nothing is in flight.  The child has one thread: there is
 * nobody to lock out. */
TL_UNCHECKED void tl_high_forked(void)
{
    tl_map_forked(&streams);
    for (struct tl_stream *s = tl_stream_first(); s != NULL; s = s->next) {
        atomic_store(&s->completed, atomic_load(&s->submitted));
        atomic_store(&s->waiters, 0);
        s->is_origin = false;
        tl_stream_gone(s);
    }
    atomic_store(&tl_high_captures, 0);
    tl_seats_forked();
    tl_launch_forked();
    tl_wait_forked();
    tl_watch_forked();
    tl_sample_forked();
    tl_request_forked();
}

void tl_high_stop(void)
{
    tl_watch_stop();
}

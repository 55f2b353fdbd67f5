/* Contexts and streams as the job knows them, and the real ones behind.
 *
 * A thread's default stream belongs to that thread in the real driver: the executor could not
 * submit to it.  So each thread that uses one gets an ordinary blocking stream of its own per
 * context, which has the same rules. */
#include "runtime/effort/stream.h"
#include "tally/check.h"
#include "tally/hash.h"

#include <stdlib.h>

#include "runtime/effort/attribute.h"
#include "runtime/effort/cap.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/permit.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"

/* A thread's own streams.  Given back when the thread ends. */
struct own_stream {
    struct own_stream *next;
    struct tl_eff_stream *stream;
};
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

struct tl_eff_streams tl_eff_streams;

void tl_eff_streams_start(void)
{
    tl_eff_lock();
    tl_eff_streams = (struct tl_eff_streams){0};
    tl_eff_unlock();
}

static uint32_t slot_of(CUstream handle)
{
    return (uint32_t)(tl_hash_number((uintptr_t)handle) >> 32) % TL_EFF_STREAM_SLOTS;
}

TL_EFF_LOCKED static struct tl_eff_stream *create(struct tl_eff_context *c, CUstream handle,
                                                  bool is_blocking)
{
    struct tl_eff_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->context = c;
    s->handle = handle;
    s->is_legacy = handle == NULL;
    s->is_blocking = is_blocking;
    s->number = tl_eff_streams.n++;
    s->next = c->streams;
    c->streams = s;
    if (handle != NULL) {
        s->next_in_hash = tl_eff_streams.by_handle[slot_of(handle)];
        tl_eff_streams.by_handle[slot_of(handle)] = s;
    }
    return s;
}

struct tl_eff_context *tl_eff_context(CUcontext handle)
{
    tl_eff_assert_locked();
    struct tl_eff_context *c = tl_eff_streams.contexts;
    while (c != NULL && c->handle != handle)
        c = c->next;
    if (c != NULL)
        return c;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->handle = handle;
    c->legacy = create(c, NULL, true);
    if (c->legacy == NULL) {
        free(c);
        return NULL;
    }
    c->next = tl_eff_streams.contexts;
    tl_eff_streams.contexts = c;
    return c;
}

/* Its first work: the job uses its GPU. */
TL_EFF_UNLOCKED static void place(struct tl_eff_context *c, CUcontext handle)
{
    if (c != NULL && tl_eff.shim->place != NULL &&
        !atomic_load_explicit(&c->is_placed, memory_order_relaxed) &&
        !atomic_exchange(&c->is_placed, true))
        atomic_store_explicit(&c->gpu, tl_eff.shim->place(handle), memory_order_release);
}

struct tl_eff_context *tl_eff_current(void)
{
    CUcontext handle = NULL;
    if (tl_eff_real.cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == NULL)
        return NULL;
    tl_eff_lock();
    struct tl_eff_context *c = tl_eff_context(handle);
    tl_eff_unlock();
    place(c, handle);
    return c;
}

void tl_eff_make_current(struct tl_eff_context *c)
{
    tl_eff_real.cuCtxSetCurrent(c->handle);
}

/* --- a thread's own --------------------------------------------------------------------------- */

static void end_thread(void *list)
{
    struct own_stream *own = list;
    while (own != NULL) {
        struct own_stream *next = own->next;
        struct tl_eff_stream *s = own->stream;
        free(own);
        own = next;
        tl_eff_lock();
        if (s->is_destroyed || atomic_load(&tl_eff.is_over)) { /* with its context */
            tl_eff_unlock();
            continue;
        }
        tl_eff_stream_forget(s);
        tl_eff_unlock();
        struct tl_eff_call call = {.function = *(void **)&tl_eff_real.cuStreamDestroy_v2, .n = 1};
        tl_eff_defer(s, &call, 0, NULL);
    }
}

static void make_key(void)
{
    pthread_key_create(&own_key, end_thread);
}

/* The calling thread's own default stream in its current context, made when it is first used. */
TL_EFF_UNLOCKED static CUresult per_thread(struct tl_eff_stream **out)
{
    pthread_once(&own_once, make_key);
    struct tl_eff_context *c = tl_eff_current();
    if (c == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct own_stream *first = pthread_getspecific(own_key);
    for (struct own_stream *o = first; o != NULL; o = o->next) {
        if (o->stream->context == c && !o->stream->is_destroyed) {
            *out = o->stream;
            return CUDA_SUCCESS;
        }
    }
    struct own_stream *own = malloc(sizeof *own);
    CUstream handle;
    CUresult r = own != NULL ? tl_eff_real.cuStreamCreate(&handle, CU_STREAM_DEFAULT)
                             : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        free(own);
        return r;
    }
    tl_eff_lock();
    own->stream = create(c, handle, true);
    tl_eff_unlock();
    if (own->stream == NULL) {
        free(own);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    own->next = first;
    pthread_setspecific(own_key, own);
    *out = own->stream;
    return CUDA_SUCCESS;
}

/* --- any stream ------------------------------------------------------------------------------- */

CUresult tl_eff_stream(CUstream handle, bool is_per_thread, struct tl_eff_stream **out)
{
    if (handle == CU_STREAM_PER_THREAD || (handle == NULL && is_per_thread))
        return per_thread(out);
    if (handle == NULL || handle == CU_STREAM_LEGACY) {
        struct tl_eff_context *c = tl_eff_current();
        if (c == NULL)
            return CUDA_ERROR_INVALID_CONTEXT;
        *out = c->legacy;
        return CUDA_SUCCESS;
    }
    tl_eff_lock();
    struct tl_eff_stream *s = tl_eff_streams.by_handle[slot_of(handle)];
    while (s != NULL && s->handle != handle)
        s = s->next_in_hash;
    tl_eff_unlock();
    if (s == NULL) {
        unsigned flags;
        CUcontext context;
        CUresult r = tl_eff_real.cuStreamGetFlags(handle, &flags);
        if (r == CUDA_SUCCESS)
            r = tl_eff_real.cuStreamGetCtx(handle, &context);
        if (r != CUDA_SUCCESS)
            return r;
        bool has_attributes = tl_eff_has_attributes(handle);
        tl_eff_lock();
        struct tl_eff_context *c = tl_eff_context(context);
        for (s = tl_eff_streams.by_handle[slot_of(handle)]; s != NULL && s->handle != handle;)
            s = s->next_in_hash;
        if (s == NULL && c != NULL)
            s = create(c, handle, (flags & CU_STREAM_NON_BLOCKING) == 0);
        if (s != NULL)
            s->has_attributes |= has_attributes;
        tl_eff_unlock();
        if (s == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        place(c, context);
    }
    *out = s;
    return CUDA_SUCCESS;
}

void tl_eff_stream_forget(struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    TL_CHECK(!s->is_legacy);
    s->is_destroyed = true;
    for (struct tl_eff_stream **at = &tl_eff_streams.by_handle[slot_of(s->handle)]; *at != NULL;
         at = &(*at)->next_in_hash) {
        if (*at == s) {
            *at = s->next_in_hash;
            break;
        }
    }
}

void tl_eff_stream_free(struct tl_eff_stream *s)
{
    tl_eff_assert_locked();
    TL_CHECK(s->first == NULL && s->n_flying == 0 && s->n_unmarked == 0 && !s->is_busy);
    tl_eff_cap_leave(s);
    if (s->other != NULL && s->context->n_spares < TL_EFF_SPARES)
        s->context->spares[s->context->n_spares++] =
            s->other; /* one too many goes with its context */
    for (struct tl_eff_stream **at = &s->context->streams; *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    free(s);
}

void tl_eff_context_free(struct tl_eff_context *c)
{
    for (struct tl_eff_context **at = &tl_eff_streams.contexts; *at != NULL; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    /* Streams stay in memory: threads may still have them as their own.  Their handles mean nothing
     * any more. */
    for (struct tl_eff_stream *s = c->streams; s != NULL; s = s->next) {
        if (!s->is_legacy)
            tl_eff_stream_forget(s);
        s->is_destroyed = true;
    }
    c->handle = NULL;
    tl_eff_permit_forget();
}

void tl_eff_streams_forked(void)
{
    pthread_once(&own_once, make_key);
    pthread_setspecific(own_key, NULL);
}

/* Allocation in the order of streams.  An address has to be told at once, so an allocation cannot
 * wait in a queue; but what the same stream has freed before it may still stand there, and CUDA
 * lets the stream have that memory again without waiting for anything.  So
 *
 *     a free of that many bytes is queued in the stream   its memory changes hands: the free is not made, and nothing was allocated
 *     else                                                the driver is asked, at once
 *     it has no memory, and larger ones are queued there  one of those, the smallest
 *     it has none, and there are frees in other queues,   it is asked again when these have been made, and then when they are done
 *     or smaller ones
 *
 * Only the last one waits, where CUDA without us might have found memory: for a kernel that waits
 * for the program's next call it would be for ever. */
#include "runtime/effort/alloc.h"

#include <stdlib.h>

#include "runtime/effort/hooks.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "tally/hash.h"

enum { SLOTS = 1024 };

/* What was allocated in the order of a stream, and may be handed on. */
struct alloc {
    struct alloc *next; /* in its slot */
    CUdeviceptr at;
    size_t bytes;
    CUmemoryPool pool;   /* NULL: that of the device */
    uint32_t generation; /* of what the device's is */
};
static struct alloc *allocs[SLOTS] TL_EFF_GUARDED;
static uint32_t generation TL_EFF_GUARDED; /* grows when a device gets another pool */

void tl_eff_allocs_start(void)
{
    tl_eff_lock();
    for (uint32_t i = 0; i < SLOTS; i++)
        allocs[i] = NULL;
    tl_eff_unlock();
}

TL_EFF_LOCKED static struct alloc **place_of(CUdeviceptr at)
{
    struct alloc **a = &allocs[(tl_hash_number(at) >> 32) % SLOTS];
    while (*a != NULL && (*a)->at != at)
        a = &(*a)->next;
    return a;
}

void tl_eff_alloc_forget(CUdeviceptr at)
{
    tl_eff_lock();
    struct alloc **place = place_of(at), *a = *place;
    if (a != NULL)
        *place = a->next;
    tl_eff_unlock();
    free(a);
}

/* Without memory for it, it is not handed on. */
TL_EFF_UNLOCKED static void note(CUdeviceptr at, size_t bytes, CUmemoryPool pool)
{
    struct alloc *fresh = malloc(sizeof *fresh);
    tl_eff_lock();
    struct alloc **place = place_of(at), *old = *place;
    if (fresh != NULL)
        *fresh = (struct alloc){old != NULL ? old->next : NULL, at, bytes, pool, generation};
    if (fresh != NULL || old != NULL)
        *place = fresh != NULL ? fresh : old->next;
    tl_eff_unlock();
    free(old);
}

/* --- frees that are queued -------------------------------------------------------------------- */

static CUresult nothing(void)
{
    return CUDA_SUCCESS;
}

static void *free_function(void)
{
    static void *_Atomic real;
    if (real == NULL)
        real = tl_eff.shim->real("cuMemFreeAsync");
    return real;
}

static bool is_free(const struct tl_eff_item *item)
{
    return item->kind == TL_EFF_CALL && !item->is_under_way &&
           item->call.function == free_function();
}

/* Takes the memory of a free that is queued in the stream: of exactly that many bytes or, with
 * `more`, of the fewest that are enough. */
TL_EFF_LOCKED static bool take_over(const struct tl_eff_stream *s, size_t bytes, CUmemoryPool pool,
                                    bool more, CUdeviceptr *at)
{
    struct tl_eff_item *best = NULL;
    size_t least = more ? SIZE_MAX : bytes;
    for (struct tl_eff_item *i = s->first; i != NULL; i = i->next) {
        const struct alloc *a = is_free(i) ? *place_of(i->call.args[0]) : NULL;
        if (a == NULL || a->pool != pool || a->generation != generation || a->bytes < bytes ||
            a->bytes > least)
            continue;
        best = i;
        least = a->bytes;
        if (!more)
            break;
    }
    if (best == NULL)
        return false;
    *at = best->call.args[0];
    best->call = (struct tl_eff_call){.function = (void *)nothing};
    return true;
}

/* Waits until the frees that are queued anywhere now have been made, then perhaps until they are
 * done. False if there are none. */
TL_EFF_UNLOCKED static bool await_frees(bool until_done)
{
    enum { AT_A_TIME = 64 };
    struct tl_eff_item *last[AT_A_TIME];
    CUstream streams[AT_A_TIME];
    uint32_t n = 0;
    tl_eff_lock();
    for (struct tl_eff_stream *s = tl_eff_queues.busy; s != NULL && n < AT_A_TIME;
         s = s->next_busy) {
        struct tl_eff_item *found = NULL;
        for (struct tl_eff_item *i = s->first; i != NULL; i = i->next)
            found = is_free(i) ? i : found;
        if (found == NULL || s->is_destroyed)
            continue;
        found->refs++;
        streams[n] = s->handle;
        last[n++] = found;
    }
    for (uint32_t i = 0; i < n; i++) {
        tl_eff_wait_submitted(last[i]);
        tl_eff_item_unref(last[i]);
    }
    tl_eff_unlock();
    for (uint32_t i = 0; i < n && until_done; i++)
        tl_eff_real.cuStreamSynchronize(streams[i]);
    return n > 0;
}

/* --- hooks ------------------------------------------------------------------------------------ */

static CUresult ask(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, const struct tl_eff_stream *s)
{
    struct tl_eff_call c = {
        tl_eff.shim->real("cuMemAllocAsync"), 3, {(uintptr_t)at, bytes, (uintptr_t)s->handle}};
    if (pool != NULL)
        c = (struct tl_eff_call){tl_eff.shim->real("cuMemAllocFromPoolAsync"),
                                 4,
                                 {(uintptr_t)at, bytes, (uintptr_t)pool, (uintptr_t)s->handle}};
    return tl_eff_invoke(&c);
}

static CUresult alloc(CUdeviceptr *at, size_t bytes, CUmemoryPool pool, CUstream stream,
                      bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (s->is_capturing || at == NULL || bytes == 0)
        return ask(at, bytes, pool, s);
    tl_eff_lock();
    bool is_taken = take_over(s, bytes, pool, false, at);
    tl_eff_unlock();
    if (is_taken)
        return CUDA_SUCCESS;
    r = ask(at, bytes, pool, s);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        tl_eff_lock();
        is_taken = take_over(s, bytes, pool, true, at);
        tl_eff_unlock();
        if (is_taken)
            return CUDA_SUCCESS;
    }
    for (int i = 0; i < 2 && r == CUDA_ERROR_OUT_OF_MEMORY && await_frees(i > 0); i++)
        r = ask(at, bytes, pool, s);
    if (r == CUDA_SUCCESS)
        note(*at, bytes, pool);
    return r;
}

static CUresult hook_cuMemAllocAsync(CUdeviceptr *at, size_t bytes, CUstream stream)
{
    return alloc(at, bytes, NULL, stream, false);
}

static CUresult hook_cuMemAllocAsync_ptsz(CUdeviceptr *at, size_t bytes, CUstream stream)
{
    return alloc(at, bytes, NULL, stream, true);
}

static CUresult hook_cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    return alloc(at, bytes, pool, stream, false);
}

static CUresult hook_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *at, size_t bytes, CUmemoryPool pool,
                                                  CUstream stream)
{
    return alloc(at, bytes, pool, stream, true);
}

static CUresult release(CUdeviceptr at, CUstream stream, bool is_per_thread)
{
    struct tl_eff_stream *s;
    CUresult r = tl_eff_stream(stream, is_per_thread, &s);
    if (r != CUDA_SUCCESS)
        return r;
    return tl_eff_defer(s, &(struct tl_eff_call){free_function(), 2, {at, 0}}, 1, NULL);
}

static CUresult hook_cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
    return release(at, stream, false);
}

static CUresult hook_cuMemFreeAsync_ptsz(CUdeviceptr at, CUstream stream)
{
    return release(at, stream, true);
}

static CUresult hook_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult r = tl_eff_invoke(&(struct tl_eff_call){
        tl_eff.shim->real("cuDeviceSetMemPool"), 2, {(uintptr_t)device, (uintptr_t)pool}});
    tl_eff_lock();
    generation++;
    tl_eff_unlock();
    return r;
}

#define ROW(name) {#name, (void *)hook_##name},
const struct tl_hook tl_eff_alloc_hooks[] = {
    ROW(cuMemAllocAsync) ROW(cuMemAllocAsync_ptsz) ROW(cuMemAllocFromPoolAsync)
        ROW(cuMemAllocFromPoolAsync_ptsz) ROW(cuMemFreeAsync) ROW(cuMemFreeAsync_ptsz)
            ROW(cuDeviceSetMemPool){NULL, NULL},
};

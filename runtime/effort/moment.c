/* Moments in which nothing of this job is on the device; see the header.
 *
 *     begin: hold ─► calls that passed the queues return ─► every stream says that it is done ─► found
 *                                     patience is over ─► let go, later again, with more patience
 *
 * A try that fails has held the job up for its patience, so tries are far between.  What is on the
 * device and known to take long costs nothing to wait for: the job would have waited, too. */
#include "runtime/effort/moment.h"

#include <stdatomic.h>
#include <time.h>

#include "runtime/effort/executor.h"
#include "runtime/effort/flight.h"
#include "runtime/effort/queue.h"
#include "runtime/effort/real.h"
#include "runtime/effort/state.h"

enum {
    LEAST_PATIENCE_NS = 20000000,
    MOST_PATIENCE_NS = 1000000000,
    RARENESS = 32, /* of a job that never is idle, one part in so many is lost */
    LOOK_NS = 50000,
    MAX_STREAMS = 512,
};

static uint32_t n_holds TL_EFF_GUARDED;
/* Grows under the lock only, so that nobody begins once it is held; shrinks anywhere. */
static _Atomic uint32_t n_direct;

bool tl_eff_is_holding(void)
{
    return n_holds > 0;
}

void tl_eff_direct_begin(void)
{
    tl_eff_assert_locked();
    atomic_fetch_add_explicit(&n_direct, 1, memory_order_relaxed);
}

void tl_eff_direct_end(void)
{
    /* release: what was given to the driver is there for whoever sees the smaller number */
    atomic_fetch_sub_explicit(&n_direct, 1, memory_order_release);
}

void tl_eff_moment_start(void)
{
    tl_eff_lock();
    n_holds = 0;
    atomic_store(&n_direct, 0);
    tl_eff_unlock();
}

uint32_t tl_eff_moment_misses(const struct tl_eff_context *c)
{
    return c->n_moments_missed;
}

/* The context's streams, and those that stand for them on a part of the SMs.  Returns how many; 0
 * if one is captured, or there are too many. */
TL_EFF_LOCKED static uint32_t streams_of(const struct tl_eff_context *c, CUstream list[MAX_STREAMS])
{
    uint32_t n = 0;
    for (const struct tl_eff_stream *s = c->streams; s != NULL; s = s->next) {
        if (s->is_capturing || s->n_unmarkable > 0 || n + 2 > MAX_STREAMS)
            return 0;
        list[n++] = s->handle;
        if (s->capped != NULL)
            list[n++] = s->capped;
    }
    return n;
}

/* Nothing comes any more: asks each stream whether it is done. */
TL_EFF_UNLOCKED static bool is_idle(struct tl_eff_context *c, uint32_t own)
{
    CUstream list[MAX_STREAMS];
    if (atomic_load_explicit(&n_direct, memory_order_acquire) > own)
        return false;
    tl_eff_lock();
    uint32_t n = streams_of(c, list);
    tl_eff_unlock();
    bool is = n > 0;
    for (uint32_t i = 0; i < n && is; i++)
        is = tl_eff_real.cuStreamQuery(list[i]) == CUDA_SUCCESS;
    return is;
}

/* How long what is on the device may take to end: twice as long as predicted, since somebody above
 * may be there as well. */
TL_EFF_LOCKED static uint64_t expected_ns(void)
{
    uint64_t ns = tl_eff_flight.ns;
    return ns < MOST_PATIENCE_NS / 2 ? 2 * ns : MOST_PATIENCE_NS;
}

bool tl_eff_moment_begin(struct tl_eff_context *c, bool is_executor)
{
    CUstream unused[MAX_STREAMS];
    uint64_t begin = tl_eff_now();
    tl_eff_lock();
    bool is_worth_it = begin >= c->next_moment_ns && streams_of(c, unused) > 0;
    uint32_t misses = c->n_moments_missed;
    uint64_t expected = expected_ns();
    n_holds += is_worth_it;
    tl_eff_unlock();
    if (!is_worth_it)
        return false;
    uint64_t patience = (uint64_t)LEAST_PATIENCE_NS << (misses < 7 ? misses : 7);
    if (patience > MOST_PATIENCE_NS)
        patience = MOST_PATIENCE_NS;
    bool found = is_idle(c, is_executor);
    while (!found && tl_eff_now() - begin < expected + patience && !atomic_load(&tl_eff.is_over)) {
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
        found = is_idle(c, is_executor);
    }
    tl_eff_lock();
    c->n_moments_missed = found ? 0 : misses + 1;
    c->next_moment_ns = found ? 0 : tl_eff_now() + RARENESS * patience;
    tl_eff_unlock();
    if (!found) {
        tl_eff_log(3, "the context was not idle within %llu ms",
                   (unsigned long long)(expected + patience) / 1000000);
        tl_eff_moment_end();
    }
    return found;
}

void tl_eff_moment_end(void)
{
    tl_eff_lock();
    n_holds--;
    tl_eff_unlock();
    tl_eff_ring();
}

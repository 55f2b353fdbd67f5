/* The one lock of this part, and who has to hold it.
 *
 * It is never held while the real driver is called, so a call that blocks there blocks nobody else.
 * What it guards is spread over its owners (queue.h, stream.h, flight.h, permit.h and single
 * files), and says so:
 *
 *     TL_EFF_GUARDED   a variable that is read and written under the lock only
 *     TL_EFF_LOCKED    a function whose caller holds the lock
 *     TL_EFF_UNLOCKED  one whose caller must not: it takes the lock, or calls the real driver
 *
 * `make lint-locks` has clang check every path against these (tally/lock.h).  Builds with a
 * sanitizer, and those with -DTL_EFF_CHECKED, also note who has the lock, and
 * tl_eff_assert_locked() aborts if it is somebody else; in other builds it is nothing. */
#ifndef TALLY_EFFORT_LOCK_H
#define TALLY_EFFORT_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tally/check.h"
#include "tally/lock.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TL_EFF_CHECKED 1
#endif

#define TL_EFF_GUARDED TL_GUARDED_BY(tl_eff_mutex)
#define TL_EFF_LOCKED TL_REQUIRES(tl_eff_mutex)
#define TL_EFF_UNLOCKED TL_EXCLUDES(tl_eff_mutex)

extern struct tl_mutex tl_eff_mutex;
#ifdef TL_EFF_CHECKED
extern _Atomic uintptr_t tl_eff_owner; /* pthread_self of who has it, 0: nobody */
#endif

static inline void tl_eff_note_owner(bool has_it)
{
#ifdef TL_EFF_CHECKED
    atomic_store_explicit(&tl_eff_owner, has_it ? (uintptr_t)pthread_self() : 0,
                          memory_order_relaxed);
#else
    (void)has_it;
#endif
}

/* The calling thread holds the lock. */
static inline void tl_eff_assert_locked(void)
{
#ifdef TL_EFF_CHECKED
    TL_CHECK(atomic_load_explicit(&tl_eff_owner, memory_order_relaxed) ==
             (uintptr_t)pthread_self());
#endif
}

/* The calling thread does not. */
static inline void tl_eff_assert_unlocked(void)
{
#ifdef TL_EFF_CHECKED
    TL_CHECK(atomic_load_explicit(&tl_eff_owner, memory_order_relaxed) !=
             (uintptr_t)pthread_self());
#endif
}

TL_ACQUIRE(tl_eff_mutex)
TL_UNCHECKED static inline void tl_eff_lock(void)
{
    tl_eff_assert_unlocked();
    pthread_mutex_lock(&tl_eff_mutex.m);
    tl_eff_note_owner(true);
}

/* False if somebody else has it. */
TL_LOCK_CHECK(try_acquire_capability(true, tl_eff_mutex))
TL_UNCHECKED static inline bool tl_eff_trylock(void)
{
    if (pthread_mutex_trylock(&tl_eff_mutex.m) != 0)
        return false;
    tl_eff_note_owner(true);
    return true;
}

TL_RELEASE(tl_eff_mutex)
TL_UNCHECKED static inline void tl_eff_unlock(void)
{
    tl_eff_assert_locked();
    tl_eff_note_owner(false);
    pthread_mutex_unlock(&tl_eff_mutex.m);
}

/* Gives the lock up until the condition is signalled. */
TL_EFF_LOCKED static inline void tl_eff_wait_for(pthread_cond_t *cond)
{
    tl_eff_assert_locked();
    tl_eff_note_owner(false);
    tl_mutex_wait(&tl_eff_mutex, cond);
    tl_eff_note_owner(true);
}

/* At the start, and again in the child of a fork, where nobody has it. */
void tl_eff_lock_start(void);

#endif

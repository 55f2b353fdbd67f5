/* Mutexes whose contracts are checked.
 *
 * A function that needs a lock says so behind its parameters, and so does one that must not have
 * it; `make lint-locks` lets clang (-Wthread-safety) hold every call and every access against that.
 * For other compilers the words mean nothing, and a mutex costs what pthread's costs.
 *
 *     static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
 *     static int n TL_GUARDED_BY(lock);
 *     static void count(void) TL_REQUIRES(lock);
 *
 * clang follows locks that have a name where the function is declared: globals, and members of
 * parameters (d->lock).  A member that is guarded by a lock of its own struct has a comment
 * instead: C has no way to say that yet. */
#ifndef TALLY_LOCK_H
#define TALLY_LOCK_H

#include <pthread.h>

#if defined(__clang__)
#define TL_LOCK_CHECK(x) __attribute__((x))
#else
#define TL_LOCK_CHECK(x)
#endif

/* Of variables and members: to be read and written with the lock only. */
#define TL_GUARDED_BY(...) TL_LOCK_CHECK(guarded_by(__VA_ARGS__))
/* Of functions: to be called with the lock, which is still held at the end; without it; and those
 * that take it or give it back. */
#define TL_REQUIRES(...) TL_LOCK_CHECK(requires_capability(__VA_ARGS__))
#define TL_EXCLUDES(...) TL_LOCK_CHECK(locks_excluded(__VA_ARGS__))
#define TL_ACQUIRE(...) TL_LOCK_CHECK(acquire_capability(__VA_ARGS__))
#define TL_RELEASE(...) TL_LOCK_CHECK(release_capability(__VA_ARGS__))
/* Of functions that clang cannot follow; a comment there says why they are right. */
#define TL_UNCHECKED TL_LOCK_CHECK(no_thread_safety_analysis)

struct TL_LOCK_CHECK(capability("mutex")) tl_mutex {
    pthread_mutex_t m;
};
/* clang-format off */
#define TL_MUTEX_INITIALIZER {PTHREAD_MUTEX_INITIALIZER}
#define TL_RECURSIVE_MUTEX_INITIALIZER {PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP}
/* clang-format on */

/* pthread's functions, which do not say what they do to the lock. */
static inline void tl_mutex_init(struct tl_mutex *m)
{
    pthread_mutex_init(&m->m, NULL);
}

static inline void tl_mutex_destroy(struct tl_mutex *m)
{
    pthread_mutex_destroy(&m->m);
}

TL_UNCHECKED static inline void tl_mutex_lock(struct tl_mutex *m) TL_ACQUIRE(*m)
{
    pthread_mutex_lock(&m->m);
}

TL_UNCHECKED static inline void tl_mutex_unlock(struct tl_mutex *m) TL_RELEASE(*m)
{
    pthread_mutex_unlock(&m->m);
}

/* The lock is given up while this waits and is held again when it returns. */
TL_UNCHECKED static inline void tl_mutex_wait(struct tl_mutex *m, pthread_cond_t *c) TL_REQUIRES(*m)
{
    pthread_cond_wait(c, &m->m);
}

/* The same until a time of the condition's clock at most.  0 or ETIMEDOUT. */
TL_UNCHECKED static inline int tl_mutex_wait_until(struct tl_mutex *m, pthread_cond_t *c,
                                                   const struct timespec *until) TL_REQUIRES(*m)
{
    return pthread_cond_timedwait(c, &m->m, until);
}

#endif

/* Threads of ours: starting them, and locks that they wait for; see the header. */
#include "tally/thread.h"

#include "tally/clock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>

int tl_thread_start(pthread_t *out, const struct tl_thread_kind *kind, void *(*run)(void *),
                    void *argument)
{
    static const struct tl_thread_kind plain;
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t blocked, before;
    if (kind == NULL)
        kind = &plain;
    int rc = pthread_attr_init(&attributes);
    if (rc != 0)
        return -rc;
    if (kind->stack_bytes != 0)
        (void)pthread_attr_setstacksize(&attributes, kind->stack_bytes);
    /* A thread begins with the mask of the one that makes it: set later, it would leave a gap. */
    sigfillset(&blocked);
    if (kind->takes_faults)
        sigdelset(&blocked, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    rc = pthread_create(&thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (rc != 0)
        return -rc;
    /* Named while it cannot be gone yet, whatever it does; a name that is too long is none. */
    if (kind->name != NULL)
        (void)pthread_setname_np(thread, kind->name);
    if (out != NULL)
        *out = thread;
    else
        pthread_detach(thread);
    return 0;
}

#if defined(__SANITIZE_THREAD__)
/* GCC 12's ThreadSanitizer does not know pthread_mutex_clocklock: it would see an unlock without a
 * lock, and what is done in between as done without it. */
int tl_thread_lock_within(pthread_mutex_t *m, uint64_t ns)
{
    uint64_t until = tl_clock_ns() + ns;
    int rc;
    while ((rc = pthread_mutex_trylock(m)) == EBUSY && tl_clock_ns() < until)
        sched_yield();
    return rc == EBUSY ? ETIMEDOUT : rc;
}
#else
int tl_thread_lock_within(pthread_mutex_t *m, uint64_t ns)
{
    struct timespec until = tl_clock_timespec(tl_clock_ns() + ns);
    return pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until);
}
#endif

/* Threads of ours inside processes of other people.  libc only. */
#ifndef TALLY_THREAD_H
#define TALLY_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a thread differs from others; all zeroes is a good choice. */
struct tl_thread_kind {
    const char *name;   /* at most 15 letters, for people who look at /proc; NULL: its maker's */
    size_t stack_bytes; /* what it shall have if it can be had; 0: what the system gives */
    /* It touches memory whose page faults are served by handlers of SIGSEGV: it takes that signal,
     * where it would otherwise die of its own faults unheard. */
    bool takes_faults;
};

/* Starts a thread that takes no signals: those of a process are for its own threads, whose handlers
 * may expect to run there.  The calling thread's mask is as before when this returns.
 *
 * With `out` it is to be joined, with NULL it is detached.  0, -EAGAIN, -ENOMEM. */
int tl_thread_start(pthread_t *out, const struct tl_thread_kind *kind, void *(*run)(void *),
                    void *argument);

/* The calling thread, one of ours, does little but should do it soon after it is woken: it asks for
 * short turns, which kernels since 6.12 grant earlier.  It gets no more of the processor than
 * others.  Where that is unknown nothing changes. */
void tl_thread_be_prompt(void);

/* Locks a mutex, waiting for `ns` at the most: whoever holds it may be somebody who never gives it
 * back.  0, ETIMEDOUT, or what else pthread_mutex_clocklock says (EOWNERDEAD comes with it). */
int tl_thread_lock_within(pthread_mutex_t *m, uint64_t ns);

#endif

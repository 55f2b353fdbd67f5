/* Starting threads of ours; see the header. */
#include "tally/thread.h"

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

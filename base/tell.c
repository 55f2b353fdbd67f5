/* Lines on standard error that neither end nor hold up the program; see the header. */
#include "tally/tell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* Whether there was one when the program, or what has this linked in, was loaded. */
static bool has_none;
/* The last line was not taken: those who come then do not wait. */
static atomic_bool is_stuck;

static void __attribute__((constructor)) look(void)
{
    has_none = fcntl(STDERR_FILENO, F_GETFD) < 0;
}

/* A pipe that says so takes a line of ours as a whole. */
static bool takes_a_line(void)
{
    enum { PATIENCE_MS = 100 };
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    bool is_ready = poll(&p, 1, atomic_load(&is_stuck) ? 0 : PATIENCE_MS) > 0 &&
                    (p.revents & POLLOUT) != 0;
    atomic_store(&is_stuck, !is_ready);
    return is_ready;
}

void tl_tell(const char *text, size_t n)
{
    sigset_t ours, before, pending;
    int saved = errno;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    if (!has_none && takes_a_line() && sigpending(&pending) == 0 &&
        pthread_sigmask(SIG_BLOCK, &ours, &before) == 0) {
        ssize_t written = write(STDERR_FILENO, text, n);
        int number = written >= 0 ? 0 : errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;
        if (number != 0 && !sigismember(&pending, number)) {
            sigset_t one;
            sigemptyset(&one);
            sigaddset(&one, number);
            (void)sigtimedwait(&one, NULL, &(struct timespec){0});
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    errno = saved;
}

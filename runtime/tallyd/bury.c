/* Closes connections that were refused at the door, of which there may be any number.
 *
 * Such a socket may hold unread messages with descriptors, and closing it would let go of those:
 * see porter.c.  A porter for each would be a thread for each, so they are buried together: a child
 * keeps them open while they are closed here, and then ends.  The kernel does not linger for a
 * process that ends; and if it waits for something else, it is the child that waits. */
#include "runtime/tallyd/tallyd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void daemon_bury_later(struct daemon *d, int socket)
{
    if (d->n_refused == DAEMON_REFUSED)
        daemon_bury(d);
    if (d->n_refused == DAEMON_REFUSED) /* no child can be had: then at our own risk */
        close(d->refused[--d->n_refused]);
    d->refused[d->n_refused++] = socket;
}

/* Ends when all other ends of the pipe are closed. */
static void hold(const int pipe[2])
{
    char byte;
    close(pipe[1]);
    while (read(pipe[0], &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

void daemon_bury(struct daemon *d)
{
    int pipe[2];
    if (d->n_refused == 0 || pipe2(pipe, O_CLOEXEC) < 0)
        return;
    pid_t child = fork();
    if (child == 0)
        hold(pipe);
    while (child > 0 && d->n_refused > 0)
        close(d->refused[--d->n_refused]);
    close(pipe[0]);
    close(pipe[1]);
}

/* Closes connections that were refused at the door, of which there may be any number.
 *
 * Such a socket may hold unread messages with descriptors, and closing it would let go of those:
 * see porter.c.  A porter for each would be a thread for each, so they are buried together, by a
 * process that has nothing else open: it is handed the sockets, and for each lot it makes a child
 * that keeps them open while it closes its own, and then ends.  The kernel does not linger for a
 * process that ends; and if it waits for something else, it is that child who waits.  A child of
 * tallyd itself would have all that tallyd has: whoever kept it from ending would keep tallyd's
 * lock, and everybody's connections. */
#include "runtime/tallyd/tallyd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A message has one byte, which says nothing, and a lot. */
struct lot {
    char byte;
    struct iovec piece;
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(DAEMON_REFUSED * sizeof(int))];
    } control;
    struct msghdr m;
};

static void lay_out(struct lot *lot, uint32_t n)
{
    memset(lot, 0, sizeof *lot);
    lot->piece = (struct iovec){.iov_base = &lot->byte, .iov_len = 1};
    lot->control.header = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    lot->m = (struct msghdr){.msg_iov = &lot->piece,
                             .msg_iovlen = 1,
                             .msg_control = &lot->control,
                             .msg_controllen = CMSG_SPACE(n * sizeof(int))};
}

/* --- the process ------------------------------------------------------------------------------ */

/* It has two descriptors, and what it is handed in between. */
enum { DOOR, FIRST };

/* Ends when all other ends of the pipe are closed, and all that it was handed with it. */
static _Noreturn void hold(const int pipe[2])
{
    char byte;
    close(DOOR);
    close(pipe[1]);
    while (read(pipe[0], &byte, 1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* Without a child it closes them itself, and may have to wait; tallyd does not. */
static void bury_lot(void)
{
    int pipe[2];
    if (pipe2(pipe, 0) == 0 && fork() == 0)
        hold(pipe);
    tl_close_from(FIRST);
}

static _Noreturn void serve(void)
{
    struct lot lot;
    for (;;) {
        lay_out(&lot, DAEMON_REFUSED);
        ssize_t n = recvmsg(DOOR, &lot.m, 0);
        if (n > 0)
            bury_lot();
        else if (n == 0 || errno != EINTR)
            _exit(0); /* tallyd has ended */
    }
}

/* The begin of the process: it lets go of all but its end.  By its name others know that it has. */
static _Noreturn void begin(int end)
{
    static const int told_to_all[] = {SIGHUP, SIGINT, SIGTERM}; /* it ends when tallyd has */
    for (size_t i = 0; i < sizeof told_to_all / sizeof told_to_all[0]; i++)
        (void)signal(told_to_all[i], SIG_IGN);
    (void)signal(SIGCHLD, SIG_IGN); /* nobody asks how those who hold ended */
    if (dup2(end, DOOR) < 0)
        _exit(1);
    tl_close_from(FIRST);
    (void)prctl(PR_SET_NAME, "tallyd-bury");
    serve();
}

int daemon_bury_start(struct daemon *d)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    pid_t child = fork();
    if (child == 0)
        begin(ends[1]);
    int rc = child < 0 ? -errno : 0;
    close(ends[1]);
    if (rc < 0)
        close(ends[0]);
    else
        d->grave = ends[0];
    return rc;
}

/* --- tallyd ----------------------------------------------------------------------------------- */

void daemon_bury_later(struct daemon *d, int socket)
{
    if (d->n_refused == DAEMON_REFUSED)
        daemon_bury(d);
    if (d->n_refused == DAEMON_REFUSED) /* nobody takes them: then at our own risk */
        close(d->refused[--d->n_refused]);
    d->refused[d->n_refused++] = socket;
}

static int hand_over(struct daemon *d)
{
    struct lot lot;
    lay_out(&lot, d->n_refused);
    memcpy(CMSG_DATA(&lot.control.header), d->refused, d->n_refused * sizeof(int));
    return sendmsg(d->grave, &lot.m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void daemon_bury(struct daemon *d)
{
    if (d->n_refused == 0)
        return;
    int rc = hand_over(d);
    if (rc == -EPIPE || rc == -ECONNRESET) { /* somebody has killed it */
        close(d->grave);
        d->grave = -1;
        rc = daemon_bury_start(d);
        if (rc == 0)
            rc = hand_over(d);
    }
    while (rc == 0 && d->n_refused > 0)
        close(d->refused[--d->n_refused]);
}

/* Porters: what peers send is received, looked at and closed by a thread of each peer's own.
 *
 * A message may carry descriptors of anything, and letting go of one can take as long as its sender
 * likes: a TCP socket lingers, a file of a FUSE asks its server.  Receiving and closing therefore
 * happen where that holds up nobody but the sender.  What reaches the loop is a message of the
 * right shape, with pages only (sealed shared memory, whose end nobody can delay).
 *
 * A porter holds one message until the loop has taken it: what comes faster waits in the socket,
 * and finally with its sender.  A peer's place is free again when its porter has closed the socket;
 * who delays that uses up his own places. */
#include "runtime/tallyd/tallyd.h"
#include "tally/thread.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a porter has to say; the loop is woken for each. */
enum { NOTHING, A_MESSAGE, NOTHING_MORE, CLOSED };

/* Pages are kept, everything else is let go of here. */
static void look_at_pages(struct tl_wire_packet *packet)
{
    for (uint32_t i = 0; i < packet->n_fds; i++)
        if (tl_share_check(packet->fds[i]) < 0) {
            close(packet->fds[i]);
            packet->fds[i] = -1;
        }
}

/* Waits for a message and brings it; false if there will be none. */
static bool bring(struct daemon_porter *o, int socket)
{
    struct pollfd wait = {.fd = socket, .events = POLLIN};
    do {
        while (poll(&wait, 1, -1) < 0 && errno == EINTR)
            ;
        o->code = tl_wire_receive(socket, &o->packet, &o->err);
    } while (o->code == -EAGAIN && !atomic_load(&o->is_dismissed));
    if (o->code != 1)
        return false;
    look_at_pages(&o->packet);
    return true;
}

/* Tells the loop, and waits until it has heard. */
static void tell(struct daemon_porter *o, int what)
{
    atomic_store(&o->has, what);
    (void)eventfd_write(o->bell, 1);
    while (sem_wait(&o->heard) < 0 && errno == EINTR)
        ;
}

/* The other end would take the closing of a socket with something unread in it for a failure, and
 * miss what it was told last.  Nothing can be added: it is shut. */
static void drain(int socket)
{
    char byte;
    while (recv(socket, &byte, 1, MSG_DONTWAIT) > 0)
        ;
}

static void *carry(void *argument)
{
    struct daemon_peer *p = argument;
    struct daemon_porter *o = &p->porter;
    int bell = o->bell;
    while (!atomic_load(&o->is_dismissed) && bring(o, p->socket)) {
        tell(o, A_MESSAGE);
        tl_wire_close(&o->packet); /* what was not taken */
    }
    while (!atomic_load(&o->is_dismissed))
        tell(o, NOTHING_MORE);
    drain(p->socket);
    close(p->socket);
    atomic_store(&o->has, CLOSED); /* from here on the peer may be gone */
    (void)eventfd_write(bell, 1);
    return NULL;
}

int daemon_porter_start(struct daemon *d, struct daemon_peer *p)
{
    static const struct tl_thread_kind kind = {.name = "tallyd-porter", .stack_bytes = 64 << 10};
    p->porter.bell = d->bell;
    if (sem_init(&p->porter.heard, 0, 0) < 0)
        return -errno;
    int rc = tl_thread_start(NULL, &kind, carry, p);
    if (rc < 0)
        sem_destroy(&p->porter.heard);
    return rc;
}

int daemon_porter_has(struct daemon_peer *p, struct tl_wire_packet **packet, struct tl_error *err)
{
    struct daemon_porter *o = &p->porter;
    int has = atomic_load(&o->has);
    *packet = &o->packet;
    if (has == A_MESSAGE)
        return 1;
    if (has != NOTHING_MORE)
        return -EAGAIN;
    *err = o->err;
    return o->code;
}

void daemon_porter_go_on(struct daemon_peer *p)
{
    atomic_store(&p->porter.has, NOTHING);
    sem_post(&p->porter.heard);
}

void daemon_porter_dismiss(struct daemon_peer *p)
{
    atomic_store(&p->porter.is_dismissed, true);
    (void)shutdown(p->socket, SHUT_RDWR); /* it may wait for a message */
    sem_post(&p->porter.heard);           /* or for us */
}

bool daemon_porter_is_done(struct daemon_peer *p)
{
    if (atomic_load(&p->porter.has) != CLOSED)
        return false;
    sem_destroy(&p->porter.heard);
    return true;
}

/* Who keeps copies of its word, and where.  A client makes a page for each client whose word it
 * has, and offers it here; that one gets all the pages that it is to write to.  It keeps at most
 * TL_SHARE_COPIES: those of the first in the order of clients.  Who is beyond that looks at the
 * word itself. */
#include "runtime/tallyd/tallyd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static void forget(struct daemon_copy *c)
{
    if (c->fd >= 0)
        close(c->fd);
    *c = (struct daemon_copy){.fd = -1};
}

void daemon_copies_finish(struct daemon_peer *p)
{
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        forget(&p->copies[i]);
}

void daemon_copies_follow(struct daemon_peer *p, const uint32_t *above, uint32_t n)
{
    struct daemon_copy old[TL_SHARE_WORDS];
    memcpy(old, p->copies, sizeof old);
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
        p->copies[i] = (struct daemon_copy){.fd = -1};
        for (uint32_t j = 0; i < n && j < p->n_sent; j++)
            if (p->sent[j] == above[i]) {
                p->copies[i] = old[j];
                old[j].fd = -1;
            }
    }
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        forget(&old[i]);
}

void daemon_copy_offered(struct daemon *d, struct daemon_peer *p, struct tl_wire_packet *packet)
{
    uint32_t i = 0;
    while (p->id != 0 && i < p->n_sent && p->sent[i] != packet->m.copy.above)
        i++;
    /* who asks for one that is not above it any more has not heard of that yet */
    if (p->id == 0 || i == p->n_sent || tl_share_check(packet->fds[0]) < 0)
        return;
    forget(&p->copies[i]);
    p->copies[i] = (struct daemon_copy){.fd = packet->fds[0], .serial = ++d->last_copy};
    packet->fds[0] = -1;
    daemon_copies_update(d);
}

/* The copies that `p` is to keep. */
static uint32_t collect(const struct daemon *d, const struct daemon_peer *p, int *fds,
                        uint64_t *serials)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_clients; i++) {
        const struct daemon_peer *below = d->clients[i];
        for (uint32_t j = 0; j < below->n_sent && n < TL_SHARE_COPIES; j++) {
            if (below->sent[j] != p->id || below->copies[j].fd < 0)
                continue;
            fds[n] = below->copies[j].fd;
            serials[n++] = below->copies[j].serial;
        }
    }
    return n;
}

/* If it does not read what it is sent, they follow when it does. */
void daemon_copies_send(struct daemon *d, struct daemon_peer *p)
{
    int fds[TL_SHARE_COPIES];
    struct tl_wire_below below = {0};
    _Static_assert((int)TL_SHARE_COPIES <= (int)TL_WIRE_FDS, "they fit into a message");
    assert(p->id != 0);
    below.n = p->n_kept = collect(d, p, fds, p->kept);
    int rc = tl_wire_send(p->socket, TL_WIRE_BELOW, &below, sizeof below, fds, below.n);
    if (rc < 0 && rc != -EAGAIN) {
        daemon_log(LOG_WARNINGS, "process %d (%s) cannot be told who is below it: %s",
                   (int)p->who.pid, p->job, strerror(-rc));
        return; /* if it is gone, that is heard of next */
    }
    if (p->owes_copies != (rc == -EAGAIN)) {
        p->owes_copies = rc == -EAGAIN;
        daemon_watch_writable(d, p, p->owes_words || p->owes_copies);
    }
}

void daemon_copies_update(struct daemon *d)
{
    int fds[TL_SHARE_COPIES];
    uint64_t serials[TL_SHARE_COPIES];
    for (uint32_t i = 0; i < d->n_clients; i++) {
        struct daemon_peer *p = d->clients[i];
        uint32_t n = collect(d, p, fds, serials);
        if (n != p->n_kept || memcmp(serials, p->kept, n * sizeof serials[0]) != 0)
            daemon_copies_send(d, p);
    }
}

/* A connection: what nghttp2 wants to send goes out, what comes in goes to nghttp2. */
#include "runtime/tally-device-plugin/grpc.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct grpc_connection *grpc_connection_create(int fd)
{
    struct grpc_connection *c = calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return NULL;
    }
    c->fd = fd;
    c->status = GRPC_UNAVAILABLE;
    return c;
}

void grpc_close(struct grpc_connection *c)
{
    if (c == NULL)
        return;
    nghttp2_session_del(c->session);
    grpc_calls_free(c);
    close(c->fd);
    tl_buf_finish(&c->message);
    free(c);
}

int grpc_descriptor(const struct grpc_connection *c)
{
    return c->fd;
}

short grpc_events(const struct grpc_connection *c)
{
    bool has_more = c->n_pending > 0 || nghttp2_session_want_write(c->session) != 0;
    return (short)(POLLIN | (has_more ? POLLOUT : 0));
}

/* 1 when all is sent, 0 when the other side has to read first, -1 at the end. */
static int send_all(struct grpc_connection *c)
{
    for (;;) {
        while (c->n_pending > 0) {
            ssize_t n = send(c->fd, c->pending, c->n_pending, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR)
                continue;
            if (n < 0)
                return errno == EAGAIN ? 0 : -1;
            c->pending += n;
            c->n_pending -= (size_t)n;
        }
        ssize_t more = nghttp2_session_mem_send(c->session, &c->pending);
        if (more <= 0)
            return more == 0 ? 1 : -1;
        c->n_pending = (size_t)more;
    }
}

/* 1 when all was received that was there, -1 at the end. */
static int receive_all(struct grpc_connection *c)
{
    uint8_t bytes[16384];
    /* Not for ever: others are waiting as well. */
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 1 : -1;
        if (n == 0 || nghttp2_session_mem_recv(c->session, bytes, (size_t)n) < 0)
            return -1;
    }
    return 1;
}

bool grpc_run(struct grpc_connection *c)
{
    bool is_open = receive_all(c) > 0;
    /* What was answered to the last bytes of somebody who is gone may still arrive. */
    if (send_all(c) < 0)
        is_open = false;
    return is_open && !c->is_over &&
           (nghttp2_session_want_read(c->session) != 0 ||
            nghttp2_session_want_write(c->session) != 0 || c->n_pending > 0);
}

nghttp2_nv grpc_pair(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

void grpc_add_prefix(struct tl_buf *b, size_t n)
{
    const char prefix[GRPC_PREFIX] = {0, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
    tl_buf_add(b, prefix, sizeof prefix);
}

size_t grpc_take(const struct tl_buf *b, size_t *sent, uint8_t *out, size_t room)
{
    size_t n = b->n - *sent < room ? b->n - *sent : room;
    if (n > 0)
        memcpy(out, b->p + *sent, n);
    *sent += n;
    return n;
}

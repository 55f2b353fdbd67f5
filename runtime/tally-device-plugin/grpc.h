/* gRPC as far as kubelet and a device plugin use it: HTTP/2 by nghttp2 on a UNIX socket, messages
 * that are not compressed, one in each call.  No threads: whoever has connections polls them.
 *
 *     runtime/tally-device-plugin/grpc.c         a connection: bytes in and out, names and values
 *     runtime/tally-device-plugin/grpc_server.c  calls that come in
 *     runtime/tally-device-plugin/grpc_client.c  a call that goes out */
#ifndef TALLY_RUNTIME_TALLY_DEVICE_PLUGIN_GRPC_H
#define TALLY_RUNTIME_TALLY_DEVICE_PLUGIN_GRPC_H

#include <errno.h>
#include <nghttp2/nghttp2.h>

#include "tally/base.h"

enum {
    GRPC_MESSAGE_BYTES = 512 * 1024, /* at most, in either direction */
    GRPC_CALLS = 16,                 /* at once, of one connection */
    GRPC_PREFIX = 5,                 /* bytes in front of a message: not compressed, length */
};

/* Numbers of gRPC. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
};

/* Why there is no answer: a text and the status. */
#define grpc_refuse(err, status, ...)                                                              \
    ((void)tl_error_set((err), -EPROTO, __VA_ARGS__), (enum grpc_status)(status))

/* Adds the answer to `reply`, or says why there is none. */
typedef enum grpc_status grpc_answer_fn(void *context, const uint8_t *request, size_t n,
                                        struct tl_buf *reply, struct tl_error *err);

struct grpc_method {
    const char *path; /* "/PACKAGE.SERVICE/METHOD" */
    grpc_answer_fn *answer;
    /* It is asked again after grpc_changed, and its answers follow each other until the other side
     * has had enough. */
    bool is_watch;
};

struct grpc_connection;

/* Serves the methods, a list that ends with one without a path, to whom `fd` leads to; takes `fd`,
 * also on failure.  NULL if out of memory. */
struct grpc_connection *grpc_serve(int fd, const struct grpc_method *methods, void *context);
/* What watches were told is no longer so. */
void grpc_changed(struct grpc_connection *c);
/* Whether somebody watches. */
bool grpc_is_watched(const struct grpc_connection *c);

/* Calls `path` with a message; takes `fd`, also on failure.  NULL if out of memory.  The result is
 * there when grpc_run returns false. */
struct grpc_connection *grpc_call(int fd, const char *path, const struct tl_buf *message);
/* How that call ended; with an error `text` is what the other side said, for people. */
enum grpc_status grpc_result(const struct grpc_connection *c, const char **text);

int grpc_descriptor(const struct grpc_connection *c);
short grpc_events(const struct grpc_connection *c); /* to poll for */
/* Does what can be done without waiting.  False when the connection is of no more use. */
bool grpc_run(struct grpc_connection *c);
void grpc_close(struct grpc_connection *c); /* NULL is fine */

/* --- between the three files ------------------------------------------------------------------ */

struct grpc_call;
struct grpc_connection {
    int fd;
    nghttp2_session *session;
    const uint8_t *pending; /* of nghttp2, not sent yet */
    size_t n_pending;
    /* A server's. */
    const struct grpc_method *methods;
    void *context;
    struct grpc_call *calls;
    /* A client's. */
    struct tl_buf message;
    size_t message_sent;
    bool is_over;
    enum grpc_status status;
    char text[256];
};

/* The connection without its session; takes `fd`.  NULL if out of memory. */
struct grpc_connection *grpc_connection_create(int fd);
/* A name and a value, which nghttp2 copies. */
nghttp2_nv grpc_pair(const char *name, const char *value);
/* Puts what has to stand in front of `n` bytes of a message. */
void grpc_add_prefix(struct tl_buf *b, size_t n);
/* A part of `b` from `*sent` on, for nghttp2's buffer. */
size_t grpc_take(const struct tl_buf *b, size_t *sent, uint8_t *out, size_t room);
void grpc_calls_free(struct grpc_connection *c);

#endif

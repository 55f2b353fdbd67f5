/* A call that goes out: a message, and how it was taken.  What is answered is not kept: kubelet
 * answers with an empty message. */
#include "runtime/tally-device-plugin/grpc.h"

#include <stdlib.h>
#include <string.h>

static ssize_t read_message(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room,
                            uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)session, (void)stream, (void)user;
    struct grpc_connection *c = source->ptr;
    size_t n = grpc_take(&c->message, &c->message_sent, out, room);
    if (c->message_sent == c->message.n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

/* A text as gRPC sends it, with %XX for some bytes; cut off if it is too long. */
static void read_text(char *text, size_t size, const uint8_t *from, size_t n)
{
    size_t length = 0;
    for (size_t i = 0; i < n && length + 1 < size; i++) {
        char digits[3] = {0}, *end = NULL;
        if (from[i] == '%' && i + 2 < n)
            memcpy(digits, from + i + 1, 2);
        unsigned long byte = strtoul(digits, &end, 16);
        bool is_code = digits[0] != 0 && end == digits + 2 && byte >= ' ';
        text[length++] = is_code ? (char)byte : (char)from[i];
        i += is_code ? 2 : 0;
    }
    text[length] = 0;
}

/* A name and a value of the answer's beginning or end. */
static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
    (void)session, (void)frame, (void)flags;
    struct grpc_connection *c = user;
    struct tl_str what = {(const char *)name, (uint32_t)n_name};
    if (tl_str_is(what, "grpc-status")) {
        char *end;
        unsigned long status = strtoul((const char *)value, &end, 10); /* a 0 is behind it */
        c->status = end != (const char *)value && status <= 16 ? (enum grpc_status)status
                                                               : GRPC_UNKNOWN;
    } else if (tl_str_is(what, "grpc-message")) {
        read_text(c->text, sizeof c->text, value, n_value);
    }
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
    (void)session, (void)stream;
    struct grpc_connection *c = user;
    c->is_over = true;
    if (code != NGHTTP2_NO_ERROR && c->status == GRPC_OK)
        c->status = GRPC_UNKNOWN;
    return 0;
}

static int submit(struct grpc_connection *c, const char *path)
{
    nghttp2_nv head[] = {grpc_pair(":method", "POST"),
                         grpc_pair(":scheme", "http"),
                         grpc_pair(":path", path),
                         grpc_pair(":authority", "localhost"),
                         grpc_pair("content-type", "application/grpc"),
                         grpc_pair("te", "trailers")};
    nghttp2_data_provider body = {.source.ptr = c, .read_callback = read_message};
    if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, NULL, 0) != 0)
        return -1;
    return nghttp2_submit_request(c->session, NULL, head, sizeof head / sizeof head[0], &body, c);
}

struct grpc_connection *grpc_call(int fd, const char *path, const struct tl_buf *message)
{
    struct grpc_connection *c = grpc_connection_create(fd);
    nghttp2_session_callbacks *calls = NULL;
    if (c == NULL)
        return NULL;
    grpc_add_prefix(&c->message, message->n);
    tl_buf_add(&c->message, message->p, message->n);
    bool is_made = !c->message.failed && nghttp2_session_callbacks_new(&calls) == 0;
    if (is_made) {
        nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
        nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
        is_made = nghttp2_session_client_new(&c->session, calls, c) == 0 && submit(c, path) > 0;
    }
    nghttp2_session_callbacks_del(calls);
    if (!is_made) {
        grpc_close(c);
        return NULL;
    }
    return c;
}

enum grpc_status grpc_result(const struct grpc_connection *c, const char **text)
{
    *text = c->text;
    return c->status;
}

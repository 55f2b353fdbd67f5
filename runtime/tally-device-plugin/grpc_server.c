/* Calls that come in.  A call is answered when its message is there as a whole; what makes no sense
 * is answered with a status that says so, and nothing that the other side sends costs more than
 * GRPC_CALLS messages of GRPC_MESSAGE_BYTES. */
#include "runtime/tally-device-plugin/grpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grpc_call {
    struct grpc_call *next;
    int32_t stream;
    const struct grpc_method *method; /* NULL: there is none of that path */
    char path[128];                   /* its beginning, for messages */
    bool is_grpc;                     /* a POST of that content */
    bool is_answered;
    bool is_stale; /* a watch whose answer has changed since */
    struct tl_buf request, reply;
    size_t sent;
    enum grpc_status status;
    char text[3 * 256]; /* as a header takes it */
};

static void call_free(struct grpc_call *call)
{
    tl_buf_finish(&call->request);
    tl_buf_finish(&call->reply);
    free(call);
}

void grpc_calls_free(struct grpc_connection *c)
{
    while (c->calls != NULL) {
        struct grpc_call *next = c->calls->next;
        call_free(c->calls);
        c->calls = next;
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

/* gRPC wants what is not plain ASCII as %XX. */
static void set_text(struct grpc_call *call, const char *text)
{
    size_t n = 0;
    for (; *text != 0 && n + 4 < sizeof call->text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte >= ' ' && byte <= '~' && byte != '%')
            call->text[n++] = *text;
        else
            n += (size_t)snprintf(call->text + n, 4, "%%%02X", byte);
    }
    call->text[n] = 0;
}

static void set_status(struct grpc_call *call, enum grpc_status status, const char *text)
{
    call->status = status;
    set_text(call, text);
}

/* Puts the method's answer, with its prefix, behind what is in the reply. */
static void ask_method(struct grpc_connection *c, struct grpc_call *call)
{
    struct tl_buf answer = {0};
    struct tl_error err = {0};
    enum grpc_status status = call->method->answer(c->context,
                                                   (const uint8_t *)call->request.p + GRPC_PREFIX,
                                                   call->request.n - GRPC_PREFIX, &answer, &err);
    if (status == GRPC_OK && (answer.failed || answer.n > GRPC_MESSAGE_BYTES))
        status = grpc_refuse(&err, GRPC_INTERNAL, "the answer is too large");
    set_status(call, status, status == GRPC_OK ? "" : err.text);
    if (status == GRPC_OK) {
        grpc_add_prefix(&call->reply, answer.n);
        tl_buf_add(&call->reply, answer.p, answer.n);
        if (call->reply.failed)
            set_status(call, GRPC_INTERNAL, "out of memory");
    }
    tl_buf_finish(&answer);
}

/* Behind the last bytes: how it went. */
static int submit_end(nghttp2_session *session, struct grpc_call *call)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)call->status);
    nghttp2_nv end[] = {grpc_pair("grpc-status", number), grpc_pair("grpc-message", call->text)};
    return nghttp2_submit_trailer(session, call->stream, end, 1 + (call->text[0] != 0));
}

/* The next bytes of a reply.  A watch that has told all waits for a change. */
static ssize_t read_reply(nghttp2_session *session, int32_t stream, uint8_t *out, size_t room,
                          uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)stream;
    struct grpc_call *call = source->ptr;
    if (call->sent == call->reply.n && call->is_stale && call->status == GRPC_OK) {
        call->is_stale = false;
        call->sent = call->reply.n = 0;
        ask_method(user, call);
    }
    size_t n = grpc_take(&call->reply, &call->sent, out, room);
    if (n > 0)
        return (ssize_t)n;
    if (call->method->is_watch && call->status == GRPC_OK)
        return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return submit_end(session, call) == 0 ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* Status and text in the one head of an answer that has no message. */
static int submit_refusal(struct grpc_connection *c, struct grpc_call *call)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)call->status);
    nghttp2_nv head[] = {grpc_pair(":status", "200"), grpc_pair("content-type", "application/grpc"),
                         grpc_pair("grpc-status", number), grpc_pair("grpc-message", call->text)};
    return nghttp2_submit_response(c->session, call->stream, head, sizeof head / sizeof head[0],
                                   NULL);
}

/* What is wrong with the request as gRPC has it, or GRPC_OK. */
static enum grpc_status check(const struct grpc_call *call, struct tl_error *err)
{
    const unsigned char *p = (const unsigned char *)call->request.p;
    if (!call->is_grpc)
        return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "this is for gRPC calls");
    if (call->method == NULL)
        return grpc_refuse(err, GRPC_UNIMPLEMENTED, "there is no method %s", call->path);
    if (call->request.failed)
        return grpc_refuse(err, GRPC_RESOURCE_EXHAUSTED, "a message may have %d bytes",
                           GRPC_MESSAGE_BYTES);
    if (call->request.n < GRPC_PREFIX)
        return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "a call without a message");
    if (p[0] != 0)
        return grpc_refuse(err, GRPC_UNIMPLEMENTED, "compressed messages are not understood");
    uint32_t n = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    if (n != call->request.n - GRPC_PREFIX)
        return grpc_refuse(err, GRPC_INVALID_ARGUMENT,
                           "a message of %u bytes was announced, and %zu came", n,
                           call->request.n - GRPC_PREFIX);
    return GRPC_OK;
}

static int answer(struct grpc_connection *c, struct grpc_call *call)
{
    struct tl_error err = {0};
    if (call->is_answered)
        return 0;
    call->is_answered = true;
    set_status(call, check(call, &err), err.text);
    if (call->status == GRPC_OK)
        ask_method(c, call);
    if (call->status != GRPC_OK)
        return submit_refusal(c, call);
    nghttp2_nv head[] = {grpc_pair(":status", "200"),
                         grpc_pair("content-type", "application/grpc")};
    nghttp2_data_provider body = {.source.ptr = call, .read_callback = read_reply};
    return nghttp2_submit_response(c->session, call->stream, head, 2, &body);
}

/* --- what nghttp2 tells ----------------------------------------------------------------------- */

static struct grpc_call *call_of(nghttp2_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session, stream);
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_connection *c = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    call->stream = frame->hd.stream_id;
    call->next = c->calls;
    c->calls = call;
    nghttp2_session_set_stream_user_data(session, call->stream, call);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *user)
{
    (void)flags;
    struct grpc_connection *c = user;
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    struct tl_str what = {(const char *)name, (uint32_t)n_name},
                  is = {(const char *)value, (uint32_t)n_value};
    if (call == NULL || call->is_answered)
        return 0;
    if (tl_str_is(what, ":path")) {
        snprintf(call->path, sizeof call->path, TL_STR_FMT, TL_STR_ARG(is));
        for (const struct grpc_method *m = c->methods; m->path != NULL; m++)
            if (tl_str_is(is, m->path))
                call->method = m;
    } else if (tl_str_is(what, "content-type")) {
        call->is_grpc = tl_str_starts(is, "application/grpc");
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t n, void *user)
{
    (void)flags;
    struct grpc_call *call = call_of(session, stream);
    if (call == NULL || call->is_answered)
        return 0;
    if (call->request.n + n <= GRPC_PREFIX + GRPC_MESSAGE_BYTES)
        tl_buf_add(&call->request, (const char *)bytes, n);
    else
        call->request.failed = true;
    return call->request.failed && answer(user, call) != 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_call *call = call_of(session, frame->hd.stream_id);
    if ((frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) ||
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0 || call == NULL)
        return 0;
    return answer(user, call) == 0 ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
    (void)code;
    struct grpc_connection *c = user;
    struct grpc_call *call = call_of(session, stream);
    for (struct grpc_call **at = &c->calls; *at != NULL; at = &(*at)->next)
        if (*at == call) {
            *at = call->next;
            call_free(call);
            break;
        }
    return 0;
}

/* --- connections ------------------------------------------------------------------------------ */

static int start(struct grpc_connection *c)
{
    nghttp2_session_callbacks *calls = NULL;
    nghttp2_option *options = NULL;
    int rc = nghttp2_session_callbacks_new(&calls);
    if (rc == 0)
        rc = nghttp2_option_new(&options);
    if (rc == 0) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(calls, on_begin);
        nghttp2_session_callbacks_set_on_header_callback(calls, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(calls, on_data);
        nghttp2_session_callbacks_set_on_frame_recv_callback(calls, on_frame);
        nghttp2_session_callbacks_set_on_stream_close_callback(calls, on_close);
        /* kubelets before 1.22 give the path of the socket as :authority, which HTTP does not
         * allow. */
        nghttp2_option_set_no_http_messaging(options, 1);
        rc = nghttp2_session_server_new2(&c->session, calls, c, options);
    }
    nghttp2_option_del(options);
    nghttp2_session_callbacks_del(calls);
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_CALLS}};
    return rc == 0 ? nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, 1) : rc;
}

struct grpc_connection *grpc_serve(int fd, const struct grpc_method *methods, void *context)
{
    struct grpc_connection *c = grpc_connection_create(fd);
    if (c == NULL)
        return NULL;
    c->methods = methods;
    c->context = context;
    if (start(c) != 0) {
        grpc_close(c);
        return NULL;
    }
    return c;
}

void grpc_changed(struct grpc_connection *c)
{
    for (struct grpc_call *call = c->calls; call != NULL; call = call->next)
        if (call->is_answered && call->method != NULL && call->method->is_watch &&
            call->status == GRPC_OK) {
            call->is_stale = true;
            /* Where it was not waiting, it comes to the change by itself. */
            (void)nghttp2_session_resume_data(c->session, call->stream);
        }
}

bool grpc_is_watched(const struct grpc_connection *c)
{
    for (const struct grpc_call *call = c->calls; call != NULL; call = call->next)
        if (call->is_answered && call->method != NULL && call->method->is_watch)
            return true;
    return false;
}

/* The thread that tells metrics: HTTP/1.1, GET /metrics and nothing else, an answer per connection.
 *
 * Whoever connects may be hostile.  There are few connections at a time, each may send one short
 * question within a few seconds and has a few more to take the answer; what is asked again at once
 * gets the same text.  The thread is nice, and the loop copies at most ten times a second. */
#include "runtime/tallyd/metrics.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
enum {
    CONNECTIONS = 8,
    QUESTION_BYTES = 4096,
    QUESTION_MS = 5000, /* from the connection to the end of the question */
    ANSWER_MS = 10000,  /* from there until all of it was taken */
    FRESH_MS = 100,     /* a text is told again so long */
    LOOP_MS = 2000,     /* the loop answers sooner, or something is wrong */
    NICENESS = 10,
    FORMATS = 2,
};

/* What is sent, by one connection or by several. */
struct answer {
    uint32_t users;
    struct tl_buf text;
    uint64_t made_ns;
};

struct connection {
    int fd; /* -1: none */
    uint64_t until_ns;
    char question[QUESTION_BYTES];
    size_t n;
    struct answer *answer; /* NULL: it is still asking */
    size_t sent;
};

struct daemon_metrics {
    struct daemon_metrics_place place;
    int bell, answered, end; /* eventfds: to the loop, from the loop, from who stops */
    bool is_asked;           /* the loop has not answered yet */
    pthread_t thread;
    struct daemon_view *view;
    struct daemon_names *names;
    uint32_t ids[DAEMON_MAX_PEERS]; /* whose pods are known, and the pods */
    struct daemon_pod *known;
    uint32_t n_known;
    struct answer *fresh[FORMATS];
    struct connection connections[CONNECTIONS];
};

/* --- the view --------------------------------------------------------------------------------- */

int daemon_metrics_bell(const struct daemon_metrics *m)
{
    return m->bell;
}

const char *daemon_metrics_where(const struct daemon_metrics *m)
{
    return m->place.text;
}

static void ring(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof one); /* it can only be full, which is as good */
}

static bool was_rung(int fd)
{
    uint64_t times;
    return read(fd, &times, sizeof times) == (ssize_t)sizeof times;
}

void daemon_metrics_answer(struct daemon_metrics *m, struct daemon *d, uint64_t now)
{
    if (!was_rung(m->bell))
        return;
    daemon_view_take(d, m->view, now);
    ring(m->answered);
}

/* Asks the loop, and waits a while; false if it does not answer, or all is to end. */
static bool take_view(struct daemon_metrics *m)
{
    struct pollfd p[2] = {{.fd = m->answered, .events = POLLIN}, {.fd = m->end, .events = POLLIN}};
    if (!m->is_asked)
        ring(m->bell);
    m->is_asked = true;
    if (poll(p, 2, LOOP_MS) <= 0 || p[1].revents != 0 || !was_rung(m->answered))
        return false;
    m->is_asked = false;
    return true;
}

/* Whose pods they are does not change while they are clients. */
static void name_rows(struct daemon_metrics *m)
{
    const struct daemon_view *v = m->view;
    for (uint32_t i = 0; i < v->n_rows; i++) {
        uint32_t k = 0;
        while (k < m->n_known && m->ids[k] != v->rows[i].id)
            k++;
        if (k < m->n_known)
            m->names->pods[i] = m->known[k];
        else
            daemon_pod_of(v->rows[i].pid, &m->names->pods[i]);
    }
    m->n_known = v->n_rows;
    for (uint32_t i = 0; i < v->n_rows; i++) {
        m->ids[i] = v->rows[i].id;
        m->known[i] = m->names->pods[i];
    }
    for (uint32_t g = 0; g < v->n_gpus; g++)
        daemon_gpu_name("/proc/driver/nvidia/gpus", v->gpus[g].uuid, &m->names->gpus[g]);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void let_go(struct answer *a)
{
    if (a == NULL || --a->users > 0)
        return;
    tl_buf_finish(&a->text);
    free(a);
}

static struct answer *make_answer(const char *status, const char *type, const char *more,
                                  const struct tl_buf *body)
{
    struct answer *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->users = 1;
    tl_buf_printf(&a->text,
                  "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
                  "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                  "Connection: close\r\n\r\n",
                  status, type, body->n, more);
    tl_buf_add(&a->text, body->p, body->n);
    if (a->text.failed) {
        let_go(a);
        return NULL;
    }
    return a;
}

static struct answer *refusal(struct daemon_metrics *m, const char *status, const char *more)
{
    struct tl_buf body = {0};
    m->names->refused++;
    tl_buf_printf(&body, "%s\n", status);
    struct answer *a = body.failed ? NULL : make_answer(status, "text/plain", more, &body);
    tl_buf_finish(&body);
    return a;
}

/* The metrics, as new as they have to be. */
static struct answer *metrics(struct daemon_metrics *m, bool is_open)
{
    struct answer **fresh = &m->fresh[is_open];
    uint64_t now = tl_clock_ns();
    m->names->scrapes++;
    if (*fresh == NULL || now - (*fresh)->made_ns > FRESH_MS * MS) {
        struct tl_buf body = {0};
        if (!take_view(m))
            return refusal(m, "503 Service Unavailable", "");
        name_rows(m);
        m->names->is_open = is_open;
        daemon_metrics_text(&body, m->view, m->names);
        struct answer *a = body.failed
                               ? NULL
                               : make_answer("200 OK",
                                             is_open
                                                 ? "application/openmetrics-text; version=1.0.0; "
                                                   "charset=utf-8"
                                                 : "text/plain; version=0.0.4; charset=utf-8",
                                             "", &body);
        tl_buf_finish(&body);
        if (a == NULL)
            return refusal(m, "503 Service Unavailable", "");
        let_go(*fresh);
        a->made_ns = now;
        *fresh = a;
    }
    (*fresh)->users++;
    return *fresh;
}

/* Whether a question takes OpenMetrics: all do but those that name text/plain alone. */
static bool wants_open(const char *question)
{
    const char *accept = strcasestr(question, "\r\naccept:");
    if (accept == NULL)
        return true;
    const char *end = strstr(accept + 2, "\r\n");
    const char *open = strcasestr(accept, "application/openmetrics-text");
    const char *plain = strcasestr(accept, "text/plain");
    return (open != NULL && open < end) || plain == NULL || plain > end;
}

/* What to answer to a whole question, which ends with a 0 behind its empty line. */
static struct answer *answer(struct daemon_metrics *m, const char *question)
{
    const char *target = strchr(question, ' ');
    const char *line_end = strstr(question, "\r\n");
    const char *version = target != NULL ? strchr(target + 1, ' ') : NULL;
    if (target == NULL || version == NULL || version > line_end ||
        strncmp(version, " HTTP/1.", 8) != 0)
        return refusal(m, "400 Bad Request", "");
    if (strncmp(question, "GET ", 4) != 0)
        return refusal(m, "405 Method Not Allowed", "Allow: GET\r\n");
    if (strncmp(target, " /metrics ", 10) != 0 && strncmp(target, " /metrics?", 10) != 0)
        return refusal(m, "404 Not Found", "");
    return metrics(m, wants_open(question));
}

/* --- connections ------------------------------------------------------------------------------ */

static void hang_up(struct connection *c)
{
    if (c->fd >= 0)
        close(c->fd);
    let_go(c->answer);
    *c = (struct connection){.fd = -1};
}

/* When there is no room, whoever has been asking for longest makes it. */
static void welcome(struct daemon_metrics *m, uint64_t now)
{
    struct connection *place = NULL, *oldest = NULL;
    int fd = accept4(m->place.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) { /* no descriptor left, say: do not spin on it */
        if (errno != EAGAIN && errno != ECONNABORTED)
            (void)poll(NULL, 0, 10);
        return;
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &m->connections[i];
        if (c->fd < 0)
            place = c;
        else if (c->answer == NULL && (oldest == NULL || c->until_ns < oldest->until_ns))
            oldest = c;
    }
    if (place == NULL && oldest != NULL) {
        m->names->refused++;
        hang_up(oldest);
        place = oldest;
    }
    if (place == NULL) {
        m->names->refused++;
        close(fd);
        return;
    }
    place->fd = fd;
    place->until_ns = now + QUESTION_MS * MS;
}

static void send_more(struct connection *c)
{
    const struct tl_buf *text = &c->answer->text;
    while (c->sent < text->n) {
        ssize_t n = send(c->fd, text->p + c->sent, text->n - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break;
        c->sent += (size_t)n;
    }
    hang_up(c);
}

static void hear(struct daemon_metrics *m, struct connection *c, uint64_t now)
{
    ssize_t n = recv(c->fd, c->question + c->n, sizeof c->question - 1 - c->n, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hang_up(c);
        return;
    }
    c->n += (size_t)n;
    c->question[c->n] = 0;
    if (memchr(c->question, 0, c->n) != NULL)
        c->answer = refusal(m, "400 Bad Request", "");
    else if (strstr(c->question, "\r\n\r\n") != NULL)
        c->answer = answer(m, c->question);
    else if (c->n + 1 < sizeof c->question)
        return;
    else
        c->answer = refusal(m, "431 Request Header Fields Too Large", "");
    c->until_ns = now + ANSWER_MS * MS;
    if (c->answer == NULL)
        hang_up(c);
    else
        send_more(c);
}

/* One round: waits for something, and does what there is to do.  False when all is to end. */
static bool go_round(struct daemon_metrics *m)
{
    struct pollfd p[CONNECTIONS + 2] = {{.fd = m->end, .events = POLLIN},
                                        {.fd = m->place.listener, .events = POLLIN}};
    bool has_any = false;
    for (int i = 0; i < CONNECTIONS; i++) {
        const struct connection *c = &m->connections[i];
        p[i + 2] = (struct pollfd){.fd = c->fd, .events = c->answer != NULL ? POLLOUT : POLLIN};
        has_any |= c->fd >= 0;
    }
    (void)poll(p, CONNECTIONS + 2, has_any ? 500 : -1);
    if (p[0].revents != 0)
        return false;
    uint64_t now = tl_clock_ns();
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &m->connections[i];
        if (c->fd >= 0 && now > c->until_ns) {
            m->names->refused++;
            hang_up(c);
        } else if (c->fd >= 0 && p[i + 2].revents != 0) {
            if (c->answer != NULL)
                send_more(c);
            else
                hear(m, c, now);
        }
    }
    if (p[1].revents != 0)
        welcome(m, now);
    return true;
}

static void *run(void *argument)
{
    struct daemon_metrics *m = argument;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS);
    while (go_round(m))
        ;
    return NULL;
}

/* --- begin and end ---------------------------------------------------------------------------- */

static void destroy(struct daemon_metrics *m)
{
    for (int i = 0; i < CONNECTIONS; i++)
        hang_up(&m->connections[i]);
    for (int i = 0; i < FORMATS; i++)
        let_go(m->fresh[i]);
    daemon_metrics_leave(&m->place);
    const int fds[] = {m->bell, m->answered, m->end};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(m->view);
    free(m->names);
    free(m->known);
    free(m);
}

int daemon_metrics_start(struct daemon_metrics **out, const char *where, bool is_open,
                         struct tl_error *err)
{
    struct daemon_metrics *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for metrics");
    m->place.listener = -1;
    for (int i = 0; i < CONNECTIONS; i++)
        m->connections[i].fd = -1;
    m->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->view = calloc(1, sizeof *m->view);
    m->names = calloc(1, sizeof *m->names);
    m->known = calloc(DAEMON_MAX_PEERS, sizeof *m->known);
    int rc = m->bell < 0 || m->answered < 0 || m->end < 0 || m->view == NULL || m->names == NULL ||
                     m->known == NULL
                 ? tl_error_set(err, -ENOMEM, "no memory or descriptors for metrics")
                 : daemon_metrics_listen(&m->place, where, is_open, err);
    if (rc == 0) {
        (void)gethostname(m->names->host, sizeof m->names->host - 1);
        rc = tl_thread_start(&m->thread, &(struct tl_thread_kind){.name = "metrics"}, run, m);
        if (rc < 0)
            tl_error_set(err, rc, "no thread for metrics (%s)", strerror(-rc));
    }
    if (rc < 0) {
        destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void daemon_metrics_stop(struct daemon_metrics *m)
{
    if (m == NULL)
        return;
    ring(m->end);
    pthread_join(m->thread, NULL);
    destroy(m);
}

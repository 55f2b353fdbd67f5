/* The client's thread.  It joins tallyd, takes what tallyd sends, and watches those above: when one
 * dies, its word is forgotten here, with or without tallyd.  If tallyd goes away the thread goes
 * back to joining, for ever, at growing distances.
 *
 *     ALONE ──connect──► JOINING ──welcome──► JOINED
 *       │  ▲                │ refused, late      │ tallyd is gone
 *  none │  └────────────────┴────────────────────┘
 *  runs ▼
 *   STARTING ──it listens, or failed──► ALONE, which connects at once
 *
 * Nothing here waits for anything but poll: a death must be noticed at once, also while tallyd is
 * being started.
 *
 * Some programs close descriptors that they did not open, and the numbers come back as something of
 * theirs.  So a socket is looked at before it is read, and a pidfd counts only if the kernel takes
 * it for one. */
#include "runtime/job/client_internal.h"
#include "runtime/job/start.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/thread.h"

#include "tally/check.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

#define MS UINT64_C(1000000)
/* How long tallyd may take to start and to answer, and the distances between attempts. */
enum {
    START_MS = 5000,
    ANSWER_MS = 5000,
    FIRST_RETRY_MS = 5,
    LAST_RETRY_MS = 1000,
    REFUSED_MS = 30000,
    RESTART_MS = 50,
    ENDED_TIMES = 3, /* a tallyd may end just when it is joined */
};

/* --- ends of attempts ------------------------------------------------------------------------- */

/* Tells tl_client_create, if it still waits, how the first attempt ended. */
static void settle(struct tl_client *c, const struct tl_error *remark)
{
    pthread_mutex_lock(&c->lock);
    if (!c->is_settled) {
        c->remark = *remark;
        c->is_settled = true;
        pthread_cond_signal(&c->settled);
    }
    pthread_mutex_unlock(&c->lock);
}

static void close_socket(struct tl_client *c)
{
    struct stat st;
    pthread_mutex_lock(&c->socket_lock);
    if (c->socket >= 0 && fstat(c->socket, &st) == 0 && st.st_ino == c->socket_ino)
        close(c->socket);
    c->socket = -1;
    pthread_mutex_unlock(&c->socket_lock);
}

/* Alone from now on, until the next attempt. */
static void retreat(struct tl_client *c, uint64_t retry_ms)
{
    close_socket(c);
    if (c->ready >= 0)
        close(c->ready);
    c->ready = -1;
    c->state = TL_CLIENT_ALONE;
    c->retry_ns = tl_clock_ns() + retry_ms * MS;
}

static uint64_t next_distance(struct tl_client *c)
{
    uint64_t ms = (uint64_t)FIRST_RETRY_MS << (c->failures < 8 ? c->failures : 8);
    c->failures++;
    return ms < LAST_RETRY_MS ? ms : LAST_RETRY_MS;
}

static void fail(struct tl_client *c, const struct tl_error *why)
{
    struct tl_error remark;
    tl_error_set(&remark, why->code, "%.900s: this job runs unmanaged", why->text);
    retreat(c, next_distance(c));
    settle(c, &remark);
}

/* tallyd is gone.  What others wrote stays true: their words are in pages of their own. */
static void lose(struct tl_client *c)
{
    TL_CHECK(c->state == TL_CLIENT_JOINED);
    struct tl_share_grant last;
    const struct tl_grant_page *page = atomic_load_explicit(&c->grant, memory_order_relaxed);
    if (page != NULL && tl_share_read(page, &last)) { /* as `tally set` left it */
        c->wish = last.client;
        atomic_store_explicit(&c->level, last.client.level, memory_order_relaxed);
        atomic_store_explicit(&c->memory_limit, last.client.memory_limit, memory_order_relaxed);
        atomic_store_explicit(&c->memory_soft, last.client.memory_soft, memory_order_relaxed);
    }
    c->failures = 0;
    retreat(c, 0);
    tl__words_grow_old(&c->words);
    tl__below_grow_old(&c->below);
    tl__client_set_grant(c, -1);
}

/* --- joining ---------------------------------------------------------------------------------- */

static void start_daemon(struct tl_client *c)
{
    struct tl_error err;
    TL_CHECK(c->state == TL_CLIENT_ALONE && c->ready < 0);
    c->start_ns = tl_clock_ns();
    c->failed_starts++; /* until it has been joined */
    c->ready = tl_start_in_background(c->daemon, c->environment, &err);
    if (c->ready < 0) {
        fail(c, &err);
        return;
    }
    c->state = TL_CLIENT_STARTING;
    c->deadline_ns = c->start_ns + START_MS * MS;
}

/* Asks tallyd to be let in, with its page and its ledger. */
static void say_hello(struct tl_client *c, int fd)
{
    struct stat st;
    struct tl_error err;
    struct tl_wire_hello hello = {.share_version = TL_SHARE_VERSION, .is_return = c->was_joined};
    hello.client = tl_wire_pack(&c->wish);
    memcpy(hello.tree, c->settings.tree, sizeof hello.tree);
    tl_wire_text(hello.job, sizeof hello.job, c->settings.job);
    tl_wire_text(hello.policy, sizeof hello.policy, c->settings.policy);
    fd = tl_file_lift(fd);
    if (tl_share_check(c->page_fd) < 0 || fstat(fd, &st) < 0) {
        close(fd);
        tl_error_set(&err, -EBADF, "the job closed the descriptors that it shares with tallyd");
        fail(c, &err);
        c->retry_ns = UINT64_MAX;
        return;
    }
    c->state = TL_CLIENT_JOINING;
    c->deadline_ns = tl_clock_ns() + ANSWER_MS * MS;
    /* what others say through it comes behind the hello */
    pthread_mutex_lock(&c->socket_lock);
    c->socket_ino = st.st_ino;
    c->socket = fd;
    hello.gpus = c->gpus;
    int fds[2] = {c->page_fd, c->ledger_fd};
    bool has_ledger = tl_share_check(c->ledger_fd) == 0; /* the job may have closed it */
    int rc = tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, fds, has_ledger ? 2 : 1);
    pthread_mutex_unlock(&c->socket_lock);
    if (rc < 0) {
        tl_error_set(&err, rc, "tallyd on %s takes no message (%s)", c->settings.socket,
                     strerror(-rc));
        fail(c, &err);
    }
}

/* A tallyd that cannot start is started again less and less often. */
static bool may_start_now(const struct tl_client *c)
{
    uint64_t distance_ms = c->failed_starts == 0
                               ? 0
                               : (uint64_t)RESTART_MS
                                     << (c->failed_starts < 5 ? c->failed_starts : 5);
    return c->may_start && tl_clock_ns() - c->start_ns >= distance_ms * MS;
}

static void attempt(struct tl_client *c)
{
    struct tl_error err;
    TL_CHECK(c->state == TL_CLIENT_ALONE && c->socket < 0 && c->ready < 0);
    int fd = tl_wire_connect(c->settings.socket, &err);
    if (fd >= 0)
        say_hello(c, fd);
    else if (fd == -EAGAIN)
        retreat(c, FIRST_RETRY_MS);
    else if ((fd == -ENOENT || fd == -ECONNREFUSED) && may_start_now(c))
        start_daemon(c);
    else
        fail(c, &err);
}

/* The started tallyd says one byte when it listens, or when another one does; else it says why it
 * cannot. */
static void hear_start(struct tl_client *c)
{
    struct tl_error err;
    TL_CHECK(c->state == TL_CLIENT_STARTING);
    char said[512];
    ssize_t n = read(c->ready, said, sizeof said - 1);
    if (n > 0 && said[0] == '+') {
        c->failures = 0;
        retreat(c, 0);
        return;
    }
    said[n > 0 ? n : 0] = 0;
    tl_error_set(&err, -ECONNREFUSED, "tallyd cannot start%s%s", n > 0 ? ": " : "", said);
    fail(c, &err);
}

/* --- hearing tallyd --------------------------------------------------------------------------- */

static void hear_welcome(struct tl_client *c, struct tl_wire_packet *packet)
{
    struct tl_error remark = {0};
    int fd = packet->fds[0];
    packet->fds[0] = -1;
    tl__client_set_grant(c, fd);
    if (packet->n_fds > 1) {
        (void)tl__client_take_ledger(c, packet->fds[1]);
        packet->fds[1] = -1;
    }
    if (!tl_client_is_joined(c)) {
        tl_error_set(&remark, -EPROTO, "tallyd's grants cannot be read");
        fail(c, &remark);
        return;
    }
    c->state = TL_CLIENT_JOINED;
    c->failures = c->failed_starts = 0;
    c->was_joined = true;
    c->may_start = c->daemon[0] != 0 && c->environment != NULL;
    if (packet->m.answer.text[0] != 0)
        tl_error_set(&remark, 0, "%s", packet->m.answer.text);
    settle(c, &remark);
}

/* One message of tallyd, or the end of the connection, which means something else in each state. */
static void hear(struct tl_client *c)
{
    struct tl_wire_packet packet;
    struct tl_error err;
    struct stat st;
    bool is_ours = fstat(c->socket, &st) == 0 && st.st_ino == c->socket_ino;
    int rc = is_ours ? tl_wire_receive(c->socket, &packet, &err) : 0;
    if (rc == -EAGAIN)
        return;
    if (rc != 1) {
        if (c->state == TL_CLIENT_JOINED) {
            lose(c);
        } else if (rc == 0 &&
                   /* it ended just now, for nobody was there; so another one starts */
                   c->failures < ENDED_TIMES) {
            retreat(c, next_distance(c));
        } else {
            if (rc == 0)
                tl_error_set(&err, -ECONNREFUSED, "tallyd on %s ended", c->settings.socket);
            fail(c, &err);
        }
        return;
    }
    switch (packet.m.head.kind) {
    case TL_WIRE_WELCOME:
        hear_welcome(c, &packet);
        break;
    case TL_WIRE_REFUSED:
        tl_error_set(&err, packet.m.answer.code, "tallyd refused: %s", packet.m.answer.text);
        fail(c, &err);
        c->retry_ns = tl_clock_ns() + REFUSED_MS * MS;
        break;
    case TL_WIRE_WORDS:
        tl__words_take(&c->words, &packet, tl_clock_ns());
        tl__client_changed(c);
        break;
    case TL_WIRE_PLACED:
        atomic_fetch_add(&c->placed, 1);
        tl__client_changed(c);
        break;
    case TL_WIRE_BELOW:
        tl__below_take(&c->below, &packet, tl_clock_ns());
        break;
    case TL_WIRE_GOODBYE:
        c->may_start = false;
        break;
    default:
        break; /* nothing that a client asks for */
    }
    tl_wire_close(&packet);
}

/* --- watching those above --------------------------------------------------------------------- */

/* Whether the number still stands for a pidfd: then what poll said of it is that its process has
 * ended.  (The signal would reach a process that its parent has not waited for yet, so its success
 * tells nothing.) */
static bool is_pidfd(int fd)
{
    return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno != EBADF;
}

static void look_after(struct tl_client *c, uint32_t place)
{
    if (is_pidfd(c->words.places[place].pidfd)) {
        tl__words_drop(&c->words, place);
        tl__client_changed(c);
    } else {
        c->words.places[place].pidfd = -1; /* it is not ours any more */
    }
}

static void hear_poke(struct tl_client *c)
{
    tl__alive_hear(c);
    if (tl__words_drop_dead(&c->words))
        tl__client_changed(c);
}

/* --- the loop --------------------------------------------------------------------------------- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Copies that nobody keeps are offered while there is a tallyd. */
static uint64_t offer(struct tl_client *c, uint64_t now)
{
    bool has_changed = false;
    struct stat st;
    if (c->state != TL_CLIENT_JOINED || fstat(c->socket, &st) < 0 || st.st_ino != c->socket_ino)
        return UINT64_MAX;
    uint64_t next = tl__words_offer(&c->words, c->socket, now, &has_changed);
    if (has_changed)
        tl__client_changed(c);
    return next;
}

static int timeout_ms(struct tl_client *c)
{
    uint64_t now = tl_clock_ns(), at = tl__words_expire(&c->words, now);
    at = sooner(at, sooner(tl__below_expire(&c->below, now), offer(c, now)));
    uint64_t own = c->state == TL_CLIENT_ALONE ? c->retry_ns : c->deadline_ns;
    if (c->state != TL_CLIENT_JOINED && own < at)
        at = own;
    return at == UINT64_MAX ? -1 : at <= now ? 0 : (int)((at - now) / MS) + 1;
}

static void on_time(struct tl_client *c)
{
    struct tl_error err;
    uint64_t now = tl_clock_ns();
    if (c->state == TL_CLIENT_ALONE && now >= c->retry_ns)
        attempt(c);
    if ((c->state == TL_CLIENT_STARTING || c->state == TL_CLIENT_JOINING) &&
        now >= c->deadline_ns) {
        tl_error_set(&err, -ETIMEDOUT, "tallyd on %s does not answer", c->settings.socket);
        fail(c, &err);
    }
}

/* The thread: waits for tallyd, for the deaths of those above, and for time; see the head of the
 * file. */
void *tl__client_listen(void *client)
{
    struct tl_client *c = client;
    tl_thread_be_prompt();
    tl__alive_begin(c);
    attempt(c);
    for (;;) {
        enum { STOP, POKE, SOCKET, READY, FIRST };
        uint32_t places[TL_SHARE_WORDS];
        struct pollfd p[FIRST + TL_SHARE_WORDS] = {
            [STOP] = {.fd = c->stop, .events = POLLIN},
            [POKE] = {.fd = c->poke[0], .events = POLLIN},
            [SOCKET] = {.fd = c->socket, .events = POLLIN},
            [READY] = {.fd = c->ready, .events = POLLIN},
        };
        for (uint32_t i = 0; i < TL_SHARE_WORDS; i++) {
            places[i] = c->words.in_force[i];
            p[FIRST + i] = (struct pollfd){.fd = c->words.places[places[i]].pidfd,
                                           .events = POLLIN};
        }
        bool has_failed = poll(p, FIRST + TL_SHARE_WORDS, timeout_ms(c)) < 0 && errno != EINTR;
        if (has_failed || p[STOP].revents != 0)
            /* failed: not with these arguments, or there is no memory; without a listener grants
             * still work */
            break;
        if (p[POKE].revents != 0)
            hear_poke(c);
        for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
            if (p[FIRST + i].revents != 0)
                look_after(c, places[i]);
        if (p[SOCKET].revents != 0)
            hear(c);
        if (p[READY].revents != 0)
            hear_start(c);
        on_time(c);
    }
    tl__alive_end(c);
    return NULL;
}

/* tallyd's events: new peers, their messages and deaths, signals, time. */
#include "runtime/tallyd/metrics.h"
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define SECOND UINT64_C(1000000000)

static int watch(struct daemon *d, int fd, struct daemon_source *s)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    return epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &e) < 0 ? -errno : 0;
}

/* Closing alone would not do: those below have been sent the pidfd, and epoll goes on watching what
 * somebody has open. */
static void forget(struct daemon *d, int fd)
{
    (void)epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

void daemon_watch_writable(struct daemon *d, struct daemon_peer *p, bool is_wanted)
{
    struct epoll_event e = {.events = EPOLLOUT, .data.ptr = &p->on_socket};
    if (p->is_writable != is_wanted)
        (void)epoll_ctl(d->epoll, is_wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, p->socket, &e);
    p->is_writable = is_wanted;
}

/* --- peers ------------------------------------------------------------------------------------ */

void daemon_drop(struct daemon *d, struct daemon_peer *p, const char *why)
{
    if (p->is_gone)
        return;
    p->is_gone = true;
    daemon_log(p->id != 0 ? LOG_EVENTS : LOG_DETAILS, "process %d (%s): %s", (int)p->who.pid,
               p->id != 0 ? p->job : "a tool", why);
    if (p->id != 0)
        daemon_leave(d, p);
    assert(p->id == 0);
    daemon_watch_writable(d, p, false);
    daemon_porter_dismiss(p);
    forget(d, p->pidfd);
}

/* Frees those who went while the last events were handled, if their porters are done. */
static void free_gone(struct daemon *d)
{
    for (struct daemon_peer **at = &d->peers; *at != NULL;) {
        struct daemon_peer *p = *at;
        if (!p->is_gone || !daemon_porter_is_done(p)) {
            at = &p->next;
            continue;
        }
        assert(p->id == 0 && d->n_peers > 0); /* it has left before */
        *at = p->next;
        d->n_peers--;
        free(p);
    }
}

/* Each message uses up a bit of an allowance that time fills again. */
static bool is_flood(struct daemon_peer *p, uint64_t now)
{
    const uint64_t cost = SECOND / DAEMON_PER_SECOND, most = DAEMON_BURST * cost;
    p->allowance_ns += now - p->heard_ns;
    if (p->allowance_ns > most)
        p->allowance_ns = most;
    p->heard_ns = now;
    if (p->allowance_ns < cost)
        return true;
    p->allowance_ns -= cost;
    return false;
}

/* Answers a message. */
static void answer(struct daemon *d, struct daemon_peer *p, struct tl_wire_packet *packet)
{
    switch (packet->m.head.kind) {
    case TL_WIRE_HELLO:
        daemon_join(d, p, packet);
        break;
    case TL_WIRE_COPY:
        daemon_copy_offered(d, p, packet);
        break;
    case TL_WIRE_PLACE:
        daemon_moved(d, p, &packet->m.place.gpus);
        break;
    case TL_WIRE_KICK:
        break; /* what wakes the loop also makes it look */
    default:
        daemon_control(d, p, packet);
    }
}

/* If a peer has sent something, or has gone: takes one message and answers it. */
static void hear(struct daemon *d, struct daemon_peer *p)
{
    struct tl_wire_packet *brought, packet;
    struct tl_error err;
    int rc = daemon_porter_has(p, &brought, &err);
    if (rc == -EAGAIN)
        return;
    if (rc == -EPROTONOSUPPORT)
        daemon_refuse(p, rc,
                      "it is of another version than this job's library; end it (its clients go "
                      "on), so that the right one "
                      "starts");
    if (rc != 1) {
        daemon_drop(d, p, rc == 0 ? "left" : err.text);
        return;
    }
    packet = *brought;
    brought->n_fds = 0;
    daemon_porter_go_on(p);
    if (is_flood(p, tl_clock_ns())) {
        daemon_log(LOG_WARNINGS, "process %d sends too many messages", (int)p->who.pid);
        daemon_drop(d, p, "cut off");
    } else {
        answer(d, p, &packet);
    }
    tl_wire_close(&packet);
}

/* A porter has something, or has ended. */
static void on_bell(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    uint64_t times;
    (void)s;
    (void)events;
    (void)!read(d->bell, &times, sizeof times); /* it only has to be read */
    for (struct daemon_peer *p = d->peers; p != NULL; p = p->next)
        if (!p->is_gone)
            hear(d, p);
}

/* A peer reads again what it is sent; or it is gone, of which its porter tells. */
static void on_socket(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    struct daemon_peer *p = s->peer;
    if (p->is_gone)
        return;
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
        daemon_watch_writable(d, p, false);
        return;
    }
    if (p->owes_words)
        daemon_words_send(d, p);
    if (!p->is_gone && p->owes_copies)
        daemon_copies_send(d, p);
}

static void on_death(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    (void)events;
    daemon_drop(d, s->peer, "has ended");
}

/* Who it is, as the kernel knows it: a pid could be another process's by now, a pidfd cannot. */
static int identify(struct daemon_peer *p)
{
    struct ucred cred;
    socklen_t n = sizeof cred;
    if (getsockopt(p->socket, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return -errno;
    p->who.pid = cred.pid;
    p->who.uid = cred.uid;
    p->who.gid = cred.gid;
    n = sizeof p->who.groups;
    if (getsockopt(p->socket, SOL_SOCKET, SO_PEERGROUPS, p->who.groups, &n) == 0)
        p->who.n_groups = (uint32_t)(n / sizeof p->who.groups[0]);
    n = sizeof p->pidfd;
    if (getsockopt(p->socket, SOL_SOCKET, SO_PEERPIDFD, &p->pidfd, &n) < 0)
        p->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
    return p->pidfd < 0 ? -errno : 0;
}

/* Why there is no place for one more of that user, or NULL.  Whoever has gone counts until his
 * porter is done. */
static const char *refusal(const struct daemon *d, uid_t uid)
{
    uint32_t his = 0;
    for (const struct daemon_peer *p = d->peers; p != NULL; p = p->next)
        his += p->who.uid == uid;
    if (d->n_peers >= DAEMON_MAX_PEERS)
        return "tallyd has no place for more jobs";
    if (daemon_is_own(uid))
        return NULL;
    if (his >= DAEMON_PER_USER)
        return "this user has all the places that tallyd gives to one";
    return d->n_peers >= DAEMON_MAX_PEERS - DAEMON_KEPT
               ? "tallyd has no place for more jobs of users other than its own"
               : NULL;
}

/* 0 if the connection is a peer now; else it is the caller's to close. */
static int take(struct daemon *d, struct daemon_peer *p)
{
    int rc = identify(p);
    const char *why = rc == 0 ? refusal(d, p->who.uid) : NULL;
    if (why != NULL) {
        daemon_refuse(p, -EUSERS, why);
        return -EUSERS;
    }
    if (rc == 0)
        rc = watch(d, p->pidfd, &p->on_death);
    if (rc == 0)
        rc = daemon_porter_start(d, p);
    if (rc < 0)
        daemon_log(LOG_WARNINGS, "a connection is not taken: %s", strerror(-rc));
    return rc;
}

/* Whether who connected is gone and has said nothing: then nobody has to be told anything, and a
 * flood of such does not cost a thread each.  (What it may have sent without a byte in it goes with
 * those who are refused.) */
static bool has_come_and_gone(int fd)
{
    struct pollfd now = {.fd = fd, .events = POLLIN};
    int unread = -1;
    return poll(&now, 1, 0) == 1 && (now.revents & POLLHUP) != 0 &&
           ioctl(fd, SIOCINQ, &unread) == 0 && unread == 0;
}

/* A new connection becomes a peer, or is closed; one too many is told so. */
static void accept_one(struct daemon *d, int fd)
{
    struct daemon_peer *p = has_come_and_gone(fd) ? NULL : calloc(1, sizeof *p);
    if (p == NULL) {
        daemon_bury_later(d, fd);
        return;
    }
    p->socket = fd;
    p->pidfd = p->page_reader = p->merged_fd = -1;
    for (uint32_t i = 0; i < TL_SHARE_WORDS; i++)
        p->copies[i].fd = -1;
    p->on_socket = (struct daemon_source){on_socket, p};
    p->on_death = (struct daemon_source){on_death, p};
    p->heard_ns = tl_clock_ns();
    p->allowance_ns = UINT64_MAX / 2;
    if (take(d, p) < 0) {
        if (p->pidfd >= 0)
            forget(d, p->pidfd);
        free(p);
        daemon_bury_later(d, fd);
        return;
    }
    p->next = d->peers;
    d->peers = p;
    d->n_peers++;
}

static void on_listener(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    (void)s;
    (void)events;
    enum { AT_ONCE = 32 }; /* then others have their turn */
    int fd = 0, why = 0;
    for (int i = 0; i < AT_ONCE && fd >= 0; i++) {
        fd = accept4(d->place.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        why = fd < 0 ? errno : 0;
        if (fd >= 0)
            accept_one(d, fd);
    }
    if (fd < 0) /* nobody waits; else when there are many */
        daemon_bury(d);
    if (why == EMFILE || why == ENFILE || why == ENOMEM)
        /* somebody waits; do not spin on it */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Who is no client and says nothing for long is sent away. */
static void dismiss_silent(struct daemon *d, uint64_t now)
{
    for (struct daemon_peer *p = d->peers; p != NULL; p = p->next)
        if (p->id == 0 && !p->is_gone && now - p->heard_ns > (uint64_t)DAEMON_SILENT_MS * 1000000)
            daemon_drop(d, p, "says nothing");
}

/* --- signals and time ------------------------------------------------------------------------- */

static void read_rules_again(struct daemon *d)
{
    struct daemon_rules *rules;
    struct tl_error err;
    if (daemon_rules_read(&rules, d->rules_path, d->are_rules_optional, &err) < 0) {
        daemon_log(LOG_ERRORS, "the old rules stay: %s", err.text);
        return;
    }
    daemon_rules_free(d->rules);
    d->rules = rules;
    daemon_log(LOG_EVENTS, "the rules %s were read again; they hold for who joins from now on",
               d->rules_path);
}

static void on_signal(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    struct signalfd_siginfo info;
    (void)s;
    (void)events;
    if (read(d->signals, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo == SIGHUP)
        read_rules_again(d);
    else
        d->is_ending = true;
}

/* Somebody wants to know how things are. */
static void on_metrics(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    (void)s;
    (void)events;
    daemon_metrics_answer(d->metrics, d, tl_clock_ns());
}

static void on_timer(struct daemon *d, struct daemon_source *s, uint32_t events)
{
    uint64_t times;
    (void)s;
    (void)events;
    (void)!read(d->timer, &times, sizeof times); /* it only has to be read */
}

static void set_timer(struct daemon *d, uint64_t at)
{
    struct itimerspec t = {0}; /* zero: never */
    if (at != UINT64_MAX) {
        t.it_value.tv_sec = (time_t)(at / SECOND);
        t.it_value.tv_nsec = (long)(at % SECOND) + (at == 0);
    }
    (void)timerfd_settime(d->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* When the loop has to go on without an event. */
static uint64_t next_time(const struct daemon *d, uint64_t look_at, uint64_t now)
{
    uint64_t next = look_at;
    if (d->n_clients == 0 && d->idle_ns != UINT64_MAX && d->since_client_ns + d->idle_ns < next)
        next = d->since_client_ns + d->idle_ns;
    if (d->n_peers > d->n_clients && now + SECOND < next)
        next = now + SECOND; /* somebody may have to be sent away */
    return next;
}

/* --- the loop --------------------------------------------------------------------------------- */

int daemon_loop_init(struct daemon *d, struct tl_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of whoever started it is an error, not an end */
    signal(SIGCHLD, SIG_IGN); /* nobody asks how who buries ended */
    d->on_listener.on_ready = on_listener;
    d->on_timer.on_ready = on_timer;
    d->on_signal.on_ready = on_signal;
    d->on_bell.on_ready = on_bell;
    d->on_metrics.on_ready = on_metrics;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    d->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    d->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->since_client_ns = tl_clock_ns();
    if (d->epoll < 0 || d->timer < 0 || d->signals < 0 || d->bell < 0 ||
        watch(d, d->place.listener, &d->on_listener) < 0 || watch(d, d->timer, &d->on_timer) < 0 ||
        watch(d, d->signals, &d->on_signal) < 0 || watch(d, d->bell, &d->on_bell) < 0 ||
        (d->metrics != NULL && watch(d, daemon_metrics_bell(d->metrics), &d->on_metrics) < 0))
        return tl_error_errno(err, "tallyd's event loop");
    return 0;
}

/* Who was not answered for long finds the reason here: nothing that tallyd does takes so long. */
static void tell_delay(uint64_t late_ns, uint64_t took_ns)
{
    if (late_ns >= SECOND)
        daemon_log(LOG_WARNINGS,
                   "woke up %.1f s late: it was stopped, or had no processor for so long",
                   (double)late_ns / 1e9);
    if (took_ns >= SECOND)
        daemon_log(LOG_WARNINGS, "was busy for %.1f s, in which others waited",
                   (double)took_ns / 1e9);
}

/* Handles what is ready, and waits on if that was a scrape and nothing else: clients are not looked
 * at because somebody asks for metrics.  Returns when the last wait was over. */
static uint64_t handle_events(struct daemon *d)
{
    enum { EVENTS = 32 };
    struct epoll_event events[EVENTS];
    bool is_scrape = true;
    uint64_t woken = 0;
    while (is_scrape) {
        int n = epoll_wait(d->epoll, events, EVENTS, -1);
        woken = tl_clock_ns();
        is_scrape = n > 0;
        for (int i = 0; i < n; i++) {
            struct daemon_source *s = events[i].data.ptr;
            is_scrape &= s == &d->on_metrics;
            s->on_ready(d, s, events[i].events);
        }
    }
    return woken;
}

void daemon_loop_run(struct daemon *d)
{
    while (!d->is_ending) {
        uint64_t begun = tl_clock_ns(), due = next_time(d, daemon_look(d, begun), begun);
        set_timer(d, due);
        uint64_t slept = tl_clock_ns(), woken = handle_events(d), now = tl_clock_ns(),
                 expected = due > slept ? due : slept;
        tell_delay(woken > expected ? woken - expected : 0, slept - begun + now - woken);
        dismiss_silent(d, now);
        free_gone(d);
        if (d->n_clients == 0 && d->idle_ns != UINT64_MAX && now >= d->since_client_ns + d->idle_ns)
            break;
    }
    daemon_log(LOG_EVENTS, "%s", d->is_ending ? "told to end" : "nobody has been here for a while");
}

void daemon_loop_finish(struct daemon *d)
{
    struct tl_wire_bare goodbye;
    daemon_metrics_stop(d->metrics);
    d->metrics = NULL;
    for (struct daemon_peer *p = d->peers; p != NULL; p = p->next) {
        if (!p->is_gone && p->id != 0)
            (void)tl_wire_send(p->socket, TL_WIRE_GOODBYE, &goodbye, sizeof goodbye, NULL, 0);
        daemon_drop(d, p, "is left to itself");
    }
    free_gone(d);
    close(d->epoll);
    close(d->timer);
    close(d->signals);
}

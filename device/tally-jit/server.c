/* The compiler service: one process that waits, and workers that compile.
 *
 * This process never touches PTX: it passes descriptors on, counts what dies, and writes objects
 * into the cache.  It is single-threaded; all state is in struct server.  Requests for the same key
 * are one job, so that eight processes that start at once compile a kernel once. */
#include "device/tally-jit/server.h"
#include "device/service/refusals.h"
#include "device/service/wire.h"
#include "device/tally-jit/worker.h"
#include "tally/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS = 512, /* more wait in the socket's queue */
    WORKERS = 64,
    CACHES = 4,
    REQUESTS_PER_WORKER = 200, /* then it is replaced, whatever LLVM has left in its memory */
    SILENT_CLIENT_MS = 30000,
    AHEAD = 64, /* jobs at most that nobody waits for */
};
/* A worker that neither answers nor uses its CPU time is ended after this. */
#define STUCK_FACTOR 5

struct job {
    struct job *next;
    char *message; /* as it came; the strings below point into it */
    size_t message_n;
    struct tl_jit_ask ask;
    struct tl_jit_ask_text text;
    int ptx; /* descriptor */
    bool is_running;
    bool is_ahead; /* asked for by nobody who waits */
};

struct client {
    int fd;
    struct job *job; /* that it waits for; NULL before its request */
    int64_t since_ms;
};

struct worker {
    pid_t pid; /* 0: no such worker */
    int fd, log;
    struct job *job; /* NULL: idle */
    uint32_t n_jobs;
    int64_t until_ms;
    bool is_overdue;
};

struct server {
    const struct tl_jit_server_options *options;
    char id[TL_JIT_COMPILER_ID_BYTES];
    char folder_path[TL_STORE_PATH];
    int folder, lock, listener;
    struct client clients[CLIENTS];
    uint32_t n_clients;
    struct worker workers[WORKERS];
    struct job *jobs; /* oldest first */
    /* what is known of folders used lately; their descriptors are closed */
    struct tl_store caches[CACHES];
    uint32_t next_cache;
    struct tl_jit_refusals refusals;
    uint32_t n_compiled, n_found, n_failed, n_deaths;
    int64_t active_ms; /* when somebody last wanted something */
    bool is_stopping;
    sigset_t waiting_mask;
    char message[TL_JIT_MESSAGE_BYTES];
};

static volatile sig_atomic_t was_signalled;

static void on_signal(int number)
{
    (void)number;
    was_signalled = 1;
}

static void note(const struct server *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note(const struct server *s, const char *format, ...)
{
    if (!s->options->is_foreground)
        return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "tally-jit: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
}

/* --- jobs and their clients ------------------------------------------------------------------- */

static void drop_client(struct server *s, uint32_t i)
{
    close(s->clients[i].fd);
    s->clients[i] = s->clients[--s->n_clients];
}

static void free_job(struct server *s, struct job *job)
{
    for (struct job **p = &s->jobs; *p != NULL; p = &(*p)->next) {
        if (*p == job) {
            *p = job->next;
            break;
        }
    }
    close(job->ptx);
    free(job->message);
    free(job);
}

/* Answers everybody who waits for the job, and forgets it. */
static void finish_job(struct server *s, struct job *job, enum tl_jit_kind kind, int code,
                       const char *text, int fd, uint64_t object_bytes)
{
    for (uint32_t i = s->n_clients; i-- > 0;) {
        if (s->clients[i].job == job) {
            (void)tl_jit_send_answer(s->clients[i].fd, kind, code, text, fd, object_bytes);
            drop_client(s, i);
        }
    }
    if (kind == TL_JIT_FAILED) {
        tl_jit_refusals_add(&s->refusals, &job->ask.key, code, text);
        s->n_failed++;
        note(s, "%s", text);
    } else {
        s->n_compiled++;
        note(s, "kernel %.300s: compiled to %s", job->text.kernel, fd < 0 ? text : "memory");
    }
    free_job(s, job);
}

static bool has_client(const struct server *s, const struct job *job)
{
    for (uint32_t i = 0; i < s->n_clients; i++)
        if (s->clients[i].job == job)
            return true;
    return false;
}

static int open_cache(struct server *s, const char *path, uint32_t mb, struct tl_store *c,
                      struct tl_error *err)
{
    int rc = path[0] == '\0' ? tl_error_set(err, -ENOENT, "there is no cache folder")
                             : tl_store_open(c, path, mb, err);
    for (uint32_t i = 0; rc == 0 && i < CACHES; i++) {
        if (strcmp(s->caches[i].path, path) == 0) {
            c->was_checked = s->caches[i].was_checked;
            c->unchecked_bytes = s->caches[i].unchecked_bytes;
        }
    }
    return rc;
}

static void close_cache(struct server *s, struct tl_store *c)
{
    tl_store_close(c);
    for (uint32_t i = 0; i < CACHES; i++) {
        if (strcmp(s->caches[i].path, c->path) == 0) {
            s->caches[i] = *c;
            return;
        }
    }
    s->caches[s->next_cache++ % CACHES] = *c;
}

/* The object goes into the cache; if it cannot, to the clients themselves. */
static void keep_object(struct server *s, struct job *job, int fd, uint64_t n)
{
    struct tl_error err = {0};
    struct tl_store cache;
    char path[TL_STORE_PATH + 100];
    const void *object;
    int rc = tl_jit_memory_map(fd, n, &object);
    if (rc < 0) {
        finish_job(s, job, TL_JIT_FAILED, -EIO,
                   "the compiler's worker answered with something that is no object", -1, 0);
        return;
    }
    rc = open_cache(s, job->text.cache, job->ask.cache_mb, &cache, &err);
    if (rc == 0) {
        rc = tl_store_put(&cache, &job->ask.key, object, n, path, sizeof path, &err);
        close_cache(s, &cache);
    }
    tl_jit_memory_unmap(object, n);
    if (rc == 0)
        finish_job(s, job, TL_JIT_DONE, 0, path, -1, 0);
    else
        finish_job(s, job, TL_JIT_DONE, 0, err.text, fd, n);
}

/* --- workers ---------------------------------------------------------------------------------- */

/* Forked from this process, in which LLVM is loaded and initialised but has seen nothing: that
 * takes a millisecond. */
static struct worker *start_worker(struct server *s)
{
    struct worker *w = NULL;
    int ends[2];
    for (uint32_t i = 0; i < s->options->workers && w == NULL; i++)
        if (s->workers[i].pid == 0)
            w = &s->workers[i];
    if (w == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return NULL;
    int log = memfd_create("tally-jit log", MFD_CLOEXEC);
    pid_t pid = log < 0 ? -1 : fork();
    if (pid == 0) {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        for (int i = 1; i < NSIG; i++)
            (void)sigaction(i, &plain, NULL);
        (void)sigprocmask(SIG_SETMASK, &s->waiting_mask, NULL);
        (void)fcntl(log, F_SETFL, O_APPEND);
        tl_jit_worker_run(ends[1], log, s->id);
    }
    close(ends[1]);
    if (pid < 0) {
        note(s, "no worker: %s", strerror(errno));
        close(ends[0]);
        if (log >= 0)
            close(log);
        return NULL;
    }
    *w = (struct worker){.pid = pid, .fd = ends[0], .log = log};
    return w;
}

/* Ends a worker if it has not ended itself; returns how it ended. */
static int end_worker(struct worker *w)
{
    int status = 0;
    close(w->fd);
    kill(w->pid, SIGKILL);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(w->log);
    w->pid = 0;
    return status;
}

/* The first line that a worker said before it died, printable. */
static void read_log(int log, char *line, size_t n)
{
    ssize_t got = pread(log, line, n - 1, 0);
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    for (char *p = line; *p != '\0'; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            *p = '?';
}

/* A job whose worker died is tried once more, in a new one: the cause may have been an earlier
 * job. */
static void bury_worker(struct server *s, struct worker *w)
{
    struct job *job = w->job;
    char said[300] = "", how[64], text[1000];
    read_log(w->log, said, sizeof said);
    bool is_overdue = w->is_overdue;
    int status = end_worker(w);
    if (job == NULL)
        return;
    s->n_deaths++;
    job->is_running = false;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "exit status %d", WEXITSTATUS(status));
    note(s, "kernel %.200s: the worker died at attempt %u: %s: %s", job->text.kernel,
         job->ask.attempt, how, said);
    if (is_overdue || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)) {
        snprintf(text, sizeof text,
                 "kernel %.400s: compiling it took more than %u s, and was stopped",
                 job->text.kernel, tl_jit_limit_seconds());
        finish_job(s, job, TL_JIT_FAILED, -ETIMEDOUT, text, -1, 0);
    } else if (job->ask.attempt >= 2) {
        snprintf(text, sizeof text, "kernel %.400s: the compiler died twice of it: %s%s%s",
                 job->text.kernel, how, said[0] != '\0' ? ": " : "", said);
        finish_job(s, job, TL_JIT_FAILED, -EIO, text, -1, 0);
    }
}

static void hear_worker(struct server *s, struct worker *w)
{
    struct tl_error err = {0};
    const char *text;
    int fd, n = tl_jit_receive(w->fd, s->message, sizeof s->message, &fd);
    if (n <= 0 || w->job == NULL || tl_jit_answer_check(s->message, (size_t)n, &text, &err) < 0) {
        if (fd >= 0)
            close(fd);
        bury_worker(s, w);
        return;
    }
    struct job *job = w->job;
    struct tl_jit_answer a;
    memcpy(&a, s->message, sizeof a);
    w->job = NULL;
    if (a.kind == TL_JIT_DONE && fd >= 0)
        keep_object(s, job, fd, a.object_bytes);
    else
        finish_job(s, job, TL_JIT_FAILED, a.code < 0 ? a.code : -EIO, text, -1, 0);
    if (fd >= 0)
        close(fd);
    if (w->n_jobs >= REQUESTS_PER_WORKER)
        (void)end_worker(w);
}

/* A worker for the job: an idle one, or a new one if the job has already cost one its life. */
static struct worker *find_worker(struct server *s, const struct job *job)
{
    struct worker *idle = NULL;
    for (uint32_t i = 0; i < s->options->workers; i++)
        if (s->workers[i].pid != 0 && s->workers[i].job == NULL)
            idle = &s->workers[i];
    if (idle != NULL && job->ask.attempt == 0)
        return idle;
    if (idle != NULL)
        (void)end_worker(idle);
    return start_worker(s);
}

/* Those that somebody waits for first. */
static void assign_jobs_of(struct server *s, bool is_ahead)
{
    for (struct job *job = s->jobs, *next; job != NULL; job = next) {
        next = job->next;
        if (job->is_running || job->is_ahead != is_ahead)
            continue;
        struct worker *w = find_worker(s, job);
        if (w == NULL)
            return;
        job->ask.attempt++;
        memcpy(job->message, &job->ask, sizeof job->ask);
        if (ftruncate(w->log, 0) < 0)
            note(s, "a worker's messages stay from one kernel to the next: %s", strerror(errno));
        w->job = job;
        w->n_jobs++;
        w->is_overdue = false;
        w->until_ms = tl_clock_ms() + (int64_t)tl_jit_limit_seconds() * 1000 * STUCK_FACTOR;
        job->is_running = true;
        if (tl_jit_send(w->fd, job->message, job->message_n, job->ptx) < 0)
            bury_worker(s, w); /* may end the job; `next` stays */
    }
}

static void assign_jobs(struct server *s)
{
    assign_jobs_of(s, false);
    assign_jobs_of(s, true);
}

/* --- clients ---------------------------------------------------------------------------------- */

static void answer_and_drop(struct server *s, uint32_t i, enum tl_jit_kind kind, int code,
                            const char *text)
{
    (void)tl_jit_send_answer(s->clients[i].fd, kind, code, text, -1, 0);
    drop_client(s, i);
}

static void answer_status(struct server *s, uint32_t i)
{
    char text[300];
    uint32_t workers = 0, jobs = 0;
    for (uint32_t k = 0; k < WORKERS; k++)
        workers += s->workers[k].pid != 0;
    for (struct job *job = s->jobs; job != NULL; job = job->next)
        jobs++;
    snprintf(text, sizeof text,
             "pid %ld, %u compiled, %u found, %u failed, %u deaths, %u workers, %u in work",
             (long)getpid(), s->n_compiled, s->n_found, s->n_failed, s->n_deaths, workers, jobs);
    answer_and_drop(s, i, TL_JIT_DONE, 0, text);
}

/* Another process may have had it compiled since the client looked. */
static bool is_cached(struct server *s, const struct tl_jit_ask *a,
                      const struct tl_jit_ask_text *text, char *path, size_t n)
{
    struct tl_store cache;
    if (open_cache(s, text->cache, a->cache_mb, &cache, NULL) < 0)
        return false;
    bool was_found = tl_store_find(&cache, &a->key, path, n) == 0;
    close_cache(s, &cache);
    return was_found;
}

/* Takes the descriptor over. */
static int new_job(struct server *s, const struct tl_jit_ask *a, size_t n, int ptx,
                   struct job **out)
{
    struct job *job = calloc(1, sizeof *job);
    char *message = malloc(n);
    if (job == NULL || message == NULL) {
        free(job);
        free(message);
        close(ptx);
        return -ENOMEM;
    }
    memcpy(message, s->message, n);
    *job = (struct job){.message = message, .message_n = n, .ask = *a, .ptx = ptx};
    (void)tl_jit_ask_check(message, n, &job->text, NULL); /* points into our copy now */
    job->ask.attempt = 0;
    struct job **end = &s->jobs;
    while (*end != NULL)
        end = &(*end)->next;
    *end = job;
    *out = job;
    return 0;
}

static struct job *find_job(struct server *s, const struct tl_jit_ask *a,
                            const struct tl_jit_ask_text *text)
{
    for (struct job *job = s->jobs; job != NULL; job = job->next)
        if (memcmp(&job->ask.key, &a->key, sizeof a->key) == 0 &&
            strcmp(job->text.cache, text->cache) == 0)
            return job;
    return NULL;
}

/* Begins what will be asked for later.  The client has gone already or goes now; the descriptor is
 * taken over. */
static void take_prefetch(struct server *s, uint32_t i, const struct tl_jit_ask *a,
                          const struct tl_jit_ask_text *text, size_t n, int fd)
{
    char path[TL_STORE_PATH + 100];
    uint32_t n_ahead = 0;
    struct job *job;
    for (job = s->jobs; job != NULL; job = job->next)
        n_ahead += job->is_ahead;
    bool is_wanted = n_ahead < AHEAD && find_job(s, a, text) == NULL &&
                     tl_jit_refusals_find(&s->refusals, &a->key) == NULL &&
                     !is_cached(s, a, text, path, sizeof path);
    if (!is_wanted)
        close(fd);
    else if (new_job(s, a, n, fd, &job) == 0) {
        job->is_ahead = true;
        job->ask.kind = TL_JIT_COMPILE; /* for the worker it is like any other */
    }
    drop_client(s, i);
}

/* What a client sent, with the descriptor that came along: answered from the cache, put into the
 * queue, or refused.  The descriptor is taken in any case. */
static void take_request(struct server *s, uint32_t i, size_t n, int fd)
{
    struct tl_error err = {0};
    struct tl_jit_ask a = {0};
    struct tl_jit_ask_text text;
    char path[TL_STORE_PATH + 100];
    int rc = tl_jit_ask_check(s->message, n, &text, &err);
    if (rc == 0) {
        memcpy(&a, s->message, sizeof a);
        if ((a.kind == TL_JIT_COMPILE || a.kind == TL_JIT_PREFETCH) && fd < 0)
            rc = tl_error_set(&err, -EPROTO, "kernel %.300s: its PTX did not come along",
                              text.kernel);
    }
    if (rc == 0 && a.kind == TL_JIT_PREFETCH) {
        take_prefetch(s, i, &a, &text, n, fd);
        return;
    }
    bool is_compile = rc == 0 && a.kind == TL_JIT_COMPILE;
    struct job *job = is_compile ? find_job(s, &a, &text) : NULL;
    const struct tl_jit_refusal *refusal = is_compile ? tl_jit_refusals_find(&s->refusals, &a.key)
                                                      : NULL;
    if (rc < 0) {
        answer_and_drop(s, i, TL_JIT_FAILED, rc, err.text);
    } else if (a.kind == TL_JIT_STATUS) {
        answer_status(s, i);
    } else if (a.kind == TL_JIT_STOP) {
        s->is_stopping = true;
        answer_status(s, i);
    } else if (refusal != NULL) {
        answer_and_drop(s, i, TL_JIT_FAILED, refusal->code, refusal->text);
    } else if (job == NULL && is_cached(s, &a, &text, path, sizeof path)) {
        s->n_found++;
        answer_and_drop(s, i, TL_JIT_DONE, 0, path);
    } else if (job == NULL && (rc = new_job(s, &a, n, fd, &job)) < 0) {
        fd = -1;
        answer_and_drop(s, i, TL_JIT_FAILED, rc, "the compiler service is out of memory");
    } else {
        if (job->ptx == fd)
            fd = -1; /* the job's now */
        job->is_ahead = false;
        s->clients[i].job = job;
        if (tl_jit_send_answer(s->clients[i].fd, TL_JIT_TAKEN, 0, "", -1, 0) < 0)
            drop_client(s, i);
    }
    if (fd >= 0)
        close(fd);
}

static void hear_client(struct server *s, uint32_t i)
{
    struct job *job = s->clients[i].job;
    int fd, n = tl_jit_receive(s->clients[i].fd, s->message, sizeof s->message, &fd);
    if (n == -EAGAIN)
        return;
    if (n > 0 && job == NULL) {
        take_request(s, i, (size_t)n, fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (n == -EMSGSIZE) {
        answer_and_drop(s, i, TL_JIT_FAILED, -EMSGSIZE, "the request is too long for a message");
        return;
    }
    /* Gone, or talking out of turn.  What nobody waits for any more is not begun. */
    drop_client(s, i);
    if (job != NULL && !job->is_running && !has_client(s, job))
        free_job(s, job);
}

static void accept_client(struct server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!tl_jit_peer_is_ours(fd)) {
        note(s, "somebody else's process was turned away");
        close(fd);
        return;
    }
    s->clients[s->n_clients++] = (struct client){.fd = fd, .since_ms = tl_clock_ms()};
}

/* --- the loop --------------------------------------------------------------------------------- */

static void check_clocks(struct server *s)
{
    int64_t now = tl_clock_ms();
    if (s->n_clients > 0 || s->jobs != NULL)
        s->active_ms = now;
    for (uint32_t i = s->n_clients; i-- > 0;)
        if (s->clients[i].job == NULL && now - s->clients[i].since_ms > SILENT_CLIENT_MS)
            drop_client(s, i);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &s->workers[i];
        if (w->pid != 0 && w->job != NULL && now > w->until_ms && !w->is_overdue) {
            w->is_overdue = true;
            kill(w->pid, SIGKILL);
        }
    }
    if (s->jobs == NULL && s->n_clients == 0 &&
        now - s->active_ms >= (int64_t)s->options->idle_seconds * 1000)
        s->is_stopping = true;
}

/* Waits for clients and workers, a second at most, and hands out what waits; ends when told to
 * and nothing is under way. */
static void loop(struct server *s)
{
    static struct pollfd polled[1 + WORKERS + CLIENTS];
    while (!was_signalled && !(s->is_stopping && s->jobs == NULL)) {
        uint32_t n = 0, n_workers = 0, of_worker[WORKERS], n_clients = s->n_clients;
        bool has_room = s->n_clients < CLIENTS && !s->is_stopping;
        polled[n++] = (struct pollfd){.fd = has_room ? s->listener : -1, .events = POLLIN};
        for (uint32_t i = 0; i < WORKERS; i++) {
            if (s->workers[i].pid != 0) {
                of_worker[n_workers++] = i;
                polled[n++] = (struct pollfd){.fd = s->workers[i].fd, .events = POLLIN};
            }
        }
        for (uint32_t i = 0; i < n_clients; i++)
            polled[n++] = (struct pollfd){.fd = s->clients[i].fd, .events = POLLIN};
        struct timespec second = {.tv_sec = 1};
        if (ppoll(polled, n, &second, &s->waiting_mask) < 0 && errno != EINTR) {
            note(s, "poll: %s", strerror(errno));
            return;
        }
        /* Clients first, from the end, since one that is dropped is replaced by the last.  Workers
         * drop clients as well, so they come afterwards. */
        for (uint32_t i = n_clients; i-- > 0;)
            if (polled[1 + n_workers + i].revents != 0)
                hear_client(s, i);
        for (uint32_t i = 0; i < n_workers; i++)
            if (polled[1 + i].revents != 0)
                hear_worker(s, &s->workers[of_worker[i]]);
        if (polled[0].revents != 0)
            accept_client(s);
        check_clocks(s);
        assign_jobs(s);
    }
}

/* --- beginning and end ------------------------------------------------------------------------ */

/* The descriptor leads nowhere afterwards, so that who waits there sees the end. */
static void tell_ready(const struct server *s, char what)
{
    if (s->options->ready < 0)
        return;
    if (write(s->options->ready, &what, 1) < 0)
        note(s, "nobody waited for the start");
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, s->options->ready);
        close(null);
    }
}

/* 1 if another service has the lock.  A service that ends removes its lock; who opened it just
 * before has locked a file that nobody will find, and begins again. */
static int take_lock(struct server *s, struct tl_error *err)
{
    char name[64];
    struct stat st;
    tl_jit_service_name(s->id, ".lock", name);
    for (;;) {
        s->lock = openat(s->folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (s->lock < 0)
            return tl_error_errno(err, "%s/%s", s->folder_path, name);
        if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
            return errno == EWOULDBLOCK ? 1 : tl_error_errno(err, "%s/%s", s->folder_path, name);
        if (fstat(s->lock, &st) < 0)
            return tl_error_errno(err, "%s/%s", s->folder_path, name);
        if (st.st_nlink > 0)
            return 0;
        close(s->lock);
    }
}

static int listen_there(struct server *s, struct tl_error *err)
{
    struct sockaddr_un address;
    char name[64];
    tl_jit_service_name(s->id, ".sock", name);
    tl_jit_address(&address, s->folder, s->folder_path, name);
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0)
        return tl_error_errno(err, "socket");
    (void)unlinkat(s->folder, name, 0); /* left by one that was killed: we have the lock */
    mode_t old = umask(077);
    int rc = bind(s->listener, (struct sockaddr *)&address, sizeof address);
    umask(old);
    if (rc < 0 || listen(s->listener, 128) < 0)
        return tl_error_errno(err, "%s/%s", s->folder_path, name);
    return 0;
}

static void handle_signals(struct server *s)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct sigaction stop = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaction(numbers[i], &stop, NULL);
        sigaddset(&blocked, numbers[i]);
    }
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL); /* a full disk is an error of write */
    sigprocmask(SIG_BLOCK, &blocked, &s->waiting_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigdelset(&s->waiting_mask, numbers[i]);
}

static int serve(struct server *s, struct tl_error *err)
{
    int rc = take_lock(s, err);
    if (rc > 0) {
        note(s, "another service is there already");
        tell_ready(s, 'B');
        return 0;
    }
    if (rc == 0)
        rc = tl_jit_init(err);
    if (rc == 0)
        rc = listen_there(s, err);
    if (rc < 0)
        return rc;
    handle_signals(s);
    tell_ready(s, 'R');
    note(s, "listening in %s, %u workers", s->folder_path, s->options->workers);
    s->active_ms = tl_clock_ms();
    loop(s);
    /* The name goes first; who has connected already finds the socket closed and starts the next
     * service. */
    char name[64];
    tl_jit_service_name(s->id, ".sock", name);
    (void)unlinkat(s->folder, name, 0);
    close(s->listener);
    s->listener = -1;
    tl_jit_service_name(s->id, ".lock", name);
    (void)unlinkat(s->folder, name, 0);
    note(s, "ending");
    return 0;
}

int tl_jit_server_run(const struct tl_jit_server_options *options, struct tl_error *err)
{
    static struct server s; /* one per process; large */
    s = (struct server){.options = options, .folder = -1, .lock = -1, .listener = -1};
    int rc = tl_jit_compiler_id(options->program, s.id, err);
    if (rc < 0)
        return rc;
    s.folder = tl_jit_runtime_folder(s.folder_path, err);
    rc = s.folder < 0 ? s.folder : serve(&s, err);
    while (s.n_clients > 0)
        drop_client(&s, 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (s.workers[i].pid != 0)
            (void)end_worker(&s.workers[i]);
    while (s.jobs != NULL)
        free_job(&s, s.jobs);
    tl_jit_refusals_finish(&s.refusals);
    const int fds[] = {s.listener, s.lock, s.folder};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

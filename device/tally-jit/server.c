/* The compiler service: one process that waits, and workers that compile.
 *
 * This process never touches PTX: it passes descriptors on, counts what dies, and writes objects
 * into the cache.  It is single-threaded; all state is in struct server.  Requests for the same key
 * are one job, so that eight processes that start at once compile a kernel once.  queue.c has the
 * order of jobs, workers.c the processes. */
#include "device/tally-jit/internal.h"
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SILENT_CLIENT_MS = 30000,
    AHEAD = 64, /* jobs at most that nobody waits for */
};

static volatile sig_atomic_t was_signalled;

static void on_signal(int number)
{
    (void)number;
    was_signalled = 1;
}

void jit_note(const struct server *s, const char *format, ...)
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

void jit_finish_job(struct server *s, struct job *job, enum tl_jit_kind kind, int code,
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
        jit_note(s, "%s", text);
    } else {
        s->n_compiled++;
        jit_note(s, "kernel %.300s: compiled to %s", job->text.kernel, fd < 0 ? text : "memory");
    }
    jit_free_job(s, job);
}

int jit_open_cache(struct server *s, const char *path, uint32_t mb, struct tl_store *c,
                   struct tl_error *err)
{
    int rc = path[0] == '\0' ? tl_error_set(err, -ENOENT, "there is no cache folder")
                             : tl_store_open(c, s->options->cache, mb, err);
    if (rc == 0) {
        c->was_checked = s->cache.was_checked;
        c->unchecked_bytes = s->cache.unchecked_bytes;
    }
    return rc;
}

void jit_close_cache(struct server *s, struct tl_store *c)
{
    tl_store_close(c);
    s->cache = *c;
}

void jit_keep_object(struct server *s, struct job *job, int fd, uint64_t n)
{
    struct tl_error err = {0};
    struct tl_store cache;
    char path[TL_STORE_PATH + 100];
    const void *object;
    int rc = tl_jit_memory_map(fd, n, &object);
    if (rc < 0) {
        jit_finish_job(s, job, TL_JIT_FAILED, -EIO,
                       "the compiler's worker answered with something that is no object", -1, 0);
        return;
    }
    rc = jit_open_cache(s, job->text.cache, job->ask.cache_mb, &cache, &err);
    if (rc == 0) {
        rc = tl_store_put(&cache, &job->ask.key, object, n, path, sizeof path, &err);
        jit_close_cache(s, &cache);
    }
    tl_jit_memory_unmap(object, n);
    if (rc == 0)
        jit_finish_job(s, job, TL_JIT_DONE, 0, path, -1, 0);
    else
        jit_finish_job(s, job, TL_JIT_DONE, 0, err.text, fd, n);
}

/* --- names ------------------------------------------------------------------------------------ */

static void name_of(const struct server *s, const char *suffix, char name[64])
{
    tl_jit_service_name(s->id, s->options->cache, suffix, name);
}

/* Gives the names up, so that another service can have them.  The socket's goes first; who has
 * connected already finds it closed and starts the next service. */
static void leave(struct server *s)
{
    char name[64];
    if (s->listener < 0)
        return;
    name_of(s, ".sock", name);
    (void)unlinkat(s->folder, name, 0);
    close(s->listener);
    s->listener = -1;
    name_of(s, ".lock", name);
    (void)unlinkat(s->folder, name, 0);
    close(s->lock);
    s->lock = -1;
}

/* --- clients ---------------------------------------------------------------------------------- */

static void answer_and_drop(struct server *s, uint32_t i, enum tl_jit_kind kind, int code,
                            const char *text)
{
    (void)tl_jit_send_answer(s->clients[i].fd, kind, code, text, -1, 0);
    drop_client(s, i);
}

static void send_status(struct server *s, uint32_t i)
{
    char text[300];
    uint32_t workers = 0, aside = 0, jobs = 0;
    for (uint32_t k = 0; k < WORKERS; k++) {
        workers += s->workers[k].pid != 0;
        aside += s->workers[k].pid != 0 && s->workers[k].aside_ms != 0;
    }
    for (struct job *job = s->jobs; job != NULL; job = job->next)
        jobs++;
    snprintf(text, sizeof text,
             "pid %ld, %u compiled, %u found, %u failed, %u deaths, %u workers, %u in work, %u put "
             "aside, %u functions of quick versions, %u of them new",
             (long)getpid(), s->n_compiled, s->n_found, s->n_failed, s->n_deaths, workers, jobs,
             aside, s->shelf.keys.n, s->shelf.keys.n - s->shelf.n_loaded);
    (void)tl_jit_send_answer(s->clients[i].fd, TL_JIT_DONE, 0, text, -1, 0);
}

/* Another process may have had it compiled since the client looked. */
static bool is_cached(struct server *s, const struct tl_jit_ask *a,
                      const struct tl_jit_ask_text *text, char *path, size_t n)
{
    struct tl_store cache;
    if (jit_open_cache(s, text->cache, a->cache_mb, &cache, NULL) < 0)
        return false;
    bool was_found = tl_store_find(&cache, &a->key, path, n) == 0;
    jit_close_cache(s, &cache);
    return was_found;
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
    else
        (void)jit_new_job(s, a, n, fd, &job);
    drop_client(s, i);
}

/* Whether what is asked for can be begun: 0, or a negative errno value with why not. */
static int check_request(const struct server *s, const struct tl_jit_ask *a,
                         const struct tl_jit_ask_text *text, int fd, struct tl_error *err)
{
    if (fd < 0)
        return tl_error_set(err, -EPROTO, "kernel %.300s: its PTX did not come along",
                            text->kernel);
    if (text->cache[0] != '\0' && strcmp(text->cache, s->options->cache) != 0)
        return tl_error_set(err, -EPERM,
                            "kernel %.300s: this compiler service keeps kernels in %s and nowhere "
                            "else, so not in %.500s",
                            text->kernel, s->options->cache, text->cache);
    if (s->no_sandbox[0] != '\0' && (a->flags & TL_JIT_CLOSED) != 0)
        return tl_error_set(err, -EPERM,
                            "kernel %.300s: not compiled, as TALLY_FAIL=closed wants it: %s",
                            text->kernel, s->no_sandbox);
    return 0;
}

/* Who runs as somebody less nice than this process is not served by it: what one job has waited
 * for in vain, others need not.  If the niceness cannot be lowered, the name is given up, and the
 * client starts a service that is as he is; what is under way here is finished. */
static bool is_too_nice_for(struct server *s, uint32_t i)
{
    struct ucred who;
    socklen_t n = sizeof who;
    if (getsockopt(s->clients[i].fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.pid <= 0)
        return false;
    errno = 0;
    int theirs = getpriority(PRIO_PROCESS, (id_t)who.pid), ours = getpriority(PRIO_PROCESS, 0);
    if (errno != 0 || theirs >= ours)
        return false;
    if (setpriority(PRIO_PROCESS, 0, theirs) == 0)
        return false;
    jit_note(s, "makes way for a service of niceness %d", theirs);
    leave(s);
    s->is_stopping = true;
    return true;
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
        if (a.kind == TL_JIT_COMPILE || a.kind == TL_JIT_PREFETCH)
            rc = check_request(s, &a, &text, fd, &err);
    }
    if (rc == 0 && a.kind == TL_JIT_COMPILE && is_too_nice_for(s, i)) {
        close(fd);
        drop_client(s, i);
        return;
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
        send_status(s, i);
        drop_client(s, i);
    } else if (a.kind == TL_JIT_STOP) {
        s->is_stopping = s->is_told = s->clients[i].waits_for_end = true;
        send_status(s, i);
    } else if (refusal != NULL) {
        answer_and_drop(s, i, TL_JIT_FAILED, refusal->code, refusal->text);
    } else if (job == NULL && is_cached(s, &a, &text, path, sizeof path)) {
        s->n_found++;
        answer_and_drop(s, i, TL_JIT_DONE, 0, path);
    } else if (job == NULL && (rc = jit_new_job(s, &a, n, fd, &job)) < 0) {
        fd = -1;
        answer_and_drop(s, i, TL_JIT_FAILED, rc, "the compiler service is out of memory");
    } else {
        if (job->ptx == fd)
            fd = -1; /* the job's now */
        s->clients[i].job = job;
        s->clients[i].level = a.level;
        jit_set_level(s, job);
        if (tl_jit_send_answer(s->clients[i].fd, TL_JIT_TAKEN, 0, s->no_sandbox, -1, 0) < 0)
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
    if (job == NULL)
        return;
    jit_set_level(s, job);
    if (!job->is_running && job->is_ahead)
        jit_free_job(s, job);
}

static void accept_client(struct server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!tl_jit_peer_is_ours(fd)) {
        jit_note(s, "somebody else's process was turned away");
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
        if (s->clients[i].job == NULL && !s->clients[i].waits_for_end &&
            now - s->clients[i].since_ms > SILENT_CLIENT_MS)
            drop_client(s, i);
    jit_check_workers(s, now);
    jit_shelf_save(s, false);
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
            jit_note(s, "poll: %s", strerror(errno));
            return;
        }
        /* Clients first, from the end, since one that is dropped is replaced by the last.  Workers
         * drop clients as well, so they come afterwards. */
        for (uint32_t i = n_clients; i-- > 0;)
            if (polled[1 + n_workers + i].revents != 0)
                hear_client(s, i);
        for (uint32_t i = 0; i < n_workers; i++)
            if (polled[1 + i].revents != 0)
                jit_hear_worker(s, &s->workers[of_worker[i]]);
        if (polled[0].revents != 0)
            accept_client(s);
        check_clocks(s);
        if (s->is_told)
            jit_forget_ahead(s);
        jit_assign_jobs(s);
    }
}

/* --- beginning and end ------------------------------------------------------------------------ */

/* The descriptor leads nowhere afterwards, so that who waits there sees the end. */
static void tell_ready(const struct server *s, char what)
{
    if (s->options->ready < 0)
        return;
    if (write(s->options->ready, &what, 1) < 0)
        jit_note(s, "nobody waited for the start");
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
    name_of(s, ".lock", name);
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
    name_of(s, ".sock", name);
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
    struct tl_error apart = {0};
    int rc = take_lock(s, err);
    if (rc > 0) {
        jit_note(s, "another service is there already");
        tell_ready(s, 'B');
        return 0;
    }
    if (rc == 0)
        rc = tl_jit_init(err);
    if (rc == 0 && tl_jit_worker_probe(&apart) < 0)
        snprintf(s->no_sandbox, sizeof s->no_sandbox, "%s", apart.text);
    if (rc == 0)
        rc = listen_there(s, err);
    if (rc < 0)
        return rc;
    handle_signals(s);
    jit_shelf_init(s);
    tell_ready(s, 'R');
    if (s->no_sandbox[0] != '\0')
        jit_note(s, "%s", s->no_sandbox);
    jit_note(s, "listening in %s, %u workers", s->folder_path, s->options->workers);
    s->active_ms = tl_clock_ms();
    loop(s);
    leave(s);
    jit_shelf_save(s, true);
    jit_note(s, "ending");
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
    for (uint32_t i = 0; i < WORKERS; i++)
        if (s.workers[i].pid != 0)
            (void)jit_end_worker(&s.workers[i]);
    while (s.n_clients > 0) /* some wait for just that */
        drop_client(&s, 0);
    while (s.jobs != NULL)
        jit_free_job(&s, s.jobs);
    tl_jit_refusals_finish(&s.refusals);
    jit_shelf_finish(&s);
    const int fds[] = {s.listener, s.lock, s.folder};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

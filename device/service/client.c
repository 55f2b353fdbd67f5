/* The driver's side of the compiler service; see the header. */
#include "device/service/client.h"
#include "device/service/key.h"
#include "device/service/progress.h"
#include "device/service/refusals.h"
#include "device/service/wire.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/level.h"
#include "tally/lock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* How long a started service may take until it answers. */
#define START_MS 20000
#define RESTART_MS 200
/* How often who waits looks whether the service is stopped. */
#define ROUSE_MS 1000

/* One request on its way. */
struct request {
    struct tl_jit_source source;
    enum tl_jit_kind kind;
    int level;         /* of this job */
    const char *home;  /* the folder that the environment names for kernels; empty: none */
    const char *cache; /* the same if it can be used, else empty */
    struct tl_store_key key;
    char program[1024]; /* of the service */
    char id[TL_JIT_COMPILER_ID_BYTES];
    struct tl_error *err, *why; /* why: there is no cache */
};

/* --- where the service is --------------------------------------------------------------------- */

/* The build id of the program last asked about; reading it costs more than stat does. */
static struct tl_mutex id_lock = TL_MUTEX_INITIALIZER;
static struct {
    char program[1024];
    struct stat st;
    char id[TL_JIT_COMPILER_ID_BYTES];
} known TL_GUARDED_BY(id_lock);

static int identify(struct request *r, const struct stat *st)
{
    tl_mutex_lock(&id_lock);
    bool is_known = strcmp(known.program, r->program) == 0 && known.st.st_dev == st->st_dev &&
                    known.st.st_ino == st->st_ino && known.st.st_size == st->st_size &&
                    memcmp(&known.st.st_mtim, &st->st_mtim, sizeof st->st_mtim) == 0;
    int rc = is_known ? 0 : tl_jit_compiler_id(r->program, known.id, r->err);
    if (rc == 0) {
        if (!is_known) {
            strcpy(known.program, r->program);
            known.st = *st;
        }
        memcpy(r->id, known.id, sizeof r->id);
    } else {
        known.program[0] = '\0';
    }
    tl_mutex_unlock(&id_lock);
    return rc;
}

/* The folder of the library that this code is in, as it was when it was loaded: its path may be
 * relative, and the job may change its folder later. */
static char own_folder[1024];

static void __attribute__((constructor)) remember_folder(void)
{
    Dl_info here;
    char *path = dladdr((const void *)&known, &here) != 0 ? realpath(here.dli_fname, NULL) : NULL;
    char *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash != NULL && (size_t)(slash - path) < sizeof own_folder)
        memcpy(own_folder, path, (size_t)(slash - path));
    free(path);
}

/* TALLY_JIT, or a place beside the library: build/lib/tally/device/libcuda.so.1 has it in
 * build/bin, an installed one in PREFIX/bin or PREFIX/libexec. */
static int find_program(struct request *r)
{
    static const char *const places[] = {"../../../bin/tally-jit",
                                         "../../../libexec/tally/tally-jit",
                                         "../../../libexec/tally-jit", "../bin/tally-jit"};
    const char *asked = secure_getenv("TALLY_JIT");
    struct stat st;
    if (asked != NULL && asked[0] != '\0') {
        /* absolute, since the service starts in another folder */
        char *path = realpath(asked, NULL);
        if (path == NULL)
            return tl_error_errno(r->err, "kernel %.300s: the compiler service TALLY_JIT=%s",
                                  r->source.kernel, asked);
        int n = snprintf(r->program, sizeof r->program, "%s", path);
        free(path);
        if ((size_t)n >= sizeof r->program)
            return tl_error_set(r->err, -ENAMETOOLONG, "TALLY_JIT is too long a path");
        if (stat(r->program, &st) < 0)
            return tl_error_errno(r->err, "kernel %.300s: the compiler service TALLY_JIT=%s",
                                  r->source.kernel, asked);
        return identify(r, &st);
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int n = snprintf(r->program, sizeof r->program, "%s/%s", own_folder, places[i]);
        if (n > 0 && (size_t)n < sizeof r->program && stat(r->program, &st) == 0)
            return identify(r, &st);
    }
    return tl_error_set(
        r->err, -ENOENT,
        "kernel %.300s: there is no compiler service (tally-jit) beside %s; set TALLY_JIT",
        r->source.kernel, own_folder);
}

/* --- starting it ------------------------------------------------------------------------------ */

/* Only what the service knows: no preloads, library paths or settings of the job.  A sanitizer in
 * it may tell where its report goes. */
static bool is_for_service(const char *variable)
{
    static const char *const prefixes[] = {"TALLY_", "HOME=", "XDG_CACHE_HOME=", "XDG_RUNTIME_DIR=",
                                           "PATH=",  "LANG=", "ASAN_OPTIONS=",   "TSAN_OPTIONS="};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static char **make_environment(void)
{
    size_t n = 0, kept = 0;
    while (environ != NULL && environ[n] != NULL)
        n++;
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < n && environ[i] != NULL; i++)
        if (is_for_service(environ[i]))
            list[kept++] = environ[i];
    return list;
}

static int wait_readable(int fd, int64_t until_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        int64_t left = until_ms - tl_clock_ms();
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return 0;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/* Returns 1 when the service listens or says that another one does, 0 if it ended without a word or
 * is slow. */
static int start_service(struct request *r, int64_t until_ms)
{
    static char name[] = "tally-jit", option[] = "--started";
    char cache[TL_STORE_PATH + 16];
    char *const arguments[] = {name, option, cache, NULL};
    int ready[2];
    char byte;
    snprintf(cache, sizeof cache, "--cache=%s", r->home);
    if (pipe2(ready, O_CLOEXEC) < 0)
        return tl_error_errno(r->err, "starting %s: pipe", r->program);
    char **environment = make_environment();
    int rc = environment != NULL ? tl_start_detached(r->program, arguments, environment, ready[1])
                                 : -ENOMEM;
    free(environment);
    close(ready[1]);
    if (rc < 0) {
        errno = -rc;
        rc = tl_error_errno(r->err, "kernel %.300s: the compiler service %s could not be started",
                            r->source.kernel, r->program);
    } else if (wait_readable(ready[0], until_ms) == 0) {
        ssize_t n;
        do
            n = read(ready[0], &byte, 1);
        while (n < 0 && errno == EINTR);
        rc = n == 1;
    }
    close(ready[0]);
    return rc;
}

/* --- talking to it ---------------------------------------------------------------------------- */

static int try_connect(const struct request *r, struct tl_error *err)
{
    char path[TL_STORE_PATH], name[64];
    struct sockaddr_un address;
    int folder = tl_jit_runtime_folder(path, err);
    if (folder < 0)
        return folder;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;
    if (fd < 0) {
        rc = tl_error_errno(err, "socket");
        close(folder);
        return rc;
    }
    tl_jit_service_name(r->id, r->home, ".sock", name);
    tl_jit_address(&address, folder, path, name);
    do
        rc = connect(fd, (struct sockaddr *)&address, sizeof address);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        rc = tl_error_errno(err, "the compiler service's socket %s/%s", path, name);
    else if (!tl_jit_peer_is_ours(fd))
        rc = tl_error_set(err, -EPERM, "the compiler service at %s/%s is somebody else's", path,
                          name);
    close(folder);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return fd;
}

/* A socket to a running service, which is started if need be. */
static int reach_service(struct request *r)
{
    struct tl_error why;
    int64_t begin_ms = tl_clock_ms(), started_ms = 0;
    for (int failures = 0;;) {
        int fd = try_connect(r, &why);
        if (fd >= 0)
            return fd;
        if (fd != -ENOENT && fd != -ECONNREFUSED && fd != -EAGAIN)
            return tl_error_set(r->err, fd, "kernel %.300s: %s", r->source.kernel, why.text);
        int64_t now = tl_clock_ms();
        if (now - begin_ms > START_MS)
            return tl_error_set(r->err, -ETIMEDOUT,
                                "kernel %.300s: the compiler service %s does not answer",
                                r->source.kernel, r->program);
        if (started_ms == 0 || now - started_ms > RESTART_MS) {
            int rc = start_service(r, begin_ms + START_MS);
            if (rc < 0)
                return rc;
            failures += rc == 0;
            started_ms = now;
            if (failures == 3)
                return tl_error_set(
                    r->err, -EIO,
                    "kernel %.300s: the compiler service %s ends as soon as it is started; "
                    "%s --foreground tells why",
                    r->source.kernel, r->program, r->program);
        } else {
            /* Another one that was started at the same time has the lock and is not ready yet, or
             * is about to end. Both are over within milliseconds. */
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
    }
}

/* TALLY_FAIL=closed: rather an error than less than was promised. */
static bool is_closed(void)
{
    const char *text = secure_getenv("TALLY_FAIL");
    return text != NULL && strcmp(text, "closed") == 0;
}

/* The message, the caller's to free. */
static char *make_ask(const struct request *r, size_t *n)
{
    const char *texts[4] = {r->source.kernel, r->source.cpu, r->source.features, r->cache};
    uint32_t lengths[4];
    size_t total = sizeof(struct tl_jit_ask);
    for (int i = 0; i < 4; i++) {
        texts[i] = texts[i] != NULL ? texts[i] : "";
        lengths[i] = (uint32_t)strlen(texts[i]) + 1;
        total += lengths[i];
    }
    struct tl_jit_ask a = {.magic = TL_JIT_WIRE_MAGIC,
                           .version = TL_JIT_WIRE_VERSION,
                           .kind = (uint32_t)r->kind,
                           .block = {r->source.block[0], r->source.block[1], r->source.block[2]},
                           .cache_mb = tl_store_limit_mb(),
                           .ptx_bytes = r->source.ptx_n,
                           .level = r->level,
                           .flags = (is_closed() ? TL_JIT_CLOSED : 0) |
                                    (r->source.is_quick ? TL_JIT_QUICK : 0),
                           .key = r->key,
                           .kernel_bytes = lengths[0],
                           .cpu_bytes = lengths[1],
                           .features_bytes = lengths[2],
                           .cache_bytes = lengths[3]};
    char *message = total <= TL_JIT_MESSAGE_BYTES ? malloc(total) : NULL;
    if (message == NULL)
        return NULL;
    memcpy(message, &a, sizeof a);
    char *p = message + sizeof a;
    for (int i = 0; i < 4; i++) {
        memcpy(p, texts[i], lengths[i]);
        p += lengths[i];
    }
    *n = total;
    return message;
}

/* Objects that are in no cache, by key; the descriptors stay open, because the loader knows objects
 * by their paths. */
static struct tl_mutex loose_lock = TL_MUTEX_INITIALIZER;
static struct loose {
    struct loose *next;
    struct tl_store_key key;
    int fd;
} * loose_objects TL_GUARDED_BY(loose_lock);
/* Why there is no cache, and that the compiler is not kept apart. */
static bool was_told TL_GUARDED_BY(loose_lock), was_remarked TL_GUARDED_BY(loose_lock);

/* What the service finds wrong with itself is told once. */
static void remark(const struct request *r, const char *text)
{
    tl_mutex_lock(&loose_lock);
    if (!was_remarked)
        tl_error_set(r->err, 0, "%s", text);
    was_remarked = true;
    tl_mutex_unlock(&loose_lock);
}

static int loose_path(int fd, char *path, size_t path_n)
{
    int n = snprintf(path, path_n, "/proc/self/fd/%d", fd);
    return n < 0 || (size_t)n >= path_n ? -ENAMETOOLONG : 0;
}

static int find_loose(const struct tl_store_key *key, char *path, size_t path_n)
{
    int rc = -ENOENT;
    tl_mutex_lock(&loose_lock);
    for (struct loose *l = loose_objects; l != NULL && rc == -ENOENT; l = l->next)
        if (memcmp(&l->key, key, sizeof *key) == 0)
            rc = loose_path(l->fd, path, path_n);
    tl_mutex_unlock(&loose_lock);
    return rc;
}

/* Takes the descriptor over, or closes it if it failed or another thread was faster. */
static int keep_loose(const struct request *r, int fd, const char *why, char *path, size_t path_n)
{
    struct loose *new = malloc(sizeof *new);
    if (new == NULL) {
        close(fd);
        return tl_error_set(r->err, -ENOMEM, "kernel %.300s: out of memory", r->source.kernel);
    }
    if (find_loose(&r->key, path, path_n) == 0) {
        free(new);
        close(fd);
        return 0;
    }
    tl_mutex_lock(&loose_lock);
    *new = (struct loose){.next = loose_objects, .key = r->key, .fd = fd};
    loose_objects = new;
    bool is_to_be_told = !was_told && r->err->text[0] == '\0'; /* one thing at a time */
    if (is_to_be_told)
        /* The service knows no reason if it was not even told a folder. */
        tl_error_set(r->err, 0, "compiled kernels are not kept: %s",
                     r->cache[0] != '\0' ? why : r->why->text);
    was_told |= is_to_be_told;
    tl_mutex_unlock(&loose_lock);
    return loose_path(fd, path, path_n);
}

static struct tl_mutex refusals_lock = TL_MUTEX_INITIALIZER;
static struct tl_jit_refusals refusals TL_GUARDED_BY(refusals_lock);

/* 0 if nothing is known against the kernel. */
static int recall_refusal(const struct request *r)
{
    tl_mutex_lock(&refusals_lock);
    const struct tl_jit_refusal *known_bad = tl_jit_refusals_find(&refusals, &r->key);
    int rc = known_bad != NULL ? tl_error_set(r->err, known_bad->code, "%s", known_bad->text) : 0;
    tl_mutex_unlock(&refusals_lock);
    return rc;
}

static int remember_refusal(const struct request *r, int code, const char *text)
{
    tl_mutex_lock(&refusals_lock);
    tl_jit_refusals_add(&refusals, &r->key, code, text);
    tl_mutex_unlock(&refusals_lock);
    return tl_error_set(r->err, code, "%s", text);
}

/* The service is this user's own, and stands for nobody's job: if it is stopped (SIGSTOP), all who
 * want a kernel would wait for good.  It is told to go on. */
static void rouse(int service)
{
    struct ucred who;
    socklen_t n = sizeof who;
    char path[64], text[256];
    if (getsockopt(service, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0 || who.pid <= 1 ||
        who.uid != geteuid())
        return; /* a number of 0: in a namespace that cannot be seen from here */
    snprintf(path, sizeof path, "/proc/%d/stat", (int)who.pid);
    if (tl_file_head(path, text, sizeof text) <= 0 || strstr(text, " (tally-jit") == NULL)
        return;
    const char *state = strrchr(text, ')');
    if (state != NULL && strncmp(state, ") T", 3) == 0)
        (void)kill(who.pid, SIGCONT);
}

/* Waits for answers.  0 with the path; -EPIPE if the service went away, with *was_taken telling
 * whether it had the request; else what it answered. */
static int hear_answers(const struct request *r, int service, bool *was_taken, char *path,
                        size_t path_n)
{
    char message[TL_JIT_MESSAGE_BYTES];
    for (;;) {
        const char *text;
        while (!tl_jit_progress_wait(service, ROUSE_MS))
            rouse(service);
        int fd, n = tl_jit_receive(service, message, sizeof message, &fd);
        if (n == 0)
            return -EPIPE;
        int rc = n < 0 ? tl_error_set(r->err, n, "kernel %.300s: the compiler service: %s",
                                      r->source.kernel, strerror(-n))
                       : tl_jit_answer_check(message, (size_t)n, &text, r->err);
        if (rc < 0) {
            if (fd >= 0)
                close(fd);
            return rc;
        }
        struct tl_jit_answer a;
        memcpy(&a, message, sizeof a);
        if (a.kind == TL_JIT_DONE && fd >= 0)
            return keep_loose(r, fd, text, path, path_n);
        if (fd >= 0)
            close(fd);
        if (a.kind == TL_JIT_FAILED)
            return remember_refusal(r, a.code < 0 ? a.code : -EIO, text);
        if (a.kind == TL_JIT_DONE) {
            if (strlen(text) >= path_n)
                return tl_error_set(r->err, -ENAMETOOLONG,
                                    "kernel %.300s: the path of the compiled kernel is too long",
                                    r->source.kernel);
            strcpy(path, text);
            return 0;
        }
        *was_taken = true;
        if (text[0] != '\0')
            remark(r, text);
    }
}

/* Asks until there is an answer: a service that went away is started again, but not for ever.  It
 * compiles in processes of its own, whose deaths it survives and tells of; if it goes away itself
 * with the kernel in work, somebody killed it, or the kernel did in a way that nobody knows yet.
 * 0 and the object's path, or -errno with why. */
static int ask_service(struct request *r, char *path, size_t path_n)
{
    size_t n = 0;
    char *message = make_ask(r, &n);
    if (message == NULL)
        return tl_error_set(r->err, -ENOMEM,
                            "kernel %.200s: out of memory, or its name or options are too long",
                            r->source.kernel);
    int rc, memory = tl_jit_memory("ptx", r->source.ptx, r->source.ptx_n);
    if (memory < 0) {
        free(message);
        errno = -memory;
        return tl_error_errno(r->err, "kernel %.300s: memory for its PTX", r->source.kernel);
    }
    enum { DEATHS = 8, TRIES = 20 };
    /* A service that ends before it has taken the request was idle or is being replaced; one that
     * ends afterwards may have been killed by the request. */
    int deaths = 0;
    for (int tries = 0;; tries++) {
        bool was_taken = false;
        int service = reach_service(r);
        if (service < 0) {
            rc = service;
            break;
        }
        rc = tl_jit_send(service, message, n, memory);
        if (rc == 0)
            rc = hear_answers(r, service, &was_taken, path, path_n);
        close(service);
        if (rc != -EPIPE && rc != -ECONNRESET)
            break;
        deaths += was_taken;
        if (deaths == DEATHS || tries == TRIES) {
            rc = tl_error_set(r->err, -EIO,
                              "kernel %.300s: the compiler service died %d times while it had it: "
                              "killed, or by a mistake of ours (tally-jit status says where its "
                              "log is)",
                              r->source.kernel, deaths);
            break;
        }
    }
    close(memory);
    free(message);
    return rc;
}

/* The request's object in the cache or among those of this process.  0 or -ENOENT. */
static int find_object(struct request *r, char *path, size_t path_n, struct tl_error *why)
{
    struct tl_store cache;
    r->key = tl_jit_key_of(&r->source);
    int rc = r->home[0] == '\0' ? -ENOENT
                                : tl_store_open(&cache, r->home, tl_store_limit_mb(), why);
    if (rc == 0) {
        rc = tl_store_find(&cache, &r->key, path, path_n);
        tl_store_close(&cache);
        r->cache = r->home;
    }
    return rc == 0 || find_loose(&r->key, path, path_n) == 0 ? 0 : -ENOENT;
}

/* Fills in who compiles and under which key.  `why` tells why there is no cache, if r->cache stays
 * empty; `folder` is the caller's memory for its path.  0 if the object is there already, 1 if it
 * has to be compiled, a negative errno value. */
static int look_up(struct request *r, char folder[TL_STORE_PATH], char *path, size_t path_n,
                   struct tl_error *why)
{
    if (r->source.ptx_n > TL_JIT_PTX_BYTES)
        return tl_error_set(r->err, -E2BIG, "kernel %.300s: %zu bytes of PTX are more than %u",
                            r->source.kernel, r->source.ptx_n, TL_JIT_PTX_BYTES);
    int rc = find_program(r);
    if (rc < 0)
        return rc;
    r->source.compiler = r->id;
    rc = tl_store_folder(folder, why);
    if (rc < 0)
        folder[0] = '\0';
    r->home = folder;
    if (find_object(r, path, path_n, why) == 0)
        return 0;
    rc = recall_refusal(r);
    return rc < 0 ? rc : 1;
}

/* TALLY_PRIORITY, or 0: who says nonsense is told so by what reads the settings. */
static int own_level(void)
{
    const char *text = secure_getenv("TALLY_PRIORITY");
    int level = 0;
    if (text != NULL)
        (void)tl_level_parse(text, &level);
    return level;
}

static struct request make_request(enum tl_jit_kind kind, const char *ptx, size_t n,
                                   const char *kernel, const uint32_t block[3],
                                   struct tl_error *err)
{
    return (struct request){.source = {.ptx = ptx,
                                       .ptx_n = n,
                                       .kernel = kernel,
                                       .block = {block[0], block[1], block[2]},
                                       .cpu = secure_getenv("TALLY_JIT_CPU"),
                                       .features = secure_getenv("TALLY_JIT_FEATURES")},
                            .kind = kind,
                            .level = own_level(),
                            .home = "",
                            .cache = "",
                            .err = err};
}

/* Looks for the kernel, or else, with `is_quick`, for its quick version, and has compiled what is
 * in no cache. */
static int get(const char *ptx, size_t n, const char *kernel, const uint32_t block[3], char *path,
               size_t path_n, bool *is_quick, struct tl_error *err)
{
    struct tl_error own, why = {0}; /* why there is no cache */
    char folder[TL_STORE_PATH];
    struct request r = make_request(TL_JIT_COMPILE, ptx, n, kernel, block,
                                    err != NULL ? err : &own);
    r.why = &why;
    int rc = look_up(&r, folder, path, path_n, &why);
    if (is_quick != NULL)
        *is_quick = r.source.is_quick = rc == 1;
    if (r.source.is_quick && find_object(&r, path, path_n, &why) == 0)
        rc = 0;
    else if (r.source.is_quick && (rc = recall_refusal(&r)) == 0)
        rc = 1;
    if (rc <= 0) {
        if (rc == 0)
            tl_error_set(err, 0, "%s", "");
        return rc;
    }
    tl_error_set(r.err, 0, "%s", "");
    tl_jit_progress_begin(&r.key);
    rc = ask_service(&r, path, path_n);
    tl_jit_progress_end(&r.key);
    return rc;
}

int tl_jit_client_get(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                      char *path, size_t path_n, struct tl_error *err)
{
    return get(ptx, n, kernel, block, path, path_n, NULL, err);
}

int tl_jit_client_get_soon(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                           char *path, size_t path_n, bool *is_quick, struct tl_error *err)
{
    return get(ptx, n, kernel, block, path, path_n, is_quick, err);
}

int tl_jit_client_improved(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                           char *path, size_t path_n)
{
    struct tl_error err = {0}, why = {0};
    char folder[TL_STORE_PATH];
    struct request r = make_request(TL_JIT_COMPILE, ptx, n, kernel, block, &err);
    int rc = look_up(&r, folder, path, path_n, &why);
    return rc == 1 ? -ENOENT : rc;
}

/* 0: the service was told; -ENOENT: there is no cache, so nobody would find it; another negative
 * errno value. */
static int ask_ahead(const char *ptx, size_t n, const char *kernel, const uint32_t block[3],
                     bool is_last)
{
    struct tl_error err, why;
    char folder[TL_STORE_PATH], path[TL_STORE_PATH + 100];
    struct request r = make_request(TL_JIT_PREFETCH, ptx, n, kernel, block, &err);
    size_t message_n = 0;
    r.level = is_last ? TL_LEVEL_MIN : r.level;
    int rc = look_up(&r, folder, path, sizeof path, &why);
    if (rc <= 0)
        return rc;
    if (r.cache[0] == '\0')
        return -ENOENT;
    int service = try_connect(&r, &err);
    if (service == -ENOENT || service == -ECONNREFUSED) {
        if (start_service(&r, tl_clock_ms() + START_MS) <= 0)
            return -ECONNREFUSED;
        service = try_connect(&r, &err);
    }
    if (service < 0)
        return service;
    char *message = make_ask(&r, &message_n);
    int memory = message != NULL ? tl_jit_memory("ptx", ptx, n) : -ENOMEM;
    rc = memory < 0 ? memory : 0;
    if (memory >= 0) {
        rc = tl_jit_send(service, message, message_n, memory);
        if (rc == 0 && !is_last)
            tl_jit_progress_expect(&r.key);
        close(memory);
    }
    free(message);
    close(service);
    return rc;
}

void tl_jit_client_prefetch(const char *ptx, size_t n, const char *kernel, const uint32_t block[3])
{
    (void)ask_ahead(ptx, n, kernel, block, false);
}

int tl_jit_client_improve(const char *ptx, size_t n, const char *kernel, const uint32_t block[3])
{
    return ask_ahead(ptx, n, kernel, block, true);
}

/* Compiling one kernel, and the process that does it for the service.
 *
 * LLVM ends the process on what it does not like, and PTX may come from anywhere; so this runs in
 * processes that hold nothing but a socket to the service, and whose end costs one retry. */
#include "device/tally-jit/worker.h"
#include "device/service/key.h"
#include "device/service/link.h"
#include "device/service/wire.h"
#include "device/tally-jit/sandbox.h"
#include "tally/ptx.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- compiling -------------------------------------------------------------------------------- */

static bool has_other_entries(const struct tl_ptx_index *ix, const char *kernel)
{
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        if (item->kind == TL_PTX_ITEM_ENTRY && !tl_str_is(item->name, kernel))
            return true;
    }
    return false;
}

/* The kernel's own module: NULL if the text is that already. */
static int take_out(const char *ptx, size_t n, const char *kernel, char **own, size_t *own_n,
                    struct tl_error *err)
{
    struct tl_ptx_index *ix;
    *own = NULL;
    int rc = tl_ptx_index_create(&ix, ptx, n, kernel, err);
    if (rc < 0)
        return rc;
    if (has_other_entries(ix, kernel))
        rc = tl_ptx_extract(ix, tl_str_of(kernel), own, own_n, err);
    tl_ptx_index_destroy(ix);
    return rc;
}

int tl_jit_build(const char *ptx, size_t n, const char *kernel,
                 const struct tl_jit_options *options, void **object, size_t *object_n, char **ir,
                 struct tl_error *err)
{
    struct tl_jit_object o = {0};
    char *own;
    size_t own_n = 0;
    *object = NULL;
    *object_n = 0;
    if (ir != NULL)
        *ir = NULL;
    int rc = take_out(ptx, n, kernel, &own, &own_n, err);
    if (rc < 0)
        return rc;
    rc = tl_jit_compile(own != NULL ? own : ptx, own != NULL ? own_n : n, kernel, options, &o, err);
    free(own);
    if (rc < 0)
        return rc;
    rc = tl_jit_link(o.bytes, o.n, kernel, o.stack_bytes, object, object_n, err);
    if (ir != NULL) {
        *ir = o.ir;
        o.ir = NULL;
    }
    tl_jit_object_finish(&o);
    return rc;
}

/* --- limits ----------------------------------------------------------------------------------- */

uint32_t tl_jit_number(const char *variable, uint32_t otherwise, uint32_t most)
{
    const char *text = secure_getenv(variable);
    char *end = NULL;
    unsigned long n = text != NULL ? strtoul(text, &end, 10) : 0;
    return text == NULL || end == text || *end != '\0' || n > most ? otherwise : (uint32_t)n;
}

uint32_t tl_jit_limit_seconds(void)
{
    return tl_jit_number("TALLY_JIT_SECONDS", 120, 100000);
}

uint32_t tl_jit_first_seconds(uint64_t ptx_bytes)
{
    enum { SHARE = 8, BYTES = 3000000 }; /* for any kernel; for which all of it is given */
    uint64_t most = tl_jit_limit_seconds(), n = most / SHARE + 1 + ptx_bytes * most / BYTES;
    return (uint32_t)(n < most ? n : most);
}

uint32_t tl_jit_limit_memory_mb(void)
{
    return tl_jit_number("TALLY_JIT_MEMORY_MB", 4096, 1u << 20);
}

/* Only ever lowers. */
static void limit(int resource, rlim_t most)
{
    struct rlimit l;
    if (getrlimit(resource, &l) < 0)
        return;
    if (most < l.rlim_max)
        l.rlim_max = most;
    if (l.rlim_cur > l.rlim_max)
        l.rlim_cur = l.rlim_max;
    (void)setrlimit(resource, &l);
}

/* So many seconds from now on; the signal at their end ends the process. */
static void limit_time(uint32_t seconds)
{
    struct rusage used;
    struct rlimit l;
    if (getrusage(RUSAGE_SELF, &used) < 0 || getrlimit(RLIMIT_CPU, &l) < 0)
        return;
    l.rlim_cur = (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + seconds + 1;
    if (l.rlim_cur > l.rlim_max)
        l.rlim_cur = l.rlim_max;
    (void)setrlimit(RLIMIT_CPU, &l);
}

/* Keeps standard input (nothing), the log as both outputs, and the socket as 3. */
static void hold_nothing(int socket, int log)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)prctl(PR_SET_DUMPABLE, 0);
    if (dup2(log, 1) < 0 || dup2(log, 2) < 0 || dup2(socket, 3) < 0)
        _exit(1);
    tl_close_from(4);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_NOFILE, 64);
    limit(RLIMIT_FSIZE, TL_JIT_OBJECT_BYTES);
#if !defined __SANITIZE_ADDRESS__ &&                                                               \
    !defined __SANITIZE_THREAD__ /* which reserve terabytes, and read files for reports */
    limit(RLIMIT_AS, (rlim_t)tl_jit_limit_memory_mb() << 20);
    (void)tl_jit_sandbox_enter(); /* what the service tells of: see tl_jit_worker_probe */
#endif
}

int tl_jit_worker_probe(struct tl_error *err)
{
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(-tl_jit_sandbox_enter());
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0 || status != 0)
        return tl_error_set(err, -EPERM,
                            "the compiler works without its sandbox, because seccomp cannot be set "
                            "up here (%s): what a hostile kernel could make of a fault in LLVM is "
                            "not kept in",
                            pid < 0             ? strerror(errno)
                            : WIFEXITED(status) ? strerror(WEXITSTATUS(status))
                                                : "it kills the process");
#else
    (void)err;
#endif
    return 0;
}

/* --- requests --------------------------------------------------------------------------------- */

/* For tests: TALLY_JIT_TEST_CRASH=KERNEL dies of that kernel (LETTERS*: of all that begin with
 * these), KERNEL@once only at the first attempt, KERNEL@stuck does not end at the first one,
 * KERNEL@slow takes a second for it, KERNEL@spin never ends, KERNEL@eat takes all memory it can
 * get, KERNEL@escape dies if it can open a file, connect, start a process or end its parent. */
static void misbehave(const char *kernel, uint32_t attempt)
{
    const char *what = secure_getenv("TALLY_JIT_TEST_CRASH");
    if (what == NULL)
        return;
    size_t n = strcspn(what, "*@");
    if (strncmp(what, kernel, n) != 0 || (what[n] != '*' && kernel[n] != '\0'))
        return;
    what += n + (what[n] == '*');
    if (what[0] == '\0' || (strcmp(what, "@once") == 0 && attempt == 1)) {
        fprintf(stderr, "LLVM ERROR: not really, this is a test\nmore\n");
        abort();
    }
    if (strcmp(what, "@slow") == 0)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    bool is_stuck = strcmp(what, "@spin") == 0 || (strcmp(what, "@stuck") == 0 && attempt == 1);
    for (volatile bool goes_on = is_stuck; goes_on;)
        goes_on = is_stuck;
    if (strcmp(what, "@escape") == 0) {
        if (open("/etc/passwd", O_RDONLY) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ||
            fork() >= 0 || kill(getppid(), 0) == 0 || kill(1, 0) == 0)
            abort();
    }
    if (strcmp(what, "@eat") == 0) {
        for (;;) {
            char *p = malloc(64 << 20);
            if (p == NULL)
                abort(); /* as LLVM does */
            p[0] = 1;
        }
    }
}

static int answer_failure(int socket, const struct tl_error *err)
{
    return tl_jit_send_answer(socket, TL_JIT_FAILED, err->code, err->text, -1, 0);
}

static int answer_object(int socket, const char *kernel, const void *object, size_t n)
{
    struct tl_error err = {0};
    int fd = tl_jit_memory(kernel, object, n);
    if (fd < 0) {
        tl_error_set(&err, fd, "kernel %.300s: memory for the compiled code: %s", kernel,
                     strerror(-fd));
        return answer_failure(socket, &err);
    }
    int rc = tl_jit_send_answer(socket, TL_JIT_DONE, 0, "", fd, n);
    close(fd);
    return rc;
}

/* The forms that this worker was the first to compile, for others. */
static void tell_forms(int socket)
{
    struct tl_buf b = {0};
    tl_forms_tell(&b);
    int fd = b.n > 0 && !b.failed ? tl_jit_memory("forms", b.p, b.n) : -1;
    if (fd >= 0) {
        (void)tl_jit_send_answer(socket, TL_JIT_FORMS, 0, "", fd, b.n);
        close(fd);
    }
    tl_buf_finish(&b);
}

/* Compiles what was asked for and answers with a descriptor of the object, or with why not. 0, or
 * -errno if the socket is gone. */
static int serve(int socket, const char *message, size_t n, int ptx_fd, const char *compiler_id)
{
    struct tl_error err = {0};
    struct tl_jit_ask a;
    struct tl_jit_ask_text text;
    const void *ptx = NULL;
    void *object = NULL;
    size_t object_n = 0;
    int rc = tl_jit_ask_check(message, n, &text, &err);
    if (rc < 0)
        return answer_failure(socket, &err);
    memcpy(&a, message, sizeof a);
    rc = tl_jit_memory_map(ptx_fd, a.ptx_bytes, &ptx);
    if (rc < 0) {
        tl_error_set(&err, rc, "kernel %.300s: its PTX did not come as sealed memory of %llu bytes",
                     text.kernel, (unsigned long long)a.ptx_bytes);
        return answer_failure(socket, &err);
    }
    struct tl_jit_options options = {.block = {a.block[0], a.block[1], a.block[2]},
                                     .cpu = text.cpu[0] != '\0' ? text.cpu : NULL,
                                     .features = text.features[0] != '\0' ? text.features : NULL,
                                     .is_plain = (a.flags & TL_JIT_PLAIN) != 0,
                                     .is_least = (a.flags & TL_JIT_LEAST) != 0};
    bool is_quick = (a.flags & TL_JIT_QUICK) != 0;
    /* what went wrong quickly is tried in the other ways */
    options.is_quick = is_quick && !options.is_plain && !options.is_least;
    struct tl_jit_source source = {.ptx = ptx,
                                   .ptx_n = a.ptx_bytes,
                                   .kernel = text.kernel,
                                   .block = {a.block[0], a.block[1], a.block[2]},
                                   .cpu = options.cpu,
                                   .features = options.features,
                                   .is_quick = is_quick,
                                   .compiler = compiler_id};
    struct tl_store_key key = tl_jit_key_of(&source);
    if (memcmp(&key, &a.key, sizeof key) != 0) {
        rc = tl_error_set(
            &err, -EPROTO,
            "kernel %.300s: it does not have the name in the cache that was asked for; driver and "
            "compiler service do not belong together",
            text.kernel);
    } else {
        limit_time(a.attempt > 1 ? tl_jit_limit_seconds() : tl_jit_first_seconds(a.ptx_bytes));
        misbehave(text.kernel, a.attempt);
        rc = tl_jit_build(ptx, a.ptx_bytes, text.kernel, &options, &object, &object_n, NULL, &err);
    }
    if (options.is_quick)
        tell_forms(socket);
    rc = rc < 0 ? answer_failure(socket, &err)
                : answer_object(socket, text.kernel, object, object_n);
    free(object);
    tl_jit_memory_unmap(ptx, a.ptx_bytes);
    return rc;
}

void tl_jit_worker_run(int socket, int log, const char *compiler_id, const struct tl_shelf *shelf)
{
    static char message[TL_JIT_MESSAGE_BYTES];
    hold_nothing(socket, log);
    tl_forms_read(shelf);
    for (;;) {
        int fd, n = tl_jit_receive(3, message, sizeof message, &fd);
        if (n <= 0)
            _exit(0);
        int rc = serve(3, message, (size_t)n, fd, compiler_id);
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            _exit(1);
    }
}

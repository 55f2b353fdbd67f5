/* Starts tallyd; see the header. */
#include "runtime/start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { THREAD_STACK = 256 << 10 };

/* --- where it is --------------------------------------------------------------------------------------------------- */

/* The folder of the library or program that this code is in, as it was when it was loaded: its path may be relative, and
 * the job may change its folder later. */
static char own_folder[1024];

static void __attribute__((constructor)) remember_folder(void)
{
    Dl_info here;
    char *path = dladdr((const void *)own_folder, &here) != 0 ? realpath(here.dli_fname, NULL) : NULL;
    if (path == NULL) /* a program that was found by PATH does not know its own path */
        path = realpath("/proc/self/exe", NULL);
    char *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash != NULL && (size_t)(slash - path) < sizeof own_folder)
        memcpy(own_folder, path, (size_t)(slash - path));
    free(path);
}

void tl_start_find(char *path, size_t size)
{
    /* bin/ has the tools, lib/tally/ the shim, test/ the tests. */
    static const char *const places[] = {"tallyd", "../bin/tallyd", "../../bin/tallyd", "../libexec/tally/tallyd",
                                         "../../libexec/tally/tallyd"};
    const char *asked = getenv("TALLY_DAEMON");
    path[0] = 0;
    if (asked != NULL && asked[0] != 0) {
        char *full = strcmp(asked, "no") != 0 ? realpath(asked, NULL) : NULL; /* it is started in another folder */
        const char *program = full != NULL ? full : asked;                    /* what does not exist is told of then */
        if (strcmp(asked, "no") != 0 && strlen(program) < size)
            strcpy(path, program);
        free(full);
        return;
    }
    for (size_t i = 0; own_folder[0] != 0 && i < sizeof places / sizeof places[0]; i++) {
        int n = snprintf(path, size, "%s/%s", own_folder, places[i]);
        if (n > 0 && (size_t)n < size && access(path, X_OK) == 0)
            return;
    }
    path[0] = 0;
}

/* --- starting it --------------------------------------------------------------------------------------------------- */

static bool is_for_daemon(const char *variable)
{
    static const char *const prefixes[] = {
        "TALLY_SOCKET=",    "TALLY_POLICY=", "TALLY_LOG=",       "TALLY_RULES=", "TALLY_DAEMON_IDLE=",
        "XDG_RUNTIME_DIR=", "HOME=",         "XDG_CONFIG_HOME=", "PATH=",        "LANG="};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

char **tl_start_environment(void)
{
    size_t n = 0, bytes = 0;
    for (char **v = environ; v != NULL && *v != NULL; v++)
        if (is_for_daemon(*v)) {
            n++;
            bytes += strlen(*v) + 1;
        }
    char **list = calloc(1, (n + 1) * sizeof *list + bytes);
    if (list == NULL)
        return NULL;
    char *text = (char *)(list + n + 1);
    size_t kept = 0;
    for (char **v = environ; v != NULL && *v != NULL; v++)
        if (is_for_daemon(*v)) {
            list[kept++] = strcpy(text, *v);
            text += strlen(*v) + 1;
        }
    return list;
}

struct start {
    const char *program;
    char *const *environment;
    const sigset_t *none;
    char *stack_end; /* of the second child */
    int ready, null; /* descriptors */
    int error;       /* written by the children, which share our memory until the second calls exec */
};

/* The second child: not a leader of its session, and nobody's child once the first has ended. */
static int start_second(void *argument)
{
    struct start *s = argument;
    static char name[] = "tallyd", option[] = "--started";
    char *const arguments[] = {name, option, NULL};
    (void)sigprocmask(SIG_SETMASK, s->none, NULL);
    execve(s->program, arguments, s->environment);
    s->error = errno;
    _exit(127);
}

/* Runs in a child with our memory and a copy of everything else, all signals blocked: only system calls. */
static int start_first(void *argument)
{
    struct start *s = argument;
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    for (int i = 1; i < NSIG; i++)
        (void)sigaction(i, &plain, NULL);
    (void)setsid();
    if (chdir("/") < 0 || dup2(s->null, 0) < 0 || dup2(s->ready, 1) < 0 || dup2(s->null, 2) < 0) {
        s->error = errno;
        _exit(127);
    }
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    if (clone(start_second, s->stack_end, CLONE_VM | CLONE_VFORK, s) < 0)
        s->error = errno;
    _exit(0);
}

/* A child that tells nobody when it ends (no SIGCHLD, and wait() of the job does not see it), made without copying the job's
 * memory.  Since exec would bring the signal back, a child of the child calls it. */
static int run_child(struct start *s)
{
    enum { STACK = 64 << 10 };
    char *stack = mmap(NULL, (size_t)2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return -errno;
    s->stack_end = stack + (size_t)2 * STACK;
    sigset_t all, old;
    /* As posix_spawn does it: no handler of the job may run in a child that has the job's memory. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int pid = clone(start_first, stack + STACK, CLONE_VM | CLONE_VFORK, s);
    int rc = pid < 0 ? -errno : -s->error;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    munmap(stack, (size_t)2 * STACK);
    int status;
    while (pid > 0 && waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    return rc;
}

/* Starts it with that end of a pipe as its standard output. */
static int start_with(const char *program, char *const *environment, int ready, struct tl_error *err)
{
    sigset_t none;
    struct start s = {.program = program, .environment = environment, .none = &none, .ready = ready};
    sigemptyset(&none);
    s.null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (s.null < 0)
        return tl_error_errno(err, "starting %s: /dev/null", program);
    int rc = run_child(&s);
    close(s.null);
    if (rc < 0) {
        errno = -rc;
        rc = tl_error_errno(err, "starting %s", program);
    }
    return rc;
}

int tl_start_daemon(const char *program, char *const *environment, struct tl_error *err)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return tl_error_errno(err, "starting %s: a pipe", program);
    int rc = start_with(program, environment, ready[1], err);
    close(ready[1]);
    if (rc < 0) {
        close(ready[0]);
        return rc;
    }
    return ready[0];
}

/* --- by a thread --------------------------------------------------------------------------------------------------- */

/* Its own copies: who asked may be gone before it is done. */
struct starter {
    char *program;
    char **environment;
    int ready;
};

static void free_starter(struct starter *s)
{
    for (char **v = s->environment; v != NULL && *v != NULL; v++)
        free(*v);
    free(s->environment);
    free(s->program);
    free(s);
}

static struct starter *make_starter(const char *program, char *const *environment)
{
    size_t n = 0;
    while (environment[n] != NULL)
        n++;
    struct starter *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->program = strdup(program);
    s->environment = calloc(n + 1, sizeof *s->environment);
    bool is_whole = s->program != NULL && s->environment != NULL;
    for (size_t i = 0; is_whole && i < n; i++) {
        s->environment[i] = strdup(environment[i]);
        is_whole = s->environment[i] != NULL;
    }
    if (is_whole)
        return s;
    free_starter(s);
    return NULL;
}

static void *run_starter(void *argument)
{
    struct starter *s = argument;
    struct tl_error err;
    if (start_with(s->program, s->environment, s->ready, &err) < 0)
        (void)!write(s->ready, err.text, strlen(err.text)); /* nobody may be there to read it */
    close(s->ready);
    free_starter(s);
    return NULL;
}

int tl_start_in_background(const char *program, char *const *environment, struct tl_error *err)
{
    int ready[2], rc;
    pthread_t thread;
    pthread_attr_t attr;
    struct starter *s = make_starter(program, environment);
    if (s == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory to start %s", program);
    if (pipe2(ready, O_CLOEXEC) < 0) {
        free_starter(s);
        return tl_error_errno(err, "starting %s: a pipe", program);
    }
    s->ready = ready[1];
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    rc = pthread_create(&thread, &attr, run_starter, s);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        return ready[0];
    close(ready[0]);
    close(ready[1]);
    free_starter(s);
    return tl_error_set(err, -rc, "starting %s: no thread (%s)", program, strerror(rc));
}

/* Starts tallyd; see the header. */
#include "runtime/job/start.h"
#include "tally/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREAD_STACK = 256 << 10 };

/* --- where it is ------------------------------------------------------------------------------ */

/* The folder of the library or program that this code is in, as it was when it was loaded: its path
 * may be relative, and the job may change its folder later. */
static char own_folder[1024];

static void __attribute__((constructor)) remember_folder(void)
{
    Dl_info here;
    char *path = dladdr((const void *)own_folder, &here) != 0 ? realpath(here.dli_fname, NULL)
                                                              : NULL;
    if (path == NULL) /* a program that was found by PATH does not know its own path */
        path = realpath("/proc/self/exe", NULL);
    char *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash != NULL && (size_t)(slash - path) < sizeof own_folder)
        memcpy(own_folder, path, (size_t)(slash - path));
    free(path);
}

void tl_start_find(char *path, size_t size)
{
    /* bin/ has the tools, lib/tally/ the shim. */
    static const char *const places[] = {"tallyd", "../bin/tallyd", "../../bin/tallyd",
                                         "../libexec/tally/tallyd", "../../libexec/tally/tallyd"};
    const char *asked = secure_getenv("TALLY_DAEMON");
    path[0] = 0;
    if (asked != NULL && asked[0] != 0) {
        /* it is started in another folder */
        char *full = strcmp(asked, "no") != 0 ? realpath(asked, NULL) : NULL;
        /* what does not exist is told of then */
        const char *program = full != NULL ? full : asked;
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

/* --- starting it ------------------------------------------------------------------------------ */

static bool is_for_daemon(const char *variable)
{
    /* The last two tell a sanitizer in tallyd where its report goes: its standard error is
     * nowhere. */
    static const char *const prefixes[] = {"TALLY_METRICS=",
                                           "TALLY_SOCKET=",
                                           "TALLY_POLICY=",
                                           "TALLY_LOG=",
                                           "TALLY_RULES=",
                                           "TALLY_DAEMON_IDLE=",
                                           "XDG_RUNTIME_DIR=",
                                           "HOME=",
                                           "XDG_CONFIG_HOME=",
                                           "PATH=",
                                           "LANG=",
                                           "ASAN_OPTIONS=",
                                           "TSAN_OPTIONS="};
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

/* Starts it with that end of a pipe as its standard output. */
static int start_with(const char *program, char *const *environment, int ready,
                      struct tl_error *err)
{
    static char name[] = "tallyd", option[] = "--started";
    char *const arguments[] = {name, option, NULL};
    int rc = tl_start_detached(program, arguments, environment, ready);
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

/* --- by a thread ------------------------------------------------------------------------------ */

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
    struct starter *s = make_starter(program, environment);
    if (s == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory to start %s", program);
    if (pipe2(ready, O_CLOEXEC) < 0) {
        free_starter(s);
        return tl_error_errno(err, "starting %s: a pipe", program);
    }
    s->ready = ready[1];
    rc = tl_thread_start(NULL, &(struct tl_thread_kind){.stack_bytes = THREAD_STACK}, run_starter,
                         s);
    if (rc == 0)
        return ready[0];
    close(ready[0]);
    close(ready[1]);
    free_starter(s);
    return tl_error_set(err, rc, "starting %s: no thread (%s)", program, strerror(-rc));
}

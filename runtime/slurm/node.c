/* Tally on the node of a job: tally-run, which knows what a program needs in its environment, and
 * tallyd, which serves all users there. */
#include "runtime/job/wire.h"
#include "runtime/slurm/plugin.h"
#include "tally/file.h"
#include "tally/text.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_MS = 10000, ANSWER_MS = 5000, MAX_ENVIRONMENT = 8 << 20 };

/* --- programs --------------------------------------------------------------------------------- */

static bool is_program(char path[PLUGIN_PATH], const char *folder, const char *name)
{
    int n = snprintf(path, PLUGIN_PATH, "%s/bin/%s", folder, name);
    return n > 0 && n < PLUGIN_PATH && access(path, X_OK) == 0;
}

/* This plugin is PREFIX/lib/tally/slurm/tally.so, whatever link Slurm found it by. */
static bool find_beside(char path[PLUGIN_PATH], const char *name)
{
    Dl_info info;
    char real[PATH_MAX];
    if (dladdr((void *)(uintptr_t)plugin_find_program, &info) == 0 ||
        realpath(info.dli_fname, real) == NULL)
        return false;
    for (int i = 0; i < 4; i++) {
        char *slash = strrchr(real, '/');
        if (slash == NULL)
            return false;
        *slash = 0;
    }
    return is_program(path, real, name);
}

int plugin_find_program(const struct plugin_config *c, const char *name, char path[PLUGIN_PATH],
                        struct tl_error *err)
{
    if (c->prefix[0] != 0 ? is_program(path, c->prefix, name)
                          : find_beside(path, name) || is_program(path, "/usr/local", name) ||
                                is_program(path, "/usr", name))
        return 0;
    return tl_error_set(err, -ENOENT,
                        "%s is not on this node%s%s; plugstack.conf may name where it is "
                        "installed: prefix=DIR",
                        name, c->prefix[0] != 0 ? " below " : "", c->prefix);
}

/* --- tallyd ----------------------------------------------------------------------------------- */

static int listens(const struct plugin_config *c)
{
    struct tl_error err;
    int fd = tl_wire_connect_patiently(c->socket, &err);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* In a child: becomes tallyd, which belongs to nobody. */
static void become_daemon(const struct plugin_config *c, const char *program, int ready)
{
    char socket[sizeof c->socket + 16];
    char *const environment[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    snprintf(socket, sizeof socket, "--socket=%s", c->socket);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)setsid();
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(ready, STDOUT_FILENO);
    (void)dup2(null, STDERR_FILENO);
    (void)close_range(3, ~0U, 0);
    if (fork() == 0)
        execle(program, "tallyd", "--started", "--shared", "--idle=0", socket, (char *)NULL,
               environment);
    _exit(0);
}

int plugin_see_to_daemon(const struct plugin_config *c, struct tl_error *err)
{
    char program[PLUGIN_PATH], said[256] = "";
    int pipes[2], rc = 0;
    if (listens(c))
        return 0;
    rc = plugin_find_program(c, "tallyd", program, err);
    if (rc < 0)
        return rc;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return tl_error_errno(err, "a pipe");
    pid_t child = fork();
    if (child == 0)
        become_daemon(c, program, pipes[1]);
    close(pipes[1]);
    struct pollfd p = {.fd = pipes[0], .events = POLLIN};
    if (child < 0)
        rc = tl_error_errno(err, "%s", program);
    else if (poll(&p, 1, START_MS) <= 0)
        rc = tl_error_set(err, -ETIMEDOUT, "%s takes long to start", program);
    else if (read(pipes[0], said, sizeof said - 1) <= 0 || said[0] != '+')
        rc = tl_error_set(err, -EIO, "%s cannot start%s%s", program, said[0] != 0 ? ": " : "",
                          said);
    close(pipes[0]);
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    return rc;
}

/* --- the environment -------------------------------------------------------------------------- */

/* A copy of the list of variables with these behind it, which win: of two of one name the first is
 * left out. */
static char **with_variables(char **environment, char **ours)
{
    size_t n = 0, k = 0;
    while (environment != NULL && environment[n] != NULL)
        n++;
    while (ours[k] != NULL)
        k++;
    char **list = calloc(n + k + 1, sizeof *list);
    if (list == NULL)
        return NULL;
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_ours = false;
        for (size_t o = 0; o < k; o++) {
            size_t name = strcspn(ours[o], "=") + 1;
            is_ours |= strncmp(environment[i], ours[o], name) == 0;
        }
        if (!is_ours)
            list[out++] = environment[i];
    }
    memcpy(list + out, ours, k * sizeof *ours);
    return list;
}

/* Runs tally-run and reads what it prints. */
static int run(const char *program, char **environment, const char *job_program, char **out,
               size_t *n, struct tl_error *err)
{
    int pipes[2], status = 0;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return tl_error_errno(err, "a pipe");
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(pipes[1], STDOUT_FILENO);
        execle(program, "tally-run", "--quiet", "--print-environment", "--", job_program,
               (char *)NULL, environment);
        _exit(127);
    }
    close(pipes[1]);
    int rc = child < 0 ? tl_error_errno(err, "%s", program)
                       : tl_file_read_fd(pipes[0], MAX_ENVIRONMENT, out, n);
    close(pipes[0]);
    if (child > 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    if (rc == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || *n == 0)) {
        free(*out);
        *out = NULL;
        rc = tl_error_set(err, -EIO, "%s failed; its message is above", program);
    }
    return rc;
}

int plugin_environment(const struct plugin_config *c, const struct plugin_wishes *has,
                       const char *job, char **environment, const char *program, char **out,
                       size_t *n, struct tl_error *err)
{
    static const char *const names[PLUGIN_OPTIONS] = {"TALLY_PRIORITY", "TALLY_MEMORY",
                                                      "TALLY_SLO"};
    char text[PLUGIN_OPTIONS + 4][160], *ours[PLUGIN_OPTIONS + 4], path[PLUGIN_PATH];
    int k = 0;
    int rc = plugin_find_program(c, "tally-run", path, err);
    if (rc < 0)
        return rc;
    snprintf(text[k++], sizeof text[0], "TALLY_SOCKET=%s", c->socket);
    /* The node's tallyd is root's; a job does not start one of its own. */
    snprintf(text[k++], sizeof text[0], "TALLY_DAEMON=no");
    snprintf(text[k++], sizeof text[0], "TALLY_JOB=%s", job);
    for (int o = 0; o < PLUGIN_OPTIONS; o++)
        if (has->value[o][0] != 0)
            snprintf(text[k++], sizeof text[0], "%s=%s", names[o], has->value[o]);
    for (int i = 0; i < k; i++)
        ours[i] = text[i];
    ours[k] = NULL;
    char **list = with_variables(environment, ours);
    if (list == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory");
    rc = run(path, list, program, out, n, err);
    free(list);
    return rc;
}

/* --- accounts --------------------------------------------------------------------------------- */

int plugin_account(const struct plugin_config *c, const char *account, struct plugin_note *note,
                   struct tl_error *err)
{
    struct tl_wire_account question = {0};
    struct tl_wire_packet packet;
    int fd = tl_wire_connect_patiently(c->socket, err);
    if (fd < 0)
        return fd;
    snprintf(question.name, sizeof question.name, "%s", account);
    int rc = tl_wire_send(fd, TL_WIRE_ACCOUNT, &question, sizeof question, NULL, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (rc == 0 && poll(&p, 1, ANSWER_MS) <= 0)
        rc = -ETIMEDOUT;
    if (rc == 0)
        rc = tl_wire_receive(fd, &packet, err) == 1 ? 0 : -EPROTO;
    close(fd);
    if (rc != 0)
        return tl_error_set(err, rc, "tallyd does not tell what %s used: %s", account,
                            strerror(-rc));
    if (packet.m.head.kind != TL_WIRE_ACCOUNTED)
        return -ENOENT;
    const struct tl_wire_accounted *a = &packet.m.accounted;
    char node[64] = "";
    (void)gethostname(node, sizeof node - 1);
    snprintf(note->where, sizeof note->where, " on %s,", node);
    snprintf(note->text, sizeof note->text,
             "tally: %" PRIu64 ".%03" PRIu64 " s of gpus%s %" PRIu64 " preemptions",
             a->device_ns / 1000000000, a->device_ns / 1000000 % 1000, note->where, a->preemptions);
    return 0;
}

int plugin_record_comment(enum plugin_comment where, uint32_t job, const char *text,
                          struct tl_error *err)
{
    char which[32], set[PLUGIN_PATH + 32];
    int status = 0;
    snprintf(which, sizeof which, "jobid=%u", job);
    snprintf(set, sizeof set, "%s=%.*s", where == PLUGIN_ADMIN_COMMENT ? "admincomment" : "comment",
             PLUGIN_PATH, text);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
        execlp("sacctmgr", "sacctmgr", "-i", "modify", "job", "where", which, "set", set,
               (char *)NULL);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return tl_error_set(err, -ESTALE,
                        "job %u has ended and there is no database (sacctmgr) for its comment: %s",
                        job, text);
}

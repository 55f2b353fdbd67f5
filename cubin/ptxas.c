/* ptxas as the compiler of gates.  Source, cubin and messages pass through files in memory, so that
 * nothing is left behind. */
#include "cubin/internal.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct ptxas {
    struct tl_cubin_compiler compiler;
    char *path, *identity;
};

enum { OUT_FD = 3, MOST_CUBIN_BYTES = 1 << 20, MOST_TEXT_BYTES = 1 << 16 };

/* Runs it with standard input from `in`, its messages to `text`, and `out` as descriptor 3.  0 if
 * it ended well, 1 if not, or a negative errno value. */
static int run(const struct ptxas *p, char *const *arguments, int in, int out, int text)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return -rc;
    rc = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, text, STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, text, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, out, OUT_FD);
    if (rc == 0)
        rc = posix_spawnp(&pid, p->path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return -rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

/* A file in memory whose number is above those that a child is given. */
static int memory_file(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || fd > OUT_FD)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, OUT_FD + 1);
    close(fd);
    return higher;
}

/* The whole of a file in memory. */
static int read_back(int fd, size_t limit, char **bytes, size_t *n)
{
    return lseek(fd, 0, SEEK_SET) < 0 ? -errno : tl_file_read_fd(fd, limit, bytes, n);
}

static int complain(const struct ptxas *p, int text, struct tl_error *err)
{
    char *said = NULL;
    size_t n = 0;
    (void)read_back(text, MOST_TEXT_BYTES, &said, &n);
    int rc = tl_error_set(err, -EINVAL, "%s does not compile the gate: %.400s", p->path,
                          said != NULL ? said : "");
    free(said);
    return rc;
}

static int compile(void *data, const char *ptx, uint32_t arch, void **cubin, size_t *n,
                   struct tl_error *err)
{
    const struct ptxas *p = data;
    char target[32];
    int in = memory_file("gate.ptx"), out = memory_file("gate.cubin"), text = memory_file("said");
    int rc;
    *cubin = NULL;
    if (in < 0 || out < 0 || text < 0) {
        rc = tl_error_errno(err, "cannot make a file in memory");
        goto out;
    }
    snprintf(target, sizeof target, "-arch=sm_%u", arch);
    char *arguments[] = {p->path, target, "-o", "/proc/self/fd/3", "-", NULL};
    rc = tl_file_write_fd(in, ptx, strlen(ptx));
    if (rc == 0 && lseek(in, 0, SEEK_SET) < 0)
        rc = -errno;
    if (rc == 0)
        rc = run(p, arguments, in, out, text);
    if (rc > 0)
        rc = complain(p, text, err);
    else if (rc == 0)
        rc = read_back(out, MOST_CUBIN_BYTES, (char **)cubin, n);
    if (rc < 0 && rc != -EINVAL)
        rc = tl_error_set(err, rc, "cannot run %s: %s", p->path, strerror(-rc));
out:
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    if (text >= 0)
        close(text);
    return rc;
}

/* What it says of itself with --version. */
static int read_identity(struct ptxas *p, struct tl_error *err)
{
    char *arguments[] = {p->path, "--version", NULL};
    size_t n;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int text = memory_file("said");
    int rc = null < 0 || text < 0 ? -errno : run(p, arguments, null, null, text);
    if (rc == 0)
        rc = read_back(text, MOST_TEXT_BYTES, &p->identity, &n);
    else if (rc > 0)
        rc = -ENOENT;
    if (rc < 0)
        rc = tl_error_set(err, rc, "cannot run %s: %s; install ptxas, or say where it is", p->path,
                          strerror(-rc));
    if (null >= 0)
        close(null);
    if (text >= 0)
        close(text);
    return rc;
}

/* Where the ptxas stand-in looks for the real one, too. */
static int search(struct tl_cubin_compiler **out, struct tl_error *err)
{
    const char *asked = secure_getenv("TALLY_PTXAS"), *home = secure_getenv("CUDA_HOME");
    char path[PATH_MAX];
    if (asked != NULL && asked[0] != 0)
        return tl_cubin_ptxas_create(out, asked, err);
    int rc = tl_cubin_ptxas_create(out, "ptxas", err);
    if (rc == -ENOENT && home != NULL &&
        snprintf(path, sizeof path, "%s/bin/ptxas", home) < (int)sizeof path)
        rc = tl_cubin_ptxas_create(out, path, err);
    if (rc == -ENOENT && tl_cubin_ptxas_create(out, "/usr/local/cuda/bin/ptxas", NULL) == 0)
        rc = 0;
    return rc;
}

int tl_cubin_ptxas_create(struct tl_cubin_compiler **out, const char *path, struct tl_error *err)
{
    *out = NULL;
    if (path == NULL)
        return search(out, err);
    struct ptxas *p = calloc(1, sizeof *p);
    char *copy = strdup(path);
    if (p == NULL || copy == NULL) {
        free(p);
        free(copy);
        return tl_error_set(err, -ENOMEM, "no memory for a compiler");
    }
    p->path = copy;
    int rc = read_identity(p, err);
    if (rc < 0) {
        tl_cubin_ptxas_destroy(&p->compiler);
        return rc;
    }
    p->compiler = (struct tl_cubin_compiler){compile, p, p->identity};
    *out = &p->compiler;
    return 0;
}

void tl_cubin_ptxas_destroy(struct tl_cubin_compiler *c)
{
    struct ptxas *p = (struct ptxas *)c; /* its first member */
    if (p == NULL)
        return;
    free(p->path);
    free(p->identity);
    free(p);
}

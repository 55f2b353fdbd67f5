/* ptxas as the compiler of gates.  Source and cubin pass through files in memory, so that nothing
 * is left behind.
 *
 * This runs inside jobs, and a job may wait for any of its children: it must not meet one of ours,
 * nor take its end away from us.  So a shell is started that is nobody's child, which runs ptxas
 * and tells how that ended through a pipe. */
#include "cubin/internal.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct ptxas {
    struct tl_cubin_compiler compiler;
    char *path, *identity;
};

enum { MOST_ARGUMENTS = 5, MOST_CUBIN_BYTES = 1 << 20, MOST_TEXT_BYTES = 1 << 16 };

/* Without what is to be loaded into jobs, which ptxas is not. */
static char **environment(void)
{
    size_t n = 0, kept = 0;
    while (environ != NULL && environ[n] != NULL)
        n++;
    char **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < n; i++)
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
            list[kept++] = environ[i];
    return list;
}

/* Runs it, with at most MOST_ARGUMENTS arguments.  0 if it ended well, 1 if not, or a negative
 * errno value; with the first two, what it said is the caller's to free. */
static int run(char *const *arguments, char **said)
{
    /* The first line is how it ended. */
    static char sh[] = "sh", option[] = "-c",
                script[] = "said=$(\"$0\" \"$@\" 2>&1); echo \"$?\"; echo \"$said\"";
    char *all[3 + MOST_ARGUMENTS + 1] = {sh, option, script};
    int ends[2];
    size_t n = 0;
    *said = NULL;
    for (size_t i = 0; i < MOST_ARGUMENTS && arguments[i] != NULL; i++)
        all[3 + i] = arguments[i];
    char **variables = environment();
    if (variables == NULL)
        return -ENOMEM;
    int rc = pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
    if (rc == 0) {
        rc = tl_start_detached("/bin/sh", all, variables, ends[1]);
        close(ends[1]);
        if (rc == 0)
            rc = tl_file_read_fd(ends[0], MOST_TEXT_BYTES, said, &n);
        close(ends[0]);
    }
    free(variables);
    char *text = rc == 0 ? memchr(*said, '\n', n) : NULL;
    if (rc == 0 && text == NULL)
        rc = -EIO; /* somebody ended it */
    if (text == NULL) {
        free(*said);
        *said = NULL;
        return rc;
    }
    bool is_well = text - *said == 1 && **said == '0';
    memmove(*said, text + 1, strlen(text + 1) + 1);
    return is_well ? 0 : 1;
}

/* A file in memory, and the path under which other processes of the user find it. */
static int memory_file(const char *name, char path[64])
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), fd);
    return fd;
}

/* The whole of a file in memory. */
static int read_back(int fd, size_t limit, char **bytes, size_t *n)
{
    return lseek(fd, 0, SEEK_SET) < 0 ? -errno : tl_file_read_fd(fd, limit, bytes, n);
}

static int compile(void *data, const char *ptx, uint32_t arch, void **cubin, size_t *n,
                   struct tl_error *err)
{
    const struct ptxas *p = data;
    char target[32], from[64], to[64], *said = NULL;
    int in = memory_file("gate.ptx", from), out = memory_file("gate.cubin", to), rc;
    *cubin = NULL;
    if (in < 0 || out < 0) {
        rc = tl_error_errno(err, "cannot make a file in memory");
        goto out;
    }
    snprintf(target, sizeof target, "-arch=sm_%u", arch);
    char *arguments[] = {p->path, target, "-o", to, from, NULL};
    rc = tl_file_write_fd(in, ptx, strlen(ptx));
    if (rc == 0)
        rc = run(arguments, &said);
    if (rc > 0)
        rc = tl_error_set(err, -EINVAL, "%s does not compile the gate: %.400s", p->path, said);
    else if (rc == 0)
        rc = read_back(out, MOST_CUBIN_BYTES, (char **)cubin, n);
    if (rc < 0 && rc != -EINVAL)
        rc = tl_error_set(err, rc, "cannot run %s: %s", p->path, strerror(-rc));
out:
    free(said);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return rc;
}

/* What it says of itself with --version. */
static int read_identity(struct ptxas *p, struct tl_error *err)
{
    char *arguments[] = {p->path, "--version", NULL};
    int rc = run(arguments, &p->identity);
    if (rc > 0)
        rc = -ENOENT;
    return rc < 0 ? tl_error_set(err, rc, "cannot run %s: %s; install ptxas, or say where it is",
                                 p->path, strerror(-rc))
                  : 0;
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
    /* The shell that runs it is elsewhere: a path must not depend on where the job is. */
    char *copy = strchr(path, '/') != NULL ? realpath(path, NULL) : strdup(path);
    if (p == NULL || copy == NULL) {
        int rc = tl_error_set(err, -errno, "cannot run %s: %s; install ptxas, or say where it is",
                              path, strerror(errno));
        free(p);
        free(copy);
        return rc;
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

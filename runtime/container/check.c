/* container-check: whether Tally can work in a container, asked by the container's runtime before
 * its program begins (a startContainer hook of the CDI file).  If it cannot, the container does not
 * start, and the message says why: rather that than a shell in which nothing runs, or a job that
 * shares a GPU by no rule.
 *
 * It runs in containers of any libc, so it is linked statically.  Some runtimes (crun) throw away
 * what a hook says and tell its path only; so there is a hook for each reason, and paths that tell
 * it (runtime/tally/cdi.c).  `container-check musl|libc|gvisor` looks for one reason, without an
 * argument for all. */
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/job/sandbox.h"
/* NEEDS_GLIBC: of the versions of glibc's symbols the newest that our libraries use, e.g.
 * "GLIBC_2.34"; read out of them when this is built. */
#include "needs_glibc.h"

static int refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("tally: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return EXIT_FAILURE;
}

static const char *first_of(const char *const *patterns, glob_t *found)
{
    for (; *patterns != NULL; patterns++)
        if (glob(*patterns, 0, NULL, found) == 0 && found->gl_pathc > 0)
            return found->gl_pathv[0];
    return NULL;
}

/* Whether the file has that text, with a 0 behind it, as names of versions have. */
static bool has_text(const char *path, const char *text)
{
    enum { MOST = 16 << 20 };
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool was_found = true; /* what cannot be read is not refused */
    if (fd < 0)
        return true;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= MOST) {
        size_t size = (size_t)st.st_size, n = 0;
        char *bytes = malloc(size);
        ssize_t got = 1;
        while (bytes != NULL && n < size && (got = read(fd, bytes + n, size - n)) > 0)
            n += (size_t)got;
        if (bytes != NULL && n == size)
            was_found = memmem(bytes, size, text, strlen(text) + 1) != NULL;
        free(bytes);
    }
    close(fd);
    return was_found;
}

static int check_gvisor(void)
{
    if (!tl_sandbox_is_gvisor())
        return EXIT_SUCCESS;
    return refuse("this container runs under gVisor, whose kernel shares no memory with the jobs "
                  "outside of it: tally.dev/gpu cannot be used there; choose another runtime "
                  "(crun, runc)");
}

static const char *const loaders[] = {"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1",
                                      "/usr/lib64/ld-linux-x86-64.so.2", NULL};

/* An image without any loader has static programs only: nothing is loaded into them. */
static int check_musl(void)
{
    static const char *const musl[] = {"/lib/ld-musl-*.so.1", NULL};
    glob_t found;
    if (first_of(loaders, &found) != NULL || first_of(musl, &found) == NULL)
        return EXIT_SUCCESS;
    return refuse("this image is built on musl (%s), and Tally's libraries need glibc, as NVIDIA's "
                  "do: use an image of Debian, Ubuntu, Fedora or the like, or leave out the device "
                  "tally.dev/gpu",
                  found.gl_pathv[0]);
}

static int check_libc(void)
{
    static const char *const libraries[] = {
        "/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6",   "/usr/lib/*-linux-gnu/libc.so.6",
        "/usr/lib64/libc.so.6",       "/usr/lib/libc.so.6", NULL};
    glob_t found;
    const char *libc = first_of(loaders, &found) != NULL ? first_of(libraries, &found) : NULL;
    if (libc == NULL || has_text(libc, NEEDS_GLIBC))
        return EXIT_SUCCESS;
    return refuse("the libc of this image (%s) is older than Tally's libraries need (%s): use a "
                  "newer image, or build Tally on an older system",
                  libc, NEEDS_GLIBC);
}

/* A runtime tells a hook the container's state, and fails if that cannot be written to its end:
 * whoever has ended by then has kept the container from starting. */
static void hear_out(void)
{
    enum { PATIENCE_MS = 10000 };
    char bytes[4096];
    struct stat st;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (fstat(STDIN_FILENO, &st) < 0 || (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode)))
        return;
    while (poll(&p, 1, PATIENCE_MS) > 0 && read(STDIN_FILENO, bytes, sizeof bytes) > 0)
        continue;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*check)(void);
    } checks[] = {{"gvisor", check_gvisor}, {"musl", check_musl}, {"libc", check_libc}};
    hear_out();
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if ((argc < 2 || strcmp(argv[1], checks[i].name) == 0) && checks[i].check() != EXIT_SUCCESS)
            return EXIT_FAILURE;
    return EXIT_SUCCESS;
}

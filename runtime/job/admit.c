/* Admissions: files ADMITTED/PID of two lines,
 *
 *     STARTED ACCOUNT
 *     LEVEL [LIMIT ...]
 *
 * where STARTED is when the process began, in ticks since the machine did, as /proc/PID/stat has
 * it: number and begin together are one process's alone. */
#include "runtime/job/admit.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ABOVE = 256 }; /* processes above one another that are looked at */

void tl_admit_folder(const char *socket, char path[TL_ADMIT_PATH])
{
    const char *slash = strrchr(socket, '/');
    int n = slash != NULL ? (int)(slash - socket) : 0;
    snprintf(path, TL_ADMIT_PATH, "%.*s/admitted", n, socket);
}

/* When a process began and who started it; its name, in parentheses, may have anything in it. */
static int read_stat(pid_t pid, uint64_t *started, pid_t *parent)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int n = tl_file_head(path, text, sizeof text);
    const char *at = n > 0 ? strrchr(text, ')') : NULL;
    int above;
    if (at == NULL || sscanf(at + 1, " %*c %d", &above) != 1)
        return -ESRCH;
    *parent = above;
    /* the state is field 3, the begin field 22 */
    for (int field = 2; field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL)
            return -ESRCH;
    }
    return sscanf(at, "%" SCNu64, started) == 1 ? 0 : -ESRCH;
}

static bool is_word(const char *text)
{
    for (const char *c = text; *c != 0; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return text[0] != 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A file in its place in one step: who reads meanwhile finds all of it or nothing. */
static int put_file(const char *folder, pid_t pid, const char *text, struct tl_error *err)
{
    char path[TL_ADMIT_PATH + 16], begun[TL_ADMIT_PATH + 24];
    snprintf(path, sizeof path, "%s/%d", folder, (int)pid);
    snprintf(begun, sizeof begun, "%s.new", path);
    (void)unlink(begun);
    int fd = open(begun, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return tl_error_errno(err, "%s", begun);
    int rc = tl_file_write_fd(fd, text, strlen(text));
    if (rc < 0)
        rc = tl_error_set(err, rc, "%s: %s", begun, strerror(-rc));
    else if (fchmod(fd, 0644) < 0 || rename(begun, path) < 0)
        rc = tl_error_errno(err, "%s", path);
    close(fd);
    if (rc < 0)
        (void)unlink(begun);
    return rc;
}

int tl_admit_write(const char *socket, pid_t pid, const struct tl_admission *a,
                   struct tl_error *err)
{
    char folder[TL_ADMIT_PATH], text[TL_ADMIT_NAME + TL_ADMIT_LINE + 32];
    uint64_t started;
    pid_t parent;
    if (!is_word(a->account) || strpbrk(a->rights, "\n#") != NULL)
        return tl_error_set(err, -EINVAL, "'%s' cannot be the name of an account", a->account);
    if (read_stat(pid, &started, &parent) < 0)
        return tl_error_set(err, -ESRCH, "there is no process %d", (int)pid);
    tl_admit_folder(socket, folder);
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return tl_error_errno(err, "the folder of admissions %s", folder);
    snprintf(text, sizeof text, "%" PRIu64 " %s\n%s\n", started, a->account, a->rights);
    return put_file(folder, pid, text, err);
}

void tl_admit_remove(const char *socket, pid_t pid)
{
    char folder[TL_ADMIT_PATH], path[TL_ADMIT_PATH + 16];
    tl_admit_folder(socket, folder);
    snprintf(path, sizeof path, "%s/%d", folder, (int)pid);
    (void)unlink(path);
}

/* --- reading ---------------------------------------------------------------------------------- */

static bool is_trusted(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) &&
           (st.st_mode & 022) == 0;
}

/* What the file of that process says, if it is of this very process. */
static int read_file(int folder, pid_t pid, uint64_t started, struct tl_admission *a)
{
    char name[16], text[TL_ADMIT_NAME + TL_ADMIT_LINE + 32];
    uint64_t said;
    int at = 0;
    snprintf(name, sizeof name, "%d", (int)pid);
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -ENOENT;
    ssize_t n = is_trusted(fd) ? read(fd, text, sizeof text - 1) : -1;
    close(fd);
    if (n <= 0)
        return -ENOENT;
    text[n] = 0;
    _Static_assert(TL_ADMIT_NAME == 64 && TL_ADMIT_LINE == 256, "as the format below says");
    if (sscanf(text, "%" SCNu64 " %63s%n", &said, a->account, &at) != 2 || said != started ||
        text[at] != '\n')
        return -ENOENT;
    return sscanf(text + at + 1, "%255[^\n]", a->rights) == 1 ? 0 : -ENOENT;
}

int tl_admit_find(const char *socket, pid_t pid, struct tl_admission *a)
{
    char path[TL_ADMIT_PATH];
    int rc = -ENOENT;
    tl_admit_folder(socket, path);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder < 0)
        return -ENOENT;
    if (is_trusted(folder))
        for (int i = 0; i < MOST_ABOVE && rc < 0 && pid > 1; i++) {
            uint64_t started;
            pid_t parent;
            if (read_stat(pid, &started, &parent) < 0)
                break;
            rc = read_file(folder, pid, started, a);
            pid = parent;
        }
    close(folder);
    return rc;
}

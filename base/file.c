/* Files in one go; see the header. */
#include "tally/file.h"
#include "tally/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a file without a size is first given room for. */
enum { FIRST_BYTES = 4096 };

/* Up to `n` bytes, fewer only at the file's end.  How many, or a negative errno value. */
static ssize_t read_some(int fd, char *bytes, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = read(fd, bytes + done, n - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* How much room to begin with: a byte more than the file says, so that its end is met in it. */
static size_t first_room(int fd, size_t most)
{
    struct stat st;
    size_t room = FIRST_BYTES;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
        (uint64_t)st.st_size < SIZE_MAX - 1)
        room = (size_t)st.st_size + 1;
    return room < most ? room : most;
}

int tl_file_read_fd(int fd, size_t limit, char **bytes, size_t *n)
{
    /* One byte beyond the limit tells a file of just that size from a longer one. */
    size_t most = limit < SSIZE_MAX - 1 ? limit + 1 : SSIZE_MAX - 1, room = first_room(fd, most);
    size_t have = 0;
    char *all = malloc(room + 1);
    int rc = all != NULL ? 0 : -ENOMEM;
    *bytes = NULL;
    *n = 0;
    while (rc == 0) {
        ssize_t got = read_some(fd, all + have, room - have);
        if (got < 0) {
            rc = (int)got;
            break;
        }
        have += (size_t)got;
        if (have < room)
            break;
        if (have >= most) {
            rc = -EFBIG;
            break;
        }
        room = room < most / 2 ? 2 * room : most;
        char *more = realloc(all, room + 1);
        if (more == NULL)
            rc = -ENOMEM;
        else
            all = more;
    }
    if (rc == 0 && have > limit)
        rc = -EFBIG;
    if (rc < 0) {
        free(all);
        return rc;
    }
    all[have] = '\0';
    *bytes = all;
    *n = have;
    return 0;
}

static int open_to_read(const char *path)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? -errno : fd;
}

int tl_file_read(const char *path, size_t limit, char **bytes, size_t *n)
{
    *bytes = NULL;
    *n = 0;
    int fd = open_to_read(path);
    if (fd < 0)
        return fd;
    int rc = tl_file_read_fd(fd, limit, bytes, n);
    close(fd);
    return rc;
}

int tl_file_head(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    int fd = open_to_read(path);
    if (fd < 0)
        return fd;
    ssize_t got = read_some(fd, text, size - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    return (int)got;
}

int tl_file_read_at(int fd, void *bytes, size_t n, uint64_t at)
{
    char *p = bytes;
    while (n > 0) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int tl_file_write_fd(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at >= 0 && !tl_memfd_may_have((uint64_t)at + n))
        return -EFBIG; /* instead of a signal */
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

int tl_file_lift(int fd)
{
    enum { HIGH = 600, FIRST = 3 };
    int lifted = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (lifted < 0 && fd < FIRST) /* there may be no such number here */
        lifted = fcntl(fd, F_DUPFD_CLOEXEC, FIRST);
    if (lifted < 0)
        return fd;
    close(fd);
    return lifted;
}

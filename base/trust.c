/* Goes a path as the kernel would, by descriptors, and looks at who has a hand in each step; see
 * the header. */
#include "tally/trust.h"
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* as the kernel */
#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x2000
#endif
#define FIRST_PID_NAMESPACE 0xeffffffcU /* its number, in every Linux */

bool tl_trust_is_outside(uid_t uid)
{
    char text[256], *rest;
    if (tl_file_head("/proc/sys/kernel/overflowuid", text, sizeof text) <= 0 ||
        strtoul(text, NULL, 10) != uid ||
        tl_file_head("/proc/self/uid_map", text, sizeof text) <= 0)
        return false;
    unsigned long inside = strtoul(text, &rest, 10), outside = strtoul(rest, &rest, 10);
    return inside != 0 || outside != 0 || strtoul(rest, NULL, 10) != UINT32_MAX;
}

/* Where one is, and what is left of the path. */
struct walk {
    const char *path; /* for messages */
    int at;
    int links;
    char rest[2 * PATH_MAX];
};

static int refuse(const struct walk *w, const struct stat *st, struct tl_error *err)
{
    char by[32], where[PATH_MAX];
    snprintf(by, sizeof by, "/proc/self/fd/%d", w->at);
    ssize_t n = readlink(by, where, sizeof where - 1);
    where[n > 0 ? n : 0] = 0;
    return tl_error_set(err, -EPERM, "%s leads through %s, %s", w->path, where,
                        st == NULL ? "where somebody else has put a link"
                                   : "to which other users can write");
}

static bool is_trusted(uid_t uid)
{
    return uid == 0 || uid == geteuid() || tl_trust_is_outside(uid);
}

/* Whether it is a volume of root's, in a container: those of Kubernetes are everybody's to write,
 * and everybody is who is in the container. */
static bool is_volume(int fd, const struct stat *st)
{
    struct statx more;
    struct stat namespace;
    return st->st_uid == 0 && stat("/proc/self/ns/pid", &namespace) == 0 &&
           namespace.st_ino != FIRST_PID_NAMESPACE &&
           statx(fd, "", AT_EMPTY_PATH, STATX_TYPE, &more) == 0 &&
           (more.stx_attributes_mask & more.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* The folder in which the walk is. */
static int look(const struct walk *w, struct tl_error *err)
{
    struct stat st;
    if (fstat(w->at, &st) < 0)
        return tl_error_errno(err, "%s", w->path);
    bool is_open = (st.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (st.st_mode & S_ISVTX) == 0;
    return is_trusted(st.st_uid) && (!is_open || is_volume(w->at, &st)) ? 0 : refuse(w, &st, err);
}

/* Cuts the next name off the rest; its length, 0 at the end. */
static size_t next_name(struct walk *w, char name[NAME_MAX + 1])
{
    size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/");
    if (n > NAME_MAX)
        return n;
    memcpy(name, w->rest + skip, n);
    name[n] = 0;
    memmove(w->rest, w->rest + skip + n, strlen(w->rest + skip + n) + 1);
    return n;
}

static void go_to(struct walk *w, int fd)
{
    close(w->at);
    w->at = fd;
}

/* A link: the path goes on with what it says. */
static int follow(struct walk *w, int link, const struct stat *st, struct tl_error *err)
{
    char target[PATH_MAX], rest[sizeof w->rest];
    ssize_t n = readlinkat(link, "", target, sizeof target - 1);
    if (n < 0 || ++w->links > MOST_LINKS)
        return tl_error_set(err, n < 0 ? -errno : -ELOOP, "%s: a link cannot be followed", w->path);
    if (!is_trusted(st->st_uid))
        return refuse(w, NULL, err);
    target[n] = 0;
    strcpy(rest, w->rest);
    if (snprintf(w->rest, sizeof w->rest, "%s/%s", target, rest) >= (int)sizeof w->rest)
        return tl_error_set(err, -ENAMETOOLONG, "%s: a link leads too far", w->path);
    if (target[0] == '/') {
        int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
            return tl_error_errno(err, "/");
        go_to(w, root);
    }
    return 0;
}

/* One name further.  1 if there is more to go, 0 at the end, or a negative errno value. */
static int step(struct walk *w, struct tl_error *err)
{
    char name[NAME_MAX + 1];
    struct stat st;
    int rc = look(w, err);
    size_t n = rc < 0 ? 0 : next_name(w, name);
    if (n == 0)
        return rc;
    if (n > NAME_MAX)
        return tl_error_set(err, -ENAMETOOLONG, "%s: too long a name", w->path);
    int fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : tl_error_errno(err, "%s", w->path);
    if (fstat(fd, &st) < 0) {
        rc = tl_error_errno(err, "%s", w->path);
    } else if (S_ISLNK(st.st_mode)) {
        rc = follow(w, fd, &st, err);
    } else if (S_ISDIR(st.st_mode)) {
        go_to(w, fd);
        return 1;
    } else {
        w->rest[0] = 0; /* a file ends the path; the folder that it is in was looked at */
    }
    close(fd);
    return rc < 0 ? rc : w->rest[0] != 0;
}

int tl_trust_path(const char *path, struct tl_error *err)
{
    struct walk w = {.path = path};
    char here[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(here, sizeof here) == NULL)
        return tl_error_errno(err, "%s", path);
    if (snprintf(w.rest, sizeof w.rest, "%s/%s", here, path) >= (int)sizeof w.rest)
        return tl_error_set(err, -ENAMETOOLONG, "%.100s...: too long a path", path);
    w.at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w.at < 0)
        return tl_error_errno(err, "/");
    int rc;
    do
        rc = step(&w, err);
    while (rc > 0);
    close(w.at);
    return rc;
}

/* Where tallyd listens: a socket in a folder that only its user can change, with a lock beside it,
 * so that there is one; or a socket that the service manager opened (LISTEN_FDS, see
 * sd_listen_fds(3)). */
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"
#include "tally/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE = 256, FIRST_PASSED_FD = 3, WAIT_MS = 4000, ASK_MS = 1000, STEP_MS = 2 };

/* --- opened by the service manager ------------------------------------------------------------ */

static bool is_listener(int fd)
{
    int type = 0, listens = 0;
    socklen_t n = sizeof type, m = sizeof listens;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_SEQPACKET &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &m) == 0 && listens != 0;
}

/* The descriptor, -ENOENT if none was passed, or -EINVAL. */
static int passed_listener(struct tl_error *err)
{
    const char *pid = secure_getenv("LISTEN_PID"), *n = secure_getenv("LISTEN_FDS");
    if (pid == NULL || n == NULL || strtol(pid, NULL, 10) != getpid())
        return -ENOENT;
    if (strtol(n, NULL, 10) != 1 || !is_listener(FIRST_PASSED_FD))
        return tl_error_set(
            err, -EINVAL,
            "what was passed to tallyd is not one listening socket of whole messages "
            "(ListenSequentialPacket= in the .socket unit)");
    (void)fcntl(FIRST_PASSED_FD, F_SETFD, FD_CLOEXEC);
    (void)fcntl(FIRST_PASSED_FD, F_SETFL, O_NONBLOCK);
    return FIRST_PASSED_FD;
}

/* --- opened here ------------------------------------------------------------------------------ */

static bool is_trusted(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

/* Makes the socket's folder if it is missing, and its parent is there.  Nobody else may be able to
 * put another one in its place: in /tmp anybody can have made it, or a link. */
static int make_folder(const char *path, struct tl_error *err)
{
    char copy[sizeof((struct daemon_place *)0)->path];
    struct stat st;
    struct tl_error why = {0};
    strcpy(copy, path);
    const char *folder = dirname(copy);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return tl_error_errno(err, "tallyd's folder %s cannot be made", folder);
    if (lstat(folder, &st) < 0)
        return tl_error_errno(err, "tallyd's folder %s", folder);
    if (S_ISLNK(st.st_mode) && !is_trusted(st.st_uid))
        return tl_error_set(err, -EPERM,
                            "tallyd's folder %s is a link that user %u made; set TALLY_SOCKET",
                            folder, (unsigned)st.st_uid);
    if (stat(folder, &st) < 0)
        return tl_error_errno(err, "tallyd's folder %s", folder);
    if (!is_trusted(st.st_uid))
        return tl_error_set(err, -EPERM, "tallyd's folder %s belongs to user %u; set TALLY_SOCKET",
                            folder, (unsigned)st.st_uid);
    if ((st.st_mode & 022) != 0 && (st.st_mode & S_ISVTX) == 0)
        return tl_error_set(
            err, -EPERM, "others can write to tallyd's folder %s; chmod go-w, or set TALLY_SOCKET",
            folder);
    int rc = tl_trust_path(folder, &why);
    return rc < 0 ? tl_error_set(err, rc, "tallyd's folder: %s; set TALLY_SOCKET", why.text) : 0;
}

/* Whether a tallyd is there.  That somebody can be connected to does not say so for certain: one
 * that is about to die has its socket open until the kernel comes to close it, and what was not
 * answered by then ends with that.  With no time for an answer, being connected counts. */
static bool is_there(const char *path, int ms)
{
    struct tl_wire_policy question = {0}; /* which one is in force */
    int fd = tl_wire_connect(path, NULL);
    if (fd >= 0 && ms == 0) {
        close(fd);
        return true;
    }
    bool is_asked = fd >= 0 &&
                    tl_wire_send(fd, TL_WIRE_POLICY, &question, sizeof question, NULL, 0) == 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    struct tl_wire_packet packet;
    int rc = is_asked && poll(&wait, 1, ms) == 1 ? tl_wire_receive(fd, &packet, NULL) : 0;
    if (rc == 1)
        tl_wire_close(&packet);
    if (fd >= 0)
        close(fd);
    /* one of another version is there as well */
    return rc == 1 || rc == -EPROTONOSUPPORT;
}

/* The lock may be another tallyd's, which listens or is about to; or a dead one's, whose end is not
 * over yet. */
static int wait_for_lock(const struct daemon_place *p, int ask_ms, struct tl_error *err)
{
    uint64_t until = tl_clock_ns() + (uint64_t)WAIT_MS * 1000000;
    do {
        if (flock(p->lock, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK)
            return tl_error_errno(err, "locking %s.lock", p->path);
        if (is_there(p->path, ask_ms))
            return tl_error_set(err, -EEXIST, "a tallyd listens on %s already", p->path);
        nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
    } while (tl_clock_ns() < until);
    return tl_error_set(err, -EBUSY, "another tallyd holds %s.lock and does not answer", p->path);
}

static int take_lock(struct daemon_place *p, int ask_ms, struct tl_error *err)
{
    char path[sizeof p->path + 8];
    struct stat st;
    snprintf(path, sizeof path, "%s.lock", p->path);
    p->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (p->lock < 0)
        return tl_error_errno(err, "tallyd's lock %s", path);
    if (fstat(p->lock, &st) < 0 || !S_ISREG(st.st_mode) || !is_trusted(st.st_uid))
        return tl_error_set(err, -EPERM,
                            "tallyd's lock %s is no file of this user: remove it, or set "
                            "TALLY_SOCKET",
                            path);
    return wait_for_lock(p, ask_ms, err);
}

/* Listens under a name of its own first and renames it: there is never a socket that does not
 * answer. */
static int listen_there(struct daemon_place *p, struct tl_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s.new", p->path);
    (void)unlink(address.sun_path);
    p->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->listener < 0)
        return tl_error_errno(err, "a socket");
    if (bind(p->listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(p->listener, QUEUE) < 0)
        return tl_error_errno(err, "tallyd cannot listen on %s", address.sun_path);
    if (rename(address.sun_path, p->path) < 0) {
        int rc = tl_error_errno(err, "tallyd's socket %s", p->path);
        (void)unlink(address.sun_path);
        return rc;
    }
    return 0;
}

int daemon_place_take(struct daemon_place *p, const char *path, bool was_started,
                      struct tl_error *err)
{
    *p = (struct daemon_place){.lock = -1, .listener = -1};
    if (strlen(path) >= sizeof p->path)
        return tl_error_set(err, -ENAMETOOLONG,
                            "tallyd's socket %.300s: it may be " TL_SOCKET_PATH_IS, path);
    strcpy(p->path, path);
    int rc = passed_listener(err);
    if (rc >= 0) {
        p->listener = rc;
        p->is_activated = true;
        return 0;
    }
    if (rc != -ENOENT)
        return rc;
    rc = make_folder(path, err);
    if (rc == 0)
        rc = take_lock(p, was_started ? 0 : ASK_MS, err);
    if (rc == 0)
        rc = listen_there(p, err);
    if (rc < 0)
        daemon_place_leave(p);
    return rc;
}

void daemon_place_leave(struct daemon_place *p)
{
    if (p->listener >= 0) {
        if (!p->is_activated)
            (void)unlink(p->path); /* while the lock is held: it is ours */
        close(p->listener);
    }
    if (p->lock >= 0)
        close(p->lock);
    p->lock = p->listener = -1;
}

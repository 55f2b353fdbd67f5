/* Memory without a name that processes on one device hand to those who come.
 *
 * Containers that share nothing but /dev/shm need something there that leads to the device's
 * memory.  A file that is mapped can be truncated by every process of its owner, which kills
 * whoever touches it then; System V's memory is found only within one namespace.  Memory of
 * memfd_create can be sealed against that, but has no name.  So each process that has it listens at
 * a socket in /dev/shm, and gives the descriptor to whoever connects and is of the same user.  Any
 * one of them will do: if some are stopped the next one answers, and only if all of them are,
 * nobody does.
 *
 * The sockets are called tally-hand-ID-NUMBER.  One appears under that name only when somebody
 * listens there, so one that refuses belongs to a dead process, and who asks removes it.
 *
 * The descriptors are the process's, and a program may close all that it does not know.  So they
 * are compared with what they were before each use; if they are something else, this process hands
 * nothing over any more. */
#include "device/exec/hand.h"
#include "device/exec/internal.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "tally/memfd.h"
#include "tally/thread.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PREFIX "tally-hand-"

enum {
    MOST = 160,        /* who are asked at a time: more than can be on a device */
    LOOK_MS = 1000,    /* how often the thread looks whether it is still wanted */
    PAUSE_MS = 50,     /* where nobody can be let in, as there is no descriptor left */
    STEP_MS = 50,      /* how often who asks looks at those who do not answer */
    STOPPED_MS = 500,  /* how long those are waited for who are stopped */
    ANSWER_MS = 10000, /* and all others, which may have no processor */
};

struct tl__hand {
    int listener, memory;
    struct stat of_listener, of_memory; /* what these descriptors were */
    char path[64];
    pthread_t thread;
    atomic_bool is_ending;
};

/* --- giving ----------------------------------------------------------------------------------- */

static bool is_still(int fd, const struct stat *was)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == was->st_dev && st.st_ino == was->st_ino;
}

static bool is_own_user(int fd)
{
    struct ucred who;
    socklen_t n = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

/* A byte with room for a descriptor beside it. */
struct parcel {
    char byte;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part;
    struct msghdr message;
};

static struct msghdr *open_parcel(struct parcel *p)
{
    memset(p, 0, sizeof *p);
    p->part = (struct iovec){&p->byte, 1};
    p->message = (struct msghdr){.msg_iov = &p->part,
                                 .msg_iovlen = 1,
                                 .msg_control = &p->control,
                                 .msg_controllen = sizeof p->control};
    return &p->message;
}

static void give(int to, int memory)
{
    struct parcel p;
    struct msghdr *m = open_parcel(&p);
    p.control.head = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof memory)};
    memcpy(CMSG_DATA(&p.control.head), &memory, sizeof memory);
    (void)sendmsg(to, m, MSG_NOSIGNAL | MSG_DONTWAIT); /* who asked may be gone */
}

static void *hand_over(void *argument)
{
    struct tl__hand *h = argument;
    struct pollfd p = {.fd = h->listener, .events = POLLIN};
    while (!atomic_load(&h->is_ending)) {
        int n = poll(&p, 1, LOOK_MS);
        if (!is_still(h->listener, &h->of_listener) || !is_still(h->memory, &h->of_memory))
            break;
        if (n <= 0 || atomic_load(&h->is_ending))
            continue;
        int to = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (to < 0) {
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
            continue;
        }
        if (is_own_user(to))
            give(to, h->memory);
        close(to);
    }
    return NULL;
}

/* A socket at which somebody listens before it has its name: 0 or -errno. */
static int put_up(struct tl__hand *h, uint64_t id)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        return -EIO;
    snprintf(address.sun_path, sizeof address.sun_path, FOLDER "/tally-new-%016llx",
             (unsigned long long)number);
    snprintf(h->path, sizeof h->path, FOLDER "/" PREFIX "%016llx-%016llx", (unsigned long long)id,
             (unsigned long long)number);
    h->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (h->listener < 0)
        return -errno;
    h->listener = tl_file_lift(h->listener);
    if (bind(h->listener, (struct sockaddr *)&address, sizeof address) < 0)
        return -errno;
    if (chmod(address.sun_path, 0600) < 0 || listen(h->listener, MOST) < 0 ||
        fstat(h->listener, &h->of_listener) < 0 || fstat(h->memory, &h->of_memory) < 0 ||
        rename(address.sun_path, h->path) < 0) {
        int rc = -errno;
        unlink(address.sun_path);
        return rc;
    }
    return 0;
}

int tl__hand_start(struct tl__hand **out, int memory, uint64_t id, struct tl_error *err)
{
    static const struct tl_thread_kind kind = {.name = "tally-hand"};
    struct tl__hand *h = calloc(1, sizeof *h);
    if (h == NULL) {
        close(memory);
        return tl_error_set(err, -ENOMEM, "no memory for the device");
    }
    h->memory = memory;
    h->listener = -1;
    int rc = put_up(h, id);
    if (rc == 0) {
        rc = tl_thread_start(&h->thread, &kind, hand_over, h);
        rc = rc == -EAGAIN ? -ENOMEM : rc; /* once more would not help */
        if (rc < 0)
            unlink(h->path);
    }
    if (rc < 0) {
        if (h->listener >= 0)
            close(h->listener);
        close(memory);
        free(h);
        return tl_error_set(err, rc, "cannot hand the shared device over in " FOLDER ": %s",
                            strerror(-rc));
    }
    *out = h;
    return 0;
}

void tl__hand_forget(struct tl__hand *h)
{
    if (h == NULL)
        return;
    if (is_still(h->listener, &h->of_listener))
        close(h->listener);
    if (is_still(h->memory, &h->of_memory))
        close(h->memory);
    free(h);
}

void tl__hand_stop(struct tl__hand *h)
{
    if (h == NULL)
        return;
    unlink(h->path);
    atomic_store(&h->is_ending, true);
    if (is_still(h->listener, &h->of_listener))
        shutdown(h->listener, SHUT_RDWR); /* wakes the thread */
    pthread_join(h->thread, NULL);
    tl__hand_forget(h);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* A connection to one who listens there, of this user; what a dead process has left is removed. */
static int ask_one(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    int n = snprintf(address.sun_path, sizeof address.sun_path, FOLDER "/%s", name);
    if (n < 0 || (size_t)n >= sizeof address.sun_path || lstat(address.sun_path, &st) < 0 ||
        !S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
        return -1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (errno == ECONNREFUSED)
            unlink(address.sun_path);
    } else if (is_own_user(fd)) {
        return fd;
    }
    close(fd);
    return -1;
}

static int ask_all(uint64_t id, struct pollfd *asked)
{
    char ours[40];
    int n = 0;
    snprintf(ours, sizeof ours, PREFIX "%016llx-", (unsigned long long)id);
    DIR *folder = opendir(FOLDER);
    for (struct dirent *e; folder != NULL && n < MOST && (e = readdir(folder)) != NULL;) {
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        int fd = ask_one(e->d_name); /* others only to remove what is dead */
        if (fd >= 0 && strncmp(e->d_name, ours, strlen(ours)) == 0)
            asked[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
        else if (fd >= 0)
            close(fd);
    }
    if (folder != NULL)
        closedir(folder);
    return n;
}

/* What one has given: sealed memory, or -1. */
static int take(int from)
{
    struct parcel p;
    struct msghdr *m = open_parcel(&p);
    uint64_t bytes;
    int fd = -1;
    if (recvmsg(from, m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
        return -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len != CMSG_LEN(sizeof fd))
        return -1;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (tl_memfd_check(fd, &bytes) == 0)
        return tl_file_lift(fd);
    close(fd);
    return -1;
}

/* Are all who have not answered stopped? */
static bool are_stopped(const struct pollfd *asked, int n)
{
    bool are_all = true;
    for (int i = 0; are_all && i < n; i++) {
        struct ucred who = {0};
        socklen_t bytes = sizeof who;
        if (asked[i].fd < 0)
            continue;
        /* 0: in a namespace that cannot be seen from here */
        are_all = getsockopt(asked[i].fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 &&
                  who.pid > 0 &&
                  tl__task_state((uint32_t)who.pid, (uint32_t)who.pid, true) == TL__TASK_STOPPED;
    }
    return are_all;
}

/* The first that was given within the time; those who gave nothing have a number of -1 then. */
static int wait_for_first(struct pollfd *asked, int n)
{
    uint64_t begin = tl_clock_ms(), moved = begin;
    int memory = -1, n_open = n;
    while (memory < 0 && n_open > 0 && tl_clock_ms() - begin < ANSWER_MS) {
        int ready = poll(asked, (nfds_t)n, STEP_MS);
        for (int i = 0; ready > 0 && memory < 0 && i < n; i++) {
            if (asked[i].fd < 0 || asked[i].revents == 0)
                continue;
            memory = take(asked[i].fd);
            close(asked[i].fd);
            asked[i].fd = -1;
            n_open--;
        }
        if (!are_stopped(asked, n))
            moved = tl_clock_ms();
        else if (tl_clock_ms() - moved >= STOPPED_MS)
            break;
    }
    return memory;
}

int tl__hand_ask(uint64_t id)
{
    struct pollfd asked[MOST];
    int n = ask_all(id, asked), memory = wait_for_first(asked, n);
    for (int i = 0; i < n; i++)
        if (asked[i].fd >= 0)
            close(asked[i].fd);
    return memory >= 0 ? memory : -ENOENT;
}

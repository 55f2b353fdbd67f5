/* The line that tells how far compiling is; see the header. */
#include "device/service/progress.h"
#include "tally/check.h"
#include "tally/clock.h"
#include "tally/lock.h"
#include "tally/tell.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FIRST_MS = 1000,  /* of waiting before anything is told */
    PAUSE_MS = 10000, /* without any waiting, after which that begins anew */
    TERMINAL_MS = 200,
    PLAIN_MS = 3000,
    /* kernels asked for and not compiled yet; with more of them, one may be counted twice */
    N_OPEN = 1024,
};

/* A kernel that was asked for and is not there yet. */
struct wanted {
    struct tl_store_key key;
    unsigned n_waiting; /* 0: it is only expected */
};

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct {
    struct wanted open[N_OPEN];
    unsigned n_open, n_done;
    unsigned n_waiting;         /* threads */
    int64_t since_ms, ended_ms; /* the first of them began to wait, the last one ended */
    int64_t waited_ms;          /* before since_ms, since the last pause */
    int64_t told_ms;            /* 0: not yet */
    bool is_telling;            /* a thread is at it, without the lock */
    bool is_line_there;         /* on a terminal */
    /* the socket whose name keeps other processes from telling, or -1 */
    int sign;
} now TL_GUARDED_BY(lock) = {.sign = -1};

static bool is_wanted(void)
{
    const char *log = secure_getenv("TALLY_LOG"), *progress = secure_getenv("TALLY_PROGRESS");
    if (progress != NULL && (strcmp(progress, "no") == 0 || strcmp(progress, "0") == 0))
        return false;
    return log == NULL ||
           (strcmp(log, "error") != 0 && strcmp(log, "off") != 0 && strcmp(log, "0") != 0);
}

/* --- counting --- */

static struct wanted *find_wanted(const struct tl_store_key *key) TL_REQUIRES(lock)
{
    for (unsigned i = 0; i < now.n_open; i++)
        if (memcmp(&now.open[i].key, key, sizeof *key) == 0)
            return &now.open[i];
    return NULL;
}

static struct wanted *find_or_add(const struct tl_store_key *key) TL_REQUIRES(lock)
{
    struct wanted *w = find_wanted(key);
    if (w == NULL && now.n_open < N_OPEN) {
        w = &now.open[now.n_open++];
        *w = (struct wanted){.key = *key};
    }
    return w;
}

static void settle(struct wanted *w) TL_REQUIRES(lock)
{
    TL_CHECK(now.n_open > 0 && w < now.open + now.n_open);
    *w = now.open[--now.n_open];
    now.n_done++;
}

/* What was compiled in the background is in the cache, without anybody having been told. */
static void settle_expected(void) TL_REQUIRES(lock)
{
    char folder[TL_STORE_PATH];
    struct tl_store cache;
    if (tl_store_folder(folder, NULL) < 0 ||
        tl_store_open(&cache, folder, tl_store_limit_mb(), NULL) < 0)
        return;
    for (unsigned i = now.n_open; i > 0; i--)
        if (now.open[i - 1].n_waiting == 0 && tl_store_has(&cache, &now.open[i - 1].key))
            settle(&now.open[i - 1]);
    tl_store_close(&cache);
}

/* --- telling --- */

/* A socket with a name of its own for whatever standard error is: only one process can have it, and
 * it goes with the process. -1 if another one has it. */
static int put_up_sign(void)
{
    struct stat st;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (fstat(STDERR_FILENO, &st) < 0)
        return -1;
    int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "tally-progress-%lu-%llx-%llx",
                     (unsigned long)getuid(), (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* How long until there is something to tell; 0: now. */
static int64_t due_in(int64_t t, bool is_terminal) TL_REQUIRES(lock)
{
    int64_t first = FIRST_MS - now.waited_ms - (t - now.since_ms);
    int64_t next = now.told_ms == 0 ? 0 : now.told_ms + (is_terminal ? TERMINAL_MS : PLAIN_MS) - t;
    int64_t most = first > next ? first : next;
    return most > 0 ? most : 0;
}

static void tell(bool is_terminal)
{
    char line[100];
    int n = 0;
    tl_mutex_lock(&lock);
    if (!now.is_telling && now.n_waiting > 0 && due_in(tl_clock_ms(), is_terminal) == 0) {
        if (now.sign < 0)
            now.sign = put_up_sign();
        /* also if another process tells: it is asked for again then, not at once */
        now.told_ms = tl_clock_ms();
        if (now.sign >= 0) {
            settle_expected();
            n = snprintf(line, sizeof line, "%stally: compiling kernels %u/%u%s",
                         is_terminal ? "\r" : "", now.n_done, now.n_done + now.n_open,
                         is_terminal ? "\033[K" : "\n");
            now.is_telling = true;
        }
    }
    tl_mutex_unlock(&lock);
    if (n == 0)
        return;
    tl_tell(line, (size_t)n);
    tl_mutex_lock(&lock);
    now.is_telling = false;
    now.is_line_there = is_terminal;
    tl_mutex_unlock(&lock);
}

/* --- what the client calls --- */

void tl_jit_progress_expect(const struct tl_store_key *key)
{
    tl_mutex_lock(&lock);
    find_or_add(key);
    tl_mutex_unlock(&lock);
}

void tl_jit_progress_begin(const struct tl_store_key *key)
{
    tl_mutex_lock(&lock);
    struct wanted *w = find_or_add(key);
    if (w != NULL)
        w->n_waiting++;
    if (now.n_waiting++ == 0) {
        now.since_ms = tl_clock_ms();
        if (now.since_ms - now.ended_ms > PAUSE_MS)
            now.waited_ms = 0;
    }
    tl_mutex_unlock(&lock);
}

void tl_jit_progress_end(const struct tl_store_key *key)
{
    bool is_line_there = false;
    int sign = -1;
    tl_mutex_lock(&lock);
    struct wanted *w = find_wanted(key);
    if (w == NULL)
        now.n_done++;
    else if (--w->n_waiting == 0)
        settle(w);
    TL_CHECK(now.n_waiting > 0);
    if (--now.n_waiting == 0) {
        now.ended_ms = tl_clock_ms();
        now.waited_ms += now.ended_ms - now.since_ms;
        is_line_there = now.is_line_there;
        now.is_line_there = false;
        sign = now.sign;
        now.sign = -1;
    }
    tl_mutex_unlock(&lock);
    if (is_line_there)
        tl_tell("\r\033[K", 4);
    if (sign >= 0)
        close(sign);
}

bool tl_jit_progress_wait(int fd, int most_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    bool is_terminal = isatty(STDERR_FILENO) == 1, is_told = is_wanted();
    int64_t end = most_ms >= 0 ? (int64_t)tl_clock_ms() + most_ms : INT64_MAX;
    if (!is_told && most_ms < 0)
        return true; /* the caller waits by reading */
    for (;;) {
        int64_t left = end - (int64_t)tl_clock_ms(), wait = left;
        if (is_told) {
            tl_mutex_lock(&lock);
            int64_t due = due_in(tl_clock_ms(), is_terminal);
            tl_mutex_unlock(&lock);
            due = due > 0 ? due : is_terminal ? TERMINAL_MS : PLAIN_MS;
            wait = due < left ? due : left;
        }
        int n = poll(&p, 1, wait > INT_MAX ? -1 : wait > 0 ? (int)wait : 0);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
        if (is_told)
            tell(is_terminal);
        if ((int64_t)tl_clock_ms() >= end)
            return false;
    }
}

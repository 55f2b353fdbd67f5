/* tallyd's log: lines with the time since the machine started, in a file of bounded size or on
 * standard error.
 *
 * Writing can take any time: a disk that others keep busy, a pipe that nobody reads.  So a thread
 * writes, and the loop, for which all jobs wait, only leaves lines for it.  Those for which there
 * is no room are counted, and their number is told in their place. */
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"
#include "tally/lock.h"
#include "tally/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    LOG_BYTES = 1 << 20, /* then it becomes FILE.old, and a new one begins */
    ROOM = 64 << 10,     /* for lines that are not written yet */
    FINISH_MS = 1000,    /* so long the last lines may take */
};

/* Of who writes: the thread once there is one. */
static int log_fd = STDERR_FILENO;
static size_t log_bytes;
static char log_path[256];

static int log_level = LOG_WARNINGS; /* does not change once there are threads */

/* What waits to be written: lines are added to one of the two, and the other is being written.  The
 * lock is held for moments only: who loses his processor with it would hold up the loop. */
static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static pthread_cond_t has_changed = PTHREAD_COND_INITIALIZER;
static char lines[2][ROOM];
static unsigned filling TL_GUARDED_BY(lock);
static size_t n_waiting TL_GUARDED_BY(lock);
static uint64_t n_lost TL_GUARDED_BY(lock);
static bool has_writer TL_GUARDED_BY(lock), is_ending TL_GUARDED_BY(lock);

/* What is no file of this user is not written to: a pipe would hold everybody up. */
static void open_file(void)
{
    struct stat st;
    log_fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                  0600);
    log_bytes = 0;
    if (log_fd >= 0 && fstat(log_fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) {
        log_bytes = (size_t)st.st_size;
    } else if (log_fd >= 0) {
        close(log_fd);
        log_fd = -1;
    }
}

static void turn_over(void)
{
    char old[sizeof log_path + 4];
    snprintf(old, sizeof old, "%s.old", log_path);
    close(log_fd);
    (void)rename(log_path, old);
    open_file();
}

void daemon_log_open(const char *path, int level)
{
    log_level = level;
    log_fd = STDERR_FILENO;
    if (path != NULL && strlen(path) < sizeof log_path) {
        strcpy(log_path, path);
        open_file();
    }
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put(const char *text, size_t n)
{
    if (log_fd >= 0 && write(log_fd, text, n) > 0) /* a full disk loses lines, no more */
        log_bytes += n;
    if (log_path[0] != 0 && log_bytes > LOG_BYTES)
        turn_over();
}

/* A line as it stands in the log, with its end; returns its length. */
__attribute__((format(printf, 3, 0))) static size_t lay_out(char *line, size_t size,
                                                            const char *format, va_list args)
{
    uint64_t ms = tl_clock_ns() / 1000000;
    int n = snprintf(line, size, "%llu.%03u tallyd: ", (unsigned long long)(ms / 1000),
                     (unsigned)(ms % 1000));
    int m = vsnprintf(line + n, size - (size_t)n - 1, format, args);
    size_t length = m < 0 ? (size_t)n : (size_t)n + (size_t)m;
    if (length > size - 2)
        length = size - 2;
    line[length++] = '\n';
    return length;
}

__attribute__((format(printf, 1, 2))) static void put_line(const char *format, ...)
{
    char line[128];
    va_list args;
    va_start(args, format);
    size_t n = lay_out(line, sizeof line, format, args);
    va_end(args);
    put(line, n);
}

/* The thread: writes what waits, until it is told to end and nothing does. */
static void *write_lines(void *unused)
{
    (void)unused;
    tl_mutex_lock(&lock);
    for (;;) {
        while (n_waiting == 0 && !is_ending)
            tl_mutex_wait(&lock, &has_changed);
        if (n_waiting == 0)
            break;
        size_t n = n_waiting;
        uint64_t lost = n_lost;
        const char *text = lines[filling];
        filling ^= 1;
        n_waiting = n_lost = 0;
        tl_mutex_unlock(&lock);
        put(text, n);
        if (lost > 0)
            put_line("%llu lines are missing here: the log is not written as fast as they come",
                     (unsigned long long)lost);
        tl_mutex_lock(&lock);
    }
    has_writer = false;
    pthread_cond_broadcast(&has_changed);
    tl_mutex_unlock(&lock);
    return NULL;
}

/* --- for everybody ---------------------------------------------------------------------------- */

void daemon_log_start(void)
{
    static const struct tl_thread_kind kind = {.name = "tallyd-log", .stack_bytes = 64 << 10};
    tl_mutex_lock(&lock);
    has_writer = tl_thread_start(NULL, &kind, write_lines, NULL) == 0;
    tl_mutex_unlock(&lock);
}

void daemon_log_finish(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until); /* the clock of a condition that nobody set up */
    until.tv_sec += FINISH_MS / 1000;
    tl_mutex_lock(&lock);
    is_ending = true;
    pthread_cond_broadcast(&has_changed);
    while (has_writer && tl_mutex_wait_until(&lock, &has_changed, &until) == 0)
        ;
    tl_mutex_unlock(&lock);
}

void daemon_log(enum daemon_log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;
    if ((int)level > log_level)
        return;
    va_start(args, format);
    size_t n = lay_out(line, sizeof line, format, args);
    va_end(args);
    tl_mutex_lock(&lock);
    if (!has_writer) {
        put(line, n);
    } else if (n_waiting + n <= ROOM) {
        memcpy(lines[filling] + n_waiting, line, n);
        n_waiting += n;
        pthread_cond_broadcast(&has_changed);
    } else {
        n_lost++;
    }
    tl_mutex_unlock(&lock);
}

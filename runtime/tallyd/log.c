/* tallyd's log: lines with the time since the machine started, in a file of bounded size or on
 * standard error. */
#include "runtime/tallyd/tallyd.h"
#include "tally/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOG_BYTES = 1 << 20 }; /* then it becomes FILE.old, and a new one begins */

static int log_fd = STDERR_FILENO;
static int log_level = LOG_WARNINGS;
static size_t log_bytes;
static char log_path[256];

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

void daemon_log(enum daemon_log_level level, const char *format, ...)
{
    char line[1024];
    if ((int)level > log_level || log_fd < 0)
        return;
    uint64_t ms = tl_clock_ns() / 1000000;
    int n = snprintf(line, sizeof line, "%llu.%03u tallyd: ", (unsigned long long)(ms / 1000),
                     (unsigned)(ms % 1000));
    va_list args;
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t length = m < 0 ? (size_t)n : (size_t)n + (size_t)m;
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    if (write(log_fd, line, length) > 0) /* a full disk loses lines, no more */
        log_bytes += length;
    if (log_path[0] != 0 && log_bytes > LOG_BYTES)
        turn_over();
}

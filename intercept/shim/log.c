/* What the library has to say, on standard error: one write per line, so that lines of several
 * processes stay whole. */
#include "intercept/shim/internal.h"
#include "tally/tell.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int most = 1;

void tl_log_level(int level)
{
    atomic_store_explicit(&most, level, memory_order_relaxed);
}

void tl_log(int level, const char *format, ...)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    char line[1200];
    va_list args;
    if (level > atomic_load_explicit(&most, memory_order_relaxed) || level < 0 || level > 3)
        return;
    int saved = errno,
        n = snprintf(line, sizeof line, "tally[%d]: %s", (int)getpid(), words[level]);
    va_start(args, format);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    if (m >= 0) {
        size_t end = (size_t)n + (size_t)m;
        if (end > sizeof line - 2)
            end = sizeof line - 2;
        line[end] = '\n';
        tl_tell(line, end + 1);
    }
    errno = saved;
}

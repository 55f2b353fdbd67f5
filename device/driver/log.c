/* The driver's messages, by the levels of TALLY_LOG: error, warn (if nothing is said), info, debug.
 * What is refused because the device lacks it is a warning, told once per cause: the program only
 * sees CUDA_ERROR_NOT_SUPPORTED, which names nothing. */
#include "device/driver/log.h"
#include "tally/hash.h"
#include "tally/lock.h"
#include "tally/tell.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum level { UNKNOWN, NOTHING, ERROR, WARN, INFO, DEBUG };

/* More warnings than that are a flood, and what comes after them is only for those who ask. */
enum { MOST_WARNINGS = 100 };

static enum level how_much(void)
{
    static const struct {
        const char *word;
        enum level level;
    } words[] = {{"0", NOTHING}, {"off", NOTHING}, {"", WARN},      {"error", ERROR},
                 {"warn", WARN}, {"info", INFO},   {"debug", DEBUG}};
    /* relaxed: every thread finds the same answer */
    static _Atomic int known;
    int is = atomic_load_explicit(&known, memory_order_relaxed);
    if (is == UNKNOWN) {
        const char *text = secure_getenv("TALLY_LOG");
        is = DEBUG; /* for any other word */
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (strcmp(text != NULL ? text : "", words[i].word) == 0)
                is = (int)words[i].level;
        atomic_store_explicit(&known, is, memory_order_relaxed);
    }
    return (enum level)is;
}

bool tl_drv_log_is_on(void)
{
    return how_much() >= INFO;
}

/* Whether this line was told before, or too many were. */
static bool was_told(const char *text)
{
    static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
    static uint64_t told[MOST_WARNINGS];
    static size_t n;
    uint64_t hash = tl_hash_64(text, strlen(text));
    bool is_old = false;
    tl_mutex_lock(&lock);
    for (size_t i = 0; i < n && !is_old; i++)
        is_old = told[i] == hash;
    if (!is_old && n == MOST_WARNINGS)
        is_old = true;
    else if (!is_old)
        told[n++] = hash;
    tl_mutex_unlock(&lock);
    return is_old;
}

/* The same line again: each time, only to those who ask for the driver's own messages, or never. */
enum again { SAID, KEPT, DROPPED };

static void say(enum level level, enum again again, const char *format, va_list args)
{
    char line[1400];
    int n = snprintf(line, sizeof line, "tally device %d: ", (int)getpid());
    vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    bool is_again = again != SAID && how_much() < DEBUG && was_told(line + n);
    if (is_again && again == DROPPED)
        return;
    tl_drv_logs_add(line + n);
    if (is_again || how_much() < level)
        return;
    size_t length = strlen(line);
    line[length] = '\n';
    tl_tell(line, length + 1);
}

#define SAY(level, again)                                                                          \
    va_list args;                                                                                  \
    va_start(args, format);                                                                        \
    say(level, again, format, args);                                                               \
    va_end(args)

void tl_drv_trace(const char *format, ...)
{
    SAY(DEBUG, SAID);
}

void tl_drv_log(const char *format, ...)
{
    SAY(INFO, SAID);
}

void tl_drv_warn(const char *format, ...)
{
    SAY(WARN, KEPT);
}

void tl_drv_tell_why_not(const char *format, ...)
{
    SAY(ERROR, SAID);
}

TL_DRV_FORMAT static void warn_once(const char *format, ...)
{
    SAY(WARN, DROPPED);
}

CUresult tl_drv_unimplemented(const char *name)
{
    warn_once("%s is not implemented; it returns CUDA_ERROR_NOT_SUPPORTED", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* Messages, numbers for people, and the progress line. */
#include "runtime/tally/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void cli_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("tally: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

void *cli_must(void *memory)
{
    if (memory == NULL) {
        cli_complain("out of memory");
        exit(CLI_FAILED);
    }
    return memory;
}

/* --- numbers for people --- */

struct cli_text cli_count(uint64_t n)
{
    struct cli_text t;
    char digits[24];
    size_t from = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, n);
    size_t to = from + (from - 1) / 3;
    t.s[to] = 0;
    for (size_t done = 0; from > 0; done++) {
        if (done > 0 && done % 3 == 0)
            t.s[--to] = ',';
        t.s[--to] = digits[--from];
    }
    return t;
}

struct cli_text cli_bytes(uint64_t n)
{
    static const char *const units[] = {"KB", "MB", "GB", "TB"};
    struct cli_text t;
    if (n < 1000) {
        snprintf(t.s, sizeof t.s, "%u B", (unsigned)n);
        return t;
    }
    double value = (double)n / 1000;
    size_t unit = 0;
    for (; value >= 999.95 && unit < 3; unit++)
        value /= 1000;
    snprintf(t.s, sizeof t.s, "%.1f %s", value, units[unit]);
    return t;
}

struct cli_text cli_percent(uint64_t part, uint64_t whole)
{
    struct cli_text t = {"-"};
    if (whole != 0) {
        uint64_t tenths = part * 1000 / whole; /* rounded down: 100.0 % means all */
        snprintf(t.s, sizeof t.s, "%" PRIu64 ".%" PRIu64 " %%", tenths / 10, tenths % 10);
    }
    return t;
}

/* --- progress --- */

enum { FIRST_LINE_NS = 500000000, NEXT_LINE_NS = 100000000, LINE_COLUMNS = 79 };

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void cli_progress_init(struct cli_progress *p)
{
    const char *terminal = getenv("TERM");
    bool can_erase = terminal != NULL && strcmp(terminal, "dumb") != 0;
    *p = (struct cli_progress){.is_enabled = can_erase && isatty(STDERR_FILENO),
                               .next_ns = now_ns() + FIRST_LINE_NS};
}

void cli_progress_show(struct cli_progress *p, const char *format, ...)
{
    if (!p->is_enabled || now_ns() < p->next_ns)
        return;
    char line[LINE_COLUMNS + 1]; /* a longer one would wrap, and could not be erased */
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    p->is_shown = true;
    p->next_ns = now_ns() + NEXT_LINE_NS;
}

void cli_progress_clear(struct cli_progress *p)
{
    if (!p->is_shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->is_shown = false;
}

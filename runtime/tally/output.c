/* Messages and the progress line. */
#include "runtime/tally/cli.h"
#include "tally/clock.h"
#include "tally/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cli_complain(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tl_text_clean(text, strlen(text), true); /* names of files, and what stands in them */
    fprintf(stderr, "tally: %s\n", text);
}

void *cli_must(void *memory)
{
    if (memory == NULL) {
        cli_complain("out of memory");
        exit(CLI_FAILED);
    }
    return memory;
}

/* --- progress --- */

enum { FIRST_LINE_NS = 500000000, NEXT_LINE_NS = 100000000, LINE_COLUMNS = 79 };

void cli_progress_init(struct cli_progress *p)
{
    const char *terminal = secure_getenv("TERM");
    bool can_erase = terminal != NULL && strcmp(terminal, "dumb") != 0;
    *p = (struct cli_progress){.is_enabled = can_erase && isatty(STDERR_FILENO),
                               .next_ns = tl_clock_ns() + FIRST_LINE_NS};
}

void cli_progress_show(struct cli_progress *p, const char *format, ...)
{
    if (!p->is_enabled || tl_clock_ns() < p->next_ns)
        return;
    char line[LINE_COLUMNS + 1]; /* a longer one would wrap, and could not be erased */
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    tl_text_clean(line, strlen(line), false);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    p->is_shown = true;
    p->next_ns = tl_clock_ns() + NEXT_LINE_NS;
}

void cli_progress_clear(struct cli_progress *p)
{
    if (!p->is_shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->is_shown = false;
}

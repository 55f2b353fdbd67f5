/* `tally top`: what its files share.
 *
 *     top.c       options, the terminal, keys
 *     top_draw.c  from what is known to a frame of text */
#ifndef TALLY_RUNTIME_TALLY_TOP_H
#define TALLY_RUNTIME_TALLY_TOP_H

#include "runtime/tally/clients.h"

enum { TOP_HISTORY = 120 };
enum top_sort { TOP_BY_LEVEL, TOP_BY_SHARE, TOP_BY_MEMORY, TOP_BY_WAIT, TOP_BY_PID, TOP_SORTS };
extern const char *const top_sort_names[TOP_SORTS];

/* What is shown. */
struct top_view {
    struct cli_clients now, before; /* of two moments, `elapsed_ns` apart; 0: there is one */
    uint64_t elapsed_ns;
    enum top_sort sort;
    bool is_reversed, has_colours;
    unsigned page;                /* of columns, where not all fit */
    char filter[64];              /* part of the job's name, its command or its user's */
    int32_t selected;             /* pid; 0: none */
    char prompt[160];             /* a question, or what came of the last key; may be empty */
    uint8_t history[TOP_HISTORY]; /* percent that the device was busy, the newest last */
    unsigned n_history;
    unsigned rows, columns;
};

/* Sorts and filters `now`. */
void top_arrange(struct top_view *v);
/* One frame: lines of at most `columns`, at most `rows` of them, without the last end of line. */
void top_draw(struct tl_buf *out, const struct top_view *v);
/* All jobs and columns, as text for scripts. */
void top_csv(struct tl_buf *out, const struct top_view *v);
/* The part of the time that the device was busy, in percent, all jobs together. */
unsigned top_busy(const struct top_view *v);

#endif

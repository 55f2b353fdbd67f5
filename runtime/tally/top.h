/* `tally top`: what its files share.
 *
 *     top.c          options, the terminal, keys
 *     top_devices.c  GPUs: how busy they are and were, what is held of them
 *     top_draw.c     jobs: from what is known to a frame of text, and for scripts */
#ifndef TALLY_RUNTIME_TALLY_TOP_H
#define TALLY_RUNTIME_TALLY_TOP_H

#include "runtime/tally/clients.h"

enum { TOP_HISTORY = 120 };
enum top_sort { TOP_BY_LEVEL, TOP_BY_SHARE, TOP_BY_MEMORY, TOP_BY_WAIT, TOP_BY_PID, TOP_SORTS };
extern const char *const top_sort_names[TOP_SORTS];

/* A GPU, and percent of the last looks, the newest last. */
struct top_device {
    struct cli_device now;
    uint8_t busy[TOP_HISTORY], held[TOP_HISTORY];
    unsigned n_history;
};

/* What is shown. */
struct top_view {
    struct cli_clients now, before; /* of two moments, `elapsed_ns` apart; 0: there is one */
    uint64_t elapsed_ns;
    size_t n_all; /* jobs, those that the filter leaves out, too */
    enum top_sort sort;
    bool is_reversed, has_colours;
    unsigned page;    /* of columns, where not all fit */
    char filter[64];  /* part of the job's name, its command or its user's */
    int32_t selected; /* pid; 0: none */
    size_t first;     /* job that is shown, where not all fit */
    char prompt[160]; /* a question, or what came of the last key; may be empty */
    struct top_device devices[CLI_DEVICES];
    size_t n_devices;
    unsigned rows, columns;
};

/* --- top_devices.c --- */

/* Of `now`, before it is filtered. */
void top_devices_look(struct top_view *v);
/* What there is of devices in a frame, in at most so many lines. */
void top_devices_draw(struct tl_buf *out, const struct top_view *v, unsigned *row, unsigned most);

/* --- top_draw.c --- */

/* Sorts and filters `now`. */
void top_arrange(struct top_view *v);
/* One frame: lines of at most `columns`, at most `rows` of them, without the last end of line.
 * Moves `first` so that the selected job is to be seen. */
void top_draw(struct tl_buf *out, struct top_view *v);
/* A line of it, cut to the width, perhaps in a colour; false if there is no row left. */
bool top_line(struct tl_buf *out, const struct top_view *v, unsigned *row, const char *colour,
              const char *text);
/* All jobs and columns, as text for scripts. */
void top_csv(struct tl_buf *out, const struct top_view *v);

#endif

/* From what tallyd knows to a frame of text, of any size and with colours or without. */
#include "runtime/tally/top.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tally/file.h"
#include "tally/text.h"

const char *const top_sort_names[TOP_SORTS] = {"level", "share", "memory", "wait", "pid"};

/* --- jobs ------------------------------------------------------------------------------------- */

static const struct tl_wire_status *earlier(const struct top_view *v, uint32_t id)
{
    for (size_t i = 0; i < v->before.n; i++)
        if (v->before.items[i].id == id)
            return &v->before.items[i];
    return NULL;
}

/* The part of the time since the last look that work of it waited, in permille. */
static uint64_t waiting(const struct top_view *v, const struct tl_wire_status *s)
{
    const struct tl_wire_status *b = earlier(v, s->id);
    if (b == NULL || v->elapsed_ns == 0 || s->waited_ns < b->waited_ns)
        return 0;
    uint64_t part = (s->waited_ns - b->waited_ns) * 1000 / v->elapsed_ns;
    return part < 1000 ? part : 1000;
}

static void user_of(const struct tl_wire_status *s, char *text, size_t size)
{
    const struct passwd *user = getpwuid(s->uid);
    if (user != NULL)
        snprintf(text, size, "%s", user->pw_name);
    else
        snprintf(text, size, "%u", s->uid);
}

/* Its command line, or the job's name where that cannot be read. */
static void command_of(const struct tl_wire_status *s, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", s->pid);
    int n = tl_file_head(path, text, size);
    for (int i = 0; i + 1 < n; i++)
        text[i] = text[i] == 0 ? ' ' : text[i];
    if (n <= 0)
        snprintf(text, size, "%s", s->job);
    tl_text_clean(text, strlen(text), false); /* what others call themselves */
}

static bool is_wanted(const struct top_view *v, const struct tl_wire_status *s)
{
    char user[64], command[256];
    user_of(s, user, sizeof user);
    command_of(s, command, sizeof command);
    return v->filter[0] == 0 || strstr(s->job, v->filter) != NULL ||
           strstr(command, v->filter) != NULL || strstr(user, v->filter) != NULL;
}

static double key_of(const struct top_view *v, const struct tl_wire_status *s)
{
    switch (v->sort) {
    case TOP_BY_SHARE:
        return s->share_permille;
    case TOP_BY_MEMORY:
        return (double)s->memory_bytes;
    case TOP_BY_WAIT:
        return (double)waiting(v, s);
    case TOP_BY_PID:
        return -(double)s->pid;
    default:
        return s->client.level;
    }
}

void top_arrange(struct top_view *v)
{
    size_t n = 0;
    for (size_t i = 0; i < v->now.n; i++)
        if (is_wanted(v, &v->now.items[i]))
            v->now.items[n++] = v->now.items[i];
    v->now.n = n;
    for (size_t i = 1; i < n; i++) { /* they are few, and equals stay in order */
        struct tl_wire_status s = v->now.items[i];
        size_t k = i;
        for (; k > 0 && (key_of(v, &s) > key_of(v, &v->now.items[k - 1])) != v->is_reversed &&
               key_of(v, &s) != key_of(v, &v->now.items[k - 1]);
             k--)
            v->now.items[k] = v->now.items[k - 1];
        v->now.items[k] = s;
    }
}

/* --- cells ------------------------------------------------------------------------------------ */

enum cell {
    PID,
    USER,
    LEVEL,
    STATE,
    SHARE,
    WAIT,
    MEMORY,
    LIMIT,
    RUNG,
    PREEMPT,
    P99,
    OUTSIDE,
    GPU,
    CELLS
};
static const struct {
    const char *head, *csv;
    int width; /* negative: to the left */
} cells[CELLS] = {
    {"PID", "pid", 7},
    {"USER", "user", -8},
    {"LVL", "level", 4},
    {"STATE", "state", -7},
    {"SHARE", "share_permille", 6},
    {"WAIT", "wait_permille", 6},
    {"MEMORY", "memory_bytes", 9},
    {"LIMIT", "limit_bytes", 9},
    {"RUNG", "rung", -10},
    {"PREEMPT", "preemptions", 8},
    {"P99", "p99_ns", 9},
    {"OUTSIDE", "uncontrolled_ns", 9},
    {"GPU", "gpus", -5},
};
static const enum cell first_page[] = {PID, USER, LEVEL, STATE, SHARE, WAIT, MEMORY, LIMIT};
static const enum cell second_page[] = {PID, LEVEL, GPU, SHARE, RUNG, PREEMPT, P99, OUTSIDE};
static const enum cell all_cells[] = {PID,    USER,  LEVEL, STATE,   GPU, SHARE,  WAIT,
                                      MEMORY, LIMIT, RUNG,  PREEMPT, P99, OUTSIDE};
enum { WIDE = 132 }; /* columns in which all of them fit, with something of the command */

/* The numbers of its GPUs, as the frame counts them: "0,1". */
static struct tl_text gpus_of(const struct top_view *v, const struct tl_wire_status *s)
{
    struct tl_text t = {"-"};
    size_t n = 0;
    for (size_t i = 0; i < v->n_devices; i++)
        for (uint32_t g = 0; g < s->gpus.n && g < TL_WIRE_GPUS; g++)
            if (n + 8 < sizeof t.s && memcmp(v->devices[i].now.uuid, s->gpus.uuids[g], 16) == 0)
                n += (size_t)snprintf(t.s + n, sizeof t.s - n, "%s%zu", n > 0 ? "," : "", i);
    return t;
}

/* What stands in a column for a job. */
static struct tl_text cell_of(const struct top_view *v, const struct tl_wire_status *s, enum cell c)
{
    struct tl_text t = {{0}};
    switch (c) {
    case PID:
        snprintf(t.s, sizeof t.s, "%d", s->pid);
        return t;
    case USER:
        user_of(s, t.s, 9 < sizeof t.s ? 9 : sizeof t.s);
        return t;
    case LEVEL:
        snprintf(t.s, sizeof t.s, "%d", s->client.level);
        return t;
    case STATE:
        snprintf(t.s, sizeof t.s, "%s", cli_client_state(s));
        return t;
    case SHARE:
        return tl_text_share(s->share_permille, 1000);
    case WAIT:
        return tl_text_share(waiting(v, s), 1000);
    case MEMORY:
        return tl_text_bytes((double)s->memory_bytes);
    case RUNG:
        snprintf(t.s, sizeof t.s, "%s", cli_client_rung(s));
        return t;
    case GPU:
        return gpus_of(v, s);
    case PREEMPT:
        return tl_text_count((double)s->preemptions);
    case OUTSIDE:
        return tl_text_time((double)s->uncontrolled_ns);
    default:
        break;
    }
    uint64_t value = c == LIMIT ? s->client.memory_limit : s->p99_ns;
    snprintf(t.s, sizeof t.s, "-");
    return value == 0 ? t : c == LIMIT ? tl_text_bytes((double)value) : tl_text_time((double)value);
}

/* --- frame ------------------------------------------------------------------------------------ */

/* Bytes of the character there, and the columns that it takes; 0 bytes if it is none, or one that a
 * terminal could take for a command. */
static size_t character(const unsigned char *p, unsigned *width)
{
    size_t n = p[0] < 0x80                   ? 1
               : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
               : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
               : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                             : 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* from U+1100 on there are some that take two columns: counted as if all did */
    *width = n == 4 || (n == 3 && (p[0] > 0xe1 || p[1] >= 0x84)) ? 2 : 1;
    if (n == 1 && (p[0] < ' ' || p[0] == 0x7f))
        return 0;
    return n == 2 && p[0] == 0xc2 && p[1] < 0xa0 ? 0 : n;
}

bool top_line(struct tl_buf *out, const struct top_view *v, unsigned *row, const char *colour,
              const char *text)
{
    if (*row >= v->rows)
        return false;
    tl_buf_printf(out, "%s%s", *row > 0 ? "\n" : "", v->has_colours ? colour : "");
    unsigned used = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p != 0;) {
        unsigned width = 1;
        size_t n = character(p, &width);
        if (used + width > v->columns)
            break;
        tl_buf_add(out, n > 0 ? (const char *)p : "?", n > 0 ? n : 1);
        used += width;
        p += n > 0 ? n : 1;
    }
    tl_buf_puts(out, v->has_colours && colour[0] != 0 ? "\033[0m" : "");
    ++*row;
    return true;
}

static void put_job(struct tl_buf *out, const struct top_view *v, unsigned *row,
                    const enum cell *list, size_t n, const struct tl_wire_status *s)
{
    struct tl_buf line = {0};
    char command[256] = "COMMAND";
    for (size_t i = 0; i < n; i++)
        tl_buf_printf(&line, "%*s ", cells[list[i]].width,
                      s == NULL ? cells[list[i]].head : cell_of(v, s, list[i]).s);
    if (s != NULL)
        command_of(s, command, sizeof command);
    tl_buf_puts(&line, command);
    const char *colour = s == NULL                          ? "\033[7m"
                         : s->pid == v->selected            ? "\033[7m"
                         : s->client.is_paused != 0         ? "\033[33m"
                         : s->client.level >= TL_LEVEL_HIGH ? "\033[32m"
                                                            : "";
    /* without colours the chosen one has a mark in front of its number */
    if (s != NULL && s->pid == v->selected && line.p != NULL && line.p[0] == ' ')
        line.p[0] = '>';
    top_line(out, v, row, colour, line.p != NULL ? line.p : "");
    tl_buf_finish(&line);
}

/* So that the chosen job is among the `room` that are shown. */
static void scroll(struct top_view *v, size_t room)
{
    size_t at = 0;
    while (at < v->now.n && v->now.items[at].pid != v->selected)
        at++;
    if (at == v->now.n)
        at = v->first;
    if (at < v->first)
        v->first = at;
    if (room > 0 && at >= v->first + room)
        v->first = at - room + 1;
    if (v->first + room > v->now.n)
        v->first = v->now.n > room ? v->now.n - room : 0;
}

void top_draw(struct tl_buf *out, struct top_view *v)
{
    unsigned row = 0;
    bool is_wide = v->columns >= WIDE;
    const enum cell *list = is_wide ? all_cells : v->page % 2 == 0 ? first_page : second_page;
    size_t n = is_wide            ? sizeof all_cells / sizeof list[0]
               : v->page % 2 == 0 ? sizeof first_page / sizeof list[0]
                                  : sizeof second_page / sizeof list[0];
    top_devices_draw(out, v, &row, v->rows < 6 ? 2 : v->rows / 2);
    put_job(out, v, &row, list, n, NULL);
    size_t room = v->rows > row + 1 ? v->rows - row - 1 : 0; /* the last line is for the prompt */
    scroll(v, room);
    for (size_t i = v->first; i < v->now.n && i < v->first + room; i++)
        put_job(out, v, &row, list, n, &v->now.items[i]);
    if (v->prompt[0] != 0)
        top_line(out, v, &row, "\033[1m", v->prompt);
}

/* --- for scripts ------------------------------------------------------------------------------ */

static void put_csv_text(struct tl_buf *out, const char *text)
{
    tl_buf_putc(out, '"');
    for (; *text != 0; text++)
        tl_buf_printf(out, *text == '"' ? "\"\"" : "%c", *text);
    tl_buf_putc(out, '"');
}

static void put_csv_gpus(struct tl_buf *out, const struct tl_wire_status *s)
{
    char name[48];
    for (uint32_t g = 0; g < s->gpus.n && g < TL_WIRE_GPUS; g++) {
        tl_wire_gpu_name(s->gpus.uuids[g], name);
        tl_buf_printf(out, "%s%s", g > 0 ? " " : "", name);
    }
    tl_buf_putc(out, ',');
}

void top_csv(struct tl_buf *out, const struct top_view *v)
{
    char user[64], command[256];
    for (size_t i = 0; i < CELLS; i++)
        tl_buf_printf(out, "%s,", cells[i].csv);
    tl_buf_puts(out, "command\n");
    for (size_t i = 0; i < v->now.n; i++) {
        const struct tl_wire_status *s = &v->now.items[i];
        user_of(s, user, sizeof user);
        command_of(s, command, sizeof command);
        tl_buf_printf(out, "%d,", s->pid);
        put_csv_text(out, user);
        tl_buf_printf(out,
                      ",%d,%s,%u,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,%" PRIu64 ",%" PRIu64
                      ",%" PRIu64 ",",
                      s->client.level, cli_client_state(s), s->share_permille, waiting(v, s),
                      s->memory_bytes, s->client.memory_limit, cli_client_rung(s), s->preemptions,
                      s->p99_ns, s->uncontrolled_ns);
        put_csv_gpus(out, s);
        put_csv_text(out, command);
        tl_buf_putc(out, '\n');
    }
}

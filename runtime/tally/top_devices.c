/* The GPUs in a frame of `tally top`: a bar for now and one for the time before, of how busy each
 * is and of what jobs hold of its memory. */
#include "runtime/job/mps.h"
#include "runtime/tally/top.h"

#include <stdio.h>
#include <string.h>

static uint8_t percent_held(const struct cli_device *d)
{
    if (d->memory_bytes == 0)
        return 0;
    return d->held_bytes < d->memory_bytes ? (uint8_t)(d->held_bytes * 100 / d->memory_bytes) : 100;
}

/* A device of the last look, or NULL. */
static const struct top_device *find_device(const struct top_device *list, size_t n,
                                            const uint8_t uuid[16])
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(list[i].now.uuid, uuid, 16) == 0)
            return &list[i];
    return NULL;
}

static void remember(struct top_device *d)
{
    if (d->n_history == TOP_HISTORY) {
        d->n_history--;
        memmove(d->busy, d->busy + 1, d->n_history);
        memmove(d->held, d->held + 1, d->n_history);
    }
    d->busy[d->n_history] = (uint8_t)(d->now.busy_permille / 10);
    d->held[d->n_history++] = percent_held(&d->now);
}

void top_devices_look(struct top_view *v)
{
    static struct top_device before[CLI_DEVICES];
    static struct cli_device now[CLI_DEVICES];
    size_t n_before = v->n_devices;
    memcpy(before, v->devices, n_before * sizeof *before);
    v->n_devices = cli_devices(&v->now, now);
    for (size_t i = 0; i < v->n_devices; i++) {
        const struct top_device *old = find_device(before, n_before, now[i].uuid);
        v->devices[i] = old != NULL ? *old : (struct top_device){0};
        v->devices[i].now = now[i];
        remember(&v->devices[i]);
    }
}

/* --- drawing ---------------------------------------------------------------------------------- */

enum { MOST_BAR = 20 };

static const char *bar_of(unsigned percent, unsigned width, char text[MOST_BAR + 1])
{
    for (unsigned i = 0; i < width; i++)
        text[i] = i * 100 < percent * width ? '#' : '.';
    text[width] = 0;
    return text;
}

/* The last `width` looks, a character each. */
static const char *past_of(const uint8_t *list, unsigned n, unsigned width,
                           char text[TOP_HISTORY + 1])
{
    static const char steps[] = " .:-=+*#%@";
    unsigned shown = n < width ? n : width;
    for (unsigned i = 0; i < shown; i++)
        text[i] = steps[(list[n - shown + i] * 9 + 99) / 100];
    text[shown] = 0;
    return text;
}

/* How many looks fit behind so many characters. */
static unsigned room_behind(const struct top_view *v, unsigned used)
{
    unsigned room = v->columns > used + 2 ? v->columns - used - 2 : 0;
    return room < TOP_HISTORY ? room : TOP_HISTORY;
}

/* Two lines: busy, memory. */
static void draw_tall(struct tl_buf *out, const struct top_view *v, unsigned *row,
                      const struct top_device *d)
{
    char line[512], uuid[48], bar[MOST_BAR + 1], past[TOP_HISTORY + 1];
    unsigned busy = d->now.busy_permille / 10, held = percent_held(&d->now);
    tl_wire_gpu_name(d->now.uuid, uuid);
    int n = snprintf(line, sizeof line, "GPU %-2zu busy [%s] %3u %% %s ", (size_t)(d - v->devices),
                     bar_of(busy, MOST_BAR, bar), busy, d->now.name[0] != 0 ? d->now.name : uuid);
    snprintf(line + n, sizeof line - (size_t)n, "|%s|",
             past_of(d->busy, d->n_history, room_behind(v, (unsigned)n), past));
    top_line(out, v, row, "", line);
    n = snprintf(line, sizeof line, "        mem [%s] %3u %% ", bar_of(held, MOST_BAR, bar), held);
    n += snprintf(line + n, sizeof line - (size_t)n, "%s of %s ",
                  tl_text_bytes((double)d->now.held_bytes).s,
                  d->now.memory_bytes != 0 ? tl_text_bytes((double)d->now.memory_bytes).s : "?");
    snprintf(line + n, sizeof line - (size_t)n, "|%s|",
             past_of(d->held, d->n_history, room_behind(v, (unsigned)n), past));
    top_line(out, v, row, "", line);
}

/* One line, where there are many. */
static void draw_flat(struct tl_buf *out, const struct top_view *v, unsigned *row,
                      const struct top_device *d)
{
    enum { BAR = 10, PAST = 10 };
    char line[512], bar[MOST_BAR + 1], other[MOST_BAR + 1], past[TOP_HISTORY + 1];
    unsigned busy = d->now.busy_permille / 10, held = percent_held(&d->now);
    snprintf(line, sizeof line, "GPU %-2zu busy [%s] %3u %% |%-10s| mem [%s] %3u %% %.40s",
             (size_t)(d - v->devices), bar_of(busy, BAR, bar), busy,
             past_of(d->busy, d->n_history, PAST, past), bar_of(held, BAR, other), held,
             d->now.name);
    top_line(out, v, row, "", line);
}

void top_devices_draw(struct tl_buf *out, const struct top_view *v, unsigned *row, unsigned most)
{
    char line[512];
    struct tl_mps mps;
    unsigned last = *row + most;
    tl_mps_look(&mps);
    snprintf(line, sizeof line, "policy %s, %zu job%s%s%s, by %s%s, MPS %s", v->now.policy,
             v->n_all, v->n_all == 1 ? "" : "s", v->filter[0] != 0 ? ", only " : "", v->filter,
             top_sort_names[v->sort], v->is_reversed ? " upwards" : "",
             mps.state == TL_MPS_RUNS ? "runs" : "does not run");
    top_line(out, v, row, "\033[1m", line);
    bool is_tall = *row + 2 * v->n_devices <= last;
    size_t shown = is_tall || *row + v->n_devices <= last ? v->n_devices : last - *row - 1;
    for (size_t i = 0; i < shown; i++)
        (is_tall ? draw_tall : draw_flat)(out, v, row, &v->devices[i]);
    if (shown < v->n_devices) {
        snprintf(line, sizeof line, "and %zu more devices", v->n_devices - shown);
        top_line(out, v, row, "", line);
    }
    if (v->n_devices == 0)
        top_line(out, v, row, "", "no device is used");
}

/* Who ran and who waited.  A lane is a strip that is stretched to the width of the page, whatever
 * that is; words stand outside of it, so that they are not stretched. */
#include "runtime/report/html.h"

#include <math.h>
#include <stdlib.h>

enum { STRIP = 1000 }; /* units of a lane's width */

/* Five times from 0 to the length, each behind `sign`. */
static void put_axis(struct tl_buf *out, double length_ns, const char *sign)
{
    tl_buf_puts(out, "<div class='axis num'>");
    for (int i = 0; i <= 4; i++)
        tl_buf_printf(out, "<span>%s%s</span>", sign,
                      i == 0 ? "0" : tl__html_time(length_ns * i / 4).s);
    tl_buf_puts(out, "</div>");
}

static void begin_lane(struct tl_buf *out, const struct tl_report_job *j, uint32_t colour)
{
    tl_buf_printf(out, "<div class='lane k%u'><div class=what><span class=dot></span><b>",
                  colour % HTML_COLOURS);
    tl_text_html(out, j->name);
    tl_buf_puts(out, "</b><span class='soft num'>");
}

/* --- the whole run --- */

struct cell {
    double run, wait; /* of the time */
    double slowest_ns;
};

/* The activity of a job, gathered into cells over the run.  At most `n` of them. */
static uint32_t gather(const struct tl_report_run *run, const struct tl_report_job *j,
                       struct cell *cells, uint32_t n)
{
    const double slot_ns = 1e8;
    double span = (double)(run->end_ns - run->begin_ns);
    double cell_ns = fmax(slot_ns, span / n);
    uint32_t used = (uint32_t)ceil(span / cell_ns);
    used = used < 1 ? 1 : used > n ? n : used;
    for (uint32_t i = 0; i < j->n_slots; i++) {
        double at = (double)j->slots[i].number * slot_ns - (double)run->begin_ns;
        double place = fmax(0, floor((at + slot_ns / 2) / cell_ns));
        if (at + slot_ns < 0 || place >= used)
            continue; /* what does not lie in the run */
        uint32_t cell = (uint32_t)place;
        cells[cell].run += (double)j->slots[i].run_ns / cell_ns;
        cells[cell].wait += (double)j->slots[i].wait_ns / cell_ns;
        cells[cell].slowest_ns = fmax(cells[cell].slowest_ns, (double)j->slots[i].slowest_ns);
    }
    return used;
}

static void put_area(struct tl_buf *out, const char *class, const double *low, const double *high,
                     uint32_t n, double height)
{
    tl_buf_printf(out, "<path class=%s d='", class);
    double width = (double)STRIP / n;
    for (uint32_t i = 0; i < n; i++) {
        if (high[i] - low[i] < 0.002)
            continue;
        tl_buf_printf(out, "M%.1f %.1fh%.2fv%.2fh%.2fz", i * width, height * (1 - high[i]), width,
                      height * (high[i] - low[i]), -width);
    }
    tl_buf_puts(out, "' />");
}

/* A job over the whole run: how much it ran, how much it waited, how slow its requests were. */
static void put_overview_lane(struct tl_buf *out, const struct tl_report_run *run,
                              const struct tl_report_job *j, uint32_t colour)
{
    enum { CELLS = 400 };
    struct cell cells[CELLS] = {{0}};
    double zero[CELLS] = {0}, ran[CELLS], waited[CELLS], slow[CELLS];
    double slowest = 0;
    uint32_t n = gather(run, j, cells, CELLS);
    double scale = j->is_sampled && j->ran.sum > 0 ? (double)j->device_ns / (double)j->ran.sum : 1;
    for (uint32_t i = 0; i < n; i++) {
        ran[i] = fmin(1, cells[i].run * scale);
        waited[i] = fmin(1, ran[i] + cells[i].wait);
        slowest = fmax(slowest, cells[i].slowest_ns);
    }
    begin_lane(out, j, colour);
    tl_buf_puts(out, "on the device (solid) and waiting (pale), share of the time");
    tl_buf_puts(out, j->is_sampled ? "; estimated from a sample</span></div>" : "</span></div>");
    tl_buf_printf(out, "<svg viewBox='0 0 %d 40' preserveAspectRatio=none style='height:40px'>",
                  STRIP);
    put_area(out, "run", zero, ran, n, 40);
    put_area(out, "wait", ran, waited, n, 40);
    tl_buf_puts(out, "</svg>");
    if (slowest > 0) {
        for (uint32_t i = 0; i < n; i++)
            slow[i] = cells[i].slowest_ns / slowest;
        tl_buf_printf(
            out,
            "<div class='what soft num' style='margin-top:4px'>slowest request, up to %s</div>",
            tl__html_time(slowest).s);
        tl_buf_printf(out, "<svg viewBox='0 0 %d 28' preserveAspectRatio=none style='height:28px'>",
                      STRIP);
        put_area(out, "req", zero, slow, n, 28);
        tl_buf_puts(out, "</svg>");
    }
    tl_buf_puts(out, "</div>");
}

void tl__plot_overview(struct tl_buf *out, const struct tl_report_run *run, const uint32_t *colours)
{
    for (uint32_t i = 0; i < run->n_jobs; i++)
        if (run->jobs[i].n_slots > 0)
            put_overview_lane(out, run, &run->jobs[i], colours[i]);
    put_axis(out, (double)(run->end_ns - run->begin_ns), "");
}

/* --- the last moments --- */

struct window {
    double from, to; /* nanoseconds */
};

static bool is_shown(enum tl_record_span kind)
{
    return kind == TL_SPAN_RUN || kind == TL_SPAN_WAIT || kind == TL_SPAN_REQUEST;
}

/* Long enough for a dozen requests, if there are requests: from `to` back. */
static double wanted_length(const struct tl_report_run *run, double to)
{
    enum { REQUESTS = 12 };
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        double begin = to;
        int seen = 0;
        for (uint32_t s = j->n_spans; s > 0 && seen < REQUESTS; s--) {
            const struct tl_report_span *span = &j->spans[s - 1];
            if (span->kind != TL_SPAN_REQUEST || (double)span->begin_ns >= to)
                continue;
            begin = (double)span->begin_ns;
            seen++;
        }
        if (seen > 0)
            return fmin(2e9, fmax(1e6, 1.02 * (to - begin)));
    }
    return 1e8;
}

/* The end of the time that the timelines of all jobs cover; of the last job's, if they do not
 * overlap. */
static struct window choose_window(const struct tl_report_run *run)
{
    struct window w = {0, 1e300};
    double latest = 0;
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        double first = 1e300, last = 0;
        for (uint32_t s = 0; s < j->n_spans; s++) {
            if (!is_shown(j->spans[s].kind))
                continue;
            first = fmin(first, (double)j->spans[s].begin_ns);
            last = fmax(last, (double)j->spans[s].end_ns);
        }
        if (last == 0)
            continue;
        w.from = fmax(w.from, first);
        w.to = fmin(w.to, last);
        latest = fmax(latest, last);
    }
    if (w.to <= w.from || w.to > 1e299)
        w = (struct window){0, latest};
    w.from = fmax(w.from, w.to - wanted_length(run, w.to));
    return w;
}

/* Spans of one kind as one path; what touches or nearly so is one piece.  Returns the share of the
 * window that they cover. */
static double put_spans(struct tl_buf *out, const struct tl_report_job *j, enum tl_record_span kind,
                        const char *class, const struct window *w, int y, int height)
{
    double covered = 0, begin = -1, end = -1;
    tl_buf_printf(out, "<path class=%s d='", class);
    for (uint32_t i = 0; i <= j->n_spans; i++) {
        double from = 1e300, to = 1e300;
        if (i < j->n_spans) {
            const struct tl_report_span *s = &j->spans[i];
            if (s->kind != kind || (double)s->end_ns <= w->from || (double)s->begin_ns >= w->to)
                continue;
            from = fmax(0, ((double)s->begin_ns - w->from) / (w->to - w->from) * STRIP);
            to = fmin(STRIP, ((double)s->end_ns - w->from) / (w->to - w->from) * STRIP);
        }
        if (begin >= 0 && from <= end + 0.3) {
            end = fmax(end, to);
            continue;
        }
        if (begin >= 0) {
            covered += end - begin;
            tl_buf_printf(out, "M%.1f %dh%.1fv%dh%.1fz", begin, y, fmax(end - begin, 0.4), height,
                          -fmax(end - begin, 0.4));
        }
        begin = from;
        end = to;
    }
    tl_buf_puts(out, "' />");
    return covered / STRIP;
}

static void put_moments_lane(struct tl_buf *out, const struct tl_report_job *j,
                             const struct window *w, uint32_t colour)
{
    struct tl_buf strip = {0};
    put_spans(&strip, j, TL_SPAN_REQUEST, "req", w, 1, 5);
    double ran = put_spans(&strip, j, TL_SPAN_RUN, "run", w, 9, 14);
    double waited = put_spans(&strip, j, TL_SPAN_WAIT, "wait", w, 25, 6);
    begin_lane(out, j, colour);
    tl_buf_printf(out, "running %s%s", tl_text_percent(ran).s,
                  j->is_sampled ? " (only a sample of its work is drawn)" : "");
    if (waited > 0)
        tl_buf_printf(out, ", waiting %s", tl_text_percent(waited).s);
    tl_buf_printf(
        out, "</span></div><svg viewBox='0 0 %d 32' preserveAspectRatio=none style='height:44px'>",
        STRIP);
    if (strip.failed)
        out->failed = true;
    else
        tl_buf_add(out, strip.p, strip.n);
    tl_buf_puts(out, "</svg></div>");
    tl_buf_finish(&strip);
}

void tl__plot_moments(struct tl_buf *out, const struct tl_report_run *run, const uint32_t *colours)
{
    struct window w = choose_window(run);
    if (w.to <= w.from)
        return;
    for (uint32_t i = 0; i < run->n_jobs; i++)
        if (run->jobs[i].n_spans > 0)
            put_moments_lane(out, &run->jobs[i], &w, colours[i]);
    put_axis(out, w.to - w.from, "+");
}

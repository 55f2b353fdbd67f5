/* The report as a page. */
#include "runtime/report/html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOP_KERNELS = 10, TABLE_KERNELS = 300, TABLE_OPS = 5, SLOW_SHOWN = 12, MAX_CURVES = 16 };

/* --- small things --- */

struct tl_text tl__html_time(double ns)
{
    struct tl_text plain = tl_text_time(ns), t;
    const char *unit = strstr(plain.s, " us");
    if (unit == NULL)
        return plain;
    snprintf(t.s, sizeof t.s, "%.*s &micro;s", (int)(unit - plain.s), plain.s);
    return t;
}

static void tile(struct tl_buf *out, const char *name, const char *value)
{
    tl_buf_printf(out, "<div><dt>%s</dt><dd class=num>%s</dd></div>", name, value);
}

/* How a P99 compares with the one of the first run. */
static const char *judgement(double ratio)
{
    return ratio <= 1.1 ? "good" : ratio <= 1.5 ? "warn" : "bad";
}

/* --- what concerns all runs --- */

static void put_head(struct tl_buf *out, const struct tl_report *r)
{
    uint32_t jobs = 0;
    uint64_t begin_ns = 0;
    for (uint32_t i = 0; i < r->n_runs; i++) {
        jobs += r->runs[i].n_jobs;
        for (uint32_t k = 0; k < r->runs[i].n_jobs; k++)
            if (begin_ns == 0 || r->runs[i].jobs[k].begin_wall_ns < begin_ns)
                begin_ns = r->runs[i].jobs[k].begin_wall_ns;
    }
    time_t at = (time_t)(begin_ns / 1000000000);
    struct tm when;
    char date[64] = "";
    if (localtime_r(&at, &when) != NULL)
        strftime(date, sizeof date, "%Y-%m-%d %H:%M", &when);
    tl_buf_puts(out,
                "<!doctype html><html lang=en><head><meta charset=utf-8>"
                "<meta name=viewport content='width=device-width,initial-scale=1'><title>Tally "
                "report</title><style>");
    tl_buf_puts(out, tl__html_style);
    tl_buf_puts(out, "</style></head><body><header><h1>Tally report</h1><p class=soft>");
    if (r->n_runs > 1)
        tl_buf_printf(out, "%u runs &middot; ", r->n_runs);
    else
        tl_buf_printf(out, "%u job%s &middot; ", jobs, jobs == 1 ? "" : "s");
    if (jobs > 0 && r->runs[0].jobs[0].device[0] != 0) {
        tl_text_html(out, r->runs[0].jobs[0].device);
        tl_buf_puts(out, " &middot; ");
    }
    tl_buf_printf(out, "%s</p></header><main>", date);
}

static void put_banners(struct tl_buf *out, const struct tl_report *r)
{
    if (r->is_opaque)
        tl_buf_puts(out, "<div class='banner opaque'><b>Opaque kernels</b>Kernels of at least one "
                         "run only took time and "
                         "computed nothing. Its results are wrong by design and its times are "
                         "modelled: it serves scheduling "
                         "studies only.</div>");
    if (r->n_problems == 0)
        return;
    tl_buf_puts(out,
                "<div class='banner warning'><b>Not everything could be read</b><ul class=notes>");
    for (uint32_t i = 0; i < r->n_problems; i++) {
        tl_buf_puts(out, "<li>");
        tl_text_html(out, r->problems[i]);
        tl_buf_puts(out, "</li>");
    }
    tl_buf_puts(out, "</ul></div>");
}

/* --- comparing runs --- */

static void put_request_cells(struct tl_buf *out, const struct tl_report_versus *v, bool is_base)
{
    const struct tl_report_histogram *h = v->job != NULL ? tl_report_requests(v->job) : NULL;
    if (h == NULL || h->count == 0) {
        tl_buf_puts(out, "<td>-<td>-<td>-<td>-");
        return;
    }
    tl_buf_printf(out, "<td>%s", tl__html_time((double)tl_histogram_percentile(h, 50)).s);
    tl_buf_printf(out, "<td>%s", tl__html_time((double)tl_histogram_percentile(h, 99)).s);
    if (is_base || v->p99_ratio <= 0)
        tl_buf_puts(out, "<td><span class=pill>reference</span>");
    else
        tl_buf_printf(out, "<td><span class='pill %s'>%+.1f %%</span>", judgement(v->p99_ratio),
                      100 * (v->p99_ratio - 1));
    tl_buf_printf(out, "<td>%s", tl__html_time((double)tl_histogram_percentile(h, 99.9)).s);
}

static void put_speed_cells(struct tl_buf *out, const struct tl_report_versus *v, bool is_base)
{
    if (v->job == NULL) {
        tl_buf_puts(out, "<td>-<td>-");
        return;
    }
    tl_buf_printf(out, "<td>%s",
                  tl_text_count((double)v->job->all_blocks / tl_report_active_s(v->job)).s);
    if (is_base || v->speed_ratio <= 0)
        tl_buf_puts(out, "<td><span class=pill>reference</span>");
    else
        tl_buf_printf(out, "<td>%.1f %%", 100 * v->speed_ratio);
}

static void put_comparison_table(struct tl_buf *out, const struct tl_report *r, const char **names)
{
    tl_buf_puts(out,
                "<div class=card><div class=scroll><table><thead><tr><th class=l rowspan=2>run");
    for (const char **name = names; *name != NULL; name++) {
        bool with_requests = tl_report_is_urgent(r, *name);
        tl_buf_printf(out, "<th colspan=%d style='text-align:center'>", with_requests ? 4 : 2);
        tl_text_html(out, *name);
        tl_buf_puts(out, with_requests ? ", requests" : ", best effort");
    }
    tl_buf_puts(out, "<tr>");
    for (const char **name = names; *name != NULL; name++)
        tl_buf_puts(out, tl_report_is_urgent(r, *name) ? "<th>P50<th>P99<th>against first<th>P99.9"
                                                       : "<th>blocks/s<th>of its first");
    tl_buf_puts(out, "</thead><tbody>");
    for (uint32_t i = 0; i < r->n_runs; i++) {
        tl_buf_printf(out, "<tr><td class=l><span class='dot k%u'></span> <b>", i % HTML_COLOURS);
        tl_text_html(out, r->runs[i].label);
        tl_buf_puts(out,
                    r->runs[i].is_opaque ? "</b> <span class='pill bad'>opaque</span>" : "</b>");
        for (const char **name = names; *name != NULL; name++) {
            struct tl_report_versus v = tl_report_compare(r, &r->runs[i], *name);
            if (tl_report_is_urgent(r, *name))
                put_request_cells(out, &v, v.job == v.base);
            else
                put_speed_cells(out, &v, v.job == v.base);
        }
    }
    tl_buf_puts(out, "</table></div></div>");
}

static void put_mode_curves(struct tl_buf *out, const struct tl_report *r, const char *job)
{
    struct tl_curve curves[MAX_CURVES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_runs && n < MAX_CURVES; i++) {
        const struct tl_report_job *j = tl_report_find(&r->runs[i], job);
        if (j != NULL)
            curves[n++] = (struct tl_curve){r->runs[i].label, tl_report_requests(j), i};
    }
    tl_buf_puts(out, "<div class=card><h3>Requests of ");
    tl_text_html(out, job);
    tl_buf_puts(out, "</h3><p class='soft small'>Share of requests that took at most so long; the "
                     "tail is stretched.</p>");
    tl__plot_cdf(out, curves, n);
    tl_buf_puts(out, "</div>");
}

static void put_trade(struct tl_buf *out, const struct tl_report *r, const char *urgent,
                      const char *patient)
{
    struct tl_buf plot = {0};
    if (tl__plot_trade(&plot, r, urgent, patient)) {
        tl_buf_puts(out,
                    "<div class=card><h3>What each run trades</h3><p class='soft small'>P99 of ");
        tl_text_html(out, urgent);
        tl_buf_puts(out, " against the first run, over the speed of ");
        tl_text_html(out, patient);
        tl_buf_puts(out, ". Best is low and to the right.</p>");
        if (!plot.failed)
            tl_buf_add(out, plot.p, plot.n);
        tl_buf_puts(out, "</div>");
    }
    out->failed |= plot.failed;
    tl_buf_finish(&plot);
}

static void put_comparison(struct tl_buf *out, const struct tl_report *r, const char **names)
{
    const char *urgent = NULL, *patient = NULL;
    tl_buf_puts(out, "<h2>Comparison</h2>");
    put_comparison_table(out, r, names);
    tl_buf_puts(out, "<div class=grid>");
    for (const char **name = names; *name != NULL; name++) {
        if (tl_report_is_urgent(r, *name)) {
            put_mode_curves(out, r, *name);
            urgent = urgent != NULL ? urgent : *name;
        } else {
            patient = *name;
        }
    }
    if (urgent != NULL && patient != NULL)
        put_trade(out, r, urgent, patient);
    tl_buf_puts(out, "</div>");
}

/* --- jobs of a run --- */

static void put_job_tiles(struct tl_buf *out, const struct tl_report_job *j)
{
    const struct tl_report_histogram *h = tl_report_requests(j);
    tl_buf_puts(out, "<dl class=tiles>");
    if (h->count > 0) {
        tile(out, "requests", tl_text_count((double)h->count).s);
        tile(out, "P50", tl__html_time((double)tl_histogram_percentile(h, 50)).s);
        tile(out, "P99", tl__html_time((double)tl_histogram_percentile(h, 99)).s);
        tile(out, "slowest", tl__html_time((double)h->max).s);
    }
    tile(out, "launches", tl_text_count((double)j->all_launches).s);
    tile(out, "blocks/s", tl_text_count((double)j->all_blocks / tl_report_active_s(j)).s);
    tile(out, "on device", tl__html_time((double)j->device_ns).s);
    tile(out, "waited", tl__html_time((double)j->waited_ns).s);
    if (j->preempted.count > 0) {
        tile(out, "preemptions", tl_text_count((double)j->preempted.count).s);
        tile(out, "left device, P99",
             tl__html_time((double)tl_histogram_percentile(&j->preempted, 99)).s);
    }
    uint64_t bytes = 0;
    for (int c = 0; c < TL_COPIES; c++)
        bytes += j->copies[c].bytes;
    if (bytes > 0)
        tile(out, "copied", tl_text_bytes((double)bytes).s);
    tile(out, "outside control",
         j->device_ns > 0 ? tl_text_percent((double)j->uncontrolled_ns / (double)j->device_ns).s
                          : "-");
    tl_buf_puts(out, "</dl>");
}

/* What is worth knowing of a job at first sight: who it is, a plot of its requests, its numbers. */
static void put_job_card(struct tl_buf *out, const struct tl_report_job *j, uint32_t colour)
{
    tl_buf_printf(
        out, "<div class='card k%u'><div class=jobhead><span class=dot></span><span class=name>",
        colour % HTML_COLOURS);
    tl_text_html(out, j->name);
    tl_buf_printf(out, "</span><span class=pill>priority %s</span>", tl_text_level(j->level).s);
    if (j->policy[0] != 0) {
        tl_buf_puts(out, "<span class=pill>policy ");
        tl_text_html(out, j->policy);
        tl_buf_puts(out, "</span>");
    }
    if (j->n_processes > 1)
        tl_buf_printf(out, "<span class=pill>%u processes</span>", j->n_processes);
    if (j->marked.count == 0 && j->inferred.count > 0)
        tl_buf_puts(out, "<span class=pill>requests inferred</span>");
    if (j->is_sampled)
        tl_buf_printf(out, "<span class=pill>%s of %s launches measured, times estimated</span>",
                      tl_text_count((double)j->ran.count).s,
                      tl_text_count((double)j->all_launches).s);
    if (j->n_unended > 0)
        tl_buf_puts(out, "<span class='pill warn'>did not end in order</span>");
    if (j->is_full)
        tl_buf_puts(out, "<span class='pill warn'>record incomplete</span>");
    if (j->is_opaque)
        tl_buf_puts(out, "<span class='pill bad'>opaque kernels</span>");
    tl_buf_puts(out, "</div><code class=cmd title='");
    tl_text_html(out, j->command);
    tl_buf_puts(out, "'>");
    tl_text_html(out, j->command);
    tl_buf_puts(out, "</code>");
    put_job_tiles(out, j);
    tl_buf_puts(out, "</div>");
}

/* --- plots of a run --- */

static void put_cdf_card(struct tl_buf *out, const struct tl_report_run *run,
                         const uint32_t *colours, bool of_requests)
{
    struct tl_curve curves[MAX_CURVES];
    uint32_t n = 0;
    uint64_t values = 0;
    for (uint32_t i = 0; i < run->n_jobs && n < MAX_CURVES; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        curves[n] = (struct tl_curve){j->name, of_requests ? tl_report_requests(j) : &j->total,
                                      colours[i]};
        values += curves[n++].values->count;
    }
    if (values == 0)
        return;
    tl_buf_puts(out, of_requests ? "<div class=card><h3>Latency of requests</h3><p class='soft "
                                   "small'>Share of requests that took at "
                                   "most so long; the tail is stretched.</p>"
                                 : "<div class=card><h3>Latency of kernels</h3><p class='soft "
                                   "small'>From ready to finished, "
                                   "waiting included.</p>");
    tl__plot_cdf(out, curves, n);
    tl_buf_puts(out, "</div>");
}

static void put_preemption_cards(struct tl_buf *out, const struct tl_report_run *run,
                                 const uint32_t *colours)
{
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        if (j->preempted.count == 0)
            continue;
        tl_buf_puts(out, "<div class=card><h3>Preemption of ");
        tl_text_html(out, j->name);
        tl_buf_printf(out,
                      "</h3><p class='soft small'>From the order to leave until the device was "
                      "free; %s times.</p>",
                      tl_text_count((double)j->preempted.count).s);
        tl__plot_bars(out, &j->preempted, colours[i]);
        tl_buf_puts(out, "</div>");
    }
}

/* How many cards the plots of a run take. */
static uint32_t count_plots(const struct tl_report_run *run)
{
    uint32_t requests = 0, kernels = 0, preempted = 0;
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        requests |= tl_report_requests(&run->jobs[i])->count > 0;
        kernels |= run->jobs[i].total.count > 0;
        preempted += run->jobs[i].preempted.count > 0;
    }
    return requests + kernels + preempted + 1;
}

/* A bar of shares: `part` of it in the job's colour, `outside` of it red. */
static void put_bar(struct tl_buf *out, double part, double outside, uint32_t colour)
{
    tl_buf_printf(out, "<svg class=k%u viewBox='0 0 1000 8' preserveAspectRatio=none>",
                  colour % HTML_COLOURS);
    tl_buf_printf(out, "<rect class=fill width=%.1f height=8 />", 1000 * (part > 1 ? 1 : part));
    if (outside > 0)
        tl_buf_printf(out, "<rect class=out width=%.1f height=8 />",
                      1000 * (outside > part ? part : outside));
    tl_buf_puts(out, "</svg>");
}

static int by_uncontrolled(const void *a, const void *b)
{
    const struct tl_report_kernel *const *x = a, *const *y = b;
    return ((*x)->uncontrolled_ns < (*y)->uncontrolled_ns) -
           ((*x)->uncontrolled_ns > (*y)->uncontrolled_ns);
}

/* The kernels of a job that ran outside control longest, as rows. */
static void put_outside_rows(struct tl_buf *out, const struct tl_report_job *j)
{
    enum { ROWS = 4 };
    const struct tl_report_kernel **list = calloc(j->n_kernels > 0 ? j->n_kernels : 1,
                                                  sizeof *list);
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_kernels && list != NULL; i++)
        if (j->kernels[i].uncontrolled_ns > 0)
            list[n++] = &j->kernels[i];
    if (n > 1)
        qsort(list, n, sizeof *list, by_uncontrolled);
    for (uint32_t i = 0; i < n && i < ROWS; i++) {
        tl_buf_puts(out, "<div class=krow><code tabindex=0 title='");
        tl_text_html(out, list[i]->full);
        tl_buf_puts(out, "'>");
        tl_text_html(out, list[i]->brief);
        tl_buf_printf(
            out,
            "</code><span class='num small' style='grid-column:auto'>%s, %s times</span></div>",
            tl__html_time((double)list[i]->uncontrolled_ns).s,
            tl_text_count((double)list[i]->uncontrolled).s);
    }
    free(list);
}

static void put_outside_card(struct tl_buf *out, const struct tl_report_run *run,
                             const uint32_t *colours)
{
    tl_buf_puts(out, "<div class=card><h3>Outside control</h3><p class='soft small'>Device time "
                     "that could not have been "
                     "interrupted: opaque kernels, whole kernels whose variant was missing, "
                     "forwarded calls.</p>");
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        if (j->device_ns == 0)
            continue;
        double outside = (double)j->uncontrolled_ns / (double)j->device_ns;
        tl_buf_puts(out, "<div class=krow><b>");
        tl_text_html(out, j->name);
        tl_buf_printf(out, "</b><span class=num>%s of %s</span>", tl_text_percent(outside).s,
                      tl__html_time((double)j->device_ns).s);
        put_bar(out, 1, outside, colours[i]);
        tl_buf_puts(out, "</div>");
        put_outside_rows(out, j);
    }
    tl_buf_puts(
        out,
        "<ul class=legend><li><span class='dot outside'></span>outside control</li></ul></div>");
}

static void put_timeline(struct tl_buf *out, const struct tl_report_run *run,
                         const uint32_t *colours)
{
    uint64_t slots = 0, spans = 0;
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        slots += run->jobs[i].n_slots;
        spans += run->jobs[i].n_spans;
    }
    if (slots > 0) {
        tl_buf_puts(out, "<div class=card><h3>Who ran and who waited: the whole run</h3>"
                         "<p class='soft small'>In tenths of a second.</p>");
        tl__plot_overview(out, run, colours);
        tl_buf_puts(out, "</div>");
    }
    if (spans > 0) {
        tl_buf_puts(out, "<div class=card><h3>Who ran and who waited: the last moments</h3>"
                         "<p class='soft small'>Requests above, work on the device in the middle, "
                         "work that had to wait below. "
                         "<code>tally report --trace</code> has every span.</p>");
        tl__plot_moments(out, run, colours);
        tl_buf_puts(out, "</div>");
    }
}

/* --- kernels and requests --- */

static void put_rungs(struct tl_buf *out, const uint64_t launches[TL_RUNGS])
{
    bool has_any = false;
    for (int g = 0; g < TL_RUNGS; g++) {
        if (launches[g] == 0)
            continue;
        tl_buf_printf(out, "%s%s", has_any ? ", " : "", tl_rung_name((enum tl_rung)g));
        has_any = true;
    }
    if (!has_any)
        tl_buf_putc(out, '-');
}

/* The kernels that took most of the device, as bars. */
static void put_top_kernels(struct tl_buf *out, const struct tl_report_job *j, uint32_t colour)
{
    if (j->n_kernels == 0)
        return;
    tl_buf_puts(out, "<div class=card><h3>Kernels of ");
    tl_text_html(out, j->name);
    tl_buf_puts(
        out,
        "</h3><p class='soft small'>Share of the job's device time; red is outside control.</p>");
    double largest = 0;
    for (uint32_t i = 0; i < j->n_kernels; i++)
        largest = (double)j->kernels[i].device_ns > largest ? (double)j->kernels[i].device_ns
                                                            : largest;
    for (uint32_t i = 0; i < j->n_kernels && i < TOP_KERNELS; i++) {
        const struct tl_report_kernel *k = &j->kernels[i];
        if (k->is_hidden)
            break;
        tl_buf_puts(out, "<div class=krow><code tabindex=0 title='");
        tl_text_html(out, k->full);
        tl_buf_puts(out, "'>");
        tl_text_html(out, k->brief);
        tl_buf_printf(out, "</code><b class=num>%s</b>",
                      j->device_ns > 0
                          ? tl_text_percent((double)k->device_ns / (double)j->device_ns).s
                          : "-");
        if (largest > 0)
            put_bar(out, (double)k->device_ns / largest, (double)k->uncontrolled_ns / largest,
                    colour);
        tl_buf_printf(out, "<div class='small num'>%s &times; P50 %s",
                      tl_text_count((double)k->all_launches).s,
                      tl__html_time((double)tl_histogram_percentile(&k->ran, 50)).s);
        tl_buf_printf(out, ", P99 %s; ",
                      tl__html_time((double)tl_histogram_percentile(&k->ran, 99)).s);
        put_rungs(out, k->launches);
        if (k->preempted.count > 0)
            tl_buf_printf(out, "; preempted %s times, P99 %s",
                          tl_text_count((double)k->preempted.count).s,
                          tl__html_time((double)tl_histogram_percentile(&k->preempted, 99)).s);
        if (k->culprit_of > 0)
            tl_buf_printf(out, "; culprit of %u late requests", (unsigned)k->culprit_of);
        tl_buf_puts(out, "</div></div>");
    }
    tl_buf_puts(out, "</div>");
}

/* The table of the slowest requests of a job: what held each up, and what ran beside it. */
static void put_slow(struct tl_buf *out, const struct tl_report_run *run,
                     const struct tl_report_job *j)
{
    if (j->n_slow == 0)
        return;
    tl_buf_puts(out, "<div class=card><h3>Slowest requests of ");
    tl_text_html(out, j->name);
    tl_buf_puts(out, "</h3><div class=scroll><table><thead><tr><th class=l>at<th>latency<th "
                     "class=l>culprit<th>took"
                     "<th>of that waiting<th class=l>beside it</thead><tbody>");
    for (uint32_t i = 0; i < j->n_slow && i < SLOW_SHOWN; i++) {
        const struct tl_report_slow *s = &j->slow[i];
        bool is_known = s->culprit != TL_REPORT_NO_KERNEL;
        double at = s->begin_ns > run->begin_ns ? (double)(s->begin_ns - run->begin_ns) : 0;
        tl_buf_printf(out,
                      "<tr><td class=l>%s<td class=best>%s<td class='l kern'><code tabindex=0>",
                      tl__html_time(at).s, tl__html_time((double)s->latency_ns).s);
        tl_text_html(out, is_known ? j->kernels[s->culprit].brief : "not seen");
        tl_buf_printf(out, "</code><td>%s",
                      is_known ? tl__html_time((double)s->culprit_ns).s : "-");
        tl_buf_printf(out, "<td>%s<td class='l kern'>",
                      is_known ? tl__html_time((double)s->culprit_wait_ns).s : "-");
        if (s->rival == NULL) {
            tl_buf_putc(out, '-');
            continue;
        }
        tl_buf_printf(out, "%s <code>", tl__html_time((double)s->rival_ns).s);
        tl_text_html(out, s->rival->kernels[s->rival_kernel].brief);
        tl_buf_puts(out, "</code> of ");
        tl_text_html(out, s->rival->name);
    }
    tl_buf_puts(out, "</table></div></div>");
}

static void put_cell(struct tl_buf *out, const struct tl_report_histogram *h, double percent)
{
    if (h->count == 0)
        tl_buf_puts(out, "<td>-");
    else
        tl_buf_printf(out, "<td>%s", tl__html_time((double)tl_histogram_percentile(h, percent)).s);
}

static bool has_ops(const struct tl_report_job *j)
{
    for (uint32_t i = 0; i < j->n_kernels; i++)
        if (j->kernels[i].n_ops > 0)
            return true;
    return false;
}

static void put_ops(struct tl_buf *out, const struct tl_report_kernel *k)
{
    struct tl_buf text = {0};
    tl_report_ops_text(k, TABLE_OPS, &text);
    tl_buf_puts(out, "<td class=l>");
    if (!text.failed && text.p != NULL)
        tl_text_html(out, text.p);
    tl_buf_finish(&text);
}

/* Every kernel in one table, which is folded at first. */
static void put_kernel_table(struct tl_buf *out, const struct tl_report_job *j)
{
    static const double percents[] = {50, 90, 99, 99.9, 100};
    if (j->n_kernels == 0)
        return;
    tl_buf_puts(out, "<details class=card><summary>All kernels of ");
    tl_text_html(out, j->name);
    tl_buf_puts(out, "</summary><div class=scroll><table><thead><tr><th "
                     "class=l>kernel<th>share<th>launches<th>blocks"
                     "<th class=l>rung<th>P50<th>P90<th>P99<th>P99.9<th>max<th>wait P99<th>total "
                     "P99<th>preempted<th>stop P99"
                     "<th>outside");
    if (has_ops(j))
        tl_buf_puts(out, "<th class=l>launched by");
    tl_buf_puts(out, "</thead><tbody>");
    uint32_t shown = 0;
    for (uint32_t i = 0; i < j->n_kernels && shown < TABLE_KERNELS; i++) {
        const struct tl_report_kernel *k = &j->kernels[i];
        if (k->is_hidden)
            break;
        shown++;
        tl_buf_puts(out, "<tr><td class='l kern'><code tabindex=0 title='");
        tl_text_html(out, k->full);
        tl_buf_puts(out, "'>");
        tl_text_html(out, k->brief);
        tl_buf_puts(out, "</code>");
        if (k->rescues > 0)
            tl_buf_printf(out, " <b>stood still in pieces, %s times</b>",
                          tl_text_count((double)k->rescues).s);
        tl_buf_printf(out, "<td>%s",
                      j->device_ns > 0
                          ? tl_text_percent((double)k->device_ns / (double)j->device_ns).s
                          : "-");
        tl_buf_printf(out, "<td>%s", tl_text_count((double)k->all_launches).s);
        tl_buf_printf(out, "<td>%s<td class=l>", tl_text_count((double)k->all_blocks).s);
        put_rungs(out, k->launches);
        for (size_t p = 0; p < sizeof percents / sizeof percents[0]; p++)
            put_cell(out, &k->ran, percents[p]);
        put_cell(out, &k->queued, 99);
        put_cell(out, &k->total, 99);
        tl_buf_printf(out, "<td>%s", tl_text_count((double)k->preempted.count).s);
        put_cell(out, &k->preempted, 99);
        tl_buf_printf(out, "<td>%s",
                      k->uncontrolled > 0 ? tl__html_time((double)k->uncontrolled_ns).s : "-");
        if (k->n_ops > 0)
            put_ops(out, k);
    }
    tl_buf_puts(out, "</table></div>");
    if (shown < j->n_kernels)
        tl_buf_printf(out,
                      "<p class='soft small'>%u more are in <code>tally report --json</code>.</p>",
                      j->n_kernels - shown);
    tl_buf_puts(out, "</details>");
}

static void put_notes(struct tl_buf *out, const struct tl_report_run *run)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < run->n_jobs; i++)
        n += run->jobs[i].n_notes;
    if (n == 0)
        return;
    tl_buf_puts(out, "<div class=card><h3>Notes</h3><ul class=notes>");
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        for (uint32_t k = 0; k < j->n_notes; k++) {
            tl_buf_puts(out, "<li><b>");
            tl_text_html(out, j->name);
            tl_buf_puts(out, "</b>: ");
            tl_text_html(out, j->notes[k].text);
            if (j->notes[k].times > 1)
                tl_buf_printf(out, " <span class=soft>(%s times)</span>",
                              tl_text_count((double)j->notes[k].times).s);
            tl_buf_puts(out, "</li>");
        }
    }
    tl_buf_puts(out, "</ul></div>");
}

/* --- the page --- */

static uint32_t colour_of(const char **names, const char *job)
{
    for (uint32_t i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], job) == 0)
            return i;
    return 0;
}

static void put_run(struct tl_buf *out, const struct tl_report_run *run, const char **names)
{
    uint32_t *colours = calloc(run->n_jobs > 0 ? run->n_jobs : 1, sizeof *colours);
    if (colours == NULL) {
        out->failed = true;
        return;
    }
    for (uint32_t i = 0; i < run->n_jobs; i++)
        colours[i] = colour_of(names, run->jobs[i].name);
    tl_buf_puts(out, "<div class=grid>");
    for (uint32_t i = 0; i < run->n_jobs; i++)
        put_job_card(out, &run->jobs[i], colours[i]);
    tl_buf_puts(out, "</div>");
    put_timeline(out, run, colours);
    tl_buf_printf(out, "<div class='grid %s'>", count_plots(run) % 3 == 0 ? "" : "two");
    put_cdf_card(out, run, colours, true);
    put_cdf_card(out, run, colours, false);
    put_preemption_cards(out, run, colours);
    put_outside_card(out, run, colours);
    tl_buf_puts(out, "</div><div class=grid>");
    for (uint32_t i = 0; i < run->n_jobs; i++)
        put_top_kernels(out, &run->jobs[i], colours[i]);
    tl_buf_puts(out, "</div>");
    for (uint32_t i = 0; i < run->n_jobs; i++)
        put_slow(out, run, &run->jobs[i]);
    put_notes(out, run);
    for (uint32_t i = 0; i < run->n_jobs; i++)
        put_kernel_table(out, &run->jobs[i]);
    free(colours);
}

void tl_report_html(struct tl_report *r, struct tl_buf *out)
{
    const char **names = tl_report_job_names(r);
    if (names == NULL) {
        out->failed = true;
        return;
    }
    put_head(out, r);
    put_banners(out, r);
    if (r->n_runs > 1)
        put_comparison(out, r, names);
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct tl_report_run *run = &r->runs[i];
        /* Of several runs, only the last is open at first: it is the one that is compared with the
         * others. */
        if (r->n_runs > 1) {
            tl_buf_puts(out, i + 1 == r->n_runs ? "<details class=runs open><summary>Run "
                                                : "<details class=runs><summary>Run ");
            tl_text_html(out, run->label);
            tl_buf_puts(out, "</summary>");
        }
        put_run(out, run, names);
        if (r->n_runs > 1)
            tl_buf_puts(out, "</details>");
    }
    tl_buf_puts(out, "<footer>Percentiles are within 1 %. Times on the device are those of the "
                     "device named above.</footer>"
                     "</main></body></html>\n");
}

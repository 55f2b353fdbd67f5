/* The report for a terminal. */
#include "runtime/report/report.h"

#include <stdio.h>

static const double percents[] = {50, 90, 99, 99.9, 100};
enum {
    PERCENTS = sizeof percents / sizeof percents[0],
    MOST_KERNELS = 40,
    MOST_SLOW = 8,
    MOST_OPS = 3
};

static void put_time(struct tl_buf *out, bool is_known, uint64_t ns)
{
    tl_buf_printf(out, " %8s", is_known ? tl_text_time((double)ns).s : "-");
}

static void put_percentiles(struct tl_buf *out, const struct tl_report_histogram *h)
{
    for (int i = 0; i < PERCENTS; i++)
        put_time(out, h->count > 0, tl_histogram_percentile(h, percents[i]));
}

/* The rung that most launches stood on; a star if others did too. */
static void put_rung(struct tl_buf *out, const uint64_t launches[TL_RUNGS])
{
    int most = 0, used = 0;
    for (int g = 0; g < TL_RUNGS; g++) {
        used += launches[g] > 0;
        most = launches[g] > launches[most] ? g : most;
    }
    char rung[24] = "-";
    if (used > 0)
        snprintf(rung, sizeof rung, "%s%s", tl_rung_name((enum tl_rung)most), used > 1 ? "*" : "");
    tl_buf_printf(out, " %-11s", rung);
}

/* --- jobs --- */

static void put_opaque(struct tl_buf *out)
{
    tl_buf_puts(out,
                "!!! OPAQUE KERNELS: kernels of this run only took time and computed nothing.\n"
                "!!! Its results are wrong by design, and its times are modelled. It serves "
                "scheduling studies only.\n\n");
}

static void put_jobs(struct tl_buf *out, const struct tl_report_run *run)
{
    tl_buf_printf(out, "  %-16s %6s %9s %9s %10s %10s %10s %9s  %s\n", "job", "level", "time",
                  "launches", "blocks", "on device", "waited", "outside", "device, policy");
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        tl_buf_printf(out, "  %-16s %6s %9s", j->name, tl_text_level(j->level).s,
                      tl_text_time((double)(j->last_ns - j->begin_ns)).s);
        tl_buf_printf(out, " %9s %10s", tl_text_count((double)j->all_launches).s,
                      tl_text_count((double)j->all_blocks).s);
        tl_buf_printf(out, " %10s %10s", tl_text_time((double)j->device_ns).s,
                      tl_text_time((double)j->waited_ns).s);
        tl_buf_printf(out, " %9s  %s%s%s\n",
                      j->device_ns > 0
                          ? tl_text_percent((double)j->uncontrolled_ns / (double)j->device_ns).s
                          : "-",
                      j->device, j->policy[0] != 0 ? ", " : "", j->policy);
        if (j->n_processes > 1)
            tl_buf_printf(out, "  %-16s of %u processes\n", "", j->n_processes);
        if (j->n_unended > 0)
            tl_buf_printf(out, "  %-16s %u of %u did not end in order: still running, or killed\n",
                          "", j->n_unended, j->n_processes);
        if (j->is_sampled)
            tl_buf_printf(out, "  %-16s times are estimates: of %s launches, %s were measured\n",
                          "", tl_text_count((double)j->all_launches).s,
                          tl_text_count((double)j->ran.count).s);
        if (j->is_full)
            tl_buf_printf(out, "  %-16s the record was full: something is missing\n", "");
    }
    tl_buf_putc(out, '\n');
}

static void put_percentile_head(struct tl_buf *out)
{
    tl_buf_printf(out, " %8s %8s %8s %8s %8s", "P50", "P90", "P99", "P99.9", "max");
}

static void put_requests(struct tl_buf *out, const struct tl_report_run *run)
{
    bool has_any = false;
    for (uint32_t i = 0; i < run->n_jobs; i++) {
        const struct tl_report_job *j = &run->jobs[i];
        const struct tl_report_histogram *h = tl_report_requests(j);
        if (h->count == 0)
            continue;
        if (!has_any) {
            tl_buf_printf(out, "  %-16s %9s", "requests", "count");
            put_percentile_head(out);
            tl_buf_putc(out, '\n');
        }
        has_any = true;
        tl_buf_printf(out, "  %-16s %9s", j->name, tl_text_count((double)h->count).s);
        put_percentiles(out, h);
        tl_buf_printf(out, "  %s\n",
                      h == &j->marked ? "marked by the program" : "inferred from bursts of work");
    }
    if (has_any)
        tl_buf_putc(out, '\n');
}

static void put_slow(struct tl_buf *out, const struct tl_report_run *run,
                     const struct tl_report_job *j)
{
    if (j->n_slow == 0)
        return;
    tl_buf_printf(out, "  slowest requests of %s\n  %10s %10s %9s %9s  %s\n", j->name, "at",
                  "latency", "kernel", "waited", "culprit");
    for (uint32_t i = 0; i < j->n_slow && i < MOST_SLOW; i++) {
        const struct tl_report_slow *s = &j->slow[i];
        uint64_t at = s->begin_ns > run->begin_ns ? s->begin_ns - run->begin_ns : 0;
        bool is_known = s->culprit != TL_REPORT_NO_KERNEL;
        tl_buf_printf(out, "  %10s %10s", tl_text_time((double)at).s,
                      tl_text_time((double)s->latency_ns).s);
        tl_buf_printf(out, " %9s", is_known ? tl_text_time((double)s->culprit_ns).s : "-");
        tl_buf_printf(out, " %9s  %s", is_known ? tl_text_time((double)s->culprit_wait_ns).s : "-",
                      is_known ? j->kernels[s->culprit].brief : "(not seen)");
        if (s->rival != NULL)
            tl_buf_printf(out, "; beside it %s of %s for %s",
                          s->rival->kernels[s->rival_kernel].brief, s->rival->name,
                          tl_text_time((double)s->rival_ns).s);
        tl_buf_putc(out, '\n');
    }
    tl_buf_putc(out, '\n');
}

/* --- kernels --- */

static void put_kernel(struct tl_buf *out, const struct tl_report_job *j,
                       const struct tl_report_kernel *k)
{
    tl_buf_printf(out, "  %7s",
                  j->device_ns > 0 ? tl_text_percent((double)k->device_ns / (double)j->device_ns).s
                                   : "-");
    tl_buf_printf(out, " %9s", tl_text_count((double)k->all_launches).s);
    put_rung(out, k->launches);
    put_percentiles(out, &k->ran);
    put_time(out, k->queued.count > 0, tl_histogram_percentile(&k->queued, 99));
    tl_buf_printf(out, " %8s", tl_text_count((double)k->preempted.count).s);
    put_time(out, k->preempted.count > 0, tl_histogram_percentile(&k->preempted, 99));
    put_time(out, k->uncontrolled > 0, k->uncontrolled_ns);
    tl_buf_printf(out, "  %s\n", k->brief);
    if (k->rescues > 0)
        tl_buf_printf(out, "  %7s %9s  STOOD STILL in pieces, %s times: see the notes\n", "", "",
                      tl_text_count((double)k->rescues).s);
    if (k->n_ops > 0) {
        tl_buf_printf(out, "  %7s %9s  launched by: ", "", "");
        tl_report_ops_text(k, MOST_OPS, out);
        tl_buf_putc(out, '\n');
    }
}

static void put_kernels(struct tl_buf *out, const struct tl_report_job *j)
{
    if (j->n_kernels == 0)
        return;
    tl_buf_printf(out, "  kernels of %s\n  %7s %9s %-11s", j->name, "share", "launches", " rung");
    put_percentile_head(out);
    tl_buf_printf(out, " %8s %8s %8s %8s  %s\n", "wait P99", "preempts", "stop P99", "outside",
                  "kernel");
    uint32_t shown = 0, hidden = 0;
    for (uint32_t i = 0; i < j->n_kernels; i++) {
        if (j->kernels[i].is_hidden || shown == MOST_KERNELS) {
            hidden++;
            continue;
        }
        shown++;
        put_kernel(out, j, &j->kernels[i]);
    }
    if (hidden > 0)
        tl_buf_printf(out, "  and %u more\n", hidden);
    tl_buf_putc(out, '\n');
}

static void put_copies(struct tl_buf *out, const struct tl_report_job *j)
{
    bool has_any = false;
    for (int c = 0; c < TL_COPIES; c++) {
        if (j->copies[c].count == 0)
            continue;
        if (!has_any)
            tl_buf_printf(out, "  copies of %s: ", j->name);
        tl_buf_printf(out, "%s%s %s in %s", has_any ? ", " : "",
                      tl_copy_name((enum tl_record_copy)c),
                      tl_text_bytes((double)j->copies[c].bytes).s,
                      tl_text_count((double)j->copies[c].count).s);
        has_any = true;
    }
    if (has_any)
        tl_buf_puts(out, "\n\n");
}

static void put_graphs(struct tl_buf *out, const struct tl_report_job *j)
{
    static const char *const words[TL_GRAPH_WAYS] = {
        "as they are",
        "in parts",
        "as they are, since only the driver can run them",
        "node by node to learn what they take",
        "node by node to measure again",
        "node by node since they were just changed",
        "node by node since a rung is forced",
        "node by node on a part of the SMs",
        "node by node since no two nodes go together",
        "node by node since the driver refused sub-graphs"};
    bool has_any = false;
    for (int g = 0; g < TL_GRAPH_WAYS; g++) {
        if (j->graphs[g] == 0)
            continue;
        tl_buf_printf(out, "%s%s %s",
                      has_any ? ", " : "  graphs: ", tl_text_count((double)j->graphs[g]).s,
                      words[g]);
        if (g == TL_GRAPH_IN_PARTS)
            tl_buf_printf(out, " (%s sub-graphs)",
                          tl_text_count((double)j->graphs[TL_GRAPH_SUBGRAPHS]).s);
        has_any = true;
    }
    if (has_any)
        tl_buf_puts(out, "\n\n");
}

static void put_notes(struct tl_buf *out, const struct tl_report_job *j)
{
    for (uint32_t i = 0; i < j->n_notes; i++) {
        tl_buf_printf(out, "  note of %s: %s", j->name, j->notes[i].text);
        if (j->notes[i].times > 1)
            tl_buf_printf(out, " (%s times)", tl_text_count((double)j->notes[i].times).s);
        tl_buf_putc(out, '\n');
    }
    if (j->n_notes > 0)
        tl_buf_putc(out, '\n');
}

/* --- several runs --- */

static void put_comparison(struct tl_buf *out, const struct tl_report *r)
{
    tl_buf_printf(out, "%-14s %-16s %6s %9s %9s %9s %10s %11s %9s\n", "run", "job", "level",
                  "requests", "P50", "P99", "P99 vs 1st", "blocks/s", "vs 1st");
    for (uint32_t i = 0; i < r->n_runs; i++) {
        for (uint32_t k = 0; k < r->runs[i].n_jobs; k++) {
            const struct tl_report_job *j = &r->runs[i].jobs[k];
            struct tl_report_versus v = tl_report_compare(r, &r->runs[i], j->name);
            const struct tl_report_histogram *h = tl_report_requests(j);
            char over[24] = "-", speed[24] = "-";
            bool is_urgent = tl_report_is_urgent(r, j->name);
            if (v.p99_ratio > 0 && is_urgent)
                snprintf(over, sizeof over, "%+.1f %%", 100 * (v.p99_ratio - 1));
            if (v.speed_ratio > 0 && !is_urgent)
                snprintf(speed, sizeof speed, "%.1f %%", 100 * v.speed_ratio);
            tl_buf_printf(out, "%-14s %-16s %6s", r->runs[i].label, j->name,
                          tl_text_level(j->level).s);
            tl_buf_printf(out, " %9s", tl_text_count((double)h->count).s);
            put_time(out, h->count > 0, tl_histogram_percentile(h, 50));
            tl_buf_putc(out, ' ');
            put_time(out, h->count > 0, tl_histogram_percentile(h, 99));
            tl_buf_printf(out, "  %10s %11s %9s%s\n", over,
                          tl_text_count((double)j->all_blocks / tl_report_active_s(j)).s, speed,
                          j->is_opaque ? "  OPAQUE" : "");
        }
    }
    tl_buf_putc(out, '\n');
}

void tl_report_text(const struct tl_report *r, struct tl_buf *out)
{
    if (r->is_opaque)
        put_opaque(out);
    if (r->n_runs > 1)
        put_comparison(out, r);
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct tl_report_run *run = &r->runs[i];
        tl_buf_printf(out, "run %s (%s)%s\n\n", run->label, run->path,
                      run->is_opaque ? "  OPAQUE KERNELS, SEE ABOVE" : "");
        put_jobs(out, run);
        put_requests(out, run);
        for (uint32_t j = 0; j < run->n_jobs; j++) {
            put_slow(out, run, &run->jobs[j]);
            put_kernels(out, &run->jobs[j]);
            put_copies(out, &run->jobs[j]);
            put_graphs(out, &run->jobs[j]);
            put_notes(out, &run->jobs[j]);
        }
    }
    for (uint32_t i = 0; i < r->n_problems; i++)
        tl_buf_printf(out, "problem: %s\n", r->problems[i]);
}

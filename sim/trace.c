/* What if: the jobs of a recorded run under another policy. */
#include "sim/trace.h"
#include "sim/trace_job.h"
#include "tally/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_S 1e6
enum { MOST_BYTES = 256 << 20 };

int sim_arrivals_read(struct sim_samples *times, struct tl_str text, const char *path,
                      struct tl_error *err)
{
    uint32_t at = 0;
    for (int number = 1; at < text.n; number++) {
        char line[64], *end;
        const char *newline = memchr(text.p + at, '\n', text.n - at);
        uint32_t bytes = newline != NULL ? (uint32_t)(newline - text.p) - at : text.n - at;
        snprintf(line, sizeof line, "%.*s", (int)(bytes < sizeof line ? bytes : sizeof line),
                 text.p + at);
        at += bytes + 1;
        double s = strtod(line, &end);
        if (line[0] == '#' || line[0] == 0 || (end == line && number == 1))
            continue;
        if (end == line || !(s >= 0 && s <= LONGEST_S))
            return tl_error_set(err, -EINVAL, "%s:%d: a time in seconds is missing", path, number);
        if (times->n > 0 && s * 1e9 < times->v[times->n - 1])
            return tl_error_set(err, -EINVAL, "%s:%d: times must not fall", path, number);
        sim_samples_add(times, s * 1e9);
    }
    return 0;
}

static int read_arrivals(struct sim_samples *times, const char *path, struct tl_error *err)
{
    char *text;
    size_t n;
    int rc = tl_file_read(path, MOST_BYTES, &text, &n);
    if (rc < 0)
        return tl_error_set(err, rc, "cannot read %s: %s", path, strerror(-rc));
    rc = sim_arrivals_read(times, (struct tl_str){text, (uint32_t)n}, path, err);
    free(text);
    return rc;
}

static void write_job(const struct tl_report_job *from, const struct sim_job *j,
                      struct sim_result *result, double seconds, struct tl_json *json,
                      struct tl_buf *out)
{
    const struct tl_report_histogram *requests = tl_report_requests(from);
    bool serves = j->arrivals != SIM_ALWAYS;
    double recorded = serves ? (double)tl_histogram_percentile(requests, 99) / 1e6
                             : (double)from->all_launches / tl_report_active_s(from);
    double predicted = serves ? sim_samples_percentile(&result->latency, 0.99) / 1e6
                              : (double)result->kernels / seconds;
    const char *what = serves ? "P99 of requests, ms" : "kernels per second";
    if (json == NULL) {
        tl_buf_printf(out, "%-24s %6d  %-22s %12.3f %12.3f", from->name, from->level, what,
                      recorded, predicted);
        if (serves)
            tl_buf_printf(out, "  (%.3f from arrival)",
                          sim_samples_percentile(&result->sojourn, 0.99) / 1e6);
        tl_buf_putc(out, '\n');
        return;
    }
    tl_json_object(json);
    tl_json_key_str(json, "job", from->name);
    tl_json_key_int(json, "level", from->level);
    tl_json_key_str(json, "what", what);
    tl_json_key_double(json, "recorded", recorded);
    tl_json_key_double(json, "predicted", predicted);
    if (serves) {
        tl_json_key_double(json, "predicted_from_arrival",
                           sim_samples_percentile(&result->sojourn, 0.99) / 1e6);
    }
    tl_json_end_object(json);
}

/* The first job that serves requests gets those times in place of its own. */
static void give_arrivals(struct sim_job *jobs, uint32_t n, const struct sim_samples *times)
{
    uint32_t i = 0;
    while (i < n && jobs[i].arrivals == SIM_ALWAYS)
        i++;
    if (i == n || times->n == 0)
        return;
    jobs[i].arrivals = SIM_LISTED;
    jobs[i].times_ns = times->v;
    jobs[i].n_times = (uint32_t)times->n;
}

/* Jobs as they were recorded, run again on a modelled device; the prediction beside what was
 * measured, as JSON. */
static int simulate(const struct sim_trace_options *o, const struct tl_report_run *recorded,
                    struct tl_buf *out, struct tl_error *err)
{
    const struct sim_device *known = sim_device(o->device != NULL ? o->device : "software"), *d;
    static struct sim_run run;
    static struct sim_job jobs[SIM_CLIENTS];
    struct tl_sched_client clients[SIM_CLIENTS];
    const struct tl_report_job *from[SIM_CLIENTS];
    uint32_t n = 0;
    int rc = 0;
    if (known == NULL)
        return tl_error_set(err, -ENOENT,
                            "there is no device '%s'; choose a100, v100, p100, 2080ti or software",
                            o->device);
    struct sim_device sized = *known;
    sized.n_sms = o->n_sms > 0 ? o->n_sms : known->n_sms;
    d = &sized;
    /* from the highest level down */
    for (uint32_t i = 0; rc == 0 && i < recorded->n_jobs && n < SIM_CLIENTS; i++) {
        if (recorded->jobs[i].all_launches == 0)
            continue;
        from[n] = &recorded->jobs[i];
        clients[n] = (struct tl_sched_client){.level = from[n]->level};
        rc = sim_trace_job(&jobs[n], from[n], d, o->seed + n, err);
        n += rc == 0;
    }
    if (rc == 0 && n == 0)
        rc = tl_error_set(err, -ENODATA, "%s: no job launched a kernel", o->path);
    struct sim_samples times = {0};
    if (rc == 0 && o->arrivals != NULL)
        rc = read_arrivals(&times, o->arrivals, err);
    give_arrivals(jobs, n, &times);
    double seconds = o->seconds > 0 ? o->seconds : 30;
    struct sim_gpu_options go = {.device = d,
                                 .policy = o->policy,
                                 .parameters = o->parameters,
                                 .duration_ns = seconds * 1e9,
                                 .seed = o->seed};
    if (rc == 0)
        rc = sim_gpu_run(&run, &go, jobs, clients, n, err);
    struct tl_json json;
    if (rc == 0 && o->is_json) {
        tl_json_init(&json, out);
        tl_json_array(&json);
    } else if (rc == 0) {
        tl_buf_printf(out, "%s on %s, %.0f s simulated\n%-24s %6s  %-22s %12s %12s\n", o->policy,
                      d->name, seconds, "job", "level", "what", "recorded", "predicted");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (rc == 0)
            write_job(from[i], &jobs[i], &run.results[i], seconds, o->is_json ? &json : NULL, out);
        sim_trace_job_finish(&jobs[i]);
    }
    if (rc == 0 && o->is_json) {
        tl_json_end_array(&json);
        tl_buf_putc(out, '\n');
    }
    sim_samples_finish(&times);
    sim_run_finish(&run);
    memset(&run, 0, sizeof run);
    return rc;
}

int sim_trace_run(const struct sim_trace_options *o, struct tl_buf *out, struct tl_error *err)
{
    struct tl_report report;
    tl_report_init(&report);
    int rc = tl_report_add(&report, o->path, err);
    if (rc == 0)
        rc = tl_report_settle(&report, TL_ORDER_TIME, NULL, err);
    if (rc == 0)
        rc = report.n_runs > 0 ? simulate(o, &report.runs[0], out, err)
                               : tl_error_set(err, -ENODATA, "%s: no record in it", o->path);
    tl_report_finish(&report);
    return rc;
}

/* The report for programs.  docs/report.md describes what comes out; a change that takes something
 * away or gives it another meaning raises SCHEMA. */
#include "runtime/report/report.h"

#include <stdio.h>

enum { SCHEMA = 1 };

/* Unknown is null. */
static void key_ratio(struct tl_json *j, const char *key, double value)
{
    tl_json_key(j, key);
    if (value > 0)
        tl_json_double(j, value);
    else
        tl_json_null(j);
}

static void put_histogram(struct tl_json *j, const char *key, const struct tl_report_histogram *h)
{
    tl_json_key(j, key);
    tl_json_object(j);
    tl_json_key_uint(j, "count", h->count);
    tl_json_key_uint(j, "sum_ns", h->sum);
    tl_json_key_uint(j, "p50_ns", tl_histogram_percentile(h, 50));
    tl_json_key_uint(j, "p90_ns", tl_histogram_percentile(h, 90));
    tl_json_key_uint(j, "p99_ns", tl_histogram_percentile(h, 99));
    tl_json_key_uint(j, "p999_ns", tl_histogram_percentile(h, 99.9));
    tl_json_key_uint(j, "max_ns", h->max);
    if (h->unplaced > 0)
        tl_json_key_uint(j, "unplaced", h->unplaced);
    tl_json_end_object(j);
}

/* With its steps: [lowest value, width, count]. */
static void put_steps(struct tl_json *j, const char *key, const struct tl_report_histogram *h)
{
    tl_json_key(j, key);
    tl_json_array(j);
    for (uint32_t i = 0; i < h->n_steps; i++) {
        tl_json_array(j);
        tl_json_uint(j, h->steps[i].low);
        tl_json_uint(j, h->steps[i].width);
        tl_json_uint(j, h->steps[i].count);
        tl_json_end_array(j);
    }
    tl_json_end_array(j);
}

/* A histogram of thousandths, as ratios. */
static void put_ratios(struct tl_json *j, const char *key, const struct tl_report_histogram *h)
{
    static const struct {
        const char *key;
        double percent;
    } some[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}};
    tl_json_key(j, key);
    tl_json_object(j);
    tl_json_key_uint(j, "count", h->count);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        tl_json_key_double(j, some[i].key,
                           (double)tl_histogram_percentile(h, some[i].percent) / 1000);
    }
    tl_json_key_double(j, "max", (double)h->max / 1000);
    tl_json_end_object(j);
}

static void put_rungs(struct tl_json *j, const char *key, const uint64_t values[TL_RUNGS])
{
    tl_json_key(j, key);
    tl_json_object(j);
    for (int g = 0; g < TL_RUNGS; g++)
        if (values[g] > 0)
            tl_json_key_uint(j, tl_rung_name((enum tl_rung)g), values[g]);
    tl_json_end_object(j);
}

/* A kernel of a job: launches, times, rungs, stops. */
static void put_kernel(struct tl_json *j, const struct tl_report_job *job,
                       const struct tl_report_kernel *k)
{
    tl_json_object(j);
    tl_json_key_str(j, "name", k->name);
    tl_json_key_str(j, "demangled", k->full);
    tl_json_key_uint(j, "launches", k->all_launches);
    tl_json_key_uint(j, "blocks", k->all_blocks);
    put_rungs(j, "launches_by_rung", k->launches);
    put_rungs(j, "blocks_by_rung", k->blocks);
    tl_json_key_double(j, "share_of_time",
                       job->device_ns > 0 ? (double)k->device_ns / (double)job->device_ns : 0);
    tl_json_key_uint(j, "device_ns", k->device_ns);
    tl_json_key_uint(j, "waited_ns", k->waited_ns);
    put_histogram(j, "queued", &k->queued);
    put_histogram(j, "ran", &k->ran);
    put_histogram(j, "total", &k->total);
    tl_json_key_uint(j, "preemptions", k->preempted.count);
    put_histogram(j, "preemption_latency", &k->preempted);
    put_ratios(j, "preemption_over_block", &k->preempted_blocks);
    tl_json_key_uint(j, "outside_control", k->uncontrolled);
    tl_json_key_uint(j, "outside_control_ns", k->uncontrolled_ns);
    tl_json_key_uint(j, "rescues", k->rescues);
    tl_json_key_uint(j, "culprit_of", k->culprit_of);
    tl_json_key(j, "ops");
    tl_json_array(j);
    for (uint32_t i = 0; i < k->n_ops; i++) {
        tl_json_object(j);
        tl_json_key_str(j, "name", k->ops[i].name);
        tl_json_key_uint(j, "launches", k->ops[i].launches);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
    tl_json_end_object(j);
}

static void put_slow(struct tl_json *j, const struct tl_report_job *job,
                     const struct tl_report_slow *s)
{
    tl_json_object(j);
    tl_json_key_uint(j, "begin_ns", s->begin_ns);
    tl_json_key_uint(j, "latency_ns", s->latency_ns);
    tl_json_key_bool(j, "marked", s->is_marked);
    tl_json_key_uint(j, "kernels", s->kernels);
    tl_json_key_uint(j, "busy_ns", s->busy_ns);
    if (s->culprit != TL_REPORT_NO_KERNEL) {
        tl_json_key_str(j, "culprit", job->kernels[s->culprit].name);
        tl_json_key_uint(j, "culprit_ns", s->culprit_ns);
        tl_json_key_uint(j, "culprit_waited_ns", s->culprit_wait_ns);
    }
    if (s->rival != NULL) {
        tl_json_key_str(j, "rival_job", s->rival->name);
        tl_json_key_str(j, "rival_kernel", s->rival->kernels[s->rival_kernel].name);
        tl_json_key_uint(j, "rival_ns", s->rival_ns);
    }
    tl_json_end_object(j);
}

static void put_graphs(struct tl_json *j, const struct tl_report_job *job)
{
    static const char *const keys[TL_GRAPH_COUNTS] = {
        "as_they_are",         "in_parts",         "opaque",
        "stepped_unknown",     "stepped_measured", "stepped_changed",
        "stepped_forced",      "stepped_divided",  "stepped_no_parts",
        "stepped_no_subgraph", "subgraphs"};
    tl_json_key(j, "graphs");
    tl_json_object(j);
    for (int g = 0; g < TL_GRAPH_COUNTS; g++)
        tl_json_key_uint(j, keys[g], job->graphs[g]);
    tl_json_end_object(j);
}

static void put_copies(struct tl_json *j, const struct tl_report_job *job)
{
    static const char *const keys[TL_COPIES] = {"to_device", "from_device", "on_device", "set"};
    tl_json_key(j, "copies");
    tl_json_object(j);
    for (int c = 0; c < TL_COPIES; c++) {
        tl_json_key(j, keys[c]);
        tl_json_object(j);
        tl_json_key_uint(j, "count", job->copies[c].count);
        tl_json_key_uint(j, "bytes", job->copies[c].bytes);
        tl_json_end_object(j);
    }
    tl_json_end_object(j);
}

static void put_activity(struct tl_json *j, const struct tl_report_job *job)
{
    tl_json_key(j, "activity");
    tl_json_array(j);
    for (uint32_t i = 0; i < job->n_slots; i++) {
        const struct tl_report_slot *s = &job->slots[i];
        tl_json_array(j);
        tl_json_uint(j, s->number);
        tl_json_uint(j, s->run_ns);
        tl_json_uint(j, s->wait_ns);
        tl_json_uint(j, s->requests);
        tl_json_uint(j, s->slowest_ns);
        tl_json_end_array(j);
    }
    tl_json_end_array(j);
}

static void put_lists(struct tl_json *j, const struct tl_report_job *job)
{
    tl_json_key(j, "slowest_requests");
    tl_json_array(j);
    for (uint32_t i = 0; i < job->n_slow; i++)
        put_slow(j, job, &job->slow[i]);
    tl_json_end_array(j);
    tl_json_key(j, "notes");
    tl_json_array(j);
    for (uint32_t i = 0; i < job->n_notes; i++) {
        tl_json_object(j);
        tl_json_key_str(j, "text", job->notes[i].text);
        tl_json_key_uint(j, "times", job->notes[i].times);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
    put_activity(j, job);
    tl_json_key(j, "kernels");
    tl_json_array(j);
    for (uint32_t i = 0; i < job->n_kernels; i++)
        if (!job->kernels[i].is_hidden)
            put_kernel(j, job, &job->kernels[i]);
    tl_json_end_array(j);
}

static void put_versus(struct tl_json *j, const struct tl_report *r,
                       const struct tl_report_run *run, const char *job)
{
    struct tl_report_versus v = tl_report_compare(r, run, job);
    tl_json_key(j, "against_first_run");
    tl_json_object(j);
    key_ratio(j, "p50_ratio", v.p50_ratio);
    key_ratio(j, "p99_ratio", v.p99_ratio);
    key_ratio(j, "speed_ratio", v.speed_ratio);
    tl_json_end_object(j);
}

/* One job; docs/report.md names the members. */
static void put_job(struct tl_json *j, const struct tl_report *r, const struct tl_report_run *run,
                    const struct tl_report_job *job)
{
    tl_json_object(j);
    tl_json_key_str(j, "name", job->name);
    tl_json_key_str(j, "command", job->command);
    tl_json_key_str(j, "device", job->device);
    tl_json_key_str(j, "policy", job->policy);
    tl_json_key_str(j, "host", job->host);
    tl_json_key_int(j, "level", job->level);
    tl_json_key_uint(j, "processes", job->n_processes);
    tl_json_key_uint(j, "unended_processes", job->n_unended);
    tl_json_key_bool(j, "opaque", job->is_opaque);
    tl_json_key_bool(j, "incomplete", job->is_full);
    tl_json_key_uint(j, "begin_ns", job->begin_ns);
    tl_json_key_uint(j, "begin_unix_ns", job->begin_wall_ns);
    tl_json_key_uint(j, "first_ns", job->first_ns);
    tl_json_key_uint(j, "last_ns", job->last_ns);
    tl_json_key_uint(j, "launches", job->all_launches);
    put_rungs(j, "launches_by_rung", job->launches);
    tl_json_key_uint(j, "blocks", job->all_blocks);
    tl_json_key_double(j, "launches_per_s", (double)job->all_launches / tl_report_active_s(job));
    tl_json_key_double(j, "blocks_per_s", (double)job->all_blocks / tl_report_active_s(job));
    put_versus(j, r, run, job->name);
    put_histogram(j, "queued", &job->queued);
    put_histogram(j, "ran", &job->ran);
    put_histogram(j, "total", &job->total);
    put_histogram(j, "preemption_latency", &job->preempted);
    put_ratios(j, "preemption_over_block", &job->preempted_blocks);
    put_steps(j, "preemption_latency_steps", &job->preempted);
    tl_json_key_bool(j, "sampled", job->is_sampled);
    tl_json_key_uint(j, "device_ns", job->device_ns);
    tl_json_key_uint(j, "waited_ns", job->waited_ns);
    tl_json_key_uint(j, "outside_control_ns", job->uncontrolled_ns);
    tl_json_key_uint(j, "rescues", job->rescues);
    put_copies(j, job);
    put_graphs(j, job);
    const struct tl_report_histogram *requests = tl_report_requests(job);
    tl_json_key_str(j, "requests_are",
                    requests->count == 0       ? "none"
                    : requests == &job->marked ? "marked"
                                               : "inferred");
    put_histogram(j, "requests", requests);
    put_steps(j, "request_steps", requests);
    put_lists(j, job);
    tl_json_end_object(j);
}

void tl_report_json(const struct tl_report *r, struct tl_buf *out)
{
    struct tl_json j;
    tl_json_init(&j, out);
    tl_json_object(&j);
    tl_json_key_uint(&j, "schema", SCHEMA);
    tl_json_key_bool(&j, "opaque", r->is_opaque);
    tl_json_key(&j, "problems");
    tl_json_array(&j);
    for (uint32_t i = 0; i < r->n_problems; i++)
        tl_json_str(&j, tl_str_of(r->problems[i]));
    tl_json_end_array(&j);
    tl_json_key(&j, "runs");
    tl_json_array(&j);
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct tl_report_run *run = &r->runs[i];
        tl_json_object(&j);
        tl_json_key_str(&j, "label", run->label);
        tl_json_key_str(&j, "path", run->path);
        tl_json_key_bool(&j, "opaque", run->is_opaque);
        tl_json_key_uint(&j, "begin_ns", run->begin_ns);
        tl_json_key_uint(&j, "end_ns", run->end_ns);
        tl_json_key(&j, "jobs");
        tl_json_array(&j);
        for (uint32_t k = 0; k < run->n_jobs; k++)
            put_job(&j, r, run, &run->jobs[k]);
        tl_json_end_array(&j);
        tl_json_end_object(&j);
    }
    tl_json_end_array(&j);
    tl_json_end_object(&j);
    tl_buf_putc(out, '\n');
}

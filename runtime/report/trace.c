/* The last spans of each job as a trace for chrome://tracing and ui.perfetto.dev: one process per
 * job and run, one track per stream and kind.  Times are microseconds since the first span of the
 * run. */
#include "runtime/report/report.h"

#include <stdio.h>

/* A track's number: spans of one kind and stream lie behind each other there. */
static uint64_t track_of(const struct tl_report_span *s)
{
    return (uint64_t)s->stream * TL_SPANS + (uint64_t)s->kind;
}

/* Tells the viewer what a process or track is called. */
static void put_name(struct tl_json *j, const char *what, uint64_t pid, uint64_t tid,
                     const char *name)
{
    tl_json_object(j);
    tl_json_key_str(j, "ph", "M");
    tl_json_key_str(j, "name", what);
    tl_json_key_uint(j, "pid", pid);
    tl_json_key_uint(j, "tid", tid);
    tl_json_key(j, "args");
    tl_json_object(j);
    tl_json_key_str(j, "name", name);
    tl_json_end_object(j);
    tl_json_end_object(j);
}

static void put_track_name(struct tl_json *j, uint64_t pid, const struct tl_report_span *s)
{
    char name[64];
    snprintf(name, sizeof name, "%s, stream %u", tl_span_name(s->kind), s->stream);
    put_name(j, "thread_name", pid, track_of(s), s->kind == TL_SPAN_REQUEST ? "requests" : name);
}

static void put_span(struct tl_json *j, const struct tl_report_job *job,
                     const struct tl_report_span *s, uint64_t pid, uint64_t zero_ns)
{
    const char *name = s->kernel != TL_REPORT_NO_KERNEL ? job->kernels[s->kernel].brief
                                                        : tl_span_name(s->kind);
    tl_json_object(j);
    tl_json_key_str(j, "ph", "X");
    tl_json_key_str(j, "name", name);
    tl_json_key_str(j, "cat", tl_span_name(s->kind));
    tl_json_key_uint(j, "pid", pid);
    tl_json_key_uint(j, "tid", track_of(s));
    tl_json_key_double(j, "ts", (double)(s->begin_ns - zero_ns) / 1e3);
    tl_json_key_double(j, "dur", (double)(s->end_ns - s->begin_ns) / 1e3);
    tl_json_key(j, "args");
    tl_json_object(j);
    tl_json_key_uint(j, "process", s->pid);
    if (s->kernel != TL_REPORT_NO_KERNEL)
        tl_json_key_str(j, "kernel", job->kernels[s->kernel].full);
    tl_json_end_object(j);
    tl_json_end_object(j);
}

static void put_job(struct tl_json *j, const struct tl_report_job *job, const char *label,
                    uint64_t pid, uint64_t zero_ns)
{
    enum { TRACKS = 1024 }; /* names of further ones are their numbers */
    bool is_named[TRACKS] = {false};
    char name[256];
    snprintf(name, sizeof name, "%s (%s, %s)%s", job->name, label, tl_text_level(job->level).s,
             job->is_opaque ? " OPAQUE" : "");
    put_name(j, "process_name", pid, 0, name);
    for (uint32_t i = 0; i < job->n_spans; i++) {
        uint64_t track = track_of(&job->spans[i]);
        if (track < TRACKS && !is_named[track]) {
            is_named[track] = true;
            put_track_name(j, pid, &job->spans[i]);
        }
        put_span(j, job, &job->spans[i], pid, zero_ns);
    }
}

void tl_report_trace(const struct tl_report *r, struct tl_buf *out)
{
    struct tl_json j;
    uint64_t pid = 1;
    tl_json_init(&j, out);
    tl_json_object(&j);
    tl_json_key_str(&j, "displayTimeUnit", "ns");
    tl_json_key(&j, "traceEvents");
    tl_json_array(&j);
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct tl_report_run *run = &r->runs[i];
        uint64_t zero_ns = UINT64_MAX;
        for (uint32_t k = 0; k < run->n_jobs; k++)
            if (run->jobs[k].n_spans > 0 && run->jobs[k].spans[0].begin_ns < zero_ns)
                zero_ns = run->jobs[k].spans[0].begin_ns;
        for (uint32_t k = 0; k < run->n_jobs; k++)
            put_job(&j, &run->jobs[k], run->label, pid++, zero_ns);
    }
    tl_json_end_array(&j);
    tl_json_end_object(&j);
    tl_buf_putc(out, '\n');
}

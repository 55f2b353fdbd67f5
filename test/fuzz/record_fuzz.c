/* Records that somebody has tampered with, in one of the forms of the report, or as a job of the
 * simulator.
 *
 * A record is large and mostly empty, so the input does not stand for its bytes: it is a list of
 * changes to a good one, which are made in place and undone again.  Each is a place (what it is
 * counted from, and how far), a length of 1 to 8 and as many bytes; an input that begins with 0xff
 * cuts the record off, and one that begins with 0xfe is taken as the file itself.  What follows the
 * changes, if anything, is a name to demangle. */
#include "runtime/record/format.h"
#include "sim/trace_job.h"
#include "test/fuzz/good_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The record as a job that goes on for a moment. */
static void simulate(const struct tl_report_job *from)
{
    static struct sim_run run;
    struct sim_job job;
    struct tl_error err;
    const struct sim_device *d = sim_device("software");
    struct tl_sched_client client = {.level = from->level};
    struct sim_gpu_options o = {.device = d, .policy = "tally", .duration_ns = 1e5, .seed = 1};
    if (from->all_launches == 0 || sim_trace_job(&job, from, d, 1, &err) < 0)
        return;
    (void)sim_gpu_run(&run, &o, &job, &client, 1, &err);
    sim_run_finish(&run);
    memset(&run, 0, sizeof run);
    sim_trace_job_finish(&job);
}

static void write_out(struct tl_report *report, unsigned form)
{
    struct tl_buf out = {0};
    if (form == 0)
        tl_report_text(report, &out);
    else if (form == 1)
        tl_report_json(report, &out);
    else if (form == 2)
        tl_report_trace(report, &out);
    else if (form == 3)
        tl_report_html(report, &out);
    else
        simulate(&report->runs[0].jobs[0]);
    tl_buf_finish(&out);
}

static void show(const unsigned char *bytes, size_t n, unsigned form)
{
    struct tl_report report;
    struct tl_report_job job;
    struct tl_error err;
    const char *problem;
    tl_report_init(&report);
    if (tl_report_read(&job, &problem, &report.arena, bytes, n, &err) == 0) {
        /* The same twice: something to compare. */
        struct tl_report_job jobs[2] = {job, job};
        struct tl_report_run runs[2] = {{.label = "a", .path = "a", .jobs = &jobs[0], .n_jobs = 1},
                                        {.label = "b", .path = "b", .jobs = &jobs[1], .n_jobs = 1}};
        report.runs = runs;
        report.n_runs = 2;
        if (tl_report_settle(&report, TL_ORDER_TIME, NULL, &err) == 0)
            write_out(&report, form);
    }
    tl_report_finish(&report);
}

static void demangle(const uint8_t *bytes, size_t n)
{
    struct tl_arena arena;
    char name[512];
    snprintf(name, sizeof name, "_Z%.*s", (int)(n < 500 ? n : 500), (const char *)bytes);
    tl_arena_init(&arena, 0);
    struct tl_report_kernel k = {.name = name};
    (void)tl_report_name(&k, &arena);
    tl_arena_finish(&arena);
}

/* Bytes that were there before an edit. */
struct edit {
    size_t place, count;
    unsigned char before[8];
};

static void show_cut(const unsigned char *record, size_t length, unsigned form)
{
    /* Of exactly that length, so that the sanitizer sees the first byte too many. */
    unsigned char *exact = malloc(length > 0 ? length : 1);
    memcpy(exact, record, length);
    show(exact, length, form);
    free(exact);
}

/* Bytes are edits of a good record: {area, place, place, count, bytes ...}, behind an optional new
 * length (0xff); or the record itself (0xfe).  What is left over is a name to demangle. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    enum { EDITS = 64, FORMS = 5 };
    static const size_t origins[] = {0,
                                     offsetof(struct tl_record_file, kernels),
                                     offsetof(struct tl_record_file, slow),
                                     offsetof(struct tl_record_file, notes),
                                     offsetof(struct tl_record_file, slots),
                                     offsetof(struct tl_record_file, n_spans),
                                     sizeof(struct tl_record_file)};
    struct edit edits[EDITS];
    uint32_t n_edits = 0;
    size_t length, at = 0, whole;
    unsigned char *record = good_record(&whole);
    unsigned form = n > 0 ? bytes[n - 1] % FORMS : 0;
    if (n > 0 && bytes[0] == 0xfe) {
        show(bytes + 1, n - 1, form);
        return 0;
    }
    length = whole;
    if (n > 4 && bytes[0] == 0xff) {
        length = ((size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3]) % (whole + 1);
        at = 4;
    }
    while (n - at >= 4 && bytes[at] < 64 && n_edits < EDITS) {
        struct edit *e = &edits[n_edits];
        e->place = origins[bytes[at] % 7] + ((size_t)bytes[at + 1] << 8 | bytes[at + 2]);
        e->count = bytes[at + 3] % 8 + 1;
        at += 4;
        e->count = e->count < n - at ? e->count : n - at;
        if (e->place + e->count <= length) {
            memcpy(e->before, record + e->place, e->count);
            memcpy(record + e->place, bytes + at, e->count);
            n_edits++;
        }
        at += e->count;
    }
    if (length < whole)
        show_cut(record, length, form);
    else
        show(record, whole, form);
    while (n_edits > 0) {
        const struct edit *e = &edits[--n_edits];
        memcpy(record + e->place, e->before, e->count);
    }
    demangle(bytes + at, n - at);
    return 0;
}

/* Records that somebody has tampered with, in all forms of the report.
 *
 * A record is large and mostly empty, so the input does not stand for its bytes: it is a list of
 * changes to a good one.  Each is a place (what it is counted from, and how far), a length of 1 to
 * 8 and as many bytes; an input that begins with 0xff cuts the record off, and one that begins with
 * 0xfe is taken as the file itself.  What follows the changes, if anything, is a name to
 * demangle. */
#include "runtime/record/format.h"
#include "runtime/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char *good, *changed;
static size_t n_good;

static void make_good(void)
{
    char folder[] = "/tmp/record-fuzz-XXXXXX", path[256];
    struct tl_record *r = NULL;
    struct tl_error err;
    struct tl_record_job job = {
        .name = "job", .command = "./job", .device = "none", .policy = "tally", .level = 1};
    if (mkdtemp(folder) == NULL || tl_record_open(&r, folder, &job, &err) < 0)
        abort();
    for (uint64_t i = 0; i < 6; i++) {
        static const char *const names[] = {"_Z4vaddPKfS0_Pfi", "loop_fusion", "_Z1fIiEvT_"};
        struct tl_record_kernel *k = tl_record_kernel(r, names[i % 3]);
        tl_record_launched(k, (enum tl_rung)(i % TL_RUNGS), i);
        tl_record_ran(k, i * 100, i * i * 10000);
        tl_record_preempted(k, i * 1000, i * 300);
        tl_record_uncontrolled(k, i);
        tl_record_spanned(r, (enum tl_record_span)(i % TL_SPANS), k, 1, 1000000000 + i,
                          1000000000 + i * 1000);
        tl_record_request(r, 1000000000, 1000000000 + i * 1000, i % 2 == 0);
        tl_record_note(r, names[i % 3]);
    }
    tl_record_close(r);
    snprintf(path, sizeof path, "%s/job.%ld.tally", folder, (long)getpid());
    FILE *f = fopen(path, "r");
    good = malloc(2 << 20);
    changed = malloc(2 << 20);
    if (f == NULL || good == NULL || changed == NULL)
        abort();
    n_good = fread(good, 1, 2 << 20, f);
    fclose(f);
    unlink(path);
    rmdir(folder);
}

static void show(const unsigned char *bytes, size_t n)
{
    struct tl_report report;
    struct tl_report_job job;
    struct tl_error err;
    const char *problem;
    struct tl_buf out = {0};
    tl_report_init(&report);
    if (tl_report_read(&job, &problem, &report.arena, bytes, n, &err) == 0) {
        /* The same twice: something to compare. */
        struct tl_report_job jobs[2] = {job, job};
        struct tl_report_run runs[2] = {{.label = "a", .path = "a", .jobs = &jobs[0], .n_jobs = 1},
                                        {.label = "b", .path = "b", .jobs = &jobs[1], .n_jobs = 1}};
        report.runs = runs;
        report.n_runs = 2;
        if (tl_report_settle(&report, TL_ORDER_TIME, NULL, &err) == 0) {
            tl_report_text(&report, &out);
            tl_report_json(&report, &out);
            tl_report_trace(&report, &out);
            tl_report_html(&report, &out);
        }
    }
    tl_buf_finish(&out);
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

/* Bytes are edits of a good record: {area, place, place, count, bytes ...}, behind an optional new
 * length (0xff); or the record itself (0xfe).  What is left over is a name to demangle. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const size_t origins[] = {0,
                                     offsetof(struct tl_record_file, kernels),
                                     offsetof(struct tl_record_file, slow),
                                     offsetof(struct tl_record_file, notes),
                                     offsetof(struct tl_record_file, slots),
                                     offsetof(struct tl_record_file, n_spans),
                                     sizeof(struct tl_record_file)};
    if (good == NULL)
        make_good();
    if (n > 0 && bytes[0] == 0xfe) {
        show(bytes + 1, n - 1);
        return 0;
    }
    size_t length = n_good, at = 0;
    if (n > 4 && bytes[0] == 0xff) {
        length = ((size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3]) % (n_good + 1);
        at = 4;
    }
    memcpy(changed, good, n_good);
    while (n - at >= 4 && bytes[at] < 64) {
        size_t origin = origins[bytes[at] % 7];
        size_t place = origin + ((size_t)bytes[at + 1] << 8 | bytes[at + 2]);
        size_t count = bytes[at + 3] % 8 + 1;
        at += 4;
        count = count < n - at ? count : n - at;
        if (place + count <= length)
            memcpy(changed + place, bytes + at, count);
        at += count;
    }
    /* Of exactly that length, so that the sanitizer sees the first byte too many. */
    unsigned char *exact = malloc(length > 0 ? length : 1);
    memcpy(exact, changed, length);
    show(exact, length);
    free(exact);
    demangle(bytes + at, n - at);
    return 0;
}

/* Scenarios for tally-sim; what is accepted is simulated for a moment. */
#include "sim/scenario.h"
#include "sim/trace_job.h"
#include "test/fuzz/good_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The good record, whatever the path. */
static int a_record(struct tl_report *report, const char *path, struct tl_error *err)
{
    static struct tl_report_job job;
    static struct tl_arena arena;
    const char *problem;
    size_t n;
    if (path[0] == '!')
        return tl_error_set(err, -ENOENT, "no %s", path);
    if (job.name == NULL) {
        const unsigned char *bytes = good_record(&n);
        tl_arena_init(&arena, (size_t)1 << 30);
        if (tl_report_read(&job, &problem, &arena, bytes, n, err) < 0)
            abort();
    }
    report->runs = tl_arena_zalloc(&report->arena, sizeof *report->runs);
    struct tl_report_job *jobs = tl_arena_zalloc(&report->arena, sizeof *jobs);
    if (report->runs == NULL || jobs == NULL)
        abort();
    *jobs = job;
    report->n_runs = 1;
    report->runs[0] = (struct tl_report_run){.label = "a", .path = "a", .jobs = jobs, .n_jobs = 1};
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct sim_scenario s;
    struct tl_error err = {0};
    int rc = sim_scenario_read(&s, (struct tl_str){(const char *)data, (uint32_t)n}, a_record,
                               &err);
    if (rc < 0 && err.text[0] == 0)
        abort();
    if (rc == 0 && s.n <= 4) {
        /* How long it takes is the user's choice, and not what is asked for here. */
        s.options.duration_ns = s.options.duration_ns < 1e5 ? s.options.duration_ns : 1e5;
        for (uint32_t i = 0; i < s.n; i++)
            s.jobs[i].warm_rounds = s.jobs[i].warm_rounds < 1 ? s.jobs[i].warm_rounds : 1;
        (void)sim_gpu_run(&s.run, &s.options, s.jobs, s.clients, s.n, &err);
    }
    sim_scenario_finish(&s);
    return 0;
}

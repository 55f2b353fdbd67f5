/* Runs against each other: the same job alone, beside others, under this policy or that. */
#include "runtime/report/report.h"

#include <string.h>

const struct tl_report_job *tl_report_find(const struct tl_report_run *run, const char *job)
{
    for (uint32_t i = 0; i < run->n_jobs; i++)
        if (strcmp(run->jobs[i].name, job) == 0)
            return &run->jobs[i];
    return NULL;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double speed_of(const struct tl_report_job *j)
{
    double work = j->all_blocks > 0 ? (double)j->all_blocks : (double)j->all_launches;
    return work / tl_report_active_s(j);
}

struct tl_report_versus tl_report_compare(const struct tl_report *r,
                                          const struct tl_report_run *run, const char *job)
{
    struct tl_report_versus v = {.job = tl_report_find(run, job)};
    for (uint32_t i = 0; i < r->n_runs && v.base == NULL; i++)
        v.base = tl_report_find(&r->runs[i], job);
    if (v.job == NULL || v.base == NULL)
        return v;
    const struct tl_report_histogram *now = tl_report_requests(v.job),
                                     *then = tl_report_requests(v.base);
    v.p50_ratio = ratio((double)tl_histogram_percentile(now, 50),
                        (double)tl_histogram_percentile(then, 50));
    v.p99_ratio = ratio((double)tl_histogram_percentile(now, 99),
                        (double)tl_histogram_percentile(then, 99));
    v.speed_ratio = ratio(speed_of(v.job), speed_of(v.base));
    return v;
}

bool tl_report_is_urgent(const struct tl_report *r, const char *job)
{
    int highest = TL_LEVEL_MIN;
    for (uint32_t i = 0; i < r->n_runs; i++)
        for (uint32_t k = 0; k < r->runs[i].n_jobs; k++)
            highest = highest > r->runs[i].jobs[k].level ? highest : r->runs[i].jobs[k].level;
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct tl_report_job *j = tl_report_find(&r->runs[i], job);
        if (j != NULL && (j->marked.count > 0 || (j->inferred.count > 0 && j->level == highest)))
            return true;
    }
    return false;
}

const char **tl_report_job_names(struct tl_report *r)
{
    size_t most = 1;
    for (uint32_t i = 0; i < r->n_runs; i++)
        most += r->runs[i].n_jobs;
    const char **names = tl_arena_zalloc(&r->arena, most * sizeof *names);
    if (names == NULL)
        return NULL;
    size_t n = 0;
    for (int level = TL_LEVEL_MAX; level >= TL_LEVEL_MIN; level--) {
        for (uint32_t i = 0; i < r->n_runs; i++) {
            for (uint32_t j = 0; j < r->runs[i].n_jobs; j++) {
                const struct tl_report_job *job = &r->runs[i].jobs[j];
                bool is_new = job->level == level;
                for (size_t k = 0; k < n && is_new; k++)
                    is_new = strcmp(names[k], job->name) != 0;
                if (is_new)
                    names[n++] = job->name;
            }
        }
    }
    return names;
}

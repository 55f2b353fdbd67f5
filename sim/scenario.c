/* Scenarios: a list of jobs, each with the record of a run of it alone, and how they meet. */
#include "sim/scenario.h"
#include "sim/trace_job.h"
#include "tally/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* No number of a scenario is larger, so that what is computed of them stays finite and exact. */
#define MOST (UINT64_C(1) << 53)
#define LONGEST_S 1e6
enum { MOST_SMS = 1 << 20 };

static const char *text_of(struct sim_scenario *s, const struct tl_json_value *j, const char *key)
{
    const struct tl_json_value *v = tl_json_get(j, key);
    return v != NULL && v->kind == TL_JSON_TEXT ? tl_arena_copy(&s->arena, v->text) : NULL;
}

static uint64_t megabytes(const struct tl_json_value *j, const char *key)
{
    return tl_json_bounded(tl_json_number(j, key, 0) * 0x1p20, MOST);
}

/* A time in units of that many nanoseconds, as nanoseconds. */
static uint64_t time_of(const struct tl_json_value *j, const char *key, double unit_ns)
{
    return tl_json_bounded(tl_json_number(j, key, 0) * unit_ns, MOST);
}

/* Arrival times, ascending. */
static int read_times(struct sim_scenario *s, struct sim_job *j, const struct tl_json_value *list,
                      struct tl_error *err)
{
    uint32_t n = 0;
    for (const struct tl_json_value *v = list->first; v != NULL; v = v->next)
        n++;
    double *times = tl_arena_alloc(&s->arena, (n + 1) * sizeof *times);
    if (times == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for %u arrivals", n);
    j->n_times = 0;
    for (const struct tl_json_value *v = list->first; v != NULL; v = v->next) {
        if (v->kind != TL_JSON_NUMBER || !(v->number >= 0) || v->number > LONGEST_S ||
            (j->n_times > 0 && v->number * 1e9 < times[j->n_times - 1]))
            return tl_error_set(err, -EINVAL,
                                "arrivals_s of '%s': times must be numbers that do not fall",
                                j->name);
        times[j->n_times++] = v->number * 1e9;
    }
    j->arrivals = SIM_LISTED;
    j->times_ns = times;
    return 0;
}

/* The job of the record; one file has one. */
static int read_record(struct sim_scenario *s, struct sim_job *j, const char *path,
                       const struct tl_json_value *from, sim_record_source source,
                       struct tl_error *err)
{
    struct tl_report report;
    tl_report_init(&report);
    int rc = source(&report, path, err);
    if (rc == 0)
        rc = tl_report_settle(&report, TL_ORDER_TIME, NULL, err);
    if (rc == 0 && (report.n_runs == 0 || report.runs[0].n_jobs == 0 ||
                    report.runs[0].jobs[0].all_launches == 0))
        rc = tl_error_set(err, -ENODATA, "%s: no job launched a kernel", path);
    if (rc == 0) {
        struct tl_report_job *job = &report.runs[0].jobs[0];
        rc = sim_trace_job(j, job, &s->device, (uint64_t)s->options.seed + s->n, err);
        const char *name = text_of(s, from, "name");
        j->name = name != NULL ? name : tl_arena_copy(&s->arena, tl_str_of(job->name));
        s->clients[s->n].level = job->level;
    }
    tl_report_finish(&report);
    return rc;
}

/* One job of the list: its record, and what the scenario says of it.  0, or a negative errno value
 * with a message. */
static int add_job(struct sim_scenario *s, const struct tl_json_value *from,
                   sim_record_source source, struct tl_error *err)
{
    if (s->n == SIM_CLIENTS)
        return tl_error_set(err, -EINVAL, "a GPU takes at most %d jobs", SIM_CLIENTS);
    struct sim_job *j = &s->jobs[s->n];
    struct tl_sched_client *c = &s->clients[s->n];
    const char *path = text_of(s, from, "record");
    if (path == NULL)
        return tl_error_set(err, -EINVAL,
                            "job %u: \"record\" is missing, the .tally file of a run of it alone",
                            s->n);
    int rc = read_record(s, j, path, from, source, err);
    if (rc < 0)
        return rc;
    s->n++;
    double level = tl_json_number(from, "level", c->level);
    if (!(level >= TL_LEVEL_MIN && level <= TL_LEVEL_MAX))
        return tl_error_set(err, -EINVAL, "level of '%s': it is from %d to %d", j->name,
                            TL_LEVEL_MIN, TL_LEVEL_MAX);
    c->level = (int)level;
    c->slo_ns = time_of(from, "slo_ms", 1e6);
    c->total_ns = time_of(from, "total_s", 1e9);
    c->turnaround_ns = time_of(from, "turnaround_us", 1e3);
    j->start_ns = (double)time_of(from, "start_s", 1e9);
    j->warm_rounds = tl_json_whole(from, "warm_rounds", 0, MOST);
    j->rounds = tl_json_whole(from, "rounds", 0, MOST);
    if (tl_json_number(from, "kernels_per_round", 0) >= 1) {
        j->n_round = (uint32_t)tl_json_whole(from, "kernels_per_round", 0, UINT32_MAX);
        j->arrivals = SIM_ALWAYS;
    }
    j->persistent_bytes = megabytes(from, "memory_mb");
    j->touched_bytes = (double)megabytes(from, "touched_mb");
    const struct tl_json_value *times = tl_json_get(from, "arrivals_s");
    return times != NULL ? read_times(s, j, times, err) : 0;
}

/* Device, policy and jobs of a scenario.  0, or a negative errno value with a message. */
static int set_up(struct sim_scenario *s, const struct tl_json_value *j, sim_record_source source,
                  struct tl_error *err)
{
    const char *name = text_of(s, j, "device"), *policy = text_of(s, j, "policy");
    const struct sim_device *d = sim_device(name != NULL ? name : "software");
    if (d == NULL)
        return tl_error_set(err, -ENOENT,
                            "there is no device '%s'; choose a100, v100, p100, 2080ti or software",
                            name);
    if (policy == NULL)
        return tl_error_set(err, -EINVAL, "\"policy\" is missing");
    s->device = *d;
    double seconds = tl_json_number(j, "seconds", 60);
    if (!(seconds > 0 && seconds <= LONGEST_S))
        return tl_error_set(err, -EINVAL, "\"seconds\" is above 0 and at most %.0g", LONGEST_S);
    s->device.n_sms = (uint32_t)tl_json_whole(j, "sms", d->n_sms, MOST_SMS);
    s->device.n_sms = s->device.n_sms > 0 ? s->device.n_sms : 1;
    uint64_t memory = megabytes(j, "memory_mb");
    s->device.memory_bytes = memory > 0 ? memory : d->memory_bytes;
    s->device.pcie = tl_json_number(j, "bus_bytes_per_s", d->pcie);
    s->device.fault_ns = tl_json_number(j, "fault_ns", d->fault_ns);
    if (!(s->device.pcie >= 1 && s->device.pcie <= 0x1p53 && s->device.fault_ns >= 0 &&
          s->device.fault_ns <= 0x1p53))
        return tl_error_set(err, -EINVAL,
                            "\"bus_bytes_per_s\" is at least 1, \"fault_ns\" at least 0");
    s->options = (struct sim_gpu_options){
        .device = &s->device,
        .policy = policy,
        .parameters = text_of(s, j, "parameters"),
        .dispatch = text_of(s, j, "dispatch"),
        .duration_ns = 1e9 * seconds,
        .seed = tl_json_whole(j, "seed", 1, MOST),
        .has_limited_memory = true,
    };
    const struct tl_json_value *jobs = tl_json_get(j, "jobs");
    int rc = jobs != NULL && jobs->first != NULL
                 ? 0
                 : tl_error_set(err, -EINVAL, "\"jobs\" is missing");
    for (const struct tl_json_value *job = rc == 0 ? jobs->first : NULL; rc == 0 && job != NULL;
         job = job->next)
        rc = add_job(s, job, source, err);
    for (uint32_t i = 1; rc == 0 && i < s->n; i++)
        if (s->clients[i].level > s->clients[i - 1].level)
            rc = tl_error_set(err, -EINVAL, "jobs of higher levels must stand first");
    return rc;
}

/* What became of each job, as JSON. */
static void write_jobs(struct sim_scenario *s, struct tl_buf *out)
{
    struct tl_json json;
    tl_json_init(&json, out);
    tl_json_array(&json);
    for (uint32_t i = 0; i < s->n; i++) {
        struct sim_result *r = &s->run.results[i];
        double counted_s = (s->run.ended_ns - s->run.warm_ns) / 1e9;
        tl_json_object(&json);
        tl_json_key_str(&json, "job", s->jobs[i].name);
        tl_json_key_double(&json, "level", s->clients[i].level);
        tl_json_key_double(&json, "rounds", (double)r->rounds);
        tl_json_key_double(&json, "p50_ms", sim_samples_percentile(&r->sojourn, 0.50) / 1e6);
        tl_json_key_double(&json, "p99_ms", sim_samples_percentile(&r->sojourn, 0.99) / 1e6);
        tl_json_key_double(&json, "service_p50_ms",
                           sim_samples_percentile(&r->latency, 0.50) / 1e6);
        tl_json_key_double(&json, "service_p99_ms",
                           sim_samples_percentile(&r->latency, 0.99) / 1e6);
        tl_json_key_double(&json, "kernels_per_s",
                           counted_s > 0 ? (double)r->kernels / counted_s : 0);
        tl_json_key_double(&json, "finished_s", r->finished_ns / 1e9);
        tl_json_key_bool(&json, "out_of_memory", r->is_out_of_memory);
        /* Everybody's latencies, for whoever has a bound of its own. */
        tl_json_key(&json, "latencies_ms");
        tl_json_array(&json);
        for (size_t k = 0; k < r->sojourn.n && s->jobs[i].arrivals != SIM_ALWAYS; k++)
            tl_json_double(&json, r->sojourn.v[k] / 1e6);
        tl_json_end_array(&json);
        tl_json_end_object(&json);
    }
    tl_json_end_array(&json);
    tl_buf_putc(out, '\n');
}

int sim_scenario_read(struct sim_scenario *s, struct tl_str text, sim_record_source source,
                      struct tl_error *err)
{
    struct tl_json_value *j;
    memset(s, 0, sizeof *s);
    tl_arena_init(&s->arena, (size_t)64 << 20);
    int rc = tl_json_read(&j, &s->arena, text, err);
    return rc == 0 ? set_up(s, j, source, err) : rc;
}

void sim_scenario_finish(struct sim_scenario *s)
{
    sim_run_finish(&s->run);
    for (uint32_t i = 0; i < s->n; i++)
        sim_trace_job_finish(&s->jobs[i]);
    tl_arena_finish(&s->arena);
}

int sim_scenario_run(struct tl_str text, struct tl_buf *out, struct tl_error *err)
{
    struct sim_scenario *s = malloc(sizeof *s);
    if (s == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for a scenario");
    int rc = sim_scenario_read(s, text, tl_report_add, err);
    if (rc == 0)
        rc = sim_gpu_run(&s->run, &s->options, s->jobs, s->clients, s->n, err);
    if (rc == 0)
        write_jobs(s, out);
    sim_scenario_finish(s);
    free(s);
    return rc;
}

/* Meetings of two jobs; see the header. */
#include "sim/neighbours.h"

#include "sim/jobs.h"

#include <errno.h>
#include <stdlib.h>

const double sim_loads[SIM_LOADS] = {0.25, 0.45, 0.65};

/* Requests behind each P99 at least, of fast services many more; and seconds of a run at least, ten
 * steps of the longest training. */
static const double requests = 60, least_s = 10;

static const char *const services[SIM_SERVICES] = {"bert-infer", "llama-infer"};
static const char *const trainings[SIM_TRAININGS] = {"whisper-train",  "resnet50-train",
                                                     "pointnet-train", "pegasus-train",
                                                     "gpt2-train",     "bert-train"};

struct result {
    bool is_known;
    double rounds_per_s, p99_ns;
};

struct sim_neighbours {
    const char *policy;
    bool has_levels;
    uint32_t n_known;
    struct result results[SIM_KINDS][SIM_KINDS + 1];
};

static const struct sim_profile *profile_of(uint32_t kind)
{
    return sim_profile(sim_kind_is_service(kind) ? services[kind / SIM_LOADS]
                                                 : trainings[kind - sim_training_kind(0)]);
}

double sim_kind_memory_mb(uint32_t kind)
{
    return profile_of(kind)->memory_mb;
}

double sim_kind_load(uint32_t kind)
{
    const struct sim_profile *p = profile_of(kind);
    return p->gpu_part * (sim_kind_is_service(kind) ? sim_loads[kind % SIM_LOADS] : 1);
}

int sim_neighbours_create(struct sim_neighbours **out, const char *policy, bool has_levels,
                          struct tl_error *err)
{
    struct sim_neighbours *n = *out = calloc(1, sizeof *n);
    if (n == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for a table of neighbours");
    n->policy = policy;
    n->has_levels = has_levels;
    return 0;
}

void sim_neighbours_destroy(struct sim_neighbours *n)
{
    free(n);
}

uint32_t sim_neighbours_known(const struct sim_neighbours *n)
{
    return n->n_known;
}

/* How long a kind has to be watched. */
static double seconds_of(uint32_t kind)
{
    if (!sim_kind_is_service(kind))
        return least_s;
    double s = requests * profile_of(kind)->round_ms / 1000 / sim_loads[kind % SIM_LOADS];
    return s < least_s ? least_s : s;
}

static int job_of(struct sim_job *j, uint32_t kind, uint64_t seed)
{
    const struct sim_profile *p = profile_of(kind);
    int rc = sim_job_init(j, p, sim_device("a100"), seed);
    if (rc == 0 && sim_kind_is_service(kind)) {
        j->arrivals = SIM_POISSON;
        j->period_ns = p->round_ms * 1e6 / sim_loads[kind % SIM_LOADS];
    }
    return rc;
}

/* Simulates `a` beside `b`; the one that is high, or the service, comes first. */
static int simulate(struct sim_neighbours *n, uint32_t a, uint32_t b, struct tl_error *err)
{
    static struct sim_run run;
    struct sim_job jobs[2];
    uint32_t kinds[2] = {a, b}, n_jobs = b == SIM_ALONE ? 1 : 2, ready = 0;
    struct tl_sched_client clients[2];
    double seconds = seconds_of(a);
    int rc = 0;
    if (n_jobs == 2 && !sim_kind_is_service(a) && sim_kind_is_service(b))
        kinds[0] = b, kinds[1] = a;
    for (; rc == 0 && ready < n_jobs; ready += rc == 0) {
        uint32_t k = kinds[ready];
        bool is_low = n->has_levels && !sim_kind_is_service(k);
        clients[ready] = (struct tl_sched_client){.level = is_low ? TL_LEVEL_LOW : TL_LEVEL_HIGH};
        seconds = seconds_of(k) > seconds ? seconds_of(k) : seconds;
        rc = job_of(&jobs[ready], k, 1 + ready);
    }
    struct sim_gpu_options o = {.device = sim_device("a100"),
                                .policy = n->policy,
                                .duration_ns = seconds * 1e9,
                                .warmup_ns = seconds * 1e8,
                                .seed = 1};
    if (rc == 0)
        rc = sim_gpu_run(&run, &o, jobs, clients, n_jobs, err);
    for (uint32_t i = 0; rc == 0 && i < n_jobs; i++) {
        struct result *r = &n->results[kinds[i]][n_jobs == 1 ? SIM_ALONE : kinds[1 - i]];
        r->is_known = true;
        r->rounds_per_s = (double)run.results[i].rounds / (0.9 * seconds);
        r->p99_ns = sim_samples_percentile(&run.results[i].sojourn, 0.99);
    }
    n->n_known += rc == 0;
    sim_run_finish(&run);
    for (uint32_t i = 0; i < ready; i++)
        sim_job_finish(&jobs[i]);
    return rc;
}

int sim_neighbours_meet(struct sim_neighbours *n, uint32_t kind, uint32_t other,
                        struct sim_meeting *m, struct tl_error *err)
{
    const struct result *alone = &n->results[kind][SIM_ALONE], *met = &n->results[kind][other];
    int rc = alone->is_known ? 0 : simulate(n, kind, SIM_ALONE, err);
    if (rc == 0 && !met->is_known)
        rc = simulate(n, kind, other, err);
    if (rc < 0)
        return rc;
    *m = (struct sim_meeting){
        .speed = alone->rounds_per_s > 0 ? met->rounds_per_s / alone->rounds_per_s : 0,
        .p99 = sim_kind_is_service(kind) && alone->p99_ns > 0 ? met->p99_ns / alone->p99_ns : 0,
    };
    return 0;
}

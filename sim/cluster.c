/* The cluster in steps. */
#include "sim/cluster.h"

#include <errno.h>
#include <stdlib.h>

enum { SLOTS = 2 };
/* blocks of a job alone at full speed, for the policy's rates */
static const double step_s = 5, blocks_per_s = 4e6;

/* How much of a kernel of the other job production waits for where streams have priorities, on
 * average: assumed. */
static const double wait_for_block = 0.1;

struct gpu {
    int slots[SLOTS]; /* job numbers or -1; under control slot 0 is production's */
    struct tl_sched *sched;
};

void sim_philly_like(struct sim_cluster_job *jobs, uint32_t n, double span_s, uint64_t seed)
{
    struct sim_random r = sim_random(seed);
    double at = 0;
    for (uint32_t i = 0; i < n; i++) {
        at += sim_exponential(&r, span_s / n);
        double work = sim_lognormal(&r, 15 * 60, 1.3);
        jobs[i] = (struct sim_cluster_job){
            .submit_s = at,
            .work_s = work < 120     ? 120
                      : work > 36000 ? 36000
                                     : work,
            .utilization = 0.14 + 0.76 * sim_uniform(&r),
            .is_production = i % 2 == 0,
        };
    }
}

static uint32_t slot_of(const struct sim_cluster_options *o, const struct sim_cluster_job *j,
                        const struct gpu *g)
{
    switch (o->mode) {
    case SIM_EXCLUSIVE:
        return g->slots[0] < 0 ? 0 : SLOTS;
    case SIM_CONTROLLED:
        return g->slots[!j->is_production] < 0 ? !j->is_production : SLOTS;
    case SIM_CO_EXECUTION:
        return g->slots[0] < 0 ? 0 : g->slots[1] < 0 ? 1 : SLOTS;
    }
    return SLOTS;
}

/* The first GPU with a free slot, as TGS's own scheduler does it: it does not look for an empty
 * one. */
static bool place(struct gpu *gpus, struct sim_cluster_job *jobs, uint32_t job,
                  const struct sim_cluster_options *o, double now)
{
    for (uint32_t i = 0; i < o->gpus; i++) {
        struct gpu *g = &gpus[i];
        uint32_t slot = slot_of(o, &jobs[job], g);
        if (slot == SLOTS)
            continue;
        g->slots[slot] = (int)job;
        jobs[job].start_s = now;
        if (g->sched != NULL) {
            struct tl_sched_client c = {.level = slot == 0 ? TL_LEVEL_HIGH : TL_LEVEL_LOW};
            tl_sched_join(g->sched, slot, &c, (uint64_t)(now * 1e9));
            tl_sched_backlog(g->sched, slot, true, (uint64_t)(now * 1e9));
        }
        return true;
    }
    return false;
}

/* How much longer a job takes that uses `own` of a GPU alone, beside one that uses `met`.  A job
 * goes back and forth between host and GPU.
 *
 *     shared evenly   while both are on the GPU each runs at half speed; one that comes finds the other there for `met` of the time, so
 *                     its own part takes 1 + met times as long (exact for two jobs that share a processor)
 *     first           it waits for a block of the other, where it finds one
 *     second          it has what the first leaves: its part takes 1 / (1 - met) times as long */
static double slower(double own, double met, bool has_priorities, bool is_first)
{
    if (!has_priorities)
        return 1 + own * met;
    return is_first ? 1 + own * met * wait_for_block
                    : 1 - own + own / (met < 0.99 ? 1 - met : 0.01);
}

/* Speeds of the jobs of a GPU, as parts of their speed alone. */
static void rates(const struct gpu *g, const struct sim_cluster_job *jobs, double speed[SLOTS])
{
    double limit[SLOTS] = {1, 1};
    for (int s = 0; s < SLOTS; s++) {
        speed[s] = 0;
        if (g->slots[s] < 0)
            continue;
        double alone = blocks_per_s * jobs[g->slots[s]].utilization;
        const struct tl_grant *grant = g->sched != NULL ? tl_sched_grant(g->sched, (uint32_t)s)
                                                        : NULL;
        if (grant != NULL && !grant->may_run)
            limit[s] = 0;
        else if (grant != NULL && grant->blocks_per_s != 0 && (double)grant->blocks_per_s < alone)
            limit[s] = (double)grant->blocks_per_s / alone;
    }
    for (int s = 0; s < SLOTS; s++) {
        if (g->slots[s] < 0)
            continue;
        int other = g->slots[1 - s];
        double met = other >= 0 ? limit[1 - s] * jobs[other].utilization : 0;
        double most = 1 / slower(jobs[g->slots[s]].utilization, met, g->sched != NULL, s == 0);
        speed[s] = limit[s] < most ? limit[s] : most;
    }
}

static uint32_t step_gpu(struct gpu *g, struct sim_cluster_job *jobs, double *left, double now)
{
    double speed[SLOTS];
    uint32_t finished = 0;
    rates(g, jobs, speed);
    uint64_t end_ns = (uint64_t)((now + step_s) * 1e9);
    for (int s = 0; s < SLOTS; s++) {
        if (g->slots[s] < 0)
            continue;
        struct sim_cluster_job *j = &jobs[g->slots[s]];
        double done = speed[s] * step_s;
        if (g->sched != NULL) {
            struct tl_usage u = {.blocks = (uint64_t)(done * blocks_per_s * j->utilization),
                                 .device_ns = (uint64_t)(done * 1e9)};
            tl_sched_used(g->sched, (uint32_t)s, &u, end_ns);
        }
        left[g->slots[s]] -= done;
        if (left[g->slots[s]] > 0)
            continue;
        j->finish_s = now + step_s + left[g->slots[s]] / speed[s];
        g->slots[s] = -1;
        finished++;
        if (g->sched != NULL)
            tl_sched_leave(g->sched, (uint32_t)s, end_ns);
    }
    if (g->sched != NULL)
        tl_sched_tick(g->sched, end_ns);
    return finished;
}

int sim_cluster_run(struct sim_cluster_job *jobs, uint32_t n, const struct sim_cluster_options *o,
                    struct tl_error *err)
{
    struct gpu *gpus = calloc(o->gpus, sizeof *gpus);
    double *left = calloc(n, sizeof *left);
    int rc = gpus == NULL || left == NULL
                 ? tl_error_set(err, -ENOMEM, "out of memory for a cluster")
                 : 0;
    for (uint32_t i = 0; rc == 0 && i < o->gpus; i++) {
        gpus[i].slots[0] = gpus[i].slots[1] = -1;
        if (o->mode == SIM_CONTROLLED)
            rc = tl_sched_create(&gpus[i].sched, o->policy, NULL, err);
    }
    uint32_t finished = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        left[i] = jobs[i].work_s, jobs[i].start_s = jobs[i].finish_s = -1;
    for (double now = 0; rc == 0 && finished < n && now < o->limit_s; now += step_s) {
        for (
            uint32_t i = 0; i < n;
            i++) /* in the order of submission, without head-of-line blocking between the classes */
            if (jobs[i].start_s < 0 && jobs[i].submit_s <= now)
                place(gpus, jobs, i, o, now);
        for (uint32_t i = 0; i < o->gpus; i++)
            finished += step_gpu(&gpus[i], jobs, left, now);
    }
    for (uint32_t i = 0; gpus != NULL && i < o->gpus; i++)
        tl_sched_destroy(gpus[i].sched);
    free(gpus);
    free(left);
    if (rc == 0 && finished < n)
        return tl_error_set(err, -ETIME, "%u of %u jobs did not finish within %.0f s", n - finished,
                            n, o->limit_s);
    return rc;
}

double sim_cluster_mean_jct(const struct sim_cluster_job *jobs, uint32_t n, bool is_production)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        if (jobs[i].is_production == is_production) {
            sum += jobs[i].finish_s - jobs[i].submit_s;
            count++;
        }
    return count > 0 ? sum / count : 0;
}

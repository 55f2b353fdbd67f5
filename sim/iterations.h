/* One GPU at the granularity of iterations, under the policy salus: jobs with persistent and
 * ephemeral memory, lanes, switches. */
#ifndef TALLY_SIM_ITERATIONS_H
#define TALLY_SIM_ITERATIONS_H

#include "sim/random.h"
#include "tally/sched.h"

struct sim_iter_job {
    double submit_s, total_s, iteration_s;
    double utilization; /* of the GPU while an iteration runs */
    uint64_t persistent, ephemeral;
    /* Out. */
    double finish_s, used_s;
};

struct sim_iter_options {
    uint64_t memory_bytes;
    const char *parameters; /* of salus, e.g. "order=srtf" */
    double until_s;         /* stop there; 0: when all are done */
};

struct sim_iter_stats {
    /* from a better job's arrival in a lane to its first iteration */
    double makespan_s, longest_switch_s;
    uint64_t iterations;
    double most_together; /* jobs that ran at the same time */
};

/* Jobs like those that Tiresias reports: Poisson arrivals at offered load 1, lengths lognormal with
 * a median of 5 min and a sigma of 1.5, half a minute to 4 h; models, iteration times and memory
 * from Salus's own list. */
void sim_tiresias_like(struct sim_iter_job *jobs, uint32_t n, uint64_t seed);

/* 0, -ENOMEM, or what the policy refused. */
int sim_iterations_run(struct sim_iter_job *jobs, uint32_t n, const struct sim_iter_options *o,
                       struct sim_iter_stats *stats, struct tl_error *err);
double sim_iter_mean_jct(const struct sim_iter_job *jobs, uint32_t n);

#endif

/* Many GPUs and a stream of training jobs: queueing, placement and, where jobs share a GPU, the
 * rates that a policy leaves them. The clock goes in steps of TGS's 5 s. */
#ifndef TALLY_SIM_CLUSTER_H
#define TALLY_SIM_CLUSTER_H

#include "sim/random.h"
#include "tally/sched.h"

struct sim_cluster_job {
    double submit_s, work_s; /* when it comes; how long it takes alone */
    double utilization;      /* part of a GPU that it uses alone */
    bool is_production;
    /* Out. */
    double start_s, finish_s;
};

enum sim_cluster_mode {
    SIM_EXCLUSIVE,    /* one job per GPU */
    SIM_CO_EXECUTION, /* two, without control */
    SIM_CONTROLLED,   /* one production and one opportunistic job per GPU, under a policy */
};

struct sim_cluster_options {
    uint32_t gpus;
    enum sim_cluster_mode mode;
    const char *policy; /* of SIM_CONTROLLED */
    double limit_s;     /* give up after that */
};

/* Jobs like those of the Philly trace: Poisson arrivals; lengths lognormal with a median of 15 min
 * and a sigma of 1.3, 2 min to 10 h; utilisation uniform around the 52 % that Microsoft reports;
 * every second one is production. */
void sim_philly_like(struct sim_cluster_job *jobs, uint32_t n, double span_s, uint64_t seed);

/* Fills in start_s and finish_s.  0, -ENOMEM or what the policy refused. */
int sim_cluster_run(struct sim_cluster_job *jobs, uint32_t n, const struct sim_cluster_options *o,
                    struct tl_error *err);

/* Mean of finish - submit over production or other jobs. */
double sim_cluster_mean_jct(const struct sim_cluster_job *jobs, uint32_t n, bool is_production);

#endif

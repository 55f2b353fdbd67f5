/* Models of jobs, from published single-job figures. */
#ifndef TALLY_SIM_JOBS_H
#define TALLY_SIM_JOBS_H

#include "sim/gpu.h"

/* How a job looks from the GPU.  A round is a request or a training step. */
struct sim_profile {
    const char *name;
    double round_ms;  /* alone, from begin to end */
    double gpu_part;  /* of that time with a kernel on the GPU */
    double bandwidth; /* of the device's, averaged over the round */
    double kernel_us; /* median length of a kernel */
    double spread;    /* sigma of the lognormal distribution of lengths */
    double block_us;  /* length of its blocks; kernels shorter than that are one wave */
    double width;     /* part of the SMs that its kernels fill */
    double jitter;    /* of the round */
    uint32_t pauses;  /* times per round that the host works in between */
    double memory_mb;
    double persistent_mb; /* of that */
};

/* The profile of that name, or NULL. */
const struct sim_profile *sim_profile(const char *name);

/* A job of it; `kernels` must be freed with sim_job_finish.  0 or -ENOMEM. */
int sim_job_init(struct sim_job *j, const struct sim_profile *p, const struct sim_device *d,
                 uint64_t seed);
void sim_job_finish(struct sim_job *j);

#endif

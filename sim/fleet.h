/* A day of a cluster of up to many thousand GPUs: services that answer requests all day, trainings
 * that come and go, a rule that places them (sched/place.h), and what neighbours do to each other
 * under a policy (sim/neighbours.h).
 *
 *     arrivals ──► placer ──► GPU: speeds of its jobs ──► ends ──► queue, the next job
 *                                       ▲ hours: services' loads
 *                                       └── neighbours: kernel by kernel, once per meeting
 *
 * Between events nothing changes, so an event costs what its GPU costs, however many GPUs there
 * are. */
#ifndef TALLY_SIM_FLEET_H
#define TALLY_SIM_FLEET_H

#include "sched/place.h"
#include "sim/neighbours.h"

struct sim_fleet_job {
    bool is_service;
    uint32_t model;            /* which service or training */
    double submit_s, work_s;   /* of a training: how long it takes alone */
    double base_load, phase_h; /* of a service: its mean load, and when its day begins */
    double memory_mb;
    /* Out; below 0: never. */
    double start_s, finish_s;
};

struct sim_fleet_options {
    enum tl_placer placer;
    uint32_t gpus;
    struct sim_neighbours *neighbours; /* under the policy that goes with the placer */
    double limit_s;                    /* give up after that */
    uint64_t seed;
};

struct sim_fleet_result {
    uint64_t events;
    double mean_wait_s, mean_jct_s, mean_stretch; /* of trainings; stretch: completion over work */
    uint32_t unfinished;                          /* trainings; services that found no GPU */
    uint32_t no_memory;                           /* starts that failed because a GPU was full */
    double p99_mean;  /* of services' P99 over that alone, by requests */
    double late_part; /* of requests whose P99 is 1.2 times that alone or more */
    double busy_part; /* of GPUs with a job, over the day */
};

/* The policy that a placer's GPUs are shared under: what users of it have. */
const char *sim_fleet_policy(enum tl_placer placer);

/* The jobs of a day on so many GPUs: services on `services` of them if each had its own, and
 * trainings like Philly's whose work fills `load` of all GPUs.  NULL if out of memory; else the
 * caller's to free. */
struct sim_fleet_job *sim_fleet_jobs(uint32_t gpus, double services, double load, uint64_t seed,
                                     uint32_t *n);

/* Runs until the last training has ended.  0, or a negative errno value. */
int sim_fleet_run(struct sim_fleet_job *jobs, uint32_t n, const struct sim_fleet_options *o,
                  struct sim_fleet_result *r, struct tl_error *err);

#endif

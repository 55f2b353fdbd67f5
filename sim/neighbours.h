/* What two jobs on one GPU do to each other under a policy of sched/, from runs kernel by kernel
 * (sim/gpu.h).  A fleet has thousands of GPUs but few kinds of jobs, so each meeting is simulated
 * when it is first asked for, and remembered. */
#ifndef TALLY_SIM_NEIGHBOURS_H
#define TALLY_SIM_NEIGHBOURS_H

#include "tally/base.h"

enum {
    SIM_LOADS = 3, /* of a service: parts of the rate that it could serve alone */
    SIM_SERVICES = 2,
    SIM_TRAININGS = 6,
    SIM_KINDS = SIM_SERVICES * SIM_LOADS + SIM_TRAININGS, /* services first, by load */
    SIM_ALONE = SIM_KINDS,
};
extern const double sim_loads[SIM_LOADS];

static inline uint32_t sim_service_kind(uint32_t service, uint32_t load)
{
    return service * SIM_LOADS + load;
}

static inline uint32_t sim_training_kind(uint32_t training)
{
    return SIM_SERVICES * SIM_LOADS + training;
}

static inline bool sim_kind_is_service(uint32_t kind)
{
    return kind < SIM_SERVICES * SIM_LOADS;
}

/* The profile's memory, and the part of a GPU that it uses alone. */
double sim_kind_memory_mb(uint32_t kind);
double sim_kind_load(uint32_t kind);

struct sim_meeting {
    double speed; /* rounds per second, as a part of those alone */
    double p99;   /* of a request from its arrival to its end, times that alone; 0 for training */
};

struct sim_neighbours;

/* `has_levels`: services are high, trainings low; else all are equals.  0 or -ENOMEM. */
int sim_neighbours_create(struct sim_neighbours **n, const char *policy, bool has_levels,
                          struct tl_error *err);
void sim_neighbours_destroy(struct sim_neighbours *n);
/* What becomes of `kind` beside `other`, or SIM_ALONE.  0, or what the simulation refused. */
int sim_neighbours_meet(struct sim_neighbours *n, uint32_t kind, uint32_t other,
                        struct sim_meeting *m, struct tl_error *err);
/* How many meetings had to be simulated. */
uint32_t sim_neighbours_known(const struct sim_neighbours *n);

#endif

/* GPU lanes of Salus: device memory cut into lanes, jobs take turns inside a lane, lanes run in
 * parallel.
 *
 *     device  | lane 0: P P P  [ T ]  | lane 1: P  [   T   ] | free |
 *
 * The safety condition of a lane with jobs i is  sum P_i + max T_i <= C:  persistent memory of all
 * its jobs stays, ephemeral memory is only one job's at a time, because only one iteration runs. */
#ifndef TALLY_SCHED_LANES_H
#define TALLY_SCHED_LANES_H

#include <stdbool.h>
#include <stdint.h>

struct tl_lane_job {
    uint32_t id;
    uint32_t lane; /* number of its lane, while placed */
    bool is_placed;
    uint64_t persistent, ephemeral; /* P and T with their margins */
};

struct tl_lane {
    uint32_t number;
    uint64_t bytes; /* C */
};

struct tl_lanes {
    uint64_t capacity, free; /* of the device; outside all lanes */
    struct tl_lane *lanes;
    uint32_t n_lanes, lanes_cap, numbers;
    struct tl_lane_job *jobs; /* placed and pending, in the order of their coming */
    uint32_t n_jobs, jobs_cap;
};

void tl__lanes_init(struct tl_lanes *l, uint64_t capacity);
void tl__lanes_finish(struct tl_lanes *l);

/* Puts a job into the queue and places all that fit, in order; who does not fit holds nobody up.
 * Margins as Salus takes them: P is 1.1 times as told, P + T 1.05 times, at most the device.  0 or
 * -ENOMEM. */
int tl__lanes_add(struct tl_lanes *l, uint32_t id, uint64_t persistent, uint64_t ephemeral);
/* Takes it out, placed or not; an empty lane is dissolved, and who fits now is placed. */
void tl__lanes_remove(struct tl_lanes *l, uint32_t id);
/* At the end of an iteration the job's lane holds no ephemeral memory: the lane shrinks to what its
 * jobs need, and pending jobs are placed into what came free.  True if somebody was placed. */
bool tl__lanes_settle(struct tl_lanes *l, uint32_t id);

const struct tl_lane_job *tl__lanes_job(const struct tl_lanes *l, uint32_t id);
/* sum P + max T of a lane, or 0 if there is no such lane. */
uint64_t tl__lanes_need(const struct tl_lanes *l, uint32_t lane);
/* Whether every lane satisfies the safety condition and the lanes fit the device together. */
bool tl__lanes_are_safe(const struct tl_lanes *l);

#endif

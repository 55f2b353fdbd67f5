/* Rules of a single gpulet, shared by the planners.  Private to sched/gpulet_*.c. */
#ifndef TALLY_SCHED_GPULET_RULES_H
#define TALLY_SCHED_GPULET_RULES_H

#include "sched/gpulet.h"

struct tl_gpulet_problem {
    const struct tl_gpulet_model *models;
    uint32_t n;
    const struct tl_gpulet_options *o;
};

double tl__gpulet_slack(const struct tl_gpulet_options *o);
/* The other part of the same GPU, or NULL. */
struct tl_gpulet *tl__gpulet_neighbour(struct tl_gpulet_plan *plan, const struct tl_gpulet *g);
/* Latency of a batch of a model on g, beside what its neighbour runs. */
double tl__gpulet_latency_on(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                             const struct tl_gpulet *g, uint32_t model, double batch);
bool tl__gpulet_memory_fits(const struct tl_gpulet_problem *p, const struct tl_gpulet_plan *plan,
                            const struct tl_gpulet *g, uint32_t model);
/* Sum of its tasks' latencies. */
double tl__gpulet_round_ms(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                           const struct tl_gpulet *g);
/* NULL, or which rule its tasks break. */
const char *tl__gpulet_broken_rule(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                                   const struct tl_gpulet *g);
/* Fills g with one task: as much of `rate` as it can serve, always busy or with the largest batch
 * that leaves time to collect it. Returns the rate served; 0 and no task if the SLO cannot be
 * met. */
double tl__gpulet_serve(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                        struct tl_gpulet *g, uint32_t model, double rate);
/* Adds a task to g's duty cycle, which may become shorter.  False and no change if that breaks a
 * rule. */
bool tl__gpulet_time_share(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                           struct tl_gpulet *g, uint32_t model, double rate);

#endif

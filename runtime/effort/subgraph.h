/* A run of a graph's steps as a graph of its own. */
#ifndef TALLY_EFFORT_SUBGRAPH_H
#define TALLY_EFFORT_SUBGRAPH_H

#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_context;
struct tl_eff_steps;

/* Makes an executable of `n` steps from `first` on, with the dependencies among them.  The context
 * is current.  0, -ENOTSUP if the driver has no such nodes or refuses, -ENOMEM. */
int tl_eff_subgraph_make(const struct tl_eff_steps *steps, uint32_t first, uint32_t n,
                         struct tl_eff_context *context, CUgraphExec *out) TL_EFF_UNLOCKED;

#endif

/* Jobs that never ran together, from their records, on one device under a policy: tally-sim
 * --scenario. */
#ifndef TALLY_SIM_SCENARIO_H
#define TALLY_SIM_SCENARIO_H

#include "tally/base.h"

/* Runs what the JSON text describes and prints what came out, as JSON, into `out`.
 * docs/simulator.md has the members. 0 or a negative errno value with a message. */
int sim_scenario_run(struct tl_str text, struct tl_buf *out, struct tl_error *err);

#endif

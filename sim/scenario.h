/* Jobs that never ran together, from their records, on one device under a policy: tally-sim
 * --scenario. */
#ifndef TALLY_SIM_SCENARIO_H
#define TALLY_SIM_SCENARIO_H

#include "runtime/report/report.h"
#include "sim/gpu.h"

struct sim_scenario {
    struct tl_arena arena;
    struct sim_device device;
    struct sim_gpu_options options;
    struct sim_job jobs[SIM_CLIENTS];
    struct tl_sched_client clients[SIM_CLIENTS];
    uint32_t n;
    struct sim_run run;
};

/* Puts the record of that path into a report: tl_report_add, but for tests that have no files. */
typedef int (*sim_record_source)(struct tl_report *report, const char *path, struct tl_error *err);

/* Reads what the JSON text describes; it may hold anything.  `s` is to be finished in any case.  0
 * or a negative errno value with a message. */
int sim_scenario_read(struct sim_scenario *s, struct tl_str text, sim_record_source source,
                      struct tl_error *err);
void sim_scenario_finish(struct sim_scenario *s);

/* Runs what the JSON text describes and prints what came out, as JSON, into `out`.
 * docs/simulator.md has the members. 0 or a negative errno value with a message. */
int sim_scenario_run(struct tl_str text, struct tl_buf *out, struct tl_error *err);

#endif

/* `tally-sim --fleet`: each way of placing, on each size of a fleet, as tables, JSON and plots. */
#ifndef TALLY_SIM_FLEET_TABLE_H
#define TALLY_SIM_FLEET_TABLE_H

#include "sim/report.h"
#include <stdint.h>

enum { SIM_FLEET_SIZES = 8 };

struct sim_fleet_question {
    uint32_t sizes[SIM_FLEET_SIZES], n_sizes; /* GPUs */
    double services, load;                    /* see sim_fleet_jobs */
    uint64_t seed;
    bool is_json;
    const char *report; /* a folder for plots, or NULL */
};

/* "10,100,1000" into sizes; false if it is no such list. */
bool sim_fleet_parse_sizes(struct sim_fleet_question *q, const char *text);
/* Runs it all.  `plots` gets series if a report is wanted.  0, or a negative errno value. */
int sim_fleet_answer(const struct sim_fleet_question *q, struct tl_buf *out,
                     struct sim_report *plots, struct tl_error *err);

#endif

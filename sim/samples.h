/* A growing list of measurements and what is asked of it. */
#ifndef TALLY_SIM_SAMPLES_H
#define TALLY_SIM_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

struct sim_samples {
    double *v;
    size_t n, cap;
    bool is_sorted;
};

void sim_samples_finish(struct sim_samples *s);
void sim_samples_add(struct sim_samples *s, double value); /* dropped if out of memory */
double sim_samples_mean(const struct sim_samples *s);      /* 0 of nothing */
/* Sorts them first; p from 0 to 1; 0 of nothing. */
double sim_samples_percentile(struct sim_samples *s, double p);

#endif

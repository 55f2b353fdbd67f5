/* Measurements. */
#include "sim/samples.h"
#include "tally/array.h"

#include <stdlib.h>

void sim_samples_finish(struct sim_samples *s)
{
    free(s->v);
    *s = (struct sim_samples){0};
}

void sim_samples_add(struct sim_samples *s, double value)
{
    if (!TL_ARRAY_FIT(s->v, s->cap, s->n + 1))
        return;
    s->v[s->n++] = value;
    s->is_sorted = false;
}

double sim_samples_mean(const struct sim_samples *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += s->v[i];
    return s->n > 0 ? sum / (double)s->n : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double sim_samples_percentile(struct sim_samples *s, double p)
{
    if (s->n == 0)
        return 0;
    if (!s->is_sorted)
        qsort(s->v, s->n, sizeof s->v[0], ascending);
    s->is_sorted = true;
    size_t at = (size_t)(p * (double)s->n);
    return s->v[at < s->n ? at : s->n - 1];
}

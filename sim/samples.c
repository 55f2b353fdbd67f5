/* Measurements. */
#include "sim/samples.h"

#include <stdlib.h>

void sim_samples_finish(struct sim_samples *s)
{
    free(s->v);
    *s = (struct sim_samples){0};
}

void sim_samples_add(struct sim_samples *s, double value)
{
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? 2 * s->cap : 256;
        double *grown = realloc(s->v, cap * sizeof *grown);
        if (grown == NULL)
            return;
        s->v = grown;
        s->cap = cap;
    }
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

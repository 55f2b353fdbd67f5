/* Sums and percentiles of histograms. */
#include "runtime/report/report.h"

#include <errno.h>
#include <string.h>

uint64_t tl_histogram_percentile(const struct tl_report_histogram *h, double percent)
{
    uint64_t placed = h->count - h->unplaced;
    if (h->n_steps == 0 || percent >= 100)
        return h->max;
    double rank = percent / 100 * (double)placed;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < h->n_steps; i++) {
        seen += h->steps[i].count;
        if ((double)seen >= rank && seen > 0) {
            uint64_t middle = h->steps[i].low + h->steps[i].width / 2;
            return middle < h->max ? middle : h->max;
        }
    }
    return h->max;
}

double tl_histogram_mean(const struct tl_report_histogram *h)
{
    return h->count > 0 ? (double)h->sum / (double)h->count : 0;
}

int tl_histogram_add(struct tl_report_histogram *a, const struct tl_report_histogram *b,
                     struct tl_arena *arena)
{
    a->count += b->count;
    a->unplaced += b->unplaced;
    a->sum += b->sum;
    a->max = a->max > b->max ? a->max : b->max;
    if (b->n_steps == 0)
        return 0;
    struct tl_report_step *steps = tl_arena_alloc(arena, ((size_t)a->n_steps + b->n_steps) *
                                                             sizeof *steps);
    if (steps == NULL)
        return -ENOMEM;
    uint32_t n = 0, i = 0, j = 0;
    while (i < a->n_steps || j < b->n_steps) {
        bool takes_a = j == b->n_steps || (i < a->n_steps && a->steps[i].low <= b->steps[j].low);
        bool takes_b = i == a->n_steps || (j < b->n_steps && b->steps[j].low <= a->steps[i].low);
        steps[n] = takes_a ? a->steps[i] : b->steps[j];
        if (takes_a && takes_b)
            steps[n].count += b->steps[j].count;
        i += takes_a;
        j += takes_b;
        n++;
    }
    a->steps = steps;
    a->n_steps = n;
    return 0;
}

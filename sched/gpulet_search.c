/* The best plan of small cases, by trying all: how GPUs are cut, which models each gpulet serves.
 * A model's rate is spread evenly over the gpulets that serve it, weighted by their sizes or not.
 * It tells how far the planner is from that. */
#include "sched/gpulet_rules.h"

#include <errno.h>

enum { MOST_GPUS = 2, MOST_MODELS = 4, MOST_GPULETS = 2 * MOST_GPUS };

/* Gives g the tasks of `mask`, each with its part of the rate. */
static bool fill(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                 struct tl_gpulet *g, uint32_t mask, const double *weights, bool is_by_size)
{
    g->n_tasks = 0;
    double weight = is_by_size ? g->size : 1;
    for (uint32_t m = 0; m < p->n; m++) {
        if ((mask >> m & 1) == 0)
            continue;
        double rate = p->models[m].rate * weight / weights[m];
        if (rate <= 0)
            continue;
        bool fits;
        if (g->n_tasks == 0)
            fits = tl__gpulet_memory_fits(p, plan, g, m) &&
                   tl__gpulet_serve(p, plan, g, m, rate) >= rate;
        else
            fits = tl__gpulet_time_share(p, plan, g, m, rate);
        if (!fits)
            return false;
    }
    return true;
}

static bool try_masks(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                      const uint32_t *masks, bool is_by_size)
{
    double weights[MOST_MODELS] = {0};
    for (uint32_t i = 0; i < plan->n; i++) {
        plan->gpulets[i].n_tasks = 0;
        for (uint32_t m = 0; m < p->n; m++)
            if (masks[i] >> m & 1)
                weights[m] += is_by_size ? plan->gpulets[i].size : 1;
    }
    for (uint32_t m = 0; m < p->n; m++)
        if (weights[m] <= 0 && p->models[m].rate > tl__gpulet_slack(p->o))
            return false;
    for (uint32_t i = 0; i < plan->n; i++)
        if (!fill(p, plan, &plan->gpulets[i], masks[i], weights, is_by_size))
            return false;
    return true;
}

static bool assign(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan)
{
    uint32_t masks[MOST_GPULETS] = {0}, all = UINT32_C(1) << p->n;
    for (;;) {
        if (try_masks(p, plan, masks, true) || try_masks(p, plan, masks, false))
            return true;
        uint32_t at = 0; /* the next combination, as a number with one digit per gpulet */
        for (; at < plan->n && ++masks[at] == all; at++)
            masks[at] = 0;
        if (at == plan->n)
            return false;
    }
}

int tl_gpulet_search(struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models, uint32_t n,
                     const struct tl_gpulet_options *o)
{
    static const uint32_t cuts[] = {100, 80, 60, 50};
    enum { CUTS = sizeof cuts / sizeof cuts[0] };
    if (n > MOST_MODELS || o->gpus > MOST_GPUS || o->gpus == 0)
        return -EINVAL;
    struct tl_gpulet_options alone = *o;
    alone.has_interference = false;
    const struct tl_gpulet_problem p = {models, n, &alone};
    for (uint32_t first = 0; first < CUTS; first++)
        for (uint32_t second = first; second < CUTS; second++) {
            *plan = (struct tl_gpulet_plan){0};
            for (uint32_t g = 0; g < o->gpus; g++) {
                uint32_t size = cuts[g == 0 ? first : second];
                plan->gpulets[plan->n++] = (struct tl_gpulet){.gpu = g, .size = size};
                if (size < 100)
                    plan->gpulets[plan->n++] = (struct tl_gpulet){.gpu = g, .size = 100 - size};
            }
            if (assign(&p, plan))
                return 0;
        }
    return -ENOSPC;
}

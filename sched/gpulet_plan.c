/* Elastic partitioning: models are placed one after the other, GPUs are split only when it helps,
 * what is left of a model's rate shares a gpulet in time.  With partitioning off this is the
 * time-sharing planner; greedy takes the smallest size that serves a model and never shares in
 * time. */
#include "sched/gpulet_rules.h"

#include <errno.h>
#include <string.h>

enum { MOST_PARTS = 2 * TL_GPULET_GPUS };

static bool may_split(const struct tl_gpulet_options *o)
{
    return o->planner != TL_GPULET_TIME_SHARING;
}

static uint32_t knee_of(const struct tl_gpulet_problem *p, uint32_t model)
{
    return may_split(p->o) ? tl_gpulet_knee(&p->models[model], p->o) : 100;
}

/* Smallest size that serves `rate` of a model without a neighbour, up to `most`; `most` if none
 * does. */
static uint32_t least_size(const struct tl_gpulet_problem *p, uint32_t model, double rate,
                           uint32_t most)
{
    struct tl_gpulet_options alone = *p->o;
    alone.has_interference = false;
    const struct tl_gpulet_problem q = {p->models, p->n, &alone};
    if (!may_split(p->o))
        return 100;
    for (int i = 0; i < TL_GPULET_SIZES && tl_gpulet_sizes[i] <= most; i++) {
        struct tl_gpulet_plan none = {.n = 1};
        none.gpulets[0].size = tl_gpulet_sizes[i];
        if (tl__gpulet_serve(&q, &none, &none.gpulets[0], model, rate) >= rate)
            return tl_gpulet_sizes[i];
    }
    return most;
}

/* Cuts a free whole GPU; g keeps `size`. */
static void split(struct tl_gpulet_plan *plan, struct tl_gpulet *g, uint32_t size)
{
    if (g->size != 100 || size >= 100)
        return;
    g->size = size;
    plan->gpulets[plan->n++] = (struct tl_gpulet){.gpu = g->gpu, .size = 100 - size};
}

/* Halves of a GPU that both became free are one again. */
static void unsplit(struct tl_gpulet_plan *plan)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        struct tl_gpulet *g = &plan->gpulets[i], *other = tl__gpulet_neighbour(plan, g);
        if (other == NULL || g->n_tasks > 0 || other->n_tasks > 0)
            continue;
        g->size = 100;
        *other = plan->gpulets[--plan->n];
    }
}

/* After something new on g: its neighbour may have to work with a smaller batch, and then serves
 * less; what is lost is added to `lost` of its model.  False if it cannot. */
static bool ease_neighbour(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                           const struct tl_gpulet *g, double *lost)
{
    struct tl_gpulet *other = tl__gpulet_neighbour(plan, g);
    if (other == NULL || tl__gpulet_broken_rule(p, plan, other) == NULL)
        return true;
    if (other->n_tasks != 1)
        return false;
    struct tl_gpulet_task was = other->tasks[0];
    double served = tl__gpulet_serve(p, plan, other, was.model, was.rate);
    if (served <= 0)
        return false;
    lost[was.model] += was.rate - served;
    return true;
}

/* Serves what it can of `rate` on a free gpulet.  Returns the rate served; 0 and no change if
 * nothing. */
static double place(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                    struct tl_gpulet *g, uint32_t size, uint32_t model, double rate, double *lost)
{
    struct tl_gpulet_plan before = *plan;
    double lost_before[TL_GPULET_MODELS];
    memcpy(lost_before, lost, sizeof lost_before);
    if (may_split(p->o))
        split(plan, g, size);
    if (tl__gpulet_memory_fits(p, plan, g, model)) {
        double served = tl__gpulet_serve(p, plan, g, model, rate);
        if (served > 0 && ease_neighbour(p, plan, g, lost))
            return served;
    }
    *plan = before;
    memcpy(lost, lost_before, sizeof lost_before);
    return 0;
}

/* A free gpulet for a wanted size: a whole GPU first (it is cut to measure), else the least
 * excess. */
static struct tl_gpulet *best_fit(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                                  uint32_t size)
{
    struct tl_gpulet *best = NULL;
    for (uint32_t i = 0; i < plan->n; i++) {
        struct tl_gpulet *g = &plan->gpulets[i];
        if (g->n_tasks > 0 || g->size < size)
            continue;
        if (may_split(p->o) && g->size == 100)
            return g;
        if (best == NULL || g->size < best->size)
            best = g;
    }
    return best;
}

/* Step 1 and 2: the ideal sizes for a rate, placed only if all of them find a gpulet. */
static bool place_estimate(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                           uint32_t model, double rate, double *lost)
{
    uint32_t knee = knee_of(p, model);
    double saturated = tl_gpulet_saturated_rate(&p->models[model], knee, p->o, NULL);
    double slack = tl__gpulet_slack(p->o);
    struct tl_gpulet_plan before = *plan;
    double lost_before[TL_GPULET_MODELS];
    memcpy(lost_before, lost, sizeof lost_before);
    for (uint32_t parts = 0; rate > slack; parts++) {
        bool is_full = saturated > 0 && rate > saturated;
        double wanted = is_full ? saturated : rate;
        uint32_t size = is_full ? knee : least_size(p, model, rate, knee);
        struct tl_gpulet *g = parts < MOST_PARTS ? best_fit(p, plan, size) : NULL;
        double served = g != NULL ? place(p, plan, g, size, model, wanted, lost) : 0;
        if (served < wanted - slack || served <= 0) {
            *plan = before;
            memcpy(lost, lost_before, sizeof lost_before);
            return false;
        }
        rate -= served;
    }
    return true;
}

/* Step 3: whatever is free, large to small.  Returns the rate that is left. */
static double place_anywhere(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                             uint32_t model, double rate, double *lost)
{
    for (uint32_t size = 100; size >= 20 && rate > tl__gpulet_slack(p->o); size -= 10)
        for (uint32_t i = 0; i < plan->n && rate > tl__gpulet_slack(p->o); i++) {
            struct tl_gpulet *g = &plan->gpulets[i];
            if (g->n_tasks == 0 && g->size == size)
                rate -= place(p, plan, g, least_size(p, model, rate, 100), model, rate, lost);
        }
    return rate;
}

/* Step 4: a model's half-empty gpulets become one if one can serve them all. */
static void merge_residuals(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                            uint32_t model, double *lost)
{
    struct tl_gpulet *largest = NULL;
    double total = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        struct tl_gpulet *g = &plan->gpulets[i];
        if (g->n_tasks != 1 || g->tasks[0].model != model || g->occupancy >= 1)
            continue;
        total += g->tasks[0].rate;
        count++;
        if (largest == NULL || g->size > largest->size)
            largest = g;
    }
    if (count < 2)
        return;
    struct tl_gpulet_plan before = *plan;
    double lost_before[TL_GPULET_MODELS];
    memcpy(lost_before, lost, sizeof lost_before);
    if (tl__gpulet_serve(p, plan, largest, model, total) < total ||
        !ease_neighbour(p, plan, largest, lost)) {
        *plan = before;
        memcpy(lost, lost_before, sizeof lost_before);
        return;
    }
    for (uint32_t i = 0; i < plan->n; i++) {
        struct tl_gpulet *g = &plan->gpulets[i];
        if (g != largest && g->n_tasks == 1 && g->tasks[0].model == model && g->occupancy < 1)
            *g = (struct tl_gpulet){.gpu = g->gpu, .size = g->size};
    }
    unsplit(plan);
}

/* Step 5: into the rounds of others, the fullest first; the rate may be spread.  Returns what is
 * left. */
static double share_in_time(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                            uint32_t model, double rate)
{
    bool was_tried[MOST_PARTS] = {false};
    double slack = tl__gpulet_slack(p->o);
    while (rate > slack) {
        struct tl_gpulet *fullest = NULL;
        for (uint32_t i = 0; i < plan->n; i++) {
            struct tl_gpulet *g = &plan->gpulets[i];
            if (!was_tried[i] && g->n_tasks > 0 && g->occupancy < 1 &&
                (fullest == NULL || g->occupancy > fullest->occupancy))
                fullest = g;
        }
        if (fullest == NULL)
            break;
        was_tried[fullest - plan->gpulets] = true;
        for (double part = rate; part > slack && part >= rate / 4; part /= 2) {
            struct tl_gpulet before = *fullest;
            if (!tl__gpulet_time_share(p, plan, fullest, model, part))
                continue;
            const struct tl_gpulet *other = tl__gpulet_neighbour(plan, fullest);
            if (other != NULL && tl__gpulet_broken_rule(p, plan, other) != NULL) {
                *fullest = before;
                continue;
            }
            rate -= part;
            break;
        }
    }
    return rate;
}

static bool add(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan, uint32_t model,
                double rate, double *lost)
{
    double slack = tl__gpulet_slack(p->o);
    if (rate <= slack)
        return true;
    if (!may_split(p->o)) {
        /* Where whole GPUs are all there is, what fills none of them joins others first. */
        double saturated = tl_gpulet_saturated_rate(&p->models[model], 100, p->o, NULL);
        double residual = saturated > 0 ? rate - saturated * (double)(uint32_t)(rate / saturated)
                                        : rate;
        rate = rate - residual + share_in_time(p, plan, model, residual);
    }
    if (place_estimate(p, plan, model, rate, lost))
        return true;
    rate = place_anywhere(p, plan, model, rate, lost);
    merge_residuals(p, plan, model, lost);
    if (rate > slack && p->o->planner != TL_GPULET_GREEDY)
        rate = share_in_time(p, plan, model, rate);
    return rate <= slack;
}

/* Each model as one piece on the smallest size that serves it. */
static bool add_greedily(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                         uint32_t model, double rate, double *lost)
{
    double slack = tl__gpulet_slack(p->o);
    while (rate > slack) {
        uint32_t size = least_size(p, model, rate, 100);
        struct tl_gpulet *g = NULL;
        /* least excess first: there is nothing to share later */
        for (uint32_t i = 0; i < plan->n; i++) {
            struct tl_gpulet *free = &plan->gpulets[i];
            if (free->n_tasks == 0 && free->size >= size && (g == NULL || free->size < g->size))
                g = free;
        }
        double served = g != NULL ? place(p, plan, g, size, model, rate, lost) : 0;
        if (served <= 0)
            return false;
        rate -= served;
    }
    return true;
}

/* Ascending rate times SLO; of equals the later first. */
static void sort_models(const struct tl_gpulet_problem *p, uint32_t *order)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t at = i;
        double key = p->models[i].rate * p->models[i].slo_ms;
        for (; at > 0 && p->models[order[at - 1]].rate * p->models[order[at - 1]].slo_ms >= key;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

int tl_gpulet_plan(struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models, uint32_t n,
                   const struct tl_gpulet_options *o)
{
    const struct tl_gpulet_problem p = {models, n, o};
    uint32_t order[TL_GPULET_MODELS];
    double lost[TL_GPULET_MODELS] = {0};
    *plan = (struct tl_gpulet_plan){0};
    if (n > TL_GPULET_MODELS || o->gpus > TL_GPULET_GPUS)
        return -EINVAL;
    for (uint32_t g = 0; g < o->gpus; g++)
        plan->gpulets[plan->n++] = (struct tl_gpulet){.gpu = g, .size = 100};
    sort_models(&p, order);
    for (uint32_t i = 0; i < n; i++) {
        plan->failed = order[i];
        double rate = models[order[i]].rate;
        bool fits = o->planner == TL_GPULET_GREEDY ? add_greedily(&p, plan, order[i], rate, lost)
                                                   : add(&p, plan, order[i], rate, lost);
        if (!fits)
            return -ENOSPC;
    }
    /* once more for those that lost too much to their neighbours */
    for (uint32_t i = 0; i < n; i++) {
        double again = lost[i];
        lost[i] = 0;
        plan->failed = i;
        if (again > 0.15 * models[i].rate && !add(&p, plan, i, again, lost))
            return -ENOSPC;
    }
    for (uint32_t i = 0; i < n; i++)
        if (lost[i] > 0.15 * models[i].rate) {
            plan->failed = i;
            return -ENOSPC;
        }
    return 0;
}

const char *tl_gpulet_check(const struct tl_gpulet_plan *plan, const struct tl_gpulet_model *models,
                            uint32_t n, const struct tl_gpulet_options *o)
{
    const struct tl_gpulet_problem p = {models, n, o};
    struct tl_gpulet_plan copy = *plan;
    double served[TL_GPULET_MODELS] = {0};
    uint32_t parts[TL_GPULET_GPUS] = {0}, sizes[TL_GPULET_GPUS] = {0};
    for (uint32_t i = 0; i < plan->n; i++) {
        struct tl_gpulet *g = &copy.gpulets[i];
        if (g->gpu >= o->gpus)
            return "a gpulet is on a GPU that does not exist";
        parts[g->gpu]++;
        sizes[g->gpu] += g->size;
        const char *broken = tl__gpulet_broken_rule(&p, &copy, g);
        if (broken != NULL)
            return broken;
        for (uint32_t k = 0; k < g->n_tasks; k++)
            served[g->tasks[k].model] += g->tasks[k].rate;
        /* the test counts one model more than there is: leave the last one out */
        if (g->n_tasks > 0) {
            struct tl_gpulet full = *g;
            g->n_tasks--;
            bool fits = tl__gpulet_memory_fits(&p, &copy, g, full.tasks[full.n_tasks - 1].model);
            *g = full;
            if (!fits)
                return "memory of a GPU is too small";
        }
    }
    for (uint32_t g = 0; g < o->gpus; g++)
        if (parts[g] > 2 || sizes[g] != 100)
            return "a GPU is cut wrongly";
    for (uint32_t i = 0; i < n; i++)
        if (served[i] <
            models[i].rate * (o->has_interference ? 0.85 : 1) - tl__gpulet_slack(o) - 1e-6)
            return "a model is not served";
    return NULL;
}

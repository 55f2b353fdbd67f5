/* Rules of a single gpulet.  Its tasks run in rounds of `duty_ms`: each collects a batch during one
 * round and runs it in the next, so that  sum L <= D  and, for every task,  sum L + D <= SLO.  An
 * always busy gpulet is the case D = L of one task.  A task that runs every request at once (batch
 * 1) need not wait for the round if it is alone. */
#include "sched/gpulet_rules.h"

#include <stddef.h>

static const double process_mb = 1230, memory_part = 0.9;
static const double rounding = 1 + 1e-9;

double tl__gpulet_slack(const struct tl_gpulet_options *o)
{
    return o->slack_rate < 0 ? 0 : o->slack_rate > 0 ? o->slack_rate : 15;
}

struct tl_gpulet *tl__gpulet_neighbour(struct tl_gpulet_plan *plan, const struct tl_gpulet *g)
{
    for (uint32_t i = 0; i < plan->n; i++)
        if (&plan->gpulets[i] != g && plan->gpulets[i].gpu == g->gpu)
            return &plan->gpulets[i];
    return NULL;
}

double tl__gpulet_latency_on(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                             const struct tl_gpulet *g, uint32_t model, double batch)
{
    double alpha = 1;
    const struct tl_gpulet *other = p->o->has_interference ? tl__gpulet_neighbour(plan, g) : NULL;
    for (uint32_t i = 0; other != NULL && i < other->n_tasks; i++) {
        const struct tl_gpulet_task *t = &other->tasks[i];
        double a = tl_gpulet_alpha(&p->models[model], batch, g->size, &p->models[t->model],
                                   t->batch, other->size);
        if (a > alpha)
            alpha = a;
    }
    return tl_gpulet_latency(&p->models[model], batch, g->size, alpha, p->o);
}

bool tl__gpulet_memory_fits(const struct tl_gpulet_problem *p, const struct tl_gpulet_plan *plan,
                            const struct tl_gpulet *g, uint32_t model)
{
    double used = p->models[model].memory_mb + (g->n_tasks == 0 ? process_mb : 0);
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct tl_gpulet *other = &plan->gpulets[i];
        if (other->gpu != g->gpu || other->n_tasks == 0)
            continue;
        used += process_mb;
        for (uint32_t k = 0; k < other->n_tasks; k++)
            used += p->models[other->tasks[k].model].memory_mb;
    }
    return used < memory_part * (p->o->gpu_memory_mb > 0 ? p->o->gpu_memory_mb : 11000);
}

double tl__gpulet_round_ms(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                           const struct tl_gpulet *g)
{
    double sum = 0;
    for (uint32_t i = 0; i < g->n_tasks; i++)
        sum += tl__gpulet_latency_on(p, plan, g, g->tasks[i].model, g->tasks[i].batch);
    return sum;
}

const char *tl__gpulet_broken_rule(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                                   const struct tl_gpulet *g)
{
    if (g->n_tasks == 0)
        return NULL;
    double round = tl__gpulet_round_ms(p, plan, g);
    double limit = p->o->has_interference ? 1.05 : 1; /* what the prediction is worth */
    if (round > g->duty_ms * limit * rounding)
        return "its tasks take longer than the duty cycle";
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        const struct tl_gpulet_task *t = &g->tasks[i];
        double slo = p->models[t->model].slo_ms * limit * rounding;
        bool starts_at_once = g->n_tasks == 1 && t->batch == 1;
        if (round + (starts_at_once ? 0 : g->duty_ms) > slo)
            return "an SLO is missed";
        if (t->rate * g->duty_ms > 1000.0 * t->batch * limit * rounding)
            return "a rate is not served";
        if (t->batch < 1 || t->batch > TL_GPULET_BATCH_MAX)
            return "a batch is out of range";
    }
    return NULL;
}

double tl__gpulet_serve(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                        struct tl_gpulet *g, uint32_t model, double rate)
{
    double slo = p->models[model].slo_ms, best_rate = 0;
    struct tl_gpulet best = {0};
    g->n_tasks = 1;
    for (uint32_t b = TL_GPULET_BATCH_MAX; b >= 1; b--) {
        double latency = tl__gpulet_latency_on(p, plan, g, model, b);
        double collect = 1000.0 * b / rate;
        struct tl_gpulet_task task = {.model = model, .batch = b, .rate = rate};
        if (latency <= collect && (latency + collect <= slo || (b == 1 && latency <= slo))) {
            /* It serves all: the largest such batch is the cheapest. */
            g->duty_ms = collect;
            g->occupancy = latency / collect;
            g->tasks[0] = task;
            return rate;
        }
        if (2 * latency <= slo && 1000.0 * b / latency > best_rate) { /* always busy */
            best_rate = 1000.0 * b / latency;
            task.rate = best_rate < rate ? best_rate : rate;
            best = (struct tl_gpulet){.duty_ms = latency, .occupancy = 1, .tasks = {task}};
        }
    }
    if (best_rate <= 0) {
        g->n_tasks = 0;
        g->occupancy = g->duty_ms = 0;
        return 0;
    }
    g->duty_ms = best.duty_ms;
    g->occupancy = 1;
    g->tasks[0] = best.tasks[0];
    return best.tasks[0].rate;
}

/* The tasks of g with batches for rounds of that length.  False if a rule is broken. */
static bool set_round(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                      struct tl_gpulet *g, double duty_ms)
{
    g->duty_ms = duty_ms;
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        double b = duty_ms * g->tasks[i].rate / 1000;
        uint32_t whole = (uint32_t)b + (b > (double)(uint32_t)b * rounding);
        g->tasks[i].batch = whole < 1 ? 1 : whole;
        if (whole > TL_GPULET_BATCH_MAX)
            return false;
    }
    g->occupancy = tl__gpulet_round_ms(p, plan, g) / duty_ms;
    return tl__gpulet_broken_rule(p, plan, g) == NULL;
}

bool tl__gpulet_time_share(const struct tl_gpulet_problem *p, struct tl_gpulet_plan *plan,
                           struct tl_gpulet *g, uint32_t model, double rate)
{
    if (g->n_tasks >= TL_GPULET_TASKS || !tl__gpulet_memory_fits(p, plan, g, model))
        return false;
    struct tl_gpulet before = *g;
    g->tasks[g->n_tasks++] = (struct tl_gpulet_task){.model = model, .batch = 1, .rate = rate};
    for (uint32_t b = TL_GPULET_BATCH_MAX; b >= 1; b--) {
        double duty = 1000.0 * b / rate;
        if ((before.n_tasks == 0 || duty <= before.duty_ms * rounding) &&
            set_round(p, plan, g, duty))
            return true;
    }
    /* Rates too low to collect a batch in time: shorter rounds, which then often find nothing to
     * do. */
    double slo = p->models[model].slo_ms;
    for (double duty = slo; duty > slo / 50; duty *= 0.95)
        if ((before.n_tasks == 0 || duty <= before.duty_ms * rounding) &&
            set_round(p, plan, g, duty))
            return true;
    *g = before;
    return false;
}

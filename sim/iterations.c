/* Iterations on one GPU. */
#include "sim/iterations.h"

#include <errno.h>
#include <stdlib.h>

#define MB (UINT64_C(1) << 20)

/* clang-format off */
/* Salus's test list: peak memory and time of an iteration. */
static const struct {
    const char *name;
    double peak_mb, iteration_ms;
} models[] = {
    {"vgg11_25", 6615.1, 173}, {"vgg11_50", 9738.1, 305}, {"vgg16_25", 6614.3, 300}, {"vgg16_50", 9738.1, 545},
    {"vgg19_25", 6614.3, 358}, {"resnet50_25", 2104, 125}, {"resnet50_50", 4005.5, 226}, {"resnet50_75", 5906.9, 325},
    {"resnet101_25", 3225.1, 215}, {"resnet101_50", 6102.6, 381}, {"resnet152_25", 4546.6, 308}, {"resnet152_50", 8634.2, 543},
    {"googlenet_25", 742.6, 59}, {"googlenet_50", 1399.4, 100}, {"googlenet_100", 2530.6, 180}, {"alexnet_25", 630.8, 55},
    {"alexnet_100", 1240, 61}, {"overfeat_25", 3255.3, 136}, {"overfeat_100", 6184, 155}, {"inception3_25", 2478.7, 198},
    {"inception3_50", 4794.5, 361}, {"inception4_25", 4435.1, 405}, {"inception4_50", 8529.3, 728},
};
/* clang-format on */
enum { MODELS = sizeof models / sizeof models[0] };

void sim_tiresias_like(struct sim_iter_job *jobs, uint32_t n, uint64_t seed)
{
    struct sim_random r = sim_random(seed);
    double at = 0, mean = 300 * exp(1.5 * 1.5 / 2);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = (uint32_t)(sim_random_bits(&r) % MODELS);
        double total = sim_lognormal(&r, 300, 1.5);
        uint64_t peak = (uint64_t)(models[m].peak_mb * (double)MB);
        jobs[i] = (struct sim_iter_job){
            .submit_s = at,
            .total_s = total < 30      ? 30
                       : total > 14400 ? 14400
                                       : total,
            .iteration_s = models[m].iteration_ms / 1000,
            .utilization = 1, /* large batches fill the GPU */
            .persistent = peak * 15 / 100,
            .ephemeral = peak - peak * 15 / 100,
        };
        at += sim_exponential(&r, mean);
    }
}

struct run {
    struct sim_iter_job *jobs;
    struct tl_sched *s;
    uint32_t n;
    double now;
    double *left;     /* of the current iteration */
    double *done;     /* work finished */
    double *asked;    /* since when it waits for its first iteration; < 0: it had one */
    bool *is_running; /* granted */
    struct sim_iter_stats *stats;
};

static uint64_t ns(double s)
{
    return (uint64_t)(s * 1e9);
}

static double regrant(struct run *r)
{
    uint64_t next = tl_sched_tick(r->s, ns(r->now));
    double together = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct tl_grant *g = tl_sched_grant(r->s, i);
        r->is_running[i] = g != NULL && g->may_run;
        together += r->is_running[i];
        if (r->is_running[i] && r->asked[i] >= 0) {
            double waited = r->now - r->asked[i];
            if (waited > r->stats->longest_switch_s)
                r->stats->longest_switch_s = waited;
            r->asked[i] = -1;
        }
    }
    if (together > r->stats->most_together)
        r->stats->most_together = together;
    return next == UINT64_MAX ? INFINITY : (double)next / 1e9;
}

static void submit(struct run *r, uint32_t i)
{
    const struct sim_iter_job *j = &r->jobs[i];
    struct tl_sched_client c = {.total_ns = ns(j->total_s)};
    tl_sched_join(r->s, i, &c, ns(r->now));
    tl_sched_memory(r->s, i, j->persistent, j->ephemeral, ns(r->now));
    tl_sched_backlog(r->s, i, true, ns(r->now));
    r->left[i] = j->iteration_s;
    r->asked[i] = r->now;
}

/* True if that was its last. */
static bool end_iteration(struct run *r, uint32_t i)
{
    struct sim_iter_job *j = &r->jobs[i];
    r->stats->iterations++;
    r->done[i] += j->iteration_s;
    tl_sched_iteration(r->s, i, ns(r->now));
    if (r->done[i] < j->total_s) {
        r->left[i] = j->iteration_s;
        return false;
    }
    j->finish_s = r->now;
    r->is_running[i] = false;
    tl_sched_leave(r->s, i, ns(r->now));
    return true;
}

static void play(struct run *r, double until_s)
{
    uint32_t submitted = 0, finished = 0;
    double tick_s = INFINITY;
    while (finished < r->n && (until_s <= 0 || r->now < until_s)) {
        double demand = 0, next = tick_s;
        for (uint32_t i = 0; i < submitted; i++)
            demand += r->is_running[i] ? r->jobs[i].utilization : 0;
        double slow = demand > 1 ? demand : 1;
        for (uint32_t i = 0; i < submitted; i++)
            if (r->is_running[i] && r->now + r->left[i] * slow < next)
                next = r->now + r->left[i] * slow;
        if (submitted < r->n && r->jobs[submitted].submit_s < next)
            next = r->jobs[submitted].submit_s;
        if (isinf(next))
            break;
        for (uint32_t i = 0; i < submitted; i++)
            if (r->is_running[i]) {
                r->left[i] -= (next - r->now) / slow;
                r->jobs[i].used_s += (next - r->now) / slow;
            }
        r->now = next;
        for (uint32_t i = 0; i < submitted; i++)
            if (r->is_running[i] && r->left[i] <= 1e-9)
                finished += end_iteration(r, i);
        while (submitted < r->n && r->jobs[submitted].submit_s <= r->now)
            submit(r, submitted++);
        tick_s = regrant(r);
    }
    r->stats->makespan_s = r->now - r->jobs[0].submit_s;
}

int sim_iterations_run(struct sim_iter_job *jobs, uint32_t n, const struct sim_iter_options *o,
                       struct sim_iter_stats *stats, struct tl_error *err)
{
    *stats = (struct sim_iter_stats){0};
    struct tl_sched_options so = {.memory_bytes = o->memory_bytes, .parameters = o->parameters};
    struct run r = {.jobs = jobs, .n = n, .stats = stats};
    int rc = tl_sched_create(&r.s, "salus", &so, err);
    if (rc < 0)
        return rc;
    r.left = calloc(n, sizeof *r.left);
    r.done = calloc(n, sizeof *r.done);
    r.asked = calloc(n, sizeof *r.asked);
    r.is_running = calloc(n, sizeof *r.is_running);
    if (r.left == NULL || r.done == NULL || r.asked == NULL || r.is_running == NULL) {
        rc = tl_error_set(err, -ENOMEM, "out of memory for %u jobs", n);
    } else {
        for (uint32_t i = 0; i < n; i++) {
            jobs[i].used_s = jobs[i].finish_s = 0;
            r.asked[i] = -1;
        }
        r.now = jobs[0].submit_s;
        play(&r, o->until_s);
    }
    free(r.left);
    free(r.done);
    free(r.asked);
    free(r.is_running);
    tl_sched_destroy(r.s);
    return rc;
}

double sim_iter_mean_jct(const struct sim_iter_job *jobs, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (jobs[i].finish_s - jobs[i].submit_s) / n;
    return sum;
}

/* HE1 to HE6: operations that share in space if they are light.  The poster has no numbers: these
 * are shapes only. */
#include "sim/gpu.h"
#include "sim/report.h"

#include <stdio.h>

enum { OPS = 64 };

/* Jobs of identical rounds of 64 operations. */
static void make_job(struct sim_job *j, struct sim_kernel *ops, double us, double width,
                     double bandwidth)
{
    for (int i = 0; i < OPS; i++) /* every fourth operation is half as long and half as wide */
        ops[i] = (struct sim_kernel){.block_ns = 1000 * us * (i % 4 == 3 ? 0.5 : 1),
                                     .waves = 1,
                                     .width = width * (i % 4 == 3 ? 0.5 : 1),
                                     .bandwidth = bandwidth,
                                     .blocks = 100};
    *j = (struct sim_job){.kernels = ops, .n_kernels = OPS, .n_round = OPS, .jitter = 0.01};
}

struct outcome {
    double p99_ms, rounds[2], utilization;
};

static struct outcome run(struct sim_report *r, const char *policy, const char *parameters,
                          const struct sim_job *jobs, const struct tl_sched_client *c, uint32_t n)
{
    static struct sim_run result;
    struct sim_gpu_options o = {.device = sim_device("v100"),
                                .policy = policy,
                                .parameters = parameters,
                                .duration_ns = 10e9,
                                .warmup_ns = 1e9,
                                .seed = 1};
    r->failed |= sim_gpu_run(&result, &o, jobs, c, n, &r->error) < 0;
    struct outcome out = {.p99_ms = sim_samples_percentile(&result.results[0].latency, 0.99) / 1e6,
                          .utilization = result.utilization};
    for (uint32_t i = 0; i < 2 && i < n; i++)
        out.rounds[i] = (double)result.results[i].rounds;
    sim_run_finish(&result);
    return out;
}

static struct sim_kernel ops[2][OPS];

/* VGG16 training is heavy; Transformer inference is light, at a third of the device's time. */
static void inference_and_training(struct sim_job jobs[2], struct tl_sched_client c[2])
{
    make_job(&jobs[0], ops[0], 60, 0.4, 0.2);
    make_job(&jobs[1], ops[1], 400, 1.0, 0.6);
    jobs[0].arrivals = SIM_POISSON;
    jobs[0].period_ns = 12e6;
    c[0] = (struct tl_sched_client){.level = 0, .slo_ns = 8000000, .slo_percentile = 9900};
    c[1] = (struct tl_sched_client){.level = 0};
}

static void he1(struct sim_report *r)
{
    struct sim_job jobs[2];
    struct tl_sched_client c[2];
    inference_and_training(jobs, c);
    struct outcome alone = run(r, "none", NULL, jobs, c, 1),
                   herald = run(r, "herald", NULL, jobs, c, 2),
                   vanilla = run(r, "none", NULL, jobs, c, 2);
    sim_shape(r, "the SLO, 8 ms or about twice the latency alone, is kept", "S", herald.p99_ms <= 8,
              "P99 %.1f ms; uncontrolled %.1f ms", herald.p99_ms, vanilla.p99_ms);
    sim_shape(r, "utilisation is above that of exclusive use", "S",
              herald.utilization > alone.utilization, "%.2f against %.2f", herald.utilization,
              alone.utilization);
}

static void he2(struct sim_report *r)
{
    struct sim_job jobs[2];
    make_job(&jobs[0], ops[0], 100, 0.3, 0.2);
    make_job(&jobs[1], ops[1], 100, 0.3, 0.2);
    struct tl_sched_client c[2] = {{0}, {0}};
    struct outcome alone = run(r, "none", NULL, jobs, c, 1),
                   herald = run(r, "herald", NULL, jobs, c, 2),
                   turns = run(r, "timeslice", NULL, jobs, c, 2);
    double sum = (herald.rounds[0] + herald.rounds[1]) / alone.rounds[0],
           sliced = (turns.rounds[0] + turns.rounds[1]) / alone.rounds[0];
    sim_shape(r, "two light jobs: throughput nearly adds up", "I", sum > 1.8 && sum > sliced,
              "%.2f of one job; time slicing %.2f", sum, sliced);
}

static void he3(struct sim_report *r)
{
    struct sim_job jobs[2];
    make_job(&jobs[0], ops[0], 300, 1, 0.5);
    make_job(&jobs[1], ops[1], 300, 1, 0.5);
    jobs[0].arrivals = SIM_REGULAR;
    jobs[0].period_ns = 60e6;
    struct tl_sched_client c[2] = {{.slo_ns = 60000000}, {0}};
    struct outcome spatial = run(r, "none", NULL, jobs, c, 2),
                   herald = run(r, "herald", NULL, jobs, c, 2);
    double work_s = spatial.rounds[0] + spatial.rounds[1],
           work_h = herald.rounds[0] + herald.rounds[1];
    sim_shape(r, "two heavy jobs: as much work is done as in space", "I", work_h > 0.9 * work_s,
              "%.0f rounds against %.0f", work_h, work_s);
    sim_shape(r, "and the SLO job is not slower", "I", herald.p99_ms <= 1.05 * spatial.p99_ms,
              "P99 %.1f ms against %.1f ms", herald.p99_ms, spatial.p99_ms);
}

/* Memory: with grants, peaks never add up to more than the device has. */
static void he4(struct sim_report *r)
{
    /* Eight jobs of 3 GB and operations of up to 2 GB on 32 GB: uncontrolled peaks overlap.  Driven
     * by hand, since only grants matter. */
    struct tl_sched *s;
    const uint64_t gb = UINT64_C(1) << 30, capacity = 32 * gb;
    struct tl_sched_options o = {.memory_bytes = capacity};
    if (tl_sched_create(&s, "herald", &o, &r->error) < 0) {
        r->failed = true;
        return;
    }
    struct sim_random random = sim_random(4);
    struct tl_footprint f[8] = {0};
    uint64_t now = 0, over = 0, uncontrolled = 0, started = 0;
    for (uint32_t i = 0; i < 8; i++) {
        tl_sched_join(s, i, &(struct tl_sched_client){0}, now);
        tl_sched_memory(s, i, 3 * gb, 0, now);
        tl_sched_backlog(s, i, true, now);
    }
    for (int k = 0; k < 20000; k++) {
        now += 50000;
        uint32_t i = (uint32_t)(sim_random_bits(&random) % 8);
        const struct tl_grant *g = tl_sched_grant(s, i);
        if (g->may_run || f[i].sm_permille == 0) { /* its operation has ended; the next one comes */
            f[i] = (struct tl_footprint){.sm_permille = 50 +
                                                        (uint32_t)(sim_random_bits(&random) % 150),
                                         .memory_bytes = sim_random_bits(&random) % (2 * gb)};
            tl_sched_footprint(s, i, &f[i], now);
            started++;
        }
        tl_sched_tick(s, now);
        uint64_t held = 24 * gb, all = 24 * gb;
        for (uint32_t m = 0; m < 8; m++) {
            held += tl_sched_grant(s, m)->may_run ? f[m].memory_bytes : 0;
            all += f[m].memory_bytes;
        }
        over += held > capacity;
        uncontrolled += all > capacity;
    }
    tl_sched_destroy(s);
    sim_shape(r, "memory pressure: never out of memory", "S as aim", over == 0 && uncontrolled > 0,
              "%llu of %llu states too large; uncontrolled %llu", (unsigned long long)over,
              (unsigned long long)20000, (unsigned long long)uncontrolled);
}

static void he5(struct sim_report *r)
{
    struct sim_job jobs[2];
    struct tl_sched_client c[2];
    inference_and_training(jobs, c);
    make_job(&jobs[1], ops[1], 400, 0.6, 0.4);
    double first = 0, last = 0, p_first = 0, p_last = 0;
    for (int t = 2; t <= 8; t++) {
        char parameters[64];
        snprintf(parameters, sizeof parameters, "light-sm=%d,light-bandwidth=%d", 100 * t, 100 * t);
        struct outcome o = run(r, "herald", parameters, jobs, c, 2);
        sim_point(r, "thresholds U = M", "utilisation x100", "threshold", "%; ms", t / 10.0,
                  100 * o.utilization);
        sim_point(r, "thresholds U = M", "P99 ms", "threshold", "%; ms", t / 10.0, o.p99_ms);
        if (t == 2)
            first = o.utilization, p_first = o.p99_ms;
        last = o.utilization;
        p_last = o.p99_ms;
    }
    sim_shape(r, "higher thresholds: more utilisation", "I", last >= first,
              "utilisation %.2f to %.2f, P99 %.1f to %.1f ms", first, last, p_first, p_last);
}

static void he6(struct sim_report *r)
{
    struct sim_job jobs[2];
    make_job(&jobs[0], ops[0], 100, 0.3, 0.2);
    make_job(&jobs[1], ops[1], 100, 0.3, 0.2);
    struct tl_sched_client c[2] = {{0}, {0}};
    struct outcome alone = run(r, "none", NULL, jobs, c, 1);
    struct outcome light = run(r, "herald", "light-sm=1000,light-bandwidth=1000", jobs, c, 2),
                   heavy = run(r, "herald", "light-sm=0,light-bandwidth=0", jobs, c, 2),
                   space = run(r, "none", NULL, jobs, c, 2);
    double l = light.rounds[0] + light.rounds[1], h = heavy.rounds[0] + heavy.rounds[1],
           s = space.rounds[0] + space.rounds[1];
    sim_shape(r, "always light is sharing in space", "I", l > 0.95 * s && l < 1.05 * s,
              "%.0f rounds against %.0f", l, s);
    sim_shape(r, "always heavy is sharing in time", "I",
              h > 0.9 * alone.rounds[0] && h < 1.1 * alone.rounds[0],
              "%.0f rounds against %.0f of one job", h, alone.rounds[0]);
}

const struct sim_experiment sim_herald[] = {
    {"HE1", "VGG16 training and Transformer inference", he1},
    {"HE2", "two light jobs", he2},
    {"HE3", "two heavy jobs", he3},
    {"HE4", "memory pressure", he4},
    {"HE5", "thresholds", he5},
    {"HE6", "always light, always heavy", he6},
    {0},
};

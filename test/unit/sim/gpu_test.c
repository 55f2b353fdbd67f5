/* The simulator against what can be computed by hand, and against itself. */
#include "sim/jobs.h"

#include <math.h>
#include <string.h>
#include <unity.h>

static struct sim_device device;
static struct sim_run run;
static struct tl_error err;

void setUp(void)
{
    device = *sim_device("a100");
    device.launch_ns = 1000;
    device.gap_ns = 1000;
    device.transform = 1;
    device.signal_ns = 0;
}

void tearDown(void)
{
    sim_run_finish(&run);
    memset(&run, 0, sizeof run);
}

/* Rounds of n kernels. */
static struct sim_job job(const struct sim_kernel *k, uint32_t n)
{
    return (struct sim_job){.kernels = k, .n_kernels = 1, .n_round = n};
}

static void simulate(const char *policy, const char *parameters, const struct sim_job *jobs,
                     const struct tl_sched_client *c, uint32_t n, double seconds)
{
    struct sim_gpu_options o = {.device = &device,
                                .policy = policy,
                                .parameters = parameters,
                                .duration_ns = seconds * 1e9,
                                .seed = 1};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, sim_gpu_run(&run, &o, jobs, c, n, &err), err.text);
}

static const struct tl_sched_client high_and_low[] = {{.level = TL_LEVEL_HIGH},
                                                      {.level = TL_LEVEL_LOW}};

static void a_job_alone_takes_the_sum_of_its_kernels_and_gaps(void)
{
    const struct sim_kernel k = {.block_ns = 10000, .waves = 3, .width = 1};
    struct sim_job j = job(&k, 10);
    j.host_before_ns = 5000;
    j.host_after_ns = 7000;
    simulate("none", NULL, &j, high_and_low, 1, 1);
    TEST_ASSERT_DOUBLE_WITHIN(1, 10 * 30000 + 9 * 1000 + 12000,
                              sim_samples_mean(&run.results[0].latency));
}

static void narrow_kernels_run_beside_each_other(void)
{
    const struct sim_kernel k = {.block_ns = 100000, .waves = 1, .width = 0.5};
    struct sim_job jobs[2] = {job(&k, 1), job(&k, 1)};
    const struct tl_sched_client c[2] = {{0}, {0}};
    simulate("none", NULL, jobs, c, 2, 1);
    for (int i = 0; i < 2; i++)
        TEST_ASSERT_DOUBLE_WITHIN(1, 100000, sim_samples_mean(&run.results[i].latency));
    TEST_ASSERT_DOUBLE_WITHIN(0.02, 1, run.utilization);
}

static void two_wide_jobs_get_half_the_device_each(void)
{
    const struct sim_kernel k = {.block_ns = 1000, .waves = 1000, .width = 1};
    struct sim_job jobs[2] = {job(&k, 1), job(&k, 1)};
    const struct tl_sched_client c[2] = {{0}, {0}};
    simulate("none", NULL, jobs, c, 2, 1);
    for (int i = 0; i < 2; i++)
        TEST_ASSERT_DOUBLE_WITHIN(0.02 * 2e6, 2e6, sim_samples_mean(&run.results[i].latency));
}

static void kernels_that_together_need_more_bandwidth_than_there_is_slow_down(void)
{
    const struct sim_kernel k = {.block_ns = 100000, .waves = 1, .width = 0.5, .bandwidth = 0.75};
    struct sim_job jobs[2] = {job(&k, 1), job(&k, 1)};
    const struct tl_sched_client c[2] = {{0}, {0}};
    simulate("none", NULL, jobs, c, 2, 1);
    TEST_ASSERT_DOUBLE_WITHIN(1500, 150000, sim_samples_percentile(&run.results[0].latency, 0.5));
}

static const struct sim_kernel short_kernel = {.block_ns = 20000, .waves = 1, .width = 1};
/* 5 ms */
static const struct sim_kernel long_kernel = {.block_ns = 50000, .waves = 100, .width = 1};

/* A request of 20 kernels every 10 ms beside kernels of 5 ms. */
static double worst_latency(const char *policy)
{
    struct sim_job jobs[2] = {job(&short_kernel, 20), job(&long_kernel, 1)};
    jobs[0].arrivals = SIM_POISSON;
    jobs[0].period_ns = 10e6;
    simulate(policy, NULL, jobs, high_and_low, 2, 10);
    double worst = sim_samples_percentile(&run.results[0].latency, 1);
    TEST_ASSERT_TRUE(run.results[1].rounds > 0);
    sim_run_finish(&run);
    memset(&run, 0, sizeof run);
    return worst;
}

static void preemption_costs_a_block_and_no_more(void)
{
    double alone = 20 * 20000 + 19 * 1000;
    TEST_ASSERT_TRUE(worst_latency("tally") <= alone + long_kernel.block_ns + 10);
    TEST_ASSERT_TRUE(worst_latency("kernel") <= alone + 5e6 + 10); /* at most the whole kernel */
    TEST_ASSERT_TRUE(worst_latency("kernel") > alone + 10 * long_kernel.block_ns);
}

static void systems_stand_in_their_order(void)
{
    double tally = worst_latency("tally"), kernel = worst_latency("kernel"),
           priority = worst_latency("priority"), none = worst_latency("none");
    TEST_ASSERT_TRUE(tally < kernel);
    TEST_ASSERT_TRUE(kernel <= priority + 1);
    TEST_ASSERT_TRUE(priority <= none + 1);
}

static void no_work_is_lost_by_preemption(void)
{
    /* High priority takes about 42 % of the time; what remains is the other's, less a block's tail
     * and the gaps of each request. */
    struct sim_job jobs[2] = {job(&short_kernel, 20), job(&long_kernel, 1)};
    jobs[0].arrivals = SIM_REGULAR;
    jobs[0].period_ns = 1e6;
    simulate("tally", "hysteresis=1us", jobs, high_and_low, 2, 10);
    double busy = run.results[1].busy_ns, done = (double)run.results[1].rounds * 5e6;
    TEST_ASSERT_TRUE(run.results[1].preempted > 1000);
    TEST_ASSERT_DOUBLE_WITHIN(6e6, busy, done); /* at most one kernel is unfinished */
}

static void turns_give_everybody_an_equal_part(void)
{
    const struct sim_kernel k = {.block_ns = 100000, .waves = 1, .width = 1};
    struct sim_job jobs[2] = {job(&k, 100), job(&k, 100)};
    device.switch_ns = 0;
    simulate("timeslice", NULL, jobs, high_and_low, 2, 10);
    TEST_ASSERT_DOUBLE_WITHIN(2, (double)run.results[0].rounds, (double)run.results[1].rounds);
}

static void a_rate_limit_is_kept(void)
{
    const struct sim_kernel k = {.block_ns = 10000, .waves = 1, .width = 1, .blocks = 1000};
    struct sim_job jobs[2] = {job(&k, 10), job(&k, 10)};
    jobs[0].arrivals = SIM_REGULAR;
    jobs[0].period_ns = 1e6;
    /* After five samples that do not rise, 20000 blocks per 50 ms are let in, then half as much
     * again with every step. */
    simulate("tgs", "step=100ms", jobs, high_and_low, 2, 1.0);
    double blocks = 1000.0 * (double)run.results[1].kernels;
    TEST_ASSERT_TRUE(blocks < 20000 * 2 * (1 + 1.5 + 2.25 + 3.4 + 5.1 + 7.6) * 1.3);
}

static void the_same_seed_gives_the_same_run(void)
{
    struct sim_job jobs[2];
    double first[2] = {0};
    for (int k = 0; k < 2; k++) {
        TEST_ASSERT_EQUAL_INT(0, sim_job_init(&jobs[0], sim_profile("bert-infer"), &device, 1));
        TEST_ASSERT_EQUAL_INT(0, sim_job_init(&jobs[1], sim_profile("gpt2-train"), &device, 2));
        jobs[0].arrivals = SIM_POISSON;
        jobs[0].period_ns = 8e6;
        simulate("tally", NULL, jobs, high_and_low, 2, 2);
        double sum = sim_samples_mean(&run.results[0].latency) + run.results[1].busy_ns;
        if (k == 0)
            first[0] = sum;
        TEST_ASSERT_EQUAL_DOUBLE(first[0], sum);
        sim_run_finish(&run);
        memset(&run, 0, sizeof run);
        sim_job_finish(&jobs[0]);
        sim_job_finish(&jobs[1]);
    }
}

static void profiles_reproduce_the_single_job_figures(void)
{
    static const struct {
        const char *name;
        double round_ms, gpu_part;
    } published[] = {{"bert-infer", 4.05, 0.891},
                     {"llama-infer", 1963.9, 0.908},
                     {"whisper-train", 1000, 0.5},
                     {"resnet50-train", 330, 0.995}};
    for (int i = 0; i < 4; i++) {
        struct sim_job j;
        device = *sim_device("a100");
        TEST_ASSERT_EQUAL_INT(0, sim_job_init(&j, sim_profile(published[i].name), &device, 1));
        simulate("none", NULL, &j, high_and_low, 1, 20);
        TEST_ASSERT_DOUBLE_WITHIN(0.02 * published[i].round_ms, published[i].round_ms,
                                  sim_samples_mean(&run.results[0].latency) / 1e6);
        sim_run_finish(&run);
        memset(&run, 0, sizeof run);
        sim_job_finish(&j);
    }
}

static void a_job_with_listed_arrivals_warms_up_serves_them_and_ends(void)
{
    const double times[] = {0, 1e6, 50e6};
    struct sim_job jobs[2] = {job(&short_kernel, 10), job(&short_kernel, 10)};
    jobs[0].arrivals = SIM_LISTED;
    jobs[0].times_ns = times;
    jobs[0].n_times = 3;
    jobs[0].warm_rounds = 7;
    jobs[0].start_ns = 5e6;
    simulate("priority", NULL, jobs, high_and_low, 2, 10);
    TEST_ASSERT_EQUAL_UINT64(3, run.results[0].rounds); /* the warm-up is in no result */
    TEST_ASSERT_DOUBLE_WITHIN(1e6, run.warm_ns + 10e6 + 50e6, run.ended_ns);
    TEST_ASSERT_TRUE(run.warm_ns > 5e6 + 7 * 10 * 20000);
    /* The endless job is counted from the end of the warm-up, and the run is over with the last
     * request. */
    TEST_ASSERT_TRUE((double)run.results[1].kernels * 21000 < 60e6 + 1e6);
}

static void a_job_that_starts_later_does_not_count_before(void)
{
    /* First come, first served: the one that is first in the list comes second. */
    struct sim_job jobs[2] = {job(&long_kernel, 10), job(&long_kernel, 10)};
    const struct tl_sched_client c[2] = {{0}, {0}};
    jobs[0].start_ns = 20e6;
    jobs[0].rounds = jobs[1].rounds = 4;
    simulate("salus", "order=fifo,lanes=no", jobs, c, 2, 10);
    TEST_ASSERT_EQUAL_UINT64(4, run.results[0].rounds);
    TEST_ASSERT_TRUE(run.results[1].finished_ns < run.results[0].finished_ns - 150e6);
}

static void simulate_with_memory(const char *policy, const struct sim_job *jobs, uint32_t n)
{
    struct sim_gpu_options o = {.device = &device,
                                .policy = policy,
                                .duration_ns = 10e9,
                                .seed = 1,
                                .has_limited_memory = true};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, sim_gpu_run(&run, &o, jobs, high_and_low, n, &err), err.text);
}

static void memory_that_cannot_leave_the_device_runs_out(void)
{
    struct sim_job jobs[2] = {job(&short_kernel, 10), job(&short_kernel, 10)};
    device.memory_bytes = 100 << 20;
    jobs[0].persistent_bytes = jobs[1].persistent_bytes = 60 << 20;
    jobs[1].rounds = 3;
    simulate_with_memory("tally", jobs, 2);
    TEST_ASSERT_FALSE(run.results[0].is_out_of_memory);
    TEST_ASSERT_TRUE(run.results[1].is_out_of_memory);
    TEST_ASSERT_EQUAL_UINT64(0, run.results[1].rounds);
    sim_run_finish(&run);
    simulate_with_memory("tgs", jobs, 1);
    TEST_ASSERT_FALSE(run.results[0].is_out_of_memory);
}

static void pages_that_are_not_there_cost_the_bus_and_a_fault(void)
{
    struct sim_job j = job(&short_kernel, 8);
    const struct tl_sched_client low = {.level = TL_LEVEL_LOW};
    device.memory_bytes = 64 << 20;
    device.pcie = 1e9;
    device.page_bytes = 1 << 16;
    device.fault_ns = 2000;
    j.persistent_bytes = 128 << 20;
    j.touched_bytes = 16 << 20;
    struct sim_gpu_options o = {.device = &device,
                                .policy = "tgs",
                                .duration_ns = 10e9,
                                .seed = 1,
                                .has_limited_memory = true};
    TEST_ASSERT_EQUAL_INT(0, sim_gpu_run(&run, &o, &j, &low, 1, &err));
    double paging = 8 * (2 * 16 * 0x1p20 + 256.0 * 2000);
    TEST_ASSERT_DOUBLE_WITHIN(0.01 * paging, paging + 8 * 20000 + 7 * 1000,
                              sim_samples_mean(&run.results[0].latency));
}

static void a_part_of_the_sms_is_whole_sms(void)
{
    /* 40 % of two SMs is one. */
    const struct sim_kernel k = {.block_ns = 10000, .waves = 10, .width = 1};
    struct sim_job j = job(&k, 1);
    const struct tl_sched_client c = {.slo_ns = 1000000};
    device.n_sms = 2;
    simulate("gpulet", NULL, &j, &c, 1, 1);
    TEST_ASSERT_DOUBLE_WITHIN(100, 200000, sim_samples_percentile(&run.results[0].latency, 0.5));
}

static void the_order_of_the_device_can_be_another_than_the_policy_wants(void)
{
    /* On a device that takes kernels in the order of their arrival, a kernel that cannot leave is
     * waited for. */
    struct sim_job jobs[2] = {job(&short_kernel, 1), job(&long_kernel, 1)};
    double p99[2];
    device.is_in_order = true;
    jobs[0].arrivals = SIM_REGULAR;
    jobs[0].period_ns = 20e6;
    for (int k = 0; k < 2; k++) {
        struct sim_gpu_options o = {.device = &device,
                                    .policy = "priority",
                                    .dispatch = k == 0 ? NULL : "mps",
                                    .duration_ns = 5e9,
                                    .seed = 1};
        TEST_ASSERT_EQUAL_INT(0, sim_gpu_run(&run, &o, jobs, high_and_low, 2, &err));
        p99[k] = sim_samples_percentile(&run.results[0].latency, 0.99);
        sim_run_finish(&run);
        memset(&run, 0, sizeof run);
    }
    TEST_ASSERT_TRUE(p99[0] < 20000 + 2 * long_kernel.block_ns);
    TEST_ASSERT_TRUE(p99[1] > 4e6);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_job_with_listed_arrivals_warms_up_serves_them_and_ends);
    RUN_TEST(a_job_that_starts_later_does_not_count_before);
    RUN_TEST(memory_that_cannot_leave_the_device_runs_out);
    RUN_TEST(pages_that_are_not_there_cost_the_bus_and_a_fault);
    RUN_TEST(a_part_of_the_sms_is_whole_sms);
    RUN_TEST(the_order_of_the_device_can_be_another_than_the_policy_wants);
    RUN_TEST(a_job_alone_takes_the_sum_of_its_kernels_and_gaps);
    RUN_TEST(narrow_kernels_run_beside_each_other);
    RUN_TEST(two_wide_jobs_get_half_the_device_each);
    RUN_TEST(kernels_that_together_need_more_bandwidth_than_there_is_slow_down);
    RUN_TEST(preemption_costs_a_block_and_no_more);
    RUN_TEST(systems_stand_in_their_order);
    RUN_TEST(no_work_is_lost_by_preemption);
    RUN_TEST(turns_give_everybody_an_equal_part);
    RUN_TEST(a_rate_limit_is_kept);
    RUN_TEST(the_same_seed_gives_the_same_run);
    RUN_TEST(profiles_reproduce_the_single_job_figures);
    return UNITY_END();
}

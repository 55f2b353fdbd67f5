/* The cluster and the iterations against what can be computed by hand. */
#include "sim/cluster.h"
#include "sim/iterations.h"

#include <unity.h>

static struct tl_error err;

void setUp(void)
{
}

void tearDown(void)
{
}

static void exclusive_jobs_wait_in_line(void)
{
    struct sim_cluster_job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i] = (struct sim_cluster_job){
            .work_s = 100, .utilization = 0.5, .is_production = i == 0};
    struct sim_cluster_options o = {.gpus = 1, .mode = SIM_EXCLUSIVE, .limit_s = 1e6};
    TEST_ASSERT_EQUAL_INT(0, sim_cluster_run(jobs, 3, &o, &err));
    TEST_ASSERT_DOUBLE_WITHIN(0.01, 100, jobs[0].finish_s);
    TEST_ASSERT_DOUBLE_WITHIN(0.01, 200, jobs[1].finish_s);
    TEST_ASSERT_DOUBLE_WITHIN(0.01, 300, jobs[2].finish_s);
    TEST_ASSERT_DOUBLE_WITHIN(0.01, 250, sim_cluster_mean_jct(jobs, 3, false));
}

static void saturating_jobs_share_a_gpu_by_their_demand(void)
{
    struct sim_cluster_job jobs[2] = {{.work_s = 1000, .utilization = 1},
                                      {.work_s = 1000, .utilization = 1}};
    struct sim_cluster_options o = {.gpus = 1, .mode = SIM_CO_EXECUTION, .limit_s = 1e6};
    TEST_ASSERT_EQUAL_INT(0, sim_cluster_run(jobs, 2, &o, &err));
    TEST_ASSERT_DOUBLE_WITHIN(10, 2000, jobs[0].finish_s);
}

static void tgs_keeps_production_near_its_speed(void)
{
    struct sim_cluster_job jobs[2] = {{.work_s = 5000, .utilization = 0.7, .is_production = true},
                                      {.work_s = 5000, .utilization = 0.8}};
    struct sim_cluster_options o = {
        .gpus = 1, .mode = SIM_CONTROLLED, .policy = "tgs", .limit_s = 1e6};
    TEST_ASSERT_EQUAL_INT(0, sim_cluster_run(jobs, 2, &o, &err));
    TEST_ASSERT_TRUE(jobs[0].finish_s < 1.06 * 5000);
    TEST_ASSERT_TRUE(jobs[1].finish_s < 2 * 5000); /* it had some of the rest meanwhile */
}

static void a_cluster_that_cannot_finish_says_so(void)
{
    struct sim_cluster_job jobs[1] = {{.work_s = 1000, .utilization = 1}};
    struct sim_cluster_options o = {.gpus = 1, .limit_s = 500};
    TEST_ASSERT_TRUE(sim_cluster_run(jobs, 1, &o, &err) < 0);
}

static void fifo_and_srtf_differ_as_computed(void)
{
    static const char *const orders[] = {"order=fifo", "order=srtf"};
    /* the short job comes after one second */
    const double expected[2] = {(100 + 109) / 2.0, (110 + 10) / 2.0};
    for (int k = 0; k < 2; k++) {
        struct sim_iter_job jobs[2] = {
            {.submit_s = 0,
             .total_s = 100,
             .iteration_s = 0.5,
             .utilization = 1,
             .persistent = 1 << 30,
             .ephemeral = UINT64_C(12) << 30},
            {.submit_s = 1,
             .total_s = 10,
             .iteration_s = 0.5,
             .utilization = 1,
             .persistent = 1 << 30,
             .ephemeral = UINT64_C(12) << 30},
        };
        struct sim_iter_stats stats;
        struct sim_iter_options o = {.memory_bytes = UINT64_C(16) << 30, .parameters = orders[k]};
        TEST_ASSERT_EQUAL_INT(0, sim_iterations_run(jobs, 2, &o, &stats, &err));
        TEST_ASSERT_DOUBLE_WITHIN(1, expected[k], sim_iter_mean_jct(jobs, 2));
    }
}

static void lanes_run_in_parallel_if_memory_and_sms_suffice(void)
{
    struct sim_iter_job jobs[3];
    for (int i = 0; i < 3; i++)
        jobs[i] = (struct sim_iter_job){.total_s = 100,
                                        .iteration_s = 1,
                                        .utilization = 0.3,
                                        .persistent = 1 << 28,
                                        .ephemeral = UINT64_C(3) << 30};
    struct sim_iter_stats stats;
    struct sim_iter_options o = {.memory_bytes = UINT64_C(16) << 30, .parameters = "order=fair"};
    TEST_ASSERT_EQUAL_INT(0, sim_iterations_run(jobs, 3, &o, &stats, &err));
    TEST_ASSERT_DOUBLE_WITHIN(1, 100, stats.makespan_s);
    TEST_ASSERT_EQUAL_DOUBLE(3, stats.most_together);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(exclusive_jobs_wait_in_line);
    RUN_TEST(saturating_jobs_share_a_gpu_by_their_demand);
    RUN_TEST(tgs_keeps_production_near_its_speed);
    RUN_TEST(a_cluster_that_cannot_finish_says_so);
    RUN_TEST(fifo_and_srtf_differ_as_computed);
    RUN_TEST(lanes_run_in_parallel_if_memory_and_sms_suffice);
    return UNITY_END();
}

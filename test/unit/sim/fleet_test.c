/* Fleets against what is computed by hand, by queueing theory, and by the cluster in steps. */
#include "sim/cluster.h"
#include "sim/fleet.h"

#include <stdlib.h>
#include <unity.h>

static struct tl_error err;
static struct sim_neighbours *neighbours;
static struct sim_fleet_result result;

void setUp(void)
{
}

void tearDown(void)
{
    sim_neighbours_destroy(neighbours);
    neighbours = NULL;
}

static void run(struct sim_fleet_job *jobs, uint32_t n, enum tl_placer placer, uint32_t gpus)
{
    bool has_levels = placer == TL_PLACE_TALLY;
    TEST_ASSERT_EQUAL_INT(
        0, sim_neighbours_create(&neighbours, sim_fleet_policy(placer), has_levels, &err));
    struct sim_fleet_options o = {
        .placer = placer, .gpus = gpus, .neighbours = neighbours, .limit_s = 1e9, .seed = 1};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, sim_fleet_run(jobs, n, &o, &result, &err), err.text);
}

static void jobs_of_one_gpu_wait_in_line(void)
{
    struct sim_fleet_job jobs[3] = {{.work_s = 100}, {.work_s = 200}, {.work_s = 300}};
    run(jobs, 3, TL_PLACE_SLURM, 1);
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, 100, jobs[0].finish_s);
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, 300, jobs[1].finish_s);
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, 600, jobs[2].finish_s);
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, (0 + 100 + 300) / 3.0, result.mean_wait_s);
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, 600 / 86400.0, result.busy_part);
}

/* The mean wait of a queue with random arrivals and one server: λ E[S²] / 2 (1 - ρ), here with the
 * moments of the very jobs. */
static void one_gpu_is_the_queue_of_the_books(void)
{
    enum { N = 200000 };
    struct sim_fleet_job *jobs = calloc(N, sizeof *jobs);
    struct sim_random r = sim_random(5);
    double at = 0, first = 0, second = 0;
    TEST_ASSERT_NOT_NULL(jobs);
    for (int i = 0; i < N; i++) {
        at += sim_exponential(&r, 100);
        double work = 20 + 60 * sim_uniform(&r);
        jobs[i] = (struct sim_fleet_job){.submit_s = at, .work_s = work};
        first += work / N;
        second += work * work / N;
    }
    run(jobs, N, TL_PLACE_KUBERNETES, 1);
    double rate = N / at, wait = rate * second / (2 * (1 - rate * first));
    TEST_ASSERT_DOUBLE_WITHIN(0.03 * wait, wait, result.mean_wait_s);
    free(jobs);
}

/* The same stream in the cluster that goes in steps of 5 s. */
static void a_stream_takes_as_long_as_in_the_other_cluster(void)
{
    enum { N = 300, GPUS = 8 };
    struct sim_cluster_job stream[N];
    struct sim_fleet_job jobs[N];
    sim_philly_like(stream, N, 86400, 9);
    for (int i = 0; i < N; i++)
        jobs[i] = (struct sim_fleet_job){.submit_s = stream[i].submit_s,
                                         .work_s = stream[i].work_s};
    run(jobs, N, TL_PLACE_SLURM, GPUS);
    struct sim_cluster_options o = {.gpus = GPUS, .mode = SIM_EXCLUSIVE, .limit_s = 1e9};
    TEST_ASSERT_EQUAL_INT(0, sim_cluster_run(stream, N, &o, &err));
    double theirs = 0;
    for (int i = 0; i < N; i++)
        theirs += (stream[i].finish_s - stream[i].submit_s) / N;
    TEST_ASSERT_DOUBLE_WITHIN(0.01 * theirs + 5, theirs, result.mean_jct_s);
}

/* Beside a service under Tally a training goes on, the service hardly notices, and what the fleet
 * says is what the meeting says. */
static void neighbours_run_as_they_meet(void)
{
    struct sim_fleet_job jobs[2] = {{.is_service = true, .base_load = 0.25, .memory_mb = 2000},
                                    {.work_s = 1000, .model = 1, .memory_mb = 2000}};
    struct sim_meeting low, high;
    run(jobs, 2, TL_PLACE_TALLY, 1);
    uint32_t service = sim_service_kind(0, 0), training = sim_training_kind(1);
    TEST_ASSERT_EQUAL_INT(0, sim_neighbours_meet(neighbours, training, service, &low, &err));
    TEST_ASSERT_EQUAL_INT(0, sim_neighbours_meet(neighbours, service, training, &high, &err));
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, 1000 / low.speed, jobs[1].finish_s);
    TEST_ASSERT_TRUE(low.speed > 0.3 && low.speed < 1);
    TEST_ASSERT_TRUE(high.p99 >= 1 && high.p99 < 1.2);
    TEST_ASSERT_EQUAL_UINT32(0, result.no_memory);
}

/* Rules that do not look at memory put a job where there is none: it fails and is sent again. */
static void who_finds_no_memory_is_counted_and_comes_again(void)
{
    struct sim_fleet_job jobs[2] = {{.work_s = 100, .model = 1, .memory_mb = 30000},
                                    {.work_s = 100, .model = 1, .memory_mb = 30000}};
    run(jobs, 2, TL_PLACE_SLURM_MPS, 1);
    TEST_ASSERT_EQUAL_UINT32(1, result.no_memory);
    TEST_ASSERT_EQUAL_UINT32(0, result.unfinished);
    TEST_ASSERT_DOUBLE_WITHIN(1e-6, 100, jobs[1].start_s);
}

static void a_day_has_the_jobs_that_were_asked_for(void)
{
    uint32_t n, services = 0;
    double work = 0;
    struct sim_fleet_job *jobs = sim_fleet_jobs(400, 0.3, 0.6, 2, &n);
    TEST_ASSERT_NOT_NULL(jobs);
    for (uint32_t i = 0; i < n; i++) {
        services += jobs[i].is_service;
        work += jobs[i].work_s;
        TEST_ASSERT_TRUE(i == 0 || jobs[i].submit_s >= jobs[i - 1].submit_s);
    }
    TEST_ASSERT_EQUAL_UINT32(120, services);
    TEST_ASSERT_DOUBLE_WITHIN(0.1 * 0.6 * 400 * 86400, 0.6 * 400 * 86400, work);
    free(jobs);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(jobs_of_one_gpu_wait_in_line);
    RUN_TEST(one_gpu_is_the_queue_of_the_books);
    RUN_TEST(a_stream_takes_as_long_as_in_the_other_cluster);
    RUN_TEST(neighbours_run_as_they_meet);
    RUN_TEST(who_finds_no_memory_is_counted_and_comes_again);
    RUN_TEST(a_day_has_the_jobs_that_were_asked_for);
    return UNITY_END();
}

/* slo, salus, gpulet, herald, reef and orion, driven by hand. */
#include "tally/sched.h"

#include <unity.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define GB (UINT64_C(1) << 30)

static struct tl_sched *s;
static uint64_t now;

void setUp(void)
{
    s = NULL;
    now = 1000 * MS;
}

void tearDown(void)
{
    tl_sched_destroy(s);
}

static void start(const char *policy, const char *parameters, uint64_t memory)
{
    struct tl_error err = {0};
    struct tl_sched_options o = {.parameters = parameters, .memory_bytes = memory};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_sched_create(&s, policy, &o, &err), err.text);
}

static void join(uint32_t id, struct tl_sched_client c)
{
    TEST_ASSERT_EQUAL_INT(0, tl_sched_join(s, id, &c, now));
    tl_sched_backlog(s, id, true, now);
}

static const struct tl_grant *grant(uint32_t id)
{
    return tl_sched_grant(s, id);
}

static void next_operation(uint32_t id, uint32_t sm, uint32_t bandwidth, uint64_t duration)
{
    struct tl_footprint f = {
        .duration_ns = duration, .sm_permille = sm, .bandwidth_permille = bandwidth};
    tl_sched_footprint(s, id, &f, now);
}

static uint32_t running(uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t id = 1; id <= n; id++)
        count += grant(id)->may_run;
    return count;
}

/* --- slo --- */

/* A server whose latency gets better the less the others may use; n periods of the loop. */
static void serve(int periods, double at_full_share)
{
    for (int i = 0; i < periods; i++) {
        for (int k = 0; k < 20; k++)
            tl_sched_request(s, 1,
                             (uint64_t)(at_full_share * (double)MS *
                                        (0.5 + 0.5 * grant(2)->sm_permille / 1000.0)),
                             now);
        now += 100 * MS;
        tl_sched_tick(s, now);
    }
}

static void a_missed_slo_takes_sms_from_the_others_until_it_holds(void)
{
    start("slo", NULL, 0);
    join(1, (struct tl_sched_client){
                .level = TL_LEVEL_HIGH, .slo_ns = 8 * MS, .slo_percentile = 9900});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    tl_sched_tick(s, now);
    uint64_t turnaround = grant(2)->turnaround_ns;
    serve(200, 10); /* 10 ms beside a neighbour that has everything, 5 ms beside none */
    TEST_ASSERT_TRUE(grant(2)->sm_permille < 700);
    TEST_ASSERT_TRUE(grant(2)->sm_permille >= 100);
    TEST_ASSERT_TRUE(grant(2)->turnaround_ns <= turnaround);
    TEST_ASSERT_TRUE(10 * (0.5 + 0.5 * grant(2)->sm_permille / 1000.0) < 8);
    TEST_ASSERT_EQUAL_UINT32(1000, grant(1)->sm_permille);
}

static void an_easy_slo_gives_everything_back(void)
{
    start("slo", NULL, 0);
    join(1, (struct tl_sched_client){
                .level = TL_LEVEL_HIGH, .slo_ns = 8 * MS, .slo_percentile = 9900});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    serve(200, 20);
    uint32_t before = grant(2)->sm_permille;
    TEST_ASSERT_TRUE(before < 500);
    serve(2000, 2);
    TEST_ASSERT_EQUAL_UINT32(1000, grant(2)->sm_permille);
    TEST_ASSERT_TRUE(grant(2)->turnaround_ns > 31600);
}

static void without_an_slo_it_is_tally(void)
{
    start("slo", NULL, 0);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT64(31600, grant(2)->turnaround_ns);
    TEST_ASSERT_EQUAL_UINT32(1000, grant(2)->sm_permille);
}

/* --- salus --- */

static void only_one_session_of_a_lane_runs_and_changes_come_at_iteration_ends(void)
{
    start("salus", "order=srtf", 16 * GB);
    join(1, (struct tl_sched_client){.total_ns = 1000 * MS});
    tl_sched_memory(s, 1, GB, 12 * GB, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(1)->may_run);
    join(2, (struct tl_sched_client){.total_ns = 10 * MS});
    tl_sched_memory(s, 2, GB, 11 * GB, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(1)->may_run); /* its iteration goes on */
    TEST_ASSERT_FALSE(grant(2)->may_run);
    now += 300 * MS;
    tl_sched_iteration(s, 1, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(grant(1)->may_run);
    TEST_ASSERT_TRUE(grant(2)->may_run);
    tl_sched_leave(s, 2, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(1)->may_run);
}

static void sessions_that_fit_beside_each_other_run_beside_each_other(void)
{
    start("salus", "order=fair", 16 * GB);
    for (uint32_t id = 1; id <= 3; id++) {
        join(id, (struct tl_sched_client){0});
        tl_sched_memory(s, id, GB, 3 * GB, now);
    }
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT32(3, running(3));
}

static void who_does_not_fit_waits_until_somebody_leaves(void)
{
    start("salus", "order=pack", 16 * GB);
    join(1, (struct tl_sched_client){0});
    tl_sched_memory(s, 1, 12 * GB, GB, now);
    join(2, (struct tl_sched_client){0});
    tl_sched_memory(s, 2, 8 * GB, GB, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(1)->may_run);
    TEST_ASSERT_FALSE(grant(2)->may_run);
    tl_sched_leave(s, 1, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(2)->may_run);
}

static void a_session_raised_to_high_leaves_the_lanes(void)
{
    start("salus", "order=fifo", 16 * GB);
    for (uint32_t id = 1; id <= 2; id++) {
        join(id, (struct tl_sched_client){0});
        tl_sched_memory(s, id, GB, 12 * GB, now);
    }
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(grant(2)->may_run);
    TEST_ASSERT_EQUAL_INT(
        0, tl_sched_change(s, 2, &(struct tl_sched_client){.level = TL_LEVEL_HIGH}, now));
    TEST_ASSERT_TRUE(grant(2)->may_run);
    TEST_ASSERT_EQUAL_INT(0, tl_sched_change(s, 2, &(struct tl_sched_client){.level = 0}, now));
    TEST_ASSERT_FALSE(grant(2)->may_run);
}

/* --- gpulet --- */

static void a_late_client_grows_by_a_size_per_epoch_and_background_shrinks(void)
{
    start("gpulet", "epoch=1s", 0);
    join(1, (struct tl_sched_client){.slo_ns = 10 * MS});
    join(2, (struct tl_sched_client){0});
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT32(400, grant(1)->sm_permille);
    TEST_ASSERT_EQUAL_UINT32(600, grant(2)->sm_permille);
    static const uint32_t sizes[] = {500, 600, 800, 900, 900}; /* a tenth is left for the other */
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 100; k++)
            tl_sched_request(s, 1, 12 * MS, now);
        now += 1000 * MS;
        tl_sched_tick(s, now);
        TEST_ASSERT_EQUAL_UINT32(sizes[i], grant(1)->sm_permille);
        TEST_ASSERT_TRUE(grant(1)->sm_permille + grant(2)->sm_permille <= 1000);
    }
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 100; k++)
            tl_sched_request(s, 1, 3 * MS, now);
        now += 1000 * MS;
        tl_sched_tick(s, now);
    }
    TEST_ASSERT_EQUAL_UINT32(200, grant(1)->sm_permille);
}

/* --- herald --- */

static void light_operations_share_and_heavy_ones_do_not(void)
{
    start("herald", NULL, 0);
    for (uint32_t id = 1; id <= 3; id++)
        join(id, (struct tl_sched_client){0});
    for (uint32_t id = 1; id <= 3; id++)
        next_operation(id, 300, 200, MS);
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT32(3, running(3));
    for (uint32_t id = 1; id <= 3; id++)
        next_operation(id, 900, 200, MS);
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT32(1, running(3));
}

static void a_waiting_slo_job_comes_before_best_effort(void)
{
    start("herald", NULL, 0);
    join(1, (struct tl_sched_client){0});
    next_operation(1, 900, 500, MS);
    tl_sched_tick(s, now);
    join(2, (struct tl_sched_client){0});
    next_operation(2, 900, 500, MS);
    join(3, (struct tl_sched_client){.slo_ns = 5 * MS});
    next_operation(3, 900, 500, MS);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(1)->may_run);
    TEST_ASSERT_EQUAL_UINT32(1, running(3));
    now += MS;
    tl_sched_backlog(s, 1, false, now); /* its operation has ended */
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(3)->may_run);
    TEST_ASSERT_FALSE(grant(2)->may_run);
}

static void nobody_waits_longer_than_its_patience_for_others_to_start(void)
{
    start("herald", "patience=10ms", 0);
    join(1, (struct tl_sched_client){.slo_ns = 5 * MS});
    join(2, (struct tl_sched_client){0});
    next_operation(1, 400, 100, MS);
    tl_sched_tick(s, now);
    /* heavy: it needs the device empty, and light ones of the other keep coming */
    next_operation(2, 900, 500, MS);
    uint64_t begin = now;
    while (!grant(2)->may_run && now < begin + 100 * MS) {
        now += MS;
        if (grant(1)->may_run)
            next_operation(1, 400, 100, MS);
        tl_sched_tick(s, now);
    }
    TEST_ASSERT_TRUE(grant(2)->may_run);
    TEST_ASSERT_TRUE(now - begin <= 13 * MS);
}

static void of_those_whose_patience_is_over_the_first_comes_first(void)
{
    /* Operations are longer than patience, so all that wait have waited long enough; two of the
     * three have an SLO. */
    start("herald", "patience=10ms", 0);
    for (uint32_t id = 1; id <= 3; id++) {
        join(id, (struct tl_sched_client){.slo_ns = id < 3 ? 5 * MS : 0});
        next_operation(id, 900, 500, 30 * MS);
        tl_sched_tick(s, now);
    }
    int turns = 0;
    for (; turns < 10 && !grant(3)->may_run; turns++) {
        now += 30 * MS;
        for (uint32_t id = 1; id < 3; id++)
            if (grant(id)->may_run) {
                next_operation(id, 900, 500, 30 * MS);
                break;
            }
        tl_sched_tick(s, now);
    }
    TEST_ASSERT_TRUE(grant(3)->may_run);
    TEST_ASSERT_TRUE(turns <= 2);
}

/* --- reef and orion --- */

static void reef_pads_others_into_what_real_time_work_leaves(void)
{
    start("reef", NULL, 0);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    next_operation(1, 400, 100, MS);
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(grant(2)->yields);
    TEST_ASSERT_EQUAL_UINT32(600, grant(2)->sm_permille);
    next_operation(1, 950, 100, MS);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(2)->yields);
}

static void orion_admits_what_needs_the_other_resource_within_a_budget(void)
{
    start("orion", "budget=300us", 0);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    next_operation(1, 800, 200, MS); /* compute */
    next_operation(2, 300, 600, 100 * US);
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(grant(2)->yields);
    tl_sched_used(s, 2, &(struct tl_usage){.device_ns = 250 * US}, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(2)->yields); /* 250 + 100 are more than 300 */
    tl_sched_backlog(s, 1, false, now);
    tl_sched_backlog(s, 1, true, now);
    next_operation(2, 300, 100, 100 * US); /* compute too */
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(2)->yields);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_missed_slo_takes_sms_from_the_others_until_it_holds);
    RUN_TEST(an_easy_slo_gives_everything_back);
    RUN_TEST(without_an_slo_it_is_tally);
    RUN_TEST(only_one_session_of_a_lane_runs_and_changes_come_at_iteration_ends);
    RUN_TEST(sessions_that_fit_beside_each_other_run_beside_each_other);
    RUN_TEST(who_does_not_fit_waits_until_somebody_leaves);
    RUN_TEST(a_session_raised_to_high_leaves_the_lanes);
    RUN_TEST(a_late_client_grows_by_a_size_per_epoch_and_background_shrinks);
    RUN_TEST(light_operations_share_and_heavy_ones_do_not);
    RUN_TEST(a_waiting_slo_job_comes_before_best_effort);
    RUN_TEST(nobody_waits_longer_than_its_patience_for_others_to_start);
    RUN_TEST(of_those_whose_patience_is_over_the_first_comes_first);
    RUN_TEST(reef_pads_others_into_what_real_time_work_leaves);
    RUN_TEST(orion_admits_what_needs_the_other_resource_within_a_budget);
    return UNITY_END();
}

/* TGS: the rate control step by step, the policy around it, and whose memory stays. */
#include "sched/tgs_rate.h"
#include "sched/umem.h"
#include "tally/sched.h"

#include <unity.h>

#define MS UINT64_C(1000000)

static struct tl_tgs t;

void setUp(void)
{
    tl__tgs_init(&t);
}

void tearDown(void)
{
}

static void step_times(int n, double sample)
{
    for (int i = 0; i < n; i++)
        tl__tgs_step(&t, sample, 0);
}

static void it_stops_to_profile_and_then_grows_by_half(void)
{
    tl__tgs_alone(&t, 1e6);
    tl__tgs_connect(&t);
    TEST_ASSERT_EQUAL_DOUBLE(0, t.limit);
    /* The rate equals the maximum, so profiling goes on as long as the maximum is only reached, not
     * exceeded: one lower. */
    step_times(5, 0.99e6);
    step_times(5, 0.98e6);
    TEST_ASSERT_EQUAL_INT(TL_TGS_SLOW_START, t.phase);
    t.samples = 0;
    step_times(1, 0.98e6);
    TEST_ASSERT_EQUAL_DOUBLE(20000, t.limit);
    step_times(1, 0.98e6);
    TEST_ASSERT_EQUAL_DOUBLE(30001, t.limit);
    step_times(1, 0.98e6);
    TEST_ASSERT_DOUBLE_WITHIN(1, 45002, t.limit);
}

/* Where it stands after profiling and n good steps. */
static void run_steadily(int n)
{
    t.max_rate = 1e6;
    tl__tgs_connect(&t);
    step_times(1, 0.99e6);
    step_times(5 + n, 0.98e6);
}

static void a_small_slowdown_moves_it_to_avoidance_and_a_large_one_cuts_hard(void)
{
    run_steadily(10);
    double before = t.limit;
    TEST_ASSERT_TRUE(before > 20000);
    step_times(1, 0.95e6); /* 5 % below the maximum */
    TEST_ASSERT_EQUAL_INT(TL_TGS_AVOID, t.phase);
    TEST_ASSERT_DOUBLE_WITHIN(1, before / 1.5, t.limit);
    before = t.limit;
    step_times(1, 0.99e6);
    TEST_ASSERT_DOUBLE_WITHIN(1, before + 1000, t.limit);
    before = t.limit;
    step_times(1, 0.95e6);
    TEST_ASSERT_DOUBLE_WITHIN(1, before - 0.08 * before, t.limit);
    before = t.limit;
    step_times(1, 0.90e6);
    TEST_ASSERT_EQUAL_INT(TL_TGS_SLOW_START, t.phase);
    TEST_ASSERT_DOUBLE_WITHIN(1, (before - 0.08 * before) / 10, t.limit);
}

static void an_idle_production_job_opens_the_limit(void)
{
    run_steadily(20);
    step_times(40, 0);
    TEST_ASSERT_TRUE(t.limit >= 0x1p32);
    TEST_ASSERT_TRUE(t.limit <= t.limit_max);
}

static void the_limit_stays_within_its_bounds_whatever_comes(void)
{
    uint64_t x = 1;
    t.max_rate = 1e6;
    tl__tgs_connect(&t);
    for (int i = 0; i < 100000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        tl__tgs_step(&t, (double)(x >> 40) / 8, (double)(x >> 44));
        TEST_ASSERT_TRUE(t.limit >= 0 && t.limit <= t.limit_max);
        TEST_ASSERT_TRUE(t.max_rate > 0);
    }
}

static void the_policy_gives_production_everything_and_others_a_rate(void)
{
    struct tl_sched *s;
    struct tl_sched_options o = {.parameters = "step=10ms", .memory_bytes = UINT64_C(16) << 30};
    TEST_ASSERT_EQUAL_INT(0, tl_sched_create(&s, "tgs", &o, NULL));
    uint64_t now = 0;
    tl_sched_join(s, 1, &(struct tl_sched_client){.level = TL_LEVEL_HIGH}, now);
    tl_sched_join(s, 2, &(struct tl_sched_client){.level = TL_LEVEL_LOW}, now);
    tl_sched_memory(s, 1, UINT64_C(12) << 30, 0, now);
    tl_sched_memory(s, 2, UINT64_C(10) << 30, 0, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(tl_sched_grant(s, 2)->may_run); /* production is measured */
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(3) << 30, tl_sched_grant(s, 2)->memory_bytes);
    TEST_ASSERT_EQUAL_UINT64(0, tl_sched_grant(s, 1)->memory_bytes);
    uint64_t first_rate = 0;
    for (int i = 0; i < 40; i++) {
        now += 10 * MS;
        tl_sched_used(s, 1, &(struct tl_usage){.blocks = i == 0 ? 100100 : 100000}, now);
        tl_sched_tick(s, now);
        TEST_ASSERT_TRUE(tl_sched_grant(s, 1)->may_run);
        if (first_rate == 0 && tl_sched_grant(s, 2)->may_run)
            first_rate = tl_sched_grant(s, 2)->blocks_per_s;
    }
    TEST_ASSERT_EQUAL_UINT64(20 * 20000, first_rate);
    TEST_ASSERT_TRUE(tl_sched_grant(s, 2)->blocks_per_s > 100 * first_rate);
    tl_sched_leave(s, 1, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(tl_sched_grant(s, 2)->may_run);
    TEST_ASSERT_EQUAL_UINT64(0, tl_sched_grant(s, 2)->blocks_per_s);
    /* all but the spare */
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(15) << 30, tl_sched_grant(s, 2)->memory_bytes);
    TEST_ASSERT_TRUE(tl_sched_grant(s, 2)->is_paged);
    tl_sched_destroy(s);
}

static void pages_of_lower_levels_go_first(void)
{
    struct tl_umem_client c[] = {
        {.level = -100, .need_bytes = 600, .used_ns = 5},
        {.level = 100, .need_bytes = 500},
        {.level = -100, .need_bytes = 300, .used_ns = 9},
    };
    tl__umem_plan(c, 3, 1000, 100);
    TEST_ASSERT_EQUAL_UINT64(500, c[1].stays_bytes);
    TEST_ASSERT_EQUAL_UINT64(300, c[2].stays_bytes);
    TEST_ASSERT_EQUAL_UINT64(100, c[0].stays_bytes);
    TEST_ASSERT_EQUAL_UINT32(0, c[0].eviction);
    TEST_ASSERT_EQUAL_UINT32(1, c[2].eviction);
    TEST_ASSERT_EQUAL_UINT32(2, c[1].eviction);
}

/* Whoever comes: what stays fits, nothing is left free while somebody lacks it, and no lower level
 * keeps a page that a higher one needs. */
static void plans_of_memory_fit_and_waste_nothing(void)
{
    uint64_t state = 1;
    for (int round = 0; round < 20000; round++) {
        struct tl_umem_client c[8];
        uint32_t n = 1 + (uint32_t)(state >> 60) % 8;
        for (uint32_t i = 0; i < n; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            c[i] = (struct tl_umem_client){.level = (int)(state >> 33) % 5 * 50 - 100,
                                           .need_bytes = state >> 40 & 0x3ff,
                                           .used_ns = state >> 50 & 7};
        }
        uint64_t capacity = state >> 35 & 0xfff, spare = state >> 20 & 0x7f,
                 left = capacity > spare ? capacity - spare : 0;
        tl__umem_plan(c, n, capacity, spare);
        uint64_t sum = 0, lacking = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum += c[i].stays_bytes;
            lacking += c[i].need_bytes - c[i].stays_bytes;
            TEST_ASSERT_TRUE(c[i].stays_bytes <= c[i].need_bytes &&
                             c[i].stays_bytes <= c[i].room_bytes);
            for (uint32_t k = 0; k < n; k++)
                if (c[k].level > c[i].level)
                    TEST_ASSERT_TRUE(c[i].stays_bytes == 0 || c[k].stays_bytes == c[k].need_bytes);
        }
        TEST_ASSERT_TRUE(sum <= left && (lacking == 0 || sum == left));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(it_stops_to_profile_and_then_grows_by_half);
    RUN_TEST(a_small_slowdown_moves_it_to_avoidance_and_a_large_one_cuts_hard);
    RUN_TEST(an_idle_production_job_opens_the_limit);
    RUN_TEST(the_limit_stays_within_its_bounds_whatever_comes);
    RUN_TEST(the_policy_gives_production_everything_and_others_a_rate);
    RUN_TEST(pages_of_lower_levels_go_first);
    RUN_TEST(plans_of_memory_fit_and_waste_nothing);
    return UNITY_END();
}

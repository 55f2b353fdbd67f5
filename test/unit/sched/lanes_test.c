/* Salus's lanes: the safety condition holds whatever happens, and lanes admit what static
 * partitions cannot. */
#include "sched/lanes.h"

#include <unity.h>

static struct tl_lanes l;
static uint64_t random_state;

static uint64_t any(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

void setUp(void)
{
    tl__lanes_init(&l, 10000);
    random_state = 7;
}

void tearDown(void)
{
    tl__lanes_finish(&l);
}

static uint32_t placed(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l.n_jobs; i++)
        n += l.jobs[i].is_placed;
    return n;
}

static void margins_are_those_of_salus(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 1, 1000, 2000));
    const struct tl_lane_job *j = tl__lanes_job(&l, 1);
    TEST_ASSERT_TRUE(j->is_placed);
    TEST_ASSERT_UINT64_WITHIN(1, 1100, j->persistent);
    TEST_ASSERT_UINT64_WITHIN(2, 3255, j->persistent + j->ephemeral);
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 2, 100, 20000)); /* cut to the device */
    TEST_ASSERT_EQUAL_UINT64(10000,
                             tl__lanes_job(&l, 2)->persistent + tl__lanes_job(&l, 2)->ephemeral);
}

static void jobs_with_little_to_keep_share_a_lane(void)
{
    for (uint32_t id = 0; id < 20; id++)
        TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, id, 100, 5000));
    /* Static partitions hold one of them; sum P + max T holds (10000 - 5000) / 110, more or
     * less. */
    TEST_ASSERT_EQUAL_UINT32(20, placed());
    TEST_ASSERT_TRUE(tl__lanes_are_safe(&l));
}

static void a_large_job_in_the_queue_holds_nobody_up(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 1, 4000, 1000));
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 2, 8000, 1000));
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 3, 1000, 1000));
    TEST_ASSERT_TRUE(tl__lanes_job(&l, 1)->is_placed);
    TEST_ASSERT_FALSE(tl__lanes_job(&l, 2)->is_placed);
    TEST_ASSERT_TRUE(tl__lanes_job(&l, 3)->is_placed);
    tl__lanes_remove(&l, 1);
    tl__lanes_remove(&l, 3);
    TEST_ASSERT_TRUE(tl__lanes_job(&l, 2)->is_placed);
}

static void a_lane_shrinks_at_the_end_of_an_iteration(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 1, 500, 8000));
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 2, 500, 100));
    TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, 3, 3000, 3000));
    TEST_ASSERT_FALSE(tl__lanes_job(&l, 3)->is_placed);
    /* its lane stays as long as it was: job 2 may be in the middle of an iteration there */
    tl__lanes_remove(&l, 1);
    bool shares = tl__lanes_job(&l, 2)->lane == 0;
    if (shares)
        TEST_ASSERT_FALSE(tl__lanes_job(&l, 3)->is_placed);
    tl__lanes_settle(&l, 2);
    TEST_ASSERT_TRUE(tl__lanes_job(&l, 3)->is_placed);
    TEST_ASSERT_TRUE(tl__lanes_are_safe(&l));
}

static void lanes_stay_safe_under_random_events(void)
{
    for (int i = 0; i < 20000; i++) {
        uint32_t id = (uint32_t)any(40);
        if (tl__lanes_job(&l, id) == NULL)
            TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, id, any(1500), any(4000)));
        else if (any(3) == 0)
            tl__lanes_remove(&l, id);
        else
            tl__lanes_settle(&l, id);
        TEST_ASSERT_TRUE(tl__lanes_are_safe(&l));
        /* Work is never left outside an empty device. */
        if (l.n_jobs > 0)
            TEST_ASSERT_TRUE(placed() > 0);
    }
}

/* Static partitioning keeps P + T for each job. */
static void lanes_admit_whatever_static_partitions_admit(void)
{
    for (int round = 0; round < 500; round++) {
        tl__lanes_finish(&l);
        tl__lanes_init(&l, 10000);
        uint64_t used = 0;
        for (uint32_t id = 0; id < 60; id++) {
            uint64_t p = any(800), t = any(4000);
            uint64_t size = (uint64_t)(1.05 * (1.1 * (double)p + (double)t)) + 1;
            if (used + size > 10000)
                continue;
            used += size;
            TEST_ASSERT_EQUAL_INT(0, tl__lanes_add(&l, id, p, t));
            TEST_ASSERT_TRUE(tl__lanes_job(&l, id)->is_placed);
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(margins_are_those_of_salus);
    RUN_TEST(jobs_with_little_to_keep_share_a_lane);
    RUN_TEST(a_large_job_in_the_queue_holds_nobody_up);
    RUN_TEST(a_lane_shrinks_at_the_end_of_an_iteration);
    RUN_TEST(lanes_stay_safe_under_random_events);
    RUN_TEST(lanes_admit_whatever_static_partitions_admit);
    return UNITY_END();
}

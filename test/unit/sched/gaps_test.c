/* Which gaps of a higher level are worth waiting out. */
#include "sched/gaps.h"

#include <stdlib.h>
#include <unity.h>

#define US 1000ull
#define MS 1000000ull

static struct tl_gaps g;

void setUp(void)
{
    g = (struct tl_gaps){0};
}

void tearDown(void)
{
}

/* `n` requests of five bursts of `work`, 300 to 310 us apart. */
static uint64_t requests(int n, uint64_t work)
{
    uint64_t wait = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 4; k++)
            tl_gaps_saw(&g, 300 * US + (uint64_t)(rand() % 10) * US, work);
        wait = tl_gaps_saw(&g, 30 * MS, work);
    }
    return wait;
}

static void gaps_inside_requests_are_waited_for(void)
{
    uint64_t wait = requests(200, MS);
    TEST_ASSERT_TRUE(wait >= 310 * US && wait <= 600 * US);
}

/* The stops cost four times 32 us of 50 ms. */
static void gaps_between_long_bursts_are_used(void)
{
    TEST_ASSERT_EQUAL_UINT64(TL_GAPS_NONE, requests(200, 10 * MS));
}

static void bursts_that_become_shorter_are_learnt(void)
{
    requests(200, 10 * MS);
    uint64_t wait = requests(200, MS);
    TEST_ASSERT_TRUE(wait >= 310 * US && wait <= 600 * US);
}

static void gaps_that_are_short_by_chance_are_not(void)
{
    uint64_t wait = 0, most = 0;
    /* every other request was waiting already; the others come whenever they come */
    for (int i = 0; i < 2000; i++) {
        tl_gaps_saw(&g, 50 * US, MS);
        wait = tl_gaps_saw(&g, (uint64_t)(rand() % 20000) * US, MS);
        most = i > 200 && wait > most ? wait : most;
    }
    TEST_ASSERT_TRUE(wait >= 50 * US);
    TEST_ASSERT_TRUE(most <= 200 * US);
}

/* Not even a very long burst before them lets such gaps be used for ever. */
static void one_long_burst_changes_little(void)
{
    uint64_t wait = 0;
    tl_gaps_saw(&g, UINT64_MAX, UINT64_MAX / 2);
    for (int i = 0; i < 1000; i++)
        wait = tl_gaps_saw(&g, 300 * US, MS);
    TEST_ASSERT_TRUE(wait >= 300 * US && wait < 400 * US);
}

static void one_long_gap_changes_nothing(void)
{
    uint64_t before = 0;
    for (int i = 0; i < 100; i++)
        before = tl_gaps_saw(&g, 80 * US, MS);
    TEST_ASSERT_TRUE(before >= 80 * US && before < 160 * US);
    TEST_ASSERT_EQUAL_UINT64(before, tl_gaps_saw(&g, 1900 * US, MS));
}

static void pauses_between_requests_are_not_waited_for(void)
{
    uint64_t wait = 0;
    for (int i = 0; i < 100; i++)
        wait = tl_gaps_saw(&g, i % 2 == 0 ? UINT64_MAX : 5 * MS, 0);
    TEST_ASSERT_EQUAL_UINT64(TL_GAPS_NONE, wait);
}

static void other_gaps_are_learnt(void)
{
    uint64_t wait = 0;
    for (int i = 0; i < 300; i++)
        wait = tl_gaps_saw(&g, 20 * US, MS);
    TEST_ASSERT_TRUE(wait < 40 * US);
    for (int i = 0; i < 300; i++)
        wait = tl_gaps_saw(&g, 400 * US, MS);
    TEST_ASSERT_TRUE(wait >= 400 * US && wait < 600 * US);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(gaps_inside_requests_are_waited_for);
    RUN_TEST(gaps_between_long_bursts_are_used);
    RUN_TEST(bursts_that_become_shorter_are_learnt);
    RUN_TEST(gaps_that_are_short_by_chance_are_not);
    RUN_TEST(one_long_burst_changes_little);
    RUN_TEST(one_long_gap_changes_nothing);
    RUN_TEST(pauses_between_requests_are_not_waited_for);
    RUN_TEST(other_gaps_are_learnt);
    return UNITY_END();
}

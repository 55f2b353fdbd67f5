/* Time: nanoseconds of the clock that was asked for. */
#include "tally/clock.h"

#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static uint64_t ns_of(struct timespec t)
{
    return (uint64_t)t.tv_sec * TL_SECOND_NS + (uint64_t)t.tv_nsec;
}

static void a_reading_lies_between_those_of_the_system(void)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID};
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        struct timespec before, after;
        TEST_ASSERT_EQUAL_INT(0, clock_gettime(clocks[i], &before));
        uint64_t now = clocks[i] == CLOCK_MONOTONIC ? tl_clock_ns() : tl_clock_of(clocks[i]);
        TEST_ASSERT_EQUAL_INT(0, clock_gettime(clocks[i], &after));
        TEST_ASSERT_TRUE(ns_of(before) <= now && now <= ns_of(after));
    }
}

static void milliseconds_are_of_the_same_clock(void)
{
    uint64_t before = tl_clock_ns();
    int64_t ms = tl_clock_ms();
    uint64_t after = tl_clock_ns();
    TEST_ASSERT_TRUE((int64_t)(before / TL_MS_NS) <= ms && ms <= (int64_t)(after / TL_MS_NS));
}

static void a_time_for_system_calls_has_less_than_a_second_behind_its_point(void)
{
    static const uint64_t times[] = {0, 1, 999999999, 1000000000, 1999999999, UINT64_C(1) << 62};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        struct timespec t = tl_clock_timespec(times[i]);
        TEST_ASSERT_TRUE(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
        TEST_ASSERT_EQUAL_UINT64(times[i], ns_of(t));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_reading_lies_between_those_of_the_system);
    RUN_TEST(milliseconds_are_of_the_same_clock);
    RUN_TEST(a_time_for_system_calls_has_less_than_a_second_behind_its_point);
    return UNITY_END();
}

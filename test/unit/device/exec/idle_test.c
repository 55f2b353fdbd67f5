/* How long nobody had an SM within a wait: what was before and behind it does not count, and what
 * is in doubt counts as time in which somebody had it. */
#include "device/exec/idle.h"

#include <unity.h>

static struct tl__idle idle;
static _Atomic uint64_t freed;

void setUp(void)
{
    atomic_store(&idle.total_ns, 0);
    atomic_store(&idle.until_ns, 0);
    atomic_store(&freed, 0);
}

void tearDown(void)
{
}

static void leave(uint64_t now)
{
    atomic_store(&freed, now);
}

static void take(uint64_t now)
{
    tl__idle_taken(&idle, atomic_load(&freed), now);
}

static void who_had_it_all_the_time_leaves_nothing(void)
{
    take(100);
    struct tl__idle_then then = tl__idle_begin(&idle, &freed, 200);
    leave(300);
    TEST_ASSERT_EQUAL_UINT64(0, tl__idle_since(&idle, &then, 300));
}

static void what_was_before_the_wait_is_not_in_it(void)
{
    leave(100);
    struct tl__idle_then then = tl__idle_begin(&idle, &freed, 150); /* nobody has it */
    take(170);
    leave(300);
    TEST_ASSERT_EQUAL_UINT64(20, tl__idle_since(&idle, &then, 300));
}

static void all_times_between_two_holders_are_added_up(void)
{
    leave(50);
    take(100);
    struct tl__idle_then then = tl__idle_begin(&idle, &freed, 150);
    leave(200);
    take(230);
    leave(300);
    take(305);
    leave(400);
    TEST_ASSERT_EQUAL_UINT64(35, tl__idle_since(&idle, &then, 400));
    take(450); /* by another, behind the wait */
    TEST_ASSERT_EQUAL_UINT64(35, tl__idle_since(&idle, &then, 400));
}

/* Who has just taken it when the wait begins tells that a moment later. */
static void a_sum_that_comes_late_is_of_before(void)
{
    leave(100);
    struct tl__idle_then then = tl__idle_begin(&idle, &freed, 150);
    take(140);
    leave(300);
    TEST_ASSERT_EQUAL_UINT64(0, tl__idle_since(&idle, &then, 300));
}

static void who_died_with_it_left_no_time_behind(void)
{
    leave(100);
    take(110);
    struct tl__idle_then then = tl__idle_begin(&idle, &freed, 150);
    tl__idle_taken(&idle, 0, 400);
    leave(500);
    TEST_ASSERT_EQUAL_UINT64(0, tl__idle_since(&idle, &then, 500));
}

static void what_somebody_scribbled_is_no_idle_time(void)
{
    struct tl__idle_then then = tl__idle_begin(&idle, &freed, 150);
    tl__idle_taken(&idle, UINT64_MAX, 200);
    TEST_ASSERT_EQUAL_UINT64(0, tl__idle_since(&idle, &then, 300));
    atomic_store(&idle.until_ns, UINT64_MAX);
    TEST_ASSERT_EQUAL_UINT64(0, tl__idle_since(&idle, &then, 300));
    then.total_ns = UINT64_MAX;
    TEST_ASSERT_EQUAL_UINT64(0, tl__idle_since(&idle, &then, 300));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(who_had_it_all_the_time_leaves_nothing);
    RUN_TEST(what_was_before_the_wait_is_not_in_it);
    RUN_TEST(all_times_between_two_holders_are_added_up);
    RUN_TEST(a_sum_that_comes_late_is_of_before);
    RUN_TEST(who_died_with_it_left_no_time_behind);
    RUN_TEST(what_somebody_scribbled_is_no_idle_time);
    return UNITY_END();
}

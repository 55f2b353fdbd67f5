/* Iterations found in launches, and memory learned from allocations. */
#include "sched/pattern.h"

#include <stdlib.h>
#include <unity.h>

static struct tl_pattern *p;
static uint64_t now;

void setUp(void)
{
    p = malloc(sizeof *p);
    TEST_ASSERT_NOT_NULL(p);
    tl_pattern_init(p);
    now = 0;
}

void tearDown(void)
{
    free(p);
}

/* A training step: a loss, 12 layers of the same 10 kernels forwards, the same with others
 * backwards, an optimiser; the host pauses before it. Returns at which launch of the step
 * iterations were said to begin, or -1. */
static int step(uint32_t extra)
{
    int began = -1, launch = 0;
    now += 500000;
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t layer = 0; layer < 12; layer++)
            for (uint32_t k = 0; k < 10; k++, launch++) {
                now += 5000;
                if (tl_pattern_launch(p, 100 + 10 * half + k, now))
                    began = launch;
            }
    for (uint32_t k = 0; k < 7 + extra; k++, launch++) {
        now += 5000;
        if (tl_pattern_launch(p, 1000 + k, now))
            began = launch;
    }
    return began;
}

static void a_step_is_found_and_begins_after_the_pause(void)
{
    for (int i = 0; i < 6; i++)
        step(0);
    TEST_ASSERT_EQUAL_UINT64(247, p->period);
    for (int i = 0; i < 20; i++)
        TEST_ASSERT_EQUAL_INT(0, step(0));
}

static void a_few_other_launches_do_not_upset_it(void)
{
    for (int i = 0; i < 10; i++)
        step(0);
    step(3); /* something is logged */
    for (int i = 0; i < 4; i++)
        step(0);
    TEST_ASSERT_EQUAL_UINT64(247, p->period);
    for (int i = 0; i < 10; i++)
        TEST_ASSERT_EQUAL_INT(0, step(0));
}

static void a_changed_step_is_found_again(void)
{
    for (int i = 0; i < 10; i++)
        step(0);
    for (int i = 0; i < 12; i++)
        step(20);
    TEST_ASSERT_EQUAL_UINT64(267, p->period);
    for (int i = 0; i < 10; i++)
        TEST_ASSERT_EQUAL_INT(0, step(20));
}

static void what_does_not_repeat_has_no_iterations(void)
{
    uint32_t x = 1;
    for (int i = 0; i < 50000; i++) {
        x = x * 1664525 + 1013904223;
        now += 1000;
        TEST_ASSERT_FALSE(tl_pattern_launch(p, x >> 22, now));
    }
}

static void memory_is_told_apart_at_iteration_ends(void)
{
    struct tl_memory_use m = {0};
    tl_memory_allocated(&m, 1000); /* weights */
    TEST_ASSERT_EQUAL_UINT64(1000, m.persistent);
    for (int i = 0; i < 3; i++) {
        tl_memory_allocated(&m, 400);
        tl_memory_allocated(&m, 300);
        tl_memory_freed(&m, 400);
        tl_memory_allocated(&m, 200);
        tl_memory_freed(&m, 500);
        tl_memory_iteration(&m);
        TEST_ASSERT_EQUAL_UINT64(1000, m.persistent);
        TEST_ASSERT_EQUAL_UINT64(700, m.ephemeral);
    }
    tl_memory_allocated(&m, 50); /* an optimiser's state stays */
    tl_memory_iteration(&m);
    TEST_ASSERT_EQUAL_UINT64(1050, m.persistent);
    TEST_ASSERT_TRUE(m.ephemeral > 500 && m.ephemeral < 700);
    tl_memory_freed(&m, 1u << 30); /* more than there is */
    TEST_ASSERT_EQUAL_UINT64(0, m.live);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_step_is_found_and_begins_after_the_pause);
    RUN_TEST(a_few_other_launches_do_not_upset_it);
    RUN_TEST(a_changed_step_is_found_again);
    RUN_TEST(what_does_not_repeat_has_no_iterations);
    RUN_TEST(memory_is_told_apart_at_iteration_ends);
    return UNITY_END();
}

/* Fibers: left and entered again with everything a function may rely on, in any order, over many of
 * them. */
#include "device/exec/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#define MANY 64

static struct tl__fiber home, fibers[MANY];
static struct tl__fiber *running;
static uint32_t visits[MANY];
static uint32_t order[4096], n_order;

void setUp(void)
{
    tl__fiber_init_thread(&home);
    memset(fibers, 0, sizeof fibers);
    memset(visits, 0, sizeof visits);
    n_order = 0;
}

void tearDown(void)
{
    for (uint32_t i = 0; i < MANY; i++)
        tl__fiber_finish(&fibers[i]);
    tl__fiber_finish_thread(&home);
}

static void go(struct tl__fiber *to)
{
    struct tl__fiber *from = running;
    running = to;
    tl__fiber_switch(from, to);
}

static uint32_t number_of(const struct tl__fiber *f)
{
    return (uint32_t)(f - fibers);
}

/* Goes home after each visit, counting them in a local variable that only its stack knows. */
static void count_visits(struct tl__fiber *self)
{
    for (uint32_t n = 1;; n++) {
        visits[number_of(self)] = n;
        go(&home);
    }
}

static void a_fiber_goes_on_where_it_was_left(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl__fiber_init(&fibers[0], 65536, 0, count_visits));
    running = &home;
    for (uint32_t i = 1; i <= 1000; i++) {
        go(&fibers[0]);
        TEST_ASSERT_EQUAL_UINT32(i, visits[0]);
    }
}

/* Hands over to the next in a ring; the last one goes home after three rounds. */
static void pass_on(struct tl__fiber *self)
{
    uint32_t me = number_of(self);
    for (uint32_t round = 0; round < 3; round++) {
        order[n_order++] = me;
        go(me + 1 < MANY ? &fibers[me + 1] : round == 2 ? &home : &fibers[0]);
    }
    go(&home);
}

static void fibers_hand_over_to_each_other(void)
{
    for (uint32_t i = 0; i < MANY; i++)
        TEST_ASSERT_EQUAL_INT(0, tl__fiber_init(&fibers[i], 65536, i, pass_on));
    running = &home;
    go(&fibers[0]);
    TEST_ASSERT_EQUAL_UINT32(3 * MANY, n_order);
    for (uint32_t i = 0; i < n_order; i++)
        TEST_ASSERT_EQUAL_UINT32(i % MANY, order[i]);
}

/* Vector moves of compiled kernels fault on a stack that is not 16-aligned where a function
 * begins. */
static void stacks_are_aligned_and_staggered(void);
static uintptr_t frame_of[MANY];
static void note_frame(struct tl__fiber *self)
{
    uint8_t here[64] __attribute__((aligned(16)));
    __asm__ volatile("" : : "r"(here) : "memory");
    frame_of[number_of(self)] = (uintptr_t)here;
    double text_needs_alignment = 1.5 * number_of(self);
    char text[32];
    snprintf(text, sizeof text, "%.2f", text_needs_alignment);
    go(&home);
    abort();
}

static void stacks_are_aligned_and_staggered(void)
{
    running = &home;
    for (uint32_t i = 0; i < MANY; i++) {
        TEST_ASSERT_EQUAL_INT(0, tl__fiber_init(&fibers[i], 65536, i, note_frame));
        /* so that a call finds 16 */
        TEST_ASSERT_EQUAL_UINT64(8, (uint64_t)((uintptr_t)fibers[i].sp + 0) % 16);
        go(&fibers[i]);
        TEST_ASSERT_EQUAL_UINT64(0, frame_of[i] % 16);
    }
    for (uint32_t i = 1; i < 32; i++)
        TEST_ASSERT_TRUE((fibers[i].map_bytes - fibers[i].stagger_bytes) % 4096 !=
                         (fibers[i - 1].map_bytes - fibers[i - 1].stagger_bytes) % 4096);
}

static void leave_for_good(struct tl__fiber *self)
{
    visits[number_of(self)]++;
    running = &home;
    tl__fiber_leave(&home);
}

static void a_fiber_left_for_good_begins_anew_after_a_reset(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl__fiber_init(&fibers[0], 65536, 0, leave_for_good));
    for (uint32_t i = 1; i <= 10; i++) {
        running = &home;
        go(&fibers[0]);
        TEST_ASSERT_EQUAL_UINT32(i, visits[0]);
        tl__fiber_reset(&fibers[0]);
    }
}

/* Keeps values in all registers that a call preserves. */
static void keep_registers(struct tl__fiber *self)
{
    uint64_t seed = number_of(self) + 1;
    uint64_t a = seed, b = seed * 3, c = seed * 5, d = seed * 7, e = seed * 11, f = seed * 13;
    for (uint32_t i = 0; i < 100; i++) {
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
        go(&home);
        visits[seed - 1] += a == seed && b == seed * 3 && c == seed * 5 && d == seed * 7 &&
                            e == seed * 11 && f == seed * 13;
    }
    go(&home);
}

static void registers_survive(void)
{
    running = &home;
    for (uint32_t i = 0; i < MANY; i++)
        TEST_ASSERT_EQUAL_INT(0, tl__fiber_init(&fibers[i], 65536, i, keep_registers));
    for (uint32_t round = 0; round <= 100; round++) {
        for (uint32_t i = 0; i < MANY; i++)
            go(&fibers[i]);
    }
    for (uint32_t i = 0; i < MANY; i++)
        TEST_ASSERT_EQUAL_UINT32(100, visits[i]);
}

static void the_guard_is_below_the_stack(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl__fiber_init(&fibers[0], 65536, 0, count_visits));
    TEST_ASSERT_TRUE(tl__fiber_is_guard(&fibers[0], fibers[0].map));
    TEST_ASSERT_TRUE(tl__fiber_is_guard(&fibers[0], fibers[0].map + fibers[0].guard_bytes - 1));
    TEST_ASSERT_FALSE(tl__fiber_is_guard(&fibers[0], fibers[0].map + fibers[0].guard_bytes));
    TEST_ASSERT_FALSE(tl__fiber_is_guard(&home, &home));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_fiber_goes_on_where_it_was_left);
    RUN_TEST(fibers_hand_over_to_each_other);
    RUN_TEST(stacks_are_aligned_and_staggered);
    RUN_TEST(a_fiber_left_for_good_begins_anew_after_a_reset);
    RUN_TEST(registers_survive);
    RUN_TEST(the_guard_is_below_the_stack);
    return UNITY_END();
}

/* Which way graphs go, and where they are cut: invariants over random facts and random steps. */
#include "runtime/effort/cut.h"

#include <unity.h>

#include "runtime/effort/plan.h"
#include "test/unit/runtime/effort/facts.h"

enum { MOST_STEPS = 64, GRAPHS = 20000 };

void setUp(void)
{
}

void tearDown(void)
{
}

static struct tl_eff_graph_facts any_graph(void)
{
    return (struct tl_eff_graph_facts){.is_forced = any(8) == 0,
                                       .divides_sms = any(8) == 0,
                                       .has_rate = any(4) == 0,
                                       .has_events = any(4) == 0,
                                       .is_due = any(8) == 0,
                                       .has_unknown = any(4) == 0,
                                       .n_tries = (uint32_t)any(16),
                                       .n_same = (uint32_t)any(16),
                                       .ns = any_size(40),
                                       .turnaround_ns = any_size(32),
                                       .is_alone = any(2) == 0,
                                       .may_pass = any(2) == 0};
}

/* --- the way ---------------------------------------------------------------------------------- */

static void a_graph_goes_as_it_is_only_if_a_kernel_of_its_length_would(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_graph_facts f = any_graph();
        if (tl_eff_cut_way(&f) != TL_GRAPH_AS_IT_IS)
            continue;
        TEST_ASSERT_TRUE(f.ns <= f.turnaround_ns || (f.is_alone && f.ns <= TL_EFF_ALONE_NS));
        TEST_ASSERT_TRUE(f.may_pass && !f.has_unknown && !f.has_events && !f.has_rate);
        TEST_ASSERT_FALSE(f.is_forced || f.divides_sms || f.is_due);
    }
}

static void a_known_graph_that_is_not_short_goes_in_parts(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_graph_facts f = any_graph();
        f.is_forced = f.divides_sms = f.is_due = f.has_unknown = f.is_alone = false;
        f.ns = f.turnaround_ns + 1 + any(1000);
        f.n_same = 3 + (uint32_t)any(100);
        TEST_ASSERT_EQUAL(TL_GRAPH_IN_PARTS, tl_eff_cut_way(&f));
    }
}

static void what_is_not_known_is_learnt_for_a_while_and_not_for_ever(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_graph_facts f = any_graph();
        f.is_forced = f.divides_sms = f.is_due = false;
        f.has_unknown = true;
        f.n_same = 100;
        f.n_tries = 0;
        TEST_ASSERT_EQUAL(TL_GRAPH_UNKNOWN, tl_eff_cut_way(&f));
        f.n_tries = 100;
        TEST_ASSERT_EQUAL(TL_GRAPH_IN_PARTS, tl_eff_cut_way(&f));
    }
}

static void a_graph_that_is_changed_for_each_launch_is_not_cut(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_graph_facts f = any_graph();
        f.n_same = 0;
        TEST_ASSERT_NOT_EQUAL(TL_GRAPH_IN_PARTS, tl_eff_cut_way(&f));
    }
}

static void every_way_is_one_that_is_counted(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_graph_facts f = any_graph();
        TEST_ASSERT_TRUE((unsigned)tl_eff_cut_way(&f) < TL_GRAPH_WAYS);
    }
}

/* --- where ------------------------------------------------------------------------------------ */

struct steps {
    struct tl_eff_cut_step list[MOST_STEPS];
    uint32_t n;
    uint64_t bound;
};

static struct steps any_steps(void)
{
    struct steps s = {.n = 1 + (uint32_t)any(MOST_STEPS), .bound = any_size(24)};
    uint32_t bits = 1 + (uint32_t)any(25), one_in = 1 + (uint32_t)any(16);
    for (uint32_t i = 0; i < s.n; i++)
        s.list[i] = (struct tl_eff_cut_step){.ns = any_size(bits), .is_alone = any(one_in) == 0};
    if (any(100) == 0)
        s.list[any(s.n)].ns = UINT64_MAX; /* nothing overflows */
    return s;
}

/* Each part begins where the one before ends, so each step is in exactly one; and the steps stand
 * in an order of their dependencies, so these lead forwards only. */
static void every_step_is_in_one_part_and_parts_are_within_the_bound(void)
{
    for (int i = 0; i < GRAPHS; i++) {
        struct steps s = any_steps();
        uint32_t at = 0;
        while (at < s.n) {
            uint32_t n = tl_eff_cut_next(s.list, s.n, at, s.bound);
            uint64_t left = s.bound;
            TEST_ASSERT_TRUE(n >= 1 && n <= s.n - at);
            for (uint32_t k = at; k < at + n && n > 1; k++) {
                TEST_ASSERT_FALSE(s.list[k].is_alone);
                TEST_ASSERT_TRUE(s.list[k].ns <= left);
                left -= s.list[k].ns;
            }
            at += n;
        }
        TEST_ASSERT_EQUAL(s.n, at);
    }
}

/* Or a graph would be cut into more parts than needed. */
static void a_part_ends_only_where_the_next_step_does_not_fit(void)
{
    for (int i = 0; i < GRAPHS; i++) {
        struct steps s = any_steps();
        for (uint32_t at = 0; at < s.n;) {
            uint32_t n = tl_eff_cut_next(s.list, s.n, at, s.bound);
            uint64_t sum = 0;
            bool is_full = s.list[at].is_alone || s.list[at].ns > s.bound;
            for (uint32_t k = at; k < at + n && !is_full; k++)
                sum += s.list[k].ns;
            at += n;
            if (at < s.n && !is_full && !s.list[at].is_alone)
                TEST_ASSERT_TRUE(s.list[at].ns > s.bound - sum);
        }
    }
}

static uint32_t parts_of(const struct steps *s, uint64_t bound)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < s->n; n++)
        at += tl_eff_cut_next(s->list, s->n, at, bound);
    return n;
}

static void a_longer_bound_never_makes_more_parts(void)
{
    for (int i = 0; i < GRAPHS; i++) {
        struct steps s = any_steps();
        TEST_ASSERT_TRUE(parts_of(&s, s.bound + any_size(24)) <= parts_of(&s, s.bound));
    }
}

static void two_parts_keep_to_the_budget_and_halvings_make_them_smaller(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t turnaround = any_size(35);
        uint32_t halvings = (uint32_t)any(10);
        TEST_ASSERT_TRUE(2 * tl_eff_cut_bound(turnaround, false, 0) <= turnaround);
        TEST_ASSERT_TRUE(tl_eff_cut_bound(turnaround, false, halvings + 1) <=
                         tl_eff_cut_bound(turnaround, false, halvings));
        TEST_ASSERT_TRUE(tl_eff_cut_bound(turnaround, true, 0) >=
                         tl_eff_cut_bound(turnaround, false, 0));
    }
}

static void parts_that_were_cut_for_a_longer_budget_do_not_stay(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t was = any_size(35), now = any_size(35);
        if (tl_eff_cut_still_fits(was, now))
            TEST_ASSERT_TRUE(was <= now);
        TEST_ASSERT_TRUE(tl_eff_cut_still_fits(was, was));
    }
}

static void one_long_sample_does_not_cut_a_graph_finer(void)
{
    TEST_ASSERT_FALSE(tl_eff_cut_is_too_long(10 * MS, 1, 100 * US));
    TEST_ASSERT_TRUE(tl_eff_cut_is_too_long(10 * MS, 4, 100 * US));
    TEST_ASSERT_FALSE(tl_eff_cut_is_too_long(150 * US, 4, 100 * US));
}

static void copies_over_the_bus_take_longer_and_nothing_overflows(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        size_t bytes = any_size(63);
        TEST_ASSERT_TRUE(tl_eff_cut_copy_ns(bytes, false) >= tl_eff_cut_copy_ns(bytes, true));
        TEST_ASSERT_TRUE(tl_eff_cut_copy_ns(bytes, true) > 0);
    }
    TEST_ASSERT_TRUE(tl_eff_cut_copy_ns(SIZE_MAX, false) > MS);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_graph_goes_as_it_is_only_if_a_kernel_of_its_length_would);
    RUN_TEST(a_known_graph_that_is_not_short_goes_in_parts);
    RUN_TEST(what_is_not_known_is_learnt_for_a_while_and_not_for_ever);
    RUN_TEST(a_graph_that_is_changed_for_each_launch_is_not_cut);
    RUN_TEST(every_way_is_one_that_is_counted);
    RUN_TEST(every_step_is_in_one_part_and_parts_are_within_the_bound);
    RUN_TEST(a_part_ends_only_where_the_next_step_does_not_fit);
    RUN_TEST(a_longer_bound_never_makes_more_parts);
    RUN_TEST(two_parts_keep_to_the_budget_and_halvings_make_them_smaller);
    RUN_TEST(parts_that_were_cut_for_a_longer_budget_do_not_stay);
    RUN_TEST(one_long_sample_does_not_cut_a_graph_finer);
    RUN_TEST(copies_over_the_bus_take_longer_and_nothing_overflows);
    return UNITY_END();
}

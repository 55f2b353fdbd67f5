/* The arguments by which loops that ask memory end are told with a verdict, each for the kernel of
 * test/cases that was made for it.  That the verdicts are right is checked by cases_test.c, and
 * that kernels which are allowed end when cut, by running them, in
 * test/unit/device/jit/variants_test.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "ptx_rewrite/ends.h"
#include "test/unit/ptx_rewrite/case.h"
#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t;
static char *text;

void setUp(void)
{
    t = (struct ptx_text){0};
    text = NULL;
}

void tearDown(void)
{
    ptx_close(&t);
    free(text);
}

static void expect_argument(const char *file, const char *kernel, enum tl_ptx_end end)
{
    char path[4400], line[32];
    size_t n;
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    snprintf(path, sizeof path, "%s/%s.ptx", ptx_cases_folder(), file);
    text = ptx_read_file(path, &n);
    TEST_ASSERT_NOT_NULL_MESSAGE(text, path);
    ptx_open(&t, text);
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_judge(t.ix, tl_str_of(kernel), verdicts, &t.err));
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(TL_PTX_REASON_OK, verdicts[v].reason, verdicts[v].note);
        TEST_ASSERT_EQUAL_INT_MESSAGE(1, sscanf(verdicts[v].note, "%5s ", line), verdicts[v].note);
        TEST_ASSERT_EQUAL_STRING("line", line);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(verdicts[v].note, tl_ptx_end_text(end)),
                                     verdicts[v].note);
    }
}

static void a_lock_is_named(void)
{
    expect_argument("nasty_swap", "lock", TL_PTX_END_LOCK);
}

static void a_lock_that_one_thread_takes_for_the_block_is_named(void)
{
    expect_argument("nasty_swap", "lock_of_a_block", TL_PTX_END_LOCK);
}

static void a_swap_with_the_value_last_seen_is_named(void)
{
    expect_argument("nasty_swap", "adds_by_swapping", TL_PTX_END_SWAP);
}

static void words_that_are_taken_once_are_named(void)
{
    expect_argument("nasty_swap", "takes_a_free_place", TL_PTX_END_TAKEN_ONCE);
}

static void a_work_counter_is_named(void)
{
    expect_argument("nasty_counter_polled", "work_queue_of_fours", TL_PTX_END_ADDS);
}

static void a_work_counter_told_round_the_block_is_named(void)
{
    expect_argument("nasty_told", "work_told_by_shared_memory", TL_PTX_END_ADDS);
}

static void a_search_of_bounded_length_is_named(void)
{
    expect_argument("nasty_reading", "searches_what_it_writes", TL_PTX_END_COUNTED);
}

static void a_wait_for_earlier_blocks_is_named(void)
{
    expect_argument("wait_lower_block", "wait_lower_block", TL_PTX_END_EARLIER);
}

static void a_turn_is_named(void)
{
    expect_argument("wait_turn_ticket", "wait_turn_ticket", TL_PTX_END_TURN);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_lock_is_named);
    RUN_TEST(a_lock_that_one_thread_takes_for_the_block_is_named);
    RUN_TEST(a_swap_with_the_value_last_seen_is_named);
    RUN_TEST(words_that_are_taken_once_are_named);
    RUN_TEST(a_work_counter_is_named);
    RUN_TEST(a_work_counter_told_round_the_block_is_named);
    RUN_TEST(a_search_of_bounded_length_is_named);
    RUN_TEST(a_wait_for_earlier_blocks_is_named);
    RUN_TEST(a_turn_is_named);
    return UNITY_END();
}

/* How threads that have returned go on attending barriers in a persistent block: not at all, by
 * warps, or by threads. */
#include <stdio.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/rewritten.h"

/* The persistent variant of a kernel whose threads return where %r2 is 32 or more, before a
 * barrier. */
static const char *returning_by(const char *definition_of_r2)
{
    char body[600];
    snprintf(body, sizeof body,
             "ld.param.u64 %%rd1, [p];\nmov.u32 %%r1, %%tid.x;\n%s\nsetp.ge.u32 %%p1, %%r2, "
             "32;\n@%%p1 ret;\n"
             "bar.sync 0;\nst.global.u32 [%%rd1], %%r1;\nret;\n",
             definition_of_r2);
    return ptx_rewrite_body(TL_PTX_PERSISTENT, body);
}

static void blocks_that_return_as_wholes_need_no_votes(void)
{
    const char *text = returning_by("mov.u32 %r2, %ctaid.x;");
    TEST_ASSERT_NULL_MESSAGE(strstr(text, ".red.or.pred"), text);
    TEST_ASSERT_EQUAL_UINT32(0, ptx_made.conditions);
}

static void warps_that_return_as_wholes_vote_aligned_if_they_are_rows(void)
{
    const char *text = returning_by("and.b32 %r2, %r1, 992;");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\tbar.red.or.pred"), text);
    TEST_ASSERT_NULL_MESSAGE(strstr(text, "barrier.red"), text);
    TEST_ASSERT_EQUAL_UINT32(TL_PTX_IF_WARPS_ARE_ROWS, ptx_made.conditions);
}

static void warps_that_are_torn_vote_thread_by_thread(void)
{
    const char *text = returning_by("mul.lo.u32 %r2, %r1, 3;");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\tbarrier.red.or.pred"), text);
    TEST_ASSERT_NULL_MESSAGE(strstr(text, "\tbar.red"), text);
    TEST_ASSERT_EQUAL_UINT32(0, ptx_made.conditions);
}

/* Lanes that went different ways need not be together where the ways meet. */
static void lanes_that_return_by_who_is_active_vote_thread_by_thread(void)
{
    const char *text = returning_by("setp.lt.u32 %p2, %r1, 5;\n@%p2 bra $on;\n"
                                    "st.global.u32 [%rd1+4], %r1;\n$on:\nactivemask.b32 %r2;");
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\tbarrier.red.or.pred"), text);
    TEST_ASSERT_NULL_MESSAGE(strstr(text, "\tbar.red"), text);
}

/* Another block may write the word between the loads of two warps. */
static void warps_that_read_a_fresh_word_vote(void)
{
    static const char *const loads[] = {"ld.volatile.global.u32", "ld.relaxed.gpu.global.u32",
                                        "ld.global.cg.u32", "ld.global.cv.u32"};
    char definition[60];
    for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
        snprintf(definition, sizeof definition, "%s %%r2, [%%rd1];", loads[i]);
        const char *text = returning_by(definition);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, ".red.or.pred"), text);
    }
    const char *text = returning_by("ld.global.nc.u32 %r2, [%rd1];");
    TEST_ASSERT_NULL_MESSAGE(strstr(text, ".red.or.pred"), text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(blocks_that_return_as_wholes_need_no_votes);
    RUN_TEST(warps_that_return_as_wholes_vote_aligned_if_they_are_rows);
    RUN_TEST(warps_that_are_torn_vote_thread_by_thread);
    RUN_TEST(lanes_that_return_by_who_is_active_vote_thread_by_thread);
    RUN_TEST(warps_that_read_a_fresh_word_vote);
    return UNITY_END();
}

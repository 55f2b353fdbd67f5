/* Limits on registers: when a variant should be compiled with one, and how the text says it. */
#include <stdio.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/rewritten.h"

static uint32_t limit_of(uint32_t registers, uint32_t local, uint32_t variant_registers,
                         uint32_t variant_local)
{
    return tl_ptx_register_limit((struct tl_ptx_cost){registers, local},
                                 (struct tl_ptx_cost){variant_registers, variant_local});
}

static void a_little_more_is_fine(void)
{
    TEST_ASSERT_EQUAL_UINT32(0, limit_of(40, 0, 40, 0));
    TEST_ASSERT_EQUAL_UINT32(0, limit_of(40, 0, 48, 0));
    TEST_ASSERT_EQUAL_UINT32(0, limit_of(40, 16, 32, 16));
}

static void too_many_registers_are_limited(void)
{
    TEST_ASSERT_EQUAL_UINT32(48, limit_of(40, 0, 49, 0));
    TEST_ASSERT_EQUAL_UINT32(84, limit_of(76, 0, 123, 0));
}

static void new_spills_are_tried_again_even_with_fewer_registers(void)
{
    TEST_ASSERT_EQUAL_UINT32(72, limit_of(64, 0, 48, 12));
    TEST_ASSERT_EQUAL_UINT32(72, limit_of(64, 16, 64, 32));
}

static void small_kernels_are_not_squeezed(void)
{
    TEST_ASSERT_EQUAL_UINT32(24, limit_of(10, 0, 22, 0));
}

static void a_limit_that_spills_does_not_help(void)
{
    struct tl_ptx_cost original = {40, 8};
    TEST_ASSERT_TRUE(tl_ptx_limit_helps(original, (struct tl_ptx_cost){48, 8}));
    TEST_ASSERT_TRUE(tl_ptx_limit_helps(original, (struct tl_ptx_cost){48, 0}));
    TEST_ASSERT_FALSE(tl_ptx_limit_helps(original, (struct tl_ptx_cost){48, 12}));
}

/* The text of a variant of a kernel with those directives, under that limit. */
static const char *limited(const char *directives, uint32_t limit)
{
    char text[300];
    snprintf(text, sizeof text,
             ".version 8.3\n.target sm_90\n.address_size 64\n.entry k() %s { ret; }\n", directives);
    ptx_open(&ptx_given, text);
    const struct tl_ptx_options options = {
        .variant = TL_PTX_TICKET, .grid_dims = 1, .max_registers = limit};
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_ptx_rewrite(ptx_given.ix, TL_STR("k"), &options, &ptx_made, NULL, &ptx_given.err),
        ptx_given.err.text);
    return ptx_made.text;
}

static void the_limit_stands_in_the_text(void)
{
    TEST_ASSERT_NOT_NULL(strstr(limited("", 40), "\n.maxnreg 40\n{"));
}

static void the_limit_stands_behind_other_directives(void)
{
    const char *text = limited(".maxntid 256, 1, 1 .minnctapersm 2", 40);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, ".minnctapersm 2 .maxnreg 40\n{"), text);
}

static void the_limit_of_the_original_is_kept(void)
{
    const char *text = limited(".maxnreg 32", 40);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, ".maxnreg 32\n{"), text);
    TEST_ASSERT_NULL_MESSAGE(strstr(text, ".maxnreg 40"), text);
}

static void without_a_limit_nothing_is_said(void)
{
    TEST_ASSERT_NULL(strstr(limited(".maxntid 256, 1, 1", 0), ".maxnreg"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_little_more_is_fine);
    RUN_TEST(too_many_registers_are_limited);
    RUN_TEST(new_spills_are_tried_again_even_with_fewer_registers);
    RUN_TEST(small_kernels_are_not_squeezed);
    RUN_TEST(a_limit_that_spills_does_not_help);
    RUN_TEST(the_limit_stands_in_the_text);
    RUN_TEST(the_limit_stands_behind_other_directives);
    RUN_TEST(the_limit_of_the_original_is_kept);
    RUN_TEST(without_a_limit_nothing_is_said);
    return UNITY_END();
}

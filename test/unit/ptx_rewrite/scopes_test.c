/* Registers of inline assembly that are written and read under one condition: ptxas shall not keep
 * them alive longer. */
#include <stdio.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/rewritten.h"

/* The text of a variant of a kernel with these statements in a scope of their own. */
static const char *with_scope(enum tl_ptx_variant variant, const char *statements)
{
    char body[2000];
    snprintf(body, sizeof body,
             "ld.param.u64 %%rd1, [p];\nsetp.eq.u64 %%p1, %%rd1, 8;\n{\n%s}\nret;\n", statements);
    return ptx_rewrite_body(variant, body);
}

static void expect(const char *text, const char *what, bool is_there)
{
    if ((strstr(text, what) != NULL) != is_there)
        TEST_FAIL_MESSAGE(text);
}

/* As Thrust and CUB have it in their reductions. */
static const char shuffle[] = ".reg .u32 lo;\n"
                              ".reg .u32 hi;\n"
                              ".reg .pred p;\n"
                              ".reg .f64 value;\n"
                              "mov.b64 {lo, hi}, %fd1;\n"
                              "shfl.sync.down.b32 lo|p, lo, 1, 31, -1;\n"
                              "shfl.sync.down.b32 hi|p, hi, 1, 31, -1;\n"
                              "@p mov.b64 value, {lo, hi};\n"
                              "@p add.f64 %fd1, %fd1, value;\n";

static void what_is_written_and_read_under_one_guard_is_set_before(void)
{
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        const char *text = with_scope((enum tl_ptx_variant)v, shuffle);
        expect(text, "\tmov.b64 value, 0;\n\t\t@p mov.b64 value, {lo, hi};\n", true);
        expect(text, "lo, 0;", false);
        expect(text, "hi, 0;", false);
        expect(text, "p, 0;", false);
        tearDown();
        setUp();
    }
}

static void what_is_read_without_its_guard_is_left_alone(void)
{
    expect(with_scope(TL_PTX_PERSISTENT,
                      ".reg .b32 x;\n@%p1 mov.u32 x, 3;\nst.global.u32 [%rd1], x;\n"),
           "x, 0;", false);
}

static void what_is_read_under_the_opposite_guard_is_left_alone(void)
{
    expect(with_scope(TL_PTX_PERSISTENT,
                      ".reg .b32 x;\n@%p1 mov.u32 x, 3;\n@!%p1 st.global.u32 [%rd1], x;\n"),
           "x, 0;", false);
}

static void a_guard_that_has_changed_is_another_one(void)
{
    expect(with_scope(TL_PTX_PERSISTENT,
                      ".reg .b32 x;\n@%p1 mov.u32 x, 3;\nsetp.ne.u64 %p1, %rd1, 4;\n"
                      "@%p1 st.global.u32 [%rd1], x;\n"),
           "x, 0;", false);
}

static void what_is_read_first_is_left_alone(void)
{
    expect(with_scope(TL_PTX_PERSISTENT,
                      ".reg .b32 x;\n@%p1 add.u32 x, x, 3;\n@%p1 st.global.u32 [%rd1], x;\n"),
           "x, 0;", false);
}

static void a_second_write_under_another_guard_leaves_doubts(void)
{
    expect(with_scope(TL_PTX_PERSISTENT, ".reg .b32 x;\n@%p1 mov.u32 x, 3;\n@%p2 mov.u32 x, 4;\n"
                                         "@%p2 st.global.u32 [%rd1], x;\n"),
           "x, 0;", false);
}

static void a_write_for_certain_ends_all_doubts(void)
{
    expect(
        with_scope(TL_PTX_PERSISTENT,
                   ".reg .b32 x;\n@%p1 mov.u32 x, 3;\nmov.u32 x, 4;\nst.global.u32 [%rd1], x;\n"),
        "\tmov.b32 x, 0;\n\t\t@%p1 mov.u32 x, 3;\n", true);
}

static void scopes_with_branches_are_left_alone(void)
{
    expect(with_scope(TL_PTX_PERSISTENT,
                      ".reg .b32 x;\n@%p1 mov.u32 x, 3;\n@%p1 bra over;\nmov.u32 %r1, 1;\nover:\n"
                      "@%p1 st.global.u32 [%rd1], x;\n"),
           "x, 0;", false);
}

static void registers_of_outer_scopes_are_not_its_business(void)
{
    expect(with_scope(TL_PTX_SLICE,
                      ".reg .b32 x;\n@%p1 mov.u32 %r5, 3;\n@%p1 st.global.u32 [%rd1], %r5;\n"),
           "%r5, 0;", false);
}

static void inner_scopes_are_found(void)
{
    expect(with_scope(TL_PTX_TICKET,
                      "{\n.reg .b32 x;\n@%p1 mov.u32 x, 3;\n@%p1 st.global.u32 [%rd1], x;\n}\n"),
           "\tmov.b32 x, 0;\n", true);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_is_written_and_read_under_one_guard_is_set_before);
    RUN_TEST(what_is_read_without_its_guard_is_left_alone);
    RUN_TEST(what_is_read_under_the_opposite_guard_is_left_alone);
    RUN_TEST(a_guard_that_has_changed_is_another_one);
    RUN_TEST(what_is_read_first_is_left_alone);
    RUN_TEST(a_second_write_under_another_guard_leaves_doubts);
    RUN_TEST(a_write_for_certain_ends_all_doubts);
    RUN_TEST(scopes_with_branches_are_left_alone);
    RUN_TEST(registers_of_outer_scopes_are_not_its_business);
    RUN_TEST(inner_scopes_are_found);
    return UNITY_END();
}

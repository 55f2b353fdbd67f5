/* Registers that the original leaves undefined on some ways: the persistent loop must not carry
 * them from block to block. */
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/rewritten.h"

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (const char *p = strstr(text, what); p != NULL; p = strstr(p + 1, what))
        n++;
    return n;
}

static void expect_once(const char *text, const char *what)
{
    if (count(text, what) != 1)
        TEST_FAIL_MESSAGE(text);
}

static void expect_none(const char *text, const char *what)
{
    if (count(text, what) != 0)
        TEST_FAIL_MESSAGE(text);
}

static const char one_way[] = "ld.param.u64 %rd1, [p];\n"
                              "setp.eq.u64 %p1, %rd1, 8;\n"
                              "add.u64 %rd2, %rd1, 4;\n"
                              "@%p1 bra skip;\n"
                              "ld.global.u32 %r5, [%rd2];\n"
                              "skip:\n"
                              "@%p1 bra end;\n"
                              "st.global.u32 [%rd1], %r5;\n"
                              "end: ret;\n";

static void a_register_written_on_one_way_is_set_at_the_end_of_the_other(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, one_way);
    expect_once(text, "\tmov.b32 %r5, 0;\n\t@%p1 bra skip;\n");
    expect_once(text, "mov.b32 %r5, 0;");
}

static void variants_without_a_loop_are_left_alone(void)
{
    expect_none(ptx_rewrite_body(TL_PTX_TICKET, one_way), "%r5, 0;");
    tearDown();
    expect_none(ptx_rewrite_body(TL_PTX_SLICE, one_way), "%r5, 0;");
}

static void registers_that_are_always_written_first_are_left_alone(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, "ld.param.u64 %rd1, [p];\n"
                                                           "mov.u32 %r1, %tid.x;\n"
                                                           "setp.eq.u32 %p1, %r1, 0;\n"
                                                           "@%p1 bra other;\n"
                                                           "mov.u32 %r5, 1;\n"
                                                           "bra both;\n"
                                                           "other: mov.u32 %r5, 2;\n"
                                                           "both: st.global.u32 [%rd1], %r5;\n"
                                                           "ret;\n");
    expect_none(text, "mov.b32 %r5");
    expect_none(text, "mov.b32 %r1");
    expect_none(text, "mov.pred %p1");
    expect_none(text, "mov.b64 %rd1");
}

static void a_guarded_write_alone_does_not_count_as_one(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, "ld.param.u64 %rd1, [p];\n"
                                                           "setp.eq.u64 %p1, %rd1, 8;\n"
                                                           "@%p1 mov.u32 %r5, 7;\n"
                                                           "st.global.u32 [%rd1], %r5;\n"
                                                           "ret;\n");
    expect_once(text, "\tmov.b32 %r5, 0;\n\t@%p1 mov.u32 %r5, 7;\n");
}

static void a_register_that_lives_through_an_inner_loop_is_set_before_it(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, "ld.param.u64 %rd1, [p];\n"
                                                           "mov.u32 %r1, 0;\n"
                                                           "again:\n"
                                                           "setp.eq.u32 %p1, %r1, 3;\n"
                                                           "@%p1 mov.u32 %r5, 7;\n"
                                                           "st.global.u32 [%rd1], %r5;\n"
                                                           "add.u32 %r1, %r1, 1;\n"
                                                           "setp.lt.u32 %p2, %r1, 10;\n"
                                                           "@%p2 bra again;\n"
                                                           "ret;\n");
    expect_once(text, "mov.b32 %r5, 0;");
    TEST_ASSERT_TRUE_MESSAGE(strstr(text, "mov.b32 %r5, 0;") < strstr(text, "again:"), text);
}

static void each_kind_of_register_is_set_in_its_width(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT,
                                        "ld.param.u64 %rd1, [p];\n"
                                        "setp.eq.u64 %p1, %rd1, 8;\n"
                                        "@%p1 setp.eq.u64 %p2, %rd1, 9;\n"
                                        "@%p1 mov.u16 %h2, 1;\n"
                                        "@%p1 mov.u64 %rd2, 1;\n"
                                        "@%p1 mov.f32 %f2, 0f3F800000;\n"
                                        "@%p1 mov.f64 %fd2, 0d3FF0000000000000;\n"
                                        "@%p2 st.global.u16 [%rd1], %h2;\n"
                                        "st.global.u64 [%rd1], %rd2;\n"
                                        "st.global.f32 [%rd1], %f2;\n"
                                        "st.global.f64 [%rd1], %fd2;\n"
                                        "ret;\n");
    expect_once(text, "mov.pred %p2, 0;");
    expect_once(text, "mov.b16 %h2, 0;");
    expect_once(text, "mov.b64 %rd2, 0;");
    expect_once(text, "mov.b32 %f2, 0;");
    expect_once(text, "mov.b64 %fd2, 0;");
}

static void what_an_inner_scope_hides_is_set_outside_of_it(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, "ld.param.u64 %rd1, [p];\n"
                                                           "setp.eq.u64 %p1, %rd1, 8;\n"
                                                           "{\n"
                                                           ".reg .b32 %r6;\n"
                                                           "mov.u32 %r6, 3;\n"
                                                           "@%p1 mov.u32 %r5, %r6;\n"
                                                           "}\n"
                                                           "@%p1 mov.u32 %r6, 4;\n"
                                                           "add.u32 %r7, %r5, %r6;\n"
                                                           "st.global.u32 [%rd1], %r7;\n"
                                                           "ret;\n");
    expect_once(text, "mov.b32 %r5, 0;\n\t{\n");
    expect_once(text, "\t}\n\tmov.b32 %r6, 0;\n\t@%p1 mov.u32 %r6, 4;\n");
}

static void a_register_of_an_inner_scope_that_is_read_anyway_is_left_alone(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, "ld.param.u64 %rd1, [p];\n"
                                                           "setp.eq.u64 %p1, %rd1, 8;\n"
                                                           "{\n"
                                                           ".reg .b32 inner;\n"
                                                           "@%p1 mov.u32 inner, 3;\n"
                                                           "st.global.u32 [%rd1], inner;\n"
                                                           "}\n"
                                                           "ret;\n");
    expect_none(text, "inner, 0;");
}

static void a_pragma_stays_with_its_instruction(void)
{
    const char *text = ptx_rewrite_body(TL_PTX_PERSISTENT, "ld.param.u64 %rd1, [p];\n"
                                                           "setp.eq.u64 %p1, %rd1, 8;\n"
                                                           ".pragma \"used_bytes_mask 3\";\n"
                                                           "@%p1 ld.global.u32 %r5, [%rd1];\n"
                                                           "st.global.u32 [%rd1], %r5;\n"
                                                           "ret;\n");
    expect_once(text,
                "\tmov.b32 %r5, 0;\n\t.pragma \"used_bytes_mask 3\";\n\t@%p1 ld.global.u32 %r5");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_register_written_on_one_way_is_set_at_the_end_of_the_other);
    RUN_TEST(variants_without_a_loop_are_left_alone);
    RUN_TEST(registers_that_are_always_written_first_are_left_alone);
    RUN_TEST(a_guarded_write_alone_does_not_count_as_one);
    RUN_TEST(a_register_that_lives_through_an_inner_loop_is_set_before_it);
    RUN_TEST(each_kind_of_register_is_set_in_its_width);
    RUN_TEST(what_an_inner_scope_hides_is_set_outside_of_it);
    RUN_TEST(a_register_of_an_inner_scope_that_is_read_anyway_is_left_alone);
    RUN_TEST(a_pragma_stays_with_its_instruction);
    return UNITY_END();
}

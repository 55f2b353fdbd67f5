/* Printing: the same tokens come out that went in, in one layout, and printing again changes
 * nothing.
 *
 * What went in and what came out is compared by ptx_essence, which shares no code with the lexer
 * under test. */
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t, again;

void setUp(void)
{
    memset(&t, 0, sizeof t);
    memset(&again, 0, sizeof again);
}

void tearDown(void)
{
    ptx_close(&t);
    ptx_close(&again);
}

/* Formats, formats the result, and expects the same; returns the text, the caller's to free. */
static char *fixed_point(const char *text)
{
    ptx_open(&t, text);
    char *once = ptx_format(t.ix);
    ptx_open(&again, once);
    char *twice = ptx_format(again.ix);
    TEST_ASSERT_EQUAL_STRING_MESSAGE(once, twice, "printing again changes the text");
    free(twice);
    ptx_close(&t);
    ptx_close(&again);
    return once;
}

static void assert_kept(const char *text)
{
    char *printed = fixed_point(text);
    char *before = ptx_essence(text, strlen(text)), *after = ptx_essence(printed, strlen(printed));
    TEST_ASSERT_EQUAL_STRING(before, after);
    free(before);
    free(after);
    free(printed);
}

static void assert_printed(const char *text, const char *expected)
{
    char *printed = fixed_point(text);
    TEST_ASSERT_EQUAL_STRING(expected, printed);
    free(printed);
}

static void assert_body_kept(const char *body)
{
    struct tl_buf all = {0};
    tl_buf_puts(
        &all,
        ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>;\n"
        ".reg .b64 %rd<9>; .reg .f32 %f<9>;\n");
    tl_buf_puts(&all, body);
    tl_buf_puts(&all, "\n}\n");
    assert_kept(all.p);
    tl_buf_finish(&all);
}

static void the_layout_is_a_statement_per_line_with_tabs(void)
{
    assert_printed(
        ".visible .entry k ( .param .u64 a,.param .align 8 .b8 b[ 16 ] ) .maxntid 256, 1, 1\n"
        "{.reg .b32 %r<3>;.reg .pred %p;L:{ld .global.u32 %r1,[ %r2 + 4 ];@!%p bra L;}ret;}",
        ".visible .entry k(\n\t.param .u64 a,\n\t.param .align 8 .b8 b[ 16 ]\n)\n.maxntid 256, 1, "
        "1\n{\n"
        "\t.reg .b32 %r<3>;\n\t.reg .pred %p;\nL:\n\t{\n\t\tld.global.u32 %r1, [%r2+4];\n\t\t@!%p "
        "bra L;\n\t}\n"
        "\tret;\n}\n");
}

static void every_module_item_is_kept(void)
{
    assert_kept(
        ".version 8.3\n.target sm_90a, debug\n.address_size 64\n.file 1 \"a b.cu\", 12, 34\n"
        ".pragma \"global knob x=1\";\n.extern .func vprintf (.param .b64 a, .param .b64 b);\n"
        ".func (.param .b32 r) f (.param .b32 a);\n.weak .func (.param .b32 r, .param .b64 s) f "
        "(.param .b32 a) { ret; "
        "}\n"
        ".visible .func g ();\n.alias g, f;\n.extern .shared .align 16 .b8 dyn[];\n"
        ".weak .shared .align 8 .b8 w[64];\n.common .global .u32 c;\n.visible .const .align 4 .u32 "
        "v[2] = {7, 8};\n"
        ".global .align 8 .u64 t[3] = {generic(v)+4, f, 0xff(v)};\n.global .u32 a = 1, b[2] = {1, "
        "2}, d;\n"
        ".global .attribute(.managed) .align 4 .u32 m;\n.global .texref tr;\n.tex .u64 old;\n"
        ".entry stub\n{ ret; }\n.entry none () .reqntid 32 .minnctapersm 2 .maxnreg 40 { ret; }\n"
        ".frobnicate 1, 2\n.section .debug_str\n{\n$L__info: .b8 98, 97\n.b8 0\n}\n@@DWARF .byte "
        "0x4\n");
}

static void every_statement_is_kept(void)
{
    assert_body_kept(
        ".reg .pred p, q; .reg .v4 .u32 %v<2>; .local .align 16 .b8 depot[32]; .shared .u32 "
        "s[4][2];\n"
        "mov.b64 %rd1, depot; cvta.local.u64 %rd2, %rd1; L: L2: { .reg .b32 t; mov.u32 t, 1; { "
        "ret; } }\n"
        ".pragma \"nounroll\"; .loc 1 2 3, function_name $L, inlined_at 1 2 3\n"
        "ts: .branchtargets L, L2; brx.idx %r1, ts; P: .callprototype (.param .b32 _) _ (.param "
        ".b64 _);\n"
        "{ .param .b32 r; .param .b64 a; st.param.b64 [a+0], %rd1; call (r), %rd1, (a), P; }\n"
        "C: .calltargets f, g; call %rd1, C; .frob x y\n@%p1 exit; @!p trap; ;; ret;");
}

static void every_operand_is_kept(void)
{
    assert_body_kept(
        "ld.global.v4.u32 {%r1,_,_,%r2}, [%rd1]; st.global.v2.b32 [%rd1+8], { %r8, 0f00000000 };\n"
        "setp.eq.and.s32 %p1|%p2, %r1, -5, !%p3; mov.u32 %r1, %tid.x; mov.b64 %rd1, {%r1, %r2};\n"
        "mov.f64 %rd1, 0d3FF0000000000000; mov.f32 %f1, 1.5e-3; mov.f32 %f1, .5; mov.u32 %r1, "
        "0x1FU;\n"
        "mov.u32 %r1, 0b11; mov.u32 %r1, 017; mov.u32 %r1, -(3+4)*2; mov.u32 %r1, WARP_SZ-1;\n"
        "mov.u32 %r1, 1 ? 2 : 3; mov.u32 %r1, !1; mov.u32 %r1, ~1 & 7 % 3; mov.f32 %f1, 1.0+2.0;\n"
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5, %f6}]; mov.u64 %rd1, s+8;\n"
        "vadd.u32.u32.u32 %r3, %r1.b0, %r2.h1; prmt.b32 %r1, %r2, %r3, 0x5410U; ld.local.u32 %r1, "
        "[1024];\n"
        "bar.red.popc.u32 %r1, 0, !%p2; mov.b32 {%h1,%h2}, %r1; add.f32 %f1, %f1, 0F3f800000;");
}

static void unknown_instructions_are_kept(void)
{
    assert_body_kept(
        "frob.u32.x::y %r1, [%rd1+4], {%r2}; @!%p1 zap  %r1 => { %r2 ; } , <3>; wibble; @%p1 "
        "wobble.a (%r1), f;\n"
        "frob %tid.q; mystery.op \"a string\", %r1; odd [%r1 + %r2]; quux a.b.c, -%r1, !%p1;");
}

static void offsets_are_printed_as_one_number(void)
{
    assert_printed(".entry k { ld.u32 a, [b+-4]; ld.u32 a, [b - 8]; ld.u32 a, [b+0x10]; ld.u32 a, "
                   "[b + (2*4)];\n"
                   "ld.u32 a, [b+0]; mov.u64 a, b+-16; }",
                   ".entry k\n{\n\tld.u32 a, [b+-4];\n\tld.u32 a, [b+-8];\n\tld.u32 a, "
                   "[b+16];\n\tld.u32 a, [b+8];\n"
                   "\tld.u32 a, [b+0];\n\tmov.u64 a, b+-16;\n}\n");
}

static void line_breaks_comments_and_tabs_inside_statements_go(void)
{
    assert_printed(".entry k\n{ call.uni\n(a), // result\nf,\n(\nb /* x "
                   "*/\n)\n;\nP:\t.callprototype\n_\n(.param .b32 _);\n"
                   "frob\t%r1  //\n =>\n%r2;\n}",
                   ".entry k\n{\n\tcall.uni (a), f, (b);\nP: .callprototype _ (.param .b32 "
                   "_);\n\tfrob %r1 => %r2;\n}\n");
}

static void carriage_returns_go(void)
{
    char *printed = fixed_point(
        ".entry k()\r\n{\r\n\t.reg .b32\t%r<2>;\r\n\tmov.u32 %r1,\r\n 1;\r\n\tret;\r\n}\r\n");
    TEST_ASSERT_NULL(strchr(printed, '\r'));
    free(printed);
}

static void words_that_a_comment_keeps_apart_stay_apart(void)
{
    assert_printed(".entry k { frob a/**/b, c//\nd; }", ".entry k\n{\n\tfrob a b, c d;\n}\n");
}

static void debug_sections_stay_byte_by_byte(void)
{
    static const char text[] = ".section\t.debug_info\n{\n  .b32   1 // x\n\n.b8\t2\n}\n";
    assert_printed(text, text);
}

static void a_line_of_half_a_megabyte_is_kept(void)
{
    struct tl_buf all = {0};
    tl_buf_puts(&all, ".global .align 4 .u32 precalc[102400] = {");
    for (uint32_t i = 0; i < 102400; i++)
        tl_buf_printf(&all, i > 0 ? ", %u" : "%u", i % 1000);
    tl_buf_puts(&all, "};\n");
    assert_printed(all.p, all.p);
    tl_buf_finish(&all);
}

static void nothing_prints_as_nothing(void)
{
    ptx_open(&t, "// only a comment\n");
    char *text = NULL;
    size_t n = 99;
    struct tl_error err;
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_format(t.ix, &text, &n, &err));
    TEST_ASSERT_EQUAL_size_t(0, n);
    TEST_ASSERT_NOT_NULL(text);
    TEST_ASSERT_EQUAL_STRING("", text);
    free(text);
}

/* The essence must itself see what is lost, or the tests above show nothing. */
static void the_second_opinion_tells_texts_apart(void)
{
    static const char *const pairs[][2] = {
        {"a b", "ab"},      {"a, b", "a b"},      {"\"a  b\"", "\"a b\""},
        {"x;", "x"},        {"%r1", "% r1"},      {"mov.u32 a", "mov.u3 2a"},
        {"[a+4]", "[a+8]"}, {"{ ret; }", "ret;"}, {"@!p ret;", "@p ret;"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *a = ptx_essence(pairs[i][0], strlen(pairs[i][0])),
             *b = ptx_essence(pairs[i][1], strlen(pairs[i][1]));
        TEST_ASSERT_NOT_EQUAL_MESSAGE(0, strcmp(a, b), pairs[i][0]);
        free(a);
        free(b);
    }
    char *a = ptx_essence("a // x\n /* y */ , b;;", 21);
    TEST_ASSERT_EQUAL_STRING("a,b;", a);
    free(a);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_layout_is_a_statement_per_line_with_tabs);
    RUN_TEST(every_module_item_is_kept);
    RUN_TEST(every_statement_is_kept);
    RUN_TEST(every_operand_is_kept);
    RUN_TEST(unknown_instructions_are_kept);
    RUN_TEST(offsets_are_printed_as_one_number);
    RUN_TEST(line_breaks_comments_and_tabs_inside_statements_go);
    RUN_TEST(carriage_returns_go);
    RUN_TEST(words_that_a_comment_keeps_apart_stay_apart);
    RUN_TEST(debug_sections_stay_byte_by_byte);
    RUN_TEST(a_line_of_half_a_megabyte_is_kept);
    RUN_TEST(nothing_prints_as_nothing);
    RUN_TEST(the_second_opinion_tells_texts_apart);
    return UNITY_END();
}

/* What is wrong with a text is said with file, line, column and a caret under the right byte; and
 * no text, however hostile, does more than that. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "ptx_rewrite/parse.h"
#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t;

void setUp(void)
{
    memset(&t, 0, sizeof t);
}

void tearDown(void)
{
    ptx_close(&t);
}

/* Index and format: whichever fails first. */
static int read_all(const char *text, size_t n)
{
    int rc = ptx_index_bytes(&t, text, n);
    char *out = NULL;
    size_t out_n;
    if (rc == 0)
        rc = tl_ptx_format(t.ix, &out, &out_n, &t.err);
    free(out);
    return rc;
}

/* The place of the mistake is marked in the text by the byte '\001', which is taken out before
 * reading. */
static void assert_error(const char *marked, const char *what)
{
    const char *mark = strchr(marked, '\001');
    TEST_ASSERT_NOT_NULL_MESSAGE(mark, "the test marks no place");
    size_t before = (size_t)(mark - marked), n = strlen(marked) - 1;
    char *text = malloc(n + 1);
    TEST_ASSERT_NOT_NULL(text);
    memcpy(text, marked, before);
    strcpy(text + before, mark + 1);
    int rc = read_all(text, n);
    TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, rc, text);
    TEST_ASSERT_EQUAL_INT(-EINVAL, t.err.code);

    struct tl_ptx_place place = tl_ptx_place_of(text, n, (uint32_t)before);
    char head[64];
    snprintf(head, sizeof head, "test.ptx:%u:%u: ", place.line, place.column);
    TEST_ASSERT_EQUAL_STRING_LEN(head, t.err.text, strlen(head));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(t.err.text, what), t.err.text);

    /* Three lines: the message, the line, the caret; what stands above the caret is the marked
     * byte. */
    char *line = strchr(t.err.text, '\n'), *caret = line != NULL ? strchr(line + 1, '\n') : NULL;
    TEST_ASSERT_NOT_NULL_MESSAGE(caret, t.err.text);
    size_t column = strlen(caret + 1) - 1;
    TEST_ASSERT_EQUAL_INT('^', caret[1 + column]);
    TEST_ASSERT_EQUAL_size_t(column, strspn(caret + 1, " "));
    unsigned char wrong = before < n ? (unsigned char)text[before] : '\n';
    if (wrong == '\n' || wrong == '\r')
        TEST_ASSERT_EQUAL_PTR_MESSAGE(caret, line + 1 + column,
                                      "the caret is behind the line's end");
    else
        TEST_ASSERT_EQUAL_INT(wrong >= 32 && wrong < 127 ? wrong : ' ', line[1 + column]);
    free(text);
    ptx_close(&t);
}

#define KERNEL(body)                                                                               \
    ".version 9.0\n.target sm_90\n.entry k\n{\n\t.reg .b32 %r<5>;\n\t.reg .pred %p<3>;\n" body     \
    "\n}\n"

static void elements_that_are_not_understood_are_refused(void)
{
#define ELEMENT(variable, element)                                                                 \
    ".entry k { .reg .b32 %r<2>; .reg .b64 %rd<2>; " variable " mov.u64 %rd1, " element "; }"
    assert_error(ELEMENT(".shared .v2 .b32 v[4];", "v\001[1]"), "not understood");
    assert_error(ELEMENT(".shared .b32 v[4][4];", "v\001[1]"), "not understood");
    assert_error(ELEMENT(".shared .b32 v;", "v\001[1]"), "not understood");
    assert_error(ELEMENT(".shared .b32 v[4];", "v[\001%r1]"), "a number should stand here");
    assert_error(ELEMENT(".shared .b32 v[4];", "v\001[0-1]"), "out of bounds");
    assert_error(ELEMENT(".shared .b32 v[4];", "v[1\001;"), "behind the element's number");
#undef ELEMENT
}

static void an_instruction_without_semicolon_is_found_where_the_next_begins(void)
{
    assert_error(KERNEL("\tmov.u32 %r1, 1\n\t\001mov.u32 %r2, 2;"), "should stand here");
    assert_error(KERNEL("\tmov.u32 %r1, %r2\n\t\001mov.u32 %r2, 2;"),
                 "',' or ';' should stand here");
}

static void operands_are_checked_one_by_one(void)
{
    assert_error(KERNEL("\tadd.s32 %r1, \001, %r2;"), "an operand should stand here");
    assert_error(KERNEL("\tadd.s32 %r1, %r2,\001;"), "an operand should stand behind");
    assert_error(KERNEL("\tmov.u32 %r1, -\001;"), "an operand should stand here");
    assert_error(KERNEL("\tmov.b64 %r1, {%r1,\001};"), "an operand should stand behind");
    assert_error(KERNEL("\tadd.s32 %r1 \001%r2;"), "',' or ';'");
    assert_error(KERNEL("\tld.global.u32 %r1, [%r2\001;"), "',' or ']'");
    assert_error(KERNEL("\tld.global.u32 %r1, \001[];"), "this address is empty");
    assert_error(KERNEL("\tld.global.u32 %r1, [%r2+\001];"), "a number should stand here");
    assert_error(KERNEL("\tmov.u32 %r1, %tid\001.q;"), "component");
    assert_error(KERNEL("\tmov.u32 %r1, (1+2\001;"), "')' should stand here");
    assert_error(KERNEL("\tmov.u32 %r1, \001`;"), "should stand here");
}

static void numbers_that_are_none_are_shown(void)
{
    assert_error(KERNEL("\tmov.u32 %r1, \001100000000000000000000;"), "is not a number");
    assert_error(KERNEL("\tmov.u32 %r1, \0010xZZ;"), "is not a number");
    assert_error(KERNEL("\tmov.f32 %r1, \0010f3F80;"), "is not a number");
    assert_error(KERNEL("\tmov.u32 %r1, \00109;"), "is not a number");
    assert_error(KERNEL("\tmov.f64 %r1, \0011.5.5;"), "is not a number");
    assert_error(KERNEL("\tmov.u32 %r1, 1 + \0010b12;"), "is not a number");
}

static void guards_are_checked(void)
{
    assert_error(KERNEL("\t@\001%q1 ret;"), "this predicate is not declared");
    assert_error(KERNEL("\t@\0011 ret;"), "a predicate should stand behind '@'");
    assert_error(KERNEL("\t@%p1 \001{ ret; }"), "an instruction should stand behind its guard");
    assert_error(KERNEL("\t@%p1 \001;"), "an instruction should stand behind its guard");
}

static void labels_are_checked(void)
{
    assert_error(KERNEL("\tret;\n\tbra \001Nowhere;\n"), "this label is not defined");
    assert_error(KERNEL("\t{ { bra \001Nowhere; } }\n"), "this label is not defined");
    assert_error(KERNEL("L:\n\tret;\n\001L: ret;"), "this label exists already");
    assert_error(KERNEL("\tts: .branchtargets \001A, B;\nB: ret;"), "this label is not defined");
}

static void declarations_are_checked(void)
{
    assert_error(KERNEL("\t.reg .b32 \001;"), "the declared name should stand here");
    assert_error(KERNEL("\t.reg .b32 x<\001>;"), "a number");
    assert_error(KERNEL("\t.reg .b32 x<4\001;"), "'>' should stand here");
    assert_error(KERNEL("\t.local .b8 x[\001y];"), "a number");
    assert_error(KERNEL("\t.local .b8 x[4\001;"), "']' should stand here");
    assert_error(KERNEL("\t.local .align \001x .b8 y;"), "a number");
    assert_error(KERNEL("\t.local .b8 x\001[4294967296][4294967296];"), "more than 2^48");
    /* whose bytes would be counted as four */
    assert_error(KERNEL("\t.local .b32 x\001[4611686018427387905];"), "more than 2^48");
    assert_error(KERNEL("\t.reg .b32 x \001y;"), "';' should stand here");
    assert_error(KERNEL("\t.common\001({)t;}"), "this '(' is never closed");
    assert_error(".global .u32 x = \001;", "an initialiser should stand behind '='");
}

static void statements_that_are_none_are_shown(void)
{
    assert_error(KERNEL("\t\001) ret;"), "a statement should stand here");
    assert_error(KERNEL("\t\0015;"), "a statement should stand here");
    assert_error(KERNEL("\t\001.pragma \"nounroll\""), "has no ';'");
    assert_error(KERNEL("\t.loc 1 2 3, \001; ret;"), "should go on here");
    assert_error(".version 9.0\n.target sm_90,\n\001.address_size 64\n", "should go on here");
}

static void tables_are_checked(void)
{
    assert_error(KERNEL("\tts: ;\001.branchtargets L;\nL:"),
                 "a label should stand before this table");
    assert_error(KERNEL("\tts: \001.branchtargets 1 + 1.5;"), "not labels");
    assert_error(KERNEL("\tP: \001.callprototype _ (.param .b32 _"), "does not end");
}

static void headers_are_checked(void)
{
    assert_error(".entry k (.param .u64 a \001.param .u64 b) { ret; }", "',' should stand here");
    assert_error(".entry k (.param .u64 \001) { ret; }", "the declared name should stand here");
    assert_error(".entry k (\001name) { ret; }", "a space and a type should stand here");
    assert_error(".entry k (.param .u64 a, \001) { ret; }", "a space and a type should stand here");
    assert_error(".entry \001(.param .u64 a { ret; }", "this '(' is never closed");
    assert_error(".entry k \001(.param .u64 a { ret; }", "this '(' is never closed");
}

static void module_scope_is_checked(void)
{
    assert_error("\n\n  \001mov.u32 %r1, 1;\n",
                 "a directive such as .entry or .global should stand here");
    assert_error(".visible \001.version 9.0\n", "behind the linkage");
    assert_error(".version\n\001", "a version, target or size should stand here");
    assert_error(".version\n\001.target sm_90\n", "a version, target or size should stand here");
    assert_error(".global .u32 \001;", "a name should stand here");
    assert_error("\001.alias a, b\n", "has no ';'");
    assert_error("\001.pragma \"x\"", "has no ';'");
    assert_error("\001`", "is not PTX");
}

static void unterminated_things_are_shown_where_they_begin(void)
{
    assert_error(".entry k\n\001{ {\n ret; }\n", "this function body has no closing '}'");
    assert_error(".entry k\n\001{ \"\n ret; }\n", "this function body has no closing '}'");
    assert_error(".entry k\n\001{ /* ret; }\n", "this function body has no closing '}'");
    assert_error(".entry k { ret; }\n\001/* no end\n", "is not PTX");
    assert_error(".section .debug_str\n\001{ .b8 1\n", "this section has no closing '}'");
    assert_error("\001.section .debug_str\n", "this section has no closing '}'");
    assert_error(".frob \001{ {\n }\n", "this '{' is never closed");
    assert_error("\001.global .u32 x[2] = {1, 2\n", "this declaration has no ';'");
    assert_error("\001.global .u32 x", "this declaration has no ';'");
    assert_error("\001.global .u32 x = 1 };", "this declaration has no ';'");
    assert_error(".entry k ()\001", "a function body or ';' should stand here");
    assert_error(KERNEL("\tfrob \001[%r1;"), "this instruction does not end");
}

static void a_closing_bracket_without_an_opening_one_is_shown(void)
{
    assert_error(KERNEL("\tfrob %r1 \001] ;"), "this ']' closes nothing");
    assert_error(KERNEL("\tfrob {\001);}"), "this ')' closes nothing");
}

static void columns_count_bytes_and_tabs_line_up(void)
{
    assert_error(KERNEL("\t\t\tadd.s32\t%r1,\t\001;"), "an operand should stand");
    assert_error(KERNEL("/* \xc3\xa9 */ add.s32 %r1, \001;"), "an operand should stand");
}

static void carriage_returns_do_not_move_the_caret(void)
{
    assert_error(".entry k\r\n{\r\n\tadd.s32 a, \001;\r\n}\r\n", "an operand should stand");
}

static void a_long_line_is_shown_around_the_mistake(void)
{
    struct tl_buf all = {0};
    tl_buf_puts(&all, ".entry k { .reg .b32 %r<3>; ");
    for (int i = 0; i < 20000; i++)
        tl_buf_puts(&all, "mov.u32 %r1, 1; ");
    tl_buf_puts(&all, "mov.u32 %r1, \001; ");
    for (int i = 0; i < 20000; i++)
        tl_buf_puts(&all, "mov.u32 %r1, 1; ");
    tl_buf_puts(&all, "}\n");
    char *text = tl_buf_take(&all);
    assert_error(text, "an operand should stand");
    free(text);
}

static void a_long_file_name_does_not_overflow_the_message(void)
{
    char name[3000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct tl_ptx_index *ix;
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_ptx_index_create(&ix, "bad", 3, name, &err));
    TEST_ASSERT_NULL(ix);
    TEST_ASSERT_LESS_THAN_size_t(sizeof err.text, strlen(err.text));
}

static void nobody_has_to_take_the_message(void)
{
    struct tl_ptx_index *ix;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_ptx_index_create(&ix, "bad", 3, "x", NULL));
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_index_create(&ix, ".entry k { bad", 0, "x", NULL));
    tl_ptx_index_destroy(ix);
    const char *text = ".entry k { add.s32 , ; }";
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_index_create(&ix, text, strlen(text), "x", NULL));
    char *out;
    size_t n;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_ptx_format(ix, &out, &n, NULL));
    TEST_ASSERT_NULL(out);
    tl_ptx_index_destroy(ix);
}

/* --- hostile texts ---------------------------------------------------------------------------- */

/* `before`, then `n` times `open`, then `middle`, then `n` times `close`, then `after`. */
static int read_nested(const char *before, const char *open, const char *middle, const char *close,
                       const char *after, uint32_t n)
{
    struct tl_buf all = {0};
    tl_buf_puts(&all, before);
    for (uint32_t i = 0; i < n; i++)
        tl_buf_puts(&all, open);
    tl_buf_puts(&all, middle);
    for (uint32_t i = 0; i < n; i++)
        tl_buf_puts(&all, close);
    tl_buf_puts(&all, after);
    TEST_ASSERT_FALSE(all.failed);
    ptx_close(&t);
    int rc = read_all(all.p, all.n);
    tl_buf_finish(&all);
    return rc;
}

static void assert_bounded(const char *before, const char *open, const char *middle,
                           const char *close, const char *after)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, read_nested(before, open, middle, close, after, 50),
                                  t.err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, read_nested(before, open, middle, close, after, 300000),
                                  open);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(t.err.text, "nested"), t.err.text);
}

static void nesting_is_bounded_everywhere(void)
{
    assert_bounded(".entry k {", "{", "", "}", "}");
    assert_bounded(".entry k { mov.u32 a, ", "{", "b", "}", "; }");
    assert_bounded(".entry k { mov.u32 a, ", "[", "b", "]", "; }");
    assert_bounded(".entry k { call ", "(", "b", ")", ", c; }");
    assert_bounded(".entry k { mov.u32 a, ", "(", "1", ")", "; }");
    assert_bounded(".entry k { mov.u32 a, ", "-", "1", "", "; }");
    assert_bounded(".entry k { mov.u32 a, ", "1 ? ", "1", " : 1", "; }");
    assert_bounded(".entry k { mov.u32 a, ", "1 ? 1 : ", "1", "", "; }");
    assert_bounded(".entry k { mov.u32 a, ", "1 + (", "1", ")", "; }");
    assert_bounded(".entry k { mov.u32 ", "a|", "b", "", ", 1; }");
    assert_bounded(".entry k { mov.u32 a, ", "(.s64) ", "1", "", "; }");
    assert_bounded(".entry k { frob a => ", "[", "1", "]", "; }");
}

static void long_flat_things_are_not_nested(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, read_nested(".entry k { mov.u32 a, 1", " + 1", "", "", "; }", 100000), t.err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, read_nested(".entry k { mov.u32 a, 1", "", "", " * 1 + 1", "; }", 100000), t.err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, read_nested(".entry k {", "{ ret; }", "", "", "}", 100000),
                                  t.err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, read_nested(".entry k { frob a", ", {b}", "", "", "; }", 60000), t.err.text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, read_nested(".entry k { ret; }", ".frob { {} }", "", "", "", 100000), t.err.text);
}

static void more_operands_than_a_count_can_hold_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          read_nested(".entry k { mov.u32 a", ", b", "", "", "; }", 70000));
    TEST_ASSERT_NOT_NULL(strstr(t.err.text, "too many operands"));
}

static void nested_sections_and_initialisers_need_no_stack(void)
{
    TEST_ASSERT_EQUAL_INT(0, read_nested(".section .x {", "{", "", "}", "}", 1000000));
    TEST_ASSERT_EQUAL_INT(0, read_nested(".global .u32 x = {", "{", "1", "}", "};", 1000000));
    TEST_ASSERT_EQUAL_INT(-EINVAL, read_nested(".global .u32 x = {", "{", "1", "", "};", 1000000));
}

static void every_prefix_of_a_module_is_read_or_refused(void)
{
    static const char whole[] =
        ".version 9.0\n.target sm_90, debug\n.file 1 \"a\"\n.global .align 4 .b8 s[4] = {1, 2};\n"
        ".alias a, b;\n.section .debug { .b8 1 }\n"
        ".visible .func (.param .b32 r) f (.param .b64 a) .noreturn { ret; }\n"
        ".entry k (.param .u64 p) .maxntid 1, 2, 3 { .reg .pred p<3>; /* c */ .loc 1 2 3\n"
        "ts: .branchtargets L, M; @!p1 ld.global.v2.u32 {%r1, _}, [%rd1+-4]; L: { .pragma \"x\"; "
        "}\n"
        "M: call (r), f, (a); mov.f32 %f1, 0f3F800000; mov.u32 %r, -(1 ? 2 : 3); frob <x>; ret; "
        "}\n";
    for (size_t n = 0; n < sizeof whole; n++) {
        int rc = read_all(whole, n);
        TEST_ASSERT_TRUE(rc == 0 || rc == -EINVAL);
        if (rc < 0)
            TEST_ASSERT_EQUAL_STRING_LEN("test.ptx:", t.err.text, 9);
        ptx_close(&t);
    }
}

static void every_single_byte_may_be_wrong(void)
{
    static const char whole[] = ".version 9.0\n.entry k (.param .u64 p) { .reg .b32 %r<3>; @!%p1 "
                                "ld.u32 {%r1}, [p+4]; L: bra L; }";
    static const char bytes[] = {0, '\n', '"', '/', '{', '}', ';', '.', '%', ':', '0', 'x', '\xff'};
    char text[sizeof whole];
    for (size_t i = 0; i + 1 < sizeof whole; i++) {
        for (size_t b = 0; b < sizeof bytes; b++) {
            memcpy(text, whole, sizeof whole);
            text[i] = bytes[b];
            int rc = read_all(text, sizeof whole - 1);
            TEST_ASSERT_TRUE(rc == 0 || rc == -EINVAL);
            ptx_close(&t);
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(an_instruction_without_semicolon_is_found_where_the_next_begins);
    RUN_TEST(operands_are_checked_one_by_one);
    RUN_TEST(numbers_that_are_none_are_shown);
    RUN_TEST(guards_are_checked);
    RUN_TEST(labels_are_checked);
    RUN_TEST(declarations_are_checked);
    RUN_TEST(statements_that_are_none_are_shown);
    RUN_TEST(tables_are_checked);
    RUN_TEST(headers_are_checked);
    RUN_TEST(module_scope_is_checked);
    RUN_TEST(unterminated_things_are_shown_where_they_begin);
    RUN_TEST(a_closing_bracket_without_an_opening_one_is_shown);
    RUN_TEST(columns_count_bytes_and_tabs_line_up);
    RUN_TEST(carriage_returns_do_not_move_the_caret);
    RUN_TEST(a_long_line_is_shown_around_the_mistake);
    RUN_TEST(a_long_file_name_does_not_overflow_the_message);
    RUN_TEST(nobody_has_to_take_the_message);
    RUN_TEST(nesting_is_bounded_everywhere);
    RUN_TEST(long_flat_things_are_not_nested);
    RUN_TEST(more_operands_than_a_count_can_hold_are_refused);
    RUN_TEST(nested_sections_and_initialisers_need_no_stack);
    RUN_TEST(every_prefix_of_a_module_is_read_or_refused);
    RUN_TEST(elements_that_are_not_understood_are_refused);
    RUN_TEST(every_single_byte_may_be_wrong);
    return UNITY_END();
}

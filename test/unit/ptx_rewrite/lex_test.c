/* Tokens: kinds, extents, places, and the moves that the index and the parser build on. */
#include "ptx_rewrite/lex.h"

#include <stdlib.h>
#include <string.h>
#include <unity.h>

static struct tl_buf seen;
static char *copy;

void setUp(void)
{
    seen = (struct tl_buf){0};
    copy = NULL;
}

void tearDown(void)
{
    tl_buf_finish(&seen);
    free(copy);
}

/* A lexer over a copy without terminator, so that AddressSanitizer sees any read past the end. */
static struct tl_lex lex(const char *text)
{
    struct tl_lex lx;
    size_t n = strlen(text);
    free(copy);
    copy = malloc(n > 0 ? n : 1);
    memcpy(copy, text, n);
    tl_lex_init(&lx, copy, 0, (uint32_t)n);
    return lx;
}

/* All tokens as "W:word D:.dotword N:number S:string P:punctuation B:bad". */
static const char *tokens(const char *text)
{
    static const char letters[] = {
        [TL_TOK_WORD] = 'W',   [TL_TOK_DOTWORD] = 'D', [TL_TOK_NUMBER] = 'N',
        [TL_TOK_STRING] = 'S', [TL_TOK_PUNCT] = 'P',   [TL_TOK_BAD] = 'B'};
    tl_buf_finish(&seen);
    struct tl_lex lx = lex(text);
    for (; lx.kind != TL_TOK_END; tl_lex_next(&lx)) {
        if (seen.n > 0)
            tl_buf_putc(&seen, ' ');
        tl_buf_putc(&seen, letters[lx.kind]);
        tl_buf_putc(&seen, ':');
        tl_buf_str(&seen, tl_lex_str(&lx));
    }
    tl_buf_puts(&seen, "");
    return seen.p;
}

#define ASSERT_TOKENS(expected, text) TEST_ASSERT_EQUAL_STRING(expected, tokens(text))

static void words_may_begin_with_percent_dollar_and_underscore(void)
{
    ASSERT_TOKENS("W:%r1 W:$L__BB0_2 W:_ZN3fooEv W:__$temp3 W:a$b W:_",
                  "%r1 $L__BB0_2 _ZN3fooEv __$temp3 a$b _");
}

static void a_percent_sign_inside_a_word_begins_another(void)
{
    ASSERT_TOKENS("W:a W:%b", "a%b");
}

static void an_opcode_and_its_modifiers_are_separate_words_at_first(void)
{
    ASSERT_TOKENS("W:ld D:.global D:.u32 W:%r1 P:, P:[ W:%rd1 P:] P:;",
                  "ld.global.u32 %r1, [%rd1];");
}

static void modifiers_may_have_double_colons_and_begin_with_digits(void)
{
    ASSERT_TOKENS("W:st D:.shared::cta D:.b32", "st.shared::cta.b32");
    ASSERT_TOKENS("W:ld D:.global D:.L1::evict_last D:.L2::cache_hint D:.v4",
                  "ld.global.L1::evict_last.L2::cache_hint.v4");
    ASSERT_TOKENS("W:tex D:.2d D:.v4", "tex.2d.v4");
    ASSERT_TOKENS("W:cp D:.shared::cluster::a", "cp.shared::cluster::a");
}

static void a_colon_behind_a_modifier_is_not_part_of_it(void)
{
    ASSERT_TOKENS("D:.a P:: W:b", ".a:b");
    ASSERT_TOKENS("D:.a P:: P::", ".a::");
}

static void extending_an_opcode_takes_modifiers_without_blanks_only(void)
{
    struct tl_lex lx = lex("ld.volatile.global.v2.u32 .x");
    tl_lex_extend_opcode(&lx);
    TEST_ASSERT_EQUAL_STRING_LEN("ld.volatile.global.v2.u32", copy + lx.at, 25);
    TEST_ASSERT_EQUAL_UINT32(25, lx.end);
    tl_lex_next(&lx);
    TEST_ASSERT_EQUAL_INT(TL_TOK_DOTWORD, lx.kind);
    TEST_ASSERT_TRUE(tl_lex_is_dotword(&lx, "x"));
}

static void all_integer_literals_are_numbers(void)
{
    ASSERT_TOKENS("N:0 N:42 N:0x1F N:0XffU N:0b101 N:017 N:5U", "0 42 0x1F 0XffU 0b101 017 5U");
}

static void all_float_literals_are_numbers(void)
{
    ASSERT_TOKENS("N:0f3F800000 N:0F3f800000 N:0d3FF0000000000000 N:0D0",
                  "0f3F800000 0F3f800000 0d3FF0000000000000 0D0");
    ASSERT_TOKENS("N:1.5 N:2. N:1e10 N:1.5e-3 N:2E+7 N:0e5 N:0e+5 N:9.0",
                  "1.5 2. 1e10 1.5e-3 2E+7 0e5 0e+5 9.0");
}

static void a_hex_literal_that_ends_in_e_does_not_eat_a_sign(void)
{
    ASSERT_TOKENS("N:0x1e P:+ N:4", "0x1e+4");
    ASSERT_TOKENS("N:0f3F80000e P:- N:1", "0f3F80000e-1");
}

static void a_number_next_to_a_dot_modifier_does_not_eat_it(void)
{
    ASSERT_TOKENS("N:0x10 D:.u32", "0x10.u32");
}

static void signs_are_punctuation(void)
{
    ASSERT_TOKENS("P:- N:1 P:+ P:- N:4", "-1 +-4");
}

static void strings_keep_their_quotes_and_escapes(void)
{
    ASSERT_TOKENS("S:\"nounroll\" P:;", "\"nounroll\";");
    ASSERT_TOKENS("S:\"a\\\"b\" S:\"c\\\\\"", "\"a\\\"b\" \"c\\\\\"");
    ASSERT_TOKENS("S:\"// no comment /* here\"", "\"// no comment /* here\"");
}

static void comments_are_blanks(void)
{
    ASSERT_TOKENS("W:a W:b W:c W:d", "a // x y\nb /* p\n q */c/**/d //");
    ASSERT_TOKENS("W:a P:/ W:b", "a / b");
    ASSERT_TOKENS("W:a", "/***/a/* * / **/");
}

static void a_preprocessors_line_is_a_comment(void)
{
    ASSERT_TOKENS("W:a W:b", "a\n# 1 \"file.ptx\"\nb");
}

static void every_kind_of_blank_separates(void)
{
    ASSERT_TOKENS("W:a W:b W:c W:d W:e W:f", "a b\tc\rd\fe\r\n\vf");
}

static void an_unterminated_comment_is_bad_to_the_end(void)
{
    ASSERT_TOKENS("W:a B:/* b", "a /* b");
    ASSERT_TOKENS("B:/*", "/*");
    ASSERT_TOKENS("B:/*/", "/*/");
}

static void an_unterminated_string_is_bad(void)
{
    ASSERT_TOKENS("W:a B:\"b", "a \"b");
    ASSERT_TOKENS("B:\"a\nb", "\"a\nb");
    ASSERT_TOKENS("B:\"a\\", "\"a\\");
}

static void a_byte_that_starts_nothing_is_bad_by_itself(void)
{
    ASSERT_TOKENS("W:a B:` W:b B:\\ B:. B:'", "a`b\\.'");
    ASSERT_TOKENS("B:\xff B:\xc3 B:\xa9", "\xff\xc3\xa9");
}

static void every_operator_of_constant_expressions_is_punctuation(void)
{
    ASSERT_TOKENS("P:+ P:- P:* P:/ P:< P:< P:> P:= P:= P:! P:& P:| P:^ P:~ P:? P:: P:( P:) P:{ P:} "
                  "P:[ P:] P:@",
                  "+ - * / << > == ! & | ^ ~ ? : ( ) { } [ ] @");
}

static void no_text_is_the_end_and_stays_the_end(void)
{
    struct tl_lex lx = lex("");
    TEST_ASSERT_EQUAL_INT(TL_TOK_END, lx.kind);
    tl_lex_next(&lx);
    TEST_ASSERT_EQUAL_INT(TL_TOK_END, lx.kind);
    TEST_ASSERT_EQUAL_UINT32(0, lx.at);
}

static void a_limit_cuts_the_text(void)
{
    struct tl_lex lx;
    tl_lex_init(&lx, "abc def", 0, 5);
    tl_lex_next(&lx);
    TEST_ASSERT_EQUAL_UINT32(4, lx.at);
    TEST_ASSERT_EQUAL_UINT32(5, lx.end);
    tl_lex_next(&lx);
    TEST_ASSERT_EQUAL_INT(TL_TOK_END, lx.kind);
}

static void a_token_knows_whether_it_is_first_on_its_line(void)
{
    struct tl_lex lx = lex("a b\n c /* x\n */ d // y\ne");
    static const bool first[] = {false, false, true, true, true};
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++, tl_lex_next(&lx)) {
        TEST_ASSERT_EQUAL_INT(TL_TOK_WORD, lx.kind);
        TEST_ASSERT_EQUAL_INT_MESSAGE(first[i], lx.first_on_line, "token by number");
    }
}

static void a_token_knows_where_the_one_before_it_ended(void)
{
    struct tl_lex lx = lex("ab  cd");
    tl_lex_next(&lx);
    TEST_ASSERT_EQUAL_UINT32(2, lx.previous_end);
    TEST_ASSERT_EQUAL_UINT32(4, lx.at);
}

static void skipping_braces_ends_behind_the_matching_one(void)
{
    struct tl_lex lx = lex("{ a { b } { } c } next");
    TEST_ASSERT_TRUE(tl_lex_skip_braces(&lx));
    TEST_ASSERT_EQUAL_STRING_LEN("next", copy + lx.at, 4);
    TEST_ASSERT_EQUAL_UINT32(17, lx.previous_end);
}

static void braces_in_strings_and_comments_do_not_count(void)
{
    struct tl_lex lx = lex("{ \"}\" // }\n /* } */ # }\n a } next");
    TEST_ASSERT_TRUE(tl_lex_skip_braces(&lx));
    TEST_ASSERT_EQUAL_STRING_LEN("next", copy + lx.at, 4);
}

static void a_brace_that_never_closes_ends_at_the_end(void)
{
    struct tl_lex lx = lex("{ { }");
    TEST_ASSERT_FALSE(tl_lex_skip_braces(&lx));
    TEST_ASSERT_EQUAL_INT(TL_TOK_END, lx.kind);
    lx = lex("{ \"}");
    TEST_ASSERT_FALSE(tl_lex_skip_braces(&lx));
    lx = lex("{ /* }");
    TEST_ASSERT_FALSE(tl_lex_skip_braces(&lx));
}

static void an_initialiser_ends_at_a_comma_or_semicolon_outside_brackets(void)
{
    struct tl_lex lx = lex("{1, {2, 3}, mask(a, 4)}, next;");
    TEST_ASSERT_TRUE(tl_lex_skip_initialiser(&lx));
    TEST_ASSERT_TRUE(tl_lex_is(&lx, ','));
    tl_lex_next(&lx);
    TEST_ASSERT_TRUE(tl_lex_skip_initialiser(&lx));
    TEST_ASSERT_TRUE(tl_lex_is(&lx, ';'));
    lx = lex("{1, 2");
    TEST_ASSERT_FALSE(tl_lex_skip_initialiser(&lx));
    lx = lex("{);");
    TEST_ASSERT_FALSE(tl_lex_skip_initialiser(&lx));
    lx = lex("1 } ;");
    TEST_ASSERT_FALSE(tl_lex_skip_initialiser(&lx));
}

static bool is_label(const char *text)
{
    struct tl_lex lx = lex(text);
    return tl_lex_is_label(&lx);
}

static void a_word_before_a_single_colon_is_a_label(void)
{
    TEST_ASSERT_TRUE(is_label("L:"));
    TEST_ASSERT_TRUE(is_label("L : x"));
    TEST_ASSERT_FALSE(is_label("L::x"));
    TEST_ASSERT_FALSE(is_label("L x:"));
    TEST_ASSERT_FALSE(is_label("L"));
}

/* ptxas takes a label whose colon stands behind a comment or on the next line. */
static void a_label_and_its_colon_may_stand_apart(void)
{
    TEST_ASSERT_TRUE(is_label("L /* c */ : x"));
    TEST_ASSERT_TRUE(is_label("L // c\n\n\t: x"));
    TEST_ASSERT_FALSE(is_label("L /* : */ x"));
    TEST_ASSERT_FALSE(is_label("L /* c"));
}

static void places_count_lines_and_columns_from_one(void)
{
    const char *text = "ab\ncd\n\nx";
    static const struct {
        uint32_t offset, line, column;
    } cases[] = {{0, 1, 1}, {1, 1, 2}, {2, 1, 3}, {3, 2, 1}, {5, 2, 3},
                 {6, 3, 1}, {7, 4, 1}, {8, 4, 2}, {99, 4, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tl_ptx_place place = tl_ptx_place_of(text, strlen(text), cases[i].offset);
        TEST_ASSERT_EQUAL_UINT32(cases[i].line, place.line);
        TEST_ASSERT_EQUAL_UINT32(cases[i].column, place.column);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(words_may_begin_with_percent_dollar_and_underscore);
    RUN_TEST(a_percent_sign_inside_a_word_begins_another);
    RUN_TEST(an_opcode_and_its_modifiers_are_separate_words_at_first);
    RUN_TEST(modifiers_may_have_double_colons_and_begin_with_digits);
    RUN_TEST(a_colon_behind_a_modifier_is_not_part_of_it);
    RUN_TEST(extending_an_opcode_takes_modifiers_without_blanks_only);
    RUN_TEST(all_integer_literals_are_numbers);
    RUN_TEST(all_float_literals_are_numbers);
    RUN_TEST(a_hex_literal_that_ends_in_e_does_not_eat_a_sign);
    RUN_TEST(a_number_next_to_a_dot_modifier_does_not_eat_it);
    RUN_TEST(signs_are_punctuation);
    RUN_TEST(strings_keep_their_quotes_and_escapes);
    RUN_TEST(comments_are_blanks);
    RUN_TEST(a_preprocessors_line_is_a_comment);
    RUN_TEST(every_kind_of_blank_separates);
    RUN_TEST(an_unterminated_comment_is_bad_to_the_end);
    RUN_TEST(an_unterminated_string_is_bad);
    RUN_TEST(a_byte_that_starts_nothing_is_bad_by_itself);
    RUN_TEST(every_operator_of_constant_expressions_is_punctuation);
    RUN_TEST(no_text_is_the_end_and_stays_the_end);
    RUN_TEST(a_limit_cuts_the_text);
    RUN_TEST(a_token_knows_whether_it_is_first_on_its_line);
    RUN_TEST(a_token_knows_where_the_one_before_it_ended);
    RUN_TEST(skipping_braces_ends_behind_the_matching_one);
    RUN_TEST(braces_in_strings_and_comments_do_not_count);
    RUN_TEST(a_brace_that_never_closes_ends_at_the_end);
    RUN_TEST(an_initialiser_ends_at_a_comma_or_semicolon_outside_brackets);
    RUN_TEST(a_word_before_a_single_colon_is_a_label);
    RUN_TEST(a_label_and_its_colon_may_stand_apart);
    RUN_TEST(places_count_lines_and_columns_from_one);
    return UNITY_END();
}

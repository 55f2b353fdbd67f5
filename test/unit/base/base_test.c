/* The ground that everything stands on: slices, errors, arena, growing text, JSON. */
#include "tally/base.h"
#include "tally/hash.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

static struct tl_arena arena;
static struct tl_buf buf;
static struct tl_json json;

void setUp(void)
{
    tl_arena_init(&arena, 0);
    buf = (struct tl_buf){0};
    tl_json_init(&json, &buf);
}

void tearDown(void)
{
    tl_arena_finish(&arena);
    tl_buf_finish(&buf);
}

/* --- slices */

static void slices_compare_by_content_and_length(void)
{
    struct tl_str abc = TL_STR("abc");
    TEST_ASSERT_TRUE(tl_str_eq(abc, tl_str_of("abc")));
    TEST_ASSERT_FALSE(tl_str_eq(abc, tl_str_of("abd")));
    TEST_ASSERT_FALSE(tl_str_eq(abc, tl_str_of("abcd")));
    TEST_ASSERT_TRUE(tl_str_is(abc, "abc"));
    TEST_ASSERT_FALSE(tl_str_is(abc, "ab"));
    TEST_ASSERT_TRUE(tl_str_eq((struct tl_str){"abcdef", 3}, abc));
}

static void a_null_text_is_the_empty_slice(void)
{
    TEST_ASSERT_EQUAL_UINT32(0, tl_str_of(NULL).n);
    TEST_ASSERT_TRUE(tl_str_eq(tl_str_of(NULL), TL_STR("")));
    TEST_ASSERT_TRUE(tl_str_is(tl_str_of(NULL), ""));
}

static void a_prefix_is_found_only_where_it_fits(void)
{
    TEST_ASSERT_TRUE(tl_str_starts(TL_STR("%ctaid.x"), "%ctaid"));
    TEST_ASSERT_TRUE(tl_str_starts(TL_STR("abc"), ""));
    TEST_ASSERT_TRUE(tl_str_starts(TL_STR("abc"), "abc"));
    TEST_ASSERT_FALSE(tl_str_starts((struct tl_str){"abcdef", 2}, "abc"));
}

static void the_hash_is_fnv_1a(void)
{
    TEST_ASSERT_EQUAL_HEX32(0x811C9DC5, tl_hash("", 0));
    TEST_ASSERT_EQUAL_HEX32(0xE40C292C, tl_hash("a", 1));
    TEST_ASSERT_EQUAL_HEX32(0xBF9CF968, tl_hash("foobar", 6));
}

/* --- errors */

static void an_error_carries_code_and_text(void)
{
    struct tl_error err;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_error_set(&err, -EINVAL, "line %d", 7));
    TEST_ASSERT_EQUAL_INT(-EINVAL, err.code);
    TEST_ASSERT_EQUAL_STRING("line 7", err.text);
}

static void nobody_has_to_take_an_error(void)
{
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl_error_set(NULL, -ENOMEM, "not seen"));
    errno = ENOENT;
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_error_errno(NULL, "not seen"));
}

static void an_errno_error_tells_what_the_system_said(void)
{
    struct tl_error err;
    errno = ENOENT;
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_error_errno(&err, "open %s", "x"));
    TEST_ASSERT_EQUAL_INT(-ENOENT, err.code);
    TEST_ASSERT_EQUAL_STRING("open x: No such file or directory", err.text);
}

static void a_long_error_is_cut_and_stays_terminated(void)
{
    struct tl_error err;
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    tl_error_set(&err, -EINVAL, "%s", longer);
    TEST_ASSERT_EQUAL_size_t(sizeof err.text - 1, strlen(err.text));
    errno = EIO;
    TEST_ASSERT_EQUAL_INT(-EIO, tl_error_errno(&err, "%s", longer));
    TEST_ASSERT_EQUAL_size_t(sizeof err.text - 1, strlen(err.text));
}

/* What errors quote may be hostile: terminals and logs take it as text. */
static void an_error_tells_terminals_nothing(void)
{
    struct tl_error err;
    tl_error_set(&err, -EINVAL, "line 1: %s!\nline 2", "\033[2J\xc2\x9b");
    TEST_ASSERT_EQUAL_STRING("line 1: ?[2J?"
                             "?!\nline 2",
                             err.text);
    errno = ENOENT;
    tl_error_errno(&err, "open %s", "\r\033c");
    TEST_ASSERT_EQUAL_STRING("open ??c: No such file or directory", err.text);
}

/* --- arena */

static void arena_memory_is_aligned_and_does_not_overlap(void)
{
    unsigned char *blocks[200];
    for (size_t i = 0; i < 200; i++) {
        size_t n = i * 37 + 1;
        blocks[i] = tl_arena_alloc(&arena, n);
        TEST_ASSERT_NOT_NULL(blocks[i]);
        TEST_ASSERT_EQUAL_UINT(0, (uintptr_t)blocks[i] % 8);
        memset(blocks[i], (int)i, n);
    }
    for (size_t i = 0; i < 200; i++)
        TEST_ASSERT_EACH_EQUAL_HEX8((unsigned char)i, blocks[i], i * 37 + 1);
}

static void zeroed_arena_memory_is_zero(void)
{
    unsigned char *p = tl_arena_zalloc(&arena, 50000);
    TEST_ASSERT_NOT_NULL(p);
    TEST_ASSERT_EACH_EQUAL_HEX8(0, p, 50000);
}

static void an_arena_refuses_what_is_over_its_limit(void)
{
    tl_arena_init(&arena, 64 << 10);
    TEST_ASSERT_NULL(tl_arena_alloc(&arena, 100 << 10));
    size_t got = 0;
    while (tl_arena_alloc(&arena, 1000) != NULL)
        got += 1000;
    TEST_ASSERT_GREATER_THAN(10 << 10, got);
    TEST_ASSERT_LESS_OR_EQUAL(64 << 10, got);
    TEST_ASSERT_LESS_OR_EQUAL(64 << 10, arena.bytes);
}

static void an_absurd_size_is_refused_without_a_limit(void)
{
    TEST_ASSERT_NULL(tl_arena_alloc(&arena, SIZE_MAX));
    TEST_ASSERT_NULL(tl_arena_alloc(&arena, SIZE_MAX - 7));
    TEST_ASSERT_NULL(tl_arena_zalloc(&arena, SIZE_MAX / 2));
    TEST_ASSERT_NOT_NULL(tl_arena_alloc(&arena, 1));
}

static void arena_texts_are_terminated_copies(void)
{
    char source[] = "kernel";
    char *copy = tl_arena_copy(&arena, (struct tl_str){source, 4});
    source[0] = 'X';
    TEST_ASSERT_EQUAL_STRING("kern", copy);
    TEST_ASSERT_EQUAL_STRING("", tl_arena_copy(&arena, tl_str_of(NULL)));
    TEST_ASSERT_EQUAL_STRING("vadd__tally_slice1",
                             tl_arena_printf(&arena, "%s__tally_%s%d", "vadd", "slice", 1));
}

static void finishing_an_arena_twice_is_harmless(void)
{
    TEST_ASSERT_NOT_NULL(tl_arena_alloc(&arena, 10));
    tl_arena_finish(&arena);
    tl_arena_finish(&arena);
    TEST_ASSERT_EQUAL_size_t(0, arena.bytes);
    struct tl_arena zero = {0};
    tl_arena_finish(&zero);
}

/* --- growing text */

static void text_grows_and_stays_terminated(void)
{
    for (int i = 0; i < 10000; i++) {
        tl_buf_printf(&buf, "%04d", i);
        TEST_ASSERT_EQUAL_INT(0, buf.p[buf.n]);
    }
    TEST_ASSERT_EQUAL_size_t(40000, buf.n);
    TEST_ASSERT_EQUAL_STRING_LEN("000000010002", buf.p, 12);
    TEST_ASSERT_EQUAL_STRING("9999", buf.p + 39996);
    TEST_ASSERT_FALSE(buf.failed);
}

static void every_way_of_adding_text_adds_it(void)
{
    tl_buf_add(&buf, "a\0b", 3);
    tl_buf_puts(&buf, "cd");
    tl_buf_str(&buf, (struct tl_str){"efgh", 2});
    tl_buf_putc(&buf, '!');
    TEST_ASSERT_EQUAL_size_t(8, buf.n);
    TEST_ASSERT_EQUAL_MEMORY("a\0bcdef!", buf.p, 9);
}

static void a_failed_buffer_gives_no_text(void)
{
    tl_buf_puts(&buf, "half of it");
    tl_buf_add(&buf, "x", SIZE_MAX / 2);
    TEST_ASSERT_TRUE(buf.failed);
    tl_buf_puts(&buf, "ignored");
    TEST_ASSERT_NULL(tl_buf_take(&buf));
    TEST_ASSERT_FALSE(buf.failed);
}

static void taking_the_text_empties_the_buffer(void)
{
    tl_buf_puts(&buf, "mine");
    char *text = tl_buf_take(&buf);
    TEST_ASSERT_EQUAL_STRING("mine", text);
    TEST_ASSERT_EQUAL_size_t(0, buf.n);
    free(text);
    text = tl_buf_take(&buf);
    TEST_ASSERT_EQUAL_STRING("", text);
    free(text);
}

/* --- JSON */

static void json_is_indented_by_two_spaces(void)
{
    tl_json_object(&json);
    tl_json_key(&json, "kernels");
    tl_json_array(&json);
    tl_json_object(&json);
    tl_json_key(&json, "name");
    tl_json_str(&json, TL_STR("vadd"));
    tl_json_key(&json, "slice");
    tl_json_bool(&json, true);
    tl_json_end_object(&json);
    tl_json_int(&json, 1);
    tl_json_end_array(&json);
    tl_json_key(&json, "note");
    tl_json_null(&json);
    tl_json_end_object(&json);
    TEST_ASSERT_EQUAL_STRING("{\n"
                             "  \"kernels\": [\n"
                             "    {\n"
                             "      \"name\": \"vadd\",\n"
                             "      \"slice\": true\n"
                             "    },\n"
                             "    1\n"
                             "  ],\n"
                             "  \"note\": null\n"
                             "}",
                             buf.p);
}

static void empty_json_containers_stay_on_one_line(void)
{
    tl_json_array(&json);
    tl_json_object(&json);
    tl_json_end_object(&json);
    tl_json_array(&json);
    tl_json_end_array(&json);
    tl_json_end_array(&json);
    TEST_ASSERT_EQUAL_STRING("[\n  {},\n  []\n]", buf.p);
}

static void a_sibling_after_a_filled_level_starts_clean(void)
{
    tl_json_array(&json);
    tl_json_array(&json);
    tl_json_int(&json, 1);
    tl_json_end_array(&json);
    tl_json_array(&json);
    tl_json_int(&json, 2);
    tl_json_end_array(&json);
    tl_json_end_array(&json);
    TEST_ASSERT_EQUAL_STRING("[\n  [\n    1\n  ],\n  [\n    2\n  ]\n]", buf.p);
}

static void sixty_levels_of_json_close_properly(void)
{
    for (int i = 0; i < 60; i++)
        tl_json_array(&json);
    for (int i = 0; i < 60; i++)
        tl_json_end_array(&json);
    TEST_ASSERT_EQUAL_UINT32(0, json.depth);
    TEST_ASSERT_EQUAL_STRING("\n]", buf.p + buf.n - 2);
}

static void integers_keep_all_their_digits(void)
{
    tl_json_array(&json);
    tl_json_int(&json, INT64_MIN);
    tl_json_int(&json, 9007199254740993);
    tl_json_uint(&json, UINT64_MAX);
    tl_json_end_array(&json);
    TEST_ASSERT_EQUAL_STRING(
        "[\n  -9223372036854775808,\n  9007199254740993,\n  18446744073709551615\n]", buf.p);
}

static void expect_double(const char *text, double value)
{
    struct tl_buf out = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    tl_json_double(&j, value);
    TEST_ASSERT_EQUAL_STRING(text, out.p);
    tl_buf_finish(&out);
}

static void doubles_read_back_as_they_were(void)
{
    expect_double("0.1", 0.1);
    expect_double("0", 0);
    expect_double("-2.5", -2.5);
    expect_double("1e+300", 1e300);
    expect_double("0.30000000000000004", 0.1 + 0.2);
}

static void what_is_no_number_becomes_null(void)
{
    expect_double("null", (double)NAN);
    expect_double("null", (double)INFINITY);
    expect_double("null", -(double)INFINITY);
}

static void a_decimal_comma_of_the_locale_does_not_leak(void)
{
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL &&
        setlocale(LC_NUMERIC, "fr_FR.UTF-8") == NULL)
        TEST_IGNORE_MESSAGE("no locale with a decimal comma is installed");
    expect_double("-2.5", -2.5);
    setlocale(LC_NUMERIC, "C");
}

static void expect_string(const char *text, const char *bytes, uint32_t n)
{
    struct tl_buf out = {0};
    struct tl_json j;
    tl_json_init(&j, &out);
    tl_json_str(&j, (struct tl_str){bytes, n});
    TEST_ASSERT_EQUAL_STRING(text, out.p);
    tl_buf_finish(&out);
}

#define EXPECT_STRING(text, bytes) expect_string("\"" text "\"", bytes, sizeof(bytes) - 1)
#define REPLACED "\xEF\xBF\xBD"

static void quotes_backslashes_and_controls_are_escaped(void)
{
    EXPECT_STRING("say \\\"hi\\\"", "say \"hi\"");
    EXPECT_STRING("a\\\\b", "a\\b");
    EXPECT_STRING("\\n\\r\\t\\u0000\\u001f\\u007f/", "\n\r\t\0\x1F\x7F/");
    EXPECT_STRING("\\u0080 \\u009b", "\xC2\x80 \xC2\x9B"); /* C1, which terminals obey as well */
    expect_string("\"\"", NULL, 0);
}

static void keys_are_escaped_too(void)
{
    tl_json_object(&json);
    tl_json_key(&json, "a\"b");
    tl_json_int(&json, -1);
    tl_json_end_object(&json);
    TEST_ASSERT_EQUAL_STRING("{\n  \"a\\\"b\": -1\n}", buf.p);
}

static void well_formed_utf8_goes_out_unchanged(void)
{
    EXPECT_STRING("\xC2\xA0 \xDF\xBF", "\xC2\xA0 \xDF\xBF");
    EXPECT_STRING("\xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF",
                  "\xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF");
    EXPECT_STRING("\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF", "\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF");
}

static void bytes_that_are_not_utf8_are_replaced_one_by_one(void)
{
    EXPECT_STRING("a" REPLACED "b", "a\xFF"
                                    "b");
    /* a continuation alone */
    EXPECT_STRING(REPLACED, "\x80");
    EXPECT_STRING(REPLACED REPLACED, "\xC0\x80");                           /* overlong NUL */
    EXPECT_STRING(REPLACED REPLACED REPLACED, "\xE0\x9F\xBF");              /* overlong */
    EXPECT_STRING(REPLACED REPLACED REPLACED, "\xED\xA0\x80");              /* a surrogate */
    EXPECT_STRING(REPLACED REPLACED REPLACED REPLACED, "\xF4\x90\x80\x80"); /* above U+10FFFF */
    EXPECT_STRING(REPLACED REPLACED REPLACED REPLACED, "\xF0\x8F\xBF\xBF"); /* overlong */
}

static void a_sequence_cut_off_at_the_end_is_replaced(void)
{
    EXPECT_STRING("x" REPLACED, "x\xC3");
    EXPECT_STRING("x" REPLACED REPLACED, "x\xE2\x82");
    EXPECT_STRING("x" REPLACED REPLACED REPLACED, "x\xF0\x9F\x98");
    EXPECT_STRING(REPLACED "\\\"", "\xE2\"");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(slices_compare_by_content_and_length);
    RUN_TEST(a_null_text_is_the_empty_slice);
    RUN_TEST(a_prefix_is_found_only_where_it_fits);
    RUN_TEST(the_hash_is_fnv_1a);
    RUN_TEST(an_error_carries_code_and_text);
    RUN_TEST(nobody_has_to_take_an_error);
    RUN_TEST(an_errno_error_tells_what_the_system_said);
    RUN_TEST(a_long_error_is_cut_and_stays_terminated);
    RUN_TEST(an_error_tells_terminals_nothing);
    RUN_TEST(arena_memory_is_aligned_and_does_not_overlap);
    RUN_TEST(zeroed_arena_memory_is_zero);
    RUN_TEST(an_arena_refuses_what_is_over_its_limit);
    RUN_TEST(an_absurd_size_is_refused_without_a_limit);
    RUN_TEST(arena_texts_are_terminated_copies);
    RUN_TEST(finishing_an_arena_twice_is_harmless);
    RUN_TEST(text_grows_and_stays_terminated);
    RUN_TEST(every_way_of_adding_text_adds_it);
    RUN_TEST(a_failed_buffer_gives_no_text);
    RUN_TEST(taking_the_text_empties_the_buffer);
    RUN_TEST(json_is_indented_by_two_spaces);
    RUN_TEST(empty_json_containers_stay_on_one_line);
    RUN_TEST(a_sibling_after_a_filled_level_starts_clean);
    RUN_TEST(sixty_levels_of_json_close_properly);
    RUN_TEST(integers_keep_all_their_digits);
    RUN_TEST(doubles_read_back_as_they_were);
    RUN_TEST(what_is_no_number_becomes_null);
    RUN_TEST(a_decimal_comma_of_the_locale_does_not_leak);
    RUN_TEST(quotes_backslashes_and_controls_are_escaped);
    RUN_TEST(keys_are_escaped_too);
    RUN_TEST(well_formed_utf8_goes_out_unchanged);
    RUN_TEST(bytes_that_are_not_utf8_are_replaced_one_by_one);
    RUN_TEST(a_sequence_cut_off_at_the_end_is_replaced);
    return UNITY_END();
}

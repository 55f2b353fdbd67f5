/* Numbers for people, at the edges where the unit or the number of digits changes. */
#include "tally/text.h"

#include <stdio.h>
#include <string.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void times_have_three_digits_and_a_unit(void)
{
    TEST_ASSERT_EQUAL_STRING("0 ns", tl_text_time(0).s);
    TEST_ASSERT_EQUAL_STRING("999 ns", tl_text_time(999.4).s);
    TEST_ASSERT_EQUAL_STRING("1.00 us", tl_text_time(999.6).s);
    TEST_ASSERT_EQUAL_STRING("12.3 us", tl_text_time(12345).s);
    TEST_ASSERT_EQUAL_STRING("999 us", tl_text_time(999.4e3).s);
    TEST_ASSERT_EQUAL_STRING("1.00 ms", tl_text_time(999.6e3).s);
    TEST_ASSERT_EQUAL_STRING("1.00 s", tl_text_time(999.6e6).s);
    TEST_ASSERT_EQUAL_STRING("4567 s", tl_text_time(4567e9).s);
}

static void counts_are_exact_while_they_are_short(void)
{
    TEST_ASSERT_EQUAL_STRING("0", tl_text_count(0).s);
    TEST_ASSERT_EQUAL_STRING("2.5", tl_text_count(2.5).s);
    TEST_ASSERT_EQUAL_STRING("1,234", tl_text_count(1234).s);
    TEST_ASSERT_EQUAL_STRING("99,999", tl_text_count(99999).s);
    TEST_ASSERT_EQUAL_STRING("100 k", tl_text_count(100000).s);
    TEST_ASSERT_EQUAL_STRING("12.3 M", tl_text_count(12345678).s);
}

static void sizes_are_in_powers_of_a_thousand(void)
{
    TEST_ASSERT_EQUAL_STRING("999 B", tl_text_bytes(999).s);
    TEST_ASSERT_EQUAL_STRING("1.00 KB", tl_text_bytes(1000).s);
    TEST_ASSERT_EQUAL_STRING("3.60 MB", tl_text_bytes(3.6e6).s);
    TEST_ASSERT_EQUAL_STRING("12.3 GB", tl_text_bytes(12.345e9).s);
}

static void every_digit_is_there_in_groups_of_three(void)
{
    TEST_ASSERT_EQUAL_STRING("0", tl_text_digits(0).s);
    TEST_ASSERT_EQUAL_STRING("999", tl_text_digits(999).s);
    TEST_ASSERT_EQUAL_STRING("1,000", tl_text_digits(1000).s);
    TEST_ASSERT_EQUAL_STRING("18,446,744,073,709,551,615", tl_text_digits(UINT64_MAX).s);
}

static void only_all_of_it_is_a_hundred_percent(void)
{
    TEST_ASSERT_EQUAL_STRING("-", tl_text_share(0, 0).s);
    TEST_ASSERT_EQUAL_STRING("99.9 %", tl_text_share(99999, 100000).s);
    TEST_ASSERT_EQUAL_STRING("100.0 %", tl_text_share(7, 7).s);
    TEST_ASSERT_EQUAL_STRING("< 0.1 %", tl_text_percent(0.0001).s);
    TEST_ASSERT_EQUAL_STRING("3.1 %", tl_text_percent(0.031).s);
}

static void a_text_stays_a_text_in_html(void)
{
    struct tl_buf b = {0};
    tl_text_html(&b, "a<b>&\"c\"'\xc3\xa4");
    TEST_ASSERT_EQUAL_STRING("a&lt;b&gt;&amp;&quot;c&quot;&#39;\xc3\xa4", b.p);
    tl_buf_finish(&b);
}

static const char *cleaned(const char *text, bool has_lines)
{
    static char copy[128];
    snprintf(copy, sizeof copy, "%s", text);
    tl_text_clean(copy, strlen(copy), has_lines);
    return copy;
}

/* Each of these makes some terminal do something. */
static void terminals_are_told_nothing(void)
{
    TEST_ASSERT_EQUAL_STRING("?]0;title?", cleaned("\033]0;title\a", false));
    TEST_ASSERT_EQUAL_STRING("a?b?c", cleaned("a\rb\177c", true));
    TEST_ASSERT_EQUAL_STRING("??31m", cleaned("\xc2\x9b"
                                              "31m",
                                              false)); /* CSI in one character */
    TEST_ASSERT_EQUAL_STRING("?31m", cleaned("\x9b"
                                             "31m",
                                             false)); /* without UTF-8 */
    TEST_ASSERT_EQUAL_STRING("a?b?c", cleaned("a\nb\tc", false));
    TEST_ASSERT_EQUAL_STRING("a\nb\tc", cleaned("a\nb\tc", true));
}

static void what_can_be_read_stays(void)
{
    const char *text = "plain ~ \xc2\xa0\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";
    TEST_ASSERT_EQUAL_STRING(text, cleaned(text, false));
    TEST_ASSERT_EQUAL_STRING("??", cleaned("\xc0\x9b", false)); /* overlong: an escape */
    TEST_ASSERT_EQUAL_STRING("???", cleaned("\xed\xa0\x80", false));
    TEST_ASSERT_EQUAL_STRING("?", cleaned("\xe2", false)); /* cut off */
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(times_have_three_digits_and_a_unit);
    RUN_TEST(counts_are_exact_while_they_are_short);
    RUN_TEST(sizes_are_in_powers_of_a_thousand);
    RUN_TEST(every_digit_is_there_in_groups_of_three);
    RUN_TEST(only_all_of_it_is_a_hundred_percent);
    RUN_TEST(a_text_stays_a_text_in_html);
    RUN_TEST(terminals_are_told_nothing);
    RUN_TEST(what_can_be_read_stays);
    return UNITY_END();
}

/* Levels as people write them. */
#include "tally/level.h"

#include <errno.h>
#include <stddef.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void levels_are_words_or_numbers(void)
{
    static const char *const bad[] = {
        "", "High", "101", "-101", "1.5", "--3", "3x", "-", "99999999999999999999"};
    int level;
    TEST_ASSERT_EQUAL_INT(0, tl_level_parse("high", &level));
    TEST_ASSERT_EQUAL_INT(100, level);
    TEST_ASSERT_EQUAL_INT(0, tl_level_parse("low", &level));
    TEST_ASSERT_EQUAL_INT(-100, level);
    TEST_ASSERT_EQUAL_INT(0, tl_level_parse("-7", &level));
    TEST_ASSERT_EQUAL_INT(-7, level);
    TEST_ASSERT_EQUAL_INT(0, tl_level_parse("+100", &level));
    TEST_ASSERT_EQUAL_INT(100, level);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, tl_level_parse(bad[i], &level), bad[i]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(levels_are_words_or_numbers);
    return UNITY_END();
}

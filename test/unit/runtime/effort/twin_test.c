/* The PTX that a variant is made of is that of the code that the driver runs, or there is none. */
#include "runtime/effort/twin.h"

#include <errno.h>
#include <string.h>
#include <unity.h>

#include "tally/digest.h"

static uint8_t digests[8][TL_DIGEST_BYTES];

void setUp(void)
{
    for (uint32_t i = 0; i < 8; i++)
        memset(digests[i], (int)i, sizeof digests[i]);
}

void tearDown(void)
{
}

static struct tl_error err;

/* The twin among texts for those targets, each of another digest. */
static int twin_of(int ptx_version, const char *a, const char *b, const char *c)
{
    const char *const targets[] = {a, b, c};
    struct tl_eff_twin list[3];
    uint32_t n = 0;
    for (; n < 3 && targets[n] != NULL; n++)
        list[n] = (struct tl_eff_twin){tl_str_of(targets[n]), digests[n]};
    return tl_eff_twin_of(list, n, ptx_version, &err);
}

static void the_text_of_the_same_architecture_is_taken(void)
{
    TEST_ASSERT_EQUAL_INT(0, twin_of(90, "sm_90", "sm_80", "sm_75"));
    TEST_ASSERT_EQUAL_INT(1, twin_of(80, "sm_90", "sm_80", "sm_75"));
    TEST_ASSERT_EQUAL_INT(2, twin_of(120, "sm_90", "sm_80", "sm_120"));
    TEST_ASSERT_EQUAL_INT(0, twin_of(90, "sm_90a", "sm_80", NULL));
    TEST_ASSERT_EQUAL_INT(1, twin_of(100, "sm_90a", "sm_100f", NULL));
}

static void another_architectures_text_is_not(void)
{
    TEST_ASSERT_EQUAL_INT(-ENOENT, twin_of(90, "sm_80", "sm_75", NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "compute_90"), err.text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "sm_80"), err.text);
    TEST_ASSERT_EQUAL_INT(-ENOENT, twin_of(9, "sm_90", NULL, NULL));
    TEST_ASSERT_EQUAL_INT(-ENOENT, twin_of(90, NULL, NULL, NULL));
}

static void two_that_cannot_be_told_apart_are_refused(void)
{
    TEST_ASSERT_EQUAL_INT(-EMLINK, twin_of(90, "sm_90", "sm_90a", NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "sm_90a"), err.text);
    TEST_ASSERT_EQUAL_INT(-EMLINK, twin_of(100, "sm_100f", "sm_80", "sm_100a"));
    TEST_ASSERT_EQUAL_INT(-EMLINK, twin_of(90, "sm_90", "sm_90", NULL));
}

static void the_same_text_twice_is_one(void)
{
    memcpy(digests[1], digests[0], sizeof digests[1]);
    TEST_ASSERT_EQUAL_INT(0, twin_of(90, "sm_90", "sm_90", NULL));
}

static void a_driver_that_does_not_say_gets_no_variant(void)
{
    TEST_ASSERT_EQUAL_INT(-ENODATA, twin_of(0, "sm_90", NULL, NULL));
    TEST_ASSERT_EQUAL_INT(-ENODATA, twin_of(-1, "sm_90", NULL, NULL));
}

static void words_that_are_no_architecture_are_of_none(void)
{
    TEST_ASSERT_EQUAL_INT(-ENOENT, twin_of(90, "sm_90b", "sm_90aa", "compute_90"));
    TEST_ASSERT_EQUAL_INT(-ENOENT, twin_of(90, "sm_", "", "90"));
    TEST_ASSERT_EQUAL_INT(-ENOENT, twin_of(90, "sm_99999999999999999990", NULL, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_text_of_the_same_architecture_is_taken);
    RUN_TEST(another_architectures_text_is_not);
    RUN_TEST(two_that_cannot_be_told_apart_are_refused);
    RUN_TEST(the_same_text_twice_is_one);
    RUN_TEST(a_driver_that_does_not_say_gets_no_variant);
    RUN_TEST(words_that_are_no_architecture_are_of_none);
    return UNITY_END();
}

/* Hashes: those that others publish, and numbers that do not crowd. */
#include "tally/hash.h"

#include <string.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

/* From the test vectors of the FNV's authors. */
static void bytes_have_the_hash_that_is_published(void)
{
    TEST_ASSERT_EQUAL_HEX32(0x811c9dc5, tl_hash("", 0));
    TEST_ASSERT_EQUAL_HEX32(0xe40c292c, tl_hash("a", 1));
    TEST_ASSERT_EQUAL_HEX32(0xbf9cf968, tl_hash("foobar", 6));
    TEST_ASSERT_EQUAL_HEX64(0xcbf29ce484222325, tl_hash_64("", 0));
    TEST_ASSERT_EQUAL_HEX64(0xaf63dc4c8601ec8c, tl_hash_64("a", 1));
    TEST_ASSERT_EQUAL_HEX64(0x85944171f73967e8, tl_hash_64("foobar", 6));
}

/* As many addresses as places, at any distance that allocators give. */
static void addresses_do_not_crowd(void)
{
    for (uint64_t step = 8; step <= UINT64_C(1) << 33; step *= 2) {
        uint8_t places[4096] = {0};
        uint8_t most = 0;
        for (uint64_t i = 0; i < 4096; i++) {
            uint8_t *place = &places[tl_hash_number(0x7f0000000000 + i * step) >> 52];
            most = ++*place > most ? *place : most;
        }
        TEST_ASSERT_LESS_THAN_UINT8(16, most);
    }
}

static void order_matters_to_what_is_mixed(void)
{
    TEST_ASSERT_NOT_EQUAL_UINT64(tl_hash_mix(tl_hash_mix(0, 1), 2),
                                 tl_hash_mix(tl_hash_mix(0, 2), 1));
    TEST_ASSERT_NOT_EQUAL_UINT64(tl_hash_mix(1, 0), tl_hash_mix(1, 1));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(bytes_have_the_hash_that_is_published);
    RUN_TEST(addresses_do_not_crowd);
    RUN_TEST(order_matters_to_what_is_mixed);
    return UNITY_END();
}

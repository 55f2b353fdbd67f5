/* The digest: what b2sum prints, however the bytes come, and names that parts cannot share. */
#include "tally/digest.h"

#include <string.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void the_digest_is_blake2b(void)
{
    /* Of "abc", as b2sum -l 256 prints it. */
    static const uint8_t expected[] = {0xbd, 0xdd, 0x81, 0x3c, 0x63, 0x42, 0x39, 0x72,
                                       0x31, 0x71, 0xef, 0x3f, 0xee, 0x98, 0x57, 0x9b,
                                       0x94, 0x96, 0x4e, 0x3b, 0xb1, 0xcb, 0x3e, 0x42,
                                       0x72, 0x62, 0xc8, 0xc0, 0x68, 0xd5, 0x23, 0x19};
    struct tl_digest d;
    uint8_t out[TL_DIGEST_BYTES];
    tl_digest_init(&d);
    tl_digest_add(&d, "a", 1);
    tl_digest_add(&d, "bc", 2);
    tl_digest_end(&d, out);
    TEST_ASSERT_EQUAL_MEMORY(expected, out, sizeof out);
}

/* Blocks are 128 bytes and the last one is kept back: every length around that, in pieces of every
 * size, gives what all at once does. */
static void pieces_give_what_the_whole_gives(void)
{
    uint8_t bytes[400], whole[TL_DIGEST_BYTES], pieces[TL_DIGEST_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        tl_digest_of(bytes, n, whole);
        for (size_t step = 1; step < 140; step += 9) {
            struct tl_digest d;
            tl_digest_init(&d);
            for (size_t at = 0; at < n; at += step)
                tl_digest_add(&d, bytes + at, n - at < step ? n - at : step);
            tl_digest_end(&d, pieces);
            TEST_ASSERT_EQUAL_MEMORY(whole, pieces, sizeof whole);
        }
    }
}

static void parts_that_are_divided_elsewhere_differ(void)
{
    uint8_t out[2][TL_DIGEST_BYTES];
    for (size_t i = 0; i < 2; i++) {
        struct tl_digest d;
        tl_digest_init(&d);
        tl_digest_part(&d, "abcd", 1 + i);
        tl_digest_part(&d, &"abcd"[1 + i], 3 - i);
        tl_digest_end(&d, out[i]);
    }
    TEST_ASSERT_NOT_EQUAL_INT(0, memcmp(out[0], out[1], sizeof out[0]));
}

static void hexadecimal_is_what_names_of_files_have(void)
{
    uint8_t digest[TL_DIGEST_BYTES] = {0x01, 0xab, [TL_DIGEST_BYTES - 1] = 0xf0};
    char hex[TL_DIGEST_HEX];
    tl_digest_hex(digest, hex);
    TEST_ASSERT_EQUAL_size_t(2 * TL_DIGEST_BYTES, strlen(hex));
    TEST_ASSERT_EQUAL_STRING_LEN("01ab0000", hex, 8);
    TEST_ASSERT_EQUAL_STRING("f0", hex + TL_DIGEST_HEX - 3);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_digest_is_blake2b);
    RUN_TEST(pieces_give_what_the_whole_gives);
    RUN_TEST(parts_that_are_divided_elsewhere_differ);
    RUN_TEST(hexadecimal_is_what_names_of_files_have);
    return UNITY_END();
}

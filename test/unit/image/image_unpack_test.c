/* Unpacking payloads: round trips with the real libraries, and claims that must not be believed. */
#include "tally/image.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>
#include <zstd.h>

enum { FULL = 100000, ROOM = 2 * FULL };

static char full[FULL];
static char packed[ROOM];
static struct tl_image image;
static void *out;
static size_t out_bytes;
static struct tl_error err;

void setUp(void)
{
    for (size_t i = 0; i < FULL; i++)
        full[i] = "ld.param.u64 %rd1, [scale_param_0];\n"[(i + i / 1000) % 37];
    out = NULL;
    err = (struct tl_error){0};
}

void tearDown(void)
{
    free(out);
}

static void pack_plain(void)
{
    image = (struct tl_image){
        .packing = TL_IMAGE_PLAIN, .bytes = full, .stored_bytes = FULL, .full_bytes = FULL};
}

static void pack_lz4(void)
{
    int n = LZ4_compress_default(full, packed, FULL, ROOM);
    TEST_ASSERT_TRUE(n > 0);
    image = (struct tl_image){
        .packing = TL_IMAGE_LZ4, .bytes = packed, .stored_bytes = (size_t)n, .full_bytes = FULL};
}

static void pack_zstd(void)
{
    size_t n = ZSTD_compress(packed, ROOM, full, FULL, 3);
    TEST_ASSERT_FALSE(ZSTD_isError(n));
    image = (struct tl_image){
        .packing = TL_IMAGE_ZSTD, .bytes = packed, .stored_bytes = n, .full_bytes = FULL};
}

static int unpack(void)
{
    return tl_image_unpack(&image, &out, &out_bytes, &err);
}

static void assert_full(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, unpack(), err.text);
    TEST_ASSERT_EQUAL_size_t(FULL, out_bytes);
    TEST_ASSERT_EQUAL_MEMORY(full, out, FULL);
    TEST_ASSERT_EQUAL_CHAR(0, ((char *)out)[FULL]);
}

static void assert_refused(int code)
{
    TEST_ASSERT_EQUAL_INT(code, unpack());
    TEST_ASSERT_EQUAL_INT(code, err.code);
    TEST_ASSERT_TRUE(err.text[0] != 0);
    TEST_ASSERT_NULL(out);
}

static void a_plain_image_is_copied_with_a_nul_behind(void)
{
    pack_plain();
    assert_full();
}

static void an_empty_image_is_an_empty_text(void)
{
    image = (struct tl_image){.packing = TL_IMAGE_PLAIN, .bytes = full};
    TEST_ASSERT_EQUAL_INT(0, unpack());
    TEST_ASSERT_EQUAL_size_t(0, out_bytes);
    TEST_ASSERT_EQUAL_STRING("", out);
}

static void lz4_comes_back_as_it_was(void)
{
    pack_lz4();
    assert_full();
}

static void zstd_comes_back_as_it_was(void)
{
    pack_zstd();
    assert_full();
}

/* As a stream is packed whose length is not known beforehand. */
static void pack_zstd_without_size(void)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    size_t n = ZSTD_compress2(context, packed, ROOM, full, FULL);
    ZSTD_freeCCtx(context);
    TEST_ASSERT_FALSE(ZSTD_isError(n));
    TEST_ASSERT_EQUAL_UINT64(ZSTD_CONTENTSIZE_UNKNOWN, ZSTD_getFrameContentSize(packed, n));
    image = (struct tl_image){
        .packing = TL_IMAGE_ZSTD, .bytes = packed, .stored_bytes = n, .full_bytes = FULL};
}

static void zstd_without_a_content_size_comes_back_too(void)
{
    pack_zstd_without_size();
    assert_full();
}

static void the_claimed_size_must_be_the_real_one(void)
{
    static void (*const packers[])(void) = {pack_lz4, pack_zstd, pack_zstd_without_size};
    for (size_t i = 0; i < 3; i++) {
        packers[i]();
        image.full_bytes = FULL - 1;
        assert_refused(-EINVAL);
        image.full_bytes = FULL + 1;
        assert_refused(-EINVAL);
        image.full_bytes = 0;
        assert_refused(-EINVAL);
    }
}

static void data_cut_anywhere_is_refused(void)
{
    static void (*const packers[])(void) = {pack_lz4, pack_zstd};
    for (size_t i = 0; i < 2; i++) {
        packers[i]();
        char *copy = malloc(image.stored_bytes);
        memcpy(copy, packed, image.stored_bytes);
        for (size_t n = 0; n < image.stored_bytes; n++) {
            char *exact = malloc(n + 1);
            memcpy(exact, copy, n);
            image.bytes = exact;
            size_t all = image.stored_bytes;
            image.stored_bytes = n;
            TEST_ASSERT_EQUAL_INT(-EINVAL, unpack());
            image.stored_bytes = all;
            free(exact);
        }
        free(copy);
    }
}

static void a_few_bytes_cannot_claim_a_gigabyte(void)
{
    pack_lz4();
    image.stored_bytes = 1000;
    image.full_bytes = 255001;
    assert_refused(-EINVAL);
    TEST_ASSERT_NOT_NULL(strstr(err.text, "1000 bytes of lz4 cannot hold"));
    image.full_bytes = (size_t)1 << 30;
    assert_refused(-EINVAL);

    pack_zstd();
    image.full_bytes = (size_t)1 << 30;
    assert_refused(-EINVAL);
    TEST_ASSERT_NOT_NULL(strstr(err.text, "of zstd cannot hold"));
}

static void a_frame_that_lies_about_its_content_is_refused(void)
{
    /* Magic; a header that says 2^29 bytes in one segment; one empty last block. */
    static const char frame[] = "\x28\xb5\x2f\xfd\xa0\x00\x00\x00\x20\x01\x00\x00";
    image = (struct tl_image){.packing = TL_IMAGE_ZSTD,
                              .bytes = frame,
                              .stored_bytes = 12,
                              .full_bytes = (size_t)1 << 29};
    TEST_ASSERT_EQUAL_UINT64(UINT64_C(1) << 29, ZSTD_getFrameContentSize(frame, 12));
    assert_refused(-EINVAL);
}

static void more_than_a_gigabyte_is_refused(void)
{
    pack_zstd();
    image.full_bytes = ((size_t)1 << 30) + 1;
    assert_refused(-EFBIG);
    image.full_bytes = SIZE_MAX;
    assert_refused(-EFBIG);
    image.full_bytes = FULL;
    image.stored_bytes = SIZE_MAX;
    assert_refused(-EFBIG);
}

static void an_unknown_packing_is_told(void)
{
    pack_lz4();
    image.packing = TL_IMAGE_PACKED_UNKNOWN;
    image.flags = 0x1011;
    assert_refused(-ENOTSUP);
    TEST_ASSERT_NOT_NULL(strstr(err.text, "0x1011"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_plain_image_is_copied_with_a_nul_behind);
    RUN_TEST(an_empty_image_is_an_empty_text);
    RUN_TEST(lz4_comes_back_as_it_was);
    RUN_TEST(zstd_comes_back_as_it_was);
    RUN_TEST(zstd_without_a_content_size_comes_back_too);
    RUN_TEST(the_claimed_size_must_be_the_real_one);
    RUN_TEST(data_cut_anywhere_is_refused);
    RUN_TEST(a_few_bytes_cannot_claim_a_gigabyte);
    RUN_TEST(a_frame_that_lies_about_its_content_is_refused);
    RUN_TEST(more_than_a_gigabyte_is_refused);
    RUN_TEST(an_unknown_packing_is_told);
    return UNITY_END();
}

/* The name of a compiled kernel: another one for everything that makes another kernel. */
#include "device/service/key.h"

#include <string.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static struct tl_jit_source source(const char *ptx)
{
    return (struct tl_jit_source){.ptx = ptx,
                                  .ptx_n = strlen(ptx),
                                  .kernel = "k",
                                  .block = {128, 1, 1},
                                  .compiler = "build id"};
}

static void a_key_depends_on_every_part(void)
{
    struct tl_jit_source sources[9];
    for (size_t i = 0; i < 9; i++)
        sources[i] = source("text");
    sources[1].ptx = "texT";
    sources[2].kernel = "kt";
    sources[2].ptx = "ext"; /* the same letters in a row, parted elsewhere */
    sources[2].ptx_n = 3;
    sources[3].block[0] = 64;
    sources[4].block[2] = 2;
    sources[5].cpu = "znver4";
    sources[6].features = "+avx2";
    sources[7].compiler = "build ie";
    sources[8].ptx_n = 3;
    for (size_t i = 0; i < 9; i++) {
        for (size_t j = 0; j < 9; j++) {
            struct tl_store_key a = tl_jit_key_of(&sources[i]), b = tl_jit_key_of(&sources[j]);
            TEST_ASSERT_EQUAL_INT(i == j, memcmp(&a, &b, sizeof a) == 0);
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_key_depends_on_every_part);
    return UNITY_END();
}

/* Reductions of halves, which have no instruction, against exact arithmetic: edge values crossed
 * and random ones. */
#include "device/exec/internal.h"
#include "test/unit/device/jit/op.h"

#include <stdio.h>
#include <string.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static bool is_zero(uint64_t bits)
{
    return (bits & 0x7fff) == 0;
}

static uint64_t expected(const struct op_type *t, uint32_t what, uint64_t a, uint64_t b)
{
    bool a_nan = op_is_nan(t, a), b_nan = op_is_nan(t, b), is_min = what == TL_TENSOR_MIN;
    double x = op_float(t, a), y = op_float(t, b);
    if (what == TL_TENSOR_ADD)
        return a_nan || b_nan ? 0x7fff : op_bits(t, op_odd('+', x, y, 0), ROUND_NEAREST);
    if (a_nan || b_nan)
        return a_nan && b_nan ? 0x7fff : a_nan ? b : a;
    if (is_zero(a) && is_zero(b)) /* -0 is less than 0 */
        return is_min ? (a | b) : (a & b);
    return (x < y) == is_min ? a : b;
}

static void check(const struct op_type *t, uint32_t type, uint32_t what, uint16_t a, uint16_t b)
{
    char said[80];
    uint16_t got = a;
    tl__reduce(what, type, &got, &b, 1);
    uint64_t want = expected(t, what, a, b);
    snprintf(said, sizeof said, "%s %u: %#x, %#x", t->name, what, a, b);
    if (op_is_nan(t, want))
        TEST_ASSERT_TRUE_MESSAGE(op_is_nan(t, got), said);
    else
        TEST_ASSERT_EQUAL_HEX16_MESSAGE(want, got, said);
}

static void check_type(const char *name, uint32_t type)
{
    static const uint16_t edges[] = {0,      1,      2,      0x3ff,  0x400,  0x401,  0x7bff, 0x7bfe,
                                     0x3c00, 0x3c01, 0x7c00, 0x7e00, 0x7f7f, 0x7f80, 0x7fff, 0x80,
                                     0x7f,   0x81,   0x3f80, 0x3f81, 0x0c00, 0x1000};
    enum { N = sizeof edges / sizeof *edges };
    struct op_type t;
    TEST_ASSERT_TRUE(op_type_parse(&t, name, strlen(name)));
    for (uint32_t what = TL_TENSOR_ADD; what <= TL_TENSOR_MAX; what++) {
        TEST_ASSERT_TRUE(tl__reduces(what, type));
        for (uint32_t i = 0; i < 4 * N * N; i++)
            check(&t, type, what, (uint16_t)(edges[i / 4 / N] | (i & 1) << 15),
                  (uint16_t)(edges[i / 4 % N] | (i & 2) << 14));
        uint64_t seed = 7;
        for (uint32_t i = 0; i < 200000; i++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            check(&t, type, what, (uint16_t)(seed >> 32), (uint16_t)(seed >> 48));
        }
    }
}

static void halves_are_reduced_as_exact_arithmetic_says(void)
{
    check_type("f16", TL_TENSOR_F16);
    check_type("bf16", TL_TENSOR_BF16);
}

static void types_have_the_reductions_that_ptx_gives_them(void)
{
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_ADD, TL_TENSOR_U8));
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_ADD, TL_TENSOR_U16));
    TEST_ASSERT_TRUE(tl__reduces(TL_TENSOR_ADD, TL_TENSOR_F64));
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_ADD, TL_TENSOR_TF32));
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_MIN, TL_TENSOR_F32));
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_INC, TL_TENSOR_S32));
    TEST_ASSERT_TRUE(tl__reduces(TL_TENSOR_XOR, TL_TENSOR_U64));
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_AND, TL_TENSOR_F32));
    TEST_ASSERT_FALSE(tl__reduces(TL_TENSOR_LOAD, TL_TENSOR_U32));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(halves_are_reduced_as_exact_arithmetic_says);
    RUN_TEST(types_have_the_reductions_that_ptx_gives_them);
    return UNITY_END();
}

/* Division by multiplication, against real division, with the arithmetic of the instructions that
 * variants use. */
#include <stdio.h>
#include <unity.h>

#include "tally/ptx.h"

void setUp(void)
{
}

void tearDown(void)
{
}

enum { LARGEST = INT32_MAX };

/* shl.b32; mul.hi.u32; shr.u32, as the variants have them. */
static uint32_t divide(uint32_t n, struct tl_ptx_magic m)
{
    uint32_t doubled = n << 1;
    uint32_t high = (uint32_t)((uint64_t)doubled * m.magic >> 32);
    return m.shift > 31 ? 0 : high >> m.shift;
}

static void check(uint32_t n, uint32_t d)
{
    struct tl_ptx_magic m = tl_ptx_magic_of(d);
    if (divide(n, m) != n / d) { /* the macro costs too much to be asked ten million times */
        char message[100];
        snprintf(message, sizeof message, "%u / %u with magic %u, shift %u", n, d, m.magic,
                 m.shift);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(n / d, divide(n, m), message);
    }
}

static uint64_t state = 1;

static uint32_t random_bits(void) /* splitmix64 */
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(z ^ z >> 31);
}

/* Around every power of two, where rounding goes wrong first. */
static uint32_t edges(uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t bit = 0; bit <= 31; bit++) {
        for (int64_t near = -3; near <= 3; near++) {
            int64_t value = ((int64_t)1 << bit) + near;
            if (value >= 1 && value <= LARGEST)
                out[n++] = (uint32_t)value;
        }
    }
    return n;
}

static void edges_divide_exactly(void)
{
    uint32_t divisors[32 * 7], n = edges(divisors);
    for (uint32_t d = 0; d < n; d++) {
        check(0, divisors[d]);
        for (uint32_t i = 0; i < n; i++)
            check(divisors[i], divisors[d]);
        /* Around multiples of the divisor, the largest of them above all. */
        uint32_t largest = LARGEST / divisors[d] * divisors[d];
        static const uint32_t near[] = {0, 1, 2};
        for (size_t k = 0; k < sizeof near / sizeof near[0]; k++) {
            if (largest >= near[k])
                check(largest - near[k], divisors[d]);
            if (largest <= LARGEST - near[k])
                check(largest + near[k], divisors[d]);
        }
        check(LARGEST, divisors[d]);
        check(LARGEST - 1, divisors[d]);
    }
}

static void every_small_divisor_divides_everything_near_its_multiples(void)
{
    for (uint32_t d = 1; d <= 2000; d++) {
        for (uint32_t q = 0; q < 50; q++) {
            uint32_t multiple = (uint32_t)((uint64_t)random_bits() % (LARGEST / d)) * d;
            check(multiple, d);
            check(multiple + d - 1, d);
            if (multiple > 0)
                check(multiple - 1, d);
        }
    }
}

static void ten_million_random_pairs_divide_exactly(void)
{
    for (uint32_t i = 0; i < 10000000; i++) {
        uint32_t n = random_bits() >> 1, d = (random_bits() >> 1) >> (random_bits() % 31);
        check(n, d == 0 ? 1 : d);
    }
}

static void the_worst_dividend_of_random_divisors_divides_exactly(void)
{
    for (uint32_t i = 0; i < 1000000; i++) {
        uint32_t d = (random_bits() >> 1) >> (random_bits() % 31);
        d = d == 0 ? 1 : d;
        uint32_t largest = LARGEST / d * d; /* rounding errors grow with the dividend */
        check(largest, d);
        check(largest - 1, d);
    }
}

static void zero_counts_as_one(void)
{
    struct tl_ptx_magic zero = tl_ptx_magic_of(0), one = tl_ptx_magic_of(1);
    TEST_ASSERT_EQUAL_UINT32(one.magic, zero.magic);
    TEST_ASSERT_EQUAL_UINT32(one.shift, zero.shift);
    TEST_ASSERT_EQUAL_UINT32(LARGEST, divide(LARGEST, one));
    TEST_ASSERT_EQUAL_UINT32(0, divide(0, one));
}

static void a_shift_never_leaves_the_word(void)
{
    uint32_t divisors[32 * 7], n = edges(divisors);
    for (uint32_t d = 0; d < n; d++)
        TEST_ASSERT_LESS_THAN_UINT32(32, tl_ptx_magic_of(divisors[d]).shift);
}

/* What a block does with its number. */
static void a_linear_number_comes_apart_into_the_index_it_was_made_of(void)
{
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t gx = 1 + random_bits() % 2000, gy = 1 + random_bits() % 1000,
                 gz = 1 + random_bits() % 1000;
        uint32_t x = random_bits() % gx, y = random_bits() % gy, z = random_bits() % gz;
        uint32_t number = (z * gy + y) * gx + x;
        struct tl_ptx_magic mx = tl_ptx_magic_of(gx), my = tl_ptx_magic_of(gy);
        uint32_t rows = divide(number, mx), planes = divide(rows, my);
        TEST_ASSERT_TRUE(number - rows * gx == x && rows - planes * gy == y && planes == z);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(edges_divide_exactly);
    RUN_TEST(every_small_divisor_divides_everything_near_its_multiples);
    RUN_TEST(ten_million_random_pairs_divide_exactly);
    RUN_TEST(the_worst_dividend_of_random_divisors_divides_exactly);
    RUN_TEST(zero_counts_as_one);
    RUN_TEST(a_shift_never_leaves_the_word);
    RUN_TEST(a_linear_number_comes_apart_into_the_index_it_was_made_of);
    return UNITY_END();
}

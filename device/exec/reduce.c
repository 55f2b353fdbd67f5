/* Reductions of elements in global memory, as cp.reduce.async.bulk.tensor does them: one element
 * after the other, each atomically, so that blocks on other threads may do the same. */
#include "device/exec/internal.h"

#include <math.h>
#include <string.h>

/* --- numbers of 16 bits ----------------------------------------------------------------------- */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float half_to_float(uint32_t h)
{
    uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, m = h & 0x3ff;
    if (exponent == 0)
        return float_of(bits_of((float)m * 0x1p-24f) | sign);
    return float_of(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | m << 13);
}

/* To the nearest, ties to even; NaN becomes the one that PTX has. */
static uint32_t float_to_half(float f)
{
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000;
    float size = fabsf(f);
    if (isnan(f))
        return 0x7fff;
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < 0x1p-14f) /* a multiple of 2^-24; the sum has no bits for anything less */
        return sign | (bits_of(size * 0x1p24f + 0x1p23f) & 0x7fffff);
    uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
    return sign | ((rounded >> 13) - (112u << 10));
}

static uint32_t float_to_bfloat(float f)
{
    uint32_t bits = bits_of(f);
    if (isnan(f))
        return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static float small_to_float(uint32_t type, uint64_t bits)
{
    return type == TL_TENSOR_F16 ? half_to_float((uint32_t)bits) : float_of((uint32_t)bits << 16);
}

/* The smaller or the larger; NaN only if both are, and -0 is less than 0. */
static uint64_t pick_small(uint32_t type, bool is_min, uint64_t a, uint64_t b)
{
    float x = small_to_float(type, a), y = small_to_float(type, b);
    if (isnan(x))
        return isnan(y) ? 0x7fff : b;
    if (isnan(y))
        return a;
    bool is_less = x < y || (x == y && signbit(x) && !signbit(y));
    return is_less == is_min ? a : b;
}

/* --- one element ------------------------------------------------------------------------------ */

static uint64_t sum(uint32_t type, uint64_t a, uint64_t b)
{
    switch (type) {
    case TL_TENSOR_F16:
        return float_to_half(half_to_float((uint32_t)a) + half_to_float((uint32_t)b));
    case TL_TENSOR_BF16:
        return float_to_bfloat(small_to_float(type, a) + small_to_float(type, b));
    case TL_TENSOR_F32:
        return bits_of(float_of((uint32_t)a) + float_of((uint32_t)b));
    case TL_TENSOR_F64: {
        double x, y;
        memcpy(&x, &a, sizeof x);
        memcpy(&y, &b, sizeof y);
        x += y;
        memcpy(&a, &x, sizeof a);
        return a;
    }
    default:
        return a + b;
    }
}

static uint64_t pick(uint32_t type, bool is_min, uint64_t a, uint64_t b)
{
    if (type == TL_TENSOR_F16 || type == TL_TENSOR_BF16)
        return pick_small(type, is_min, a, b);
    bool is_less = type == TL_TENSOR_S32   ? (int32_t)a < (int32_t)b
                   : type == TL_TENSOR_S64 ? (int64_t)a < (int64_t)b
                                           : a < b;
    return is_less == is_min ? a : b;
}

static uint64_t combined(uint32_t what, uint32_t type, uint64_t old, uint64_t x)
{
    switch (what) {
    case TL_TENSOR_ADD:
        return sum(type, old, x);
    case TL_TENSOR_MIN:
    case TL_TENSOR_MAX:
        return pick(type, what == TL_TENSOR_MIN, old, x);
    case TL_TENSOR_INC:
        return old >= x ? 0 : old + 1;
    case TL_TENSOR_DEC:
        return old == 0 || old > x ? x : old - 1;
    case TL_TENSOR_AND:
        return old & x;
    case TL_TENSOR_OR:
        return old | x;
    default:
        return old ^ x;
    }
}

bool tl__reduces(uint32_t what, uint32_t type)
{
    bool is_whole = type >= TL_TENSOR_U32 && type <= TL_TENSOR_S64;
    switch (what) {
    case TL_TENSOR_ADD:
        return is_whole || (type >= TL_TENSOR_F16 && type <= TL_TENSOR_BF16);
    case TL_TENSOR_MIN:
    case TL_TENSOR_MAX:
        return is_whole || type == TL_TENSOR_F16 || type == TL_TENSOR_BF16;
    case TL_TENSOR_INC:
    case TL_TENSOR_DEC:
        return type == TL_TENSOR_U32;
    case TL_TENSOR_AND:
    case TL_TENSOR_OR:
    case TL_TENSOR_XOR:
        return is_whole;
    default:
        return false;
    }
}

/* Reads, computes, and writes if nobody else has; else again. */
#define REDUCE(bits)                                                                               \
    TL__KERNEL_MEMORY static void reduce_##bits(uint32_t what, uint32_t type, uint##bits##_t *to,  \
                                                const uint##bits##_t *from, uint32_t n)            \
    {                                                                                              \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            uint##bits##_t old = __atomic_load_n(&to[i], __ATOMIC_RELAXED), now;                   \
            do {                                                                                   \
                now = (uint##bits##_t)combined(what, type, old, from[i]);                          \
            } while (!__atomic_compare_exchange_n(&to[i], &old, now, false, __ATOMIC_SEQ_CST,      \
                                                  __ATOMIC_SEQ_CST));                              \
        }                                                                                          \
    }
REDUCE(16)
REDUCE(32)
REDUCE(64)

void tl__reduce(uint32_t what, uint32_t type, void *to, const void *from, uint32_t n)
{
    switch (tl_exec_tensor_element(type)) {
    case 2:
        reduce_16(what, type, to, from, n);
        break;
    case 4:
        reduce_32(what, type, to, from, n);
        break;
    default:
        reduce_64(what, type, to, from, n);
        break;
    }
}

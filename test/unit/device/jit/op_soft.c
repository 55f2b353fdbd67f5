/* Exact arithmetic for references: every rounding of every format from one double that was rounded
 * to odd. */
#include "test/unit/device/jit/op.h"

#include <string.h>

const struct op_format op_f16 = {5, 10, true, false}, op_bf16 = {8, 7, true, false},
                       op_f32 = {8, 23, true, false}, op_tf32 = {8, 10, true, false},
                       op_e4m3 = {4, 3, false, false}, op_e5m2 = {5, 2, true, false},
                       op_e2m3 = {2, 3, false, true}, op_e3m2 = {3, 2, false, true},
                       op_e2m1 = {2, 1, false, true};

enum { MXCSR_DEFAULT = 0x1f80, MXCSR_INEXACT = 0x20 };

#define UNDER(mode_csr, out_csr, instruction, ...)                                                 \
    __asm__ volatile("ldmxcsr %[csr]\n\t" instruction "\n\tstmxcsr %[flags]\n\tldmxcsr %[normal]"  \
                     : [r] "+&x"(r), [flags] "=m"(out_csr)                                         \
                     : [csr] "m"(mode_csr), [normal] "m"(normal), __VA_ARGS__)

double op_double(char op, double a, double b, double c, enum op_rounding mode, bool *inexact)
{
    uint32_t csr = MXCSR_DEFAULT | (uint32_t)mode << 13, flags = 0, normal = MXCSR_DEFAULT;
    double r = a;
    switch (op) {
    case '+':
        UNDER(csr, flags, "addsd %[b], %[r]", [b] "x"(b));
        break;
    case '-':
        UNDER(csr, flags, "subsd %[b], %[r]", [b] "x"(b));
        break;
    case '*':
        UNDER(csr, flags, "mulsd %[b], %[r]", [b] "x"(b));
        break;
    case '/':
        UNDER(csr, flags, "divsd %[b], %[r]", [b] "x"(b));
        break;
    case 'r':
        UNDER(csr, flags, "sqrtsd %[b], %[r]", [b] "x"(a));
        break;
    default:
        UNDER(csr, flags, "vfmadd213sd %[c], %[b], %[r]", [b] "x"(b), [c] "x"(c));
        break;
    }
    if (inexact != NULL)
        *inexact = flags & MXCSR_INEXACT;
    return r;
}

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static double double_of(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

double op_odd(char op, double a, double b, double c)
{
    bool inexact;
    double r = op_double(op, a, b, c, ROUND_ZERO, &inexact);
    return inexact ? double_of(bits_of(r) | 1) : r;
}

/* n + rest (less than 1) to an integer. */
static uint64_t round_integer(uint64_t n, double rest, bool is_negative, enum op_rounding mode)
{
    if (rest == 0)
        return n;
    switch (mode) {
    case ROUND_DOWN:
        return n + is_negative;
    case ROUND_UP:
        return n + !is_negative;
    case ROUND_ZERO:
        return n;
    case ROUND_AWAY:
        return n + (rest >= 0.5);
    default:
        return n + (rest > 0.5 || (rest == 0.5 && (n & 1)));
    }
}

uint64_t op_round(const struct op_format *f, double x, enum op_rounding mode, bool satfinite)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1, m = f->mantissa_bits, e;
    uint64_t is_negative = bits_of(x) >> 63, sign = is_negative << (f->exponent_bits + m);
    uint64_t inf = ((1ull << f->exponent_bits) - 1) << m, nan = inf | ((1ull << m) - 1);
    uint64_t most = f->has_inf ? inf - 1 : f->is_plain ? nan : nan - 1;
    if (x != x)
        return nan;
    if (x == 0)
        return sign;
    double a = is_negative ? -x : x;
    if (a - a != 0) /* infinity */
        return sign | (satfinite ? most : f->has_inf ? inf : nan);
    __builtin_frexp(a, &e);
    int quantum = (e - 1 > 1 - bias ? e - 1 : 1 - bias) - m;
    double scaled = __builtin_ldexp(a, -quantum);
    uint64_t n = round_integer((uint64_t)scaled, scaled - (double)(uint64_t)scaled, is_negative,
                               mode);
    /* Mantissa and exponent in one number: a carry out of the mantissa is one more in the
     * exponent. */
    uint64_t field = n + ((uint64_t)(quantum + m + bias - 1) << m);
    if (field <= most)
        return sign | field;
    bool to_most = satfinite || mode == ROUND_ZERO || (mode == ROUND_DOWN && !is_negative) ||
                   (mode == ROUND_UP && is_negative);
    return sign | (to_most ? most : f->has_inf ? inf : nan);
}

double op_value(const struct op_format *f, uint64_t bits)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1, m = f->mantissa_bits;
    uint64_t field = bits & ((1ull << (f->exponent_bits + m)) - 1),
             mantissa = field & ((1ull << m) - 1);
    int e = (int)(field >> m);
    double r;
    if (f->has_inf && e == (1 << f->exponent_bits) - 1)
        r = mantissa != 0 ? __builtin_nan("") : __builtin_inf();
    else if (!f->has_inf && !f->is_plain && field == (1ull << (f->exponent_bits + m)) - 1)
        r = __builtin_nan("");
    else
        r = __builtin_ldexp((double)(e == 0 ? mantissa : mantissa | 1ull << m),
                            (e == 0 ? 1 : e) - bias - m);
    return bits >> (f->exponent_bits + m) & 1 ? -r : r;
}

static const struct op_format *format_of(const struct op_type *t)
{
    return t->kind == 'g' ? &op_bf16 : t->bits == 16 ? &op_f16 : &op_f32;
}

double op_float(const struct op_type *t, uint64_t bits)
{
    return t->bits == 64 ? double_of(bits) : op_value(format_of(t), bits);
}

uint64_t op_bits(const struct op_type *t, double x, enum op_rounding mode)
{
    return t->bits == 64 ? bits_of(x) : op_round(format_of(t), x, mode, false);
}

bool op_is_nan(const struct op_type *t, uint64_t bits)
{
    double x = op_float(t, bits);
    return x != x;
}

double op_flushed(const struct op *o, const struct op_type *t, double x)
{
    bool is_small = x != 0 && x > -0x1p-126 && x < 0x1p-126;
    return o->ftz && t->kind == 'f' && t->bits == 32 && is_small ? __builtin_copysign(0, x) : x;
}

/* --- functions -------------------------------------------------------------------------------- */

double op_exp2(double x)
{
    if (x != x)
        return x;
    if (x > 1100 || x < -1200)
        return x > 0 ? __builtin_inf() : 0;
    int n = (int)x;
    long double f = (long double)(x - n) * 0.693147180559945309417232121458L, term = 1, sum = 1;
    for (int i = 1; i < 30; i++) {
        term *= f / i;
        sum += term;
    }
    return (double)__builtin_ldexp((double)sum, n);
}

double op_log2(double x)
{
    if (x != x || x < 0)
        return __builtin_nan("");
    if (x == 0 || x > 1e308)
        return x == 0 ? -__builtin_inf() : x;
    int e;
    long double m = __builtin_frexp(x, &e), s, power, sum = 0;
    if (m < 0.70710678L) {
        m *= 2;
        e--;
    }
    s = (m - 1) / (m + 1);
    power = s;
    for (int i = 1; i < 60; i += 2) {
        sum += power / i;
        power *= s * s;
    }
    return (double)(2 * sum / 0.693147180559945309417232121458L + e);
}

double op_sin(double x, bool is_cos)
{
    if (x - x != 0)
        return __builtin_nan("");
    const __float128 two_pi = 6.28318530717958647692528676655900577Q;
    __float128 r = x - two_pi * (__float128)(long long)(x / 6.283185307179586),
               term = is_cos ? 1 : r, sum = term;
    for (int i = is_cos ? 1 : 2; i < 60; i += 2) {
        term *= -r * r / ((__float128)i * (i + 1));
        sum += term;
    }
    return (double)sum;
}

/* References and rows: floating point. */
#include "test/unit/device/jit/op.h"

#include <string.h>

static uint64_t element(const struct op_type *t, uint64_t v, uint32_t p)
{
    return t->packed == 1 ? v : v >> (p * t->bits) & ((1ull << t->bits) - 1);
}

/* --- exact ------------------------------------------------------------------------------------ */

static char operator_of(const struct op *o)
{
    static const struct {
        const char *name;
        char op;
    } ops[] = {{"add", '+'}, {"sub", '-'}, {"mul", '*'}, {"div", '/'},
               {"fma", 'f'}, {"mad", 'f'}, {"rcp", '/'}, {"sqrt", 'r'}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (op_is(o, ops[i].name))
            return ops[i].op;
    }
    return 0;
}

static double limited(const struct op *o, double r)
{
    if (o->sat)
        r = r > 0 ? (r < 1 ? r : 1) : 0;
    if (o->relu && r <= 0)
        r = 0;
    return r;
}

static uint64_t arith_element(const struct op *o, const uint64_t *in, uint32_t p)
{
    const struct op_type *t = &o->result[0];
    double x[3] = {0, 0, 0};
    for (uint32_t j = 0; j < o->n_sources; j++)
        x[j] = op_flushed(o, &o->source[j],
                          op_float(&o->source[j], element(&o->source[j], in[j], p)));
    if (op_is(o, "rcp")) {
        x[1] = x[0];
        x[0] = 1;
    }
    if (t->bits == 64)
        return op_bits(t,
                       limited(o, op_double(operator_of(o), x[0], x[1], x[2], o->rounding, NULL)),
                       o->rounding);
    double r = op_odd(operator_of(o), x[0], x[1], x[2]);
    if (r == 0) /* the sign of an exact zero depends on the rounding */
        r = op_double(operator_of(o), x[0], x[1], x[2], o->rounding, NULL);
    uint64_t bits = op_bits(t, r, o->rounding);
    return op_bits(t, limited(o, op_flushed(o, t, op_float(t, bits))), ROUND_NEAREST);
}

static void arith(const struct op *o, const uint64_t *in, uint64_t *out)
{
    out[0] = 0;
    for (uint32_t p = 0; p < o->result[0].packed; p++)
        out[0] |= arith_element(o, in, p) << (p * o->result[0].bits);
}

static uint64_t minmax_element(const struct op *o, uint64_t a, uint64_t b)
{
    struct op_type t = o->result[0];
    uint64_t sign = 1ull << (t.bits - 1), flip = 0;
    if (op_has(o, "xorsign")) {
        flip = (a ^ b) & sign;
        a &= ~sign;
        b &= ~sign;
    }
    double x = op_flushed(o, &t, op_float(&t, a)), y = op_flushed(o, &t, op_float(&t, b)), r;
    if (x != x || y != y)
        r = o->nan || (x != x && y != y) ? __builtin_nan("") : x != x ? y : x;
    else if (x == y)
        r = (__builtin_signbit(x) != 0) == op_is(o, "min") ? x : y;
    else
        r = (x < y) == op_is(o, "min") ? x : y;
    return op_bits(&t, limited(o, r), ROUND_NEAREST) ^ (r == r ? flip : 0);
}

static void minmax(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->result[0];
    out[0] = 0;
    for (uint32_t p = 0; p < t->packed; p++) {
        uint64_t r = minmax_element(o, element(t, in[0], p), element(t, in[1], p));
        if (o->n_sources == 3)
            r = minmax_element(o, r, element(t, in[2], p));
        out[0] |= r << (p * t->bits);
    }
}

static void sign_bits(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->result[0];
    out[0] = 0;
    for (uint32_t p = 0; p < t->packed; p++) {
        uint64_t a = element(t, in[0], p), sign = 1ull << (t->bits - 1), r;
        if (op_flushed(o, t, op_float(t, a)) == 0)
            a &= sign;
        if (op_is(o, "copysign"))
            r = (a & sign) | (in[1] & ~sign);
        else
            r = op_is(o, "neg") ? a ^ sign : a & ~sign;
        out[0] |= r << (p * t->bits);
    }
}

static void testp(const struct op *o, const uint64_t *in, uint64_t *out)
{
    double x = op_float(&o->source[0], in[0]), a = x < 0 ? -x : x,
           least = o->source[0].bits == 32 ? 0x1p-126 : 0x1p-1022;
    bool is_finite = x - x == 0;
    out[0] = op_has(o, "finite")       ? is_finite
             : op_has(o, "infinite")   ? !is_finite && x == x
             : op_has(o, "number")     ? x == x
             : op_has(o, "notanumber") ? x != x
             : op_has(o, "normal")     ? is_finite && a >= least
                                       : a != 0 && a < least;
}

/* --- approximations: the result as a double --------------------------------------------------- */

static double quotient(double a, double b)
{
    return op_double('/', a, b, 0, ROUND_NEAREST, NULL);
}

static double approximate(const struct op *o, double x, double y)
{
    if (op_is(o, "rcp"))
        return quotient(1, x);
    if (op_is(o, "div"))
        return quotient(x, y);
    if (op_is(o, "sqrt"))
        return op_double('r', x, 0, 0, ROUND_NEAREST, NULL);
    if (op_is(o, "rsqrt"))
        return quotient(1, op_double('r', x, 0, 0, ROUND_NEAREST, NULL));
    if (op_is(o, "ex2"))
        return op_exp2(x);
    if (op_is(o, "lg2"))
        return op_log2(x);
    if (op_is(o, "tanh")) {
        double a = x < 0 ? -x : x, q = op_exp2(-2.8853900817779268 * a),
               r = a < 1e-4 ? a - a * a * a / 3 : (1 - q) / (1 + q);
        return x != x ? x : __builtin_copysign(r, x);
    }
    bool is_cos = op_is(o, "cos");
    if (x >= 1e6 || x <= -1e6) /* beyond, nobody promises anything; infinities are invalid */
        return x - x != 0 ? __builtin_nan("") : is_cos;
    return op_sin(x, is_cos);
}

static void approx(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->source[0];
    double x = op_float(t, in[0]), y = o->n_sources > 1 ? op_float(&o->source[1], in[1]) : 0;
    if (o->ftz && t->bits == 64 && x < 0x1p-1022 && x > -0x1p-1022)
        x = __builtin_copysign(0, x);
    double r = approximate(o, op_flushed(o, t, x), op_flushed(o, t, y));
    memcpy(&out[0], &r, sizeof r);
}

/* --- rows ------------------------------------------------------------------------------------- */

#define ONE(form, t, ref)                                                                          \
    {                                                                                              \
        form "." t, t "=" t, ref, 0, 0, NULL                                                       \
    }
#define TWO(form, t, ref)                                                                          \
    {                                                                                              \
        form "." t, t "=" t "," t, ref, 0, 0, NULL                                                 \
    }
#define THREE(form, t, ref)                                                                        \
    {                                                                                              \
        form "." t, t "=" t "," t "," t, ref, 0, 0, NULL                                           \
    }
#define ROUNDED(X, op, t)                                                                          \
    X(op ".rn", t, arith), X(op ".rz", t, arith), X(op ".rm", t, arith), X(op ".rp", t, arith)
#define OF_HALVES(X, op, ref)                                                                      \
    X(op, "f16", ref), X(op, "f16x2", ref), X(op, "bf16", ref), X(op, "bf16x2", ref)
#define OF_ALL(X, op, ref) X(op, "f32", ref), X(op, "f64", ref), OF_HALVES(X, op, ref)
#define APPROX(form, t, relative, absolute)                                                        \
    {                                                                                              \
        form "." t, t "=" t, approx, relative, absolute, NULL                                      \
    }

const struct op_row op_float_rows[] = {
    OF_ALL(TWO, "add", arith),
    OF_ALL(TWO, "sub", arith),
    OF_ALL(TWO, "mul", arith),
    ROUNDED(TWO, "add", "f32"),
    ROUNDED(TWO, "sub", "f32"),
    ROUNDED(TWO, "mul", "f32"),
    ROUNDED(TWO, "div", "f32"),
    ROUNDED(THREE, "fma", "f32"),
    ROUNDED(ONE, "rcp", "f32"),
    ROUNDED(ONE, "sqrt", "f32"),
    TWO("add.ftz", "f32", arith),
    TWO("sub.ftz", "f32", arith),
    TWO("mul.ftz", "f32", arith),
    TWO("add.rz.ftz", "f32", arith),
    TWO("mul.rz.ftz", "f32", arith),
    TWO("sub.rz.ftz", "f32", arith),
    TWO("mul.rn.ftz", "f32", arith),
    TWO("div.rn.ftz", "f32", arith),
    THREE("fma.rm.ftz", "f32", arith),
    THREE("fma.rz.ftz", "f32", arith),
    THREE("fma.rn.ftz", "f32", arith),
    ONE("rcp.rn.ftz", "f32", arith),
    ONE("sqrt.rn.ftz", "f32", arith),
    TWO("div.rp.ftz", "f32", arith),
    TWO("add.sat", "f32", arith),
    TWO("mul.ftz.sat", "f32", arith),
    THREE("fma.rn.sat", "f32", arith),
    TWO("add.sat", "f16", arith),
    TWO("mul.sat", "f16x2", arith),
    THREE("fma.rn.ftz.sat", "f32", arith),
    THREE("mad.rn", "f32", arith),
    THREE("mad.rn", "f64", arith),
    THREE("fma.rn", "f64", arith),
    OF_HALVES(THREE, "fma.rn", arith),
    THREE("fma.rn.sat", "f16", arith),
    THREE("fma.rn.relu", "f16x2", arith),
    THREE("fma.rn.relu", "bf16x2", arith),
    TWO("add.rn", "f64", arith),
    TWO("sub.rn", "f64", arith),
    TWO("mul.rn", "f64", arith),
    TWO("div.rn", "f64", arith),
    ONE("rcp.rn", "f64", arith),
    ONE("sqrt.rn", "f64", arith),
    TWO("add", "f32x2", arith),
    TWO("sub", "f32x2", arith),
    TWO("mul", "f32x2", arith),
    THREE("fma.rn", "f32x2", arith),
    TWO("add.rn.ftz", "f32x2", arith),
    {"sub.rn.f32.f16", "f32=f16,f32", arith, 0, 0, NULL},
    {"add.f32.bf16", "f32=bf16,f32", arith, 0, 0, NULL},
    {"fma.rn.f32.f16", "f32=f16,f16,f32", arith, 0, 0, NULL},
    OF_ALL(TWO, "min", minmax),
    OF_ALL(TWO, "max", minmax),
    OF_HALVES(TWO, "min.NaN", minmax),
    TWO("min.NaN", "f32", minmax),
    TWO("max.NaN", "f32", minmax),
    TWO("min.ftz", "f32", minmax),
    TWO("max.ftz", "f32", minmax),
    TWO("max.ftz.NaN", "f32", minmax),
    TWO("max.NaN.xorsign.abs", "f32", minmax),
    TWO("min.xorsign.abs", "f16x2", minmax),
    THREE("max", "f32", minmax),
    THREE("min.NaN", "f32", minmax),
    OF_ALL(ONE, "neg", sign_bits),
    OF_ALL(ONE, "abs", sign_bits),
    ONE("neg.ftz", "f32", sign_bits),
    ONE("abs.ftz", "f32", sign_bits),
    TWO("copysign", "f32", sign_bits),
    TWO("copysign", "f64", sign_bits),
    {"testp.finite.f32", "pred=f32", testp, 0, 0, NULL},
    {"testp.infinite.f32", "pred=f32", testp, 0, 0, NULL},
    {"testp.number.f64", "pred=f64", testp, 0, 0, NULL},
    {"testp.notanumber.f32", "pred=f32", testp, 0, 0, NULL},
    {"testp.normal.f32", "pred=f32", testp, 0, 0, NULL},
    {"testp.subnormal.f64", "pred=f64", testp, 0, 0, NULL},
    {"testp.subnormal.f32", "pred=f32", testp, 0, 0, NULL},
    APPROX("rcp.approx", "f32", 0x1p-23, 0),
    APPROX("rcp.approx.ftz", "f32", 0x1p-23, 0),
    {"rcp.approx.f32.ftz", "f32=f32", approx, 0x1p-23, 0, NULL},
    APPROX("sqrt.approx", "f32", 0x1p-23, 0),
    APPROX("sqrt.approx.ftz", "f32", 0x1p-23, 0),
    APPROX("rsqrt.approx", "f32", 0x1.12p-23, 0),
    APPROX("rsqrt.approx.ftz", "f32", 0x1.12p-23, 0),
    APPROX("rsqrt.approx", "f64", 0x1p-50, 0),
    APPROX("rsqrt.approx.ftz", "f64", 0x1p-19, 0),
    APPROX("rcp.approx.ftz", "f64", 0x1p-19, 0),
    {"div.approx.f32", "f32=f32,f32", approx, 0x1p-22, 0, NULL},
    {"div.approx.ftz.f32", "f32=f32,f32", approx, 0x1p-22, 0, NULL},
    {"div.full.f32", "f32=f32,f32", approx, 0x1p-22, 0, NULL},
    APPROX("ex2.approx", "f32", 0x1p-22, 0),
    APPROX("ex2.approx.ftz", "f32", 0x1p-22, 0),
    APPROX("ex2.approx", "f16", 0x1.12p-10, 0),
    APPROX("ex2.approx.ftz", "bf16", 0x1p-7, 0),
    APPROX("lg2.approx", "f32", 0x1p-22, 0x1p-22),
    APPROX("lg2.approx.ftz", "f32", 0x1p-22, 0x1p-22),
    APPROX("sin.approx", "f32", 0, 0x1.6ap-21),
    APPROX("sin.approx.ftz", "f32", 0, 0x1.6ap-21),
    APPROX("cos.approx", "f32", 0, 0x1.6ap-21),
    APPROX("cos.approx.ftz", "f32", 0, 0x1.6ap-21),
    APPROX("tanh.approx", "f32", 0x1p-11, 0),
    APPROX("tanh.approx", "f16", 0, 0x1p-10),
    APPROX("tanh.approx", "bf16", 0x1p-8, 0),
    {NULL, NULL, NULL, 0, 0, NULL},
};

const struct op_row op_directed_rows[] = {
    ROUNDED(TWO, "add", "f64"),  ROUNDED(TWO, "sub", "f64"),     ROUNDED(TWO, "mul", "f64"),
    ROUNDED(TWO, "div", "f64"),  ROUNDED(THREE, "fma", "f64"),   ROUNDED(ONE, "rcp", "f64"),
    ROUNDED(ONE, "sqrt", "f64"), {NULL, NULL, NULL, 0, 0, NULL},
};

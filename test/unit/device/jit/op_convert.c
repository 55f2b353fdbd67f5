/* References and rows: conversions. */
#include "test/unit/device/jit/op.h"

#include <string.h>

static uint64_t ones(uint32_t bits)
{
    return bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
}

/* A number in [-2^63, 2^64). */
static __int128 number(const struct op_type *t, uint64_t v)
{
    v &= ones(t->bits);
    return t->kind == 's' ? (__int128)((int64_t)(v << (64 - t->bits)) >> (64 - t->bits))
                          : (__int128)v;
}

static __int128 clamp_to(const struct op_type *t, __int128 v)
{
    __int128 least = t->kind == 's' ? -((__int128)1 << (t->bits - 1)) : 0,
             most = least + (__int128)ones(t->bits);
    return v < least ? least : v > most ? most : v;
}

/* A result is extended to its register. */
static uint64_t in_register(const struct op_type *t, __int128 v)
{
    return (uint64_t)number(t, (uint64_t)v) & ones(t->reg_bits);
}

static void int_to_int(const struct op *o, const uint64_t *in, uint64_t *out)
{
    __int128 v = number(&o->source[0], in[0]);
    out[0] = in_register(&o->result[0], o->sat ? clamp_to(&o->result[0], v) : v);
}

/* To an integral value. */
static double integral(double x, enum op_rounding mode)
{
    if (x != x || x > 0x1p53 || x < -0x1p53)
        return x;
    double whole = (double)(int64_t)x, rest = x - whole;
    bool down = mode == ROUND_DOWN      ? rest < 0
                : mode == ROUND_NEAREST ? rest < -0.5 || (rest == -0.5 && ((int64_t)whole & 1))
                                        : false;
    bool up = mode == ROUND_UP        ? rest > 0
              : mode == ROUND_NEAREST ? rest > 0.5 || (rest == 0.5 && ((int64_t)whole & 1))
                                      : false;
    return __builtin_copysign(whole + up - down, x);
}

static void float_to_int(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *t = &o->result[0];
    double x = integral(op_flushed(o, &o->source[0], op_float(&o->source[0], in[0])), o->rounding);
    if (x != x)
        out[0] = t->bits == 64 ? 1ull << 63 : 0;
    else
        out[0] = in_register(t, x >= 0x1p100    ? clamp_to(t, (__int128)1 << 100)
                                : x <= -0x1p100 ? clamp_to(t, -((__int128)1 << 100))
                                                : clamp_to(t, (__int128)x));
}

/* A 65-bit integer as a double, to odd. */
static double odd_double(__int128 v)
{
    unsigned __int128 a = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    if (a >> 53 != 0)
        a = (a >> 12 << 12) | ((a & 0xfff) != 0 ? 0x1000 : 0);
    double x = (double)(uint64_t)a + (a >> 64 != 0 ? 0x1p64 : 0);
    return v < 0 ? -x : x;
}

/* Rounds a 64-bit integer to double in that mode: the odd trick has too few bits for that. */
static double to_double(__int128 v, enum op_rounding mode)
{
    double high = (double)(int64_t)(v >> 32) * 0x1p32, low = (double)(uint32_t)v;
    return op_double('+', high, low, 0, mode, NULL);
}

static void int_to_float(const struct op *o, const uint64_t *in, uint64_t *out)
{
    __int128 v = number(&o->source[0], in[0]);
    const struct op_type *t = &o->result[0];
    out[0] = t->bits == 64 ? op_bits(t, v == 0 ? 0 : to_double(v, o->rounding), ROUND_NEAREST)
                           : op_bits(t, odd_double(v), o->rounding);
}

static double limited(const struct op *o, double x)
{
    if (o->sat)
        x = x > 0 ? (x < 1 ? x : 1) : 0;
    return o->relu && x <= 0 ? 0 : x;
}

/* The format that a pair is of; ue8m0 is none. */
static const struct op_format *small_of(const struct op_type *t)
{
    return strcmp(t->name, "e4m3x2") == 0   ? &op_e4m3
           : strcmp(t->name, "e5m2x2") == 0 ? &op_e5m2
           : strcmp(t->name, "e2m3x2") == 0 ? &op_e2m3
           : strcmp(t->name, "e3m2x2") == 0 ? &op_e3m2
           : strcmp(t->name, "e2m1x2") == 0 ? &op_e2m1
                                            : NULL;
}

/* The least power of two that is not below a number's size (.rp), or the largest that is not above
 * it (.rz), from 2^-127 on; 255 stands for NaN and what is too large. */
static uint64_t scale_of(double x, enum op_rounding mode, bool satfinite)
{
    int e = 0;
    if (x != x)
        return 255;
    if (x - x != 0)
        return satfinite ? 254 : 255;
    for (x = x < 0 ? -x : x; e < 255; e++) {
        double power = __builtin_ldexp(1, e - 127);
        if (mode == ROUND_UP ? x <= power : x < 2 * power)
            break;
    }
    return e == 255 && satfinite ? 254 : (uint64_t)e;
}

static uint64_t narrowed(const struct op *o, const struct op_type *from, const struct op_type *to,
                         uint64_t v)
{
    double x = limited(o, op_flushed(o, from, op_float(from, v)));
    if (op_has(o, "rni") || op_has(o, "rzi") || op_has(o, "rmi") || op_has(o, "rpi"))
        x = integral(x, o->rounding);
    if (to->kind == '8' && small_of(to) == NULL)
        return scale_of(x, o->rounding, op_has(o, "satfinite"));
    const struct op_format *f = to->kind == '8'   ? small_of(to)
                                : to->kind == 'g' ? &op_bf16
                                                  : &op_f16;
    if (op_has(o, "satfinite") && to->kind != 'b')
        return op_round(f, x, o->rounding, true);
    return op_bits(to, op_flushed(o, to, op_float(to, op_bits(to, x, o->rounding))), o->rounding);
}

static void float_to_float(const struct op *o, const uint64_t *in, uint64_t *out)
{
    out[0] = narrowed(o, &o->source[0], &o->result[0], in[0]);
}

/* Two f32 into one register, the first one above. */
static void pack(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type t = o->result[0];
    t.packed = 1;
    out[0] = narrowed(o, &o->source[0], &t, in[0]) << t.bits |
             narrowed(o, &o->source[1], &t, in[1]);
}

/* Of such bits, other bits of a byte do not count. */
static double widened(const struct op_type *from, uint64_t v)
{
    const struct op_format *f = small_of(from);
    if (f == NULL)
        return v == 255 ? __builtin_nan("") : __builtin_ldexp(1, (int)v - 127);
    return op_value(f, v);
}

/* Two halves to two of 8 bits or less, or back. */
static void packed(const struct op *o, const uint64_t *in, uint64_t *out)
{
    const struct op_type *from = &o->source[0], *to = &o->result[0];
    out[0] = 0;
    for (uint32_t p = 0; p < 2; p++) {
        uint64_t v = in[0] >> (p * from->bits) & ones(from->bits);
        uint64_t r = from->kind == '8' ? op_bits(to, limited(o, widened(from, v)), ROUND_NEAREST)
                                       : narrowed(o, from, to, v);
        out[0] |= r << (p * to->bits);
    }
}

static void tf32(const struct op *o, const uint64_t *in, uint64_t *out)
{
    double x = limited(o, op_value(&op_f32, in[0]));
    out[0] = op_round(&op_tf32, x, o->rounding, op_has(o, "satfinite")) << 13;
    if (x != x)
        out[0] = 0x7fffffff;
}

/* cvt.pack.sat.s8.s32.b32: two words, narrowed, under the lower half of the third. */
static void pack_ints(const struct op *o, const uint64_t *in, uint64_t *out)
{
    struct op_type t = o->types[0], s32 = o->types[1];
    uint64_t a = (uint64_t)clamp_to(&t, number(&s32, in[0])) & ones(t.bits),
             b = (uint64_t)clamp_to(&t, number(&s32, in[1])) & ones(t.bits);
    out[0] = (uint32_t)(a << t.bits | b | (o->n_sources == 3 ? in[2] << (2 * t.bits) : 0));
}

/* --- rows ------------------------------------------------------------------------------------- */

#define CVT(mods, to, from, ref)                                                                   \
    {                                                                                              \
        "cvt" mods "." to "." from, to "=" from, ref, 0, 0, NULL                                   \
    }
#define INT(to, from) CVT("", to, from, int_to_int)
#define SAT(to, from) CVT(".sat", to, from, int_to_int)
#define TO_INT(to, from)                                                                           \
    CVT(".rni", to, from, float_to_int), CVT(".rzi", to, from, float_to_int),                      \
        CVT(".rmi", to, from, float_to_int), CVT(".rpi", to, from, float_to_int)
#define TO_INTS(from)                                                                              \
    TO_INT("s32", from), TO_INT("u32", from), TO_INT("s64", from), TO_INT("u64", from),            \
        TO_INT("s16", from), TO_INT("u16", from)
#define TO_FLOAT(to, from)                                                                         \
    CVT(".rn", to, from, int_to_float), CVT(".rz", to, from, int_to_float),                        \
        CVT(".rm", to, from, int_to_float), CVT(".rp", to, from, int_to_float)
#define TO_FLOATS(from) TO_FLOAT("f32", from), TO_FLOAT("f64", from), TO_FLOAT("f16", from)
#define NARROW(to, from)                                                                           \
    CVT(".rn", to, from, float_to_float), CVT(".rz", to, from, float_to_float),                    \
        CVT(".rm", to, from, float_to_float), CVT(".rp", to, from, float_to_float)
#define INTEGRAL(t)                                                                                \
    CVT(".rni", t, t, float_to_float), CVT(".rzi", t, t, float_to_float),                          \
        CVT(".rmi", t, t, float_to_float), CVT(".rpi", t, t, float_to_float)
#define PACK(mods, to)                                                                             \
    {                                                                                              \
        "cvt" mods "." to ".f32", to "=f32,f32", pack, 0, 0, NULL                                  \
    }

/* A pair of e2m1 is a byte, of which there is no register that can be loaded and stored. */
#define NIBBLES(mods)                                                                              \
    {                                                                                              \
        "cvt" mods ".e2m1x2.f32", "e2m1x2=f32,f32", pack, 0, 0,                                    \
            ".reg .b8 %t<2>; cvt" mods ".e2m1x2.f32 %t0, $1, $2; mov.b16 $0, {%t0, 0}"             \
    }
#define FROM_BYTE(form) ".reg .b8 %t<2>; mov.b16 {%t0, %t1}, $1; " form " $0, %t0"

const struct op_row op_convert_rows[] = {
    INT("s64", "s32"),
    INT("u64", "u32"),
    INT("u32", "u64"),
    INT("u32", "u16"),
    INT("u16", "u32"),
    INT("s8", "s32"),
    INT("s16", "s8"),
    INT("u16", "u8"),
    INT("s32", "s8"),
    INT("u32", "u8"),
    INT("s32", "s16"),
    INT("s64", "s16"),
    INT("u64", "u16"),
    INT("u16", "u64"),
    INT("s64", "s8"),
    INT("u64", "u8"),
    INT("s8", "s64"),
    INT("u8", "u32"),
    SAT("s8", "s32"),
    SAT("u8", "s32"),
    SAT("u32", "s32"),
    SAT("s32", "u32"),
    SAT("s32", "s64"),
    SAT("u16", "s64"),
    SAT("u64", "s64"),
    SAT("s64", "u64"),
    SAT("s16", "u16"),
    TO_INTS("f32"),
    TO_INTS("f64"),
    TO_INTS("f16"),
    TO_INT("s32", "bf16"),
    CVT(".rni.sat", "s8", "f32", float_to_int),
    CVT(".rni.sat", "s8", "f64", float_to_int),
    CVT(".rni.sat", "s32", "f32", float_to_int),
    CVT(".rni.sat", "s32", "f64", float_to_int),
    CVT(".rzi.sat", "u8", "f32", float_to_int),
    CVT(".rzi", "s8", "f32", float_to_int),
    CVT(".rzi", "u8", "f16", float_to_int),
    CVT(".rzi.ftz", "s32", "f32", float_to_int),
    CVT(".rpi.ftz", "s32", "f32", float_to_int),
    CVT(".rmi.ftz", "s64", "f32", float_to_int),
    CVT(".rzi.ftz", "u16", "f32", float_to_int),
    TO_FLOATS("s32"),
    TO_FLOATS("u32"),
    TO_FLOATS("s64"),
    TO_FLOATS("u64"),
    TO_FLOATS("s16"),
    TO_FLOATS("u16"),
    CVT(".rn", "f32", "s8", int_to_float),
    CVT(".rn", "f32", "u8", int_to_float),
    CVT(".rn", "bf16", "s32", int_to_float),
    CVT(".rn", "bf16", "u64", int_to_float),
    CVT(".rn", "bf16", "s16", int_to_float),
    NARROW("f32", "f64"),
    NARROW("f16", "f32"),
    NARROW("bf16", "f32"),
    NARROW("f16", "f64"),
    NARROW("bf16", "f64"),
    CVT(".rn.ftz", "f32", "f64", float_to_float),
    CVT(".rn.relu", "f16", "f32", float_to_float),
    CVT(".rn.relu", "bf16", "f32", float_to_float),
    CVT(".rn.sat", "f16", "f32", float_to_float),
    CVT(".rn.satfinite", "f16", "f32", float_to_float),
    CVT(".rz.ftz", "f16", "f32", float_to_float),
    CVT("", "f32", "f16", float_to_float),
    CVT("", "f32", "bf16", float_to_float),
    CVT("", "f64", "f32", float_to_float),
    CVT("", "f64", "f16", float_to_float),
    CVT("", "f64", "bf16", float_to_float),
    CVT(".ftz", "f64", "f32", float_to_float),
    CVT(".sat", "f32", "f32", float_to_float),
    CVT(".ftz.sat", "f32", "f32", float_to_float),
    CVT(".sat", "f64", "f64", float_to_float),
    CVT(".sat", "f16", "f16", float_to_float),
    INTEGRAL("f32"),
    INTEGRAL("f64"),
    INTEGRAL("f16"),
    CVT(".rmi.ftz", "f32", "f32", float_to_float),
    CVT(".rni.ftz", "f32", "f32", float_to_float),
    CVT(".rpi.ftz", "f32", "f32", float_to_float),
    PACK(".rn", "f16x2"),
    PACK(".rz", "f16x2"),
    PACK(".rn", "bf16x2"),
    PACK(".rz", "bf16x2"),
    PACK(".rn.relu", "f16x2"),
    PACK(".rn.relu", "bf16x2"),
    PACK(".rn.satfinite", "f16x2"),
    PACK(".rn.satfinite", "e4m3x2"),
    PACK(".rn.satfinite", "e5m2x2"),
    PACK(".rn.satfinite.relu", "e4m3x2"),
    CVT(".rn.satfinite", "e4m3x2", "f16x2", packed),
    CVT(".rn.satfinite", "e5m2x2", "f16x2", packed),
    CVT(".rn.satfinite.relu", "e5m2x2", "f16x2", packed),
    CVT(".rn", "f16x2", "e4m3x2", packed),
    CVT(".rn", "f16x2", "e5m2x2", packed),
    CVT(".rn.relu", "f16x2", "e4m3x2", packed),
    PACK(".rn.satfinite", "e2m3x2"),
    PACK(".rn.satfinite", "e3m2x2"),
    PACK(".rn.satfinite.relu", "e3m2x2"),
    CVT(".rn", "f16x2", "e2m3x2", packed),
    CVT(".rn", "f16x2", "e3m2x2", packed),
    CVT(".rn.relu", "f16x2", "e2m3x2", packed),
    NIBBLES(".rn.satfinite"),
    NIBBLES(".rn.satfinite.relu"),
    {"cvt.rn.f16x2.e2m1x2", "f16x2=e2m1x2", packed, 0, 0, FROM_BYTE("cvt.rn.f16x2.e2m1x2")},
    {"cvt.rn.relu.f16x2.e2m1x2", "f16x2=e2m1x2", packed, 0, 0,
     FROM_BYTE("cvt.rn.relu.f16x2.e2m1x2")},
    PACK(".rp", "ue8m0x2"),
    PACK(".rz", "ue8m0x2"),
    PACK(".rp.satfinite", "ue8m0x2"),
    PACK(".rz.satfinite", "ue8m0x2"),
    CVT(".rp.satfinite", "ue8m0x2", "bf16x2", packed),
    CVT(".rz", "ue8m0x2", "bf16x2", packed),
    CVT(".rn", "bf16x2", "ue8m0x2", packed),
    CVT(".rna", "tf32", "f32", tf32),
    CVT(".rn", "tf32", "f32", tf32),
    CVT(".rz", "tf32", "f32", tf32),
    CVT(".rn.relu", "tf32", "f32", tf32),
    CVT(".rn.satfinite", "tf32", "f32", tf32),
    {"cvt.pack.sat.s8.s32.b32", "b32=s32,s32,b32", pack_ints, 0, 0, NULL},
    {"cvt.pack.sat.u8.s32.b32", "b32=s32,s32,b32", pack_ints, 0, 0, NULL},
    {"cvt.pack.sat.s16.s32", "b32=s32,s32", pack_ints, 0, 0, NULL},
    {"cvt.pack.sat.u16.s32", "b32=s32,s32", pack_ints, 0, 0, NULL},
    {NULL, NULL, NULL, 0, 0, NULL},
};

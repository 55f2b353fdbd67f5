/* Floating point.
 *
 * Exactly defined operations are exact: .rn by LLVM's own, directed rounding by AVX-512's embedded
 * rounding, halves through f32 (and fma through f64 with rounding to odd in between).
 * Approximations are polynomials within PTX's stated errors. */
#include <stdio.h>
#include <string.h>

#include "device/jit/avx512.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

static struct tl_val bits_like(struct tl_emit *e, struct tl_val like, uint32_t bits, uint64_t value)
{
    struct tl_val v = tl_const(e, bits, value);
    return like.is_vec ? tl_widen(e, v) : v;
}

static struct tl_val fma3(struct tl_emit *e, struct tl_val a, struct tl_val b, struct tl_val c)
{
    struct tl_val args[3] = {a, b, c};
    return tl_intrinsic(e, "llvm.fma", args, 3);
}

static struct tl_val unary(struct tl_emit *e, const char *name, struct tl_val a)
{
    return tl_intrinsic(e, name, &a, 1);
}

struct tl_val tl_flush(struct tl_emit *e, struct tl_val v)
{
    struct tl_val bits = tl_bitcast(e, v, e->i32);
    struct tl_val exponent = tl_op(e, LLVMAnd, bits, tl_const(e, 32, 0x7f800000));
    struct tl_val sign = tl_op(e, LLVMAnd, bits, tl_const(e, 32, 0x80000000));
    struct tl_val r = tl_select(e, tl_icmp(e, LLVMIntEQ, exponent, tl_const(e, 32, 0)), sign, bits);
    return tl_bitcast(e, r, e->f32);
}

static struct tl_val maybe_flush(struct tl_emit *e, struct tl_type t, struct tl_val v)
{
    return tl_has(e, TL_MOD_ftz) && t.kind == TL_T_FLOAT && t.bits == 32 ? tl_flush(e, v) : v;
}

static struct tl_val negated(struct tl_emit *e, struct tl_val v)
{
    v.v = LLVMBuildFNeg(e->b, v.v, "");
    return v;
}

/* --- directed rounding ------------------------------------------------------------------------ */

/* An AVX-512 operation that rounds as the form says. */
static struct tl_val embedded(struct tl_emit *e, const char *op, const struct tl_val *args,
                              unsigned n, bool is_f64)
{
    bool is_vec = false;
    struct tl_val values[4];
    for (unsigned i = 0; i < n; i++) {
        is_vec |= args[i].is_vec;
        values[i] = tl_widen(e, args[i]);
    }
    /* 8: no exceptions */
    values[n] = (struct tl_val){LLVMConstInt(e->i32, 8 + (uint32_t)tl_rounding_of(e), false),
                                false};
    struct tl_val r = tl_avx512(e, op, is_f64 ? e->f64 : e->f32, values, n + 1);
    return is_vec ? r : tl_lane_value(e, r, LLVMConstInt(e->i32, 0, false));
}

/* The same on f32 without AVX-512: in f64 to odd, where sums, products and quotients of f32 lose
 * nothing that matters. */
static struct tl_val directed_f32(struct tl_emit *e, char op, struct tl_val *args, unsigned n)
{
    struct tl_val x[3] = {{NULL, false}}, s, rest;
    enum tl_rounding mode = tl_rounding_of(e);
    for (unsigned i = 0; i < n; i++)
        x[i] = tl_extend(e, args[i], e->f64);
    if (op == 'f') {
        x[0] = tl_op(e, LLVMFMul, x[0], x[1]); /* exact */
        x[1] = x[2];
    }
    if (op == '-')
        x[1] = negated(e, x[1]);
    if (op == '*') {
        s = tl_op(e, LLVMFMul, x[0], x[1]);
        return tl_round_f32(e, s, mode);
    }
    if (op == '/') {
        s = tl_op(e, LLVMFDiv, x[0], x[1]);
        rest = tl_op(e, LLVMFDiv, fma3(e, negated(e, s), x[1], x[0]), x[1]);
    } else if (op == 'r') {
        s = unary(e, "llvm.sqrt", x[0]);
        rest = fma3(e, negated(e, s), s, x[0]);
    } else if (
        mode ==
        TL_ROUND_DOWN) { /* an exact zero is then negative: that of the opposites is positive */
        s = negated(e, tl_two_sum(e, negated(e, x[0]), negated(e, x[1]), &rest));
        rest = negated(e, rest);
    } else {
        s = tl_two_sum(e, x[0], x[1], &rest);
    }
    return tl_round_f32(e, tl_odd_f64(e, s, rest), mode);
}

static void mark_pointer(struct tl_emit *e, LLVMValueRef call, unsigned n)
{
    unsigned kind = LLVMGetEnumAttributeKindForName("elementtype", 11);
    LLVMAddCallSiteAttribute(call, n + 1, LLVMCreateTypeAttribute(e->ctx, kind, e->i32));
}

/* On f64 without AVX-512: four at a time, with the processor's rounding mode changed around the one
 * instruction. */
static struct tl_val directed_f64(struct tl_emit *e, char op, struct tl_val *args, unsigned n)
{
    enum { WIDTH = 4, DEFAULT_MXCSR = 0x1f80 };
    static const char head[] = "vstmxcsr $%u; vldmxcsr $%u; ";
    const char *body = op == '+'   ? "vaddpd $2, $1, $0"
                       : op == '-' ? "vsubpd $2, $1, $0"
                       : op == '*' ? "vmulpd $2, $1, $0"
                       : op == '/' ? "vdivpd $2, $1, $0"
                       : op == 'f' ? "vmovapd $1, $0; vfmadd213pd $3, $2, $0"
                                   : "vsqrtpd $1, $0";
    const char *constraints = n == 1   ? "=&x,x,*m,*m,~{memory}"
                              : n == 2 ? "=&x,x,x,*m,*m,~{memory}"
                                       : "=&x,x,x,x,*m,*m,~{memory}";
    char text[160];
    int length = snprintf(text, sizeof text, head, n + 1, n + 2);
    length += snprintf(text + length, sizeof text - (size_t)length, "%s; vldmxcsr $%u", body,
                       n + 1);
    LLVMTypeRef four = LLVMVectorType(e->f64, WIDTH), types[5];
    LLVMValueRef values[5], saved = tl_alloca(e, e->i32, "mxcsr"),
                            wanted = tl_alloca(e, e->i32, "mxcsr");
    uint32_t mode = DEFAULT_MXCSR | (uint32_t)tl_rounding_of(e) << 13;
    LLVMBuildStore(e->b, LLVMConstInt(e->i32, mode, false), wanted);
    bool is_vec = false;
    for (unsigned i = 0; i < n; i++) {
        is_vec |= args[i].is_vec;
        args[i] = tl_widen(e, args[i]);
        types[i] = four;
    }
    types[n] = types[n + 1] = e->ptr;
    values[n] = saved;
    values[n + 1] = wanted;
    LLVMTypeRef type = LLVMFunctionType(four, types, n + 2, false);
    LLVMValueRef code = LLVMGetInlineAsm(type, text, (size_t)length, constraints,
                                         strlen(constraints), true, false, LLVMInlineAsmDialectATT,
                                         false);
    LLVMValueRef r = LLVMGetPoison(tl_vec(e->f64));
    for (uint32_t first = 0; first < (is_vec ? TL_LANES : WIDTH); first += WIDTH) {
        for (unsigned i = 0; i < n; i++)
            values[i] = tl_lanes_from(e, args[i].v, first, WIDTH);
        LLVMValueRef part = LLVMBuildCall2(e->b, type, code, values, n + 2, "");
        mark_pointer(e, part, n);
        mark_pointer(e, part, n + 1);
        for (uint32_t i = 0; i < WIDTH; i++)
            r = LLVMBuildInsertElement(
                e->b, r, LLVMBuildExtractElement(e->b, part, LLVMConstInt(e->i32, i, false), ""),
                LLVMConstInt(e->i32, first + i, false), "");
    }
    struct tl_val all = {r, true};
    return is_vec ? all : tl_lane_value(e, all, LLVMConstInt(e->i32, 0, false));
}

/* One of + - * / f(ma) r(oot) rounded as the form says. */
static struct tl_val directed(struct tl_emit *e, struct tl_type t, char op, struct tl_val *args,
                              unsigned n)
{
    const char *name = op == '+'   ? "add"
                       : op == '-' ? "sub"
                       : op == '*' ? "mul"
                       : op == '/' ? "div"
                       : op == 'f' ? "vfmadd"
                                   : "sqrt";
    if (e->has_avx512)
        return embedded(e, name, args, n, t.bits == 64);
    return t.bits == 32 ? directed_f32(e, op, args, n) : directed_f64(e, op, args, n);
}

static bool is_directed(struct tl_emit *e, struct tl_type t)
{
    return tl_rounding_of(e) != TL_ROUND_NEAREST && t.kind == TL_T_FLOAT && t.bits >= 32;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

/* Exact for what matters: where the sum of f16 does not fit f64, it is next to an f16 and not to
 * the middle of two. */
static void make_half_fma(struct tl_emit *e, const void *key, struct tl_val *v)
{
    (void)key;
    struct tl_val d = fma3(e, tl_extend(e, v[0], e->f64), tl_extend(e, v[1], e->f64),
                           tl_extend(e, v[2], e->f64));
    v[0] = tl_truncate(e, tl_odd_f32(e, d), e->f16);
}

static struct tl_val half_fma(struct tl_emit *e, struct tl_val a, struct tl_val b, struct tl_val c)
{
    struct tl_val v[3] = {a, b, c};
    if (tl_outlines(e) && (a.is_vec || b.is_vec || c.is_vec)) {
        for (uint32_t i = 0; i < 3; i++)
            v[i] = tl_widen(e, v[i]);
        tl_outlined(e, make_half_fma, "", 0, v, 3, 1);
    } else {
        make_half_fma(e, NULL, v);
    }
    return v[0];
}

/* bfloat operands come as f32 and go back through tl_from_float, which rounds once; the result
 * before it must be to odd. */
static struct tl_val bfloat_fma(struct tl_emit *e, struct tl_val a, struct tl_val b,
                                struct tl_val c)
{
    /* exact */
    struct tl_val rest,
        product = tl_op(e, LLVMFMul, tl_extend(e, a, e->f64), tl_extend(e, b, e->f64));
    struct tl_val s = tl_two_sum(e, product, tl_extend(e, c, e->f64), &rest);
    return tl_odd_f32(e, tl_odd_f64(e, s, rest));
}

static struct tl_val arith(struct tl_emit *e, struct tl_type t, LLVMOpcode op, struct tl_val a,
                           struct tl_val b)
{
    if (is_directed(e, t)) {
        struct tl_val args[2] = {a, b};
        return directed(e, t,
                        op == LLVMFAdd   ? '+'
                        : op == LLVMFSub ? '-'
                        : op == LLVMFMul ? '*'
                                         : '/',
                        args, 2);
    }
    if (t.kind == TL_T_FLOAT && t.bits == 16)
        return tl_truncate(e, tl_op(e, op, tl_extend(e, a, e->f32), tl_extend(e, b, e->f32)),
                           e->f16);
    if (t.kind == TL_T_BFLOAT && op == LLVMFMul) /* in f32, what is too small would round twice */
        return tl_odd_f32(e, tl_op(e, op, tl_extend(e, a, e->f64), tl_extend(e, b, e->f64)));
    return tl_op(e, op, a, b);
}

static struct tl_val fused(struct tl_emit *e, struct tl_type t, struct tl_val a, struct tl_val b,
                           struct tl_val c)
{
    if (t.kind == TL_T_BFLOAT)
        return bfloat_fma(e, a, b, c);
    if (t.bits == 16)
        return half_fma(e, a, b, c);
    if (is_directed(e, t)) {
        struct tl_val args[3] = {a, b, c};
        return directed(e, t, 'f', args, 3);
    }
    return fma3(e, a, b, c);
}

/* --- min and max ------------------------------------------------------------------------------ */

/* PTX's min and max: a NaN loses unless .NaN is there, and -0 is less than +0; .xorsign compares
 * magnitudes. */
struct tl_val tl_minmax(struct tl_emit *e, struct tl_type t, bool is_min, struct tl_val a,
                        struct tl_val b)
{
    bool is_half = t.kind == TL_T_FLOAT && t.bits == 16;
    uint32_t bits = t.kind == TL_T_BFLOAT ? 32 : t.bits;
    tl_match(e, &a, &b);
    struct tl_val x = tl_bitcast(e, a, tl_int(e, bits)), y = tl_bitcast(e, b, tl_int(e, bits)),
                  sign = {0};
    bool has_xorsign = tl_has(e, TL_MOD_xorsign);
    if (has_xorsign) { /* of magnitudes, with the product's sign */
        struct tl_val top = tl_const(e, bits, 1ull << (bits - 1)),
                      rest = tl_const(e, bits, (1ull << (bits - 1)) - 1);
        sign = tl_op(e, LLVMAnd, tl_op(e, LLVMXor, x, y), top);
        x = tl_op(e, LLVMAnd, x, rest);
        y = tl_op(e, LLVMAnd, y, rest);
        a = tl_bitcast(e, x, bits == 16 ? e->f16 : bits == 32 ? e->f32 : e->f64);
        b = tl_bitcast(e, y, bits == 16 ? e->f16 : bits == 32 ? e->f32 : e->f64);
    }
    if (is_half) {
        a = tl_extend(e, a, e->f32);
        b = tl_extend(e, b, e->f32);
    }
    uint64_t quiet = bits == 16 ? 0x7fff : bits == 32 ? 0x7fffffff : 0x7fffffffffffffffull;
    struct tl_val nan = bits_like(e, x, bits, quiet);
    if (e->has_avx512 && a.is_vec && !is_half && !tl_has(e, TL_MOD_NaN)) {
        LLVMTypeRef element = bits == 32 ? e->f32 : e->f64;
        struct tl_val m = tl_avx512_minmax(e, element, is_min, a, b, tl_bitcast(e, nan, element));
        return has_xorsign
                   ? tl_bitcast(e, tl_op(e, LLVMOr, tl_bitcast(e, m, tl_int(e, bits)), sign),
                                element)
                   : m;
    }
    struct tl_val smaller = tl_fcmp(e, is_min ? LLVMRealOLT : LLVMRealOGT, a, b);
    struct tl_val r = tl_select(e, smaller, x, y);
    /* -0 is below +0 */
    r = tl_select(e, tl_fcmp(e, LLVMRealOEQ, a, b), tl_op(e, is_min ? LLVMOr : LLVMAnd, x, y), r);
    struct tl_val nan_a = tl_fcmp(e, LLVMRealUNO, a, a), nan_b = tl_fcmp(e, LLVMRealUNO, b, b);
    if (tl_has(e, TL_MOD_NaN)) {
        r = tl_select(e, tl_op(e, LLVMOr, nan_a, nan_b), nan, r);
    } else {
        r = tl_select(e, nan_b, x, r);
        r = tl_select(e, nan_a, tl_select(e, nan_b, nan, y), r);
    }
    if (has_xorsign)
        r = tl_op(e, LLVMOr, r, sign);
    return tl_bitcast(e, r, bits == 16 ? e->f16 : bits == 32 ? e->f32 : e->f64);
}

/* --- approximations --------------------------------------------------------------------------- */

static struct tl_val polynomial(struct tl_emit *e, struct tl_val x, const double *c, int n)
{
    struct tl_val r = tl_lit(e, x, c[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        r = fma3(e, r, x, tl_lit(e, x, c[i]));
    return r;
}

static struct tl_val power_of_two(struct tl_emit *e, struct tl_val n)
{
    struct tl_val biased = tl_op(e, LLVMAdd, n, tl_const(e, 32, 127));
    return tl_bitcast(e, tl_op(e, LLVMShl, biased, tl_const(e, 32, 23)), e->f32);
}

static struct tl_val to_i32(struct tl_emit *e, struct tl_val v)
{
    v.v = LLVMBuildFPToSI(e->b, v.v, tl_like(e, v, e->i32), "");
    return v;
}

/* 2^x: nearest integer and a Taylor series in what is left, at most a half. */
static struct tl_val exp2_f32(struct tl_emit *e, struct tl_val x)
{
    static const double c[] = {1,
                               0.69314718055994531,
                               0.24022650695910071,
                               0.055504108664821580,
                               0.0096181291076284772,
                               0.0013333558146428443,
                               0.00015403530393381610,
                               0.000015252733804059841};
    if (e->has_avx512 && x.is_vec)
        return tl_avx512_scale(e, polynomial(e, tl_avx512_fraction(e, x), c, 8),
                               unary(e, "llvm.roundeven", x));
    struct tl_val is_nan = tl_fcmp(e, LLVMRealUNO, x, x);
    struct tl_val y = tl_select(e, tl_fcmp(e, LLVMRealOLT, x, tl_lit(e, x, 130)), x,
                                tl_lit(e, x, 130));
    y = tl_select(e, tl_fcmp(e, LLVMRealOGT, y, tl_lit(e, x, -152)), y, tl_lit(e, x, -152));
    y = tl_select(e, is_nan, tl_lit(e, x, 0), y);
    struct tl_val whole = unary(e, "llvm.roundeven", y), n = to_i32(e, whole);
    struct tl_val r = polynomial(e, tl_op(e, LLVMFSub, y, whole), c, 8);
    /* in two steps, for results near the ends */
    struct tl_val half = tl_op(e, LLVMAShr, n, tl_const(e, 32, 1));
    r = tl_op(e, LLVMFMul, tl_op(e, LLVMFMul, r, power_of_two(e, half)),
              power_of_two(e, tl_op(e, LLVMSub, n, half)));
    return tl_select(e, is_nan, x, r);
}

/* log2: mantissa around 1, series in (m - 1) / (m + 1). */
static struct tl_val log2_f32(struct tl_emit *e, struct tl_val x)
{
    static const double c[] = {2.8853900817779268, 0.96179669392597560, 0.57707801635558536,
                               0.41219858311113240, 0.32059889797532521};
    struct tl_val small = tl_fcmp(e, LLVMRealOLT, x, tl_lit(e, x, 1.1754943508222875e-38));
    struct tl_val y = tl_select(e, small, tl_op(e, LLVMFMul, x, tl_lit(e, x, 16777216)), x);
    struct tl_val bits = tl_bitcast(e, y, e->i32);
    struct tl_val shifted = tl_op(e, LLVMSub, bits,
                                  /* so that m is in [sqrt(1/2), sqrt(2)) */
                                  tl_const(e, 32, 0x3f3504f3));
    struct tl_val n = tl_op(e, LLVMAShr, shifted, tl_const(e, 32, 23));
    struct tl_val m = tl_bitcast(
        e, tl_op(e, LLVMSub, bits, tl_op(e, LLVMShl, n, tl_const(e, 32, 23))), e->f32);
    struct tl_val s = tl_op(e, LLVMFDiv, tl_op(e, LLVMFSub, m, tl_lit(e, x, 1)),
                            tl_op(e, LLVMFAdd, m, tl_lit(e, x, 1)));
    struct tl_val r = tl_op(e, LLVMFMul, polynomial(e, tl_op(e, LLVMFMul, s, s), c, 5), s);
    struct tl_val whole = {LLVMBuildSIToFP(e->b, n.v, tl_like(e, n, e->f32), ""), n.is_vec};
    whole = tl_select(e, small, tl_op(e, LLVMFSub, whole, tl_lit(e, x, 24)), whole);
    r = tl_op(e, LLVMFAdd, r, whole);
    double inf = __builtin_inf();
    r = tl_select(e, tl_fcmp(e, LLVMRealOEQ, x, tl_lit(e, x, inf)), x, r);
    r = tl_select(e, tl_fcmp(e, LLVMRealOEQ, x, tl_lit(e, x, 0)), tl_lit(e, x, -inf), r);
    struct tl_val nan = tl_bitcast(e, bits_like(e, x, 32, 0x7fffffff), e->f32);
    r = tl_select(e, tl_fcmp(e, LLVMRealOLT, x, tl_lit(e, x, 0)), nan, r);
    return tl_select(e, tl_fcmp(e, LLVMRealUNO, x, x), x, r);
}

/* Quadrant by Cody and Waite's reduction, then sine or cosine of at most a quarter of pi. */
static struct tl_val sincos_f32(struct tl_emit *e, struct tl_val x, bool is_cos)
{
    static const double s[] = {1, -1.6666666666666666e-1, 8.3333333333333332e-3,
                               -1.9841269841269841e-4, 2.7557319223985893e-6};
    static const double k[] = {1, -0.5, 4.1666666666666664e-2, -1.3888888888888889e-3,
                               2.4801587301587302e-5};
    struct tl_val limit = tl_lit(e, x, 1e6);
    struct tl_val in = tl_fcmp(e, LLVMRealOLT, unary(e, "llvm.fabs", x),
                               limit); /* beyond, the hardware is far off as well */
    struct tl_val wide = tl_extend(e, tl_select(e, in, x, tl_lit(e, x, 0)), e->f64);
    struct tl_val n = unary(e, "llvm.roundeven",
                            tl_op(e, LLVMFMul, wide, tl_lit(e, wide, 0.63661977236758134)));
    struct tl_val r = tl_truncate(e, fma3(e, n, tl_lit(e, wide, -1.5707963267948966), wide),
                                  e->f32);
    struct tl_val q = to_i32(e, n);
    if (is_cos)
        q = tl_op(e, LLVMAdd, q, tl_const(e, 32, 1));
    struct tl_val r2 = tl_op(e, LLVMFMul, r, r);
    struct tl_val sine = tl_op(e, LLVMFMul, polynomial(e, r2, s, 5), r),
                  cosine = polynomial(e, r2, k, 5);
    struct tl_val odd = tl_icmp(e, LLVMIntNE, tl_op(e, LLVMAnd, q, tl_const(e, 32, 1)),
                                tl_const(e, 32, 0));
    struct tl_val value = tl_bitcast(e, tl_select(e, odd, cosine, sine), e->i32);
    struct tl_val sign = tl_op(
        e, LLVMShl,
        tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, q, tl_const(e, 32, 1)), tl_const(e, 32, 1)),
        tl_const(e, 32, 31));
    value = tl_bitcast(e, tl_op(e, LLVMXor, value, sign), e->f32);
    struct tl_val infinite = tl_fcmp(e, LLVMRealUNE, tl_op(e, LLVMFSub, x, x),
                                     tl_lit(e, x, 0)); /* NaN and infinities */
    return tl_select(e, infinite, tl_bitcast(e, bits_like(e, x, 32, 0x7fffffff), e->f32), value);
}

/* tanh = 1 - 2 / (e^2x + 1), near zero by its series. */
static struct tl_val tanh_f32(struct tl_emit *e, struct tl_val x)
{
    struct tl_val a = unary(e, "llvm.fabs", x);
    struct tl_val ex = exp2_f32(e, tl_op(e, LLVMFMul, a, tl_lit(e, x, 2.8853900817779268)));
    struct tl_val big = tl_op(
        e, LLVMFSub, tl_lit(e, x, 1),
        tl_op(e, LLVMFDiv, tl_lit(e, x, 2), tl_op(e, LLVMFAdd, ex, tl_lit(e, x, 1))));
    struct tl_val a2 = tl_op(e, LLVMFMul, a, a);
    struct tl_val series = tl_op(
        e, LLVMFMul, a,
        fma3(e, a2, fma3(e, a2, tl_lit(e, x, 2.0 / 15), tl_lit(e, x, -1.0 / 3)), tl_lit(e, x, 1)));
    struct tl_val r = tl_select(e, tl_fcmp(e, LLVMRealOLT, a, tl_lit(e, x, 0.1)), series, big);
    struct tl_val args[2] = {r, x};
    r = tl_intrinsic(e, "llvm.copysign", args, 2);
    return tl_select(e, tl_fcmp(e, LLVMRealUNO, x, x), x, r);
}

/* --- one element ------------------------------------------------------------------------------ */

static bool approximate(struct tl_emit *e, enum tl_ptx_op op, struct tl_val x, struct tl_val *r)
{
    switch (op) {
    case TL_OP_ex2:
        *r = exp2_f32(e, x);
        return true;
    case TL_OP_lg2:
        *r = log2_f32(e, x);
        return true;
    case TL_OP_sin:
        *r = sincos_f32(e, x, false);
        return true;
    case TL_OP_cos:
        *r = sincos_f32(e, x, true);
        return true;
    case TL_OP_tanh:
        *r = tanh_f32(e, x);
        return true;
    default:
        return false;
    }
}

static struct tl_val square_root(struct tl_emit *e, struct tl_type t, struct tl_val x)
{
    return is_directed(e, t) ? directed(e, t, 'r', &x, 1) : unary(e, "llvm.sqrt", x);
}

/* rcp and rsqrt .approx.ftz.f64 look at the upper half of their operand and give the upper half of
 * a result. */
static struct tl_val gross(struct tl_emit *e, enum tl_ptx_op op, struct tl_val x)
{
    struct tl_val high = tl_const(e, 64, 0xffffffff00000000ull), sign = tl_const(e, 64, 1ull << 63),
                  exponent = tl_const(e, 64, 0x7ffull << 52);
    struct tl_val bits = tl_op(e, LLVMAnd, tl_bitcast(e, x, e->i64), high);
    struct tl_val is_nan = tl_fcmp(e, LLVMRealUNO, x, x),
                  nan = tl_const(e, 64, 0x7fffffff00000000ull);
    struct tl_val is_small = tl_icmp(e, LLVMIntEQ, tl_op(e, LLVMAnd, bits, exponent),
                                     tl_const(e, 64, 0));
    bits = tl_select(e, is_small, tl_op(e, LLVMAnd, bits, sign), bits);
    x = tl_bitcast(e, bits, e->f64);
    struct tl_val r = tl_op(e, LLVMFDiv, tl_lit(e, x, 1),
                            op == TL_OP_rsqrt ? unary(e, "llvm.sqrt", x) : x);
    bits = tl_op(e, LLVMAnd, tl_bitcast(e, r, e->i64), high);
    is_small = tl_icmp(e, LLVMIntEQ, tl_op(e, LLVMAnd, bits, exponent), tl_const(e, 64, 0));
    bits = tl_select(e, is_small, tl_op(e, LLVMAnd, bits, sign), bits);
    return tl_bitcast(e, tl_select(e, is_nan, nan, bits), e->f64);
}

/* The result of the operation on one element; `in` are the sources as floats. */
static bool operate(struct tl_emit *e, struct tl_type t, struct tl_val *in, struct tl_val *r)
{
    enum tl_ptx_op op = e->inst->inst.form->op;
    bool is_half = t.bits == 16 && t.kind == TL_T_FLOAT;
    struct tl_val wide = is_half ? tl_extend(e, in[0], e->f32) : in[0];
    if (t.bits == 64 && tl_has(e, TL_MOD_ftz) && (op == TL_OP_rcp || op == TL_OP_rsqrt)) {
        *r = gross(e, op, in[0]);
        return true;
    }
    switch (op) {
    case TL_OP_add:
        *r = arith(e, t, LLVMFAdd, in[0], in[1]);
        return true;
    case TL_OP_sub:
        *r = arith(e, t, LLVMFSub, in[0], in[1]);
        return true;
    case TL_OP_mul:
        *r = arith(e, t, LLVMFMul, in[0], in[1]);
        return true;
    case TL_OP_div:
        *r = arith(e, t, LLVMFDiv, in[0], in[1]);
        return true;
    case TL_OP_rcp:
        *r = arith(e, t, LLVMFDiv, tl_lit(e, in[0], 1), in[0]);
        return true;
    case TL_OP_fma:
    case TL_OP_mad:
        *r = fused(e, t, in[0], in[1], in[2]);
        return true;
    case TL_OP_min:
    case TL_OP_max:
        *r = tl_minmax(e, t, op == TL_OP_min, in[0], in[1]);
        if (e->inst->n_operands == 4)
            *r = tl_minmax(e, t, op == TL_OP_min, *r, in[2]);
        return true;
    case TL_OP_sqrt:
        *r = square_root(e, t, in[0]);
        return true;
    case TL_OP_rsqrt:
        *r = tl_op(e, LLVMFDiv, tl_lit(e, in[0], 1), unary(e, "llvm.sqrt", in[0]));
        return true;
    default:
        break;
    }
    if (!approximate(e, op, wide, r))
        return false;
    if (is_half)
        *r = tl_truncate(e, *r, e->f16);
    return true;
}

static uint32_t source_count(const struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_fma:
    case TL_OP_mad:
        return 3;
    case TL_OP_add:
    case TL_OP_sub:
    case TL_OP_mul:
    case TL_OP_div:
        return 2;
    case TL_OP_min:
    case TL_OP_max:
        return e->inst->n_operands == 4 ? 3 : 2;
    default:
        return 1;
    }
}

/* The n-th part of a packed operand, as a float. */
static struct tl_val part_of(struct tl_emit *e, struct tl_val whole, struct tl_type t, uint32_t n)
{
    struct tl_val shift = tl_const(e, t.bits * t.packed, (uint64_t)n * t.bits);
    struct tl_val bits = tl_cast_int(e, tl_op(e, LLVMLShr, whole, shift), t.bits, false);
    struct tl_type single = {t.kind, t.bits, 1};
    return tl_to_float(e, bits, single);
}

/* What is done element by element, for packed types on each half.  False if the form has too few
 * operands or is none of these. */
static bool emit_general(struct tl_emit *e, struct tl_type t)
{
    uint32_t n = source_count(e), width = t.bits * t.packed;
    struct tl_type single = {t.kind, t.bits, 1};
    struct tl_val whole[3], result = tl_const(e, width, 0);
    if (e->inst->n_operands < n + 1)
        return false;
    for (uint32_t i = 0; i < n; i++)
        whole[i] = tl_read(e, tl_opd(e, i + 1), width);
    for (uint32_t p = 0; p < t.packed; p++) {
        struct tl_val in[3] = {{NULL, false}}, r;
        bool is_vec = false;
        for (uint32_t i = 0; i < n; i++) {
            in[i] = maybe_flush(e, single,
                                t.packed == 1 ? tl_to_float(e, whole[i], single)
                                              : part_of(e, whole[i], t, p));
            is_vec |= in[i].is_vec;
        }
        for (uint32_t i = 0; i < n && is_vec; i++)
            in[i] = tl_widen(e, in[i]);
        if (!operate(e, single, in, &r))
            return false;
        r = maybe_flush(e, single, r);
        if (tl_has(e, TL_MOD_sat))
            r = tl_saturate(e, r);
        if (tl_ptx_form_has_text(e->inst->inst.form, "relu"))
            r = tl_relu(e, r);
        struct tl_val bits = tl_from_float(e, r, single);
        if (t.packed == 1)
            result = bits;
        else
            result = tl_op(e, LLVMOr, result,
                           tl_op(e, LLVMShl, tl_cast_int(e, bits, width, false),
                                 tl_const(e, width, (uint64_t)p * t.bits)));
    }
    tl_write(e, tl_opd(e, 0), result, false);
    return true;
}

/* add, sub and fma .f32.f16 or .bf16: the last source is f32, the others are halves, which f32
 * holds exactly. */
static void emit_mixed(struct tl_emit *e, struct tl_type half)
{
    struct tl_type f32 = {TL_T_FLOAT, 32, 1};
    uint32_t n = source_count(e);
    struct tl_val in[3] = {{NULL, false}}, r = {NULL, false};
    bool is_vec = false;
    for (uint32_t i = 0; i < n; i++) {
        in[i] = tl_read_as(e, tl_opd(e, i + 1), i + 1 == n ? f32 : half);
        if (i + 1 < n && half.kind == TL_T_FLOAT)
            in[i] = tl_extend(e, in[i], e->f32);
        is_vec |= in[i].is_vec;
    }
    for (uint32_t i = 0; i < n && is_vec; i++)
        in[i] = tl_widen(e, in[i]);
    operate(e, f32, in, &r);
    tl_write_as(e, tl_opd(e, 0), tl_has(e, TL_MOD_sat) ? tl_saturate(e, r) : r, f32);
}

/* neg, abs and copysign are bits. */
static void emit_sign(struct tl_emit *e, struct tl_type t, enum tl_ptx_op op)
{
    uint32_t width = t.bits * t.packed;
    uint64_t sign = 0;
    for (uint32_t p = 0; p < t.packed; p++)
        sign |= 1ull << (p * t.bits + t.bits - 1);
    struct tl_val a = tl_read(e, tl_opd(e, 1), width), r;
    if (tl_has(e, TL_MOD_ftz) && t.bits == 32 && t.packed == 1)
        a = tl_bitcast(e, tl_flush(e, tl_bitcast(e, a, e->f32)), e->i32);
    if (op == TL_OP_neg)
        r = tl_op(e, LLVMXor, a, tl_const(e, width, sign));
    else if (op == TL_OP_abs)
        r = tl_op(e, LLVMAnd, a, tl_const(e, width, ~sign));
    else /* copysign d, a, b: a's sign on b */
        r = tl_op(e, LLVMOr, tl_op(e, LLVMAnd, a, tl_const(e, width, sign)),
                  tl_op(e, LLVMAnd, tl_read(e, tl_opd(e, 2), width), tl_const(e, width, ~sign)));
    tl_write(e, tl_opd(e, 0), r, false);
}

static void emit_testp(struct tl_emit *e, struct tl_type t)
{
    struct tl_val x = tl_read_as(e, tl_opd(e, 1), t), a = unary(e, "llvm.fabs", x), r;
    struct tl_val inf = tl_lit(e, x, __builtin_inf()),
                  least = tl_lit(e, x,
                                 t.bits == 32 ? 1.1754943508222875e-38 : 2.2250738585072014e-308);
    const struct tl_ptx_form *f = e->inst->inst.form;
    if (tl_ptx_form_has_text(f, "finite"))
        r = tl_fcmp(e, LLVMRealOLT, a, inf);
    else if (tl_ptx_form_has_text(f, "infinite"))
        r = tl_fcmp(e, LLVMRealOEQ, a, inf);
    else if (tl_ptx_form_has_text(f, "number"))
        r = tl_fcmp(e, LLVMRealORD, x, x);
    else if (tl_ptx_form_has_text(f, "notanumber"))
        r = tl_fcmp(e, LLVMRealUNO, x, x);
    else if (tl_ptx_form_has_text(f, "normal"))
        r = tl_op(e, LLVMAnd, tl_fcmp(e, LLVMRealOGE, a, least), tl_fcmp(e, LLVMRealOLT, a, inf));
    else
        r = tl_op(e, LLVMAnd, tl_fcmp(e, LLVMRealOLT, a, least),
                  tl_fcmp(e, LLVMRealOGT, a, tl_lit(e, x, 0)));
    tl_write(e, tl_opd(e, 0), r, false);
}

/* All that computes with floats and is no conversion; see emit.h for what is returned. */
bool tl_emit_float(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type t = tl_type_of(f, -1);
    if (t.kind != TL_T_FLOAT && t.kind != TL_T_BFLOAT)
        return false;
    switch (f->op) {
    case TL_OP_neg:
    case TL_OP_abs:
    case TL_OP_copysign:
        emit_sign(e, t, f->op);
        return true;
    case TL_OP_testp:
        emit_testp(e, t);
        return true;
    case TL_OP_add:
    case TL_OP_sub:
    case TL_OP_mul:
    case TL_OP_div:
    case TL_OP_rcp:
    case TL_OP_fma:
    case TL_OP_mad:
    case TL_OP_min:
    case TL_OP_max:
    case TL_OP_sqrt:
    case TL_OP_rsqrt:
    case TL_OP_ex2:
    case TL_OP_lg2:
    case TL_OP_sin:
    case TL_OP_cos:
    case TL_OP_tanh:
        break;
    default:
        return false;
    }
    if (tl_type_of(f, 1).bits != 0) {
        bool is_mixed = tl_type_of(f, 0).bits == 32 && t.bits == 16 && t.packed == 1 &&
                        source_count(e) > 1 && e->inst->n_operands == source_count(e) + 1;
        if (is_mixed)
            emit_mixed(e, t);
        return is_mixed;
    }
    return emit_general(e, t);
}

/* Rounding that no instruction does.  See round.h. */
#include "device/jit/round.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

#include <string.h>

enum tl_rounding tl_rounding_of(const struct tl_emit *e)
{
    return tl_has(e, TL_MOD_rz)   ? TL_ROUND_ZERO
           : tl_has(e, TL_MOD_rm) ? TL_ROUND_DOWN
           : tl_has(e, TL_MOD_rp) ? TL_ROUND_UP
                                  : TL_ROUND_NEAREST;
}

struct tl_val tl_lit(struct tl_emit *e, struct tl_val like, double value)
{
    LLVMTypeRef t = LLVMTypeOf(like.v);
    struct tl_val v = {LLVMConstReal(like.is_vec ? LLVMGetElementType(t) : t, value), false};
    return like.is_vec ? tl_widen(e, v) : v;
}

struct tl_val tl_extend(struct tl_emit *e, struct tl_val v, LLVMTypeRef to)
{
    v.v = LLVMBuildFPExt(e->b, v.v, tl_like(e, v, to), "");
    return v;
}

struct tl_val tl_truncate(struct tl_emit *e, struct tl_val v, LLVMTypeRef to)
{
    v.v = LLVMBuildFPTrunc(e->b, v.v, tl_like(e, v, to), "");
    return v;
}

/* LLVM turns the selects of a half into calls of fmaxf, so halves are clamped in f32. */
static bool is_half(struct tl_emit *e, struct tl_val v)
{
    LLVMTypeRef t = LLVMTypeOf(v.v);
    return (v.is_vec ? LLVMGetElementType(t) : t) == e->f16;
}

struct tl_val tl_saturate(struct tl_emit *e, struct tl_val v)
{
    if (is_half(e, v))
        return tl_truncate(e, tl_saturate(e, tl_extend(e, v, e->f32)), e->f16);
    struct tl_val zero = tl_lit(e, v, 0), one = tl_lit(e, v, 1);
    v = tl_select(e, tl_fcmp(e, LLVMRealOGT, v, zero), v, zero);
    return tl_select(e, tl_fcmp(e, LLVMRealOLT, v, one), v, one);
}

struct tl_val tl_relu(struct tl_emit *e, struct tl_val v)
{
    if (is_half(e, v))
        return tl_truncate(e, tl_relu(e, tl_extend(e, v, e->f32)), e->f16);
    return tl_select(e, tl_fcmp(e, LLVMRealUGT, v, tl_lit(e, v, 0)), v, tl_lit(e, v, 0));
}

static struct tl_val magnitude(struct tl_emit *e, struct tl_val v)
{
    return tl_intrinsic(e, "llvm.fabs", &v, 1);
}

struct tl_val tl_two_sum(struct tl_emit *e, struct tl_val a, struct tl_val b, struct tl_val *rest)
{
    struct tl_val s = tl_op(e, LLVMFAdd, a, b), b_part = tl_op(e, LLVMFSub, s, a),
                  a_part = tl_op(e, LLVMFSub, s, b_part);
    *rest = tl_op(e, LLVMFAdd, tl_op(e, LLVMFSub, a, a_part), tl_op(e, LLVMFSub, b, b_part));
    return s;
}

/* Bits of a number one step nearer to zero where `too_far`, then odd where inexact. */
static struct tl_val odd_bits(struct tl_emit *e, struct tl_val bits, uint32_t width,
                              struct tl_val too_far, struct tl_val inexact)
{
    struct tl_val one = tl_const(e, width, 1);
    struct tl_val nearer = tl_select(e, too_far, tl_op(e, LLVMSub, bits, one), bits);
    return tl_select(e, inexact, tl_op(e, LLVMOr, nearer, one), bits);
}

struct tl_val tl_odd_f64(struct tl_emit *e, struct tl_val s, struct tl_val rest)
{
    struct tl_val zero = tl_lit(e, s, 0), bits = tl_bitcast(e, s, e->i64),
                  rest_bits = tl_bitcast(e, rest, e->i64);
    struct tl_val opposed = tl_icmp(e, LLVMIntSLT, tl_op(e, LLVMXor, bits, rest_bits),
                                    tl_const(e, 64, 0));
    return tl_bitcast(e, odd_bits(e, bits, 64, opposed, tl_fcmp(e, LLVMRealONE, rest, zero)),
                      e->f64);
}

struct tl_val tl_odd_f32(struct tl_emit *e, struct tl_val d)
{
    struct tl_val f = tl_truncate(e, d, e->f32), back = tl_extend(e, f, e->f64);
    struct tl_val too_far = tl_fcmp(e, LLVMRealOGT, magnitude(e, back), magnitude(e, d));
    struct tl_val bits = odd_bits(e, tl_bitcast(e, f, e->i32), 32, too_far,
                                  tl_fcmp(e, LLVMRealONE, back, d));
    return tl_bitcast(e, bits, e->f32);
}

/* The neighbour of a float's bits, where `moves`: below, above, or nearer to zero. */
static struct tl_val neighbour(struct tl_emit *e, struct tl_val bits, uint32_t width,
                               struct tl_val moves, enum tl_rounding mode)
{
    struct tl_val one = tl_const(e, width, 1), minus = tl_const(e, width, UINT64_MAX);
    struct tl_val is_negative = tl_icmp(e, LLVMIntSLT, bits, tl_const(e, width, 0));
    struct tl_val step = mode == TL_ROUND_ZERO   ? minus
                         : mode == TL_ROUND_DOWN ? tl_select(e, is_negative, one, minus)
                                                 : tl_select(e, is_negative, minus, one);
    return tl_select(e, moves, tl_op(e, LLVMAdd, bits, step), bits);
}

struct tl_val tl_round_f32(struct tl_emit *e, struct tl_val d, enum tl_rounding mode)
{
    struct tl_val f = tl_truncate(e, d, e->f32), back = tl_extend(e, f, e->f64), moves;
    if (mode == TL_ROUND_NEAREST)
        return f;
    if (mode == TL_ROUND_ZERO)
        moves = tl_fcmp(e, LLVMRealOGT, magnitude(e, back), magnitude(e, d));
    else
        moves = tl_fcmp(e, mode == TL_ROUND_DOWN ? LLVMRealOGT : LLVMRealOLT, back, d);
    return tl_bitcast(e, neighbour(e, tl_bitcast(e, f, e->i32), 32, moves, mode), e->f32);
}

struct tl_val tl_step_f64(struct tl_emit *e, struct tl_val s, struct tl_val rest,
                          enum tl_rounding mode)
{
    struct tl_val zero = tl_lit(e, s, 0), bits = tl_bitcast(e, s, e->i64), moves;
    if (mode == TL_ROUND_NEAREST)
        return s;
    if (mode == TL_ROUND_ZERO)
        moves = tl_op(e, LLVMAnd, tl_fcmp(e, LLVMRealONE, rest, zero),
                      tl_icmp(e, LLVMIntSLT, tl_op(e, LLVMXor, bits, tl_bitcast(e, rest, e->i64)),
                              tl_const(e, 64, 0)));
    else
        moves = tl_fcmp(e, mode == TL_ROUND_DOWN ? LLVMRealOLT : LLVMRealOGT, rest, zero);
    return tl_bitcast(e, neighbour(e, bits, 64, moves, mode), e->f64);
}

/* --- halves ----------------------------------------------------------------------------------- */

static LLVMValueRef eight_lanes(struct tl_emit *e, LLVMValueRef v, uint32_t first)
{
    LLVMValueRef index[8];
    for (uint32_t i = 0; i < 8; i++)
        index[i] = LLVMConstInt(e->i32, first + i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(index, 8),
                                  "");
}

static LLVMValueRef joined(struct tl_emit *e, LLVMValueRef a, LLVMValueRef b, uint32_t n)
{
    LLVMValueRef index[TL_LANES];
    for (uint32_t i = 0; i < 2 * n; i++)
        index[i] = LLVMConstInt(e->i32, i, false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, 2 * n), "");
}

struct tl_val tl_round_f16(struct tl_emit *e, struct tl_val v, enum tl_rounding mode)
{
    static const char name[] = "llvm.x86.vcvtps2ph.256";
    if (mode == TL_ROUND_NEAREST)
        return tl_bitcast(e, tl_truncate(e, v, e->f16), e->i16);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0), wide = tl_widen(e, v).v,
                 part[4];
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0);
    for (uint32_t i = 0; i < (v.is_vec ? 4 : 1); i++) {
        LLVMValueRef args[2] = {eight_lanes(e, wide, 8 * i), LLVMConstInt(e->i32, mode, false)};
        part[i] = LLVMBuildCall2(e->b, type, fn, args, 2, "");
    }
    if (!v.is_vec)
        return (struct tl_val){
            LLVMBuildExtractElement(e->b, part[0], LLVMConstInt(e->i32, 0, false), ""), false};
    return (struct tl_val){
        joined(e, joined(e, part[0], part[1], 8), joined(e, part[2], part[3], 8), 16), true};
}

struct tl_val tl_round_bf16(struct tl_emit *e, struct tl_val v, enum tl_rounding mode)
{
    struct tl_type bfloat = {TL_T_BFLOAT, 16, 1};
    if (mode == TL_ROUND_NEAREST)
        return tl_from_float(e, v, bfloat);
    struct tl_val bits = tl_bitcast(e, v, e->i32),
                  r = tl_op(e, LLVMLShr, bits, tl_const(e, 32, 16));
    if (mode != TL_ROUND_ZERO) {
        struct tl_val inexact = tl_icmp(
            e, LLVMIntNE, tl_op(e, LLVMAnd, bits, tl_const(e, 32, 0xffff)), tl_const(e, 32, 0));
        struct tl_val outward = tl_icmp(e, mode == TL_ROUND_DOWN ? LLVMIntSLT : LLVMIntSGE, bits,
                                        tl_const(e, 32, 0));
        r = tl_op(e, LLVMAdd, r, tl_cast_int(e, tl_op(e, LLVMAnd, inexact, outward), 32, false));
    }
    r = tl_select(e, tl_fcmp(e, LLVMRealUNO, v, v), tl_const(e, 32, 0x7fff), r);
    return tl_cast_int(e, r, 16, false);
}

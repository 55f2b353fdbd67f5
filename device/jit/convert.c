/* cvt, cvta and their kin. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

static bool is_float(struct tl_type t)
{
    return t.kind == TL_T_FLOAT || t.kind == TL_T_BFLOAT;
}

static struct tl_val choose(struct tl_emit *e, LLVMRealPredicate p, struct tl_val a,
                            struct tl_val b, struct tl_val yes, struct tl_val no)
{
    struct tl_val c = {LLVMBuildFCmp(e->b, p, a.v, b.v, ""), a.is_vec};
    return tl_select(e, c, yes, no);
}

/* --- float to integer ------------------------------------------------------------------------- */

static struct tl_val round_to_integer(struct tl_emit *e, struct tl_val v)
{
    const char *name = tl_has(e, TL_MOD_rzi)   ? "llvm.trunc"
                       : tl_has(e, TL_MOD_rmi) ? "llvm.floor"
                       : tl_has(e, TL_MOD_rpi) ? "llvm.ceil"
                                               : "llvm.roundeven";
    return tl_intrinsic(e, name, &v, 1);
}

/* Saturating, NaN to 0 (to the smallest value for 64 bits, as the hardware gives). */
static struct tl_val float_to_int(struct tl_emit *e, struct tl_val v, struct tl_type from,
                                  struct tl_type to)
{
    bool is_signed = to.kind == TL_T_SIGNED;
    if (from.bits == 16 && from.kind == TL_T_FLOAT)
        v.v = LLVMBuildFPExt(e->b, v.v, tl_like(e, v, e->f32), "");
    v = round_to_integer(e, v);
    LLVMTypeRef wide = tl_like(e, v, e->f64);
    /* the limits of 32 bits are exact in f64 */
    v.v = from.bits == 64 ? v.v : LLVMBuildFPExt(e->b, v.v, wide, "");
    double low = is_signed ? -__builtin_ldexp(1, (int)to.bits - 1) : 0;
    double limit = __builtin_ldexp(1, (int)to.bits - (is_signed ? 1 : 0));
    uint64_t most = is_signed       ? (1ull << (to.bits - 1)) - 1
                    : to.bits == 64 ? UINT64_MAX
                                    : (1ull << to.bits) - 1;
    uint64_t least = is_signed ? 1ull << (to.bits - 1) : 0;
    struct tl_val zero = tl_lit(e, v, 0),
                  fits = choose(e, LLVMRealOLT, v, tl_lit(e, v, limit), v, zero);
    fits = choose(e, LLVMRealOGE, v, tl_lit(e, v, low), fits, zero);
    uint32_t work = to.bits < 32 ? 32 : to.bits;
    struct tl_val r = {is_signed || to.bits < 32
                           ? LLVMBuildFPToSI(e->b, fits.v, tl_like(e, fits, tl_int(e, work)), "")
                           : LLVMBuildFPToUI(e->b, fits.v, tl_like(e, fits, tl_int(e, work)), ""),
                       fits.is_vec};
    r = tl_cast_int(e, r, to.bits, false);
    r = choose(e, LLVMRealOGE, v, tl_lit(e, v, limit), tl_const(e, to.bits, most), r);
    r = choose(e, LLVMRealOLT, v, tl_lit(e, v, low), tl_const(e, to.bits, least), r);
    uint64_t nan = to.bits == 64 ? 1ull << 63 : 0;
    return choose(e, LLVMRealUNO, v, v, tl_const(e, to.bits, nan), r);
}

/* --- integer to float ------------------------------------------------------------------------- */

static struct tl_val convert_int(struct tl_emit *e, struct tl_val v, bool is_signed, LLVMTypeRef to)
{
    v.v = is_signed ? LLVMBuildSIToFP(e->b, v.v, tl_like(e, v, to), "")
                    : LLVMBuildUIToFP(e->b, v.v, tl_like(e, v, to), "");
    return v;
}

/* An integer as the nearest f64 and what that lacks: its halves of 32 bits are exact. */
static struct tl_val int_to_f64(struct tl_emit *e, struct tl_val v, struct tl_type from,
                                struct tl_val *rest)
{
    bool is_signed = from.kind == TL_T_SIGNED;
    if (from.bits < 64) {
        struct tl_val exact = convert_int(e, v, is_signed, e->f64);
        *rest = tl_lit(e, exact, 0);
        return exact;
    }
    struct tl_val high = tl_op(e, is_signed ? LLVMAShr : LLVMLShr, v, tl_const(e, 64, 32));
    struct tl_val low = tl_op(e, LLVMAnd, v, tl_const(e, 64, UINT32_MAX));
    high = convert_int(e, high, is_signed, e->f64);
    high = tl_op(e, LLVMFMul, high, tl_lit(e, high, 4294967296.0));
    return tl_two_sum(e, high, convert_int(e, low, false, e->f64), rest);
}

static struct tl_val narrow(struct tl_emit *e, struct tl_val v, uint32_t have, struct tl_type to,
                            enum tl_rounding mode);

/* The result as bits. */
static struct tl_val int_to_float(struct tl_emit *e, struct tl_val v, struct tl_type from,
                                  struct tl_type to)
{
    enum tl_rounding mode = tl_rounding_of(e);
    struct tl_type f32 = {TL_T_FLOAT, 32, 1}, f64 = {TL_T_FLOAT, 64, 1};
    /* what f32 does not hold exactly is infinite in f16 */
    if (mode == TL_ROUND_NEAREST && to.kind == TL_T_FLOAT) {
        v = convert_int(e, v, from.kind == TL_T_SIGNED, to.bits == 64 ? e->f64 : e->f32);
        return to.bits == 64 ? tl_from_float(e, v, f64)
                             : narrow(e, v, 32, to.bits == 32 ? f32 : to, mode);
    }
    struct tl_val rest, s = int_to_f64(e, v, from, &rest);
    if (to.bits == 64)
        return tl_from_float(e, tl_step_f64(e, s, rest, mode), f64);
    return narrow(e, tl_odd_f64(e, s, rest), 64, to, mode);
}

/* --- float to float --------------------------------------------------------------------------- */

/* An f32, or an f64 (`have` bits), to a type that is not wider, as bits. */
static struct tl_val narrow(struct tl_emit *e, struct tl_val v, uint32_t have, struct tl_type to,
                            enum tl_rounding mode)
{
    if (to.bits == have)
        return tl_from_float(e, v, (struct tl_type){TL_T_FLOAT, have, 1});
    if (to.bits == 32)
        return tl_bitcast(e, tl_round_f32(e, v, mode), e->i32);
    if (have == 64)
        v = tl_odd_f32(e, v);
    return to.kind == TL_T_BFLOAT ? tl_round_bf16(e, v, mode) : tl_round_f16(e, v, mode);
}

/* Infinities of 16 bits to the largest number. */
static struct tl_val finite(struct tl_emit *e, struct tl_val bits, struct tl_type t)
{
    uint64_t inf = t.kind == TL_T_BFLOAT ? 0x7f80 : 0x7c00;
    struct tl_val size = tl_op(e, LLVMAnd, bits, tl_const(e, 16, 0x7fff));
    return tl_select(e, tl_icmp(e, LLVMIntEQ, size, tl_const(e, 16, inf)),
                     tl_op(e, LLVMSub, bits, tl_const(e, 16, 1)), bits);
}

/* What modifiers do to the source: flushing, an integral value, clamping. */
static struct tl_val prepare(struct tl_emit *e, struct tl_val v, struct tl_type from)
{
    bool is_f32 = from.kind == TL_T_FLOAT && from.bits == 32;
    if (tl_has(e, TL_MOD_ftz) && is_f32)
        v = tl_flush(e, v);
    if (tl_has(e, TL_MOD_rni) || tl_has(e, TL_MOD_rzi) || tl_has(e, TL_MOD_rmi) ||
        tl_has(e, TL_MOD_rpi))
        v = round_to_integer(e, v);
    if (tl_has(e, TL_MOD_sat))
        v = tl_saturate(e, v);
    return tl_ptx_form_has_text(e->inst->inst.form, "relu") ? tl_relu(e, v) : v;
}

/* The result as bits. */
static struct tl_val float_to_float(struct tl_emit *e, struct tl_val v, struct tl_type from,
                                    struct tl_type to)
{
    if (from.bits == 16 && from.kind == TL_T_FLOAT)
        v = tl_extend(e, v, e->f32);
    v = prepare(e, v, from);
    uint32_t have = from.bits == 64 ? 64 : 32;
    if (to.bits == 64 && have == 32) {
        v = tl_extend(e, v, e->f64);
        have = 64;
    }
    struct tl_val bits = narrow(e, v, have, to, tl_rounding_of(e));
    if (tl_has(e, TL_MOD_satfinite) && to.bits == 16)
        bits = finite(e, bits, to);
    if (tl_has(e, TL_MOD_ftz) && to.kind == TL_T_FLOAT && to.bits == 32)
        bits = tl_bitcast(e, tl_flush(e, tl_bitcast(e, bits, e->f32)), e->i32);
    return bits;
}

/* --- pairs ------------------------------------------------------------------------------------ */

static struct tl_val pair(struct tl_emit *e, struct tl_val low, struct tl_val high, uint32_t bits)
{
    low = tl_cast_int(e, low, 2 * bits, false);
    return tl_op(
        e, LLVMOr, low,
        tl_op(e, LLVMShl, tl_cast_int(e, high, 2 * bits, false), tl_const(e, 2 * bits, bits)));
}

/* --- integer to integer ----------------------------------------------------------------------- */

/* Clamped to a type's range, in as many bits as it takes for both ranges to fit. */
static struct tl_val clamp_int(struct tl_emit *e, struct tl_val v, struct tl_type from,
                               struct tl_type to)
{
    bool from_signed = from.kind == TL_T_SIGNED, to_signed = to.kind == TL_T_SIGNED;
    bool fits = from_signed && to.bits < from.bits;
    uint32_t wide = fits ? from.bits : from.bits <= 32 && to.bits <= 32 ? 64 : 128;
    uint64_t most = to_signed       ? (1ull << (to.bits - 1)) - 1
                    : to.bits == 64 ? UINT64_MAX
                                    : (1ull << to.bits) - 1;
    struct tl_val high = {LLVMConstInt(tl_int(e, wide), most, false), false};
    struct tl_val low = {LLVMConstInt(tl_int(e, wide), to_signed ? ~most : 0, true), false};
    struct tl_val args[2] = {tl_cast_int(e, v, wide, from_signed), low};
    args[0] = tl_intrinsic(e, "llvm.smax", args, 2);
    args[1] = high;
    return tl_cast_int(e, tl_intrinsic(e, "llvm.smin", args, 2), to.bits, false);
}

static struct tl_val int_to_int(struct tl_emit *e, struct tl_val v, struct tl_type from,
                                struct tl_type to)
{
    return tl_has(e, TL_MOD_sat) ? clamp_int(e, v, from, to)
                                 : tl_cast_int(e, v, to.bits, from.kind == TL_T_SIGNED);
}

/* cvt.pack: two words clamped, side by side, and what the third has to say moved up. */
static void emit_pack_ints(struct tl_emit *e)
{
    struct tl_type to = tl_type_of(e->inst->inst.form, 0), from = tl_type_of(e->inst->inst.form, 1);
    struct tl_val high = clamp_int(e, tl_read(e, tl_opd(e, 1), 32), from, to),
                  low = clamp_int(e, tl_read(e, tl_opd(e, 2), 32), from, to);
    struct tl_val r = tl_cast_int(e, pair(e, low, high, to.bits), 32, false);
    if (e->inst->n_operands == 4)
        r = tl_op(e, LLVMOr, r,
                  tl_op(e, LLVMShl, tl_read(e, tl_opd(e, 3), 32), tl_const(e, 32, 2 * to.bits)));
    tl_write(e, tl_opd(e, 0), r, false);
}

/* --- dispatch --------------------------------------------------------------------------------- */

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half. */
static void emit_pack(struct tl_emit *e, struct tl_type to)
{
    struct tl_type single = {to.kind, to.bits, 1}, f32 = {TL_T_FLOAT, 32, 1};
    struct tl_val high = float_to_float(e, tl_read_as(e, tl_opd(e, 1), f32), f32, single);
    struct tl_val low = float_to_float(e, tl_read_as(e, tl_opd(e, 2), f32), f32, single);
    tl_write(e, tl_opd(e, 0), pair(e, low, high, 16), false);
}

/* The lowest 13 bits go: added to before, by half of what is left (.rna), by that or just less
 * (.rn), not at all (.rz). */
static void emit_tf32(struct tl_emit *e)
{
    struct tl_type f32 = {TL_T_FLOAT, 32, 1};
    struct tl_val f = prepare(e, tl_read_as(e, tl_opd(e, 1), f32), f32),
                  v = tl_bitcast(e, f, e->i32), add = tl_const(e, 32, 0x1000);
    struct tl_val keep = tl_const(e, 32, 0xffffe000);
    if (tl_has(e, TL_MOD_rn))
        add = tl_op(
            e, LLVMAdd,
            tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, v, tl_const(e, 32, 13)), tl_const(e, 32, 1)),
            tl_const(e, 32, 0xfff));
    else if (tl_has(e, TL_MOD_rz))
        add = tl_const(e, 32, 0);
    struct tl_val r = tl_op(e, LLVMAnd, tl_op(e, LLVMAdd, v, add), keep);
    if (tl_has(e, TL_MOD_satfinite)) {
        struct tl_val size = tl_op(e, LLVMAnd, r, tl_const(e, 32, 0x7fffffff));
        r = tl_select(e, tl_icmp(e, LLVMIntEQ, size, tl_const(e, 32, 0x7f800000)),
                      tl_op(e, LLVMSub, r, tl_const(e, 32, 0x2000)), r);
    }
    tl_write(e, tl_opd(e, 0),
             tl_select(e, tl_fcmp(e, LLVMRealUNO, f, f), tl_const(e, 32, 0x7fffffff), r), false);
}

/* Conversions that are not of one number to one number; whether this was one. */
static bool emit_special(struct tl_emit *e, struct tl_type to, struct tl_type from)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    if (tl_emit_small(e))
        return true;
    if (tl_has(e, TL_MOD_tf32))
        emit_tf32(e);
    else if (tl_ptx_form_has_text(f, "pack"))
        emit_pack_ints(e);
    else if (to.packed == 2 && from.packed == 1 && from.bits == 32 && is_float(to) &&
             e->inst->n_operands == 3)
        emit_pack(e, to);
    else
        return false;
    return true;
}

static void emit_cvt(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type to = tl_type_of(f, 0), from = tl_type_of(f, 1);
    if (emit_special(e, to, from))
        return;
    if (to.bits == 0 || from.bits == 0 || to.packed != 1 || from.packed != 1 ||
        e->inst->n_operands != 2) {
        tl_emit_unsupported(e, "this conversion");
        return;
    }
    struct tl_val v = tl_read_as(e, tl_opd(e, 1), from);
    if (!is_float(from) && !is_float(to)) {
        if (to.bits == 64 && from.bits == 32 && !tl_has(e, TL_MOD_sat))
            v = tl_widen_index(e, tl_opd(e, 1), v, from.kind == TL_T_SIGNED);
        else
            v = int_to_int(e, v, from, to);
    } else if (is_float(from) && !is_float(to)) {
        if (tl_has(e, TL_MOD_ftz) && from.bits == 32)
            v = tl_flush(e, v);
        v = float_to_int(e, v, from, to);
    } else if (!is_float(from)) {
        v = int_to_float(e, v, from, to);
    } else {
        v = float_to_float(e, v, from, to);
    }
    if (e->rc == 0)
        tl_write(e, tl_opd(e, 0), v, to.kind == TL_T_SIGNED);
}

/* Shared and local addresses are offsets; everything else is a pointer already. */
static void emit_cvta(struct tl_emit *e)
{
    bool to_space = tl_has(e, TL_MOD_to), is_shared = tl_has(e, TL_MOD_shared),
         is_local = tl_has(e, TL_MOD_local);
    struct tl_val v = tl_read(e, tl_opd(e, 1), 64);
    struct tl_val base;
    if (is_shared)
        base = (struct tl_val){
            LLVMBuildPtrToInt(e->b, tl_field(e, offsetof(struct tl_dev_frame, shared), e->ptr),
                              e->i64, ""),
            false};
    else if (is_local)
        base = tl_local_base(e);
    else {
        tl_write(e, tl_opd(e, 0), v, false);
        return;
    }
    tl_match(e, &v, &base);
    v.v = to_space ? LLVMBuildSub(e->b, v.v, base.v, "") : LLVMBuildAdd(e->b, v.v, base.v, "");
    tl_write(e, tl_opd(e, 0), v, false);
}

/* isspacep: by address range. */
static void emit_isspacep(struct tl_emit *e)
{
    struct tl_val p = tl_read(e, tl_opd(e, 1), 64), low, size;
    bool is_shared = tl_has(e, TL_MOD_shared), is_local = tl_has(e, TL_MOD_local);
    low = (struct tl_val){
        LLVMBuildPtrToInt(e->b, tl_field(e, offsetof(struct tl_dev_frame, shared), e->ptr), e->i64,
                          ""),
        false};
    struct tl_val dynamic = {
        LLVMBuildZExt(e->b,
                      tl_field(e, offsetof(struct tl_dev_frame, dynamic_shared_bytes), e->i32),
                      e->i64, ""),
        false};
    size = (struct tl_val){
        LLVMBuildAdd(e->b, dynamic.v, LLVMConstInt(e->i64, e->shared_bytes, false), ""), false};
    struct tl_val in[2];
    for (int i = 0; i < 2; i++) {
        struct tl_val from = p, base = i == 0 ? low : tl_local_base(e);
        struct tl_val bytes = i == 0 ? size : tl_const(e, 64, e->local_bytes);
        tl_match(e, &from, &base);
        struct tl_val offset = {LLVMBuildSub(e->b, from.v, base.v, ""), from.is_vec};
        tl_match(e, &offset, &bytes);
        in[i] = (struct tl_val){LLVMBuildICmp(e->b, LLVMIntULT, offset.v, bytes.v, ""),
                                offset.is_vec};
    }
    struct tl_val r = is_shared ? in[0] : in[1];
    if (!is_shared && !is_local) {
        tl_match(e, &in[0], &in[1]);
        r = (struct tl_val){LLVMBuildNot(e->b, LLVMBuildOr(e->b, in[0].v, in[1].v, ""), ""),
                            in[0].is_vec};
    }
    tl_write(e, tl_opd(e, 0), r, false);
}

bool tl_emit_convert(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_cvt:
        emit_cvt(e);
        return true;
    case TL_OP_cvta:
        emit_cvta(e);
        return true;
    case TL_OP_isspacep:
        emit_isspacep(e);
        return true;
    case TL_OP_mapa: /* a cluster is one block: each address is its own */
        tl_write(e, tl_opd(e, 0), tl_read(e, tl_opd(e, 1), tl_has(e, TL_MOD_u64) ? 64 : 32), false);
        return true;
    case TL_OP_getctarank:
        tl_write(e, tl_opd(e, 0), tl_const(e, 32, 0), false);
        return true;
    default:
        return false;
    }
}

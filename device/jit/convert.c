/* cvt, cvta and their kin. */
#include "device/abi.h"
#include "device/jit/emit.h"

static bool is_float(struct tl_type t)
{
    return t.kind == TL_T_FLOAT || t.kind == TL_T_BFLOAT;
}

static struct tl_val real(struct tl_emit *e, struct tl_val like, double value)
{
    LLVMTypeRef t = LLVMTypeOf(like.v);
    struct tl_val v = {LLVMConstReal(like.is_vec ? LLVMGetElementType(t) : t, value), false};
    return like.is_vec ? tl_widen(e, v) : v;
}

static struct tl_val choose(struct tl_emit *e, LLVMRealPredicate p, struct tl_val a, struct tl_val b, struct tl_val yes,
                            struct tl_val no)
{
    struct tl_val c = {LLVMBuildFCmp(e->b, p, a.v, b.v, ""), a.is_vec};
    return tl_select(e, c, yes, no);
}

/* --- float to integer ---------------------------------------------------------------------------------------------- */

static struct tl_val round_to_integer(struct tl_emit *e, struct tl_val v)
{
    const char *name = tl_has(e, TL_MOD_rzi)   ? "llvm.trunc"
                       : tl_has(e, TL_MOD_rmi) ? "llvm.floor"
                       : tl_has(e, TL_MOD_rpi) ? "llvm.ceil"
                                            : "llvm.roundeven";
    return tl_intrinsic(e, name, &v, 1);
}

/* Saturating, NaN to 0 (to the smallest value for 64 bits, as the hardware gives). */
static struct tl_val float_to_int(struct tl_emit *e, struct tl_val v, struct tl_type from, struct tl_type to)
{
    bool is_signed = to.kind == TL_T_SIGNED;
    if (from.bits == 16 && from.kind == TL_T_FLOAT)
        v.v = LLVMBuildFPExt(e->b, v.v, tl_like(e, v, e->f32), "");
    v = round_to_integer(e, v);
    LLVMTypeRef wide = tl_like(e, v, e->f64);
    v.v = from.bits == 64 ? v.v : LLVMBuildFPExt(e->b, v.v, wide, ""); /* the limits of 32 bits are exact in f64 */
    double low = is_signed ? -__builtin_ldexp(1, (int)to.bits - 1) : 0;
    double limit = __builtin_ldexp(1, (int)to.bits - (is_signed ? 1 : 0));
    uint64_t most = is_signed ? (1ull << (to.bits - 1)) - 1 : to.bits == 64 ? UINT64_MAX : (1ull << to.bits) - 1;
    uint64_t least = is_signed ? 1ull << (to.bits - 1) : 0;
    struct tl_val zero = real(e, v, 0), fits = choose(e, LLVMRealOLT, v, real(e, v, limit), v, zero);
    fits = choose(e, LLVMRealOGE, v, real(e, v, low), fits, zero);
    uint32_t work = to.bits < 32 ? 32 : to.bits;
    struct tl_val r = {is_signed || to.bits < 32 ? LLVMBuildFPToSI(e->b, fits.v, tl_like(e, fits, tl_int(e, work)), "")
                                                 : LLVMBuildFPToUI(e->b, fits.v, tl_like(e, fits, tl_int(e, work)), ""),
                       fits.is_vec};
    r = tl_cast_int(e, r, to.bits, false);
    r = choose(e, LLVMRealOGE, v, real(e, v, limit), tl_const(e, to.bits, most), r);
    r = choose(e, LLVMRealOLT, v, real(e, v, low), tl_const(e, to.bits, least), r);
    uint64_t nan = to.bits == 64 ? 1ull << 63 : 0;
    return choose(e, LLVMRealUNO, v, v, tl_const(e, to.bits, nan), r);
}

/* --- integer to float ---------------------------------------------------------------------------------------------- */

static struct tl_val int_to_float(struct tl_emit *e, struct tl_val v, struct tl_type from, struct tl_type to)
{
    LLVMTypeRef element = to.bits == 64 ? e->f64 : e->f32;
    if (from.bits < 32)
        v = tl_cast_int(e, v, 32, from.kind == TL_T_SIGNED);
    v.v = from.kind == TL_T_SIGNED ? LLVMBuildSIToFP(e->b, v.v, tl_like(e, v, element), "")
                                   : LLVMBuildUIToFP(e->b, v.v, tl_like(e, v, element), "");
    if (to.bits == 16 && to.kind == TL_T_FLOAT)
        v.v = LLVMBuildFPTrunc(e->b, v.v, tl_like(e, v, e->f16), "");
    return v;
}

/* --- float to float ------------------------------------------------------------------------------------------------ */

static struct tl_val saturate(struct tl_emit *e, struct tl_val v)
{
    v = choose(e, LLVMRealOGT, v, real(e, v, 0), v, real(e, v, 0));
    return choose(e, LLVMRealOLT, v, real(e, v, 1), v, real(e, v, 1));
}

static struct tl_val float_to_float(struct tl_emit *e, struct tl_val v, struct tl_type from, struct tl_type to)
{
    bool integral = tl_has(e, TL_MOD_rni) || tl_has(e, TL_MOD_rzi) || tl_has(e, TL_MOD_rmi) || tl_has(e, TL_MOD_rpi);
    bool from_half = from.bits == 16 && from.kind == TL_T_FLOAT, to_half = to.bits == 16 && to.kind == TL_T_FLOAT;
    if (from_half)
        v.v = LLVMBuildFPExt(e->b, v.v, tl_like(e, v, e->f32), "");
    uint32_t have = from.bits == 64 ? 64 : 32;
    if (tl_has(e, TL_MOD_ftz) && have == 32 && from.kind == TL_T_FLOAT && from.bits == 32)
        v = tl_flush(e, v);
    if (integral)
        v = round_to_integer(e, v);
    if (tl_has(e, TL_MOD_sat))
        v = saturate(e, v);
    if (tl_ptx_form_has_text(e->inst->inst.form, "relu"))
        v = choose(e, LLVMRealOLT, v, real(e, v, 0), real(e, v, 0), v);
    bool narrows = to.bits < from.bits;
    if (narrows && (tl_has(e, TL_MOD_rz) || tl_has(e, TL_MOD_rm) || tl_has(e, TL_MOD_rp) || tl_has(e, TL_MOD_rna))) {
        tl_emit_unsupported(e, "narrowing with directed rounding");
        return v;
    }
    if (have == 64 && to.bits < 64) {
        if (to.bits == 16) {
            tl_emit_unsupported(e, "f64 to a half in one step");
            return v;
        }
        v.v = LLVMBuildFPTrunc(e->b, v.v, tl_like(e, v, e->f32), "");
        have = 32;
    }
    if (to.bits == 64 && have == 32)
        v.v = LLVMBuildFPExt(e->b, v.v, tl_like(e, v, e->f64), "");
    if (tl_has(e, TL_MOD_ftz) && to.bits == 32 && to.kind == TL_T_FLOAT)
        v = tl_flush(e, v);
    if (to_half)
        v.v = LLVMBuildFPTrunc(e->b, v.v, tl_like(e, v, e->f16), "");
    return v;
}

/* --- integer to integer -------------------------------------------------------------------------------------------- */

static struct tl_val int_to_int(struct tl_emit *e, struct tl_val v, struct tl_type from, struct tl_type to)
{
    bool from_signed = from.kind == TL_T_SIGNED, to_signed = to.kind == TL_T_SIGNED;
    if (!tl_has(e, TL_MOD_sat))
        return tl_cast_int(e, v, to.bits, from_signed);
    /* In 128 bits both ranges fit. */
    struct tl_val wide = tl_cast_int(e, v, 128, from_signed);
    LLVMValueRef most = LLVMConstInt(e->i128, to_signed ? (1ull << (to.bits - 1)) - 1 : to.bits == 64 ? UINT64_MAX : (1ull << to.bits) - 1, false);
    LLVMValueRef least = LLVMConstInt(e->i128, to_signed ? (uint64_t)(-(int64_t)(1ull << (to.bits - 1))) : 0, true);
    struct tl_val limits[2] = {{least, false}, {most, false}};
    struct tl_val args[2] = {wide, wide.is_vec ? tl_widen(e, limits[0]) : limits[0]};
    wide = tl_intrinsic(e, "llvm.smax", args, 2);
    struct tl_val top[2] = {wide, wide.is_vec ? tl_widen(e, limits[1]) : limits[1]};
    wide = tl_intrinsic(e, "llvm.smin", top, 2);
    return tl_cast_int(e, wide, to.bits, false);
}

/* --- dispatch ------------------------------------------------------------------------------------------------------ */

/* cvt.rn.f16x2.f32 d, a, b: a goes to the upper half. */
static void emit_pack(struct tl_emit *e, struct tl_type to)
{
    struct tl_type single = {to.kind, to.bits, 1}, f32 = {TL_T_FLOAT, 32, 1};
    struct tl_val high = tl_read_as(e, tl_opd(e, 1), f32), low = tl_read_as(e, tl_opd(e, 2), f32);
    high = tl_from_float(e, float_to_float(e, high, f32, single), single);
    low = tl_from_float(e, float_to_float(e, low, f32, single), single);
    high = tl_cast_int(e, high, 32, false);
    low = tl_cast_int(e, low, 32, false);
    tl_match(e, &high, &low);
    struct tl_val sixteen = high.is_vec ? tl_widen(e, tl_const(e, 32, 16)) : tl_const(e, 32, 16);
    tl_write(e, tl_opd(e, 0), (struct tl_val){LLVMBuildOr(e->b, LLVMBuildShl(e->b, high.v, sixteen.v, ""), low.v, ""), high.is_vec}, false);
}

static void emit_tf32(struct tl_emit *e)
{
    struct tl_val v = tl_read(e, tl_opd(e, 1), 32);
    struct tl_val half = v.is_vec ? tl_widen(e, tl_const(e, 32, 0x1000)) : tl_const(e, 32, 0x1000);
    struct tl_val keep = v.is_vec ? tl_widen(e, tl_const(e, 32, 0xffffe000)) : tl_const(e, 32, 0xffffe000);
    struct tl_val rounded = {LLVMBuildAnd(e->b, LLVMBuildAdd(e->b, v.v, half.v, ""), keep.v, ""), v.is_vec};
    struct tl_val f = tl_bitcast(e, v, e->f32);
    struct tl_val special = {LLVMBuildFCmp(e->b, LLVMRealUNE, LLVMBuildFSub(e->b, f.v, f.v, ""), real(e, f, 0).v, ""), f.is_vec};
    tl_write(e, tl_opd(e, 0), tl_select(e, special, v, rounded), false);
}

static void emit_cvt(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type to = tl_type_of(f, 0), from = tl_type_of(f, 1);
    if (tl_has(e, TL_MOD_tf32)) {
        if (tl_has(e, TL_MOD_rna))
            emit_tf32(e);
        else
            tl_emit_unsupported(e, "this rounding to tf32");
        return;
    }
    if (to.packed == 2 && from.packed == 1 && from.bits == 32 && is_float(to) && e->inst->n_operands == 3) {
        emit_pack(e, to);
        return;
    }
    if (to.bits == 0 || from.bits == 0 || to.packed != 1 || from.packed != 1 || e->inst->n_operands != 2 ||
        tl_has(e, TL_MOD_satfinite)) {
        tl_emit_unsupported(e, "this conversion");
        return;
    }
    struct tl_val v = tl_read_as(e, tl_opd(e, 1), from);
    if (!is_float(from) && !is_float(to)) {
        if (to.bits > from.bits)
            tl_guard_widening(e, tl_opd(e, 1), from.kind == TL_T_SIGNED);
        v = int_to_int(e, v, from, to);
    } else if (is_float(from) && !is_float(to)) {
        if (tl_has(e, TL_MOD_ftz) && from.bits == 32)
            v = tl_flush(e, v);
        v = float_to_int(e, v, from, to);
    } else if (!is_float(from)) {
        if (tl_has(e, TL_MOD_rz) || tl_has(e, TL_MOD_rm) || tl_has(e, TL_MOD_rp)) {
            tl_emit_unsupported(e, "integer to float with directed rounding");
            return;
        }
        v = int_to_float(e, v, from, to);
        if (tl_has(e, TL_MOD_sat))
            v = saturate(e, v);
    } else {
        v = float_to_float(e, v, from, to);
    }
    if (e->rc == 0)
        tl_write_as(e, tl_opd(e, 0), v, to);
}

/* Shared and local addresses are offsets; everything else is a pointer already. */
static void emit_cvta(struct tl_emit *e)
{
    bool to_space = tl_has(e, TL_MOD_to), is_shared = tl_has(e, TL_MOD_shared), is_local = tl_has(e, TL_MOD_local);
    struct tl_val v = tl_read(e, tl_opd(e, 1), 64);
    struct tl_val base;
    if (is_shared)
        base = (struct tl_val){LLVMBuildPtrToInt(e->b, tl_field(e, offsetof(struct tl_dev_frame, shared), e->ptr), e->i64, ""), false};
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
    low = (struct tl_val){LLVMBuildPtrToInt(e->b, tl_field(e, offsetof(struct tl_dev_frame, shared), e->ptr), e->i64, ""), false};
    struct tl_val dynamic = {LLVMBuildZExt(e->b, tl_field(e, offsetof(struct tl_dev_frame, dynamic_shared_bytes), e->i32), e->i64, ""), false};
    size = (struct tl_val){LLVMBuildAdd(e->b, dynamic.v, LLVMConstInt(e->i64, e->shared_bytes, false), ""), false};
    struct tl_val in[2];
    for (int i = 0; i < 2; i++) {
        struct tl_val from = p, base = i == 0 ? low : tl_local_base(e);
        struct tl_val bytes = i == 0 ? size : tl_const(e, 64, e->local_bytes);
        tl_match(e, &from, &base);
        struct tl_val offset = {LLVMBuildSub(e->b, from.v, base.v, ""), from.is_vec};
        tl_match(e, &offset, &bytes);
        in[i] = (struct tl_val){LLVMBuildICmp(e->b, LLVMIntULT, offset.v, bytes.v, ""), offset.is_vec};
    }
    struct tl_val r = is_shared ? in[0] : in[1];
    if (!is_shared && !is_local) {
        tl_match(e, &in[0], &in[1]);
        r = (struct tl_val){LLVMBuildNot(e->b, LLVMBuildOr(e->b, in[0].v, in[1].v, ""), ""), in[0].is_vec};
    }
    tl_write(e, tl_opd(e, 0), r, false);
}

bool tl_emit_convert(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_cvt: emit_cvt(e); return true;
    case TL_OP_cvta: emit_cvta(e); return true;
    case TL_OP_isspacep: emit_isspacep(e); return true;
    default: return false;
    }
}

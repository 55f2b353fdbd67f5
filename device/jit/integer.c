/* Integers, logic and moves. */
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

static struct tl_val c(struct tl_emit *e, struct tl_type t, uint64_t value)
{
    return tl_const(e, t.bits, value);
}

static bool is_float(struct tl_type t)
{
    return t.kind == TL_T_FLOAT || t.kind == TL_T_BFLOAT;
}

/* --- add, sub and carries --------------------------------------------------------------------- */

static struct tl_val carry_in(struct tl_emit *e)
{
    return (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(e->i1), e->f->carry_slot, ""), true};
}

static void carry_out(struct tl_emit *e, struct tl_val carry)
{
    LLVMBuildStore(e->b, tl_widen(e, carry).v, e->f->carry_slot);
}

/* a + b + carry or a - b - borrow, exactly, in one bit more. */
static void add_with_carry(struct tl_emit *e, struct tl_type t, bool is_sub, bool takes,
                           struct tl_val a, struct tl_val b, const struct tl_ptx_operand *to)
{
    uint32_t wide = t.bits == 32 ? 64 : 128;
    a = tl_cast_int(e, a, wide, false);
    b = tl_cast_int(e, b, wide, false);
    struct tl_val r = tl_op(e, is_sub ? LLVMSub : LLVMAdd, a, b);
    if (takes)
        r = tl_op(e, is_sub ? LLVMSub : LLVMAdd, r, tl_cast_int(e, carry_in(e), wide, false));
    if (tl_has(e, TL_MOD_cc)) {
        struct tl_val over = tl_op(e, LLVMLShr, r, tl_const(e, wide, t.bits));
        carry_out(e, tl_cast_int(e, over, 1, false));
    }
    tl_write(e, to, tl_cast_int(e, r, t.bits, false), false);
}

static void emit_add(struct tl_emit *e, struct tl_type t, bool is_sub, bool takes_carry)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits);
    if (takes_carry || tl_has(e, TL_MOD_cc)) {
        add_with_carry(e, t, is_sub, takes_carry, a, b, tl_opd(e, 0));
        return;
    }
    if (tl_has(e, TL_MOD_sat)) {
        struct tl_val args[2] = {a, b};
        tl_match(e, &args[0], &args[1]);
        tl_write(e, tl_opd(e, 0),
                 tl_intrinsic(e, is_sub ? "llvm.ssub.sat" : "llvm.sadd.sat", args, 2), true);
        return;
    }
    tl_write(e, tl_opd(e, 0), tl_op(e, is_sub ? LLVMSub : LLVMAdd, a, b), t.kind == TL_T_SIGNED);
}

/* --- mul, mad --------------------------------------------------------------------------------- */

static struct tl_val multiply(struct tl_emit *e, struct tl_type t, uint32_t *bits)
{
    bool is_signed = t.kind == TL_T_SIGNED, hi = tl_has(e, TL_MOD_hi),
         wide = tl_has(e, TL_MOD_wide);
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits);
    *bits = wide ? t.bits * 2 : t.bits;
    if (!hi && !wide)
        return tl_op(e, LLVMMul, a, b);
    bool is_index = wide && t.bits == 32;
    a = is_index ? tl_widen_index(e, tl_opd(e, 1), a, is_signed)
                 : tl_cast_int(e, a, t.bits * 2, is_signed);
    b = is_index ? tl_widen_index(e, tl_opd(e, 2), b, is_signed)
                 : tl_cast_int(e, b, t.bits * 2, is_signed);
    struct tl_val r = tl_op(e, LLVMMul, a, b);
    if (wide)
        return r;
    return tl_cast_int(e, tl_op(e, LLVMLShr, r, tl_const(e, t.bits * 2, t.bits)), t.bits, false);
}

static void emit_mul(struct tl_emit *e, struct tl_type t)
{
    uint32_t bits;
    struct tl_val r = multiply(e, t, &bits);
    tl_write(e, tl_opd(e, 0), r, t.kind == TL_T_SIGNED);
}

static void emit_mad(struct tl_emit *e, struct tl_type t, bool takes_carry)
{
    uint32_t bits;
    struct tl_val r = multiply(e, t, &bits), add = tl_read(e, tl_opd(e, 3), bits);
    if (takes_carry || tl_has(e, TL_MOD_cc)) {
        add_with_carry(e, t, false, takes_carry, r, add, tl_opd(e, 0));
        return;
    }
    if (tl_has(e, TL_MOD_sat)) {
        struct tl_val args[2] = {r, add};
        tl_match(e, &args[0], &args[1]);
        r = tl_intrinsic(e, "llvm.sadd.sat", args, 2);
    } else {
        r = tl_op(e, LLVMAdd, r, add);
    }
    tl_write(e, tl_opd(e, 0), r, t.kind == TL_T_SIGNED);
}

static void emit_mul24(struct tl_emit *e, struct tl_type t, bool is_mad)
{
    bool is_signed = t.kind == TL_T_SIGNED;
    struct tl_val r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = tl_op(e, LLVMShl, tl_read(e, tl_opd(e, 1 + (uint32_t)i), 32), tl_const(e, 32, 8));
        r[i] = tl_op(e, is_signed ? LLVMAShr : LLVMLShr, r[i], tl_const(e, 32, 8));
        r[i] = tl_cast_int(e, r[i], 64, is_signed);
    }
    struct tl_val p = tl_op(e, LLVMMul, r[0], r[1]);
    if (tl_has(e, TL_MOD_hi))
        p = tl_op(e, LLVMLShr, p, tl_const(e, 64, 16));
    p = tl_cast_int(e, p, 32, false);
    if (is_mad)
        p = tl_op(e, LLVMAdd, p, tl_read(e, tl_opd(e, 3), 32));
    tl_write(e, tl_opd(e, 0), p, false);
}

/* --- div, rem --------------------------------------------------------------------------------- */

/* Division never faults in PTX: by zero it gives all ones (rem: the dividend), as NVIDIA's code
 * does; INT_MIN / -1 wraps. */
static void emit_div(struct tl_emit *e, struct tl_type t, bool is_rem)
{
    bool is_signed = t.kind == TL_T_SIGNED;
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits);
    struct tl_val is_zero = tl_icmp(e, LLVMIntEQ, b, c(e, t, 0));
    struct tl_val unsafe = is_zero;
    if (is_signed) /* x / -1 is -x, which cannot fault */
        unsafe = tl_op(e, LLVMOr, is_zero, tl_icmp(e, LLVMIntEQ, b, c(e, t, UINT64_MAX)));
    struct tl_val safe = tl_select(e, unsafe, c(e, t, 1), b);
    struct tl_val r = tl_op(e,
                            is_rem      ? (is_signed ? LLVMSRem : LLVMURem)
                            : is_signed ? LLVMSDiv
                                        : LLVMUDiv,
                            a, safe);
    if (is_signed) {
        struct tl_val minus = is_rem ? c(e, t, 0) : tl_op(e, LLVMSub, c(e, t, 0), a);
        r = tl_select(e, tl_icmp(e, LLVMIntEQ, b, c(e, t, UINT64_MAX)), minus, r);
    }
    r = tl_select(e, is_zero, is_rem ? a : c(e, t, UINT64_MAX), r);
    tl_write(e, tl_opd(e, 0), r, is_signed);
}

/* --- shifts ----------------------------------------------------------------------------------- */

/* Amounts beyond the width give 0, or the sign. */
static void emit_shift(struct tl_emit *e, struct tl_type t, bool is_left)
{
    bool is_signed = t.kind == TL_T_SIGNED && !is_left;
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits),
                  n = tl_cast_int(e, tl_read(e, tl_opd(e, 2), 32), t.bits < 32 ? 32 : t.bits,
                                  false);
    struct tl_val limit = tl_const(e, t.bits < 32 ? 32 : t.bits, t.bits);
    struct tl_val over = tl_icmp(e, LLVMIntUGE, n, limit);
    struct tl_val amount = tl_select(
        e, over, tl_const(e, t.bits < 32 ? 32 : t.bits, is_signed ? t.bits - 1 : 0), n);
    struct tl_val r = tl_op(e,
                            is_left     ? LLVMShl
                            : is_signed ? LLVMAShr
                                        : LLVMLShr,
                            a, tl_cast_int(e, amount, t.bits, false));
    if (!is_signed)
        r = tl_select(e, over, c(e, t, 0), r);
    tl_write(e, tl_opd(e, 0), r, t.kind == TL_T_SIGNED);
}

/* Funnel shift of {high, low}. */
static void emit_funnel(struct tl_emit *e)
{
    bool is_left = e->inst->inst.form->n_mods > 0 &&
                   tl_str_is(e->inst->inst.form->mods[0].text, "l");
    struct tl_val low = tl_read(e, tl_opd(e, 1), 32), high = tl_read(e, tl_opd(e, 2), 32),
                  n = tl_read(e, tl_opd(e, 3), 32);
    if (tl_has(e, TL_MOD_wrap))
        n = tl_op(e, LLVMAnd, n, tl_const(e, 32, 31));
    else
        n = tl_select(e, tl_icmp(e, LLVMIntUGT, n, tl_const(e, 32, 32)), tl_const(e, 32, 32), n);
    struct tl_val both = tl_op(
        e, LLVMOr, tl_op(e, LLVMShl, tl_cast_int(e, high, 64, false), tl_const(e, 64, 32)),
        tl_cast_int(e, low, 64, false));
    struct tl_val wide = tl_cast_int(e, n, 64, false);
    struct tl_val r = is_left
                          ? tl_op(e, LLVMLShr, tl_op(e, LLVMShl, both, wide), tl_const(e, 64, 32))
                          : tl_op(e, LLVMLShr, both, wide);
    tl_write(e, tl_opd(e, 0), tl_cast_int(e, r, 32, false), false);
}

/* --- bits ------------------------------------------------------------------------------------- */

static void emit_count(struct tl_emit *e, struct tl_type t, enum tl_ptx_op op)
{
    struct tl_val args[2] = {tl_read(e, tl_opd(e, 1), t.bits),
                             {LLVMConstInt(e->i1, 0, false), false}};
    struct tl_val r = op == TL_OP_popc ? tl_intrinsic(e, "llvm.ctpop", args, 1)
                                       : tl_intrinsic(e, "llvm.ctlz", args, 2);
    tl_write(e, tl_opd(e, 0), tl_cast_int(e, r, 32, false), false);
}

static void emit_bfind(struct tl_emit *e, struct tl_type t)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits);
    if (t.kind == TL_T_SIGNED) /* look for the highest bit that differs from the sign */
        a = tl_op(e, LLVMXor, a, tl_op(e, LLVMAShr, a, c(e, t, t.bits - 1)));
    struct tl_val args[2] = {a, {LLVMConstInt(e->i1, 0, false), false}};
    struct tl_val lz = tl_cast_int(e, tl_intrinsic(e, "llvm.ctlz", args, 2), 32, false);
    struct tl_val none = tl_icmp(e, LLVMIntEQ, lz, tl_const(e, 32, t.bits));
    struct tl_val r = tl_has(e, TL_MOD_shiftamt)
                          ? lz
                          : tl_op(e, LLVMSub, tl_const(e, 32, t.bits - 1), lz);
    tl_write(e, tl_opd(e, 0), tl_select(e, none, tl_const(e, 32, UINT32_MAX), r), false);
}

static struct tl_val low_byte(struct tl_emit *e, uint32_t n, uint32_t bits)
{
    return tl_op(e, LLVMAnd, tl_cast_int(e, tl_read(e, tl_opd(e, n), 32), bits, false),
                 tl_const(e, bits, 255));
}

/* Bit field extract.  Positions and lengths reach 255; shifts are kept below the width and the rest
 * is filled in. */
static void emit_bfe(struct tl_emit *e, struct tl_type t)
{
    bool is_signed = t.kind == TL_T_SIGNED;
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), pos = low_byte(e, 2, t.bits),
                  len = low_byte(e, 3, t.bits);
    struct tl_val width = c(e, t, t.bits), zero = c(e, t, 0), one = c(e, t, 1);
    struct tl_val pos_in = tl_select(e, tl_icmp(e, LLVMIntULT, pos, width), pos,
                                     c(e, t, t.bits - 1));
    struct tl_val shifted = tl_op(e, LLVMLShr, a, pos_in);
    shifted = tl_select(e, tl_icmp(e, LLVMIntULT, pos, width), shifted, zero);
    struct tl_val len_in = tl_select(e, tl_icmp(e, LLVMIntULT, len, width), len, zero);
    struct tl_val field = tl_op(e, LLVMSub, tl_op(e, LLVMShl, one, len_in), one);
    field = tl_select(e, tl_icmp(e, LLVMIntULT, len, width), field, c(e, t, UINT64_MAX));
    struct tl_val r = tl_op(e, LLVMAnd, shifted, field);
    if (is_signed) { /* sign: bit min(pos + len - 1, msb), 0 for length 0 */
        struct tl_val last = tl_op(e, LLVMSub, tl_op(e, LLVMAdd, pos, len), one);
        last = tl_select(e, tl_icmp(e, LLVMIntULT, last, width), last, c(e, t, t.bits - 1));
        struct tl_val sign = tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, a, last), one);
        sign = tl_select(e, tl_icmp(e, LLVMIntEQ, len, zero), zero, sign);
        struct tl_val fill = tl_op(e, LLVMAnd, tl_op(e, LLVMSub, zero, sign),
                                   tl_op(e, LLVMXor, field, c(e, t, UINT64_MAX)));
        /* bits of the field beyond the operand's end are the sign too */
        struct tl_val beyond = tl_select(e, tl_icmp(e, LLVMIntULT, pos, width),
                                         tl_op(e, LLVMLShr, c(e, t, UINT64_MAX), pos_in), zero);
        beyond = tl_op(e, LLVMAnd, tl_op(e, LLVMXor, beyond, c(e, t, UINT64_MAX)),
                       tl_op(e, LLVMSub, zero, sign));
        r = tl_op(e, LLVMOr, tl_op(e, LLVMOr, r, fill), beyond);
    }
    tl_write(e, tl_opd(e, 0), r, is_signed);
}

static void emit_bfi(struct tl_emit *e, struct tl_type t)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits);
    struct tl_val pos = low_byte(e, 3, t.bits), len = low_byte(e, 4, t.bits);
    struct tl_val width = c(e, t, t.bits), zero = c(e, t, 0), one = c(e, t, 1),
                  ones = c(e, t, UINT64_MAX);
    struct tl_val len_in = tl_select(e, tl_icmp(e, LLVMIntULT, len, width), len, zero);
    struct tl_val field = tl_op(e, LLVMSub, tl_op(e, LLVMShl, one, len_in), one);
    field = tl_select(e, tl_icmp(e, LLVMIntULT, len, width), field, ones);
    struct tl_val is_in = tl_icmp(e, LLVMIntULT, pos, width),
                  pos_in = tl_select(e, is_in, pos, zero);
    struct tl_val mask = tl_select(e, is_in, tl_op(e, LLVMShl, field, pos_in), zero);
    struct tl_val part = tl_op(e, LLVMAnd, tl_op(e, LLVMShl, a, pos_in), mask);
    tl_write(e, tl_opd(e, 0),
             tl_op(e, LLVMOr, part, tl_op(e, LLVMAnd, b, tl_op(e, LLVMXor, mask, ones))), false);
}

/* Any function of three bits, by its truth table.  d|p, a, b, c, table, q: p is whether any bit is
 * set, joined with q. */
static void emit_lop3(struct tl_emit *e)
{
    const struct tl_ptx_operand *table = tl_opd(e, 4), *to = tl_opd(e, 0);
    bool has_predicate = to->kind == TL_OPD_PAIR;
    if (e->inst->n_operands != (has_predicate ? 6 : 5) || table->kind != TL_OPD_INT) {
        tl_emit_unsupported(e, "this form of lop3");
        return;
    }
    struct tl_val in[3], r = tl_const(e, 32, 0), ones = tl_const(e, 32, UINT32_MAX);
    for (uint32_t i = 0; i < 3; i++)
        in[i] = tl_read(e, tl_opd(e, i + 1), 32);
    for (uint32_t row = 0; row < 8; row++) {
        if (!(table->bits >> row & 1))
            continue;
        struct tl_val term = ones;
        for (uint32_t i = 0; i < 3; i++)
            term = tl_op(e, LLVMAnd, term,
                         row >> (2 - i) & 1 ? in[i] : tl_op(e, LLVMXor, in[i], ones));
        r = tl_op(e, LLVMOr, r, term);
    }
    if (has_predicate) {
        struct tl_val any = tl_icmp(e, LLVMIntNE, r, tl_const(e, 32, 0)),
                      q = tl_read(e, tl_opd(e, 5), 1);
        tl_write(e, &to->elems[1], tl_op(e, tl_has(e, TL_MOD_or) ? LLVMOr : LLVMAnd, any, q),
                 false);
        to = &to->elems[0];
    }
    tl_write(e, to, r, false);
}

/* The modes of prmt are selectors by the two lowest bits of the third operand. */
static struct tl_val prmt_selector(struct tl_emit *e)
{
    static const struct {
        const char *mode;
        uint32_t selector[4];
    } modes[] = {
        {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
        {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
        {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}},
    };
    struct tl_val given = tl_read(e, tl_opd(e, 3), 32),
                  low = tl_op(e, LLVMAnd, given, tl_const(e, 32, 3)), r = given;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (!tl_ptx_form_has_text(e->inst->inst.form, modes[i].mode))
            continue;
        r = tl_const(e, 32, modes[i].selector[0]);
        for (uint32_t k = 1; k < 4; k++)
            r = tl_select(e, tl_icmp(e, LLVMIntEQ, low, tl_const(e, 32, k)),
                          tl_const(e, 32, modes[i].selector[k]), r);
    }
    return r;
}

static void emit_prmt(struct tl_emit *e)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), 32), b = tl_read(e, tl_opd(e, 2), 32),
                  sel = prmt_selector(e);
    struct tl_val both = tl_op(e, LLVMOr,
                               tl_op(e, LLVMShl, tl_cast_int(e, b, 64, false), tl_const(e, 64, 32)),
                               tl_cast_int(e, a, 64, false));
    struct tl_val r = tl_const(e, 32, 0);
    for (uint32_t i = 0; i < 4; i++) {
        struct tl_val s = tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, sel, tl_const(e, 32, 4 * i)),
                                tl_const(e, 32, 15));
        struct tl_val at = tl_op(e, LLVMShl, tl_op(e, LLVMAnd, s, tl_const(e, 32, 7)),
                                 tl_const(e, 32, 3));
        struct tl_val byte = tl_op(e, LLVMAnd,
                                   tl_op(e, LLVMLShr, both, tl_cast_int(e, at, 64, false)),
                                   tl_const(e, 64, 255));
        struct tl_val value = tl_cast_int(e, byte, 32, false);
        struct tl_val sign = tl_op(e, LLVMSub, tl_const(e, 32, 0),
                                   tl_op(e, LLVMLShr, value, tl_const(e, 32, 7)));
        struct tl_val replicate = tl_icmp(e, LLVMIntUGE, s, tl_const(e, 32, 8));
        value = tl_select(e, replicate, tl_op(e, LLVMAnd, sign, tl_const(e, 32, 255)), value);
        r = tl_op(e, LLVMOr, r, tl_op(e, LLVMShl, value, tl_const(e, 32, 8 * i)));
    }
    tl_write(e, tl_opd(e, 0), r, false);
}

/* Dot products of four bytes, or of two halves with two bytes. */
static void emit_dot(struct tl_emit *e, bool is_dp2a)
{
    bool a_signed = tl_type_of(e->inst->inst.form, 0).kind == TL_T_SIGNED,
         b_signed = tl_type_of(e->inst->inst.form, 1).kind == TL_T_SIGNED;
    struct tl_val a = tl_read(e, tl_opd(e, 1), 32), b = tl_read(e, tl_opd(e, 2), 32),
                  r = tl_read(e, tl_opd(e, 3), 32);
    uint32_t n = is_dp2a ? 2 : 4, a_bits = is_dp2a ? 16 : 8,
             high = is_dp2a && tl_has(e, TL_MOD_hi) ? 2 : 0;
    for (uint32_t i = 0; i < n; i++) {
        struct tl_val x = tl_cast_int(e, tl_op(e, LLVMLShr, a, tl_const(e, 32, i * a_bits)), a_bits,
                                      false);
        struct tl_val y = tl_cast_int(e, tl_op(e, LLVMLShr, b, tl_const(e, 32, (i + high) * 8)), 8,
                                      false);
        r = tl_op(
            e, LLVMAdd, r,
            tl_op(e, LLVMMul, tl_cast_int(e, x, 32, a_signed), tl_cast_int(e, y, 32, b_signed)));
    }
    tl_write(e, tl_opd(e, 0), r, false);
}

/* --- min, max, abs ---------------------------------------------------------------------------- */

static struct tl_val minmax(struct tl_emit *e, bool is_min, bool is_signed, struct tl_val a,
                            struct tl_val b)
{
    struct tl_val args[2] = {a, b};
    tl_match(e, &args[0], &args[1]);
    return tl_intrinsic(e,
                        is_min      ? (is_signed ? "llvm.smin" : "llvm.umin")
                        : is_signed ? "llvm.smax"
                                    : "llvm.umax",
                        args, 2);
}

static struct tl_val minmax_of_form(struct tl_emit *e, struct tl_type t, struct tl_val a,
                                    struct tl_val b)
{
    struct tl_val r = minmax(e, e->inst->inst.form->op == TL_OP_min, t.kind == TL_T_SIGNED, a, b);
    return tl_ptx_form_has_text(e->inst->inst.form, "relu") ? minmax(e, false, true, r, c(e, t, 0))
                                                            : r;
}

static void emit_minmax(struct tl_emit *e, struct tl_type t)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits);
    tl_write(e, tl_opd(e, 0), minmax_of_form(e, t, a, b), t.kind == TL_T_SIGNED);
}

/* Part n of a word of equal parts. */
struct tl_val tl_part_of(struct tl_emit *e, struct tl_val word, uint32_t bits, uint32_t n)
{
    return tl_cast_int(e, tl_op(e, LLVMLShr, word, tl_const(e, 32, (uint64_t)n * bits)), bits,
                       false);
}

struct tl_val tl_with_part(struct tl_emit *e, struct tl_val word, struct tl_val part, uint32_t bits,
                           uint32_t n)
{
    return tl_op(
        e, LLVMOr, word,
        tl_op(e, LLVMShl, tl_cast_int(e, part, 32, false), tl_const(e, 32, (uint64_t)n * bits)));
}

/* Two 16-bit numbers at once. */
static bool emit_packed(struct tl_emit *e, struct tl_type t)
{
    enum tl_ptx_op op = e->inst->inst.form->op;
    if (op != TL_OP_add && op != TL_OP_sub && op != TL_OP_min && op != TL_OP_max)
        return false;
    struct tl_type single = {t.kind, t.bits, 1};
    struct tl_val a = tl_read(e, tl_opd(e, 1), 32), b = tl_read(e, tl_opd(e, 2), 32),
                  r = tl_const(e, 32, 0);
    for (uint32_t p = 0; p < t.packed; p++) {
        struct tl_val x = tl_part_of(e, a, t.bits, p), y = tl_part_of(e, b, t.bits, p);
        struct tl_val v = op == TL_OP_add   ? tl_op(e, LLVMAdd, x, y)
                          : op == TL_OP_sub ? tl_op(e, LLVMSub, x, y)
                                            : minmax_of_form(e, single, x, y);
        r = tl_with_part(e, r, v, t.bits, p);
    }
    tl_write(e, tl_opd(e, 0), r, false);
    return true;
}

/* --- video ------------------------------------------------------------------------------------ */

/* The first operation of a video instruction on numbers that were widened so far that nothing is
 * lost. */
static bool video_primary(struct tl_emit *e, uint32_t wide, struct tl_val a, struct tl_val b,
                          struct tl_val *r)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_vadd:
    case TL_OP_vadd2:
    case TL_OP_vadd4:
        *r = tl_op(e, LLVMAdd, a, b);
        return true;
    case TL_OP_vsub:
    case TL_OP_vsub2:
    case TL_OP_vsub4:
        *r = tl_op(e, LLVMSub, a, b);
        return true;
    case TL_OP_vmin:
    case TL_OP_vmin2:
    case TL_OP_vmin4:
        *r = minmax(e, true, true, a, b);
        return true;
    case TL_OP_vmax:
    case TL_OP_vmax2:
    case TL_OP_vmax4:
        *r = minmax(e, false, true, a, b);
        return true;
    case TL_OP_vabsdiff:
    case TL_OP_vabsdiff2:
    case TL_OP_vabsdiff4:
        *r = tl_op(e, LLVMSub, minmax(e, false, true, a, b), minmax(e, true, true, a, b));
        return true;
    case TL_OP_vshl:
    case TL_OP_vshr: {
        struct tl_val n = tl_op(e, LLVMAnd, b, tl_const(e, wide, UINT32_MAX));
        n = tl_has(e, TL_MOD_wrap) ? tl_op(e, LLVMAnd, n, tl_const(e, wide, 31))
                                   : minmax(e, true, false, n, tl_const(e, wide, 32));
        *r = tl_op(e, e->inst->inst.form->op == TL_OP_vshl ? LLVMShl : LLVMAShr, a, n);
        return true;
    }
    default:
        return false;
    }
}

static struct tl_val clamp_video(struct tl_emit *e, struct tl_val r, uint32_t wide, uint32_t bits,
                                 bool is_signed)
{
    uint64_t most = is_signed ? (1ull << (bits - 1)) - 1 : (1ull << bits) - 1,
             least = is_signed ? ~most : 0;
    return minmax(e, true, true, minmax(e, false, true, r, tl_const(e, wide, least)),
                  tl_const(e, wide, most));
}

/* One number per operand: first operation, then add, min or max with the third operand. */
static bool emit_video(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type td = tl_type_of(f, 0), ta = tl_type_of(f, 1), tb = tl_type_of(f, 2);
    bool is_signed = td.kind == TL_T_SIGNED;
    struct tl_val a = tl_cast_int(e, tl_read(e, tl_opd(e, 1), 32), 64, ta.kind == TL_T_SIGNED), r;
    struct tl_val b = tl_cast_int(e, tl_read(e, tl_opd(e, 2), 32), 64, tb.kind == TL_T_SIGNED);
    if (!video_primary(e, 64, a, b, &r))
        return false;
    if (tl_has(e, TL_MOD_sat))
        r = clamp_video(e, r, 64, 32, is_signed);
    r = tl_cast_int(e, r, 32, false);
    if (e->inst->n_operands == 4) {
        struct tl_val third = tl_read(e, tl_opd(e, 3), 32);
        r = tl_has(e, TL_MOD_add) ? tl_op(e, LLVMAdd, r, third)
                                  : minmax(e, tl_has(e, TL_MOD_min), is_signed, r, third);
    }
    tl_write(e, tl_opd(e, 0), r, false);
    return true;
}

/* Four bytes or two halves of each operand; with .add their sum goes to the third operand. */
static bool emit_video_parts(struct tl_emit *e, uint32_t n)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type td = tl_type_of(f, 0), ta = tl_type_of(f, 1), tb = tl_type_of(f, 2);
    uint32_t bits = 32 / n;
    struct tl_val a = tl_read(e, tl_opd(e, 1), 32), b = tl_read(e, tl_opd(e, 2), 32),
                  r = tl_const(e, 32, 0), sum = tl_read(e, tl_opd(e, 3), 32);
    for (uint32_t i = 0; i < n; i++) {
        struct tl_val v, x = tl_cast_int(e, tl_part_of(e, a, bits, i), 32, ta.kind == TL_T_SIGNED);
        if (!video_primary(e, 32, x,
                           tl_cast_int(e, tl_part_of(e, b, bits, i), 32, tb.kind == TL_T_SIGNED),
                           &v))
            return false;
        if (tl_has(e, TL_MOD_sat))
            v = clamp_video(e, v, 32, bits, td.kind == TL_T_SIGNED);
        sum = tl_op(e, LLVMAdd, sum, v);
        r = tl_with_part(e, r, tl_cast_int(e, v, bits, false), bits, i);
    }
    tl_write(e, tl_opd(e, 0), tl_has(e, TL_MOD_add) ? sum : r, false);
    return true;
}

/* --- mov -------------------------------------------------------------------------------------- */

/* Between a wide register and a vector of narrow ones. */
static void emit_mov(struct tl_emit *e, struct tl_type t)
{
    const struct tl_ptx_operand *to = tl_opd(e, 0), *from = tl_opd(e, 1);
    uint32_t n = tl_has(e, TL_MOD_v4) ? 4 : tl_has(e, TL_MOD_v2) ? 2 : 1;
    if (n > 1) { /* element by element, not as one word */
        struct tl_val x[4];
        if (tl_elements(to) != n || tl_elements(from) < n) {
            tl_emit_unsupported(e, "vectors of different lengths");
            return;
        }
        for (uint32_t i = 0; i < n; i++) {
            struct tl_ptx_operand o = tl_element(from, i);
            x[i] = tl_read(e, &o, t.bits);
        }
        for (uint32_t i = 0; i < n; i++) {
            struct tl_ptx_operand o = tl_element(to, i);
            tl_write(e, &o, x[i], false);
        }
        return;
    }
    if (to->kind == TL_OPD_VEC) {
        uint32_t part = t.bits / to->n;
        struct tl_val v = tl_read(e, from, t.bits);
        for (uint32_t i = 0; i < to->n; i++)
            tl_write(
                e, &to->elems[i],
                tl_cast_int(e, tl_op(e, LLVMLShr, v, c(e, t, (uint64_t)i * part)), part, false),
                false);
        return;
    }
    if (from->kind == TL_OPD_VEC) {
        uint32_t part = t.bits / from->n;
        struct tl_val r = c(e, t, 0);
        for (uint32_t i = 0; i < from->n; i++) {
            struct tl_val v = tl_cast_int(e, tl_read(e, &from->elems[i], part), t.bits, false);
            r = tl_op(e, LLVMOr, r, tl_op(e, LLVMShl, v, c(e, t, (uint64_t)i * part)));
        }
        tl_write(e, to, r, false);
        return;
    }
    tl_write(e, to, tl_read(e, from, t.bits), false);
}

/* --- dispatch --------------------------------------------------------------------------------- */

static void emit_logic(struct tl_emit *e, struct tl_type t, LLVMOpcode op)
{
    tl_write(e, tl_opd(e, 0),
             tl_op(e, op, tl_read(e, tl_opd(e, 1), t.bits), tl_read(e, tl_opd(e, 2), t.bits)),
             false);
}

static void emit_sad(struct tl_emit *e, struct tl_type t)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits);
    struct tl_val less = tl_icmp(e, t.kind == TL_T_SIGNED ? LLVMIntSLT : LLVMIntULT, a, b);
    struct tl_val d = tl_select(e, less, tl_op(e, LLVMSub, b, a), tl_op(e, LLVMSub, a, b));
    tl_write(e, tl_opd(e, 0), tl_op(e, LLVMAdd, d, tl_read(e, tl_opd(e, 3), t.bits)), false);
}

static void emit_unary(struct tl_emit *e, struct tl_type t, enum tl_ptx_op op)
{
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), r = a;
    struct tl_val args[2] = {a, {LLVMConstInt(e->i1, 0, false), false}};
    switch (op) {
    case TL_OP_not:
        r.v = LLVMBuildNot(e->b, a.v, "");
        break;
    case TL_OP_cnot:
        r = tl_select(e, tl_icmp(e, LLVMIntEQ, a, c(e, t, 0)), c(e, t, 1), c(e, t, 0));
        break;
    case TL_OP_neg:
        r.v = LLVMBuildNeg(e->b, a.v, "");
        break;
    case TL_OP_abs:
        r = tl_intrinsic(e, "llvm.abs", args, 2);
        break;
    default:
        r = tl_intrinsic(e, "llvm.bitreverse", args, 1);
        break;
    }
    tl_write(e, tl_opd(e, 0), r, t.kind == TL_T_SIGNED);
}

/* What works on bits, whatever they mean; false for other opcodes. */
static bool emit_bits(struct tl_emit *e, struct tl_type t, enum tl_ptx_op op)
{
    switch (op) {
    case TL_OP_mov:
        if (t.bits == 0)
            return false;
        emit_mov(e, t);
        return true;
    case TL_OP_and:
        emit_logic(e, t, LLVMAnd);
        return true;
    case TL_OP_or:
        emit_logic(e, t, LLVMOr);
        return true;
    case TL_OP_xor:
        emit_logic(e, t, LLVMXor);
        return true;
    case TL_OP_shl:
        emit_shift(e, t, true);
        return true;
    case TL_OP_shr:
        emit_shift(e, t, false);
        return true;
    case TL_OP_shf:
        emit_funnel(e);
        return true;
    case TL_OP_lop3:
        emit_lop3(e);
        return true;
    case TL_OP_prmt:
        emit_prmt(e);
        return true;
    case TL_OP_dp4a:
        emit_dot(e, false);
        return true;
    case TL_OP_dp2a:
        emit_dot(e, true);
        return true;
    case TL_OP_popc:
    case TL_OP_clz:
        emit_count(e, t, op);
        return true;
    case TL_OP_bfind:
        emit_bfind(e, t);
        return true;
    case TL_OP_bfe:
        emit_bfe(e, t);
        return true;
    case TL_OP_bfi:
        emit_bfi(e, t);
        return true;
    case TL_OP_brev:
    case TL_OP_not:
    case TL_OP_cnot:
        emit_unary(e, t, op);
        return true;
    default:
        return false;
    }
}

/* Sums of parts of words, with their own choice of parts; false for other opcodes. */
static bool emit_any_video(struct tl_emit *e, enum tl_ptx_op op)
{
    switch (op) {
    case TL_OP_vadd:
    case TL_OP_vsub:
    case TL_OP_vabsdiff:
    case TL_OP_vmin:
    case TL_OP_vmax:
    case TL_OP_vshl:
    case TL_OP_vshr:
        return emit_video(e);
    case TL_OP_vadd2:
    case TL_OP_vsub2:
    case TL_OP_vabsdiff2:
    case TL_OP_vmin2:
    case TL_OP_vmax2:
        return emit_video_parts(e, 2);
    case TL_OP_vadd4:
    case TL_OP_vsub4:
    case TL_OP_vabsdiff4:
    case TL_OP_vmin4:
    case TL_OP_vmax4:
        return emit_video_parts(e, 4);
    default:
        return false;
    }
}

/* What counts with integers; false for other opcodes. */
static bool emit_arithmetic(struct tl_emit *e, struct tl_type t, enum tl_ptx_op op)
{
    switch (op) {
    case TL_OP_add:
        emit_add(e, t, false, false);
        return true;
    case TL_OP_sub:
        emit_add(e, t, true, false);
        return true;
    case TL_OP_addc:
        emit_add(e, t, false, true);
        return true;
    case TL_OP_subc:
        emit_add(e, t, true, true);
        return true;
    case TL_OP_mul:
        emit_mul(e, t);
        return true;
    case TL_OP_mad:
        emit_mad(e, t, false);
        return true;
    case TL_OP_madc:
        emit_mad(e, t, true);
        return true;
    case TL_OP_mul24:
        emit_mul24(e, t, false);
        return true;
    case TL_OP_mad24:
        emit_mul24(e, t, true);
        return true;
    case TL_OP_div:
        emit_div(e, t, false);
        return true;
    case TL_OP_rem:
        emit_div(e, t, true);
        return true;
    case TL_OP_min:
    case TL_OP_max:
        emit_minmax(e, t);
        return true;
    case TL_OP_sad:
        emit_sad(e, t);
        return true;
    case TL_OP_neg:
    case TL_OP_abs:
        emit_unary(e, t, op);
        return true;
    default:
        return false;
    }
}

bool tl_emit_integer(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type t = tl_type_of(f, -1);
    if (emit_bits(e, t, f->op))
        return true;
    if (t.packed == 2 && !is_float(t))
        return emit_packed(e, t);
    /* other types are other families' */
    return !is_float(t) && t.packed == 1 && t.bits != 0 &&
           (emit_any_video(e, f->op) || emit_arithmetic(e, t, f->op));
}

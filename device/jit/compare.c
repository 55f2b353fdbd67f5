/* Comparison and selection, of integers and floats. */
#include "device/jit/emit.h"
#include "device/jit/value.h"

static bool is_float(struct tl_type t)
{
    return t.kind == TL_T_FLOAT || t.kind == TL_T_BFLOAT;
}

/* What a modifier compares.  lo, ls, hi and hs are of unsigned integers whatever the type says, and
 * of integers only. */
struct relation {
    enum tl_ptx_mod mod;
    LLVMIntPredicate of_signed, of_unsigned;
    LLVMRealPredicate real; /* LLVMRealPredicateFalse: not for floats */
    bool is_float_only;
};

static const struct relation relations[] = {
    {TL_MOD_eq, LLVMIntEQ, LLVMIntEQ, LLVMRealOEQ, false},
    {TL_MOD_ne, LLVMIntNE, LLVMIntNE, LLVMRealONE, false},
    {TL_MOD_lt, LLVMIntSLT, LLVMIntULT, LLVMRealOLT, false},
    {TL_MOD_le, LLVMIntSLE, LLVMIntULE, LLVMRealOLE, false},
    {TL_MOD_gt, LLVMIntSGT, LLVMIntUGT, LLVMRealOGT, false},
    {TL_MOD_ge, LLVMIntSGE, LLVMIntUGE, LLVMRealOGE, false},
    {TL_MOD_lo, LLVMIntULT, LLVMIntULT, LLVMRealPredicateFalse, false},
    {TL_MOD_ls, LLVMIntULE, LLVMIntULE, LLVMRealPredicateFalse, false},
    {TL_MOD_hi, LLVMIntUGT, LLVMIntUGT, LLVMRealPredicateFalse, false},
    {TL_MOD_hs, LLVMIntUGE, LLVMIntUGE, LLVMRealPredicateFalse, false},
    {TL_MOD_equ, LLVMIntEQ, LLVMIntEQ, LLVMRealUEQ, true},
    {TL_MOD_neu, LLVMIntEQ, LLVMIntEQ, LLVMRealUNE, true},
    {TL_MOD_ltu, LLVMIntEQ, LLVMIntEQ, LLVMRealULT, true},
    {TL_MOD_leu, LLVMIntEQ, LLVMIntEQ, LLVMRealULE, true},
    {TL_MOD_gtu, LLVMIntEQ, LLVMIntEQ, LLVMRealUGT, true},
    {TL_MOD_geu, LLVMIntEQ, LLVMIntEQ, LLVMRealUGE, true},
    {TL_MOD_num, LLVMIntEQ, LLVMIntEQ, LLVMRealORD, true},
    {TL_MOD_nan, LLVMIntEQ, LLVMIntEQ, LLVMRealUNO, true},
};

static const struct relation *relation_of(const struct tl_ptx_form *f)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        for (size_t k = 0; k < sizeof relations / sizeof relations[0]; k++) {
            if (f->mods[i].id == relations[k].mod)
                return &relations[k];
        }
    }
    return NULL;
}

/* One element of a comparison; integers come as integers, floats as floats. */
static struct tl_val compare(struct tl_emit *e, struct tl_type t, struct tl_val a, struct tl_val b)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    const struct relation *r = relation_of(f);
    if (r == NULL || (is_float(t) ? r->real == LLVMRealPredicateFalse : r->is_float_only)) {
        tl_emit_unsupported(e, "this comparison");
        return tl_const(e, 1, 0);
    }
    if (!is_float(t))
        return tl_icmp(e, t.kind == TL_T_SIGNED ? r->of_signed : r->of_unsigned, a, b);
    a = tl_to_float(e, a, t);
    b = tl_to_float(e, b, t);
    if (tl_has(e, TL_MOD_ftz) && t.kind == TL_T_FLOAT && t.bits == 32) {
        a = tl_flush(e, a);
        b = tl_flush(e, b);
    }
    return tl_fcmp(e, r->real, a, b);
}

/* With the third source, if there is one. */
static struct tl_val join(struct tl_emit *e, struct tl_val r)
{
    if (e->inst->n_operands <= 3)
        return r;
    return tl_op(e,
                 tl_has(e, TL_MOD_or)    ? LLVMOr
                 : tl_has(e, TL_MOD_xor) ? LLVMXor
                                         : LLVMAnd,
                 r, tl_read(e, tl_opd(e, 3), 1));
}

static void emit_setp(struct tl_emit *e)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1), single = {t.kind, t.bits, 1};
    const struct tl_ptx_operand *to = tl_opd(e, 0), *p = to, *q = NULL;
    if (to->kind == TL_OPD_PAIR) {
        p = &to->elems[0];
        q = &to->elems[1];
    }
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits * t.packed),
                  b = tl_read(e, tl_opd(e, 2), t.bits * t.packed), r, other;
    if (t.packed == 2) { /* lower halves to p, upper ones to q */
        r = compare(e, single, tl_part_of(e, a, t.bits, 0), tl_part_of(e, b, t.bits, 0));
        other = compare(e, single, tl_part_of(e, a, t.bits, 1), tl_part_of(e, b, t.bits, 1));
    } else {
        r = compare(e, t, a, b);
        other = (struct tl_val){LLVMBuildNot(e->b, r.v, ""), r.is_vec};
    }
    r = join(e, r);
    other = join(e, other);
    tl_write(e, p, r, false);
    if (q != NULL)
        tl_write(e, q, other, false);
}

/* One, or all ones, where the comparison holds. */
static void emit_set(struct tl_emit *e)
{
    struct tl_type to = tl_type_of(e->inst->inst.form, 0), from = tl_type_of(e->inst->inst.form, 1),
                   single = {from.kind, from.bits, 1};
    uint32_t width = to.bits * to.packed, part = width / from.packed;
    uint64_t yes = to.kind == TL_T_BFLOAT  ? 0x3f80
                   : to.kind != TL_T_FLOAT ? UINT64_MAX
                   : to.bits == 32         ? 0x3f800000
                                           : 0x3c00;
    struct tl_val a = tl_read(e, tl_opd(e, 1), from.bits * from.packed),
                  b = tl_read(e, tl_opd(e, 2), from.bits * from.packed), r;
    if (from.packed == 1) {
        r = tl_select(e, join(e, compare(e, from, a, b)), tl_const(e, width, yes),
                      tl_const(e, width, 0));
    } else {
        r = tl_const(e, 32, 0);
        for (uint32_t p = 0; p < from.packed; p++) {
            struct tl_val holds = join(e, compare(e, single, tl_part_of(e, a, from.bits, p),
                                                  tl_part_of(e, b, from.bits, p)));
            r = tl_with_part(
                e, r, tl_select(e, holds, tl_const(e, part, yes), tl_const(e, part, 0)), part, p);
        }
    }
    tl_write(e, tl_opd(e, 0), r, to.kind == TL_T_SIGNED);
}

static void emit_slct(struct tl_emit *e)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, 0), by = tl_type_of(e->inst->inst.form, 1);
    struct tl_val a = tl_read(e, tl_opd(e, 1), t.bits), b = tl_read(e, tl_opd(e, 2), t.bits), test;
    if (is_float(by)) {
        struct tl_val x = tl_read_as(e, tl_opd(e, 3), by);
        if (tl_has(e, TL_MOD_ftz))
            x = tl_flush(e, x);
        test = (struct tl_val){
            LLVMBuildFCmp(e->b, LLVMRealOGE, x.v, LLVMConstNull(LLVMTypeOf(x.v)), ""), x.is_vec};
    } else {
        test = tl_icmp(e, LLVMIntSGE, tl_read(e, tl_opd(e, 3), 32), tl_const(e, 32, 0));
    }
    tl_write(e, tl_opd(e, 0), tl_select(e, test, a, b), false);
}

bool tl_emit_compare(struct tl_emit *e)
{
    uint32_t bits = tl_type_of(e->inst->inst.form, -1).bits;
    switch (e->inst->inst.form->op) {
    case TL_OP_setp:
        emit_setp(e);
        return true;
    case TL_OP_set:
        emit_set(e);
        return true;
    case TL_OP_selp:
        tl_write(e, tl_opd(e, 0),
                 tl_select(e, tl_read(e, tl_opd(e, 3), 1), tl_read(e, tl_opd(e, 1), bits),
                           tl_read(e, tl_opd(e, 2), bits)),
                 false);
        return true;
    case TL_OP_slct:
        emit_slct(e);
        return true;
    default:
        return false;
    }
}

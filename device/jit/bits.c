/* Masks and searches within a word: bmsk, szext, fns. */
#include "device/jit/emit.h"
#include "device/jit/value.h"

static struct tl_val c32(struct tl_emit *e, uint32_t value)
{
    return tl_const(e, 32, value);
}

static struct tl_val low5(struct tl_emit *e, struct tl_val v)
{
    return tl_op(e, LLVMAnd, v, c32(e, 31));
}

/* Ones from a bit on, as wide as asked for.  What reaches beyond the word ends with it. */
static void emit_bmsk(struct tl_emit *e)
{
    bool clamps = tl_has(e, TL_MOD_clamp);
    struct tl_val a = tl_read(e, tl_opd(e, 1), 32), b = tl_read(e, tl_opd(e, 2), 32),
                  all = c32(e, UINT32_MAX);
    struct tl_val sum = tl_op(e, LLVMAdd, low5(e, a), low5(e, b)),
                  from = tl_op(e, LLVMShl, all, low5(e, a));
    struct tl_val is_long = tl_icmp(e, LLVMIntUGE, sum, c32(e, 32));
    struct tl_val behind = tl_op(e, LLVMShl, all, low5(e, sum));
    if (clamps) {
        from = tl_select(e, tl_icmp(e, LLVMIntUGE, a, c32(e, 32)), c32(e, 0), from);
        is_long = tl_op(e, LLVMOr, is_long, tl_icmp(e, LLVMIntUGE, b, c32(e, 32)));
    }
    behind = tl_select(e, is_long, c32(e, 0), behind);
    tl_write(e, tl_opd(e, 0), tl_op(e, LLVMAnd, from, tl_op(e, LLVMXor, behind, all)), false);
}

/* The lowest bits of a word, extended. */
static void emit_szext(struct tl_emit *e)
{
    bool is_signed = tl_has(e, TL_MOD_s32);
    struct tl_val a = tl_read(e, tl_opd(e, 1), 32), b = tl_read(e, tl_opd(e, 2), 32),
                  n = low5(e, b);
    struct tl_val mask = tl_op(e, LLVMShl, c32(e, UINT32_MAX), n);
    if (tl_has(e, TL_MOD_clamp))
        mask = tl_select(e, tl_icmp(e, LLVMIntUGE, b, c32(e, 32)), c32(e, 0), mask);
    struct tl_val r = tl_op(e, LLVMAnd, a, tl_op(e, LLVMXor, mask, c32(e, UINT32_MAX)));
    if (is_signed) {
        struct tl_val sign = tl_op(
            e, LLVMAnd, tl_op(e, LLVMLShr, a, low5(e, tl_op(e, LLVMSub, n, c32(e, 1)))), c32(e, 1));
        struct tl_val is_set = tl_op(e, LLVMAnd, tl_icmp(e, LLVMIntNE, sign, c32(e, 0)),
                                     tl_icmp(e, LLVMIntNE, n, c32(e, 0)));
        r = tl_op(e, LLVMOr, r, tl_select(e, is_set, mask, c32(e, 0)));
    }
    tl_write(e, tl_opd(e, 0), r, false);
}

/* The n-th bit that is set, from a position on, upwards or downwards; all ones if there is none. */
static void emit_fns(struct tl_emit *e)
{
    struct tl_val mask = tl_read(e, tl_opd(e, 1), 32), base = tl_read(e, tl_opd(e, 2), 32),
                  offset = tl_read(e, tl_opd(e, 3), 32), r = c32(e, UINT32_MAX), one = c32(e, 1);
    struct tl_val is_down = tl_icmp(e, LLVMIntSLT, offset, c32(e, 0)),
                  is_here = tl_icmp(e, LLVMIntEQ, offset, c32(e, 0));
    struct tl_val step = tl_select(e, is_down, c32(e, UINT32_MAX), one);
    struct tl_val left = tl_select(e, is_down, tl_op(e, LLVMSub, c32(e, 0), offset), offset),
                  at = base;
    left = tl_select(e, is_here, one, left); /* the base itself, and nothing else */
    struct tl_val is_inside = tl_const(e, 1, 1);
    for (uint32_t i = 0; i < 32; i++) {
        struct tl_val bit = tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, mask, low5(e, at)), one);
        is_inside = tl_op(e, LLVMAnd, is_inside,
                          /* who has left does not return */
                          tl_icmp(e, LLVMIntULT, at, c32(e, 32)));
        struct tl_val is_set = tl_op(e, LLVMAnd, tl_icmp(e, LLVMIntNE, bit, c32(e, 0)), is_inside);
        left = tl_op(e, LLVMSub, left, tl_cast_int(e, is_set, 32, false));
        r = tl_select(e, tl_op(e, LLVMAnd, is_set, tl_icmp(e, LLVMIntEQ, left, c32(e, 0))), at, r);
        at = tl_op(e, LLVMAdd, at, step);
        if (i == 0)
            /* and no further one is counted down to nothing */
            left = tl_select(e, is_here, c32(e, 0), left);
    }
    tl_write(e, tl_opd(e, 0), r, false);
}

bool tl_emit_bits(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_bmsk:
        emit_bmsk(e);
        return true;
    case TL_OP_szext:
        emit_szext(e);
        return true;
    case TL_OP_fns:
        emit_fns(e);
        return true;
    default:
        return false;
    }
}

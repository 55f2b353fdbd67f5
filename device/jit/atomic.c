/* Atomics: lane after lane, in lane order.  Blocks run on one thread, so those on shared memory are
 * plain. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

enum { MAX_VECTOR = 8 };

struct atomic {
    struct tl_type t;
    uint32_t bits;       /* of the memory word */
    uint32_t n;          /* words side by side, each an atomic of its own */
    LLVMTypeRef element; /* of the memory operation: integer or float */
    LLVMAtomicRMWBinOp op;
    bool is_cas, is_float;
    bool is_half; /* arithmetic of f16 or bfloat, one or two: no machine has that */
};

/* Which operation the form's modifiers ask for, and how it is done.  False if there is no such for
 * that type. */
static bool choose(struct tl_emit *e, struct atomic *a)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    bool is_signed = a->t.kind == TL_T_SIGNED;
    a->is_float = a->t.kind == TL_T_FLOAT || a->t.kind == TL_T_BFLOAT;
    a->bits = a->t.bits * a->t.packed;
    bool is_half = a->is_float && a->t.bits == 16;
    for (uint32_t i = 0; i < f->n_mods; i++) {
        switch (f->mods[i].id) {
        case TL_MOD_add:
            a->op = a->is_float ? LLVMAtomicRMWBinOpFAdd : LLVMAtomicRMWBinOpAdd;
            a->is_half = is_half;
            return is_half || (a->t.packed == 1 && a->bits >= 32);
        case TL_MOD_and:
            a->op = LLVMAtomicRMWBinOpAnd;
            return true;
        case TL_MOD_or:
            a->op = LLVMAtomicRMWBinOpOr;
            return true;
        case TL_MOD_xor:
            a->op = LLVMAtomicRMWBinOpXor;
            return true;
        case TL_MOD_min:
            a->op = is_signed ? LLVMAtomicRMWBinOpMin : LLVMAtomicRMWBinOpUMin;
            a->is_half = is_half;
            return is_half || !a->is_float;
        case TL_MOD_max:
            a->op = is_signed ? LLVMAtomicRMWBinOpMax : LLVMAtomicRMWBinOpUMax;
            a->is_half = is_half;
            return is_half || !a->is_float;
        case TL_MOD_exch:
            a->op = LLVMAtomicRMWBinOpXchg;
            return true;
        case TL_MOD_inc:
            a->op = LLVMAtomicRMWBinOpUIncWrap;
            return true;
        case TL_MOD_dec:
            a->op = LLVMAtomicRMWBinOpUDecWrap;
            return true;
        case TL_MOD_cas:
            a->is_cas = true;
            return true;
        default:
            break;
        }
    }
    return false;
}

/* The new value of a plain read-modify-write. */
static LLVMValueRef apply(struct tl_emit *e, const struct atomic *a, LLVMValueRef old,
                          LLVMValueRef x)
{
    LLVMBuilderRef b = e->b;
    LLVMValueRef zero = a->is_float ? NULL : LLVMConstInt(a->element, 0, false),
                 one = a->is_float ? NULL : LLVMConstInt(a->element, 1, false);
    switch (a->op) {
    case LLVMAtomicRMWBinOpAdd:
        return LLVMBuildAdd(b, old, x, "");
    case LLVMAtomicRMWBinOpFAdd:
        return LLVMBuildFAdd(b, old, x, "");
    case LLVMAtomicRMWBinOpAnd:
        return LLVMBuildAnd(b, old, x, "");
    case LLVMAtomicRMWBinOpOr:
        return LLVMBuildOr(b, old, x, "");
    case LLVMAtomicRMWBinOpXor:
        return LLVMBuildXor(b, old, x, "");
    case LLVMAtomicRMWBinOpMin:
        return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSLT, old, x, ""), old, x, "");
    case LLVMAtomicRMWBinOpMax:
        return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntSGT, old, x, ""), old, x, "");
    case LLVMAtomicRMWBinOpUMin:
        return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntULT, old, x, ""), old, x, "");
    case LLVMAtomicRMWBinOpUMax:
        return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntUGT, old, x, ""), old, x, "");
    case LLVMAtomicRMWBinOpUIncWrap:
        return LLVMBuildSelect(b, LLVMBuildICmp(b, LLVMIntUGE, old, x, ""), zero,
                               LLVMBuildAdd(b, old, one, ""), "");
    case LLVMAtomicRMWBinOpUDecWrap: {
        LLVMValueRef wraps = LLVMBuildOr(b, LLVMBuildICmp(b, LLVMIntEQ, old, zero, ""),
                                         LLVMBuildICmp(b, LLVMIntUGT, old, x, ""), "");
        return LLVMBuildSelect(b, wraps, x, LLVMBuildSub(b, old, one, ""), "");
    }
    default:
        return x; /* exchange */
    }
}

/* The sum, the smaller or the larger of halves, or of pairs of them, as bits. */
static LLVMValueRef apply_halves(struct tl_emit *e, const struct atomic *a, LLVMValueRef old,
                                 LLVMValueRef x)
{
    struct tl_type single = {a->t.kind, 16, 1};
    struct tl_val r = tl_const(e, a->bits, 0);
    bool is_sum = a->op == LLVMAtomicRMWBinOpFAdd, is_wide = is_sum && a->t.kind == TL_T_FLOAT;
    for (uint32_t p = 0; p < a->t.packed; p++) {
        struct tl_val shift = tl_const(e, a->bits, 16 * p), in[2] = {{old, false}, {x, false}};
        for (int i = 0; i < 2; i++) {
            in[i] = tl_to_float(e, tl_cast_int(e, tl_op(e, LLVMLShr, in[i], shift), 16, false),
                                single);
            if (is_wide)
                in[i] = tl_extend(e, in[i], e->f32);
        }
        struct tl_val v = is_sum
                              ? tl_op(e, LLVMFAdd, in[0], in[1])
                              : tl_minmax(e, single, a->op == LLVMAtomicRMWBinOpUMin, in[0], in[1]);
        if (is_wide)
            v = tl_truncate(e, v, e->f16);
        v = tl_cast_int(e, tl_from_float(e, v, single), a->bits, false);
        r = tl_op(e, LLVMOr, r, tl_op(e, LLVMShl, v, shift));
    }
    return r.v;
}

/* Reads, computes, and writes if nobody else has; else again. */
static LLVMValueRef apply_halves_atomically(struct tl_emit *e, const struct atomic *a,
                                            LLVMValueRef p, LLVMValueRef x)
{
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b),
                      again = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "again");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "applied");
    LLVMAtomicOrdering order = LLVMAtomicOrderingSequentiallyConsistent;
    LLVMValueRef first = LLVMBuildLoad2(e->b, tl_int(e, a->bits), p, "");
    LLVMSetAlignment(first, a->bits / 8);
    LLVMBuildBr(e->b, again);
    LLVMPositionBuilderAtEnd(e->b, again);
    LLVMValueRef old = LLVMBuildPhi(e->b, tl_int(e, a->bits), "");
    LLVMValueRef pair = LLVMBuildAtomicCmpXchg(e->b, p, old, apply_halves(e, a, old, x), order,
                                               order, false);
    LLVMSetAlignment(pair, a->bits / 8);
    LLVMValueRef seen = LLVMBuildExtractValue(e->b, pair, 0, "");
    LLVMBuildCondBr(e->b, LLVMBuildExtractValue(e->b, pair, 1, ""), done, again);
    LLVMValueRef values[2] = {first, seen};
    LLVMBasicBlockRef from[2] = {before, again};
    LLVMAddIncoming(old, values, from, 2);
    LLVMPositionBuilderAtEnd(e->b, done);
    return seen;
}

/* One lane's atomic; gives the old value as bits. */
static LLVMValueRef operate(struct tl_emit *e, const struct atomic *a, bool is_shared,
                            LLVMValueRef p, LLVMValueRef x, LLVMValueRef y)
{
    LLVMTypeRef bits = tl_int(e, a->bits);
    unsigned align = a->bits / 8;
    if (is_shared) {
        LLVMValueRef old = LLVMBuildLoad2(e->b, a->is_cas ? bits : a->element, p, "");
        LLVMValueRef value = a->is_cas
                                 ? LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, old, x, ""),
                                                   y, old, "")
                             : a->is_half ? apply_halves(e, a, old, x)
                                          : apply(e, a, old, x);
        LLVMSetAlignment(old, align);
        LLVMSetAlignment(LLVMBuildStore(e->b, value, p), align);
        return LLVMBuildBitCast(e->b, old, bits, "");
    }
    /* nobody waits for one that returns nothing */
    tl_bus_reach(e, p, e->inst->inst.form->op == TL_OP_atom ? TL_DEV_ATOMIC : TL_DEV_WRITE);
    if (a->is_half)
        return apply_halves_atomically(e, a, p, x);
    /* a locked instruction in any case */
    LLVMAtomicOrdering order = LLVMAtomicOrderingSequentiallyConsistent;
    if (a->is_cas) {
        LLVMValueRef pair = LLVMBuildAtomicCmpXchg(e->b, p, x, y, order,
                                                   LLVMAtomicOrderingSequentiallyConsistent, false);
        LLVMSetAlignment(pair, align);
        return LLVMBuildExtractValue(e->b, pair, 0, "");
    }
    LLVMValueRef old = LLVMBuildAtomicRMW(e->b, a->op, p, x, order, false);
    LLVMSetAlignment(old, align);
    return LLVMBuildBitCast(e->b, old, bits, "");
}

/* 16 bytes are exchanged, or compared and exchanged, by processors that have an instruction for
 * it. */
static bool can_be_wide(const struct tl_emit *e, const struct atomic *a)
{
    return e->has_wide_cas && (a->is_cas || a->op == LLVMAtomicRMWBinOpXchg);
}

bool tl_atomic_at(struct tl_emit *e, bool is_shared, LLVMValueRef address, LLVMValueRef value)
{
    struct atomic a = {.t = tl_type_of(e->inst->inst.form, -1), .n = 1};
    if (a.t.bits == 0 || a.t.bits > 64 || !choose(e, &a) || a.is_cas ||
        a.op == LLVMAtomicRMWBinOpXchg)
        return false;
    bool is_float_op = a.is_float && !a.is_half;
    a.element = is_float_op ? (a.bits == 32 ? e->f32 : e->f64) : tl_int(e, a.bits);
    operate(e, &a, is_shared, LLVMBuildIntToPtr(e->b, address, e->ptr, ""),
            LLVMBuildBitCast(e->b, value, a.element, ""), NULL);
    return true;
}

/* Does it for one active lane after the other, at that lane's address `p` with its values `x` and
 * `y` (of a compare-and-swap).  `results` is where each element's old values are then, a vector in
 * memory, of atom only. */
static void operate_by_lane(struct tl_emit *e, struct atomic *a, struct tl_val p, struct tl_val *x,
                            struct tl_val y, LLVMValueRef *results)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    bool returns = f->op == TL_OP_atom, is_shared = tl_ptx_form_space(f) == TL_MOD_shared;
    LLVMTypeRef word = tl_int(e, a->bits);
    struct tl_spilled pointers = tl_spill(e, p), values[MAX_VECTOR], others = tl_spill(e, y);
    for (uint32_t k = 0; k < a->n; k++) {
        results[k] = a->bits > 64 ? tl_alloca(e, tl_vec(word), "old") : tl_scratch(e);
        values[k] = tl_spill(e, x[k]);
    }
    struct tl_lane_loop l;
    tl_lanes_begin(e, &l);
    LLVMValueRef at = tl_spilled_lane(e, &pointers, l.lane),
                 other = tl_spilled_lane(e, &others, l.lane);
    for (uint32_t k = 0; k < a->n; k++) {
        uint64_t bytes = (uint64_t)k * a->bits / 8;
        LLVMValueRef here = LLVMBuildAdd(e->b, at, LLVMConstInt(e->i64, bytes, false), "");
        LLVMValueRef value = LLVMBuildBitCast(e->b, tl_spilled_lane(e, &values[k], l.lane),
                                              a->is_cas ? word : a->element, "");
        LLVMValueRef old = operate(e, a, is_shared, LLVMBuildIntToPtr(e->b, here, e->ptr, ""),
                                   value, other);
        if (returns)
            LLVMBuildStore(e->b, old, LLVMBuildGEP2(e->b, word, results[k], &l.lane, 1, ""));
    }
    tl_lanes_end(e, &l);
}

/* atom and red: the lanes do it one after the other, because nothing is known about their
 * addresses. */
bool tl_emit_atomic(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    if (f->op != TL_OP_atom && f->op != TL_OP_red)
        return false;
    struct atomic a = {.t = tl_type_of(f, -1)};
    a.n = tl_has(e, TL_MOD_v8) ? 8 : tl_has(e, TL_MOD_v4) ? 4 : tl_has(e, TL_MOD_v2) ? 2 : 1;
    bool returns = f->op == TL_OP_atom, is_shared = tl_ptx_form_space(f) == TL_MOD_shared;
    uint32_t first = returns ? 1 : 0;
    if (a.t.bits == 0 || !choose(e, &a) || a.bits < 16 || (a.bits > 64 && !can_be_wide(e, &a)) ||
        e->inst->n_operands < first + 2 + a.is_cas || (a.n > 1 && (a.is_cas || !a.is_float)) ||
        tl_elements(tl_opd(e, first + 1)) != a.n ||
        (returns && tl_opd(e, 0)->kind != TL_OPD_SINK && tl_elements(tl_opd(e, 0)) != a.n)) {
        tl_emit_unsupported(e, "this atomic");
        return true;
    }
    bool is_float_op = a.is_float && a.op != LLVMAtomicRMWBinOpXchg && !a.is_half;
    a.element = is_float_op ? (a.bits == 32 ? e->f32 : e->f64) : tl_int(e, a.bits);
    LLVMTypeRef word = tl_int(e, a.bits);
    struct tl_address address = tl_address_of(e, tl_opd(e, first),
                                              is_shared ? TL_MOD_shared : TL_MOD_global);
    struct tl_val x[MAX_VECTOR], y = tl_const(e, a.bits, 0), p = address.pointer;
    for (uint32_t k = 0; k < a.n; k++) {
        struct tl_ptx_operand o = tl_element(tl_opd(e, first + 1), k);
        x[k] = tl_read(e, &o, a.bits);
    }
    if (a.is_cas)
        y = tl_read(e, tl_opd(e, first + 2), a.bits);
    if (e->rc != 0)
        return true;
    tl_check_alignment(e, &address, (uint64_t)a.n * a.bits / 8);
    if (address.lanes.is_known || p.is_vec)
        p = tl_lane_addresses(e, &address);
    if (returns && !is_shared && e->f->is_in_loop[e->inst_block]) {
        /* it may be waiting for another block or warp */
        LLVMValueRef args[2] = {e->f->frame, e->f->warp};
        tl_call_frame(e, offsetof(struct tl_dev_calls, yield), e->voidt, args, 2);
    }
    LLVMValueRef results[MAX_VECTOR];
    operate_by_lane(e, &a, p, x, y, results);
    for (uint32_t k = 0; k < a.n && returns && tl_opd(e, 0)->kind != TL_OPD_SINK; k++) {
        LLVMValueRef all = LLVMBuildLoad2(e->b, tl_vec(word), results[k], "");
        LLVMSetAlignment(all, a.bits / 8);
        struct tl_ptx_operand o = tl_element(tl_opd(e, 0), k);
        tl_write(e, &o, (struct tl_val){all, true}, a.t.kind == TL_T_SIGNED);
    }
    return true;
}

/* Barrier objects in shared memory.
 *
 * A block runs on one thread, so the object is plain memory, changed lane after lane.  What it
 * holds is nobody's business but ours:
 *
 *     bits 0-19 arrivals expected per phase | 20-39 arrivals pending | 40-60 bytes to come | 61-63 phase
 *
 * A phase ends when nothing is pending and nothing to come.  The state that an arrival gives is the
 * object as it was before; who waits compares phases.  A wait that is not over lets other warps
 * run, and then looks once more: the loop around it is the program's. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

enum { PENDING_AT = 20, BYTES_AT = 40, PHASE_AT = 61 };
static const uint64_t count_mask = 0xfffff, bytes_mask = 0x1fffff;

static LLVMValueRef u64(struct tl_emit *e, uint64_t value)
{
    return LLVMConstInt(e->i64, value, false);
}

static LLVMValueRef field(struct tl_emit *e, LLVMValueRef object, uint32_t at, uint64_t mask)
{
    return LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, object, u64(e, at), ""), u64(e, mask), "");
}

/* The object after a change: the next phase if this one is over. */
static LLVMValueRef settled(struct tl_emit *e, LLVMValueRef object)
{
    LLVMValueRef open = field(e, object, PENDING_AT,
                              count_mask | bytes_mask << (BYTES_AT - PENDING_AT));
    LLVMValueRef expected = field(e, object, 0, count_mask);
    LLVMValueRef phase = LLVMBuildAdd(e->b, LLVMBuildLShr(e->b, object, u64(e, PHASE_AT), ""),
                                      u64(e, 1), "");
    LLVMValueRef next = LLVMBuildOr(e->b, expected,
                                    LLVMBuildShl(e->b, expected, u64(e, PENDING_AT), ""), "");
    next = LLVMBuildOr(e->b, next, LLVMBuildShl(e->b, phase, u64(e, PHASE_AT), ""), "");
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, open, u64(e, 0), ""), next, object,
                           "");
}

/* With so many bytes more to come, or with a negative number, fewer. */
static LLVMValueRef with_bytes(struct tl_emit *e, LLVMValueRef object, LLVMValueRef more)
{
    LLVMValueRef bytes = LLVMBuildAdd(e->b, LLVMBuildLShr(e->b, object, u64(e, BYTES_AT), ""), more,
                                      "");
    bytes = LLVMBuildShl(e->b, LLVMBuildAnd(e->b, bytes, u64(e, bytes_mask), ""), u64(e, BYTES_AT),
                         "");
    return LLVMBuildOr(e->b, LLVMBuildAnd(e->b, object, u64(e, ~(bytes_mask << BYTES_AT)), ""),
                       bytes, "");
}

static LLVMValueRef load(struct tl_emit *e, LLVMValueRef address)
{
    LLVMValueRef v = LLVMBuildLoad2(e->b, e->i64, LLVMBuildIntToPtr(e->b, address, e->ptr, ""), "");
    LLVMSetAlignment(v, 8);
    return v;
}

static void store(struct tl_emit *e, LLVMValueRef address, LLVMValueRef object)
{
    LLVMSetAlignment(LLVMBuildStore(e->b, object, LLVMBuildIntToPtr(e->b, address, e->ptr, "")), 8);
}

void tl_mbarrier_complete(struct tl_emit *e, LLVMValueRef address, LLVMValueRef bytes)
{
    store(e, address, settled(e, with_bytes(e, load(e, address), LLVMBuildNeg(e->b, bytes, ""))));
}

/* Lane after lane; `address` is operand number `n`, what follows it the count or the bytes. */
static void emit_change(struct tl_emit *e, uint32_t n, enum tl_ptx_mod space)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    bool is_init = tl_ptx_form_has_text(f, "init"), is_inval = tl_ptx_form_has_text(f, "inval");
    bool is_drop = tl_ptx_form_has_text(f, "arrive_drop"),
         is_arrival = is_drop || tl_has(e, TL_MOD_arrive);
    bool expects = tl_ptx_form_has_text(f, "expect_tx"),
         completes = tl_ptx_form_has_text(f, "complete_tx");
    bool has_count = e->inst->n_operands > n + 1;
    if (!is_init && !is_inval && !is_arrival && !expects && !completes) {
        tl_emit_unsupported(e, "this operation on a barrier object");
        return;
    }
    struct tl_spilled addresses = tl_spilled_addresses(e, tl_opd(e, n), space);
    struct tl_val count = has_count ? tl_cast_int(e, tl_read(e, tl_opd(e, n + 1), 32), 64, false)
                                    : tl_const(e, 64, 1);
    struct tl_spilled counts = tl_spill(e, count);
    LLVMValueRef states = tl_alloca(e, tl_vec(e->i64), "states");
    struct tl_lane_loop l;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &l);
    LLVMValueRef address = tl_spilled_lane(e, &addresses, l.lane),
                 by = tl_spilled_lane(e, &counts, l.lane);
    tl_fault_if(
        e,
        LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildAnd(e->b, address, u64(e, 7), ""), u64(e, 0), ""),
        TL_DEV_FAULT_MISALIGNED);
    LLVMValueRef old = is_init || is_inval ? u64(e, 0) : load(e, address), now = old;
    if (is_init)
        now = LLVMBuildOr(e->b, by, LLVMBuildShl(e->b, by, u64(e, PENDING_AT), ""), "");
    if (is_init || (is_arrival && !expects)) /* a count that cannot be */
        tl_fault_if(e,
                    LLVMBuildICmp(e->b, LLVMIntUGT, LLVMBuildSub(e->b, by, u64(e, 1), ""),
                                  u64(e, count_mask - 1), ""),
                    TL_DEV_FAULT_BARRIER);
    if (expects || completes)
        now = with_bytes(e, now, completes ? LLVMBuildNeg(e->b, by, "") : by);
    if (is_arrival) {
        LLVMValueRef arrivals = expects ? u64(e, 1) : by;
        tl_fault_if(
            e, LLVMBuildICmp(e->b, LLVMIntULT, field(e, now, PENDING_AT, count_mask), arrivals, ""),
            TL_DEV_FAULT_BARRIER);
        now = LLVMBuildSub(e->b, now, LLVMBuildShl(e->b, arrivals, u64(e, PENDING_AT), ""), "");
        if (is_drop)
            now = LLVMBuildSub(e->b, now, arrivals, "");
    }
    if (is_arrival || completes)
        now = settled(e, now);
    store(e, address, now);
    LLVMBuildStore(e->b, old, LLVMBuildGEP2(e->b, e->i64, states, &l.lane, 1, ""));
    tl_lanes_end(e, &l);
    if (is_arrival && n > 0)
        tl_write(e, tl_opd(e, 0),
                 (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(e->i64), states, ""), true}, false);
}

/* Lanes whose phase is over. */
static struct tl_val is_over(struct tl_emit *e, struct tl_val addresses, struct tl_val given)
{
    bool by_parity = tl_ptx_form_has_text(e->inst->inst.form, "parity");
    struct tl_val phase = tl_op(e, LLVMLShr, tl_gather(e, addresses, 64),
                                tl_const(e, 64, PHASE_AT));
    struct tl_val wanted = by_parity ? given : tl_op(e, LLVMLShr, given, tl_const(e, 64, PHASE_AT));
    if (by_parity) {
        phase = tl_op(e, LLVMAnd, phase, tl_const(e, 64, 1));
        wanted = tl_op(e, LLVMAnd, wanted, tl_const(e, 64, 1));
    }
    return tl_widen(e, tl_icmp(e, LLVMIntNE, phase, wanted));
}

static void emit_wait(struct tl_emit *e, enum tl_ptx_mod space)
{
    bool by_parity = tl_ptx_form_has_text(e->inst->inst.form, "parity");
    if (e->inst->n_operands < 3) {
        tl_emit_unsupported(e, "this wait");
        return;
    }
    struct tl_address a = tl_address_of(e, tl_opd(e, 1), space);
    struct tl_val given = tl_cast_int(e, tl_read(e, tl_opd(e, 2), by_parity ? 32 : 64), 64, false);
    LLVMValueRef slot = tl_alloca(e, tl_vec(e->i1), "over");
    if (e->rc != 0)
        return;
    tl_check_alignment(e, &a, 8);
    struct tl_val addresses = tl_lane_addresses(e, &a), over = is_over(e, addresses, given);
    LLVMBuildStore(e->b, over.v, slot);
    LLVMValueRef open = LLVMBuildAnd(e->b, LLVMBuildNot(e->b, tl_mask_bits(e, over.v), ""),
                                     tl_active_bits(e), "");
    struct tl_if i;
    tl_if_begin(e, &i, LLVMBuildICmp(e->b, LLVMIntNE, open, LLVMConstInt(e->i32, 0, false), ""));
    LLVMValueRef args[2] = {e->f->frame, e->f->warp};
    tl_call_frame(e, offsetof(struct tl_dev_calls, yield), e->voidt, args, 2);
    LLVMBuildStore(e->b, is_over(e, addresses, given).v, slot);
    tl_if_end(e, &i);
    e->n_barriers++; /* other warps must be able to run meanwhile: warps need stacks of their own */
    tl_write(e, tl_opd(e, 0), (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(e->i1), slot, ""), true},
             false);
}

bool tl_emit_mbarrier(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    enum tl_ptx_mod space = tl_ptx_form_space(f) == TL_MOD_shared ? TL_MOD_shared : TL_MOD_other;
    if (f->op != TL_OP_mbarrier)
        return false;
    if (tl_ptx_form_has_text(f, "pending_count")) {
        struct tl_val state = tl_op(e, LLVMLShr, tl_read(e, tl_opd(e, 1), 64),
                                    tl_const(e, 64, PENDING_AT));
        tl_write(e, tl_opd(e, 0), tl_op(e, LLVMAnd, state, tl_const(e, 64, count_mask)), false);
        return true;
    }
    if (tl_has(e, TL_MOD_test_wait) || tl_has(e, TL_MOD_try_wait)) {
        emit_wait(e, space);
        return true;
    }
    uint32_t n = e->inst->n_operands > 0 && tl_opd(e, 0)->kind == TL_OPD_ADDR ? 0 : 1;
    if (e->inst->n_operands <= n || tl_opd(e, n)->kind != TL_OPD_ADDR)
        tl_emit_unsupported(e, "this operation on a barrier object");
    else
        emit_change(e, n, space);
    return true;
}

/* What hardware does on the side, done at once: cp.async.bulk, cp.reduce.async.bulk, st.async,
 * red.async, st.bulk.
 *
 * Who waits for them waits for a barrier object, which is told how many bytes have come, or for a
 * group of copies, which is always complete.  A cluster is one block, so all shared memory is the
 * block's own.  Copies that a tensor map describes are in tensor.c. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

static LLVMValueRef u64(struct tl_emit *e, uint64_t value)
{
    return LLVMConstInt(e->i64, value, false);
}

/* The n-th space that the form names: the destination's first, then the source's. */
static enum tl_ptx_mod space_at(const struct tl_ptx_form *f, uint32_t n)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        enum tl_ptx_mod m = f->mods[i].id;
        if ((m == TL_MOD_shared || m == TL_MOD_global) && n-- == 0)
            return m;
    }
    return TL_MOD_other;
}

static bool signals_object(const struct tl_ptx_form *f)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        if (tl_str_starts(f->mods[i].text, "mbarrier::complete_tx"))
            return true;
    }
    return false;
}

/* for (offset = 0; offset < bytes; offset += step): the builder stands inside. */
struct byte_loop {
    LLVMBasicBlockRef before, body, done;
    LLVMValueRef offset, bytes;
    uint64_t step;
};

static void bytes_begin(struct tl_emit *e, struct byte_loop *l, LLVMValueRef bytes, uint64_t step)
{
    *l = (struct byte_loop){.before = LLVMGetInsertBlock(e->b), .bytes = bytes, .step = step};
    l->body = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "bytes");
    l->done = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "bytes_done");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, bytes, u64(e, 0), ""), l->done, l->body);
    LLVMPositionBuilderAtEnd(e->b, l->body);
    l->offset = LLVMBuildPhi(e->b, e->i64, "");
}

static void bytes_end(struct tl_emit *e, struct byte_loop *l)
{
    LLVMValueRef next = LLVMBuildAdd(e->b, l->offset, u64(e, l->step), ""),
                 values[2] = {u64(e, 0), next};
    LLVMBasicBlockRef from[2] = {l->before, LLVMGetInsertBlock(e->b)};
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntULT, next, l->bytes, ""), l->body, l->done);
    LLVMAddIncoming(l->offset, values, from, 2);
    LLVMPositionBuilderAtEnd(e->b, l->done);
}

static LLVMValueRef pointer(struct tl_emit *e, LLVMValueRef address)
{
    return LLVMBuildIntToPtr(e->b, address, e->ptr, "");
}

/* [to], [from], bytes [, [object]]: each active lane its own copy; addresses and size are multiples
 * of 16. */
static void emit_bulk_copy(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    bool is_reduction = tl_ptx_form_has_text(f, "reduce"), signals = signals_object(f);
    bool has_mask = tl_ptx_form_has_text(f, "cp_mask") || tl_ptx_form_has_text(f, "ignore_oob");
    struct tl_type t = tl_type_of(f, -1);
    uint32_t element = is_reduction ? t.bits * t.packed : 0;
    enum tl_ptx_mod to_space = space_at(f, 0), from_space = space_at(f, 1);
    if (e->inst->n_operands < (signals ? 4u : 3u) || to_space == TL_MOD_other ||
        from_space == TL_MOD_other || has_mask || (is_reduction && element == 0) ||
        tl_ptx_form_has_text(f, "multicast::cluster")) {
        tl_emit_unsupported(e, "this copy");
        return;
    }
    struct tl_spilled to = tl_spilled_addresses(e, tl_opd(e, 0), to_space),
                      from = tl_spilled_addresses(e, tl_opd(e, 1), from_space),
                      size = tl_spill(e, tl_cast_int(e, tl_read(e, tl_opd(e, 2), 32), 64, false)),
                      object = {0};
    if (signals)
        object = tl_spilled_addresses(e, tl_opd(e, 3), TL_MOD_shared);
    struct tl_lane_loop lanes;
    struct byte_loop l;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &lanes);
    LLVMValueRef dst = tl_spilled_lane(e, &to, lanes.lane),
                 src = tl_spilled_lane(e, &from, lanes.lane),
                 bytes = tl_spilled_lane(e, &size, lanes.lane);
    LLVMValueRef low = LLVMBuildAnd(
        e->b, LLVMBuildOr(e->b, LLVMBuildOr(e->b, dst, src, ""), bytes, ""), u64(e, 15), "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, low, u64(e, 0), ""), TL_DEV_FAULT_MISALIGNED);
    bytes_begin(e, &l, bytes, is_reduction ? element / 8 : 16);
    LLVMTypeRef type = is_reduction ? tl_int(e, element) : LLVMVectorType(e->i64, 2);
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, pointer(e, LLVMBuildAdd(e->b, src, l.offset, "")),
                                    "");
    LLVMSetAlignment(v, is_reduction ? element / 8 : 16);
    dst = LLVMBuildAdd(e->b, dst, l.offset, "");
    if (!is_reduction)
        LLVMSetAlignment(LLVMBuildStore(e->b, v, pointer(e, dst)), 16);
    else if (!tl_atomic_at(e, to_space == TL_MOD_shared, dst, v))
        tl_emit_unsupported(e, "this reduction");
    bytes_end(e, &l);
    if (signals)
        tl_mbarrier_complete(e, tl_spilled_lane(e, &object, lanes.lane), bytes);
    tl_lanes_end(e, &lanes);
}

/* st.async and red.async: [to], value(s), [object]. */
static void emit_signalled(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type t = tl_type_of(f, -1);
    uint32_t v = tl_has(e, TL_MOD_v4) ? 4 : tl_has(e, TL_MOD_v2) ? 2 : 1, bits = t.bits * t.packed;
    if (e->inst->n_operands < 3 || bits == 0 || bits > 64 || tl_elements(tl_opd(e, 1)) != v ||
        !signals_object(f)) {
        tl_emit_unsupported(e, "this asynchronous store");
        return;
    }
    struct tl_spilled to = tl_spilled_addresses(e, tl_opd(e, 0), TL_MOD_shared),
                      object = tl_spilled_addresses(e, tl_opd(e, 2), TL_MOD_shared), values[4];
    for (uint32_t k = 0; k < v; k++) {
        struct tl_ptx_operand o = tl_element(tl_opd(e, 1), k);
        values[k] = tl_spill(e, tl_read(e, &o, bits));
    }
    struct tl_lane_loop lanes;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &lanes);
    LLVMValueRef dst = tl_spilled_lane(e, &to, lanes.lane);
    LLVMValueRef low = LLVMBuildAnd(e->b, dst, u64(e, (uint64_t)v * bits / 8 - 1), "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, low, u64(e, 0), ""), TL_DEV_FAULT_MISALIGNED);
    for (uint32_t k = 0; k < v; k++) {
        LLVMValueRef at = LLVMBuildAdd(e->b, dst, u64(e, (uint64_t)k * bits / 8), ""),
                     x = tl_spilled_lane(e, &values[k], lanes.lane);
        if (f->op == TL_OP_st)
            LLVMSetAlignment(LLVMBuildStore(e->b, x, pointer(e, at)), bits / 8);
        else if (!tl_atomic_at(e, true, at, x))
            tl_emit_unsupported(e, "this reduction");
    }
    tl_mbarrier_complete(e, tl_spilled_lane(e, &object, lanes.lane),
                         u64(e, (uint64_t)v * bits / 8));
    tl_lanes_end(e, &lanes);
}

/* st.bulk: [to], bytes, 0.  Zeroes, in words of 8 bytes. */
static void emit_zeroes(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    enum tl_ptx_mod space = tl_ptx_form_space(f) == TL_MOD_shared ? TL_MOD_shared : TL_MOD_other;
    if (e->inst->n_operands < 3 || tl_opd(e, 2)->kind != TL_OPD_INT || tl_opd(e, 2)->bits != 0) {
        tl_emit_unsupported(e, "this store");
        return;
    }
    struct tl_spilled to = tl_spilled_addresses(e, tl_opd(e, 0), space),
                      size = tl_spill(e, tl_read(e, tl_opd(e, 1), 64));
    struct tl_lane_loop lanes;
    struct byte_loop l;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &lanes);
    LLVMValueRef dst = tl_spilled_lane(e, &to, lanes.lane),
                 bytes = tl_spilled_lane(e, &size, lanes.lane);
    LLVMValueRef low = LLVMBuildAnd(e->b, LLVMBuildOr(e->b, dst, bytes, ""), u64(e, 7), "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, low, u64(e, 0), ""), TL_DEV_FAULT_MISALIGNED);
    bytes_begin(e, &l, bytes, 8);
    LLVMSetAlignment(
        LLVMBuildStore(e->b, u64(e, 0), pointer(e, LLVMBuildAdd(e->b, dst, l.offset, ""))), 8);
    bytes_end(e, &l);
    tl_lanes_end(e, &lanes);
}

/* The copies before it are complete, so the arrival that they would cause happens now.  Without
 * .noinc one more arrival was expected first: together that is nothing. */
static void emit_arrival(struct tl_emit *e)
{
    struct tl_ptx_form arrive = *e->inst->inst.form;
    struct tl_ptx_stmt stmt = *e->inst;
    const struct tl_ptx_stmt *here = e->inst;
    struct tl_ptx_operand operands[2] = {{.kind = TL_OPD_SINK}, *tl_opd(e, 0)};
    if (!tl_ptx_form_has_text(&arrive, "noinc"))
        return;
    arrive.op = TL_OP_mbarrier;
    stmt.inst.form = &arrive;
    stmt.inst.operands = operands;
    stmt.n_operands = 2;
    e->inst = &stmt;
    tl_emit_mbarrier(e);
    e->inst = here;
    e->f->scratch_inst = NULL; /* the statement made up here is gone */
}

bool tl_emit_bulk(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    if (f->op == TL_OP_cp && tl_ptx_form_has_text(f, "mbarrier") && tl_has(e, TL_MOD_arrive)) {
        emit_arrival(e);
        return true;
    }
    if (f->op == TL_OP_cp && tl_ptx_form_has_text(f, "bulk")) {
        bool is_group = tl_ptx_form_has_text(f, "commit_group") ||
                        tl_ptx_form_has_text(f, "wait_group");
        if (!is_group && !tl_ptx_form_has_text(f, "prefetch"))
            emit_bulk_copy(e);
        return true;
    }
    if (f->op == TL_OP_st && tl_ptx_form_has_text(f, "bulk")) {
        emit_zeroes(e);
        return true;
    }
    if ((f->op == TL_OP_st || f->op == TL_OP_red) && tl_has(e, TL_MOD_async)) {
        emit_signalled(e);
        return true;
    }
    return false;
}

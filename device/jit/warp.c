/* What a warp does together: shuffles, votes, matches, reductions. */
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/matrix.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

static LLVMValueRef u32(struct tl_emit *e, uint32_t value)
{
    return LLVMConstInt(e->i32, value, false);
}

/* The lanes a .sync operation names, as i32.  Where lanes have parted, all of them must be here or
 * have returned: lanes that are elsewhere would be waited for, which lock-step code cannot do. */
static LLVMValueRef members(struct tl_emit *e, const struct tl_ptx_operand *mask)
{
    struct tl_val m = tl_read(e, mask, 32);
    LLVMValueRef active = tl_active_bits(e);
    if (e->uses_lanes)
        tl_emit_unsupported(
            e, "a warp-wide operation in a kernel whose lanes wait at different barriers");
    if (m.is_vec) /* each lane must give the same mask: take the first one's */
        m = tl_lane_value(e, m,
                          tl_intrinsic(e, "llvm.cttz",
                                       (struct tl_val[2]){{active, false},
                                                          {LLVMConstInt(e->i1, 1, false), false}},
                                       2)
                              .v);
    if (e->mask != NULL && e->mask != e->f->entry_mask) {
        LLVMValueRef exited = LLVMBuildLoad2(e->b, e->i32, e->f->exited_slot, "");
        LLVMValueRef elsewhere = LLVMBuildAnd(
            e->b, m.v, LLVMBuildNot(e->b, LLVMBuildOr(e->b, active, exited, ""), ""), "");
        tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, elsewhere, u32(e, 0), ""),
                    TL_DEV_FAULT_DIVERGED_SYNC);
    }
    return LLVMBuildAnd(e->b, m.v, active, "");
}

/* Whether lanes wait for each other at an instruction, or may do so in a function that it calls. */
static bool is_meeting(const struct tl_ptx_stmt *s)
{
    switch (s->inst.form->op) {
    case TL_OP_bar:
    case TL_OP_barrier:
    case TL_OP_call:
    case TL_OP_mma:
    case TL_OP_wmma:
        return true;
    default:
        return tl_ptx_form_has(s->inst.form, TL_MOD_sync) ||
               tl_ptx_form_has(s->inst.form, TL_MOD_aligned);
    }
}

/* Whether lanes that are not at this barrier can only return: wherever a branch that decides about
 * this block may have led them, no other meeting follows.  A GPU does not wait for lanes that have
 * returned (Numba's reductions rely on it). */
static bool others_only_return(struct tl_emit *e)
{
    const struct tl_ptx_cfg *cfg = &e->f->cfg;
    struct tl_ptx_set decided, ahead;
    uint32_t *stack = tl_arena_alloc(e->arena, ((size_t)cfg->n_blocks + 2) * sizeof *stack);
    if (stack == NULL || tl_ptx_set_init(&decided, e->arena, cfg) < 0 ||
        tl_ptx_set_init(&ahead, e->arena, cfg) < 0 || e->f->pf != e->p->entry)
        return false;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (cfg->blocks[b].order == TL_CFG_NONE || e->f->d.branch[b] != TL_LEVEL_LANE)
            continue;
        tl_ptx_set_clear(&decided);
        tl_ptx_cfg_region(cfg, b, cfg->blocks[b].ipdom, &decided, stack);
        if (tl_ptx_set_has(&decided, e->inst_block))
            tl_ptx_cfg_region(cfg, b, TL_CFG_NONE, &ahead, stack);
    }
    for (uint32_t b = 0; b < cfg->n_blocks; b++)
        for (uint32_t i = cfg->blocks[b].first; tl_ptx_set_has(&ahead, b) && i < cfg->blocks[b].end;
             i++)
            if (cfg->insts[i] != e->inst && is_meeting(cfg->insts[i]))
                return false;
    return !e->f->is_in_loop[e->inst_block];
}

void tl_emit_warp_barrier(struct tl_emit *e)
{
    if (e->mask == NULL || e->mask == e->f->entry_mask || !others_only_return(e))
        members(e, tl_opd(e, 0));
}

static LLVMValueRef vote_bits(struct tl_emit *e, struct tl_val p, LLVMValueRef m)
{
    if (p.is_vec)
        return LLVMBuildAnd(e->b, tl_mask_bits(e, p.v), m, "");
    return LLVMBuildSelect(e->b, p.v, m, u32(e, 0), "");
}

static void emit_vote(struct tl_emit *e)
{
    bool is_sync = tl_has(e, TL_MOD_sync);
    LLVMValueRef m = is_sync ? members(e, tl_opd(e, 2)) : tl_active_bits(e);
    LLVMValueRef bits = vote_bits(e, tl_read(e, tl_opd(e, 1), 1), m), r;
    if (tl_has(e, TL_MOD_ballot)) {
        tl_write(e, tl_opd(e, 0), (struct tl_val){bits, false}, false);
        return;
    }
    LLVMValueRef none = LLVMBuildICmp(e->b, LLVMIntEQ, bits, u32(e, 0), ""),
                 all = LLVMBuildICmp(e->b, LLVMIntEQ, bits, m, "");
    if (tl_has(e, TL_MOD_any))
        r = LLVMBuildNot(e->b, none, "");
    else if (tl_has(e, TL_MOD_all))
        r = all;
    else
        r = LLVMBuildOr(e->b, all, none, "");
    tl_write(e, tl_opd(e, 0), (struct tl_val){r, false}, false);
}

/* --- shuffles --------------------------------------------------------------------------------- */

enum shuffle { UP, DOWN, BFLY, IDX };

static uint32_t source_lane(enum shuffle mode, uint32_t lane, uint32_t b, uint32_t c, bool *valid)
{
    uint32_t seg = c >> 8 & 31, clamp = c & 31, most = (lane & seg) | (clamp & ~seg & 31),
             least = lane & seg;
    int32_t j;
    b &= 31;
    switch (mode) {
    case UP:
        j = (int32_t)lane - (int32_t)b;
        *valid = j >= (int32_t)most;
        break;
    case DOWN:
        j = (int32_t)(lane + b);
        *valid = j <= (int32_t)most;
        break;
    case BFLY:
        j = (int32_t)(lane ^ b);
        *valid = j <= (int32_t)most;
        break;
    default:
        j = (int32_t)(least | (b & ~seg & 31));
        *valid = j <= (int32_t)most;
        break;
    }
    return *valid ? (uint32_t)j : lane;
}

/* The same with values known only when running. */
static void source_lanes(struct tl_emit *e, enum shuffle mode, struct tl_val b, struct tl_val c,
                         struct tl_val *from, struct tl_val *valid)
{
    int64_t iota[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        iota[i] = i;
    struct tl_val lane = {tl_const_lanes(e, 32, iota), true}, k31 = tl_const(e, 32, 31);
    struct tl_val seg = tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, c, tl_const(e, 32, 8)), k31);
    struct tl_val not_seg = tl_op(e, LLVMXor, seg, k31);
    struct tl_val most = tl_op(e, LLVMOr, tl_op(e, LLVMAnd, lane, seg),
                               tl_op(e, LLVMAnd, tl_op(e, LLVMAnd, c, k31), not_seg));
    struct tl_val least = tl_op(e, LLVMAnd, lane, seg), j;
    b = tl_op(e, LLVMAnd, b, k31);
    switch (mode) {
    case UP:
        j = tl_op(e, LLVMSub, lane, b);
        break;
    case DOWN:
        j = tl_op(e, LLVMAdd, lane, b);
        break;
    case BFLY:
        j = tl_op(e, LLVMXor, lane, b);
        break;
    default:
        j = tl_op(e, LLVMOr, least, tl_op(e, LLVMAnd, b, not_seg));
        break;
    }
    *valid = tl_icmp(e, mode == UP ? LLVMIntSGE : LLVMIntSLE, j, most);
    *from = tl_select(e, *valid, j, lane);
}

static struct tl_val permute(struct tl_emit *e, struct tl_val v, struct tl_val from)
{
    LLVMValueRef slot = tl_scratch(e);
    LLVMSetAlignment(slot, 64);
    LLVMBuildStore(e->b, tl_widen(e, v).v, slot);
    struct tl_val index = tl_cast_int(e, tl_op(e, LLVMAnd, from, tl_const(e, 32, 31)), 64, false);
    LLVMValueRef pointers = LLVMBuildGEP2(e->b, e->i32, slot, &index.v, 1, "");
    LLVMTypeRef over[2] = {tl_vec(e->i32), tl_vec(e->ptr)};
    unsigned id = LLVMLookupIntrinsicID("llvm.masked.gather", 18);
    LLVMValueRef args[4] = {pointers, u32(e, 4), LLVMConstAllOnes(tl_vec(e->i1)),
                            LLVMConstNull(tl_vec(e->i32))};
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, over, 2);
    return (struct tl_val){
        LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, over, 2), fn, args, 4, ""), true};
}

/* shfl: lanes are picked when compiling if the operands are constants, else by a permutation at
 * run time. */
static void emit_shuffle(struct tl_emit *e)
{
    const struct tl_ptx_operand *to = tl_opd(e, 0), *b = tl_opd(e, 2), *c = tl_opd(e, 3);
    const struct tl_ptx_operand *d = to->kind == TL_OPD_PAIR ? &to->elems[0] : to,
                                *p = to->kind == TL_OPD_PAIR ? &to->elems[1] : NULL;
    enum shuffle mode = tl_has(e, TL_MOD_up)     ? UP
                        : tl_has(e, TL_MOD_down) ? DOWN
                        : tl_has(e, TL_MOD_bfly) ? BFLY
                                                 : IDX;
    struct tl_val v = tl_read(e, tl_opd(e, 1), 32), r, valid;
    if (tl_has(e, TL_MOD_sync))
        members(e, tl_opd(e, 4));
    if (b->kind == TL_OPD_INT && c->kind == TL_OPD_INT) {
        LLVMValueRef index[TL_LANES], ok[TL_LANES];
        for (uint32_t i = 0; i < TL_LANES; i++) {
            bool is_valid;
            index[i] = u32(e,
                           source_lane(mode, i, (uint32_t)b->bits, (uint32_t)c->bits, &is_valid));
            ok[i] = LLVMConstInt(e->i1, is_valid, false);
        }
        v = tl_widen(e, v);
        r = (struct tl_val){LLVMBuildShuffleVector(e->b, v.v, LLVMGetPoison(LLVMTypeOf(v.v)),
                                                   LLVMConstVector(index, TL_LANES), ""),
                            true};
        valid = (struct tl_val){LLVMConstVector(ok, TL_LANES), true};
    } else {
        struct tl_val from;
        source_lanes(e, mode, tl_read(e, b, 32), tl_read(e, c, 32), &from, &valid);
        r = permute(e, v, from);
    }
    tl_write(e, d, r, false);
    if (p != NULL)
        tl_write(e, p, valid, false);
}

/* --- match, redux, elect ---------------------------------------------------------------------- */

static void emit_match(struct tl_emit *e)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    LLVMValueRef m = members(e, tl_opd(e, 2));
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), t.bits));
    if (tl_has(e, TL_MOD_all)) {
        struct tl_val args[2] = {{m, false}, {LLVMConstInt(e->i1, 0, false), false}};
        LLVMValueRef first = LLVMBuildAnd(e->b, tl_intrinsic(e, "llvm.cttz", args, 2).v, u32(e, 31),
                                          "");
        struct tl_val same = tl_icmp(e, LLVMIntEQ, v, tl_lane_value(e, v, first));
        LLVMValueRef bits = LLVMBuildAnd(e->b, tl_mask_bits(e, same.v), m, "");
        LLVMValueRef all = LLVMBuildICmp(e->b, LLVMIntEQ, bits, m, "");
        tl_write(e, to->kind == TL_OPD_PAIR ? &to->elems[0] : to,
                 (struct tl_val){LLVMBuildSelect(e->b, all, m, u32(e, 0), ""), false}, false);
        if (to->kind == TL_OPD_PAIR)
            tl_write(e, &to->elems[1], (struct tl_val){all, false}, false);
        return;
    }
    LLVMValueRef r = LLVMGetPoison(tl_vec(e->i32));
    for (uint32_t i = 0; i < TL_LANES; i++) {
        struct tl_val same = tl_icmp(e, LLVMIntEQ, v, tl_lane_value(e, v, u32(e, i)));
        r = LLVMBuildInsertElement(e->b, r, LLVMBuildAnd(e->b, tl_mask_bits(e, same.v), m, ""),
                                   u32(e, i), "");
    }
    tl_write(e, to, (struct tl_val){r, true}, false);
}

static struct tl_val pick_other(struct tl_emit *e, struct tl_val v, uint32_t distance)
{
    uint32_t from[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        from[i] = i ^ distance;
    return tl_pick_lanes(e, v, from);
}

/* The smallest or largest of floats.  Lanes that do not take part have what never wins: NaN, or
 * where NaN does, infinity. */
static void emit_redux_float(struct tl_emit *e, struct tl_type t)
{
    bool is_min = tl_has(e, TL_MOD_min);
    uint32_t never = tl_has(e, TL_MOD_NaN) ? (is_min ? 0x7f800000 : 0xff800000) : 0x7fffffff;
    LLVMValueRef m = members(e, tl_opd(e, 2));
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), 32)),
                  active = {tl_mask_of_bits(e, m), true};
    if (tl_ptx_form_has_text(e->inst->inst.form, "abs"))
        v = tl_op(e, LLVMAnd, v, tl_const(e, 32, 0x7fffffff));
    v = tl_bitcast(e, tl_select(e, active, v, tl_const(e, 32, never)), e->f32);
    for (uint32_t distance = TL_LANES / 2; distance > 0; distance /= 2)
        v = tl_minmax(e, t, is_min, v, pick_other(e, v, distance));
    tl_write(e, tl_opd(e, 0), tl_lane_value(e, tl_bitcast(e, v, e->i32), u32(e, 0)), false);
}

/* Row and column of an 8 x 8 matrix of halves change places: lane i has two of row i / 4. */
static void emit_movmatrix(struct tl_emit *e)
{
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), 32)), part[2];
    int64_t shift[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        shift[i] = i / 4 % 2 * 16;
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t from[TL_LANES];
        for (uint32_t i = 0; i < TL_LANES; i++)
            from[i] = (2 * (i % 4) + p) * 4 + i / 8;
        part[p] = tl_op(e, LLVMLShr, tl_pick_lanes(e, v, from),
                        (struct tl_val){tl_const_lanes(e, 32, shift), true});
        part[p] = tl_op(e, LLVMAnd, part[p], tl_const(e, 32, 0xffff));
    }
    tl_write(e, tl_opd(e, 0),
             tl_op(e, LLVMOr, part[0], tl_op(e, LLVMShl, part[1], tl_const(e, 32, 16))), false);
}

/* redux.sync over the active lanes; lanes that do not take part count as what changes nothing. */
static void emit_redux(struct tl_emit *e)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    if (t.kind == TL_T_FLOAT && t.bits == 32 && (tl_has(e, TL_MOD_min) || tl_has(e, TL_MOD_max))) {
        emit_redux_float(e, t);
        return;
    }
    bool is_signed = t.kind == TL_T_SIGNED;
    const char *name = NULL;
    uint64_t identity = 0;
    if (tl_has(e, TL_MOD_add)) {
        name = "llvm.vector.reduce.add";
    } else if (tl_has(e, TL_MOD_and)) {
        name = "llvm.vector.reduce.and";
        identity = UINT32_MAX;
    } else if (tl_has(e, TL_MOD_or)) {
        name = "llvm.vector.reduce.or";
    } else if (tl_has(e, TL_MOD_xor)) {
        name = "llvm.vector.reduce.xor";
    } else if (tl_has(e, TL_MOD_min)) {
        name = is_signed ? "llvm.vector.reduce.smin" : "llvm.vector.reduce.umin";
        identity = is_signed ? INT32_MAX : UINT32_MAX;
    } else if (tl_has(e, TL_MOD_max)) {
        name = is_signed ? "llvm.vector.reduce.smax" : "llvm.vector.reduce.umax";
        identity = is_signed ? 0x80000000u : 0;
    }
    if (name == NULL || t.kind == TL_T_FLOAT) {
        tl_emit_unsupported(e, "this reduction");
        return;
    }
    LLVMValueRef m = members(e, tl_opd(e, 2));
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), 32)),
                  active = {tl_mask_of_bits(e, m), true};
    v = tl_select(e, active, v, tl_const(e, 32, identity));
    LLVMTypeRef over = tl_vec(e->i32);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, &over, 1);
    LLVMValueRef r = LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, &over, 1), fn, &v.v, 1,
                                    "");
    tl_write(e, tl_opd(e, 0), (struct tl_val){r, false}, false);
}

static void emit_elect(struct tl_emit *e)
{
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    LLVMValueRef m = members(e, tl_opd(e, 1));
    struct tl_val args[2] = {{m, false}, {LLVMConstInt(e->i1, 0, false), false}};
    struct tl_val first = tl_intrinsic(e, "llvm.cttz", args, 2);
    int64_t iota[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        iota[i] = i;
    struct tl_val is_first = tl_icmp(e, LLVMIntEQ,
                                     (struct tl_val){tl_const_lanes(e, 32, iota), true}, first);
    if (to->kind != TL_OPD_PAIR) {
        tl_emit_unsupported(e, "elect without a predicate");
        return;
    }
    tl_write(e, &to->elems[0], first, false);
    tl_write(e, &to->elems[1], is_first, false);
}

bool tl_emit_warp(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_shfl:
        emit_shuffle(e);
        return true;
    case TL_OP_vote:
        emit_vote(e);
        return true;
    case TL_OP_match:
        emit_match(e);
        return true;
    case TL_OP_redux:
        emit_redux(e);
        return true;
    case TL_OP_elect:
        emit_elect(e);
        return true;
    case TL_OP_movmatrix:
        emit_movmatrix(e);
        return true;
    case TL_OP_activemask:
        tl_write(e, tl_opd(e, 0), (struct tl_val){tl_active_bits(e), false}, false);
        return true;
    default:
        return false;
    }
}

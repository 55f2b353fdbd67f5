/* What a warp does together: shuffles, votes, matches, reductions. */
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/matrix.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

static LLVMValueRef u32(struct tl_emit *e, uint32_t value)
{
    return LLVMConstInt(e->i32, value, false);
}

static LLVMValueRef reduce(struct tl_emit *e, const char *name, LLVMValueRef v)
{
    LLVMTypeRef over = LLVMTypeOf(v);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, &over, 1);
    return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, &over, 1), fn, &v, 1, "");
}

/* The number of the first of some lanes; any, if there is none. */
static LLVMValueRef first_lane(struct tl_emit *e, LLVMValueRef lanes)
{
    struct tl_val args[2] = {{lanes, false}, {LLVMConstInt(e->i1, 0, false), false}};
    return LLVMBuildAnd(e->b, tl_intrinsic(e, "llvm.cttz", args, 2).v, u32(e, TL_LANES - 1), "");
}

/* The lanes a .sync operation names and that are there, as i32: a scalar, or of each lane its own
 * if they need not say the same. */
static struct tl_val members(struct tl_emit *e, const struct tl_ptx_operand *mask)
{
    struct tl_val m = tl_read(e, mask, 32), active = {tl_active_bits(e), false};
    LLVMValueRef named = m.v;
    if (e->uses_lanes)
        tl_emit_unsupported(
            e, "a warp-wide operation in a kernel whose lanes wait at different barriers");
    if (m.is_vec) {
        struct tl_val is_here = {tl_active(e), true};
        struct tl_val asked = tl_select(e, is_here, m, tl_const(e, 32, 0));
        named = reduce(e, "llvm.vector.reduce.or", asked.v);
    }
    tl_expect_lanes(e, named);
    return tl_op(e, LLVMAnd, m, active);
}

enum { MAX_RESULTS = 2 };
/* What lanes with one mask, which are a scalar, get together. */
typedef void (*agree_fn)(struct tl_emit *e, LLVMValueRef members, struct tl_val *results);

/* Lets lanes agree with those that say the same mask: in a loop over masks if they may differ. */
static void by_mask(struct tl_emit *e, struct tl_val m, agree_fn agree, struct tl_val *results,
                    uint32_t n)
{
    if (!m.is_vec) {
        agree(e, m.v, results);
        return;
    }
    LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "mask");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "agreed");
    LLVMValueRef all = tl_active_bits(e), so_far[MAX_RESULTS];
    LLVMTypeRef types[MAX_RESULTS] = {tl_vec(e->i32), tl_vec(e->i1)};
    LLVMBuildBr(e->b, loop);
    LLVMPositionBuilderAtEnd(e->b, loop);
    LLVMValueRef left = LLVMBuildPhi(e->b, e->i32, "");
    for (uint32_t i = 0; i < n; i++)
        so_far[i] = LLVMBuildPhi(e->b, types[i], "");
    LLVMValueRef mask = tl_lane_value(e, m, first_lane(e, left)).v;
    struct tl_val say = tl_icmp(e, LLVMIntEQ, m, (struct tl_val){mask, false});
    LLVMValueRef theirs = LLVMBuildAnd(e->b, tl_mask_bits(e, say.v), left, "");
    agree(e, mask, results);
    struct tl_val are_they = {tl_mask_of_bits(e, theirs), true};
    LLVMValueRef rest = LLVMBuildAnd(e->b, left, LLVMBuildNot(e->b, theirs, ""), "");
    LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b), from[2] = {before, latch};
    for (uint32_t i = 0; i < n; i++) {
        results[i] = tl_select(e, are_they, tl_widen(e, results[i]),
                               (struct tl_val){so_far[i], true});
        LLVMAddIncoming(so_far[i], (LLVMValueRef[2]){LLVMConstNull(types[i]), results[i].v}, from,
                        2);
    }
    LLVMAddIncoming(left, (LLVMValueRef[2]){all, rest}, from, 2);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntNE, rest, u32(e, 0), ""), loop, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

void tl_emit_warp_barrier(struct tl_emit *e)
{
    members(e, tl_opd(e, 0));
}

static struct tl_val vote_bits(struct tl_emit *e, struct tl_val p, struct tl_val m)
{
    if (p.is_vec)
        return tl_op(e, LLVMAnd, m, (struct tl_val){tl_mask_bits(e, p.v), false});
    return tl_select(e, p, m, tl_const(e, 32, 0));
}

static void emit_vote(struct tl_emit *e)
{
    struct tl_val m = {NULL, false}, r, bits;
    if (tl_has(e, TL_MOD_sync))
        m = members(e, tl_opd(e, 2));
    else
        m.v = tl_active_bits(e);
    bits = vote_bits(e, tl_read(e, tl_opd(e, 1), 1), m);
    if (tl_has(e, TL_MOD_ballot)) {
        tl_write(e, tl_opd(e, 0), bits, false);
        return;
    }
    struct tl_val none = tl_icmp(e, LLVMIntEQ, bits, tl_const(e, 32, 0)),
                  all = tl_icmp(e, LLVMIntEQ, bits, m);
    if (tl_has(e, TL_MOD_any))
        r = (struct tl_val){LLVMBuildNot(e->b, none.v, ""), none.is_vec};
    else if (tl_has(e, TL_MOD_all))
        r = all;
    else
        r = tl_op(e, LLVMOr, all, none);
    tl_write(e, tl_opd(e, 0), r, false);
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

/* match.all: the mask if all lanes have the same value, else 0; and whether they do. */
static void agree_on_value(struct tl_emit *e, LLVMValueRef m, struct tl_val *results)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), t.bits));
    struct tl_val same = tl_icmp(e, LLVMIntEQ, v, tl_lane_value(e, v, first_lane(e, m)));
    LLVMValueRef bits = LLVMBuildAnd(e->b, tl_mask_bits(e, same.v), m, "");
    LLVMValueRef all = LLVMBuildICmp(e->b, LLVMIntEQ, bits, m, "");
    results[0] = (struct tl_val){LLVMBuildSelect(e->b, all, m, u32(e, 0), ""), false};
    results[1] = (struct tl_val){all, false};
}

static void emit_match(struct tl_emit *e)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    struct tl_val m = members(e, tl_opd(e, 2)), results[MAX_RESULTS];
    if (tl_has(e, TL_MOD_all)) {
        bool is_pair = to->kind == TL_OPD_PAIR;
        by_mask(e, m, agree_on_value, results, MAX_RESULTS);
        tl_write(e, is_pair ? &to->elems[0] : to, results[0], false);
        if (is_pair)
            tl_write(e, &to->elems[1], results[1], false);
        return;
    }
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), t.bits));
    LLVMValueRef r = LLVMGetPoison(tl_vec(e->i32));
    for (uint32_t i = 0; i < TL_LANES; i++) {
        struct tl_val same = tl_icmp(e, LLVMIntEQ, v, tl_lane_value(e, v, u32(e, i)));
        r = LLVMBuildInsertElement(e->b, r, tl_mask_bits(e, same.v), u32(e, i), "");
    }
    tl_write(e, to, tl_op(e, LLVMAnd, (struct tl_val){r, true}, m), false);
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
static void agree_on_float(struct tl_emit *e, LLVMValueRef m, struct tl_val *results)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    bool is_min = tl_has(e, TL_MOD_min);
    uint32_t never = tl_has(e, TL_MOD_NaN) ? (is_min ? 0x7f800000 : 0xff800000) : 0x7fffffff;
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), 32)),
                  active = {tl_mask_of_bits(e, m), true};
    if (tl_ptx_form_has_text(e->inst->inst.form, "abs"))
        v = tl_op(e, LLVMAnd, v, tl_const(e, 32, 0x7fffffff));
    v = tl_bitcast(e, tl_select(e, active, v, tl_const(e, 32, never)), e->f32);
    for (uint32_t distance = TL_LANES / 2; distance > 0; distance /= 2)
        v = tl_minmax(e, t, is_min, v, pick_other(e, v, distance));
    results[0] = tl_lane_value(e, tl_bitcast(e, v, e->i32), u32(e, 0));
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

/* The reduction's name in LLVM, and what changes nothing in it; NULL if there is none. */
static const char *reduction(const struct tl_emit *e, uint32_t *identity)
{
    bool is_signed = tl_type_of(e->inst->inst.form, -1).kind == TL_T_SIGNED;
    *identity = 0;
    if (tl_has(e, TL_MOD_add))
        return "llvm.vector.reduce.add";
    if (tl_has(e, TL_MOD_or))
        return "llvm.vector.reduce.or";
    if (tl_has(e, TL_MOD_xor))
        return "llvm.vector.reduce.xor";
    *identity = UINT32_MAX;
    if (tl_has(e, TL_MOD_and))
        return "llvm.vector.reduce.and";
    if (tl_has(e, TL_MOD_min)) {
        *identity = is_signed ? INT32_MAX : UINT32_MAX;
        return is_signed ? "llvm.vector.reduce.smin" : "llvm.vector.reduce.umin";
    }
    *identity = is_signed ? 0x80000000u : 0;
    if (tl_has(e, TL_MOD_max))
        return is_signed ? "llvm.vector.reduce.smax" : "llvm.vector.reduce.umax";
    return NULL;
}

/* Lanes that do not take part count as what changes nothing. */
static void agree_on_integer(struct tl_emit *e, LLVMValueRef m, struct tl_val *results)
{
    uint32_t identity;
    const char *name = reduction(e, &identity);
    struct tl_val v = tl_widen(e, tl_read(e, tl_opd(e, 1), 32)),
                  active = {tl_mask_of_bits(e, m), true};
    v = tl_select(e, active, v, tl_const(e, 32, identity));
    results[0] = (struct tl_val){reduce(e, name, v.v), false};
}

static void emit_redux(struct tl_emit *e)
{
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    uint32_t identity;
    bool is_float = t.kind == TL_T_FLOAT;
    if (is_float ? t.bits != 32 || !(tl_has(e, TL_MOD_min) || tl_has(e, TL_MOD_max))
                 : reduction(e, &identity) == NULL) {
        tl_emit_unsupported(e, "this reduction");
        return;
    }
    struct tl_val m = members(e, tl_opd(e, 2)), result;
    by_mask(e, m, is_float ? agree_on_float : agree_on_integer, &result, 1);
    tl_write(e, tl_opd(e, 0), result, false);
}

static void agree_on_leader(struct tl_emit *e, LLVMValueRef m, struct tl_val *results)
{
    int64_t iota[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        iota[i] = i;
    struct tl_val args[2] = {{m, false}, {LLVMConstInt(e->i1, 0, false), false}};
    results[0] = tl_intrinsic(e, "llvm.cttz", args, 2);
    results[1] = tl_icmp(e, LLVMIntEQ, (struct tl_val){tl_const_lanes(e, 32, iota), true},
                         results[0]);
}

static void emit_elect(struct tl_emit *e)
{
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    struct tl_val m = members(e, tl_opd(e, 1)), results[MAX_RESULTS];
    if (to->kind != TL_OPD_PAIR) {
        tl_emit_unsupported(e, "elect without a predicate");
        return;
    }
    by_mask(e, m, agree_on_leader, results, MAX_RESULTS);
    tl_write(e, &to->elems[0], results[0], false);
    tl_write(e, &to->elems[1], results[1], false);
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

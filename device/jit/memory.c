/* Loads and stores.
 *
 * One address for all lanes is one access.  Lane offsets known when compiling become vector
 * accesses, directly or through a shuffle of the stretch that covers them.  The rest gathers and
 * scatters.  Lanes that are not active never touch memory. */
#include <string.h>

#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

enum { MAX_COVER = 256 }; /* elements loaded at once to pick lanes from */

static LLVMValueRef call_intrinsic(struct tl_emit *e, const char *name, LLVMTypeRef *over,
                                   size_t n_over, LLVMValueRef *args, unsigned n)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, over, n_over);
    return LLVMBuildCall2(e->b, type, LLVMGetIntrinsicDeclaration(e->mod, id, over, n_over), args,
                          n, "");
}

/* Each lane's bit `times` over. */
static LLVMValueRef repeat_mask(struct tl_emit *e, uint32_t times)
{
    LLVMValueRef index[TL_LANES * 8];
    for (uint32_t i = 0; i < TL_LANES * times; i++)
        index[i] = LLVMConstInt(e->i32, i / times, false);
    LLVMValueRef m = tl_active(e);
    return LLVMBuildShuffleVector(e->b, m, LLVMGetPoison(LLVMTypeOf(m)),
                                  LLVMConstVector(index, TL_LANES * times), "");
}

/* --- loads ------------------------------------------------------------------------------------ */

static void pick(struct tl_emit *e, LLVMValueRef cover, const int64_t first[TL_LANES],
                 uint32_t step, LLVMValueRef *out)
{
    LLVMValueRef index[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        index[i] = LLVMConstInt(e->i32, (uint64_t)(first[i] + step), false);
    *out = LLVMBuildShuffleVector(e->b, cover, LLVMGetPoison(LLVMTypeOf(cover)),
                                  LLVMConstVector(index, TL_LANES), "");
}

/* The covering stretch of known lane offsets in elements, if it is short and evenly divided. */
static bool covering(const struct tl_emit *e, const struct tl_address *a, uint64_t bytes,
                     uint32_t v, int64_t first[TL_LANES], int64_t *low, uint32_t *n)
{
    int64_t high;
    if (!tl_has_one_base(e, a))
        return false;
    *low = high = a->lanes.offset[0];
    for (int i = 0; i < TL_LANES; i++) {
        *low = a->lanes.offset[i] < *low ? a->lanes.offset[i] : *low;
        high = a->lanes.offset[i] > high ? a->lanes.offset[i] : high;
    }
    for (int i = 0; i < TL_LANES; i++) {
        int64_t d = a->lanes.offset[i] - *low;
        if (d % (int64_t)bytes != 0)
            return false;
        first[i] = d / (int64_t)bytes;
    }
    int64_t count = (high - *low) / (int64_t)bytes + v;
    *n = (uint32_t)count;
    return count <= MAX_COVER;
}

/* --- addresses that turn out to be neighbours ------------------------------------------------- */

/* In a loop it pays to ask, each time, whether the active lanes' addresses lie side by side: a
 * vector access costs a fraction of a gather.  `packed` is the address to use if they do. */
struct neighbours {
    LLVMBasicBlockRef apart, done;
    struct tl_address packed;
};

static bool pays_to_ask(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v)
{
    return a->pointer.is_vec && !a->lanes.is_known && bits >= 32 && v <= 4 &&
           e->f->is_in_loop[e->inst_block] && !e->options->is_least;
}

/* The builder stands where they are neighbours; at n->apart the other way is to be written; both go
 * on to n->done. */
static void ask_neighbours(struct tl_emit *e, struct neighbours *n, const struct tl_address *a,
                           uint64_t stride)
{
    int64_t offsets[TL_LANES];
    struct tl_val first = tl_const(e, 32, 0), lane0;
    for (int i = 0; i < TL_LANES; i++)
        offsets[i] = (int64_t)((uint64_t)i * stride);
    if (e->mask != NULL) {
        struct tl_val args[2] = {{tl_active_bits(e), false},
                                 {LLVMConstInt(e->i1, 0, false), false}};
        first = tl_op(e, LLVMAnd, tl_intrinsic(e, "llvm.cttz", args, 2), tl_const(e, 32, 31));
    }
    lane0 = tl_lane_value(e, a->pointer, first.v);
    lane0 = tl_op(e, LLVMSub, lane0,
                  tl_op(e, LLVMMul, tl_cast_int(e, first, 64, false), tl_const(e, 64, stride)));
    struct tl_val expected = {
        LLVMBuildAdd(e->b, tl_widen(e, lane0).v, tl_const_lanes(e, 64, offsets), ""), true};
    struct tl_val equal = tl_icmp(e, LLVMIntEQ, a->pointer, expected);
    LLVMValueRef bits = LLVMBuildOr(e->b, tl_mask_bits(e, equal.v),
                                    LLVMBuildNot(e->b, tl_active_bits(e), ""), "");
    LLVMBasicBlockRef together = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "neighbours");
    n->apart = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "apart");
    n->done = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "accessed");
    LLVMBuildCondBr(
        e->b, LLVMBuildICmp(e->b, LLVMIntEQ, bits, LLVMConstInt(e->i32, UINT32_MAX, false), ""),
        together, n->apart);
    LLVMPositionBuilderAtEnd(e->b, together);
    lane0 = tl_op(e, LLVMAdd, lane0, tl_const(e, 64, (uint64_t)a->offset));
    n->packed = (struct tl_address){
        .base = {lane0.v}, .lanes = {.is_known = true, .has_one_base = true, .base_align = 1}};
    memcpy(n->packed.lanes.offset, offsets, sizeof offsets);
}

static void load_elements(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                          struct tl_val *out);
static void store_elements(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                           struct tl_val *in);

static void load_asking(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                        struct tl_val *out)
{
    struct neighbours n;
    LLVMValueRef slots[4];
    LLVMTypeRef type = tl_vec(tl_int(e, bits));
    ask_neighbours(e, &n, a, (uint64_t)v * (bits / 8));
    for (uint32_t k = 0; k < v; k++)
        slots[k] = tl_alloca(e, type, "loaded");
    for (int way = 0; way < 2; way++) {
        if (way == 0) {
            load_elements(e, &n.packed, bits, v, out);
        } else {
            LLVMPositionBuilderAtEnd(e->b, n.apart);
            tl_gather_elements(e, tl_lane_addresses(e, a), bits, v, out);
        }
        for (uint32_t k = 0; k < v; k++)
            LLVMBuildStore(e->b, tl_widen(e, out[k]).v, slots[k]);
        LLVMBuildBr(e->b, n.done);
    }
    LLVMPositionBuilderAtEnd(e->b, n.done);
    for (uint32_t k = 0; k < v; k++)
        out[k] = (struct tl_val){LLVMBuildLoad2(e->b, type, slots[k], ""), true};
}

/* --- several rows in a warp ------------------------------------------------------------------- */

enum pattern { MIXED, ROW, ONE };

/* How the lanes of every group lie: side by side, all on one, or otherwise. */
static enum pattern group_pattern(const struct tl_emit *e, const struct tl_address *a,
                                  uint64_t stride)
{
    uint32_t per = TL_LANES / tl_groups(e);
    bool is_row = true, is_one = true;
    for (uint32_t i = 0; i < TL_LANES; i++) {
        int64_t d = a->lanes.offset[i] - a->lanes.offset[i / per * per];
        is_row &= d == (int64_t)((uint64_t)(i % per) * stride);
        is_one &= d == 0;
    }
    return is_one ? ONE : is_row ? ROW : MIXED;
}

static LLVMValueRef group_pointer(struct tl_emit *e, const struct tl_address *a, uint32_t g)
{
    uint32_t per = TL_LANES / tl_groups(e);
    LLVMValueRef offset = LLVMConstInt(e->i64, (uint64_t)a->lanes.offset[g * per], false);
    LLVMValueRef base = a->base[tl_has_one_base(e, a) ? 0 : g];
    return tl_pointer(e, LLVMBuildAdd(e->b, base, offset, ""));
}

/* Puts a group's values into a vector of all lanes. */
static LLVMValueRef put_part(struct tl_emit *e, LLVMValueRef all, LLVMValueRef part, uint32_t first,
                             uint32_t n)
{
    LLVMValueRef widen[TL_LANES], index[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++) {
        widen[i] = LLVMConstInt(e->i32, i < n ? i : 0, false);
        index[i] = LLVMConstInt(e->i32, i >= first && i < first + n ? TL_LANES + i - first : i,
                                false);
    }
    LLVMValueRef wide = LLVMBuildShuffleVector(e->b, part, LLVMGetPoison(LLVMTypeOf(part)),
                                               LLVMConstVector(widen, TL_LANES), "");
    return LLVMBuildShuffleVector(e->b, all, wide, LLVMConstVector(index, TL_LANES), "");
}

/* Lanes' bits of one group, each `times` over. */
static LLVMValueRef group_mask(struct tl_emit *e, uint32_t g, uint32_t times)
{
    LLVMValueRef index[TL_LANES * 8];
    uint32_t per = TL_LANES / tl_groups(e);
    for (uint32_t i = 0; i < per * times; i++)
        index[i] = LLVMConstInt(e->i32, g * per + i / times, false);
    return LLVMBuildShuffleVector(e->b, e->mask, LLVMGetPoison(LLVMTypeOf(e->mask)),
                                  LLVMConstVector(index, per * times), "");
}

/* Every v-th element of a group's stretch, from the k-th on. */
static LLVMValueRef every(struct tl_emit *e, LLVMValueRef all, uint32_t per, uint32_t v, uint32_t k)
{
    LLVMValueRef index[TL_LANES];
    for (uint32_t i = 0; i < per; i++)
        index[i] = LLVMConstInt(e->i32, i * v + k, false);
    return v == 1 ? all
                  : LLVMBuildShuffleVector(e->b, all, LLVMGetPoison(LLVMTypeOf(all)),
                                           LLVMConstVector(index, per), "");
}

/* Loads where lanes are known, a stretch or a broadcast per group.  False if that is not possible;
 * then nothing was emitted. */
static bool load_groups(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                        struct tl_val *out)
{
    enum pattern pattern = group_pattern(e, a, (uint64_t)v * (bits / 8));
    uint32_t n_groups = tl_groups(e), per = TL_LANES / n_groups;
    LLVMTypeRef element = tl_int(e, bits), type = LLVMVectorType(element, per * v);
    if (v > 8 || pattern == MIXED || (pattern == ONE && e->mask != NULL))
        return false;
    for (uint32_t k = 0; k < v; k++)
        out[k] = (struct tl_val){LLVMGetPoison(tl_vec(element)), true};
    for (uint32_t g = 0; g < n_groups; g++) {
        LLVMValueRef p = group_pointer(e, a, g), stretch = NULL;
        if (pattern == ROW && e->mask == NULL) {
            stretch = LLVMBuildLoad2(e->b, type, p, "");
            LLVMSetAlignment(stretch, bits / 8);
        } else if (pattern == ROW) {
            LLVMTypeRef over[2] = {type, e->ptr};
            LLVMValueRef args[4] = {p, LLVMConstInt(e->i32, bits / 8, false), group_mask(e, g, v),
                                    LLVMConstNull(type)};
            stretch = call_intrinsic(e, "llvm.masked.load", over, 2, args, 4);
        }
        for (uint32_t k = 0; k < v; k++) {
            LLVMValueRef part;
            if (pattern == ONE) {
                LLVMValueRef at = LLVMConstInt(e->i32, k, false);
                LLVMValueRef one = LLVMBuildLoad2(e->b, element,
                                                  LLVMBuildGEP2(e->b, element, p, &at, 1, ""), "");
                LLVMSetAlignment(one, bits / 8);
                part = tl_lanes_from(e, tl_widen(e, (struct tl_val){one, false}).v, 0, per);
            } else {
                part = every(e, stretch, per, v, k);
            }
            out[k].v = put_part(e, out[k].v, part, g * per, per);
        }
    }
    return true;
}

static bool store_groups(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                         const struct tl_val *in)
{
    uint32_t n_groups = tl_groups(e), per = TL_LANES / n_groups;
    if (v != 1 || group_pattern(e, a, bits / 8) != ROW)
        return false;
    for (uint32_t g = 0; g < n_groups; g++) {
        LLVMValueRef p = group_pointer(e, a, g), part = tl_lanes_from(e, in[0].v, g * per, per);
        if (e->mask == NULL) {
            LLVMSetAlignment(LLVMBuildStore(e->b, part, p), bits / 8);
            continue;
        }
        LLVMTypeRef over[2] = {LLVMTypeOf(part), e->ptr};
        LLVMValueRef args[4] = {part, p, LLVMConstInt(e->i32, bits / 8, false),
                                tl_lanes_from(e, e->mask, g * per, per)};
        call_intrinsic(e, "llvm.masked.store", over, 2, args, 4);
    }
    return true;
}

/* Loads v elements per lane into out[]. */
static void load_elements(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                          struct tl_val *out)
{
    uint64_t bytes = bits / 8;
    LLVMTypeRef element = tl_int(e, bits);
    int64_t first[TL_LANES], low;
    uint32_t n;
    if (tl_is_one_address(e, a)) {
        for (uint32_t k = 0; k < v; k++) {
            out[k] = (struct tl_val){
                LLVMBuildLoad2(e->b, element, tl_first_pointer(e, a, k * bytes), ""), false};
            LLVMSetAlignment(out[k].v, (unsigned)bytes);
        }
        return;
    }
    if (tl_is_packed(e, a, bytes * v) && e->mask != NULL && v <= 8) {
        LLVMTypeRef type = LLVMVectorType(element, TL_LANES * v), over[2] = {type, e->ptr};
        LLVMValueRef args[4] = {tl_first_pointer(e, a, 0), LLVMConstInt(e->i32, bytes, false),
                                repeat_mask(e, v), LLVMConstNull(type)};
        LLVMValueRef all = call_intrinsic(e, "llvm.masked.load", over, 2, args, 4);
        for (int i = 0; i < TL_LANES; i++)
            first[i] = (int64_t)i * v;
        for (uint32_t k = 0; k < v; k++) {
            out[k].is_vec = true;
            pick(e, all, first, k, &out[k].v);
        }
        return;
    }
    if (e->mask == NULL && covering(e, a, bytes, v, first, &low, &n)) {
        LLVMValueRef p = tl_pointer(
            e, LLVMBuildAdd(e->b, a->base[0], LLVMConstInt(e->i64, (uint64_t)low, false), ""));
        LLVMValueRef all = LLVMBuildLoad2(e->b, LLVMVectorType(element, n), p, "");
        LLVMSetAlignment(all, (unsigned)bytes);
        for (uint32_t k = 0; k < v; k++) {
            out[k].is_vec = true;
            pick(e, all, first, k, &out[k].v);
        }
        return;
    }
    if (a->lanes.is_known && tl_groups(e) > 1 && load_groups(e, a, bits, v, out))
        return;
    if (pays_to_ask(e, a, bits, v))
        load_asking(e, a, bits, v, out);
    else
        tl_gather_elements(e, tl_lane_addresses(e, a), bits, v, out);
}

static bool is_strong(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_volatile) || tl_ptx_form_has(f, TL_MOD_relaxed) ||
           tl_ptx_form_has(f, TL_MOD_acquire) || tl_ptx_form_has(f, TL_MOD_release) ||
           tl_ptx_form_has(f, TL_MOD_mmio);
}

static uint32_t vector_length(struct tl_emit *e)
{
    return tl_has(e, TL_MOD_v8) ? 8 : tl_has(e, TL_MOD_v4) ? 4 : tl_has(e, TL_MOD_v2) ? 2 : 1;
}

/* A scalar access under a mask that may be empty (a guarded instruction) needs a test.  Gathers and
 * scatters are worth one: what lies beyond the edge of a matrix is guarded, and empty ones take as
 * long as others. */
static bool needs_test(struct tl_emit *e, const struct tl_address *a, uint64_t stride)
{
    return e->must_blend && !tl_is_packed(e, a, stride);
}

/* Parameters, constants and local memory are laid out by the compiler, which knows its
 * alignments. */
static bool can_be_misaligned(enum tl_ptx_mod space)
{
    return space == TL_MOD_global || space == TL_MOD_shared || space == TL_MOD_other;
}

static LLVMValueRef any_active(struct tl_emit *e)
{
    return LLVMBuildICmp(e->b, LLVMIntNE, tl_active_bits(e), LLVMConstInt(e->i32, 0, false), "");
}

/* ld of any width, strong or weak, with the cheapest access that the addresses allow. */
static void emit_load(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type t = tl_type_of(f, -1);
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    uint32_t v = vector_length(e);
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    bool is_wide = t.bits == 128; /* as two halves, which strong accesses keep together */
    if (t.bits == 0 || (is_wide && v > 1) || e->inst->n_operands < 2 ||
        (v > 1 && tl_elements(to) != v)) {
        tl_emit_unsupported(e, "this load");
        return;
    }
    struct tl_address a = tl_address_of(e, tl_opd(e, 1), space);
    struct tl_val out[8];
    struct tl_if i;
    if (e->rc != 0)
        return;
    uint32_t bits = is_wide ? 64 : t.bits * t.packed;
    v = is_wide ? 2 : v;
    bool tested = needs_test(e, &a, (uint64_t)v * bits / 8);
    const struct tl_segment *segment = e->f->segment;
    if (is_strong(f) && space != TL_MOD_shared && space != TL_MOD_local &&
        e->f->is_in_loop[e->inst_block] &&
        (segment == NULL || (e->f->now != TL_CFG_NONE && segment->waits[e->f->now]))) {
        /* It may be waiting for another warp: warps need stacks of their own.  Fission has looked
         * at that, and left those that wait for another block. */
        e->n_barriers += segment == NULL;
        e->uses_grid_sync |= segment != NULL;
        LLVMValueRef args[2] = {e->f->frame, e->f->warp};
        tl_call_frame(e, offsetof(struct tl_dev_calls, yield), e->voidt, args, 2);
    }
    if (tested)
        tl_if_begin(e, &i, any_active(e));
    if (can_be_misaligned(space))
        tl_check_alignment(e, &a, (uint64_t)v * bits / 8);
    if (is_strong(f) && space != TL_MOD_shared && space != TL_MOD_local)
        tl_load_strong(e, &a, bits, v, out);
    else
        load_elements(e, &a, bits, v, out);
    if (is_wide) {
        struct tl_val high = tl_op(e, LLVMShl, tl_cast_int(e, out[1], 128, false),
                                   tl_const(e, 128, 64));
        tl_write(e, to, tl_op(e, LLVMOr, high, tl_cast_int(e, out[0], 128, false)), false);
    }
    for (uint32_t k = 0; k < v && !is_wide; k++) {
        struct tl_ptx_operand o = tl_element(to, k);
        tl_write(e, &o, out[k], t.kind == TL_T_SIGNED);
    }
    if (tested)
        tl_if_end(e, &i);
}

/* --- stores ----------------------------------------------------------------------------------- */

static LLVMValueRef interleave(struct tl_emit *e, LLVMValueRef a, LLVMValueRef b)
{
    uint32_t n = LLVMGetVectorSize(LLVMTypeOf(a));
    LLVMValueRef index[TL_LANES * 8];
    for (uint32_t i = 0; i < 2 * n; i++)
        index[i] = LLVMConstInt(e->i32, i / 2 + (i % 2) * n, false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, 2 * n), "");
}

/* Stores v elements per active lane where they belong: one address, a stretch, stretches per
 * group, or a scatter. */
static void store_elements(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                           struct tl_val *in)
{
    uint64_t bytes = bits / 8;
    if (tl_is_one_address(e, a)) { /* lanes that write one address: one of them wins */
        struct tl_val args[2] = {{tl_active_bits(e), false},
                                 {LLVMConstInt(e->i1, 1, false), false}};
        LLVMValueRef lane = LLVMBuildSub(e->b, LLVMConstInt(e->i32, 31, false),
                                         tl_intrinsic(e, "llvm.ctlz", args, 2).v, "");
        for (uint32_t k = 0; k < v; k++) {
            LLVMValueRef s = LLVMBuildStore(e->b, tl_lane_value(e, in[k], lane).v,
                                            tl_first_pointer(e, a, k * bytes));
            LLVMSetAlignment(s, (unsigned)bytes);
        }
        return;
    }
    for (uint32_t k = 0; k < v; k++)
        in[k] = tl_widen(e, in[k]);
    if (tl_is_packed(e, a, bytes * v) && v <= 4) {
        LLVMValueRef all = in[0].v;
        if (v == 2)
            all = interleave(e, in[0].v, in[1].v);
        else if (v == 4)
            all = interleave(e, interleave(e, in[0].v, in[2].v), interleave(e, in[1].v, in[3].v));
        if (e->mask == NULL) {
            LLVMSetAlignment(LLVMBuildStore(e->b, all, tl_first_pointer(e, a, 0)), (unsigned)bytes);
            return;
        }
        LLVMTypeRef over[2] = {LLVMTypeOf(all), e->ptr};
        LLVMValueRef args[4] = {all, tl_first_pointer(e, a, 0), LLVMConstInt(e->i32, bytes, false),
                                repeat_mask(e, v)};
        call_intrinsic(e, "llvm.masked.store", over, 2, args, 4);
        return;
    }
    if (a->lanes.is_known && tl_groups(e) > 1 && store_groups(e, a, bits, v, in))
        return;
    if (v == 1 && tl_store_apart(e, a, bits, in[0].v))
        return;
    struct neighbours n;
    bool asks = pays_to_ask(e, a, bits, v);
    if (asks) {
        ask_neighbours(e, &n, a, bytes * v);
        store_elements(e, &n.packed, bits, v, in);
        LLVMBuildBr(e->b, n.done);
        LLVMPositionBuilderAtEnd(e->b, n.apart);
    }
    tl_scatter_elements(e, tl_lane_addresses(e, a), bits, v, in);
    if (asks) {
        LLVMBuildBr(e->b, n.done);
        LLVMPositionBuilderAtEnd(e->b, n.done);
    }
}

static bool has_sinks(const struct tl_ptx_operand *from, uint32_t v)
{
    for (uint32_t k = 0; v > 1 && k < v; k++)
        if (tl_element(from, k).kind == TL_OPD_SINK)
            return true;
    return false;
}

/* Elements that are `_` leave memory as it is, so that what stands between them is stored by
 * itself. */
static void store_between_sinks(struct tl_emit *e, const struct tl_address *a, uint32_t bits,
                                uint32_t v, const struct tl_ptx_operand *from, struct tl_val *in)
{
    struct tl_val addresses = tl_lane_addresses(e, a);
    for (uint32_t k = 0, n; k < v; k += n) {
        bool is_sink = tl_element(from, k).kind == TL_OPD_SINK;
        for (n = 1; k + n < v && (tl_element(from, k + n).kind == TL_OPD_SINK) == is_sink; n++) {}
        if (!is_sink)
            tl_scatter_elements(
                e, tl_op(e, LLVMAdd, addresses, tl_const(e, 64, (uint64_t)k * bits / 8)), bits, n,
                in + k);
    }
}

/* st of any width, strong or weak; see emit_load. */
static void emit_store(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type t = tl_type_of(f, -1);
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    uint32_t v = vector_length(e), bits = t.bits * t.packed;
    const struct tl_ptx_operand *from = tl_opd(e, 1);
    bool is_wide = t.bits == 128,
         is_seen = is_strong(f) && space != TL_MOD_shared && space != TL_MOD_local;
    if (t.bits == 0 || (is_wide && v > 1) || e->inst->n_operands < 2 ||
        (v > 1 && tl_elements(from) != v) || (is_seen && has_sinks(from, v))) {
        tl_emit_unsupported(e, "this store");
        return;
    }
    struct tl_address a = tl_address_of(e, tl_opd(e, 0), space);
    struct tl_val in[8];
    struct tl_if i;
    for (uint32_t k = 0; k < v; k++) {
        struct tl_ptx_operand o = tl_element(from, k);
        in[k] = o.kind == TL_OPD_SINK ? tl_const(e, bits, 0) : tl_read(e, &o, bits);
    }
    if (is_wide) {
        in[1] = tl_cast_int(e, tl_op(e, LLVMLShr, in[0], tl_const(e, 128, 64)), 64, false);
        in[0] = tl_cast_int(e, in[0], 64, false);
        bits = 64;
        v = 2;
    }
    if (e->rc != 0)
        return;
    bool tested = needs_test(e, &a, (uint64_t)v * bits / 8);
    if (tested)
        tl_if_begin(e, &i, any_active(e));
    if (can_be_misaligned(space))
        tl_check_alignment(e, &a, (uint64_t)v * bits / 8);
    if (is_seen)
        tl_store_strong(e, &a, bits, v, in);
    else if (has_sinks(from, v))
        store_between_sinks(e, &a, bits, v, from, in);
    else
        store_elements(e, &a, bits, v, in);
    if (tested)
        tl_if_end(e, &i);
}

/* --- asynchronous copies: done at once -------------------------------------------------------- */

/* All lanes or none have something to store, most of the time. */
static void store_copied(struct tl_emit *e, const struct tl_address *to, uint32_t words,
                         struct tl_val *data)
{
    LLVMValueRef outer = e->mask;
    struct tl_if any, all;
    if (outer == NULL) {
        store_elements(e, to, 32, words, data);
        return;
    }
    tl_if_begin(e, &any, any_active(e));
    if (to->lanes.is_known) {
        LLVMValueRef is_all = LLVMBuildICmp(e->b, LLVMIntEQ, tl_active_bits(e),
                                            LLVMConstAllOnes(e->i32), "");
        e->mask = NULL;
        tl_if_begin(e, &all, is_all);
        store_elements(e, to, 32, words, data);
        tl_if_end(e, &all);
        e->mask = outer;
        tl_if_begin(e, &all, LLVMBuildNot(e->b, is_all, ""));
        store_elements(e, to, 32, words, data);
        tl_if_end(e, &all);
    } else {
        store_elements(e, to, 32, words, data);
    }
    tl_if_end(e, &any);
}

/* cp.async is done at once, so that its groups are done when they are waited for. */
static void emit_copy(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    if (!tl_has(e, TL_MOD_async)) {
        tl_emit_unsupported(e, "this copy");
        return;
    }
    if (tl_ptx_form_has_text(f, "commit_group") || tl_ptx_form_has_text(f, "wait_group") ||
        tl_ptx_form_has_text(f, "wait_all"))
        return;
    if (e->inst->n_operands < 3 || tl_opd(e, 2)->kind != TL_OPD_INT ||
        tl_ptx_form_has_text(f, "mbarrier")) {
        tl_emit_unsupported(e, "this copy");
        return;
    }
    uint32_t words = (uint32_t)tl_opd(e, 2)->bits / 4;
    struct tl_address to = tl_address_of(e, tl_opd(e, 0), TL_MOD_shared),
                      from = tl_address_of(e, tl_opd(e, 1), TL_MOD_global);
    LLVMValueRef outer = e->mask;
    struct tl_val data[4], size = {NULL, false};
    if (e->rc != 0 || words == 0 || words > 4)
        return;
    bool has_size = e->inst->n_operands > 3;
    if (has_size) { /* bytes to read, the rest is zero; or a predicate that says to read none */
        const struct tl_ptx_operand *o = tl_opd(e, 3);
        bool is_pred = o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG &&
                       e->f->regs[o->sym->id].bits == 1;
        size = is_pred
                   ? tl_select(e, tl_read(e, o, 1), tl_const(e, 32, 0), tl_const(e, 32, words * 4))
                   : tl_read(e, o, 32);
        struct tl_val some = tl_widen(e, tl_icmp(e, LLVMIntNE, size, tl_const(e, 32, 0)));
        e->mask = outer != NULL ? LLVMBuildAnd(e->b, outer, some.v, "") : some.v;
    }
    struct tl_if i;
    bool tested = e->mask != NULL; /* tiles beyond the end of a matrix have no lane that reads */
    LLVMValueRef slots[4];
    for (uint32_t k = 0; k < words; k++) {
        slots[k] = tl_alloca(e, tl_vec(e->i32), "copy");
        LLVMBuildStore(e->b, LLVMConstNull(tl_vec(e->i32)), slots[k]);
    }
    if (tested)
        tl_if_begin(e, &i, any_active(e));
    load_elements(e, &from, 32, words, data);
    for (uint32_t k = 0; k < words; k++) {
        struct tl_val x = data[k];
        if (has_size)
            x = tl_select(e, tl_icmp(e, LLVMIntUGT, size, tl_const(e, 32, k * 4)), x,
                          tl_const(e, 32, 0));
        LLVMBuildStore(e->b, tl_widen(e, x).v, slots[k]);
    }
    if (tested)
        tl_if_end(e, &i);
    e->mask = outer;
    for (uint32_t k = 0; k < words; k++)
        data[k] = (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(e->i32), slots[k], ""), true};
    store_copied(e, &to, words, data);
}

bool tl_emit_memory(struct tl_emit *e)
{
    if (tl_emit_tensor(e) || tl_emit_bulk(e))
        return true;
    switch (e->inst->inst.form->op) {
    case TL_OP_ld:
    case TL_OP_ldu:
        emit_load(e);
        return true;
    case TL_OP_st:
        emit_store(e);
        return true;
    case TL_OP_cp:
        emit_copy(e);
        return true;
    case TL_OP_prefetch:
    case TL_OP_prefetchu:
    case TL_OP_discard:
    case TL_OP_applypriority:
        return true; /* hints */
    case TL_OP_createpolicy:
        tl_write(e, tl_opd(e, 0), tl_const(e, 64, 0), false);
        return true;
    default:
        return false;
    }
}

/* Copies that a tensor map describes, and changes of tensor maps.
 *
 *     cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
 *         [box], [map, {x, y}], [object];
 *     cp{.reduce}.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {x, y}], [box];
 *     tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [map], 0, value;
 *     tensormap.cp_fenceproxy.global.shared::cta.... [to], [from], 128;
 *
 * What a map means is the business of device/exec/tensor.c; here each active lane in turn calls
 * out.  A form with a word that is not known here is refused. */
#include "device/tensor.h"
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"
#include "ptx_rewrite/verdict.h"

#include <stdio.h>

enum { MAP_BYTES = sizeof(struct tl_tensor_map) };

static LLVMValueRef u32(struct tl_emit *e, uint64_t value)
{
    return LLVMConstInt(e->i32, value, false);
}

/* Whether each word of the form is one of those, which end with NULL; else `strange` is the first
 * that is not. */
static bool has_only(const struct tl_ptx_form *f, const char *const *words, struct tl_str *strange)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        uint32_t k = 0;
        while (words[k] != NULL && !tl_str_is(f->mods[i].text, words[k]))
            k++;
        *strange = f->mods[i].text;
        if (words[k] == NULL)
            return false;
    }
    return true;
}

static void refuse_word(struct tl_emit *e, struct tl_str word)
{
    char why[64];
    snprintf(why, sizeof why, ".%.*s with a tensor map", (int)(word.n < 32 ? word.n : 32), word.p);
    tl_emit_unsupported(e, why);
}

/* --- copies ----------------------------------------------------------------------------------- */

struct copy {
    uint32_t what; /* enum tl_tensor_copy, with the rank */
    uint32_t rank;
    struct tl_spilled map, coords[TL_TENSOR_MAX_RANK], shared, object;
};

/* Which copy the words of the form ask for; false if it is none of those there are. */
static bool describe(const struct tl_ptx_form *f, struct copy *c)
{
    static const char *const ranks[] = {"1d", "2d", "3d", "4d", "5d"};
    static const char *const reductions[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
    bool is_load = tl_ptx_form_space(f) == TL_MOD_shared, /* the destination is named first */
        is_reduction = tl_ptx_form_has_text(f, "reduce");
    uint32_t what = TL_TENSOR_STORE;
    for (uint32_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        c->rank = tl_ptx_form_has_text(f, ranks[i]) ? i + 1 : c->rank;
    for (uint32_t i = 0; is_reduction && i < sizeof reductions / sizeof *reductions; i++)
        what = tl_ptx_form_has_text(f, reductions[i]) ? TL_TENSOR_ADD + i : what;
    c->what = (is_load ? TL_TENSOR_LOAD : what) | c->rank << TL_TENSOR_RANK_SHIFT;
    return c->rank > 0 && is_load == tl_ptx_form_has_text(f, "mbarrier::complete_tx::bytes") &&
           (!is_reduction || (!is_load && what != TL_TENSOR_STORE));
}

/* [map, {x, y}] */
static bool read_place(struct tl_emit *e, const struct tl_ptx_operand *o, struct copy *c)
{
    if (o->kind != TL_OPD_ADDR || o->n != 2 || tl_elements(&o->elems[1]) != c->rank)
        return false;
    struct tl_ptx_operand map = *o;
    map.n = 1;
    c->map = tl_spilled_addresses(e, &map, TL_MOD_other);
    for (uint32_t i = 0; i < c->rank; i++) {
        struct tl_ptx_operand x = tl_element(&o->elems[1], i);
        c->coords[i] = tl_spill(e, tl_read(e, &x, 32));
    }
    return true;
}

/* A copy of either direction, or a reduction: each active lane calls out with its map, place and
 * address in shared memory; of a load, its barrier object is told of the bytes. */
static void emit_copy(struct tl_emit *e)
{
    static const char *const words[] = {"async",
                                        "bulk",
                                        "tensor",
                                        "1d",
                                        "2d",
                                        "3d",
                                        "4d",
                                        "5d",
                                        "shared::cta",
                                        "shared::cluster",
                                        "global",
                                        "tile",
                                        "mbarrier::complete_tx::bytes",
                                        "bulk_group",
                                        "L2::cache_hint",
                                        "cta_group::1",
                                        "reduce",
                                        "add",
                                        "min",
                                        "max",
                                        "inc",
                                        "dec",
                                        "and",
                                        "or",
                                        "xor",
                                        NULL};
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct copy c = {0};
    struct tl_str strange;
    if (!has_only(f, words, &strange)) {
        refuse_word(e, strange);
        return;
    }
    bool is_known = describe(f, &c);
    bool is_load = (c.what & TL_TENSOR_COPY) == TL_TENSOR_LOAD;
    if (!is_known || e->inst->n_operands < (is_load ? 3u : 2u) ||
        !read_place(e, tl_opd(e, is_load ? 1 : 0), &c)) {
        tl_emit_unsupported(e, "this copy by a tensor map");
        return;
    }
    c.shared = tl_spilled_addresses(e, tl_opd(e, is_load ? 0 : 1), TL_MOD_shared);
    if (is_load)
        c.object = tl_spilled_addresses(e, tl_opd(e, 2), TL_MOD_shared);
    LLVMValueRef coords = tl_alloca(e, LLVMArrayType2(e->i32, TL_TENSOR_MAX_RANK), "coords");
    struct tl_lane_loop l;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &l);
    for (uint32_t i = 0; i < c.rank; i++) {
        LLVMValueRef index = u32(e, i);
        LLVMBuildStore(e->b, tl_spilled_lane(e, &c.coords[i], l.lane),
                       LLVMBuildGEP2(e->b, e->i32, coords, &index, 1, ""));
    }
    LLVMValueRef args[6] = {
        e->f->frame,    e->f->warp, tl_pointer(e, tl_spilled_lane(e, &c.map, l.lane)),
        u32(e, c.what), coords,     tl_pointer(e, tl_spilled_lane(e, &c.shared, l.lane))};
    LLVMValueRef bytes = tl_call_frame(e, offsetof(struct tl_dev_calls, tensor), e->i64, args, 6);
    if (is_load)
        tl_mbarrier_complete(e, tl_spilled_lane(e, &c.object, l.lane), bytes);
    tl_lanes_end(e, &l);
}

/* --- maps ------------------------------------------------------------------------------------- */

/* tensormap.replace: [map], (axis,) value. */
static void emit_replace(struct tl_emit *e)
{
    static const char *const names[] = {
        "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
        "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode"};
    const struct tl_ptx_form *f = e->inst->inst.form;
    uint32_t field = 0, n_names = sizeof names / sizeof *names, axis = 0;
    while (field < n_names && !tl_ptx_form_has_text(f, names[field]))
        field++;
    bool has_axis = field >= TL_TENSOR_FIELD_BOX && field <= TL_TENSOR_FIELD_ELEMENT_STRIDE;
    bool is_wide = field == TL_TENSOR_FIELD_ADDRESS || field == TL_TENSOR_FIELD_STRIDE;
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    if (field == n_names || !tl_ptx_form_has_text(f, "tile") ||
        e->inst->n_operands != (has_axis ? 3u : 2u) || tl_opd(e, 0)->kind != TL_OPD_ADDR ||
        (has_axis && tl_opd(e, 1)->kind != TL_OPD_INT)) {
        tl_emit_unsupported(e, "this change of a tensor map");
        return;
    }
    if (field == TL_TENSOR_FIELD_STRIDE && tl_ptx_isa_of(e->p->unit.ix) < 85) {
        /* assemblers before CUDA 12.5 took it as it is in the map, without its lowest four bits */
        tl_emit_unsupported(e, "global_stride in PTX before 8.5, whose unit is not certain");
        return;
    }
    if (has_axis)
        axis = tl_opd(e, 1)->bits < TL_TENSOR_MAX_RANK ? (uint32_t)tl_opd(e, 1)->bits
                                                       : TL_TENSOR_MAX_RANK;
    struct tl_spilled map = tl_spilled_addresses(
                          e, tl_opd(e, 0), space == TL_MOD_shared ? TL_MOD_shared : TL_MOD_other),
                      value = tl_spill(
                          e,
                          tl_cast_int(e, tl_read(e, tl_opd(e, has_axis ? 2 : 1), is_wide ? 64 : 32),
                                      64, false));
    struct tl_lane_loop l;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &l);
    LLVMValueRef args[5] = {
        e->f->frame, e->f->warp, tl_pointer(e, tl_spilled_lane(e, &map, l.lane)),
        u32(e, field | axis << TL_TENSOR_AXIS_SHIFT), tl_spilled_lane(e, &value, l.lane)};
    tl_call_frame(e, offsetof(struct tl_dev_calls, tensor_replace), e->voidt, args, 5);
    tl_lanes_end(e, &l);
}

/* tensormap.cp_fenceproxy: [to], [from], 128; from shared to global memory.  All lanes copy the
 * same, so one after the other is as good as all together. */
static void emit_publish(struct tl_emit *e)
{
    if (e->inst->n_operands != 3 || tl_opd(e, 2)->kind != TL_OPD_INT ||
        tl_opd(e, 2)->bits != MAP_BYTES) {
        tl_emit_unsupported(e, "this copy of a tensor map");
        return;
    }
    struct tl_spilled to = tl_spilled_addresses(e, tl_opd(e, 0), TL_MOD_global),
                      from = tl_spilled_addresses(e, tl_opd(e, 1), TL_MOD_shared);
    struct tl_lane_loop l;
    if (e->rc != 0)
        return;
    tl_lanes_begin(e, &l);
    LLVMValueRef dst = tl_spilled_lane(e, &to, l.lane), src = tl_spilled_lane(e, &from, l.lane);
    LLVMValueRef low = LLVMBuildAnd(e->b, LLVMBuildOr(e->b, dst, src, ""),
                                    LLVMConstInt(e->i64, MAP_BYTES - 1, false), "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, low, LLVMConstInt(e->i64, 0, false), ""),
                TL_DEV_FAULT_MISALIGNED);
    LLVMTypeRef type = LLVMVectorType(e->i64, MAP_BYTES / 8);
    LLVMValueRef all = LLVMBuildLoad2(e->b, type, tl_pointer(e, src), "");
    LLVMSetAlignment(all, 64);
    LLVMSetAlignment(LLVMBuildStore(e->b, all, tl_pointer(e, dst)), 64);
    tl_lanes_end(e, &l);
    LLVMBuildFence(e->b, LLVMAtomicOrderingSequentiallyConsistent, false, "");
}

bool tl_emit_tensor(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    if (f->op == TL_OP_tensormap) {
        if (tl_ptx_form_has_text(f, "replace"))
            emit_replace(e);
        else if (tl_ptx_form_has_text(f, "cp_fenceproxy"))
            emit_publish(e);
        else
            tl_emit_unsupported(e, "this operation on a tensor map");
        return true;
    }
    if (f->op != TL_OP_cp || !tl_ptx_form_has_text(f, "tensor"))
        return false;
    if (!tl_ptx_form_has_text(f, "prefetch")) /* a hint */
        emit_copy(e);
    return true;
}

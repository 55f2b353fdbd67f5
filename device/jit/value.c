/* Types, values, operands: the vocabulary in which instructions are written.  See emit.h. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/form.h"
#include "device/jit/function.h"
#include "device/jit/value.h"
#include "ptx_rewrite/index.h"

/* --- types ------------------------------------------------------------------------------------ */

LLVMTypeRef tl_int(struct tl_emit *e, uint32_t bits)
{
    switch (bits) {
    case 1:
        return e->i1;
    case 8:
        return e->i8;
    case 16:
        return e->i16;
    case 32:
        return e->i32;
    case 64:
        return e->i64;
    case 128:
        return e->i128;
    default:
        return LLVMIntTypeInContext(e->ctx, bits);
    }
}

LLVMTypeRef tl_vec(LLVMTypeRef element)
{
    return LLVMVectorType(element, TL_LANES);
}

static bool type_of_mod(enum tl_ptx_mod m, struct tl_type *t)
{
    static const struct {
        enum tl_ptx_mod mod;
        struct tl_type type;
    } types[] = {
        {TL_MOD_pred, {TL_T_PRED, 1, 1}},     {TL_MOD_b8, {TL_T_BITS, 8, 1}},
        {TL_MOD_b16, {TL_T_BITS, 16, 1}},     {TL_MOD_b32, {TL_T_BITS, 32, 1}},
        {TL_MOD_b64, {TL_T_BITS, 64, 1}},     {TL_MOD_b128, {TL_T_BITS, 128, 1}},
        {TL_MOD_u8, {TL_T_UNSIGNED, 8, 1}},   {TL_MOD_u16, {TL_T_UNSIGNED, 16, 1}},
        {TL_MOD_u32, {TL_T_UNSIGNED, 32, 1}}, {TL_MOD_u64, {TL_T_UNSIGNED, 64, 1}},
        {TL_MOD_s8, {TL_T_SIGNED, 8, 1}},     {TL_MOD_s16, {TL_T_SIGNED, 16, 1}},
        {TL_MOD_s32, {TL_T_SIGNED, 32, 1}},   {TL_MOD_s64, {TL_T_SIGNED, 64, 1}},
        {TL_MOD_f16, {TL_T_FLOAT, 16, 1}},    {TL_MOD_f32, {TL_T_FLOAT, 32, 1}},
        {TL_MOD_f64, {TL_T_FLOAT, 64, 1}},    {TL_MOD_f16x2, {TL_T_FLOAT, 16, 2}},
        {TL_MOD_bf16, {TL_T_BFLOAT, 16, 1}},  {TL_MOD_bf16x2, {TL_T_BFLOAT, 16, 2}},
        {TL_MOD_tf32, {TL_T_BITS, 32, 1}},    {TL_MOD_u16x2, {TL_T_UNSIGNED, 16, 2}},
        {TL_MOD_s16x2, {TL_T_SIGNED, 16, 2}}, {TL_MOD_f32x2, {TL_T_FLOAT, 32, 2}},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].mod == m) {
            *t = types[i].type;
            return true;
        }
    }
    return false;
}

struct tl_type tl_type_of(const struct tl_ptx_form *f, int n)
{
    struct tl_type t = {TL_T_BITS, 0, 1}, found = t;
    int seen = 0;
    for (uint32_t i = 0; i < f->n_mods; i++) {
        if (!type_of_mod(f->mods[i].id, &t))
            continue;
        found = t;
        if (seen++ == n)
            return t;
    }
    return n < 0 ? found : (struct tl_type){TL_T_BITS, 0, 1};
}

/* --- values ----------------------------------------------------------------------------------- */

void tl_emit_unsupported(struct tl_emit *e, const char *why)
{
    if (e->rc != 0)
        return;
    const struct tl_ptx_stmt *s = e->inst;
    struct tl_str text = {"", 0};
    struct tl_ptx_place place = {0, 0};
    if (s != NULL) {
        const struct tl_ptx_index *ix = e->p->unit.ix;
        text = (struct tl_str){ix->text + s->at, s->end - s->at};
        place = tl_ptx_place_of(ix->text, ix->n, s->at);
    }
    e->rc = tl_error_set(e->err, -ENOTSUP,
                         "%s: kernel '" TL_STR_FMT "', line %u: '%.*s' is not implemented (%s)",
                         e->name, TL_STR_ARG(e->p->entry->func->name), place.line,
                         (int)(text.n < 120 ? text.n : 120), text.p, why);
}

struct tl_val tl_const(struct tl_emit *e, uint32_t bits, uint64_t value)
{
    return (struct tl_val){LLVMConstInt(tl_int(e, bits), value, false), false};
}

LLVMValueRef tl_const_lanes(struct tl_emit *e, uint32_t bits, const int64_t offset[TL_LANES])
{
    LLVMValueRef lanes[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        lanes[i] = LLVMConstInt(tl_int(e, bits), (uint64_t)offset[i], false);
    return LLVMConstVector(lanes, TL_LANES);
}

struct tl_val tl_widen(struct tl_emit *e, struct tl_val v)
{
    if (v.is_vec)
        return v;
    LLVMTypeRef type = tl_vec(LLVMTypeOf(v.v));
    LLVMValueRef one = LLVMBuildInsertElement(e->b, LLVMGetPoison(type), v.v,
                                              LLVMConstInt(e->i32, 0, false), "");
    LLVMValueRef zeros = LLVMConstNull(tl_vec(e->i32));
    return (struct tl_val){LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(type), zeros, ""), true};
}

void tl_match(struct tl_emit *e, struct tl_val *a, struct tl_val *b)
{
    if (a->is_vec && !b->is_vec)
        *b = tl_widen(e, *b);
    else if (b->is_vec && !a->is_vec)
        *a = tl_widen(e, *a);
}

LLVMTypeRef tl_like(struct tl_emit *e, struct tl_val v, LLVMTypeRef element)
{
    (void)e;
    return v.is_vec ? tl_vec(element) : element;
}

static uint32_t int_bits(struct tl_val v)
{
    LLVMTypeRef t = LLVMTypeOf(v.v);
    return LLVMGetIntTypeWidth(v.is_vec ? LLVMGetElementType(t) : t);
}

struct tl_val tl_cast_int(struct tl_emit *e, struct tl_val v, uint32_t bits, bool is_signed)
{
    uint32_t have = int_bits(v);
    LLVMTypeRef to = tl_like(e, v, tl_int(e, bits));
    if (have > bits)
        v.v = LLVMBuildTrunc(e->b, v.v, to, "");
    else if (have < bits)
        v.v = is_signed ? LLVMBuildSExt(e->b, v.v, to, "") : LLVMBuildZExt(e->b, v.v, to, "");
    return v;
}

struct tl_val tl_bitcast(struct tl_emit *e, struct tl_val v, LLVMTypeRef element)
{
    v.v = LLVMBuildBitCast(e->b, v.v, tl_like(e, v, element), "");
    return v;
}

struct tl_val tl_select(struct tl_emit *e, struct tl_val c, struct tl_val a, struct tl_val b)
{
    tl_match(e, &a, &b);
    if (c.is_vec && !a.is_vec) {
        a = tl_widen(e, a);
        b = tl_widen(e, b);
    }
    return (struct tl_val){LLVMBuildSelect(e->b, c.v, a.v, b.v, ""), a.is_vec};
}

struct tl_val tl_intrinsic(struct tl_emit *e, const char *name, struct tl_val *args, unsigned n)
{
    bool is_vec = false;
    LLVMValueRef values[4];
    for (unsigned i = 0; i < n; i++)
        is_vec |= args[i].is_vec;
    for (unsigned i = 0; i < n; i++) {
        if (is_vec && LLVMGetTypeKind(LLVMTypeOf(args[i].v)) != LLVMVectorTypeKind &&
            LLVMTypeOf(args[i].v) != e->i1)
            args[i] = tl_widen(e, args[i]);
        values[i] = args[i].v;
    }
    LLVMTypeRef over = LLVMTypeOf(values[0]);
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, &over, 1);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, &over, 1);
    return (struct tl_val){LLVMBuildCall2(e->b, type, fn, values, n, ""), is_vec};
}

struct tl_val tl_op(struct tl_emit *e, LLVMOpcode op, struct tl_val a, struct tl_val b)
{
    tl_match(e, &a, &b);
    return (struct tl_val){LLVMBuildBinOp(e->b, op, a.v, b.v, ""), a.is_vec};
}

struct tl_val tl_icmp(struct tl_emit *e, LLVMIntPredicate p, struct tl_val a, struct tl_val b)
{
    tl_match(e, &a, &b);
    return (struct tl_val){LLVMBuildICmp(e->b, p, a.v, b.v, ""), a.is_vec};
}

struct tl_val tl_fcmp(struct tl_emit *e, LLVMRealPredicate p, struct tl_val a, struct tl_val b)
{
    tl_match(e, &a, &b);
    return (struct tl_val){LLVMBuildFCmp(e->b, p, a.v, b.v, ""), a.is_vec};
}

LLVMValueRef tl_mask_bits(struct tl_emit *e, LLVMValueRef mask)
{
    if (mask == NULL)
        return LLVMConstInt(e->i32, UINT32_MAX, false);
    if (e->quick != NULL && LLVMIsABitCastInst(mask) != NULL &&
        LLVMTypeOf(LLVMGetOperand(mask, 0)) == e->i32)
        return LLVMGetOperand(mask, 0);
    return LLVMBuildBitCast(e->b, mask, e->i32, "");
}

LLVMValueRef tl_mask_of_bits(struct tl_emit *e, LLVMValueRef bits)
{
    return LLVMBuildBitCast(e->b, bits, tl_vec(e->i1), "");
}

static bool is_word(struct tl_emit *e, LLVMValueRef mask)
{
    return e->quick != NULL && LLVMGetTypeKind(LLVMTypeOf(mask)) == LLVMVectorTypeKind;
}

LLVMValueRef tl_mask_and(struct tl_emit *e, LLVMValueRef a, LLVMValueRef b)
{
    if (!is_word(e, a))
        return LLVMBuildAnd(e->b, a, b, "");
    return tl_mask_of_bits(e, LLVMBuildAnd(e->b, tl_mask_bits(e, a), tl_mask_bits(e, b), ""));
}

LLVMValueRef tl_mask_not(struct tl_emit *e, LLVMValueRef a)
{
    if (!is_word(e, a))
        return LLVMBuildNot(e->b, a, "");
    return tl_mask_of_bits(e, LLVMBuildNot(e->b, tl_mask_bits(e, a), ""));
}

LLVMValueRef tl_active(struct tl_emit *e)
{
    return e->mask != NULL ? e->mask : LLVMConstAllOnes(tl_vec(e->i1));
}

LLVMValueRef tl_active_bits(struct tl_emit *e)
{
    return tl_mask_bits(e, e->mask);
}

struct tl_val tl_lane_value(struct tl_emit *e, struct tl_val v, LLVMValueRef lane)
{
    if (v.is_vec)
        v.v = LLVMBuildExtractElement(e->b, v.v, lane, "");
    v.is_vec = false;
    return v;
}

LLVMValueRef tl_lanes_from(struct tl_emit *e, LLVMValueRef v, uint32_t first, uint32_t n)
{
    LLVMValueRef index[TL_LANES];
    for (uint32_t i = 0; i < n; i++)
        index[i] = LLVMConstInt(e->i32, first + i, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(index, n),
                                  "");
}

LLVMValueRef tl_alloca(struct tl_emit *e, LLVMTypeRef type, const char *name)
{
    LLVMBuilderRef b = LLVMCreateBuilderInContext(e->ctx);
    LLVMValueRef last = LLVMGetFirstInstruction(e->f->allocas);
    if (last != NULL)
        LLVMPositionBuilderBefore(b, last);
    else
        LLVMPositionBuilderAtEnd(b, e->f->allocas);
    LLVMValueRef slot = LLVMBuildAlloca(b, type, name);
    LLVMDisposeBuilder(b);
    return slot;
}

LLVMValueRef tl_slot(struct tl_emit *e, struct tl_reg *r, uint32_t n)
{
    if (r->slot[n] == NULL)
        r->slot[n] = tl_alloca(e, r->type, "r");
    return r->slot[n];
}

LLVMValueRef tl_get(struct tl_emit *e, struct tl_reg *r, uint32_t n)
{
    if (r->value[n] != NULL)
        return r->value[n];
    if (e->quick != NULL && r->is_vec && r->bits == 1)
        return tl_mask_of_bits(e, LLVMBuildLoad2(e->b, e->i32, tl_slot(e, r, n), ""));
    return LLVMBuildLoad2(e->b, r->type, tl_slot(e, r, n), "");
}

void tl_put(struct tl_emit *e, struct tl_reg *r, uint32_t n, LLVMValueRef v)
{
    bool is_value = r->is_local && e->nesting == e->block_nesting;
    r->value[n] = is_value ? v : NULL;
    if (!is_value)
        LLVMBuildStore(e->b, v, tl_slot(e, r, n));
}

static LLVMValueRef at_offset(struct tl_emit *e, LLVMValueRef base, uint64_t offset)
{
    LLVMValueRef index = LLVMConstInt(e->i64, offset, false);
    return offset == 0 ? base : LLVMBuildGEP2(e->b, e->i8, base, &index, 1, "");
}

LLVMValueRef tl_field(struct tl_emit *e, uint32_t offset, LLVMTypeRef type)
{
    return LLVMBuildLoad2(e->b, type, at_offset(e, e->f->frame, offset), "");
}

LLVMValueRef tl_call_frame(struct tl_emit *e, uint32_t slot, LLVMTypeRef ret, LLVMValueRef *args,
                           unsigned n)
{
    LLVMTypeRef types[8];
    for (unsigned i = 0; i < n; i++)
        types[i] = LLVMTypeOf(args[i]);
    LLVMValueRef calls = tl_field(e, offsetof(struct tl_dev_frame, calls), e->ptr);
    LLVMValueRef fn = LLVMBuildLoad2(e->b, e->ptr, at_offset(e, calls, slot), "");
    return LLVMBuildCall2(e->b, LLVMFunctionType(ret, types, n, false), fn, args, n, "");
}

LLVMValueRef tl_scratch(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    if (f->scratch_inst != e->inst) {
        f->scratch_inst = e->inst;
        f->n_scratch_used = 0;
    }
    if (f->n_scratch_used == f->n_scratch) {
        if (f->n_scratch == TL_MAX_SCRATCH) {
            tl_emit_unsupported(e, "so many vectors in memory at a time");
            return f->scratch[0];
        }
        f->scratch[f->n_scratch] = tl_alloca(e, tl_vec(e->i64), "scratch");
        LLVMSetAlignment(f->scratch[f->n_scratch++], 64);
    }
    return f->scratch[f->n_scratch_used++];
}

struct tl_spilled tl_spill(struct tl_emit *e, struct tl_val v)
{
    struct tl_spilled s = {NULL, v};
    if (v.is_vec) {
        LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v.v));
        s.slot = element == e->i128 ? tl_alloca(e, LLVMTypeOf(v.v), "spilled") : tl_scratch(e);
        LLVMBuildStore(e->b, v.v, s.slot);
    }
    return s;
}

LLVMValueRef tl_spilled_lane(struct tl_emit *e, const struct tl_spilled *s, LLVMValueRef lane)
{
    if (!s->v.is_vec)
        return s->v.v;
    LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(s->v.v));
    return LLVMBuildLoad2(e->b, element, LLVMBuildGEP2(e->b, element, s->slot, &lane, 1, ""), "");
}

void tl_lanes_begin(struct tl_emit *e, struct tl_lane_loop *l)
{
    e->nesting++;
    l->left_slot = tl_alloca(e, e->i32, "left");
    LLVMBuildStore(e->b, tl_active_bits(e), l->left_slot);
    l->head = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "lanes");
    l->body = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "lane");
    l->done = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "lanes_done");
    LLVMBuildBr(e->b, l->head);
    LLVMPositionBuilderAtEnd(e->b, l->head);
    LLVMValueRef left = LLVMBuildLoad2(e->b, e->i32, l->left_slot, "");
    LLVMValueRef any = LLVMBuildICmp(e->b, LLVMIntNE, left, LLVMConstInt(e->i32, 0, false), "");
    LLVMBuildCondBr(e->b, any, l->body, l->done);
    LLVMPositionBuilderAtEnd(e->b, l->body);
    struct tl_val args[2] = {{left, false}, {LLVMConstInt(e->i1, 1, false), false}};
    l->lane = tl_intrinsic(e, "llvm.cttz", args, 2).v;
    LLVMValueRef less = LLVMBuildSub(e->b, left, LLVMConstInt(e->i32, 1, false), "");
    LLVMBuildStore(e->b, LLVMBuildAnd(e->b, left, less, ""), l->left_slot);
}

void tl_lanes_end(struct tl_emit *e, struct tl_lane_loop *l)
{
    e->nesting--;
    LLVMBuildBr(e->b, l->head);
    LLVMPositionBuilderAtEnd(e->b, l->done);
}

void tl_if_begin(struct tl_emit *e, struct tl_if *i, LLVMValueRef condition)
{
    LLVMBasicBlockRef then = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "then");
    i->done = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "endif");
    e->nesting++;
    LLVMBuildCondBr(e->b, condition, then, i->done);
    LLVMPositionBuilderAtEnd(e->b, then);
}

void tl_if_end(struct tl_emit *e, struct tl_if *i)
{
    e->nesting--;
    LLVMBuildBr(e->b, i->done);
    LLVMPositionBuilderAtEnd(e->b, i->done);
}

void tl_fault_if(struct tl_emit *e, LLVMValueRef condition, uint32_t fault)
{
    LLVMBasicBlockRef bad = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "fault");
    LLVMBasicBlockRef good = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "good");
    LLVMBuildCondBr(e->b, condition, bad, good);
    LLVMPositionBuilderAtEnd(e->b, bad);
    LLVMValueRef args[4] = {e->f->frame, e->f->warp, LLVMConstInt(e->i32, fault, false),
                            LLVMConstInt(e->i64, 0, false)};
    tl_call_frame(e, offsetof(struct tl_dev_calls, fault), e->voidt, args, 4);
    LLVMBuildUnreachable(e->b);
    LLVMPositionBuilderAtEnd(e->b, good);
}

/* --- operands --------------------------------------------------------------------------------- */

struct tl_placed *tl_find_placed(struct tl_emit *e, const void *what)
{
    struct tl_placed *p = e->placed;
    while (p != NULL && (p->what != what || (p->owner != NULL && p->owner != e->f)))
        p = p->next;
    return p;
}

/* --- bases of lanes --------------------------------------------------------------------------- */

uint32_t tl_n_bases(const struct tl_emit *e, const struct tl_lanes *l)
{
    return l->has_one_base ? 1 : tl_groups(e);
}

struct tl_val tl_bases_to_lanes(struct tl_emit *e, const LLVMValueRef *bases,
                                const struct tl_lanes *l, uint32_t bits)
{
    uint32_t n = tl_n_bases(e, l), per = TL_LANES / n;
    struct tl_val v = tl_widen(e, (struct tl_val){bases[0], false});
    for (uint32_t g = 1; g < n; g++) {
        LLVMValueRef index[TL_LANES];
        for (uint32_t i = 0; i < TL_LANES; i++)
            index[i] = LLVMConstInt(e->i32, i < g * per ? i : TL_LANES, false);
        LLVMValueRef next = LLVMBuildInsertElement(e->b, LLVMGetPoison(LLVMTypeOf(v.v)), bases[g],
                                                   LLVMConstInt(e->i32, 0, false), "");
        v.v = LLVMBuildShuffleVector(e->b, v.v, next, LLVMConstVector(index, TL_LANES), "");
    }
    return (struct tl_val){LLVMBuildAdd(e->b, v.v, tl_const_lanes(e, bits, l->offset), ""), true};
}

/* Which of a register's bases the current lane has. */
static uint32_t base_number(const struct tl_emit *e, const struct tl_reg *r)
{
    return e->lane / (TL_LANES / r->n_slots);
}

static const char component_names[] = "xyzwrgba";

/* The slot of a component of a vector register; the only one of others.  -1: it has no such. */
static int slot_of(const struct tl_reg *r, const struct tl_ptx_operand *o)
{
    if (r->vec <= 1)
        return o->component == 0 ? 0 : -1;
    const char *at = o->component != 0 ? strchr(component_names, o->component) : NULL;
    int n = at != NULL ? (int)(at - component_names) % 4 : -1;
    return n < (int)r->vec ? n : -1;
}

static bool is_whole(const struct tl_ptx_operand *o)
{
    return o->kind == TL_OPD_SYM && o->component == 0;
}

uint32_t tl_elements(const struct tl_ptx_operand *o)
{
    if (o->kind == TL_OPD_VEC)
        return o->n;
    if (is_whole(o) && o->sym->kind == TL_SYM_REG)
        return o->sym->decl->vec;
    bool is_vector = is_whole(o) && o->sym->kind == TL_SYM_SREG &&
                     (o->sym->sreg == TL_SREG_tid || o->sym->sreg == TL_SREG_ntid ||
                      o->sym->sreg == TL_SREG_ctaid || o->sym->sreg == TL_SREG_nctaid);
    return is_vector ? 4 : 1;
}

struct tl_ptx_operand tl_element(const struct tl_ptx_operand *o, uint32_t n)
{
    struct tl_ptx_operand r = o->kind == TL_OPD_VEC ? o->elems[n] : *o;
    if (o->kind != TL_OPD_VEC && tl_elements(o) > 1)
        r.component = component_names[n];
    return r;
}

static struct tl_val read_reg(struct tl_emit *e, const struct tl_ptx_operand *o)
{
    struct tl_reg *r = &e->f->regs[tl_reg_read(e->f, e->f->now, o->sym->id)];
    LLVMValueRef bases[TL_MAX_GROUPS] = {NULL};
    int number = slot_of(r, o);
    if (number < 0) {
        tl_emit_unsupported(e, "a vector register where one element is meant");
        return tl_const(e, 32, 0);
    }
    if (!r->lanes.is_known)
        return (struct tl_val){tl_get(e, r, (uint32_t)number), r->is_vec};
    if (e->is_scalar) {
        LLVMValueRef base = tl_get(e, r, base_number(e, r));
        LLVMValueRef offset = LLVMConstInt(r->type, (uint64_t)r->lanes.offset[e->lane], false);
        return (struct tl_val){LLVMBuildAdd(e->b, base, offset, ""), false};
    }
    for (uint32_t g = 0; g < r->n_slots; g++)
        bases[g] = tl_get(e, r, g);
    return tl_bases_to_lanes(e, bases, &r->lanes, r->bits);
}

uint32_t tl_align_of_name(struct tl_emit *e, const struct tl_ptx_operand *o)
{
    const struct tl_ptx_sym *sym = o->sym;
    const struct tl_placed *p = tl_find_placed(
        e, sym->kind == TL_SYM_MODULE_VAR ? (const void *)sym : (const void *)sym->decl);
    uint32_t align = 1;
    if (p == NULL || p->space != 's')
        return 1;
    while (align < 1024 && (p->offset & align) == 0) /* to which shared memory is aligned itself */
        align *= 2;
    return align;
}

/* The address that a name stands for: an offset for shared and local variables, a pointer for the
 * rest. */
static struct tl_val read_name(struct tl_emit *e, const struct tl_ptx_operand *o)
{
    const struct tl_ptx_sym *sym = o->sym;
    struct tl_placed *p = tl_find_placed(
        e, sym->kind == TL_SYM_MODULE_VAR ? (const void *)sym : (const void *)sym->decl);
    LLVMValueRef v = NULL;
    if (p == NULL) {
        tl_emit_unsupported(e, "a name that is no variable");
        return tl_const(e, 64, 0);
    }
    switch (p->space) {
    case 's':
    case 'l':
        v = LLVMConstInt(e->i64, p->offset, false);
        break;
    case 'g':
        v = LLVMBuildLoad2(e->b, e->i64,
                           at_offset(e,
                                     tl_field(e, offsetof(struct tl_dev_frame, variables), e->ptr),
                                     p->offset * 8),
                           "");
        break;
    case 'p':
        v = LLVMBuildPtrToInt(
            e->b,
            at_offset(e, tl_field(e, offsetof(struct tl_dev_frame, params), e->ptr), p->offset),
            e->i64, "");
        break;
    default: { /* of a call: each thread has its own, one behind the other */
        struct tl_val at = {LLVMBuildPtrToInt(e->b, p->slot, e->i64, ""), false};
        int64_t offsets[TL_LANES];
        for (int i = 0; i < TL_LANES; i++)
            offsets[i] = (int64_t)((uint64_t)i * p->bytes) + (o->has_offset ? o->offset : 0);
        return tl_op(e, LLVMAdd, at, (struct tl_val){tl_const_lanes(e, 64, offsets), true});
    }
    }
    if (o->has_offset)
        v = LLVMBuildAdd(e->b, v, LLVMConstInt(e->i64, (uint64_t)o->offset, false), "");
    return (struct tl_val){v, false};
}

/* Constants, registers (as the instruction that is being translated sees them), special
 * registers, names as addresses. */
struct tl_val tl_read(struct tl_emit *e, const struct tl_ptx_operand *o, uint32_t bits)
{
    struct tl_val v = tl_const(e, bits, 0);
    switch ((enum tl_ptx_operand_kind)o->kind) {
    case TL_OPD_INT:
    case TL_OPD_F32:
        if (tl_form_immediate(e, o) != NULL)
            return tl_cast_int(e, (struct tl_val){tl_form_immediate(e, o), false}, bits, false);
        return tl_const(e, bits, o->bits);
    case TL_OPD_F64:
        if (bits == 32) {
            double d;
            float f;
            uint32_t u;
            memcpy(&d, &o->bits, sizeof d);
            f = (float)d;
            memcpy(&u, &f, sizeof u);
            return tl_const(e, 32, u);
        }
        return tl_const(e, bits, o->bits);
    case TL_OPD_SYM:
        switch (o->sym->kind) {
        case TL_SYM_REG:
            v = read_reg(e, o);
            break;
        case TL_SYM_SREG:
            v = tl_sreg(e, o);
            if (e->is_scalar)
                v = tl_lane_value(e, v, LLVMConstInt(e->i32, e->lane, false));
            break;
        case TL_SYM_VAR:
        case TL_SYM_MODULE_VAR:
            v = read_name(e, o);
            break;
        case TL_SYM_FUNC:
            v = tl_const(e, 64, tl_dev_function_address(o->sym->name.p, o->sym->name.n));
            break;
        default:
            tl_emit_unsupported(e, "this kind of name as an operand");
            return v;
        }
        break;
    default:
        tl_emit_unsupported(e, "this kind of operand");
        return v;
    }
    v = tl_cast_int(e, v, bits, false);
    if (o->flags & TL_OPD_NOT)
        v.v = LLVMBuildNot(e->b, v.v, "");
    if (o->flags & TL_OPD_MINUS)
        v.v = LLVMBuildNeg(e->b, v.v, "");
    return v;
}

/* bfloat has no arithmetic of its own here: it is widened to f32 when read and rounded when
 * written. */
struct tl_val tl_to_float(struct tl_emit *e, struct tl_val v, struct tl_type t)
{
    if (t.kind == TL_T_BFLOAT) {
        v = tl_cast_int(e, v, 32, false);
        v.v = LLVMBuildShl(
            e->b, v.v, (v.is_vec ? tl_widen(e, tl_const(e, 32, 16)) : tl_const(e, 32, 16)).v, "");
        return tl_bitcast(e, v, e->f32);
    }
    return tl_bitcast(e, v, t.bits == 16 ? e->f16 : t.bits == 32 ? e->f32 : e->f64);
}

static struct tl_val splat_like(struct tl_emit *e, struct tl_val like, struct tl_val v)
{
    return like.is_vec ? tl_widen(e, v) : v;
}

/* Round to nearest even by adding just under a half, and keep NaN a NaN. */
static struct tl_val round_bfloat(struct tl_emit *e, struct tl_val v)
{
    struct tl_val is_nan = {LLVMBuildFCmp(e->b, LLVMRealUNO, v.v, v.v, ""), v.is_vec};
    struct tl_val bits = tl_bitcast(e, v, e->i32);
    struct tl_val sixteen = splat_like(e, v, tl_const(e, 32, 16));
    LLVMValueRef lsb = LLVMBuildAnd(e->b, LLVMBuildLShr(e->b, bits.v, sixteen.v, ""),
                                    splat_like(e, v, tl_const(e, 32, 1)).v, "");
    LLVMValueRef sum = LLVMBuildAdd(
        e->b, bits.v, LLVMBuildAdd(e->b, lsb, splat_like(e, v, tl_const(e, 32, 0x7fff)).v, ""), "");
    struct tl_val r = {LLVMBuildLShr(e->b, sum, sixteen.v, ""), v.is_vec};
    r = tl_select(e, is_nan, splat_like(e, v, tl_const(e, 32, 0x7fff)), r);
    return tl_cast_int(e, r, 16, false);
}

struct tl_val tl_from_float(struct tl_emit *e, struct tl_val v, struct tl_type t)
{
    if (t.kind == TL_T_BFLOAT)
        return round_bfloat(e, v);
    return tl_bitcast(e, v, tl_int(e, t.bits));
}

struct tl_val tl_read_as(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_type t)
{
    if (t.kind == TL_T_FLOAT || t.kind == TL_T_BFLOAT)
        return tl_to_float(e, tl_read(e, o, t.bits), t);
    return tl_read(e, o, t.bits);
}

void tl_write(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v, bool is_signed)
{
    if (o->kind == TL_OPD_SINK)
        return;
    struct tl_reg *r = o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG
                           ? &e->f->regs[e->to_shadow ? e->f->shadow_write[e->f->now] : o->sym->id]
                           : NULL;
    int number = r != NULL ? slot_of(r, o) : -1;
    if (number < 0) {
        tl_emit_unsupported(e, "this kind of destination");
        return;
    }
    v = tl_cast_int(e, v, r->bits, is_signed);
    if (r->lanes.is_known) { /* a base is its lane's value less the offset */
        assert(e->is_scalar && !v.is_vec);
        LLVMValueRef offset = LLVMConstInt(r->type, (uint64_t)r->lanes.offset[e->lane], false);
        tl_put(e, r, base_number(e, r), LLVMBuildSub(e->b, v.v, offset, ""));
        return;
    }
    if (r->is_vec)
        v = tl_widen(e, v);
    else if (v.is_vec) /* all active lanes agree: take the first of them */
        v = tl_lane_value(e, v,
                          tl_intrinsic(e, "llvm.cttz",
                                       (struct tl_val[2]){{tl_active_bits(e), false},
                                                          {LLVMConstInt(e->i1, 1, false), false}},
                                       2)
                              .v);
    bool blend = r->is_vec && e->mask != NULL && (e->must_blend || r->keeps_lanes) && !r->is_local;
    if (blend)
        v.v = LLVMBuildSelect(e->b, e->mask, v.v, tl_get(e, r, (uint32_t)number), "");
    tl_put(e, r, (uint32_t)number, v.v);
}

void tl_write_as(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v,
                 struct tl_type t)
{
    if (t.kind == TL_T_FLOAT || t.kind == TL_T_BFLOAT)
        v = tl_from_float(e, v, t);
    tl_write(e, o, v, t.kind == TL_T_SIGNED);
}

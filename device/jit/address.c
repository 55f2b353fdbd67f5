/* Addresses: what an address operand stands for, and how the lanes' places lie to each other.
 *
 * Windows of shared and local memory become pointers of the host here; lanes that are known when
 * compiling stay bases and offsets. */
#include "device/jit/address.h"
#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/form.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

struct tl_val tl_local_base(struct tl_emit *e)
{
    int64_t offsets[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        offsets[i] = (int64_t)i * e->local_bytes;
    LLVMValueRef base = LLVMBuildPtrToInt(
        e->b, tl_field(e, offsetof(struct tl_dev_frame, local), e->ptr), e->i64, "");
    LLVMValueRef first = LLVMBuildMul(
        e->b, LLVMBuildZExt(e->b, e->f->warp, e->i64, ""),
        LLVMConstInt(e->i64, (uint64_t)TL_LANES * e->local_bytes, false), "");
    struct tl_val v = tl_widen(e, (struct tl_val){LLVMBuildAdd(e->b, base, first, ""), false});
    return (struct tl_val){LLVMBuildAdd(e->b, v.v, tl_const_lanes(e, 64, offsets), ""), true};
}

/* Memory for a parameter of a call: 32 threads' worth, made when first met. */
static struct tl_placed *call_param(struct tl_emit *e, const struct tl_ptx_decl *d)
{
    struct tl_placed *p = tl_find_placed(e, d);
    if (p != NULL)
        return p;
    p = tl_arena_zalloc(e->arena, sizeof *p);
    if (p == NULL) {
        tl_emit_unsupported(e, "out of memory");
        return NULL;
    }
    uint64_t bytes = (uint64_t)tl_ptx_type_bytes(d->type) * d->vec * d->count;
    *p = (struct tl_placed){
        .next = e->placed, .what = d, .space = 'a', .bytes = bytes, .owner = e->f};
    p->slot = tl_alloca(e, LLVMArrayType2(e->i8, bytes * TL_LANES), "param");
    LLVMSetAlignment(p->slot, 16);
    e->placed = p;
    return p;
}

static struct tl_address in_call_param(struct tl_emit *e, const struct tl_ptx_operand *o,
                                       const struct tl_placed *p)
{
    struct tl_address a = {0};
    a.base[0] = LLVMBuildAdd(e->b, LLVMBuildPtrToInt(e->b, p->slot, e->i64, ""),
                             LLVMConstInt(e->i64, (uint64_t)(o->has_offset ? o->offset : 0), false),
                             "");
    a.lanes = (struct tl_lanes){.is_known = true, .has_one_base = true, .base_align = 1};
    for (int i = 0; i < TL_LANES; i++)
        a.lanes.offset[i] = (int64_t)((uint64_t)i * p->bytes);
    return a;
}

/* The power of two that an address in shared memory is known to be a multiple of; 0: none is. */
static uint64_t shared_align(struct tl_emit *e, const struct tl_ptx_operand *o,
                             const struct tl_ptx_operand *base, const struct tl_reg *r)
{
    bool is_name = base->kind == TL_OPD_SYM && r == NULL;
    uint64_t align = r == NULL           ? (is_name ? tl_align_of_name(e, base) : 0)
                     : r->lanes.is_known ? r->lanes.base_align
                                         : r->align;
    while (align > 1 && (align > 1024 || (o->has_offset && (uint64_t)o->offset % align != 0)))
        align /= 2;
    return align;
}

/* Names, registers with or without known lanes, and constants; shared memory begins at the
 * frame's window, local memory at each thread's own place. */
struct tl_address tl_address_of(struct tl_emit *e, const struct tl_ptx_operand *o,
                                enum tl_ptx_mod space)
{
    struct tl_address a = {.pointer = tl_const(e, 64, 0)};
    const struct tl_ptx_operand *base = o->kind == TL_OPD_ADDR && o->n == 1 ? &o->elems[0] : NULL;
    if (base == NULL) {
        tl_emit_unsupported(e, "this kind of address");
        return a;
    }
    if (base->kind == TL_OPD_SYM && base->sym->kind == TL_SYM_VAR &&
        tl_str_starts(base->sym->decl->space, "param")) {
        struct tl_placed *p = tl_find_placed(e, base->sym->decl);
        if (p == NULL || p->space == 'a') {
            p = call_param(e, base->sym->decl);
            if (p != NULL)
                a = in_call_param(e, o, p);
            return a;
        }
    }
    bool is_reg = base->kind == TL_OPD_SYM && base->sym->kind == TL_SYM_REG;
    struct tl_reg *r = is_reg ? &e->f->regs[tl_reg_read(e->f, e->f->now, base->sym->id)] : NULL;
    LLVMValueRef offset = LLVMConstInt(e->i64, (uint64_t)(o->has_offset ? o->offset : 0), false),
                 window = NULL, given = tl_form_offset(e);
    if (given != NULL)
        offset = given;
    if (space == TL_MOD_shared)
        window = LLVMBuildPtrToInt(e->b, tl_field(e, offsetof(struct tl_dev_frame, shared), e->ptr),
                                   e->i64, "");
    if (window != NULL)
        a.align = shared_align(e, o, base, r);
    if (r == NULL || !r->lanes.is_known) {
        /* Windows are small: a register may hold a little less than zero, with an offset that leads
         * back in. */
        bool wraps = window != NULL && r != NULL && r->bits == 32;
        a.pointer = tl_cast_int(e, tl_read(e, base, wraps ? 32 : 64), 64, wraps);
        if (window != NULL)
            a.pointer = tl_op(e, LLVMAdd, a.pointer, (struct tl_val){window, false});
        if (a.pointer.is_vec && given == NULL)
            a.offset = o->has_offset ? o->offset : 0;
        else
            a.pointer = tl_op(e, LLVMAdd, a.pointer, (struct tl_val){offset, false});
    }
    for (uint32_t g = 0; r != NULL && r->lanes.is_known && g < r->n_slots; g++) {
        LLVMValueRef v = tl_get(e, r, g);
        /* windows are small: a base may be just below zero, with offsets that lead back in */
        if (r->bits < 64)
            v = LLVMBuildSExt(e->b, v, e->i64, "");
        if (window != NULL)
            v = LLVMBuildAdd(e->b, v, window, "");
        /* constants last: they become part of the instruction */
        a.base[g] = LLVMBuildAdd(e->b, v, offset, "");
        a.lanes = r->lanes;
    }
    if (space == TL_MOD_local) {
        if (a.lanes.is_known)
            a.pointer = tl_bases_to_lanes(e, a.base, &a.lanes, 64);
        a.lanes.is_known = false;
        a.pointer = tl_op(e, LLVMAdd, a.pointer, tl_local_base(e));
    }
    return a;
}

struct tl_spilled tl_spilled_addresses(struct tl_emit *e, const struct tl_ptx_operand *o,
                                       enum tl_ptx_mod space)
{
    struct tl_address a = tl_address_of(e, o, space);
    bool is_one = !a.lanes.is_known && !a.pointer.is_vec;
    return tl_spill(e, is_one || e->rc != 0 ? a.pointer : tl_lane_addresses(e, &a));
}

LLVMValueRef tl_pointer(struct tl_emit *e, LLVMValueRef address)
{
    return LLVMBuildIntToPtr(e->b, address, e->ptr, "");
}

struct tl_val tl_lane_addresses(struct tl_emit *e, const struct tl_address *a)
{
    if (a->lanes.is_known)
        return tl_bases_to_lanes(e, a->base, &a->lanes, 64);
    return tl_op(e, LLVMAdd, tl_widen(e, a->pointer), tl_const(e, 64, (uint64_t)a->offset));
}

LLVMValueRef tl_lane_pointers(struct tl_emit *e, const struct tl_address *a, uint64_t extra)
{
    struct tl_val p = tl_lane_addresses(e, a);
    if (extra != 0)
        p = tl_op(e, LLVMAdd, p, tl_const(e, 64, extra));
    return LLVMBuildIntToPtr(e->b, p.v, tl_vec(e->ptr), "");
}

bool tl_has_one_base(const struct tl_emit *e, const struct tl_address *a)
{
    return a->lanes.is_known && tl_n_bases(e, &a->lanes) == 1;
}

bool tl_is_one_address(const struct tl_emit *e, const struct tl_address *a)
{
    if (!a->lanes.is_known)
        return !a->pointer.is_vec;
    for (int i = 1; i < TL_LANES; i++) {
        if (a->lanes.offset[i] != a->lanes.offset[0])
            return false;
    }
    return tl_has_one_base(e, a);
}

LLVMValueRef tl_first_pointer(struct tl_emit *e, const struct tl_address *a, uint64_t extra)
{
    uint64_t offset = extra + (a->lanes.is_known ? (uint64_t)a->lanes.offset[0] : 0);
    LLVMValueRef base = a->lanes.is_known ? a->base[0] : a->pointer.v;
    return tl_pointer(e, LLVMBuildAdd(e->b, base, LLVMConstInt(e->i64, offset, false), ""));
}

bool tl_is_packed(const struct tl_emit *e, const struct tl_address *a, uint64_t stride)
{
    if (!tl_has_one_base(e, a))
        return false;
    for (int i = 0; i < TL_LANES; i++) {
        if (a->lanes.offset[i] != a->lanes.offset[0] + (int64_t)((uint64_t)i * stride))
            return false;
    }
    return true;
}

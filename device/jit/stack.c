/* Stack memory that is taken when running (alloca), and registers that functions get and give back.
 *
 * A thread's local memory ends with a stack of fixed size, if the program takes from it: first the
 * number of bytes taken, then the bytes.  A function gives back at its end what it took.  Who takes
 * more than there is ends the launch.
 *
 *     local memory of a thread  [ variables | taken, 16 bytes | stack ... ] */

#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

enum { STACK_BYTES = 4096, STACK_HEAD = 16 }; /* four times what CUDA gives a thread by default */

static int takes_stack(void *data, struct tl_ptx_stmt *s)
{
    (void)data;
    enum tl_ptx_op op = s->inst.form->op;
    return op == TL_OP_alloca || op == TL_OP_stacksave || op == TL_OP_stackrestore;
}

void tl_place_stack(struct tl_emit *e)
{
    for (const struct tl_ptx_program_func *f = e->p->funcs; f != NULL; f = f->next)
        e->has_stack |= f->func->has_body &&
                        tl_ptx_each_inst(f->func->body, takes_stack, NULL) != 0;
    if (!e->has_stack)
        return;
    e->stack_at = e->local_bytes;
    e->local_bytes += STACK_HEAD + STACK_BYTES;
}

/* Where each lane keeps how much it has taken. */
static struct tl_val counters(struct tl_emit *e)
{
    return tl_op(e, LLVMAdd, tl_local_base(e), tl_const(e, 64, e->stack_at));
}

static void emit_alloca(struct tl_emit *e)
{
    const struct tl_ptx_operand *to = tl_opd(e, 0),
                                *given = e->inst->n_operands > 2 ? tl_opd(e, 2) : NULL;
    uint64_t align = given != NULL && given->kind == TL_OPD_INT ? given->bits : 8;
    struct tl_type t = tl_type_of(e->inst->inst.form, -1);
    if (e->inst->n_operands < 2 || align == 0 || (align & (align - 1)) != 0 ||
        align > STACK_BYTES || t.bits == 0) {
        tl_emit_unsupported(e, "this allocation");
        return;
    }
    struct tl_val size = tl_cast_int(e, tl_read(e, tl_opd(e, 1), t.bits), 64, false),
                  at = counters(e);
    struct tl_val first = tl_op(e, LLVMAdd, tl_gather(e, at, 64),
                                tl_const(e, 64, e->stack_at + STACK_HEAD + align - 1));
    /* as an address in local memory */
    first = tl_op(e, LLVMAnd, first, tl_const(e, 64, ~(align - 1)));
    struct tl_val end = tl_const(e, 64, e->local_bytes), left = tl_op(e, LLVMSub, end, first);
    struct tl_val is_full = tl_op(e, LLVMOr, tl_icmp(e, LLVMIntUGT, first, end),
                                  tl_icmp(e, LLVMIntUGT, size, left));
    LLVMValueRef bits = LLVMBuildAnd(e->b, tl_mask_bits(e, tl_widen(e, is_full).v),
                                     tl_active_bits(e), "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, bits, LLVMConstInt(e->i32, 0, false), ""),
                TL_DEV_FAULT_STACK);
    struct tl_val taken = tl_op(e, LLVMSub, tl_op(e, LLVMAdd, first, size),
                                tl_const(e, 64, e->stack_at + STACK_HEAD));
    tl_scatter(e, at, taken, 64);
    tl_write(e, to, first, false);
}

bool tl_emit_stack(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_alloca:
        emit_alloca(e);
        return true;
    case TL_OP_stacksave:
        tl_write(e, tl_opd(e, 0), tl_gather(e, counters(e), 64), false);
        return true;
    case TL_OP_stackrestore:
        tl_scatter(e, counters(e),
                   tl_widen(e, tl_cast_int(e, tl_read(e, tl_opd(e, 0), 64), 64, false)), 64);
        return true;
    default:
        return false;
    }
}

/* --- functions -------------------------------------------------------------------------------- */

struct reg_search {
    const struct tl_ptx_decl *decl;
    const struct tl_ptx_sym *found;
};

static int is_it(void *data, struct tl_ptx_operand *o)
{
    struct reg_search *s = data;
    if (o->sym->kind == TL_SYM_REG && o->sym->decl == s->decl)
        s->found = o->sym;
    return s->found != NULL;
}

static int look_for_reg(void *data, struct tl_ptx_stmt *s)
{
    return tl_ptx_each_sym(s->inst.operands, s->n_operands, is_it, data);
}

/* The register that a parameter or result is, and the memory that stands for it between caller and
 * callee; NULL if it is none, or never used. */
static struct tl_reg *parameter(struct tl_emit *e, const struct tl_ptx_decl *d,
                                const struct tl_placed **memory)
{
    struct reg_search s = {.decl = d};
    if (!tl_str_is(d->space, "reg"))
        return NULL;
    tl_ptx_each_inst(e->f->pf->func->body, look_for_reg, &s);
    *memory = tl_find_placed(e, d);
    if (s.found == NULL || *memory == NULL || (*memory)->bytes * 8 != e->f->regs[s.found->id].bits)
        return NULL;
    return &e->f->regs[s.found->id];
}

void tl_enter_function(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    bool is_entry = f->pf == e->p->entry;
    e->mask = f->entry_mask;
    if (e->has_stack && is_entry && (f->segment == NULL || f->segment->first == 0))
        tl_scatter(e, counters(e), tl_widen(e, tl_const(e, 64, 0)), 64);
    if (e->has_stack && !is_entry) {
        f->stack_slot = tl_alloca(e, tl_vec(e->i64), "stack");
        LLVMBuildStore(e->b, tl_gather(e, counters(e), 64).v, f->stack_slot);
    }
    for (const struct tl_ptx_decl *d = is_entry ? NULL : f->pf->func->params; d != NULL;
         d = d->next) {
        const struct tl_placed *memory;
        struct tl_reg *r = parameter(e, d, &memory);
        if (r == NULL)
            continue;
        LLVMValueRef v = LLVMBuildLoad2(e->b, r->type, memory->slot, "");
        LLVMSetAlignment(v, r->bits / 8);
        tl_put(e, r, 0, v);
    }
    e->mask = NULL;
}

void tl_leave_function(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    e->mask = f->entry_mask;
    if (f->stack_slot != NULL)
        tl_scatter(e, counters(e),
                   (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(e->i64), f->stack_slot, ""), true},
                   64);
    for (const struct tl_ptx_decl *d = f->pf == e->p->entry ? NULL : f->pf->func->rets; d != NULL;
         d = d->next) {
        const struct tl_placed *memory;
        struct tl_reg *r = parameter(e, d, &memory);
        if (r == NULL)
            continue;
        LLVMValueRef old = LLVMBuildLoad2(e->b, r->type, memory->slot, ""), v = tl_get(e, r, 0);
        LLVMSetAlignment(old, r->bits / 8);
        LLVMValueRef store = LLVMBuildStore(e->b, LLVMBuildSelect(e->b, tl_active(e), v, old, ""),
                                            memory->slot);
        LLVMSetAlignment(store, r->bits / 8);
    }
    e->mask = NULL;
}

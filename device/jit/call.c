/* Barriers, fences, calls and what else leaves the warp. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"
#include "device/nest.h"

static LLVMValueRef u32(struct tl_emit *e, uint32_t value)
{
    return LLVMConstInt(e->i32, value, false);
}

static LLVMValueRef scalar32(struct tl_emit *e, const struct tl_ptx_operand *o)
{
    struct tl_val v = tl_read(e, o, 32);
    if (!v.is_vec)
        return v.v;
    struct tl_val args[2] = {{tl_active_bits(e), false}, {LLVMConstInt(e->i1, 1, false), false}};
    return tl_lane_value(e, v, tl_intrinsic(e, "llvm.cttz", args, 2).v).v;
}

/* --- barriers --------------------------------------------------------------------------------- */

/* bar and barrier of a block, as a call out of the kernel, with or without a reduction. */
static void emit_block_barrier(struct tl_emit *e)
{
    bool is_red = tl_has(e, TL_MOD_red);
    uint32_t n = e->inst->n_operands, first = is_red ? 1 : 0;
    LLVMValueRef votes = u32(e, 0), count = u32(e, 0);
    uint32_t kind = 0;
    if (n <= first) {
        tl_emit_unsupported(e, "this barrier");
        return;
    }
    if (is_red) {
        struct tl_val p = tl_read(e, tl_opd(e, n - 1), 1);
        votes = p.is_vec ? tl_mask_bits(e, p.v)
                         : LLVMBuildSelect(e->b, p.v, u32(e, UINT32_MAX), u32(e, 0), "");
        kind = tl_has(e, TL_MOD_popc) ? 2 : tl_has(e, TL_MOD_and) ? 3 : 4;
        if (n == 4)
            count = scalar32(e, tl_opd(e, 2));
    } else {
        kind = tl_has(e, TL_MOD_arrive) ? 1 : 0;
        if (n == 2)
            count = scalar32(e, tl_opd(e, 1));
    }
    LLVMValueRef args[7] = {
        e->f->frame, e->f->warp,        u32(e, kind), scalar32(e, tl_opd(e, first)),
        count,       tl_active_bits(e), votes};
    struct tl_if i;
    bool may_be_none = e->must_blend;
    if (may_be_none)
        tl_if_begin(e, &i, LLVMBuildICmp(e->b, LLVMIntNE, tl_active_bits(e), u32(e, 0), ""));
    struct tl_val r = {tl_call_frame(e, offsetof(struct tl_dev_calls, barrier), e->i32, args, 7),
                       false};
    if (is_red)
        tl_write(e, tl_opd(e, 0), kind == 2 ? r : tl_icmp(e, LLVMIntNE, r, tl_const(e, 32, 0)),
                 false);
    if (may_be_none)
        tl_if_end(e, &i);
    e->n_barriers++;
}

/* A cluster is one block here: nobody is waited for on arrival, and the other threads of the block
 * afterwards. */
static void emit_cluster_barrier(struct tl_emit *e)
{
    enum { RESERVED_BARRIER = 15 };
    LLVMBuildFence(e->b, LLVMAtomicOrderingSequentiallyConsistent, false, "");
    if (tl_has(e, TL_MOD_arrive))
        return;
    LLVMValueRef args[7] = {e->f->frame, e->f->warp,        u32(e, 0), u32(e, RESERVED_BARRIER),
                            u32(e, 0),   tl_active_bits(e), u32(e, 0)};
    struct tl_if i;
    tl_if_begin(e, &i, LLVMBuildICmp(e->b, LLVMIntNE, tl_active_bits(e), u32(e, 0), ""));
    tl_call_frame(e, offsetof(struct tl_dev_calls, barrier), e->i32, args, 7);
    tl_if_end(e, &i);
    e->n_barriers++;
}

/* A warp sleeps for as long as the first of its lanes wants. */
static void emit_sleep(struct tl_emit *e)
{
    struct tl_if i;
    bool may_be_none = e->must_blend;
    if (may_be_none)
        tl_if_begin(e, &i, LLVMBuildICmp(e->b, LLVMIntNE, tl_active_bits(e), u32(e, 0), ""));
    LLVMValueRef args[3] = {e->f->frame, e->f->warp, scalar32(e, tl_opd(e, 0))};
    tl_call_frame(e, offsetof(struct tl_dev_calls, sleep), e->voidt, args, 3);
    if (may_be_none)
        tl_if_end(e, &i);
}

bool tl_emit_barrier(struct tl_emit *e)
{
    switch (e->inst->inst.form->op) {
    case TL_OP_bar:
    case TL_OP_barrier:
        if (tl_has(e, TL_MOD_warp))
            tl_emit_warp_barrier(e);
        else if (tl_has(e, TL_MOD_cluster))
            emit_cluster_barrier(e);
        else
            emit_block_barrier(e);
        return true;
    case TL_OP_membar:
    case TL_OP_fence:
        LLVMBuildFence(e->b, LLVMAtomicOrderingSequentiallyConsistent, false, "");
        return true;
    case TL_OP_nanosleep:
        emit_sleep(e);
        return true;
    case TL_OP_griddepcontrol:
    case TL_OP_setmaxnreg:
    case TL_OP_brkpt:
    case TL_OP_pmevent:
        return true;
    case TL_OP_trap:
        tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, tl_active_bits(e), u32(e, 0), ""),
                    TL_DEV_FAULT_TRAP);
        return true;
    default:
        return false;
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The memory of a parameter, with 32 threads' worth of it. */
static struct tl_placed *param_memory(struct tl_emit *e, const struct tl_ptx_operand *o)
{
    struct tl_placed *p = o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_VAR
                              ? tl_find_placed(e, o->sym->decl)
                              : NULL;
    if (p == NULL || p->space != 'a') {
        /* Declared and never written, or never read: make it now, through an access that is
         * dropped. */
        if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_VAR) {
            struct tl_ptx_operand base = *o,
                                  address = {.kind = TL_OPD_ADDR, .n = 1, .elems = &base};
            tl_address_of(e, &address, TL_MOD_param);
            return tl_find_placed(e, o->sym->decl);
        }
        tl_emit_unsupported(e, "this call's parameters");
        return NULL;
    }
    return p;
}

/* One lane's word of a parameter. */
static LLVMValueRef lane_param(struct tl_emit *e, const struct tl_placed *p, LLVMValueRef lane)
{
    LLVMValueRef offset = LLVMBuildMul(e->b, LLVMBuildZExt(e->b, lane, e->i64, ""),
                                       LLVMConstInt(e->i64, p->bytes, false), "");
    return LLVMBuildGEP2(e->b, e->i8, p->slot, &offset, 1, "");
}

static LLVMValueRef load_param(struct tl_emit *e, const struct tl_placed *p, LLVMValueRef lane,
                               LLVMTypeRef type)
{
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, lane_param(e, p, lane), "");
    LLVMSetAlignment(v, 1);
    return v;
}

/* TL_NEST_FUNCTION: what is asked, and seven arguments. */
static LLVMValueRef ask_runtime(struct tl_emit *e, struct tl_placed *const in[8], LLVMValueRef lane)
{
    LLVMValueRef list = tl_alloca(e, LLVMArrayType(e->i64, 7), "arguments");
    for (unsigned i = 0; i < 7; i++) {
        LLVMValueRef at = LLVMConstInt(e->i64, i, false);
        LLVMBuildStore(e->b, load_param(e, in[i + 1], lane, e->i64),
                       LLVMBuildGEP2(e->b, e->i64, list, &at, 1, ""));
    }
    LLVMValueRef thread = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, e->f->warp, u32(e, TL_LANES), ""),
                                       lane, "");
    LLVMValueRef args[4] = {e->f->frame, thread, load_param(e, in[0], lane, e->i32), list};
    return tl_call_frame(e, offsetof(struct tl_dev_calls, runtime), e->i64, args, 4);
}

/* Functions that the driver brings: once per active lane. */
static bool emit_system_call(struct tl_emit *e, struct tl_str name, const struct tl_ptx_call *call)
{
    struct tl_placed *in[8], *out = NULL;
    uint32_t n = call->args != NULL ? call->args->n : 0;
    bool is_printf = tl_str_is(name, "vprintf"), is_malloc = tl_str_is(name, "malloc"),
         is_free = tl_str_is(name, "free");
    bool is_assert = tl_str_is(name, "__assertfail"),
         is_condition = tl_str_is(name, "cudaGraphSetConditional"),
         is_runtime = tl_str_is(name, TL_NEST_FUNCTION);
    if (n > 8 ||
        (!is_printf && !is_malloc && !is_free && !is_assert && !is_condition && !is_runtime))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        in[i] = param_memory(e, &call->args->elems[i]);
        if (in[i] == NULL)
            return true;
    }
    if (call->rets != NULL && call->rets->n == 1)
        out = param_memory(e, &call->rets->elems[0]);
    if (((is_printf || is_condition) && n != 2) || ((is_malloc || is_free) && n != 1) ||
        (is_assert && n < 4) || (is_runtime && n != 8))
        return false;
    struct tl_lane_loop l;
    tl_lanes_begin(e, &l);
    LLVMValueRef r = NULL;
    if (is_printf) {
        LLVMValueRef args[3] = {e->f->frame, load_param(e, in[0], l.lane, e->ptr),
                                load_param(e, in[1], l.lane, e->ptr)};
        r = tl_call_frame(e, offsetof(struct tl_dev_calls, vprintf), e->i32, args, 3);
    } else if (is_malloc) {
        LLVMValueRef args[2] = {e->f->frame, load_param(e, in[0], l.lane, e->i64)};
        r = tl_call_frame(e, offsetof(struct tl_dev_calls, malloc), e->ptr, args, 2);
    } else if (is_free) {
        LLVMValueRef args[2] = {e->f->frame, load_param(e, in[0], l.lane, e->ptr)};
        tl_call_frame(e, offsetof(struct tl_dev_calls, free), e->voidt, args, 2);
    } else if (is_runtime) {
        r = ask_runtime(e, in, l.lane);
    } else if (is_condition) { /* the handle is where a graph's node looks */
        LLVMSetAlignment(LLVMBuildStore(e->b, load_param(e, in[1], l.lane, e->i32),
                                        load_param(e, in[0], l.lane, e->ptr)),
                         4);
    } else {
        LLVMValueRef args[7] = {e->f->frame,
                                e->f->warp,
                                l.lane,
                                load_param(e, in[0], l.lane, e->ptr),
                                load_param(e, in[1], l.lane, e->ptr),
                                load_param(e, in[2], l.lane, e->i32),
                                load_param(e, in[3], l.lane, e->ptr)};
        tl_call_frame(e, offsetof(struct tl_dev_calls, assertfail), e->voidt, args, 7);
    }
    if (r != NULL && out != NULL)
        LLVMSetAlignment(LLVMBuildStore(e->b, r, lane_param(e, out, l.lane)), 1);
    tl_lanes_end(e, &l);
    return true;
}

/* What stands for a parameter between caller and callee: the memory that the call names, or some
 * for a register or a number. */
static LLVMValueRef argument(struct tl_emit *e, const struct tl_ptx_operand *o,
                             const struct tl_ptx_decl *wanted, bool is_result)
{
    if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_VAR) {
        struct tl_placed *p = param_memory(e, o);
        return p != NULL ? p->slot : NULL;
    }
    uint32_t bits = tl_ptx_type_bytes(wanted->type) * 8;
    if (bits == 0 || wanted->vec != 1 || wanted->count != 1) {
        tl_emit_unsupported(e, "this call's parameters");
        return NULL;
    }
    LLVMValueRef slot = tl_alloca(e, tl_vec(tl_int(e, bits)), "argument");
    LLVMSetAlignment(slot, 64);
    if (!is_result)
        LLVMBuildStore(e->b, tl_widen(e, tl_read(e, o, bits)).v, slot);
    return slot;
}

/* Results that are registers, for the lanes that have called. */
static void take_results(struct tl_emit *e, const struct tl_ptx_operand *rets, LLVMValueRef *slots,
                         LLVMValueRef active, const struct tl_ptx_decl *d)
{
    LLVMValueRef mask = e->mask;
    bool blends = e->must_blend;
    e->mask = tl_mask_of_bits(e, active);
    e->must_blend = true;
    for (uint32_t i = 0; rets != NULL && i < rets->n && d != NULL; i++, d = d->next) {
        const struct tl_ptx_operand *o = &rets->elems[i];
        if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_VAR)
            continue;
        LLVMTypeRef type = tl_vec(tl_int(e, tl_ptx_type_bytes(d->type) * 8));
        tl_write(e, o, (struct tl_val){LLVMBuildLoad2(e->b, type, slots[i], ""), true}, false);
    }
    e->mask = mask;
    e->must_blend = blends;
}

/* With the lanes of `active` (i32). */
static void emit_function_call(struct tl_emit *e, const struct tl_func_ref *r,
                               const struct tl_ptx_call *call, LLVMValueRef active)
{
    LLVMValueRef args[64] = {e->f->frame, e->f->warp, active};
    unsigned n = 3;
    for (int list = 0; list < 2; list++) {
        const struct tl_ptx_operand *o = list == 0 ? call->rets : call->args;
        const struct tl_ptx_decl *d = list == 0 ? r->pf->func->rets : r->pf->func->params;
        for (uint32_t i = 0; o != NULL && i < o->n && n < 64 && d != NULL; i++, d = d->next) {
            args[n] = argument(e, &o->elems[i], d, list == 0);
            if (args[n++] == NULL || e->rc != 0)
                return;
        }
    }
    if (n != LLVMCountParams(r->fn)) {
        tl_emit_unsupported(e, "a call with another number of parameters");
        return;
    }
    LLVMBuildCall2(e->b, r->type, r->fn, args, n, "");
    take_results(e, call->rets, args + 3, active, r->pf->func->rets);
}

static const struct tl_func_ref *find_function(struct tl_emit *e,
                                               const struct tl_ptx_program_func *pf)
{
    const struct tl_func_ref *r = e->funcs;
    while (r != NULL && r->pf != pf)
        r = r->next;
    return r;
}

/* Whether a call's parameters or results are of such sizes. */
static bool sizes_are(struct tl_emit *e, const struct tl_ptx_operand *given,
                      const struct tl_ptx_decl *wanted)
{
    uint32_t i = 0, n = given != NULL ? given->n : 0;
    for (; wanted != NULL; wanted = wanted->next, i++) {
        if (i >= n)
            return false;
        const struct tl_ptx_operand *o = &given->elems[i];
        uint64_t bytes = (uint64_t)tl_ptx_type_bytes(wanted->type) * wanted->vec * wanted->count;
        if (o->kind != TL_OPD_SYM)
            continue; /* a number fits */
        if (o->sym->kind == TL_SYM_REG) {
            if (e->f->regs[o->sym->id].bits != bytes * 8)
                return false;
            continue;
        }
        const struct tl_placed *p = param_memory(e, o);
        if (p == NULL || p->bytes != bytes)
            return false;
    }
    return i == n;
}

/* Calls in turn each function that fits, with the lanes that mean it. */
static void emit_indirect_call(struct tl_emit *e, const struct tl_ptx_call *call)
{
    struct tl_val target = tl_read(e, call->callee, 64);
    LLVMValueRef left_slot = tl_alloca(e, e->i32, "uncalled");
    LLVMBuildStore(e->b, tl_active_bits(e), left_slot);
    for (const struct tl_ptx_program_func *pf = e->p->funcs; pf != NULL && e->rc == 0;
         pf = pf->next) {
        struct tl_str name = pf->func->name;
        const struct tl_ptx_sym sym = {.name = name};
        const struct tl_ptx_program_func *body = tl_ptx_program_callee(e->p, &sym);
        const struct tl_func_ref *r = body != NULL ? find_function(e, body) : NULL;
        if (r == NULL || !sizes_are(e, call->rets, body->func->rets) ||
            !sizes_are(e, call->args, body->func->params))
            continue;
        struct tl_val is_it = tl_icmp(e, LLVMIntEQ, target,
                                      tl_const(e, 64, tl_dev_function_address(name.p, name.n)));
        LLVMValueRef left = LLVMBuildLoad2(e->b, e->i32, left_slot, "");
        LLVMValueRef mine = is_it.is_vec ? LLVMBuildAnd(e->b, tl_mask_bits(e, is_it.v), left, "")
                                         : LLVMBuildSelect(e->b, is_it.v, left, u32(e, 0), "");
        LLVMBuildStore(e->b, LLVMBuildXor(e->b, left, mine, ""), left_slot);
        struct tl_if i;
        tl_if_begin(e, &i, LLVMBuildICmp(e->b, LLVMIntNE, mine, u32(e, 0), ""));
        emit_function_call(e, r, call, mine);
        tl_if_end(e, &i);
    }
    LLVMValueRef left = LLVMBuildLoad2(e->b, e->i32, left_slot, "");
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, left, u32(e, 0), ""), TL_DEV_FAULT_ADDRESS);
}

/* A function that nobody defines, by its name.  Of the device runtime, what it is for. */
static void refuse_call(struct tl_emit *e, struct tl_str name)
{
    static const char *const launches[] = {"cnp", "__cuda_syscall_cnp", "__cudaCDP",
                                           "cudaLaunchDevice", "cudaGetParameterBuffer"};
    const char *why = "no text that it was linked of defines";
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++)
        if (tl_str_starts(name, launches[i]))
            why = "kernels cannot be launched from the device here: there is no";
    const char *text = tl_arena_printf(e->arena, "%s " TL_STR_FMT, why, TL_STR_ARG(name));
    tl_emit_unsupported(e, text != NULL ? text : why);
}

bool tl_emit_call(struct tl_emit *e)
{
    struct tl_ptx_call call;
    if (e->inst->inst.form->op != TL_OP_call)
        return false;
    if (!tl_ptx_inst_call(e->inst, &call)) {
        tl_emit_unsupported(e, "this form of call");
        return true;
    }
    if (call.callee->sym->kind != TL_SYM_FUNC) {
        emit_indirect_call(e, &call);
        return true;
    }
    const struct tl_ptx_program_func *pf = tl_ptx_program_callee(e->p, call.callee->sym);
    const struct tl_func_ref *r = pf != NULL ? find_function(e, pf) : NULL;
    if (r != NULL)
        emit_function_call(e, r, &call, tl_active_bits(e));
    else if (!emit_system_call(e, call.callee->sym->name, &call))
        refuse_call(e, call.callee->sym->name);
    return true;
}

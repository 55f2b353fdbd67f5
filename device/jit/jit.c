/* A PTX kernel to an object file: translates the functions, wraps them for the process, runs
 * LLVM. */
#include "device/jit/jit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/form.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

enum {
    MAX_INLINED = 1000, /* instructions of a kernel that becomes one function */
};

/* --- functions -------------------------------------------------------------------------------- */

static void add_attribute(struct tl_emit *e, LLVMValueRef fn, const char *key, const char *value)
{
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateStringAttribute(e->ctx, key, (unsigned)strlen(key), value,
                                                      (unsigned)strlen(value)));
}

LLVMValueRef tl_new_function(struct tl_emit *e, const char *name, LLVMTypeRef type,
                             bool is_exported)
{
    LLVMValueRef fn = LLVMAddFunction(e->mod, name, type);
    unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMSetLinkage(fn, is_exported ? LLVMExternalLinkage : LLVMInternalLinkage);
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->ctx, nounwind, 0));
    if (e->has_avx512)
        add_attribute(e, fn, "prefer-vector-width", "512");
    add_attribute(e, fn, "no-builtins", "true");
    add_attribute(e, fn, "frame-pointer", "all");
    /* Each frame's size is told to on_diagnostic.  Frames may be larger than the guard below a
     * stack: they are touched step by step, so that none leaps over it. */
    add_attribute(e, fn, "warn-stack-size", "0");
    add_attribute(e, fn, "probe-stack", "inline-asm");
    add_attribute(e, fn, "stack-probe-size", "32768");
    return fn;
}

bool tl_is_small(uint32_t n_insts)
{
    return n_insts <= MAX_INLINED;
}

void tl_inline_if_small(struct tl_emit *e, LLVMValueRef fn, uint32_t n_insts)
{
    unsigned always = LLVMGetEnumAttributeKindForName("alwaysinline", 12);
    if (tl_is_small(n_insts))
        LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex,
                                LLVMCreateEnumAttribute(e->ctx, always, 0));
}

static bool is_in(const struct tl_ptx_decl *list, const struct tl_ptx_decl *d)
{
    while (list != NULL && list != d)
        list = list->next;
    return list != NULL;
}

struct width_scan {
    struct tl_emit *e;
    struct tl_fn *f;
};

static int note_width(void *data, struct tl_ptx_operand *o)
{
    struct width_scan *w = data;
    if (o->sym->kind != TL_SYM_REG)
        return 0;
    const struct tl_ptx_decl *d = o->sym->decl;
    struct tl_reg *r = &w->f->regs[o->sym->id];
    r->bits = tl_str_is(d->type, "pred") ? 1 : tl_ptx_type_bytes(d->type) * 8;
    r->vec = d->vec;
    r->is_opaque = d->vec > 1 || is_in(w->f->pf->func->params, d) || is_in(w->f->pf->func->rets, d);
    if (d->vec > TL_MAX_GROUPS)
        tl_emit_unsupported(w->e, "a vector register of so many elements");
    return 0;
}

static int note_widths(void *data, struct tl_ptx_stmt *s)
{
    struct width_scan *w = data;
    w->e->inst = s;
    if (s->inst.guard != NULL)
        w->f->regs[s->inst.guard->id].bits = 1;
    return tl_ptx_each_sym(s->inst.operands, s->n_operands, note_width, w);
}

static int analyse(struct tl_emit *e, struct tl_fn *f, const struct tl_ptx_program_func *pf)
{
    const uint32_t *block = e->options->block;
    bool rows = block[1] * block[2] == 1 || block[0] % TL_LANES == 0;
    *f = (struct tl_fn){.pf = pf};
    f->regs = tl_arena_zalloc(e->arena, ((size_t)pf->func->n_regs + 1) * sizeof *f->regs);
    if (f->regs == NULL || tl_ptx_cfg_build_cut(&f->cfg, e->arena, pf->func) < 0 ||
        tl_ptx_diverge(&f->d, e->arena, &f->cfg, rows) < 0)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    tl_ptx_each_inst(pf->func->body, note_widths, &(struct width_scan){e, f});
    if (e->rc == 0 && tl_split_registers(e, f) < 0)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    int rc = e->rc != 0 ? e->rc : tl_lanes_analyse(e, f);
    if (rc == 0)
        rc = tl_mark_loops(e, f);
    return rc == 0 ? tl_find_local(e, f) : rc;
}

static LLVMValueRef first_lanes(struct tl_emit *e, uint32_t lanes)
{
    LLVMValueRef bits[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        bits[i] = LLVMConstInt(e->i1, i < lanes, false);
    return LLVMConstVector(bits, TL_LANES);
}

/* void warp(frame, warp number), for full warps or for the last one of a block that is no multiple
 * of 32. */
static LLVMValueRef emit_entry(struct tl_emit *e, const char *name, uint32_t lanes)
{
    struct tl_fn *f = tl_arena_zalloc(e->arena, sizeof *f);
    LLVMTypeRef args[2] = {e->ptr, e->i32};
    if (f == NULL || analyse(e, f, e->p->entry) < 0)
        return NULL;
    f->fn = tl_new_function(e, name, LLVMFunctionType(e->voidt, args, 2, false), false);
    f->frame = LLVMGetParam(f->fn, 0);
    f->warp = LLVMGetParam(f->fn, 1);
    if (lanes < TL_LANES)
        f->entry_mask = first_lanes(e, lanes);
    tl_inline_if_small(e, f->fn, f->cfg.n_insts);
    return tl_emit_function(e, f) == 0 ? f->fn : NULL;
}

/* The functions a kernel calls: parameters live in memory, 32 threads' worth, one behind the
 * other. */
static int emit_callees(struct tl_emit *e)
{
    for (const struct tl_ptx_program_func *pf = e->p->funcs; pf != NULL; pf = pf->next) {
        struct tl_func_ref *r = tl_arena_zalloc(e->arena, sizeof *r);
        if (r == NULL)
            return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        if (pf == e->p->entry || !pf->func->has_body)
            continue;
        LLVMTypeRef args[3] = {e->ptr, e->i32, e->i32}, all[64];
        unsigned n = 3;
        memcpy(all, args, sizeof args);
        for (const struct tl_ptx_decl *d = pf->func->rets; d != NULL && n < 64; d = d->next)
            all[n++] = e->ptr;
        for (const struct tl_ptx_decl *d = pf->func->params; d != NULL && n < 64; d = d->next)
            all[n++] = e->ptr;
        r->pf = pf;
        r->type = LLVMFunctionType(e->voidt, all, n, false);
        r->fn = tl_new_function(e, "function", r->type, false);
        r->next = e->funcs;
        e->funcs = r;
    }
    for (struct tl_func_ref *r = e->funcs; r != NULL && e->rc == 0; r = r->next) {
        struct tl_fn *f = tl_arena_zalloc(e->arena, sizeof *f);
        if (f == NULL || analyse(e, f, r->pf) < 0)
            return e->rc != 0 ? e->rc : -ENOMEM;
        f->fn = r->fn;
        f->frame = LLVMGetParam(f->fn, 0);
        f->warp = LLVMGetParam(f->fn, 1);
        unsigned n = 3;
        for (int list = 0; list < 2; list++) {
            const struct tl_ptx_decl *d = list == 0 ? r->pf->func->rets : r->pf->func->params;
            for (; d != NULL; d = d->next) {
                struct tl_placed *p = tl_place(e, d, 'a', d, 0);
                if (p != NULL)
                    p->slot = LLVMGetParam(f->fn, n++);
            }
        }
        f->mask_param = LLVMGetParam(f->fn, 2);
        if (tl_emit_function(e, f) < 0)
            return e->rc;
    }
    return e->rc;
}

/* tally_warp for single threads: the same code with one lane in its mask. */
static LLVMValueRef emit_lane(struct tl_emit *e)
{
    struct tl_fn *f = tl_arena_zalloc(e->arena, sizeof *f);
    LLVMTypeRef args[2] = {e->ptr, e->i32};
    if (f == NULL || analyse(e, f, e->p->entry) < 0)
        return NULL;
    f->fn = tl_new_function(e, "tally_warp", LLVMFunctionType(e->voidt, args, 2, false), true);
    f->frame = LLVMGetParam(f->fn, 0);
    f->lane_param = LLVMGetParam(f->fn, 1);
    return tl_emit_function(e, f) == 0 ? f->fn : NULL;
}

/* How barriers are met: by loops over warps where that is possible (and then all is done), else by
 * a stack per thread or per warp.  Then e->n_insts has the kernel's instructions. */
static bool choose_barriers(struct tl_emit *e)
{
    struct tl_fn *f = tl_arena_zalloc(e->arena, sizeof *f);
    if (f == NULL || analyse(e, f, e->p->entry) < 0)
        return false;
    e->uses_lanes = tl_lanes_wait_apart(e, f) && !tl_has_warp_wide(e);
    if (!e->uses_lanes && tl_emit_fission(e, f))
        return true;
    e->n_insts = f->cfg.n_insts;
    return false;
}

/* A warp of any number: full ones to one function, the rest of the block to the other. */
static LLVMValueRef emit_warp(struct tl_emit *e, LLVMValueRef full, LLVMValueRef part,
                              uint32_t threads)
{
    LLVMTypeRef args[2] = {e->ptr, e->i32}, type = LLVMFunctionType(e->voidt, args, 2, false);
    bool is_exported = e->n_barriers > 0; /* else only whole blocks are run */
    LLVMValueRef fn = tl_new_function(e, is_exported ? "tally_warp" : "warp", type, is_exported);
    if (!is_exported)
        tl_inline_if_small(e, fn, e->n_insts);
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(e->ctx, fn, "entry");
    LLVMValueRef values[2] = {LLVMGetParam(fn, 0), LLVMGetParam(fn, 1)};
    LLVMPositionBuilderAtEnd(e->b, entry);
    if (part != NULL && full != NULL) {
        LLVMBasicBlockRef whole = LLVMAppendBasicBlockInContext(e->ctx, fn, "whole");
        LLVMBasicBlockRef rest = LLVMAppendBasicBlockInContext(e->ctx, fn, "rest");
        LLVMValueRef is_whole = LLVMBuildICmp(e->b, LLVMIntULT, values[1],
                                              LLVMConstInt(e->i32, threads / TL_LANES, false), "");
        LLVMBuildCondBr(e->b, is_whole, whole, rest);
        LLVMPositionBuilderAtEnd(e->b, whole);
        LLVMBuildCall2(e->b, type, full, values, 2, "");
        LLVMBuildRetVoid(e->b);
        LLVMPositionBuilderAtEnd(e->b, rest);
        full = NULL;
    }
    LLVMBuildCall2(e->b, type, full != NULL ? full : part, values, 2, "");
    LLVMBuildRetVoid(e->b);
    return fn;
}

/* tally_blocks(frame, first, count) around the code for one warp: two loops, over block numbers and
 * over warps; the frame's ctaid is set for each block. */
struct loops {
    LLVMValueRef fn;
    LLVMBasicBlockRef entry; /* of the function; not ended */
    LLVMBasicBlockRef warp;  /* begins with `w`, the number of the warp, a phi without values */
    LLVMValueRef w;
    LLVMBasicBlockRef end; /* of the code; not ended */
    uint32_t n_warps;
};

static void begin_loops(struct tl_emit *e, struct loops *l, const char *name, uint32_t n_warps)
{
    LLVMTypeRef args[3] = {e->ptr, e->i32, e->i32};
    l->fn = tl_new_function(e, name, LLVMFunctionType(e->voidt, args, 3, false), true);
    l->entry = LLVMAppendBasicBlockInContext(e->ctx, l->fn, "entry");
    l->warp = LLVMAppendBasicBlockInContext(e->ctx, l->fn, "warp");
    LLVMPositionBuilderAtEnd(e->b, l->warp);
    l->w = LLVMBuildPhi(e->b, e->i32, "");
    l->n_warps = n_warps;
}

/* Writes what is around l->warp .. l->end, which are there. */
static void end_loops(struct tl_emit *e, const struct loops *l)
{
    LLVMValueRef frame = LLVMGetParam(l->fn, 0), first = LLVMGetParam(l->fn, 1),
                 count = LLVMGetParam(l->fn, 2);
    LLVMValueRef zero = LLVMConstInt(e->i32, 0, false), one = LLVMConstInt(e->i32, 1, false);
    LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->ctx, l->fn, "block");
    LLVMBasicBlockRef next = LLVMAppendBasicBlockInContext(e->ctx, l->fn, "next");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->ctx, l->fn, "done");
    struct tl_fn f = {.fn = l->fn, .frame = frame};
    e->f = &f;
    LLVMPositionBuilderAtEnd(e->b, l->entry);
    LLVMValueRef x = tl_field(e, offsetof(struct tl_dev_frame, grid), e->i32);
    LLVMValueRef y = tl_field(e, (uint32_t)offsetof(struct tl_dev_frame, grid) + 4, e->i32);
    LLVMValueRef end = LLVMBuildAdd(e->b, first, count, "");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, count, zero, ""), done, block);
    LLVMPositionBuilderAtEnd(e->b, block);
    /* Divided anew for each: a few nanoseconds that the processor has while it still runs the block
     * before, against as many instructions again to compile. */
    LLVMValueRef n = LLVMBuildPhi(e->b, e->i32, ""), rows = LLVMBuildUDiv(e->b, n, x, "");
    LLVMValueRef index[3] = {LLVMBuildURem(e->b, n, x, ""), LLVMBuildURem(e->b, rows, y, ""),
                             LLVMBuildUDiv(e->b, rows, y, "")};
    for (unsigned i = 0; i < 3; i++) {
        LLVMValueRef at = LLVMConstInt(e->i64, offsetof(struct tl_dev_frame, ctaid) + 4 * i, false);
        LLVMBuildStore(e->b, index[i], LLVMBuildGEP2(e->b, e->i8, frame, &at, 1, ""));
    }
    LLVMBuildBr(e->b, l->warp);
    LLVMPositionBuilderAtEnd(e->b, l->end);
    LLVMValueRef w_next = LLVMBuildAdd(e->b, l->w, one, "");
    LLVMBuildCondBr(
        e->b, LLVMBuildICmp(e->b, LLVMIntULT, w_next, LLVMConstInt(e->i32, l->n_warps, false), ""),
        l->warp, next);
    LLVMAddIncoming(l->w, (LLVMValueRef[2]){zero, w_next}, (LLVMBasicBlockRef[2]){block, l->end},
                    2);
    LLVMPositionBuilderAtEnd(e->b, next);
    LLVMValueRef n_next = LLVMBuildAdd(e->b, n, one, "");
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntNE, n_next, end, ""), block, done);
    LLVMAddIncoming(n, (LLVMValueRef[2]){first, n_next}, (LLVMBasicBlockRef[2]){l->entry, next}, 2);
    LLVMPositionBuilderAtEnd(e->b, done);
    LLVMBuildRetVoid(e->b);
}

void tl_emit_blocks(struct tl_emit *e, LLVMValueRef warp_fn, uint32_t n_warps)
{
    struct loops l;
    bool is_block = n_warps == 0; /* the function runs a whole block */
    LLVMTypeRef args[2] = {e->ptr, e->i32};
    LLVMTypeRef type = LLVMFunctionType(e->voidt, args, is_block ? 1 : 2, false);
    begin_loops(e, &l, "tally_blocks", n_warps);
    LLVMValueRef values[2] = {LLVMGetParam(l.fn, 0), l.w};
    LLVMBuildCall2(e->b, type, warp_fn, values, is_block ? 1 : 2, "");
    l.end = l.warp;
    end_loops(e, &l);
}

/* Registers hold nothing at a warp's start.  That is said, because else LLVM would carry them over
 * from the warp before. */
static void forget_registers(struct tl_emit *e, const struct tl_fn *f)
{
    for (uint32_t i = 0; i < f->n_regs; i++) {
        const struct tl_reg *r = &f->regs[i];
        for (uint32_t g = 0; r->bits != 0 && g < r->n_slots; g++) {
            if (r->slot[g] != NULL)
                LLVMBuildStore(e->b, LLVMGetUndef(r->type), r->slot[g]);
        }
    }
    LLVMBuildStore(e->b, LLVMGetUndef(tl_vec(e->i1)), f->carry_slot);
}

/* A kernel all of whose warps are alike, as one function: tally_blocks with its code inside, or
 * tally_warp if it turns out to wait for other warps, which then leaves its third parameter alone.
 * That is cheaper to compile than by having LLVM put two functions together. */
static int emit_inside(struct tl_emit *e, uint32_t threads)
{
    struct loops l;
    struct tl_fn *f = tl_arena_zalloc(e->arena, sizeof *f);
    if (f == NULL || analyse(e, f, e->p->entry) < 0)
        return e->rc != 0 ? e->rc : -ENOMEM;
    begin_loops(e, &l, "kernel", (threads + TL_LANES - 1) / TL_LANES);
    f->fn = l.fn;
    f->frame = LLVMGetParam(l.fn, 0);
    f->warp = l.w;
    f->allocas = l.entry;
    f->is_body = true;
    if (threads < TL_LANES)
        f->entry_mask = first_lanes(e, threads);
    if (tl_emit_function(e, f) < 0)
        return e->rc;
    LLVMPositionBuilderAtEnd(e->b, l.warp);
    forget_registers(e, f);
    LLVMBuildBr(e->b, f->start);
    LLVMPositionBuilderAtEnd(e->b, f->end);
    tl_leave_function(e);
    l.end = LLVMGetInsertBlock(e->b);
    if (e->n_barriers == 0) {
        LLVMSetValueName2(l.fn, "tally_blocks", 12);
        end_loops(e, &l);
        return e->rc;
    }
    LLVMSetValueName2(l.fn, "tally_warp", 10);
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, l.entry);
    LLVMBuildBr(e->b, l.warp);
    LLVMValueRef number = LLVMGetParam(l.fn, 1);
    LLVMAddIncoming(l.w, &number, &l.entry, 1);
    return e->rc;
}

/* tally_info: struct tl_dev_info as bytes. */
static void emit_info(struct tl_emit *e)
{
    struct tl_buf out = {0};
    struct tl_dev_info info = {
        .abi_version = TL_DEV_ABI_VERSION,
        .block = {e->options->block[0], e->options->block[1], e->options->block[2]},
        .shared_bytes = e->shared_bytes,
        .local_bytes = e->local_bytes,
        .n_barriers = e->n_barriers,
        .n_variables = e->n_variables,
        .n_instructions = e->n_insts,
        .registers = 32,
        .uses_lanes = e->uses_lanes,
        .uses_grid_sync = e->uses_grid_sync,
    };
    for (const struct tl_placed *p = e->placed; p != NULL; p = p->next) {
        if (p->space == 'p' && p->offset + p->bytes > info.param_bytes)
            info.param_bytes = (uint32_t)(p->offset + p->bytes);
    }
    tl_buf_add(&out, (const char *)&info, sizeof info);
    tl_buf_str(&out, e->p->entry->func->name);
    tl_buf_putc(&out, 0);
    for (uint32_t i = 0; i < e->n_variables; i++) {
        for (const struct tl_placed *p = e->placed; p != NULL; p = p->next) {
            if (p->space == 'g' && p->offset == i) {
                tl_buf_str(&out, p->name);
                tl_buf_putc(&out, 0);
            }
        }
    }
    if (out.failed) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return;
    }
    LLVMValueRef bytes = LLVMConstStringInContext2(e->ctx, out.p, out.n, true);
    LLVMValueRef global = LLVMAddGlobal(e->mod, LLVMTypeOf(bytes), "tally_info");
    LLVMSetInitializer(global, bytes);
    LLVMSetGlobalConstant(global, true);
    LLVMSetAlignment(global, 16);
    tl_buf_finish(&out);
}

/* The whole module: variables, functions that the kernel calls, the kernel in the form that its
 * barriers allow, and what the process is told about it.  0 or -errno. */
static int translate(struct tl_emit *e)
{
    uint32_t threads = e->options->block[0] * e->options->block[1] * e->options->block[2];
    tl_place_variables(e);
    LLVMValueRef full = NULL, part = NULL;
    if (e->rc == 0 && emit_callees(e) < 0)
        return e->rc;
    if (choose_barriers(e)) {
        if (e->rc == 0)
            emit_info(e);
        return e->rc;
    }
    bool is_one = tl_is_small(e->n_insts) && !e->options->is_least && e->quick == NULL &&
                  (threads % TL_LANES == 0 || threads < TL_LANES);
    e->n_insts = 0;
    if (e->uses_lanes) {
        if (emit_lane(e) != NULL)
            emit_info(e);
        return e->rc;
    }
    if (is_one) {
        int rc = emit_inside(e, threads);
        if (rc == 0)
            emit_info(e);
        return rc != 0 ? rc : e->rc;
    }
    if (threads >= TL_LANES && (full = emit_entry(e, "kernel", TL_LANES)) == NULL)
        return e->rc;
    if (threads % TL_LANES != 0 &&
        (part = emit_entry(e, "kernel_rest", threads % TL_LANES)) == NULL)
        return e->rc;
    bool is_alone = e->n_barriers == 0 && (full == NULL || part == NULL);
    LLVMValueRef warp = is_alone ? (full != NULL ? full : part) : emit_warp(e, full, part, threads);
    if (e->n_barriers == 0)
        tl_emit_blocks(e, warp, (threads + TL_LANES - 1) / TL_LANES);
    emit_info(e);
    return e->rc;
}

/* --- a kernel --------------------------------------------------------------------------------- */

static void init_types(struct tl_emit *e)
{
    e->i1 = LLVMInt1TypeInContext(e->ctx);
    e->i8 = LLVMInt8TypeInContext(e->ctx);
    e->i16 = LLVMInt16TypeInContext(e->ctx);
    e->i32 = LLVMInt32TypeInContext(e->ctx);
    e->i64 = LLVMInt64TypeInContext(e->ctx);
    e->i128 = LLVMInt128TypeInContext(e->ctx);
    e->f16 = LLVMHalfTypeInContext(e->ctx);
    e->f32 = LLVMFloatTypeInContext(e->ctx);
    e->f64 = LLVMDoubleTypeInContext(e->ctx);
    e->ptr = LLVMPointerTypeInContext(e->ctx, 0);
    e->voidt = LLVMVoidTypeInContext(e->ctx);
}

/* The entry of that name, or else the only one.  What a kernel needs may have other kernels in it:
 * it can hold their addresses.  Empty if it cannot be told. */
static struct tl_str entry_of(const struct tl_ptx_index *ix, const char *name)
{
    struct tl_str found = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        if (tl_str_is(item->name, name))
            return item->name;
        found = item->name;
        n++;
    }
    return n == 1 ? found : (struct tl_str){0};
}

/* A parsed kernel: analysed, translated, made code of, in one LLVM context. */
static int compile(struct tl_emit *e, struct tl_jit_object *out)
{
    const struct tl_jit_options *options = e->options;
    const char *features = options->features != NULL ? options->features : tl_jit_host_features();
    int rc = options->is_quick ? tl_quick_init(e) : 0;
    if (rc < 0)
        return rc;
    e->ctx = LLVMContextCreate();
    /* of values; functions keep theirs */
    LLVMContextSetDiscardValueNames(e->ctx, !options->keep_ir);
    tl_watch_frames(e);
    e->mod = LLVMModuleCreateWithNameInContext(e->name, e->ctx);
    e->b = LLVMCreateBuilderInContext(e->ctx);
    e->has_avx512 = !options->is_plain && strstr(features, "+avx512f") != NULL &&
                    strstr(features, "+avx512bw") != NULL &&
                    strstr(features, "+avx512vl") != NULL && strstr(features, "+avx512dq") != NULL;
    e->has_wide_cas = strstr(features, "+cx16") != NULL;
    init_types(e);
    rc = translate(e);
    if (rc == 0 && e->quick != NULL)
        rc = tl_forms_bind(e);
    if (rc == 0)
        rc = tl_generate(e, out);
    tl_quick_finish(e);
    LLVMDisposeBuilder(e->b);
    LLVMDisposeModule(e->mod);
    LLVMContextDispose(e->ctx);
    return rc;
}

/* The whole way, from text.  All that it needs meanwhile is in one arena. */
static int compile_text(const char *text, size_t n, const char *name,
                        const struct tl_jit_options *options, struct tl_jit_object *out,
                        struct tl_error *err)
{
    struct tl_ptx_index *ix;
    struct tl_arena arena;
    struct tl_ptx_program program = {0};
    int rc = tl_ptx_index_create(&ix, text, n, name, err);
    if (rc < 0)
        return rc;
    tl_arena_init(&arena, 0);
    struct tl_emit e = {
        .arena = &arena, .p = &program, .err = err, .options = options, .name = name};
    rc = tl_ptx_program_init(&program, ix, entry_of(ix, name), &arena, err);
    if (rc == 0)
        rc = tl_ptx_program_add_pointees(&program, true);
    if (rc == 0)
        rc = compile(&e, out);
    tl_ptx_program_finish(&program);
    tl_arena_finish(&arena);
    tl_ptx_index_destroy(ix);
    return rc;
}

int tl_jit_compile(const char *text, size_t n, const char *name,
                   const struct tl_jit_options *options, struct tl_jit_object *out,
                   struct tl_error *err)
{
    *out = (struct tl_jit_object){0};
    uint64_t threads = (uint64_t)options->block[0] * options->block[1] * options->block[2];
    if (threads == 0 || threads > 1024)
        return tl_error_set(err, -EINVAL, "%s: a block of %llu threads", name,
                            (unsigned long long)threads);
    struct tl_jit_options o = *options;
    for (;;) {
        struct tl_jit_object made = {0};
        int rc = compile_text(text, n, name, &o, &made, err);
        if (rc == 0) {
            *out = made;
            return 0;
        }
        tl_jit_object_finish(&made);
        /* A quick version may need more stack, or have a form that cannot be called; what is wrong
         * with the kernel itself is found again.  Where translations are verified, mistakes are
         * told. */
        if (!o.is_quick || (rc == -EIO && tl_jit_verifies()))
            return rc;
        o.is_quick = false;
    }
}

void tl_jit_object_finish(struct tl_jit_object *o)
{
    free(o->bytes);
    free(o->ir);
    *o = (struct tl_jit_object){0};
}

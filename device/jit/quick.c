/* Instructions of a quick version as calls.
 *
 * LLVM takes most of its time for vectors.  So in a quick version it sees none: each register is
 * memory, and an instruction with a vector is a call of a function that gets the places of its
 * registers.  The function is written by the same code that writes the instruction in place (so
 * results are equal), once for all instructions that are alike: same form, registers of the same
 * kinds in the same places.  The key says all of that; where translations are verified, each use of
 * a key is held against what was written for it first.
 *
 * What LLVM selects quickly by itself, scalar integers, stays in place, and so does what depends on
 * where it stands: barriers, calls, warp-wide operations where lanes have parted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/jit/form.h"
#include "device/jit/function.h"
#include "device/jit/value.h"
#include "tally/digest.h"

enum {
    MAX_REGS = 40,
    MAX_ARGS = 4 + TL_FORM_IMMEDIATES + MAX_REGS * TL_MAX_GROUPS,
    MAX_ALIGN = 32 /* bytes of the longest access of a lane */
};

enum sort { NO_FORM, PURE, PURE_ANY_NUMBER, WIDENING, MEMORY, ATOMIC, FRAGMENT, WARP_WIDE };

/* What a form is asked for with. */
struct ask {
    struct tl_emit *e;
    enum sort sort;
    struct tl_buf key;
    /* registers of the instruction, one after the other as operands have them; where there are
     * several results, each once */
    struct tl_reg *reg[MAX_REGS];
    struct tl_reg seen[MAX_REGS]; /* the same as the form sees them */
    uint8_t number[MAX_REGS];     /* of each in turn, as operands have them */
    bool is_spread[MAX_REGS];     /* known lanes that the form sees as a vector */
    uint32_t n_regs, n_seen;
    uint32_t n_results;
    uint64_t immediate[TL_FORM_IMMEDIATES];
    uint32_t immediate_at[TL_FORM_IMMEDIATES], n_immediates;
    bool has_offset, has_frame, has_mask; /* as parameters */
    int64_t offset;
    bool is_refused, has_vec, is_wide;
};

/* --- keys ------------------------------------------------------------------------------------- */

static void add(struct ask *a, const void *p, size_t n)
{
    tl_buf_add(&a->key, p, n);
}

static void add_number(struct ask *a, uint64_t n)
{
    add(a, &n, sizeof n);
}

static void add_lanes(struct ask *a, const struct tl_lanes *l)
{
    add_number(a, (uint64_t)tl_groups(a->e) << 2 | (uint64_t)l->has_one_base << 1 | l->is_small);
    add_number(a, (uint64_t)l->base_align << 32 | l->base_limit);
    add(a, l->offset, sizeof l->offset);
}

static uint32_t at_most(uint32_t x, uint32_t most)
{
    return x < most ? x : most;
}

/* A register as a form sees it: what makes no difference there is left out.  Known lanes count
 * where addresses are made of them, or wider indices; else they are a vector like others. */
static struct tl_reg seen_as(struct ask *a, const struct tl_reg *r, bool is_written,
                             bool *is_spread)
{
    struct tl_emit *e = a->e;
    struct tl_reg s = {.bits = r->bits, .vec = r->vec, .is_vec = r->is_vec, .type = r->type};
    bool is_shared = tl_ptx_form_space(e->inst->inst.form) == TL_MOD_shared;
    s.n_slots = r->n_slots;
    s.keeps_lanes = is_written && r->is_vec && e->mask != NULL &&
                    (e->must_blend || r->keeps_lanes || a->sort == MEMORY || a->sort == ATOMIC);
    s.align = a->sort == MEMORY && is_shared ? at_most(r->align, MAX_ALIGN) : 0;
    *is_spread = false;
    if (!r->lanes.is_known)
        return s;
    if (a->sort == PURE || a->sort == PURE_ANY_NUMBER) {
        *is_spread = s.is_vec = true;
        s.type = tl_vec(tl_int(e, r->bits));
        s.n_slots = 1;
        return s;
    }
    s.lanes = r->lanes;
    if (a->sort != WIDENING) {
        s.lanes.is_small = false;
        s.lanes.base_limit = 0;
        s.lanes.base_align = is_shared ? at_most(r->lanes.base_align, MAX_ALIGN) : 1;
    }
    return s;
}

/* Which of the registers it is, and what kind of register. */
static void add_reg(struct ask *a, struct tl_reg *r, bool is_written)
{
    uint8_t i = 0;
    while (i < a->n_regs && (a->reg[i] != r || a->n_results <= 1))
        i++;
    if (i == MAX_REGS || a->n_seen == MAX_REGS) {
        a->is_refused = true;
        return;
    }
    a->number[a->n_seen++] = i;
    add(a, &i, sizeof i);
    if (i < a->n_regs)
        return;
    struct tl_reg *s = &a->seen[a->n_regs];
    a->reg[a->n_regs] = r;
    *s = seen_as(a, r, is_written, &a->is_spread[a->n_regs]);
    a->n_regs++;
    uint8_t kind[8] = {(uint8_t)s->bits,    (uint8_t)s->vec,   s->is_vec,        s->keeps_lanes,
                       (uint8_t)s->n_slots, s->lanes.is_known, (uint8_t)s->align};
    add(a, kind, sizeof kind);
    if (s->lanes.is_known)
        add_lanes(a, &s->lanes);
    a->has_vec |= s->is_vec || s->lanes.is_known || s->vec > 1;
    a->is_wide |= s->bits == 128;
    a->has_mask |= s->keeps_lanes;
}

/* Numbers are parameters where the instruction takes any value there, else part of the key. */
static void add_immediate(struct ask *a, const struct tl_ptx_operand *o, bool is_top)
{
    bool takes = a->sort == PURE_ANY_NUMBER || a->e->inst->inst.form->op == TL_OP_st;
    uint8_t is_parameter = is_top && takes && o->kind != TL_OPD_F64 &&
                           a->n_immediates < TL_FORM_IMMEDIATES;
    add(a, &is_parameter, sizeof is_parameter);
    if (!is_parameter) {
        add_number(a, o->bits);
        return;
    }
    a->immediate[a->n_immediates] = o->bits;
    a->immediate_at[a->n_immediates++] = o->at;
}

/* The offset of the only address is a parameter; the key has what it is a multiple of, where that
 * says something about alignment. */
static void add_offset(struct ask *a, const struct tl_ptx_operand *o)
{
    int64_t offset = o->has_offset ? o->offset : 0;
    uint64_t align = (uint64_t)offset & -(uint64_t)offset;
    if (tl_ptx_form_space(a->e->inst->inst.form) == TL_MOD_shared)
        add_number(a, align == 0 || align > MAX_ALIGN ? MAX_ALIGN : align);
    a->is_refused |= a->has_offset;
    a->has_offset = true;
    a->offset = offset;
}

/* An operand: what it is made of, and in what order. */
static void add_operand(struct ask *a, const struct tl_ptx_operand *o, bool is_written, bool is_top)
{
    const struct tl_fn *f = a->e->f;
    uint8_t head[4] = {o->kind, o->flags, (uint8_t)o->component, 0};
    add(a, head, sizeof head);
    switch ((enum tl_ptx_operand_kind)o->kind) {
    case TL_OPD_INT:
    case TL_OPD_F32:
    case TL_OPD_F64:
        add_immediate(a, o, is_top);
        return;
    case TL_OPD_SINK:
        return;
    case TL_OPD_SYM:
        if (o->sym->kind == TL_SYM_REG && !o->has_offset)
            add_reg(a, &f->regs[is_written ? o->sym->id : tl_reg_read(f, f->now, o->sym->id)],
                    is_written);
        else
            a->is_refused = true;
        return;
    case TL_OPD_ADDR:
        add_offset(a, o);
        is_written = false;
        /* fall through */
    case TL_OPD_VEC:
    case TL_OPD_PAIR:
        add_number(a, o->n);
        for (uint32_t i = 0; i < o->n; i++)
            add_operand(a, &o->elems[i], is_written, false);
        return;
    default:
        a->is_refused = true;
    }
}

/* --- which instructions ----------------------------------------------------------------------- */

static bool is_strong(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_volatile) || tl_ptx_form_has(f, TL_MOD_relaxed) ||
           tl_ptx_form_has(f, TL_MOD_acquire) || tl_ptx_form_has(f, TL_MOD_release) ||
           tl_ptx_form_has(f, TL_MOD_mmio);
}

/* clang-format off */
static const uint8_t sorts[] = {
    [TL_OP_add] = PURE_ANY_NUMBER, [TL_OP_and] = PURE_ANY_NUMBER, [TL_OP_fma] = PURE_ANY_NUMBER,
    [TL_OP_max] = PURE_ANY_NUMBER, [TL_OP_min] = PURE_ANY_NUMBER, [TL_OP_mov] = PURE_ANY_NUMBER,
    [TL_OP_or] = PURE_ANY_NUMBER, [TL_OP_selp] = PURE_ANY_NUMBER, [TL_OP_setp] = PURE_ANY_NUMBER,
    [TL_OP_shl] = PURE_ANY_NUMBER, [TL_OP_shr] = PURE_ANY_NUMBER, [TL_OP_sub] = PURE_ANY_NUMBER,
    [TL_OP_xor] = PURE_ANY_NUMBER,
    [TL_OP_abs] = PURE, [TL_OP_bfe] = PURE, [TL_OP_bfi] = PURE, [TL_OP_bfind] = PURE,
    [TL_OP_brev] = PURE, [TL_OP_clz] = PURE, [TL_OP_cnot] = PURE, [TL_OP_copysign] = PURE,
    [TL_OP_cos] = PURE, [TL_OP_div] = PURE, [TL_OP_dp2a] = PURE, [TL_OP_dp4a] = PURE,
    [TL_OP_ex2] = PURE, [TL_OP_lg2] = PURE, [TL_OP_lop3] = PURE, [TL_OP_mad24] = PURE,
    [TL_OP_mul24] = PURE, [TL_OP_neg] = PURE, [TL_OP_not] = PURE, [TL_OP_popc] = PURE,
    [TL_OP_prmt] = PURE, [TL_OP_rcp] = PURE, [TL_OP_rem] = PURE, [TL_OP_rsqrt] = PURE,
    [TL_OP_sad] = PURE, [TL_OP_set] = PURE, [TL_OP_shf] = PURE, [TL_OP_sin] = PURE,
    [TL_OP_slct] = PURE, [TL_OP_sqrt] = PURE, [TL_OP_tanh] = PURE, [TL_OP_testp] = PURE,
    [TL_OP_mad] = PURE_ANY_NUMBER, [TL_OP_mul] = PURE_ANY_NUMBER,
    [TL_OP_cvt] = PURE,
    [TL_OP_ld] = MEMORY, [TL_OP_st] = MEMORY,
    [TL_OP_atom] = ATOMIC, [TL_OP_red] = ATOMIC,
    [TL_OP_ldmatrix] = FRAGMENT, [TL_OP_match] = WARP_WIDE, [TL_OP_mma] = FRAGMENT,
    [TL_OP_movmatrix] = WARP_WIDE, [TL_OP_redux] = WARP_WIDE, [TL_OP_shfl] = WARP_WIDE,
    [TL_OP_stmatrix] = FRAGMENT, [TL_OP_vote] = WARP_WIDE, [TL_OP_wmma] = FRAGMENT,
};
/* clang-format on */

/* What an instruction's code depends on, apart from operands and mask. */
static enum sort sort_of(const struct tl_ptx_form *f)
{
    enum sort sort = (size_t)f->op < sizeof sorts ? (enum sort)sorts[f->op] : NO_FORM;
    bool is_far = is_strong(f) || tl_ptx_form_space(f) == TL_MOD_param;
    if (tl_ptx_form_has(f, TL_MOD_cc) || tl_ptx_form_has(f, TL_MOD_async) ||
        (sort == MEMORY && is_far))
        return NO_FORM;
    if (f->op == TL_OP_cvt && tl_type_of(f, 0).bits == 64 && tl_type_of(f, 1).bits < 64)
        return WIDENING;
    if ((f->op == TL_OP_mul || f->op == TL_OP_mad) && tl_ptx_form_has(f, TL_MOD_wide))
        return WIDENING;
    return sort;
}

/* Instructions of scalars that LLVM's quick selection knows; what it does not know costs it the
 * whole block. */
static bool is_plain_scalar(const struct tl_emit *e, const struct ask *a)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    struct tl_type t = tl_type_of(f, -1), first = tl_type_of(f, 0);
    bool is_integer = t.kind != TL_T_FLOAT && t.kind != TL_T_BFLOAT && first.kind != TL_T_FLOAT &&
                      first.kind != TL_T_BFLOAT && t.packed == 1;
    if (a->has_vec || a->is_wide)
        return false;
    switch (f->op) {
    case TL_OP_mov:
        return t.bits >= 32;
    case TL_OP_ld:
        return true;
    case TL_OP_add:
    case TL_OP_sub:
        return !tl_ptx_form_has(f, TL_MOD_sat) && is_integer;
    case TL_OP_mul:
    case TL_OP_mad:
        return is_integer && !tl_ptx_form_has(f, TL_MOD_hi) && !tl_ptx_form_has(f, TL_MOD_sat);
    case TL_OP_and:
    case TL_OP_or:
    case TL_OP_xor:
    case TL_OP_not:
    case TL_OP_shl:
    case TL_OP_shr:
    case TL_OP_selp:
    case TL_OP_setp:
    case TL_OP_cvt:
        return is_integer;
    default:
        return false;
    }
}

static void no_memory(struct tl_emit *e)
{
    if (e->rc == 0)
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
}

/* --- writing ---------------------------------------------------------------------------------- */

LLVMValueRef tl_form_immediate(const struct tl_emit *e, const struct tl_ptx_operand *o)
{
    const struct tl_quick *q = e->quick;
    if (q == NULL || q->inside == NULL)
        return NULL;
    for (uint32_t i = 0; i < q->n_immediates; i++) {
        if (q->immediate_at[i] == o->at)
            return q->immediate[i];
    }
    return NULL;
}

LLVMValueRef tl_form_offset(const struct tl_emit *e)
{
    return e->quick != NULL && e->quick->inside != NULL ? e->quick->offset : NULL;
}

/* A copy of an operand whose registers are numbers in a->seen. */
static bool copy_operand(struct ask *a, const struct tl_ptx_operand *o, struct tl_ptx_operand *to,
                         uint32_t *n)
{
    struct tl_arena *arena = a->e->arena;
    *to = *o;
    if (o->kind == TL_OPD_SYM) {
        struct tl_ptx_sym *sym = tl_arena_alloc(arena, sizeof *sym);
        if (sym == NULL)
            return false;
        *sym = *o->sym;
        sym->id = a->number[(*n)++];
        to->sym = sym;
    } else if (o->kind == TL_OPD_ADDR || o->kind == TL_OPD_VEC || o->kind == TL_OPD_PAIR) {
        to->elems = tl_arena_alloc(arena, (o->n + 1) * sizeof *to->elems);
        for (uint32_t i = 0; i < o->n; i++) {
            if (to->elems == NULL || !copy_operand(a, &o->elems[i], &to->elems[i], n))
                return false;
        }
    }
    return true;
}

static bool copy_statement(struct ask *a, struct tl_ptx_stmt *to)
{
    const struct tl_ptx_stmt *from = a->e->inst;
    uint32_t n = 0;
    *to = *from;
    to->inst.operands = tl_arena_alloc(a->e->arena,
                                       (from->n_operands + 1) * sizeof *to->inst.operands);
    if (to->inst.operands == NULL)
        return false;
    for (uint32_t i = 0; i < from->n_operands; i++) {
        if (!copy_operand(a, &from->inst.operands[i], &to->inst.operands[i], &n))
            return false;
    }
    return true;
}

/* The parameters of a form, as arguments() has them, become what the instruction reads. */
static void take_parameters(struct ask *a, struct tl_fn *g)
{
    struct tl_emit *e = a->e;
    struct tl_quick *q = e->quick;
    unsigned n = 0;
    g->frame = a->has_frame ? LLVMGetParam(g->fn, n++) : NULL;
    g->warp = a->has_frame ? LLVMGetParam(g->fn, n++) : NULL;
    e->mask = a->has_mask ? tl_mask_of_bits(e, LLVMGetParam(g->fn, n++)) : NULL;
    g->entry_mask = e->mask;
    q->offset = a->has_offset ? LLVMGetParam(g->fn, n++) : NULL;
    for (q->n_immediates = 0; q->n_immediates < a->n_immediates; q->n_immediates++) {
        q->immediate_at[q->n_immediates] = a->immediate_at[q->n_immediates];
        q->immediate[q->n_immediates] = LLVMGetParam(g->fn, n++);
    }
    for (uint32_t i = 0; i < a->n_regs; i++) {
        for (uint32_t k = 0; k < a->seen[i].n_slots; k++)
            a->seen[i].slot[k] = LLVMGetParam(g->fn, n++);
    }
}

/* The body: the instruction with the form's own registers, without a place in the kernel. */
static void write_body(struct ask *a, struct tl_fn *g)
{
    struct tl_emit *e = a->e;
    static bool in_no_loop[1], in_a_loop[1] = {true};
    struct tl_ptx_stmt stmt;
    take_parameters(a, g);
    bool is_loop = a->sort == ATOMIC && e->f->is_in_loop[e->inst_block];
    e->must_blend = a->has_mask && (a->sort == MEMORY || a->sort == ATOMIC);
    if (!copy_statement(a, &stmt)) {
        no_memory(e);
        return;
    }
    g->is_in_loop = is_loop ? in_a_loop : in_no_loop;
    g->regs = a->seen;
    g->n_regs = a->n_regs;
    g->now = TL_CFG_NONE;
    e->inst_block = 0;
    e->inst = &stmt;
    e->f = g;
    if (!tl_dispatch(e))
        tl_emit_unsupported(e, "unknown to the translator");
}

/* The lanes of a register with known lanes as a vector: bases, then where to. */
static void write_spread(struct ask *a, struct tl_fn *g)
{
    struct tl_emit *e = a->e;
    const struct tl_reg *r = a->reg[0];
    LLVMValueRef bases[TL_MAX_GROUPS];
    e->f = g;
    for (uint32_t k = 0; k < r->n_slots; k++)
        bases[k] = LLVMBuildLoad2(e->b, r->type, LLVMGetParam(g->fn, k), "");
    LLVMBuildStore(e->b, tl_bases_to_lanes(e, bases, &r->lanes, r->bits).v,
                   LLVMGetParam(g->fn, r->n_slots));
}

/* The function of a form, in the module of new ones.  Everything is as it was afterwards. */
static LLVMValueRef write_form(struct ask *a, struct tl_form_use *use)
{
    struct tl_emit *e = a->e, was = *e;
    struct tl_fn g = *e->f;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    e->mod = e->quick->mod;
    e->quick->inside = use;
    g.fn = tl_new_function(e, "form", use->type, true);
    g.n_scratch = g.n_scratch_used = 0;
    g.scratch_inst = NULL;
    g.misaligned = NULL;
    g.outline_area = NULL;
    g.has_read = false;
    g.segment = NULL;
    g.allocas = LLVMAppendBasicBlockInContext(e->ctx, g.fn, "allocas");
    LLVMBasicBlockRef begin = LLVMAppendBasicBlockInContext(e->ctx, g.fn, "begin");
    LLVMPositionBuilderAtEnd(e->b, begin);
    if (a->sort == NO_FORM)
        write_spread(a, &g);
    else
        write_body(a, &g);
    LLVMBuildRetVoid(e->b);
    LLVMPositionBuilderAtEnd(e->b, g.allocas);
    LLVMBuildBr(e->b, begin);
    use->has_read = g.has_read;
    e->quick->inside = NULL;
    int rc = e->rc;
    *e = was;
    e->rc = rc;
    LLVMPositionBuilderAtEnd(e->b, here);
    return g.fn;
}

/* LLVM's text of a form without its head, which has numbers of the module, malloc'ed; NULL if there
 * is no memory. */
static char *text_of(LLVMValueRef fn)
{
    char *text = LLVMPrintValueToString(fn), *body = text != NULL ? strchr(text, '{') : NULL;
    char *copy = body != NULL ? strdup(body) : NULL;
    LLVMDisposeMessage(text);
    return copy;
}

static bool keep_new(struct tl_emit *e, struct tl_form_use *use)
{
    struct tl_quick *q = e->quick;
    if (q->n_new == q->room) {
        uint32_t room = q->room == 0 ? 64 : 2 * q->room;
        struct tl_form_use **more = realloc(q->new, room * sizeof *more);
        if (more == NULL)
            return false;
        q->new = more;
        q->room = room;
    }
    use->number = q->n_new;
    q->new[q->n_new++] = use;
    return true;
}

/* Writes a form that is not kept yet. */
static void make_new(struct ask *a, struct tl_form_use *use)
{
    struct tl_emit *e = a->e;
    char name[32];
    LLVMValueRef fn = write_form(a, use);
    if (tl_jit_verifies())
        use->ir = text_of(fn);
    if (!keep_new(e, use)) {
        no_memory(e);
        return;
    }
    int n = snprintf(name, sizeof name, "form.%u", use->number);
    LLVMSetValueName2(fn, name, (size_t)n);
}

/* Holds what would be written for this instruction against what was written for the key. */
static void verify(struct ask *a, struct tl_form_use *use)
{
    struct tl_emit *e = a->e;
    const char *first = use->form != NULL ? use->form->ir : use->ir;
    uint64_t hash = use->form != NULL ? use->form->ir_hash : tl_form_ir_hash(use->ir);
    struct tl_form_use again = {.type = use->type};
    LLVMValueRef fn = write_form(a, &again);
    char *text = text_of(fn);
    bool had_read = use->form != NULL ? use->form->has_read : use->has_read;
    if (e->rc == 0 && hash != 0 && text != NULL &&
        (hash != tl_form_ir_hash(text) || again.has_read != had_read)) {
        first = first != NULL ? first : "(written by another process)";
        e->rc = tl_error_set(e->err, -EIO,
                             "%s: two instructions share a function that differ, which is a bug of "
                             "ours: %.1500s\n%.1500s",
                             e->name, first, text);
    }
    free(text);
    LLVMDeleteFunction(fn);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void call_form(struct ask *a, struct tl_form_use *use, LLVMValueRef *args, unsigned n);
static struct tl_form_use *find_use(struct ask *a, LLVMTypeRef *types, unsigned n);

/* A register's lanes as a vector in memory that the current instruction has for itself; NULL with
 * e->rc set if there is no memory. */
static LLVMValueRef spread(struct tl_emit *e, struct tl_reg *r)
{
    static const char name[] = "lanes";
    LLVMValueRef args[TL_MAX_GROUPS + 1], to = tl_scratch(e);
    LLVMTypeRef types[TL_MAX_GROUPS + 1];
    struct ask a = {.e = e, .reg = {r}};
    uint32_t n = r->n_slots;
    struct tl_lanes lanes = r->lanes;
    lanes.is_small = false;
    lanes.base_align = lanes.base_limit = 0;
    add(&a, e->quick->compiler, sizeof e->quick->compiler);
    add(&a, name, sizeof name);
    add_number(&a, r->bits);
    add_lanes(&a, &lanes);
    for (uint32_t k = 0; k <= n; k++) {
        args[k] = k < n ? tl_slot(e, r, k) : to;
        types[k] = e->ptr;
    }
    struct tl_form_use *use = a.key.failed ? NULL : find_use(&a, types, n + 1);
    if (use != NULL)
        call_form(&a, use, args, n + 1);
    else /* there is no room for more forms */
        LLVMBuildStore(
            e->b,
            tl_bases_to_lanes(e,
                              (LLVMValueRef[TL_MAX_GROUPS]){
                                  tl_get(e, r, 0), n > 1 ? tl_get(e, r, 1) : NULL,
                                  n > 2 ? tl_get(e, r, 2) : NULL, n > 3 ? tl_get(e, r, 3) : NULL},
                              &r->lanes, r->bits)
                .v,
            to);
    tl_buf_finish(&a.key);
    return to;
}

/* Arguments in the order of take_parameters; their number. */
static unsigned arguments(struct ask *a, LLVMValueRef *args, LLVMTypeRef *types)
{
    struct tl_emit *e = a->e;
    unsigned n = 0;
    if (a->has_frame) {
        args[n++] = e->f->frame;
        args[n++] = e->f->warp;
    }
    if (a->has_mask)
        args[n++] = tl_active_bits(e);
    if (a->has_offset)
        args[n++] = LLVMConstInt(e->i64, (uint64_t)a->offset, false);
    for (uint32_t i = 0; i < a->n_immediates; i++)
        args[n++] = LLVMConstInt(e->i64, a->immediate[i], false);
    for (uint32_t i = 0; i < a->n_regs; i++) {
        for (uint32_t k = 0; k < a->seen[i].n_slots; k++)
            args[n++] = a->is_spread[i] ? spread(e, a->reg[i]) : tl_slot(e, a->reg[i], k);
    }
    for (unsigned i = 0; i < n; i++)
        types[i] = LLVMTypeOf(args[i]);
    return n;
}

static void call_form(struct ask *a, struct tl_form_use *use, LLVMValueRef *args, unsigned n)
{
    struct tl_emit *e = a->e;
    LLVMBuildCall2(e->b, use->type, use->callee, args, n, "");
    e->f->has_read |= use->form != NULL ? use->form->has_read : use->has_read;
}

/* The use of the form in this kernel, made if it is new; NULL: it stays in place. */
static struct tl_form_use *find_use(struct ask *a, LLVMTypeRef *types, unsigned n)
{
    struct tl_emit *e = a->e;
    struct tl_quick *q = e->quick;
    struct tl_str key = {a->key.p, a->key.n};
    struct tl_form_use *use = tl_table_get(&q->table, key);
    bool is_known = use != NULL;
    const struct tl_form *form = is_known ? use->form : tl_form_find(key);
    if ((form != NULL && form->code == NULL) ||
        (!is_known && form == NULL && !tl_forms_have_room()))
        return NULL;
    if (!is_known) {
        use = tl_arena_zalloc(e->arena, sizeof *use);
        char *kept = tl_arena_alloc(e->arena, key.n + 1);
        if (use == NULL || kept == NULL) {
            no_memory(e);
            return NULL;
        }
        memcpy(kept, key.p, key.n);
        *use = (struct tl_form_use){.next = q->uses, .key = {kept, key.n}, .form = form};
        use->type = LLVMFunctionType(e->voidt, types, n, false);
        use->callee = LLVMAddFunction(e->mod, "form", use->type);
        void **place = tl_table_place(&q->table, use->key);
        if (place == NULL) {
            no_memory(e);
            return NULL;
        }
        *place = q->uses = use;
    }
    if (q->mod == NULL && (form == NULL || tl_jit_verifies()))
        q->mod = LLVMModuleCreateWithNameInContext("forms", e->ctx);
    if (!is_known && form == NULL)
        make_new(a, use);
    else if (tl_jit_verifies())
        verify(a, use);
    return use;
}

static uint32_t results_of(const struct tl_emit *e)
{
    const struct tl_ptx_operand *to = e->inst->n_operands > 0 ? tl_opd(e, 0) : NULL;
    if (to == NULL || !tl_ptx_form_writes(e->inst->inst.form))
        return 0;
    return to->kind == TL_OPD_VEC || to->kind == TL_OPD_PAIR ? to->n : tl_elements(to);
}

/* Whether the result is what the first active lane has. */
static bool takes_first_lane(const struct ask *a)
{
    return a->n_results > 0 && a->has_vec && a->n_regs > 0 && !a->seen[0].is_vec;
}

/* Fills in the key.  False: the instruction stays in place. */
static bool describe(struct ask *a)
{
    struct tl_emit *e = a->e;
    const struct tl_ptx_form *f = e->inst->inst.form;
    a->sort = sort_of(f);
    bool is_apart = e->mask != NULL && e->mask != e->f->entry_mask;
    if (a->sort == NO_FORM || (a->sort == WARP_WIDE && (is_apart || e->uses_lanes)))
        return false;
    bool is_pure = a->sort == PURE || a->sort == PURE_ANY_NUMBER;
    a->n_results = results_of(e);
    a->has_frame = !is_pure;
    a->has_mask = !is_pure && e->mask != NULL;
    add(a, e->quick->compiler, sizeof e->quick->compiler);
    add_number(a, f->text.n);
    add(a, f->text.p, f->text.n);
    for (uint32_t i = 0; i < e->inst->n_operands; i++)
        add_operand(a, tl_opd(e, i), i == 0 && a->n_results > 0, true);
    a->has_mask |= e->mask != NULL && takes_first_lane(a);
    uint8_t around[4] = {a->has_mask, a->sort == ATOMIC && e->f->is_in_loop[e->inst_block],
                         (uint8_t)e->inst->n_operands, (uint8_t)a->n_results};
    add(a, around, sizeof around);
    if (a->has_frame && tl_ptx_form_space(f) == TL_MOD_local)
        add_number(a, e->local_bytes);
    return !a->is_refused && !a->key.failed && !is_plain_scalar(e, a);
}

bool tl_quick_call(struct tl_emit *e)
{
    LLVMValueRef args[MAX_ARGS];
    LLVMTypeRef types[MAX_ARGS];
    struct ask a = {.e = e};
    struct tl_form_use *use = NULL;
    if (e->quick == NULL || e->f->now == TL_CFG_NONE || e->rc != 0)
        return false;
    if (describe(&a)) {
        unsigned n = arguments(&a, args, types);
        use = e->rc == 0 ? find_use(&a, types, n) : NULL;
        if (use != NULL)
            call_form(&a, use, args, n);
    }
    tl_buf_finish(&a.key);
    return use != NULL;
}

/* --- the whole kernel ------------------------------------------------------------------------- */

int tl_quick_init(struct tl_emit *e)
{
    const struct tl_jit_options *o = e->options;
    const char *cpu = o->cpu != NULL ? o->cpu : tl_jit_host_cpu();
    const char *features = o->features != NULL ? o->features : tl_jit_host_features();
    struct tl_digest d;
    e->quick = tl_arena_zalloc(e->arena, sizeof *e->quick);
    if (e->quick == NULL)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    tl_digest_init(&d);
    tl_digest_part(&d, cpu, strlen(cpu));
    tl_digest_part(&d, features, strlen(features));
    tl_digest_part(&d, &o->is_plain, sizeof o->is_plain);
    tl_digest_end(&d, e->quick->compiler);
    return 0;
}

void tl_quick_finish(struct tl_emit *e)
{
    struct tl_quick *q = e->quick;
    if (q == NULL)
        return;
    for (uint32_t i = 0; i < q->n_new; i++)
        free(q->new[i]->ir);
    free(q->new);
    if (q->mod != NULL)
        LLVMDisposeModule(q->mod);
    tl_table_finish(&q->table);
}

/* Where addresses come from: see roots.h. */
#include "ptx_rewrite/roots.h"

#include <errno.h>

#include "ptx_rewrite/flags.h"
#include "tally/hash.h"

enum {
    ROOT_BITS = 62,
    MAX_ROOTS = 4096, /* no kernel has so many arrays; what comes later may be any of them */
};

struct tl_ptx_root {
    const void *what; /* a declaration or a symbol of the module */
    int64_t part;     /* which eight bytes of a parameter */
};

struct tl_ptx_root_decl {
    const struct tl_ptx_decl *decl;
    tl_ptx_root_set set;
};

struct visit {
    struct tl_ptx_roots *r;
    uint32_t cfg;
    tl_ptx_root_set set;
};

static tl_ptx_root_set root_of(struct tl_ptx_roots *r, const void *what, int64_t part)
{
    uint32_t i = 0;
    while (i < r->n_roots && (r->roots[i].what != what || r->roots[i].part != part))
        i++;
    if (i == MAX_ROOTS)
        return TL_ROOT_UNKNOWN;
    if (i == r->n_roots)
        r->roots[r->n_roots++] = (struct tl_ptx_root){what, part};
    return 1ull << (i % ROOT_BITS);
}

/* Where the declaration is, or is to be put. */
static struct tl_ptx_root_decl *decl_slot(struct tl_ptx_root_decl *slots, uint32_t n,
                                          const struct tl_ptx_decl *decl)
{
    uint64_t at = tl_hash_number((uint64_t)(uintptr_t)decl) >> 32;
    while (slots[at & (n - 1)].decl != NULL && slots[at & (n - 1)].decl != decl)
        at++;
    return &slots[at & (n - 1)];
}

/* The set of a declared parameter or result, made empty at the first question; NULL without
 * memory.  It is where it is until the next question. */
static tl_ptx_root_set *decl_set(struct tl_ptx_roots *r, const struct tl_ptx_decl *decl)
{
    if (2 * r->n_decls >= r->max_decls) {
        uint32_t more = r->max_decls == 0 ? 64 : r->max_decls * 2;
        struct tl_ptx_root_decl *slots = tl_arena_zalloc(r->program->arena, more * sizeof *slots);
        if (slots == NULL) {
            r->is_full = true;
            return NULL;
        }
        for (uint32_t i = 0; i < r->max_decls; i++)
            if (r->decls[i].decl != NULL)
                *decl_slot(slots, more, r->decls[i].decl) = r->decls[i];
        r->decls = slots;
        r->max_decls = more;
    }
    struct tl_ptx_root_decl *slot = decl_slot(r->decls, r->max_decls, decl);
    r->n_decls += slot->decl == NULL;
    slot->decl = decl;
    return &slot->set;
}

static void join(struct tl_ptx_roots *r, tl_ptx_root_set *to, tl_ptx_root_set set)
{
    if (to == NULL || (*to | set) == *to)
        return;
    *to |= set;
    r->changed = true;
}

static bool is_entry_param(const struct tl_ptx_roots *r, const struct tl_ptx_decl *decl)
{
    const struct tl_ptx_decl *d = r->program->entry->func->params;
    while (d != NULL && d != decl)
        d = d->next;
    return d != NULL;
}

static tl_ptx_root_set of_symbol(struct tl_ptx_roots *r, uint32_t cfg, const struct tl_ptx_sym *sym)
{
    switch (sym->kind) {
    case TL_SYM_REG:
        return r->regs[cfg][sym->id];
    case TL_SYM_VAR:
        /* The address of a parameter: what is loaded from there, at an unknown place, may be any
         * pointer.  Loads whose place is known do not come here. */
        return tl_str_is(sym->decl->space, "param") ? TL_ROOT_UNKNOWN : TL_ROOT_OWN;
    case TL_SYM_MODULE_VAR: {
        const struct tl_ptx_program_var *v = tl_ptx_program_find_var(r->program, sym);
        if (v == NULL)
            return TL_ROOT_UNKNOWN;
        return tl_ptx_var_is(v, "shared") ? TL_ROOT_OWN : root_of(r, v->decl, 0);
    }
    default:
        return 0;
    }
}

static tl_ptx_root_set of_operand(struct tl_ptx_roots *r, uint32_t cfg,
                                  const struct tl_ptx_operand *o)
{
    tl_ptx_root_set set = 0;
    if (o->kind == TL_OPD_SYM)
        return of_symbol(r, cfg, o->sym);
    bool has_elems = o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST || o->kind == TL_OPD_PAIR ||
                     o->kind == TL_OPD_ADDR;
    for (uint32_t i = 0; has_elems && i < o->n; i++)
        set |= of_operand(r, cfg, &o->elems[i]);
    return set;
}

/* A load from a parameter: of the kernel, each eight bytes of it have a root of their own; of a
 * function or a call, what was put there. */
static tl_ptx_root_set of_param(struct tl_ptx_roots *r, struct tl_affines *a,
                                const struct tl_ptx_stmt *s)
{
    struct tl_affine e;
    const struct tl_ptx_operand *address = tl_flag_address(s);
    if (!tl_affine_of_address(a, address, &e) || e.is_upper || e.n != 1 || e.terms[0].factor != 1 ||
        e.terms[0].leaf.kind != TL_LEAF_PARAM_ADDR)
        return TL_ROOT_UNKNOWN;
    const struct tl_ptx_decl *decl = e.terms[0].leaf.what;
    if (!is_entry_param(r, decl)) {
        tl_ptx_root_set *set = decl_set(r, decl);
        return set != NULL ? *set : TL_ROOT_UNKNOWN;
    }
    tl_ptx_root_set set = 0;
    uint32_t n = s->inst.operands[0].kind == TL_OPD_VEC ? s->inst.operands[0].n : 1;
    for (uint32_t i = 0; i < n; i++)
        set |= root_of(r, decl, e.constant / 8 + i);
    return set;
}

static bool is_wide(const struct tl_ptx_operand *o)
{
    if (o->kind != TL_OPD_SYM)
        return true; /* several registers: look at what they hold */
    return o->sym->kind != TL_SYM_REG || tl_ptx_type_bytes(o->sym->decl->type) == 8;
}

/* What the result of an instruction may point to.  Products and shifted numbers point nowhere: they
 * are indices. */
static tl_ptx_root_set of_result(struct tl_ptx_roots *r, uint32_t cfg, struct tl_affines *a,
                                 const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    tl_ptx_root_set set = 0;
    switch (s->inst.form->op) {
    case TL_OP_mul:
    case TL_OP_mul24:
    case TL_OP_shl:
    case TL_OP_shr:
    case TL_OP_div:
    case TL_OP_rem:
        return 0;
    case TL_OP_mad:
    case TL_OP_mad24:
        return s->n_operands == 4 ? of_operand(r, cfg, &o[3]) : TL_ROOT_UNKNOWN;
    case TL_OP_ld:
        return tl_ptx_form_space(s->inst.form) == TL_MOD_param ? of_param(r, a, s)
                                                               : TL_ROOT_UNKNOWN;
    case TL_OP_mov:
        if (s->n_operands == 2 && o[1].kind == TL_OPD_VEC)
            return TL_ROOT_UNKNOWN; /* put together from halves */
        break;
    case TL_OP_cvt:
        return s->n_operands == 2 && is_wide(&o[1]) ? of_operand(r, cfg, &o[1]) : 0;
    case TL_OP_cvta:
    case TL_OP_add:
    case TL_OP_sub:
    case TL_OP_addc:
    case TL_OP_subc:
    case TL_OP_and:
    case TL_OP_or:
    case TL_OP_xor:
    case TL_OP_not:
    case TL_OP_neg:
    case TL_OP_min:
    case TL_OP_max:
    case TL_OP_selp:
        break;
    default:
        return TL_ROOT_UNKNOWN;
    }
    for (uint32_t i = 1; i < s->n_operands; i++)
        set |= of_operand(r, cfg, &o[i]);
    return set;
}

static void join_reg(void *data, struct tl_ptx_sym *reg)
{
    struct visit *v = data;
    if (tl_ptx_type_bytes(reg->decl->type) == 8)
        join(v->r, &v->r->regs[v->cfg][reg->id], v->set);
}

/* Arguments flow into the callee's parameters, its results into the caller's. */
static void follow_call(struct tl_ptx_roots *r, uint32_t cfg, const struct tl_ptx_stmt *s)
{
    struct tl_ptx_call call;
    if (!tl_ptx_inst_call(s, &call) || call.callee->sym->kind != TL_SYM_FUNC)
        return; /* refused elsewhere */
    const struct tl_ptx_program_func *callee = tl_ptx_program_callee(r->program, call.callee->sym);
    const struct tl_ptx_decl *d = callee != NULL ? callee->func->params : NULL;
    for (uint32_t i = 0; call.args != NULL && i < call.args->n && d != NULL; i++, d = d->next) {
        const struct tl_ptx_operand *arg = &call.args->elems[i];
        bool is_var = arg->kind == TL_OPD_SYM && arg->sym->kind == TL_SYM_VAR;
        tl_ptx_root_set *from = is_var ? decl_set(r, arg->sym->decl) : NULL;
        tl_ptx_root_set set = from != NULL ? *from
                              : is_var     ? TL_ROOT_UNKNOWN
                                           : of_operand(r, cfg, arg);
        join(r, decl_set(r, d), set);
    }
    d = callee != NULL ? callee->func->rets : NULL;
    for (uint32_t i = 0; call.rets != NULL && i < call.rets->n; i++) {
        const struct tl_ptx_operand *ret = &call.rets->elems[i];
        tl_ptx_root_set *from = d != NULL ? decl_set(r, d) : NULL;
        tl_ptx_root_set set = from != NULL ? *from : TL_ROOT_UNKNOWN;
        if (ret->kind == TL_OPD_SYM && ret->sym->kind == TL_SYM_VAR)
            join(r, decl_set(r, ret->sym->decl), set);
        else if (ret->kind == TL_OPD_SYM && ret->sym->kind == TL_SYM_REG)
            join_reg(&(struct visit){r, cfg, set}, ret->sym);
        d = d != NULL ? d->next : NULL;
    }
}

static void follow_inst(struct tl_ptx_roots *r, uint32_t cfg, struct tl_affines *a,
                        const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (f->op == TL_OP_call) {
        follow_call(r, cfg, s);
        return;
    }
    if (f->op == TL_OP_st && tl_ptx_form_space(f) == TL_MOD_param && s->n_operands == 2) {
        struct tl_affine e;
        tl_ptx_root_set set = of_operand(r, cfg, &s->inst.operands[1]);
        for (uint32_t i = 0; tl_affine_of_address(a, &s->inst.operands[0], &e) && i < e.n; i++) {
            const struct tl_ptx_decl *d = e.terms[i].leaf.what;
            if (e.terms[i].leaf.kind != TL_LEAF_PARAM_ADDR)
                continue;
            /* A structure that is put together from small pieces may have a pointer in them. */
            bool is_piece = !is_wide(&s->inst.operands[1]) &&
                            tl_ptx_type_bytes(d->type) * d->count >= 8;
            join(r, decl_set(r, d), set | (is_piece ? TL_ROOT_UNKNOWN : 0));
        }
        return;
    }
    if (tl_ptx_form_writes(f))
        tl_ptx_inst_writes(s, join_reg, &(struct visit){r, cfg, of_result(r, cfg, a, s)});
}

tl_ptx_root_set tl_ptx_roots_of(const struct tl_ptx_roots *r, const struct tl_ptx_cfg *cfg,
                                const struct tl_ptx_operand *address)
{
    uint32_t i = (uint32_t)(cfg - r->cfgs);
    tl_ptx_root_set set = 0;
    if (address != NULL && address->kind == TL_OPD_ADDR && address->n >= 1)
        set = of_operand((struct tl_ptx_roots *)r, i, &address->elems[0]);
    return set != 0 ? set : TL_ROOT_UNKNOWN;
}

bool tl_ptx_roots_meet(tl_ptx_root_set a, tl_ptx_root_set b)
{
    a &= ~TL_ROOT_OWN;
    b &= ~TL_ROOT_OWN;
    return a != 0 && b != 0 && ((a & b) != 0 || ((a | b) & TL_ROOT_UNKNOWN) != 0);
}

tl_ptx_root_set tl_ptx_roots_written(const struct tl_ptx_roots *r, const struct tl_ptx_cfg *cfg,
                                     const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    switch (f->op) {
    case TL_OP_st:
    case TL_OP_atom:
    case TL_OP_red:
        break;
    case TL_OP_wmma:
        if (!tl_ptx_form_has(f, TL_MOD_store))
            return 0;
        break;
    case TL_OP_cp:
        /* From shared to global memory; what copies the other way names shared memory first. */
        if (!tl_ptx_form_has_text(f, "bulk") || tl_ptx_form_has_text(f, "commit_group") ||
            tl_ptx_form_has_text(f, "wait_group"))
            return 0;
        for (uint32_t i = 0; i < f->n_mods; i++) {
            if (f->mods[i].id == TL_MOD_shared)
                return 0;
            if (f->mods[i].id == TL_MOD_global)
                return TL_ROOT_UNKNOWN;
        }
        return TL_ROOT_UNKNOWN;
    case TL_OP_tensormap:
        /* maps in shared memory are replaced, others too, and published in global memory */
        return tl_ptx_form_space(f) == TL_MOD_shared ? 0 : TL_ROOT_UNKNOWN;
    case TL_OP_multimem:
    case TL_OP_unknown:
        return TL_ROOT_UNKNOWN;
    default:
        return 0;
    }
    if (!tl_flag_may_be_global(f))
        return 0;
    return tl_ptx_roots_of(r, cfg, tl_flag_address(s)) & ~TL_ROOT_OWN;
}

/* Whether %ctaid.y, %ctaid.z or all of %ctaid are among the operands. */
static bool reads_ctaid_yz(const struct tl_ptx_operand *operands, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_operand *o = &operands[i];
        bool has_elems = o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST ||
                         o->kind == TL_OPD_PAIR || o->kind == TL_OPD_ADDR;
        if ((o->kind == TL_OPD_SYM && o->sym->sreg == TL_SREG_ctaid && o->component != 'x') ||
            (has_elems && reads_ctaid_yz(o->elems, o->n)))
            return true;
    }
    return false;
}

int tl_ptx_roots_init(struct tl_ptx_roots *r, struct tl_ptx_program *p, struct tl_ptx_cfg *cfgs,
                      uint32_t n_cfgs)
{
    *r = (struct tl_ptx_roots){.program = p, .cfgs = cfgs, .n_cfgs = n_cfgs};
    r->roots = tl_arena_alloc(p->arena, MAX_ROOTS * sizeof *r->roots);
    if (r->roots == NULL)
        return -ENOMEM;
    r->regs = tl_arena_alloc(p->arena, ((size_t)n_cfgs + 1) * sizeof *r->regs);
    struct tl_affines *affines = tl_arena_alloc(p->arena, ((size_t)n_cfgs + 1) * sizeof *affines);
    if (r->regs == NULL || affines == NULL)
        return -ENOMEM;
    for (uint32_t c = 0; c < n_cfgs; c++) {
        r->regs[c] = tl_arena_zalloc(p->arena,
                                     ((size_t)cfgs[c].func->n_regs + 1) * sizeof **r->regs);
        if (r->regs[c] == NULL || tl_affines_init(&affines[c], p->arena, &cfgs[c], false) < 0)
            return -ENOMEM;
    }
    do {
        r->changed = false;
        for (uint32_t c = 0; c < n_cfgs; c++) {
            for (uint32_t i = 0; i < cfgs[c].n_insts; i++)
                follow_inst(r, c, &affines[c], cfgs[c].insts[i]);
        }
    } while (r->changed && !r->is_full);
    if (r->is_full)
        return -ENOMEM;
    for (uint32_t c = 0; c < n_cfgs; c++) {
        for (uint32_t i = 0; i < cfgs[c].n_insts; i++) {
            const struct tl_ptx_stmt *s = cfgs[c].insts[i];
            r->written |= tl_ptx_roots_written(r, &cfgs[c], s);
            r->reads_ctaid_yz |= reads_ctaid_yz(s->inst.operands, s->n_operands);
        }
    }
    return 0;
}

/* Flags, counters and tickets: see flags.h. */
#include "ptx_rewrite/flags.h"

bool tl_flag_is_fresh(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_volatile) || tl_ptx_form_has(f, TL_MOD_relaxed) ||
           tl_ptx_form_has(f, TL_MOD_acquire) || tl_ptx_form_has(f, TL_MOD_release) ||
           tl_ptx_form_has(f, TL_MOD_mmio) || tl_ptx_form_has(f, TL_MOD_cg) ||
           tl_ptx_form_has(f, TL_MOD_cv);
}

bool tl_flag_may_be_global(const struct tl_ptx_form *f)
{
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    return space == TL_MOD_global || space == TL_MOD_other;
}

const struct tl_ptx_operand *tl_flag_address(const struct tl_ptx_stmt *s)
{
    for (uint32_t i = 0; i < s->n_operands; i++) {
        if (s->inst.operands[i].kind == TL_OPD_ADDR)
            return &s->inst.operands[i];
    }
    return NULL;
}

/* --- counters and tickets --------------------------------------------------------------------- */

bool tl_flag_is_counter(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (f->op != TL_OP_atom || s->n_operands < 3)
        return false;
    const struct tl_ptx_operand *by = &s->inst.operands[2];
    if (tl_ptx_form_has(f, TL_MOD_inc)) /* up to a limit; with the limit zero it stands still */
        return by->kind != TL_OPD_INT || by->bits != 0;
    return tl_ptx_form_has(f, TL_MOD_add) && by->kind == TL_OPD_INT && by->bits != 0;
}

bool tl_flag_counts_up(const struct tl_ptx_stmt *s)
{
    if (!tl_flag_is_counter(s) || !tl_flag_may_be_global(s->inst.form))
        return false;
    if (tl_ptx_form_has(s->inst.form, TL_MOD_inc))
        return true;
    uint64_t by = s->inst.operands[2].bits;
    bool is_wide = tl_ptx_form_has(s->inst.form, TL_MOD_u64) ||
                   tl_ptx_form_has(s->inst.form, TL_MOD_s64);
    return is_wide ? (int64_t)by > 0 : (int32_t)by > 0;
}

static bool is_shared(const struct tl_ptx_stmt *s, enum tl_ptx_op op)
{
    return s->inst.form->op == op && tl_ptx_form_space(s->inst.form) == TL_MOD_shared &&
           s->n_operands == 2;
}

/* Whether an instruction may write into the block's shared memory. */
static bool may_write_shared(struct tl_affines *a, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    struct tl_affine e;
    switch (f->op) {
    case TL_OP_st:
    case TL_OP_atom:
    case TL_OP_red:
        if (tl_ptx_form_space(f) == TL_MOD_other)
            return !tl_affine_of_address(a, tl_flag_address(s), &e) || !tl_flag_has_known_base(&e);
        return tl_ptx_form_space(f) == TL_MOD_shared;
    case TL_OP_wmma:
        return tl_ptx_form_has(f, TL_MOD_store) && tl_ptx_form_space(f) != TL_MOD_global;
    case TL_OP_cp:
    case TL_OP_stmatrix:
    case TL_OP_tensormap:
    case TL_OP_call:
    case TL_OP_unknown:
        return true;
    default:
        return false;
    }
}

/* Whether a thread that is at `inst` has been at `first` before. */
static bool comes_only_after(const struct tl_ptx_cfg *cfg, uint32_t inst, uint32_t first)
{
    uint32_t a = cfg->block_of[first], b = cfg->block_of[inst];
    return a == b ? first < inst : tl_ptx_cfg_dominates(cfg, a, b);
}

uint32_t tl_flag_ticket(struct tl_affines *a, const struct tl_ptx_sym *reg)
{
    const struct tl_ptx_cfg *cfg = a->cfg;
    uint32_t def = tl_affine_only_def(a, reg);
    if (def == TL_CFG_NONE || tl_flag_counts_up(cfg->insts[def]))
        return def;
    struct tl_affine from, to;
    const struct tl_ptx_stmt *load = cfg->insts[def];
    if (!is_shared(load, TL_OP_ld) || !tl_affine_of_address(a, &load->inst.operands[1], &from) ||
        from.is_upper)
        return TL_CFG_NONE;
    uint32_t found = TL_CFG_NONE;
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        bool is_store = is_shared(s, TL_OP_st);
        bool is_known = is_store && tl_affine_of_address(a, &s->inst.operands[0], &to) &&
                        !to.is_upper && tl_affine_add(&to, &from, -1) && to.n == 0;
        if (!is_known || to.constant != 0) {
            bool is_apart = is_known && (to.constant >= 16 || to.constant <= -16);
            if (!is_apart && may_write_shared(a, s) && !comes_only_after(cfg, i, def))
                return TL_CFG_NONE;
            continue;
        }
        const struct tl_ptx_operand *value = &s->inst.operands[1];
        uint32_t source = value->kind == TL_OPD_SYM ? tl_affine_only_def(a, value->sym)
                                                    : TL_CFG_NONE;
        if (source == TL_CFG_NONE || !tl_flag_counts_up(cfg->insts[source]) ||
            (found != TL_CFG_NONE && found != source))
            return TL_CFG_NONE;
        found = source;
    }
    return found;
}

/* --- addresses -------------------------------------------------------------------------------- */

static bool is_known_base(const struct tl_leaf *leaf)
{
    return leaf->kind == TL_LEAF_PARAM || leaf->kind == TL_LEAF_MODULE_VAR;
}

bool tl_flag_shares_base(const struct tl_affine *a, const struct tl_affine *b)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const struct tl_leaf *leaf = &a->terms[i].leaf;
        if ((is_known_base(leaf) || leaf->kind == TL_LEAF_REG) && tl_affine_factor(b, leaf) != 0)
            return true;
    }
    return false;
}

bool tl_flag_shares_known_base(const struct tl_affine *a, const struct tl_affine *b)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (is_known_base(&a->terms[i].leaf) && tl_affine_factor(b, &a->terms[i].leaf) != 0)
            return true;
    }
    return false;
}

bool tl_flag_has_known_base(const struct tl_affine *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (is_known_base(&e->terms[i].leaf))
            return true;
    }
    return false;
}

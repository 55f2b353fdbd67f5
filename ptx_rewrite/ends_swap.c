/* Compare-and-swap with the value last seen: why a loop around it ends.  See ends.h. */
#include "ptx_rewrite/ends_internal.h"

#include "ptx_rewrite/flags.h"

bool tl_end_is_swap(const struct tl_ptx_stmt *s)
{
    return s->inst.form->op == TL_OP_atom && tl_ptx_form_has(s->inst.form, TL_MOD_cas) &&
           s->n_operands >= 4 && s->inst.guard == NULL && s->inst.operands[0].kind == TL_OPD_SYM &&
           s->inst.operands[0].sym->kind == TL_SYM_REG;
}

bool tl_end_is_same_address(struct tl_ptx_ends *x, const struct tl_ptx_stmt *a,
                            const struct tl_ptx_stmt *b)
{
    struct tl_affine e, f;
    const struct tl_ptx_operand *p = tl_flag_address(a), *q = tl_flag_address(b);
    return tl_affine_of_address(x->affines, p, &e) && tl_affine_of_address(x->affines, q, &f) &&
           !e.is_upper && !f.is_upper && tl_affine_add(&e, &f, -1) && e.n == 0 && e.constant == 0;
}

/* Whether all that the loop puts into a register is what the swap, or a load from the same place,
 * gave it, and every round does so: a value from an earlier round, or from before the loop, would
 * be one that is waited for. */
static bool is_last_seen(struct tl_ptx_ends *x, const struct tl_ptx_sym *reg, uint32_t swap,
                         uint32_t hops)
{
    bool found = false;
    for (uint32_t d = x->affines->first_def[reg->id]; d < x->affines->first_def[reg->id + 1]; d++) {
        uint32_t inst = x->affines->defs[d];
        const struct tl_ptx_stmt *s = x->cfg->insts[inst];
        const struct tl_ptx_operand *o = s->inst.operands;
        if (!tl_loop_has(x, inst))
            continue;
        found |= tl_loop_passes(x, x->cfg->block_of[inst]);
        if (s->inst.guard != NULL || hops > TL_LOOP_HOPS || o[0].kind != TL_OPD_SYM)
            return false;
        if (inst == swap)
            continue;
        if (s->inst.form->op == TL_OP_mov && s->n_operands == 2 && tl_loop_is_reg(&o[1]) &&
            is_last_seen(x, o[1].sym, swap, hops + 1))
            continue;
        if (s->inst.form->op == TL_OP_ld && tl_end_is_same_address(x, s, x->cfg->insts[swap]) &&
            tl_end_word_bits(s->inst.form) == tl_end_word_bits(x->cfg->insts[swap]->inst.form))
            continue;
        return false;
    }
    return found;
}

struct write_search {
    const struct tl_ptx_sym *reg;
    bool found;
};

static void note_write(void *data, struct tl_ptx_sym *reg)
{
    struct write_search *w = data;
    w->found |= reg == w->reg;
}

static bool writes_reg(const struct tl_ptx_stmt *s, const struct tl_ptx_sym *reg)
{
    struct write_search w = {reg, false};
    tl_ptx_inst_writes(s, note_write, &w);
    return w.found;
}

/* Whether the branch at the end of the swap's block asks `result == compared` of that swap; then
 * `*success` is the block to which it goes if so. */
static bool tests_swap(const struct tl_ptx_ends *x, uint32_t swap, uint32_t *success)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    const struct tl_ptx_block *k = &cfg->blocks[cfg->block_of[swap]];
    const struct tl_ptx_stmt *cas = cfg->insts[swap], *last = cfg->insts[k->end - 1];
    const struct tl_ptx_operand *result = &cas->inst.operands[0],
                                *compared = &cas->inst.operands[2];
    if (k->n_succs != 2 || last->inst.form->op != TL_OP_bra || last->inst.guard == NULL)
        return false;
    uint32_t i = swap + 1;
    while (i < k->end && cfg->insts[i]->inst.form->op != TL_OP_setp &&
           !writes_reg(cfg->insts[i], compared->sym) && !writes_reg(cfg->insts[i], result->sym))
        i++;
    if (i >= k->end)
        return false;
    const struct tl_ptx_stmt *test = cfg->insts[i];
    if (test->inst.form->op != TL_OP_setp || test->n_operands != 3 || test->inst.guard != NULL ||
        !writes_reg(test, last->inst.guard))
        return false;
    for (uint32_t later = i + 1; later + 1 < k->end; later++) {
        if (writes_reg(cfg->insts[later], last->inst.guard))
            return false;
    }
    const struct tl_ptx_operand *o = test->inst.operands;
    bool is_eq = tl_ptx_form_has(test->inst.form, TL_MOD_eq);
    if ((!is_eq && !tl_ptx_form_has(test->inst.form, TL_MOD_ne)) || o[1].kind != TL_OPD_SYM ||
        o[2].kind != TL_OPD_SYM ||
        !((o[1].sym == result->sym && o[2].sym == compared->sym) ||
          (o[2].sym == result->sym && o[1].sym == compared->sym)))
        return false;
    *success =
        k->succs[is_eq != (last->guard_not != 0) ? 0 : 1]; /* the branch target comes first */
    return true;
}

/* An optimistic update: every further round comes after a swap that failed although it compared
 * with what was last seen, so somebody else's succeeded. */
bool tl_end_is_update(struct tl_ptx_ends *x, uint32_t swap)
{
    const struct tl_ptx_stmt *cas = x->cfg->insts[swap];
    uint32_t success;
    if (!tl_end_is_swap(cas) || !tl_loop_is_reg(&cas->inst.operands[2]) ||
        !tl_loop_keeps(x, tl_flag_address(cas), 0) ||
        !is_last_seen(x, cas->inst.operands[2].sym, swap, 0))
        return false;
    return tests_swap(x, swap, &success) &&
           (success == x->cfg->n_blocks || !tl_ptx_set_has(x->loop, success)) &&
           tl_loop_passes(x, x->cfg->block_of[swap]);
}

/* A load whose value a swap of the same loop is compared with: the swap has the argument. */
bool tl_end_feeds_update(struct tl_ptx_ends *x, uint32_t load)
{
    if (x->cfg->insts[load]->inst.form->op != TL_OP_ld)
        return false;
    for (uint32_t i = 0; i < x->cfg->n_insts; i++) {
        if (tl_loop_has(x, i) && tl_end_is_swap(x->cfg->insts[i]) &&
            tl_end_is_same_address(x, x->cfg->insts[load], x->cfg->insts[i]) &&
            tl_end_is_update(x, i))
            return true;
    }
    return false;
}

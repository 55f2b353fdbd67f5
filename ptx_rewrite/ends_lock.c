/* Words that are taken, once or as locks: why a loop around it ends.  See ends.h. */
#include "ptx_rewrite/ends_internal.h"

#include "ptx_rewrite/flags.h"

/* The number that means "free": what a swap compares with, or what leaves the loop when it is read
 * or exchanged. */
static bool free_number(const struct tl_ptx_ends *x, uint32_t inst, int64_t *out)
{
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    const struct tl_ptx_sym *result = tl_loop_result(s);
    if (tl_end_is_swap(s)) {
        *out = (int64_t)s->inst.operands[2].bits;
        return s->inst.operands[2].kind == TL_OPD_INT;
    }
    for (uint32_t i = 0; result != NULL && i < x->cfg->n_insts; i++) {
        const struct tl_ptx_stmt *t = x->cfg->insts[i];
        const struct tl_ptx_operand *o = t->inst.operands;
        if (tl_loop_has(x, i) && t->inst.form->op == TL_OP_setp && t->n_operands == 3 &&
            tl_loop_is_reg(&o[1]) && o[1].sym == result && o[2].kind == TL_OPD_INT &&
            (tl_ptx_form_has(t->inst.form, TL_MOD_eq) ||
             tl_ptx_form_has(t->inst.form, TL_MOD_ne))) {
            *out = (int64_t)o[2].bits;
            return true;
        }
    }
    return false;
}

static bool is_number(const struct tl_ptx_stmt *s, uint32_t operand, int64_t number)
{
    const struct tl_ptx_operand *o = &s->inst.operands[operand];
    return o->kind == TL_OPD_INT &&
           tl_loop_signed(s->inst.form, o->bits) == tl_loop_signed(s->inst.form, (uint64_t)number);
}

/* Bits of the word that an instruction reads or writes; 0 if they are not 32 or 64. */
static uint32_t word_bits(const struct tl_ptx_form *f)
{
    if (tl_ptx_form_has(f, TL_MOD_v2) || tl_ptx_form_has(f, TL_MOD_v4) ||
        tl_ptx_form_has(f, TL_MOD_v8))
        return 0;
    if (tl_ptx_form_has(f, TL_MOD_u64) || tl_ptx_form_has(f, TL_MOD_s64) ||
        tl_ptx_form_has(f, TL_MOD_b64))
        return 64;
    return tl_ptx_form_has(f, TL_MOD_u32) || tl_ptx_form_has(f, TL_MOD_s32) ||
                   tl_ptx_form_has(f, TL_MOD_b32)
               ? 32
               : 0;
}

static bool is_as_wide(const struct tl_ptx_stmt *a, const struct tl_ptx_stmt *b)
{
    return word_bits(a->inst.form) != 0 && word_bits(a->inst.form) == word_bits(b->inst.form);
}

/* A swap from `free` to something: whoever gets `free` from it has the word. */
static bool takes(const struct tl_ptx_stmt *s, int64_t free)
{
    return tl_end_is_swap(s) && is_number(s, 2, free);
}

/* An exchange that puts in a number which is not `free`. */
static bool takes_by_exchange(const struct tl_ptx_stmt *s, int64_t free)
{
    return s->inst.form->op == TL_OP_atom && tl_ptx_form_has(s->inst.form, TL_MOD_exch) &&
           s->inst.guard == NULL && s->n_operands == 3 && s->inst.operands[2].kind == TL_OPD_INT &&
           !is_number(s, 2, free);
}

/* Puts `free` back. */
static bool releases(const struct tl_ptx_stmt *s, int64_t free)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (s->inst.guard != NULL)
        return false;
    if (f->op == TL_OP_st)
        return s->n_operands == 2 && is_number(s, 1, free);
    if (f->op == TL_OP_atom && tl_ptx_form_has(f, TL_MOD_exch))
        return s->n_operands == 3 && is_number(s, 2, free);
    return false;
}

static bool write_takes_once(struct tl_ptx_ends *x, uint32_t reader, const struct tl_ptx_cfg *cfg,
                             uint32_t write)
{
    int64_t free = 0;
    return free_number(x, reader, &free) && takes(cfg->insts[write], free) &&
           is_as_wide(x->cfg->insts[reader], cfg->insts[write]);
}

/* Swaps from one number, which nobody writes again: every word changes at most once, so what a
 * failed swap has seen is final, and one that succeeds leaves the loop. */
bool tl_end_is_taken_once(struct tl_ptx_ends *x, uint32_t inst)
{
    int64_t free = 0;
    uint32_t to;
    return tl_end_is_swap(x->cfg->insts[inst]) && free_number(x, inst, &free) &&
           tl_end_all_writes(x, inst, write_takes_once) &&
           tl_semaphore_leaves_with(x->semaphore, x->loop, inst, free, &to);
}

/* Whether only one edge leads to a block from outside of the loops that it heads. */
static bool is_entered_once(const struct tl_ptx_cfg *cfg, uint32_t block)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < cfg->blocks[block].n_preds; e++)
        n += !tl_ptx_cfg_dominates(cfg, block, cfg->blocks[block].preds[e]);
    return n == 1;
}

/* Which way a thread goes at a branch that comes, or has come, to `inst`: 0 or 1 as an index of
 * successors if a branch with the same guard lies above `inst`, else -1. */
static int known_way(const struct tl_ptx_ends *x, const struct tl_ptx_stmt *branch, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    uint32_t def = branch->inst.guard != NULL ? tl_affine_only_def(x->affines, branch->inst.guard)
                                              : TL_CFG_NONE;
    /* Computed once, where the kernel begins. */
    if (def == TL_CFG_NONE || cfg->block_of[def] != 0 || cfg->blocks[0].n_preds != 0)
        return -1;
    for (uint32_t b = cfg->block_of[inst], up; b != 0 && (up = cfg->blocks[b].idom) != TL_CFG_NONE;
         b = up) {
        const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, up);
        if (last == NULL || last->inst.form->op != TL_OP_bra || cfg->blocks[up].n_succs != 2 ||
            last->inst.guard != branch->inst.guard ||
            cfg->blocks[up].succs[0] == cfg->blocks[up].succs[1])
            continue;
        for (int e = 0; e < 2; e++) {
            uint32_t way = cfg->blocks[up].succs[e];
            if (way != cfg->n_blocks && is_entered_once(cfg, way) &&
                tl_ptx_cfg_dominates(cfg, way, cfg->block_of[inst]))
                return last->guard_not == branch->guard_not ? e : 1 - e;
        }
    }
    return -1;
}

/* Whether a thread that goes on at `from`, with the lock taken at `inst`, must come to a release
 * before its end, and before it could ask for the lock again. */
static bool must_release(struct tl_ptx_ends *x, uint32_t inst, uint32_t from, int64_t free)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    uint32_t depth = 0;
    if (from == cfg->n_blocks)
        return false;
    tl_ptx_set_clear(x->region);
    tl_ptx_set_add(x->region, from);
    x->stack[depth++] = from;
    while (depth > 0) {
        uint32_t b = x->stack[--depth];
        const struct tl_ptx_block *k = &cfg->blocks[b];
        const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, b);
        bool is_released = false;
        if (tl_ptx_set_has(x->loop, b))
            return false;
        for (uint32_t i = k->first; i < k->end && !is_released; i++)
            is_released = releases(cfg->insts[i], free) &&
                          tl_end_is_same_address(x, cfg->insts[i], cfg->insts[inst]);
        if (is_released)
            continue;
        if (last != NULL && last->inst.form->op == TL_OP_trap && last->inst.guard == NULL)
            continue; /* ends the grid */
        bool is_branch = last != NULL && k->n_succs == 2 && last->inst.form->op == TL_OP_bra;
        int way = is_branch ? known_way(x, last, inst) : -1;
        for (uint32_t e = 0; e < k->n_succs; e++) {
            uint32_t to = k->succs[e];
            if (way >= 0 && (uint32_t)way != e)
                continue;
            if (to == cfg->n_blocks)
                return false;
            if (!tl_ptx_set_has(x->region, to)) {
                tl_ptx_set_add(x->region, to);
                x->stack[depth++] = to;
            }
        }
    }
    return true;
}

/* Whether a thread that comes to a release must have been at `taking` before. */
static bool comes_after(struct tl_ptx_ends *x, uint32_t release, uint32_t taking)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    uint32_t depth = 0, first = cfg->block_of[taking], last = cfg->block_of[release];
    if (first == last)
        return taking < release;
    if (first == 0)
        return true;
    tl_ptx_set_clear(x->region);
    tl_ptx_set_add(x->region, 0);
    x->stack[depth++] = 0;
    while (depth > 0) {
        uint32_t b = x->stack[--depth];
        const struct tl_ptx_block *k = &cfg->blocks[b];
        const struct tl_ptx_stmt *end = tl_ptx_cfg_last(cfg, b);
        if (b == last)
            return false;
        int way = k->n_succs == 2 && end->inst.form->op == TL_OP_bra ? known_way(x, end, release)
                                                                     : -1;
        for (uint32_t e = 0; e < k->n_succs; e++) {
            uint32_t to = k->succs[e];
            if ((way >= 0 && (uint32_t)way != e) || to == cfg->n_blocks || to == first ||
                tl_ptx_set_has(x->region, to))
                continue;
            tl_ptx_set_add(x->region, to);
            x->stack[depth++] = to;
        }
    }
    return true;
}

/* Writes to a lock: this loop takes it, and who has come through this loop releases it. */
static bool write_keeps_lock(struct tl_ptx_ends *x, uint32_t reader, const struct tl_ptx_cfg *cfg,
                             uint32_t write)
{
    int64_t free = 0;
    uint32_t to;
    if (cfg != x->cfg || !free_number(x, reader, &free) ||
        !tl_end_is_same_address(x, cfg->insts[reader], cfg->insts[write]) ||
        !is_as_wide(cfg->insts[reader], cfg->insts[write]))
        return false;
    if (takes(cfg->insts[write], free) || takes_by_exchange(cfg->insts[write], free))
        return tl_loop_has(x, write) &&
               tl_semaphore_leaves_with(x->semaphore, x->loop, write, free, &to) &&
               must_release(x, write, to, free);
    if (!releases(cfg->insts[write], free) || tl_loop_has(x, write))
        return false;
    /* Only the holder: a number that others write would be a sign, not a lock. */
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        if (tl_loop_has(x, i) &&
            (takes(cfg->insts[i], free) || takes_by_exchange(cfg->insts[i], free)) &&
            tl_end_is_same_address(x, cfg->insts[reader], cfg->insts[i]) &&
            comes_after(x, write, i))
            return true;
    }
    return false;
}

static bool is_settled(const struct tl_ptx_ends *x, uint32_t inst)
{
    struct tl_affine e;
    if (!tl_affine_of_address(x->affines, tl_flag_address(x->cfg->insts[inst]), &e) || e.is_upper)
        return false;
    for (uint32_t i = 0; i < e.n; i++) {
        if (e.terms[i].leaf.kind != TL_LEAF_REG)
            continue;
        uint32_t def = tl_affine_only_def(x->affines, e.terms[i].leaf.what);
        if (def == TL_CFG_NONE || tl_loop_has(x, def) ||
            !tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], x->cfg->block_of[inst]))
            return false;
    }
    return true;
}

bool tl_end_is_lock(struct tl_ptx_ends *x, uint32_t inst)
{
    int64_t free = 0;
    uint32_t to;
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    if (!x->cfg->func->is_entry || tl_flag_address(s) == NULL || !free_number(x, inst, &free) ||
        !is_settled(x, inst) || !tl_loop_passes(x, x->head))
        return false;
    return tl_semaphore_leaves_with(x->semaphore, x->loop, inst, free, &to) &&
           tl_end_all_writes(x, inst, write_keeps_lock);
}

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

uint32_t tl_end_word_bits(const struct tl_ptx_form *f)
{
    if (tl_ptx_form_has(f, TL_MOD_v2) || tl_ptx_form_has(f, TL_MOD_v4) ||
        tl_ptx_form_has(f, TL_MOD_v8))
        return 0;
    if (tl_ptx_form_has(f, TL_MOD_u64) || tl_ptx_form_has(f, TL_MOD_s64) ||
        tl_ptx_form_has(f, TL_MOD_b64) || tl_ptx_form_has(f, TL_MOD_f64))
        return 64;
    if (tl_ptx_form_has(f, TL_MOD_u16) || tl_ptx_form_has(f, TL_MOD_s16) ||
        tl_ptx_form_has(f, TL_MOD_b16) || tl_ptx_form_has(f, TL_MOD_f16) ||
        tl_ptx_form_has(f, TL_MOD_bf16))
        return 16;
    return tl_ptx_form_has(f, TL_MOD_u32) || tl_ptx_form_has(f, TL_MOD_s32) ||
                   tl_ptx_form_has(f, TL_MOD_b32) || tl_ptx_form_has(f, TL_MOD_f32)
               ? 32
               : 0;
}

static bool is_as_wide(const struct tl_ptx_stmt *a, const struct tl_ptx_stmt *b)
{
    uint32_t bits = tl_end_word_bits(a->inst.form);
    return bits >= 32 && bits == tl_end_word_bits(b->inst.form);
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
    uint32_t from, to;
    return tl_end_is_swap(x->cfg->insts[inst]) && free_number(x, inst, &free) &&
           tl_end_all_writes(x, inst, write_takes_once) &&
           tl_semaphore_leaves_with(x->semaphore, x->loop, inst, free, &from, &to);
}

/* The leaves of a lock's address that are registers: their definitions, at most as many as there
 * are terms. */
struct address_defs {
    uint32_t defs[TL_AFFINE_TERMS], n;
};

static bool find_address_defs(const struct tl_ptx_ends *x, uint32_t inst, struct address_defs *out)
{
    struct tl_affine e;
    out->n = 0;
    if (!tl_affine_of_address(x->affines, tl_flag_address(x->cfg->insts[inst]), &e) || e.is_upper)
        return false;
    for (uint32_t i = 0; i < e.n; i++) {
        if (e.terms[i].leaf.kind != TL_LEAF_REG)
            continue;
        uint32_t def = tl_affine_only_def(x->affines, e.terms[i].leaf.what);
        if (def == TL_CFG_NONE || tl_loop_has(x, def) ||
            !tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], x->cfg->block_of[inst]))
            return false;
        out->defs[out->n++] = def;
    }
    return true;
}

/* A walk over the function's blocks, in the scratch of `x`. */
static void walk_to(struct tl_ptx_ends *x, uint32_t block, uint32_t *depth)
{
    if (!tl_ptx_set_has(x->region, block)) {
        tl_ptx_set_add(x->region, block);
        x->stack[(*depth)++] = block;
    }
}

static bool defines(const struct address_defs *a, uint32_t inst)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->defs[i] == inst)
            return true;
    }
    return false;
}

/* Whether a thread that goes on at `from`, with the lock taken at `inst`, must come to a release
 * before its end, before it could ask for a lock again, and before "the same address" becomes
 * another one. */
static bool must_release(struct tl_ptx_ends *x, uint32_t inst, uint32_t from, int64_t free)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    struct address_defs address;
    uint32_t depth = 0;
    if (from == cfg->n_blocks || !find_address_defs(x, inst, &address))
        return false;
    tl_ptx_set_clear(x->region);
    walk_to(x, from, &depth);
    while (depth > 0) {
        uint32_t b = x->stack[--depth];
        const struct tl_ptx_block *k = &cfg->blocks[b];
        const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, b);
        bool is_released = false;
        if (tl_ptx_set_has(x->loop, b))
            return false;
        for (uint32_t i = k->first; i < k->end && !is_released; i++) {
            if (defines(&address, i))
                return false;
            is_released = releases(cfg->insts[i], free) &&
                          tl_end_is_same_address(x, cfg->insts[i], cfg->insts[inst]);
        }
        if (is_released)
            continue;
        if (last != NULL && last->inst.form->op == TL_OP_trap && last->inst.guard == NULL)
            continue; /* ends the grid */
        bool is_branch = last != NULL && k->n_succs == 2 && last->inst.form->op == TL_OP_bra;
        int way = is_branch ? tl_affine_known_way(x->affines, last, inst) : -1;
        for (uint32_t e = 0; e < k->n_succs; e++) {
            if (way >= 0 && (uint32_t)way != e)
                continue;
            if (k->succs[e] == cfg->n_blocks)
                return false;
            walk_to(x, k->succs[e], &depth);
        }
    }
    return true;
}

/* The edge by which whoever gets `free` from `taking`, and nobody else, leaves the loop: a branch
 * on just that comparison. */
static bool find_success(struct tl_ptx_ends *x, uint32_t taking, int64_t free, uint32_t *from,
                         uint32_t *to)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    const struct tl_ptx_sym *result = tl_loop_result(cfg->insts[taking]);
    if (!tl_semaphore_leaves_with(x->semaphore, x->loop, taking, free, from, to))
        return false;
    const struct tl_ptx_block *k = &cfg->blocks[*from];
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, *from);
    if (k->n_succs != 2 || k->succs[0] == k->succs[1] || last->inst.form->op != TL_OP_bra ||
        last->inst.guard == NULL || tl_loop_def(x, result) != taking)
        return false;
    uint32_t def = tl_loop_def(x, last->inst.guard);
    if (def == TL_CFG_NONE)
        return false;
    const struct tl_ptx_stmt *test = cfg->insts[def];
    const struct tl_ptx_operand *o = test->inst.operands;
    bool is_eq = tl_ptx_form_has(test->inst.form, TL_MOD_eq);
    return test->inst.form->op == TL_OP_setp && test->n_operands == 3 &&
           (is_eq || tl_ptx_form_has(test->inst.form, TL_MOD_ne)) &&
           !tl_loop_is_float(test->inst.form) && tl_loop_is_reg(&o[1]) && o[1].sym == result &&
           is_number(test, 2, free) && is_as_wide(test, cfg->insts[taking]) &&
           tl_ptx_cfg_dominates(cfg, cfg->block_of[taking], cfg->block_of[def]) &&
           /* the branch target comes first */
           k->succs[is_eq != (last->guard_not != 0) ? 0 : 1] == *to;
}

/* Whether a thread that comes to a release must have got the lock at `taking` just before: every
 * way to the release from where the kernel begins, and from where the address is computed, leads
 * over the edge of success. */
static bool comes_after(struct tl_ptx_ends *x, uint32_t release, uint32_t taking, int64_t free)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    struct address_defs address;
    uint32_t depth = 0, last = cfg->block_of[release], from, to;
    if (!find_success(x, taking, free, &from, &to) || !find_address_defs(x, taking, &address))
        return false;
    tl_ptx_set_clear(x->region);
    walk_to(x, 0, &depth);
    for (uint32_t i = 0; i < address.n; i++) {
        uint32_t b = cfg->block_of[address.defs[i]];
        if (b == last && address.defs[i] < release)
            return false;
        for (uint32_t e = 0; e < cfg->blocks[b].n_succs; e++) {
            if (cfg->blocks[b].succs[e] != cfg->n_blocks)
                walk_to(x, cfg->blocks[b].succs[e], &depth);
        }
    }
    while (depth > 0) {
        uint32_t b = x->stack[--depth];
        const struct tl_ptx_block *k = &cfg->blocks[b];
        const struct tl_ptx_stmt *end = tl_ptx_cfg_last(cfg, b);
        if (b == last)
            return false;
        int way = k->n_succs == 2 && end->inst.form->op == TL_OP_bra
                      ? tl_affine_known_way(x->affines, end, release)
                      : -1;
        for (uint32_t e = 0; e < k->n_succs; e++) {
            if ((way >= 0 && (uint32_t)way != e) || k->succs[e] == cfg->n_blocks ||
                (b == from && k->succs[e] == to))
                continue;
            walk_to(x, k->succs[e], &depth);
        }
    }
    return true;
}

/* Writes to a lock: this loop takes it, and who has got it in this loop releases it. */
static bool write_keeps_lock(struct tl_ptx_ends *x, uint32_t reader, const struct tl_ptx_cfg *cfg,
                             uint32_t write)
{
    int64_t free = 0;
    uint32_t from, to;
    if (cfg != x->cfg || !free_number(x, reader, &free) ||
        !tl_end_is_same_address(x, cfg->insts[reader], cfg->insts[write]) ||
        !is_as_wide(cfg->insts[reader], cfg->insts[write]))
        return false;
    if (takes(cfg->insts[write], free) || takes_by_exchange(cfg->insts[write], free))
        return tl_loop_has(x, write) && find_success(x, write, free, &from, &to) &&
               must_release(x, write, to, free);
    if (!releases(cfg->insts[write], free) || tl_loop_has(x, write))
        return false;
    /* Only the holder: a number that others write would be a sign, not a lock. */
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        if (tl_loop_has(x, i) &&
            (takes(cfg->insts[i], free) || takes_by_exchange(cfg->insts[i], free)) &&
            tl_end_is_same_address(x, cfg->insts[reader], cfg->insts[i]) &&
            comes_after(x, write, i, free))
            return true;
    }
    return false;
}

bool tl_end_is_lock(struct tl_ptx_ends *x, uint32_t inst)
{
    int64_t free = 0;
    uint32_t from, to;
    struct address_defs address;
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    if (!x->cfg->func->is_entry || tl_flag_address(s) == NULL || !free_number(x, inst, &free) ||
        !find_address_defs(x, inst, &address) || !tl_loop_passes(x, x->head))
        return false;
    return tl_semaphore_leaves_with(x->semaphore, x->loop, inst, free, &from, &to) &&
           tl_end_all_writes(x, inst, write_keeps_lock);
}

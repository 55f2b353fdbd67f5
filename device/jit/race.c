/* Warps that race in shared memory, and mostly win on a GPU.
 *
 * After a barrier all warps read what one of them has left in shared memory, and a later step
 * writes there again with no barrier in between:
 *
 *     bar.sync; largest = sh[0]; ...; sh[warp] = sum; bar.sync
 *
 * That is a race.  A GPU's warps run side by side, so all of them have read long before one writes;
 * where fission.c runs one warp after the other, the first has written before the second reads.  So
 * a kernel is cut in front of such a store as if there were a barrier, which a program without
 * races does not notice.  Only loads that all warps do at the same addresses count: what depends on
 * the warp's number is that warp's own as a rule, and cuts in the middle of a product of matrices
 * would cost a lot. */
#include <string.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "ptx_rewrite/verdict.h"

enum { UNKNOWN, ASKED, SAME, DIFFERS, MAX_STEPS = 16, ALL_BYTES = 1 << 30 };

struct race {
    struct tl_emit *e;
    const struct tl_fn *f;
    const uint32_t *state_of; /* per instruction: not 0 at barriers, and at cuts so far */
    uint8_t *is_same;         /* per register: for all warps, as far as it has been asked */
    uint32_t *only_def;       /* per register: the instruction that writes it; NONE: several do */
    bool *seen;
    uint32_t *stack;
};

/* --- addresses -------------------------------------------------------------------------------- */

struct def_scan {
    struct race *x;
    uint32_t inst;
    bool *has_def;
};

static void note_def(void *data, struct tl_ptx_sym *reg)
{
    const struct def_scan *d = data;
    d->x->only_def[reg->id] = d->has_def[reg->id] ? TL_CFG_NONE : d->inst;
    d->has_def[reg->id] = true;
}

static bool find_definitions(struct race *x)
{
    const struct tl_ptx_cfg *cfg = &x->f->cfg;
    struct def_scan d = {.x = x};
    x->only_def = tl_arena_alloc(x->e->arena, ((size_t)x->f->n_regs + 1) * sizeof *x->only_def);
    d.has_def = tl_arena_zalloc(x->e->arena, (size_t)x->f->n_regs + 1);
    if (x->only_def == NULL || d.has_def == NULL)
        return false;
    for (uint32_t i = 0; i <= x->f->n_regs; i++)
        x->only_def[i] = TL_CFG_NONE;
    for (d.inst = 0; d.inst < cfg->n_insts; d.inst++)
        tl_ptx_inst_writes(cfg->insts[d.inst], note_def, &d);
    return true;
}

/* The instruction that alone writes a register, or NULL. */
static const struct tl_ptx_stmt *definition(const struct race *x, const struct tl_ptx_operand *o)
{
    if (o->kind != TL_OPD_SYM || o->sym->kind != TL_SYM_REG ||
        x->only_def[o->sym->id] == TL_CFG_NONE)
        return NULL;
    const struct tl_ptx_stmt *s = x->f->cfg.insts[x->only_def[o->sym->id]];
    return s->inst.guard == NULL ? s : NULL;
}

static bool is_thread_number(const struct race *x, const struct tl_ptx_operand *o)
{
    const struct tl_ptx_stmt *def = definition(x, o);
    if (def != NULL && def->inst.form->op == TL_OP_mov && def->n_operands == 2)
        o = &def->inst.operands[1];
    return o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_SREG && o->sym->sreg == TL_SREG_tid;
}

/* Whether an operand has the same value in lane i of all warps. */
static bool is_same(struct race *x, const struct tl_ptx_operand *o, uint32_t steps)
{
    if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_SREG)
        return o->sym->sreg == TL_SREG_laneid;
    if (o->kind != TL_OPD_SYM || o->sym->kind != TL_SYM_REG)
        return o->kind == TL_OPD_SYM || o->kind == TL_OPD_INT;
    uint8_t *known = &x->is_same[o->sym->id];
    if (*known == UNKNOWN && x->f->d.reg[o->sym->id] == TL_LEVEL_BLOCK)
        *known = SAME;
    if (*known != UNKNOWN)
        return *known != DIFFERS;
    *known = ASKED;
    const struct tl_ptx_stmt *s = definition(x, o);
    bool result = s != NULL && steps > 0 && s->n_operands > 1 && tl_ptx_form_computes(s->inst.form);
    bool is_lane = result && s->inst.form->op == TL_OP_and && s->n_operands == 3 &&
                   s->inst.operands[2].kind == TL_OPD_INT && s->inst.operands[2].bits < TL_LANES &&
                   is_thread_number(x, &s->inst.operands[1]);
    for (uint32_t i = 1; result && !is_lane && i < s->n_operands; i++)
        result = is_same(x, &s->inst.operands[i], steps - 1);
    *known = result ? SAME : DIFFERS;
    return result;
}

/* Where an access goes: bytes of a variable, all of it if they are not known; no variable:
 * anywhere. */
struct where {
    const struct tl_ptx_sym *base;
    int64_t at, bytes;
};

static struct where find_base(const struct race *x, const struct tl_ptx_operand *o, uint32_t steps)
{
    struct where none = {0};
    if (o->kind == TL_OPD_SYM && o->sym->kind != TL_SYM_REG)
        return (struct where){.base = o->sym, .at = o->offset};
    const struct tl_ptx_stmt *s = definition(x, o);
    if (s == NULL || steps == 0)
        return none;
    const struct tl_ptx_operand *from = s->inst.operands;
    if (s->inst.form->op == TL_OP_mov && s->n_operands == 2)
        return find_base(x, &from[1], steps - 1);
    bool is_add = s->inst.form->op == TL_OP_add && s->n_operands == 3;
    if (!is_add && !(s->inst.form->op == TL_OP_mad && s->n_operands == 4))
        return none;
    struct where w = find_base(x, &from[s->n_operands - 1], steps - 1);
    const struct tl_ptx_operand *added = &from[1];
    if (w.base == NULL && is_add) {
        w = find_base(x, &from[1], steps - 1);
        added = &from[2];
    }
    if (is_add && added->kind == TL_OPD_INT && w.bytes == 0)
        w.at += (int64_t)added->bits;
    else if (w.base != NULL)
        w = (struct where){.base = w.base, .bytes = ALL_BYTES};
    return w;
}

static const struct tl_ptx_operand *address(const struct tl_ptx_stmt *s, uint32_t n)
{
    return s->n_operands > n && s->inst.operands[n].kind == TL_OPD_ADDR ? &s->inst.operands[n]
                                                                        : NULL;
}

static struct where access_of(const struct race *x, const struct tl_ptx_operand *address)
{
    struct where w = find_base(x, &address->elems[0], MAX_STEPS);
    enum { WIDEST = 32 }; /* bytes of a vector */
    if (w.bytes == 0 && w.base != NULL) {
        w.at += address->offset;
        w.bytes = WIDEST;
    }
    return w;
}

static bool may_meet(struct where a, struct where b)
{
    if (a.base == NULL || b.base == NULL)
        return true;
    if (a.base != b.base)
        return false;
    return a.bytes == ALL_BYTES || b.bytes == ALL_BYTES ||
           (a.at < b.at + b.bytes && b.at < a.at + a.bytes);
}

/* --- loads and stores ------------------------------------------------------------------------- */

/* The address of a load that all warps do alike, or NULL. */
static const struct tl_ptx_operand *common_load(struct race *x, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (f->op != TL_OP_ld || tl_ptx_form_space(f) != TL_MOD_shared || address(s, 1) == NULL)
        return NULL;
    return is_same(x, &address(s, 1)->elems[0], MAX_STEPS) ? address(s, 1) : NULL;
}

static const struct tl_ptx_operand *store(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (tl_ptx_form_space(f) != TL_MOD_shared)
        return NULL;
    switch (f->op) {
    case TL_OP_st:
    case TL_OP_red:
    case TL_OP_cp:
    case TL_OP_stmatrix:
    case TL_OP_tensormap:
        return address(s, 0);
    case TL_OP_atom:
        return address(s, 1);
    default:
        return NULL;
    }
}

/* In front of which instruction all warps of a block may wait for each other before one comes to
 * `inst`. */
static uint32_t last_common(const struct race *x, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = &x->f->cfg;
    uint32_t b = cfg->block_of[inst];
    if (x->f->d.block[b] == TL_LEVEL_BLOCK)
        return inst;
    while (b != TL_CFG_NONE && x->f->d.block[b] != TL_LEVEL_BLOCK)
        b = cfg->blocks[b].idom;
    return b == TL_CFG_NONE ? TL_CFG_NONE : cfg->blocks[b].end - 1;
}

/* Whether instructions in front of `until` in its block have a load that the store may hurt, and
 * whether the way goes on to the blocks before. */
static bool look_back(struct race *x, uint32_t block, uint32_t until, struct where to,
                      bool *goes_on)
{
    *goes_on = false;
    for (uint32_t i = until; i-- > x->f->cfg.blocks[block].first;) {
        if (x->state_of[i] != 0 && tl_ptx_barrier_of(x->f->cfg.insts[i]).kind != TL_BARRIER_NONE)
            return false;
        const struct tl_ptx_operand *from = common_load(x, x->f->cfg.insts[i]);
        if (from != NULL && may_meet(access_of(x, from), to))
            return true;
        if (x->state_of[i] != 0)
            return false; /* a cut in front of it */
    }
    *goes_on = true;
    return false;
}

/* Whether a way leads from a load that all warps do to a place, with nothing on it where they wait
 * for each other. */
static bool is_behind_load(struct race *x, uint32_t place, struct where to)
{
    const struct tl_ptx_cfg *cfg = &x->f->cfg;
    uint32_t block = cfg->block_of[place], until = place, n = 0;
    memset(x->seen, 0, cfg->n_blocks);
    for (;;) {
        bool goes_on;
        if (look_back(x, block, until, to, &goes_on))
            return true;
        for (uint32_t p = 0; goes_on && p < cfg->blocks[block].n_preds; p++) {
            uint32_t from = cfg->blocks[block].preds[p];
            if (!x->seen[from] && cfg->blocks[from].order != TL_CFG_NONE) {
                x->seen[from] = true;
                x->stack[n++] = from;
            }
        }
        if (n == 0)
            return false;
        block = x->stack[--n];
        until = cfg->blocks[block].end;
    }
}

static bool has_common_load(struct race *x)
{
    uint32_t i = 0, n = x->f->cfg.n_insts;
    while (i < n && common_load(x, x->f->cfg.insts[i]) == NULL)
        i++;
    return i < n;
}

uint32_t tl_find_races(struct tl_emit *e, const struct tl_fn *f, uint32_t *state_of,
                       uint32_t n_states, uint32_t *cuts, uint32_t max)
{
    struct race x = {.e = e, .f = f, .state_of = state_of};
    uint32_t n = 0;
    x.is_same = tl_arena_zalloc(e->arena, (size_t)f->n_regs + 1);
    x.seen = tl_arena_alloc(e->arena, (size_t)f->cfg.n_blocks + 1);
    x.stack = tl_arena_alloc(e->arena, ((size_t)f->cfg.n_blocks + 2) * sizeof *x.stack);
    if (x.is_same == NULL || x.seen == NULL || x.stack == NULL || !find_definitions(&x) ||
        !has_common_load(&x))
        return 0;
    for (uint32_t o = 0; o < f->cfg.n_order; o++) {
        const struct tl_ptx_block *k = &f->cfg.blocks[f->cfg.order[o]];
        for (uint32_t i = k->first; i < k->end && n < max; i++) {
            const struct tl_ptx_operand *to = store(f->cfg.insts[i]);
            uint32_t place = to != NULL ? last_common(&x, i) : TL_CFG_NONE;
            if (place == TL_CFG_NONE || state_of[place] != 0 ||
                !is_behind_load(&x, place, access_of(&x, to)))
                continue;
            cuts[n] = place;
            state_of[place] = n_states + n;
            n++;
        }
    }
    return n;
}

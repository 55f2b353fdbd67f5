/* Divergence analysis: a fixed point over registers.
 *
 * A register's level is the worst of what its definitions read, of where values come from (thread
 * numbers, atomics, own memory), and of the branches that decide which of its definitions a thread
 * sees:
 *   - a register with several definitions takes on the level of every branch in whose region one of them lies;
 *   - a register defined in a loop and read outside takes on the level of the loop's exits, since threads that leave in
 *     different rounds see different values.
 * The region of a branch reaches to its post-dominator. */
#include "ptx_rewrite/diverge.h"

#include <errno.h>
#include <string.h>

#include "ptx_rewrite/flags.h"

struct analysis {
    struct tl_ptx_divergence *d;
    const struct tl_ptx_cfg *cfg;
    bool warps_are_rows;
    bool *has_several_defs; /* per register */
    /* per register: read outside a loop that defines it (filled per loop) */
    bool *leaves_loop;
    uint32_t *def_inst; /* per register: a definition, TL_CFG_NONE if none */
    /* per block that branches: level up to which its region has been marked */
    uint8_t *joined;
    struct tl_ptx_set region, scratch;
    uint32_t *stack;
    bool changed;
    enum tl_ptx_level carry;   /* of the carry flag, which no operand names */
    enum tl_ptx_level reading; /* scratch for visitors */
    enum tl_ptx_level writing;
};

static enum tl_ptx_level worse(enum tl_ptx_level a, enum tl_ptx_level b)
{
    return a > b ? a : b;
}

enum tl_ptx_level tl_ptx_guard_level(const struct tl_ptx_divergence *d, const struct tl_ptx_stmt *s)
{
    return s->inst.guard != NULL ? (enum tl_ptx_level)d->reg[s->inst.guard->id] : TL_LEVEL_BLOCK;
}

/* --- where values come from ------------------------------------------------------------------- */

static enum tl_ptx_level sreg_level(const struct analysis *a, const struct tl_ptx_operand *o)
{
    static const uint8_t levels[TL_SREG_count] = {
#define U TL_LEVEL_BLOCK
#define T TL_LEVEL_WARP
#define W TL_LEVEL_LANE
#define SREG(name, reach) [TL_SREG_##name] = (reach),
        TL_PTX_SREGS(SREG)
#undef SREG
#undef U
#undef T
#undef W
            [TL_SREG_envreg] = TL_LEVEL_BLOCK,
        [TL_SREG_pm] = TL_LEVEL_LANE,
    };
    if (o->sym->sreg == TL_SREG_tid && a->warps_are_rows &&
        (o->component == 'y' || o->component == 'z'))
        return TL_LEVEL_WARP;
    return (enum tl_ptx_level)levels[o->sym->sreg];
}

static bool is_own_param(const struct analysis *a, const struct tl_ptx_sym *sym)
{
    for (const struct tl_ptx_decl *p = a->cfg->func->params; p != NULL; p = p->next) {
        if (sym->decl == p)
            return true;
    }
    return false;
}

static enum tl_ptx_level operand_level(const struct analysis *a, const struct tl_ptx_operand *o)
{
    enum tl_ptx_level level = TL_LEVEL_BLOCK;
    switch ((enum tl_ptx_operand_kind)o->kind) {
    case TL_OPD_SYM:
        if (o->sym->kind == TL_SYM_REG)
            return (enum tl_ptx_level)a->d->reg[o->sym->id];
        if (o->sym->kind == TL_SYM_SREG)
            return sreg_level(a, o);
        if (o->sym->kind == TL_SYM_VAR && tl_str_is(o->sym->decl->space, "param") &&
            !(a->cfg->func->is_entry && is_own_param(a, o->sym)))
            return TL_LEVEL_LANE; /* each thread has its own parameters of a call */
        return TL_LEVEL_BLOCK;
    case TL_OPD_VEC:
    case TL_OPD_LIST:
    case TL_OPD_PAIR:
    case TL_OPD_ADDR:
        for (uint32_t i = 0; i < o->n; i++)
            level = worse(level, operand_level(a, &o->elems[i]));
        return level;
    default:
        return level;
    }
}

static enum tl_ptx_level sources_level(const struct analysis *a, const struct tl_ptx_stmt *s,
                                       uint32_t first)
{
    enum tl_ptx_level level = TL_LEVEL_BLOCK;
    for (uint32_t i = first; i < s->n_operands; i++)
        level = worse(level, operand_level(a, &s->inst.operands[i]));
    return level;
}

static enum tl_ptx_level load_level(const struct analysis *a, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    const struct tl_ptx_operand *addr = s->n_operands > 1 ? &s->inst.operands[1] : NULL;
    if (addr == NULL || addr->kind != TL_OPD_ADDR || space == TL_MOD_local ||
        space == TL_MOD_other || tl_flag_is_fresh(f))
        /* generic addresses may mean the stack; racing loads may see anything */
        return TL_LEVEL_LANE;
    const struct tl_ptx_operand *base = &addr->elems[0];
    if (space == TL_MOD_param && base->kind == TL_OPD_SYM && base->sym->kind != TL_SYM_REG)
        return a->cfg->func->is_entry && is_own_param(a, base->sym) ? TL_LEVEL_BLOCK
                                                                    : TL_LEVEL_LANE;
    if (space == TL_MOD_param && !a->cfg->func->is_entry)
        return TL_LEVEL_LANE;
    return sources_level(a, s, 1);
}

/* Whether a comparison with a constant can only change from one row of 32 to the next. */
static bool compares_rows(const struct tl_ptx_stmt *s, uint64_t with)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (f->op != TL_OP_setp || f->n_mods != 2 ||
        with > 1u << 20) /* nothing combined with another predicate */
        return false;
    switch (f->mods[0].id) {
    case TL_MOD_lt:
    case TL_MOD_ge:
    case TL_MOD_lo:
    case TL_MOD_hs:
        return with % 32 == 0;
    case TL_MOD_le:
    case TL_MOD_gt:
    case TL_MOD_ls:
    case TL_MOD_hi:
        return with % 32 == 31;
    default:
        return false;
    }
}

/* tid.x >> 5 and beyond, tid.x & ~31, or tid.x < 32: the same for a warp if warps are rows. */
static bool is_warp_number(const struct analysis *a, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    if (!a->warps_are_rows || s->n_operands != 3 || o[1].kind != TL_OPD_SYM ||
        o[2].kind != TL_OPD_INT)
        return false;
    enum tl_ptx_op op = s->inst.form->op;
    bool drops_lane = (op == TL_OP_shr && o[2].bits >= 5 && o[2].bits < 32) ||
                      (op == TL_OP_and && (o[2].bits & 31) == 0) ||
                      (op == TL_OP_div && o[2].bits % 32 == 0) || compares_rows(s, o[2].bits);
    if (!drops_lane)
        return false;
    if (o[1].sym->kind == TL_SYM_SREG)
        return o[1].sym->sreg == TL_SREG_tid && o[1].component == 'x';
    if (o[1].sym->kind != TL_SYM_REG || a->has_several_defs[o[1].sym->id] ||
        a->def_inst[o[1].sym->id] == TL_CFG_NONE)
        return false;
    const struct tl_ptx_stmt *def = a->cfg->insts[a->def_inst[o[1].sym->id]];
    const struct tl_ptx_operand *src = &def->inst.operands[1];
    return def->inst.form->op == TL_OP_mov && def->n_operands == 2 && def->inst.guard == NULL &&
           src->kind == TL_OPD_SYM && src->sym->sreg == TL_SREG_tid && src->component == 'x';
}

/* An operation in which a warp agrees gives all lanes the same, as long as they all take part
 * together. */
static enum tl_ptx_level agreed_level(const struct analysis *a, uint32_t block)
{
    return a->d->block[block] == TL_LEVEL_LANE ? TL_LEVEL_LANE : TL_LEVEL_WARP;
}

/* The same for an operation with a mask, as long as that is the same for all: half warps may agree
 * among themselves. */
static enum tl_ptx_level agreed_by_mask(const struct analysis *a, const struct tl_ptx_stmt *s,
                                        uint32_t block)
{
    bool has_mask = tl_ptx_form_has(s->inst.form, TL_MOD_sync) && s->n_operands > 0;
    if (has_mask && operand_level(a, &s->inst.operands[s->n_operands - 1]) == TL_LEVEL_LANE)
        return TL_LEVEL_LANE;
    return agreed_level(a, block);
}

/* How far threads may differ in what the instruction gives, by how they do in what it reads. */
static enum tl_ptx_level result_level(const struct analysis *a, const struct tl_ptx_stmt *s,
                                      uint32_t block)
{
    const struct tl_ptx_form *f = s->inst.form;
    switch (f->op) {
    case TL_OP_addc:
    case TL_OP_subc:
    case TL_OP_madc:
        return worse(a->carry, sources_level(a, s, 1));
    case TL_OP_ld:
    case TL_OP_ldu:
        return load_level(a, s);
    case TL_OP_cvta: /* each thread has a local memory of its own */
        return tl_ptx_form_has(f, TL_MOD_local) ? TL_LEVEL_LANE : sources_level(a, s, 1);
    case TL_OP_vote:
    case TL_OP_redux:
        return agreed_by_mask(a, s, block);
    case TL_OP_shfl:
        /* d[|p], a, b, c [, mask]: lane b when .idx with the whole warp as one segment, where p is
         * true for all */
        if (tl_ptx_form_has(f, TL_MOD_idx) && s->n_operands >= 4 &&
            s->inst.operands[2].kind == TL_OPD_INT && s->inst.operands[3].kind == TL_OPD_INT &&
            s->inst.operands[3].bits == 31)
            return agreed_by_mask(a, s, block);
        return TL_LEVEL_LANE;
    case TL_OP_bar:
    case TL_OP_barrier:
        return TL_LEVEL_BLOCK; /* a reduction over the block */
    case TL_OP_shr:
    case TL_OP_and:
    case TL_OP_div:
    case TL_OP_setp:
        return is_warp_number(a, s) ? TL_LEVEL_WARP : sources_level(a, s, 1);
    case TL_OP_atom:
    case TL_OP_match:
    case TL_OP_elect:
    case TL_OP_activemask: /* nothing brings a warp together again where ways of its lanes meet */
    case TL_OP_call:
    case TL_OP_mbarrier:
    case TL_OP_alloca:
    case TL_OP_stacksave:
    case TL_OP_unknown:
    case TL_OP_multimem:
    case TL_OP_clusterlaunchcontrol:
    case TL_OP_ldmatrix:
    case TL_OP_movmatrix:
    case TL_OP_mma:
    case TL_OP_wmma:
    case TL_OP_wgmma:
    case TL_OP_tcgen05:
        return TL_LEVEL_LANE;
    default:
        return sources_level(a, s, 1);
    }
}

/* --- the fixed point -------------------------------------------------------------------------- */

static void raise_reg(struct analysis *a, uint32_t id, enum tl_ptx_level level)
{
    if (a->d->reg[id] < level) {
        a->d->reg[id] = (uint8_t)level;
        a->changed = true;
    }
}

static void write_reg(void *data, struct tl_ptx_sym *reg)
{
    struct analysis *a = data;
    enum tl_ptx_level level = a->writing;
    if (a->has_several_defs[reg->id])
        level = worse(level, a->reading);
    raise_reg(a, reg->id, level);
}

static void visit_block(struct analysis *a, uint32_t block)
{
    const struct tl_ptx_block *k = &a->cfg->blocks[block];
    for (uint32_t i = k->first; i < k->end; i++) {
        const struct tl_ptx_stmt *s = a->cfg->insts[i];
        enum tl_ptx_level guard = tl_ptx_guard_level(a->d, s);
        a->writing = worse(result_level(a, s, block), guard);
        /* which of several definitions is seen */
        a->reading = (enum tl_ptx_level)a->d->block[block];
        tl_ptx_inst_writes(s, write_reg, a);
        enum tl_ptx_level carry = worse(a->writing, a->reading);
        if (tl_ptx_form_has(s->inst.form, TL_MOD_cc) && a->carry < carry) {
            a->carry = carry;
            a->changed = true;
        }
    }
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(a->cfg, block);
    if (k->n_succs < 2 || last == NULL)
        return;
    enum tl_ptx_level level = tl_ptx_guard_level(a->d, last);
    if (last->inst.form->op == TL_OP_brx && last->n_operands > 0)
        level = worse(level, operand_level(a, &last->inst.operands[0]));
    if (a->d->branch[block] < level) {
        a->d->branch[block] = (uint8_t)level;
        a->changed = true;
    }
}

struct def_scan {
    struct analysis *a;
    uint32_t inst;
};

static void count_def(void *data, struct tl_ptx_sym *reg)
{
    struct def_scan *scan = data;
    struct analysis *a = scan->a;
    if (a->def_inst[reg->id] != TL_CFG_NONE)
        a->has_several_defs[reg->id] = true;
    a->def_inst[reg->id] = scan->inst;
}

/* Marks everything that a branch decides about. */
static void spread_branch(struct analysis *a, uint32_t block)
{
    enum tl_ptx_level level = (enum tl_ptx_level)a->d->branch[block];
    if (a->joined[block] >= level)
        return;
    a->joined[block] = (uint8_t)level;
    tl_ptx_set_clear(&a->region);
    tl_ptx_cfg_region(a->cfg, block, a->cfg->blocks[block].ipdom, &a->region, a->stack);
    for (uint32_t b = 0; b < a->cfg->n_blocks; b++) {
        if (tl_ptx_set_has(&a->region, b) && a->d->block[b] < level) {
            a->d->block[b] = (uint8_t)level;
            a->changed = true;
        }
    }
}

static void mark_outside_read(void *data, struct tl_ptx_sym *reg)
{
    struct analysis *a = data;
    a->leaves_loop[reg->id] = true;
}

static void raise_if_marked(void *data, struct tl_ptx_sym *reg)
{
    struct analysis *a = data;
    if (a->leaves_loop[reg->id])
        raise_reg(a, reg->id, a->writing);
}

/* Values that leave a loop whose rounds differ between threads. */
static void spread_loop(struct analysis *a, uint32_t head)
{
    const struct tl_ptx_cfg *cfg = a->cfg;
    if (!tl_ptx_cfg_loop(cfg, head, &a->region, &a->scratch, a->stack))
        return;
    enum tl_ptx_level level = TL_LEVEL_BLOCK;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (!tl_ptx_set_has(&a->region, b))
            continue;
        for (uint32_t e = 0; e < cfg->blocks[b].n_succs; e++) {
            uint32_t to = cfg->blocks[b].succs[e];
            if (to == cfg->n_blocks || !tl_ptx_set_has(&a->region, to))
                level = worse(level, (enum tl_ptx_level)a->d->branch[b]);
        }
    }
    if (level == TL_LEVEL_BLOCK)
        return;
    memset(a->leaves_loop, 0, cfg->func->n_regs);
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             !tl_ptx_set_has(&a->region, b) && i < cfg->blocks[b].end; i++)
            tl_ptx_inst_reads(cfg->insts[i], mark_outside_read, a);
    }
    a->writing = level;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             tl_ptx_set_has(&a->region, b) && i < cfg->blocks[b].end; i++)
            tl_ptx_inst_writes(cfg->insts[i], raise_if_marked, a);
    }
}

static void spread_control(struct analysis *a)
{
    const struct tl_ptx_cfg *cfg = a->cfg;
    for (uint32_t i = 0; i < cfg->n_order; i++) {
        spread_branch(a, cfg->order[i]);
        spread_loop(a, cfg->order[i]);
    }
}

static bool is_in(const struct tl_ptx_decl *list, const struct tl_ptx_decl *d)
{
    while (list != NULL && list != d)
        list = list->next;
    return list != NULL;
}

/* Registers that a function gets and gives back, which differ between threads, and vectors, which
 * are written in parts. */
static void raise_special(void *data, struct tl_ptx_sym *reg)
{
    struct analysis *a = data;
    const struct tl_ptx_func *f = a->cfg->func;
    if (reg->decl != NULL &&
        (reg->decl->vec > 1 || is_in(f->params, reg->decl) || is_in(f->rets, reg->decl)))
        raise_reg(a, reg->id, TL_LEVEL_LANE);
}

int tl_ptx_diverge(struct tl_ptx_divergence *d, struct tl_arena *arena,
                   const struct tl_ptx_cfg *cfg, bool warps_are_rows)
{
    uint32_t n_regs = cfg->func->n_regs;
    struct analysis a = {.d = d, .cfg = cfg, .warps_are_rows = warps_are_rows};
    d->cfg = cfg;
    d->reg = tl_arena_zalloc(arena, (size_t)n_regs + 1);
    d->branch = tl_arena_zalloc(arena, (size_t)cfg->n_blocks + 1);
    a.has_several_defs = tl_arena_zalloc(arena, (size_t)n_regs + 1);
    a.leaves_loop = tl_arena_zalloc(arena, (size_t)n_regs + 1);
    a.def_inst = tl_arena_alloc(arena, ((size_t)n_regs + 1) * sizeof *a.def_inst);
    d->block = tl_arena_zalloc(arena, (size_t)cfg->n_blocks + 1);
    a.joined = tl_arena_zalloc(arena, (size_t)cfg->n_blocks + 1);
    a.stack = tl_arena_alloc(arena, ((size_t)cfg->n_blocks + 2) * sizeof *a.stack);
    if (d->reg == NULL || d->branch == NULL || a.has_several_defs == NULL ||
        a.leaves_loop == NULL || a.def_inst == NULL || d->block == NULL || a.joined == NULL ||
        a.stack == NULL || tl_ptx_set_init(&a.region, arena, cfg) < 0 ||
        tl_ptx_set_init(&a.scratch, arena, cfg) < 0)
        return -ENOMEM;
    memset(a.def_inst, 0xff, ((size_t)n_regs + 1) * sizeof *a.def_inst);
    for (uint32_t i = 0; i < cfg->n_insts; i++)
        tl_ptx_inst_writes(cfg->insts[i], count_def, &(struct def_scan){&a, i});
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        tl_ptx_inst_writes(cfg->insts[i], raise_special, &a);
        tl_ptx_inst_reads(cfg->insts[i], raise_special, &a);
    }
    do {
        a.changed = false;
        for (uint32_t i = 0; i < cfg->n_order; i++)
            visit_block(&a, cfg->order[i]);
        spread_control(&a);
    } while (a.changed);
    return 0;
}

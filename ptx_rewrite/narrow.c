/* Constants that follow from the width of the grid, and the ways that they close: see narrow.h.
 *
 * Values are bits, as registers are: an instruction reads the lower bits of its operands, as many
 * as its type has, and what it leaves fills the register. */
#include "ptx_rewrite/narrow.h"

#include <errno.h>

enum { MAX_DEPTH = 24 };

enum state { NOT_YET, UNKNOWN, KNOWN };

struct narrow {
    const struct tl_affines *defs;
    const struct tl_ptx_cfg *cfg;
    char axis;
    uint8_t *state; /* per register: of what its only definition leaves */
    uint64_t *left;
};

struct type {
    uint32_t bits; /* 1 for predicates, 0 if it is none that is known here */
    bool is_signed;
};

static struct type type_of(const struct tl_ptx_modifier *m)
{
    switch (m->id) {
    case TL_MOD_pred:
        return (struct type){1, false};
    case TL_MOD_b16:
    case TL_MOD_u16:
        return (struct type){16, false};
    case TL_MOD_s16:
        return (struct type){16, true};
    case TL_MOD_b32:
    case TL_MOD_u32:
        return (struct type){32, false};
    case TL_MOD_s32:
        return (struct type){32, true};
    case TL_MOD_b64:
    case TL_MOD_u64:
        return (struct type){64, false};
    case TL_MOD_s64:
        return (struct type){64, true};
    default:
        return (struct type){0, false};
    }
}

static uint64_t low(uint64_t value, uint32_t bits)
{
    return bits < 64 ? value & ((UINT64_C(1) << bits) - 1) : value;
}

static int64_t as_signed(uint64_t value, uint32_t bits)
{
    uint64_t sign = UINT64_C(1) << (bits - 1);
    return (int64_t)((low(value, bits) ^ sign) - sign);
}

static bool value_of_reg(const struct narrow *w, const struct tl_ptx_sym *reg, uint32_t at,
                         uint32_t depth, uint64_t *value);

/* What the instruction `at` reads there. */
static bool value_of(const struct narrow *w, const struct tl_ptx_operand *o, uint32_t at,
                     uint32_t depth, uint64_t *value)
{
    if (o->kind == TL_OPD_INT && o->flags == 0) {
        *value = o->bits;
        return true;
    }
    if (o->kind != TL_OPD_SYM || o->flags != 0 || o->has_offset)
        return false;
    if (o->sym->kind == TL_SYM_SREG) {
        *value = 1;
        return o->sym->sreg == TL_SREG_nctaid && o->component == w->axis;
    }
    return o->component == 0 && value_of_reg(w, o->sym, at, depth, value);
}

/* Of predicates and words; one operand may be enough. */
static bool of_logic(enum tl_ptx_op op, const bool known[2], const uint64_t v[2], uint32_t bits,
                     uint64_t *value)
{
    if (known[0] && known[1]) {
        *value = op == TL_OP_and ? v[0] & v[1] : op == TL_OP_or ? v[0] | v[1] : v[0] ^ v[1];
        return true;
    }
    for (int i = 0; i < 2; i++) {
        if (known[i] && op == TL_OP_and && low(v[i], bits) == 0)
            *value = 0;
        else if (known[i] && op == TL_OP_or && low(v[i], bits) == low(UINT64_MAX, bits))
            *value = UINT64_MAX;
        else
            continue;
        return true;
    }
    return false;
}

static bool of_comparison(const struct tl_ptx_modifier *how, struct type t, uint64_t a, uint64_t b,
                          uint64_t *value)
{
    uint64_t x = low(a, t.bits), y = low(b, t.bits);
    int64_t sx = as_signed(a, t.bits), sy = as_signed(b, t.bits);
    bool is_less = t.is_signed ? sx < sy : x < y;
    switch (how->id) {
    case TL_MOD_eq:
        *value = x == y;
        return true;
    case TL_MOD_ne:
        *value = x != y;
        return true;
    case TL_MOD_lt:
        *value = is_less;
        return true;
    case TL_MOD_le:
        *value = is_less || x == y;
        return true;
    case TL_MOD_gt:
        *value = !is_less && x != y;
        return true;
    case TL_MOD_ge:
        *value = !is_less;
        return true;
    default:
        return false;
    }
}

/* What an instruction leaves in its only destination. */
static bool value_left(const struct narrow *w, uint32_t inst, uint32_t depth, uint64_t *value)
{
    const struct tl_ptx_stmt *s = w->cfg->insts[inst];
    const struct tl_ptx_form *f = s->inst.form;
    uint64_t v[2] = {0, 0};
    bool known[2] = {false, false};
    if (f->n_mods == 0 || f->n_mods > 2 || s->n_operands < 2 || s->n_operands > 3 ||
        s->inst.operands[0].kind != TL_OPD_SYM || s->inst.operands[0].component != 0)
        return false;
    struct type t = type_of(&f->mods[f->n_mods - 1]); /* what is read */
    for (uint32_t i = 1; i < s->n_operands; i++)
        known[i - 1] = value_of(w, &s->inst.operands[i], inst, depth, &v[i - 1]);
    bool is_unary = s->n_operands == 2;
    if (t.bits == 0)
        return false;
    switch (f->op) {
    case TL_OP_mov:
        *value = low(v[0], t.bits);
        return is_unary && f->n_mods == 1 && known[0];
    case TL_OP_not:
        *value = low(~v[0], t.bits);
        return is_unary && f->n_mods == 1 && known[0];
    case TL_OP_cvt: {
        struct type to = type_of(&f->mods[0]);
        uint64_t wide = t.is_signed ? (uint64_t)as_signed(v[0], t.bits) : low(v[0], t.bits);
        *value = low(wide, to.bits);
        return is_unary && f->n_mods == 2 && to.bits > 1 && t.bits > 1 && known[0];
    }
    case TL_OP_and:
    case TL_OP_or:
    case TL_OP_xor:
        if (is_unary || f->n_mods != 1 || !of_logic(f->op, known, v, t.bits, value))
            return false;
        *value = low(*value, t.bits);
        return true;
    case TL_OP_add:
    case TL_OP_sub:
        *value = low(f->op == TL_OP_add ? v[0] + v[1] : v[0] - v[1], t.bits);
        return !is_unary && f->n_mods == 1 && t.bits > 1 && known[0] && known[1];
    case TL_OP_setp:
        return !is_unary && f->n_mods == 2 && t.bits > 1 && known[0] && known[1] &&
               of_comparison(&f->mods[0], t, v[0], v[1], value);
    default:
        return false;
    }
}

/* Whether `first` has always been executed when `then` is. */
static bool comes_before(const struct tl_ptx_cfg *cfg, uint32_t first, uint32_t then)
{
    uint32_t a = cfg->block_of[first], b = cfg->block_of[then];
    return a == b ? first < then : tl_ptx_cfg_dominates(cfg, a, b);
}

/* How many bits a register has that holds what these instructions compute; 0 for others. */
static uint32_t width_of(const struct tl_ptx_sym *reg)
{
    return tl_str_is(reg->decl->type, "pred") ? 1 : 8 * tl_ptx_type_bytes(reg->decl->type);
}

static bool value_of_reg(const struct narrow *w, const struct tl_ptx_sym *reg, uint32_t at,
                         uint32_t depth, uint64_t *value)
{
    uint32_t def = depth < MAX_DEPTH ? tl_affine_only_def(w->defs, reg) : TL_CFG_NONE;
    if (def == TL_CFG_NONE || !comes_before(w->cfg, def, at))
        return false;
    if (w->state[reg->id] == NOT_YET) {
        bool is_known = reg->decl->vec == 1 && value_left(w, def, depth + 1, &w->left[reg->id]);
        const struct tl_ptx_form *f = w->cfg->insts[def]->inst.form;
        /* Predicates are what comparisons leave.  A wider register is filled in one of two ways,
         * by signs or zeroes: let nobody have to know which. */
        uint32_t bits = !is_known ? 0 : f->op == TL_OP_setp ? 1 : type_of(&f->mods[0]).bits;
        w->state[reg->id] = is_known && bits == width_of(reg) ? KNOWN : UNKNOWN;
    }
    *value = w->left[reg->id];
    return w->state[reg->id] == KNOWN;
}

/* The only way that a thread may take at the end of a block: a number of its successors, or
 * TL_CFG_NONE. */
static uint32_t only_way(const struct narrow *w, uint32_t block)
{
    const struct tl_ptx_block *k = &w->cfg->blocks[block];
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(w->cfg, block);
    uint64_t guard;
    /* A branch to what follows anyway has one successor, and one more to the exit where it closes
     * an endless loop: that is no way that a thread may take. */
    if (last == NULL || last->inst.form->op != TL_OP_bra || last->inst.guard == NULL ||
        k->n_succs != 2 || k->succs[1] != w->cfg->block_of[k->end] ||
        !value_of_reg(w, last->inst.guard, k->end - 1, 0, &guard))
        return TL_CFG_NONE;
    return (guard != 0) != (last->guard_not != 0) ? 0 : 1; /* the target comes first: cfg.c */
}

int tl_ptx_narrow_reach(struct tl_arena *arena, const struct tl_affines *defs, char axis,
                        struct tl_ptx_set *reached, uint32_t *stack)
{
    const struct tl_ptx_cfg *cfg = defs->cfg;
    struct narrow w = {.defs = defs, .cfg = cfg, .axis = axis};
    size_t n_regs = (size_t)cfg->func->n_regs + 1;
    uint32_t n = 0;
    w.state = tl_arena_zalloc(arena, n_regs);
    w.left = tl_arena_zalloc(arena, n_regs * sizeof *w.left);
    if (w.state == NULL || w.left == NULL)
        return -ENOMEM;
    tl_ptx_set_clear(reached);
    if (cfg->n_blocks == 0)
        return 0;
    tl_ptx_set_add(reached, 0);
    stack[n++] = 0;
    while (n > 0) {
        uint32_t block = stack[--n], way = only_way(&w, block);
        for (uint32_t e = 0; e < cfg->blocks[block].n_succs; e++) {
            uint32_t to = cfg->blocks[block].succs[e];
            if (to == cfg->n_blocks || tl_ptx_set_has(reached, to) ||
                (way != TL_CFG_NONE && way != e))
                continue;
            tl_ptx_set_add(reached, to);
            stack[n++] = to;
        }
    }
    return 0;
}

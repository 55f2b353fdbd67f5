/* Linear expressions over leaves: see affine.h. */
#include "ptx_rewrite/affine.h"

#include <errno.h>
#include <string.h>

enum state { NOT_YET, WORKING, KNOWN };
enum { MAX_DEPTH = 200 };

/* --- arithmetic ------------------------------------------------------------------------------- */

bool tl_leaf_eq(const struct tl_leaf *a, const struct tl_leaf *b)
{
    return a->kind == b->kind && a->id == b->id && a->part == b->part && a->what == b->what;
}

static struct tl_affine constant(int64_t value)
{
    return (struct tl_affine){.constant = value};
}

static struct tl_affine of_leaf(struct tl_leaf leaf)
{
    struct tl_affine a = {.n = 1};
    a.terms[0].leaf = leaf;
    a.terms[0].factor = 1;
    return a;
}

bool tl_affine_add(struct tl_affine *a, const struct tl_affine *b, int64_t factor)
{
    int64_t product;
    if (b->is_upper && factor < 0)
        return false;
    if (__builtin_mul_overflow(b->constant, factor, &product) ||
        __builtin_add_overflow(a->constant, product, &a->constant))
        return false;
    a->is_upper |= b->is_upper && factor != 0;
    for (uint32_t i = 0; i < b->n; i++) {
        if (__builtin_mul_overflow(b->terms[i].factor, factor, &product))
            return false;
        uint32_t t = 0;
        while (t < a->n && !tl_leaf_eq(&a->terms[t].leaf, &b->terms[i].leaf))
            t++;
        if (t == a->n) {
            if (t == TL_AFFINE_TERMS)
                return false;
            a->terms[t].leaf = b->terms[i].leaf;
            a->terms[t].factor = 0;
            a->n++;
        }
        if (__builtin_add_overflow(a->terms[t].factor, product, &a->terms[t].factor))
            return false;
        if (a->terms[t].factor == 0)
            a->terms[t] = a->terms[--a->n];
    }
    return true;
}

int64_t tl_affine_factor(const struct tl_affine *a, const struct tl_leaf *leaf)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (tl_leaf_eq(&a->terms[i].leaf, leaf))
            return a->terms[i].factor;
    }
    return 0;
}

/* Whether a <= b whatever the leaves are: same terms, no larger constant; and not by so much that a
 * few rounds of a loop lead to the other end of all numbers. */
static bool is_at_most(const struct tl_affine *a, const struct tl_affine *b)
{
    enum { MOST_BELOW = 1 << 26 };
    int64_t below;
    if (a->n != b->n || __builtin_sub_overflow(b->constant, a->constant, &below) || below < 0 ||
        below > MOST_BELOW)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        if (tl_affine_factor(b, &a->terms[i].leaf) != a->terms[i].factor)
            return false;
    }
    return true;
}

/* --- registers -------------------------------------------------------------------------------- */

struct def_fill {
    struct tl_affines *a;
    uint32_t inst;
    bool counting;
};

static void note_def(void *data, struct tl_ptx_sym *reg)
{
    struct def_fill *f = data;
    if (f->counting)
        f->a->first_def[reg->id + 1]++;
    else
        f->a->defs[f->a->first_def[reg->id]++] = f->inst;
}

int tl_affines_init(struct tl_affines *a, struct tl_arena *arena, const struct tl_ptx_cfg *cfg,
                    bool grid_is_line)
{
    size_t n = (size_t)cfg->func->n_regs + 2;
    *a = (struct tl_affines){.cfg = cfg, .grid_is_line = grid_is_line};
    a->known = tl_arena_alloc(arena, n * sizeof *a->known);
    a->state = tl_arena_zalloc(arena, n);
    a->is_opaque = tl_arena_zalloc(arena, n);
    a->first_def = tl_arena_zalloc(arena, n * sizeof *a->first_def);
    if (a->known == NULL || a->state == NULL || a->is_opaque == NULL || a->first_def == NULL)
        return -ENOMEM;
    /* Count, sum up, fill: filling moves each start to the next register's, so everything is
     * shifted back by one. */
    for (uint32_t i = 0; i < cfg->n_insts; i++)
        tl_ptx_inst_writes(cfg->insts[i], note_def, &(struct def_fill){a, i, true});
    for (size_t i = 1; i < n; i++)
        a->first_def[i] += a->first_def[i - 1];
    a->defs = tl_arena_alloc(arena, ((size_t)a->first_def[n - 1] + 1) * sizeof *a->defs);
    if (a->defs == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < cfg->n_insts; i++)
        tl_ptx_inst_writes(cfg->insts[i], note_def, &(struct def_fill){a, i, false});
    memmove(a->first_def + 1, a->first_def, (n - 1) * sizeof *a->first_def);
    a->first_def[0] = 0;
    return 0;
}

static uint32_t def_count(const struct tl_affines *a, uint32_t id)
{
    return a->first_def[id + 1] - a->first_def[id];
}

uint32_t tl_affine_only_def(const struct tl_affines *a, const struct tl_ptx_sym *reg)
{
    if (reg->kind != TL_SYM_REG || def_count(a, reg->id) != 1)
        return TL_CFG_NONE;
    uint32_t def = a->defs[a->first_def[reg->id]];
    return a->cfg->insts[def]->inst.guard == NULL ? def : TL_CFG_NONE;
}

static struct tl_affine opaque(const struct tl_ptx_sym *reg)
{
    return of_leaf((struct tl_leaf){.kind = TL_LEAF_REG, .id = reg->id, .what = reg});
}

bool tl_affine_of_operand(struct tl_affines *a, const struct tl_ptx_operand *o,
                          struct tl_affine *out)
{
    if (o->kind == TL_OPD_INT) {
        *out = constant((int64_t)o->bits);
        return true;
    }
    if (o->kind != TL_OPD_SYM || o->flags != 0)
        return false;
    struct tl_ptx_sym *sym = o->sym;
    switch (sym->kind) {
    case TL_SYM_REG:
        *out = tl_affine_of_reg(a, sym);
        break;
    case TL_SYM_SREG:
        if (a->grid_is_line && o->component != 'x' &&
            (sym->sreg == TL_SREG_ctaid || sym->sreg == TL_SREG_nctaid)) {
            *out = constant(sym->sreg == TL_SREG_nctaid);
            return true;
        }
        *out = of_leaf(
            (struct tl_leaf){.kind = TL_LEAF_SREG, .id = sym->sreg, .part = o->component});
        break;
    case TL_SYM_VAR:
        *out = of_leaf((struct tl_leaf){
            .kind = tl_str_is(sym->decl->space, "param") ? TL_LEAF_PARAM_ADDR : TL_LEAF_VAR,
            .what = sym->decl});
        break;
    case TL_SYM_MODULE_VAR:
        *out = of_leaf((struct tl_leaf){.kind = TL_LEAF_MODULE_VAR, .what = sym});
        break;
    default:
        return false;
    }
    out->constant += o->has_offset ? o->offset : 0;
    return true;
}

bool tl_affine_of_address(struct tl_affines *a, const struct tl_ptx_operand *o,
                          struct tl_affine *out)
{
    if (o == NULL || o->kind != TL_OPD_ADDR || o->n != 1 ||
        !tl_affine_of_operand(a, &o->elems[0], out))
        return false;
    int64_t offset = o->has_offset ? o->offset : 0; /* PTX has 32 bits for it */
    return offset == (int32_t)offset &&
           !__builtin_add_overflow(out->constant, offset, &out->constant);
}

/* --- words of 32 bits ------------------------------------------------------------------------- */

static bool is_word(const struct tl_ptx_modifier *type)
{
    return type->id == TL_MOD_u32 || type->id == TL_MOD_s32 || type->id == TL_MOD_b32;
}

static bool reads_words(const struct tl_ptx_form *f)
{
    return f->n_mods > 0 && is_word(&f->mods[f->n_mods - 1]);
}

static bool gives_word(const struct tl_ptx_form *f)
{
    if (f->op == TL_OP_cvt)
        return f->n_mods > 0 && is_word(&f->mods[0]);
    return reads_words(f) && !tl_ptx_form_has(f, TL_MOD_wide);
}

/* Of a word only the lower 32 bits count, and numbers are written either way: 4294967295 is -1.
 * That the value itself does not leave them is taken for granted, but not of factors with which it
 * would for grids that there are. */
static bool fit_word(struct tl_affine *e)
{
    enum { MAX_FACTOR = 1 << 12 };
    if (e->is_upper && e->constant != (int32_t)e->constant)
        return false; /* some of what is below comes out above */
    e->constant = (int32_t)e->constant;
    for (uint32_t i = 0; i < e->n;) {
        int64_t factor = (int32_t)e->terms[i].factor;
        if (factor > MAX_FACTOR || factor < -MAX_FACTOR || (factor == 0 && e->is_upper))
            return false;
        e->terms[i].factor = factor;
        if (factor == 0)
            e->terms[i] = e->terms[--e->n];
        else
            i++;
    }
    return true;
}

/* A word that becomes 64 bits with zeroes in front.  Of one that is not a number the blocks for
 * which it is negative would be meant to go far beyond the end of their array. */
static bool extend_by_zeroes(struct tl_affine *e)
{
    enum { MOST_BELOW = 1 << 16 };
    if (e->n == 0 && !e->is_upper)
        e->constant = (uint32_t)e->constant;
    return e->constant >= -MOST_BELOW;
}

/* What an instruction reads there, as it is wide where it is read. */
static bool of_source(struct tl_affines *a, const struct tl_ptx_form *f,
                      const struct tl_ptx_operand *o, struct tl_affine *out)
{
    if (!tl_affine_of_operand(a, o, out))
        return false;
    if (!reads_words(f))
        return true;
    return fit_word(out) &&
           (gives_word(f) || tl_ptx_form_has(f, TL_MOD_s32) || extend_by_zeroes(out));
}

static bool of_product(struct tl_affines *a, const struct tl_ptx_form *f,
                       const struct tl_ptx_operand *x, const struct tl_ptx_operand *y,
                       struct tl_affine *out)
{
    struct tl_affine left, right;
    if (!of_source(a, f, x, &left) || !of_source(a, f, y, &right))
        return false;
    if (left.n == 0 && !left.is_upper) {
        struct tl_affine swap = left;
        left = right;
        right = swap;
    }
    if (right.n != 0 || right.is_upper)
        return false;
    *out = constant(0);
    return tl_affine_add(out, &left, right.constant);
}

static bool of_param_load(struct tl_affines *a, const struct tl_ptx_stmt *s, struct tl_affine *out)
{
    struct tl_affine address;
    if (s->inst.operands[0].kind != TL_OPD_SYM ||
        !tl_affine_of_address(a, &s->inst.operands[1], &address) || address.n != 1 ||
        address.is_upper || address.terms[0].factor != 1 ||
        address.terms[0].leaf.kind != TL_LEAF_PARAM_ADDR)
        return false;
    *out = of_leaf((struct tl_leaf){
        .kind = TL_LEAF_PARAM, .part = address.constant, .what = address.terms[0].leaf.what});
    return true;
}

/* Numbers of blocks do not fit into 16 bits. */
static bool is_narrow(const struct tl_ptx_sym *reg)
{
    uint32_t bytes = reg->kind == TL_SYM_REG ? tl_ptx_type_bytes(reg->decl->type) : 0;
    return bytes == 1 || bytes == 2;
}

/* What an instruction gives, as far as it is linear, and before it is fitted into the register. */
static bool of_operation(struct tl_affines *a, const struct tl_ptx_stmt *s, struct tl_affine *out)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    const struct tl_ptx_form *f = s->inst.form;
    struct tl_affine x, y;
    if (s->inst.guard != NULL || s->n_operands < 2 || o[0].kind != TL_OPD_SYM ||
        is_narrow(o[0].sym) || tl_ptx_form_has(f, TL_MOD_sat))
        return false;
    switch (f->op) {
    case TL_OP_mov:
    case TL_OP_cvta:
    case TL_OP_cvt:
        if (tl_ptx_form_has(f, TL_MOD_f32) || tl_ptx_form_has(f, TL_MOD_f64) ||
            tl_ptx_form_has(f, TL_MOD_f16) || tl_ptx_form_has(f, TL_MOD_u8) ||
            tl_ptx_form_has(f, TL_MOD_s8) || tl_ptx_form_has(f, TL_MOD_u16) ||
            tl_ptx_form_has(f, TL_MOD_s16))
            return false;
        return of_source(a, f, &o[1], out);
    case TL_OP_ld:
        return tl_ptx_form_space(f) == TL_MOD_param && of_param_load(a, s, out);
    case TL_OP_add:
    case TL_OP_sub:
        if (s->n_operands != 3 || tl_ptx_form_has(f, TL_MOD_cc) || !of_source(a, f, &o[1], &x) ||
            !of_source(a, f, &o[2], &y))
            return false;
        *out = x;
        return tl_affine_add(out, &y, f->op == TL_OP_add ? 1 : -1);
    case TL_OP_not:
    case TL_OP_neg:
        if (!of_source(a, f, &o[1], &x))
            return false;
        *out = constant(f->op == TL_OP_not ? -1 : 0);
        return tl_affine_add(out, &x, -1);
    case TL_OP_mul:
        return s->n_operands == 3 && !tl_ptx_form_has(f, TL_MOD_hi) &&
               of_product(a, f, &o[1], &o[2], out);
    case TL_OP_mad:
        return s->n_operands == 4 && !tl_ptx_form_has(f, TL_MOD_hi) &&
               !tl_ptx_form_has(f, TL_MOD_cc) && of_product(a, f, &o[1], &o[2], out) &&
               tl_affine_of_operand(a, &o[3], &y) && tl_affine_add(out, &y, 1);
    case TL_OP_shl:
        if (s->n_operands != 3 || o[2].kind != TL_OPD_INT || o[2].bits > 32 ||
            !of_source(a, f, &o[1], &x))
            return false;
        *out = constant(0);
        return tl_affine_add(out, &x, (int64_t)1 << o[2].bits);
    default:
        return false;
    }
}

/* The same of 64 bits: a factor that fits into 32 leaves none of them with numbers of blocks. */
static bool has_small_factors(const struct tl_affine *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->terms[i].factor > UINT32_MAX || e->terms[i].factor < -(int64_t)UINT32_MAX)
            return false;
    }
    return true;
}

bool tl_affine_of_inst(struct tl_affines *a, const struct tl_ptx_stmt *s, struct tl_affine *out)
{
    return of_operation(a, s, out) &&
           (gives_word(s->inst.form) ? fit_word(out) : has_small_factors(out));
}

static bool mentions(const struct tl_affine *e, const struct tl_ptx_sym *reg)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->terms[i].leaf.kind == TL_LEAF_REG && e->terms[i].leaf.what == reg)
            return true;
    }
    return false;
}

/* A register that loops change: an upper bound if one definition starts it and all others only go
 * down from there. Found by supposing it: the bound is entered, the other definitions are worked
 * out with it, and what was derived is forgotten if it does not hold. */
static bool of_loop(struct tl_affines *a, struct tl_ptx_sym *reg, struct tl_affine *out)
{
    uint32_t id = reg->id, first = a->first_def[id], end = a->first_def[id + 1];
    if (end - first > 8)
        return false;
    a->is_supposing = true;
    a->state[id] = WORKING; /* while it is, the register stands for itself */
    uint32_t start = end;
    for (uint32_t d = first; d < end && start == end; d++) {
        if (tl_affine_of_inst(a, a->cfg->insts[a->defs[d]], out) && !mentions(out, reg))
            start = d;
    }
    if (start == end) {
        a->is_supposing = false;
        return false;
    }
    out->is_upper = true;
    uint32_t n_regs = a->cfg->func->n_regs;
    memset(a->state, NOT_YET, n_regs);
    a->known[id] = *out;
    a->state[id] = KNOWN;
    bool holds = true;
    for (uint32_t d = first; holds && d < end; d++) {
        struct tl_affine other;
        holds = d == start || (tl_affine_of_inst(a, a->cfg->insts[a->defs[d]], &other) &&
                               is_at_most(&other, out));
    }
    if (!holds)
        memset(a->state, NOT_YET, n_regs);
    a->is_supposing = false;
    return holds;
}

struct tl_affine tl_affine_of_reg(struct tl_affines *a, struct tl_ptx_sym *reg)
{
    uint32_t id = reg->id;
    if (a->state[id] == KNOWN)
        return a->known[id];
    bool has_one_def = def_count(a, id) == 1;
    if (a->state[id] == WORKING || a->is_opaque[id] || a->depth >= MAX_DEPTH ||
        (!has_one_def && a->is_supposing))
        return opaque(reg);
    struct tl_affine e;
    bool found;
    a->depth++;
    if (has_one_def) {
        a->state[id] = WORKING;
        found = tl_affine_of_inst(a, a->cfg->insts[a->defs[a->first_def[id]]], &e) &&
                !mentions(&e, reg);
    } else {
        found = of_loop(a, reg, &e);
    }
    a->depth--;
    if (!found) {
        a->is_opaque[id] = true;
        e = opaque(reg);
    }
    a->known[id] = e;
    a->state[id] = KNOWN;
    return e;
}

/* A number with which a register may begin, or grow, that is not negative before it has grown many
 * times. */
static bool is_small_number(const struct tl_ptx_form *f, const struct tl_ptx_operand *o)
{
    enum { MOST = 1 << 26 };
    int64_t number = reads_words(f) ? (int32_t)o->bits : (int64_t)o->bits;
    return o->kind == TL_OPD_INT && number >= 0 && number <= MOST;
}

/* Numbers and sizes of threads, blocks and such: far below 2^31.  Masks and clocks are not. */
static bool is_place(enum tl_ptx_sreg sreg)
{
    switch (sreg) {
    case TL_SREG_tid:
    case TL_SREG_ntid:
    case TL_SREG_laneid:
    case TL_SREG_warpid:
    case TL_SREG_nwarpid:
    case TL_SREG_ctaid:
    case TL_SREG_nctaid:
    case TL_SREG_smid:
    case TL_SREG_nsmid:
        return true;
    default:
        return false;
    }
}

bool tl_affine_is_never_negative(struct tl_affines *all, const struct tl_leaf *leaf)
{
    if (leaf->kind == TL_LEAF_SREG)
        return is_place(leaf->id);
    if (leaf->kind != TL_LEAF_REG)
        return false;
    const struct tl_ptx_sym *reg = leaf->what;
    if (is_narrow(reg))
        return false;
    for (uint32_t d = all->first_def[reg->id]; d < all->first_def[reg->id + 1]; d++) {
        const struct tl_ptx_stmt *s = all->cfg->insts[all->defs[d]];
        const struct tl_ptx_operand *o = s->inst.operands;
        bool starts = s->inst.form->op == TL_OP_mov && s->n_operands == 2 &&
                      s->inst.guard == NULL &&
                      ((o[1].kind == TL_OPD_SYM && o[1].sym->kind == TL_SYM_SREG &&
                        is_place(o[1].sym->sreg)) ||
                       is_small_number(s->inst.form, &o[1]));
        bool grows = s->inst.form->op == TL_OP_add && s->n_operands == 3 &&
                     o[1].kind == TL_OPD_SYM && o[1].sym == reg &&
                     is_small_number(s->inst.form, &o[2]);
        if (!starts && !grows)
            return false;
    }
    return true;
}

void tl_affine_loosen(struct tl_affines *all, struct tl_affine *a)
{
    for (uint32_t i = 0; i < a->n;) {
        if (a->terms[i].factor < 0 && tl_affine_is_never_negative(all, &a->terms[i].leaf)) {
            a->terms[i] = a->terms[--a->n];
            a->is_upper = true;
        } else {
            i++;
        }
    }
}

/* --- branches ------------------------------------------------------------------------------ */

/* Whether only one edge leads to a block from outside of the loops that it heads. */
static bool is_entered_once(const struct tl_ptx_cfg *cfg, uint32_t block)
{
    uint32_t n = 0;
    for (uint32_t e = 0; e < cfg->blocks[block].n_preds; e++)
        n += !tl_ptx_cfg_dominates(cfg, block, cfg->blocks[block].preds[e]);
    return n == 1;
}

int tl_affine_known_way(const struct tl_affines *a, const struct tl_ptx_stmt *branch, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = a->cfg;
    uint32_t def = branch->inst.guard != NULL ? tl_affine_only_def(a, branch->inst.guard)
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

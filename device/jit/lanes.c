/* Which registers have lane offsets that are known when compiling.
 *
 * tid.x of a warp is a base and 0, 1, 2, ...; what is added, shifted or multiplied by constants
 * stays of that form.  An address of that form becomes one vector load instead of a gather, which
 * is the difference between 7 and 70 GFLOP/s on a tiled matrix product.
 *
 * A register has bases for the whole warp, so its definitions must happen to all lanes that will
 * read it together: which registers can have them is decided first, from where they are written and
 * read.  Then offsets are computed from what is assumed so far, again and again, until nothing
 * changes; a register whose definitions disagree is given up. */
#include <errno.h>
#include <string.h>

#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

static struct tl_lanes uniform_lanes(void)
{
    return (struct tl_lanes){.is_known = true, .has_one_base = true, .base_align = 1};
}

static bool all_equal(const struct tl_lanes *l)
{
    for (int i = 1; i < TL_LANES; i++) {
        if (l->offset[i] != l->offset[0])
            return false;
    }
    return true;
}

uint32_t tl_groups(const struct tl_emit *e)
{
    const uint32_t *block = e->options->block;
    uint32_t rows = block[0] < TL_LANES && TL_LANES % block[0] == 0 ? TL_LANES / block[0] : 1;
    return rows <= 4 && rows > 1 && block[1] % rows == 0 ? rows : 1;
}

/* The offsets of tid.<axis>, if lanes of a group differ by them whatever the warp. */
static bool thread_lanes(const struct tl_emit *e, char axis, struct tl_lanes *out)
{
    const uint32_t *block = e->options->block;
    uint32_t x = block[0], n = block[0] * block[1] * block[2];
    *out = (struct tl_lanes){
        .is_known = true, .has_one_base = true, .is_small = true, .base_align = 1};
    out->base_limit = block[axis - 'x'];
    if (block[1] * block[2] == 1 || x % TL_LANES == 0) { /* a warp lies in one row */
        if (axis != 'x')
            return true;
        for (int i = 0; i < TL_LANES; i++)
            out->offset[i] = i;
        out->base_align = TL_LANES;
        return true;
    }
    if (TL_LANES % x != 0 || n % TL_LANES != 0)
        return false;
    uint32_t rows = TL_LANES / x; /* several rows in a warp, always the same way */
    if (axis == 'x') {
        for (int i = 0; i < TL_LANES; i++)
            out->offset[i] = i % (int)x;
        out->base_align = 1u << 16;
        out->base_limit = 1;
        return true;
    }
    if (axis == 'y' && block[1] % rows == 0) {
        for (int i = 0; tl_groups(e) == 1 && i < TL_LANES; i++)
            out->offset[i] = i / (int)x; /* else rows are groups, and the row is in the base */
        out->base_align = tl_groups(e) == 1 ? rows : 1;
        out->has_one_base = tl_groups(e) == 1;
        return true;
    }
    return axis == 'z' && block[1] % rows == 0;
}

/* Of which each thread has its own, other than of parameters of the kernel. */
static bool is_call_param(const struct tl_fn *f, const struct tl_ptx_decl *d)
{
    const struct tl_ptx_func *func = f->pf->func;
    if (!tl_str_is(d->space, "param"))
        return false;
    for (const struct tl_ptx_decl *p = func->is_entry ? func->params : NULL; p != NULL;
         p = p->next) {
        if (p == d)
            return false;
    }
    return true;
}

static bool is_uniform(const struct tl_fn *f, const struct tl_ptx_operand *o)
{
    if (o->kind == TL_OPD_INT)
        return true;
    if (o->kind != TL_OPD_SYM || o->flags != 0)
        return false;
    if (o->sym->kind == TL_SYM_REG)
        return f->d.reg[o->sym->id] != TL_LEVEL_LANE;
    return (o->sym->kind == TL_SYM_VAR && !is_call_param(f, o->sym->decl)) ||
           o->sym->kind == TL_SYM_MODULE_VAR ||
           (o->sym->kind == TL_SYM_SREG &&
            (o->sym->sreg == TL_SREG_ctaid || o->sym->sreg == TL_SREG_nctaid ||
             o->sym->sreg == TL_SREG_ntid));
}

/* What is known of an operand's lanes where it is read: constants and names are the same for all,
 * registers as analysed.  False: nothing is known. */
bool tl_lanes_of_operand(struct tl_emit *e, const struct tl_fn *f, const struct tl_ptx_operand *o,
                         struct tl_lanes *out)
{
    if (is_uniform(f, o)) {
        *out = uniform_lanes();
        if (o->kind == TL_OPD_INT) {
            while (out->base_align < 1u << 16 && (o->bits & out->base_align) == 0)
                out->base_align *= 2;
            out->is_small = (int64_t)o->bits >= 0 && o->bits < 1u << 20;
            out->base_limit = out->is_small ? (uint32_t)o->bits + 1 : 0;
        } else if (o->sym->kind == TL_SYM_REG) {
            uint32_t align = f->regs[tl_reg_read(f, f->now, o->sym->id)].align;
            out->base_align = align != 0 ? align : 1;
        } else if (o->sym->kind == TL_SYM_VAR || o->sym->kind == TL_SYM_MODULE_VAR) {
            out->base_align = tl_align_of_name(e, o);
        }
        return true;
    }
    if (o->kind != TL_OPD_SYM || o->flags != 0)
        return false;
    if (o->sym->kind == TL_SYM_SREG && o->sym->sreg == TL_SREG_tid)
        return thread_lanes(e, o->component, out);
    if (o->sym->kind == TL_SYM_SREG && o->sym->sreg == TL_SREG_laneid) {
        *out = (struct tl_lanes){.is_known = true,
                                 .has_one_base = true,
                                 .is_small = true,
                                 .base_align = 1u << 16,
                                 .base_limit = 1};
        for (int i = 0; i < TL_LANES; i++)
            out->offset[i] = i;
        return true;
    }
    if (o->sym->kind != TL_SYM_REG || !f->regs[tl_reg_read(f, f->now, o->sym->id)].lanes.is_known)
        return false;
    *out = f->regs[tl_reg_read(f, f->now, o->sym->id)].lanes;
    return true;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The limit of numbers up to `most`, if that is so small that nothing wraps. */
static uint32_t limit_of(uint64_t most)
{
    return most < 1u << 28 ? (uint32_t)most + 1 : 0;
}

static bool combine(struct tl_lanes *out, const struct tl_lanes *a, const struct tl_lanes *b,
                    int sign)
{
    *out = *a;
    for (int i = 0; i < TL_LANES; i++)
        out->offset[i] += sign * b->offset[i];
    out->base_align = smaller(a->base_align, b->base_align);
    out->is_small = sign > 0 && a->is_small && b->is_small;
    out->is_lowered = sign < 0 || a->is_lowered || b->is_lowered;
    bool is_limited = sign > 0 && a->base_limit != 0 && b->base_limit != 0;
    out->base_limit = is_limited ? limit_of((uint64_t)a->base_limit - 1 + b->base_limit - 1) : 0;
    out->has_one_base = a->has_one_base && b->has_one_base;
    return true;
}

static bool scale(struct tl_lanes *out, const struct tl_lanes *a, int64_t factor)
{
    *out = *a;
    if (factor < -(1 << 24) || factor > 1 << 24)
        return false;
    for (int i = 0; i < TL_LANES; i++)
        out->offset[i] *= factor;
    for (int64_t f = factor; f != 0 && (f & 1) == 0 && out->base_align < 1u << 16; f /= 2)
        out->base_align *= 2;
    out->is_small = a->is_small && factor >= 0 && factor < 1 << 8;
    out->is_lowered |= factor < 0;
    bool is_limited = a->base_limit != 0 && factor >= 0;
    out->base_limit = is_limited ? limit_of((uint64_t)(a->base_limit - 1) * (uint64_t)factor) : 0;
    return true;
}

/* Of %ntid.x and so on, which is known when compiling; of others 0. */
static uint32_t block_size(const struct tl_emit *e, const struct tl_ptx_operand *o)
{
    bool is_size = o->sym->kind == TL_SYM_SREG && o->sym->sreg == TL_SREG_ntid;
    return is_size && o->component >= 'x' && o->component <= 'z'
               ? e->options->block[o->component - 'x']
               : 0;
}

/* The value of an operand that is known when compiling: a number, or a size of the block. */
static bool constant_of(const struct tl_emit *e, const struct tl_fn *f,
                        const struct tl_ptx_operand *o, int64_t *value)
{
    if (o->kind == TL_OPD_INT) {
        *value = (int64_t)o->bits;
        return true;
    }
    if (o->kind != TL_OPD_SYM || o->flags != 0)
        return false;
    bool is_reg = o->sym->kind == TL_SYM_REG;
    *value = is_reg ? f->regs[tl_reg_read(f, f->now, o->sym->id)].block_size : block_size(e, o);
    return *value != 0;
}

/* x * y: one of them a constant, or neither differs between lanes. */
static bool product(struct tl_emit *e, struct tl_fn *f, const struct tl_ptx_operand *x,
                    const struct tl_ptx_operand *y, struct tl_lanes *out)
{
    struct tl_lanes a, b;
    int64_t factor;
    if (constant_of(e, f, y, &factor))
        return tl_lanes_of_operand(e, f, x, &a) && scale(out, &a, factor);
    if (constant_of(e, f, x, &factor))
        return tl_lanes_of_operand(e, f, y, &a) && scale(out, &a, factor);
    if (!tl_lanes_of_operand(e, f, x, &a) || !tl_lanes_of_operand(e, f, y, &b) || !all_equal(&a) ||
        !all_equal(&b) || a.offset[0] != 0 || b.offset[0] != 0)
        return false;
    *out = uniform_lanes();
    out->has_one_base = a.has_one_base && b.has_one_base;
    return true;
}

/* Whether all offsets fit below the lowest bit that a base can have: then bits of the sum are those
 * of its parts. */
static bool fit_below(const struct tl_lanes *l, uint32_t align)
{
    for (int i = 0; i < TL_LANES; i++) {
        if (l->offset[i] < 0 || l->offset[i] >= (int64_t)align)
            return false;
    }
    return true;
}

static bool shift_right(struct tl_emit *e, struct tl_fn *f, const struct tl_ptx_stmt *s,
                        struct tl_lanes *out)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    if (o[2].kind != TL_OPD_INT || o[2].bits >= 32 || !tl_lanes_of_operand(e, f, &o[1], out) ||
        !out->is_small || !fit_below(out, out->base_align))
        return false;
    for (int i = 0; i < TL_LANES; i++)
        out->offset[i] >>= o[2].bits;
    out->base_align >>= o[2].bits;
    out->base_align += out->base_align == 0; /* all offsets were shifted out, then */
    out->base_limit = out->base_limit != 0 ? limit_of((uint64_t)(out->base_limit - 1) >> o[2].bits)
                                           : 0;
    return true;
}

/* A constant as a base that is a multiple of `align` and an offset for all lanes. */
static void split_constant(const struct tl_ptx_operand *o, uint32_t align, struct tl_lanes *l)
{
    for (int i = 0; i < TL_LANES; i++)
        l->offset[i] = (int64_t)(o->bits & (align - 1));
    l->base_align = align;
}

/* Bits that any lane may have, of one whose base is 0; else all. */
static uint64_t bits_of(const struct tl_lanes *l)
{
    uint64_t bits = 0;
    for (int i = 0; i < TL_LANES; i++)
        bits |= (uint64_t)l->offset[i];
    return l->base_limit == 1 ? bits : UINT64_MAX;
}

/* a | b, where no lane of `a`, whose base is 0, has a bit below those of `b`: parts of a number put
 * together again. */
static bool put_together(const struct tl_lanes *a, const struct tl_lanes *b, struct tl_lanes *out)
{
    uint64_t below = 1;
    if (b->base_limit == 0)
        return false;
    for (int i = 0; i < TL_LANES; i++) {
        while (b->offset[i] < 0 || below < b->base_limit + (uint64_t)b->offset[i]) {
            below *= 2;
            if (b->offset[i] < 0 || below > 1u << 28)
                return false;
        }
    }
    return (bits_of(a) & (below - 1)) == 0 && combine(out, a, b, 1);
}

/* and, or, xor: bit by bit, of bases and offsets apart. */
static bool bitwise(struct tl_emit *e, struct tl_fn *f, const struct tl_ptx_stmt *s,
                    struct tl_lanes *out)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    enum tl_ptx_op op = s->inst.form->op;
    struct tl_lanes a, b;
    if (!tl_lanes_of_operand(e, f, &o[1], &a) || !tl_lanes_of_operand(e, f, &o[2], &b))
        return false;
    if (op != TL_OP_and && (put_together(&a, &b, out) || put_together(&b, &a, out)))
        return true;
    if (o[2].kind == TL_OPD_INT)
        split_constant(&o[2], a.base_align, &b);
    if (o[1].kind == TL_OPD_INT)
        split_constant(&o[1], b.base_align, &a);
    uint32_t align = smaller(a.base_align, b.base_align);
    if (!fit_below(&a, align) || !fit_below(&b, align))
        return false;
    *out = a;
    for (int i = 0; i < TL_LANES; i++) {
        int64_t x = a.offset[i], y = b.offset[i];
        out->offset[i] = op == TL_OP_and ? x & y : op == TL_OP_or ? x | y : x ^ y;
    }
    /* x & (2^n - 1) with a base that is a multiple of 2^n: the base is 0. */
    bool is_low = op == TL_OP_and && o[2].kind == TL_OPD_INT && o[2].bits < a.base_align;
    out->base_align = is_low ? 1u << 16 : align;
    out->base_limit = is_low ? 1 : op == TL_OP_and ? a.base_limit : 0;
    out->has_one_base = is_low || (a.has_one_base && b.has_one_base);
    out->is_small = op == TL_OP_and ? a.is_small || b.is_small : a.is_small && b.is_small;
    return true;
}

static bool is_integer(struct tl_type t)
{
    return t.packed == 1 && (t.bits == 32 || t.bits == 64) && t.kind != TL_T_FLOAT &&
           t.kind != TL_T_BFLOAT;
}

/* A number of 32 bits that is below 0, if it is one. */
static bool is_negative(const struct tl_ptx_operand *o)
{
    return o->kind == TL_OPD_INT && (int32_t)(uint32_t)o->bits < 0;
}

/* Whether a number without a sign becomes wider that may be below 0 in some lanes: that wraps in
 * these lanes and not in others, so that no base is right for all, and it is not rare. */
static bool parts_by_widening(const struct tl_ptx_form *form, struct tl_type from,
                              const struct tl_lanes *l)
{
    bool widens = tl_type_of(form, 0).bits == 64 || tl_ptx_form_has(form, TL_MOD_wide);
    return widens && from.bits == 32 && from.kind != TL_T_SIGNED && l->is_lowered && !all_equal(l);
}

/* Of a product the factor that lanes differ in. */
static bool product_parts(struct tl_emit *e, struct tl_fn *f, const struct tl_ptx_stmt *s)
{
    struct tl_lanes l;
    for (int i = 1; i <= 2 && tl_ptx_form_has(s->inst.form, TL_MOD_wide); i++)
        if (tl_lanes_of_operand(e, f, &s->inst.operands[i], &l) &&
            parts_by_widening(s->inst.form, tl_type_of(s->inst.form, 0), &l))
            return true;
    return false;
}

/* What an instruction's result has, if its operands have what is known so far.  False: nothing is
 * known. */
static bool lanes_of_def(struct tl_emit *e, struct tl_fn *f, const struct tl_ptx_stmt *s,
                         struct tl_lanes *out)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    const struct tl_ptx_form *form = s->inst.form;
    struct tl_lanes a, b;
    struct tl_type t = tl_type_of(form, 0);
    if (s->inst.guard != NULL || s->n_operands < 2 || o[0].kind != TL_OPD_SYM || !is_integer(t) ||
        tl_ptx_form_has(form, TL_MOD_sat) || tl_ptx_form_has(form, TL_MOD_cc))
        return false;
    switch (form->op) {
    case TL_OP_mov:
        return tl_lanes_of_operand(e, f, &o[1], out);
    case TL_OP_cvta:
        return !tl_ptx_form_has(form, TL_MOD_local) && tl_lanes_of_operand(e, f, &o[1], out);
    case TL_OP_cvt:
        /* widening is guarded against wrapping, see tl_widen_index; what is cut off is cut off of
         * the base */
        return is_integer(tl_type_of(form, 1)) && tl_lanes_of_operand(e, f, &o[1], out) &&
               !parts_by_widening(form, tl_type_of(form, 1), out);
    case TL_OP_add:
    case TL_OP_sub:
        if (s->n_operands != 3 || !tl_lanes_of_operand(e, f, &o[1], &a) ||
            !tl_lanes_of_operand(e, f, &o[2], &b))
            return false;
        combine(out, &a, &b, form->op == TL_OP_add ? 1 : -1);
        out->is_lowered |= t.bits == 32 && (is_negative(&o[1]) || is_negative(&o[2]));
        return true;
    case TL_OP_mul:
        return s->n_operands == 3 && !tl_ptx_form_has(form, TL_MOD_hi) && !product_parts(e, f, s) &&
               product(e, f, &o[1], &o[2], out);
    case TL_OP_mad:
        if (s->n_operands != 4 || tl_ptx_form_has(form, TL_MOD_hi) || product_parts(e, f, s) ||
            !product(e, f, &o[1], &o[2], &a) || !tl_lanes_of_operand(e, f, &o[3], &b))
            return false;
        combine(out, &a, &b, 1);
        out->is_lowered |= t.bits == 32 && is_negative(&o[3]);
        return true;
    case TL_OP_shl:
        return s->n_operands == 3 && o[2].kind == TL_OPD_INT && o[2].bits < 24 &&
               tl_lanes_of_operand(e, f, &o[1], &a) && scale(out, &a, (int64_t)1 << o[2].bits);
    case TL_OP_shr:
        return s->n_operands == 3 && shift_right(e, f, s, out);
    case TL_OP_and:
    case TL_OP_or:
    case TL_OP_xor:
        return s->n_operands == 3 && bitwise(e, f, s, out);
    default:
        return false;
    }
}

/* --- which registers can have bases ----------------------------------------------------------- */

/* Three kinds can:
 * - all definitions where lanes are together: then all lanes always have the same one;
 * - a single definition, not read behind the loop that it stands in if lanes part there: those that
 * have left keep what they
 *   had, while the base goes on;
 * - `i = tid; do { ... i += stride; } while (...)`: a start outside, one step that every round
 * makes, no reader behind the
 *   loop.  All lanes that are still in the loop have made the same number of steps. */
enum state { GIVEN_UP, OPEN, FOUND };

struct candidate {
    uint32_t defs[2]; /* instructions: the first two */
    uint32_t loop;    /* head of the loop behind which it must not be read, or TL_CFG_NONE */
    bool is_joint;    /* all definitions where lanes are together */
    /* of a vector or list of results, somewhere: such definitions are not looked at */
    bool is_part;
    enum state state;
};

struct scan {
    struct tl_fn *f;
    struct candidate *regs;
    struct tl_ptx_set *loops;  /* per head */
    struct tl_ptx_set *behind; /* per head: blocks outside of the loop that it leads to */
    uint32_t *loop_of;         /* per block: head of the innermost loop */
    uint32_t inst;
    bool is_open; /* a register that was looked at has no offsets yet */
};

static void note_def_of(struct scan *m, uint32_t id, const struct tl_ptx_sym *reg)
{
    struct candidate *c = &m->regs[id];
    const struct tl_ptx_stmt *s = m->f->cfg.insts[m->inst];
    uint32_t n = m->f->regs[id].n_defs++;
    if (n < 2)
        c->defs[n] = m->inst;
    c->is_part |= s->n_operands == 0 || s->inst.operands[0].kind != TL_OPD_SYM ||
                  s->inst.operands[0].sym != reg;
    c->is_joint = (n == 0 || c->is_joint) &&
                  m->f->d.block[m->f->cfg.block_of[m->inst]] != TL_LEVEL_LANE &&
                  s->inst.guard == NULL;
}

static void note_def(void *data, struct tl_ptx_sym *reg)
{
    struct scan *m = data;
    note_def_of(m, reg->id, reg);
    if (m->f->shadow_write[m->inst] != TL_CFG_NONE)
        note_def_of(m, m->f->shadow_write[m->inst], reg);
}

static void check_reader(void *data, struct tl_ptx_sym *reg)
{
    struct scan *m = data;
    struct candidate *c = &m->regs[tl_reg_read(m->f, m->inst, reg->id)];
    if (c->state == OPEN && c->loop != TL_CFG_NONE &&
        !tl_ptx_set_has(&m->loops[c->loop], m->f->cfg.block_of[m->inst]))
        c->state = GIVEN_UP;
}

static void look_for_open(void *data, struct tl_ptx_sym *reg)
{
    struct scan *m = data;
    m->is_open |= m->regs[tl_reg_read(m->f, m->inst, reg->id)].state == OPEN;
}

static bool every_round_makes(const struct scan *m, uint32_t head, uint32_t block)
{
    const struct tl_ptx_cfg *cfg = &m->f->cfg;
    for (uint32_t e = 0; e < cfg->blocks[head].n_preds; e++) {
        uint32_t tail = cfg->blocks[head].preds[e];
        if (tl_ptx_set_has(&m->loops[head], tail) && !tl_ptx_cfg_dominates(cfg, block, tail))
            return false;
    }
    return true;
}

/* Whether a loop moves the register on; then c->loop is that loop. */
static bool is_moved(const struct scan *m, struct candidate *c)
{
    const struct tl_ptx_cfg *cfg = &m->f->cfg;
    for (int turn = 0; turn < 2; turn++) {
        uint32_t start = cfg->block_of[c->defs[turn]], step = cfg->block_of[c->defs[!turn]],
                 head = m->loop_of[step];
        c->loop = head;
        if (head != TL_CFG_NONE && !tl_ptx_set_has(&m->loops[head], start) &&
            tl_ptx_cfg_dominates(cfg, start, head) && every_round_makes(m, head, step))
            return true;
    }
    return false;
}

static void judge(struct scan *m, uint32_t reg)
{
    const struct tl_fn *f = m->f;
    struct candidate *c = &m->regs[reg];
    uint32_t n = f->regs[reg].n_defs;
    c->loop = TL_CFG_NONE;
    if (n == 0 || c->is_part || f->regs[reg].is_opaque ||
        (reg < f->cfg.func->n_regs && f->d.reg[reg] != TL_LEVEL_LANE))
        return; /* shadows are of registers that differ between lanes */
    c->state = OPEN;
    if (c->is_joint)
        return;
    if (n == 1)
        c->loop = m->loop_of[f->cfg.block_of[c->defs[0]]];
    else if (n > 2 || !is_moved(m, c))
        c->state = GIVEN_UP;
}

/* Everything outside of a loop that can be reached from it. */
static void find_behind(const struct tl_ptx_cfg *cfg, const struct tl_ptx_set *loop,
                        struct tl_ptx_set *behind, uint32_t *stack)
{
    uint32_t depth = 0;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (tl_ptx_set_has(loop, b))
            stack[depth++] = b;
    }
    while (depth > 0) {
        const struct tl_ptx_block *k = &cfg->blocks[stack[--depth]];
        for (uint32_t i = 0; i < k->n_succs; i++) {
            uint32_t to = k->succs[i];
            if (to == cfg->n_blocks || tl_ptx_set_has(loop, to) || tl_ptx_set_has(behind, to))
                continue;
            tl_ptx_set_add(behind, to);
            stack[depth++] = to;
        }
    }
}

static int find_loops(struct tl_emit *e, struct scan *m)
{
    const struct tl_ptx_cfg *cfg = &m->f->cfg;
    uint32_t n = cfg->n_blocks + 1;
    struct tl_ptx_set scratch, loop;
    uint32_t *stack = tl_arena_alloc(e->arena, ((size_t)n + 1) * sizeof *stack);
    m->loops = tl_arena_zalloc(e->arena, n * sizeof *m->loops);
    m->behind = tl_arena_zalloc(e->arena, n * sizeof *m->behind);
    m->loop_of = tl_arena_alloc(e->arena, n * sizeof *m->loop_of);
    if (stack == NULL || m->loops == NULL || m->behind == NULL || m->loop_of == NULL ||
        tl_ptx_set_init(&scratch, e->arena, cfg) < 0 || tl_ptx_set_init(&loop, e->arena, cfg) < 0)
        return -ENOMEM;
    memset(m->loop_of, 0xff, n * sizeof *m->loop_of);
    for (uint32_t i = 0; i < cfg->n_order; i++) {
        uint32_t head = cfg->order[i];
        if (!tl_ptx_cfg_loop(cfg, head, &loop, &scratch, stack))
            continue;
        m->loops[head] = loop;
        for (uint32_t b = 0; b < cfg->n_blocks; b++) {
            if (tl_ptx_set_has(&loop, b))
                m->loop_of[b] = head;
        }
        if (tl_ptx_set_init(&loop, e->arena, cfg) < 0 ||
            tl_ptx_set_init(&m->behind[head], e->arena, cfg) < 0)
            return -ENOMEM;
        find_behind(cfg, &m->loops[head], &m->behind[head], stack);
    }
    return 0;
}

/* Shadows that cannot have bases are none. */
static void drop_shadows(struct scan *m)
{
    for (uint32_t r = m->f->cfg.func->n_regs; r < m->f->n_regs; r++) {
        if (m->regs[r].state == GIVEN_UP)
            m->f->regs[r].bits = 0;
    }
}

static int find_candidates(struct tl_emit *e, struct scan *m)
{
    const struct tl_ptx_cfg *cfg = &m->f->cfg;
    m->regs = tl_arena_zalloc(e->arena, ((size_t)m->f->n_regs + 1) * sizeof *m->regs);
    if (m->regs == NULL || find_loops(e, m) < 0)
        return -ENOMEM;
    for (m->inst = 0; m->inst < cfg->n_insts; m->inst++)
        tl_ptx_inst_writes(cfg->insts[m->inst], note_def, m);
    for (uint32_t r = 0; r < m->f->n_regs; r++)
        judge(m, r);
    for (int turn = 0; turn < 2; turn++) {
        for (m->inst = 0; m->inst < cfg->n_insts; m->inst++)
            tl_ptx_inst_reads(cfg->insts[m->inst], check_reader, m);
        drop_shadows(m); /* whose readers then read the register itself: look at those again */
    }
    return 0;
}

/* --- offsets ---------------------------------------------------------------------------------- */

static bool same_shape(const struct tl_lanes *a, const struct tl_lanes *b, uint32_t n_bases)
{
    for (uint32_t i = 0, per = TL_LANES / n_bases; i < TL_LANES; i++) {
        uint32_t first = i / per * per;
        if (a->offset[i] - a->offset[first] != b->offset[i] - b->offset[first])
            return false;
    }
    return true;
}

/* What holds for both: `a`'s offsets, and bases as many as needed. */
static bool merge(const struct tl_emit *e, struct tl_lanes *a, const struct tl_lanes *b)
{
    a->has_one_base = a->has_one_base && b->has_one_base && same_shape(a, b, 1);
    if (!same_shape(a, b, tl_n_bases(e, a)))
        return false;
    a->base_align = smaller(a->base_align, b->base_align);
    for (int i = 0; i < TL_LANES; i++) { /* b's bases, told in a's offsets, are so much higher */
        int64_t more = b->offset[i] - a->offset[i];
        while (a->base_align > 1 && more % (int64_t)a->base_align != 0)
            a->base_align /= 2;
    }
    return true;
}

static bool same_lanes(const struct tl_lanes *a, const struct tl_lanes *b)
{
    return a->has_one_base == b->has_one_base && a->is_small == b->is_small &&
           a->base_align == b->base_align && a->base_limit == b->base_limit &&
           memcmp(a->offset, b->offset, sizeof a->offset) == 0;
}

/* What an instruction gives the register or shadow; true if something is known that was not, or no
 * longer. */
static bool visit_result(struct tl_emit *e, struct scan *m, const struct tl_ptx_stmt *s,
                         uint32_t id)
{
    struct tl_reg *r = &m->f->regs[id];
    struct candidate *c = &m->regs[id];
    if (c->state == GIVEN_UP)
        return false;
    struct tl_lanes now, old = r->lanes;
    bool is_known = lanes_of_def(e, m->f, s, &now);
    if (is_known && r->n_defs > 1) {
        now.is_small = false;
        now.base_limit = 0;
        if (c->state == FOUND) {
            struct tl_lanes both = old;
            is_known = merge(e, &both, &now);
            now = both;
        }
    }
    c->state = is_known ? FOUND : GIVEN_UP;
    r->lanes = is_known ? now : (struct tl_lanes){.is_known = false};
    return is_known != old.is_known || (is_known && !same_lanes(&old, &r->lanes));
}

static bool visit(struct tl_emit *e, struct scan *m)
{
    const struct tl_ptx_stmt *s = m->f->cfg.insts[m->inst];
    if (s->n_operands == 0 || s->inst.operands[0].kind != TL_OPD_SYM ||
        s->inst.operands[0].sym->kind != TL_SYM_REG || !tl_ptx_form_writes(s->inst.form))
        return false;
    m->is_open = false;
    tl_ptx_inst_reads(s, look_for_open, m);
    if (m->is_open)
        return false; /* its turn comes when more is known */
    m->f->now = m->inst;
    bool changed = visit_result(e, m, s, s->inst.operands[0].sym->id);
    if (m->f->shadow_write[m->inst] != TL_CFG_NONE)
        changed |= visit_result(e, m, s, m->f->shadow_write[m->inst]);
    m->f->now = TL_CFG_NONE;
    return changed;
}

/* Gives up registers that are computed from nothing but each other; false if there are none. */
static bool give_up_open(struct scan *m)
{
    bool found = false;
    for (uint32_t r = 0; r < m->f->n_regs; r++) {
        if (m->regs[r].state == OPEN) {
            m->regs[r].state = GIVEN_UP;
            found = true;
        }
    }
    return found;
}

/* Registers that hold where an array begins, a size of the block, or something shifted, and nothing
 * else. */
static void note_constants(struct tl_emit *e, struct tl_fn *f)
{
    for (uint32_t i = 0; i < f->cfg.n_insts; i++) {
        const struct tl_ptx_stmt *s = f->cfg.insts[i];
        const struct tl_ptx_operand *o = s->inst.operands;
        if (s->inst.guard != NULL || s->n_operands < 2 || o[0].kind != TL_OPD_SYM ||
            o[0].sym->kind != TL_SYM_REG)
            continue;
        struct tl_reg *r = &f->regs[o[0].sym->id];
        if (r->n_defs != 1 || r->bits < 32 || f->d.reg[o[0].sym->id] == TL_LEVEL_LANE)
            continue;
        if (s->inst.form->op == TL_OP_shl && s->n_operands == 3 && o[2].kind == TL_OPD_INT &&
            o[2].bits <= 16)
            r->align = 1u << o[2].bits;
        if (s->inst.form->op != TL_OP_mov || s->n_operands != 2 || o[1].kind != TL_OPD_SYM ||
            o[1].flags != 0)
            continue;
        if (o[1].sym->kind == TL_SYM_VAR || o[1].sym->kind == TL_SYM_MODULE_VAR)
            r->align = tl_align_of_name(e, &o[1]);
        else
            r->block_size = block_size(e, &o[1]);
    }
}

int tl_lanes_analyse(struct tl_emit *e, struct tl_fn *f)
{
    const struct tl_ptx_cfg *cfg = &f->cfg;
    struct scan m = {.f = f};
    if (find_candidates(e, &m) < 0)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    note_constants(e, f);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < cfg->n_order; i++) {
            const struct tl_ptx_block *k = &cfg->blocks[cfg->order[i]];
            for (m.inst = k->first; m.inst < k->end; m.inst++)
                changed |= visit(e, &m);
        }
        if (!changed)
            changed = give_up_open(&m);
    }
    /* Where a definition's offsets are not known, neither are those of its register. */
    drop_shadows(&m);
    return 0;
}

/* The offsets of a register's lanes, for calls out. */
static LLVMValueRef offset_table(struct tl_emit *e, const struct tl_lanes *l)
{
    LLVMValueRef values[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        values[i] = LLVMConstInt(e->i64, (uint64_t)l->offset[i], true);
    LLVMValueRef table = LLVMAddGlobal(e->mod, LLVMArrayType2(e->i64, TL_LANES), "offsets");
    LLVMSetInitializer(table, LLVMConstArray2(e->i64, values, TL_LANES));
    LLVMSetGlobalConstant(table, true);
    LLVMSetLinkage(table, LLVMPrivateLinkage);
    return table;
}

/* See function.h: where a base wraps for the active lanes only, another one is found at run time,
 * or the launch ends. */
struct tl_val tl_widen_index(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v,
                             bool is_signed)
{
    struct tl_reg *r = o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG
                           ? &e->f->regs[tl_reg_read(e->f, e->f->now, o->sym->id)]
                           : NULL;
    if (!e->is_scalar || r == NULL || !r->lanes.is_known || r->lanes.is_small || r->bits != 32 ||
        all_equal(&r->lanes))
        return tl_cast_int(e, v, 64, is_signed);
    int64_t low = 0, high = 0;
    for (int i = 0; i < TL_LANES; i++) {
        low = r->lanes.offset[i] < low ? r->lanes.offset[i] : low;
        high = r->lanes.offset[i] > high ? r->lanes.offset[i] : high;
    }
    int64_t least = is_signed ? INT32_MIN : 0, most = is_signed ? INT32_MAX : UINT32_MAX;
    uint32_t per_base = TL_LANES / r->n_slots, group = e->lane / per_base;
    uint32_t sharing = (uint32_t)(((UINT64_C(1) << per_base) - 1) << group * per_base);
    LLVMValueRef base = tl_get(e, r, group);
    LLVMValueRef wide = tl_cast_int(e, (struct tl_val){base, false}, 64, is_signed).v;
    LLVMValueRef below = LLVMBuildICmp(e->b, LLVMIntSLT, wide,
                                       LLVMConstInt(e->i64, (uint64_t)(least - low), true), "");
    LLVMValueRef above = LLVMBuildICmp(e->b, LLVMIntSGT, wide,
                                       LLVMConstInt(e->i64, (uint64_t)(most - high), true), "");
    LLVMValueRef plain = tl_cast_int(e, v, 64, is_signed).v, offset;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef rare = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "wraps");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "widened");
    LLVMBuildCondBr(e->b, LLVMBuildOr(e->b, below, above, ""), rare, after);
    LLVMPositionBuilderAtEnd(e->b, rare);
    LLVMValueRef lanes = LLVMBuildAnd(e->b, tl_active_bits(e), LLVMConstInt(e->i32, sharing, false),
                                      "");
    LLVMValueRef args[6] = {e->f->frame,
                            e->f->warp,
                            base,
                            lanes,
                            offset_table(e, &r->lanes),
                            LLVMConstInt(e->i32, is_signed, false)};
    LLVMValueRef other = tl_call_frame(e, offsetof(struct tl_dev_calls, rebase), e->i64, args, 6);
    offset = LLVMConstInt(e->i64, (uint64_t)r->lanes.offset[e->lane], true);
    other = LLVMBuildAdd(e->b, other, offset, "");
    rare = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, after);
    LLVMPositionBuilderAtEnd(e->b, after);
    LLVMValueRef phi = LLVMBuildPhi(e->b, e->i64, "");
    LLVMAddIncoming(phi, (LLVMValueRef[2]){plain, other}, (LLVMBasicBlockRef[2]){here, rare}, 2);
    return (struct tl_val){phi, false};
}

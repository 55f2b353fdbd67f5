/* What is known of a loop: see loop.h.
 *
 * "In the loop" means: on a way from its head back to it. */
#include "ptx_rewrite/loop.h"

#include "ptx_rewrite/flags.h"

/* --- registers and blocks of the loop --------------------------------------------------------- */

bool tl_loop_has(const struct tl_ptx_ends *x, uint32_t inst)
{
    return tl_ptx_set_has(x->loop, x->cfg->block_of[inst]);
}

bool tl_loop_passes(const struct tl_ptx_ends *x, uint32_t block)
{
    const struct tl_ptx_block *head = &x->cfg->blocks[x->head];
    for (uint32_t e = 0; e < head->n_preds; e++) {
        uint32_t tail = head->preds[e];
        if (tl_ptx_set_has(x->loop, tail) && (!tl_ptx_cfg_dominates(x->cfg, x->head, tail) ||
                                              !tl_ptx_cfg_dominates(x->cfg, block, tail)))
            return false;
    }
    return true;
}

uint32_t tl_loop_def(const struct tl_ptx_ends *x, const struct tl_ptx_sym *reg)
{
    uint32_t found = TL_CFG_NONE;
    for (uint32_t d = x->affines->first_def[reg->id]; d < x->affines->first_def[reg->id + 1]; d++) {
        uint32_t inst = x->affines->defs[d];
        if (!tl_loop_has(x, inst))
            continue;
        if (found != TL_CFG_NONE || x->cfg->insts[inst]->inst.guard != NULL)
            return TL_CFG_NONE;
        found = inst;
    }
    return found;
}

bool tl_loop_is_reg(const struct tl_ptx_operand *o)
{
    return o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG && o->flags == 0;
}

bool tl_loop_is_float(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_f16) || tl_ptx_form_has(f, TL_MOD_f32) ||
           tl_ptx_form_has(f, TL_MOD_f64) || tl_ptx_form_has(f, TL_MOD_bf16);
}

int64_t tl_loop_signed(const struct tl_ptx_form *f, uint64_t bits)
{
    bool is_64 = tl_ptx_form_has(f, TL_MOD_u64) || tl_ptx_form_has(f, TL_MOD_s64) ||
                 tl_ptx_form_has(f, TL_MOD_b64);
    return is_64 ? (int64_t)bits : (int32_t)bits;
}

bool tl_loop_keeps(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t hops)
{
    if (o->kind == TL_OPD_INT)
        return true;
    if (o->kind == TL_OPD_ADDR || o->kind == TL_OPD_VEC) {
        for (uint32_t i = 0; i < o->n; i++) {
            if (!tl_loop_keeps(x, &o->elems[i], hops))
                return false;
        }
        return true;
    }
    if (o->kind != TL_OPD_SYM || hops > TL_LOOP_HOPS)
        return false;
    if (o->sym->kind == TL_SYM_SREG)
        return o->sym->sreg == TL_SREG_ctaid || o->sym->sreg == TL_SREG_nctaid ||
               o->sym->sreg == TL_SREG_tid || o->sym->sreg == TL_SREG_ntid ||
               o->sym->sreg == TL_SREG_laneid;
    if (o->sym->kind != TL_SYM_REG)
        return o->sym->kind == TL_SYM_VAR || o->sym->kind == TL_SYM_MODULE_VAR;
    if (!x->varies[o->sym->id])
        return true;
    uint32_t def = tl_loop_def(x, o->sym);
    if (def == TL_CFG_NONE)
        return false;
    const struct tl_ptx_stmt *s = x->cfg->insts[def];
    const struct tl_ptx_form *form = s->inst.form;
    bool is_param = form->op == TL_OP_ld && tl_ptx_form_space(form) == TL_MOD_param;
    if (!tl_ptx_form_computes(form) && !(is_param && x->cfg->func->is_entry))
        return false;
    for (uint32_t i = 1; i < s->n_operands; i++) {
        if (!tl_loop_keeps(x, &s->inst.operands[i], hops + 1))
            return false;
    }
    return true;
}

/* Whether the operands of an instruction from `first` on are of a few numbers each. */
static bool picks_operands(const struct tl_ptx_ends *x, const struct tl_ptx_stmt *s, uint32_t first,
                           uint32_t end, uint32_t hops)
{
    for (uint32_t i = first; i < end && i < s->n_operands; i++) {
        if (!tl_loop_picks(x, &s->inst.operands[i], hops + 1))
            return false;
    }
    return true;
}

/* Whether an instruction gives one of a few numbers. */
static bool gives_few(const struct tl_ptx_ends *x, const struct tl_ptx_stmt *s, uint32_t hops)
{
    enum { FEW = 64 };
    const struct tl_ptx_operand *last = &s->inst.operands[s->n_operands - 1];
    switch (s->inst.form->op) {
    case TL_OP_and:
    case TL_OP_rem:
        if (last->kind == TL_OPD_INT && last->bits < FEW)
            return true;
        break;
    case TL_OP_selp: /* whichever it is */
        return picks_operands(x, s, 1, 3, hops);
    default:
        break;
    }
    return tl_ptx_form_computes(s->inst.form) && picks_operands(x, s, 1, UINT32_MAX, hops);
}

bool tl_loop_picks(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t hops)
{
    enum { MAX_HOPS = 5 };
    if (tl_loop_keeps(x, o, 0))
        return true;
    if (hops > MAX_HOPS)
        return false;
    if (o->kind == TL_OPD_ADDR && o->n == 1)
        return tl_loop_picks(x, &o->elems[0], hops);
    if (!tl_loop_is_reg(o))
        return false;
    for (uint32_t d = x->affines->first_def[o->sym->id]; d < x->affines->first_def[o->sym->id + 1];
         d++) {
        uint32_t inst = x->affines->defs[d];
        if (tl_loop_has(x, inst) && !gives_few(x, x->cfg->insts[inst], hops))
            return false;
    }
    return true;
}

/* A step as a register of that width sees it; 0 if it is so large that a few rounds lead back to
 * the same number.  (In 64 bits a few steps lead out of all memory.) */
static int64_t in_register(const struct tl_ptx_sym *reg, int64_t step)
{
    enum { MAX_STEP = 1 << 26, MAX_OF_HALF = 1 << 10 };
    switch (tl_ptx_type_bytes(reg->decl->type)) {
    case 8:
        return step;
    case 4:
        step = (int32_t)step;
        return step <= MAX_STEP && step >= -MAX_STEP ? step : 0;
    case 2:
        step = (int16_t)step;
        return step <= MAX_OF_HALF && step >= -MAX_OF_HALF ? step : 0;
    default:
        return 0;
    }
}

/* How much a register grows from round to round, always the same: 0 if that is not so.  */
static int64_t step_of(const struct tl_ptx_ends *x, const struct tl_ptx_sym *reg)
{
    const struct tl_ptx_sym *at = reg;
    int64_t step = 0;
    for (uint32_t hops = 0; hops < TL_LOOP_HOPS; hops++) {
        uint32_t def = tl_loop_def(x, at);
        if (def == TL_CFG_NONE || !tl_loop_passes(x, x->cfg->block_of[def]))
            return 0;
        const struct tl_ptx_stmt *s = x->cfg->insts[def];
        const struct tl_ptx_operand *o = s->inst.operands;
        const struct tl_ptx_operand *from = s->n_operands > 1 ? &o[1] : NULL;
        if (s->inst.form->op == TL_OP_mov && s->n_operands == 2 && tl_loop_is_reg(&o[1])) {
            at = o[1].sym;
        } else if ((s->inst.form->op == TL_OP_add || s->inst.form->op == TL_OP_sub) &&
                   s->n_operands == 3 && !tl_ptx_form_has(s->inst.form, TL_MOD_cc) &&
                   !tl_ptx_form_has(s->inst.form, TL_MOD_sat) && !tl_loop_is_float(s->inst.form)) {
            const struct tl_ptx_operand *by = &o[2];
            if (s->inst.form->op == TL_OP_add && o[1].kind == TL_OPD_INT) {
                by = &o[1];
                from = &o[2];
            }
            if (by->kind != TL_OPD_INT || !tl_loop_is_reg(from))
                return 0;
            int64_t n = tl_loop_signed(s->inst.form, by->bits);
            step += s->inst.form->op == TL_OP_add ? n : -n;
            at = from->sym;
        } else {
            return 0;
        }
        if (at == reg)
            return in_register(reg, step);
    }
    return 0;
}

/* A product of a step; 0 if it is so large that a few rounds lead back to the same place. */
static int64_t scaled(int64_t step, int64_t by)
{
    enum { MAX_STEP = 1 << 26 };
    int64_t product;
    if (__builtin_mul_overflow(step, by, &product) || product > MAX_STEP || product < -MAX_STEP)
        return 0;
    return product;
}

/* Numbers of less than 32 bits come round soon. */
static bool is_of_halves(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_u8) || tl_ptx_form_has(f, TL_MOD_s8) ||
           tl_ptx_form_has(f, TL_MOD_u16) || tl_ptx_form_has(f, TL_MOD_s16);
}

/* The same of what an instruction number `def` makes of others. */
static int64_t step_of_made(const struct tl_ptx_ends *x, uint32_t def, uint32_t hops)
{
    const struct tl_ptx_stmt *s = x->cfg->insts[def];
    const struct tl_ptx_operand *p = s->inst.operands;
    if (tl_loop_is_float(s->inst.form) || tl_ptx_form_has(s->inst.form, TL_MOD_sat))
        return 0;
    switch (s->inst.form->op) {
    case TL_OP_mov:
    case TL_OP_cvta:
    case TL_OP_cvt:
        return s->n_operands == 2 && !is_of_halves(s->inst.form)
                   ? tl_loop_step(x, &p[1], def, hops + 1)
                   : 0;
    case TL_OP_add:
        if (s->n_operands != 3 || tl_ptx_form_has(s->inst.form, TL_MOD_cc))
            return 0;
        if (tl_loop_keeps(x, &p[2], 0))
            return tl_loop_step(x, &p[1], def, hops + 1);
        return tl_loop_keeps(x, &p[1], 0) ? tl_loop_step(x, &p[2], def, hops + 1) : 0;
    case TL_OP_sub:
        return s->n_operands == 3 && tl_loop_keeps(x, &p[2], 0)
                   ? tl_loop_step(x, &p[1], def, hops + 1)
                   : 0;
    case TL_OP_shl:
        if (s->n_operands != 3 || p[2].kind != TL_OPD_INT || p[2].bits > 16)
            return 0;
        return scaled(tl_loop_step(x, &p[1], def, hops + 1), (int64_t)1 << p[2].bits);
    case TL_OP_mul:
    case TL_OP_mad:
        if (s->n_operands < 3 || p[2].kind != TL_OPD_INT || p[2].bits == 0 ||
            tl_ptx_form_has(s->inst.form, TL_MOD_hi) || is_of_halves(s->inst.form) ||
            (s->inst.form->op == TL_OP_mad && !tl_loop_keeps(x, &p[3], 0)))
            return 0;
        return scaled(tl_loop_step(x, &p[1], def, hops + 1), (int32_t)p[2].bits);
    default:
        return 0;
    }
}

int64_t tl_loop_step(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t at,
                     uint32_t hops)
{
    if (!tl_loop_is_reg(o) || hops > TL_LOOP_HOPS)
        return 0;
    int64_t step = step_of(x, o->sym);
    if (step != 0)
        return step;
    uint32_t def = tl_loop_def(x, o->sym);
    /* One that some rounds leave out may have stayed as it was. */
    if (def == TL_CFG_NONE ||
        (!tl_loop_passes(x, x->cfg->block_of[def]) &&
         !tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], x->cfg->block_of[at])))
        return 0;
    return in_register(o->sym, step_of_made(x, def, hops));
}

const struct tl_ptx_sym *tl_loop_result(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->n_operands > 0 ? &s->inst.operands[0] : NULL;
    if (o != NULL && o->kind == TL_OPD_PAIR && o->n == 2) /* shfl: value and whether it is valid */
        o = &o->elems[0];
    return o != NULL && o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG ? o->sym : NULL;
}

/* --- exits ------------------------------------------------------------------------------------ */

static enum tl_ptx_mod opposite(enum tl_ptx_mod relation)
{
    switch (relation) {
    case TL_MOD_eq:
        return TL_MOD_ne;
    case TL_MOD_ne:
        return TL_MOD_eq;
    case TL_MOD_lt:
    case TL_MOD_ls:
        return relation == TL_MOD_lt ? TL_MOD_ge : TL_MOD_gt;
    case TL_MOD_ge:
        return TL_MOD_lt;
    case TL_MOD_gt:
    case TL_MOD_hi:
        return TL_MOD_le;
    case TL_MOD_le:
        return TL_MOD_gt;
    default:
        return TL_MOD_other;
    }
}

bool tl_loop_exit_test(const struct tl_ptx_ends *x, uint32_t block, struct tl_exit_test *out)
{
    static const enum tl_ptx_mod relations[] = {TL_MOD_eq, TL_MOD_ne, TL_MOD_lt,
                                                TL_MOD_le, TL_MOD_gt, TL_MOD_ge};
    const struct tl_ptx_block *k = &x->cfg->blocks[block];
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(x->cfg, block);
    if (last == NULL || last->inst.form->op != TL_OP_bra || last->inst.guard == NULL ||
        k->n_succs != 2)
        return false;
    bool leaves[2];
    for (uint32_t e = 0; e < 2; e++)
        leaves[e] = k->succs[e] == x->cfg->n_blocks || !tl_ptx_set_has(x->loop, k->succs[e]);
    if (leaves[0] == leaves[1])
        return false;
    uint32_t def = tl_loop_def(x, last->inst.guard);
    if (def == TL_CFG_NONE || !tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], block))
        return false;
    const struct tl_ptx_stmt *test = x->cfg->insts[def];
    if (test->inst.form->op != TL_OP_setp || test->n_operands != 3 ||
        tl_loop_is_float(test->inst.form) || test->inst.operands[0].kind != TL_OPD_SYM)
        return false;
    enum tl_ptx_mod relation = TL_MOD_other;
    for (size_t i = 0; i < sizeof relations / sizeof relations[0]; i++) {
        if (tl_ptx_form_has(test->inst.form, relations[i]))
            relation = relations[i];
    }
    if (relation == TL_MOD_other)
        return false;
    /* The branch target comes first: it is taken if the test is true, or false for @!p. */
    bool leaves_if_true = leaves[last->guard_not != 0 ? 1 : 0];
    *out = (struct tl_exit_test){.stays = leaves_if_true ? opposite(relation) : relation,
                                 .left = &test->inst.operands[1],
                                 .right = &test->inst.operands[2],
                                 .inst = def};
    return true;
}

enum tl_ptx_mod tl_exit_turned(enum tl_ptx_mod relation)
{
    switch (relation) {
    case TL_MOD_lt:
        return TL_MOD_gt;
    case TL_MOD_gt:
        return TL_MOD_lt;
    case TL_MOD_le:
        return TL_MOD_ge;
    case TL_MOD_ge:
        return TL_MOD_le;
    default:
        return relation;
    }
}

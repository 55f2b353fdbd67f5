/* Arguments for the end of a loop: see ends.h.
 *
 * In all of them "in the loop" means: on a way from its head back to it.  A loop that can be entered
 * at several places has no argument here. */
#include "ptx_rewrite/ends.h"

#include <string.h>

#include "ptx_rewrite/flags.h"

enum { MAX_HOPS = 12 };

const char *tl_ptx_end_text(enum tl_ptx_end e)
{
    static const char *const texts[] = {
#define TEXT(id, text) text,
        TL_PTX_ENDS(TEXT)
#undef TEXT
    };
    return texts[e];
}

/* --- registers and blocks of the loop --------------------------------------------------------- */

static bool is_in_loop(const struct tl_ptx_ends *x, uint32_t inst)
{
    return tl_ptx_set_has(x->loop, x->cfg->block_of[inst]);
}

/* Whether every round passes a block. */
static bool is_in_every_round(const struct tl_ptx_ends *x, uint32_t block)
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

/* The only instruction of the loop that writes a register, if it has no guard; else TL_CFG_NONE. */
static uint32_t def_in_loop(const struct tl_ptx_ends *x, const struct tl_ptx_sym *reg)
{
    uint32_t found = TL_CFG_NONE;
    for (uint32_t d = x->affines->first_def[reg->id]; d < x->affines->first_def[reg->id + 1]; d++) {
        uint32_t inst = x->affines->defs[d];
        if (!is_in_loop(x, inst))
            continue;
        if (found != TL_CFG_NONE || x->cfg->insts[inst]->inst.guard != NULL)
            return TL_CFG_NONE;
        found = inst;
    }
    return found;
}

static bool is_reg(const struct tl_ptx_operand *o)
{
    return o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG && o->flags == 0;
}

static bool is_float(const struct tl_ptx_form *f)
{
    return tl_ptx_form_has(f, TL_MOD_f16) || tl_ptx_form_has(f, TL_MOD_f32) ||
           tl_ptx_form_has(f, TL_MOD_f64) || tl_ptx_form_has(f, TL_MOD_bf16);
}

/* A number as an instruction of that form sees it, with its sign. */
static int64_t signed_of(const struct tl_ptx_form *f, uint64_t bits)
{
    bool is_64 = tl_ptx_form_has(f, TL_MOD_u64) || tl_ptx_form_has(f, TL_MOD_s64) ||
                 tl_ptx_form_has(f, TL_MOD_b64);
    return is_64 ? (int64_t)bits : (int32_t)bits;
}

/* Whether an operand means the same in every round: it is not written in the loop, or computed there
 * from such things alone. */
static bool is_invariant(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t hops)
{
    if (o->kind == TL_OPD_INT)
        return true;
    if (o->kind == TL_OPD_ADDR || o->kind == TL_OPD_VEC) {
        for (uint32_t i = 0; i < o->n; i++) {
            if (!is_invariant(x, &o->elems[i], hops))
                return false;
        }
        return true;
    }
    if (o->kind != TL_OPD_SYM || hops > MAX_HOPS)
        return false;
    if (o->sym->kind == TL_SYM_SREG)
        return o->sym->sreg == TL_SREG_ctaid || o->sym->sreg == TL_SREG_nctaid ||
               o->sym->sreg == TL_SREG_tid || o->sym->sreg == TL_SREG_ntid ||
               o->sym->sreg == TL_SREG_laneid;
    if (o->sym->kind != TL_SYM_REG)
        return o->sym->kind == TL_SYM_VAR || o->sym->kind == TL_SYM_MODULE_VAR;
    if (!x->varies[o->sym->id])
        return true;
    uint32_t def = def_in_loop(x, o->sym);
    if (def == TL_CFG_NONE)
        return false;
    const struct tl_ptx_stmt *s = x->cfg->insts[def];
    switch (s->inst.form->op) {
    case TL_OP_ld:
        if (tl_ptx_form_space(s->inst.form) != TL_MOD_param || !x->cfg->func->is_entry)
            return false;
        break;
    case TL_OP_mov:
    case TL_OP_cvt:
    case TL_OP_cvta:
    case TL_OP_add:
    case TL_OP_sub:
    case TL_OP_mul:
    case TL_OP_mad:
    case TL_OP_shl:
    case TL_OP_shr:
    case TL_OP_and:
    case TL_OP_or:
    case TL_OP_setp:
    case TL_OP_min:
    case TL_OP_max:
        if (tl_ptx_form_has(s->inst.form, TL_MOD_cc))
            return false;
        break;
    default:
        return false;
    }
    for (uint32_t i = 1; i < s->n_operands; i++) {
        if (!is_invariant(x, &s->inst.operands[i], hops + 1))
            return false;
    }
    return true;
}

/* How much a register grows from round to round, always the same: 0 if that is not so.  */
static int64_t step_of(const struct tl_ptx_ends *x, const struct tl_ptx_sym *reg)
{
    const struct tl_ptx_sym *at = reg;
    int64_t step = 0;
    for (uint32_t hops = 0; hops < MAX_HOPS; hops++) {
        uint32_t def = def_in_loop(x, at);
        if (def == TL_CFG_NONE || !is_in_every_round(x, x->cfg->block_of[def]))
            return 0;
        const struct tl_ptx_stmt *s = x->cfg->insts[def];
        const struct tl_ptx_operand *o = s->inst.operands;
        const struct tl_ptx_operand *from = s->n_operands > 1 ? &o[1] : NULL;
        if (s->inst.form->op == TL_OP_mov && s->n_operands == 2 && is_reg(&o[1])) {
            at = o[1].sym;
        } else if ((s->inst.form->op == TL_OP_add || s->inst.form->op == TL_OP_sub) &&
                   s->n_operands == 3 && !tl_ptx_form_has(s->inst.form, TL_MOD_cc) &&
                   !is_float(s->inst.form)) {
            const struct tl_ptx_operand *by = &o[2];
            if (s->inst.form->op == TL_OP_add && o[1].kind == TL_OPD_INT) {
                by = &o[1];
                from = &o[2];
            }
            if (by->kind != TL_OPD_INT || !is_reg(from))
                return 0;
            int64_t n = signed_of(s->inst.form, by->bits);
            step += s->inst.form->op == TL_OP_add ? n : -n;
            at = from->sym;
        } else {
            return 0;
        }
        if (at == reg)
            return step;
    }
    return 0;
}

/* The step of what an operand holds: of a counter, or of a counter and something that stays.  0 if
 * it is nothing of the kind. */
static int64_t step_of_value(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o,
                             uint32_t hops)
{
    if (!is_reg(o) || hops > MAX_HOPS)
        return 0;
    int64_t step = step_of(x, o->sym), factor;
    if (step != 0)
        return step;
    uint32_t def = def_in_loop(x, o->sym);
    if (def == TL_CFG_NONE)
        return 0;
    const struct tl_ptx_stmt *s = x->cfg->insts[def];
    const struct tl_ptx_operand *p = s->inst.operands;
    switch (is_float(s->inst.form) ? TL_OP_unknown : s->inst.form->op) {
    case TL_OP_mov:
    case TL_OP_cvta:
    case TL_OP_cvt:
        return s->n_operands == 2 && !tl_ptx_form_has(s->inst.form, TL_MOD_u8) &&
                       !tl_ptx_form_has(s->inst.form, TL_MOD_s8) &&
                       !tl_ptx_form_has(s->inst.form, TL_MOD_u16) &&
                       !tl_ptx_form_has(s->inst.form, TL_MOD_s16)
                   ? step_of_value(x, &p[1], hops + 1)
                   : 0;
    case TL_OP_add:
        if (s->n_operands != 3 || tl_ptx_form_has(s->inst.form, TL_MOD_cc))
            return 0;
        if (is_invariant(x, &p[2], 0))
            return step_of_value(x, &p[1], hops + 1);
        return is_invariant(x, &p[1], 0) ? step_of_value(x, &p[2], hops + 1) : 0;
    case TL_OP_sub:
        return s->n_operands == 3 && is_invariant(x, &p[2], 0) ? step_of_value(x, &p[1], hops + 1)
                                                               : 0;
    case TL_OP_shl:
        if (s->n_operands != 3 || p[2].kind != TL_OPD_INT || p[2].bits > 16)
            return 0;
        step = step_of_value(x, &p[1], hops + 1);
        return __builtin_mul_overflow(step, (int64_t)1 << p[2].bits, &factor) ? 0 : factor;
    case TL_OP_mul:
    case TL_OP_mad:
        if (s->n_operands < 3 || p[2].kind != TL_OPD_INT || p[2].bits == 0 ||
            tl_ptx_form_has(s->inst.form, TL_MOD_hi) ||
            (s->inst.form->op == TL_OP_mad && !is_invariant(x, &p[3], 0)))
            return 0;
        step = step_of_value(x, &p[1], hops + 1);
        return __builtin_mul_overflow(step, (int64_t)(int32_t)p[2].bits, &factor) ? 0 : factor;
    default:
        return 0;
    }
}

/* --- exits ------------------------------------------------------------------------------------ */

/* A branch out of the loop that compares: `stays` is the relation of `left` to `right` while the loop
 * goes on. */
struct exit_test {
    enum tl_ptx_mod stays;
    const struct tl_ptx_operand *left, *right;
};

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

static bool find_exit_test(const struct tl_ptx_ends *x, uint32_t block, struct exit_test *out)
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
    uint32_t def = def_in_loop(x, last->inst.guard);
    if (def == TL_CFG_NONE)
        return false;
    const struct tl_ptx_stmt *test = x->cfg->insts[def];
    if (test->inst.form->op != TL_OP_setp || test->n_operands != 3 || is_float(test->inst.form) ||
        test->inst.operands[0].kind != TL_OPD_SYM)
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
    *out = (struct exit_test){.stays = leaves_if_true ? opposite(relation) : relation,
                              .left = &test->inst.operands[1],
                              .right = &test->inst.operands[2]};
    return true;
}

static enum tl_ptx_mod turned(enum tl_ptx_mod relation)
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

/* --- bounded by construction ------------------------------------------------------------------ */

static bool is_count_test(const struct tl_ptx_ends *x, uint32_t block)
{
    struct exit_test t;
    if (!find_exit_test(x, block, &t) || !is_in_every_round(x, block))
        return false;
    if (!is_invariant(x, t.right, 0)) {
        const struct tl_ptx_operand *left = t.left;
        t = (struct exit_test){turned(t.stays), t.right, left};
    }
    if (!is_invariant(x, t.right, 0))
        return false;
    int64_t step = step_of_value(x, t.left, 0);
    if (step == 0)
        return false;
    uint64_t size = step < 0 ? -(uint64_t)step : (uint64_t)step;
    switch (t.stays) {
    case TL_MOD_lt:
    case TL_MOD_le:
        return step > 0;
    case TL_MOD_gt:
    case TL_MOD_ge:
        return step < 0;
    case TL_MOD_ne: /* compilers make this of the others where the steps meet the bound */
        return (size & (size - 1)) == 0;
    default:
        return false;
    }
}

/* The loop ends by its own count, and each round asks another place: a search through an array, not
 * a wait with patience, which would end by giving up. */
static bool is_counted(const struct tl_ptx_ends *x, uint32_t inst)
{
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    const struct tl_ptx_operand *address = NULL;
    if (s->inst.form->op != TL_OP_ld && s->inst.form->op != TL_OP_atom)
        return false;
    address = tl_flag_address(s);
    if (address == NULL || address->n != 1 || step_of_value(x, &address->elems[0], 0) == 0)
        return false;
    for (uint32_t b = 0; b < x->cfg->n_blocks; b++) {
        if (tl_ptx_set_has(x->loop, b) && is_count_test(x, b))
            return true;
    }
    return false;
}

/* --- who else writes -------------------------------------------------------------------------- */

typedef bool (*write_check)(struct tl_ptx_ends *x, uint32_t reader, const struct tl_ptx_cfg *cfg,
                            uint32_t write);

/* Whether everything in the program that may write where `reader` reads passes a check. */
static bool all_writes(struct tl_ptx_ends *x, uint32_t reader, write_check is_fine)
{
    const struct tl_ptx_roots *r = x->roots;
    tl_ptx_root_set read = tl_ptx_roots_of(r, x->cfg, tl_flag_address(x->cfg->insts[reader]));
    for (uint32_t c = 0; c < r->n_cfgs; c++) {
        for (uint32_t i = 0; i < r->cfgs[c].n_insts; i++) {
            tl_ptx_root_set written = tl_ptx_roots_written(r, &r->cfgs[c], r->cfgs[c].insts[i]);
            if (tl_ptx_roots_meet(read, written) && !is_fine(x, reader, &r->cfgs[c], i))
                return false;
        }
    }
    return true;
}

/* --- counters that the loop itself moves on --------------------------------------------------- */

/* atom.add or red.add of a positive number; atom.inc only if it never starts again. */
static bool only_adds(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    uint32_t at = f->op == TL_OP_atom ? 2 : 1;
    if ((f->op != TL_OP_atom && f->op != TL_OP_red) || s->n_operands <= at || is_float(f) ||
        s->inst.operands[at].kind != TL_OPD_INT)
        return false;
    if (tl_ptx_form_has(f, TL_MOD_inc))
        return (uint32_t)s->inst.operands[at].bits == UINT32_MAX;
    return tl_ptx_form_has(f, TL_MOD_add) && signed_of(f, s->inst.operands[at].bits) > 0;
}

static bool write_only_adds(struct tl_ptx_ends *x, uint32_t reader, const struct tl_ptx_cfg *cfg,
                            uint32_t write)
{
    (void)x;
    (void)reader;
    return only_adds(cfg->insts[write]);
}

static bool is_shared_access(const struct tl_ptx_stmt *s, enum tl_ptx_op op)
{
    return s->inst.form->op == op && tl_ptx_form_space(s->inst.form) == TL_MOD_shared;
}

static bool has_grown(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o)
{
    return is_reg(o) && x->grows[o->sym->id];
}

/* Whether all that a function puts where a load from shared memory reads is such a number, handed
 * round the block.  Places that are not known to be others count. */
static bool reads_grown_slot(struct tl_ptx_ends *x, const struct tl_ptx_stmt *load)
{
    struct tl_affine from, to;
    bool found = false;
    if (load->n_operands != 2 ||
        !tl_affine_of_address(x->affines, &load->inst.operands[1], &from) || from.is_upper)
        return false;
    for (uint32_t i = 0; i < x->cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = x->cfg->insts[i];
        enum tl_ptx_op op = s->inst.form->op;
        bool stores = op == TL_OP_st || op == TL_OP_atom || op == TL_OP_red || op == TL_OP_cp ||
                      op == TL_OP_stmatrix || op == TL_OP_wmma || op == TL_OP_call;
        enum tl_ptx_mod space = tl_ptx_form_space(s->inst.form);
        if (!stores || (op != TL_OP_cp &&
                        (space == TL_MOD_global || space == TL_MOD_local || space == TL_MOD_param)))
            continue;
        if (!is_shared_access(s, TL_OP_st) || s->n_operands != 2 ||
            !tl_affine_of_address(x->affines, &s->inst.operands[0], &to) || to.is_upper ||
            !tl_affine_add(&to, &from, -1))
            return false;
        if (to.n == 0 && (to.constant >= 8 || to.constant <= -8))
            continue;
        if (to.n != 0 || to.constant != 0 || !has_grown(x, &s->inst.operands[1]))
            return false;
        found = true;
    }
    return found;
}

/* Whether an instruction gives a number that grows if one of its operands does. */
static bool keeps_growing(struct tl_ptx_ends *x, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    switch (is_float(s->inst.form) ? TL_OP_unknown : s->inst.form->op) {
    case TL_OP_mov:
        return s->n_operands == 2 && has_grown(x, &o[1]);
    case TL_OP_cvt:
        return s->n_operands == 2 && has_grown(x, &o[1]) &&
               tl_ptx_type_bytes(o[0].sym->decl->type) >= 4;
    case TL_OP_shfl:
        return s->n_operands >= 2 && has_grown(x, &o[1]);
    case TL_OP_add:
        return s->n_operands == 3 && ((has_grown(x, &o[1]) && is_invariant(x, &o[2], 0)) ||
                                      (has_grown(x, &o[2]) && is_invariant(x, &o[1], 0)));
    case TL_OP_sub:
        return s->n_operands == 3 && has_grown(x, &o[1]) && is_invariant(x, &o[2], 0);
    case TL_OP_shl:
        return s->n_operands == 3 && has_grown(x, &o[1]) && o[2].kind == TL_OPD_INT &&
               o[2].bits <= 16;
    case TL_OP_ld:
        return is_shared_access(s, TL_OP_ld) && reads_grown_slot(x, s);
    default:
        return false;
    }
}

static const struct tl_ptx_sym *result_of(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *o = s->n_operands > 0 ? &s->inst.operands[0] : NULL;
    if (o != NULL && o->kind == TL_OPD_PAIR && o->n == 2) /* shfl: value and whether it is valid */
        o = &o->elems[0];
    return o != NULL && o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG ? o->sym : NULL;
}

/* Whether all that the loop writes into a register grows, or is a number put there for threads that
 * do not count. */
static bool all_defs_grow(struct tl_ptx_ends *x, const struct tl_ptx_sym *reg, uint32_t counter)
{
    bool found = false;
    for (uint32_t d = x->affines->first_def[reg->id]; d < x->affines->first_def[reg->id + 1]; d++) {
        uint32_t inst = x->affines->defs[d];
        const struct tl_ptx_stmt *s = x->cfg->insts[inst];
        if (!is_in_loop(x, inst))
            continue;
        bool is_number = s->inst.form->op == TL_OP_mov && s->n_operands == 2 &&
                         s->inst.operands[1].kind == TL_OPD_INT;
        bool grows = s->inst.guard == NULL && (inst == counter || keeps_growing(x, s));
        if (!grows && !is_number)
            return false;
        found |= grows;
    }
    return found;
}

/* Each round moves the counter on, and the loop is left when it has come far enough: nobody else is
 * needed for that, and what others add helps. */
static bool counts_itself_out(struct tl_ptx_ends *x, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    const struct tl_ptx_stmt *s = cfg->insts[inst];
    const struct tl_ptx_sym *result = result_of(s);
    if (s->inst.form->op != TL_OP_atom || !only_adds(s) || s->inst.guard != NULL ||
        result == NULL || !is_invariant(x, tl_flag_address(s), 0) ||
        !all_writes(x, inst, write_only_adds))
        return false;
    memset(x->grows, 0, cfg->func->n_regs);
    x->grows[result->id] = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < cfg->n_insts; i++) {
            const struct tl_ptx_sym *to = is_in_loop(x, i) ? result_of(cfg->insts[i]) : NULL;
            if (to != NULL && !x->grows[to->id] && all_defs_grow(x, to, inst)) {
                x->grows[to->id] = true;
                changed = true;
            }
        }
    }
    if (!all_defs_grow(x, result, inst))
        return false;
    bool ends = false;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        const struct tl_ptx_block *k = &cfg->blocks[b];
        const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, b);
        if (!tl_ptx_set_has(x->loop, b) || last == NULL || k->n_succs < 2 ||
            last->inst.guard == NULL || !x->suspect[last->inst.guard->id]) {
            if (tl_ptx_set_has(x->loop, b) && last != NULL && k->n_succs > 1 &&
                last->inst.form->op == TL_OP_brx)
                return false;
            continue;
        }
        bool leaves = false;
        for (uint32_t e = 0; e < k->n_succs; e++)
            leaves |= k->succs[e] == cfg->n_blocks || !tl_ptx_set_has(x->loop, k->succs[e]);
        struct exit_test t;
        if (leaves && find_exit_test(x, b, &t)) {
            if (!has_grown(x, t.left)) {
                const struct tl_ptx_operand *left = t.left;
                t = (struct exit_test){turned(t.stays), t.right, left};
            }
            bool only_easier = has_grown(x, t.left) && is_invariant(x, t.right, 0) &&
                               (t.stays == TL_MOD_lt || t.stays == TL_MOD_le);
            if (only_easier) {
                ends |= is_in_every_round(x, b);
                continue;
            }
        }
        if (leaves && x->depends[last->inst.guard->id])
            return false; /* another exit that the counter decides about, in another way */
        /* What memory says must not keep the loop from counting. */
        tl_ptx_set_clear(x->region);
        tl_ptx_cfg_region(cfg, b, k->ipdom, x->region, x->stack);
        if (!leaves && tl_ptx_set_has(x->region, cfg->block_of[inst]))
            return false;
    }
    return ends;
}

/* --- compare-and-swap with the value last seen ------------------------------------------------ */

static bool is_swap(const struct tl_ptx_stmt *s)
{
    return s->inst.form->op == TL_OP_atom && tl_ptx_form_has(s->inst.form, TL_MOD_cas) &&
           s->n_operands >= 4 && s->inst.guard == NULL && s->inst.operands[0].kind == TL_OPD_SYM &&
           s->inst.operands[0].sym->kind == TL_SYM_REG;
}

static bool is_same_address(struct tl_ptx_ends *x, const struct tl_ptx_stmt *a,
                            const struct tl_ptx_stmt *b)
{
    struct tl_affine e, f;
    const struct tl_ptx_operand *p = tl_flag_address(a), *q = tl_flag_address(b);
    return tl_affine_of_address(x->affines, p, &e) && tl_affine_of_address(x->affines, q, &f) &&
           !e.is_upper && !f.is_upper && tl_affine_add(&e, &f, -1) && e.n == 0 && e.constant == 0;
}

/* Whether all that the loop puts into a register is what the swap, or a load from the same place,
 * gave it. */
static bool is_last_seen(struct tl_ptx_ends *x, const struct tl_ptx_sym *reg, uint32_t swap,
                         uint32_t hops)
{
    bool found = false;
    for (uint32_t d = x->affines->first_def[reg->id]; d < x->affines->first_def[reg->id + 1]; d++) {
        uint32_t inst = x->affines->defs[d];
        const struct tl_ptx_stmt *s = x->cfg->insts[inst];
        const struct tl_ptx_operand *o = s->inst.operands;
        if (!is_in_loop(x, inst))
            continue;
        found = true;
        if (s->inst.guard != NULL || hops > MAX_HOPS || o[0].kind != TL_OPD_SYM)
            return false;
        if (inst == swap)
            continue;
        if (s->inst.form->op == TL_OP_mov && s->n_operands == 2 && is_reg(&o[1]) &&
            is_last_seen(x, o[1].sym, swap, hops + 1))
            continue;
        if (s->inst.form->op == TL_OP_ld && is_same_address(x, s, x->cfg->insts[swap]) &&
            is_in_every_round(x, x->cfg->block_of[inst]))
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

/* An optimistic update: every further round comes after a swap that failed although it compared with
 * what was last seen, so somebody else's succeeded. */
static bool is_optimistic_update(struct tl_ptx_ends *x, uint32_t swap)
{
    const struct tl_ptx_stmt *cas = x->cfg->insts[swap];
    uint32_t success;
    if (!is_swap(cas) || !is_reg(&cas->inst.operands[2]) ||
        !is_invariant(x, tl_flag_address(cas), 0) ||
        !is_last_seen(x, cas->inst.operands[2].sym, swap, 0))
        return false;
    return tests_swap(x, swap, &success) &&
           (success == x->cfg->n_blocks || !tl_ptx_set_has(x->loop, success)) &&
           is_in_every_round(x, x->cfg->block_of[swap]);
}

/* A load whose value a swap of the same loop is compared with: the swap has the argument. */
static bool feeds_a_swap(struct tl_ptx_ends *x, uint32_t load)
{
    if (x->cfg->insts[load]->inst.form->op != TL_OP_ld)
        return false;
    for (uint32_t i = 0; i < x->cfg->n_insts; i++) {
        if (is_in_loop(x, i) && is_swap(x->cfg->insts[i]) &&
            is_same_address(x, x->cfg->insts[load], x->cfg->insts[i]) && is_optimistic_update(x, i))
            return true;
    }
    return false;
}

/* --- words that are taken: once, or as locks -------------------------------------------------- */

/* The number that means "free": what a swap compares with, or what leaves the loop when it is read
 * or exchanged. */
static bool free_number(const struct tl_ptx_ends *x, uint32_t inst, int64_t *out)
{
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    const struct tl_ptx_sym *result = result_of(s);
    if (is_swap(s)) {
        *out = (int64_t)s->inst.operands[2].bits;
        return s->inst.operands[2].kind == TL_OPD_INT;
    }
    for (uint32_t i = 0; result != NULL && i < x->cfg->n_insts; i++) {
        const struct tl_ptx_stmt *t = x->cfg->insts[i];
        const struct tl_ptx_operand *o = t->inst.operands;
        if (is_in_loop(x, i) && t->inst.form->op == TL_OP_setp && t->n_operands == 3 &&
            is_reg(&o[1]) && o[1].sym == result && o[2].kind == TL_OPD_INT &&
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
           signed_of(s->inst.form, o->bits) == signed_of(s->inst.form, (uint64_t)number);
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
    return is_swap(s) && is_number(s, 2, free);
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
static bool is_taken_once(struct tl_ptx_ends *x, uint32_t inst)
{
    int64_t free = 0;
    uint32_t to;
    return is_swap(x->cfg->insts[inst]) && free_number(x, inst, &free) &&
           all_writes(x, inst, write_takes_once) &&
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
                          is_same_address(x, cfg->insts[i], cfg->insts[inst]);
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
        !is_same_address(x, cfg->insts[reader], cfg->insts[write]) ||
        !is_as_wide(cfg->insts[reader], cfg->insts[write]))
        return false;
    if (takes(cfg->insts[write], free) || takes_by_exchange(cfg->insts[write], free))
        return is_in_loop(x, write) &&
               tl_semaphore_leaves_with(x->semaphore, x->loop, write, free, &to) &&
               must_release(x, write, to, free);
    if (!releases(cfg->insts[write], free) || is_in_loop(x, write))
        return false;
    /* Only the holder: a number that others write would be a sign, not a lock. */
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        if (is_in_loop(x, i) &&
            (takes(cfg->insts[i], free) || takes_by_exchange(cfg->insts[i], free)) &&
            is_same_address(x, cfg->insts[reader], cfg->insts[i]) && comes_after(x, write, i))
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
        if (def == TL_CFG_NONE || is_in_loop(x, def) ||
            !tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], x->cfg->block_of[inst]))
            return false;
    }
    return true;
}

static bool is_lock(struct tl_ptx_ends *x, uint32_t inst)
{
    int64_t free = 0;
    uint32_t to;
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    if (!x->cfg->func->is_entry || tl_flag_address(s) == NULL || !free_number(x, inst, &free) ||
        !is_settled(x, inst) || !is_in_every_round(x, x->head))
        return false;
    return tl_semaphore_leaves_with(x->semaphore, x->loop, inst, free, &to) &&
           all_writes(x, inst, write_keeps_lock);
}

enum tl_ptx_end tl_ptx_why_it_ends(struct tl_ptx_ends *x, uint32_t inst)
{
    if (!is_in_every_round(x, x->head))
        return TL_PTX_END_NONE; /* entered at several places */
    if (is_optimistic_update(x, inst) || feeds_a_swap(x, inst))
        return TL_PTX_END_SWAP;
    if (counts_itself_out(x, inst))
        return TL_PTX_END_ADDS;
    if (is_counted(x, inst))
        return TL_PTX_END_COUNTED;
    if (is_taken_once(x, inst))
        return TL_PTX_END_TAKEN_ONCE;
    if (is_lock(x, inst))
        return TL_PTX_END_LOCK;
    return TL_PTX_END_NONE;
}

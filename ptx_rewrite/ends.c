/* Arguments for the end of a loop: see ends.h.
 *
 * Here are the loops that count; swaps are in ends_swap.c, words that are taken in ends_lock.c.  A
 * loop that can be entered at several places has no argument. */
#include "ptx_rewrite/ends.h"

#include <string.h>

#include "ptx_rewrite/ends_internal.h"
#include "ptx_rewrite/flags.h"

const char *tl_ptx_end_text(enum tl_ptx_end e)
{
    static const char *const texts[] = {
#define TEXT(id, text) text,
        TL_PTX_ENDS(TEXT)
#undef TEXT
    };
    return texts[e];
}

/* --- bounded by construction ------------------------------------------------------------------ */

/* Whether a counter that goes to a bound in such steps comes there before its type ends.  Bounds
 * that are not numbers are taken to be such.  What is compared with 64 bits may have been counted
 * with 32. */
static bool is_met(const struct tl_ptx_ends *x, const struct tl_exit_test *t, int64_t step)
{
    enum { MOST_OF_WORD = 1 << 30 };
    const struct tl_ptx_form *f = x->cfg->insts[t->inst]->inst.form;
    uint32_t bits = tl_end_word_bits(f);
    if (t->right->kind != TL_OPD_INT)
        return true;
    if (bits == 0)
        return false;
    int64_t number = (int64_t)t->right->bits;
    if (bits == 64 && (number > MOST_OF_WORD || number < -MOST_OF_WORD))
        return false;
    uint64_t most = UINT64_MAX >> (64 - bits), bound = t->right->bits & most;
    uint64_t size = step < 0 ? -(uint64_t)step : (uint64_t)step;
    if (tl_ptx_form_has(f, TL_MOD_s16) || tl_ptx_form_has(f, TL_MOD_s32) ||
        tl_ptx_form_has(f, TL_MOD_s64))
        bound ^= (most >> 1) + 1; /* from the smallest number on */
    uint64_t room = step < 0 ? bound : most - bound;
    bool is_strict = t->stays == TL_MOD_lt || t->stays == TL_MOD_gt;
    return room >= size - (is_strict ? 1 : 0);
}

static bool is_count_test(const struct tl_ptx_ends *x, uint32_t block)
{
    struct tl_exit_test t;
    if (!tl_loop_exit_test(x, block, &t) || !tl_loop_passes(x, block))
        return false;
    if (!tl_loop_keeps(x, t.right, 0)) {
        const struct tl_ptx_operand *left = t.left;
        t = (struct tl_exit_test){tl_exit_turned(t.stays), t.right, left, t.inst};
    }
    if (!tl_loop_keeps(x, t.right, 0))
        return false;
    int64_t step = tl_loop_step(x, t.left, t.inst, 0);
    if (step == 0)
        return false;
    uint64_t size = step < 0 ? -(uint64_t)step : (uint64_t)step;
    switch (t.stays) {
    case TL_MOD_lt:
    case TL_MOD_le:
        return step > 0 && is_met(x, &t, step);
    case TL_MOD_gt:
    case TL_MOD_ge:
        return step < 0 && is_met(x, &t, step);
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
    if (address == NULL || address->n != 1 || tl_loop_step(x, &address->elems[0], inst, 0) == 0)
        return false;
    for (uint32_t b = 0; b < x->cfg->n_blocks; b++) {
        if (tl_ptx_set_has(x->loop, b) && is_count_test(x, b))
            return true;
    }
    return false;
}

/* --- who else writes -------------------------------------------------------------------------- */

bool tl_end_all_writes(struct tl_ptx_ends *x, uint32_t reader, tl_end_write_check is_fine)
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
    if ((f->op != TL_OP_atom && f->op != TL_OP_red) || s->n_operands <= at || tl_loop_is_float(f) ||
        s->inst.operands[at].kind != TL_OPD_INT)
        return false;
    if (tl_ptx_form_has(f, TL_MOD_inc))
        return (uint32_t)s->inst.operands[at].bits == UINT32_MAX;
    return tl_ptx_form_has(f, TL_MOD_add) && tl_loop_signed(f, s->inst.operands[at].bits) > 0;
}

/* How much such an instruction adds. */
static int64_t added_by(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (tl_ptx_form_has(f, TL_MOD_inc))
        return 1;
    return tl_loop_signed(f, s->inst.operands[f->op == TL_OP_atom ? 2 : 1].bits);
}

/* All in steps of one size: a loop that adds little would wait for those who add much. */
static bool write_only_adds(struct tl_ptx_ends *x, uint32_t reader, const struct tl_ptx_cfg *cfg,
                            uint32_t write)
{
    const struct tl_ptx_stmt *s = cfg->insts[write], *own = x->cfg->insts[reader];
    return only_adds(s) && added_by(s) == added_by(own);
}

static bool is_shared_access(const struct tl_ptx_stmt *s, enum tl_ptx_op op)
{
    return s->inst.form->op == op && tl_ptx_form_space(s->inst.form) == TL_MOD_shared;
}

static bool has_grown(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o)
{
    return tl_loop_is_reg(o) && x->grows[o->sym->id];
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
                      op == TL_OP_stmatrix || op == TL_OP_wmma || op == TL_OP_tensormap ||
                      op == TL_OP_call;
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
    switch (tl_loop_is_float(s->inst.form) ? TL_OP_unknown : s->inst.form->op) {
    case TL_OP_mov:
        return s->n_operands == 2 && has_grown(x, &o[1]);
    case TL_OP_cvt:
        return s->n_operands == 2 && has_grown(x, &o[1]) &&
               tl_ptx_type_bytes(o[0].sym->decl->type) >= 4;
    case TL_OP_shfl:
        return s->n_operands >= 2 && has_grown(x, &o[1]);
    case TL_OP_add:
        return s->n_operands == 3 && ((has_grown(x, &o[1]) && tl_loop_keeps(x, &o[2], 0)) ||
                                      (has_grown(x, &o[2]) && tl_loop_keeps(x, &o[1], 0)));
    case TL_OP_sub:
        return s->n_operands == 3 && has_grown(x, &o[1]) && tl_loop_keeps(x, &o[2], 0);
    case TL_OP_shl:
        return s->n_operands == 3 && has_grown(x, &o[1]) && o[2].kind == TL_OPD_INT &&
               o[2].bits <= 16;
    case TL_OP_ld:
        return is_shared_access(s, TL_OP_ld) && reads_grown_slot(x, s);
    default:
        return false;
    }
}

/* Whether all that the loop writes into a register grows, or is a number put there for threads that
 * do not count. */
static bool all_defs_grow(struct tl_ptx_ends *x, const struct tl_ptx_sym *reg, uint32_t counter)
{
    bool found = false;
    for (uint32_t d = x->affines->first_def[reg->id]; d < x->affines->first_def[reg->id + 1]; d++) {
        uint32_t inst = x->affines->defs[d];
        const struct tl_ptx_stmt *s = x->cfg->insts[inst];
        if (!tl_loop_has(x, inst))
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
    const struct tl_ptx_sym *result = tl_loop_result(s);
    if (s->inst.form->op != TL_OP_atom || !only_adds(s) || s->inst.guard != NULL ||
        result == NULL || !tl_loop_keeps(x, tl_flag_address(s), 0) ||
        !tl_end_all_writes(x, inst, write_only_adds))
        return false;
    memset(x->grows, 0, cfg->func->n_regs);
    x->grows[result->id] = true;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < cfg->n_insts; i++) {
            const struct tl_ptx_sym *to = tl_loop_has(x, i) ? tl_loop_result(cfg->insts[i]) : NULL;
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
        struct tl_exit_test t;
        if (leaves && tl_loop_exit_test(x, b, &t)) {
            if (!has_grown(x, t.left)) {
                const struct tl_ptx_operand *left = t.left;
                t = (struct tl_exit_test){tl_exit_turned(t.stays), t.right, left, t.inst};
            }
            bool only_easier = has_grown(x, t.left) && tl_loop_keeps(x, t.right, 0) &&
                               (t.stays == TL_MOD_lt || t.stays == TL_MOD_le);
            if (only_easier) {
                ends |= tl_loop_passes(x, b);
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

enum tl_ptx_end tl_ptx_why_it_ends(struct tl_ptx_ends *x, uint32_t inst)
{
    if (!tl_loop_passes(x, x->head))
        return TL_PTX_END_NONE; /* entered at several places */
    if (tl_end_is_update(x, inst) || tl_end_feeds_update(x, inst))
        return TL_PTX_END_SWAP;
    if (counts_itself_out(x, inst))
        return TL_PTX_END_ADDS;
    if (is_counted(x, inst))
        return TL_PTX_END_COUNTED;
    if (tl_end_is_taken_once(x, inst))
        return TL_PTX_END_TAKEN_ONCE;
    if (tl_end_is_lock(x, inst))
        return TL_PTX_END_LOCK;
    return TL_PTX_END_NONE;
}

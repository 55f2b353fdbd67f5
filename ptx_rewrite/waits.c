/* Waiting for other blocks.
 *
 * A wait is a loop that some thread leaves, or not, because of what it reads from memory that other
 * blocks write while it runs.  So, for every natural loop: start from the polling reads in it
 * (volatile, relaxed, acquire, atomic ... loads from global memory), follow their values through
 * registers, shared and local memory and through branches, and see whether an exit depends on them.
 * Many such loops are harmless, and each harmless kind must be recognised by its reason:
 *
 *   - an optimistic update retries a compare-and-swap until it compared with what it swapped: nobody is waited for;
 *   - a work counter (`atom.add` of a non-zero constant) only ever moves on;
 *   - a wait for an earlier block: the address that is polled lies below the one at which this block publishes, and
 *     addresses grow with the block number or with a ticket that blocks take as they start.  Blocks start in ascending
 *     order in every variant, so the one waited for is running or done;
 *   - a wait for the block's turn, which an earlier block gives it: see semaphore.c.
 *
 * Everything else is refused. */
#include "ptx_rewrite/waits.h"

#include <errno.h>
#include <string.h>

#include "ptx_rewrite/flags.h"
#include "ptx_rewrite/semaphore.h"

struct search {
    struct tl_ptx_waits *w;
    const struct tl_ptx_cfg *cfg;
    struct tl_affines affines;
    struct tl_semaphore semaphore;
    bool (*is_remote)(void *data, const struct tl_ptx_stmt *call);
    void *data;
    struct tl_ptx_set loop, region;
    uint32_t head; /* of the current loop */
    uint32_t *stack;
    bool *depends;       /* per register: on a polling read of the current loop */
    bool *varies;        /* per register: written in the current loop */
    bool reads_ctaid_yz; /* then %ctaid.x alone does not order the blocks */
    bool memory_depends; /* shared or local memory, or a call's parameters, hold such a value */
    bool global_depends; /* a plain store puts one into global memory */
    bool carry_depends;  /* the carry flag does, which no operand names */
    bool reads_dependent;
    bool changed;
};

/* --- polling reads ---------------------------------------------------------------------------- */

bool tl_ptx_polls(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    switch (f->op) {
    case TL_OP_ld:
        return tl_flag_may_be_global(f) && tl_flag_is_fresh(f) && !tl_ptx_form_has(f, TL_MOD_nc);
    case TL_OP_atom:
        return tl_flag_may_be_global(f);
    case TL_OP_multimem:
        return tl_ptx_form_has(f, TL_MOD_ld_reduce);
    default:
        return false;
    }
}

/* Generic addresses that are known to mean the block's own memory. */
static bool is_own_memory(struct search *x, const struct tl_ptx_operand *address)
{
    struct tl_affine e;
    if (!tl_affine_of_address(&x->affines, address, &e))
        return false;
    for (uint32_t i = 0; i < e.n; i++) {
        if (e.terms[i].leaf.kind != TL_LEAF_VAR)
            continue;
        const struct tl_ptx_decl *decl = e.terms[i].leaf.what;
        if (tl_str_is(decl->space, "local") || tl_str_starts(decl->space, "shared"))
            return true;
    }
    return false;
}

/* The only, unguarded instruction that writes a register, or NULL. */
static const struct tl_ptx_stmt *only_def(struct search *x, const struct tl_ptx_sym *reg)
{
    uint32_t def = tl_affine_only_def(&x->affines, reg);
    return def != TL_CFG_NONE ? x->cfg->insts[def] : NULL;
}

static void note_varying(void *data, struct tl_ptx_sym *reg)
{
    struct search *x = data;
    x->reads_dependent |= x->varies[reg->id];
}

/* A plain load in a loop that changes nothing and always asks the same address can only be meant as
 * a wait. */
static bool is_plain_poll(struct search *x, const struct tl_ptx_stmt *s, bool has_effects)
{
    const struct tl_ptx_form *f = s->inst.form;
    if (f->op != TL_OP_ld || !tl_flag_may_be_global(f) || has_effects ||
        tl_ptx_form_has(f, TL_MOD_nc))
        return false;
    x->reads_dependent = false;
    tl_ptx_inst_reads(s, note_varying, x);
    return !x->reads_dependent;
}

/* An asynchronous copy from always the same place reads it anew in every round. */
static bool is_polling_copy(struct search *x, const struct tl_ptx_stmt *s)
{
    if (s->inst.form->op != TL_OP_cp || s->n_operands < 2)
        return false;
    x->reads_dependent = false;
    tl_ptx_inst_reads(s, note_varying, x);
    return !x->reads_dependent;
}

static bool is_source(struct search *x, const struct tl_ptx_stmt *s, bool has_effects)
{
    if (s->inst.form->op == TL_OP_call)
        return x->is_remote != NULL && x->is_remote(x->data, s);
    if (is_polling_copy(x, s))
        return true;
    if (!tl_ptx_polls(s) && !is_plain_poll(x, s, has_effects))
        return false;
    const struct tl_ptx_operand *address = tl_flag_address(s);
    return tl_ptx_form_space(s->inst.form) == TL_MOD_global || address == NULL ||
           !is_own_memory(x, address);
}

/* --- what depends on them --------------------------------------------------------------------- */

static void note_read(void *data, struct tl_ptx_sym *reg)
{
    struct search *x = data;
    x->reads_dependent |= x->depends[reg->id];
}

static void make_dependent(void *data, struct tl_ptx_sym *reg)
{
    struct search *x = data;
    if (!x->depends[reg->id]) {
        x->depends[reg->id] = true;
        x->changed = true;
    }
}

static bool reads_dependent(struct search *x, const struct tl_ptx_stmt *s)
{
    x->reads_dependent = false;
    tl_ptx_inst_reads(s, note_read, x);
    return x->reads_dependent;
}

static void note_once(struct search *x, bool *fact, bool holds)
{
    if (holds && !*fact) {
        *fact = true;
        x->changed = true;
    }
}

/* Whether a load asks the very place to which the loop stores such a value: a block may tell its
 * threads through global memory what one of them has seen. */
static bool reads_back(struct search *x, const struct tl_ptx_stmt *load)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    const struct tl_ptx_operand *from = tl_flag_address(load), *to;
    struct tl_affine a, b;
    for (uint32_t k = 0; from != NULL && k < cfg->n_blocks; k++) {
        for (uint32_t i = cfg->blocks[k].first;
             tl_ptx_set_has(&x->loop, k) && i < cfg->blocks[k].end; i++) {
            const struct tl_ptx_stmt *s = cfg->insts[i];
            if (s->inst.form->op != TL_OP_st || !tl_flag_may_be_global(s->inst.form) ||
                (to = tl_flag_address(s)) == NULL || !reads_dependent(x, s))
                continue;
            if (from->elems[0].kind == TL_OPD_SYM && to->elems[0].kind == TL_OPD_SYM &&
                from->elems[0].sym == to->elems[0].sym)
                return true;
            if (tl_affine_of_address(&x->affines, from, &a) &&
                tl_affine_of_address(&x->affines, to, &b) && !a.is_upper && !b.is_upper &&
                tl_affine_add(&a, &b, -1) && a.n == 0)
                return true;
        }
    }
    return false;
}

static void follow_values(struct search *x, bool has_effects)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (!tl_ptx_set_has(&x->loop, b))
            continue;
        for (uint32_t i = cfg->blocks[b].first; i < cfg->blocks[b].end; i++) {
            const struct tl_ptx_stmt *s = cfg->insts[i];
            enum tl_ptx_op op = s->inst.form->op;
            enum tl_ptx_mod space = tl_ptx_form_space(s->inst.form);
            bool dependent = reads_dependent(x, s), is_start = is_source(x, s, has_effects);
            dependent |= x->carry_depends &&
                         (op == TL_OP_addc || op == TL_OP_subc || op == TL_OP_madc);
            bool stores = op == TL_OP_st || op == TL_OP_atom || op == TL_OP_red;
            bool passes_on = (op == TL_OP_call && (dependent || is_start)) ||
                             (op == TL_OP_cp && is_start);
            note_once(x, &x->carry_depends, dependent && tl_ptx_form_has(s->inst.form, TL_MOD_cc));
            note_once(x, &x->memory_depends,
                      (stores && space != TL_MOD_global && dependent) || passes_on);
            note_once(x, &x->global_depends,
                      op == TL_OP_st && tl_flag_may_be_global(s->inst.form) && dependent);
            bool from_memory =
                op == TL_OP_ld &&
                ((x->memory_depends && space != TL_MOD_global && space != TL_MOD_const) ||
                 (x->global_depends && tl_flag_may_be_global(s->inst.form) && reads_back(x, s)));
            if (dependent || from_memory || is_start)
                tl_ptx_inst_writes(s, make_dependent, x);
        }
    }
}

static bool branch_depends(struct search *x, uint32_t block)
{
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(x->cfg, block);
    return last != NULL && x->cfg->blocks[block].n_succs > 1 && reads_dependent(x, last);
}

static void make_dependent_if_chosen(void *data, struct tl_ptx_sym *reg)
{
    struct search *x = data;
    if (x->affines.first_def[reg->id + 1] - x->affines.first_def[reg->id] > 1)
        make_dependent(data, reg);
}

/* Which of several definitions is seen depends on the branches above them. */
static void follow_branches(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (!tl_ptx_set_has(&x->loop, b) || !branch_depends(x, b))
            continue;
        tl_ptx_set_clear(&x->region);
        tl_ptx_cfg_region(cfg, b, cfg->blocks[b].ipdom, &x->region, x->stack);
        for (uint32_t r = 0; r < cfg->n_blocks; r++) {
            if (!tl_ptx_set_has(&x->region, r) || !tl_ptx_set_has(&x->loop, r))
                continue;
            for (uint32_t i = cfg->blocks[r].first; i < cfg->blocks[r].end; i++)
                tl_ptx_inst_writes(cfg->insts[i], make_dependent_if_chosen, x);
        }
    }
}

/* --- harmless kinds --------------------------------------------------------------------------- */

struct write_check {
    const struct tl_ptx_sym *reg;
    bool found;
};

static void check_write(void *data, struct tl_ptx_sym *reg)
{
    struct write_check *c = data;
    c->found |= reg == c->reg;
}

static bool writes_reg(const struct tl_ptx_stmt *s, const struct tl_ptx_sym *reg)
{
    struct write_check c = {reg, false};
    tl_ptx_inst_writes(s, check_write, &c);
    return c.found;
}

/* Whether the branch at the end of the swap's block asks `result == compared` of that swap; then
 * `*success` is the block to which it goes if so. */
static bool tests_swap(struct search *x, uint32_t swap, uint32_t *success)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    const struct tl_ptx_block *k = &cfg->blocks[cfg->block_of[swap]];
    const struct tl_ptx_stmt *cas = cfg->insts[swap], *last = cfg->insts[k->end - 1];
    const struct tl_ptx_operand *result = &cas->inst.operands[0],
                                *compared = &cas->inst.operands[2];
    if (k->n_succs != 2 || last->inst.form->op != TL_OP_bra || last->inst.guard == NULL ||
        result->kind != TL_OPD_SYM)
        return false;
    uint32_t i = swap + 1;
    while (i < k->end && cfg->insts[i]->inst.form->op != TL_OP_setp &&
           !writes_reg(cfg->insts[i], compared->sym) && !writes_reg(cfg->insts[i], result->sym))
        i++;
    const struct tl_ptx_stmt *test = cfg->insts[i];
    if (i >= k->end || test->inst.form->op != TL_OP_setp || test->n_operands != 3 ||
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

/* An optimistic update: every further round comes after a swap that failed although it compared
 * with what was last seen, so somebody else's succeeded. */
static bool is_optimistic_update(struct search *x, uint32_t swap)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    const struct tl_ptx_stmt *cas = cfg->insts[swap];
    uint32_t block = cfg->block_of[swap], success;
    if (cas->inst.form->op != TL_OP_atom || !tl_ptx_form_has(cas->inst.form, TL_MOD_cas) ||
        cas->n_operands < 4 || cas->inst.guard != NULL ||
        cas->inst.operands[2].kind != TL_OPD_SYM || cas->inst.operands[2].sym->kind != TL_SYM_REG ||
        !x->depends[cas->inst.operands[2].sym->id])
        return false;
    if (!tests_swap(x, swap, &success) || tl_ptx_set_has(&x->loop, success))
        return false;
    uint32_t head = x->head;
    for (uint32_t e = 0; e < cfg->blocks[head].n_preds; e++) {
        uint32_t tail = cfg->blocks[head].preds[e];
        if (tl_ptx_set_has(&x->loop, tail) && !tl_ptx_cfg_dominates(cfg, block, tail))
            return false;
    }
    return true;
}

/* The thing that orders blocks in an address: %ctaid.x or a ticket.  NULL if there is none or more
 * than one. */
static const struct tl_leaf *block_leaf(struct search *x, const struct tl_affine *e)
{
    const struct tl_leaf *found = NULL;
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tl_leaf *leaf = &e->terms[i].leaf;
        bool is_block = leaf->kind == TL_LEAF_SREG && leaf->id == TL_SREG_ctaid;
        if (is_block && leaf->part != 'x')
            return NULL; /* y and z make no order by themselves */
        is_block |= leaf->kind == TL_LEAF_REG &&
                    tl_flag_ticket(&x->affines, leaf->what) != TL_CFG_NONE;
        if (is_block && (found != NULL || e->terms[i].factor <= 0))
            return NULL;
        if (is_block)
            found = leaf;
    }
    return found;
}

/* Registers that are left as they are must mean the same value at both places. */
static bool leaves_are_fixed(struct search *x, const struct tl_affine *e, uint32_t block)
{
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tl_leaf *leaf = &e->terms[i].leaf;
        if (leaf->kind != TL_LEAF_REG)
            continue;
        uint32_t def = tl_affine_only_def(&x->affines, leaf->what);
        if (def == TL_CFG_NONE || !tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], block))
            return false;
    }
    return true;
}

static bool is_below(struct search *x, struct tl_affine low, const struct tl_affine *high)
{
    if (!tl_affine_add(&low, high, -1))
        return false;
    tl_affine_loosen(&x->affines, &low);
    return low.n == 0 && low.constant < 0;
}

/* Where a block runs only if some value is a known constant (`if (tile == 0)`), the address may be
 * written with that value again: tries every such condition above `block`. */
static bool is_below_under_conditions(struct search *x, const struct tl_affine *polled,
                                      struct tl_affine published, uint32_t block,
                                      const struct tl_leaf *order)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = block, up; b != 0 && (up = cfg->blocks[b].idom) != TL_CFG_NONE; b = up) {
        const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, up);
        if (cfg->blocks[up].n_succs != 2 || last->inst.form->op != TL_OP_bra ||
            last->inst.guard == NULL || cfg->blocks[b].n_preds != 1)
            continue;
        const struct tl_ptx_stmt *test = only_def(x, last->inst.guard);
        if (test == NULL || test->inst.form->op != TL_OP_setp || test->n_operands != 3)
            continue;
        /* the branch target comes first, then what follows */
        bool is_taken = cfg->blocks[up].succs[0] == b;
        bool equal_if_true = tl_ptx_form_has(test->inst.form, TL_MOD_eq);
        if (!equal_if_true && !tl_ptx_form_has(test->inst.form, TL_MOD_ne))
            continue;
        if ((is_taken != (last->guard_not != 0)) != equal_if_true)
            continue;
        struct tl_affine difference, right;
        const struct tl_ptx_operand *o = test->inst.operands;
        if (o[1].kind != TL_OPD_SYM || o[1].sym->kind != TL_SYM_REG || o[2].kind != TL_OPD_INT)
            continue;
        difference = tl_affine_of_reg(&x->affines, o[1].sym);
        right = (struct tl_affine){.constant = (int64_t)o[2].bits};
        int64_t factor = tl_affine_factor(&difference, order);
        if (difference.is_upper || factor == 0 || !tl_affine_add(&difference, &right, -1))
            continue;
        int64_t wanted = tl_affine_factor(polled, order) - tl_affine_factor(&published, order);
        struct tl_affine again = published;
        if (wanted % factor == 0 && tl_affine_add(&again, &difference, wanted / factor) &&
            is_below(x, *polled, &again))
            return true;
    }
    return false;
}

/* A wait for an earlier block; see the top of this file. */
static bool waits_for_earlier(struct search *x, uint32_t poll_inst)
{
    const struct tl_ptx_stmt *poll = x->cfg->insts[poll_inst];
    const struct tl_ptx_operand *address = tl_flag_address(poll);
    struct tl_affine polled;
    if (poll->inst.form->op != TL_OP_ld || address == NULL ||
        !tl_affine_of_address(&x->affines, address, &polled))
        return false;
    tl_affine_loosen(&x->affines, &polled);
    const struct tl_leaf *order = block_leaf(x, &polled);
    if (order == NULL || (order->kind == TL_LEAF_SREG && x->reads_ctaid_yz) ||
        !leaves_are_fixed(x, &polled, x->cfg->block_of[poll_inst]))
        return false;
    bool publishes = false;
    for (uint32_t i = 0; i < x->cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = x->cfg->insts[i];
        enum tl_ptx_op op = s->inst.form->op;
        if ((op != TL_OP_st && op != TL_OP_atom && op != TL_OP_red) ||
            !tl_flag_may_be_global(s->inst.form))
            continue;
        struct tl_affine published;
        if (!tl_affine_of_address(&x->affines, tl_flag_address(s), &published))
            return false;
        if (!tl_flag_shares_base(&polled, &published)) {
            /* Another array: kernels do not alias their flags with their data.  But flags of
             * unknown origin may be ours. */
            if ((op != TL_OP_st || tl_flag_is_fresh(s->inst.form)) &&
                !tl_flag_has_known_base(&published))
                return false;
            continue;
        }
        uint32_t block = x->cfg->block_of[i];
        if (published.is_upper || !leaves_are_fixed(x, &published, block))
            return false;
        bool is_lower = tl_affine_factor(&published, order) == tl_affine_factor(&polled, order)
                            ? is_below(x, polled, &published)
                            : is_below_under_conditions(x, &polled, published, block, order);
        if (!is_lower)
            return false;
        publishes = true;
    }
    return publishes;
}

/* The address that is polled is also counted up by everybody: a barrier over the grid. */
static bool is_grid_barrier(struct search *x, const struct tl_ptx_stmt *poll)
{
    struct tl_affine polled, counted;
    if (tl_flag_address(poll) == NULL ||
        !tl_affine_of_address(&x->affines, tl_flag_address(poll), &polled) || polled.is_upper)
        return false;
    for (uint32_t i = 0; i < x->cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = x->cfg->insts[i];
        enum tl_ptx_op op = s->inst.form->op;
        if ((op != TL_OP_atom && op != TL_OP_red) || s == poll || tl_flag_address(s) == NULL ||
            !(tl_ptx_form_has(s->inst.form, TL_MOD_add) ||
              tl_ptx_form_has(s->inst.form, TL_MOD_inc)))
            continue;
        if (tl_affine_of_address(&x->affines, tl_flag_address(s), &counted) && !counted.is_upper &&
            tl_affine_add(&counted, &polled, -1) && counted.n == 0 && counted.constant == 0)
            return true;
    }
    return false;
}

/* --- loops ------------------------------------------------------------------------------------ */

static void note_write(void *data, struct tl_ptx_sym *reg)
{
    ((struct search *)data)->varies[reg->id] = true;
}

static void note_carried(void *data, struct tl_ptx_sym *reg)
{
    struct search *x = data;
    x->reads_dependent |= x->varies[reg->id] && !x->depends[reg->id];
}

static void note_written(void *data, struct tl_ptx_sym *reg)
{
    ((struct search *)data)->depends[reg->id] = true;
}

/* Notes the registers written in the loop; returns whether a round can differ from the one before
 * in anything but what memory gives: because the loop writes memory, calls, or carries a register
 * from round to round.  A loop with a fence or a sleep in it is suspected anyway: it expects memory
 * to change. */
static bool note_effects(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    bool has_effects = false, is_patient = false;
    memset(x->varies, 0, cfg->func->n_regs);
    memset(x->depends, 0, cfg->func->n_regs); /* used here for "written so far" */
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             tl_ptx_set_has(&x->loop, b) && i < cfg->blocks[b].end; i++) {
            enum tl_ptx_op op = cfg->insts[i]->inst.form->op;
            has_effects |= op == TL_OP_st || op == TL_OP_atom || op == TL_OP_red ||
                           op == TL_OP_call || op == TL_OP_unknown;
            is_patient |= op == TL_OP_membar || op == TL_OP_fence || op == TL_OP_nanosleep;
            tl_ptx_inst_writes(cfg->insts[i], note_write, x);
        }
    }
    x->reads_dependent = false;
    for (uint32_t o = cfg->blocks[x->head].order; o < cfg->n_order; o++) {
        const struct tl_ptx_block *k = &cfg->blocks[cfg->order[o]];
        for (uint32_t i = k->first; tl_ptx_set_has(&x->loop, cfg->order[o]) && i < k->end; i++) {
            tl_ptx_inst_reads(cfg->insts[i], note_carried, x);
            tl_ptx_inst_writes(cfg->insts[i], note_written, x);
        }
    }
    return !is_patient && (has_effects || x->reads_dependent);
}

static bool exits_depend(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (!tl_ptx_set_has(&x->loop, b) || !branch_depends(x, b))
            continue;
        tl_ptx_set_clear(&x->region);
        tl_ptx_cfg_region(cfg, b, cfg->blocks[b].ipdom, &x->region, x->stack);
        tl_ptx_set_add(&x->region, b);
        /* The branch itself, or one that it decides about, leaves the loop. */
        for (uint32_t r = 0; r < cfg->n_blocks; r++) {
            for (uint32_t e = 0; tl_ptx_set_has(&x->region, r) && tl_ptx_set_has(&x->loop, r) &&
                                 cfg->blocks[r].n_succs > 1 && e < cfg->blocks[r].n_succs;
                 e++) {
                uint32_t to = cfg->blocks[r].succs[e];
                if (to == cfg->n_blocks || !tl_ptx_set_has(&x->loop, to))
                    return true;
            }
        }
    }
    return false;
}

static void judge_loop(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    bool has_effects = note_effects(x);
    memset(x->depends, 0, cfg->func->n_regs);
    x->memory_depends = x->global_depends = x->carry_depends = false;
    do {
        x->changed = false;
        follow_values(x, has_effects);
        follow_branches(x);
    } while (x->changed);
    if (!exits_depend(x))
        return;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             tl_ptx_set_has(&x->loop, b) && i < cfg->blocks[b].end; i++) {
            const struct tl_ptx_stmt *s = cfg->insts[i];
            if (!is_source(x, s, has_effects) || tl_flag_is_counter(s) ||
                is_optimistic_update(x, i))
                continue;
            if (waits_for_earlier(x, i) ||
                tl_semaphore_waits_for_turn(&x->semaphore, &x->loop, i, !x->reads_ctaid_yz)) {
                x->w->waits_for_earlier = true;
                continue;
            }
            if (x->w->reason != TL_PTX_REASON_GRID_BARRIER) {
                x->w->reason = is_grid_barrier(x, s) ? TL_PTX_REASON_GRID_BARRIER
                                                     : TL_PTX_REASON_BLOCK_WAIT;
                x->w->place = s;
            }
        }
    }
}

static void note_ctaid_yz(struct search *x, const struct tl_ptx_operand *o)
{
    if (o->kind == TL_OPD_SYM)
        x->reads_ctaid_yz |= o->sym->sreg == TL_SREG_ctaid && o->component != 'x';
    for (uint32_t i = 0; i < o->n; i++)
        note_ctaid_yz(x, &o->elems[i]);
}

static int search_loops(struct search *x, struct tl_arena *arena, bool grid_is_line)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    *x->w = (struct tl_ptx_waits){.reason = TL_PTX_REASON_OK, .only_in_line = grid_is_line};
    if (tl_affines_init(&x->affines, arena, cfg, grid_is_line) < 0 ||
        tl_semaphore_init(&x->semaphore, arena, &x->affines) < 0)
        return -ENOMEM;
    x->reads_ctaid_yz = false;
    for (uint32_t i = 0; !grid_is_line && i < cfg->n_insts; i++) {
        for (uint32_t o = 0; o < cfg->insts[i]->n_operands; o++)
            note_ctaid_yz(x, &cfg->insts[i]->inst.operands[o]);
    }
    for (uint32_t i = 0; i < cfg->n_order; i++) {
        x->head = cfg->order[i];
        if (!tl_ptx_cfg_loop(cfg, x->head, &x->loop, &x->region, x->stack))
            continue;
        judge_loop(x);
        /* A loop around a wait may begin with the wait, and is then one loop with it that the wait
         * does not leave. */
        const struct tl_ptx_block *head = &cfg->blocks[x->head];
        for (uint32_t e = 0; head->n_preds > 2 && e < head->n_preds; e++) {
            if (tl_ptx_cfg_loop_by(cfg, x->head, head->preds[e], &x->loop, &x->region, x->stack))
                judge_loop(x);
        }
    }
    return 0;
}

int tl_ptx_find_waits(struct tl_ptx_waits *w, struct tl_arena *arena, const struct tl_ptx_cfg *cfg,
                      bool (*is_remote)(void *data, const struct tl_ptx_stmt *call), void *data)
{
    struct search x = {.w = w, .cfg = cfg, .is_remote = is_remote, .data = data};
    size_t n_regs = (size_t)cfg->func->n_regs + 1;
    x.depends = tl_arena_alloc(arena, n_regs);
    x.varies = tl_arena_alloc(arena, n_regs);
    x.stack = tl_arena_alloc(arena, ((size_t)cfg->n_blocks + 2) * sizeof *x.stack);
    if (x.depends == NULL || x.varies == NULL || x.stack == NULL ||
        tl_ptx_set_init(&x.loop, arena, cfg) < 0 || tl_ptx_set_init(&x.region, arena, cfg) < 0)
        return -ENOMEM;
    int rc = search_loops(&x, arena, false);
    if (rc < 0 || w->reason == TL_PTX_REASON_OK)
        return rc;
    struct tl_ptx_waits in_general = *w;
    rc = search_loops(&x, arena, true);
    if (rc == 0 && w->reason != TL_PTX_REASON_OK)
        *w = in_general;
    return rc;
}

/* Waiting for earlier blocks: see earlier.h.
 *
 * The address that is polled lies below the one at which the block publishes, whichever of its
 * threads polls or publishes, and addresses grow with the block's place in the order of starting.
 * So what a block polls is published by one that started before it, or by nobody. */
#include "ptx_rewrite/earlier.h"

#include <string.h>

#include "ptx_rewrite/flags.h"
#include "ptx_rewrite/loop.h"

/* The only, unguarded instruction that writes a register, or NULL. */
static const struct tl_ptx_stmt *only_def(struct tl_earlier *x, const struct tl_ptx_sym *reg)
{
    uint32_t def = tl_affine_only_def(x->affines, reg);
    return def != TL_CFG_NONE ? x->cfg->insts[def] : NULL;
}

/* The thing that orders blocks in an address: %ctaid.x or a ticket.  NULL if there is none or more
 * than one. */
static const struct tl_leaf *block_leaf(struct tl_earlier *x, const struct tl_affine *e)
{
    const struct tl_leaf *found = NULL;
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tl_leaf *leaf = &e->terms[i].leaf;
        bool is_block = leaf->kind == TL_LEAF_SREG && leaf->id == TL_SREG_ctaid;
        if (is_block && leaf->part != 'x')
            return NULL; /* y and z make no order by themselves */
        is_block |= leaf->kind == TL_LEAF_REG &&
                    tl_flag_ticket(x->affines, leaf->what) != TL_CFG_NONE;
        if (is_block && (found != NULL || e->terms[i].factor <= 0))
            return NULL;
        if (is_block)
            found = leaf;
    }
    return found;
}

/* The ticket, if that is what orders the blocks, must be the same at both places. */
static bool is_order_fixed(struct tl_earlier *x, const struct tl_leaf *order, uint32_t block)
{
    if (order->kind != TL_LEAF_REG)
        return true;
    uint32_t def = tl_affine_only_def(x->affines, order->what);
    return def != TL_CFG_NONE && tl_ptx_cfg_dominates(x->cfg, x->cfg->block_of[def], block);
}

/* The most threads that a block of the kernel can have. */
static int64_t max_threads(const struct tl_earlier *x)
{
    static const char *const directives[] = {".maxntid", ".reqntid"};
    const struct tl_str *text = &x->cfg->func->directives;
    int64_t most = 1024;
    for (size_t d = 0; text->n > 0 && d < sizeof directives / sizeof directives[0]; d++) {
        const char *at = memmem(text->p, text->n, directives[d], strlen(directives[d]));
        if (at == NULL)
            continue;
        int64_t product = 1, number = 0;
        bool in_number = false;
        for (at += strlen(directives[d]); at <= text->p + text->n; at++) {
            bool is_digit = at < text->p + text->n && *at >= '0' && *at <= '9';
            if (is_digit && number <= 1024)
                number = number * 10 + (*at - '0');
            else if (!is_digit && in_number) {
                product *= number;
                number = 0;
            }
            in_number = is_digit;
            if (!is_digit && (at == text->p + text->n || *at == '.' || product > 1024))
                break;
        }
        if (product > 0 && product < most)
            most = product;
    }
    return most;
}

/* Whether a register holds the same in all blocks and threads, at all times: it is computed from
 * parameters and sizes alone. */
static bool is_common(struct tl_earlier *x, const struct tl_ptx_sym *reg, uint32_t depth)
{
    enum { MAX_DEPTH = 6 };
    uint32_t def = tl_affine_only_def(x->affines, reg);
    if (def == TL_CFG_NONE || depth > MAX_DEPTH)
        return false;
    const struct tl_ptx_stmt *s = x->cfg->insts[def];
    if (s->inst.form->op == TL_OP_ld)
        return tl_ptx_form_space(s->inst.form) == TL_MOD_param && x->cfg->func->is_entry;
    if (!tl_ptx_form_computes(s->inst.form))
        return false;
    for (uint32_t i = 1; i < s->n_operands; i++) {
        const struct tl_ptx_operand *o = &s->inst.operands[i];
        if (o->kind == TL_OPD_INT)
            continue;
        if (o->kind != TL_OPD_SYM)
            return false;
        bool is_size = o->sym->kind == TL_SYM_SREG &&
                       (o->sym->sreg == TL_SREG_nctaid || o->sym->sreg == TL_SREG_ntid);
        if (!is_size && o->sym->kind != TL_SYM_MODULE_VAR &&
            (o->sym->kind != TL_SYM_REG || !is_common(x, o->sym, depth + 1)))
            return false;
    }
    return true;
}

static bool is_common_leaf(struct tl_earlier *x, const struct tl_leaf *leaf)
{
    switch (leaf->kind) {
    case TL_LEAF_PARAM:
    case TL_LEAF_MODULE_VAR:
        return true;
    case TL_LEAF_SREG:
        return leaf->id == TL_SREG_nctaid || leaf->id == TL_SREG_ntid;
    case TL_LEAF_REG:
        return is_common(x, leaf->what, 0);
    default:
        return false;
    }
}

/* What an address is at most (`sign` 1) or at least (-1), whichever thread computes it: what
 * differs from thread to thread, or from time to time, and is not the block's place in the order,
 * is replaced by the bound that it has.  False if it has none. */
static bool bound(struct tl_earlier *x, struct tl_affine *e, const struct tl_leaf *order, int sign)
{
    for (uint32_t i = 0; i < e->n;) {
        const struct tl_leaf *leaf = &e->terms[i].leaf;
        int64_t most = 0, product;
        if (tl_leaf_eq(leaf, order) || is_common_leaf(x, leaf)) {
            i++;
            continue;
        }
        bool to_zero = (e->terms[i].factor < 0) == (sign > 0);
        if (!tl_affine_is_never_negative(x->affines, leaf))
            return false;
        if (!to_zero && leaf->kind == TL_LEAF_SREG && leaf->id == TL_SREG_tid)
            most = max_threads(x) - 1;
        else if (!to_zero && leaf->kind == TL_LEAF_SREG && leaf->id == TL_SREG_laneid)
            most = 31;
        else if (!to_zero)
            return false;
        if (__builtin_mul_overflow(e->terms[i].factor, most, &product) ||
            __builtin_add_overflow(e->constant, product, &e->constant))
            return false;
        e->terms[i] = e->terms[--e->n];
    }
    return true;
}

/* Bytes that a load reads; more than any reads if they are not known. */
static int64_t bytes_of(const struct tl_ptx_form *f)
{
    int64_t vector = tl_ptx_form_has(f, TL_MOD_v2)   ? 2
                     : tl_ptx_form_has(f, TL_MOD_v4) ? 4
                     : tl_ptx_form_has(f, TL_MOD_v8) ? 8
                                                     : 1;
    uint32_t bytes = f->n_mods > 0 ? tl_ptx_type_bytes(f->mods[f->n_mods - 1].text) : 0;
    return bytes > 0 ? vector * bytes : INT32_MAX;
}

/* Whether all that one block may poll, `bytes` from there on, lies below all that it may publish,
 * and ends where the next block publishes at the latest. */
static bool is_below(struct tl_earlier *x, struct tl_affine low, int64_t bytes,
                     struct tl_affine high, const struct tl_leaf *order)
{
    if (!bound(x, &low, order, 1) || !bound(x, &high, order, -1) || !tl_affine_add(&low, &high, -1))
        return false;
    return low.n == 0 && low.constant < 0 && low.constant + bytes <= tl_affine_factor(&high, order);
}

/* Where a block runs only if some value is a known constant (`if (tile == 0)`), the address may be
 * written with that value again: tries every such condition above `block`. */
static bool is_below_under_conditions(struct tl_earlier *x, const struct tl_affine *polled,
                                      int64_t bytes, struct tl_affine published, uint32_t block,
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
        difference = tl_affine_of_reg(x->affines, o[1].sym);
        right = (struct tl_affine){.constant = tl_loop_signed(test->inst.form, o[2].bits)};
        int64_t factor = tl_affine_factor(&difference, order);
        if (difference.is_upper || factor == 0 || !tl_affine_add(&difference, &right, -1))
            continue;
        int64_t wanted = tl_affine_factor(polled, order) - tl_affine_factor(&published, order);
        struct tl_affine again = published;
        if (wanted % factor == 0 && tl_affine_add(&again, &difference, wanted / factor) &&
            is_below(x, *polled, bytes, again, order))
            return true;
    }
    return false;
}

/* Whether a write may only move a ticket's counter on, or set it back to zero, with which it
 * begins: then whoever has a ticket got it after those with lower ones. */
static bool keeps_tickets(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    uint32_t value = f->op == TL_OP_atom ? 2 : 1;
    if (s->n_operands <= value || s->inst.operands[value].kind != TL_OPD_INT)
        return f->op == TL_OP_atom && tl_flag_counts_up(s);
    bool is_zero = s->inst.operands[value].bits == 0;
    if (f->op == TL_OP_st)
        return s->n_operands == 2 && is_zero;
    if (f->op == TL_OP_atom && tl_ptx_form_has(f, TL_MOD_exch))
        return is_zero;
    return f->op == TL_OP_atom && tl_flag_counts_up(s);
}

bool tl_earlier_is_ticket_safe(struct tl_earlier *x, const struct tl_ptx_sym *reg)
{
    const struct tl_ptx_roots *r = x->roots;
    uint32_t taking = tl_flag_ticket(x->affines, reg);
    if (taking == TL_CFG_NONE)
        return false;
    const struct tl_ptx_operand *address = tl_flag_address(x->cfg->insts[taking]);
    tl_ptx_root_set counter = tl_ptx_roots_of(r, x->cfg, address);
    for (uint32_t c = 0; c < r->n_cfgs; c++) {
        for (uint32_t i = 0; i < r->cfgs[c].n_insts; i++) {
            const struct tl_ptx_stmt *s = r->cfgs[c].insts[i];
            struct tl_affine e, f;
            if (!tl_ptx_roots_meet(counter, tl_ptx_roots_written(r, &r->cfgs[c], s)) ||
                keeps_tickets(s))
                continue;
            bool is_apart = &r->cfgs[c] == x->cfg &&
                            tl_affine_of_address(x->affines, address, &e) &&
                            tl_affine_of_address(x->affines, tl_flag_address(s), &f) &&
                            !e.is_upper && !f.is_upper && tl_affine_add(&e, &f, -1) && e.n == 0 &&
                            (e.constant >= 16 || e.constant <= -16);
            if (!is_apart)
                return false;
        }
    }
    return true;
}

bool tl_earlier_has_other_writers(struct tl_earlier *x, uint32_t poll)
{
    const struct tl_ptx_roots *r = x->roots;
    tl_ptx_root_set read = tl_ptx_roots_of(r, x->cfg, tl_flag_address(x->cfg->insts[poll]));
    for (uint32_t c = 0; c < r->n_cfgs; c++) {
        for (uint32_t i = 0; i < r->cfgs[c].n_insts; i++) {
            const struct tl_ptx_stmt *s = r->cfgs[c].insts[i];
            enum tl_ptx_op op = s->inst.form->op;
            bool is_own = &r->cfgs[c] == x->cfg &&
                          (op == TL_OP_st || op == TL_OP_atom || op == TL_OP_red);
            if (!is_own && tl_ptx_roots_meet(read, tl_ptx_roots_written(r, &r->cfgs[c], s)))
                return true;
        }
    }
    return false;
}

bool tl_earlier_is_waited_for(struct tl_earlier *x, uint32_t poll_inst)
{
    const struct tl_ptx_stmt *poll = x->cfg->insts[poll_inst];
    const struct tl_ptx_operand *address = tl_flag_address(poll);
    struct tl_affine polled;
    if (poll->inst.form->op != TL_OP_ld || address == NULL ||
        !tl_affine_of_address(x->affines, address, &polled) ||
        tl_earlier_has_other_writers(x, poll_inst))
        return false;
    tl_affine_loosen(x->affines, &polled);
    const struct tl_leaf *order = block_leaf(x, &polled);
    if (order == NULL || (order->kind == TL_LEAF_SREG && x->reads_ctaid_yz) ||
        !is_order_fixed(x, order, x->cfg->block_of[poll_inst]) ||
        (order->kind == TL_LEAF_REG && !tl_earlier_is_ticket_safe(x, order->what)))
        return false;
    int64_t bytes = bytes_of(poll->inst.form);
    bool publishes = false;
    for (uint32_t i = 0; i < x->cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = x->cfg->insts[i];
        enum tl_ptx_op op = s->inst.form->op;
        if ((op != TL_OP_st && op != TL_OP_atom && op != TL_OP_red) ||
            !tl_flag_may_be_global(s->inst.form))
            continue;
        struct tl_affine published;
        if (!tl_affine_of_address(x->affines, tl_flag_address(s), &published))
            return false;
        if (!tl_flag_shares_base(&polled, &published)) {
            /* Another array, if it has another root. */
            if (tl_ptx_roots_meet(tl_ptx_roots_of(x->roots, x->cfg, address),
                                  tl_ptx_roots_written(x->roots, x->cfg, s)))
                return false;
            continue;
        }
        uint32_t block = x->cfg->block_of[i];
        if (published.is_upper || !is_order_fixed(x, order, block))
            return false;
        bool is_lower = tl_affine_factor(&published, order) == tl_affine_factor(&polled, order)
                            ? is_below(x, polled, bytes, published, order)
                            : is_below_under_conditions(x, &polled, bytes, published, block, order);
        if (!is_lower)
            return false;
        publishes = true;
    }
    return publishes;
}

/* Waiting for other blocks.
 *
 * A wait is a loop that some thread leaves, or not, because of what it reads from memory that other
 * blocks write while it runs.  So, for every loop: start from all readings in it that may see what
 * other blocks write, follow their values through registers, shared and local memory, votes,
 * barriers and branches, and see whether an exit depends on them.  Readings are of any form: loads
 * (plain ones too, unless the kernel writes nothing into that array: roots.c), atomics, textures
 * and surfaces, asynchronous copies, calls of functions that read so.
 *
 * Every such reading must have an argument why nobody is kept in the loop by blocks that have not
 * started.  Those of ends.c speak of the loop alone.  Two more need the order in which blocks
 * start:
 *
 *   - a wait for an earlier block: the address that is polled lies below the one at which this block publishes, and
 *     addresses grow with the block number or with a ticket that blocks take as they start.  Blocks start in ascending
 *     order in every variant, so the one waited for is running or done;
 *   - a wait for the block's turn, which an earlier block gives it: see semaphore.c.
 *
 * If there is a reading without one, it may still be that no thread gets there in a grid that is
 * one block wide in some direction (narrow.c).  Then the kernel waits for nobody in such launches,
 * provided that no other loop needs an argument there either.
 *
 * Everything else is refused. */
#include "ptx_rewrite/waits.h"

#include <errno.h>
#include <string.h>

#include "ptx_rewrite/earlier.h"
#include "ptx_rewrite/flags.h"
#include "ptx_rewrite/loop.h"
#include "ptx_rewrite/narrow.h"

enum { MAX_TOLD = 16 };

struct search {
    struct tl_ptx_waits *w;
    const struct tl_ptx_cfg *cfg;
    struct tl_affines affines;
    struct tl_semaphore semaphore;
    const struct tl_ptx_roots *roots;
    const struct tl_ptx_calls *calls;
    struct tl_ptx_set loop, region;
    struct tl_ptx_set reached; /* what a thread may come to; empty: all of it, as far as is known */
    bool is_narrow;            /* it is not empty */
    uint32_t head;             /* of the current loop */
    uint32_t *stack;
    bool *depends;       /* per register: on a polling read of the current loop */
    bool *suspect;       /* per register: the same, on any of them; `depends` may be on one */
    bool *varies;        /* per register: written in the current loop */
    bool *grows;         /* scratch for tl_ptx_why_it_ends */
    uint32_t only;       /* the reading to start from, or TL_CFG_NONE for all */
    bool reads_ctaid_yz; /* then %ctaid.x alone does not order the blocks */
    bool memory_depends; /* shared or local memory, or a call's parameters, hold such a value */
    bool has_effects;    /* a round can differ from the one before, whatever memory gives */
    bool votes_depend;   /* what threads tell each other at barriers does */
    bool carry_depends;  /* the carry flag does, which no operand names */
    bool reads_dependent;
    bool changed;
    /* The loop in question is one of another reader's listeners: what it hears of its block counts
     * as a reading.  See judge_listeners. */
    bool listens;
    uint32_t told[MAX_TOLD]; /* readings that only tell the rest of the block */
    uint32_t n_told;
    bool has_more_told; /* than there is room for */
};

/* --- readings that may see others ------------------------------------------------------------- */

/* What a load or copy reads from; for copies the second address. */
static const struct tl_ptx_operand *source_address(const struct tl_ptx_stmt *s)
{
    bool is_copy = s->inst.form->op == TL_OP_cp;
    for (uint32_t i = 0; i < s->n_operands; i++) {
        if (s->inst.operands[i].kind == TL_OPD_ADDR && (!is_copy || i > 0))
            return &s->inst.operands[i];
    }
    return NULL;
}

/* Whether a copy brings something from global memory. */
static bool copies_in(const struct tl_ptx_form *f)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        if (f->mods[i].id == TL_MOD_shared)
            return true;
        if (f->mods[i].id == TL_MOD_global)
            return false; /* named first: it is where the copy goes */
    }
    return false;
}

bool tl_ptx_sees_others(const struct tl_ptx_roots *r, const struct tl_ptx_cfg *cfg,
                        const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    tl_ptx_root_set set;
    switch (f->op) {
    case TL_OP_wmma:
        if (!tl_ptx_form_has(f, TL_MOD_load))
            return false;
        /* fall through */
    case TL_OP_ld:
    case TL_OP_ldu:
        if (!tl_flag_may_be_global(f) || tl_ptx_form_has(f, TL_MOD_nc))
            return false; /* .nc promises that nobody writes there */
        set = tl_ptx_roots_of(r, cfg, source_address(s));
        return (set != TL_ROOT_OWN && tl_flag_is_fresh(f)) || tl_ptx_roots_meet(set, r->written);
    case TL_OP_atom:
        return tl_flag_may_be_global(f) &&
               tl_ptx_roots_of(r, cfg, tl_flag_address(s)) != TL_ROOT_OWN;
    case TL_OP_multimem:
        return tl_ptx_form_has(f, TL_MOD_ld_reduce);
    case TL_OP_tex:
    case TL_OP_tld4:
    case TL_OP_suld:
        return true; /* what a handle stands for is not known */
    case TL_OP_cp:
        return copies_in(f) &&
               (tl_ptx_form_has_text(f, "tensor") ||
                tl_ptx_roots_meet(tl_ptx_roots_of(r, cfg, source_address(s)), r->written));
    default:
        return false;
    }
}

static void note_varying_read(void *data, struct tl_ptx_sym *reg)
{
    struct search *x = data;
    x->reads_dependent |= x->varies[reg->id];
}

/* In a loop that does nothing else, or that gives others time, a load or copy from always the same
 * place can only be meant as a wait, even if it is not this kernel that writes there. */
static bool asks_again(struct search *x, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    bool is_load = f->op == TL_OP_ld && tl_flag_may_be_global(f) && !tl_ptx_form_has(f, TL_MOD_nc);
    if ((!is_load && !(f->op == TL_OP_cp && copies_in(f))) || (is_load && x->has_effects) ||
        tl_ptx_roots_of(x->roots, x->cfg, source_address(s)) == TL_ROOT_OWN)
        return false;
    x->reads_dependent = false;
    tl_ptx_inst_reads(s, note_varying_read, x);
    return !x->reads_dependent;
}

static bool hears_shared(const struct tl_ptx_stmt *s);

/* Whether a thread may come to that block. */
static bool is_reached(const struct search *x, uint32_t block)
{
    return !x->is_narrow || tl_ptx_set_has(&x->reached, block);
}

static bool is_source(struct search *x, uint32_t inst)
{
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    if (x->listens)
        return hears_shared(s);
    if (!is_reached(x, x->cfg->block_of[inst]))
        return false;
    if (x->only != TL_CFG_NONE && x->only != inst)
        return false;
    if (s->inst.form->op == TL_OP_call)
        return x->calls->is_remote(x->calls->data, s);
    return tl_ptx_sees_others(x->roots, x->cfg, s) || asks_again(x, s);
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

/* Whether an instruction puts something where other threads of the block can find it. */
static bool tells_block(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    switch (f->op) {
    case TL_OP_st:
    case TL_OP_atom:
    case TL_OP_red:
        return space != TL_MOD_global;
    case TL_OP_mbarrier:
    case TL_OP_stmatrix:
    case TL_OP_tensormap:
    case TL_OP_cp:
    case TL_OP_call:
        return true;
    default:
        return false;
    }
}

/* Whether an instruction may read what the block, or the thread itself, has put into memory. */
static bool hears_block(const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    enum tl_ptx_mod space = tl_ptx_form_space(f);
    switch (f->op) {
    case TL_OP_ld:
    case TL_OP_atom:
        return space != TL_MOD_global && space != TL_MOD_const;
    case TL_OP_ldmatrix:
        return true;
    case TL_OP_wmma:
        return tl_ptx_form_has(f, TL_MOD_load);
    default:
        return false;
    }
}

/* What threads get at a barrier, from each other: also from those that come to it elsewhere. */
static bool is_block_vote(const struct tl_ptx_stmt *s)
{
    enum tl_ptx_op op = s->inst.form->op;
    return ((op == TL_OP_bar || op == TL_OP_barrier) && tl_ptx_form_has(s->inst.form, TL_MOD_red));
}

static bool is_barrier_question(const struct tl_ptx_stmt *s)
{
    return s->inst.form->op == TL_OP_mbarrier && (tl_ptx_form_has(s->inst.form, TL_MOD_test_wait) ||
                                                  tl_ptx_form_has(s->inst.form, TL_MOD_try_wait));
}

static bool hears_shared(const struct tl_ptx_stmt *s)
{
    enum tl_ptx_mod space = tl_ptx_form_space(s->inst.form);
    return is_block_vote(s) || is_barrier_question(s) ||
           (hears_block(s) && space != TL_MOD_local && space != TL_MOD_param);
}

static void follow_values(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (!tl_ptx_set_has(&x->loop, b))
            continue;
        for (uint32_t i = cfg->blocks[b].first; i < cfg->blocks[b].end; i++) {
            const struct tl_ptx_stmt *s = cfg->insts[i];
            enum tl_ptx_op op = s->inst.form->op;
            bool dependent = reads_dependent(x, s), is_start = is_source(x, i);
            dependent |= x->carry_depends &&
                         (op == TL_OP_addc || op == TL_OP_subc || op == TL_OP_madc);
            bool passes_on = (op == TL_OP_call || op == TL_OP_cp) && is_start;
            note_once(x, &x->carry_depends, dependent && tl_ptx_form_has(s->inst.form, TL_MOD_cc));
            note_once(x, &x->memory_depends, (tells_block(s) && dependent) || passes_on);
            note_once(x, &x->votes_depend,
                      dependent && (is_block_vote(s) || op == TL_OP_mbarrier || op == TL_OP_call));
            dependent |= (x->memory_depends && hears_block(s)) ||
                         (x->votes_depend && (is_block_vote(s) || is_barrier_question(s)));
            if (dependent || is_start)
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

/* What lanes tell each other, or who is there to be asked, depends on who comes there. */
static bool is_warp_question(const struct tl_ptx_stmt *s)
{
    switch (s->inst.form->op) {
    case TL_OP_activemask:
    case TL_OP_elect:
    case TL_OP_match:
    case TL_OP_redux:
    case TL_OP_shfl:
    case TL_OP_vote:
        return true;
    default:
        return false;
    }
}

/* Which of several definitions is seen depends on the branches above them; so does what a thread
 * has told others there. */
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
            for (uint32_t i = cfg->blocks[r].first; i < cfg->blocks[r].end; i++) {
                const struct tl_ptx_stmt *s = cfg->insts[i];
                bool is_vote = is_block_vote(s) || s->inst.form->op == TL_OP_mbarrier;
                note_once(x, &x->memory_depends, tells_block(s));
                note_once(x, &x->votes_depend, is_vote || s->inst.form->op == TL_OP_call);
                tl_ptx_inst_writes(
                    s, is_warp_question(s) ? make_dependent : make_dependent_if_chosen, x);
            }
        }
    }
}

/* --- loops ----------------------------------------------------------------------------------- */

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

/* Whether an instruction gives others time, or asks for what they have done. */
static bool is_patience(const struct tl_ptx_stmt *s)
{
    enum tl_ptx_op op = s->inst.form->op;
    return op == TL_OP_membar || op == TL_OP_fence || op == TL_OP_nanosleep;
}

/* Notes the registers written in the loop, and whether a round can differ from the one before in
 * anything but what memory gives: because the loop writes memory, calls, or carries a register from
 * round to round.  A loop with a fence or a sleep in it expects memory to change. */
static void note_effects(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    bool has_effects = false, is_patient = false;
    memset(x->varies, 0, cfg->func->n_regs);
    memset(x->depends, 0, cfg->func->n_regs); /* used here for "written so far" */
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        bool is_in = tl_ptx_set_has(&x->loop, b) && is_reached(x, b);
        for (uint32_t i = cfg->blocks[b].first; is_in && i < cfg->blocks[b].end; i++) {
            enum tl_ptx_op op = cfg->insts[i]->inst.form->op;
            has_effects |= op == TL_OP_st || op == TL_OP_atom || op == TL_OP_red ||
                           op == TL_OP_call || op == TL_OP_unknown;
            is_patient |= is_patience(cfg->insts[i]);
            tl_ptx_inst_writes(cfg->insts[i], note_write, x);
        }
    }
    x->reads_dependent = false;
    for (uint32_t o = cfg->blocks[x->head].order; o < cfg->n_order; o++) {
        const struct tl_ptx_block *k = &cfg->blocks[cfg->order[o]];
        bool is_in = tl_ptx_set_has(&x->loop, cfg->order[o]) && is_reached(x, cfg->order[o]);
        for (uint32_t i = k->first; is_in && i < k->end; i++) {
            tl_ptx_inst_reads(cfg->insts[i], note_carried, x);
            tl_ptx_inst_writes(cfg->insts[i], note_written, x);
        }
    }
    x->has_effects = !is_patient && (has_effects || x->reads_dependent);
}

/* Whether a thread may leave the loop in that block by ending in a function that it calls there;
 * with `only_told` only if that function, or whether it is called, can depend on the readings. */
static bool ends_in_call(struct search *x, uint32_t block, bool only_told)
{
    const struct tl_ptx_block *k = &x->cfg->blocks[block];
    for (uint32_t i = k->first; i < k->end && is_reached(x, block); i++) {
        const struct tl_ptx_stmt *s = x->cfg->insts[i];
        if (s->inst.form->op == TL_OP_call && x->calls->may_end(x->calls->data, s) &&
            (!only_told || x->memory_depends || is_source(x, i) || reads_dependent(x, s)))
            return true;
    }
    return false;
}

static bool exits_depend(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (tl_ptx_set_has(&x->loop, b) && ends_in_call(x, b, true))
            return true;
    }
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
            if (tl_ptx_set_has(&x->region, r) && tl_ptx_set_has(&x->loop, r) &&
                ends_in_call(x, r, false))
                return true;
        }
    }
    return false;
}

/* Follows what one reading of the loop gave, or all; whether an exit depends on it. */
static bool decides_about_exits(struct search *x, uint32_t inst)
{
    x->only = inst;
    memset(x->depends, 0, x->cfg->func->n_regs);
    x->memory_depends = x->votes_depend = x->carry_depends = false;
    do {
        x->changed = false;
        follow_values(x);
        follow_branches(x);
    } while (x->changed);
    return exits_depend(x);
}

static void note_argument(struct tl_ptx_waits *w, enum tl_ptx_end end, const struct tl_ptx_stmt *s)
{
    w->waits_for_earlier |= end == TL_PTX_END_EARLIER || end == TL_PTX_END_TURN;
    for (uint32_t i = 0; i < w->n_arguments && i < TL_PTX_MAX_ARGUMENTS; i++) {
        if (w->arguments[i].place == s)
            return; /* an inner loop is part of the outer one */
    }
    if (w->n_arguments < TL_PTX_MAX_ARGUMENTS)
        w->arguments[w->n_arguments] = (struct tl_ptx_argument){end, s};
    w->n_arguments++;
}

static enum tl_ptx_end argument_of(struct search *x, uint32_t inst)
{
    struct tl_ptx_ends ends = {.cfg = x->cfg,
                               .affines = &x->affines,
                               .semaphore = &x->semaphore,
                               .roots = x->roots,
                               .loop = &x->loop,
                               .head = x->head,
                               .varies = x->varies,
                               .suspect = x->suspect,
                               .depends = x->depends,
                               .grows = x->grows,
                               .region = &x->region,
                               .stack = x->stack};
    enum tl_ptx_end end = tl_ptx_why_it_ends(&ends, inst);
    if (end != TL_PTX_END_NONE)
        return end;
    if (!x->cfg->func->is_entry)
        return TL_PTX_END_NONE; /* its callers may write what it waits for */
    struct tl_earlier earlier = {x->cfg, &x->affines, x->roots, x->reads_ctaid_yz};
    if (tl_earlier_is_waited_for(&earlier, inst))
        return TL_PTX_END_EARLIER;
    if (!tl_earlier_has_other_writers(&earlier, inst) &&
        tl_semaphore_waits_for_turn(&x->semaphore, &x->loop, inst, !x->reads_ctaid_yz) &&
        (x->semaphore.ticket == TL_CFG_NONE ||
         tl_earlier_is_ticket_safe(&earlier, x->semaphore.own.terms[0].leaf.what)))
        return TL_PTX_END_TURN;
    return TL_PTX_END_NONE;
}

/* Whether something that a call is given is another number in each round. */
static bool has_moving_argument(const struct tl_ptx_ends *ends, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = ends->cfg;
    struct tl_ptx_call call;
    if (!tl_ptx_inst_call(cfg->insts[inst], &call) || call.args == NULL)
        return false;
    for (uint32_t k = 0; k < call.args->n; k++) {
        if (tl_loop_step(ends, &call.args->elems[k], inst, 0) != 0)
            return true;
    }
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        const struct tl_ptx_stmt *put = cfg->insts[i];
        const struct tl_ptx_operand *to = put->n_operands == 2 ? &put->inst.operands[0] : NULL;
        if (put->inst.form->op != TL_OP_st || tl_ptx_form_space(put->inst.form) != TL_MOD_param ||
            to == NULL || to->kind != TL_OPD_ADDR || to->n != 1 || !tl_loop_has(ends, i))
            continue;
        for (uint32_t k = 0; k < call.args->n; k++) {
            const struct tl_ptx_operand *arg = &call.args->elems[k];
            if (arg->kind == TL_OPD_SYM && arg->sym == to->elems[0].sym &&
                tl_loop_step(ends, &put->inst.operands[1], i, 0) != 0)
                return true;
        }
    }
    return false;
}

/* Whether an instruction reads for certain from another place in each round of the loop, as one
 * does that looks through an array. */
static bool moves_on(const struct tl_ptx_ends *ends, uint32_t inst)
{
    const struct tl_ptx_operand *address = source_address(ends->cfg->insts[inst]);
    return address != NULL && address->n == 1 &&
           tl_loop_step(ends, &address->elems[0], inst, 0) != 0;
}

/* Whether the reader means to see what others write meanwhile: it says so, or the loop has a fence
 * or sleeps. */
static bool is_read_afresh(const struct search *x, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    if (s->inst.form->op == TL_OP_atom || tl_flag_is_fresh(s->inst.form))
        return true;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             tl_ptx_set_has(&x->loop, b) && i < cfg->blocks[b].end; i++) {
            if (is_patience(cfg->insts[i]))
                return true;
        }
    }
    return false;
}

/* Whether an instruction may read from a place again that it has read from in another round.  Of
 * one that does not say that it looks for what is new only what is known to: programs that sort
 * or factorise come back to their own data in ways that are not followed here. */
static bool may_ask_again(const struct search *x, uint32_t inst)
{
    const struct tl_ptx_stmt *s = x->cfg->insts[inst];
    const struct tl_ptx_ends ends = {.cfg = x->cfg,
                                     .affines = (struct tl_affines *)&x->affines,
                                     .roots = x->roots,
                                     .loop = &x->loop,
                                     .head = x->head,
                                     .varies = x->varies};
    const struct tl_ptx_operand *address = source_address(s);
    if (s->inst.form->op == TL_OP_call)
        return !has_moving_argument(&ends, inst);
    if (address != NULL)
        return tl_loop_picks(&ends, address, 0) || (is_read_afresh(x, s) && !moves_on(&ends, inst));
    for (uint32_t i = 1; i < s->n_operands; i++) {
        if (!tl_loop_keeps(&ends, &s->inst.operands[i], 0))
            return false;
    }
    return true;
}

static bool is_noted(const struct search *x, uint32_t inst)
{
    for (uint32_t i = 0; i < x->n_told; i++) {
        if (x->told[i] == inst)
            return true;
    }
    return false;
}

/* Notes readings of always the same place that do not decide about this loop, which ends by itself,
 * but that are told to the rest of the block. */
static void note_told(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             tl_ptx_set_has(&x->loop, b) && i < cfg->blocks[b].end; i++) {
            x->only = TL_CFG_NONE;
            if (!is_source(x, i) || is_noted(x, i) || !may_ask_again(x, i))
                continue;
            decides_about_exits(x, i);
            if (!x->memory_depends && !x->votes_depend)
                continue;
            if (x->n_told < MAX_TOLD)
                x->told[x->n_told++] = i;
            else
                x->has_more_told = true;
        }
    }
}

/* A thread may wait for what another one tells it, and that one may look for a while only: then the
 * wait is here, and the reading there. */
static void judge_listeners(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    for (uint32_t h = 0; h < cfg->n_order && x->n_told > 0 && x->w->reason == TL_PTX_REASON_OK;
         h++) {
        x->head = cfg->order[h];
        if (!tl_ptx_cfg_loop(cfg, x->head, &x->loop, &x->region, x->stack))
            continue;
        x->listens = true;
        bool is_listener = decides_about_exits(x, TL_CFG_NONE);
        x->listens = false;
        for (uint32_t i = 0; is_listener && i < x->n_told; i++) {
            if (tl_ptx_set_has(&x->loop, cfg->block_of[x->told[i]]) && !x->has_more_told)
                continue; /* judged as part of that loop; one that is not noted may not be */
            x->w->reason = TL_PTX_REASON_BLOCK_WAIT;
            x->w->place = cfg->insts[x->told[i]];
            break;
        }
    }
}

/* Judges the loop in x->loop: each reading of memory that may decide about its end needs an
 * argument of its own, since one that holds says nothing about the others.  A loop that ends by
 * itself is only noted if it tells the rest of the block what it reads (judge_listeners). */
static void judge_loop(struct search *x)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    if (x->w->reason == TL_PTX_REASON_GRID_BARRIER)
        return;
    note_effects(x);
    if (!decides_about_exits(x, TL_CFG_NONE)) {
        if (x->memory_depends || x->votes_depend)
            note_told(x);
        return;
    }
    memcpy(x->suspect, x->depends, cfg->func->n_regs);
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        for (uint32_t i = cfg->blocks[b].first;
             tl_ptx_set_has(&x->loop, b) && i < cfg->blocks[b].end; i++) {
            const struct tl_ptx_stmt *s = cfg->insts[i];
            x->only = TL_CFG_NONE;
            /* One refusal is enough, unless another has a better name. */
            bool is_refused = x->w->reason != TL_PTX_REASON_OK;
            if (!is_source(x, i) || (is_refused && !is_grid_barrier(x, s)) ||
                !decides_about_exits(x, i))
                continue;
            enum tl_ptx_end end = argument_of(x, i);
            if (end != TL_PTX_END_NONE) {
                note_argument(x->w, end, s);
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

/* `narrow`: the grid is one block wide in that direction, or 0. */
static int search_loops(struct search *x, struct tl_arena *arena, bool grid_is_line, char narrow)
{
    const struct tl_ptx_cfg *cfg = x->cfg;
    *x->w = (struct tl_ptx_waits){
        .reason = TL_PTX_REASON_OK, .only_in_line = grid_is_line, .only_narrow = narrow};
    x->is_narrow = narrow != 0;
    if (tl_affines_init(&x->affines, arena, cfg, grid_is_line) < 0 ||
        tl_semaphore_init(&x->semaphore, arena, &x->affines, x->roots) < 0 ||
        (x->is_narrow &&
         tl_ptx_narrow_reach(arena, &x->affines, narrow, &x->reached, x->stack) < 0))
        return -ENOMEM;
    x->reads_ctaid_yz = !grid_is_line && x->roots->reads_ctaid_yz;
    x->n_told = 0;
    x->has_more_told = false;
    for (uint32_t i = 0; i < cfg->n_order; i++) {
        x->head = cfg->order[i];
        if (!is_reached(x, x->head) ||
            !tl_ptx_cfg_loop(cfg, x->head, &x->loop, &x->region, x->stack))
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
    judge_listeners(x);
    return 0;
}

int tl_ptx_find_waits(struct tl_ptx_waits *w, struct tl_arena *arena, const struct tl_ptx_cfg *cfg,
                      const struct tl_ptx_roots *roots, const struct tl_ptx_calls *calls)
{
    struct search x = {.w = w, .cfg = cfg, .roots = roots, .calls = calls};
    size_t n_regs = (size_t)cfg->func->n_regs + 1;
    x.depends = tl_arena_alloc(arena, n_regs);
    x.suspect = tl_arena_alloc(arena, n_regs);
    x.varies = tl_arena_alloc(arena, n_regs);
    x.grows = tl_arena_alloc(arena, n_regs);
    x.stack = tl_arena_alloc(arena, ((size_t)cfg->n_blocks + 2) * sizeof *x.stack);
    if (x.depends == NULL || x.suspect == NULL || x.varies == NULL || x.grows == NULL ||
        x.stack == NULL || tl_ptx_set_init(&x.loop, arena, cfg) < 0 ||
        tl_ptx_set_init(&x.region, arena, cfg) < 0 || tl_ptx_set_init(&x.reached, arena, cfg) < 0)
        return -ENOMEM;
    int rc = search_loops(&x, arena, false, 0);
    if (rc < 0 || w->reason == TL_PTX_REASON_OK)
        return rc;
    struct tl_ptx_waits in_general = *w;
    rc = search_loops(&x, arena, true, 0);
    for (const char *axis = "xyz"; rc == 0 && w->reason != TL_PTX_REASON_OK && *axis != '\0';
         axis++) {
        rc = search_loops(&x, arena, false, *axis);
        /* Nobody waits at all there, or it is not what this is for. */
        if (w->reason == TL_PTX_REASON_OK && w->n_arguments > 0)
            w->reason = TL_PTX_REASON_BLOCK_WAIT;
        if (w->reason == TL_PTX_REASON_OK)
            note_argument(w, TL_PTX_END_NARROW, in_general.place);
    }
    if (rc == 0 && w->reason != TL_PTX_REASON_OK)
        *w = in_general;
    return rc;
}

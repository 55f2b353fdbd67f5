/* What a loop over blocks forbids.
 *
 * In a persistent variant, threads that return wait for the others at the end of the round, and are
 * still there when the rest of the block goes on.  Barriers must count with them, and operations of
 * a whole warp would wait for them.  See docs/rewriter.md, "Persistent blocks" and "Verdict". */
#include "ptx_rewrite/judge.h"

#include <errno.h>
#include <string.h>

#include "ptx_rewrite/diverge.h"

/* What a region of the control flow holds. */
struct contents {
    const struct tl_ptx_stmt *barrier, *warp_sync, *full_warp_sync;
    bool holds_up; /* nobody passes without meeting the warp or the block */
};

/* The function that is looked at: its flow, and per register its only definition (NONE if there is
 * none, MANY). */
struct view {
    struct tl_ptx_judgement *j;
    const struct tl_ptx_cfg *cfg;
    uint32_t *defs;
    uint32_t inst; /* scratch */
};

enum { MANY_DEFS = TL_CFG_NONE - 1 };

static void note_def(void *data, struct tl_ptx_sym *reg)
{
    struct view *v = data;
    v->defs[reg->id] = v->defs[reg->id] == TL_CFG_NONE ? v->inst : MANY_DEFS;
}

static int view_init(struct view *v, struct tl_ptx_judgement *j, const struct tl_ptx_cfg *cfg)
{
    size_t bytes = ((size_t)cfg->func->n_regs + 1) * sizeof *v->defs;
    *v = (struct view){.j = j, .cfg = cfg, .defs = tl_arena_alloc(j->p->arena, bytes)};
    if (v->defs == NULL)
        return -ENOMEM;
    memset(v->defs, 0xff, bytes);
    for (v->inst = 0; v->inst < cfg->n_insts; v->inst++)
        tl_ptx_inst_writes(cfg->insts[v->inst], note_def, v);
    return 0;
}

/* Compilers put the mask of all lanes into a register, too. */
static bool is_all_ones(const struct view *v, const struct tl_ptx_operand *mask)
{
    if (mask->kind != TL_OPD_SYM || mask->sym->kind != TL_SYM_REG)
        return false;
    uint32_t def = v->defs[mask->sym->id];
    if (def >= MANY_DEFS)
        return false;
    const struct tl_ptx_stmt *s = v->cfg->insts[def];
    return s->inst.form->op == TL_OP_mov && s->inst.guard == NULL && s->n_operands == 2 &&
           s->inst.operands[1].kind == TL_OPD_INT &&
           (uint32_t)s->inst.operands[1].bits == UINT32_MAX;
}

/* Operations for which a warp must be complete, apart from lanes that have returned.  A barrier
 * with a thread count is one: the hardware counts whole warps there. */
static bool meets_warp(const struct view *v, const struct tl_ptx_stmt *s, bool *all_lanes)
{
    struct tl_ptx_barrier b = tl_ptx_barrier_of(s);
    *all_lanes = true;
    if (b.kind != TL_BARRIER_NONE)
        return b.has_count;
    if (!tl_ptx_is_warp_sync(s, all_lanes))
        return false;
    *all_lanes |= s->n_operands > 0 && is_all_ones(v, &s->inst.operands[s->n_operands - 1]);
    return true;
}

static void look_into(const struct view *v, uint32_t block, struct contents *c)
{
    const struct tl_ptx_cfg *cfg = v->cfg;
    for (uint32_t i = cfg->blocks[block].first; i < cfg->blocks[block].end; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        const struct tl_ptx_summary *callee = tl_ptx_callee_summary(v->j, s);
        bool all_lanes = false, is_sync = meets_warp(v, s, &all_lanes);
        bool is_barrier = tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE;
        c->holds_up |= s->inst.guard == NULL && (is_barrier || (is_sync && all_lanes));
        if (is_barrier || (callee != NULL && callee->has_barrier))
            c->barrier = s;
        if (is_sync || (callee != NULL && callee->has_warp_sync))
            c->warp_sync = s;
        if ((is_sync && all_lanes) || (callee != NULL && callee->has_warp_sync))
            c->full_warp_sync = s;
    }
}

/* Whether a thread at the start of `block` may return without meeting its warp or block on the
 * way. */
static bool runs_out(const struct view *v, uint32_t block, struct tl_ptx_set *seen, uint32_t *stack)
{
    const struct tl_ptx_cfg *cfg = v->cfg;
    uint32_t depth = 0;
    tl_ptx_set_clear(seen);
    stack[depth++] = block;
    while (depth > 0) {
        uint32_t b = stack[--depth];
        if (b == cfg->n_blocks)
            return true;
        struct contents c = {0};
        look_into(v, b, &c);
        if (c.holds_up)
            continue;
        for (uint32_t e = 0; e < cfg->blocks[b].n_succs; e++) {
            uint32_t to = cfg->blocks[b].succs[e];
            if (to == cfg->n_blocks)
                return true;
            if (!tl_ptx_set_has(seen, to)) {
                tl_ptx_set_add(seen, to);
                stack[depth++] = to;
            }
        }
    }
    return false;
}

/* Whether nothing stands between the start of `block` and the thread's end. */
static bool ends_thread(const struct view *v, uint32_t block)
{
    const struct tl_ptx_stmt *last = tl_ptx_cfg_last(v->cfg, block);
    if (last == NULL)
        return true;
    struct contents c = {0};
    look_into(v, block, &c);
    return (last->inst.form->op == TL_OP_ret || last->inst.form->op == TL_OP_exit) &&
           last->inst.guard == NULL && !c.holds_up;
}

/* What divergence does to one function in a loop over blocks. */
struct hazards {
    const struct tl_ptx_stmt *split_barrier; /* met by some threads and not by others */
    const struct tl_ptx_stmt *torn_barrier;  /* met by some threads of a warp and not by others */
    const struct tl_ptx_stmt *warp_sync;     /* may name lanes that have returned */
};

/* Barriers and warp-wide operations that only a part of a block's or of a warp's threads may come
 * to. */
static int find_hazards(struct tl_ptx_judgement *j, const struct tl_ptx_cfg *cfg, bool rows,
                        struct hazards *h)
{
    struct tl_ptx_divergence d;
    struct tl_ptx_set region, seen;
    struct view v;
    uint32_t *stack = tl_arena_alloc(j->p->arena, ((size_t)cfg->n_blocks + 2) * sizeof *stack);
    *h = (struct hazards){0};
    if (stack == NULL || view_init(&v, j, cfg) < 0 ||
        tl_ptx_set_init(&region, j->p->arena, cfg) < 0 ||
        tl_ptx_set_init(&seen, j->p->arena, cfg) < 0 ||
        tl_ptx_diverge(&d, j->p->arena, cfg, rows) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < cfg->n_order; i++) {
        uint32_t b = cfg->order[i], join = cfg->blocks[b].ipdom;
        for (uint32_t k = cfg->blocks[b].first; k < cfg->blocks[b].end; k++) {
            const struct tl_ptx_stmt *s = cfg->insts[k];
            bool all_lanes;
            bool is_barrier = tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE;
            if (is_barrier && tl_ptx_guard_level(&d, s) > TL_LEVEL_BLOCK)
                h->split_barrier = s;
            if (is_barrier && tl_ptx_guard_level(&d, s) == TL_LEVEL_LANE)
                h->torn_barrier = s;
            if (meets_warp(&v, s, &all_lanes) && all_lanes &&
                tl_ptx_guard_level(&d, s) == TL_LEVEL_LANE)
                h->warp_sync = s;
        }
        if (d.branch[b] == TL_LEVEL_BLOCK)
            continue;
        tl_ptx_set_clear(&region);
        tl_ptx_cfg_region(cfg, b, join, &region, stack);
        struct contents c = {0};
        for (uint32_t r = 0; r < cfg->n_blocks; r++) {
            if (tl_ptx_set_has(&region, r))
                look_into(&v, r, &c);
        }
        if (c.barrier != NULL)
            h->split_barrier = c.barrier;
        if (d.branch[b] != TL_LEVEL_LANE)
            continue;
        if (c.barrier != NULL)
            h->torn_barrier = c.barrier;
        if (c.warp_sync != NULL && ends_thread(&v, join))
            h->warp_sync = c.warp_sync;
        else if (c.full_warp_sync != NULL && runs_out(&v, join, &seen, stack))
            h->warp_sync = c.full_warp_sync;
    }
    return 0;
}

/* Barriers that survive a loop over blocks: complete ones.  See docs/rewriter.md, "Persistent
 * blocks". */
static void judge_barriers(struct tl_ptx_judgement *j, const struct tl_ptx_cfg *cfg,
                           enum tl_ptx_barriers barriers)
{
    const struct tl_ptx_index *ix = j->p->unit.ix;
    bool has_forms = barriers != TL_BARRIERS_BY_THREAD ||
                     (tl_ptx_isa_of(ix) >= 60 && tl_ptx_sm_of(ix) >= 70);
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        struct tl_ptx_barrier b = tl_ptx_barrier_of(s);
        if (b.kind == TL_BARRIER_NONE)
            continue;
        bool is_plain = b.has_id && b.id == 0 && !b.has_count;
        bool fits;
        if (b.kind == TL_BARRIER_ARRIVE || !b.has_id || (b.has_count && b.id == 0))
            fits = false; /* may be left half-met, or meets the loop's own barrier */
        else if (barriers == TL_BARRIERS_PLAIN)
            fits = true;
        else /* attending threads vote on barrier 0; other uncounted ones would wait for them */
            fits = (is_plain && b.kind == TL_BARRIER_SYNC) ||
                   (b.has_count && b.kind == TL_BARRIER_SYNC);
        if (!fits || !has_forms)
            tl_ptx_refuse_inst(j, TL_JUDGE_PERSISTENT, TL_PTX_REASON_BARRIER_FORM, s);
    }
}

/* What one function needs: adds to `barriers` and to the conditions. */
static int judge_function(struct tl_ptx_judgement *j, const struct tl_ptx_cfg *cfg, bool is_entry,
                          enum tl_ptx_barriers *barriers, bool *in_rows_only)
{
    struct hazards h, in_rows;
    if (find_hazards(j, cfg, false, &h) < 0)
        return -ENOMEM;
    /* Returning leads out of the loop's body only in the entry. */
    const struct tl_ptx_stmt *warp_sync = is_entry ? h.warp_sync : NULL;
    if (h.split_barrier != NULL && *barriers == TL_BARRIERS_PLAIN)
        *barriers = TL_BARRIERS_BY_WARP;
    if (warp_sync == NULL && h.torn_barrier == NULL)
        return 0;
    /* Perhaps warps that lie along x stay together? */
    if (find_hazards(j, cfg, true, &in_rows) < 0)
        return -ENOMEM;
    if (warp_sync != NULL && in_rows.warp_sync != NULL)
        tl_ptx_refuse_inst(j, TL_JUDGE_PERSISTENT, TL_PTX_REASON_WARP_SYNC_AFTER_EXIT,
                           in_rows.warp_sync);
    if (warp_sync != NULL)
        j->f->verdicts[TL_PTX_PERSISTENT].conditions |= TL_PTX_IF_WARPS_ARE_ROWS;
    if (in_rows.torn_barrier != NULL)
        *barriers = TL_BARRIERS_BY_THREAD;
    else if (h.torn_barrier != NULL)
        *in_rows_only = true;
    return 0;
}

int tl_ptx_judge_rounds(struct tl_ptx_judgement *j, struct tl_ptx_cfg *cfgs)
{
    uint32_t n = 0;
    enum tl_ptx_barriers barriers = TL_BARRIERS_PLAIN;
    bool in_rows_only = false;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        if (f->func->has_body &&
            judge_function(j, &cfgs[n++], f == j->p->entry, &barriers, &in_rows_only) < 0)
            return -ENOMEM;
    }
    /* Barriers of whole warps are cheaper: ptxas knows that a warp is together behind one. */
    if (barriers == TL_BARRIERS_BY_WARP && in_rows_only)
        j->f->verdicts[TL_PTX_PERSISTENT].conditions |= TL_PTX_IF_WARPS_ARE_ROWS;
    j->f->barriers = barriers;
    for (uint32_t i = 0; i < n; i++)
        judge_barriers(j, &cfgs[i], barriers);
    return 0;
}

/* Whether the lanes of a warp meet at barriers, or may wait at different ones. */
#include "device/jit/emit.h"
#include "device/jit/function.h"

static int is_barrier(void *data, struct tl_ptx_stmt *s)
{
    (void)data;
    return (s->inst.form->op == TL_OP_bar || s->inst.form->op == TL_OP_barrier) &&
           !tl_ptx_form_has(s->inst.form, TL_MOD_warp);
}

static bool has_barrier(struct tl_emit *e, const struct tl_ptx_stmt *s)
{
    struct tl_ptx_call call;
    if ((s->inst.form->op == TL_OP_bar || s->inst.form->op == TL_OP_barrier) &&
        !tl_ptx_form_has(s->inst.form, TL_MOD_warp))
        return true;
    if (s->inst.form->op != TL_OP_call || !tl_ptx_inst_call(s, &call))
        return false;
    const struct tl_ptx_program_func *pf = e->p->funcs;
    if (call.callee->sym->kind == TL_SYM_FUNC) {
        pf = tl_ptx_program_callee(e->p, call.callee->sym);
        return pf != NULL && tl_ptx_each_inst(pf->func->body, is_barrier, NULL) != 0;
    }
    for (; pf != NULL; pf = pf->next) { /* a pointer may lead to any of them */
        if (pf != e->p->entry && pf->func->has_body &&
            tl_ptx_each_inst(pf->func->body, is_barrier, NULL) != 0)
            return true;
    }
    return false;
}

/* A wait for a barrier object.  One that all lanes come to before they part (as the loop around a
 * test does) is not apart. */
static bool waits_for_object(const struct tl_ptx_cfg *cfg, uint32_t inst, uint32_t branch)
{
    const struct tl_ptx_form *f = cfg->insts[inst]->inst.form;
    return f->op == TL_OP_mbarrier &&
           (tl_ptx_form_has(f, TL_MOD_test_wait) || tl_ptx_form_has(f, TL_MOD_try_wait)) &&
           !tl_ptx_cfg_dominates(cfg, cfg->block_of[inst], branch);
}

bool tl_lanes_wait_apart(struct tl_emit *e, struct tl_fn *f)
{
    const struct tl_ptx_cfg *cfg = &f->cfg;
    struct tl_ptx_set region;
    uint32_t *stack = tl_arena_alloc(e->arena, ((size_t)cfg->n_blocks + 2) * sizeof *stack);
    if (stack == NULL || tl_ptx_set_init(&region, e->arena, cfg) < 0)
        return false;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        const struct tl_ptx_block *k = &cfg->blocks[b];
        bool returns = false;
        for (uint32_t i = k->first; i < k->end; i++) {
            if (has_barrier(e, cfg->insts[i]) &&
                tl_ptx_guard_level(&f->d, cfg->insts[i]) == TL_LEVEL_LANE)
                return true;
        }
        for (uint32_t i = 0; i < k->n_succs; i++)
            returns |= tl_only_returns(f, k->succs[i]);
        if (k->order == TL_CFG_NONE || f->d.branch[b] != TL_LEVEL_LANE || returns)
            continue;
        tl_ptx_set_clear(&region);
        tl_ptx_cfg_region(cfg, b, k->ipdom, &region, stack);
        for (uint32_t r = 0; r < cfg->n_blocks; r++) {
            for (uint32_t i = cfg->blocks[r].first;
                 tl_ptx_set_has(&region, r) && i < cfg->blocks[r].end; i++) {
                if (has_barrier(e, cfg->insts[i]) || waits_for_object(cfg, i, b))
                    return true;
            }
        }
    }
    return false;
}

static int is_warp_wide(void *data, struct tl_ptx_stmt *s)
{
    (void)data;
    switch (s->inst.form->op) {
    case TL_OP_bar:
    case TL_OP_barrier:
        return tl_ptx_form_has(s->inst.form, TL_MOD_warp);
    case TL_OP_shfl:
    case TL_OP_vote:
    case TL_OP_match:
    case TL_OP_redux:
    case TL_OP_elect:
    case TL_OP_mma:
    case TL_OP_wmma:
    case TL_OP_ldmatrix:
    case TL_OP_stmatrix:
    case TL_OP_movmatrix:
        return 1;
    default:
        return 0;
    }
}

bool tl_has_warp_wide(const struct tl_emit *e)
{
    for (const struct tl_ptx_program_func *f = e->p->funcs; f != NULL; f = f->next) {
        if (f->func->has_body && tl_ptx_each_inst(f->func->body, is_warp_wide, NULL) != 0)
            return true;
    }
    return false;
}

/* What functions do, summed up for their callers: who polls memory, who meets barriers, who calls
 * in circles. */
#include "ptx_rewrite/judge.h"

#include <errno.h>

#include "ptx_rewrite/waits.h"

struct sum_visit {
    struct tl_ptx_judgement *j;
    struct tl_ptx_summary *one;
};

struct tl_ptx_summary *tl_ptx_callee_summary(struct tl_ptx_judgement *j,
                                             const struct tl_ptx_stmt *s)
{
    struct tl_ptx_call call;
    if (s->inst.form->op != TL_OP_call || !tl_ptx_inst_call(s, &call))
        return NULL;
    const struct tl_ptx_program_func *callee = tl_ptx_program_callee(j->p, call.callee->sym);
    return callee != NULL ? callee->summary : NULL;
}

static int sum_inst(void *data, struct tl_ptx_stmt *s)
{
    struct sum_visit *v = data;
    bool all_lanes;
    v->one->has_barrier |= tl_ptx_barrier_of(s).kind != TL_BARRIER_NONE;
    v->one->has_warp_sync |= tl_ptx_is_warp_sync(s, &all_lanes) || tl_ptx_barrier_of(s).has_count;
    const struct tl_ptx_summary *callee = tl_ptx_callee_summary(v->j, s);
    if (callee != NULL) {
        v->one->polls |= callee->polls;
        v->one->exits |= callee->exits;
        v->one->has_barrier |= callee->has_barrier;
        v->one->has_warp_sync |= callee->has_warp_sync;
    }
    return 0;
}

/* What a function does itself. */
static void sum_own(const struct tl_ptx_roots *r, struct tl_ptx_summary *s)
{
    for (uint32_t c = 0; c < r->n_cfgs; c++) {
        const struct tl_ptx_cfg *cfg = &r->cfgs[c];
        for (uint32_t i = 0; cfg->func == s->func->func && i < cfg->n_insts; i++) {
            s->polls |= tl_ptx_sees_others(r, cfg, cfg->insts[i]);
            /* compilers put one behind each trap */
            s->exits |= cfg->insts[i]->inst.form->op == TL_OP_exit &&
                        cfg->blocks[cfg->block_of[i]].order != TL_CFG_NONE;
        }
    }
}

int tl_ptx_sum_up(struct tl_ptx_judgement *j, const struct tl_ptx_roots *roots,
                  struct tl_ptx_summary **out)
{
    struct tl_ptx_summary *all = NULL;
    for (struct tl_ptx_program_func *f = j->p->funcs; f != NULL; f = f->next) {
        struct tl_ptx_summary *s = tl_arena_zalloc(j->p->arena, sizeof *s);
        if (s == NULL)
            return -ENOMEM;
        s->func = f;
        f->summary = s;
        sum_own(roots, s);
        s->next = all;
        all = s;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (struct tl_ptx_summary *s = all; s != NULL; s = s->next) {
            struct tl_ptx_summary before = *s;
            tl_ptx_each_inst(s->func->func->body, sum_inst, &(struct sum_visit){j, s});
            changed |= before.polls != s->polls || before.exits != s->exits ||
                       before.has_barrier != s->has_barrier ||
                       before.has_warp_sync != s->has_warp_sync;
        }
    }
    *out = all;
    return 0;
}

static int note_circle_call(void *data, struct tl_ptx_stmt *s)
{
    struct sum_visit *v = data;
    struct tl_ptx_summary *callee = tl_ptx_callee_summary(v->j, s);
    if (callee != NULL && callee->in_circle) {
        callee->is_called = true;
        v->one->calls = true;
    }
    return 0;
}

/* Leaves off what nobody calls and what calls nobody until nothing changes: what stays lies in a
 * circle or between two. */
void tl_ptx_judge_circles(struct tl_ptx_judgement *j, struct tl_ptx_summary *all)
{
    bool any_polls = false;
    for (struct tl_ptx_summary *s = all; s != NULL; s = s->next) {
        s->in_circle = true;
        any_polls |= s->polls;
    }
    for (bool changed = any_polls; changed;) {
        changed = false;
        for (struct tl_ptx_summary *s = all; s != NULL; s = s->next)
            s->is_called = s->calls = false;
        for (struct tl_ptx_summary *s = all; s != NULL; s = s->next) {
            if (s->in_circle)
                tl_ptx_each_inst(s->func->func->body, note_circle_call, &(struct sum_visit){j, s});
        }
        for (struct tl_ptx_summary *s = all; s != NULL; s = s->next) {
            bool stays = s->in_circle && s->is_called && s->calls;
            changed |= stays != s->in_circle;
            s->in_circle = stays;
        }
    }
    for (struct tl_ptx_summary *s = all; any_polls && s != NULL; s = s->next) {
        if (s->in_circle && s->polls)
            tl_ptx_refuse(j, TL_JUDGE_ALL, TL_PTX_REASON_BLOCK_WAIT, s->func->func->item->begin,
                          s->func->func->name);
    }
}

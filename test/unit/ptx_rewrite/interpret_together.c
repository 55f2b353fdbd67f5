/* Barriers, votes and shuffles.  See interpret.h. */
#include "test/unit/ptx_rewrite/interpret_internal.h"

/* Any form of bar and barrier of a block, and bar.warp.sync. */
void ptx_come_to_barrier(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    bool is_red = tl_ptx_form_has(f, TL_MOD_red);
    uint32_t at = is_red ? 1 : 0, n = s->n_operands - at - is_red;
    uint64_t id = s->n_operands > at ? ptx_value(t, &o[at]) : BARRIERS;
    struct block *b = t->block;
    if (tl_ptx_form_has(f, TL_MOD_warp)) {
        t->status = IN_WARP;
        t->mask = (uint32_t)ptx_value(t, &o[0]);
        t->asked = s;
        ptx_settle_warp(t);
        return;
    }
    if (id >= BARRIERS || tl_ptx_form_has(f, TL_MOD_popc) || tl_ptx_form_has(f, TL_MOD_cluster)) {
        ptx_fail(t, PTX_UNKNOWN, "barrier");
        return;
    }
    if (b->barriers[id].arrived == 0) {
        b->barriers[id].all = true;
        b->barriers[id].any = false;
    }
    b->barriers[id].expected = n > 1 ? (uint32_t)ptx_value(t, &o[at + 1]) : 0;
    b->barriers[id].arrived++;
    if (is_red) {
        bool vote = ptx_value(t, &o[s->n_operands - 1]) != 0;
        b->barriers[id].all &= vote;
        b->barriers[id].any |= vote;
    }
    if (!tl_ptx_form_has(f, TL_MOD_arrive)) {
        t->status = AT_BARRIER;
        t->barrier = (uint32_t)id;
        t->asked = is_red ? s : NULL;
    }
    ptx_settle_barrier(b, (uint32_t)id);
}

void ptx_settle_barrier(struct block *b, uint32_t id)
{
    uint32_t expected = b->barriers[id].expected != 0 ? b->barriers[id].expected : b->n_live;
    if (b->barriers[id].arrived == 0 || b->barriers[id].arrived < expected)
        return;
    for (uint32_t i = 0; i < b->n_threads; i++) {
        struct thread *t = &b->threads[i];
        if (t->status != AT_BARRIER || t->barrier != id)
            continue;
        t->status = RUNS;
        if (t->asked != NULL)
            ptx_give(t, &t->asked->inst.operands[0],
                     tl_ptx_form_has(t->asked->inst.form, TL_MOD_and) ? b->barriers[id].all
                                                                      : b->barriers[id].any);
    }
    b->barriers[id].arrived = 0;
}

void ptx_come_to_warp(struct thread *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_operand *mask = &s->inst.operands[s->n_operands - 1];
    if (!tl_ptx_form_has(s->inst.form, TL_MOD_sync)) {
        ptx_fail(t, PTX_UNKNOWN, "warp-wide operation without a mask");
        return;
    }
    t->mask = (uint32_t)ptx_value(t, mask);
    if (!(t->mask >> t->number % WARP & 1)) {
        ptx_fail(t, PTX_FAULT, "a lane that its own mask does not name");
        return;
    }
    t->status = IN_WARP;
    t->asked = s;
    ptx_settle_warp(t);
}

/* What one lane gets from a shuffle. */
static uint64_t shuffled(struct thread *t, const uint64_t values[WARP], uint32_t there)
{
    const struct tl_ptx_stmt *s = t->asked;
    const struct tl_ptx_form *f = s->inst.form;
    uint32_t lane = t->number % WARP, by = (uint32_t)ptx_value(t, &s->inst.operands[2]), from;
    uint32_t c = (uint32_t)ptx_value(t, &s->inst.operands[3]), clamp = c & 31,
             segment = c >> 8 & 31;
    uint32_t low = lane & segment, high = low | (clamp & ~segment & 31);
    if (tl_ptx_form_has(f, TL_MOD_up))
        from = lane >= by + high ? lane - by : lane;
    else if (tl_ptx_form_has(f, TL_MOD_down))
        from = lane + by <= high ? lane + by : lane;
    else if (tl_ptx_form_has(f, TL_MOD_bfly))
        from = (lane ^ by) <= high ? lane ^ by : lane;
    else
        from = (low | (by & ~segment & 31)) <= high ? low | (by & ~segment & 31) : lane;
    return values[there >> from & 1 ? from : lane];
}

void ptx_settle_warp(struct thread *t)
{
    struct block *b = t->block;
    uint32_t warp = t->number / WARP * WARP, live = 0, there = 0, ballot = 0;
    uint64_t values[WARP] = {0}, results[WARP] = {0};
    for (uint32_t i = 0; i < WARP && warp + i < b->n_threads; i++) {
        struct thread *o = &b->threads[warp + i];
        live |= o->status != GONE ? 1u << i : 0;
        if (o->status == IN_WARP && o->asked == t->asked && o->mask == t->mask)
            there |= 1u << i;
    }
    if ((live & t->mask & ~there) != 0)
        return;
    enum tl_ptx_op op = t->asked->inst.form->op;
    bool gives = op == TL_OP_shfl || op == TL_OP_vote;
    for (uint32_t i = 0; gives && i < WARP; i++) {
        if (there >> i & 1)
            values[i] = ptx_value(&b->threads[warp + i], &t->asked->inst.operands[1]);
        ballot |= values[i] != 0 ? 1u << i : 0;
    }
    for (uint32_t i = 0; i < WARP; i++) {
        const struct tl_ptx_form *f = t->asked->inst.form;
        if (!(there >> i & 1))
            continue;
        if (op == TL_OP_shfl)
            results[i] = shuffled(&b->threads[warp + i], values, there);
        else
            results[i] = tl_ptx_form_has(f, TL_MOD_ballot) ? ballot
                         : tl_ptx_form_has(f, TL_MOD_all)  ? ballot == there
                         : tl_ptx_form_has(f, TL_MOD_any)  ? ballot != 0
                                                           : ballot == 0 || ballot == there;
    }
    const struct tl_ptx_stmt *asked = t->asked;
    for (uint32_t i = 0; i < WARP; i++) {
        if (!(there >> i & 1))
            continue;
        b->threads[warp + i].status = RUNS;
        if (gives)
            ptx_give(&b->threads[warp + i], &asked->inst.operands[0], results[i]);
    }
}

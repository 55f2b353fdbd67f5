/* Lanes that a warp-wide operation names and that are elsewhere.
 *
 * Lock-step code cannot wait for them.  It need not where they will never come, and a GPU does not
 * wait for them either:
 *
 *   - they are on their way to return, and nothing that lanes meet at lies on it;
 *   - they have left the loop that the operation is in and wait behind it for those that have not.
 *
 * All others would be waited for: such as those on the other side of a branch, before an operation
 * that may be meant to be the same one.  That ends the launch with a fault. */
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

enum { MAX_WORDS = 64 };

/* What is known of a block's operations when compiling. */
struct tl_absent {
    bool all, none;  /* of those that are elsewhere will come */
    bool are_coming; /* lanes that want to run blocks[] will; else all but these */
    uint32_t blocks[MAX_WORDS], n;
};

/* Whether lanes wait for each other at an instruction, or may do so in a function that it calls. */
static bool is_meeting(const struct tl_ptx_stmt *s)
{
    switch (s->inst.form->op) {
    case TL_OP_bar:
    case TL_OP_barrier:
    case TL_OP_call:
    case TL_OP_mma:
    case TL_OP_wmma:
        return true;
    default:
        return tl_ptx_form_has(s->inst.form, TL_MOD_sync) ||
               tl_ptx_form_has(s->inst.form, TL_MOD_aligned);
    }
}

/* Per block: whether lanes that go there may meet others before they return. */
static bool *find_meetings(struct tl_emit *e, const struct tl_ptx_cfg *cfg)
{
    bool *meets = tl_arena_zalloc(e->arena, (size_t)cfg->n_blocks + 1);
    bool changed = meets != NULL;
    for (uint32_t i = 0; meets != NULL && i < cfg->n_insts; i++)
        meets[cfg->block_of[i]] |= is_meeting(cfg->insts[i]);
    while (changed) {
        changed = false;
        for (uint32_t o = cfg->n_order; o-- > 0;) {
            const struct tl_ptx_block *k = &cfg->blocks[cfg->order[o]];
            for (uint32_t s = 0; s < k->n_succs && !meets[cfg->order[o]]; s++) {
                if (meets[k->succs[s]])
                    changed = meets[cfg->order[o]] = true;
            }
        }
    }
    return meets;
}

static bool is_among(const uint32_t *blocks, uint32_t n, uint32_t block)
{
    uint32_t i = 0;
    while (i < n && blocks[i] != block)
        i++;
    return i < n;
}

/* The blocks from which one can get to `block`. */
static bool find_ways_to(const struct tl_emit *e, uint32_t block, struct tl_ptx_set *ways,
                         uint32_t *stack)
{
    const struct tl_ptx_cfg *cfg = &e->f->cfg;
    uint32_t n = 0;
    if (tl_ptx_set_init(ways, e->arena, cfg) < 0)
        return false;
    stack[n++] = block;
    while (n > 0) {
        const struct tl_ptx_block *k = &cfg->blocks[stack[--n]];
        for (uint32_t p = 0; p < k->n_preds; p++) {
            if (!tl_ptx_set_has(ways, k->preds[p])) {
                tl_ptx_set_add(ways, k->preds[p]);
                stack[n++] = k->preds[p];
            }
        }
    }
    return true;
}

/* Whether lanes that wait to run a block (or where all meet again) will not come to the operation
 * before others have gone on. */
static bool stays_away(const struct tl_emit *e, uint32_t block, const struct tl_ptx_set *behind)
{
    const struct tl_fn *f = e->f;
    if (block == f->cfg.n_blocks || (!f->meets[block] && f->pf == e->p->entry))
        return true;
    return f->n_loop > 0 && !is_among(f->loop, f->n_loop, block) && tl_ptx_set_has(behind, block);
}

static bool look_around(struct tl_emit *e, struct tl_absent *a)
{
    struct tl_fn *f = e->f;
    struct tl_ptx_set to, behind;
    uint32_t *stack = tl_arena_alloc(e->arena, ((size_t)f->cfg.n_blocks + 2) * sizeof *stack);
    uint32_t n_away = 0, n_coming = 0, here = e->inst_block;
    if (f->meets == NULL)
        f->meets = find_meetings(e, &f->cfg);
    if (stack == NULL || f->meets == NULL || tl_ptx_set_init(&behind, e->arena, &f->cfg) < 0 ||
        !find_ways_to(e, here, &to, stack))
        return false;
    tl_ptx_cfg_region(&f->cfg, here, TL_CFG_NONE, &behind, stack);
    a->are_coming = stays_away(e, f->join, &behind);
    for (uint32_t i = 0; i < f->n_line; i++) {
        uint32_t b = f->line[i];
        /* Blocks on the way here that cannot be come to again have been run. */
        if (b == here || f->mask_slot[b] == NULL ||
            (tl_ptx_set_has(&to, b) && !tl_ptx_set_has(&behind, b)))
            continue;
        bool is_away = stays_away(e, b, &behind);
        n_away += is_away;
        n_coming += !is_away;
        if (is_away != a->are_coming && a->n < MAX_WORDS)
            a->blocks[a->n++] = b;
    }
    bool is_full = a->n == MAX_WORDS;
    a->all = (!a->are_coming && n_away == 0) || is_full;
    a->none = a->are_coming && n_coming == 0;
    return true;
}

static LLVMValueRef lanes_of(struct tl_emit *e, const struct tl_absent *a)
{
    LLVMValueRef lanes = LLVMConstInt(e->i32, 0, false);
    for (uint32_t i = 0; i < a->n; i++)
        lanes = LLVMBuildOr(e->b, lanes,
                            LLVMBuildLoad2(e->b, e->i32, e->f->mask_slot[a->blocks[i]], ""), "");
    return lanes;
}

/* The lanes of `missing` that would have to be waited for. */
static LLVMValueRef find_awaited(struct tl_emit *e, LLVMValueRef missing)
{
    struct tl_fn *f = e->f;
    if (e->must_blend || f->absent == NULL) /* some are here, only that their guard says no */
        return missing;
    struct tl_absent **a = &f->absent[e->inst_block];
    if (*a == NULL) {
        *a = tl_arena_zalloc(e->arena, sizeof **a);
        if (*a == NULL || !look_around(e, *a))
            return missing;
    }
    if ((*a)->none || (*a)->all)
        return (*a)->all ? missing : LLVMConstInt(e->i32, 0, false);
    LLVMValueRef lanes = lanes_of(e, *a);
    return LLVMBuildAnd(e->b, missing, (*a)->are_coming ? lanes : LLVMBuildNot(e->b, lanes, ""),
                        "");
}

void tl_expect_lanes(struct tl_emit *e, LLVMValueRef named)
{
    if (e->mask == NULL || e->mask == e->f->entry_mask)
        return; /* they are together */
    LLVMValueRef exited = LLVMBuildLoad2(e->b, e->i32, e->f->exited_slot, "");
    LLVMValueRef here = LLVMBuildOr(e->b, tl_active_bits(e), exited, "");
    LLVMValueRef awaited = find_awaited(
        e, LLVMBuildAnd(e->b, named, LLVMBuildNot(e->b, here, ""), ""));
    if (LLVMIsConstant(awaited) && LLVMIsNull(awaited))
        return;
    tl_fault_if(e, LLVMBuildICmp(e->b, LLVMIntNE, awaited, LLVMConstInt(e->i32, 0, false), ""),
                TL_DEV_FAULT_DIVERGED_SYNC);
}

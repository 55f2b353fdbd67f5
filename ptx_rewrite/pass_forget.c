/* Registers do not outlive a round of the persistent loop.
 *
 * A compiler leaves a register undefined on ways where its value does not matter: written under a
 * condition, read under the same one.  In straight-line code that costs nothing.  Inside our loop,
 * ptxas must assume that the value of the round before is wanted, and keeps such registers alive
 * all the way round: CUB's radix sort grew from 166 registers to 255, and spilled.  So they get a
 * value again in each round, any value; and as late as possible, for a register set at the start of
 * the round would be alive from there on.
 *
 * A register is "untouched" at a place if no instruction on any way there mentions it.  Where the
 * untouched part of the function ends and the register might still be read, it is set to zero:
 * before the first instruction that mentions it, or, where ways meet and only one of them has
 * mentioned it, at the end of the other one.
 *
 * Requires a body as parsed: no pass has changed it yet. */
#include <errno.h>

#include "ptx_rewrite/cfg.h"
#include "ptx_rewrite/rewrite.h"

struct forgetting {
    struct tl_rewriter *rw;
    struct tl_ptx_cfg cfg;
    /* 64 registers each: all of the function's, then only the doubtful ones */
    uint32_t words;
    uint64_t *reads, *kills; /* per block: read before written; written for certain */
    uint64_t *live;          /* per block: may be read, from its start, before it is written */
    uint32_t *number;        /* per register: its number among the doubtful ones, or TL_CFG_NONE */
    struct tl_ptx_sym **doubtful;
    uint32_t n_doubtful;
    uint64_t *mentions;    /* per block, of doubtful registers */
    uint64_t *untouched;   /* per block, at its start */
    struct tl_buf *before; /* per instruction: what to put before it */
};

static uint64_t *row(const struct forgetting *g, uint64_t *sets, uint32_t block)
{
    return sets + (size_t)block * g->words;
}

static bool has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

static void add(uint64_t *set, uint32_t i)
{
    set[i / 64] |= 1ull << (i % 64);
}

static uint64_t *new_sets(struct forgetting *g)
{
    return tl_arena_zalloc(g->rw->arena, (size_t)g->cfg.n_blocks * g->words * sizeof(uint64_t));
}

static bool is_reachable(const struct forgetting *g, uint32_t block)
{
    return block < g->cfg.n_blocks && g->cfg.blocks[block].order != TL_CFG_NONE;
}

/* --- which registers may be read before they are written -------------------------------------- */

struct scan {
    uint64_t *reads, *kills;
    bool is_guarded;
};

static void see_read(void *data, struct tl_ptx_sym *reg)
{
    struct scan *s = data;
    if (!has(s->kills, reg->id))
        add(s->reads, reg->id);
}

static void see_write(void *data, struct tl_ptx_sym *reg)
{
    struct scan *s = data;
    if (s->is_guarded) /* keeps the old value where the guard is false */
        see_read(s, reg);
    else
        add(s->kills, reg->id);
}

static void scan_blocks(struct forgetting *g)
{
    for (uint32_t b = 0; b < g->cfg.n_blocks; b++) {
        struct scan s = {.reads = row(g, g->reads, b), .kills = row(g, g->kills, b)};
        for (uint32_t i = g->cfg.blocks[b].first; i < g->cfg.blocks[b].end; i++) {
            s.is_guarded = g->cfg.insts[i]->inst.guard != NULL;
            tl_ptx_inst_reads(g->cfg.insts[i], see_read, &s);
            tl_ptx_inst_writes(g->cfg.insts[i], see_write, &s);
        }
    }
}

static bool update_live(struct forgetting *g, uint32_t block)
{
    const struct tl_ptx_block *b = &g->cfg.blocks[block];
    uint64_t *live = row(g, g->live, block), *reads = row(g, g->reads, block),
             *kills = row(g, g->kills, block);
    bool changed = false;
    for (uint32_t w = 0; w < g->words; w++) {
        uint64_t after = 0;
        for (uint32_t i = 0; i < b->n_succs; i++)
            if (is_reachable(g, b->succs[i]))
                after |= row(g, g->live, b->succs[i])[w];
        uint64_t now = reads[w] | (after & ~kills[w]);
        changed |= now != live[w];
        live[w] = now;
    }
    return changed;
}

static void find_live(struct forgetting *g)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = g->cfg.n_order; i-- > 0;)
            changed |= update_live(g, g->cfg.order[i]);
    }
}

/* --- which of them we can set ----------------------------------------------------------------- */

/* Registers of an inner scope are left to pass_scopes.c: text that is put elsewhere could not name
 * them. */
static bool is_of_outer_scope(const struct tl_ptx_func *f, const struct tl_ptx_sym *reg)
{
    for (const struct tl_ptx_stmt *s = f->body; s != NULL; s = s->next)
        for (const struct tl_ptx_decl *d = s->kind == TL_STMT_DECL ? s->decl : NULL; d != NULL;
             d = d->next)
            if (d == reg->decl)
                return true;
    return false;
}

const char *tl_rw_setter(const struct tl_ptx_decl *d)
{
    if (d->vec > 1)
        return NULL;
    if (tl_str_is(d->type, "pred"))
        return "mov.pred";
    switch (tl_ptx_type_bytes(d->type)) {
    case 2:
        return "mov.b16";
    case 4:
        return "mov.b32";
    case 8:
        return "mov.b64";
    default:
        return NULL;
    }
}

static void see_doubtful(void *data, struct tl_ptx_sym *reg)
{
    struct forgetting *g = data;
    if (g->number[reg->id] != TL_CFG_NONE || !has(row(g, g->live, 0), reg->id) ||
        reg->decl == NULL || tl_rw_setter(reg->decl) == NULL ||
        !is_of_outer_scope(g->rw->func, reg))
        return;
    g->number[reg->id] = g->n_doubtful;
    g->doubtful[g->n_doubtful++] = reg;
}

static bool find_doubtful(struct forgetting *g)
{
    uint32_t n_regs = g->rw->func->n_regs;
    g->number = tl_arena_alloc(g->rw->arena, n_regs * sizeof *g->number);
    g->doubtful = tl_arena_alloc(g->rw->arena, n_regs * sizeof *g->doubtful);
    if (g->number == NULL || g->doubtful == NULL)
        return false;
    for (uint32_t i = 0; i < n_regs; i++)
        g->number[i] = TL_CFG_NONE;
    for (uint32_t i = 0; i < g->cfg.n_insts; i++)
        tl_ptx_inst_reads(g->cfg.insts[i], see_doubtful, g);
    return true;
}

/* --- where they are untouched ----------------------------------------------------------------- */

struct mention {
    const struct forgetting *g;
    uint64_t *set;
};

static void see_mention(void *data, struct tl_ptx_sym *reg)
{
    struct mention *m = data;
    if (m->g->number[reg->id] != TL_CFG_NONE)
        add(m->set, m->g->number[reg->id]);
}

static int see_mention_operand(void *data, struct tl_ptx_operand *o)
{
    if (o->sym->kind == TL_SYM_REG)
        see_mention(data, o->sym);
    return 0;
}

static void add_mentions(const struct forgetting *g, struct tl_ptx_stmt *s, uint64_t *set)
{
    struct mention m = {g, set};
    if (s->inst.guard != NULL)
        see_mention(&m, s->inst.guard);
    tl_ptx_each_sym(s->inst.operands, s->n_operands, see_mention_operand, &m);
}

static bool update_untouched(struct forgetting *g, uint32_t block)
{
    const struct tl_ptx_block *b = &g->cfg.blocks[block];
    uint64_t *untouched = row(g, g->untouched, block);
    bool changed = false;
    for (uint32_t w = 0; w < g->words; w++) {
        uint64_t now = untouched[w];
        for (uint32_t i = 0; i < b->n_preds; i++)
            if (is_reachable(g, b->preds[i]))
                now &= row(g, g->untouched, b->preds[i])[w] & ~row(g, g->mentions, b->preds[i])[w];
        changed |= now != untouched[w];
        untouched[w] = now;
    }
    return changed;
}

static void find_untouched(struct forgetting *g)
{
    for (uint32_t b = 0; b < g->cfg.n_blocks; b++)
        for (uint32_t i = g->cfg.blocks[b].first; i < g->cfg.blocks[b].end; i++)
            add_mentions(g, g->cfg.insts[i], row(g, g->mentions, b));
    for (size_t i = 0; i < (size_t)g->cfg.n_blocks * g->words; i++)
        g->untouched[i] = ~0ull;
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < g->cfg.n_order; i++)
            changed |= update_untouched(g, g->cfg.order[i]);
    }
}

/* --- setting them ----------------------------------------------------------------------------- */

static void set_before(struct forgetting *g, uint32_t inst, const struct tl_ptx_sym *reg)
{
    if (reg->decl->at > g->cfg.insts[inst]->at)
        return; /* declared further down */
    tl_buf_printf(&g->before[inst], "\t%s " TL_STR_FMT ", 0;\n", tl_rw_setter(reg->decl),
                  TL_STR_ARG(reg->name));
}

static uint32_t first_mention(const struct forgetting *g, uint32_t block, uint32_t number,
                              uint64_t *scratch)
{
    uint32_t i = g->cfg.blocks[block].first;
    for (;; i++) {
        scratch[number / 64] = 0;
        add_mentions(g, g->cfg.insts[i], scratch);
        if (has(scratch, number))
            return i;
    }
}

/* Whether a way from this block, which has not touched the register, leads to where others have,
 * and it is read. */
static bool meets_others(struct forgetting *g, const struct tl_ptx_block *b, const uint64_t *live,
                         uint32_t live_words, uint32_t number)
{
    for (uint32_t i = 0; i < b->n_succs; i++) {
        uint32_t s = b->succs[i];
        if (is_reachable(g, s) && !has(row(g, g->untouched, s), number) &&
            has(live + (size_t)s * live_words, g->doubtful[number]->id))
            return true;
    }
    return false;
}

static void set_in_block(struct forgetting *g, uint32_t block, const uint64_t *live,
                         uint32_t live_words, uint64_t *scratch)
{
    const struct tl_ptx_block *b = &g->cfg.blocks[block];
    const uint64_t *untouched = row(g, g->untouched, block), *mentions = row(g, g->mentions, block);
    for (uint32_t n = 0; n < g->n_doubtful; n++) {
        if (!has(untouched, n) || b->first == b->end)
            continue;
        if (!has(mentions, n)) {
            if (meets_others(g, b, live, live_words, n))
                set_before(g, b->end - 1, g->doubtful[n]);
        } else if (has(live + (size_t)block * live_words, g->doubtful[n]->id)) {
            set_before(g, first_mention(g, block, n, scratch), g->doubtful[n]);
        }
    }
}

/* --- into the tree ---------------------------------------------------------------------------- */

/* Moves to `out` what stands before the instructions of these statements; returns the number of the
 * next instruction. */
static uint32_t gather(struct forgetting *g, const struct tl_ptx_stmt *s, bool is_list,
                       uint32_t inst, struct tl_buf *out)
{
    for (; s != NULL; s = is_list ? s->next : NULL) {
        if (s->kind == TL_STMT_BLOCK) {
            inst = gather(g, s->block, true, inst, out);
        } else if (s->kind == TL_STMT_INST) {
            if (g->before[inst].n > 0)
                tl_buf_add(out, g->before[inst].p, g->before[inst].n);
            if (g->before[inst].failed)
                g->rw->failed = true;
            tl_buf_finish(&g->before[inst++]);
        }
    }
    return inst;
}

/* Text for an instruction in an inner scope goes before the whole scope, where no inner name hides
 * the one it means: a scope can only be entered at its top, so what is untouched inside was so
 * before. */
static void put_into_tree(struct forgetting *g)
{
    struct tl_ptx_stmt **link = &g->rw->func->body, **insert_at = link;
    uint32_t inst = 0;
    while (*link != NULL) {
        struct tl_ptx_stmt *s = *link;
        struct tl_buf text = {0};
        inst = gather(g, s, false, inst, &text);
        struct tl_ptx_stmt *added = text.n > 0 ? tl_rw_text_stmt(g->rw, &text) : NULL;
        if (added != NULL) {
            added->next = *insert_at;
            *insert_at = added;
        }
        tl_buf_finish(&text);
        link = &s->next;
        if (!tl_rw_is_pragma(s))
            insert_at = link;
    }
}

/* Whether something in the function might touch registers without our seeing it. */
static bool is_opaque(const struct tl_ptx_cfg *cfg)
{
    for (uint32_t i = 0; i < cfg->n_insts; i++)
        if (cfg->insts[i]->inst.raw.n > 0 || cfg->insts[i]->inst.form->op == TL_OP_unknown)
            return true;
    return cfg->unknown_branch != NULL;
}

static int forget(struct forgetting *g)
{
    struct tl_arena *arena = g->rw->arena;
    g->words = (g->rw->func->n_regs + 63) / 64;
    g->reads = new_sets(g);
    g->kills = new_sets(g);
    g->live = new_sets(g);
    if (g->reads == NULL || g->kills == NULL || g->live == NULL)
        return -ENOMEM;
    scan_blocks(g);
    find_live(g);
    if (!find_doubtful(g))
        return -ENOMEM;
    if (g->n_doubtful == 0)
        return 0;
    const uint64_t *live = g->live;
    uint32_t live_words = g->words;
    g->words = (g->n_doubtful + 63) / 64;
    g->mentions = new_sets(g);
    g->untouched = new_sets(g);
    g->before = tl_arena_zalloc(arena, g->cfg.n_insts * sizeof *g->before);
    uint64_t *scratch = tl_arena_zalloc(arena, g->words * sizeof *scratch);
    if (g->mentions == NULL || g->untouched == NULL || g->before == NULL || scratch == NULL)
        return -ENOMEM;
    find_untouched(g);
    for (uint32_t i = 0; i < g->cfg.n_order; i++)
        set_in_block(g, g->cfg.order[i], live, live_words, scratch);
    put_into_tree(g);
    return 0;
}

void tl_rw_forget(struct tl_rewriter *rw)
{
    struct forgetting g = {.rw = rw};
    if (rw->variant != TL_PTX_PERSISTENT || !rw->in_entry || rw->func->n_regs == 0)
        return;
    if (tl_ptx_cfg_build(&g.cfg, rw->arena, rw->func) < 0) {
        rw->failed = true;
        return;
    }
    if (g.cfg.n_blocks > 0 && !is_opaque(&g.cfg) && forget(&g) < 0)
        rw->failed = true;
}

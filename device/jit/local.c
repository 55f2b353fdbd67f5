/* Registers that need no memory.
 *
 * Registers live in memory of the function that is being made, and LLVM's first pass turns that
 * into values.  Most registers of a compiler's PTX are written once and read further down in the
 * same block: those are kept as values from the start, which is a third less for LLVM to read. */
#include <errno.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "ptx_rewrite/verdict.h"

struct scan {
    struct tl_fn *f;
    uint32_t *home;  /* per register: the stretch in which it was written, 0 if not yet */
    bool *is_wanted; /* per register: is read where it has not been written */
    uint32_t inst, stretch;
};

static void note_read_of(struct scan *s, uint32_t id)
{
    s->is_wanted[id] |= s->home[id] != s->stretch;
}

static void note_read(void *data, struct tl_ptx_sym *reg)
{
    struct scan *s = data;
    /* which is what a branch at the end of a block looks at, also if there is a shadow */
    note_read_of(s, reg->id);
    uint32_t shadow = tl_reg_read(s->f, s->inst, reg->id);
    if (shadow != reg->id)
        note_read_of(s, shadow);
}

static void note_write(void *data, struct tl_ptx_sym *reg)
{
    struct scan *s = data;
    s->home[reg->id] = s->stretch;
    if (s->f->shadow_write[s->inst] != TL_CFG_NONE)
        s->home[s->f->shadow_write[s->inst]] = s->stretch;
    s->is_wanted[reg->id] |= s->f->cfg.insts[s->inst]->inst.guard != NULL;
}

bool tl_begins_piece(const struct tl_emit *e, const struct tl_fn *f, uint32_t inst)
{
    enum { PIECE = 16 }; /* instructions */
    uint32_t first = f->cfg.blocks[f->cfg.block_of[inst]].first;
    return e->options->is_least && inst != first && (inst - first) % PIECE == 0;
}

/* A stretch is a block, or a part of one between barriers, where fission may cut it, or between
 * other cuts. */
int tl_find_local(struct tl_emit *e, struct tl_fn *f)
{
    const struct tl_ptx_cfg *cfg = &f->cfg;
    struct scan s = {.f = f};
    s.home = tl_arena_zalloc(e->arena, ((size_t)f->n_regs + 1) * sizeof *s.home);
    s.is_wanted = tl_arena_zalloc(e->arena, (size_t)f->n_regs + 1);
    if (s.home == NULL || s.is_wanted == NULL)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    for (s.inst = 0; s.inst < cfg->n_insts; s.inst++) {
        const struct tl_ptx_stmt *stmt = cfg->insts[s.inst];
        s.stretch += s.inst == cfg->blocks[cfg->block_of[s.inst]].first ||
                     tl_ptx_barrier_of(stmt).kind != TL_BARRIER_NONE ||
                     tl_begins_piece(e, f, s.inst);
        tl_ptx_inst_reads(stmt, note_read, &s);
        tl_ptx_inst_writes(stmt, note_write, &s);
    }
    for (uint32_t i = 0; i < f->n_regs; i++) {
        struct tl_reg *r = &f->regs[i];
        r->is_local = !e->options->is_quick && r->n_defs == 1 && !s.is_wanted[i] && !r->is_opaque;
    }
    return 0;
}

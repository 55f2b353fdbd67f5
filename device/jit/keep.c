/* Which registers must keep the values of lanes that take no part in a write. */
#include <errno.h>
#include <string.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"

/* A register that is written once, and read only where that write has just happened to the same
 * lanes, can be overwritten whole.  Otherwise lanes that do not take part in a write must keep
 * their value: of several writes each lane sees its own, and lanes that have left a loop still need
 * what they carried out of it. */
struct keep_scan {
    struct tl_fn *f;
    uint32_t *def_block; /* per register */
    uint32_t *def_inst;
    uint32_t *loop_of;        /* per block: head of the innermost loop, TL_CFG_NONE if none */
    struct tl_ptx_set *loops; /* per head */
    uint32_t block, inst;
};

static void keep_note_def(void *data, struct tl_ptx_sym *reg)
{
    struct keep_scan *k = data;
    k->def_block[reg->id] = k->block;
    k->def_inst[reg->id] = k->inst;
}

static void keep_note_read(void *data, struct tl_ptx_sym *reg)
{
    struct keep_scan *k = data;
    uint32_t def = k->def_block[reg->id], loop;
    bool is_fresh = def != TL_CFG_NONE &&
                    (def == k->block ? k->def_inst[reg->id] < k->inst
                                     : tl_ptx_cfg_dominates(&k->f->cfg, def, k->block));
    if (is_fresh && (loop = k->loop_of[def]) != TL_CFG_NONE)
        is_fresh = tl_ptx_set_has(&k->loops[loop], k->block);
    k->f->regs[reg->id].keeps_lanes |= !is_fresh;
}

/* Fills f->is_in_loop and keeps_lanes of registers. 0 or -ENOMEM. */
int tl_mark_loops(struct tl_emit *e, struct tl_fn *f)
{
    const struct tl_ptx_cfg *cfg = &f->cfg;
    struct tl_ptx_set scratch;
    struct keep_scan k = {.f = f};
    uint32_t n = cfg->n_blocks + 1, n_regs = cfg->func->n_regs + 1;
    uint32_t *stack = tl_arena_alloc(e->arena, ((size_t)n + 1) * sizeof *stack);
    k.def_block = tl_arena_alloc(e->arena, n_regs * sizeof *k.def_block);
    k.def_inst = tl_arena_alloc(e->arena, n_regs * sizeof *k.def_inst);
    k.loop_of = tl_arena_alloc(e->arena, n * sizeof *k.loop_of);
    k.loops = tl_arena_zalloc(e->arena, n * sizeof *k.loops);
    f->is_in_loop = tl_arena_zalloc(e->arena, n);
    bool ok = stack != NULL && f->is_in_loop != NULL && k.def_block != NULL && k.def_inst != NULL &&
              k.loop_of != NULL && k.loops != NULL && tl_ptx_set_init(&scratch, e->arena, cfg) == 0;
    if (ok) {
        memset(k.loop_of, 0xff, n * sizeof *k.loop_of);
        memset(k.def_block, 0xff, n_regs * sizeof *k.def_block);
    }
    /* outer loops come first, inner ones overwrite */
    for (uint32_t i = 0; ok && i < cfg->n_order; i++) {
        uint32_t head = cfg->order[i];
        struct tl_ptx_set loop;
        ok = tl_ptx_set_init(&loop, e->arena, cfg) == 0;
        if (!ok || !tl_ptx_cfg_loop(cfg, head, &loop, &scratch, stack))
            continue;
        k.loops[head] = loop;
        for (uint32_t b = 0; b < cfg->n_blocks; b++) {
            if (tl_ptx_set_has(&loop, b)) {
                f->is_in_loop[b] = true;
                k.loop_of[b] = head;
            }
        }
    }
    if (!ok)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    for (int pass = 0; pass < 2; pass++) {
        for (k.inst = 0; k.inst < cfg->n_insts; k.inst++) {
            k.block = cfg->block_of[k.inst];
            if (pass == 0)
                tl_ptx_inst_writes(cfg->insts[k.inst], keep_note_def, &k);
            else
                tl_ptx_inst_reads(cfg->insts[k.inst], keep_note_read, &k);
        }
    }
    for (uint32_t i = 0; i + 1 < n_regs; i++)
        f->regs[i].keeps_lanes |= f->regs[i].n_defs > 1;
    return 0;
}

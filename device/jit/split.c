/* Registers that stand for several things.
 *
 * nvcc gives `i` of several loops one register: tid in the beginning, moved on by the last loop.
 * Where a read can see only one of a register's definitions, that definition is also kept in a
 * register of its own, a shadow, which is written once and so has known lanes where the register
 * itself has not (see lanes.c).  The register is written as before: reads that may see several
 * definitions need it.
 *
 * Which definitions reach a read is seen from one thread; lanes that read at one place then all
 * have that one. */
#include <string.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"

enum { MAX_BITS = 1 << 26 }; /* of all sets together: kernels beyond are left as they are */

struct split {
    struct tl_emit *e;
    struct tl_fn *f;
    uint32_t *n_defs;  /* per register: plain definitions, or 0 if it takes no part */
    uint32_t *first;   /* per register: number of its first definition */
    uint32_t *inst_of; /* per definition */
    uint32_t *shadow;  /* per definition: register number, or TL_CFG_NONE */
    uint64_t *now;     /* definitions that reach the instruction looked at */
    uint32_t total, words, inst;
    bool is_bad;
};

static bool has(const uint64_t *set, uint32_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

static const struct tl_ptx_stmt *stmt(const struct split *x)
{
    return x->f->cfg.insts[x->inst];
}

/* Whether it is the one plain result of its instruction. */
static bool is_plain(const struct tl_ptx_stmt *s, const struct tl_ptx_sym *reg)
{
    return s->n_operands > 0 && s->inst.operands[0].kind == TL_OPD_SYM &&
           s->inst.operands[0].sym == reg;
}

enum { NO_PART = UINT32_MAX };

static void count_def(void *data, struct tl_ptx_sym *reg)
{
    struct split *x = data;
    uint32_t bits = x->f->regs[reg->id].bits, *n = &x->n_defs[reg->id];
    if (x->f->regs[reg->id].is_opaque || !is_plain(stmt(x), reg) ||
        x->f->d.reg[reg->id] != TL_LEVEL_LANE || (bits != 32 && bits != 64))
        *n = NO_PART;
    else if (*n != NO_PART)
        ++*n;
}

static void number_def(void *data, struct tl_ptx_sym *reg)
{
    struct split *x = data;
    if (x->n_defs[reg->id] != 0)
        x->inst_of[x->first[reg->id]++] = x->inst;
}

/* After a write its definition is there, and without a guard no other of that register. */
static void pass_def(void *data, struct tl_ptx_sym *reg)
{
    struct split *x = data;
    uint32_t n = x->n_defs[reg->id];
    for (uint32_t i = x->first[reg->id]; n != 0 && i < x->first[reg->id] + n; i++) {
        if (x->inst_of[i] == x->inst)
            x->now[i / 64] |= 1ull << (i % 64);
        else if (stmt(x)->inst.guard == NULL)
            x->now[i / 64] &= ~(1ull << (i % 64));
    }
}

static void look_at_read(void *data, struct tl_ptx_sym *reg)
{
    struct split *x = data;
    uint32_t n = x->n_defs[reg->id], only = TL_CFG_NONE, seen = 0;
    for (uint32_t i = x->first[reg->id]; n != 0 && i < x->first[reg->id] + n; i++) {
        if (has(x->now, i)) {
            only = i;
            seen++;
        }
    }
    if (seen != 1 || x->f->cfg.insts[x->inst_of[only]]->inst.guard != NULL)
        return;
    struct tl_shadow *s = tl_arena_alloc(x->e->arena, sizeof *s);
    if (s == NULL) {
        x->is_bad = true;
        return;
    }
    if (x->shadow[only] == TL_CFG_NONE)
        x->shadow[only] = x->f->n_regs++;
    *s = (struct tl_shadow){
        .next = x->f->shadow_reads[x->inst], .reg = reg->id, .shadow = x->shadow[only]};
    x->f->shadow_reads[x->inst] = s;
    x->f->shadow_write[x->inst_of[only]] = x->shadow[only];
}

static void walk(struct split *x, uint32_t block, bool collects)
{
    const struct tl_ptx_block *k = &x->f->cfg.blocks[block];
    for (x->inst = k->first; x->inst < k->end; x->inst++) {
        if (collects)
            tl_ptx_inst_reads(stmt(x), look_at_read, x);
        tl_ptx_inst_writes(stmt(x), pass_def, x);
    }
}

/* Until nothing changes, then once more to look at the reads. */
static bool find_reaching(struct split *x)
{
    const struct tl_ptx_cfg *cfg = &x->f->cfg;
    uint64_t *out = tl_arena_zalloc(x->e->arena,
                                    ((size_t)cfg->n_blocks + 1) * x->words * sizeof *out);
    x->now = tl_arena_alloc(x->e->arena, x->words * sizeof *x->now);
    if (out == NULL || x->now == NULL)
        return false;
    for (bool changed = true, collects = false;; collects = !changed) {
        changed = false;
        for (uint32_t o = 0; o < cfg->n_order; o++) {
            uint32_t b = cfg->order[o];
            uint64_t *mine = &out[(size_t)b * x->words];
            memset(x->now, 0, x->words * sizeof *x->now);
            for (uint32_t p = 0; p < cfg->blocks[b].n_preds; p++) {
                const uint64_t *before = &out[(size_t)cfg->blocks[b].preds[p] * x->words];
                for (uint32_t w = 0; w < x->words; w++)
                    x->now[w] |= before[w];
            }
            walk(x, b, collects);
            if (memcmp(mine, x->now, x->words * sizeof *mine) != 0) {
                memcpy(mine, x->now, x->words * sizeof *mine);
                changed = true;
            }
        }
        if (collects)
            return !x->is_bad;
    }
}

/* Numbers the definitions of registers that have several. */
static bool number_all(struct split *x)
{
    const struct tl_ptx_cfg *cfg = &x->f->cfg;
    uint32_t n_regs = cfg->func->n_regs;
    x->n_defs = tl_arena_zalloc(x->e->arena, ((size_t)n_regs + 1) * sizeof *x->n_defs);
    x->first = tl_arena_zalloc(x->e->arena, ((size_t)n_regs + 1) * sizeof *x->first);
    if (x->n_defs == NULL || x->first == NULL)
        return false;
    for (x->inst = 0; x->inst < cfg->n_insts; x->inst++)
        tl_ptx_inst_writes(stmt(x), count_def, x);
    for (uint32_t r = 0; r < n_regs; r++) {
        if (x->n_defs[r] < 2 || x->n_defs[r] == NO_PART)
            x->n_defs[r] = 0;
        x->first[r] = x->total;
        x->total += x->n_defs[r];
    }
    x->inst_of = tl_arena_alloc(x->e->arena, ((size_t)x->total + 1) * sizeof *x->inst_of);
    x->shadow = tl_arena_alloc(x->e->arena, ((size_t)x->total + 1) * sizeof *x->shadow);
    if (x->inst_of == NULL || x->shadow == NULL)
        return false;
    memset(x->shadow, 0xff, ((size_t)x->total + 1) * sizeof *x->shadow);
    for (x->inst = 0; x->inst < cfg->n_insts; x->inst++)
        tl_ptx_inst_writes(stmt(x), number_def, x);
    for (uint32_t r = 0; r < n_regs; r++)
        x->first[r] -= x->n_defs[r];
    x->words = x->total / 64 + 1;
    return true;
}

/* The shadows' place behind the registers. */
static bool add_registers(struct split *x)
{
    struct tl_fn *f = x->f;
    uint32_t n_regs = f->cfg.func->n_regs;
    struct tl_reg *regs = tl_arena_zalloc(x->e->arena, ((size_t)f->n_regs + 1) * sizeof *regs);
    if (regs == NULL)
        return false;
    memcpy(regs, f->regs, n_regs * sizeof *regs);
    for (uint32_t i = 0; i < x->total; i++) {
        if (x->shadow[i] != TL_CFG_NONE)
            regs[x->shadow[i]].bits =
                regs[f->cfg.insts[x->inst_of[i]]->inst.operands[0].sym->id].bits;
    }
    f->regs = regs;
    return true;
}

int tl_split_registers(struct tl_emit *e, struct tl_fn *f)
{
    struct split x = {.e = e, .f = f};
    f->shadow_reads = tl_arena_zalloc(e->arena,
                                      ((size_t)f->cfg.n_insts + 1) * sizeof(struct tl_shadow *));
    f->shadow_write = tl_arena_alloc(e->arena,
                                     ((size_t)f->cfg.n_insts + 1) * sizeof *f->shadow_write);
    f->n_regs = f->cfg.func->n_regs;
    f->now = TL_CFG_NONE;
    if (f->shadow_reads == NULL || f->shadow_write == NULL || !number_all(&x))
        return -1;
    memset(f->shadow_write, 0xff, ((size_t)f->cfg.n_insts + 1) * sizeof *f->shadow_write);
    if (x.total == 0 || (uint64_t)x.words * 64 * f->cfg.n_blocks > MAX_BITS)
        return 0;
    return find_reaching(&x) && add_registers(&x) ? 0 : -1;
}

uint32_t tl_reg_read(const struct tl_fn *f, uint32_t inst, uint32_t reg)
{
    if (inst == TL_CFG_NONE)
        return reg;
    for (const struct tl_shadow *s = f->shadow_reads[inst]; s != NULL; s = s->next) {
        if (s->reg == reg && f->regs[s->shadow].bits != 0)
            return s->shadow;
    }
    return reg;
}

/* Sums that are too many for the registers, one after the other.
 *
 * A product of matrices with 128 sums per thread adds to all of them for one k, then for the next:
 * a processor with 32 registers loads and stores each sum each time.  Within a stretch of code
 * without barriers all multiply-adds may as well wait until everything else is done; then a few
 * sums at a time go through all k in registers, and only the factors come from memory.
 *
 *     for k: load a, b; s0 += a0 b0; s1 += a1 b0; ...        load all a, b; for groups of sums: for k: s0 += a0 b0; ...
 *
 * Each sum is added up in the order that the program says, so its bits are the same. */

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "ptx_rewrite/verdict.h"

enum {
    NONE = UINT32_MAX,
    MANY = UINT32_MAX - 1,
    MAX_AT_ONCE = 8, /* sums in registers, with AVX-512, and a third as many factors */
    /* multiply-adds per sum, on average: fewer do not pay for keeping the factors */
    MIN_LENGTH = 3,
};

/* What the code behind the current place does with a register, as long as nobody writes to it. */
struct use {
    uint32_t reader; /* multiply-add that waits and adds to it, NONE, or MANY */
    uint32_t chain;  /* of waiting multiply-adds that write it anywhere behind: NONE, or MANY */
    bool is_read;    /* otherwise */
    bool is_written; /* by something that does not wait, anywhere behind */
};

struct sums {
    const struct tl_fn *f;
    struct use *use;
    uint32_t *chain_of; /* per instruction from `from` on: its sum, or NONE if it does not wait */
    uint32_t *next;     /* per instruction: the next of its sum */
    uint32_t *first;    /* per sum */
    uint32_t from, n_chains, n_waiting;
};

static uint32_t register_of(const struct tl_ptx_operand *o)
{
    return o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG && o->flags == 0 && o->component == 0
               ? o->sym->id
               : NONE;
}

static void note_read(void *data, struct tl_ptx_sym *reg)
{
    struct sums *s = data;
    s->use[reg->id].is_read = true;
}

static void note_write(void *data, struct tl_ptx_sym *reg)
{
    struct sums *s = data;
    s->use[reg->id].is_written = true;
    s->use[reg->id].is_read = false;
    s->use[reg->id].reader = NONE;
}

/* Whether a factor is still there at the end. */
static bool stays(const struct sums *s, const struct tl_ptx_operand *o)
{
    uint32_t r = register_of(o);
    return o->kind != TL_OPD_SYM || (r != NONE && !s->use[r].is_written && s->use[r].chain == NONE);
}

/* Makes instruction `i`, behind which all is known, wait if it may. */
static bool take(struct sums *s, uint32_t i)
{
    const struct tl_ptx_stmt *inst = s->f->cfg.insts[i];
    const struct tl_ptx_operand *o = inst->inst.operands;
    if (inst->inst.form->op != TL_OP_fma || inst->inst.guard != NULL || inst->n_operands != 4 ||
        s->f->shadow_write[i] != TL_CFG_NONE || register_of(&o[0]) == NONE ||
        register_of(&o[3]) == NONE)
        return false;
    struct use *to = &s->use[register_of(&o[0])], *sum = &s->use[register_of(&o[3])];
    if (to->is_read || to->is_written || to->reader == MANY || sum->is_written ||
        !stays(s, &o[1]) || !stays(s, &o[2]))
        return false;
    uint32_t chain = to->reader != NONE ? s->chain_of[to->reader - s->from] : s->n_chains;
    if ((to->chain != NONE && to->chain != chain) || (sum->chain != NONE && sum->chain != chain))
        return false;
    s->n_chains += chain == s->n_chains;
    s->chain_of[i - s->from] = chain;
    s->next[i - s->from] = to->reader;
    s->first[chain] = i;
    s->n_waiting++;
    to->chain = chain;
    to->reader = NONE;
    sum->reader = sum->reader == NONE ? i : MANY;
    for (int k = 1; k <= 2; k++) {
        if (register_of(&o[k]) != NONE)
            s->use[register_of(&o[k])].is_read = true;
    }
    return true;
}

/* Takes `n` sums, each from its first multiply-add in group[], to their ends; where the order goes
 * on. */
static uint32_t *put_group(const struct sums *s, uint32_t *group, uint32_t n, uint32_t *order)
{
    while (n > 0) {
        uint32_t left = 0;
        for (uint32_t k = 0; k < n; k++) {
            *order++ = group[k];
            if (s->next[group[k] - s->from] != NONE)
                group[left++] = s->next[group[k] - s->from];
        }
        n = left;
    }
    return order;
}

/* Sums in the order of their first multiply-adds, which share factors with their neighbours. */
static void put_sums(const struct sums *s, uint32_t until, uint32_t at_once, uint32_t *order)
{
    uint32_t group[MAX_AT_ONCE], n = 0;
    for (uint32_t i = s->from; i < until; i++) {
        uint32_t chain = s->chain_of[i - s->from];
        if (chain == NONE || s->first[chain] != i)
            continue;
        group[n++] = i;
        if (n == at_once) {
            order = put_group(s, group, n, order);
            n = 0;
        }
    }
    put_group(s, group, n, order);
}

uint32_t tl_stretch_end(const struct tl_fn *f, uint32_t from, uint32_t until)
{
    uint32_t i = from + 1;
    while (i < until && tl_ptx_barrier_of(f->cfg.insts[i]).kind == TL_BARRIER_NONE &&
           (f->segment == NULL || f->segment->state_of[i] == 0))
        i++;
    return i;
}

const uint32_t *tl_order_sums(struct tl_emit *e, uint32_t from, uint32_t until)
{
    const struct tl_fn *f = e->f;
    uint32_t n = until - from, at_once = e->has_avx512 ? MAX_AT_ONCE : 2;
    if (n < 8 * MIN_LENGTH * at_once || e->options->is_least || e->quick != NULL)
        return NULL;
    struct sums s = {.f = f, .from = from};
    s.use = tl_arena_alloc(e->arena, ((size_t)f->n_regs + 1) * sizeof *s.use);
    s.chain_of = tl_arena_alloc(e->arena, (size_t)n * sizeof *s.chain_of);
    s.next = tl_arena_alloc(e->arena, (size_t)n * sizeof *s.next);
    s.first = tl_arena_alloc(e->arena, (size_t)n * sizeof *s.first);
    uint32_t *order = tl_arena_alloc(e->arena, (size_t)n * sizeof *order), *to = order;
    if (s.use == NULL || s.chain_of == NULL || s.next == NULL || s.first == NULL || order == NULL)
        return NULL;
    for (uint32_t r = 0; r < f->n_regs; r++)
        s.use[r] = (struct use){.reader = NONE, .chain = NONE};
    for (uint32_t i = until; i-- > from;) {
        s.chain_of[i - from] = NONE;
        if (take(&s, i))
            continue;
        tl_ptx_inst_writes(f->cfg.insts[i], note_write, &s);
        tl_ptx_inst_reads(f->cfg.insts[i], note_read, &s);
    }
    if (s.n_chains <= 2 * at_once || s.n_waiting < MIN_LENGTH * s.n_chains)
        return NULL;
    for (uint32_t i = from; i < until; i++) {
        if (s.chain_of[i - from] == NONE)
            *to++ = i;
    }
    put_sums(&s, until, at_once, to);
    return order;
}

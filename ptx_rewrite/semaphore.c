/* Waiting for the block's turn.
 *
 * Matrix products that are split along k add their parts up in a fixed order (CUTLASS's Semaphore,
 * cuBLAS's gemm_largek, cuDNN's wgrad_alg1).  Each tile of the result has a word.  A block polls it
 * until it equals the block's own number along k, which is %ctaid.z or a ticket; then it does its
 * part and stores that number plus one, the last block zero again for the next launch.
 *
 * That such a wait is for an earlier block is shown by values, not by addresses:
 *
 *   - the loop is left when the word equals `own`, and depends on the word in no other way;
 *   - whatever is stored into that array is `own` of the block that stores, plus one; or the number for which the very first
 *     block waits.  So if a block waits for n, a block with the number n - 1 stores it.  With %ctaid.z as the number, that one
 *     comes earlier in the grid; with a ticket of the same counter, it has started, or there would be no ticket n.
 *   - the first block waits for what is there when the launch begins.  A kernel that stores that number again in the end relies on
 *     it itself: words begin with what the last block leaves.  It must not be able to wait for that last block.  So nothing is polled
 *     behind a store, and words are not shared by tiles: the address is made of all other parts of the block's number that
 *     the kernel asks for, and not of the part which orders the blocks; and only who has waited stores that number, or a
 *     kernel that does not rely on it could be opened by its last block.  (That different tiles get different words of it is
 *     taken for granted: k parts of one tile would meet those of the other in any order.)
 *
 * Blocks start in ascending order in every variant, and one that has started runs to its end: so
 * what is waited for comes. */
#include "ptx_rewrite/semaphore.h"

#include <errno.h>
#include <string.h>

#include "ptx_rewrite/flags.h"

/* of one stored value: selections inside each other, and definitions in branches */
enum { MAX_CHOICES = 4 };

int tl_semaphore_init(struct tl_semaphore *t, struct tl_arena *arena, struct tl_affines *affines,
                      const struct tl_ptx_roots *roots)
{
    const struct tl_ptx_cfg *cfg = affines->cfg;
    size_t n_regs = (size_t)cfg->func->n_regs + 1;
    *t = (struct tl_semaphore){.affines = affines, .cfg = cfg, .roots = roots};
    t->state = tl_arena_alloc(arena, n_regs);
    t->number = tl_arena_alloc(arena, n_regs * sizeof *t->number);
    t->stack = tl_arena_alloc(arena, ((size_t)cfg->n_blocks + 2) * sizeof *t->stack);
    if (t->state == NULL || t->number == NULL || t->stack == NULL)
        return -ENOMEM;
    return tl_ptx_set_init(&t->reached, arena, cfg);
}

/* --- values ----------------------------------------------------------------------------------- */

/* Bytes of a scalar integer access of at least 32 bits, else 0: numbers of blocks would come again
 * in fewer bits. */
static uint32_t word_bytes(const struct tl_ptx_form *f)
{
    if (tl_ptx_form_has(f, TL_MOD_v2) || tl_ptx_form_has(f, TL_MOD_v4) ||
        tl_ptx_form_has(f, TL_MOD_v8))
        return 0;
    if (tl_ptx_form_has(f, TL_MOD_u32) || tl_ptx_form_has(f, TL_MOD_s32) ||
        tl_ptx_form_has(f, TL_MOD_b32))
        return 4;
    return tl_ptx_form_has(f, TL_MOD_u64) || tl_ptx_form_has(f, TL_MOD_s64) ||
                   tl_ptx_form_has(f, TL_MOD_b64)
               ? 8
               : 0;
}

/* Whether control can come from behind one instruction to another. */
static bool reaches(struct tl_semaphore *t, uint32_t from, uint32_t to)
{
    const struct tl_ptx_cfg *cfg = t->cfg;
    if (cfg->block_of[from] == cfg->block_of[to] && from < to)
        return true;
    tl_ptx_set_clear(&t->reached);
    tl_ptx_cfg_region(cfg, cfg->block_of[from], cfg->n_blocks, &t->reached, t->stack);
    return tl_ptx_set_has(&t->reached, cfg->block_of[to]);
}

/* Whether the registers in an expression have one value in all of a thread's life: what is made
 * once is. */
static bool is_settled(struct tl_semaphore *t, const struct tl_affine *e)
{
    if (e->is_upper)
        return false;
    for (uint32_t i = 0; i < e->n; i++) {
        const struct tl_leaf *leaf = &e->terms[i].leaf;
        uint32_t def = leaf->kind == TL_LEAF_REG ? tl_affine_only_def(t->affines, leaf->what)
                                                 : TL_CFG_NONE;
        if (leaf->kind == TL_LEAF_REG && (def == TL_CFG_NONE || reaches(t, def, def)))
            return false;
    }
    return true;
}

/* Whether an expression is a block's number, give or take a constant, in the order in which blocks
 * start. */
static bool is_number(struct tl_semaphore *t, const struct tl_affine *e, uint32_t *ticket)
{
    *ticket = TL_CFG_NONE;
    if (e->n != 1 || e->terms[0].factor != 1 || !is_settled(t, e))
        return false;
    const struct tl_leaf *leaf = &e->terms[0].leaf;
    if (leaf->kind == TL_LEAF_SREG)
        return leaf->id == TL_SREG_ctaid &&
               (leaf->part == 'z' || (leaf->part == 'x' && t->x_orders));
    *ticket = leaf->kind == TL_LEAF_REG ? tl_flag_ticket(t->affines, leaf->what) : TL_CFG_NONE;
    return *ticket != TL_CFG_NONE &&
           tl_ptx_form_has(t->cfg->insts[*ticket]->inst.form, TL_MOD_add) &&
           !reaches(t, *ticket, *ticket);
}

/* The other side of a comparison with the word; the first one says what `own` is. */
static bool is_own(struct tl_semaphore *t, const struct tl_ptx_operand *o)
{
    struct tl_affine e;
    if (!tl_affine_of_operand(t->affines, o, &e))
        return false;
    if (!t->has_own && is_number(t, &e, &t->ticket)) {
        t->has_own = true;
        t->own = e;
    }
    return t->has_own && !e.is_upper && tl_affine_add(&e, &t->own, -1) && e.n == 0 &&
           e.constant == 0;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* What a register holds right after the word was found to be `own`. */
enum state { UNKNOWN, WORD, NUMBER };

static bool is_integer(const struct tl_ptx_form *f)
{
    return !tl_ptx_form_has(f, TL_MOD_f32) && !tl_ptx_form_has(f, TL_MOD_f64) &&
           !tl_ptx_form_has(f, TL_MOD_f16);
}

static bool holds(const struct tl_semaphore *t, const struct tl_ptx_operand *o, enum state state)
{
    return o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_REG && t->state[o->sym->id] == state;
}

/* `word == own` or `word != own`, and nothing more. */
static bool is_comparison(struct tl_semaphore *t, const struct tl_ptx_stmt *s)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    if (f->op != TL_OP_setp || s->n_operands != 3 || o[0].kind != TL_OPD_SYM ||
        word_bytes(f) != word_bytes(t->cfg->insts[t->poll]->inst.form) ||
        (!tl_ptx_form_has(f, TL_MOD_eq) && !tl_ptx_form_has(f, TL_MOD_ne)))
        return false;
    return (holds(t, &o[1], WORD) && is_own(t, &o[2])) ||
           (holds(t, &o[2], WORD) && is_own(t, &o[1]));
}

static bool is_copy(const struct tl_ptx_stmt *s)
{
    return s->inst.form->op == TL_OP_mov && s->n_operands == 2 &&
           s->inst.operands[0].kind == TL_OPD_SYM && s->inst.operands[1].kind == TL_OPD_SYM;
}

struct word_search {
    const struct tl_semaphore *t;
    bool found;
};

static void note_word(void *data, struct tl_ptx_sym *reg)
{
    struct word_search *w = data;
    w->found |= w->t->state[reg->id] == WORD;
}

static bool reads_word(const struct tl_semaphore *t, const struct tl_ptx_stmt *s)
{
    struct word_search w = {t, false};
    tl_ptx_inst_reads(s, note_word, &w);
    return w.found;
}

static void start_with_word(struct tl_semaphore *t)
{
    memset(t->state, UNKNOWN, t->cfg->func->n_regs);
    t->state[t->cfg->insts[t->poll]->inst.operands[0].sym->id] = WORD;
}

/* Whether all that the loop does with the word is to compare it with `own`.  Copies are words as
 * well. */
static bool is_only_compared(struct tl_semaphore *t)
{
    const struct tl_ptx_cfg *cfg = t->cfg;
    bool changed = true;
    start_with_word(t);
    while (changed) {
        changed = false;
        for (uint32_t b = 0; b < cfg->n_blocks; b++) {
            for (uint32_t i = cfg->blocks[b].first;
                 tl_ptx_set_has(t->loop, b) && i < cfg->blocks[b].end; i++) {
                const struct tl_ptx_stmt *s = cfg->insts[i];
                if (!reads_word(t, s) || is_comparison(t, s))
                    continue;
                if (!is_copy(s))
                    return false;
                changed |= !holds(t, &s->inst.operands[0], WORD);
                t->state[s->inst.operands[0].sym->id] = WORD;
            }
        }
    }
    return t->has_own;
}

static bool number_of(const struct tl_semaphore *t, const struct tl_ptx_operand *o, int64_t *out)
{
    if (o->kind == TL_OPD_INT)
        *out = (int64_t)o->bits;
    else if (holds(t, o, NUMBER))
        *out = o->flags & TL_OPD_NOT ? t->number[o->sym->id] == 0 : t->number[o->sym->id];
    else
        return false;
    return !(o->flags & TL_OPD_MINUS);
}

/* A number as an instruction of that form sees it. */
static uint64_t seen_as(const struct tl_ptx_form *f, int64_t number)
{
    if (tl_ptx_form_has(f, TL_MOD_u16) || tl_ptx_form_has(f, TL_MOD_s16) ||
        tl_ptx_form_has(f, TL_MOD_b16))
        return (uint16_t)number;
    return word_bytes(f) == 8 ? (uint64_t)number : (uint32_t)number;
}

static bool of_comparison(struct tl_semaphore *t, const struct tl_ptx_stmt *s, int64_t *out)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    bool is_eq = tl_ptx_form_has(s->inst.form, TL_MOD_eq);
    int64_t x, y;
    *out = is_eq;
    if (is_comparison(t, s))
        return true;
    if (s->n_operands != 3 || !is_integer(s->inst.form) ||
        (!is_eq && !tl_ptx_form_has(s->inst.form, TL_MOD_ne)) || !number_of(t, &o[1], &x) ||
        !number_of(t, &o[2], &y))
        return false;
    *out = (seen_as(s->inst.form, x) == seen_as(s->inst.form, y)) == is_eq;
    return true;
}

/* One thread's word settles what all of them get if it is false of an `and`, or true of an `or`. */
static bool of_vote(const struct tl_semaphore *t, const struct tl_ptx_operand *ballot, bool is_and,
                    int64_t *out)
{
    return number_of(t, ballot, out) && (*out == 0) == is_and;
}

static bool of_logic(const struct tl_semaphore *t, const struct tl_ptx_stmt *s, int64_t *out)
{
    bool is_and = s->inst.form->op == TL_OP_and;
    return tl_ptx_form_has(s->inst.form, TL_MOD_pred) && s->n_operands == 3 &&
           (of_vote(t, &s->inst.operands[1], is_and, out) ||
            of_vote(t, &s->inst.operands[2], is_and, out));
}

/* The number that an instruction makes of what is known; false if that is not enough. */
static bool number_made(struct tl_semaphore *t, const struct tl_ptx_stmt *s, int64_t *out)
{
    const struct tl_ptx_form *f = s->inst.form;
    const struct tl_ptx_operand *o = s->inst.operands;
    int64_t p;
    switch (f->op) {
    case TL_OP_mov:
        return s->n_operands == 2 && number_of(t, &o[1], out);
    case TL_OP_setp:
        return of_comparison(t, s, out);
    case TL_OP_selp:
        return s->n_operands == 4 && is_integer(f) && number_of(t, &o[3], &p) &&
               number_of(t, &o[p != 0 ? 1 : 2], out);
    case TL_OP_not:
        if (!tl_ptx_form_has(f, TL_MOD_pred) || !number_of(t, &o[1], &p))
            return false;
        *out = p == 0;
        return true;
    case TL_OP_and:
    case TL_OP_or:
        return of_logic(t, s, out);
    case TL_OP_bar:
    case TL_OP_barrier:
        return tl_ptx_form_has(f, TL_MOD_red) && tl_ptx_form_has(f, TL_MOD_pred) &&
               of_vote(t, &o[s->n_operands - 1], tl_ptx_form_has(f, TL_MOD_and), out);
    case TL_OP_vote:
        return (tl_ptx_form_has(f, TL_MOD_all) || tl_ptx_form_has(f, TL_MOD_any)) &&
               s->n_operands >= 2 && of_vote(t, &o[1], tl_ptx_form_has(f, TL_MOD_all), out);
    default:
        return false;
    }
}

static void forget(void *data, struct tl_ptx_sym *reg)
{
    ((struct tl_semaphore *)data)->state[reg->id] = UNKNOWN;
}

static bool guard_of(const struct tl_semaphore *t, const struct tl_ptx_stmt *s, bool *out)
{
    if (s->inst.guard == NULL)
        *out = true;
    else if (t->state[s->inst.guard->id] == NUMBER)
        *out = (t->number[s->inst.guard->id] != 0) != (s->guard_not != 0);
    else
        return false;
    return true;
}

static void step(struct tl_semaphore *t, const struct tl_ptx_stmt *s)
{
    int64_t number = 0;
    bool runs = false, is_known = guard_of(t, s, &runs);
    if (is_known && !runs)
        return;
    bool is_word = is_known && is_copy(s) && holds(t, &s->inst.operands[1], WORD);
    bool is_number = is_known && !is_word && s->n_operands > 0 && number_made(t, s, &number);
    tl_ptx_inst_writes(s, forget, t);
    if ((!is_word && !is_number) || s->inst.operands[0].kind != TL_OPD_SYM ||
        s->inst.operands[0].sym->kind != TL_SYM_REG)
        return;
    t->state[s->inst.operands[0].sym->id] = is_word ? WORD : NUMBER;
    t->number[s->inst.operands[0].sym->id] = number;
}

/* Follows the thread that has just read the word, from there to where it leaves the loop, with what
 * is known of its registers. */
static bool leaves(struct tl_semaphore *t)
{
    const struct tl_ptx_cfg *cfg = t->cfg;
    uint32_t block = cfg->block_of[t->poll], i = t->poll + 1;
    for (uint32_t steps = 0; steps <= cfg->n_insts; steps++) {
        if (block == cfg->n_blocks || !tl_ptx_set_has(t->loop, block)) {
            t->left_to = block;
            return true;
        }
        const struct tl_ptx_block *k = &cfg->blocks[block];
        bool is_taken = true;
        for (; i < k->end && cfg->insts[i]->inst.form->op != TL_OP_bra; i++) {
            enum tl_ptx_op op = cfg->insts[i]->inst.form->op;
            if (i == t->poll || op == TL_OP_call || op == TL_OP_brx || op == TL_OP_ret ||
                op == TL_OP_exit)
                return false;
            step(t, cfg->insts[i]);
        }
        if ((i < k->end && !guard_of(t, cfg->insts[i], &is_taken)) ||
            (!is_taken && k->n_succs != 2))
            return false;
        t->left_from = block;
        block = k->succs[is_taken ? 0 : 1]; /* the branch target comes first, then what follows */
        i = block < cfg->n_blocks ? cfg->blocks[block].first : 0;
    }
    return false;
}

static bool leaves_if_equal(struct tl_semaphore *t)
{
    start_with_word(t);
    return leaves(t);
}

bool tl_semaphore_leaves_with(struct tl_semaphore *t, const struct tl_ptx_set *loop, uint32_t read,
                              int64_t number, uint32_t *from, uint32_t *to)
{
    const struct tl_ptx_operand *result = &t->cfg->insts[read]->inst.operands[0];
    t->loop = loop;
    t->poll = read;
    t->has_own = false;
    t->x_orders = false;
    if (t->cfg->insts[read]->n_operands == 0 || result->kind != TL_OPD_SYM ||
        result->sym->kind != TL_SYM_REG)
        return false;
    memset(t->state, UNKNOWN, t->cfg->func->n_regs);
    t->state[result->sym->id] = NUMBER;
    t->number[result->sym->id] = number;
    if (!leaves(t))
        return false;
    *from = t->left_from;
    *to = t->left_to;
    return true;
}

/* --- what is stored --------------------------------------------------------------------------- */

/* `own` plus one, or what the first block waits for; a selection, or a register written in several
 * branches, if all of its values are. */
static bool is_next(struct tl_semaphore *t, const struct tl_ptx_operand *o, uint32_t depth)
{
    struct tl_affine e;
    struct tl_affines *a = t->affines;
    const struct tl_ptx_form *poll = t->cfg->insts[t->poll]->inst.form;
    if (depth > MAX_CHOICES ||
        (o->kind == TL_OPD_SYM && (o->sym->kind != TL_SYM_REG || o->flags != 0)))
        return false;
    if (o->kind == TL_OPD_INT) {
        t->may_store_first = true;
        return t->ticket == TL_CFG_NONE &&
               seen_as(poll, (int64_t)o->bits) == seen_as(poll, t->own.constant);
    }
    if (o->kind != TL_OPD_SYM)
        return false;
    uint32_t first = a->first_def[o->sym->id], end = a->first_def[o->sym->id + 1];
    for (uint32_t d = first; d < end && end - first <= MAX_CHOICES; d++) {
        const struct tl_ptx_stmt *s = t->cfg->insts[a->defs[d]];
        if (s->inst.operands[0].kind != TL_OPD_SYM)
            return false;
        bool is_choice = s->inst.form->op == TL_OP_selp && s->n_operands == 4 &&
                         is_integer(s->inst.form);
        if (is_choice && is_next(t, &s->inst.operands[1], depth + 1) &&
            is_next(t, &s->inst.operands[2], depth + 1))
            continue;
        if (is_choice)
            return false;
        if (s->inst.form->op == TL_OP_mov && s->n_operands == 2 &&
            is_next(t, &s->inst.operands[1], depth + 1))
            continue;
        if (!tl_affine_of_inst(a, s, &e) || e.is_upper || !tl_affine_add(&e, &t->own, -1) ||
            e.n != 0 || e.constant != 1)
            return false;
    }
    return end > first && end - first <= MAX_CHOICES;
}

/* Of %ctaid: all of them where it is read as a vector. */
static unsigned part_of(const struct tl_ptx_operand *o)
{
    switch (o->component) {
    case 'x':
        return TL_PART_X;
    case 'y':
        return TL_PART_Y;
    case 'z':
        return TL_PART_Z;
    default:
        return TL_PART_X | TL_PART_Y | TL_PART_Z;
    }
}

static bool note_part(struct tl_semaphore *t, const struct tl_ptx_operand *o)
{
    switch (o->sym->sreg) {
    case TL_SREG_ctaid:
        t->parts |= part_of(o);
        return true;
    case TL_SREG_nctaid:
    case TL_SREG_tid:
    case TL_SREG_ntid:
        return true;
    default:
        return false;
    }
}

/* An instruction that computes: what it gives depends on its operands alone. */
static bool computes(const struct tl_ptx_stmt *s)
{
    enum tl_ptx_mod space = tl_ptx_form_space(s->inst.form);
    if (s->inst.form->op == TL_OP_ld)
        return space == TL_MOD_param || space == TL_MOD_const;
    return tl_ptx_form_computes(s->inst.form);
}

/* The instruction that made what another one reads in a register: the only one, or the last before
 * it in its basic block. */
static uint32_t maker_of(const struct tl_semaphore *t, const struct tl_ptx_sym *reg,
                         uint32_t reader)
{
    const struct tl_affines *a = t->affines;
    uint32_t found = TL_CFG_NONE, begin = t->cfg->blocks[t->cfg->block_of[reader]].first;
    for (uint32_t d = a->first_def[reg->id]; d < a->first_def[reg->id + 1]; d++) {
        if (a->defs[d] >= begin && a->defs[d] < reader &&
            (found == TL_CFG_NONE || a->defs[d] > found))
            found = a->defs[d];
    }
    if (found == TL_CFG_NONE)
        return tl_affine_only_def(a, reg);
    return t->cfg->insts[found]->inst.guard == NULL ? found : TL_CFG_NONE;
}

/* Whether what instruction `reader` reads is computed from parameters, constants and numbers of
 * block and thread; notes which parts of the block's number are in it. */
static bool comes_from_numbers(struct tl_semaphore *t, const struct tl_ptx_operand *o,
                               uint32_t reader)
{
    /* Of operands, whether behind a register or inside a vector: each takes some of the stack. */
    enum { MAX_STEPS = 4000 };
    uint32_t maker = TL_CFG_NONE;
    if (++t->steps > MAX_STEPS)
        return false;
    switch (o->kind) {
    case TL_OPD_INT:
        return true;
    case TL_OPD_ADDR:
    case TL_OPD_VEC:
        for (uint32_t i = 0; i < o->n; i++) {
            if (!comes_from_numbers(t, &o->elems[i], reader))
                return false;
        }
        return true;
    case TL_OPD_SYM:
        if (o->sym->kind == TL_SYM_SREG)
            return note_part(t, o);
        if (o->sym->kind != TL_SYM_REG)
            return o->sym->kind == TL_SYM_VAR || o->sym->kind == TL_SYM_MODULE_VAR;
        maker = maker_of(t, o->sym, reader);
        break;
    default:
        return false;
    }
    /* Each step goes to an earlier instruction of the block, or to one that is the only one: a loop
     * of registers ends here. */
    if (maker == TL_CFG_NONE || !computes(t->cfg->insts[maker]))
        return false;
    const struct tl_ptx_stmt *s = t->cfg->insts[maker];
    for (uint32_t i = 1; i < s->n_operands; i++) {
        if (!comes_from_numbers(t, &s->inst.operands[i], maker))
            return false;
    }
    return true;
}

static unsigned parts_in(const struct tl_ptx_operand *o)
{
    unsigned parts = 0;
    if (o->kind == TL_OPD_SYM && o->sym->kind == TL_SYM_SREG && o->sym->sreg == TL_SREG_ctaid)
        parts = part_of(o);
    bool has_elems = o->kind == TL_OPD_VEC || o->kind == TL_OPD_LIST || o->kind == TL_OPD_PAIR ||
                     o->kind == TL_OPD_ADDR;
    for (uint32_t i = 0; has_elems && i < o->n; i++)
        parts |= parts_in(&o->elems[i]);
    return parts;
}

/* Whether an address is the tile's: made of every part of the block's number but the one that
 * orders the blocks. */
static bool is_of_tile(struct tl_semaphore *t, uint32_t access)
{
    unsigned read = 0, order = t->own.terms[0].leaf.part == 'z' ? TL_PART_Z : TL_PART_X;
    t->parts = 0;
    t->steps = 0;
    if (!comes_from_numbers(t, tl_flag_address(t->cfg->insts[access]), access))
        return false;
    for (uint32_t i = 0; i < t->cfg->n_insts; i++) {
        for (uint32_t o = 0; o < t->cfg->insts[i]->n_operands; o++)
            read |= parts_in(&t->cfg->insts[i]->inst.operands[o]);
    }
    if (order == TL_PART_X) /* of a line: the others are zero, or nobody asks for them */
        return !(t->parts & TL_PART_X);
    return !(t->parts & order) && (t->parts | order) == (read | order);
}

static bool has_only_bases(const struct tl_affine *e)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (e->terms[i].leaf.kind != TL_LEAF_PARAM && e->terms[i].leaf.kind != TL_LEAF_MODULE_VAR)
            return false;
    }
    return true;
}

/* Whether two registers, each made once, hold the same because the same was computed twice. */
static bool is_made_again(struct tl_semaphore *t, const struct tl_ptx_sym *a,
                          const struct tl_ptx_sym *b, uint32_t depth)
{
    uint32_t def_a = tl_affine_only_def(t->affines, a), def_b = tl_affine_only_def(t->affines, b);
    if (a == b)
        return true;
    if (def_a == TL_CFG_NONE || def_b == TL_CFG_NONE || depth > MAX_CHOICES)
        return false;
    const struct tl_ptx_stmt *x = t->cfg->insts[def_a], *y = t->cfg->insts[def_b];
    if (x->inst.form != y->inst.form || x->n_operands != y->n_operands || !computes(x) ||
        x->inst.operands[0].kind != TL_OPD_SYM || y->inst.operands[0].kind != TL_OPD_SYM)
        return false;
    for (uint32_t i = 1; i < x->n_operands; i++) {
        const struct tl_ptx_operand *left = &x->inst.operands[i], *right = &y->inst.operands[i];
        struct tl_affine e, f;
        if (tl_affine_of_operand(t->affines, left, &e) &&
            tl_affine_of_operand(t->affines, right, &f) && is_settled(t, &e) && is_settled(t, &f) &&
            tl_affine_add(&e, &f, -1) && e.n == 0 && e.constant == 0)
            continue;
        if (left->kind != TL_OPD_SYM || right->kind != TL_OPD_SYM || left->flags != 0 ||
            right->flags != 0 || left->sym->kind != TL_SYM_REG || right->sym->kind != TL_SYM_REG ||
            !is_made_again(t, left->sym, right->sym, depth + 1))
            return false;
    }
    return true;
}

/* Writes an expression with the registers of another one, where they hold the same. */
static void name_alike(struct tl_semaphore *t, struct tl_affine *e, const struct tl_affine *like)
{
    for (uint32_t i = 0; i < e->n; i++) {
        for (uint32_t k = 0; e->terms[i].leaf.kind == TL_LEAF_REG && k < like->n; k++) {
            if (like->terms[k].leaf.kind == TL_LEAF_REG &&
                tl_affine_factor(e, &like->terms[k].leaf) == 0 &&
                is_made_again(t, e->terms[i].leaf.what, like->terms[k].leaf.what, 0))
                e->terms[i].leaf = like->terms[k].leaf;
        }
    }
}

/* Tickets are in order if they are of one counter: of the only one, or of the one that belongs to
 * the word.  Counters and words belong together if both are found in the same way, each in its own
 * array. */
static bool is_of_counter(struct tl_semaphore *t, struct tl_affine word)
{
    struct tl_affine counter;
    if (!tl_affine_of_address(t->affines, tl_flag_address(t->cfg->insts[t->ticket]), &counter) ||
        !is_settled(t, &counter) || !is_settled(t, &word))
        return false;
    name_alike(t, &word, &counter);
    return has_only_bases(&counter) ||
           (tl_affine_add(&word, &counter, -1) && has_only_bases(&word));
}

static bool is_word_of_block(struct tl_semaphore *t, uint32_t access, const struct tl_affine *e)
{
    return t->ticket != TL_CFG_NONE ? is_of_counter(t, *e) : is_of_tile(t, access);
}

/* Whether a thread can come to an instruction without having been in the loop. */
static bool comes_without_waiting(struct tl_semaphore *t, uint32_t inst)
{
    const struct tl_ptx_cfg *cfg = t->cfg;
    uint32_t depth = 0;
    tl_ptx_set_clear(&t->reached);
    tl_ptx_set_add(&t->reached, 0);
    t->stack[depth++] = 0;
    while (depth > 0) {
        uint32_t b = t->stack[--depth];
        if (tl_ptx_set_has(t->loop, b))
            continue;
        if (b == cfg->block_of[inst])
            return true;
        const struct tl_ptx_stmt *last = tl_ptx_cfg_last(cfg, b);
        bool is_branch = cfg->blocks[b].n_succs == 2 && last->inst.form->op == TL_OP_bra;
        int way = is_branch ? tl_affine_known_way(t->affines, last, inst) : -1;
        for (uint32_t e = 0; e < cfg->blocks[b].n_succs; e++) {
            uint32_t to = cfg->blocks[b].succs[e];
            if ((way >= 0 && (uint32_t)way != e) || to == cfg->n_blocks ||
                tl_ptx_set_has(&t->reached, to))
                continue;
            tl_ptx_set_add(&t->reached, to);
            t->stack[depth++] = to;
        }
    }
    return false;
}

/* Whether a store, where it may hit the word, is one that a block makes whose turn has come;
 * `*publishes` if it may. */
static bool is_fair(struct tl_semaphore *t, uint32_t i, bool *publishes)
{
    const struct tl_ptx_stmt *s = t->cfg->insts[i], *poll = t->cfg->insts[t->poll];
    const struct tl_ptx_operand *address = tl_flag_address(s);
    struct tl_affine e;
    if (!tl_affine_of_address(t->affines, address, &e))
        return false;
    if (!tl_flag_shares_known_base(&t->polled, &e)) /* another array, if it has another root */
        return !tl_ptx_roots_meet(tl_ptx_roots_of(t->roots, t->cfg, tl_flag_address(poll)),
                                  tl_ptx_roots_written(t->roots, t->cfg, s));
    t->may_store_first = false;
    if (s->inst.form->op != TL_OP_st || s->n_operands != 2 ||
        word_bytes(s->inst.form) != word_bytes(poll->inst.form) || reaches(t, i, t->poll) ||
        !is_next(t, &s->inst.operands[1], 0) || !is_word_of_block(t, i, &e) ||
        (t->may_store_first && comes_without_waiting(t, i)))
        return false;
    *publishes = true;
    return true;
}

bool tl_semaphore_waits_for_turn(struct tl_semaphore *t, const struct tl_ptx_set *loop,
                                 uint32_t poll, bool x_orders)
{
    const struct tl_ptx_cfg *cfg = t->cfg;
    const struct tl_ptx_stmt *s = cfg->insts[poll];
    const struct tl_ptx_operand *address = tl_flag_address(s);
    t->loop = loop;
    t->poll = poll;
    t->x_orders = x_orders;
    t->has_own = false;
    if (!cfg->func->is_entry || s->inst.form->op != TL_OP_ld || s->n_operands != 2 ||
        s->inst.operands[0].kind != TL_OPD_SYM || word_bytes(s->inst.form) == 0 ||
        !tl_affine_of_address(t->affines, address, &t->polled) || t->polled.is_upper ||
        !tl_flag_has_known_base(&t->polled))
        return false;
    if (!is_only_compared(t) || !leaves_if_equal(t) || !is_word_of_block(t, poll, &t->polled))
        return false;
    bool publishes = false;
    for (uint32_t i = 0; i < cfg->n_insts; i++) {
        enum tl_ptx_op op = cfg->insts[i]->inst.form->op;
        if (op == TL_OP_call || op == TL_OP_multimem || op == TL_OP_unknown)
            return false;
        if ((op == TL_OP_st || op == TL_OP_atom || op == TL_OP_red) &&
            tl_flag_may_be_global(cfg->insts[i]->inst.form) && !is_fair(t, i, &publishes))
            return false;
    }
    return publishes;
}

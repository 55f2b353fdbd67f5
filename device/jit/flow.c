/* Control flow of a warp.
 *
 * Blocks that all lanes of the warp run together become LLVM blocks with ordinary branches.  Where
 * lanes part, everything up to the place where they meet again (the branch's post-dominator) is
 * laid out in one line, loops in one piece: each block has a word with the lanes that want to run
 * it, is skipped if there are none, and hands its lanes on to its successors' words.  A loop is
 * repeated while its head has takers.  That needs no structure in the PTX, not even reducible
 * loops, and lanes that left a loop wait behind it, so that warp-wide operations there find them
 * together. */
#include <errno.h>
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/form.h"
#include "device/jit/function.h"
#include "device/jit/value.h"
#include "ptx_rewrite/verdict.h"

static LLVMBasicBlockRef new_block(struct tl_emit *e, const char *name)
{
    return LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, name);
}

static void go_to(struct tl_emit *e, LLVMBasicBlockRef to)
{
    LLVMBuildBr(e->b, to);
}

static LLVMValueRef zero32(struct tl_emit *e)
{
    return LLVMConstInt(e->i32, 0, false);
}

/* Where to go for a block that lanes run together; NULL for one that they part in. */
static LLVMBasicBlockRef block_for(struct tl_emit *e, uint32_t block)
{
    struct tl_fn *f = e->f;
    if (block == f->cfg.n_blocks)
        return f->end;
    if (f->bb[block] == NULL && f->mask_slot[block] == NULL) {
        f->bb[block] = new_block(e, "b");
        f->pending[f->n_pending++] = block;
    }
    return f->bb[block];
}

/* --- one instruction -------------------------------------------------------------------------- */

bool tl_dispatch(struct tl_emit *e)
{
    return tl_emit_integer(e) || tl_emit_compare(e) || tl_emit_memory(e) || tl_emit_float(e) ||
           tl_emit_convert(e) || tl_emit_barrier(e) || tl_emit_warp(e) || tl_emit_atomic(e) ||
           tl_emit_call(e) || tl_emit_matrix(e) || tl_emit_texture(e) || tl_emit_bits(e) ||
           tl_emit_stack(e) || tl_emit_mbarrier(e);
}

/* An instruction whose result has known lanes is done once per base, for one lane that has it. */
static bool emit_bases_of(struct tl_emit *e, const struct tl_reg *r)
{
    bool taken = true;
    e->is_scalar = true;
    for (uint32_t g = 0; g < r->n_slots && taken; g++) {
        e->lane = g * (TL_LANES / r->n_slots);
        taken = tl_dispatch(e);
    }
    e->is_scalar = false;
    return taken;
}

/* The instruction for its register, and for that register's shadow if it has one. */
static bool emit_results(struct tl_emit *e)
{
    const struct tl_ptx_operand *to = e->inst->n_operands > 0 ? tl_opd(e, 0) : NULL;
    const struct tl_fn *f = e->f;
    bool is_reg = to != NULL && to->kind == TL_OPD_SYM && to->sym->kind == TL_SYM_REG &&
                  tl_ptx_form_writes(e->inst->inst.form);
    uint32_t shadow = f->now != TL_CFG_NONE ? f->shadow_write[f->now] : TL_CFG_NONE;
    bool taken = true;
    if (shadow != TL_CFG_NONE && f->regs[shadow].bits != 0) {
        e->to_shadow = true; /* first: the register may be one of the operands */
        taken = emit_bases_of(e, &f->regs[shadow]);
        e->to_shadow = false;
    }
    if (is_reg && f->regs[to->sym->id].lanes.is_known)
        return taken && emit_bases_of(e, &f->regs[to->sym->id]);
    return taken && (tl_quick_call(e) || tl_dispatch(e));
}

void tl_emit_inst(struct tl_emit *e, const struct tl_ptx_stmt *s, uint32_t block)
{
    e->inst = s;
    e->inst_block = block;
    e->n_insts++;
    tl_bus_before(e, s);
    LLVMValueRef outer = e->mask;
    struct tl_if guard;
    bool is_scalar_guard = false;
    if (s->inst.guard != NULL) {
        const struct tl_ptx_operand o = {.kind = TL_OPD_SYM, .sym = s->inst.guard};
        struct tl_val p = tl_read(e, &o, 1);
        if (s->guard_not)
            p.v = tl_mask_not(e, p.v);
        is_scalar_guard = !p.is_vec;
        if (is_scalar_guard) {
            tl_if_begin(e, &guard, p.v);
        } else {
            e->mask = outer != NULL ? tl_mask_and(e, outer, p.v) : p.v;
            e->must_blend = true;
        }
    }
    if (e->rc == 0 && !emit_results(e))
        tl_emit_unsupported(e, "unknown to the translator");
    if (is_scalar_guard)
        tl_if_end(e, &guard);
    e->mask = outer;
    e->must_blend = false;
    tl_bus_behind(e, s);
}

static void emit_fatal(struct tl_emit *e, uint32_t block);

/* Everything of a block from instruction `from` but the branch at its end.  False if a barrier ends
 * the segment before. */
static bool emit_body(struct tl_emit *e, uint32_t block, uint32_t from)
{
    const struct tl_ptx_block *k = &e->f->cfg.blocks[block];
    const struct tl_segment *segment = e->f->segment;
    e->block_nesting = e->nesting;
    const uint32_t *order = NULL;
    for (uint32_t n = from, begin = from, until = from; n < k->end && e->rc == 0; n++) {
        if (n == until) {
            begin = n;
            until = tl_stretch_end(e->f, n, k->end);
            order = tl_order_sums(e, begin, until);
        }
        uint32_t i = order != NULL ? order[n - begin] : n;
        const struct tl_ptx_stmt *s = e->f->cfg.insts[i];
        enum tl_ptx_op op = s->inst.form->op;
        bool is_beginning = e->f->is_beginning;
        e->f->is_beginning = false;
        if (segment != NULL && segment->state_of[i] != 0 &&
            !(is_beginning && tl_ptx_barrier_of(s).kind == TL_BARRIER_NONE)) {
            tl_bus_settle(e);
            go_to(e, segment->suspend[segment->state_of[i]]);
            return false;
        }
        if (n != from && tl_begins_piece(e, e->f, i)) {
            LLVMBasicBlockRef piece = new_block(e, "piece");
            go_to(e, piece);
            LLVMPositionBuilderAtEnd(e->b, piece);
        }
        e->f->now = i;
        if (op != TL_OP_bra && op != TL_OP_brx && op != TL_OP_ret && op != TL_OP_exit)
            tl_emit_inst(e, s, block);
        e->f->now = TL_CFG_NONE;
    }
    tl_bus_settle(e);
    if (e->f->cfg.fatal[block] != TL_CFG_NONE && e->rc == 0)
        emit_fatal(e, block);
    return true;
}

/* --- edges ------------------------------------------------------------------------------------ */

/* An indexed branch goes to a successor if its index is that of any of its table's entries for
 * it. */
static struct tl_val index_condition(struct tl_emit *e, uint32_t block, uint32_t n)
{
    const struct tl_ptx_cfg *cfg = &e->f->cfg;
    const struct tl_ptx_block *k = &cfg->blocks[block];
    const struct tl_ptx_stmt *last = cfg->insts[k->end - 1];
    const struct tl_ptx_sym *table = tl_ptx_sym_final(last->inst.operands[1].sym);
    struct tl_val index = tl_read(e, &last->inst.operands[0], 32), any = tl_const(e, 1, 0);
    for (uint32_t i = 0; i < table->stmt->table.n_targets; i++) {
        uint32_t inst = cfg->label_inst[tl_ptx_sym_final(table->stmt->table.targets[i].sym)->id];
        if (cfg->block_of[inst] == k->succs[n])
            any = tl_op(e, LLVMOr, any, tl_icmp(e, LLVMIntEQ, index, tl_const(e, 32, i)));
    }
    if (last->inst.guard != NULL) { /* who does not take part falls through */
        uint32_t next = k->end < cfg->n_insts ? cfg->block_of[k->end] : cfg->n_blocks;
        const struct tl_ptx_operand o = {.kind = TL_OPD_SYM, .sym = last->inst.guard};
        struct tl_val p = tl_read(e, &o, 1), ones = tl_const(e, 1, 1);
        p = last->guard_not != 0 ? tl_op(e, LLVMXor, p, ones) : p;
        any = tl_op(e, LLVMAnd, any, p);
        if (k->succs[n] == next)
            any = tl_op(e, LLVMOr, any, tl_op(e, LLVMXor, p, ones));
    }
    return any;
}

/* The condition (scalar or per lane) under which a block's end takes successor number `n`; v NULL:
 * always. */
static struct tl_val edge_condition(struct tl_emit *e, uint32_t block, uint32_t n)
{
    const struct tl_ptx_block *k = &e->f->cfg.blocks[block];
    const struct tl_ptx_stmt *last = e->f->cfg.insts[k->end - 1];
    struct tl_val none = {NULL, false};
    if (k->n_succs < 2)
        return none;
    if (last->inst.form->op == TL_OP_brx)
        return index_condition(e, block, n);
    if (last->inst.guard == NULL)
        return none; /* the second edge is the one that ends endless loops on paper */
    const struct tl_ptx_operand o = {.kind = TL_OPD_SYM, .sym = last->inst.guard};
    struct tl_val p = tl_read(e, &o, 1);
    if ((n == 0) == (last->guard_not != 0)) /* successor 0 is the branch target */
        p.v = tl_mask_not(e, p.v);
    return p;
}

/* The end of a block whose guarded branch leads some lanes to a failed assertion: they fail here,
 * and the others go on. */
static void emit_fatal(struct tl_emit *e, uint32_t block)
{
    const struct tl_ptx_cfg *cfg = &e->f->cfg;
    const struct tl_ptx_stmt *last = cfg->insts[cfg->blocks[block].end - 1];
    uint32_t fatal = cfg->fatal[block];
    const struct tl_ptx_operand o = {.kind = TL_OPD_SYM, .sym = last->inst.guard};
    bool is_target = cfg->blocks[block].succs[0] == block + 1; /* then the branch goes to `fatal` */
    struct tl_val p = tl_widen(e, tl_read(e, &o, 1));
    if (is_target == (last->guard_not != 0))
        p.v = tl_mask_not(e, p.v);
    LLVMValueRef bits = LLVMBuildAnd(e->b, tl_active_bits(e), tl_mask_bits(e, p.v), ""),
                 was = e->mask;
    struct tl_if i;
    tl_if_begin(e, &i, LLVMBuildICmp(e->b, LLVMIntNE, bits, zero32(e), ""));
    e->mask = tl_mask_of_bits(e, bits);
    for (uint32_t n = cfg->blocks[fatal].first; n < cfg->blocks[fatal].end && e->rc == 0; n++)
        tl_emit_inst(e, cfg->insts[n], fatal);
    e->mask = was;
    tl_if_end(e, &i);
}

/* Lanes that leave the function.  The frame is told, because barriers no longer wait for them. */
static void lanes_exit(struct tl_emit *e, LLVMValueRef bits)
{
    LLVMValueRef exited = LLVMBuildLoad2(e->b, e->i32, e->f->exited_slot, "");
    LLVMBuildStore(e->b, LLVMBuildOr(e->b, exited, bits, ""), e->f->exited_slot);
    if (e->f->pf != e->p->entry)
        return;
    LLVMValueRef index = LLVMBuildZExt(e->b, e->f->warp, e->i64, "");
    index = LLVMBuildAdd(e->b, LLVMBuildMul(e->b, index, LLVMConstInt(e->i64, 4, false), ""),
                         LLVMConstInt(e->i64, offsetof(struct tl_dev_frame, exited), false), "");
    LLVMValueRef word = LLVMBuildGEP2(e->b, e->i8, e->f->frame, &index, 1, "");
    LLVMBuildStore(e->b, LLVMBuildOr(e->b, LLVMBuildLoad2(e->b, e->i32, word, ""), bits, ""), word);
}

bool tl_only_returns(const struct tl_fn *f, uint32_t block)
{
    const struct tl_ptx_block *k = &f->cfg.blocks[block];
    if (block == f->cfg.n_blocks)
        return true;
    const struct tl_ptx_stmt *s = f->cfg.insts[k->first];
    return k->end == k->first + 1 &&
           (s->inst.form->op == TL_OP_ret || s->inst.form->op == TL_OP_exit) &&
           s->inst.guard == NULL;
}

/* An edge to the exit that cfg.c added so that an endless loop has a way out on paper. */
static bool is_endless_edge(const struct tl_fn *f, uint32_t block, uint32_t n)
{
    const struct tl_ptx_block *k = &f->cfg.blocks[block];
    const struct tl_ptx_stmt *last = f->cfg.insts[k->end - 1];
    bool falls_off = k->end == f->cfg.n_insts;
    if (k->succs[n] != f->cfg.n_blocks)
        return false;
    switch (last->inst.form->op) {
    case TL_OP_ret:
    case TL_OP_exit:
    case TL_OP_trap:
    case TL_OP_brx:
        return false;
    case TL_OP_bra:
        return last->inst.guard == NULL || !falls_off;
    default:
        return !falls_off;
    }
}

/* --- where lanes have parted ------------------------------------------------------------------ */

/* Of parted lanes, inside each other: each takes some of the stack, and nobody writes so many. */
enum { MAX_LOOPS = 200 };

struct line {
    uint32_t join;    /* where they meet: left out */
    bool *is_head;    /* per block: edges to it go round a loop */
    bool *is_certain; /* per block: where it is come to, it has takers */
    uint32_t nesting; /* of loops around what is being written */
};

/* One that ends with the function. */
static bool init_line(struct tl_emit *e, struct line *line)
{
    uint32_t n = e->f->cfg.n_blocks;
    *line = (struct line){.join = n};
    line->is_head = tl_arena_zalloc(e->arena, (size_t)n + 1);
    line->is_certain = tl_arena_zalloc(e->arena, (size_t)n + 1);
    return line->is_head != NULL && line->is_certain != NULL;
}

/* Hands the lanes in `bits` on to the successors of `block`. */
static void hand_on(struct tl_emit *e, const struct line *line, uint32_t block, LLVMValueRef bits)
{
    const struct tl_ptx_block *k = &e->f->cfg.blocks[block];
    for (uint32_t n = 0; n < k->n_succs && e->rc == 0; n++) {
        uint32_t to = k->succs[n];
        if (is_endless_edge(e->f, block, n))
            continue;
        struct tl_val c = edge_condition(e, block, n);
        LLVMValueRef taken = bits;
        if (c.v != NULL && c.is_vec)
            taken = LLVMBuildAnd(e->b, bits, tl_mask_bits(e, c.v), "");
        else if (c.v != NULL)
            taken = LLVMBuildSelect(e->b, c.v, bits, zero32(e), "");
        if (tl_only_returns(e->f, to)) {
            lanes_exit(e, taken);
        } else if (to != line->join &&
                   /* else all lanes go there together, another way */
                   e->f->mask_slot[to] != NULL) {
            LLVMValueRef old = LLVMBuildLoad2(e->b, e->i32, e->f->mask_slot[to], "");
            LLVMBuildStore(e->b, LLVMBuildOr(e->b, old, taken, ""), e->f->mask_slot[to]);
        }
    }
}

static LLVMValueRef has_takers(struct tl_emit *e, LLVMValueRef bits)
{
    return LLVMBuildICmp(e->b, LLVMIntNE, bits, zero32(e), "");
}

static void emit_masked_block(struct tl_emit *e, const struct line *line, uint32_t block)
{
    LLVMValueRef wanted = LLVMBuildLoad2(e->b, e->i32, e->f->mask_slot[block], "");
    struct tl_if i;
    if (!line->is_certain[block])
        tl_if_begin(e, &i, has_takers(e, wanted));
    LLVMBuildStore(e->b, zero32(e), e->f->mask_slot[block]);
    e->mask = tl_mask_of_bits(e, wanted);
    emit_body(e, block, e->f->cfg.blocks[block].first);
    hand_on(e, line, block, wanted);
    e->mask = NULL;
    if (!line->is_certain[block])
        tl_if_end(e, &i);
}

/* Tarjan's strongly connected components over some blocks, edges to loop heads left out; found in
 * reverse order. */
struct scc {
    const struct tl_fn *f;
    const struct line *line;
    const bool *is_member;
    uint32_t *number, *low, *stack, *found;
    uint32_t *next; /* per block: the successor to look at next */
    uint32_t *from; /* per block: where the search came from */
    bool *is_on_stack;
    uint32_t counter, depth, n_found;
};

/* Numbers a block and puts it on the stack of those whose component is not known yet. */
static void scc_open(struct scc *s, uint32_t v)
{
    s->number[v] = s->low[v] = ++s->counter;
    s->stack[s->depth++] = v;
    s->is_on_stack[v] = true;
}

/* All successors of `v` have been visited: if it is the first of its component, that is
 * complete. */
static void scc_close(struct scc *s, uint32_t v)
{
    uint32_t w;
    if (s->low[v] != s->number[v])
        return;
    do {
        w = s->stack[--s->depth];
        s->is_on_stack[w] = false;
        s->found[s->n_found++] = w;
    } while (w != v);
    s->found[s->n_found++] = UINT32_MAX; /* end of a component */
}

/* Depth first from `v`.  The way back is kept in `from`, not on the C stack: the blocks are as many
 * as the text wants. */
static void scc_visit(struct scc *s, uint32_t v)
{
    const uint32_t top = UINT32_MAX;
    s->from[v] = top;
    scc_open(s, v);
    while (v != top) {
        const struct tl_ptx_block *k = &s->f->cfg.blocks[v];
        if (s->next[v] == k->n_succs) {
            uint32_t up = s->from[v];
            scc_close(s, v);
            if (up != top && s->low[v] < s->low[up])
                s->low[up] = s->low[v];
            v = up;
            continue;
        }
        uint32_t w = k->succs[s->next[v]++];
        if (w == s->f->cfg.n_blocks || !s->is_member[w] || s->line->is_head[w])
            continue;
        if (s->number[w] == 0) {
            s->from[w] = v;
            scc_open(s, w);
            v = w;
        } else if (s->is_on_stack[w] && s->number[w] < s->low[v]) {
            s->low[v] = s->number[w];
        }
    }
}

static bool has_self_edge(const struct tl_fn *f, const struct line *line, uint32_t block)
{
    for (uint32_t i = 0; i < f->cfg.blocks[block].n_succs; i++) {
        if (f->cfg.blocks[block].succs[i] == block && !line->is_head[block])
            return true;
    }
    return false;
}

static void emit_line(struct tl_emit *e, struct line *line, const uint32_t *blocks, uint32_t n);

/* Whether lanes come into a loop at its head only. */
static bool is_entered_at_head(const struct tl_fn *f, uint32_t head, const uint32_t *members,
                               uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_block *k = &f->cfg.blocks[members[i]];
        for (uint32_t p = 0; p < k->n_preds && members[i] != head; p++) {
            uint32_t at = 0;
            while (at < n && members[at] != k->preds[p])
                at++;
            if (at == n)
                return false;
        }
    }
    return true;
}

/* A loop of lanes: its blocks in a line, again while the head has takers. */
static void emit_masked_loop(struct tl_emit *e, struct line *line, const uint32_t *members,
                             uint32_t n)
{
    uint32_t head = members[0];
    if (++line->nesting > MAX_LOOPS) {
        e->inst = e->f->cfg.insts[e->f->cfg.blocks[head].first];
        tl_emit_unsupported(e, "loops are nested more than 200 deep");
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        if (e->f->cfg.blocks[members[i]].order < e->f->cfg.blocks[head].order)
            head = members[i];
    }
    LLVMBasicBlockRef again = new_block(e, "again"), done = new_block(e, "left");
    line->is_certain[head] = is_entered_at_head(e->f, head, members, n);
    if (line->is_certain[head])
        LLVMBuildCondBr(e->b,
                        has_takers(e, LLVMBuildLoad2(e->b, e->i32, e->f->mask_slot[head], "")),
                        again, done);
    else
        go_to(e, again);
    LLVMPositionBuilderAtEnd(e->b, again);
    line->is_head[head] = true;
    struct tl_fn *f = e->f;
    const uint32_t *outer = f->loop;
    uint32_t n_outer = f->n_loop;
    f->loop = members;
    f->n_loop = n;
    emit_line(e, line, members, n);
    f->loop = outer;
    f->n_loop = n_outer;
    LLVMValueRef left = LLVMBuildLoad2(e->b, e->i32, e->f->mask_slot[head], "");
    LLVMBuildCondBr(e->b, has_takers(e, left), again, done);
    LLVMPositionBuilderAtEnd(e->b, done);
    line->nesting--;
}

/* Lays out blocks where lanes may have parted: in topological order, loops (strongly connected
 * parts) as loops around a line of their own. */
static void emit_line(struct tl_emit *e, struct line *line, const uint32_t *blocks, uint32_t n)
{
    uint32_t total = e->f->cfg.n_blocks + 1;
    uint32_t *words = tl_arena_zalloc(e->arena, (size_t)total * 7 * sizeof *words);
    bool *flags = tl_arena_zalloc(e->arena, (size_t)total * 2);
    if (words == NULL || flags == NULL) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return;
    }
    struct scc s = {.f = e->f,
                    .line = line,
                    .is_member = flags,
                    .is_on_stack = flags + total,
                    .number = words,
                    .low = words + total,
                    .stack = words + 2 * (size_t)total,
                    /* with an end mark behind each: twice as long */
                    .found = words + 3 * (size_t)total,
                    .next = words + 5 * (size_t)total,
                    .from = words + 6 * (size_t)total};
    for (uint32_t i = 0; i < n; i++)
        flags[blocks[i]] = true;
    /* Visiting in reverse post-order keeps unrelated blocks in their order. */
    for (uint32_t i = e->f->cfg.n_order; i-- > 0;) {
        uint32_t v = e->f->cfg.order[i];
        if (flags[v] && s.number[v] == 0)
            scc_visit(&s, v);
    }
    for (uint32_t end = s.n_found; end > 0 && e->rc == 0;) {
        uint32_t begin = --end; /* at an end mark */
        while (begin > 0 && s.found[begin - 1] != UINT32_MAX)
            begin--;
        const uint32_t *members = &s.found[begin];
        uint32_t count = end - begin;
        if (count == 1 && !has_self_edge(e->f, line, members[0]))
            emit_masked_block(e, line, members[0]);
        else
            emit_masked_loop(e, line, members, count);
        end = begin;
    }
}

/* All blocks of a line, from where lanes part. */
static void emit_whole_line(struct tl_emit *e, struct line *line, const uint32_t *blocks,
                            uint32_t n)
{
    struct tl_fn *f = e->f;
    f->line = blocks;
    f->n_line = n;
    f->join = line->join;
    f->absent = tl_arena_zalloc(e->arena, ((size_t)f->cfg.n_blocks + 1) * sizeof *f->absent);
    emit_line(e, line, blocks, n);
}

/* The parted blocks that can be reached from `block` through parted ones only, and the one block
 * where they lead back to where lanes are together (the exit if there is none).  false if there are
 * several such. */
static bool gather_parted(struct tl_emit *e, uint32_t block, uint32_t *members, uint32_t *n,
                          uint32_t *join, bool *is_member)
{
    const struct tl_fn *f = e->f;
    bool is_unique = true;
    uint32_t done = 0, exit = f->cfg.n_blocks;
    *n = 0;
    *join = exit;
    memset(is_member, 0, (size_t)exit + 1);
    const struct tl_ptx_block *k = &f->cfg.blocks[block];
    for (;;) {
        for (uint32_t i = 0; i < k->n_succs; i++) {
            uint32_t to = k->succs[i];
            if (to == exit || is_member[to])
                continue;
            if (f->mask_slot[to] != NULL) {
                is_member[to] = true;
                members[(*n)++] = to;
            } else if (k != &f->cfg.blocks[block] || f->d.branch[block] == TL_LEVEL_LANE) {
                is_unique &= *join == exit || *join == to;
                *join = to;
            }
        }
        if (done == *n)
            return is_unique;
        k = &f->cfg.blocks[members[done++]];
    }
}

/* From where lanes part (or enter what they part in) to where they meet again. */
static void emit_parted(struct tl_emit *e, uint32_t block, LLVMValueRef bits)
{
    struct tl_fn *f = e->f;
    uint32_t n_blocks = f->cfg.n_blocks, n = 0;
    uint32_t *members = tl_arena_alloc(e->arena, ((size_t)n_blocks + 2) * sizeof *members);
    bool *is_member = tl_arena_alloc(e->arena, (size_t)n_blocks + 1);
    struct line line;
    if (members == NULL || is_member == NULL || !init_line(e, &line)) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return;
    }
    gather_parted(e, block, members, &n, &line.join, is_member);
    hand_on(e, &line, block, bits);
    emit_whole_line(e, &line, members, n);
    go_to(e, block_for(e, line.join));
}

/* The whole function as one line. */
static void emit_all_parted(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    struct line line;
    if (!init_line(e, &line)) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return;
    }
    LLVMBuildStore(e->b, tl_mask_bits(e, f->entry_mask), f->mask_slot[0]);
    emit_whole_line(e, &line, f->cfg.order, f->cfg.n_order);
    go_to(e, f->end);
}

/* --- where they are together ------------------------------------------------------------------ */

/* A block that all lanes of the warp run together, and the ways out of it. */
static void emit_joint_block(struct tl_emit *e, uint32_t block, uint32_t from)
{
    struct tl_fn *f = e->f;
    const struct tl_ptx_block *k = &f->cfg.blocks[block];
    e->mask = f->entry_mask;
    if (!emit_body(e, block, from) || e->rc != 0)
        return;
    e->inst = f->cfg.insts[k->end - 1];
    if (f->d.branch[block] == TL_LEVEL_LANE) {
        emit_parted(e, block, tl_mask_bits(e, f->entry_mask));
        return;
    }
    LLVMBasicBlockRef parted = NULL;
    for (uint32_t i = 0; i < k->n_succs && e->rc == 0; i++) {
        LLVMBasicBlockRef to = block_for(e, k->succs[i]);
        if (to == NULL) /* all lanes together enter a loop in which they part */
            to = parted = parted != NULL ? parted : new_block(e, "parted");
        struct tl_val c = edge_condition(e, block, i);
        bool is_last = c.v == NULL || i + 1 == k->n_succs || is_endless_edge(f, block, i + 1);
        if (is_last) {
            go_to(e, to);
            break;
        }
        LLVMBasicBlockRef other = new_block(e, "other");
        LLVMBuildCondBr(e->b, c.v, to, other);
        LLVMPositionBuilderAtEnd(e->b, other);
    }
    if (parted == NULL)
        return;
    LLVMPositionBuilderAtEnd(e->b, parted);
    emit_parted(e, block, tl_mask_bits(e, f->entry_mask));
}

static void begin_segment(struct tl_emit *e)
{
    uint32_t first = e->f->segment->first;
    e->f->is_beginning = true;
    emit_joint_block(e, e->f->cfg.block_of[first], first);
}

/* Whether parted blocks always lead back to one place: else everything is laid out as parted. */
static bool can_be_together(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    uint32_t n, join;
    uint32_t *members = tl_arena_alloc(e->arena, ((size_t)f->cfg.n_blocks + 2) * sizeof *members);
    bool *is_member = tl_arena_alloc(e->arena, (size_t)f->cfg.n_blocks + 1);
    if (members == NULL || is_member == NULL) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return true;
    }
    for (uint32_t i = 0; i < f->cfg.n_order; i++) {
        uint32_t b = f->cfg.order[i];
        if (f->mask_slot[b] == NULL && !gather_parted(e, b, members, &n, &join, is_member))
            return false;
    }
    return true;
}

/* --- whole functions
 * --------------------------------------------------------------------------- */

/* Most blocks are of other segments: what was made for them in vain costs LLVM more to remove than
 * us. */
static void remove_unused_masks(const struct tl_fn *f)
{
    for (uint32_t b = 0; b < f->cfg.n_blocks; b++) {
        LLVMUseRef first = f->mask_slot[b] != NULL ? LLVMGetFirstUse(f->mask_slot[b]) : NULL;
        if (first == NULL || LLVMGetNextUse(first) != NULL)
            continue;
        LLVMInstructionEraseFromParent(LLVMGetUser(first)); /* the store of zero */
        LLVMInstructionEraseFromParent(f->mask_slot[b]);
        f->mask_slot[b] = NULL;
    }
}

/* What the registers of the function are; memory for each is made where it is first used. */
static void type_registers(struct tl_emit *e, struct tl_fn *f)
{
    for (uint32_t i = 0; i < f->n_regs; i++) {
        struct tl_reg *r = &f->regs[i];
        if (r->bits == 0)
            /* declared and never used */
            continue;
        /* shadows have known lanes */
        r->is_vec = !r->lanes.is_known && f->d.reg[i] == TL_LEVEL_LANE;
        r->keeps_lanes |= r->is_opaque;
        memset(r->value, 0, sizeof r->value);
        r->type = r->is_vec ? tl_vec(tl_int(e, r->bits)) : tl_int(e, r->bits);
        r->n_slots = r->lanes.is_known ? tl_n_bases(e, &r->lanes) : r->vec > 1 ? r->vec : 1;
    }
}

/* Everything of a function from its first alloca to its return.  Registers must have been
 * analysed. 0 or -errno. */
int tl_emit_function(struct tl_emit *e, struct tl_fn *f)
{
    const struct tl_ptx_cfg *cfg = &f->cfg;
    e->f = f;
    if (f->allocas == NULL)
        f->allocas = new_block(e, "allocas");
    f->end = new_block(e, "end");
    f->bb = tl_arena_zalloc(e->arena, ((size_t)cfg->n_blocks + 1) * sizeof(LLVMBasicBlockRef));
    f->mask_slot = tl_arena_zalloc(e->arena, ((size_t)cfg->n_blocks + 1) * sizeof(LLVMValueRef));
    f->pending = tl_arena_alloc(e->arena, ((size_t)cfg->n_blocks + 1) * sizeof *f->pending);
    if (f->bb == NULL || f->mask_slot == NULL || f->pending == NULL)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    type_registers(e, f);
    f->exited_slot = tl_alloca(e, e->i32, "exited");
    f->carry_slot = tl_alloca(e, tl_vec(e->i1), "carry");
    f->start = new_block(e, "start");
    LLVMPositionBuilderAtEnd(e->b, f->start);
    if (f->lane_param != NULL) {
        LLVMValueRef lane = LLVMBuildLShr(e->b, f->lane_param, LLVMConstInt(e->i32, 16, false), "");
        f->warp = LLVMBuildAnd(e->b, f->lane_param, LLVMConstInt(e->i32, 0xffff, false), "");
        f->entry_mask = tl_mask_of_bits(
            e, LLVMBuildShl(e->b, LLVMConstInt(e->i32, 1, false), lane, ""));
    }
    if (f->mask_param != NULL)
        f->entry_mask = tl_mask_of_bits(e, f->mask_param);
    LLVMBuildStore(e->b, LLVMBuildNot(e->b, tl_mask_bits(e, f->entry_mask), ""), f->exited_slot);
    tl_enter_function(e);
    /* Lanes that part in a loop around the first block leave no block where they are together. */
    bool all_parted = cfg->n_blocks > 0 && f->d.block[0] == TL_LEVEL_LANE;
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (f->d.block[b] == TL_LEVEL_LANE)
            f->mask_slot[b] = tl_alloca(e, e->i32, "lanes");
    }
    all_parted = all_parted || !can_be_together(e);
    for (uint32_t b = 0; b < cfg->n_blocks; b++) {
        if (all_parted && f->mask_slot[b] == NULL)
            f->mask_slot[b] = tl_alloca(e, e->i32, "lanes");
        if (f->mask_slot[b] != NULL)
            LLVMBuildStore(e->b, zero32(e), f->mask_slot[b]);
    }
    if (all_parted)
        emit_all_parted(e);
    else if (f->segment != NULL)
        begin_segment(e);
    else
        go_to(e, block_for(e, 0));
    for (uint32_t i = 0; i < f->n_pending && e->rc == 0; i++) {
        LLVMPositionBuilderAtEnd(e->b, f->bb[f->pending[i]]);
        emit_joint_block(e, f->pending[i], cfg->blocks[f->pending[i]].first);
    }
    if (e->rc == 0)
        remove_unused_masks(f);
    if (f->segment != NULL || f->is_body)
        return e->rc; /* how it is entered and left is its maker's */
    LLVMPositionBuilderAtEnd(e->b, f->allocas);
    go_to(e, f->start);
    LLVMPositionBuilderAtEnd(e->b, f->end);
    tl_leave_function(e);
    LLVMBuildRetVoid(e->b);
    return e->rc;
}

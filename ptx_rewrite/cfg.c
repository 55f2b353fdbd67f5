/* Control flow: see cfg.h.  Dominators by the iterative scheme of Cooper, Harvey and Kennedy. */
#include "ptx_rewrite/cfg.h"

#include <errno.h>
#include <string.h>

/* --- instructions in order -------------------------------------------------------------------- */

struct builder {
    struct tl_ptx_cfg *cfg;
    struct tl_arena *arena;
    bool *starts_block; /* per instruction, and one behind the last */
};

/* Flattens nested blocks; the parser bounds their depth. */
static void flatten(struct builder *b, struct tl_ptx_stmt *s)
{
    for (; s != NULL; s = s->next) {
        if (s->kind == TL_STMT_INST)
            b->cfg->insts[b->cfg->n_insts++] = s;
        else if (s->kind == TL_STMT_LABEL)
            b->cfg->label_inst[s->label->id] = b->cfg->n_insts;
        else if (s->kind == TL_STMT_BLOCK)
            flatten(b, s->block);
    }
}

static bool ends_path(const struct tl_ptx_stmt *s)
{
    enum tl_ptx_op op = s->inst.form->op;
    return op == TL_OP_ret || op == TL_OP_exit || op == TL_OP_trap;
}

static bool ends_block(const struct tl_ptx_stmt *s)
{
    enum tl_ptx_op op = s->inst.form->op;
    return op == TL_OP_bra || op == TL_OP_brx || ends_path(s);
}

/* The labels that a branch may go to: its operand, or the entries of its table.  0 if they are not
 * known. */
static uint32_t branch_targets(const struct tl_ptx_stmt *s, const struct tl_ptx_operand **targets)
{
    const struct tl_ptx_operand *o = s->inst.operands;
    if (s->inst.form->op == TL_OP_bra && s->n_operands == 1 && o[0].kind == TL_OPD_SYM) {
        *targets = o;
        return 1;
    }
    if (s->inst.form->op != TL_OP_brx || s->n_operands != 2 || o[1].kind != TL_OPD_SYM)
        return 0;
    const struct tl_ptx_sym *table = tl_ptx_sym_final(o[1].sym);
    if (table->kind != TL_SYM_TABLE || table->stmt->table.n_targets == 0)
        return 0;
    *targets = table->stmt->table.targets;
    return table->stmt->table.n_targets;
}

/* The instruction that a target operand stands for, or TL_CFG_NONE. */
static uint32_t target_inst(const struct builder *b, const struct tl_ptx_operand *o)
{
    if (o->kind != TL_OPD_SYM)
        return TL_CFG_NONE;
    const struct tl_ptx_sym *label = tl_ptx_sym_final(o->sym);
    return label->kind == TL_SYM_LABEL ? b->cfg->label_inst[label->id] : TL_CFG_NONE;
}

/* --- blocks and edges ------------------------------------------------------------------------- */

/* Cuts the instructions into blocks: one begins where a branch leads, and behind each. */
static int find_blocks(struct builder *b)
{
    struct tl_ptx_cfg *cfg = b->cfg;
    uint32_t n = cfg->n_insts;
    b->starts_block = tl_arena_zalloc(b->arena, (size_t)n + 1);
    /* behind the last: the exit */
    cfg->block_of = tl_arena_alloc(b->arena, ((size_t)n + 1) * sizeof *cfg->block_of);
    if (b->starts_block == NULL || cfg->block_of == NULL)
        return -ENOMEM;
    b->starts_block[0] = true;
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        if (!ends_block(s))
            continue;
        b->starts_block[i + 1] = true;
        const struct tl_ptx_operand *targets;
        uint32_t n_targets = branch_targets(s, &targets);
        for (uint32_t t = 0; t < n_targets; t++) {
            uint32_t target = target_inst(b, &targets[t]);
            if (target != TL_CFG_NONE)
                b->starts_block[target] = true;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        cfg->n_blocks += b->starts_block[i];
    cfg->blocks = tl_arena_zalloc(b->arena, ((size_t)cfg->n_blocks + 1) * sizeof *cfg->blocks);
    if (cfg->blocks == NULL)
        return -ENOMEM;
    uint32_t block = TL_CFG_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (b->starts_block[i])
            cfg->blocks[++block].first = i;
        b->cfg->block_of[i] = block;
        cfg->blocks[block].end = i + 1;
    }
    b->cfg->block_of[n] = cfg->n_blocks;
    return 0;
}

static void add_edge(struct tl_ptx_block *from, uint32_t to)
{
    for (uint32_t i = 0; i < from->n_succs; i++) {
        if (from->succs[i] == to)
            return;
    }
    from->succs[from->n_succs++] = to;
}

static int find_successors(struct builder *b, uint32_t block)
{
    struct tl_ptx_cfg *cfg = b->cfg;
    struct tl_ptx_block *k = &cfg->blocks[block];
    const struct tl_ptx_stmt *last = cfg->insts[k->end - 1];
    const struct tl_ptx_operand *targets = NULL;
    bool is_branch = last->inst.form->op == TL_OP_bra || last->inst.form->op == TL_OP_brx;
    uint32_t n_targets = is_branch ? branch_targets(last, &targets) : 0;
    k->succs = tl_arena_alloc(b->arena, ((size_t)n_targets + 2) * sizeof *k->succs);
    if (k->succs == NULL)
        return -ENOMEM;
    for (uint32_t t = 0; t < n_targets; t++) {
        uint32_t target = target_inst(b, &targets[t]);
        if (target != TL_CFG_NONE)
            add_edge(k, b->cfg->block_of[target]);
        else
            n_targets = 0;
    }
    if (is_branch && n_targets == 0) {
        cfg->unknown_branch = last;
        add_edge(k, cfg->n_blocks);
    }
    if (ends_path(last))
        add_edge(k, cfg->n_blocks);
    if (!ends_block(last) || last->inst.guard != NULL)
        add_edge(k, b->cfg->block_of[k->end]);
    return 0;
}

/* A block that reports a failed assertion, with values that are the same for all threads, and
 * traps. */
static bool is_fatal(const struct tl_ptx_cfg *cfg, uint32_t block)
{
    if (block == cfg->n_blocks)
        return false;
    const struct tl_ptx_block *k = &cfg->blocks[block];
    for (uint32_t i = k->first; i < k->end; i++) {
        const struct tl_ptx_stmt *s = cfg->insts[i];
        enum tl_ptx_op op = s->inst.form->op;
        struct tl_ptx_call call;
        if (s->inst.guard != NULL)
            return false;
        if (op == TL_OP_trap)
            return i + 1 == k->end;
        if (op == TL_OP_call &&
            (!tl_ptx_inst_call(s, &call) || !tl_str_is(call.callee->sym->name, "__assertfail")))
            return false;
        bool is_param = op == TL_OP_ld && tl_ptx_form_space(s->inst.form) == TL_MOD_param;
        if (op != TL_OP_call && op != TL_OP_mov && op != TL_OP_cvta && op != TL_OP_st && !is_param)
            return false;
    }
    return false;
}

static int cut_fatal_edges(struct builder *b)
{
    struct tl_ptx_cfg *cfg = b->cfg;
    cfg->fatal = tl_arena_alloc(b->arena, ((size_t)cfg->n_blocks + 1) * sizeof *cfg->fatal);
    if (cfg->fatal == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < cfg->n_blocks; i++) {
        struct tl_ptx_block *k = &cfg->blocks[i];
        const struct tl_ptx_stmt *last = cfg->insts[k->end - 1];
        cfg->fatal[i] = TL_CFG_NONE;
        if (k->n_succs != 2 || last->inst.form->op != TL_OP_bra || last->inst.guard == NULL)
            continue;
        for (uint32_t e = 0; e < 2 && cfg->fatal[i] == TL_CFG_NONE; e++) {
            if (is_fatal(cfg, k->succs[e]) && !is_fatal(cfg, k->succs[1 - e])) {
                cfg->fatal[i] = k->succs[e];
                k->succs[0] = k->succs[1 - e];
                k->n_succs = 1;
            }
        }
    }
    return 0;
}

static int find_predecessors(struct builder *b)
{
    struct tl_ptx_cfg *cfg = b->cfg;
    for (uint32_t i = 0; i < cfg->n_blocks; i++) {
        for (uint32_t e = 0; e < cfg->blocks[i].n_succs; e++)
            cfg->blocks[cfg->blocks[i].succs[e]].n_preds++;
    }
    for (uint32_t i = 0; i <= cfg->n_blocks; i++) {
        struct tl_ptx_block *k = &cfg->blocks[i];
        /* endless paths may join the exit */
        uint32_t room = i == cfg->n_blocks ? cfg->n_blocks : k->n_preds;
        k->preds = tl_arena_alloc(b->arena, ((size_t)room + 1) * sizeof *k->preds);
        if (k->preds == NULL)
            return -ENOMEM;
        k->n_preds = 0;
    }
    for (uint32_t i = 0; i < cfg->n_blocks; i++) {
        for (uint32_t e = 0; e < cfg->blocks[i].n_succs; e++) {
            struct tl_ptx_block *to = &cfg->blocks[cfg->blocks[i].succs[e]];
            to->preds[to->n_preds++] = i;
        }
    }
    return 0;
}

/* --- dominators ------------------------------------------------------------------------------- */

/* Depth-first order over an edge set, without recursion.  `edges` gives the n-th edge of a node or
 * TL_CFG_NONE. */
struct walk {
    const struct tl_ptx_cfg *cfg;
    bool backwards;
};

static uint32_t edge(const struct walk *w, uint32_t node, uint32_t n)
{
    const struct tl_ptx_block *k = &w->cfg->blocks[node];
    if (w->backwards)
        return n < k->n_preds ? k->preds[n] : TL_CFG_NONE;
    return n < k->n_succs ? k->succs[n] : TL_CFG_NONE;
}

/* Post-order numbers from `root`; returns how many nodes were reached.  list[number] = node. */
static uint32_t post_order(const struct walk *w, uint32_t root, uint32_t first, uint32_t *number,
                           uint32_t *list, uint32_t *stack, uint32_t *at)
{
    uint32_t depth = 0, n = first;
    number[root] = TL_CFG_NONE - 1; /* seen */
    stack[depth] = root;
    at[depth++] = 0;
    while (depth > 0) {
        uint32_t node = stack[depth - 1], next = edge(w, node, at[depth - 1]++);
        if (next == TL_CFG_NONE) {
            number[node] = n;
            list[n++] = node;
            depth--;
        } else if (number[next] == TL_CFG_NONE) {
            number[next] = TL_CFG_NONE - 1;
            stack[depth] = next;
            at[depth++] = 0;
        }
    }
    return n;
}

static uint32_t intersect(const uint32_t *dom, const uint32_t *number, uint32_t a, uint32_t b)
{
    while (a != b) {
        while (number[a] < number[b])
            a = dom[a];
        while (number[b] < number[a])
            b = dom[b];
    }
    return a;
}

/* Immediate dominators of a graph given post-order numbers; dom[root] = root. */
static void solve(const struct walk *reverse, uint32_t root, uint32_t n, const uint32_t *number,
                  const uint32_t *list, uint32_t *dom)
{
    dom[root] = root;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = n; i-- > 0;) {
            uint32_t node = list[i], best = TL_CFG_NONE, p;
            if (node == root)
                continue;
            for (uint32_t e = 0; (p = edge(reverse, node, e)) != TL_CFG_NONE; e++) {
                if (number[p] == TL_CFG_NONE || dom[p] == TL_CFG_NONE)
                    continue;
                best = best == TL_CFG_NONE ? p : intersect(dom, number, p, best);
            }
            if (best != TL_CFG_NONE && dom[node] != best) {
                dom[node] = best;
                changed = true;
            }
        }
    }
}

/* Blocks from which the exit cannot be reached (endless loops) get an edge to it, the innermost
 * first, so that every reachable block has a post-dominator.  There is room for the edges: see
 * find_successors and find_predecessors. */
static void join_endless_paths(struct tl_ptx_cfg *cfg, uint32_t *leaves, uint32_t *stack)
{
    struct tl_ptx_block *exit = &cfg->blocks[cfg->n_blocks];
    memset(leaves, 0, (cfg->n_blocks + 1) * sizeof *leaves);
    uint32_t depth = 0, next = cfg->n_order;
    stack[depth++] = cfg->n_blocks;
    leaves[cfg->n_blocks] = true;
    for (;;) {
        while (depth > 0) {
            const struct tl_ptx_block *k = &cfg->blocks[stack[--depth]];
            for (uint32_t i = 0; i < k->n_preds; i++) {
                if (!leaves[k->preds[i]]) {
                    leaves[k->preds[i]] = true;
                    stack[depth++] = k->preds[i];
                }
            }
        }
        while (next > 0 && leaves[cfg->order[next - 1]])
            next--;
        if (next == 0)
            return;
        uint32_t block = cfg->order[next - 1];
        cfg->blocks[block].succs[cfg->blocks[block].n_succs++] = cfg->n_blocks;
        exit->preds[exit->n_preds++] = block;
        leaves[block] = true;
        stack[depth++] = block;
    }
}

/* Dominators, post-dominators and the order in which blocks are best visited. */
static int find_dominators(struct builder *b)
{
    struct tl_ptx_cfg *cfg = b->cfg;
    uint32_t n = cfg->n_blocks + 1;
    uint32_t *scratch = tl_arena_alloc(b->arena, (size_t)n * 5 * sizeof *scratch);
    cfg->order = tl_arena_alloc(b->arena, n * sizeof *cfg->order);
    if (scratch == NULL || cfg->order == NULL)
        return -ENOMEM;
    uint32_t *number = scratch, *list = scratch + n, *stack = scratch + 2 * (size_t)n,
             *at = scratch + 3 * (size_t)n, *dom = scratch + 4 * (size_t)n;
    struct walk forward = {cfg, false}, backward = {cfg, true};

    memset(number, 0xff, n * sizeof *number);
    memset(dom, 0xff, n * sizeof *dom);
    uint32_t reached = post_order(&forward, 0, 0, number, list, stack, at);
    solve(&backward, 0, reached, number, list, dom);
    for (uint32_t i = 0; i < cfg->n_blocks; i++) {
        cfg->blocks[i].idom = i == 0 ? TL_CFG_NONE : dom[i];
        cfg->blocks[i].order = number[i] == TL_CFG_NONE ? TL_CFG_NONE : reached - 1 - number[i];
    }
    for (uint32_t i = reached; i-- > 0;) {
        if (list[i] != cfg->n_blocks)
            cfg->order[cfg->n_order++] = list[i];
    }

    join_endless_paths(cfg, list, stack);
    memset(number, 0xff, n * sizeof *number);
    uint32_t done = post_order(&backward, cfg->n_blocks, 0, number, list, stack, at);
    memset(dom, 0xff, n * sizeof *dom);
    solve(&forward, cfg->n_blocks, done, number, list, dom);
    for (uint32_t i = 0; i < cfg->n_blocks; i++)
        cfg->blocks[i].ipdom = dom[i] == TL_CFG_NONE ? cfg->n_blocks : dom[i];
    return 0;
}

static int build(struct tl_ptx_cfg *cfg, struct tl_arena *arena, const struct tl_ptx_func *f,
                 bool cuts)
{
    *cfg = (struct tl_ptx_cfg){.func = f};
    struct builder b = {.cfg = cfg, .arena = arena};
    cfg->insts = tl_arena_alloc(arena, ((size_t)f->n_insts + 1) * sizeof(struct tl_ptx_stmt *));
    cfg->label_inst = tl_arena_alloc(arena, ((size_t)f->n_labels + 1) * sizeof *cfg->label_inst);
    if (cfg->insts == NULL || cfg->label_inst == NULL)
        return -ENOMEM;
    memset(cfg->label_inst, 0xff, ((size_t)f->n_labels + 1) * sizeof *cfg->label_inst);
    flatten(&b, f->body);
    int rc = find_blocks(&b);
    for (uint32_t i = 0; rc == 0 && i < cfg->n_blocks; i++)
        rc = find_successors(&b, i);
    if (rc == 0 && cuts)
        rc = cut_fatal_edges(&b);
    if (rc == 0)
        rc = find_predecessors(&b);
    if (rc == 0 && cfg->n_blocks > 0)
        rc = find_dominators(&b);
    return rc;
}

int tl_ptx_cfg_build(struct tl_ptx_cfg *cfg, struct tl_arena *arena, const struct tl_ptx_func *f)
{
    return build(cfg, arena, f, false);
}

int tl_ptx_cfg_build_cut(struct tl_ptx_cfg *cfg, struct tl_arena *arena,
                         const struct tl_ptx_func *f)
{
    return build(cfg, arena, f, true);
}

/* --- questions -------------------------------------------------------------------------------- */

bool tl_ptx_cfg_dominates(const struct tl_ptx_cfg *cfg, uint32_t a, uint32_t b)
{
    while (b != a && b != TL_CFG_NONE && cfg->blocks[b].idom != b)
        b = cfg->blocks[b].idom;
    return a == b;
}

const struct tl_ptx_stmt *tl_ptx_cfg_last(const struct tl_ptx_cfg *cfg, uint32_t block)
{
    const struct tl_ptx_block *k = &cfg->blocks[block];
    return block < cfg->n_blocks && k->end > k->first ? cfg->insts[k->end - 1] : NULL;
}

bool tl_ptx_cfg_is_branch(const struct tl_ptx_cfg *cfg, uint32_t block)
{
    return block < cfg->n_blocks && cfg->blocks[block].n_succs > 1;
}

int tl_ptx_set_init(struct tl_ptx_set *s, struct tl_arena *arena, const struct tl_ptx_cfg *cfg)
{
    s->words = (cfg->n_blocks + 64) / 64;
    s->bits = tl_arena_zalloc(arena, s->words * sizeof *s->bits);
    return s->bits != NULL ? 0 : -ENOMEM;
}

void tl_ptx_set_clear(struct tl_ptx_set *s)
{
    memset(s->bits, 0, s->words * sizeof *s->bits);
}

void tl_ptx_cfg_region(const struct tl_ptx_cfg *cfg, uint32_t from, uint32_t until,
                       struct tl_ptx_set *region, uint32_t *stack)
{
    uint32_t depth = 0;
    stack[depth++] = from;
    bool first = true;
    while (depth > 0) {
        const struct tl_ptx_block *k = &cfg->blocks[stack[--depth]];
        for (uint32_t i = 0; i < k->n_succs; i++) {
            uint32_t to = k->succs[i];
            if (to == until || to == cfg->n_blocks || tl_ptx_set_has(region, to))
                continue;
            tl_ptx_set_add(region, to);
            if (to != from || first)
                stack[depth++] = to;
        }
        first = false;
    }
}

/* Adds everything from which `from` can be reached without passing `head`. */
static void flood_back(const struct tl_ptx_cfg *cfg, uint32_t head, uint32_t from,
                       struct tl_ptx_set *loop, uint32_t *stack)
{
    uint32_t depth = 0;
    tl_ptx_set_add(loop, head);
    if (tl_ptx_set_has(loop, from))
        return;
    tl_ptx_set_add(loop, from);
    stack[depth++] = from;
    while (depth > 0) {
        const struct tl_ptx_block *k = &cfg->blocks[stack[--depth]];
        for (uint32_t i = 0; i < k->n_preds; i++) {
            uint32_t p = k->preds[i];
            if (!tl_ptx_set_has(loop, p) && cfg->blocks[p].order != TL_CFG_NONE) {
                tl_ptx_set_add(loop, p);
                stack[depth++] = p;
            }
        }
    }
}

bool tl_ptx_cfg_loop_by(const struct tl_ptx_cfg *cfg, uint32_t head, uint32_t tail,
                        struct tl_ptx_set *loop, struct tl_ptx_set *scratch, uint32_t *stack)
{
    const struct tl_ptx_block *h = &cfg->blocks[head];
    bool found = false, is_natural = true;
    for (uint32_t e = 0; e < h->n_preds; e++) {
        uint32_t from = h->preds[e];
        if ((tail != TL_CFG_NONE && from != tail) || cfg->blocks[from].order == TL_CFG_NONE ||
            cfg->blocks[from].order < h->order)
            continue;
        if (!found)
            tl_ptx_set_clear(loop);
        found = true;
        is_natural &= tl_ptx_cfg_dominates(cfg, head, from);
        flood_back(cfg, head, from, loop, stack);
    }
    if (found && !is_natural) {
        /* Going back did not stop at the head: keep what can also be reached from it. */
        tl_ptx_set_clear(scratch);
        tl_ptx_cfg_region(cfg, head, TL_CFG_NONE, scratch, stack);
        tl_ptx_set_add(scratch, head);
        for (uint32_t i = 0; i < loop->words; i++)
            loop->bits[i] &= scratch->bits[i];
    }
    return found;
}

bool tl_ptx_cfg_loop(const struct tl_ptx_cfg *cfg, uint32_t head, struct tl_ptx_set *loop,
                     struct tl_ptx_set *scratch, uint32_t *stack)
{
    return tl_ptx_cfg_loop_by(cfg, head, TL_CFG_NONE, loop, scratch, stack);
}

/* --- registers read and written --------------------------------------------------------------- */

static void visit_regs(const struct tl_ptx_operand *o, tl_ptx_reg_visitor visit, void *data)
{
    switch ((enum tl_ptx_operand_kind)o->kind) {
    case TL_OPD_SYM:
        if (o->sym->kind == TL_SYM_REG)
            visit(data, o->sym);
        break;
    case TL_OPD_VEC:
    case TL_OPD_LIST:
    case TL_OPD_PAIR:
    case TL_OPD_ADDR:
        for (uint32_t i = 0; i < o->n; i++)
            visit_regs(&o->elems[i], visit, data);
        break;
    default:
        break;
    }
}

void tl_ptx_inst_writes(const struct tl_ptx_stmt *s, tl_ptx_reg_visitor visit, void *data)
{
    struct tl_ptx_call call;
    if (s->inst.form->op == TL_OP_call) {
        if (tl_ptx_inst_call(s, &call) && call.rets != NULL)
            visit_regs(call.rets, visit, data);
    } else if (s->n_operands > 0 && tl_ptx_form_writes(s->inst.form) &&
               s->inst.operands[0].kind != TL_OPD_ADDR) {
        visit_regs(&s->inst.operands[0], visit, data);
    }
}

void tl_ptx_inst_reads(const struct tl_ptx_stmt *s, tl_ptx_reg_visitor visit, void *data)
{
    if (s->inst.guard != NULL)
        visit(data, s->inst.guard);
    uint32_t first = 0;
    if (s->n_operands > 0 && tl_ptx_form_writes(s->inst.form) &&
        s->inst.operands[0].kind != TL_OPD_ADDR)
        first = s->inst.form->op == TL_OP_wgmma ? 0 : 1; /* wgmma adds to its destination */
    else if (s->inst.form->op == TL_OP_call && s->n_operands > 0 &&
             s->inst.operands[0].kind == TL_OPD_LIST)
        first = 1;
    for (uint32_t i = first; i < s->n_operands; i++)
        visit_regs(&s->inst.operands[i], visit, data);
}

/* Control flow of one function: its instructions in order, basic blocks, dominators both ways,
 * regions.
 *
 * All arrays live in the unit's arena.  Block n_blocks is the virtual exit that every `ret`, `exit`
 * and endless path leads to; it has no instructions. */
#ifndef TALLY_PTX_CFG_H
#define TALLY_PTX_CFG_H

#include "ptx_rewrite/ast.h"

#define TL_CFG_NONE UINT32_MAX

struct tl_ptx_block {
    uint32_t first, end;     /* instructions [first, end) */
    uint32_t *succs, *preds; /* block numbers; the virtual exit only in succs */
    uint32_t n_succs, n_preds;
    uint32_t idom; /* immediate dominator, TL_CFG_NONE for the entry and for unreachable blocks */
    /* immediate post-dominator; the virtual exit for blocks that only it dominates */
    uint32_t ipdom;
    uint32_t order; /* number in reverse post-order; TL_CFG_NONE if unreachable */
};

struct tl_ptx_cfg {
    const struct tl_ptx_func *func;
    struct tl_ptx_stmt **insts;
    uint32_t n_insts;
    uint32_t *block_of;          /* per instruction */
    struct tl_ptx_block *blocks; /* n_blocks, and one more for the virtual exit's predecessors */
    uint32_t n_blocks;
    uint32_t *order; /* reachable blocks in reverse post-order */
    uint32_t n_order;
    /* label id -> number of the instruction it stands before; TL_CFG_NONE if undefined */
    uint32_t *label_inst;
    uint32_t *fatal; /* per block, after tl_ptx_cfg_build_cut: see there; else NULL */
    /* an indexed branch without a usable table, or NULL */
    const struct tl_ptx_stmt *unknown_branch;
};

/* 0 or -ENOMEM.  Requires a parsed body. */
int tl_ptx_cfg_build(struct tl_ptx_cfg *cfg, struct tl_arena *arena, const struct tl_ptx_func *f);
/* The same, but a guarded branch to a block that only reports a failed assertion and traps is no
 * edge: cfg->fatal[block] names that block (TL_CFG_NONE: none).  Whoever runs this graph goes there
 * if any thread's guard says so; since that ends the grid, threads that stay need no path of their
 * own. */
int tl_ptx_cfg_build_cut(struct tl_ptx_cfg *cfg, struct tl_arena *arena,
                         const struct tl_ptx_func *f);

bool tl_ptx_cfg_dominates(const struct tl_ptx_cfg *cfg, uint32_t a, uint32_t b);
/* The last instruction of a block, or NULL if it is empty. */
const struct tl_ptx_stmt *tl_ptx_cfg_last(const struct tl_ptx_cfg *cfg, uint32_t block);
/* Whether control may leave a block in more than one way. */
bool tl_ptx_cfg_is_branch(const struct tl_ptx_cfg *cfg, uint32_t block);

/* A set of blocks. */
struct tl_ptx_set {
    uint64_t *bits;
    uint32_t words;
};
int tl_ptx_set_init(struct tl_ptx_set *s, struct tl_arena *arena, const struct tl_ptx_cfg *cfg);
void tl_ptx_set_clear(struct tl_ptx_set *s);
static inline bool tl_ptx_set_has(const struct tl_ptx_set *s, uint32_t i)
{
    return s->bits[i / 64] >> (i % 64) & 1;
}
static inline void tl_ptx_set_add(struct tl_ptx_set *s, uint32_t i)
{
    s->bits[i / 64] |= 1ull << (i % 64);
}

/* Adds all blocks that can be reached from the successors of `from` without passing `until` (which
 * is left out).  With `until` the post-dominator of a branch, that is the region the branch decides
 * about.  `stack` has room for n_blocks + 1. */
void tl_ptx_cfg_region(const struct tl_ptx_cfg *cfg, uint32_t from, uint32_t until,
                       struct tl_ptx_set *region, uint32_t *stack);

/* Fills `loop` with the loop that starts at `head`: all blocks on a way from it back to it along
 * edges that go back in reverse post-order.  Natural loops as one knows them, and also those that
 * can be entered in several places.  false if no edge goes back to `head`.  `scratch` is a second
 * set. */
bool tl_ptx_cfg_loop(const struct tl_ptx_cfg *cfg, uint32_t head, struct tl_ptx_set *loop,
                     struct tl_ptx_set *scratch, uint32_t *stack);

/* The part of that loop which goes back from the block `tail`: loops inside each other may begin
 * with the same block.  All of it for TL_CFG_NONE. */
bool tl_ptx_cfg_loop_by(const struct tl_ptx_cfg *cfg, uint32_t head, uint32_t tail,
                        struct tl_ptx_set *loop, struct tl_ptx_set *scratch, uint32_t *stack);

/* --- registers read and written --------------------------------------------------------------- */

/* Called for every register that an instruction reads (writes).  Address bases, guards and vector
 * elements count. */
typedef void (*tl_ptx_reg_visitor)(void *data, struct tl_ptx_sym *reg);
void tl_ptx_inst_reads(const struct tl_ptx_stmt *s, tl_ptx_reg_visitor visit, void *data);
void tl_ptx_inst_writes(const struct tl_ptx_stmt *s, tl_ptx_reg_visitor visit, void *data);

#endif

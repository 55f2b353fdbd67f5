/* Which values may differ between the threads of a block, and which branches they may therefore
 * take apart. */
#ifndef TALLY_PTX_DIVERGE_H
#define TALLY_PTX_DIVERGE_H

#include "ptx_rewrite/cfg.h"

/* How far a value is the same: for the whole block, at least for each warp, or not even that. */
enum tl_ptx_level {
    TL_LEVEL_BLOCK,
    TL_LEVEL_WARP,
    TL_LEVEL_LANE,
};

struct tl_ptx_divergence {
    const struct tl_ptx_cfg *cfg;
    uint8_t *reg;    /* enum tl_ptx_level per register id */
    uint8_t *branch; /* per block: of the condition it ends with; BLOCK where it does not branch */
    uint8_t *block;  /* per block: worst branch in whose region it lies */
};

/* Requires a built cfg.  With `warps_are_rows`, warps are taken to lie along x (see
 * TL_PTX_IF_WARPS_ARE_ROWS), so that tid.x >> 5, tid.y and tid.z are the same for a warp.  Memory
 * that threads of a block read without a race is taken to be the same for equal addresses.
 * Flow-insensitive per register, hence an over-approximation.  0 or -ENOMEM. */
int tl_ptx_diverge(struct tl_ptx_divergence *d, struct tl_arena *arena,
                   const struct tl_ptx_cfg *cfg, bool warps_are_rows);

/* The level of the instruction's guard (BLOCK without one). */
enum tl_ptx_level tl_ptx_guard_level(const struct tl_ptx_divergence *d,
                                     const struct tl_ptx_stmt *s);

#endif

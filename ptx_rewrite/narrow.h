/* Which blocks of a function are never reached in a grid that is one block wide in some direction.
 *
 * A product or an attention that is split among blocks waits for the other parts, and one that is
 * not split is the same kernel: it asks %nctaid and goes round the waiting.  So where a wait has no
 * argument, the kernel may still be cut in launches that do not get there. */
#ifndef TALLY_PTX_NARROW_H
#define TALLY_PTX_NARROW_H

#include "ptx_rewrite/affine.h"

/* Fills `reached` with the blocks that a thread may come to if %nctaid.`axis` is 1 ('x', 'y' or
 * 'z').  A branch is decided only if its guard is computed, without guards and by instructions
 * that are always in front of it, from that number and constants.  `stack` has room for n_blocks.
 * 0 or -ENOMEM. */
int tl_ptx_narrow_reach(struct tl_arena *arena, const struct tl_affines *defs, char axis,
                        struct tl_ptx_set *reached, uint32_t *stack);

#endif

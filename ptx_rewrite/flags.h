/* Words in global memory by which blocks tell each other how far they are: which accesses may meet
 * at one of them, and what orders the blocks that use them. */
#ifndef TALLY_PTX_FLAGS_H
#define TALLY_PTX_FLAGS_H

#include "ptx_rewrite/affine.h"

/* Volatile, relaxed, acquire ...: made to see, or to be seen by, other blocks while they run. */
bool tl_flag_is_fresh(const struct tl_ptx_form *f);
/* The global space, or generic addresses. */
bool tl_flag_may_be_global(const struct tl_ptx_form *f);
/* The first operand in brackets, or NULL. */
const struct tl_ptx_operand *tl_flag_address(const struct tl_ptx_stmt *s);

/* atom.add or atom.inc by a non-zero constant: everybody who asks moves it on. */
bool tl_flag_is_counter(const struct tl_ptx_stmt *s);
/* The same, but never downwards and not each block for itself: who asks later gets more.  Blocks
 * that ask as they start are so put in order. */
bool tl_flag_counts_up(const struct tl_ptx_stmt *s);
/* A ticket is the result of a counter that every block moves on as it starts, possibly handed round
 * the block through shared memory.  The number of the instruction that takes it, or TL_CFG_NONE if
 * the register holds none. */
uint32_t tl_flag_ticket(struct tl_affines *a, const struct tl_ptx_sym *reg);

/* Whether two addresses begin at the same place: a parameter, a variable of the module, or a
 * register not understood. */
bool tl_flag_shares_base(const struct tl_affine *a, const struct tl_affine *b);
/* The same, but only at a parameter or a variable of the module: other registers may be what both
 * are indexed by. */
bool tl_flag_shares_known_base(const struct tl_affine *a, const struct tl_affine *b);
/* Whether an address begins at a parameter or at a variable of the module. */
bool tl_flag_has_known_base(const struct tl_affine *e);

#endif

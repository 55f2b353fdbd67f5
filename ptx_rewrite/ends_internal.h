/* What the arguments of ends.c, ends_swap.c and ends_lock.c have of each other. */
#ifndef TALLY_PTX_ENDS_INTERNAL_H
#define TALLY_PTX_ENDS_INTERNAL_H

#include "ptx_rewrite/loop.h"

typedef bool (*tl_end_write_check)(struct tl_ptx_ends *x, uint32_t reader,
                                   const struct tl_ptx_cfg *cfg, uint32_t write);

/* Whether everything in the program that may write where `reader` reads passes a check. */
bool tl_end_all_writes(struct tl_ptx_ends *x, uint32_t reader, tl_end_write_check is_fine);
/* Whether two instructions of the function access the same address, if at the same time. */
bool tl_end_is_same_address(struct tl_ptx_ends *x, const struct tl_ptx_stmt *a,
                            const struct tl_ptx_stmt *b);
/* Bits of the word that an instruction reads or writes; 0 if they are not known. */
uint32_t tl_end_word_bits(const struct tl_ptx_form *f);
/* An atom.cas without a guard. */
bool tl_end_is_swap(const struct tl_ptx_stmt *s);

/* The arguments, each of a reading `inst` of the loop. */
bool tl_end_is_update(struct tl_ptx_ends *x, uint32_t swap);
bool tl_end_feeds_update(struct tl_ptx_ends *x, uint32_t load);
bool tl_end_is_taken_once(struct tl_ptx_ends *x, uint32_t inst);
bool tl_end_is_lock(struct tl_ptx_ends *x, uint32_t inst);

#endif

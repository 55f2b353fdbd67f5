/* Kernels changed a little: one instruction of a parsed kernel is edited in the tree, and the whole
 * is printed again. */
#ifndef TEST_PTX_MUTATE_H
#define TEST_PTX_MUTATE_H

#include "tally/ptx.h"

/* The mutant number `n` (from 0) of a kernel, as a module of its own, the caller's to free; NULL if
 * there are fewer.  `what` gets in words what was changed, and where. */
char *ptx_mutant(const struct tl_ptx_index *ix, const char *kernel, uint32_t n, char *what,
                 size_t what_bytes);

#endif

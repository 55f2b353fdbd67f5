/* What variables begin with, and those that stand inside of functions. */
#ifndef TALLY_PTX_INITIALISER_H
#define TALLY_PTX_INITIALISER_H

#include "ptx_rewrite/ast.h"

/* The address of a variable or function that an initialiser names; false if there is none of that
 * name. */
typedef bool (*tl_ptx_resolver)(void *data, struct tl_str name, uint64_t *address);

/* Numbers that a variable holds, also where the declaration leaves that to the initialiser ([]). */
uint64_t tl_ptx_decl_count(const struct tl_ptx_decl *d);

/* Writes a variable's initial bytes; what the initialiser leaves out stays as it is.  0, -EINVAL
 * (with what is wrong), -ENOMEM. */
int tl_ptx_initialise(const struct tl_ptx_decl *decl, tl_ptx_resolver resolve, void *data,
                      uint8_t *to, size_t bytes, struct tl_error *err);

/* The n-th .global or .const variable that is declared inside of a function, blocks entered; NULL
 * if there are fewer.  They live as long as the module.  Compiled kernels ask for them as
 * "function::n". */
const struct tl_ptx_decl *tl_ptx_inner_variable(const struct tl_ptx_func *f, uint32_t n);

#endif

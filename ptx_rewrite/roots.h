/* Which arrays does a kernel write, and from which ones does a load read?
 *
 * An array is known by where its address comes from: its root, a parameter of the kernel or a
 * variable of the module.  Addresses are followed through registers, through parameters and results
 * of called functions, over the whole program and without regard to order, so what is found is at
 * least what there is.  Arrays with different roots are taken to be different. */
#ifndef TALLY_PTX_ROOTS_H
#define TALLY_PTX_ROOTS_H

#include "ptx_rewrite/cfg.h"
#include "ptx_rewrite/program.h"

/* A set of roots.  There may be more roots than bits; those that share a bit count as one. */
typedef uint64_t tl_ptx_root_set;
#define TL_ROOT_OWN (1ull << 62)     /* shared or local memory: the block's own */
#define TL_ROOT_UNKNOWN (1ull << 63) /* any array: a pointer out of memory */

struct tl_ptx_roots {
    struct tl_ptx_program *program;
    struct tl_ptx_cfg *cfgs; /* of the functions with a body, in the program's order */
    uint32_t n_cfgs;
    tl_ptx_root_set **regs; /* per cfg and register */
    /* Parameters and results, of functions and of calls, and what their values may point to. */
    struct tl_ptx_root_decl *decls; /* by a hash of their addresses */
    uint32_t n_decls, max_decls;
    struct tl_ptx_root *roots;
    uint32_t n_roots;
    tl_ptx_root_set written; /* by any instruction of the program */
    bool reads_ctaid_yz;     /* any instruction: then %ctaid.x alone does not order the blocks */
    bool changed, is_full;   /* while they are being found */
};

/* Requires the cfgs.  0 or -ENOMEM. */
int tl_ptx_roots_init(struct tl_ptx_roots *r, struct tl_ptx_program *p, struct tl_ptx_cfg *cfgs,
                      uint32_t n_cfgs);

/* What an address ([base + offset]) of the function `cfg` may point to; never empty. */
tl_ptx_root_set tl_ptx_roots_of(const struct tl_ptx_roots *r, const struct tl_ptx_cfg *cfg,
                                const struct tl_ptx_operand *address);
/* Whether two such sets may mean the same word of global memory. */
bool tl_ptx_roots_meet(tl_ptx_root_set a, tl_ptx_root_set b);

/* What an instruction writes in global memory; empty if nothing. */
tl_ptx_root_set tl_ptx_roots_written(const struct tl_ptx_roots *r, const struct tl_ptx_cfg *cfg,
                                     const struct tl_ptx_stmt *s);

#endif

/* What an address is made of: registers as linear expressions over things that do not change.
 *
 * Used to tell who waits for whom: a block that polls `base + 8 * (ctaid.x - 1 - tid.x)` while
 * every block publishes at `base + 8 * ctaid.x` waits for lower blocks only.  An expression is
 * exact or an upper bound, the latter for values that loops only ever decrease.  Arithmetic is
 * taken not to wrap, except in registers of less than 32 bits and where factors or numbers are so
 * large that it must: 4294967295 times a word is minus it. */
#ifndef TALLY_PTX_AFFINE_H
#define TALLY_PTX_AFFINE_H

#include "ptx_rewrite/cfg.h"

enum tl_leaf_kind {
    TL_LEAF_SREG,       /* %ctaid.x: `id` is the sreg, `part` the component */
    TL_LEAF_PARAM,      /* value of a kernel parameter at byte `part` */
    TL_LEAF_PARAM_ADDR, /* address of a parameter */
    TL_LEAF_VAR,        /* address of a variable of the function: `what` is its declaration */
    TL_LEAF_MODULE_VAR, /* address of a module-scope variable: `what` is its symbol */
    TL_LEAF_REG,        /* a register whose making is not understood */
};

struct tl_leaf {
    enum tl_leaf_kind kind;
    uint32_t id;
    int64_t part;
    const void *what; /* symbol or declaration */
};

enum { TL_AFFINE_TERMS = 8 };

struct tl_affine {
    bool is_upper; /* the value is at most this, else it is exactly this */
    uint8_t n;
    int64_t constant;
    struct {
        struct tl_leaf leaf;
        int64_t factor;
    } terms[TL_AFFINE_TERMS];
};

struct tl_affines {
    const struct tl_ptx_cfg *cfg;
    struct tl_affine *known; /* per register */
    uint8_t *state;          /* per register: not yet, being worked out, known */
    bool *is_opaque;         /* per register: known to have no such expression */
    uint32_t *first_def;     /* per register: index into defs */
    uint32_t *defs;          /* instructions that write each register, grouped by register */
    uint32_t depth;
    bool grid_is_line; /* %ctaid.y and .z are 0, %nctaid.y and .z are 1 */
    bool is_supposing; /* a bound is being tried: no second one inside */
};

/* Requires a built cfg.  0 or -ENOMEM. */
int tl_affines_init(struct tl_affines *a, struct tl_arena *arena, const struct tl_ptx_cfg *cfg,
                    bool grid_is_line);

struct tl_affine tl_affine_of_reg(struct tl_affines *a, struct tl_ptx_sym *reg);
/* Of a register, special register, variable or number; false for other operands. */
bool tl_affine_of_operand(struct tl_affines *a, const struct tl_ptx_operand *o,
                          struct tl_affine *out);
/* Of what an unguarded instruction gives its single destination; false if it is not linear. */
bool tl_affine_of_inst(struct tl_affines *a, const struct tl_ptx_stmt *s, struct tl_affine *out);
/* Of [base + offset]; false if the operand is no such address. */
bool tl_affine_of_address(struct tl_affines *a, const struct tl_ptx_operand *o,
                          struct tl_affine *out);

/* a + factor * b; false if it has too many terms or the bound gets lost. */
bool tl_affine_add(struct tl_affine *a, const struct tl_affine *b, int64_t factor);
/* The factor of a leaf, 0 if it does not occur. */
int64_t tl_affine_factor(const struct tl_affine *a, const struct tl_leaf *leaf);
/* Leaves out what can only make the value smaller (thread numbers and registers that start at one
 * and only grow, where they are subtracted), which turns it into an upper bound. */
void tl_affine_loosen(struct tl_affines *all, struct tl_affine *a);
/* A number or size of threads or blocks, or a register that starts as one (or as a constant) and to
 * which only small constants are added. */
bool tl_affine_is_never_negative(struct tl_affines *all, const struct tl_leaf *leaf);
bool tl_leaf_eq(const struct tl_leaf *a, const struct tl_leaf *b);

/* The number of the instruction that writes a register if exactly one does, without a guard; else
 * TL_CFG_NONE. */
uint32_t tl_affine_only_def(const struct tl_affines *a, const struct tl_ptx_sym *reg);

/* Which way a thread goes at a branch that comes, or has come, to `inst`: 0 or 1 as an index of
 * successors if a branch with the same guard, computed once where the function begins, lies above
 * `inst`, else -1. */
int tl_affine_known_way(const struct tl_affines *a, const struct tl_ptx_stmt *branch,
                        uint32_t inst);

#endif

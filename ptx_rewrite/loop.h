/* What can be told of one loop: which instructions every round passes, which values stay, which
 * grow by the same in every round, and what its exits compare. */
#ifndef TALLY_PTX_LOOP_H
#define TALLY_PTX_LOOP_H

#include "ptx_rewrite/ends.h"

enum { TL_LOOP_HOPS = 12 }; /* registers that are followed through copies and sums at most */

/* --- instructions and blocks ------------------------------------------------------------------ */

bool tl_loop_has(const struct tl_ptx_ends *x, uint32_t inst);
/* Whether every round passes a block. */
bool tl_loop_passes(const struct tl_ptx_ends *x, uint32_t block);
/* The only instruction of the loop that writes a register, if it has no guard; else TL_CFG_NONE. */
uint32_t tl_loop_def(const struct tl_ptx_ends *x, const struct tl_ptx_sym *reg);

/* --- operands --------------------------------------------------------------------------------- */

bool tl_loop_is_reg(const struct tl_ptx_operand *o);
bool tl_loop_is_float(const struct tl_ptx_form *f);
/* A number as an instruction of that form sees it, with its sign. */
int64_t tl_loop_signed(const struct tl_ptx_form *f, uint64_t bits);
/* The register that an instruction gives its (first) result to, or NULL. */
const struct tl_ptx_sym *tl_loop_result(const struct tl_ptx_stmt *s);

/* --- values ----------------------------------------------------------------------------------- */

/* Whether an operand means the same in every round: it is not written in the loop, or computed
 * there from such things alone.  `hops` is 0 for callers. */
bool tl_loop_keeps(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t hops);
/* Whether an operand is known to be one of a few numbers: such that stay, or that are picked of
 * them or counted modulo a small number.  `hops` is 0 for callers. */
bool tl_loop_picks(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t hops);
/* By how much what an operand holds, as instruction number `at` reads it, grows from round to
 * round, if that is a counter, or a counter and something that stays; else 0, also if a few rounds
 * lead back to the same number.  `hops` is 0 for callers. */
int64_t tl_loop_step(const struct tl_ptx_ends *x, const struct tl_ptx_operand *o, uint32_t at,
                     uint32_t hops);

/* --- exits ------------------------------------------------------------------------------------ */

/* A branch out of the loop that compares: `stays` is the relation of `left` to `right` while the
 * loop goes on. */
struct tl_exit_test {
    enum tl_ptx_mod stays;
    const struct tl_ptx_operand *left, *right;
    uint32_t inst; /* that compares */
};

/* Whether a block ends with such a branch, on what was compared in the same round. */
bool tl_loop_exit_test(const struct tl_ptx_ends *x, uint32_t block, struct tl_exit_test *out);
/* The same relation with its sides exchanged. */
enum tl_ptx_mod tl_exit_turned(enum tl_ptx_mod relation);

#endif

/* What products of matrix fragments and their loads and stores share: how a fragment lies in
 * registers.
 *
 * Matrices are cut into tiles of eight rows of A and C and eight columns of B and C.  Lane 4 g + t
 * holds row or column g of each tile, and t says which of the k (PTX ISA, "Matrix Fragments for
 * mma").  With E elements of the input type in a register:
 *
 *     A, row 8 i + g,                  k: register kb * tiles + i,   element e      k = (4 kb + t) E + e
 *     B, column 8 i + g,               k: register i * blocks + kb,  element e
 *     C, row 8 i + g, column 8 n + 2 t + j: element (n * tiles + i) * 2 + j; halves share a register by two
 *
 * For mma PTX prescribes that, for wmma it leaves the layout open.  Fragments of wmma may have more
 * registers than this needs; those are never read. */
#ifndef TALLY_DEVICE_JIT_MATRIX_H
#define TALLY_DEVICE_JIT_MATRIX_H

#include "device/jit/emit.h"

/* From m16n8k16 and the like; false if the form names no shape. */
bool tl_matrix_shape(const struct tl_ptx_form *f, uint32_t *m, uint32_t *n, uint32_t *k);
/* The i-th register of a fragment, or NULL if it has not so many. */
const struct tl_ptx_operand *tl_fragment(const struct tl_ptx_operand *o, uint32_t i);

/* Each lane's v of another lane: lane i gets that of from[i]. */
struct tl_val tl_pick_lanes(struct tl_emit *e, struct tl_val v, const uint32_t from[TL_LANES]);

/* ldmatrix, stmatrix, wmma.load, wmma.store (fragment.c). */
void tl_emit_fragment(struct tl_emit *e);

#endif

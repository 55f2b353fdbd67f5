/* Matrix fragments to and from memory: ldmatrix, stmatrix, wmma.load, wmma.store.  matrix.h says
 * what lies where.
 *
 * Each register is one gather or scatter of a warp, or several where neighbours in a register are
 * no neighbours in memory. */
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/matrix.h"
#include "device/jit/value.h"

/* --- ldmatrix and stmatrix -------------------------------------------------------------------- */

/* Where element 2 t + j of row g (or of column g) of a matrix is: lane 8 i + r has the address of
 * row r of matrix i. */
static struct tl_val element_address(struct tl_emit *e, struct tl_val rows, uint32_t matrix,
                                     bool is_trans, uint32_t j)
{
    uint32_t from[TL_LANES];
    int64_t offset[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++) {
        uint32_t g = i / 4, pair = 2 * (i % 4) + j;
        from[i] = matrix * 8 + (is_trans ? pair : g);
        offset[i] = 2 * (int64_t)(is_trans ? g : pair);
    }
    return tl_op(e, LLVMAdd, tl_pick_lanes(e, rows, from),
                 (struct tl_val){tl_const_lanes(e, 64, offset), true});
}

static struct tl_val upper_half(struct tl_emit *e, struct tl_val v)
{
    return tl_op(e, LLVMShl, v, tl_const(e, 32, 16));
}

/* ldmatrix of 16 x 16 bytes, always transposed: lanes 16 m to 16 m + 15 have the addresses of the
 * rows of matrix m, which has two registers.  In the h-th of these, lane 4 g + t has of column
 * 8 h + g the rows from 4 t, as B of a product of bytes wants them. */
static void emit_bytes(struct tl_emit *e, uint32_t n)
{
    const struct tl_ptx_operand *registers = tl_opd(e, 0);
    struct tl_address a = tl_address_of(e, tl_opd(e, 1), tl_ptx_form_space(e->inst->inst.form));
    if (e->rc != 0)
        return;
    struct tl_val rows = tl_lane_addresses(e, &a);
    for (uint32_t k = 0; k < 2 * n; k++) {
        struct tl_val r = tl_const(e, 32, 0);
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t from[TL_LANES];
            int64_t offset[TL_LANES];
            for (uint32_t i = 0; i < TL_LANES; i++) {
                from[i] = k / 2 * 16 + 4 * (i % 4) + j;
                offset[i] = 8 * (k % 2) + i / 4;
            }
            struct tl_val at = tl_op(e, LLVMAdd, tl_pick_lanes(e, rows, from),
                                     (struct tl_val){tl_const_lanes(e, 64, offset), true});
            struct tl_val byte = tl_cast_int(e, tl_gather(e, at, 8), 32, false);
            r = tl_op(e, LLVMOr, r, tl_op(e, LLVMShl, byte, tl_const(e, 32, 8 * j)));
        }
        tl_write(e, tl_fragment(registers, k), r, false);
    }
}

/* ldmatrix and stmatrix of 8 x 8 words of 16 bits: lanes 8 m to 8 m + 7 have the addresses of the
 * rows of matrix m. */
static void emit_matrices(struct tl_emit *e, bool is_store)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    const struct tl_ptx_operand *registers = tl_opd(e, is_store ? 1 : 0);
    uint32_t n = tl_ptx_form_has_text(f, "x4") ? 4 : tl_ptx_form_has_text(f, "x2") ? 2 : 1;
    bool is_trans = tl_has(e, TL_MOD_trans);
    if (!is_store && is_trans && n <= 2 && tl_ptx_form_has_text(f, "m16n16") &&
        tl_has(e, TL_MOD_b8) && registers->kind == TL_OPD_VEC && registers->n == 2 * n) {
        emit_bytes(e, n);
        return;
    }
    if (!tl_ptx_form_has_text(f, "m8n8") || !tl_has(e, TL_MOD_b16) ||
        (registers->kind == TL_OPD_VEC ? registers->n : 1) != n) {
        tl_emit_unsupported(e, "this form of matrix");
        return;
    }
    struct tl_address a = tl_address_of(e, tl_opd(e, is_store ? 0 : 1), tl_ptx_form_space(f));
    if (e->rc != 0)
        return;
    struct tl_val rows = tl_lane_addresses(e, &a);
    for (uint32_t m = 0; m < n; m++) {
        const struct tl_ptx_operand *o = tl_fragment(registers, m);
        struct tl_val low = element_address(e, rows, m, is_trans, 0), r;
        if (is_store)
            r = tl_widen(e, tl_read(e, o, 32));
        if (!is_trans && is_store) {
            tl_scatter(e, low, r, 32);
        } else if (!is_trans) {
            r = tl_gather(e, low, 32);
        } else {
            struct tl_val high = element_address(e, rows, m, true, 1);
            if (is_store) {
                tl_scatter(e, low, r, 16);
                tl_scatter(e, high, tl_op(e, LLVMLShr, r, tl_const(e, 32, 16)), 16);
            } else {
                r = tl_cast_int(e, tl_gather(e, low, 16), 32, false);
                r = tl_op(e, LLVMOr, r,
                          upper_half(e, tl_cast_int(e, tl_gather(e, high, 16), 32, false)));
            }
        }
        if (!is_store)
            tl_write(e, o, r, false);
    }
}

/* --- wmma ------------------------------------------------------------------------------------- */

struct wmma {
    char which; /* 'a', 'b', or 'c' for accumulators */
    bool is_row;
    uint32_t m, n, k;
    uint32_t bits, per_register;
    /* addresses, and elements from one line to the next, all of 64 bits */
    struct tl_val base, stride;
};

/* Where each lane's element is: on so many lines, so many elements along it. */
static struct tl_val at(struct tl_emit *e, const struct wmma *w, const int64_t line[TL_LANES],
                        const int64_t along[TL_LANES])
{
    struct tl_val lines = {tl_const_lanes(e, 64, line), true},
                  rest = {tl_const_lanes(e, 64, along), true};
    struct tl_val index = tl_op(e, LLVMAdd, tl_op(e, LLVMMul, lines, w->stride), rest);
    return tl_op(e, LLVMAdd, w->base, tl_op(e, LLVMMul, index, tl_const(e, 64, w->bits / 8)));
}

/* Element (row or column 8 tile + g, k = (4 kb + t) E + which) of A or B. */
static struct tl_val input_at(struct tl_emit *e, const struct wmma *w, uint32_t tile, uint32_t kb,
                              uint32_t which)
{
    int64_t outer[TL_LANES], k[TL_LANES];
    bool k_is_along = w->is_row == (w->which == 'a');
    for (uint32_t i = 0; i < TL_LANES; i++) {
        outer[i] = 8 * tile + i / 4;
        k[i] = (4 * kb + i % 4) * w->per_register + which;
    }
    return k_is_along ? at(e, w, outer, k) : at(e, w, k, outer);
}

static struct tl_val accumulator_at(struct tl_emit *e, const struct wmma *w, uint32_t element)
{
    int64_t row[TL_LANES], column[TL_LANES];
    uint32_t tile = element / 2, tiles = w->m / 8;
    for (uint32_t i = 0; i < TL_LANES; i++) {
        row[i] = 8 * (tile % tiles) + i / 4;
        column[i] = 8 * (tile / tiles) + 2 * (i % 4) + element % 2;
    }
    return w->is_row ? at(e, w, row, column) : at(e, w, column, row);
}

static void load_inputs(struct tl_emit *e, const struct wmma *w, const struct tl_ptx_operand *to)
{
    uint32_t tiles = (w->which == 'a' ? w->m : w->n) / 8, blocks = w->k / (4 * w->per_register);
    /* a register's elements are neighbours in memory */
    bool is_whole = w->is_row == (w->which == 'a');
    for (uint32_t kb = 0; kb < blocks; kb++) {
        for (uint32_t tile = 0; tile < tiles && e->rc == 0; tile++) {
            const struct tl_ptx_operand *o = tl_fragment(to, w->which == 'a' ? kb * tiles + tile
                                                                             : tile * blocks + kb);
            uint32_t bits = w->bits < 32 ? 32 : w->bits;
            struct tl_val r = tl_const(e, bits, 0);
            if (o == NULL) {
                tl_emit_unsupported(e, "this number of fragment registers");
                return;
            }
            if (is_whole)
                r = tl_gather(e, input_at(e, w, tile, kb, 0), bits);
            for (uint32_t which = 0; which < w->per_register && !is_whole; which++) {
                struct tl_val v = tl_cast_int(
                    e, tl_gather(e, input_at(e, w, tile, kb, which), w->bits), bits, false);
                r = tl_op(e, LLVMOr, r,
                          tl_op(e, LLVMShl, v, tl_const(e, bits, (uint64_t)which * w->bits)));
            }
            tl_write(e, o, r, false);
        }
    }
}

/* Accumulators to or from registers; halves share one by two. */
static void move_accumulators(struct tl_emit *e, const struct wmma *w,
                              const struct tl_ptx_operand *registers, bool is_store)
{
    uint32_t per = w->bits == 16 ? 2 : 1, n = w->m * w->n / TL_LANES / per,
             bits = w->bits == 64 ? 64 : 32;
    if (registers->kind != TL_OPD_VEC || registers->n != n) {
        tl_emit_unsupported(e, "this number of fragment registers");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct tl_val r = is_store ? tl_widen(e, tl_read(e, &registers->elems[i], bits))
                                   : tl_const(e, bits, 0);
        for (uint32_t j = 0; j < per; j++) {
            struct tl_val address = accumulator_at(e, w, i * per + j);
            if (is_store) {
                tl_scatter(e, address, tl_op(e, LLVMLShr, r, tl_const(e, bits, (uint64_t)j * 16)),
                           w->bits);
            } else {
                struct tl_val v = tl_cast_int(e, tl_gather(e, address, w->bits), bits, false);
                r = tl_op(e, LLVMOr, r, tl_op(e, LLVMShl, v, tl_const(e, bits, (uint64_t)j * 16)));
            }
        }
        if (!is_store)
            tl_write(e, &registers->elems[i], r, false);
    }
}

/* Elements from one line to the next if the instruction does not say. */
static uint32_t natural_stride(const struct wmma *w)
{
    if (w->which == 'a')
        return w->is_row ? w->k : w->m;
    if (w->which == 'b')
        return w->is_row ? w->n : w->k;
    return w->is_row ? w->n : w->m;
}

static void emit_wmma(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    bool is_store = tl_has(e, TL_MOD_store);
    struct tl_type t = tl_type_of(f, -1);
    struct wmma w = {.which = is_store || tl_ptx_form_has_text(f, "c") ? 'c'
                              : tl_ptx_form_has_text(f, "a")           ? 'a'
                                                                       : 'b',
                     .is_row = tl_has(e, TL_MOD_row),
                     .bits = t.bits,
                     .per_register = t.bits < 32 && t.bits > 0 ? 32 / t.bits : 1};
    bool is_known = tl_matrix_shape(f, &w.m, &w.n, &w.k) && w.m % 8 == 0 && w.n % 8 == 0 &&
                    t.bits >= 8 && w.k % (4 * w.per_register) == 0 && e->inst->n_operands >= 2;
    if (!is_known) {
        tl_emit_unsupported(e, "this shape or type of matrix");
        return;
    }
    struct tl_address a = tl_address_of(e, tl_opd(e, is_store ? 0 : 1), tl_ptx_form_space(f));
    if (e->rc != 0)
        return;
    w.base = tl_lane_addresses(e, &a);
    w.stride = e->inst->n_operands > 2 ? tl_cast_int(e, tl_read(e, tl_opd(e, 2), 32), 64, false)
                                       : tl_const(e, 64, natural_stride(&w));
    const struct tl_ptx_operand *registers = tl_opd(e, is_store ? 1 : 0);
    if (w.which == 'c')
        move_accumulators(e, &w, registers, is_store);
    else
        load_inputs(e, &w, registers);
}

void tl_emit_fragment(struct tl_emit *e)
{
    enum tl_ptx_op op = e->inst->inst.form->op;
    if (op == TL_OP_wmma)
        emit_wmma(e);
    else
        emit_matrices(e, op == TL_OP_stmatrix);
}

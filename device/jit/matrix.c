/* Products of matrix fragments: mma and wmma.mma.
 *
 * A fragment register of a warp is a vector of 32 lanes.  For each k, the column of A that all
 * lanes need is a shuffle within quads of lanes, and the row of B one across the warp: the product
 * is shuffles and fused multiply-adds on whole vectors, without going through memory.  matrix.h
 * says what lies where. */
#include "device/jit/matrix.h"

#include <string.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

/* elements of C in a lane; scales of a row */
enum { MAX_ELEMENTS = 8, MAX_SCALES = 4, ROWS = 2, COLUMNS = 2 };

struct product {
    uint32_t tiles_m, tiles_n, k;
    struct tl_type a, b, c, d;
    uint32_t bits;         /* of an input element */
    uint32_t per_register; /* E */
    bool is_integer, is_tf32, is_saturated;
    bool is_small;                   /* 8, 6 or 4 bits of floating point */
    const struct tl_small *small[2]; /* of A and B */
    uint32_t n_scales;               /* of a row of A and of a column of B; 0: nothing is scaled */
    bool is_ue8m0;                   /* their type */
};

/* --- shapes and types ------------------------------------------------------------------------- */

bool tl_matrix_shape(const struct tl_ptx_form *f, uint32_t *m, uint32_t *n, uint32_t *k)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        struct tl_str t = f->mods[i].text;
        uint32_t *to[3] = {m, n, k}, at = 0, which = 0;
        while (which < 3 && at < t.n && t.p[at] == "mnk"[which]) {
            uint32_t value = 0, begin = ++at;
            while (at < t.n && t.p[at] >= '0' && t.p[at] <= '9' && at < begin + 4)
                value = value * 10 + (uint32_t)(t.p[at++] - '0');
            if (at == begin)
                break;
            *to[which++] = value;
        }
        if (which == 3 && at == t.n)
            return true;
    }
    return false;
}

/* Kinds that hold 4 bits have them side by side; in others, each number has a byte. */
static void describe_small(const struct tl_ptx_form *f, struct product *x)
{
    bool is_packed = tl_ptx_form_has_text(f, "kind::mxf4") ||
                     tl_ptx_form_has_text(f, "kind::mxf4nvf4");
    x->small[0] = tl_small_of(f, 0);
    x->small[1] = tl_small_of(f, 1);
    x->is_small = x->small[0] != NULL && x->small[1] != NULL;
    x->bits = is_packed ? 4 : 8;
    if (!tl_ptx_form_has_text(f, "block_scale"))
        return;
    x->is_ue8m0 = tl_ptx_form_has_text(f, "ue8m0");
    x->n_scales = tl_ptx_form_has_text(f, "scale_vec::4X")                ? 4
                  : tl_ptx_form_has_text(f, "scale_vec::2X") || is_packed ? 2
                                                                          : 1;
}

static void describe_types(const struct tl_ptx_form *f, struct product *x)
{
    const struct tl_type half = {TL_T_FLOAT, 16, 1}, byte = {TL_T_BITS, 8, 1};
    describe_small(f, x);
    x->d = tl_type_of(f, 0);
    if (x->is_small || tl_type_of(f, 2).bits == 0) { /* wmma of halves names only d and c */
        x->a = x->b = x->is_small ? byte : half;
        x->c = tl_type_of(f, 1);
    } else {
        x->a = tl_type_of(f, 1);
        x->b = tl_type_of(f, 2);
        x->c = tl_type_of(f, 3);
    }
    x->is_tf32 = tl_ptx_form_has(f, TL_MOD_tf32);
    x->is_integer = x->a.kind == TL_T_SIGNED || x->a.kind == TL_T_UNSIGNED;
    x->is_saturated = tl_ptx_form_has(f, TL_MOD_satfinite);
    x->bits = x->is_small ? x->bits : x->a.bits;
    x->per_register = x->bits >= 32 ? 1 : x->bits > 0 ? 32 / x->bits : 1;
}

static bool describe(const struct tl_ptx_form *f, struct product *x)
{
    uint32_t m, n;
    memset(x, 0, sizeof *x);
    if (!tl_matrix_shape(f, &m, &n, &x->k) || m % 8 != 0 || n % 8 != 0 || m * n > 256)
        return false;
    x->tiles_m = m / 8;
    x->tiles_n = n / 8;
    describe_types(f, x);
    bool known = x->is_small || x->is_tf32 || x->is_integer || x->a.kind == TL_T_BFLOAT ||
                 x->a.kind == TL_T_FLOAT;
    /* another layout */
    bool volta = f->op == TL_OP_mma && m == 8 && x->a.kind == TL_T_FLOAT && x->bits == 16;
    return known && !volta && x->c.bits != 0 && x->d.bits != 0 &&
           x->bits >= (x->is_small ? 4 : 8) && (x->n_scales == 0 || x->is_small) &&
           !tl_ptx_form_has_text(f, "sp") && !tl_ptx_form_has_text(f, "sp::ordered_metadata") &&
           x->k % (4 * x->per_register) == 0;
}

/* --- elements --------------------------------------------------------------------------------- */

/* Element e of a fragment register, in the type that is multiplied: f32, f64 or i32. */
static struct tl_val element(struct tl_emit *e, const struct product *x, bool is_b,
                             struct tl_val reg, uint32_t which)
{
    struct tl_type t = is_b ? x->b : x->a;
    struct tl_val v = reg;
    if (x->is_tf32) /* the low bits do not count */
        return tl_bitcast(e, tl_op(e, LLVMAnd, v, tl_const(e, 32, 0xffffe000)), e->f32);
    if (x->bits == 64)
        return tl_bitcast(e, v, e->f64);
    v = tl_op(e, LLVMLShr, v, tl_const(e, 32, (uint64_t)which * x->bits));
    v = tl_cast_int(e, v, x->bits, false);
    if (x->is_integer)
        return tl_cast_int(e, v, 32, t.kind == TL_T_SIGNED);
    if (x->is_small) {
        const struct tl_small *f = x->small[is_b];
        v = tl_cast_int(e, v, 16, false);
        if (x->bits == 8 && f->bits == 4) /* in the middle of its byte */
            v = tl_op(e, LLVMLShr, v, tl_const(e, 16, 2));
        v = tl_op(e, LLVMAnd, v, tl_const(e, 16, (1u << f->bits) - 1));
        return tl_extend(e, tl_f16_of_small(e, v, f), e->f32);
    }
    v = tl_to_float(e, v, (struct tl_type){t.kind, x->bits, 1});
    if (t.kind == TL_T_FLOAT && x->bits == 16)
        v.v = LLVMBuildFPExt(e->b, v.v, tl_vec(e->f32), "");
    return v;
}

struct tl_val tl_pick_lanes(struct tl_emit *e, struct tl_val v, const uint32_t from[TL_LANES])
{
    LLVMValueRef index[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        index[i] = LLVMConstInt(e->i32, from[i], false);
    return (struct tl_val){LLVMBuildShuffleVector(e->b, v.v, LLVMGetPoison(LLVMTypeOf(v.v)),
                                                  LLVMConstVector(index, TL_LANES), ""),
                           true};
}

/* The row that a lane works on, at that t. */
static struct tl_val within_quad(struct tl_emit *e, struct tl_val v, uint32_t t)
{
    uint32_t from[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        from[i] = (i & ~3u) | t;
    return tl_pick_lanes(e, v, from);
}

/* The column 2 t + j that a lane works on, at that t. */
static struct tl_val across(struct tl_emit *e, struct tl_val v, uint32_t t, uint32_t j)
{
    uint32_t from[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        from[i] = (2 * (i & 3) + j) * 4 + t;
    return tl_pick_lanes(e, v, from);
}

static struct tl_val multiply_add(struct tl_emit *e, const struct product *x, struct tl_val a,
                                  struct tl_val b, struct tl_val c)
{
    if (x->is_integer)
        return tl_op(e, LLVMAdd, c, tl_op(e, LLVMMul, a, b));
    struct tl_val args[3] = {a, b, c};
    return tl_intrinsic(e, "llvm.fma", args, 3);
}

const struct tl_ptx_operand *tl_fragment(const struct tl_ptx_operand *o, uint32_t i)
{
    return o->kind == TL_OPD_VEC ? (i < o->n ? &o->elems[i] : NULL) : i == 0 ? o : NULL;
}

/* Registers of A and B, as words. */
static void read_fragment(struct tl_emit *e, const struct product *x, uint32_t operand, uint32_t n,
                          struct tl_val *out)
{
    uint32_t bits = x->bits == 64 ? 64 : 32;
    for (uint32_t i = 0; i < n; i++) {
        const struct tl_ptx_operand *o = tl_fragment(tl_opd(e, operand), i);
        if (o == NULL)
            tl_emit_unsupported(e, "this number of fragment registers");
        out[i] = tl_widen(e, o != NULL ? tl_read(e, o, bits) : tl_const(e, bits, 0));
    }
}

/* --- accumulators ----------------------------------------------------------------------------- */

static uint32_t n_elements(const struct product *x)
{
    return x->tiles_m * x->tiles_n * 2;
}

static bool fits(const struct product *x, const struct tl_ptx_operand *o, struct tl_type t)
{
    uint32_t n = n_elements(x);
    return n <= MAX_ELEMENTS && o->kind == TL_OPD_VEC && o->n == (t.bits == 16 ? n / 2 : n);
}

/* C as one vector per element: registers of f32, f64 or s32, or pairs of halves. */
static void read_accumulators(struct tl_emit *e, const struct product *x, struct tl_val *c)
{
    const struct tl_ptx_operand *o = tl_opd(e, 3);
    bool is_half = x->c.bits == 16;
    for (uint32_t i = 0; i < n_elements(x); i++) {
        struct tl_val v = tl_widen(
            e, tl_read(e, &o->elems[is_half ? i / 2 : i], is_half ? 32 : x->c.bits));
        if (is_half) {
            v = tl_cast_int(e, tl_op(e, LLVMLShr, v, tl_const(e, 32, (uint64_t)(i % 2) * 16)), 16,
                            false);
            v = tl_extend(e, tl_bitcast(e, v, e->f16), e->f32);
        } else if (x->c.kind == TL_T_FLOAT) {
            v = tl_bitcast(e, v, x->c.bits == 64 ? e->f64 : e->f32);
        }
        c[i] = v;
    }
}

static void write_accumulators(struct tl_emit *e, const struct product *x, struct tl_val *c)
{
    const struct tl_ptx_operand *o = tl_opd(e, 0);
    bool is_half = x->d.bits == 16;
    for (uint32_t i = 0; i < o->n; i++) {
        struct tl_val v;
        if (is_half) {
            struct tl_val half[2];
            for (uint32_t h = 0; h < 2; h++)
                half[h] = tl_cast_int(
                    e, tl_bitcast(e, tl_truncate(e, c[2 * i + h], e->f16), e->i16), 32, false);
            v = tl_op(e, LLVMOr, half[0], tl_op(e, LLVMShl, half[1], tl_const(e, 32, 16)));
        } else {
            v = x->d.kind == TL_T_FLOAT ? tl_bitcast(e, c[i], tl_int(e, x->d.bits)) : c[i];
        }
        tl_write(e, &o->elems[i], v, false);
    }
}

/* --- the product ------------------------------------------------------------------------------ */

static uint32_t n_blocks(const struct product *x)
{
    return x->k / (4 * x->per_register);
}

/* sum[] += the products at one k. */
static void add_products(struct tl_emit *e, const struct product *x, uint32_t k,
                         const struct tl_val *a, const struct tl_val *b, struct tl_val *sum)
{
    uint32_t block = 4 * x->per_register, kb = k / block, t = k % block / x->per_register,
             which = k % x->per_register;
    for (uint32_t n = 0; n < x->tiles_n; n++) {
        struct tl_val row = element(e, x, true, b[n * n_blocks(x) + kb], which);
        struct tl_val columns[2] = {across(e, row, t, 0), across(e, row, t, 1)};
        for (uint32_t m = 0; m < x->tiles_m; m++) {
            struct tl_val column = within_quad(
                e, element(e, x, false, a[kb * x->tiles_m + m], which), t);
            for (uint32_t j = 0; j < 2; j++) {
                struct tl_val *to = &sum[(n * x->tiles_m + m) * 2 + j];
                *to = multiply_add(e, x, column, columns[j], *to);
            }
        }
    }
}

/* Scales of rows of A and columns of B as f32, each where its element of C is: of tile i (of A), or
 * of column 2 t + i, the one for part n of k. */
static struct tl_val *scale_at(struct tl_val *v, const struct product *x, bool is_b, uint32_t i,
                               uint32_t n)
{
    return &v[(is_b ? ROWS * x->n_scales : 0) + i * x->n_scales + n];
}

/* The sums of each part of k, scaled, and C: in f64, in which scales neither overflow nor get
 * lost. */
static void multiply_scaled(struct tl_emit *e, const struct product *x, struct tl_val *v)
{
    const struct tl_val *a = v + n_elements(x), *b = a + x->tiles_m * n_blocks(x);
    struct tl_val *scales = v + n_elements(x) + (x->tiles_m + x->tiles_n) * n_blocks(x);
    uint32_t length = x->k / x->n_scales;
    for (uint32_t part = 0; part < x->n_scales; part++) {
        struct tl_val sum[MAX_ELEMENTS] = {{NULL, false}};
        for (uint32_t i = 0; i < n_elements(x); i++)
            sum[i] = tl_widen(e, tl_bitcast(e, tl_const(e, 32, 0), e->f32));
        for (uint32_t k = part * length; k < (part + 1) * length; k++)
            add_products(e, x, k, a, b, sum);
        for (uint32_t i = 0; i < n_elements(x); i++) {
            struct tl_val rows = *scale_at(scales, x, false, i / 2 % x->tiles_m, part),
                          columns = *scale_at(scales, x, true, i % 2, part);
            struct tl_val scaled = tl_op(e, LLVMFMul, tl_extend(e, sum[i], e->f64),
                                         tl_extend(e, rows, e->f64));
            struct tl_val args[3] = {scaled, tl_extend(e, columns, e->f64),
                                     tl_extend(e, v[i], e->f64)};
            v[i] = tl_truncate(e, tl_intrinsic(e, "llvm.fma", args, 3), e->f32);
        }
    }
}

/* v: C, then A, then B, then scales; D takes the place of C. */
static void multiply(struct tl_emit *e, const void *key, struct tl_val *v)
{
    const struct product *x = key;
    struct tl_val sum[MAX_ELEMENTS] = {{NULL, false}};
    const struct tl_val *a = v + n_elements(x), *b = a + x->tiles_m * n_blocks(x);
    if (x->n_scales > 0) {
        multiply_scaled(e, x, v);
        return;
    }
    /* What saturates does so when C is added: the products themselves are far from overflow. */
    bool is_apart = x->is_integer && x->is_saturated;
    for (uint32_t i = 0; i < n_elements(x); i++)
        sum[i] = is_apart ? tl_widen(e, tl_const(e, 32, 0)) : v[i];
    for (uint32_t k = 0; k < x->k; k++)
        add_products(e, x, k, a, b, sum);
    for (uint32_t i = 0; i < n_elements(x); i++)
        v[i] = is_apart ? tl_intrinsic(e, "llvm.sadd.sat", (struct tl_val[2]){sum[i], v[i]}, 2)
                        : sum[i];
}

/* What a lane needs of the scales in a quad's registers: for rows of A, two lanes of a quad have
 * those of its rows, and a selector says which two; for columns of B, it says which one lane.
 * Another selector names the first byte. */
static void read_scales(struct tl_emit *e, const struct product *x, bool is_b, struct tl_val *v)
{
    const struct tl_ptx_operand *selectors = tl_opd(e, is_b ? 7 : 5);
    struct tl_val word = tl_widen(e, tl_read(e, tl_fragment(tl_opd(e, is_b ? 6 : 4), 0), 32));
    struct tl_val byte = tl_read(e, &selectors->elems[0], 16),
                  who = tl_read(e, &selectors->elems[1], 16);
    byte = tl_op(e, LLVMShl, tl_cast_int(e, byte, 32, false), tl_const(e, 32, 3));
    word = tl_op(e, LLVMLShr, word, byte);
    for (uint32_t i = 0; i < (is_b ? COLUMNS : x->tiles_m); i++) {
        struct tl_val mine = {NULL, false};
        for (uint32_t choice = 0; choice < (is_b ? 4 : 2); choice++) {
            uint32_t from[TL_LANES];
            for (uint32_t l = 0; l < TL_LANES; l++)
                from[l] = is_b ? (2 * (l % 4) + i) * 4 + choice : l / 4 * 4 + 2 * choice + i;
            struct tl_val theirs = tl_pick_lanes(e, word, from);
            mine = choice == 0 ? theirs
                               : tl_select(e, tl_icmp(e, LLVMIntEQ, who, tl_const(e, 16, choice)),
                                           theirs, mine);
        }
        for (uint32_t n = 0; n < x->n_scales; n++) {
            struct tl_val one = tl_cast_int(e, tl_part_of(e, mine, 8, n), 32, false);
            *scale_at(v, x, is_b, i, n) = tl_f32_of_scale(e, one, x->is_ue8m0);
        }
    }
}

/* Whether the operands of a product are as many, and as large, as its form says. */
static bool has_operands(struct tl_emit *e, const struct product *x)
{
    if (e->inst->n_operands != (x->n_scales > 0 ? 8 : 4) || !fits(x, tl_opd(e, 3), x->c) ||
        !fits(x, tl_opd(e, 0), x->d))
        return false;
    for (uint32_t i = 5; x->n_scales > 0 && i < 8; i += 2) {
        if (tl_opd(e, i)->kind != TL_OPD_VEC || tl_opd(e, i)->n != 2 || x->tiles_m != ROWS ||
            x->tiles_n != 1 || x->c.bits != 32 || x->d.bits != 32)
            return false;
    }
    uint32_t n = n_elements(x) + (x->tiles_m + x->tiles_n) * n_blocks(x);
    return n + (ROWS + COLUMNS) * x->n_scales <= TL_OUTLINED_OPERANDS;
}

static void emit_product(struct tl_emit *e)
{
    struct product x;
    struct tl_val v[TL_OUTLINED_OPERANDS] = {{NULL, false}};
    if (!describe(e->inst->inst.form, &x) || !has_operands(e, &x)) {
        tl_emit_unsupported(e, "this shape or type of matrix");
        return;
    }
    uint32_t n_c = n_elements(&x), n_a = x.tiles_m * n_blocks(&x), n_b = x.tiles_n * n_blocks(&x);
    uint32_t n = n_c + n_a + n_b;
    read_accumulators(e, &x, v);
    read_fragment(e, &x, 1, n_a, v + n_c);
    read_fragment(e, &x, 2, n_b, v + n_c + n_a);
    for (uint32_t is_b = 0; is_b < 2 && x.n_scales > 0 && e->rc == 0; is_b++)
        read_scales(e, &x, is_b, v + n);
    n += (ROWS + COLUMNS) * x.n_scales;
    if (e->rc == 0 && tl_outlines(e))
        tl_outlined(e, multiply, &x, sizeof x, v, n, n_c);
    else if (e->rc == 0)
        multiply(e, &x, v);
    if (e->rc == 0)
        write_accumulators(e, &x, v);
}

bool tl_emit_matrix(struct tl_emit *e)
{
    enum tl_ptx_op op = e->inst->inst.form->op;
    if (op != TL_OP_mma && op != TL_OP_ldmatrix && op != TL_OP_stmatrix && op != TL_OP_wmma)
        return false;
    if (e->uses_lanes)
        tl_emit_unsupported(
            e, "a warp-wide operation in a kernel whose lanes wait at different barriers");
    else if (op == TL_OP_mma || (op == TL_OP_wmma && tl_has(e, TL_MOD_mma)))
        emit_product(e);
    else
        tl_emit_fragment(e);
    return true;
}

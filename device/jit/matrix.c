/* Matrix fragments: ldmatrix and mma.
 *
 * A fragment register of a warp is a vector of 32 lanes; lane 4 g + t holds row (or column) g, and t says which of the k
 * (PTX ISA, "Matrix Fragments for mma").  So, for each k, the column of A that all lanes need is a shuffle within quads of
 * lanes, and the row of B one across the warp: the product is shuffles and fused multiply-adds on whole vectors, without going
 * through memory.
 *
 *     A, row rh * 8 + g, k:       register 2 * kb + rh, element e, of lane 4 g + t'      kb = k / (4 E)
 *     B, k, column n:             register kb,          element e, of lane 4 n + t'      t' = k % (4 E) / E
 *     C, row rh * 8 + g, 2 t + j: register 2 * rh + j                                    e  = k % E
 *
 * with E elements of the input type in a register. */
#include <string.h>

#include "device/jit/emit.h"

struct mma {
    uint32_t m, k;             /* n is 8 */
    struct tl_type a, b, c, d; /* types of the operands */
    uint32_t bits;             /* of an input element */
    uint32_t per_register;     /* E */
    bool is_integer, is_tf32;
};

/* --- shapes and types ---------------------------------------------------------------------------------------------- */

static bool parse_shape(const struct tl_ptx_form *f, uint32_t *m, uint32_t *n, uint32_t *k)
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

static bool describe(const struct tl_ptx_form *f, struct mma *x)
{
    uint32_t n;
    if (!parse_shape(f, &x->m, &n, &x->k) || n != 8 || (x->m != 16 && x->m != 8) ||
        tl_ptx_form_has(f, TL_MOD_satfinite))
        return false;
    x->d = tl_type_of(f, 0);
    x->a = tl_type_of(f, 1);
    x->b = tl_type_of(f, 2);
    x->c = tl_type_of(f, 3);
    x->is_tf32 = tl_ptx_form_has(f, TL_MOD_tf32);
    x->is_integer = x->a.kind == TL_T_SIGNED || x->a.kind == TL_T_UNSIGNED;
    x->bits = x->a.bits;
    x->per_register = x->bits >= 32 ? 1 : 32 / x->bits;
    bool known = x->is_tf32 || x->is_integer || x->a.kind == TL_T_BFLOAT || x->a.kind == TL_T_FLOAT;
    bool volta = x->m == 8 && x->a.kind == TL_T_FLOAT && x->bits == 16; /* another layout */
    return known && !volta && x->c.bits != 0 && x->k % (4 * x->per_register) == 0 && x->bits >= 8;
}

/* --- elements ------------------------------------------------------------------------------------------------------ */

/* Element e of a fragment register, in the type that is multiplied: f32, f64 or i32. */
static struct tl_val element(struct tl_emit *e, const struct mma *x, struct tl_type t, struct tl_val reg,
                             uint32_t which)
{
    struct tl_val v = tl_widen(e, reg);
    if (x->is_tf32) /* the low bits do not count */
        return tl_bitcast(e, tl_op(e, LLVMAnd, v, tl_const(e, 32, 0xffffe000)), e->f32);
    if (x->bits == 64)
        return tl_bitcast(e, v, e->f64);
    v = tl_op(e, LLVMLShr, v, tl_const(e, 32, (uint64_t)which * x->bits));
    v = tl_cast_int(e, v, x->bits, false);
    if (x->is_integer)
        return tl_cast_int(e, v, 32, t.kind == TL_T_SIGNED);
    v = tl_to_float(e, v, (struct tl_type){t.kind, x->bits, 1});
    if (t.kind == TL_T_FLOAT && x->bits == 16)
        v.v = LLVMBuildFPExt(e->b, v.v, tl_vec(e->f32), "");
    return v;
}

static LLVMValueRef shuffled(struct tl_emit *e, LLVMValueRef v, uint32_t (*from)(uint32_t lane, uint32_t t, uint32_t j),
                             uint32_t t, uint32_t j)
{
    LLVMValueRef index[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        index[i] = LLVMConstInt(e->i32, from(i, t, j), false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(index, LANES), "");
}

static uint32_t from_quad(uint32_t lane, uint32_t t, uint32_t j)
{
    (void)j;
    return (lane & ~3u) | t; /* the same g */
}

static uint32_t from_column(uint32_t lane, uint32_t t, uint32_t j)
{
    return (2 * (lane & 3) + j) * 4 + t; /* column 2 t + j of the lane that asks */
}

static struct tl_val multiply_add(struct tl_emit *e, const struct mma *x, LLVMValueRef a, LLVMValueRef b,
                                  struct tl_val c)
{
    if (x->is_integer)
        return (struct tl_val){LLVMBuildAdd(e->b, c.v, LLVMBuildMul(e->b, a, b, ""), ""), true};
    struct tl_val args[3] = {{a, true}, {b, true}, c};
    return tl_intrinsic(e, "llvm.fma", args, 3);
}

/* --- accumulators -------------------------------------------------------------------------------------------------- */

/* C and D as one vector per element: registers of f32, f64 or s32, or pairs of halves. */
static bool read_accumulators(struct tl_emit *e, const struct mma *x, struct tl_val *c)
{
    const struct tl_ptx_operand *o = tl_opd(e, 3);
    uint32_t n = x->m / 4; /* elements per lane */
    bool is_half = x->c.bits == 16;
    if (o->kind != TL_OPD_VEC || o->n != (is_half ? n / 2 : n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct tl_val v = tl_widen(e, tl_read(e, &o->elems[is_half ? i / 2 : i], is_half ? 32 : x->c.bits));
        if (is_half) {
            v = tl_cast_int(e, tl_op(e, LLVMLShr, v, tl_const(e, 32, (uint64_t)(i % 2) * 16)), 16, false);
            v = tl_bitcast(e, v, e->f16);
            v.v = LLVMBuildFPExt(e->b, v.v, tl_vec(e->f32), "");
        } else if (x->c.kind == TL_T_FLOAT) {
            v = tl_bitcast(e, v, x->c.bits == 64 ? e->f64 : e->f32);
        }
        c[i] = v;
    }
    return true;
}

static bool write_accumulators(struct tl_emit *e, const struct mma *x, struct tl_val *c)
{
    const struct tl_ptx_operand *o = tl_opd(e, 0);
    uint32_t n = x->m / 4;
    bool is_half = x->d.bits == 16;
    if (o->kind != TL_OPD_VEC || o->n != (is_half ? n / 2 : n))
        return false;
    for (uint32_t i = 0; i < o->n; i++) {
        struct tl_val v;
        if (is_half) {
            struct tl_val half[2];
            for (uint32_t h = 0; h < 2; h++) {
                half[h] = (struct tl_val){LLVMBuildFPTrunc(e->b, c[2 * i + h].v, tl_vec(e->f16), ""), true};
                half[h] = tl_cast_int(e, tl_bitcast(e, half[h], e->i16), 32, false);
            }
            v = tl_op(e, LLVMOr, half[0], tl_op(e, LLVMShl, half[1], tl_const(e, 32, 16)));
        } else {
            v = x->d.kind == TL_T_FLOAT ? tl_bitcast(e, c[i], tl_int(e, x->d.bits)) : c[i];
        }
        tl_write(e, &o->elems[i], v, false);
    }
    return true;
}

static const struct tl_ptx_operand *fragment(const struct tl_ptx_operand *o, uint32_t i)
{
    return o->kind == TL_OPD_VEC ? (i < o->n ? &o->elems[i] : NULL) : i == 0 ? o : NULL;
}

static void emit_mma(struct tl_emit *e)
{
    struct mma x;
    struct tl_val c[4];
    if (e->inst->n_operands != 4 || !describe(e->inst->inst.form, &x) || !read_accumulators(e, &x, c)) {
        tl_emit_unsupported(e, "this shape or type of mma");
        return;
    }
    uint32_t halves = x.m / 8, register_bits = x.bits == 64 ? 64 : 32;
    for (uint32_t k = 0; k < x.k && e->rc == 0; k++) {
        uint32_t kb = k / (4 * x.per_register), t = k % (4 * x.per_register) / x.per_register,
                 which = k % x.per_register;
        const struct tl_ptx_operand *ob = fragment(tl_opd(e, 2), kb);
        if (ob == NULL) {
            tl_emit_unsupported(e, "this number of fragment registers");
            return;
        }
        LLVMValueRef b = element(e, &x, x.b, tl_read(e, ob, register_bits), which).v;
        LLVMValueRef columns[2] = {shuffled(e, b, from_column, t, 0), shuffled(e, b, from_column, t, 1)};
        for (uint32_t rh = 0; rh < halves; rh++) {
            const struct tl_ptx_operand *oa = fragment(tl_opd(e, 1), halves * kb + rh);
            if (oa == NULL) {
                tl_emit_unsupported(e, "this number of fragment registers");
                return;
            }
            LLVMValueRef a = shuffled(e, element(e, &x, x.a, tl_read(e, oa, register_bits), which).v, from_quad, t, 0);
            for (uint32_t j = 0; j < 2; j++)
                c[2 * rh + j] = multiply_add(e, &x, a, columns[j], c[2 * rh + j]);
        }
    }
    if (e->rc == 0 && !write_accumulators(e, &x, c))
        tl_emit_unsupported(e, "this number of accumulators");
}

/* --- ldmatrix ------------------------------------------------------------------------------------------------------ */

static struct tl_val gather(struct tl_emit *e, struct tl_val addresses, uint32_t bits)
{
    LLVMTypeRef type = tl_vec(tl_int(e, bits)), over[2] = {type, tl_vec(e->ptr)};
    unsigned id = LLVMLookupIntrinsicID("llvm.masked.gather", 18);
    LLVMValueRef pointers = LLVMBuildIntToPtr(e->b, addresses.v, tl_vec(e->ptr), "");
    LLVMValueRef args[4] = {pointers, LLVMConstInt(e->i32, bits / 8, false), tl_active(e), LLVMConstNull(type)};
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, over, 2);
    return (struct tl_val){LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, over, 2), fn, args, 4, ""), true};
}

static uint32_t row_of_group(uint32_t lane, uint32_t matrix, uint32_t j)
{
    (void)j;
    return matrix * 8 + lane / 4;
}

static uint32_t row_of_pair(uint32_t lane, uint32_t matrix, uint32_t j)
{
    return matrix * 8 + 2 * (lane & 3) + j;
}

/* Lane 8 i + r gives the address of row r of matrix i; lane 4 g + t gets elements 2 t and 2 t + 1 of row g, or of column g. */
static void emit_ldmatrix(struct tl_emit *e)
{
    const struct tl_ptx_form *f = e->inst->inst.form;
    const struct tl_ptx_operand *to = tl_opd(e, 0);
    uint32_t n = tl_ptx_form_has_text(f, "x4") ? 4 : tl_ptx_form_has_text(f, "x2") ? 2 : 1;
    bool is_trans = tl_has(e, TL_MOD_trans);
    if (!tl_ptx_form_has_text(f, "m8n8") || !tl_has(e, TL_MOD_b16) || (to->kind == TL_OPD_VEC ? to->n : 1) != n) {
        tl_emit_unsupported(e, "this form of ldmatrix");
        return;
    }
    struct tl_address a = tl_address_of(e, tl_opd(e, 1), tl_ptx_form_space(f));
    if (e->rc != 0)
        return;
    struct tl_val rows = tl_lane_addresses(e, &a);
    int64_t offsets[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        offsets[i] = is_trans ? (int64_t)(i / 4) * 2 : (int64_t)(i % 4) * 4;
    struct tl_val within = {tl_const_lanes(e, 64, offsets), true};
    for (uint32_t m = 0; m < n; m++) {
        struct tl_val r;
        if (is_trans) {
            struct tl_val half[2];
            for (uint32_t j = 0; j < 2; j++) {
                struct tl_val row = {shuffled(e, rows.v, row_of_pair, m, j), true};
                half[j] = tl_cast_int(e, gather(e, tl_op(e, LLVMAdd, row, within), 16), 32, false);
            }
            r = tl_op(e, LLVMOr, half[0], tl_op(e, LLVMShl, half[1], tl_const(e, 32, 16)));
        } else {
            struct tl_val row = {shuffled(e, rows.v, row_of_group, m, 0), true};
            r = gather(e, tl_op(e, LLVMAdd, row, within), 32);
        }
        tl_write(e, to->kind == TL_OPD_VEC ? &to->elems[m] : to, r, false);
    }
}

bool tl_emit_matrix(struct tl_emit *e)
{
    enum tl_ptx_op op = e->inst->inst.form->op;
    if (op != TL_OP_mma && op != TL_OP_ldmatrix)
        return false;
    if (e->uses_lanes)
        tl_emit_unsupported(e, "a warp-wide operation in a kernel whose lanes wait at different barriers");
    else if (op == TL_OP_mma)
        emit_mma(e);
    else
        emit_ldmatrix(e);
    return true;
}

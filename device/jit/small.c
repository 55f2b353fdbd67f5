/* Floating point of 8, 6 and 4 bits: e4m3, e5m2, e2m3, e3m2, e2m1, and scales of 8 bits without a
 * sign, ue8m0 (an exponent, 255 is NaN) and ue4m3.  They come in pairs: two bytes, or, of e2m1, two
 * halves of a byte. */
#include "device/jit/emit.h"
#include "device/jit/round.h"
#include "device/jit/value.h"

static const struct tl_small formats[] = {
    {"e4m3", 8, 7, 3, 0x7e, true},  {"e5m2", 8, 15, 2, 0x7b, true}, {"e2m3", 6, 1, 3, 0x1f, false},
    {"e3m2", 6, 3, 2, 0x1f, false}, {"e2m1", 4, 1, 1, 0x07, false},
};

const struct tl_small *tl_small_of(const struct tl_ptx_form *f, uint32_t n)
{
    for (uint32_t i = 0; i < f->n_mods; i++) {
        for (uint32_t k = 0; k < sizeof formats / sizeof formats[0]; k++) {
            struct tl_str text = f->mods[i].text;
            bool is_it = tl_str_starts(text, formats[k].name) && (text.n == 4 || text.p[4] == 'x');
            if (is_it && n-- == 0)
                return &formats[k];
        }
    }
    return NULL;
}

/* --- to few bits ------------------------------------------------------------------------------ */

/* f32 to nearest even, too large to the largest; as i32. */
static struct tl_val to_small(struct tl_emit *e, struct tl_val v, const struct tl_small *f)
{
    struct tl_val bits = tl_bitcast(e, v, e->i32),
                  size = tl_op(e, LLVMAnd, bits, tl_const(e, 32, 0x7fffffff));
    uint32_t shift = 23 - f->mantissa, least_normal = (127 - f->bias + 1) << 23,
             one = (127 - f->bias + 1 + shift) << 23;
    /* Normal: add just less than a half of the last bit, or that half if the last bit is odd. */
    struct tl_val odd = tl_op(e, LLVMAnd, tl_op(e, LLVMLShr, size, tl_const(e, 32, shift)),
                              tl_const(e, 32, 1));
    struct tl_val normal = tl_op(e, LLVMAdd, tl_op(e, LLVMAdd, size, odd),
                                 tl_const(e, 32, (1u << (shift - 1)) - 1));
    normal = tl_op(e, LLVMSub, tl_op(e, LLVMLShr, normal, tl_const(e, 32, shift)),
                   tl_const(e, 32, (127 - f->bias) << f->mantissa));
    /* Below: adding a number whose last bit is the least subnormal rounds there. */
    struct tl_val sum = tl_op(e, LLVMFAdd, tl_bitcast(e, size, e->f32),
                              tl_bitcast(e, tl_const(e, 32, one), e->f32));
    struct tl_val subnormal = tl_op(e, LLVMSub, tl_bitcast(e, sum, e->i32), tl_const(e, 32, one));
    struct tl_val r = tl_select(e, tl_icmp(e, LLVMIntULT, size, tl_const(e, 32, least_normal)),
                                subnormal, normal);
    r = tl_select(e, tl_icmp(e, LLVMIntUGT, r, tl_const(e, 32, f->most)), tl_const(e, 32, f->most),
                  r);
    struct tl_val sign = tl_op(e, LLVMLShr, bits, tl_const(e, 32, 32 - f->bits));
    r = tl_op(e, LLVMOr, r, tl_op(e, LLVMAnd, sign, tl_const(e, 32, 1u << (f->bits - 1))));
    return tl_select(e, tl_fcmp(e, LLVMRealUNO, v, v), tl_const(e, 32, f->has_nan ? 0x7f : f->most),
                     r);
}

/* The exponent of a number's size, one more for .rp where something follows it that counts. */
static struct tl_val to_exponent(struct tl_emit *e, struct tl_val v)
{
    enum { INF = 0x7f800000, LEAST = 0x00400000, FRACTION = 0x007fffff };
    struct tl_val size = tl_op(e, LLVMAnd, tl_bitcast(e, v, e->i32), tl_const(e, 32, 0x7fffffff));
    struct tl_val r = tl_op(e, LLVMLShr, size, tl_const(e, 32, 23));
    if (tl_rounding_of(e) == TL_ROUND_UP) {
        struct tl_val up = tl_op(e, LLVMLShr, tl_op(e, LLVMAdd, size, tl_const(e, 32, FRACTION)),
                                 tl_const(e, 32, 23));
        struct tl_val counts = tl_icmp(e, LLVMIntUGT, size, tl_const(e, 32, LEAST));
        struct tl_val ends = tl_icmp(e, LLVMIntULT, size, tl_const(e, 32, INF));
        r = tl_select(e, tl_op(e, LLVMAnd, counts, ends), up, r);
    }
    if (!tl_has(e, TL_MOD_satfinite))
        return r;
    struct tl_val args[2] = {r, tl_const(e, 32, 254)};
    tl_match(e, &args[0], &args[1]);
    return tl_select(e, tl_icmp(e, LLVMIntULE, size, tl_const(e, 32, INF)),
                     tl_intrinsic(e, "llvm.umin", args, 2), r);
}

/* Number p of a pair, as f32: an operand of its own, or a half of a register. */
static struct tl_val source(struct tl_emit *e, uint32_t p)
{
    struct tl_type f32 = {TL_T_FLOAT, 32, 1},
                   half = {tl_has(e, TL_MOD_bf16x2) ? TL_T_BFLOAT : TL_T_FLOAT, 16, 1};
    if (e->inst->n_operands == 3)
        return tl_read_as(e, tl_opd(e, 2 - p), f32);
    struct tl_val v = tl_part_of(e, tl_read(e, tl_opd(e, 1), 32), 16, p);
    v = tl_to_float(e, v, half);
    return half.kind == TL_T_BFLOAT ? v : tl_extend(e, v, e->f32);
}

/* `f` NULL: ue8m0 */
static void emit_to_small(struct tl_emit *e, const struct tl_small *f)
{
    uint32_t bits = f != NULL && f->bits == 4 ? 4 : 8;
    struct tl_val r[2];
    for (uint32_t p = 0; p < 2; p++) {
        struct tl_val v = source(e, p);
        if (tl_ptx_form_has_text(e->inst->inst.form, "relu"))
            v = tl_relu(e, v);
        r[p] = f != NULL ? to_small(e, v, f) : to_exponent(e, v);
    }
    r[0] = tl_op(e, LLVMOr, r[0], tl_op(e, LLVMShl, r[1], tl_const(e, 32, bits)));
    tl_write(e, tl_opd(e, 0), tl_cast_int(e, r[0], 2 * bits, false), false);
}

/* --- from few bits ---------------------------------------------------------------------------- */

/* e5m2 is the upper half of an f16; others have their mantissa lower and another bias. */
struct tl_val tl_f16_of_small(struct tl_emit *e, struct tl_val v, const struct tl_small *f)
{
    if (f->bias == 15)
        return tl_bitcast(e, tl_op(e, LLVMShl, v, tl_const(e, 16, 8)), e->f16);
    uint32_t sign_bit = 1u << (f->bits - 1);
    struct tl_val size = tl_op(e, LLVMAnd, v, tl_const(e, 16, sign_bit - 1)),
                  sign = tl_op(e, LLVMShl, tl_op(e, LLVMAnd, v, tl_const(e, 16, sign_bit)),
                               tl_const(e, 16, 16 - f->bits));
    struct tl_val moved = tl_op(e, LLVMShl, size, tl_const(e, 16, 10 - f->mantissa));
    struct tl_val scaled = tl_extend(e, tl_bitcast(e, moved, e->f16), e->f32);
    scaled = tl_op(e, LLVMFMul, scaled, tl_lit(e, scaled, 1u << (15 - f->bias)));
    scaled = tl_truncate(e, scaled, e->f16);
    struct tl_val bits = tl_op(e, LLVMOr, tl_bitcast(e, scaled, e->i16), sign);
    if (f->has_nan)
        bits = tl_select(e, tl_icmp(e, LLVMIntEQ, size, tl_const(e, 16, 0x7f)),
                         tl_const(e, 16, 0x7fff), bits);
    return tl_bitcast(e, bits, e->f16);
}

struct tl_val tl_f32_of_scale(struct tl_emit *e, struct tl_val v, bool is_ue8m0)
{
    if (!is_ue8m0) {
        struct tl_val half = tl_f16_of_small(e, tl_cast_int(e, v, 16, false), &formats[0]);
        return tl_extend(e, half, e->f32);
    }
    struct tl_val bits = tl_op(e, LLVMShl, v, tl_const(e, 32, 23));
    bits = tl_select(e, tl_icmp(e, LLVMIntEQ, v, tl_const(e, 32, 0)), tl_const(e, 32, 0x00400000),
                     bits);
    bits = tl_select(e, tl_icmp(e, LLVMIntEQ, v, tl_const(e, 32, 255)), tl_const(e, 32, 0x7fffffff),
                     bits);
    return tl_bitcast(e, bits, e->f32);
}

/* `f` NULL: ue8m0, to bf16x2 */
static void emit_from_small(struct tl_emit *e, const struct tl_small *f)
{
    struct tl_type f16 = {TL_T_FLOAT, 16, 1};
    uint32_t bits = f != NULL && f->bits == 4 ? 4 : 8;
    struct tl_val v = tl_cast_int(e, tl_read(e, tl_opd(e, 1), 2 * bits), 32, false), r[2];
    for (uint32_t p = 0; p < 2; p++) {
        struct tl_val part = tl_part_of(e, v, bits, p);
        if (f == NULL) {
            struct tl_val scale = tl_f32_of_scale(e, tl_cast_int(e, part, 32, false), true);
            r[p] = tl_op(e, LLVMLShr, tl_bitcast(e, scale, e->i32), tl_const(e, 32, 16));
            continue;
        }
        struct tl_val half = tl_f16_of_small(e, tl_cast_int(e, part, 16, false), f);
        if (tl_ptx_form_has_text(e->inst->inst.form, "relu"))
            half = tl_relu(e, half);
        r[p] = tl_cast_int(e, tl_from_float(e, half, f16), 32, false);
    }
    tl_write(e, tl_opd(e, 0), tl_op(e, LLVMOr, r[0], tl_op(e, LLVMShl, r[1], tl_const(e, 32, 16))),
             false);
}

bool tl_emit_small(struct tl_emit *e)
{
    const struct tl_ptx_form *form = e->inst->inst.form;
    const struct tl_small *f = tl_small_of(form, 0);
    bool is_ue8m0 = tl_ptx_form_has_text(form, "ue8m0x2");
    if ((f == NULL && !is_ue8m0) || tl_has(e, TL_MOD_rs))
        return false;
    struct tl_str first = {0}; /* the type that is converted to */
    for (uint32_t i = 0; i < form->n_mods; i++) {
        struct tl_str text = form->mods[i].text;
        if (first.n == 0 && text.n > 2 && text.p[text.n - 2] == 'x')
            first = text;
    }
    if (is_ue8m0 ? tl_str_is(first, "ue8m0x2") : tl_str_starts(first, f->name))
        emit_to_small(e, f);
    else
        emit_from_small(e, f);
    return true;
}

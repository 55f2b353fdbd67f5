/* What AVX-512 does in one instruction and LLVM has no operation for.
 *
 * Such instructions are reached through LLVM's intrinsics for them, 512 bits at a time. */
#include <stdio.h>

#include "device/jit/avx512.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

enum { BITS = 512, MAX_PARTS = TL_LANES / (BITS / 64), CURRENT_ROUNDING = 4 };

static LLVMValueRef joined(struct tl_emit *e, LLVMValueRef *parts, uint32_t n, uint32_t width)
{
    LLVMValueRef index[TL_LANES];
    for (uint32_t i = 0; i < TL_LANES; i++)
        index[i] = LLVMConstInt(e->i32, i, false);
    for (; n > 1; n /= 2, width *= 2) {
        for (uint32_t i = 0; i < n / 2; i++)
            parts[i] = LLVMBuildShuffleVector(e->b, parts[2 * i], parts[2 * i + 1],
                                              LLVMConstVector(index, 2 * width), "");
    }
    return parts[0];
}

/* One instruction on one part of the lanes. */
static LLVMValueRef on_part(struct tl_emit *e, const char *op, LLVMTypeRef element,
                            LLVMValueRef *args, unsigned n)
{
    char name[64];
    int length = snprintf(name, sizeof name, "llvm.x86.avx512.%s.%s.512", op,
                          element == e->f64 ? "pd" : "ps");
    unsigned id = LLVMLookupIntrinsicID(name, (size_t)length);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0);
    return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, NULL, 0), fn, args, n, "");
}

static uint32_t width_of(const struct tl_emit *e, LLVMTypeRef element)
{
    return element == e->f64 ? BITS / 64 : BITS / 32;
}

struct tl_val tl_avx512(struct tl_emit *e, const char *op, LLVMTypeRef element,
                        const struct tl_val *args, unsigned n)
{
    uint32_t width = width_of(e, element), n_parts = TL_LANES / width;
    LLVMValueRef parts[MAX_PARTS], values[6];
    for (uint32_t k = 0; k < n_parts; k++) {
        for (unsigned i = 0; i < n; i++)
            values[i] = args[i].is_vec ? tl_lanes_from(e, args[i].v, k * width, width) : args[i].v;
        parts[k] = on_part(e, op, element, values, n);
    }
    return (struct tl_val){joined(e, parts, n_parts, width), true};
}

/* All lanes of a part take part. */
static LLVMValueRef all(struct tl_emit *e, LLVMTypeRef element)
{
    return LLVMConstAllOnes(element == e->f64 ? e->i8 : e->i16);
}

static LLVMValueRef word(struct tl_emit *e, uint32_t value)
{
    return LLVMConstInt(e->i32, value, false);
}

/* `b` or, by the table's answer for b's kind, something else: four bits per kind, from the lowest:
 * quiet NaN, signalling NaN, zero, one, -inf, inf, negative, positive; 0 for `a`, 1 for b. */
static LLVMValueRef fixed_up(struct tl_emit *e, LLVMTypeRef element, LLVMValueRef a, LLVMValueRef b,
                             uint32_t table)
{
    LLVMValueRef same[TL_LANES];
    uint32_t width = width_of(e, element);
    for (uint32_t i = 0; i < width; i++)
        same[i] = LLVMConstInt(element == e->f64 ? e->i64 : e->i32, table, false);
    LLVMValueRef args[6] = {
        a, b, LLVMConstVector(same, width), word(e, 0), all(e, element), word(e, CURRENT_ROUNDING)};
    return on_part(e, "mask.fixupimm", element, args, 6);
}

struct tl_val tl_avx512_minmax(struct tl_emit *e, LLVMTypeRef element, bool is_min, struct tl_val a,
                               struct tl_val b, struct tl_val nan)
{
    enum { NUMBER_OR_OTHER = 0x11111100, SIGN_OF_RESULT = 4 };
    uint32_t width = width_of(e, element), n_parts = TL_LANES / width;
    LLVMValueRef parts[MAX_PARTS], nan_part = tl_lanes_from(e, nan.v, 0, width);
    for (uint32_t k = 0; k < n_parts; k++) {
        LLVMValueRef x = tl_lanes_from(e, a.v, k * width, width),
                     y = tl_lanes_from(e, b.v, k * width, width);
        y = fixed_up(e, element, x, y, NUMBER_OR_OTHER);
        x = fixed_up(e, element, y, x, NUMBER_OR_OTHER);
        LLVMValueRef args[6] = {x,
                                y,
                                word(e, SIGN_OF_RESULT + !is_min),
                                LLVMGetPoison(LLVMTypeOf(x)),
                                all(e, element),
                                word(e, CURRENT_ROUNDING)};
        parts[k] = fixed_up(e, element, nan_part, on_part(e, "mask.range", element, args, 6),
                            NUMBER_OR_OTHER);
    }
    return (struct tl_val){joined(e, parts, n_parts, width), true};
}

/* One with a second operand, which may be a number, and no lanes left out. */
static struct tl_val plain(struct tl_emit *e, const char *op, struct tl_val x, struct tl_val other)
{
    struct tl_val args[5] = {x,
                             other,
                             {LLVMGetPoison(tl_vec(e->f32)), true},
                             {all(e, e->f32), false},
                             {word(e, CURRENT_ROUNDING), false}};
    return tl_avx512(e, op, e->f32, args, 5);
}

struct tl_val tl_avx512_fraction(struct tl_emit *e, struct tl_val x)
{
    return plain(e, "mask.reduce", x, (struct tl_val){word(e, 0), false});
}

struct tl_val tl_avx512_scale(struct tl_emit *e, struct tl_val x, struct tl_val power)
{
    return plain(e, "mask.scalef", x, power);
}

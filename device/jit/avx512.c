/* What AVX-512 does in one instruction and LLVM has no operation for.
 *
 * Such instructions are reached through LLVM's intrinsics for them, 512 bits at a time. */
#include <stdio.h>
#include <string.h>

#include "device/jit/avx512.h"

enum { BITS = 512, CURRENT_ROUNDING = 4 };

static LLVMValueRef shuffled(struct tl_emit *e, LLVMValueRef a, LLVMValueRef b, uint32_t first, uint32_t n)
{
    LLVMValueRef index[LANES];
    for (uint32_t i = 0; i < n; i++)
        index[i] = LLVMConstInt(e->i32, first + i, false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, n), "");
}

static LLVMValueRef piece(struct tl_emit *e, LLVMValueRef v, uint32_t first, uint32_t n)
{
    return shuffled(e, v, LLVMGetPoison(LLVMTypeOf(v)), first, n);
}

static LLVMValueRef joined(struct tl_emit *e, LLVMValueRef *parts, uint32_t n, uint32_t width)
{
    for (; n > 1; n /= 2, width *= 2) {
        for (uint32_t i = 0; i < n / 2; i++)
            parts[i] = shuffled(e, parts[2 * i], parts[2 * i + 1], 0, 2 * width);
    }
    return parts[0];
}

struct tl_val tl_avx512(struct tl_emit *e, const char *op, LLVMTypeRef element, const struct tl_val *args, unsigned n)
{
    char name[64];
    bool is_f64 = element == e->f64;
    uint32_t width = is_f64 ? BITS / 64 : BITS / 32, n_parts = LANES / width;
    int length = snprintf(name, sizeof name, "llvm.x86.avx512.%s.%s.512", op, is_f64 ? "pd" : "ps");
    unsigned id = LLVMLookupIntrinsicID(name, (size_t)length);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0), parts[LANES / 8];
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, NULL, 0);
    for (uint32_t k = 0; k < n_parts; k++) {
        LLVMValueRef values[6];
        for (unsigned i = 0; i < n; i++)
            values[i] = args[i].is_vec ? piece(e, args[i].v, k * width, width) : args[i].v;
        parts[k] = LLVMBuildCall2(e->b, type, fn, values, n, "");
    }
    return (struct tl_val){joined(e, parts, n_parts, width), true};
}

static struct tl_val scalar(LLVMTypeRef type, uint64_t value)
{
    return (struct tl_val){LLVMConstInt(type, value, false), false};
}

/* All lanes take part. */
static struct tl_val all(struct tl_emit *e, LLVMTypeRef element)
{
    return scalar(element == e->f64 ? e->i8 : e->i16, UINT64_MAX);
}

static struct tl_val nothing(LLVMTypeRef element)
{
    return (struct tl_val){LLVMGetPoison(tl_vec(element)), true};
}

/* `b` or, by the table's answer for b's kind, something else: four bits per kind, from the lowest: quiet NaN, signalling NaN,
 * zero, one, -inf, inf, negative, positive; 0 for `a`, 1 for b. */
static struct tl_val fixed_up(struct tl_emit *e, LLVMTypeRef element, struct tl_val a, struct tl_val b, uint32_t table)
{
    uint32_t bits = element == e->f64 ? 64 : 32;
    struct tl_val args[6] = {a, b,
                             tl_widen(e, tl_const(e, bits, table)),
                             scalar(e->i32, 0),
                             all(e, element),
                             scalar(e->i32, CURRENT_ROUNDING)};
    return tl_avx512(e, "mask.fixupimm", element, args, 6);
}

struct tl_val tl_avx512_minmax(struct tl_emit *e, LLVMTypeRef element, bool is_min, struct tl_val a, struct tl_val b,
                               struct tl_val nan)
{
    enum { NUMBER_OR_OTHER = 0x11111100, SIGN_OF_RESULT = 4 };
    b = fixed_up(e, element, a, b, NUMBER_OR_OTHER);
    a = fixed_up(e, element, b, a, NUMBER_OR_OTHER);
    struct tl_val args[6] = {a, b,
                             scalar(e->i32, SIGN_OF_RESULT + !is_min),
                             nothing(element),
                             all(e, element),
                             scalar(e->i32, CURRENT_ROUNDING)};
    return fixed_up(e, element, nan, tl_avx512(e, "mask.range", element, args, 6), NUMBER_OR_OTHER);
}

struct tl_val tl_avx512_fraction(struct tl_emit *e, struct tl_val x)
{
    struct tl_val args[5] = {x, scalar(e->i32, 0), nothing(e->f32), all(e, e->f32), scalar(e->i32, CURRENT_ROUNDING)};
    return tl_avx512(e, "mask.reduce", e->f32, args, 5);
}

struct tl_val tl_avx512_scale(struct tl_emit *e, struct tl_val x, struct tl_val power)
{
    struct tl_val args[5] = {x, power, nothing(e->f32), all(e, e->f32), scalar(e->i32, CURRENT_ROUNDING)};
    return tl_avx512(e, "mask.scalef", e->f32, args, 5);
}

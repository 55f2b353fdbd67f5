/* Rounding that no instruction does: to odd, and in a direction from a value and what it lacks.
 *
 * Rounding to odd keeps the last bit set where something was lost, so that rounding again to fewer
 * bits, in any direction, is as rounding once. */
#ifndef TALLY_DEVICE_JIT_ROUND_H
#define TALLY_DEVICE_JIT_ROUND_H

#include "device/jit/emit.h"

/* The numbers are those of MXCSR and of vcvtps2ph. */
enum tl_rounding { TL_ROUND_NEAREST, TL_ROUND_DOWN, TL_ROUND_UP, TL_ROUND_ZERO };

/* What the current form asks for: .rz, .rm, .rp; nearest if nothing. */
enum tl_rounding tl_rounding_of(const struct tl_emit *e);

/* f64 `s`, the nearest to an exact s + rest: to odd. */
struct tl_val tl_odd_f64(struct tl_emit *e, struct tl_val s, struct tl_val rest);
/* f64 to f32, to odd. */
struct tl_val tl_odd_f32(struct tl_emit *e, struct tl_val d);
/* f64 to f32 in that direction. */
struct tl_val tl_round_f32(struct tl_emit *e, struct tl_val d, enum tl_rounding mode);
/* f64 `s`, the nearest to an exact s + rest, in that direction; s is finite. */
struct tl_val tl_step_f64(struct tl_emit *e, struct tl_val s, struct tl_val rest,
                          enum tl_rounding mode);
/* f32 to f16, as bits. */
struct tl_val tl_round_f16(struct tl_emit *e, struct tl_val v, enum tl_rounding mode);
/* f32 to bfloat, as bits. */
struct tl_val tl_round_bf16(struct tl_emit *e, struct tl_val v, enum tl_rounding mode);
/* a + b in f64 and what the sum lacks (Knuth). */
struct tl_val tl_two_sum(struct tl_emit *e, struct tl_val a, struct tl_val b, struct tl_val *rest);

/* Floating point of 8, 6 or 4 bits (small.c). */
struct tl_small {
    char name[8];
    uint32_t bits, bias, mantissa; /* bits of the whole and of the mantissa */
    uint32_t most;                 /* the largest finite number, as bits */
    bool has_nan;                  /* all ones; infinity counts as that where there is one */
};
/* The form's modifier number n that names one (0 first), without an x2 or x4; NULL if there are not
 * so many. */
const struct tl_small *tl_small_of(const struct tl_ptx_form *f, uint32_t n);
/* Such a number in an i16, other bits 0: as f16, which holds them all. */
struct tl_val tl_f16_of_small(struct tl_emit *e, struct tl_val v, const struct tl_small *f);
/* A scale of 8 bits in an i32, other bits 0, as f32: a power of two, of ue8m0, or ue4m3. */
struct tl_val tl_f32_of_scale(struct tl_emit *e, struct tl_val v, bool is_ue8m0);
/* cvt to or from one of these; whether the current instruction is one. */
bool tl_emit_small(struct tl_emit *e);

/* A constant of v's type. */
struct tl_val tl_lit(struct tl_emit *e, struct tl_val like, double value);
struct tl_val tl_extend(struct tl_emit *e, struct tl_val v, LLVMTypeRef to);
struct tl_val tl_truncate(struct tl_emit *e, struct tl_val v, LLVMTypeRef to);
/* To [0, 1], NaN to 0; and what is not above 0 to +0, NaN kept.  Any float type. */
struct tl_val tl_saturate(struct tl_emit *e, struct tl_val v);
struct tl_val tl_relu(struct tl_emit *e, struct tl_val v);
/* The smaller or larger of two floats (float.c); NaN loses, unless the current form keeps it.
 * .xorsign is heeded. */
struct tl_val tl_minmax(struct tl_emit *e, struct tl_type t, bool is_min, struct tl_val a,
                        struct tl_val b);

#endif

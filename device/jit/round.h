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

/* 8 bits of floating point, e4m3 or e5m2, in an i16: as f16. */
struct tl_val tl_f16_of_small(struct tl_emit *e, struct tl_val v, bool is_e5m2);

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

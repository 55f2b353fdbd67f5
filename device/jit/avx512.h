/* Single instructions of AVX-512, for vectors of lanes; only where e->has_avx512. */
#ifndef TALLY_DEVICE_JIT_AVX512_H
#define TALLY_DEVICE_JIT_AVX512_H

#include "device/jit/emit.h"

/* llvm.x86.avx512.<op>.{ps,pd}.512 on each part of those operands that are vectors; the others are
 * handed on as they are. */
struct tl_val tl_avx512(struct tl_emit *e, const char *op, LLVMTypeRef element,
                        const struct tl_val *args, unsigned n);

/* Of a number and a NaN the number, of two NaNs `nan`; -0 is below +0.  f32 or f64. */
struct tl_val tl_avx512_minmax(struct tl_emit *e, LLVMTypeRef element, bool is_min, struct tl_val a,
                               struct tl_val b, struct tl_val nan);

/* f32: what x is more than the nearest integer, 0 for infinities; and x * 2^power for an integer,
 * rounded once. */
struct tl_val tl_avx512_fraction(struct tl_emit *e, struct tl_val x);
struct tl_val tl_avx512_scale(struct tl_emit *e, struct tl_val x, struct tl_val power);

#endif

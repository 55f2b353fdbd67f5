/* The translator's vocabulary of values: types, operators, operands, registers, loops over lanes
 * and conditions (value.c). */
#ifndef TALLY_DEVICE_JIT_VALUE_H
#define TALLY_DEVICE_JIT_VALUE_H

#include "device/jit/emit.h"

/* Operators that widen a scalar operand where the other is a vector. */
struct tl_val tl_op(struct tl_emit *e, LLVMOpcode op, struct tl_val a, struct tl_val b);
struct tl_val tl_icmp(struct tl_emit *e, LLVMIntPredicate p, struct tl_val a, struct tl_val b);
struct tl_val tl_fcmp(struct tl_emit *e, LLVMRealPredicate p, struct tl_val a, struct tl_val b);

LLVMTypeRef tl_int(struct tl_emit *e, uint32_t bits);
LLVMTypeRef tl_vec(LLVMTypeRef element);
/* The n-th type of the form (0 first), or the last one with n = -1; bits 0 if there is none. */
struct tl_type tl_type_of(const struct tl_ptx_form *f, int n);
struct tl_val tl_const(struct tl_emit *e, uint32_t bits, uint64_t value);
LLVMValueRef tl_const_lanes(struct tl_emit *e, uint32_t bits, const int64_t offset[TL_LANES]);
struct tl_val tl_widen(struct tl_emit *e, struct tl_val v); /* scalar to vector */
/* both vectors if one is */
void tl_match(struct tl_emit *e, struct tl_val *a, struct tl_val *b);
/* element or vector of it */
LLVMTypeRef tl_like(struct tl_emit *e, struct tl_val v, LLVMTypeRef element);
/* Part number n of a word that holds several, of so many bits each; and the word with such a part
 * added to zeroes. */
struct tl_val tl_part_of(struct tl_emit *e, struct tl_val word, uint32_t bits, uint32_t n);
struct tl_val tl_with_part(struct tl_emit *e, struct tl_val word, struct tl_val part, uint32_t bits,
                           uint32_t n);
struct tl_val tl_cast_int(struct tl_emit *e, struct tl_val v, uint32_t bits, bool is_signed);
struct tl_val tl_bitcast(struct tl_emit *e, struct tl_val v, LLVMTypeRef element);
struct tl_val tl_select(struct tl_emit *e, struct tl_val c, struct tl_val a, struct tl_val b);
struct tl_val tl_intrinsic(struct tl_emit *e, const char *name, struct tl_val *args,
                           unsigned n);                          /* overloaded on arg 0 */
LLVMValueRef tl_mask_bits(struct tl_emit *e, LLVMValueRef mask); /* <32 x i1> (or NULL) to i32 */
LLVMValueRef tl_mask_of_bits(struct tl_emit *e, LLVMValueRef bits);
/* Scalars or masks: what both have, what one has not.  Masks of a quick version stay words. */
LLVMValueRef tl_mask_and(struct tl_emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef tl_mask_not(struct tl_emit *e, LLVMValueRef a);
LLVMValueRef tl_active(struct tl_emit *e); /* current mask as <32 x i1>, never NULL */
LLVMValueRef tl_active_bits(struct tl_emit *e);
/* one lane as a scalar */
struct tl_val tl_lane_value(struct tl_emit *e, struct tl_val v, LLVMValueRef lane);

/* How many elements an operand has, and each of them as an operand: of { a, b }, of a vector
 * register, of a special register that is read whole.  What is none of these is its only
 * element. */
uint32_t tl_elements(const struct tl_ptx_operand *o);
struct tl_ptx_operand tl_element(const struct tl_ptx_operand *o, uint32_t n);

/* Operands as integers of so many bits. */
struct tl_val tl_read(struct tl_emit *e, const struct tl_ptx_operand *o, uint32_t bits);
struct tl_val tl_read_as(struct tl_emit *e, const struct tl_ptx_operand *o,
                         struct tl_type t); /* float types come as floats */
void tl_write(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v, bool is_signed);
void tl_write_as(struct tl_emit *e, const struct tl_ptx_operand *o, struct tl_val v,
                 struct tl_type t);
struct tl_val tl_to_float(struct tl_emit *e, struct tl_val bits, struct tl_type t);
/* Subnormals to zeros of the same sign, for .ftz. */
struct tl_val tl_flush(struct tl_emit *e, struct tl_val v);
struct tl_val tl_from_float(struct tl_emit *e, struct tl_val v, struct tl_type t);
/* Lanes first .. first + n - 1 of a vector. */
LLVMValueRef tl_lanes_from(struct tl_emit *e, LLVMValueRef v, uint32_t first, uint32_t n);
LLVMValueRef tl_alloca(struct tl_emit *e, LLVMTypeRef type, const char *name);
/* What slot `n` of a register holds.  Slots are memory, made when first asked for (a piece of a
 * kernel uses few of them); the values of local registers are kept as they are, as long as they are
 * put where all that follows in the block comes by. */
LLVMValueRef tl_get(struct tl_emit *e, struct tl_reg *r, uint32_t n);
void tl_put(struct tl_emit *e, struct tl_reg *r, uint32_t n, LLVMValueRef v);
/* That memory. */
LLVMValueRef tl_slot(struct tl_emit *e, struct tl_reg *r, uint32_t n);
/* load a field of the frame */
LLVMValueRef tl_field(struct tl_emit *e, uint32_t offset, LLVMTypeRef type);
LLVMValueRef tl_call_frame(struct tl_emit *e, uint32_t slot, LLVMTypeRef ret, LLVMValueRef *args,
                           unsigned n);

/* Memory for a vector of up to 64 bits per lane.  The next instruction uses it again: large kernels
 * have thousands. */
LLVMValueRef tl_scratch(struct tl_emit *e);

/* A vector in memory, for loops that take its lanes one by one: LLVM would store it anew in each
 * round. */
struct tl_spilled {
    LLVMValueRef slot;
    struct tl_val v;
};
struct tl_spilled tl_spill(struct tl_emit *e, struct tl_val v);
LLVMValueRef tl_spilled_lane(struct tl_emit *e, const struct tl_spilled *s, LLVMValueRef lane);

/* A loop over the active lanes; between begin and end the builder stands in its body. */
struct tl_lane_loop {
    LLVMBasicBlockRef head, body, done;
    LLVMValueRef left_slot, lane;
};
void tl_lanes_begin(struct tl_emit *e, struct tl_lane_loop *l);
void tl_lanes_end(struct tl_emit *e, struct tl_lane_loop *l);

/* Ends the launch with that fault if the condition (i1) holds; the code for it stands out of the
 * way. */
void tl_fault_if(struct tl_emit *e, LLVMValueRef condition, uint32_t fault);

/* Emits `if (condition)`: the builder stands inside until tl_if_end. */
struct tl_if {
    LLVMBasicBlockRef done;
};
void tl_if_begin(struct tl_emit *e, struct tl_if *i, LLVMValueRef condition);
void tl_if_end(struct tl_emit *e, struct tl_if *i);

/* How many groups of lanes a warp has: 1 where warps lie along x, else the rows of the block that
 * it holds. */
uint32_t tl_groups(const struct tl_emit *e);
uint32_t tl_n_bases(const struct tl_emit *e, const struct tl_lanes *l);
/* Each lane its group's base and its offset. */
struct tl_val tl_bases_to_lanes(struct tl_emit *e, const LLVMValueRef *bases,
                                const struct tl_lanes *l, uint32_t bits);

#endif

/* Addresses of lanes, and what is done there: loads and stores of all kinds (address.c, align.c,
 * strong.c, gather.c, apart.c). */
#ifndef TALLY_DEVICE_JIT_ADDRESS_H
#define TALLY_DEVICE_JIT_ADDRESS_H

#include "device/jit/value.h"

/* An address operand as 64-bit integers, in host terms. */
struct tl_address {
    struct tl_val pointer; /* where lanes are not known: scalar (all lanes the same) or vector */
    /* from a vector of pointers: kept apart, so that questions about it are asked once */
    int64_t offset;
    struct tl_lanes lanes; /* is_known: lane i is at its base + offset[i] */
    /* a power of two that the pointer or all bases are known to be multiples of; 0: none is */
    uint64_t align;
    LLVMValueRef base[TL_MAX_GROUPS]; /* then: scalars, one or one per group */
};
struct tl_val tl_lane_addresses(struct tl_emit *e, const struct tl_address *a); /* one per lane */
/* The same as a vector of pointers, `extra` bytes further on. */
LLVMValueRef tl_lane_pointers(struct tl_emit *e, const struct tl_address *a, uint64_t extra);
/* The pointer of the only place, or of the first of known lanes, `extra` bytes further on. */
LLVMValueRef tl_first_pointer(struct tl_emit *e, const struct tl_address *a, uint64_t extra);
LLVMValueRef tl_pointer(struct tl_emit *e, LLVMValueRef address);
/* Whether lanes are known, and all of them from one base; whether all have the same place; whether
 * each is `stride` bytes behind the one before it, from one base. */
bool tl_has_one_base(const struct tl_emit *e, const struct tl_address *a);
bool tl_is_one_address(const struct tl_emit *e, const struct tl_address *a);
bool tl_is_packed(const struct tl_emit *e, const struct tl_address *a, uint64_t stride);
/* The power of two that a name's address in shared memory is a multiple of, 1 for all other
 * names. */
uint32_t tl_align_of_name(struct tl_emit *e, const struct tl_ptx_operand *o);
/* Where each thread's local memory begins, as pointers. */
struct tl_val tl_local_base(struct tl_emit *e);
struct tl_address tl_address_of(struct tl_emit *e, const struct tl_ptx_operand *o,
                                enum tl_ptx_mod space);
/* The addresses of an address operand, spilled, for loops over lanes. */
struct tl_spilled tl_spilled_addresses(struct tl_emit *e, const struct tl_ptx_operand *o,
                                       enum tl_ptx_mod space);
/* Ends the launch if an access of so many bytes there is misaligned (align.c). */
void tl_check_alignment(struct tl_emit *e, const struct tl_address *a, uint64_t bytes);

/* --- strong.c: `v` elements of `bits` each per lane, active lanes only ------------------------ */
void tl_load_strong(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                    struct tl_val *out);
void tl_store_strong(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                     struct tl_val *in);

/* --- gather.c: an address of its own for each lane (64-bit integers); active lanes only ------- */
struct tl_val tl_gather(struct tl_emit *e, struct tl_val addresses, uint32_t bits);
void tl_scatter(struct tl_emit *e, struct tl_val addresses, struct tl_val v, uint32_t bits);
/* Up to eight elements per lane, one behind the other. */
void tl_gather_elements(struct tl_emit *e, struct tl_val addresses, uint32_t bits, uint32_t n,
                        struct tl_val *out);
void tl_scatter_elements(struct tl_emit *e, struct tl_val addresses, uint32_t bits, uint32_t n,
                         const struct tl_val *in);
/* Stores `v` where lanes are known and all active, without a scatter, if that pays; false: nothing
 * was stored (apart.c). */
bool tl_store_apart(struct tl_emit *e, const struct tl_address *a, uint32_t bits, LLVMValueRef v);

#endif

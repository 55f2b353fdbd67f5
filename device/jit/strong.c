/* Loads and stores that other threads may race with (.volatile, .relaxed, .acquire, .release,
 * .mmio): lane by lane, each piece at once. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

/* How many elements of a racing vector access go in one piece.  Hardware moves up to 16 bytes at
 * once, and programs (flag and value of a look-back scan, for one) live on never seeing half of
 * them. */
static uint32_t elements_at_once(uint32_t bits, uint32_t v)
{
    while (v * bits > 128)
        v /= 2;
    return v;
}

static LLVMTypeRef piece_type(struct tl_emit *e, uint32_t bits, uint32_t n)
{
    LLVMTypeRef element = tl_int(e, bits);
    return n == 1 ? element : n * bits <= 64 ? tl_int(e, n * bits) : LLVMVectorType(element, n);
}

/* Makes a load or store of a piece indivisible.  Those of 16 bytes are single aligned vector moves,
 * which CPUs with AVX do at once, but which LLVM knows as volatile only: the fence keeps its other
 * accesses on their side. */
static void make_strong(struct tl_emit *e, LLVMValueRef access, uint32_t bytes,
                        LLVMAtomicOrdering order)
{
    LLVMSetAlignment(access, bytes);
    LLVMSetVolatile(access, true);
    if (bytes <= 8)
        LLVMSetOrdering(access, order);
    else if (order != LLVMAtomicOrderingMonotonic)
        LLVMBuildFence(e->b, order, true, "");
}

static LLVMValueRef load_piece(struct tl_emit *e, LLVMValueRef from, uint32_t bits, uint32_t n,
                               LLVMAtomicOrdering order)
{
    tl_bus_reach(e, from, TL_DEV_READ);
    LLVMValueRef x = LLVMBuildLoad2(e->b, piece_type(e, bits, n), from, "");
    make_strong(e, x, n * bits / 8, order);
    return n > 1 && n * bits <= 64
               ? LLVMBuildBitCast(e->b, x, LLVMVectorType(tl_int(e, bits), n), "")
               : x;
}

static LLVMValueRef piece_element(struct tl_emit *e, LLVMValueRef piece, uint32_t n, uint32_t k)
{
    return n == 1 ? piece
                  : LLVMBuildExtractElement(e->b, piece, LLVMConstInt(e->i32, k, false), "");
}

/* Loads that other threads may race with: lane by lane, each piece at once. */
void tl_load_strong(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                    struct tl_val *out)
{
    LLVMTypeRef element = tl_int(e, bits);
    LLVMAtomicOrdering order = tl_has(e, TL_MOD_acquire) ? LLVMAtomicOrderingAcquire
                                                         : LLVMAtomicOrderingMonotonic;
    uint32_t n = elements_at_once(bits, v);
    if (tl_is_one_address(e, a)) {
        for (uint32_t at = 0; at < v; at += n) {
            LLVMValueRef piece = load_piece(e, tl_first_pointer(e, a, at * (bits / 8)), bits, n,
                                            order);
            for (uint32_t k = 0; k < n; k++)
                out[at + k] = (struct tl_val){piece_element(e, piece, n, k), false};
        }
        return;
    }
    LLVMValueRef slots[8] = {NULL};
    struct tl_spilled pointers[8];
    for (uint32_t k = 0; k < v; k++)
        slots[k] = tl_scratch(e);
    for (uint32_t at = 0; at < v; at += n)
        pointers[at] = tl_spill(e, (struct tl_val){tl_lane_pointers(e, a, at * (bits / 8)), true});
    struct tl_lane_loop l;
    tl_lanes_begin(e, &l);
    for (uint32_t at = 0; at < v; at += n) {
        LLVMValueRef piece = load_piece(e, tl_spilled_lane(e, &pointers[at], l.lane), bits, n,
                                        order);
        for (uint32_t k = 0; k < n; k++)
            LLVMBuildStore(e->b, piece_element(e, piece, n, k),
                           LLVMBuildGEP2(e->b, element, slots[at + k], &l.lane, 1, ""));
    }
    tl_lanes_end(e, &l);
    for (uint32_t k = 0; k < v; k++) {
        out[k] = (struct tl_val){LLVMBuildLoad2(e->b, tl_vec(element), slots[k], ""), true};
        LLVMSetAlignment(out[k].v, bits / 8);
    }
}

/* The mirror image of tl_load_strong. */
void tl_store_strong(struct tl_emit *e, const struct tl_address *a, uint32_t bits, uint32_t v,
                     struct tl_val *in)
{
    LLVMAtomicOrdering order = tl_has(e, TL_MOD_release) ? LLVMAtomicOrderingRelease
                                                         : LLVMAtomicOrderingMonotonic;
    struct tl_spilled pointers[8], values[8];
    uint32_t n = elements_at_once(bits, v);
    for (uint32_t k = 0; k < v; k++)
        values[k] = tl_spill(e, in[k]);
    for (uint32_t at = 0; at < v; at += n)
        pointers[at] = tl_spill(e, (struct tl_val){tl_lane_pointers(e, a, at * (bits / 8)), true});
    struct tl_lane_loop l;
    tl_lanes_begin(e, &l);
    for (uint32_t at = 0; at < v; at += n) {
        LLVMValueRef piece = tl_spilled_lane(e, &values[at], l.lane);
        if (n > 1) {
            LLVMValueRef elements = LLVMGetUndef(LLVMVectorType(tl_int(e, bits), n));
            for (uint32_t k = 0; k < n; k++)
                elements = LLVMBuildInsertElement(e->b, elements,
                                                  tl_spilled_lane(e, &values[at + k], l.lane),
                                                  LLVMConstInt(e->i32, k, false), "");
            piece = LLVMBuildBitCast(e->b, elements, piece_type(e, bits, n), "");
        }
        if (n * bits > 64 && order != LLVMAtomicOrderingMonotonic)
            LLVMBuildFence(e->b, order, true, "");
        LLVMValueRef to = tl_spilled_lane(e, &pointers[at], l.lane);
        tl_bus_reach(e, to, TL_DEV_WRITE);
        LLVMValueRef s = LLVMBuildStore(e->b, piece, to);
        make_strong(e, s, n * bits / 8, n * bits > 64 ? LLVMAtomicOrderingMonotonic : order);
    }
    tl_lanes_end(e, &l);
}

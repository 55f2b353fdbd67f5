/* Misaligned accesses: CUDA makes them an error, processors do not.
 *
 * Each access of more than a byte tests its address, or the one base that all lanes' addresses
 * follow from, and goes to one place per function if it is wrong.  What the analysis knows to be
 * aligned is not tested. */
#include "device/abi.h"
#include "device/jit/address.h"
#include "device/jit/emit.h"
#include "device/jit/value.h"

/* The end of a launch, out of the way; made once per function. */
static LLVMBasicBlockRef fault_block(struct tl_emit *e)
{
    struct tl_fn *f = e->f;
    if (f->misaligned != NULL)
        return f->misaligned;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    f->misaligned = LLVMAppendBasicBlockInContext(e->ctx, f->fn, "misaligned");
    LLVMPositionBuilderAtEnd(e->b, f->misaligned);
    LLVMValueRef args[4] = {f->frame, f->warp, LLVMConstInt(e->i32, TL_DEV_FAULT_MISALIGNED, false),
                            LLVMConstInt(e->i64, 0, false)};
    tl_call_frame(e, offsetof(struct tl_dev_calls, fault), e->voidt, args, 4);
    LLVMBuildUnreachable(e->b);
    LLVMPositionBuilderAtEnd(e->b, here);
    return f->misaligned;
}

/* Bits that are set if a lane that takes part has a misaligned address, as i64; NULL if it is known
 * that none has. */
static LLVMValueRef wrong_bits(struct tl_emit *e, const struct tl_address *a, uint64_t bytes)
{
    LLVMValueRef low = LLVMConstInt(e->i64, bytes - 1, false), r = NULL;
    bool is_regular = a->lanes.is_known;
    for (int i = 0; i < TL_LANES && is_regular; i++)
        is_regular = (uint64_t)a->lanes.offset[i] % bytes == 0;
    if ((is_regular || (!a->lanes.is_known && !a->pointer.is_vec)) && a->align >= bytes)
        return NULL;
    if (is_regular) {
        for (uint32_t g = 0; g < tl_n_bases(e, &a->lanes); g++) {
            LLVMValueRef bits = LLVMBuildAnd(e->b, a->base[g], low, "");
            r = r != NULL ? LLVMBuildOr(e->b, r, bits, "") : bits;
        }
        return r;
    }
    if (!a->lanes.is_known && !a->pointer.is_vec)
        return LLVMBuildAnd(e->b, a->pointer.v, low, "");
    struct tl_val bits = tl_op(e, LLVMAnd, tl_lane_addresses(e, a), tl_const(e, 64, bytes - 1));
    struct tl_val is_wrong = tl_icmp(e, LLVMIntNE, bits, tl_const(e, 64, 0));
    LLVMValueRef lanes = LLVMBuildAnd(e->b, tl_mask_bits(e, is_wrong.v), tl_active_bits(e), "");
    return LLVMBuildZExt(e->b, lanes, e->i64, "");
}

void tl_check_alignment(struct tl_emit *e, const struct tl_address *a, uint64_t bytes)
{
    if (bytes < 2 || (bytes & (bytes - 1)) != 0)
        return;
    LLVMValueRef bits = wrong_bits(e, a, bytes);
    if (bits == NULL)
        return;
    LLVMValueRef is_wrong = LLVMBuildICmp(e->b, LLVMIntNE, bits, LLVMConstInt(e->i64, 0, false),
                                          "");
    if (e->mask != NULL) { /* where no lane takes part, the address may be anything */
        LLVMValueRef any = LLVMBuildICmp(e->b, LLVMIntNE, tl_active_bits(e),
                                         LLVMConstInt(e->i32, 0, false), "");
        is_wrong = LLVMBuildAnd(e->b, is_wrong, any, "");
    }
    LLVMBasicBlockRef good = LLVMAppendBasicBlockInContext(e->ctx, e->f->fn, "aligned");
    LLVMBuildCondBr(e->b, is_wrong, fault_block(e), good);
    LLVMPositionBuilderAtEnd(e->b, good);
}

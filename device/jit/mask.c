/* Masks on CPUs without registers for them.
 *
 * LLVM has no good home for 32 truth values where there is no AVX-512: between blocks it keeps them
 * as bytes, which are packed from the words that comparisons give and unpacked for each selection,
 * and in memory as single bits, which it puts in and takes out one by one.  So, before code is
 * made, masks in memory and in phis become plain 32-bit words; where they are used often they are
 * made from the word in a form that is a comparison of 32-bit lanes, as selections and masked
 * accesses want it. */
#include <stdlib.h>

#include "device/jit/emit.h"
#include "device/jit/function.h"
#include "device/jit/value.h"

static bool is_mask(struct tl_emit *e, LLVMTypeRef t)
{
    return LLVMGetTypeKind(t) == LLVMVectorTypeKind && LLVMGetVectorSize(t) == TL_LANES &&
           LLVMGetElementType(t) == e->i1;
}

/* Lane i's bit i of the word, at the builder's place: as a sign, which is all that selections and
 * masked accesses look at. */
static LLVMValueRef mask_of_word(struct tl_emit *e, LLVMValueRef word)
{
    int64_t by[TL_LANES];
    for (int i = 0; i < TL_LANES; i++)
        by[i] = TL_LANES - 1 - i;
    LLVMValueRef wide = tl_widen(e, (struct tl_val){word, false}).v;
    LLVMValueRef sign = LLVMBuildShl(e->b, wide, tl_const_lanes(e, 32, by), "");
    return LLVMBuildICmp(e->b, LLVMIntSLT, sign, LLVMConstNull(tl_vec(e->i32)), "");
}

static bool is_word_to_mask(struct tl_emit *e, LLVMValueRef i)
{
    return LLVMGetInstructionOpcode(i) == LLVMBitCast && LLVMTypeOf(LLVMGetOperand(i, 0)) == e->i32;
}

static LLVMValueRef first_behind_phis(LLVMBasicBlockRef block)
{
    LLVMValueRef i = LLVMGetFirstInstruction(block);
    while (LLVMGetInstructionOpcode(i) == LLVMPHI)
        i = LLVMGetNextInstruction(i);
    return i;
}

/* Builds the mask's word right behind it. */
static LLVMValueRef word_of_mask(struct tl_emit *e, LLVMValueRef mask)
{
    if (is_word_to_mask(e, mask))
        return LLVMGetOperand(mask, 0);
    LLVMPositionBuilderBefore(e->b, LLVMGetNextInstruction(mask));
    return LLVMBuildBitCast(e->b, mask, e->i32, "");
}

/* One with the block of a phi becomes a phi of words. */
static LLVMValueRef word_phi(struct tl_emit *e, LLVMValueRef phi)
{
    LLVMPositionBuilderBefore(e->b, phi);
    LLVMValueRef words = LLVMBuildPhi(e->b, e->i32, "");
    for (unsigned i = 0; i < LLVMCountIncoming(phi); i++) {
        LLVMBasicBlockRef from = LLVMGetIncomingBlock(phi, i);
        LLVMPositionBuilderBefore(e->b, LLVMGetBasicBlockTerminator(from));
        LLVMValueRef word = LLVMBuildBitCast(e->b, LLVMGetIncomingValue(phi, i), e->i32, "");
        LLVMAddIncoming(words, &word, &from, 1);
    }
    LLVMPositionBuilderBefore(e->b, first_behind_phis(LLVMGetInstructionParent(phi)));
    return LLVMBuildBitCast(e->b, words, tl_vec(e->i1), "");
}

static void replace(LLVMValueRef i, LLVMValueRef by)
{
    LLVMReplaceAllUsesWith(i, by);
    LLVMInstructionEraseFromParent(i);
}

/* Phis, loads and stores of masks become those of words. */
static void move_to_words(struct tl_emit *e, LLVMBasicBlockRef block)
{
    for (LLVMValueRef i = LLVMGetFirstInstruction(block), next; i != NULL; i = next) {
        next = LLVMGetNextInstruction(i);
        LLVMOpcode op = LLVMGetInstructionOpcode(i);
        if (op == LLVMPHI && is_mask(e, LLVMTypeOf(i))) {
            replace(i, word_phi(e, i));
        } else if (op == LLVMLoad && is_mask(e, LLVMTypeOf(i))) {
            LLVMPositionBuilderBefore(e->b, i);
            LLVMValueRef word = LLVMBuildLoad2(e->b, e->i32, LLVMGetOperand(i, 0), "");
            LLVMSetAlignment(word, LLVMGetAlignment(i));
            replace(i, LLVMBuildBitCast(e->b, word, tl_vec(e->i1), ""));
        } else if (op == LLVMStore && is_mask(e, LLVMTypeOf(LLVMGetOperand(i, 0)))) {
            LLVMPositionBuilderBefore(e->b, i);
            LLVMValueRef word = LLVMBuildBitCast(e->b, LLVMGetOperand(i, 0), e->i32, "");
            LLVMSetAlignment(LLVMBuildStore(e->b, word, LLVMGetOperand(i, 1)), LLVMGetAlignment(i));
            LLVMInstructionEraseFromParent(i);
        }
    }
}

enum { MANY = 3 };

struct use {
    LLVMValueRef user;
    LLVMBasicBlockRef block;
};

static int by_block(const void *a, const void *b)
{
    const struct use *x = a, *y = b;
    return x->block < y->block ? -1 : x->block > y->block;
}

static void set_operands(LLVMValueRef user, LLVMValueRef from, LLVMValueRef to)
{
    for (int i = 0; i < LLVMGetNumOperands(user); i++) {
        if (LLVMGetOperand(user, (unsigned)i) == from)
            LLVMSetOperand(user, (unsigned)i, to);
    }
}

/* Where a block has many uses of a mask that comes from a word or from another block, they take it
 * from the word, as words. Few uses are better off with bytes, which need fewer registers until
 * they are unpacked. */
static void localise(struct tl_emit *e, LLVMValueRef mask)
{
    LLVMBasicBlockRef home = LLVMGetInstructionParent(mask);
    bool is_from_word = is_word_to_mask(e, mask);
    uint32_t n = 0, at = 0;
    for (LLVMUseRef u = LLVMGetFirstUse(mask); u != NULL; u = LLVMGetNextUse(u))
        n += is_from_word || LLVMGetInstructionParent(LLVMGetUser(u)) != home;
    struct use *uses = n > 0 ? tl_arena_alloc(e->arena, n * sizeof *uses) : NULL;
    if (uses == NULL)
        return;
    for (LLVMUseRef u = LLVMGetFirstUse(mask); u != NULL; u = LLVMGetNextUse(u)) {
        LLVMValueRef user = LLVMGetUser(u);
        LLVMBasicBlockRef block = LLVMGetInstructionParent(user);
        if (is_from_word || block != home)
            uses[at++] = (struct use){user, block};
    }
    qsort(uses, n, sizeof *uses, by_block);
    LLVMValueRef word = word_of_mask(e, mask);
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && uses[end].block == uses[i].block; end++)
            continue;
        if (end - i < MANY)
            continue;
        LLVMPositionBuilderBefore(e->b,
                                  uses[i].block == home ? mask : first_behind_phis(uses[i].block));
        LLVMValueRef again = mask_of_word(e, word);
        for (uint32_t k = i; k < end; k++)
            set_operands(uses[k].user, mask, again);
    }
}

void tl_lower_masks(struct tl_emit *e)
{
    for (LLVMValueRef f = LLVMGetFirstFunction(e->mod); f != NULL; f = LLVMGetNextFunction(f)) {
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b != NULL;
             b = LLVMGetNextBasicBlock(b))
            move_to_words(e, b);
        for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(f); b != NULL;
             b = LLVMGetNextBasicBlock(b)) {
            for (LLVMValueRef i = LLVMGetFirstInstruction(b), next; i != NULL; i = next) {
                next = LLVMGetNextInstruction(i);
                if (is_mask(e, LLVMTypeOf(i)))
                    localise(e, i);
                if (LLVMGetFirstUse(i) == NULL && LLVMGetInstructionOpcode(i) == LLVMBitCast)
                    LLVMInstructionEraseFromParent(i);
            }
        }
    }
}

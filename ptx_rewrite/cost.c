/* When a variant costs too much, and what to do about it.
 *
 * Measured over 10,000 variants of NVIDIA's and TensorFlow's kernels (docs/corpus.md): one in fifty
 * grows by more than TL_PTX_SPARE_REGISTERS, up to forty, and nearly all of these fit into that
 * limit without spilling once ptxas is told of it.  Others spill a few bytes because ptxas aims at
 * one block more per multiprocessor than it did for the original; told a number, it stops doing so.
 * To give the limit to all variants at once would be worse: then ptxas uses it up. */
#include "tally/ptx.h"

/* Fewer than these no compiler can do with, and nothing is gained: so many fit for all threads that
 * an SM can hold. */
enum { LEAST_LIMIT = 24 };

uint32_t tl_ptx_register_limit(struct tl_ptx_cost original, struct tl_ptx_cost variant)
{
    bool has_grown = variant.registers > original.registers + TL_PTX_SPARE_REGISTERS;
    bool spills = variant.local_bytes > original.local_bytes;
    if (!has_grown && !spills)
        return 0;
    uint32_t limit = original.registers + TL_PTX_SPARE_REGISTERS;
    return limit > LEAST_LIMIT ? limit : LEAST_LIMIT;
}

bool tl_ptx_limit_helps(struct tl_ptx_cost original, struct tl_ptx_cost limited)
{
    return limited.local_bytes <= original.local_bytes;
}

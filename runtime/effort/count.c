/* The counters of kernels in pieces; see the header. */
#include "runtime/effort/count.h"
#include "tally/check.h"

#include <stdatomic.h>

#include "runtime/effort/real.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/supply.h"
#include "runtime/effort/variant.h"

/* The lower half of the word counts who has left, and must not overflow into the counter: it begins
 * anew, by a copy, long before.  A kernel has fewer than 2^31 blocks, and a rescue fewer than
 * that. */
enum { MOST_LEFT = 1 << 24 };

void tl_eff_count_begin(const struct tl_eff_context *c, struct tl_eff_control *k, enum tl_rung rung,
                        uint32_t done, uint32_t expected)
{
    k->way = c->has_host_atomics                                    ? TL_EFF_COUNT_ON_HOST
             : rung == TL_RUNG_PERSISTENT || rung == TL_RUNG_TICKET ? TL_EFF_COUNT_EPOCHS
                                                                    : TL_EFF_COUNT_COPIES;
    /* who stands behind it in a chain asks where both halves are */
    k->asked = k->way == TL_EFF_COUNT_COPIES ? k->device : k->told;
    k->is_fetched = false;
    if (k->way == TL_EFF_COUNT_COPIES)
        k->is_unknown = true;
    if (k->way == TL_EFF_COUNT_EPOCHS) {
        k->is_reset |= k->is_unknown || k->left > MOST_LEFT;
        if (k->is_reset)
            k->counter = k->left = 0;
        k->is_unknown = false;
        k->base = k->counter - done;
    }
    /* Two words at once, so that nobody sees a mixture. */
    atomic_store_explicit(k->word, (uint64_t)done << 32 | expected, memory_order_release);
}

CUresult tl_eff_count_before(const struct tl_eff_context *c, struct tl_eff_control *k,
                             bool is_first, CUstream stream)
{
    bool is_set = k->way == TL_EFF_COUNT_COPIES;
    if (!is_first || (!is_set && !(k->way == TL_EFF_COUNT_EPOCHS && k->is_reset)))
        return CUDA_SUCCESS;
    CUresult r = tl_eff_real.cuMemcpyHtoDAsync_v2(
        k->device, is_set ? (const void *)k->word : (const void *)c->zeros, 8, stream);
    k->is_reset &= r != CUDA_SUCCESS; /* then in front of the next one */
    return r;
}

CUresult tl_eff_count_behind(const struct tl_eff_control *k, CUstream stream)
{
    return k->way == TL_EFF_COUNT_COPIES
               ? tl_eff_real.cuMemcpyDtoHAsync_v2((void *)k->word, k->device, 8, stream)
               : CUDA_SUCCESS;
}

void tl_eff_count_args(struct tl_eff_control *k, uint32_t grid, bool tells, struct tl_eff_extra *x)
{
    x->counter = k->device + 4;
    if (k->way != TL_EFF_COUNT_EPOCHS)
        return;
    x->base = k->base;
    if (tells) {
        k->left += grid;
        x->left_end = k->left;
        x->told = k->told + 4;
    }
}

void tl_eff_count_refused(struct tl_eff_control *k, uint32_t grid)
{
    if (k->way == TL_EFF_COUNT_EPOCHS)
        k->left -= grid;
}

/* Beside the word, so that nobody who stands behind it is misled. */
CUresult tl_eff_count_fetch(struct tl_eff_control *k, CUstream stream)
{
    if (k->way == TL_EFF_COUNT_ON_HOST)
        return CUDA_SUCCESS;
    k->is_fetched = k->way == TL_EFF_COUNT_EPOCHS;
    return tl_eff_real.cuMemcpyDtoHAsync_v2((void *)(k->word + k->is_fetched), k->device, 8,
                                            stream);
}

uint32_t tl_eff_count_taken(const struct tl_eff_control *k)
{
    uint64_t word = atomic_load_explicit(k->word + k->is_fetched, memory_order_acquire);
    return (uint32_t)(word >> 32) - (k->is_fetched ? k->base : 0);
}

uint32_t tl_eff_count_end(struct tl_eff_control *k)
{
    uint32_t taken = tl_eff_count_taken(k);
    if (k->way == TL_EFF_COUNT_EPOCHS)
        k->counter = k->base + taken;
    return taken;
}

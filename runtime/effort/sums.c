/* tallyd reads these sums at any time, one by one: those of a GPU may be behind by what is counted
 * just then, and never before. */
#include "runtime/effort/sums.h"

#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "runtime/job/share.h"

static void add(_Atomic uint64_t *sum, uint64_t n)
{
    atomic_fetch_add_explicit(sum, n, memory_order_relaxed);
}

static struct tl_share_gpu *gpu_of(const struct tl_eff_context *c)
{
    return atomic_load_explicit(&c->gpu, memory_order_acquire);
}

void tl_eff_sum_launched(const struct tl_eff_context *c, uint64_t kernels, uint64_t blocks)
{
    struct tl_share_gpu *g = gpu_of(c);
    add(&tl_eff.page->launches, kernels);
    add(&tl_eff.page->blocks, blocks);
    if (g != NULL) {
        add(&g->launches, kernels);
        add(&g->blocks, blocks);
    }
}

void tl_eff_sum_ran(const struct tl_eff_context *c, uint64_t ns)
{
    struct tl_share_gpu *g = gpu_of(c);
    add(&tl_eff.page->device_ns, ns);
    if (g != NULL)
        add(&g->device_ns, ns);
}

void tl_eff_sum_preempted(const struct tl_eff_context *c)
{
    struct tl_share_gpu *g = gpu_of(c);
    add(&tl_eff.page->preemptions, 1);
    if (g != NULL)
        add(&g->preemptions, 1);
}

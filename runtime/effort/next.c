/* What a job tells of itself while its kernels come up: the footprint of the next one, for policies
 * that look at what fits together, and where its iterations end, for policies that switch between
 * them.  A job that marks iterations (tally/mark.h) is believed; for others they are found in the
 * order of its own launches. */
#include "runtime/effort/pieces.h"
#include "tally/hash.h"

#include "runtime/effort/launch.h"
#include "runtime/effort/profile.h"
#include "runtime/effort/state.h"
#include "runtime/effort/stream.h"
#include "sched/pattern.h"

static struct tl_pattern pattern; /* the executor's own */
static uint64_t guessed;          /* iterations that were told from here */

static uint32_t key_of(const struct tl_eff_launch *l)
{
    uint64_t h = (uintptr_t)l->kernel;
    for (int i = 0; i < 3; i++)
        h = tl_hash_mix(h, l->grid[i]);
    return (uint32_t)(h >> 32) | 1;
}

static void tell_footprint(const struct tl_eff_context *c, const struct tl_eff_launch *l)
{
    uint64_t sms = c->n_sms > 0 ? (uint64_t)c->n_sms : 1, part = 1000 * (uint64_t)l->blocks / sms;
    bool is_known = l->profile != NULL && l->profile->whole_ns != 0;
    atomic_store_explicit(&tl_eff.page->next_ns, is_known ? l->profile->whole_ns : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&tl_eff.page->next_sm_permille,
                          part < 1000 ? (uint32_t)part + (part == 0) : 1000, memory_order_relaxed);
}

void tl_eff_comes_next(const struct tl_eff_context *c, struct tl_eff_launch *l, uint64_t now)
{
    l->head_ns = now;
    tell_footprint(c, l);
    if (!tl_pattern_launch(&pattern, key_of(l), now))
        return;
    if (atomic_load_explicit(&tl_eff.page->iterations, memory_order_relaxed) != guessed)
        return; /* it tells itself */
    guessed++;
    atomic_fetch_add_explicit(&tl_eff.page->iterations, 1, memory_order_relaxed);
}

/* How long kernels take: learnt from launches that were measured anyway, never by stopping the device. */
#include "runtime/effort_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SAMPLES = 4, SAMPLE_EVERY = 32, UNKNOWN_NS = 200000 };

struct tl_eff_profile *tl_eff_profile(struct tl_eff_kernel *k, const struct tl_eff_launch *l)
{
    struct tl_eff_profile *p = k->profiles;
    while (p != NULL && (memcmp(p->grid, l->grid, sizeof p->grid) != 0 ||
                         memcmp(p->block, l->block, sizeof p->block) != 0 || p->shared_bytes != l->shared_bytes))
        p = p->next;
    if (p != NULL)
        return p;
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    memcpy(p->grid, l->grid, sizeof p->grid);
    memcpy(p->block, l->block, sizeof p->block);
    p->shared_bytes = l->shared_bytes;
    p->next = k->profiles;
    k->profiles = p;
    return p;
}

uint64_t tl_eff_predicted_ns(const struct tl_eff_profile *p)
{
    return p != NULL && p->whole_ns != 0 ? p->whole_ns : UNKNOWN_NS;
}

bool tl_eff_wants_sample(const struct tl_eff_profile *p)
{
    return p != NULL && (p->n_samples < FIRST_SAMPLES || p->n_launches % SAMPLE_EVERY == 0);
}

static uint64_t blend(uint64_t old, uint64_t new, uint32_t n)
{
    if (old == 0 || n == 0)
        return new;
    return n < FIRST_SAMPLES ? (new < old ? new : old) : old - old / 8 + new / 8; /* the first one may have compiled */
}

void tl_eff_profile_ran(struct tl_eff_profile *p, const struct tl_eff_launch *l, uint64_t ns, uint32_t blocks,
                        int n_sms)
{
    if (p == NULL || ns == 0 || blocks == 0)
        return;
    uint32_t wide = (uint32_t)(n_sms > 0 ? n_sms : 1);
    uint32_t waves = (blocks + wide - 1) / wide;
    uint64_t whole = l->blocks > blocks ? ns * l->blocks / blocks : ns;
    p->block_ns = blend(p->block_ns, ns / waves, p->n_samples);
    p->whole_ns = blend(p->whole_ns, whole, p->n_samples);
    p->n_samples++;
}

void tl_eff_profile_preempted(struct tl_eff_profile *p, uint64_t ns)
{
    if (p == NULL)
        return;
    uint32_t bucket = ns > 1 ? 63u - (uint32_t)__builtin_clzll(ns) : 0;
    p->latency[bucket < TL_EFF_LATENCIES ? bucket : TL_EFF_LATENCIES - 1]++;
    p->n_latencies++;
}

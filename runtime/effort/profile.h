/* How long kernels take, as measured.  Everything here is under the lock, but for the reading of
 * the file at the start. */
#ifndef TALLY_EFFORT_PROFILE_H
#define TALLY_EFFORT_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/lock.h"
#include "tally/sched.h"

struct tl_eff_facts;
struct tl_eff_kernel;
struct tl_eff_launch;

enum { TL_EFF_LATENCIES = 32, TL_EFF_RECENT = 15 };

#define TL_EFF_ANY_SIZES UINT64_MAX
struct tl_eff_profile {
    struct tl_eff_profile *next;
    uint32_t grid[3], block[3], shared_bytes;
    /* of its parameters, or TL_EFF_ANY_SIZES: all that did not get one of their own */
    uint64_t sizes;
    uint64_t key; /* for the store */
    uint32_t n_samples, n_launches;
    uint64_t whole_ns; /* what the original takes; 0 if not known */
    uint64_t wave_ns;  /* one wave of its blocks */
    struct {
        uint64_t wave_ns; /* least seen */
        uint32_t n_samples;
        bool is_slow; /* costs so much that the next rung is better */
        /* number of the launch from which on it gets another chance */
        uint32_t retry_at;
        uint32_t n_slow;                   /* how often it was found so */
        uint64_t recent_ns[TL_EFF_RECENT]; /* a wave, as measured last */
        uint32_t n_recent;
    } rungs[TL_RUNG_WHOLE];
    uint32_t said_beside, said_batch; /* as the log has it */
    bool said_bites;
    uint32_t latency[TL_EFF_LATENCIES]; /* preemptions, by log2 of ns */
    uint32_t n_latencies;
};

/* A digest of what in a parameter may be a size, continued from `h`. */
uint64_t tl_eff_sizes(uint64_t h, const void *param, uint32_t n);
/* Made if new, NULL without memory. */
struct tl_eff_profile *tl_eff_profile(struct tl_eff_kernel *k,
                                      const struct tl_eff_launch *l) TL_EFF_LOCKED;
/* NULL is fine for all of these. */
uint64_t tl_eff_predicted_ns(const struct tl_eff_profile *p) TL_EFF_LOCKED;
bool tl_eff_wants_sample(const struct tl_eff_profile *p) TL_EFF_LOCKED;
/* Fills in what was measured. */
void tl_eff_profile_facts(const struct tl_eff_profile *p, struct tl_eff_facts *f) TL_EFF_LOCKED;
/* The rung comes into question again: if it was found slow, its trial begins anew. */
void tl_eff_profile_retry(struct tl_eff_profile *p, enum tl_rung rung) TL_EFF_LOCKED;
/* So many blocks took that long, on this rung. */
void tl_eff_profile_ran(struct tl_eff_profile *p, const struct tl_eff_launch *l, enum tl_rung rung,
                        uint64_t ns, uint32_t blocks, int n_sms) TL_EFF_LOCKED;
/* What a wave, a block for each SM, takes on that rung: the median of what was measured last, or
 * what the original takes; 0 if nothing is known. */
uint64_t tl_eff_wave_ns(const struct tl_eff_profile *p, enum tl_rung rung) TL_EFF_LOCKED;
void tl_eff_profile_preempted(struct tl_eff_profile *p, uint64_t ns) TL_EFF_LOCKED;
/* What was learnt about the kernel is kept for the file: it is unloaded, or the job ends. */
void tl_eff_profile_keep(const struct tl_eff_kernel *k) TL_EFF_LOCKED;
/* Reads the file, when nothing else runs yet. */
void tl_eff_profile_load(void);
/* Writes what was kept. */
void tl_eff_profile_save(void) TL_EFF_UNLOCKED;

#endif

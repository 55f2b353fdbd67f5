/* The other forms of a kernel: rewritten, or gated. */
#ifndef TALLY_EFFORT_VARIANT_H
#define TALLY_EFFORT_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/room.h"
#include "runtime/job/share.h"
#include "tally/ptx.h"
#include "tally/sched.h"

struct tl_captured_image;
struct tl_eff_kernel;
struct tl_eff_launch;

enum tl_eff_variant_state {
    TL_EFF_WANTED, /* there was no moment to load it: to be tried again */
    TL_EFF_BUILDING,
    TL_EFF_READY,
    TL_EFF_REFUSED
};

/* The state is under the lock.  The rest is the builder's until it is ready and constant from then
 * on, but for what is asked of the driver later: from `max_dynamic` on, the executor's own. */
struct tl_eff_variant {
    struct tl_eff_kernel *kernel;
    struct tl_eff_variant *next; /* in the builder's queue */
    bool is_unwanted;            /* its kernel goes: the builder gives up */
    enum tl_rung rung;
    uint32_t dims;
    enum tl_eff_variant_state state;
    uint32_t block[3]; /* of the launch that asked for it */
    uint32_t shared_bytes;
    CUmodule module;
    CUfunction function;
    uint32_t conditions, param_bytes;
    bool uses_slot;
    struct tl_ptx_arg *args; /* names are not kept */
    uint64_t *variables;     /* values of the arguments that are VARIABLE */
    uint32_t n_args;
    uint32_t gate_offset; /* of the gate: where its parameters begin, and */
    /* what a block costs an SM that asks and leaves, and one that leaves at once; 0: not
     * measured */
    uint64_t leave_ns, skip_ns;
    int max_dynamic; /* as set so far */
    /* what was set for the original, as far as it was carried over */
    int carveout, cache_config;
    uint32_t followed;     /* changes of the job's that were seen, and one */
    const char *objection; /* why it cannot take the original's place; NULL if it can */
    struct tl_eff_rooms rooms;
};

/* The variant if it is ready and its conditions hold for this launch.  Otherwise asks for it (with
 * `now`, builds it at once) and returns NULL; `*may_come` says whether it is worth asking again.
 * The lock is given up meanwhile. */
struct tl_eff_variant *tl_eff_variant(const struct tl_eff_launch *l, enum tl_rung rung, bool now,
                                      bool *may_come) TL_EFF_LOCKED;
/* The lock is given up to unload. */
void tl_eff_variants_free(struct tl_eff_kernel *k) TL_EFF_LOCKED;
void tl_eff_variants_forked(void) TL_EFF_UNLOCKED;

/* The extra arguments behind the original ones. */
struct tl_eff_extra {
    uint32_t grid[3], first, blocks, batch_mask, base, left_end;
    CUdeviceptr counter, told, words[TL_SHARE_WORDS];
};
void tl_eff_variant_args(const struct tl_eff_variant *v, uint8_t *params,
                         const struct tl_eff_extra *x);
/* Launches its variant with so many blocks, its arguments being in place; a gated one has those of
 * the kernel's own grid. */
CUresult tl_eff_launch_variant(const struct tl_eff_launch *l, uint32_t blocks,
                               CUstream stream) TL_EFF_UNLOCKED;

#endif

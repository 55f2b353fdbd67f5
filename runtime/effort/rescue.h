/* Launches that do not end because blocks of theirs wait for blocks that we hold back. */
#ifndef TALLY_EFFORT_RESCUE_H
#define TALLY_EFFORT_RESCUE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_control;
struct tl_eff_kernel;
struct tl_eff_piece;

/* Of one launch of a kernel in pieces: how long nothing has moved, and what was done about it.  The
 * executor's, under the lock. */
struct tl_eff_rescue {
    bool has_begun;     /* what stands in front of it in its stream is over */
    bool was_told;      /* to stop, as far as that matters for what can be seen of it */
    uint32_t seen;      /* how far it had come at the last look */
    uint64_t looked_ns; /* when that was; 0: nobody has looked yet */
    uint64_t awake_ns;  /* and what the clock said that runs while things can move */
    uint64_t still_ns;  /* how long nothing has moved, by that clock */
    uint32_t n_tries;   /* how often its remaining blocks were launched beside it */
    CUresult refusal;   /* of the last of these, or CUDA_SUCCESS */
    uint64_t made_ns;   /* when that was first done, and */
    uint64_t held_ns;   /* for how long nothing had moved then; */
    uint32_t counter;   /* what its counter said */
    bool has_judged;    /* what follows from it is decided */
    /* the numbers of its own counter end there; the blocks behind have a counter of their own, or
     * were launched as a slice */
    uint32_t end;
    struct tl_eff_control *rest;
};

/* Reads which kernels were found to wait, when nothing else runs yet. */
void tl_eff_rescue_load(void);
/* How often such a kernel was found to wait: TL_EFF_STRIKES of them, and it is not cut any more. */
uint32_t tl_eff_rescue_strikes(uint64_t fingerprint) TL_EFF_LOCKED;

/* Looks at what is on the device, and launches the remaining blocks of what does not move.  The
 * lock is given up meanwhile.  True if something was launched.  Executor only. */
bool tl_eff_rescue_look(uint64_t now) TL_EFF_LOCKED;
/* A piece of a kernel has come back: what follows for its rescue.  The lock is given up
 * meanwhile. */
void tl_eff_rescue_over(const struct tl_eff_piece *p, uint64_t now) TL_EFF_LOCKED;

#endif

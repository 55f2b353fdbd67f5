/* A launch as the job asked for it, and how far it has come. */
#ifndef TALLY_EFFORT_LAUNCH_H
#define TALLY_EFFORT_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/rescue.h"
#include "tally/sched.h"

struct tl_eff_kernel;
struct tl_eff_profile;
struct tl_eff_variant;
struct tl_eff_control;

enum { TL_EFF_MAX_ATTRIBUTES = 8 };

/* What was asked for never changes, the profile is found under the lock; the rest is written by the
 * executor only, under the lock. */
struct tl_eff_launch {
    struct tl_eff_kernel *kernel;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint32_t param_bytes;
    uint8_t *params;       /* with room for the extra ones of a variant */
    const char *objection; /* why it must not run in pieces; NULL: nothing forbids it */
    uint32_t n_attributes;
    CUlaunchAttribute attributes[TL_EFF_MAX_ATTRIBUTES];
    uint32_t blocks;    /* of the grid; 0 if that exceeds 2^31 - 1 */
    uint64_t queued_ns; /* when it was asked for */
    uint64_t sizes;     /* what its parameters say about how much work it is: tl_eff_sizes */
    /* The executor's: */
    struct tl_eff_profile *profile;
    /* blocks that an SM has side by side at most when it runs as it is; 0: not asked yet */
    uint32_t resident;
    uint32_t occupancy; /* the same of its variant */
    uint32_t beside;    /* blocks that share an SM while a piece of it runs; 0: none was launched */
    bool is_chosen;
    enum tl_rung rung;
    struct tl_eff_variant *variant;
    struct tl_eff_control *control;
    uint32_t done;     /* blocks that were taken, as far as known */
    uint32_t launched; /* blocks that pieces were launched for */
    uint32_t n_flying; /* pieces of it */
    uint64_t head_ns;  /* when the executor first looked at it */
    uint64_t began_ns, ready_ns;
    uint64_t device_ns; /* of all its pieces */
    uint64_t since_ns;  /* device time of pieces since the counter was looked at */
    uint32_t batch;     /* blocks that its persistent workers take at a time; else 1 */
    uint32_t bite;      /* of a gated one: blocks from `done` on that run whatever stop words say */
    struct tl_eff_rescue rescue;
};

/* How many numbers its blocks have taken, as far as the host can see; of a gated kernel, how many
 * of its blocks may run. */
uint32_t tl_eff_taken(const struct tl_eff_launch *l);

#endif

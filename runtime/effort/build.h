/* How variants are built: in the background by one thread, or at once by the executor if a rung is
 * forced. */
#ifndef TALLY_EFFORT_BUILD_H
#define TALLY_EFFORT_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "tally/base.h"
#include "tally/ptx.h"
#include "tally/sched.h"

struct tl_eff_context;
struct tl_eff_variant;

/* held while building */
extern struct tl_mutex tl_eff_build_lock;

/* The variant of PTX that a rung needs. */
extern const enum tl_ptx_variant tl_eff_kind_of[TL_RUNG_GATE];

/* Everything but the state: 0, or why there is none.  -EAGAIN: there was no moment to load it;
 * -ECANCELED: nobody wants it any more. */
int tl_eff_build_text(struct tl_eff_variant *v, bool is_executor,
                      struct tl_error *err) TL_EFF_UNLOCKED TL_REQUIRES(tl_eff_build_lock);
int tl_eff_build_gated(struct tl_eff_variant *v, bool is_executor,
                       struct tl_error *err) TL_EFF_UNLOCKED TL_REQUIRES(tl_eff_build_lock);

/* A moment to load in: 0; -EAGAIN if there is none just now, which is all that the executor waits;
 * -ECANCELED if nobody wants the variant any more, -EBUSY if there never was one. */
int tl_eff_find_moment(const struct tl_eff_variant *v, bool is_executor) TL_EFF_UNLOCKED;
/* What trying variants needs of a context, in a moment.  Without it they are not tried. */
void tl_eff_make_bench(struct tl_eff_context *c) TL_EFF_UNLOCKED;
/* Writes a few bytes, in the builder's own stream: the legacy one belongs to the job, and cannot be
 * used while a blocking stream is captured. */
bool tl_eff_put(struct tl_eff_context *c, CUdeviceptr to, const void *from, size_t n);
/* Room for so much dynamic shared memory of the job's: 0, or -ENOSPC. */
int tl_eff_set_shared(struct tl_eff_variant *v, uint32_t dynamic) TL_EFF_UNLOCKED;

#endif

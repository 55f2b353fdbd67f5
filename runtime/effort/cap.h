/* Kernels that cannot be stopped, on a part of the SMs. */
#ifndef TALLY_EFFORT_CAP_H
#define TALLY_EFFORT_CAP_H

#include <stdint.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

struct tl_eff_launch;
struct tl_eff_stream;

/* Starts the launch whole on so many SMs, in its place in the stream; on all of them where that
 * cannot be.  Executor only, context current. */
CUresult tl_eff_launch_capped(struct tl_eff_stream *s, const struct tl_eff_launch *l,
                              uint32_t sms) TL_EFF_UNLOCKED;
/* The job's stream goes: what stands beside it is kept for another. */
void tl_eff_cap_leave(struct tl_eff_stream *s) TL_EFF_LOCKED;
/* The job gives up a primary context: ours stand on it. */
void tl_eff_caps_free(CUcontext handle) TL_EFF_UNLOCKED;

#endif

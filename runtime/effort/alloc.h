/* Allocation in the order of streams. */
#ifndef TALLY_EFFORT_ALLOC_H
#define TALLY_EFFORT_ALLOC_H

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"

/* It is freed outside of any stream's order. */
void tl_eff_alloc_forget(CUdeviceptr at) TL_EFF_UNLOCKED;
/* Forgets all. */
void tl_eff_allocs_start(void) TL_EFF_UNLOCKED;

#endif

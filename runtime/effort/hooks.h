/* What start.c gathers from the files that replace functions of the driver. */
#ifndef TALLY_EFFORT_HOOKS_H
#define TALLY_EFFORT_HOOKS_H

#include "runtime/effort/lock.h"
#include "tally/effort.h"

/* Per file, each ended by a NULL name. */
extern const struct tl_hook tl_eff_call_hooks[], tl_eff_copy_hooks[], tl_eff_event_hooks[],
    tl_eff_sync_hooks[], tl_eff_kernel_hooks[], tl_eff_graph_hooks[], tl_eff_attribute_hooks[],
    tl_eff_alloc_hooks[];

/* See struct tl_effort. */
int tl_eff_unloading(const void *module, const void *library) TL_EFF_UNLOCKED;

#endif

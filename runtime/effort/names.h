/* Kernels of which the driver tells no name. */
#ifndef TALLY_EFFORT_NAMES_H
#define TALLY_EFFORT_NAMES_H

#include "runtime/effort/lock.h"

struct tl_captured_kernel;
struct tl_eff_context;

/* The name of a kernel whose module is known, the caller's to free; NULL if none is found.  0,
 * -ENOMEM, or -EAGAIN if there is no moment for it now.  From a thread of the job, context
 * current. */
int tl_eff_find_name(const struct tl_captured_kernel *k, struct tl_eff_context *c,
                     char **out) TL_EFF_UNLOCKED;

#endif

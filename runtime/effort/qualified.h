/* What `tally doctor` found out about a context's device. */
#ifndef TALLY_EFFORT_QUALIFIED_H
#define TALLY_EFFORT_QUALIFIED_H

#include <stdbool.h>

#include "runtime/effort/cuda_api.h"
#include "runtime/effort/lock.h"
#include "runtime/effort/whose.h"
#include "tally/sched.h"

struct tl_eff_context;

/* Reads it: from now on, rungs that are wrong or refused there are not offered, and the record says
 * why.  One that was never examined has all of them, and the record says that, too. */
void tl_eff_qualify(struct tl_eff_context *c, CUdevice device) TL_EFF_UNLOCKED;
/* What was found out about the gate there; read once.  Any thread. */
enum tl_eff_examined tl_eff_examined(CUdevice device) TL_EFF_UNLOCKED;
/* Whether variants for that rung may be used there, as far as is known. */
bool tl_eff_is_qualified(const struct tl_eff_context *c, enum tl_rung rung);

#endif

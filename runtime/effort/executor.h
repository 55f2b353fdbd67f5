/* The thread that gives queued work to the driver. */
#ifndef TALLY_EFFORT_EXECUTOR_H
#define TALLY_EFFORT_EXECUTOR_H

#include "runtime/effort/lock.h"

/* There is something to look at.  Any thread. */
void tl_eff_ring(void);
/* Starts it if it does not run yet: 0 or -errno. */
int tl_eff_executor_start(void) TL_EFF_LOCKED;
/* In the child of a fork it does not run. */
void tl_eff_executor_forget(void) TL_EFF_UNLOCKED;

#endif

/* Moments in which nothing of this job is on the device. */
#ifndef TALLY_EFFORT_MOMENT_H
#define TALLY_EFFORT_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/effort/lock.h"
#include "runtime/effort/stream.h"

/* Loading a module and allocating may wait for everything in the context, and let nothing else pass
 * meanwhile (CUDA C++ Programming Guide, "Lazy Loading" and "Implicit Synchronization").  If a
 * kernel waits for something that comes only later, from a peer or from the job's next call, that
 * would be for ever.  So both are done in a moment in which the context is known to be idle, and
 * nothing is given to it.
 *
 * Begins such a moment: holds back what the job asks for, and waits a while for what is on the
 * device.  False if that does not end soon, a stream is captured, or the last try was only just
 * now; then nothing is held back.  `is_executor`: the caller is the executor; otherwise it is none
 * of the job's threads. */
bool tl_eff_moment_begin(struct tl_eff_context *c, bool is_executor) TL_EFF_UNLOCKED;
void tl_eff_moment_end(void) TL_EFF_UNLOCKED;
/* How often it was tried in vain since one was found. */
uint32_t tl_eff_moment_misses(const struct tl_eff_context *c) TL_EFF_LOCKED;

/* Whether things are held back now. */
bool tl_eff_is_holding(void) TL_EFF_LOCKED;
/* Around what is given to the driver past the queues: noted before the lock is given up. */
void tl_eff_direct_begin(void) TL_EFF_LOCKED;
void tl_eff_direct_end(void);
void tl_eff_moment_start(void) TL_EFF_UNLOCKED; /* forgets all */

#endif

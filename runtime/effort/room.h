/* How many blocks of a kernel, as the job launches it, an SM has side by side. */
#ifndef TALLY_EFFORT_ROOM_H
#define TALLY_EFFORT_ROOM_H

#include <stdint.h>

#include "runtime/effort/lock.h"

struct tl_eff_launch;

/* At most so many, and never 0: as the driver tells, or if it does not, as many as the device can
 * have of any kernel.  The driver is asked once per size of block.  Executor only, context
 * current. */
uint32_t tl_eff_room(const struct tl_eff_launch *l) TL_EFF_UNLOCKED;

#endif

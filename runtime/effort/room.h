/* How many blocks of a kernel, or of a variant of it, an SM has side by side as the job launches
 * it. */
#ifndef TALLY_EFFORT_ROOM_H
#define TALLY_EFFORT_ROOM_H

#include <stdint.h>

#include "runtime/effort/lock.h"

struct tl_eff_launch;

/* What the driver said before: blocks of that many threads with that much dynamic shared memory, so
 * many at most on an SM.  Zeroes are none. */
enum { TL_EFF_ROOMS = 8 };
struct tl_eff_rooms {
    struct tl_eff_room {
        uint32_t threads, shared_bytes, blocks;
    } all[TL_EFF_ROOMS];
    uint32_t n;
};

/* Of the original at most so many, and never 0: as the driver tells, or if it does not, as many as
 * the device can have of any kernel.  The driver is asked once per size of block.  Executor only,
 * context current. */
uint32_t tl_eff_room(const struct tl_eff_launch *l) TL_EFF_UNLOCKED;
/* The same of the launch's variant; where the driver does not tell, as many as of the original. */
uint32_t tl_eff_occupancy(const struct tl_eff_launch *l) TL_EFF_UNLOCKED;

#endif

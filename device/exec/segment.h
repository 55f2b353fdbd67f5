/* How the processes of a user find the memory that their shared device is (device/exec/sm.h). */
#ifndef TALLY_DEVICE_EXEC_SEGMENT_H
#define TALLY_DEVICE_EXEC_SEGMENT_H

#include "tally/base.h"

#include <stdatomic.h>
#include <stddef.h>

struct sm_shared;
struct tl__hand;

/* The file under which the device of that name is found.  0, -EINVAL. */
int tl__segment_path(char *path, size_t size, const char *name, struct tl_error *err);
/* The device's memory, and what hands it to others where it has no name. */
struct tl__segment {
    struct sm_shared *m;
    struct tl__hand *hand;
};
/* Has it made if there is none, and the file that leads to it: a descriptor that holds a lock
 * against all others who join, until it is closed.  A negative errno value if that fails; the
 * message says what to do. */
int tl__segment_open(const char *path, struct tl__segment *out, struct tl_error *err);
/* Lets go of the memory, which ends with the last who has it. */
void tl__segment_leave(struct tl__segment *g);
/* The same in a forked child. */
void tl__segment_forget(struct tl__segment *g);
/* How long the lock is waited for; tests set it. */
extern atomic_uint tl__segment_patience_ms;

#endif

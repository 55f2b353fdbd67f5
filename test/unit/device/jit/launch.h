/* Running a compiled kernel on the software device, and waiting for its end. */
#ifndef TALLY_TEST_JIT_LAUNCH_H
#define TALLY_TEST_JIT_LAUNCH_H

#include "device/exec/exec.h"

/* Submits the launch, whose `done` and `user` are set here, and waits until it is over.  Whether it
 * ended without a fault; else `err` tells which. */
bool jit_launch(struct tl_exec_device *device, struct tl_exec_launch *l, struct tl_error *err);

#endif

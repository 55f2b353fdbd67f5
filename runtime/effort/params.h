/* The parameters of a kernel, from its image. */
#ifndef TALLY_EFFORT_PARAMS_H
#define TALLY_EFFORT_PARAMS_H

#include "runtime/effort/lock.h"
#include "tally/base.h"

struct tl_eff_kernel;

/* Fills in the kernel's parameters where the driver does not tell them (before CUDA 12.4): from the
 * PTX that its code was made of, else from the machine code that runs, whose architecture is
 * `binary_version`.  0, or why they are not known; never a guess.  The context is current. */
int tl_eff_params(struct tl_eff_kernel *k, int binary_version,
                  struct tl_error *err) TL_EFF_UNLOCKED;

#endif

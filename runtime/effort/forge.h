/* Where gates are made: by ptxas if there is one, else by the driver's own linker. */
#ifndef TALLY_EFFORT_FORGE_H
#define TALLY_EFFORT_FORGE_H

#include "runtime/effort/lock.h"
#include "tally/cubin.h"

/* Gates a cubin, as tl_cubin_gate does.  What it compiles for that, which is our own code and
 * nobody else's, is kept on disk for the next process.  Any thread, one after the other; a context
 * of the device is current, if the driver is to compile. */
int tl_eff_forge(const struct tl_cubin *c, const struct tl_cubin_options *options,
                 struct tl_cubin_gated *out, struct tl_error *err) TL_EFF_UNLOCKED;
/* In the child of a fork. */
void tl_eff_forge_forked(void);

#endif

/* Kernels that wait for kernels of other processes. */
#ifndef TALLY_EFFORT_GANG_H
#define TALLY_EFFORT_GANG_H

#include <stdbool.h>

/* Whether a kernel of that name, of an image from that file, belongs to a gang: on other GPUs, or
 * in other processes, are kernels that it waits for and that wait for it. */
bool tl_eff_is_gang(const char *kernel, const char *source);

#endif

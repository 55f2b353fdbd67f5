/* Which drivers this machine has.  Nothing is loaded: a driver starts threads as soon as it is. */
#ifndef TALLY_RUNTIME_JOB_FIND_H
#define TALLY_RUNTIME_JOB_FIND_H

#include "tally/base.h"

/* The first of the device files by which a driver reaches GPUs (a PC's or server's, WSL's,
 * Jetson's), or NULL: then there is no GPU here, or none that this process may see. */
const char *tl_find_gpu_file(void);

/* NVIDIA's libcuda.so.1, where the loader would look for it; `ours` is our lib/tally, whose own are
 * passed over.  False if there is none, or none with a path of less than `size` bytes. */
bool tl_find_gpu_driver(const char *ours, char *path, size_t size);

/* Our lib/tally, beside bin/ where this program is: in the build folder and where it is installed.
 * 0, or a negative errno value with a message. */
int tl_find_our_folder(char *path, size_t size, struct tl_error *err);

#endif

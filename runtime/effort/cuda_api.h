/* The driver API as this part sees it: every version of a function under its own name. */
#ifndef TALLY_EFFORT_CUDA_API_H
#define TALLY_EFFORT_CUDA_API_H

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL 1
#endif
#include <cuda.h>

#endif

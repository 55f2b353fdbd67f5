/* What the files of the program `separate` have of each other. */
#ifndef WORKLOADS_SEPARATE_PARTS_H
#define WORKLOADS_SEPARATE_PARTS_H

#include "../check.h"

extern __device__ uint32_t blocks_done; /* separate.cu */
extern __constant__ uint32_t weights[4];
extern __device__ uint32_t (*chosen)(uint32_t); /* right.cu */

__device__ uint32_t left_step(uint32_t x, int round); /* left.cu */
__device__ uint32_t *shared_words();
__device__ uint32_t right_step(uint32_t x, uint32_t block); /* right.cu */
void run_left(uint32_t *v, int n);
void run_right(uint32_t *v, int n);

/* In all files that use it, and once in the program. */
template <class T> __device__ __noinline__ T counted(T x)
{
    static __device__ T calls = 1;
    return x + calls;
}

static inline uint32_t left_model(uint32_t x, int round)
{
    return (x ^ (x >> 13)) * 19u + (round % 3 == 0 ? 19u : 2u);
}

static inline uint32_t right_model(uint32_t x, uint32_t block)
{
    return x * 23u + block + 11u;
}

#endif

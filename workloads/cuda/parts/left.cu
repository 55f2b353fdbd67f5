/* See separate.cu. */
#include "parts.h"

static __device__ uint32_t hidden = 19;
static __device__ __noinline__ uint32_t mix(uint32_t x)
{
    return (x ^ (x >> 13)) * hidden;
}

__device__ uint32_t left_step(uint32_t x, int round)
{
    return mix(x) + (round % 3 == 0 ? hidden : counted<uint32_t>(1));
}

/* Others say that it is of words; here it is of what is aligned more strictly. */
extern __shared__ double dynamic[];
__device__ uint32_t *shared_words()
{
    return (uint32_t *)dynamic;
}

static __global__ void finish(uint32_t *v, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        v[i] = chosen(v[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        blocks_done++;
}

void run_left(uint32_t *v, int n)
{
    finish<<<1, 256>>>(v, n);
    FINISH();
}

/* See separate.cu. */
#include "parts.h"

static __device__ uint32_t hidden = 23;
static __device__ __noinline__ uint32_t mix(uint32_t x)
{
    return x * hidden;
}

__device__ uint32_t right_step(uint32_t x, uint32_t block)
{
    return mix(x) + block + weights[3];
}

/* Called through a pointer, by a kernel of another file. */
__device__ __noinline__ uint32_t five_times(uint32_t x)
{
    return x * weights[1] + hidden;
}
__device__ uint32_t (*chosen)(uint32_t) = five_times;

extern __shared__ uint32_t dynamic[];
static __global__ void finish(uint32_t *v, int n)
{
    dynamic[threadIdx.x] = 29;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        v[i] ^= dynamic[(threadIdx.x + 1) % blockDim.x] * (uint32_t)(i % 7);
    if (threadIdx.x == 0)
        blocks_done++;
}

void run_right(uint32_t *v, int n)
{
    finish<<<1, 256, 256 * sizeof(uint32_t)>>>(v, n);
    FINISH();
    uint32_t seen = 0; /* the host finds this file's own, by a name that only nvcc knows */
    CUDA(cudaMemcpyFromSymbol(&seen, hidden, sizeof seen));
    if (seen != 23) {
        printf("FAIL hidden is %u\n", seen);
        exit(1);
    }
}

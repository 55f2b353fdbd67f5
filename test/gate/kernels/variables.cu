// Variables of the module: kernels that share them.
#define KERNEL extern "C" __global__ void
__device__ int counter;
__device__ int first = 7;
__device__ int *to_counter = &counter;
__constant__ float weights[64];
__constant__ int *to_first = &first;
__device__ int lots[1000];

KERNEL counts_up(int *a) { a[threadIdx.x] = atomicAdd(&counter, first); }
KERNEL follows(int *a, int n) { a[threadIdx.x] = *to_counter + *to_first + lots[n]; }
KERNEL weighs(float *a, int n) { a[threadIdx.x] = weights[n] * weights[threadIdx.x & 63]; }
KERNEL last_block(float *a, int n)
{
    __shared__ bool is_last;
    a[blockIdx.x] *= 2;
    __threadfence();
    if (threadIdx.x == 0)
        is_last = atomicAdd(&counter, 1) == gridDim.x - 1;
    __syncthreads();
    if (is_last)
        a[n] = weights[3];
}
// Without parameters, so that there are no attributes about them either.
KERNEL counts_alone() { lots[threadIdx.x & 511] += atomicAdd(&counter, first); }
KERNEL __launch_bounds__(64) turns_around()
{
    __shared__ int seen[64];
    seen[threadIdx.x] = lots[64 * (blockIdx.z & 1) + threadIdx.x];
    __syncthreads();
    lots[64 * (blockIdx.z & 1) + threadIdx.x] = seen[63 - threadIdx.x];
}
__device__ __noinline__ int deep(int n) { return n < 2 ? n : deep(n - 1) + deep(n - 2) + counter; }
KERNEL calls_alone()
{
    int some[16];
    for (int i = 0; i < 16; i++)
        some[i] = deep(i & 3);
    if (threadIdx.x == 0)
        lots[blockIdx.x & 511] = some[first & 15];
}
KERNEL votes_alone() { lots[threadIdx.x & 511] = __shfl_xor_sync(~0u, lots[threadIdx.x & 511], 1) + __popc(__ballot_sync(~0u, counter > 3)); }
template <int N> __global__ void templated(int *a) { a[threadIdx.x] = N * lots[threadIdx.x]; }
template __global__ void templated<1>(int *);
template __global__ void templated<9>(int *);

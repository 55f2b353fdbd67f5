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
template <int N> __global__ void templated(int *a) { a[threadIdx.x] = N * lots[threadIdx.x]; }
template __global__ void templated<1>(int *);
template __global__ void templated<9>(int *);

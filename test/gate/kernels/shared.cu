// Shared memory, barriers, warps, clusters of lanes.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void
extern __shared__ int dynamic[];

KERNEL tree(float *a)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = a[blockIdx.x * 256 + t];
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) {
        if (t < k)
            s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0)
        a[blockIdx.x] = s[0];
}

KERNEL uses_dynamic(int *a) { dynamic[threadIdx.x] = a[threadIdx.x]; __syncthreads(); a[threadIdx.x] = dynamic[31 - threadIdx.x]; }

KERNEL uses_both(int *a, int n)
{
    __shared__ int s[33];
    s[threadIdx.x % 33] = n;
    dynamic[threadIdx.x] = a[n];
    __syncthreads();
    a[threadIdx.x] = s[n % 33] + dynamic[n];
}

KERNEL named_barriers(int *a, int n)
{
    __shared__ int s[512];
    int t = threadIdx.x;
    if (t < 128) {
        s[t] = a[t];
        asm volatile("bar.arrive 2, 256;" ::: "memory");
    } else if (t < 256) {
        asm volatile("bar.sync 2, 256;" ::: "memory");
        a[t] = s[t - 128];
    } else {
        asm volatile("bar.sync 5, %0;" ::"r"((n >> 5) << 5) : "memory");
        a[t] = s[t];
    }
    asm volatile("barrier.sync 9;" ::: "memory");
    a[t] += s[n];
}

KERNEL any_barrier(int *a, int n) { asm volatile("barrier.sync %0;" ::"r"(n) : "memory"); a[threadIdx.x] = n; }

KERNEL counts(int *a, int n)
{
    int c = __syncthreads_count(a[threadIdx.x] > n), o = __syncthreads_or(a[threadIdx.x] == n);
    a[threadIdx.x] = c + o + __syncthreads_and(n);
}

KERNEL warps(int *a, int n)
{
    int m = __ballot_sync(~0u, a[threadIdx.x] > n), z = __match_any_sync(~0u, m);
    z += __shfl_xor_sync(~0u, z, n) + __shfl_down_sync(~0u, m, 3);
    if (__any_sync(~0u, n == 3))
        a[1] = z;
    if (threadIdx.x & 4)
        __syncwarp(0xf0f0f0f0);
    a[threadIdx.x] = z + __popc(__activemask());
}

KERNEL elects(int *a)
{
    auto g = cg::coalesced_threads();
    int where = 0;
    if (g.thread_rank() == 0)
        where = atomicAdd(a, (int)g.size());
    a[g.shfl(where, 0) + g.thread_rank() + 1] = threadIdx.x;
}

KERNEL tiles(int *a)
{
    auto t = cg::tiled_partition<8>(cg::this_thread_block());
    a[threadIdx.x] = cg::reduce(t, a[threadIdx.x], cg::plus<int>());
}

KERNEL grid_wide(int *a, int n) { auto g = cg::this_grid(); a[threadIdx.x] = n; g.sync(); a[n] += a[threadIdx.x]; }

KERNEL atomics(int *a, float *f, double *d, unsigned long long *u)
{
    __shared__ int s[4];
    __shared__ double sd;
    if (threadIdx.x < 4)
        s[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&s[threadIdx.x & 3], a[threadIdx.x]);
    atomicAdd(&sd, 1.0);
    atomicAdd_system(a, 1);
    atomicCAS(u, 1ull, 2ull);
    atomicMax(a + 1, 5);
    __threadfence_system();
    __syncthreads();
    atomicAdd(f, s[0]);
    atomicAdd(d, sd);
}

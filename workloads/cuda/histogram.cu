/* Histograms by atomics in global memory, by atomics in shared memory, and one per warp that are merged. */
#include "check.h"

#define BINS 256
#define WARPS 4

__global__ void by_global(unsigned *bins, const unsigned char *in, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1);
}

__global__ void by_shared(unsigned *bins, const unsigned char *in, int n)
{
    __shared__ unsigned own[BINS];
    for (int i = threadIdx.x; i < BINS; i += blockDim.x)
        own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&own[in[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x)
        atomicAdd(&bins[i], own[i]);
}

/* Lanes with equal values elect one that counts for all of them: no two lanes touch one bin, no atomics inside the warp. */
__global__ void by_warps(unsigned *bins, const unsigned char *in, int n)
{
    __shared__ unsigned own[WARPS][BINS];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = lane; i < BINS; i += 32)
        own[warp][i] = 0;
    __syncwarp();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i - lane < n; i += gridDim.x * blockDim.x) {
        unsigned mask = __ballot_sync(0xffffffffu, i < n);
        if (i < n) {
            unsigned equal = __match_any_sync(mask, (unsigned)in[i]);
            if (lane == __ffs(equal) - 1)
                own[warp][in[i]] += __popc(equal);
        }
        __syncwarp();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) {
        unsigned sum = 0;
        for (int w = 0; w < WARPS; w++)
            sum += own[w][i];
        atomicAdd(&bins[i], sum);
    }
}

int main()
{
    checker check("histogram");
    const int n = 100003;
    std::vector<unsigned char> in(n);
    std::vector<unsigned> want(BINS, 0);
    struct sequence s = {28};
    for (int i = 0; i < n; i++) {
        in[i] = i % 3 == 0 ? 17 : (unsigned char)(s.next() & s.next());
        want[in[i]]++;
    }
    unsigned char *din = to_device(in);
    unsigned *bins = device_array<unsigned>(BINS);
    CUDA(cudaMemset(bins, 0, BINS * sizeof(unsigned)));
    by_global<<<20, 192>>>(bins, din, n);
    FINISH();
    check.same(to_host(bins, BINS), want, "bin, global");
    CUDA(cudaMemset(bins, 0, BINS * sizeof(unsigned)));
    by_shared<<<9, 160>>>(bins, din, n);
    FINISH();
    check.same(to_host(bins, BINS), want, "bin, shared");
    CUDA(cudaMemset(bins, 0, BINS * sizeof(unsigned)));
    by_warps<<<6, 32 * WARPS>>>(bins, din, n);
    FINISH();
    check.same(to_host(bins, BINS), want, "bin, per warp");
    return check.done();
}

/* Sums, minima and maxima by shuffles inside warps, then over warps in shared memory, then by an atomic. */
#include "check.h"

struct result {
    int sum, least, most;
    float total;
};

template <class T> static __device__ T warp_sum(T v)
{
    for (int lane = 16; lane > 0; lane /= 2)
        v += __shfl_down_sync(0xffffffffu, v, lane);
    return v;
}

__global__ void reduce(struct result *out, const int *in, const float *reals, int n)
{
    __shared__ int sums[32], least[32], most[32];
    __shared__ float totals[32];
    int sum = 0, low = INT_MAX, high = INT_MIN;
    float total = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += in[i];
        low = min(low, in[i]);
        high = max(high, in[i]);
        total += reals[i];
    }
    sum = warp_sum(sum);
    total = warp_sum(total);
    for (int lane = 16; lane > 0; lane /= 2) {
        low = min(low, __shfl_xor_sync(0xffffffffu, low, lane));
        high = max(high, __shfl_xor_sync(0xffffffffu, high, lane));
    }
    int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) {
        sums[warp] = sum;
        least[warp] = low;
        most[warp] = high;
        totals[warp] = total;
    }
    __syncthreads();
    if (warp == 0) {
        int lane = threadIdx.x;
        sum = warp_sum(lane < warps ? sums[lane] : 0);
        total = warp_sum(lane < warps ? totals[lane] : 0.0f);
        low = lane < warps ? least[lane] : INT_MAX;
        high = lane < warps ? most[lane] : INT_MIN;
        for (int step = 16; step > 0; step /= 2) {
            low = min(low, __shfl_down_sync(0xffffffffu, low, step));
            high = max(high, __shfl_down_sync(0xffffffffu, high, step));
        }
        if (lane == 0) {
            atomicAdd(&out->sum, sum);
            atomicMin(&out->least, low);
            atomicMax(&out->most, high);
            atomicAdd(&out->total, total);
        }
    }
}

int main()
{
    checker check("reduce_shuffle");
    for (int n : {1, 100, 65537}) {
        std::vector<float> reals = random_floats(n, 5);
        std::vector<int> v(n);
        struct sequence s = {6};
        struct result want = {0, INT_MAX, INT_MIN, 0};
        double total = 0, magnitude = 0;
        for (int i = 0; i < n; i++) {
            v[i] = (int)s.next() >> 12;
            want.sum += v[i];
            want.least = v[i] < want.least ? v[i] : want.least;
            want.most = v[i] > want.most ? v[i] : want.most;
            total += reals[i];
            magnitude += fabs(reals[i]);
        }
        int *in = to_device(v);
        float *dreals = to_device(reals);
        for (int threads : {32, 128, 1024}) {
            std::vector<struct result> start = {{0, INT_MAX, INT_MIN, 0}};
            struct result *out = to_device(start);
            reduce<<<6, threads>>>(out, in, dreals, n);
            FINISH();
            struct result got = to_host(out, 1)[0];
            check.is(got.sum == want.sum, "sum", n);
            check.is(got.least == want.least, "minimum", n);
            check.is(got.most == want.most, "maximum", n);
            /* At most n / (6 * 32) + 20 additions for each value, each rounding by 2^-24. */
            check.is(fabs(got.total - total) <= (n / 192 + 20) * 6e-8 * magnitude, "float sum", n);
            CUDA(cudaFree(out));
        }
    }
    return check.done();
}

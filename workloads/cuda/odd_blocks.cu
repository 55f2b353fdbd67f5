/* Blocks whose size is no multiple of 32: lanes that do not exist take part in no vote, barrier or shuffle. */
#include "check.h"

__global__ void sums(int *out, unsigned *masks, int *counts, const int *in)
{
    __shared__ int s[1024];
    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int n = blockDim.x * blockDim.y * blockDim.z, i = blockIdx.x * n + t;
    s[t] = in[i];
    __syncthreads();
    for (int step = 1; step < n; step *= 2) {
        int other = t >= step ? s[t - step] : 0;
        __syncthreads();
        s[t] += other;
        __syncthreads();
    }
    out[i] = s[t];
    unsigned active = __activemask();
    masks[i] = __ballot_sync(active, in[i] % 2 != 0);
    counts[i] = __syncthreads_count(in[i] > 0) * 4 + __syncthreads_or(in[i] == 5) * 2 + __syncthreads_and(in[i] < 100);
}

int main()
{
    checker check("odd_blocks");
    const dim3 shapes[] = {dim3(1),       dim3(31),       dim3(33),   dim3(100),
                           dim3(7, 5, 3), dim3(1, 1, 45), dim3(1023), dim3(3, 11)};
    const int blocks = 5;
    for (dim3 shape : shapes) {
        int n = (int)(shape.x * shape.y * shape.z);
        std::vector<int> in(blocks * n), want(blocks * n), counts(blocks * n);
        std::vector<unsigned> masks(blocks * n);
        struct sequence s = {63};
        for (int &x : in)
            x = (int)(s.next() % 110) - 9;
        for (int b = 0; b < blocks; b++) {
            int sum = 0, positive = 0, five = 0, small = 1;
            for (int t = 0; t < n; t++) {
                int x = in[b * n + t];
                want[b * n + t] = sum += x;
                positive += x > 0;
                five |= x == 5;
                small &= x < 100;
                unsigned mask = 0;
                for (int l = t / 32 * 32; l < t / 32 * 32 + 32 && l < n; l++)
                    mask |= (unsigned)(in[b * n + l] % 2 != 0) << l % 32;
                masks[b * n + t] = mask;
            }
            for (int t = 0; t < n; t++)
                counts[b * n + t] = positive * 4 + five * 2 + small;
        }
        int *din = to_device(in), *out = device_array<int>(blocks * n), *dcounts = device_array<int>(blocks * n);
        unsigned *dmasks = device_array<unsigned>(blocks * n);
        sums<<<blocks, shape>>>(out, dmasks, dcounts, din);
        FINISH();
        check.same(to_host(out, blocks * n), want, "prefix sum");
        check.same(to_host(dmasks, blocks * n), masks, "ballot");
        check.same(to_host(dcounts, blocks * n), counts, "count over the block");
    }
    return check.done();
}

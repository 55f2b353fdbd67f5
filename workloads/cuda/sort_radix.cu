/* A simple radix sort, four bits at a time: count per block, scan the counts, scatter stably by ranks from ballots. */
#include "check.h"

#define THREADS 128
#define DIGITS 16

__global__ void count(unsigned *counts, const unsigned *keys, int n, int shift)
{
    __shared__ unsigned own[DIGITS];
    if (threadIdx.x < DIGITS)
        own[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        atomicAdd(&own[keys[i] >> shift & (DIGITS - 1)], 1);
    __syncthreads();
    if (threadIdx.x < DIGITS)
        counts[threadIdx.x * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

__global__ void scan(unsigned *v, int n) /* one block, exclusive */
{
    __shared__ unsigned s[1024];
    __shared__ unsigned carry;
    if (threadIdx.x == 0)
        carry = 0;
    for (int base = 0; base < n; base += 1024) {
        int i = base + threadIdx.x;
        unsigned own = i < n ? v[i] : 0;
        s[threadIdx.x] = own;
        __syncthreads();
        for (int step = 1; step < 1024; step *= 2) {
            unsigned other = threadIdx.x >= step ? s[threadIdx.x - step] : 0;
            __syncthreads();
            s[threadIdx.x] += other;
            __syncthreads();
        }
        if (i < n)
            v[i] = carry + s[threadIdx.x] - own;
        __syncthreads();
        if (threadIdx.x == 1023)
            carry += s[1023];
        __syncthreads();
    }
}

__global__ void scatter(unsigned *keys_out, int *values_out, const unsigned *keys, const int *values,
                        const unsigned *offsets, int n, int shift)
{
    __shared__ unsigned warps[THREADS / 32][DIGITS];
    int i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned digit = i < n ? keys[i] >> shift & (DIGITS - 1) : DIGITS, rank = 0;
    for (unsigned d = 0; d < DIGITS; d++) {
        unsigned same = __ballot_sync(0xffffffffu, digit == d);
        if (digit == d)
            rank = __popc(same & ((1u << lane) - 1));
        if (lane == 0)
            warps[warp][d] = __popc(same);
    }
    __syncthreads();
    if (i >= n)
        return;
    for (int w = 0; w < warp; w++)
        rank += warps[w][digit];
    unsigned to = offsets[digit * gridDim.x + blockIdx.x] + rank;
    keys_out[to] = keys[i];
    values_out[to] = values[i];
}

int main()
{
    checker check("sort_radix");
    const int n = 20011, blocks = (n + THREADS - 1) / THREADS;
    std::vector<unsigned> keys(n);
    std::vector<int> values(n);
    struct sequence s = {30};
    for (int i = 0; i < n; i++) {
        keys[i] = s.next() & 0xfff0ff0fu & s.next(); /* many equal ones, so that stability matters */
        values[i] = i;
    }
    unsigned *from = to_device(keys), *to = device_array<unsigned>(n),
             *counts = device_array<unsigned>(blocks * DIGITS);
    int *vfrom = to_device(values), *vto = device_array<int>(n);
    for (int shift = 0; shift < 32; shift += 4) {
        count<<<blocks, THREADS>>>(counts, from, n, shift);
        scan<<<1, 1024>>>(counts, blocks * DIGITS);
        scatter<<<blocks, THREADS>>>(to, vto, from, vfrom, counts, n, shift);
        unsigned *kept = from;
        from = to;
        to = kept;
        int *vkept = vfrom;
        vfrom = vto;
        vto = vkept;
    }
    FINISH();
    std::vector<unsigned> k = to_host(from, n);
    std::vector<int> v = to_host(vfrom, n);
    /* Sorted, stable, and a permutation of the input: then it is the one right answer. */
    std::vector<bool> seen(n, false);
    for (int i = 0; i < n; i++) {
        check.is(i == 0 || k[i - 1] < k[i] || (k[i - 1] == k[i] && v[i - 1] < v[i]), "order", i);
        bool fresh = v[i] >= 0 && v[i] < n && !seen[v[i]];
        check.is(fresh && keys[v[i]] == k[i], "pair", i);
        if (fresh)
            seen[v[i]] = true;
    }
    return check.done();
}

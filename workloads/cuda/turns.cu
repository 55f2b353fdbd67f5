/* Blocks that wait for other blocks between barriers: in turn, as products that are split along k add up their parts, and all for
 * all.  Which block comes when is not known; what it adds depends on its turn only. */
#include "check.h"

enum { THREADS = 128, BLOCKS = 40, TOGETHER = 8 };

__host__ __device__ static float part(unsigned turn, unsigned t)
{
    return (float)(turn * 7 % 13) + (float)t;
}

__global__ void in_turn(float *sums, unsigned *taken, volatile unsigned *turn)
{
    __shared__ unsigned mine_shared;
    __shared__ float rows[2][THREADS];
    unsigned t = threadIdx.x;
    if (t == 0)
        mine_shared = atomicAdd(taken, 1);
    __syncthreads();
    unsigned mine = mine_shared;
    for (int k = 0; k < 3; k++) {
        rows[k & 1][t] = part(mine, t) + (k < 2 ? 1e6f : 0.0f);
        __syncthreads();
    }
    float x = rows[0][t ^ 1];
    if (t == 0) {
        while (*turn != mine) {}
    }
    __syncthreads();
    sums[t] = __fadd_rn(__fmul_rn(sums[t], 0.5f), x);
    __threadfence();
    __syncthreads();
    if (t == 0)
        *turn = mine + 1;
}

/* Blocks run side by side for this, as few as every device has room for. */
__global__ void all_for_all(unsigned *out, unsigned *written, unsigned *arrived)
{
    unsigned t = threadIdx.x, b = blockIdx.x;
    written[b * THREADS + t] = b * 1000 + t;
    __threadfence();
    __syncthreads();
    if (t == 0)
        atomicAdd(arrived, 1);
    __syncthreads();
    if (t == 0) {
        while (*(volatile unsigned *)arrived < gridDim.x) {}
    }
    __syncthreads();
    out[b * THREADS + t] = *(volatile unsigned *)&written[(b + 1) % gridDim.x * THREADS + (t + 33) % THREADS];
}

/* From the last block to the first, with barriers in the loops that wait: each thread for itself until it returns, as programs that
 * sort trees do it. */
__global__ void passed_down(volatile unsigned *passed)
{
    unsigned k = blockIdx.x * THREADS + threadIdx.x;
    bool is_waiting = true;
    while (is_waiting) {
        unsigned before = blockIdx.x + 1 == gridDim.x ? 1 : passed[k + THREADS];
        if (before > 0) {
            passed[k] = before + 1;
            is_waiting = false;
        }
        __syncthreads();
    }
}

/* The same, where all threads wait for what one of them sees. */
__global__ void passed_down_together(unsigned *out, volatile unsigned *passed)
{
    __shared__ volatile unsigned seen;
    for (;;) {
        if (threadIdx.x == 0)
            seen = blockIdx.x + 1 == gridDim.x ? 1 : passed[blockIdx.x + 1];
        __syncthreads();
        unsigned before = seen;
        __syncthreads();
        if (before > 0) {
            out[blockIdx.x * THREADS + threadIdx.x] = before;
            if (threadIdx.x == 0)
                passed[blockIdx.x] = before + 1;
            break;
        }
    }
}

int main()
{
    checker check("turns");
    for (int again = 0; again < 3; again++) {
        float *sums = to_device(std::vector<float>(THREADS, 0.0f));
        unsigned *words = to_device(std::vector<unsigned>(2, 0u));
        in_turn<<<BLOCKS, THREADS>>>(sums, words, words + 1);
        FINISH();
        std::vector<float> want(THREADS, 0.0f);
        for (unsigned turn = 0; turn < BLOCKS; turn++)
            for (unsigned t = 0; t < THREADS; t++)
                want[t] = want[t] * 0.5f + part(turn, t ^ 1);
        check.same(to_host(sums, THREADS), want, "sum");

        unsigned *out = device_array<unsigned>(TOGETHER * THREADS),
                 *written = device_array<unsigned>(TOGETHER * THREADS);
        unsigned *arrived = to_device(std::vector<unsigned>(1, 0u));
        all_for_all<<<TOGETHER, THREADS>>>(out, written, arrived);
        FINISH();
        std::vector<unsigned> all(TOGETHER * THREADS);
        for (unsigned i = 0; i < all.size(); i++)
            all[i] = (i / THREADS + 1) % TOGETHER * 1000 + (i % THREADS + 33) % THREADS;
        check.same(to_host(out, all.size()), all, "word");

        unsigned *passed = to_device(std::vector<unsigned>(TOGETHER * THREADS, 0u));
        passed_down<<<TOGETHER, THREADS>>>(passed);
        FINISH();
        for (unsigned i = 0; i < all.size(); i++)
            all[i] = TOGETHER - i / THREADS + 1;
        check.same(to_host(passed, all.size()), all, "number passed down");

        passed = to_device(std::vector<unsigned>(TOGETHER, 0u));
        passed_down_together<<<TOGETHER, THREADS>>>(out, passed);
        FINISH();
        for (unsigned &x : all)
            x--;
        check.same(to_host(out, all.size()), all, "number passed down together");
    }
    return check.done();
}

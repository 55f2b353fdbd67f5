/* A program in three files, compiled separately (nvcc -rdc=true): kernels here call device functions of the other two, which share
 * variables, have names of their own that are the same, and get at dynamic shared memory and at a template's variable that all have. */
#include "parts/parts.h"

/* The same names are in both other files, and mean something else there. */
static __device__ uint32_t hidden = 17;
static __device__ __noinline__ uint32_t mix(uint32_t x)
{
    return x * 3u + hidden;
}

__device__ uint32_t blocks_done;
__constant__ uint32_t weights[4] = {3, 5, 7, 11};

/* Each block for itself: first one file's steps, then the other's, by way of shared memory. */
__global__ void walk(uint32_t *v, int n, int rounds)
{
    uint32_t *mine = shared_words();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t x = i < n ? v[i] : 0;
    for (int r = 0; r < rounds; r++)
        x = mix(left_step(x, r)) ^ right_step(x, blockIdx.x);
    mine[threadIdx.x] = x;
    __syncthreads();
    x += mine[(threadIdx.x + 1) % blockDim.x] * weights[threadIdx.x % 4] + counted<uint32_t>(1);
    if (i < n)
        v[i] = x;
    if (threadIdx.x == 0)
        atomicAdd(&blocks_done, 1);
}

int main()
{
    const int n = 100000, threads = 128, blocks = (n + threads - 1) / threads, rounds = 40;
    std::vector<uint32_t> v(n), expected(n), got(n);
    struct sequence s = {12345};
    for (uint32_t &x : v)
        x = s.next();
    uint32_t *d = to_device(v);
    walk<<<blocks, threads, threads * sizeof(uint32_t)>>>(d, n, rounds);
    FINISH();
    run_left(d, n);
    run_right(d, n);
    CUDA(cudaMemcpy(got.data(), d, n * sizeof(uint32_t), cudaMemcpyDeviceToHost));

    const uint32_t weights_too[4] = {3, 5, 7, 11};
    for (int b = 0; b < blocks; b++) {
        uint32_t mine[threads];
        for (int t = 0; t < threads; t++) {
            int i = b * threads + t;
            uint32_t x = i < n ? v[i] : 0;
            for (int r = 0; r < rounds; r++)
                x = (left_model(x, r) * 3u + 17u) ^ right_model(x, b);
            mine[t] = x;
        }
        for (int t = 0; t < threads && b * threads + t < n; t++)
            expected[b * threads + t] = mine[t] + mine[(t + 1) % threads] * weights_too[t % 4] + 2u;
    }
    for (int i = 0; i < n; i++)
        expected[i] = (expected[i] * 5u + 23u) ^ (uint32_t)(29 * (i % 7));
    for (int i = 0; i < n; i++)
        if (got[i] != expected[i]) {
            printf("FAIL %d: %u is not %u\n", i, got[i], expected[i]);
            return 1;
        }
    uint32_t done = 0;
    CUDA(cudaMemcpyFromSymbol(&done, blocks_done, sizeof done));
    if (done != (uint32_t)blocks + 2) {
        printf("FAIL %u blocks were counted, not %d\n", done, blocks + 2);
        return 1;
    }
    printf("separate: ok\n");
    return 0;
}

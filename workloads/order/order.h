/* For programs whose result depends on the order of what they ask for.
 *
 * The one operation is x -> 3 x + k on every element of an array, in many blocks: any two of them
 * exchanged, one left out or one done twice gives another result.  A model on the host does the
 * same in the order that CUDA promises. */
#ifndef ORDER_H
#define ORDER_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t must_error = (call);                                                                               \
        if (must_error != cudaSuccess) {                                                                               \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(must_error));                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const int order_n = 20000, order_threads = 128, order_blocks = (order_n + order_threads - 1) / order_threads;
static const size_t order_bytes = order_n * sizeof(uint32_t);

static __global__ void order_step(uint32_t *v, int n, uint32_t k, int rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t waste = v[i];
    for (int r = 0; r < rounds; r++)
        waste = waste * 1664525u + 1013904223u;
    v[i] = v[i] * 3u + k + (waste == 0x12345678u && rounds < 0);
}

/* x -> 3 x + y[i]: reads what another stream made. */
static __global__ void order_join(uint32_t *v, const uint32_t *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] = v[i] * 3u + y[i];
}

/* Every few of them last longer, so that things have time to go wrong. */
static inline void step(uint32_t *v, uint32_t k, cudaStream_t s = 0)
{
    order_step<<<order_blocks, order_threads, 0, s>>>(v, order_n, k, k % 5 == 0 ? 400 : 20);
}

static inline void join(uint32_t *v, const uint32_t *y, cudaStream_t s = 0)
{
    order_join<<<order_blocks, order_threads, 0, s>>>(v, y, order_n);
}

static inline uint32_t *new_array()
{
    uint32_t *v;
    MUST(cudaMalloc(&v, order_bytes));
    MUST(cudaMemset(v, 0, order_bytes));
    return v;
}

struct order_check {
    const char *name;
    int wrong = 0, checked = 0;
    order_check(const char *n) : name(n)
    {
    }
    void is(bool ok, const char *what)
    {
        checked++;
        if (!ok) {
            wrong++;
            printf("%s: %s is wrong\n", name, what);
        }
    }
    /* All elements of a device array are `want`. */
    void all(const uint32_t *v, uint32_t want, const char *what)
    {
        std::vector<uint32_t> host(order_n);
        MUST(cudaMemcpy(host.data(), v, order_bytes, cudaMemcpyDeviceToHost));
        int bad = 0;
        for (uint32_t x : host)
            bad += x != want;
        checked++;
        if (bad > 0) {
            wrong++;
            printf("%s: %s: %d of %d elements are wrong (%u, not %u)\n", name, what, bad, order_n, host[0], want);
        }
    }
    int done()
    {
        printf("%s %s: %d checks\n", wrong == 0 ? "ok  " : "FAIL", name, checked);
        return wrong != 0;
    }
};

#endif

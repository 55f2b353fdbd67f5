/* A job that needs much device memory: several arrays that are gone through again and again, each pass adding to every element.
 * Knows what has to come out, so it can tell whether memory kept what was written to it.  Ends with one line of JSON. */
#include "job.h"

static const char help[] =
    "usage: large [--mib=64] [--arrays=8] [--passes=4] [--hold=0]\n"
    "\n"
    "  --mib      memory of all arrays together\n"
    "  --passes   times that each array is gone through\n"
    "  --hold     seconds that it keeps its memory afterwards, doing nothing\n";

/* A block has 8192 elements; what is added depends on the array and the place. */
__global__ void pass(uint32_t *a, uint32_t seed)
{
    size_t i = (size_t)blockIdx.x * 8192 + threadIdx.x;
    for (int k = 0; k < 8192; k += 256)
        a[i + k] += seed + (uint32_t)(i + k);
}

int main(int argc, char **argv)
{
    options o(argc, argv, help);
    size_t mib = (size_t)o.number("mib", 64), arrays = (size_t)o.number("arrays", 8);
    int passes = (int)o.number("passes", 4);
    double hold = o.number("hold", 0);
    o.done();
    size_t n = std::max<size_t>(1, (mib << 20) / arrays / (8192 * 4)) * 8192;
    std::vector<uint32_t *> list(arrays);
    for (uint32_t *&a : list) {
        CUDA(cudaMalloc(&a, n * 4));
        CUDA(cudaMemset(a, 0, n * 4));
    }
    size_t left, all;
    CUDA(cudaMemGetInfo(&left, &all));
    fprintf(stderr, "large: %zu MiB in %zu arrays\n", n * 4 * arrays >> 20, arrays);
    double begin = now_s();
    for (int p = 0; p < passes; p++)
        for (size_t k = 0; k < arrays; k++)
            pass<<<(unsigned)(n / 8192), 256>>>(list[k], (uint32_t)(k * 77 + p));
    CUDA(cudaDeviceSynchronize());
    double seconds = now_s() - begin;
    size_t wrong = 0;
    std::vector<uint32_t> got(n);
    for (size_t k = 0; k < arrays; k++) {
        CUDA(cudaMemcpy(got.data(), list[k], n * 4, cudaMemcpyDeviceToHost));
        uint32_t sum = 0;
        for (int p = 0; p < passes; p++)
            sum += (uint32_t)(k * 77 + p);
        for (size_t i = 0; i < n; i++)
            wrong += got[i] != sum + (uint32_t)passes * (uint32_t)i;
    }
    sleep_until(now_s() + hold);
    printf("{\"job\": \"large\", \"mib\": %zu, \"wrong\": %zu, \"seconds\": %.6g, \"free_mib\": %zu, \"total_mib\": %zu}\n",
           n * 4 * arrays >> 20, wrong, seconds, left >> 20, all >> 20);
    return wrong != 0;
}

/* What CUDA refuses is refused at the call; what fails on the device is told where the program waits. */
#include "order.h"

static __global__ void trap_at(uint32_t *v, int at)
{
    if ((int)blockIdx.x == at)
        __trap();
    v[blockIdx.x] = 1;
}

int main()
{
    order_check check("errors");
    uint32_t *v = new_array();
    for (uint32_t i = 1; i <= 5; i++)
        step(v, i);
    auto refused = [&](const char *what) { /* which error it is, drivers disagree about: it is printed to be compared */
        cudaError_t e = cudaGetLastError();
        check.is(e != cudaSuccess, what);
        printf("%s: %s\n", what, cudaGetErrorName(e));
    };
    order_step<<<1, 4096>>>(v, order_n, 1, 1);
    refused("a block that is too large");
    order_step<<<0, 32>>>(v, order_n, 1, 1);
    refused("a grid of nothing");
    order_step<<<1, 32, 10 << 20>>>(v, order_n, 1, 1);
    refused("too much shared memory");
    check.is(cudaMemset(NULL, 0, 100) != cudaSuccess, "memset of nothing");
    refused("memset of nothing, again");
    MUST(cudaDeviceSynchronize());
    check.all(v, (((1u * 3 + 2) * 3 + 3) * 3 + 4) * 3 + 5, "kernels around what was refused");

    trap_at<<<50, 32>>>(v, 200); /* not reached: it only makes the kernel known */
    MUST(cudaDeviceSynchronize());
    trap_at<<<50, 32>>>(v, 30);
    for (uint32_t i = 1; i <= 5; i++)
        step(v, i);
    cudaGetLastError();
    cudaError_t first = cudaDeviceSynchronize(), second = cudaDeviceSynchronize();
    check.is(first != cudaSuccess, "the fault is told");
    check.is(second == first, "and stays");
    step(v, 1);
    check.is(cudaGetLastError() == first, "also at launches");
    return check.done();
}

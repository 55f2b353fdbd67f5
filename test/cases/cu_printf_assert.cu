// printf and assert as nvcc compiles them.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=4,1,1 block=32,1,1 shared=0
// arg: buffer u32 128 zero
#include <cassert>
#include <cstdio>

extern "C" __global__ void printf_assert(unsigned *out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < 128);
    out[i] = blockIdx.x;
    if (threadIdx.x == 0)
        printf("block %u of %u\n", blockIdx.x, gridDim.x);
}

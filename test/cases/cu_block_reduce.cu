// A reduction over the block with shuffles and shared memory; partial warps at the end of the data stay in the loop.
// verdict: slice=ok ticket=ok persistent=ok
// conditions: persistent=warps-are-rows
// run: grid=33,1,1 block=128,1,1 shared=0
// arg: buffer u32 5000 random 9
// arg: buffer u32 64 zero
// arg: u32 5000
extern "C" __global__ void block_reduce(const unsigned *in, unsigned *out, unsigned n)
{
    __shared__ unsigned part[32];
    unsigned sum = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int d = 16; d > 0; d /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, d);
        if (threadIdx.x == 0)
            out[blockIdx.x] = sum;
    }
}

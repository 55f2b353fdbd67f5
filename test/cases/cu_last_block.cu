// The reduction of NVIDIA's sample threadFenceReduction: the last block to finish adds up what the others left.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=30,1,1 block=64,1,1 shared=0
// arg: buffer u32 1920 iota
// arg: buffer u32 64 zero
// arg: buffer u32 1 zero
__device__ unsigned finished;

extern "C" __global__ void last_block(const unsigned *in, volatile unsigned *part, unsigned *result)
{
    __shared__ bool is_last;
    __shared__ unsigned sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        unsigned all = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            all += part[i];
        *result = all;
    }
}

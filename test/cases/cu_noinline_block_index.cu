// Functions that the compiler may not inline read block number and grid; one of them calls the other.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=30,2,1 block=64,1,1 shared=0
// arg: buffer u32 4096 zero
__device__ __noinline__ unsigned block_number()
{
    return blockIdx.y * gridDim.x + blockIdx.x;
}

__device__ __noinline__ unsigned place(unsigned scale)
{
    return block_number() * scale + threadIdx.x;
}

extern "C" __global__ void noinline_block_index(unsigned *out)
{
    out[place(blockDim.x)] = block_number();
}

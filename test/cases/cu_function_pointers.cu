// Device functions behind pointers in a table.
// verdict: slice=indirect-call ticket=indirect-call persistent=indirect-call
typedef unsigned (*operation)(unsigned);

__device__ unsigned twice(unsigned a)
{
    return 2 * a;
}

__device__ unsigned number(unsigned a)
{
    return a + blockIdx.x;
}

__device__ operation table[2] = {twice, number};

extern "C" __global__ void function_pointers(unsigned *out, unsigned which)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = table[which](i);
}

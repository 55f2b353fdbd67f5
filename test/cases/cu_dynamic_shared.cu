// Dynamic shared memory, and a large structure passed by value.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=25,1,1 block=64,1,1 shared=256
// arg: buffer u32 1600 zero
// arg: bytes 400 iota
struct table {
    unsigned values[100];
};

extern "C" __global__ void dynamic_shared(unsigned *out, table t)
{
    extern __shared__ unsigned box[];
    box[threadIdx.x] = t.values[(blockIdx.x + threadIdx.x) % 100];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = box[blockDim.x - 1 - threadIdx.x];
}

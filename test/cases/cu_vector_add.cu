// The first kernel everybody writes, as nvcc compiles it.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=40,1,1 block=256,1,1 shared=0
// arg: buffer f32 10000 iota
// arg: buffer f32 10000 random 5
// arg: buffer f32 10000 zero
// arg: u32 10000
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

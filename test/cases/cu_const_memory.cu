// Constant memory, initialised and addressed by an index that differs between threads.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=20,1,1 block=64,1,1 shared=0
// arg: buffer f32 1280 iota
__constant__ float taps[5] = {1, 4, 6, 4, 1};
__constant__ unsigned stride = 3;

extern "C" __global__ void const_memory(float *data)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = data[i] * taps[i * stride % 5];
}

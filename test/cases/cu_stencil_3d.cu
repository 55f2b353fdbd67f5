// A 3-D grid with an early return for threads outside of the data.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=3,4,5 block=8,4,2 shared=0
// arg: buffer u32 3000 random 2
// arg: buffer u32 3000 zero
// arg: u32 20
// arg: u32 15
// arg: u32 10
extern "C" __global__ void stencil(const unsigned *in, unsigned *out, unsigned nx, unsigned ny, unsigned nz)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz)
        return;
    unsigned sum = 0;
    for (int d = -1; d <= 1; d++)
        sum += in[(z * ny + y) * nx + (x + nx + d) % nx] + in[((z + nz + d) % nz * ny + y) * nx + x];
    out[(z * ny + y) * nx + x] = sum * gridDim.z + gridDim.y;
}

// A tiled transposition on a 2-D grid of 2-D blocks.
// verdict: slice=ok ticket=ok persistent=ok
// run: grid=5,4,1 block=16,16,1 shared=0
// arg: buffer u32 5120 iota
// arg: buffer u32 5120 zero
// arg: u32 80
// arg: u32 64
extern "C" __global__ void transpose(const unsigned *in, unsigned *out, unsigned width, unsigned height)
{
    __shared__ unsigned tile[16][17];
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < width && y < height)
        tile[threadIdx.y][threadIdx.x] = in[y * width + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < height && y < width)
        out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

// Tensor cores through wmma, a warp per tile, after whole warps have left: blocks are 1-D, and the condition is by warp.
// verdict: slice=ok ticket=ok persistent=ok
// conditions: persistent=warps-are-rows
// run: grid=6,1,1 block=128,1,1 shared=0
// arg: buffer u16 65536 zero
// arg: buffer f32 65536 zero
// arg: u32 20
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void matrix_product(const half *a, float *c, unsigned tiles)
{
    unsigned tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (tile >= tiles)
        return;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> fa;
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, half, nvcuda::wmma::col_major> fb;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> fc;
    nvcuda::wmma::fill_fragment(fc, (float)tile);
    nvcuda::wmma::load_matrix_sync(fa, a + tile * 256, 16);
    nvcuda::wmma::load_matrix_sync(fb, a, 16);
    nvcuda::wmma::mma_sync(fc, fa, fb, fc);
    nvcuda::wmma::store_matrix_sync(c + tile * 256, fc, 16, nvcuda::wmma::mem_row_major);
}

/* The kernels that the sample jobs are made of: products, normalisation, convolution, and what goes between them.  All
 * sizes are arguments; none needs to divide another. */
#ifndef WORKLOADS_JOBS_KERNELS_CUH
#define WORKLOADS_JOBS_KERNELS_CUH

#include <cuda_runtime.h>

enum { TILE = 32, ROWS_PER_THREAD = 4 };
enum activation { NONE, RELU, GELU };

static __device__ __forceinline__ float activate(float x, enum activation f)
{
    if (f == RELU)
        return x > 0 ? x : 0;
    if (f == GELU)
        return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    return x;
}

/* One of many products: c[m][n] = f(scale * op(a)[m][k] * op(b)[k][n] + bias[n]); op is a transposition where it is said.
 * blockIdx.z picks the one of a batch, `*_step` floats apart.  Blocks of 32x8 threads, each with four rows of a tile. */
struct product {
    const float *a, *b, *bias;
    float *c;
    int m, n, k, lda, ldb, ldc;
    size_t a_step, b_step, c_step;
    bool a_is_transposed, b_is_transposed;
    enum activation f;
    float scale;
};

static __global__ void __launch_bounds__(TILE *TILE / ROWS_PER_THREAD) gemm(struct product p)
{
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    const float *a = p.a + blockIdx.z * p.a_step, *b = p.b + blockIdx.z * p.b_step;
    float *c = p.c + blockIdx.z * p.c_step;
    float sum[ROWS_PER_THREAD] = {0, 0, 0, 0};
    for (int t = 0; t < p.k; t += TILE) {
        for (int i = y; i < TILE; i += TILE / ROWS_PER_THREAD) {
            /* Neighbouring threads read neighbouring floats in either order. */
            int ar = p.a_is_transposed ? row + x : row + i, ak = p.a_is_transposed ? t + i : t + x;
            float av = ar < p.m && ak < p.k ? a[p.a_is_transposed ? ak * p.lda + ar : ar * p.lda + ak] : 0;
            if (p.a_is_transposed)
                as[x][i] = av;
            else
                as[i][x] = av;
            int bk = p.b_is_transposed ? t + x : t + i, bc = p.b_is_transposed ? column + i : column + x;
            float bv = bk < p.k && bc < p.n ? b[p.b_is_transposed ? bc * p.ldb + bk : bk * p.ldb + bc] : 0;
            if (p.b_is_transposed)
                bs[x][i] = bv;
            else
                bs[i][x] = bv;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            float v = bs[i][x];
#pragma unroll
            for (int r = 0; r < ROWS_PER_THREAD; r++)
                sum[r] += as[y + r * (TILE / ROWS_PER_THREAD)][i] * v;
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS_PER_THREAD; r++) {
        int i = row + y + r * (TILE / ROWS_PER_THREAD), j = column + x;
        if (i < p.m && j < p.n)
            c[i * p.ldc + j] = activate(sum[r] * p.scale + (p.bias != nullptr ? p.bias[j] : 0), p.f);
    }
}

static __device__ __forceinline__ float block_sum(float v, float *scratch)
{
    for (int d = 16; d > 0; d >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, d);
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        v += scratch[i];
    __syncthreads();
    return v;
}

/* A block of 128 threads per row. */
static __global__ void softmax_rows(float *x, int n)
{
    __shared__ float scratch[4];
    float *row = x + (size_t)blockIdx.x * n, high = -INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        high = fmaxf(high, row[i]);
    for (int d = 16; d > 0; d >>= 1)
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, d));
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = high;
    __syncthreads();
    high = fmaxf(fmaxf(scratch[0], scratch[1]), fmaxf(scratch[2], scratch[3]));
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += row[i] = __expf(row[i] - high);
    sum = block_sum(sum, scratch);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        row[i] /= sum;
}

/* y = (x - mean) / deviation, plus what is added to it; a block of 128 threads per row. */
static __global__ void normalise_rows(float *y, const float *x, const float *plus, int n)
{
    __shared__ float scratch[4];
    size_t at = (size_t)blockIdx.x * n;
    float sum = 0, square = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float v = x[at + i] + (plus != nullptr ? plus[at + i] : 0);
        sum += v;
        square += v * v;
    }
    float mean = block_sum(sum, scratch) / n, spread = block_sum(square, scratch) / n - mean * mean;
    float scale = rsqrtf(spread + 1e-5f);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[at + i] = (x[at + i] + (plus != nullptr ? plus[at + i] : 0) - mean) * scale;
}

/* 3x3, padded by one, relu; a thread per pixel, a block per row piece, output channel in blockIdx.y, image in blockIdx.z. */
static __global__ void convolve(float *y, const float *x, const float *w, int channels, int side)
{
    int pixel = blockIdx.x * blockDim.x + threadIdx.x, out = blockIdx.y;
    if (pixel >= side * side)
        return;
    int py = pixel / side, px = pixel % side;
    const float *image = x + (size_t)blockIdx.z * channels * side * side;
    float sum = 0;
    for (int c = 0; c < channels; c++) {
        for (int dy = -1; dy <= 1; dy++) {
            for (int dx = -1; dx <= 1; dx++) {
                int sy = py + dy, sx = px + dx;
                if (sy >= 0 && sy < side && sx >= 0 && sx < side)
                    sum += image[(c * side + sy) * side + sx] * w[(out * channels + c) * 9 + (dy + 1) * 3 + dx + 1];
            }
        }
    }
    y[((size_t)blockIdx.z * gridDim.y + out) * side * side + pixel] = sum > 0 ? sum : 0;
}

/* Halves both sides of `planes` images by maxima. */
static __global__ void pool(float *y, const float *x, int planes, int side)
{
    int half = side / 2, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= planes * half * half)
        return;
    int plane = i / (half * half), py = i / half % half, px = i % half;
    const float *from = x + (size_t)plane * side * side + 2 * py * side + 2 * px;
    y[i] = fmaxf(fmaxf(from[0], from[1]), fmaxf(from[side], from[side + 1]));
}

/* The gradient of half the squared error, and that error of each element. */
static __global__ void error_of(float *gradient, float *error, const float *got, const float *want, int n, float scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float d = got[i] - want[i];
        gradient[i] = d * scale;
        error[i] = 0.5f * d * d;
    }
}

/* Where the activation was cut, no gradient passes. */
static __global__ void cut(float *gradient, const float *activated, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && activated[i] <= 0)
        gradient[i] = 0;
}

/* One step of Adam. */
static __global__ void adam(float *w, float *mean, float *square, const float *gradient, int n, float rate)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float g = gradient[i], m = mean[i] = 0.9f * mean[i] + 0.1f * g, v = square[i] = 0.99f * square[i] + 0.01f * g * g;
        w[i] -= rate * m / (sqrtf(v) + 1e-6f);
    }
}

/* The sum of n values into one, always in the same order: a single block. */
static __global__ void total(float *sum, const float *values, int n)
{
    __shared__ float scratch[4];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        v += values[i];
    v = block_sum(v, scratch);
    if (threadIdx.x == 0)
        *sum = v;
}

#endif

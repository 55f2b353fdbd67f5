/* The kernels in CUDA: what the software device is measured with. */
#include "test/bench/device_side.h"

#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

#define FUNCTION static __device__ __forceinline__
#include "test/bench/device_loops.inc"

__global__ void empty(float *)
{
}

__global__ void vadd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

__global__ void saxpy(const float *x, float *y, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = factor * x[i] + y[i];
}

__global__ void naive_matmul(const float *a, const float *b, float *c, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

__global__ void tiled_matmul(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[MATRIX_TILE][MATRIX_TILE], right[MATRIX_TILE][MATRIX_TILE];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * MATRIX_TILE + tx, y = blockIdx.y * MATRIX_TILE + ty;
    float sum = 0;
    for (int tile = 0; tile < n / MATRIX_TILE; tile++) {
        left[ty][tx] = a[y * n + tile * MATRIX_TILE + tx];
        right[ty][tx] = b[(tile * MATRIX_TILE + ty) * n + x];
        __syncthreads();
        for (int k = 0; k < MATRIX_TILE; k++)
            sum += left[ty][k] * right[k][tx];
        __syncthreads();
    }
    c[y * n + x] = sum;
}

__global__ void reduction(const float *a, float *out)
{
    __shared__ float part[REDUCE_PER_BLOCK / 2];
    int t = threadIdx.x, i = blockIdx.x * REDUCE_PER_BLOCK + t;
    part[t] = a[i] + a[i + REDUCE_PER_BLOCK / 2];
    __syncthreads();
    for (int d = REDUCE_PER_BLOCK / 4; d > 0; d /= 2) {
        if (t < d)
            part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = part[0];
}

__global__ void softmax(const float *a, float *out, int n)
{
    __shared__ float part[256];
    const float *row = a + (size_t)blockIdx.x * n;
    float *to = out + (size_t)blockIdx.x * n, most = -INFINITY, sum = 0;
    int t = threadIdx.x;
    for (int i = t; i < n; i += 256)
        most = fmaxf(most, row[i]);
    part[t] = most;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d)
            part[t] = fmaxf(part[t], part[t + d]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();
    for (int i = t; i < n; i += 256) {
        to[i] = __expf(row[i] - most);
        sum += to[i];
    }
    part[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d)
            part[t] += part[t + d];
        __syncthreads();
    }
    sum = 1.0f / part[0];
    for (int i = t; i < n; i += 256)
        to[i] *= sum;
}

__global__ void stencil(const float *a, float *out, int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * w + x;
    if (x > 0 && y > 0 && x < w - 1 && y < h - 1)
        out[i] = 0.5f * a[i] + 0.125f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w]);
}

__global__ void histogram(const unsigned *a, unsigned *out, int n)
{
    __shared__ unsigned bins[256];
    int t = threadIdx.x, stride = gridDim.x * blockDim.x;
    bins[t] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += stride)
        atomicAdd(&bins[a[i] & 255], 1u);
    __syncthreads();
    atomicAdd(&out[t], bins[t]);
}

__global__ void mandelbrot(int *out, int w, int rounds)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float cx = -2.0f + 3.0f * x / w, cy = -1.5f + 3.0f * y / w;
    out[y * w + x] = mandelbrot_rounds(cx, cy, rounds);
}

__global__ void collatz(int *out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = collatz_steps(i + 1);
}

__global__ void transpose(const float *a, float *out, int n)
{
    __shared__ float tile[32][33];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 32 + tx, y = blockIdx.y * 32 + ty;
    for (int j = 0; j < 32; j += 8)
        tile[ty + j][tx] = a[(size_t)(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + tx;
    y = blockIdx.x * 32 + ty;
    for (int j = 0; j < 32; j += 8)
        out[(size_t)(y + j) * n + x] = tile[tx][ty + j];
}

static float *in_a, *in_b, *out_c;

static void launch(enum bench_kernel k, bool one)
{
    auto grid = [one](int x, int y) { return one ? dim3(1) : dim3(x, y); };
    unsigned *bits = (unsigned *)in_a;
    int *ints = (int *)out_c;
    const int m = MATRIX_N / MATRIX_TILE;
    const dim3 square(MATRIX_TILE, MATRIX_TILE), flat(32, 8);
    switch (k) {
    case BENCH_empty:
        empty<<<1, 256>>>(out_c);
        break;
    case BENCH_vadd:
        vadd<<<grid(STREAM_N / 256, 1), 256>>>(in_a, in_b, out_c, STREAM_N);
        break;
    case BENCH_saxpy:
        saxpy<<<grid(STREAM_N / 256, 1), 256>>>(in_a, out_c, 1.5f, STREAM_N);
        break;
    case BENCH_naive_matmul:
        naive_matmul<<<grid(m, m), square>>>(in_a, in_b, out_c, MATRIX_N);
        break;
    case BENCH_tiled_matmul:
        tiled_matmul<<<grid(m, m), square>>>(in_a, in_b, out_c, MATRIX_N);
        break;
    case BENCH_reduction:
        reduction<<<grid(REDUCE_N / REDUCE_PER_BLOCK, 1), REDUCE_PER_BLOCK / 2>>>(in_a, out_c);
        break;
    case BENCH_softmax:
        softmax<<<grid(SOFTMAX_ROWS, 1), 256>>>(in_a, out_c, SOFTMAX_N);
        break;
    case BENCH_stencil:
        stencil<<<grid(IMAGE_N / 32, IMAGE_N / 8), flat>>>(in_a, out_c, IMAGE_N, IMAGE_N);
        break;
    case BENCH_histogram:
        histogram<<<grid(HISTOGRAM_BLOCKS, 1), 256>>>(bits, (unsigned *)out_c, one ? 256 : HISTOGRAM_N);
        break;
    case BENCH_mandelbrot:
        mandelbrot<<<grid(MANDEL_N / 16, MANDEL_N / 16), square>>>(ints, MANDEL_N, MANDEL_ROUNDS);
        break;
    case BENCH_collatz:
        collatz<<<grid(COLLATZ_N / 256, 1), 256>>>(ints);
        break;
    case BENCH_transpose:
        transpose<<<grid(IMAGE_N / 32, IMAGE_N / 32), flat>>>(in_a, out_c, IMAGE_N);
        break;
    default:
        break;
    }
}

static int finish(void)
{
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        error = cudaGetLastError();
    if (error != cudaSuccess)
        fprintf(stderr, "bench: CUDA: %s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}

static int cuda_run(enum bench_kernel k, int n)
{
    for (int i = 0; i < n; i++) {
        launch(k, false);
        if (finish() != 0)
            return 1;
    }
    return 0;
}

static int cuda_run_one_block(enum bench_kernel k)
{
    launch(k, true);
    return finish();
}

/* One grid that takes minutes, whatever is asked for. */
static int cuda_start(enum bench_kernel)
{
    mandelbrot<<<dim3(MANDEL_N / 16, MANDEL_N / 16), dim3(16, 16)>>>((int *)out_c, MANDEL_N, MANDEL_ROUNDS * 4096);
    return cudaGetLastError() != cudaSuccess;
}

static void cuda_set_result(const float *c)
{
    cudaMemcpy(out_c, c, sizeof(float) * BUFFER_N, cudaMemcpyHostToDevice);
}

static void cuda_get_result(float *c)
{
    cudaMemcpy(c, out_c, sizeof(float) * BUFFER_N, cudaMemcpyDeviceToHost);
}

static int cuda_setup(const float *a, const float *b, const float *c)
{
    size_t bytes = sizeof(float) * BUFFER_N;
    cudaMalloc(&in_a, bytes);
    cudaMalloc(&in_b, bytes);
    cudaMalloc(&out_c, bytes);
    cudaMemcpy(in_a, a, bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(in_b, b, bytes, cudaMemcpyHostToDevice);
    cuda_set_result(c);
    return finish();
}

int main()
{
    static const struct bench_side side = {cuda_setup,         cuda_set_result, cuda_get_result, cuda_run,
                                           cuda_run_one_block, cuda_start};
    return bench_serve(&side);
}

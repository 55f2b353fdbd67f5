/* Matrix transposition through shared memory, with a column of padding and without, and straight through. */
#include "check.h"

#define TILE 32
#define ROWS 8

template <class T, int PAD> __global__ void transpose(T *out, const T *in, int width, int height)
{
    __shared__ T tile[TILE][TILE + PAD];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS) {
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * width + x];
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS) {
        if (x < height && y + j < width)
            out[(size_t)(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
    }
}

template <class T> __global__ void straight(T *out, const T *in, int width, int height)
{
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS) {
        if (x < width && y + j < height)
            out[(size_t)x * height + y + j] = in[(size_t)(y + j) * width + x];
    }
}

template <class T> static void try_type(checker *check, int width, int height)
{
    size_t n = (size_t)width * height;
    std::vector<T> in(n), want(n);
    for (size_t i = 0; i < n; i++)
        in[i] = (T)(i * 2654435761u);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            want[(size_t)x * height + y] = in[(size_t)y * width + x];
    }
    T *din = to_device(in), *dout = device_array<T>(n);
    dim3 blocks((width + TILE - 1) / TILE, (height + TILE - 1) / TILE), threads(TILE, ROWS);
    transpose<T, 1><<<blocks, threads>>>(dout, din, width, height);
    FINISH();
    check->same(to_host(dout, n), want, "padded");
    CUDA(cudaMemset(dout, 0, n * sizeof(T)));
    transpose<T, 0><<<blocks, threads>>>(dout, din, width, height);
    FINISH();
    check->same(to_host(dout, n), want, "without padding");
    CUDA(cudaMemset(dout, 0, n * sizeof(T)));
    straight<<<blocks, threads>>>(dout, din, width, height);
    FINISH();
    check->same(to_host(dout, n), want, "straight");
    CUDA(cudaFree(din));
    CUDA(cudaFree(dout));
}

int main()
{
    checker check("transpose");
    try_type<float>(&check, 256, 128);
    try_type<unsigned>(&check, 100, 203);
    try_type<double>(&check, 65, 33);
    try_type<unsigned char>(&check, 77, 41);
    try_type<short>(&check, 1, 300);
    return check.done();
}

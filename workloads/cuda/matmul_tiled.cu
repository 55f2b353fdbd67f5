/* Matrix products through tiles in shared memory, 16x16 and 32x32, of sizes that the tiles do not divide. */
#include "check.h"

template <int TILE> __global__ void matmul(float *c, const float *a, const float *b, int m, int n, int k)
{
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < k; t += TILE) {
        int ka = t + threadIdx.x, kb = t + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0;
        bs[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++)
            sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n)
        c[row * n + column] = sum;
}

int main()
{
    checker check("matmul_tiled");
    const int sizes[][3] = {{64, 64, 64}, {100, 130, 70}, {1, 33, 257}, {192, 160, 128}};
    for (const int *size : sizes) {
        int m = size[0], n = size[1], k = size[2];
        std::vector<float> a = random_floats(m * k, 9), b = random_floats(k * n, 10);
        std::vector<double> want(m * n, 0.0);
        for (int i = 0; i < m; i++) {
            for (int l = 0; l < k; l++) {
                for (int j = 0; j < n; j++)
                    want[i * n + j] += (double)a[i * k + l] * b[l * n + j];
            }
        }
        float *da = to_device(a), *db = to_device(b), *dc = device_array<float>(m * n);
        for (int tile : {16, 32}) {
            CUDA(cudaMemset(dc, 0xA5, m * n * sizeof(float)));
            dim3 blocks((n + tile - 1) / tile, (m + tile - 1) / tile), threads(tile, tile);
            if (tile == 16)
                matmul<16><<<blocks, threads>>>(dc, da, db, m, n, k);
            else
                matmul<32><<<blocks, threads>>>(dc, da, db, m, n, k);
            FINISH();
            std::vector<float> c = to_host(dc, m * n);
            /* k products below 1, each addition rounding a sum below k by 2^-24: far below 1e-4 in practice. */
            for (int i = 0; i < m * n; i++)
                check.near(c[i], want[i], 1e-4, tile == 16 ? "product by tiles of 16" : "product by tiles of 32", i);
        }
    }
    return check.done();
}

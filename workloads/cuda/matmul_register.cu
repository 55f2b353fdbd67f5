/* A matrix product with 64x64 tiles in shared memory and 4x4 results in the registers of each thread. */
#include "check.h"

#define TILE 64
#define DEPTH 16
#define EACH 4

__global__ void __launch_bounds__(256) matmul(float *c, const float *a, const float *b, int n, float alpha, float beta)
{
    __shared__ float as[DEPTH][TILE + 4], bs[DEPTH][TILE];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float sum[EACH][EACH] = {};
    for (int t = 0; t < n; t += DEPTH) {
        /* 64 x 16 of A, transposed on the way, and 16 x 64 of B: one float4 of each per thread. */
        int row = threadIdx.x / 4, part = threadIdx.x % 4 * 4;
        float4 v = *(const float4 *)&a[(blockIdx.y * TILE + row) * n + t + part];
        as[part + 0][row] = v.x;
        as[part + 1][row] = v.y;
        as[part + 2][row] = v.z;
        as[part + 3][row] = v.w;
        *(float4 *)&bs[ty][tx * 4] = *(const float4 *)&b[(t + ty) * n + blockIdx.x * TILE + tx * 4];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float x[EACH], y[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                x[i] = as[k][ty * EACH + i];
                y[i] = bs[k][tx * EACH + i];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] += x[i] * y[j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < EACH; i++) {
        float4 *to = (float4 *)&c[(blockIdx.y * TILE + ty * EACH + i) * n + blockIdx.x * TILE + tx * EACH];
        float4 old = *to;
        *to = make_float4(alpha * sum[i][0] + beta * old.x, alpha * sum[i][1] + beta * old.y,
                          alpha * sum[i][2] + beta * old.z, alpha * sum[i][3] + beta * old.w);
    }
}

int main()
{
    checker check("matmul_register");
    for (int n : {64, 192}) {
        std::vector<float> a = random_floats(n * n, 11), b = random_floats(n * n, 12), c = random_floats(n * n, 13);
        std::vector<double> want(n * n, 0.0);
        for (int i = 0; i < n; i++) {
            for (int l = 0; l < n; l++) {
                for (int j = 0; j < n; j++)
                    want[i * n + j] += (double)a[i * n + l] * b[l * n + j];
            }
        }
        float *da = to_device(a), *db = to_device(b), *dc = to_device(c);
        matmul<<<dim3(n / TILE, n / TILE), 256>>>(dc, da, db, n, 2.0f, 0.5f);
        FINISH();
        std::vector<float> got = to_host(dc, n * n);
        for (int i = 0; i < n * n; i++)
            check.near(got[i], 2 * want[i] + 0.5 * c[i], 1e-4, "product", i); /* n roundings of sums below n */
    }
    return check.done();
}

/* Tensor-core products through nvcuda::wmma: 16x16x16 of halves into float and into half, all layouts. */
#include "check.h"
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

/* C = A B + C for row-major C; one warp per tile of 16x16. */
template <class LA, class LB, class ACC>
__global__ void product(ACC *c, const half *a, const half *b, int m, int n, int k)
{
    int row = blockIdx.y * 16, column = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 16;
    if (row >= m || column >= n)
        return;
    wmma::fragment<wmma::accumulator, 16, 16, 16, ACC> sum;
    wmma::load_matrix_sync(sum, c + row * n + column, n, wmma::mem_row_major);
    for (int t = 0; t < k; t += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, LA> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, LB> fb;
        if (std::is_same<LA, wmma::row_major>::value)
            wmma::load_matrix_sync(fa, a + row * k + t, k);
        else
            wmma::load_matrix_sync(fa, a + t * m + row, m);
        if (std::is_same<LB, wmma::row_major>::value)
            wmma::load_matrix_sync(fb, b + t * n + column, n);
        else
            wmma::load_matrix_sync(fb, b + column * k + t, k);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    for (int i = 0; i < sum.num_elements; i++)
        sum.x[i] = sum.x[i] * (ACC)2.0f;
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

template <class LA, class LB, class ACC> static void try_layout(checker *check, const char *what)
{
    const int m = 48, n = 64, k = 80;
    std::vector<float> a = random_floats(m * k, 50), b = random_floats(k * n, 51), c = random_floats(m * n, 52);
    std::vector<half> ha(m * k), hb(k * n);
    std::vector<ACC> hc(m * n);
    for (int i = 0; i < m * k; i++)
        ha[i] = __float2half(a[i]);
    for (int i = 0; i < k * n; i++)
        hb[i] = __float2half(b[i]);
    for (int i = 0; i < m * n; i++)
        hc[i] = (ACC)c[i];
    half *da = to_device(ha), *db = to_device(hb);
    ACC *dc = to_device(hc);
    product<LA, LB, ACC><<<dim3(2, m / 16), 64>>>(dc, da, db, m, n, k);
    FINISH();
    std::vector<ACC> got = to_host(dc, m * n);
    /* Sums below 10: floats lose some 80 x 2^-24 of that, halves a half unit (2^-8 for sums near 8) per step of 16. */
    double tolerance = sizeof(ACC) == 4 ? 1e-5 : 0.05;
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            double want = (double)(float)hc[i * n + j];
            for (int l = 0; l < k; l++) {
                float x = __half2float(std::is_same<LA, wmma::row_major>::value ? ha[i * k + l] : ha[l * m + i]);
                float y = __half2float(std::is_same<LB, wmma::row_major>::value ? hb[l * n + j] : hb[j * k + l]);
                want += (double)x * y;
            }
            check->near((double)(float)got[i * n + j], 2 * want, tolerance, what, i * n + j);
        }
    }
}

int main()
{
    checker check("wmma");
    try_layout<wmma::row_major, wmma::row_major, float>(&check, "row row float");
    try_layout<wmma::row_major, wmma::col_major, float>(&check, "row column float");
    try_layout<wmma::col_major, wmma::row_major, float>(&check, "column row float");
    try_layout<wmma::col_major, wmma::col_major, float>(&check, "column column float");
    try_layout<wmma::row_major, wmma::row_major, half>(&check, "row row half");
    try_layout<wmma::col_major, wmma::col_major, half>(&check, "column column half");
    return check.done();
}

/* Vector addition, the first program of every course: one value per thread, and a grid that does not divide the length. */
#include "check.h"

__global__ void add(float *c, const float *a, const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

/* The same with vector loads and stores, and a grid-stride loop. */
__global__ void add4(float4 *c, const float4 *a, const float4 *b, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 x = a[i], y = b[i];
        c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

int main()
{
    checker check("vector_add");
    for (int n : {1, 31, 1000, 100004}) {
        std::vector<float> a = random_floats(n, 1), b = random_floats(n, 2), want(n);
        for (int i = 0; i < n; i++)
            want[i] = a[i] + b[i];
        float *da = to_device(a), *db = to_device(b), *dc = device_array<float>(n);
        add<<<(n + 255) / 256, 256>>>(dc, da, db, n);
        FINISH();
        check.same(to_host(dc, n), want, "sum");
        if (n % 4 == 0) {
            CUDA(cudaMemset(dc, 0, n * sizeof(float)));
            add4<<<7, 96>>>((float4 *)dc, (const float4 *)da, (const float4 *)db, n / 4);
            FINISH();
            check.same(to_host(dc, n), want, "sum by four");
        }
        CUDA(cudaFree(da));
        CUDA(cudaFree(db));
        CUDA(cudaFree(dc));
    }
    return check.done();
}

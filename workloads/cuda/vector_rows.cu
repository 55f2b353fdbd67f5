/* Vectors of two and four per thread where a warp spans several rows of a block: a row reads along itself, or one place for all of
 * it, with all threads and with some of them; out-of-range places belong to threads that do not read. */
#include "check.h"

template <class V> __device__ float sum(V v);
template <> __device__ float sum(float2 v)
{
    return v.x * 3 + v.y;
}
template <> __device__ float sum(float4 v)
{
    return v.x * 3 + v.y + v.z * 5 - v.w;
}

template <class V> __global__ void rows(float *out, const V *along, const V *one, int n)
{
    __shared__ V tile[32 * 32];
    int t = threadIdx.y * blockDim.x + threadIdx.x, size = blockDim.x * blockDim.y;
    tile[t] = along[blockIdx.x * size + t];
    __syncthreads();
    float total = 0;
    for (int k = 0; k < n; k++) {
        total += sum(tile[(threadIdx.y + k) % blockDim.y * blockDim.x + threadIdx.x]); /* a row */
        total += sum(one[k * blockDim.y + threadIdx.y]);                               /* one place */
        total += sum(tile[threadIdx.y]) - sum(tile[threadIdx.x]);
        if ((threadIdx.x * 5 + threadIdx.y) % 3 == 0)
            total += sum(along[(blockIdx.x * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x]) +
                     sum(one[threadIdx.y]);
    }
    out[blockIdx.x * size + t] = total;
}

/* The arithmetic is on small whole numbers, so that its order does not matter. */
template <class V> static void compare(checker *check, int width, dim3 shape)
{
    const int blocks = 3, n = 4;
    int size = (int)(shape.x * shape.y);
    std::vector<float> along((size_t)blocks * size * width), one((size_t)n * shape.y * width),
        want((size_t)blocks * size);
    struct sequence s = {91};
    for (float &x : along)
        x = (float)(s.next() % 64);
    for (float &x : one)
        x = (float)(s.next() % 64);
    auto sum = [&](const std::vector<float> &v, size_t at) {
        const float *p = &v[at * width];
        return width == 2 ? p[0] * 3 + p[1] : p[0] * 3 + p[1] + p[2] * 5 - p[3];
    };
    for (int b = 0; b < blocks; b++) {
        for (int t = 0; t < size; t++) {
            int x = t % (int)shape.x, y = t / (int)shape.x;
            size_t base = (size_t)b * size;
            float total = 0;
            for (int k = 0; k < n; k++) {
                total += sum(along, base + (y + k) % shape.y * shape.x + x) + sum(one, k * shape.y + y);
                total += sum(along, base + y) - sum(along, base + x);
                total += (x * 5 + y) % 3 == 0 ? sum(along, base + t) + sum(one, y) : 0;
            }
            want[base + t] = total;
        }
    }
    float *out = device_array<float>(want.size());
    rows<V><<<blocks, shape>>>(out, (const V *)to_device(along), (const V *)to_device(one), n);
    FINISH();
    check->same(to_host(out, want.size()), want, "sum");
}

int main()
{
    checker check("vector_rows");
    for (dim3 shape : {dim3(16, 16), dim3(8, 32), dim3(8, 8), dim3(16, 2), dim3(4, 16), dim3(32, 8), dim3(12, 8)}) {
        compare<float2>(&check, 2, shape);
        compare<float4>(&check, 4, shape);
    }
    return check.done();
}

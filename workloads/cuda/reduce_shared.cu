/* Sums by a tree in shared memory: integers exactly, floats within the error of another order of additions. */
#include "check.h"

template <class T, int THREADS> __global__ void reduce(T *out, const T *in, int n)
{
    __shared__ T partial[THREADS];
    T sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        sum += in[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = partial[0];
}

template <class T, int THREADS> static T sum_on_device(const std::vector<T> &v, int blocks)
{
    T *in = to_device(v), *partial = device_array<T>(blocks), *out = device_array<T>(1);
    reduce<T, THREADS><<<blocks, THREADS>>>(partial, in, (int)v.size());
    reduce<T, THREADS><<<1, THREADS>>>(out, partial, blocks);
    FINISH();
    T result = to_host(out, 1)[0];
    CUDA(cudaFree(in));
    CUDA(cudaFree(partial));
    CUDA(cudaFree(out));
    return result;
}

int main()
{
    checker check("reduce_shared");
    for (int n : {1, 33, 4097, 200001}) {
        std::vector<float> f = random_floats(n, 3);
        std::vector<int> v(n);
        struct sequence s = {4};
        int want = 0;
        double wanted = 0, magnitude = 0;
        for (int i = 0; i < n; i++) {
            v[i] = (int)(s.next() % 2001) - 1000;
            want += v[i];
            wanted += f[i];
            magnitude += fabs(f[i]);
        }
        check.is(sum_on_device<int, 64>(v, 11) == want, "integer sum, blocks of 64", n);
        check.is(sum_on_device<int, 256>(v, 32) == want, "integer sum, blocks of 256", n);
        check.is(sum_on_device<int, 1024>(v, 5) == want, "integer sum, blocks of 1024", n);
        /* Each value goes through some hundred additions at most, so 200 roundings of 2^-24 bound the error. */
        double got = sum_on_device<float, 256>(f, 32);
        check.is(fabs(got - wanted) <= 200 * 6e-8 * magnitude, "float sum", n);
    }
    return check.done();
}

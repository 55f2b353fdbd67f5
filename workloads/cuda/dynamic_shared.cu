/* Shared memory whose size the launch gives: several arrays in one piece, more than 48 KiB by opting in, limits kept. */
#include "check.h"

extern __shared__ __align__(16) unsigned char pool[];

/* Three arrays of different types in one allocation. */
__global__ void mixed(double *out, const double *in, int n)
{
    double *d = (double *)pool;
    int *index = (int *)(d + n);
    unsigned char *flag = (unsigned char *)(index + n);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        d[i] = in[i] + blockIdx.x;
        index[(i * 7 + blockIdx.x) % n] = i;
        flag[i] = i % 3 == 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[blockIdx.x * n + i] = flag[index[i]] ? d[index[i]] : -d[i];
}

/* Reverses as many ints as fit. */
__global__ void reverse(int *v, int n)
{
    int *s = (int *)pool;
    __shared__ int last;
    if (threadIdx.x == 0)
        last = n - 1;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        s[i] = v[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        v[i] = s[last - i];
}

__global__ void report_size(unsigned *out)
{
    unsigned dynamic;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    *out = dynamic;
}

int main()
{
    checker check("dynamic_shared");
    const int blocks = 3;
    for (int n : {1, 100, 2999}) { /* no multiple of 7 */
        std::vector<double> in(n), want(blocks * n);
        std::vector<int> index(n);
        for (int i = 0; i < n; i++)
            in[i] = i * 0.5;
        for (int b = 0; b < blocks; b++) {
            for (int i = 0; i < n; i++)
                index[(i * 7 + b) % n] = i;
            for (int i = 0; i < n; i++)
                want[b * n + i] = index[i] % 3 == 0 ? in[index[i]] + b : -(in[i] + b);
        }
        double *din = to_device(in), *out = device_array<double>(blocks * n);
        mixed<<<blocks, 96, (size_t)n * 13>>>(out, din, n);
        FINISH();
        check.same(to_host(out, blocks * n), want, "mixed");
    }

    int most = 0;
    CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    check.is(most >= 64 * 1024, "opt-in limit", (size_t)most);
    int bytes = 64 * 1024 - 64, n = bytes / 4;
    std::vector<int> v(n), want(n);
    for (int i = 0; i < n; i++)
        want[n - 1 - i] = v[i] = i * 3;
    int *d = to_device(v);
    reverse<<<1, 256, bytes>>>(d, n);
    check.is(cudaGetLastError() == cudaErrorInvalidValue, "refusal before opting in");
    CUDA(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    reverse<<<1, 256, bytes>>>(d, n);
    FINISH();
    check.same(to_host(d, n), want, "large");
    check.is(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1) != cudaSuccess,
             "refusal of too much");
    cudaGetLastError();

    unsigned *size = device_array<unsigned>(1);
    report_size<<<1, 1, 1234>>>(size);
    FINISH();
    unsigned got = to_host(size, 1)[0];
    check.is(got >= 1234 && got < 1234 + 256, "size seen by the kernel", got);
    return check.done();
}

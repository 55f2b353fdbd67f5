/* Calls through pointers on the device: a table of functions, and virtual functions. */
#include "check.h"

__device__ __noinline__ int add(int a, int b)
{
    return a + b;
}
__device__ __noinline__ int subtract(int a, int b)
{
    return a - b;
}
__device__ __noinline__ int multiply(int a, int b)
{
    return a * b;
}
typedef int (*operation)(int, int);
__device__ operation operations[3] = {add, subtract, multiply};

struct shape {
    __device__ virtual int area() const = 0;
};
struct square : shape {
    int side;
    __device__ explicit square(int s) : side(s)
    {
    }
    __device__ int area() const override
    {
        return side * side;
    }
};
struct strip : shape {
    int length;
    __device__ explicit strip(int l) : length(l)
    {
    }
    __device__ int area() const override
    {
        return length * 2;
    }
};

__global__ void indirect(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * i] = operations[i % 3](i, 17); /* lanes of one warp call different functions */
    square a(i);
    strip b(i);
    const shape *s = i % 5 < 2 ? (const shape *)&a : (const shape *)&b;
    out[2 * i + 1] = s->area();
}

__global__ void through(int *out, operation f)
{
    int i = threadIdx.x;
    out[i] = f(i, 5);
}

int main()
{
    checker check("function_pointers");
    const int n = 7 * 48;
    int *out = device_array<int>(2 * n);
    indirect<<<7, 48>>>(out);
    FINISH();
    std::vector<int> got = to_host(out, 2 * n);
    for (int i = 0; i < n; i++) {
        check.is(got[2 * i] == (i % 3 == 0 ? i + 17 : i % 3 == 1 ? i - 17 : i * 17), "function pointer", i);
        check.is(got[2 * i + 1] == (i % 5 < 2 ? i * i : i * 2), "virtual function", i);
    }
    /* A pointer that the host has read and hands over. */
    operation from_host[3];
    CUDA(cudaMemcpyFromSymbol(from_host, operations, sizeof from_host));
    for (int k = 0; k < 3; k++) {
        through<<<1, 40>>>(out, from_host[k]);
        FINISH();
        got = to_host(out, 40);
        for (int i = 0; i < 40; i++)
            check.is(got[i] == (k == 0 ? i + 5 : k == 1 ? i - 5 : i * 5), "pointer from the host", i);
    }
    return check.done();
}

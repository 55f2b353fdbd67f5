/* Calls on the device: functions that are not inlined, recursion, structures by value, arrays on the stack. */
#include "check.h"

__device__ __noinline__ int collatz(long long x)
{
    int steps = 0;
    for (; x != 1; steps++)
        x = x % 2 ? 3 * x + 1 : x / 2;
    return steps;
}

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n)
{
    if (m == 0)
        return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__device__ __noinline__ int fibonacci(int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

struct pair {
    double sum;
    int where, odd[5];
};

/* A structure by value, back and forth, with an array that lives on the stack. */
__device__ __noinline__ struct pair rotate(struct pair p, int by)
{
    int kept[5];
    for (int i = 0; i < 5; i++)
        kept[i] = p.odd[(i + by) % 5];
    for (int i = 0; i < 5; i++)
        p.odd[i] = kept[i];
    p.sum += kept[p.where % 5];
    p.where += by;
    return p;
}

__global__ void simple(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[4 * i] = collatz(i + 1);
    out[4 * i + 1] = (int)ackermann(i % 3, i % 7);
    out[4 * i + 2] = fibonacci(i % 12);
    struct pair p = {0.5 * i, i, {i, 2 * i, 3 * i, 4 * i, 5 * i}};
    for (int k = 0; k < 3; k++)
        p = rotate(p, i % 4 + k);
    out[4 * i + 3] = (int)(p.sum * 2) + p.where + p.odd[2];
}

static int ackermann_host(int m, int n)
{
    return m == 0 ? n + 1 : m == 1 ? n + 2 : 2 * n + 3;
}

int main()
{
    checker check("device_functions");
    const int n = 7 * 48;
    int *out = device_array<int>(4 * n);
    simple<<<7, 48>>>(out);
    FINISH();
    std::vector<int> got = to_host(out, 4 * n);
    for (int i = 0; i < n; i++) {
        int steps = 0, a = 0, b = 1;
        for (long long x = i + 1; x != 1; steps++)
            x = x % 2 ? 3 * x + 1 : x / 2;
        for (int k = 0; k < i % 12; k++) {
            int c = a + b;
            a = b;
            b = c;
        }
        check.is(got[4 * i] == steps, "Collatz", i);
        check.is(got[4 * i + 1] == ackermann_host(i % 3, i % 7), "Ackermann", i);
        check.is(got[4 * i + 2] == a, "Fibonacci", i);
        int odd[5] = {i, 2 * i, 3 * i, 4 * i, 5 * i}, where = i;
        double sum = 0.5 * i;
        for (int k = 0; k < 3; k++) {
            int by = i % 4 + k, kept[5];
            for (int j = 0; j < 5; j++)
                kept[j] = odd[(j + by) % 5];
            memcpy(odd, kept, sizeof(odd));
            sum += kept[where % 5];
            where += by;
        }
        check.is(got[4 * i + 3] == (int)(sum * 2) + where + odd[2], "structure", i);
    }
    return check.done();
}

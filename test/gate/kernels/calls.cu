// Functions, stacks, tables, calls of the driver's functions.
#include <alloca.h>
#include <cassert>
#include <cstdio>
#define KERNEL extern "C" __global__ void

__device__ __noinline__ int fold(int x, const int *a) { return x < a[x] ? a[x + 1] : a[x] * 3; }
__device__ __noinline__ int depth(int x, const int *a) { return x < 2 ? a[x] : depth(x - 1, a) + depth(x - 2, a) * a[x]; }
KERNEL calls(int *a, int n) { a[threadIdx.x] = fold(n, a); }
KERNEL calls_twice(int *a, int n) { a[threadIdx.x] = fold(n, a) + fold(fold(n + 1, a), a); }
KERNEL recurses(int *a, int n) { a[threadIdx.x] = depth(n + threadIdx.x, a); }

KERNEL prints(int *a, int n)
{
    if (a[threadIdx.x] == n)
        printf("thread %d has %d\n", threadIdx.x, n);
    a[threadIdx.x] = 1;
}

KERNEL asserts(int *a, int n) { assert(a[threadIdx.x] != n); a[threadIdx.x]++; }
KERNEL asserts_and_calls(int *a, int n) { assert(fold(n, a) != n); printf("%d\n", n); }

KERNEL allocates(int **a, int n) { int *p = new int[n]; p[threadIdx.x] = n; a[threadIdx.x] = p; if (n == 5) delete[] p; }

KERNEL switches(float *a, int n)
{
    float x = a[threadIdx.x];
    switch (n) {
    case 0: x = sinf(x); break;
    case 1: x = expf(x) * 3; break;
    case 2: x = logf(x + 1); break;
    case 3: x = x * x * x + 2; break;
    case 4: x = sqrtf(x) + a[1]; break;
    case 5: x = a[2] / x; break;
    case 6: x -= a[5] * a[6]; break;
    case 7: x = tanhf(x); break;
    case 8: x += a[9] * a[8]; break;
    case 9: x = rsqrtf(x); break;
    case 10: x = erff(x); break;
    default: x = 0;
    }
    a[threadIdx.x] = x;
}

KERNEL switches_twice(int *a, int n)
{
    for (int i = 0; i < n; i++) {
        switch (a[i]) {
        case 0: a[1] += a[2] * 5; break;
        case 1: a[2] = a[3] / a[4]; break;
        case 2: a[3] ^= a[5] >> 3; break;
        case 3: return;
        case 4: a[4] = a[6] % a[7]; break;
        case 5: a[5] = __popc(a[8]); break;
        case 6: a[6] = __clz(a[9]) * a[1]; break;
        case 7: a[7] = a[2] | a[5]; break;
        default: a[8]--; break;
        }
    }
}

KERNEL local_array(int *a, int n)
{
    int l[64], s = 0;
    for (int i = 0; i < 64; i++)
        l[i] = a[i + threadIdx.x];
    for (int i = 0; i < n; i++) {
        int j = a[i] & 63;
        l[j] += s;
        s += l[(j * 7) & 63];
    }
    a[threadIdx.x] = s;
}

KERNEL grows_stack(int *a, int n)
{
    int *p = (int *)alloca(n * sizeof *p), s = 0;
    for (int i = 0; i < n; i++)
        p[i] = a[i];
    for (int i = 0; i < n; i++)
        s += p[a[i]];
    a[threadIdx.x] = s;
}

KERNEL __launch_bounds__(1024, 1) spills(float *a, int n)
{
    float r[120];
#pragma unroll
    for (int i = 0; i < 120; i++)
        r[i] = a[i * 128 + threadIdx.x];
    for (int k = 0; k < n; k++)
#pragma unroll
        for (int i = 0; i < 120; i++)
            r[i] = r[i] * r[(i + 7) % 120] + r[(i + 13) % 120];
#pragma unroll
    for (int i = 0; i < 120; i++)
        a[i * 128 + threadIdx.x] = r[i];
}

// Tables of functions: numbers that count from the begin of the code that calls.
#define KERNEL extern "C" __global__ void
typedef int (*function)(int, int *);
__device__ __noinline__ int triple(int x, int *a) { return x * 3 + a[x]; }
__device__ __noinline__ int mixed(int x, int *a) { return x ^ 55 ^ a[2]; }
__device__ function table[2] = {triple, mixed};

struct shape {
    __device__ virtual int area(int) { return 1; }
};
struct square : shape {
    int side;
    __device__ int area(int x) override { return x * side; }
};

KERNEL through_table(int *a, int n) { a[threadIdx.x] = table[n & 1](n, a); }
KERNEL through_argument(int *a, int n, function f) { a[threadIdx.x] = f(n, a) + table[n & 1](n, a); }
KERNEL virtual_calls(int *a, int n)
{
    shape *s = n ? (shape *)new square : new shape;
    a[1] = s->area(n);
    delete s;
}

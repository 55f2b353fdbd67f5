// Kernels of every GPU: plain code, grids, exits, parameters of many sizes.  Each file is one module.
#define KERNEL extern "C" __global__ void

KERNEL scale(float *to, const float *from, float by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i] * by;
}

KERNEL volume(float *to, int w, int h, int d)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x < w && y < h && z < d)
        to[(z * h + y) * w + x] = x + 0.5f * y + 0.25f * z;
}

KERNEL __launch_bounds__(96, 4) bounded(int *a) { a[threadIdx.x + blockIdx.x * 96] *= 3; }

KERNEL leaves_early(int *a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int v = a[i];
    if (v < 0)
        return;
    for (int k = 0; k < v; k++) {
        if (a[k] == 13)
            return;
        v += a[k] & 7;
        if (v > 1000)
            asm volatile("exit;");
    }
    a[i] = v;
    if (v == 999)
        __trap();
}

KERNEL ends_in_loop(volatile int *a)
{
    for (;;) {
        if (a[threadIdx.x] == 0)
            return;
        a[threadIdx.x]--;
    }
}

KERNEL one_pointer(long *a) { *a = clock64(); }
KERNEL one_byte(signed char c, long *a) { a[blockIdx.x] = c; }
KERNEL two_halves(short a, short b, short *to) { *to = a + b; }

KERNEL many(int *p0, int *p1, int *p2, int *p3, int *p4, int *p5, int *p6, int *p7, int *p8, int *p9, int a, char b,
            short c, double d, char e)
{
    p0[0] = p1[1] + p2[2] + p3[3] + p4[4] + p5[5] + p6[6] + p7[7] + p8[8] + p9[9] + a + b + c + (int)d + e;
}

template <int N> struct block {
    int v[N];
};
KERNEL of_52_bytes(const __grid_constant__ block<13> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x % 13]; }
KERNEL of_2000_bytes(const __grid_constant__ block<500> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x]; }
KERNEL of_4000_bytes(const __grid_constant__ block<1000> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x]; }
KERNEL up_to_4048_bytes(const __grid_constant__ block<1010> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x]; }
KERNEL of_5000_bytes(const __grid_constant__ block<1250> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x]; }
KERNEL of_20000_bytes(const __grid_constant__ block<5000> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x]; }
KERNEL of_32704_bytes(const __grid_constant__ block<8174> b, int *a) { a[threadIdx.x] = b.v[threadIdx.x]; }

KERNEL divides(double *a, long long *b, int *c, int n)
{
    a[threadIdx.x] /= a[n];
    b[threadIdx.x] %= b[n];
    c[threadIdx.x] = c[n] / c[n + 1];
    a[n + 1] = sqrt(a[n + 2]) + pow(a[n + 3], a[n + 4]);
}

KERNEL trigonometry(float *a) { a[threadIdx.x] = sinf(a[threadIdx.x]) + cosf(a[threadIdx.x] * 1e9f) + expf(a[1]); }

KERNEL textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float *a)
{
    a[threadIdx.x] = tex2D<float>(t, a[0], a[1]) + tex3D<float>(t, a[2], a[3], a[4]);
    surf2Dwrite(a[5], s, 4 * threadIdx.x, blockIdx.x);
}

KERNEL wide_loads(uint4 *from, unsigned *to)
{
    unsigned q;
    uint4 v = __ldcs(from + threadIdx.x);
    to[threadIdx.x] = v.y + v.w;
    asm volatile("{ .reg .b32 a, b, c; ld.global.v4.u32 {a, b, c, %0}, [%1]; }" : "=r"(q) : "l"(from + 9));
    to[threadIdx.x + 64] = q;
    asm volatile("{ .reg .b32 a, b, c; ld.shared.v4.u32 {a, b, c, %0}, [%1]; }" : "=r"(q) : "r"(q & 0xf0));
    to[threadIdx.x + 128] = q;
}

KERNEL registers(float *a, int n)
{
    float r[150];
#pragma unroll
    for (int i = 0; i < 150; i++)
        r[i] = a[i * 64 + threadIdx.x];
    for (int k = 0; k < n; k++)
#pragma unroll
        for (int i = 0; i < 150; i++)
            r[i] = r[i] * r[(i + 11) % 150] + r[(i + 29) % 150];
#pragma unroll
    for (int i = 0; i < 150; i++)
        a[i * 64 + threadIdx.x] = r[i];
}

/* Arithmetic of bfloat16: conversions with all roundings, and the operations against rounding the exact result. */
#include "check.h"
#include <cuda_bf16.h>

__global__ void arithmetic(__nv_bfloat16 *out, const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *f, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __nv_bfloat16 *o = out + 8 * i;
    o[0] = __float2bfloat16_rn(f[i]);
    o[1] = __float2bfloat16_rz(f[i]);
    o[2] = __hadd(a[i], b[i]);
    o[3] = __hmul(a[i], b[i]);
    o[4] = __hfma(a[i], b[i], a[i]);
    o[5] = __hmin(a[i], b[i]);
    __nv_bfloat162 p = __hadd2(__halves2bfloat162(a[i], b[i]), __floats2bfloat162_rn(f[i], f[i]));
    o[6] = __low2bfloat16(p);
    o[7] = __high2bfloat16(p);
}

static uint16_t bits(__nv_bfloat16 v)
{
    uint16_t w;
    memcpy(&w, &v, 2);
    return w;
}

static double value(__nv_bfloat16 v)
{
    uint32_t w = (uint32_t)bits(v) << 16;
    float f;
    memcpy(&f, &w, 4);
    return f;
}

/* To the nearest, ties to even, from an exact double: by integer arithmetic on the float that is odd-rounded. */
static uint16_t nearest(double x)
{
    float f = (float)x;
    uint32_t w;
    memcpy(&w, &f, 4);
    if ((double)f != x && fabs((double)f) > fabs(x))
        w--; /* now truncated */
    if ((double)f != x)
        w |= 1; /* and sticky */
    return (uint16_t)((w + 0x7fff + (w >> 16 & 1)) >> 16);
}

int main()
{
    checker check("bfloat16");
    const int n = 20000;
    std::vector<__nv_bfloat16> a(n), b(n);
    std::vector<float> f(n);
    struct sequence s = {54};
    for (int i = 0; i < n; i++) {
        /* Exponents within some thirty of each other: sums that cancel, that drown, and no overflow. */
        uint32_t x, y = (s.next() & 0x807f0000u) | (0x70 + s.next() % 30) << 23, z;
        x = (s.next() & 0x807f0000u) | (0x70 + s.next() % 30) << 23;
        z = (s.next() & 0x807fffffu) | (0x70 + s.next() % 30) << 23;
        if (i % 16 == 0)
            z = (z & 0xffff0000u) | 0x8000; /* ties */
        uint16_t hx = (uint16_t)(x >> 16), hy = (uint16_t)(y >> 16);
        memcpy(&a[i], &hx, 2);
        memcpy(&b[i], &hy, 2);
        memcpy(&f[i], &z, 4);
    }
    __nv_bfloat16 *da = to_device(a), *db = to_device(b), *out = device_array<__nv_bfloat16>(8 * n);
    float *df = to_device(f);
    arithmetic<<<(n + 127) / 128, 128>>>(out, da, db, df, n);
    FINISH();
    std::vector<__nv_bfloat16> got = to_host(out, 8 * n);
    for (int i = 0; i < n; i++) {
        double x = value(a[i]), y = value(b[i]);
        uint32_t w;
        memcpy(&w, &f[i], 4);
        __nv_bfloat16 rounded;
        uint16_t r = nearest(f[i]);
        memcpy(&rounded, &r, 2);
        check.is(bits(got[8 * i]) == r, "rounded to nearest", i);
        check.is(bits(got[8 * i + 1]) == w >> 16, "rounded to zero", i);
        check.is(bits(got[8 * i + 2]) == nearest(x + y), "sum", i);
        check.is(bits(got[8 * i + 3]) == nearest(x * y), "product", i);
        check.is(bits(got[8 * i + 4]) == nearest(x * y + x), "fused", i);
        check.is(value(got[8 * i + 5]) == fmin(x, y), "minimum", i);
        check.is(bits(got[8 * i + 6]) == nearest(x + value(rounded)), "low of a pair", i);
        check.is(bits(got[8 * i + 7]) == nearest(y + value(rounded)), "high of a pair", i);
    }
    return check.done();
}

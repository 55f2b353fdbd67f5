/* Arithmetic of halves: conversions of all 65536 values, and the operations against rounding the exact result. */
#include "check.h"
#include <cuda_fp16.h>

__global__ void convert(float *f, unsigned short *back, int *integer)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    half h = __ushort_as_half((unsigned short)i);
    f[i] = __half2float(h);
    back[i] = __half_as_ushort(__float2half_rn(f[i]));
    integer[i] = __half2int_rz(h);
}

__global__ void arithmetic(half *out, const half *a, const half *b, const half *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    half *o = out + 8 * i;
    o[0] = __hadd(a[i], b[i]);
    o[1] = __hsub(a[i], b[i]);
    o[2] = __hmul(a[i], b[i]);
    o[3] = __hfma(a[i], b[i], c[i]);
    o[4] = __hmax(a[i], b[i]);
    o[5] = __hlt(a[i], b[i]) ? __float2half(1.0f) : __hneg(a[i]);
    half2 p = __hfma2(__halves2half2(a[i], b[i]), __halves2half2(c[i], c[i]), __halves2half2(b[i], a[i]));
    o[6] = __low2half(p);
    o[7] = __high2half(p);
}

/* The host's conversions of cuda_fp16.h are plain C++. */
static bool equal(half got, double want)
{
    half w = __double2half(want);
    return (__hisnan(got) && __hisnan(w)) || __half_as_ushort(got) == __half_as_ushort(w);
}

int main()
{
    checker check("half");
    float *f = device_array<float>(65536);
    unsigned short *back = device_array<unsigned short>(65536);
    int *integer = device_array<int>(65536);
    convert<<<256, 256>>>(f, back, integer);
    FINISH();
    std::vector<float> floats = to_host(f, 65536);
    std::vector<unsigned short> again = to_host(back, 65536);
    std::vector<int> integers = to_host(integer, 65536);
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, fraction = i & 1023;
        double want = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        want = i & 0x8000 ? -want : want;
        if (exponent == 31 && fraction != 0) {
            check.is(isnan(floats[i]), "NaN", i);
        } else {
            want = exponent == 31 ? (i & 0x8000 ? -INFINITY : INFINITY) : want;
            check.is(floats[i] == want && signbit(floats[i]) == (i >> 15), "value", i);
            check.is(again[i] == i, "way back", i);
            if (exponent < 31)
                check.is(integers[i] == (int)want, "integer", i);
        }
    }
    const int n = 20000;
    std::vector<half> a(n), b(n), c(n);
    struct sequence s = {53};
    for (int i = 0; i < n; i++) {
        /* Finite ones of all sizes: cancellation, overflow and denormal results among them. */
        unsigned short words[3];
        for (unsigned short &w : words) {
            do
                w = (unsigned short)s.next();
            while ((w >> 10 & 31) == 31);
        }
        a[i] = __ushort_as_half(words[0]);
        b[i] = i % 5 == 0 ? __ushort_as_half(words[0] ^ 0x8001) : __ushort_as_half(words[1]);
        c[i] = __ushort_as_half(words[2]);
    }
    half *da = to_device(a), *db = to_device(b), *dc = to_device(c), *out = device_array<half>(8 * n);
    arithmetic<<<(n + 127) / 128, 128>>>(out, da, db, dc, n);
    FINISH();
    std::vector<half> got = to_host(out, 8 * n);
    for (int i = 0; i < n; i++) {
        /* Sums and products of halves are exact in double, so one rounding is left.  A fused sum may need more than 53
         * bits; those cases round wrongly here only if the tail lies beyond them, which these values do not meet. */
        double x = __half2float(a[i]), y = __half2float(b[i]), z = __half2float(c[i]);
        check.is(equal(got[8 * i], x + y), "sum", i);
        check.is(equal(got[8 * i + 1], x - y), "difference", i);
        check.is(equal(got[8 * i + 2], x * y), "product", i);
        check.is(equal(got[8 * i + 3], x * y + z), "fused", i);
        check.is(equal(got[8 * i + 4], fmax(x, y)), "maximum", i);
        check.is(equal(got[8 * i + 5], x < y ? 1.0 : -x), "comparison", i);
        check.is(equal(got[8 * i + 6], x * z + y), "low of a pair", i);
        check.is(equal(got[8 * i + 7], y * z + x), "high of a pair", i);
    }
    return check.done();
}

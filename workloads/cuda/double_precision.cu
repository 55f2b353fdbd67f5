/* Double precision: division, roots and fused sums exactly as IEEE 754 says; functions within a few units; a solver. */
#include "check.h"

#define RESULTS 12

__global__ void functions(double *out, const double *a, const double *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = a[i], y = b[i], *o = out + RESULTS * i;
    o[0] = x / y;
    o[1] = sqrt(fabs(x));
    o[2] = fma(x, y, -x);
    o[3] = floor(x) + ceil(y) + trunc(x) + rint(y);
    o[4] = __ddiv_rz(x, y);
    o[5] = (double)(float)x + (double)(int)y;
    o[6] = fmod(x, y);
    o[7] = exp(fmod(x, 600.0));
    o[8] = log(fabs(x) + 1e-300);
    o[9] = sin(x) + cos(y);
    o[10] = pow(fabs(x), 0.3);
    o[11] = atan2(x, y) + erf(x) + cbrt(y);
}

/* Jacobi's iteration for a tridiagonal system. */
__global__ void jacobi(double *out, const double *in, const double *right, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = (right[i] + (i > 0 ? in[i - 1] : 0) + (i + 1 < n ? in[i + 1] : 0)) / 4;
}

int main()
{
    checker check("double_precision");
    const int n = 5000;
    std::vector<double> a(n), b(n);
    struct sequence s = {62};
    for (int i = 0; i < n; i++) {
        a[i] = ldexp((double)(int)s.next() + s.next() * 0x1p-32, (int)(s.next() % 40) - 50);
        b[i] = ldexp((double)(int)s.next() + s.next() * 0x1p-32, (int)(s.next() % 20) - 35);
    }
    double *da = to_device(a), *db = to_device(b), *out = device_array<double>(RESULTS * n);
    functions<<<(n + 63) / 64, 64>>>(out, da, db, n);
    FINISH();
    std::vector<double> got = to_host(out, RESULTS * n);
    for (int i = 0; i < n; i++) {
        double x = a[i], y = b[i], *o = &got[RESULTS * i], quotient = x / y;
        check.is(o[0] == quotient, "quotient", i);
        check.is(o[1] == sqrt(fabs(x)), "root", i);
        check.is(o[2] == fma(x, y, -x), "fused sum", i);
        check.is(o[3] == floor(x) + ceil(y) + trunc(x) + rint(y), "rounding", i);
        /* Towards zero: the nearest quotient, or the one below it if that is too large (the remainder is exact). */
        double rest = fma(-quotient, y, x);
        bool beyond = rest != 0 && signbit(rest) != signbit(x);
        check.is(o[4] == (beyond ? nextafter(quotient, 0) : quotient), "quotient towards zero", i);
        check.is(o[5] == (double)(float)x + (double)(int)y, "conversion", i);
        check.is(o[6] == fmod(x, y), "fmod", i);
        /* The CUDA manual states at most 2 units in the last place for each of these functions. */
        check.near(o[7] / exp(fmod(x, 600.0)), 1, 2e-15, "exp", i);
        check.near(o[8], log(fabs(x) + 1e-300), 1e-15, "log", i);
        check.near(o[9], sin(x) + cos(y), 1e-15, "sin and cos", i);
        check.near(o[10], pow(fabs(x), 0.3), 1e-15, "pow", i);
        check.near(o[11], atan2(x, y) + erf(x) + cbrt(y), 2e-15, "atan2, erf, cbrt", i);
    }

    const int m = 1000;
    std::vector<double> right(m), x(m, 0.0), next(m);
    for (int i = 0; i < m; i++)
        right[i] = i % 17 - 8.0;
    double *dright = to_device(right), *from = to_device(x), *to = device_array<double>(m);
    for (int step = 0; step < 60; step++) {
        jacobi<<<(m + 127) / 128, 128>>>(to, from, dright, m);
        double *kept = from;
        from = to;
        to = kept;
        for (int i = 0; i < m; i++)
            next[i] = (right[i] + (i > 0 ? x[i - 1] : 0) + (i + 1 < m ? x[i + 1] : 0)) / 4;
        x.swap(next);
    }
    FINISH();
    check.same(to_host(from, m), x, "solution");
    return check.done();
}

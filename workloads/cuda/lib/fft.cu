/* cuFFT against sums in double: complex, real, double precision, two dimensions, batches, lengths that are no power of two.
 *
 * The transform forward is compared value by value, and what comes back by the inverse one with what went in.
 * `fft CASE` runs one case. */
#include "library.h"
#include <complex>
#include <cufft.h>

#define FFT(call) TRY(call, CUFFT_SUCCESS, cudaGetErrorString(cudaGetLastError()))

typedef std::complex<double> wide;

/* The discrete Fourier transform by its definition, n by n, for values `stride` apart. */
static void transform(const wide *in, wide *out, size_t n, size_t stride)
{
    std::vector<wide> turn(n);
    for (size_t k = 0; k < n; k++)
        turn[k] = std::polar(1.0, -2 * acos(-1.0) * (double)k / (double)n);
    for (size_t k = 0; k < n; k++) {
        wide sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += in[j * stride] * turn[j * k % n];
        out[k * stride] = sum;
    }
}

static std::vector<wide> random_values(size_t n)
{
    std::vector<float> f = random_floats(2 * n, 17);
    std::vector<wide> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = wide(f[2 * i], f[2 * i + 1]);
    return v;
}

template <class T> static std::vector<T> narrowed(const std::vector<wide> &v)
{
    std::vector<T> n(v.size());
    for (size_t i = 0; i < v.size(); i++) {
        n[i].x = v[i].real();
        n[i].y = v[i].imag();
    }
    return n;
}

template <class T>
static void compare(checker *check, const std::vector<T> &got, const std::vector<wide> &want, double scale,
                    double tolerance, const char *what)
{
    for (size_t i = 0; i < want.size(); i++) {
        check->near(got[i].x * scale, want[i].real(), tolerance, what, i);
        check->near(got[i].y * scale, want[i].imag(), tolerance, what, i);
    }
}

static cufftResult execute(cufftHandle plan, cufftComplex *data, int direction)
{
    return cufftExecC2C(plan, data, data, direction);
}

static cufftResult execute(cufftHandle plan, cufftDoubleComplex *data, int direction)
{
    return cufftExecZ2Z(plan, data, data, direction);
}

/* In place, forward and back.  `count` transforms of `rows` x `columns` values. */
template <class T>
static void there_and_back(checker *check, cufftType type, size_t rows, size_t columns, size_t count, double tolerance)
{
    size_t one = rows * columns;
    std::vector<wide> in = random_values(one * count), want(one * count);
    for (size_t c = 0; c < count; c++) {
        wide *to = &want[c * one];
        for (size_t r = 0; r < rows; r++)
            transform(&in[c * one + r * columns], to + r * columns, columns, 1);
        std::vector<wide> half(to, to + one);
        for (size_t k = 0; rows > 1 && k < columns; k++)
            transform(&half[k], to + k, rows, columns);
    }
    int lengths[2] = {(int)rows, (int)columns};
    cufftHandle plan;
    FFT(cufftPlanMany(&plan, rows > 1 ? 2 : 1, rows > 1 ? lengths : lengths + 1, NULL, 1, 0, NULL, 1, 0, type,
                      (int)count));
    T *data = to_device(narrowed<T>(in));
    FFT(execute(plan, data, CUFFT_FORWARD));
    compare(check, to_host(data, one * count), want, 1, tolerance, "forward");
    FFT(execute(plan, data, CUFFT_INVERSE));
    compare(check, to_host(data, one * count), in, 1.0 / (double)one, tolerance, "back");
    FFT(cufftDestroy(plan));
    CUDA(cudaFree(data));
}

static void complex_case(checker *check)
{
    for (size_t n : {256, 1000})
        there_and_back<cufftComplex>(check, CUFFT_C2C, 1, n, 1, 1e-4);
    there_and_back<cufftComplex>(check, CUFFT_C2C, 1, 512, 7, 1e-4);
}

static void prime_case(checker *check)
{
    for (size_t n : {13, 1009})
        there_and_back<cufftComplex>(check, CUFFT_C2C, 1, n, 2, 1e-4);
}

static void double_case(checker *check)
{
    there_and_back<cufftDoubleComplex>(check, CUFFT_Z2Z, 1, 1024, 3, 1e-12);
}

static void plane_case(checker *check)
{
    there_and_back<cufftComplex>(check, CUFFT_C2C, 48, 100, 1, 1e-4);
}

static void real_case(checker *check)
{
    for (size_t n : {500, 2048}) {
        std::vector<float> in = random_floats(n, 5);
        std::vector<wide> values(in.begin(), in.end()), want(n);
        transform(values.data(), want.data(), n, 1);
        want.resize(n / 2 + 1);
        cufftHandle there, back;
        FFT(cufftPlan1d(&there, (int)n, CUFFT_R2C, 1));
        FFT(cufftPlan1d(&back, (int)n, CUFFT_C2R, 1));
        float *real = to_device(in);
        cufftComplex *spectrum = device_array<cufftComplex>(n / 2 + 1);
        FFT(cufftExecR2C(there, real, spectrum));
        compare(check, to_host(spectrum, n / 2 + 1), want, 1, 1e-4, "half spectrum");
        FFT(cufftExecC2R(back, spectrum, real));
        std::vector<float> out = to_host(real, n);
        for (size_t i = 0; i < n; i++)
            check->near(out[i] / (double)n, in[i], 1e-5, "back", i);
        FFT(cufftDestroy(there));
        FFT(cufftDestroy(back));
    }
}

static const struct {
    const char *name;
    void (*run)(checker *);
} cases[] = {{"complex", complex_case},
             {"real", real_case},
             {"double", double_case},
             {"plane", plane_case},
             {"prime", prime_case}};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, [](checker *check, const auto &c) { c.run(check); });
}

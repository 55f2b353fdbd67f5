/* cuRAND: the device's generators against those that cuRAND runs on the host.
 *
 * Words, and uniform floats made of them, are the same; normal values pass through functions that differ in the last places,
 * so those have a tolerance, and their moments are checked besides.  `rand CASE` runs one case. */
#include "library.h"
#include <curand.h>

#define RAND(call) TRY(call, CURAND_STATUS_SUCCESS, cudaGetErrorString(cudaGetLastError()))

static const struct {
    const char *name;
    curandRngType_t type;
    bool is_quasi, is_wide; /* quasi: dimensions in place of a seed; wide: 64-bit words */
} generators[] = {{"xorwow", CURAND_RNG_PSEUDO_XORWOW, false, false},
                  {"philox", CURAND_RNG_PSEUDO_PHILOX4_32_10, false, false},
                  {"mrg32k3a", CURAND_RNG_PSEUDO_MRG32K3A, false, false},
                  {"mt19937", CURAND_RNG_PSEUDO_MT19937, false, false},
                  {"mtgp32", CURAND_RNG_PSEUDO_MTGP32, false, false},
                  {"sobol32", CURAND_RNG_QUASI_SOBOL32, true, false},
                  {"scrambled32", CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, true, false},
                  {"sobol64", CURAND_RNG_QUASI_SOBOL64, true, true}};

static void prepare(checker *check, curandGenerator_t g, bool is_quasi)
{
    if (is_quasi)
        RAND(curandSetQuasiRandomGeneratorDimensions(g, 5));
    else
        RAND(curandSetPseudoRandomGeneratorSeed(g, 1234567ull));
}

static void compare(checker *check, curandRngType_t type, bool is_quasi, bool is_wide)
{
    const size_t n = 20000; /* a multiple of the five dimensions, even */
    curandGenerator_t device, host;
    RAND(curandCreateGenerator(&device, type));
    RAND(curandCreateGeneratorHost(&host, type));
    prepare(check, device, is_quasi);
    prepare(check, host, is_quasi);
    for (int turn = 0; turn < 2; turn++) { /* the second continues the sequence */
        if (is_wide) {
            unsigned long long *words = device_array<unsigned long long>(n);
            std::vector<unsigned long long> want(n);
            RAND(curandGenerateLongLong(device, words, n));
            RAND(curandGenerateLongLong(host, want.data(), n));
            check->same(to_host(words, n), want, "64-bit word");
        } else {
            unsigned *words = device_array<unsigned>(n);
            std::vector<unsigned> want(n);
            RAND(curandGenerate(device, words, n));
            RAND(curandGenerate(host, want.data(), n));
            check->same(to_host(words, n), want, "word");
        }
    }
    float *f = device_array<float>(n);
    double *d = device_array<double>(n);
    std::vector<float> wantf(n);
    std::vector<double> wantd(n);
    RAND(curandGenerateUniform(device, f, n));
    RAND(curandGenerateUniform(host, wantf.data(), n));
    check->same(to_host(f, n), wantf, "uniform float");
    RAND(curandGenerateUniformDouble(device, d, n));
    RAND(curandGenerateUniformDouble(host, wantd.data(), n));
    std::vector<double> doubles = to_host(d, n);
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        check->near(doubles[i], wantd[i], 1e-15, "uniform double", i);
        mean += doubles[i] / (double)n;
        square += doubles[i] * doubles[i] / (double)n;
    }
    check->near(mean, 0.5, 0.01, "mean"); /* five standard deviations of a mean of 20000 */
    check->near(square - mean * mean, 1.0 / 12, 0.005, "variance");
    RAND(curandGenerateNormal(device, f, n, 3.0f, 2.0f));
    std::vector<float> normals = to_host(f, n);
    double m1 = 0, m2 = 0, m3 = 0;
    for (float x : normals)
        m1 += x / (double)n;
    for (float x : normals) {
        m2 += pow(x - m1, 2) / (double)n;
        m3 += pow((x - m1) / 2, 3) / (double)n;
    }
    check->near(m1, 3, 0.03, "normal mean");
    check->near(m2, 4, 0.05, "normal variance");
    check->near(m3, 0, 0.12, "normal skewness");
    RAND(curandGenerateNormal(host, wantf.data(), n, 3.0f, 2.0f));
    size_t far = 0;
    for (size_t i = 0; i < n; i++)
        far += !(fabs(normals[i] - wantf[i]) <= 1e-4);
    check->is(far == 0, "normal values that are the host's", far);
    curandDestroyGenerator(device);
    curandDestroyGenerator(host);
}

int main(int argc, char **argv)
{
    return run_cases(argc, argv, generators,
                     [](checker *check, const auto &g) { compare(check, g.type, g.is_quasi, g.is_wide); });
}

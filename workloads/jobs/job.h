/* What the sample jobs share: errors, options, a fixed sequence of values, clocks, and the line of
 * JSON that each ends with. */
#ifndef WORKLOADS_JOBS_JOB_H
#define WORKLOADS_JOBS_JOB_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_runtime.h>
#include <string>
#include <vector>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline double now_s()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void sleep_until(double when)
{
    struct timespec t = {(time_t)when, (long)((when - floor(when)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0)
        continue;
}

/* The same everywhere and on every run. */
struct sequence {
    uint64_t state;
    uint32_t next()
    {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return (uint32_t)(state >> 33);
    }
    double uniform() /* in (0, 1) */
    {
        return (next() + 0.5) / 2147483648.0;
    }
};

static inline std::vector<float> random_floats(size_t n, uint64_t seed, float scale)
{
    std::vector<float> v(n);
    struct sequence s = {seed};
    for (float &x : v)
        x = scale * (float)(2.0 * s.uniform() - 1.0);
    return v;
}

static inline float *to_device(const std::vector<float> &v)
{
    float *p;
    CUDA(cudaMalloc(&p, v.size() * sizeof(float)));
    CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(float), cudaMemcpyHostToDevice));
    return p;
}

static inline float *device_floats(size_t n)
{
    float *p;
    CUDA(cudaMalloc(&p, n * sizeof(float)));
    CUDA(cudaMemset(p, 0, n * sizeof(float)));
    return p;
}

/* FNV-1a of bytes: equal runs print equal sums. */
static inline uint64_t checksum(const void *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ull;
    return h;
}

/* --name=value options; every one must be asked for, so that a misspelt one is refused. */
class options
{
  public:
    options(int argc, char **argv, const char *help)
        : args(argv + 1, argv + argc), asked(args.size(), false), text(help)
    {
        for (const char *a : args) {
            if (strcmp(a, "--help") == 0) {
                fputs(text, stdout);
                exit(0);
            }
        }
    }
    const char *text_of(const char *name, const char *otherwise)
    {
        std::string prefix = std::string("--") + name + "=";
        for (size_t i = 0; i < args.size(); i++) {
            if (strncmp(args[i], prefix.c_str(), prefix.size()) == 0) {
                asked[i] = true;
                return args[i] + prefix.size();
            }
        }
        return otherwise;
    }
    double number(const char *name, double otherwise)
    {
        const char *t = text_of(name, nullptr);
        char *end = nullptr;
        double v = t != nullptr ? strtod(t, &end) : otherwise;
        if (t != nullptr && (*t == 0 || *end != 0)) {
            fprintf(stderr, "--%s=%s is not a number\n", name, t);
            exit(2);
        }
        return v;
    }
    void done() const
    {
        for (size_t i = 0; i < args.size(); i++) {
            if (!asked[i]) {
                fprintf(stderr, "unknown option %s\n%s", args[i], text);
                exit(2);
            }
        }
    }

  private:
    std::vector<char *> args;
    std::vector<bool> asked;
    const char *text;
};

/* Of sorted values, by linear interpolation between ranks. */
static inline double percentile(const std::vector<double> &sorted, double p)
{
    if (sorted.empty())
        return NAN;
    double at = p * (double)(sorted.size() - 1);
    size_t i = (size_t)at;
    return i + 1 < sorted.size() ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted.back();
}

#endif

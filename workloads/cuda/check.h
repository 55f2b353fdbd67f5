/* What the sample programs share: errors end the program, values come from a fixed sequence, a
 * result is one line. */
#ifndef WORKLOADS_CUDA_CHECK_H
#define WORKLOADS_CUDA_CHECK_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* After a launch: that it was accepted, and that it ended well. */
#define FINISH()                                                                                                       \
    do {                                                                                                               \
        CUDA(cudaGetLastError());                                                                                      \
        CUDA(cudaDeviceSynchronize());                                                                                 \
    } while (0)

/* A sequence that is the same everywhere (numerical recipes' generator). */
struct sequence {
    uint32_t state;
    uint32_t next()
    {
        state = state * 1664525u + 1013904223u;
        return state ^ (state >> 15);
    }
    float uniform() /* in [-1, 1) */
    {
        return (float)(next() >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
};

static inline std::vector<float> random_floats(size_t n, uint32_t seed)
{
    std::vector<float> v(n);
    struct sequence s = {seed};
    for (float &x : v)
        x = s.uniform();
    return v;
}

template <class T> static T *to_device(const std::vector<T> &v)
{
    T *p;
    CUDA(cudaMalloc(&p, v.size() * sizeof(T)));
    CUDA(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

/* Device memory filled with bytes that no result consists of. */
template <class T> static T *device_array(size_t n)
{
    T *p;
    CUDA(cudaMalloc(&p, n * sizeof(T)));
    CUDA(cudaMemset(p, 0xA5, n * sizeof(T)));
    return p;
}

/* A hash of what came from the device since the last result (FNV-1a), for comparing runs bit by
 * bit. */
static uint64_t seen_hash = 0xcbf29ce484222325u;

static inline void seen(const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        seen_hash = (seen_hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

template <class T> static std::vector<T> to_host(const T *p, size_t n)
{
    std::vector<T> v(n);
    CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    seen(v.data(), n * sizeof(T));
    return v;
}

/* Counts what is wrong and tells the first few. */
struct checker {
    const char *name;
    size_t checked = 0, wrong = 0;

    explicit checker(const char *n) : name(n)
    {
    }

    void is(bool good, const char *what, size_t at = 0)
    {
        checked++;
        if (!good && wrong++ < 3)
            fprintf(stderr, "%s: %s wrong at %zu\n", name, what, at);
    }
    /* |got - want| <= tolerance * max(1, |want|); NaN is never near. */
    void near(double got, double want, double tolerance, const char *what, size_t at = 0)
    {
        seen(&got, sizeof got);
        bool good = fabs(got - want) <= tolerance * fmax(1.0, fabs(want));
        checked++;
        if (!good && wrong++ < 3)
            fprintf(stderr, "%s: %s at %zu is %.9g, not %.9g\n", name, what, at, got, want);
    }
    template <class T> void same(const std::vector<T> &got, const std::vector<T> &want, const char *what)
    {
        is(got.size() == want.size(), what);
        seen(got.data(), got.size() * sizeof(T));
        for (size_t i = 0; i < want.size() && i < got.size(); i++)
            is(memcmp(&got[i], &want[i], sizeof(T)) == 0, what, i);
    }
    /* The program's one line and its exit code.  CHECK_DIGEST is a file that gets name and hash
     * besides. */
    int done() const
    {
        const char *path = getenv("CHECK_DIGEST");
        FILE *digest = path != NULL ? fopen(path, "a") : NULL;
        if (digest != NULL) {
            fprintf(digest, "%s %016llx\n", name, (unsigned long long)seen_hash);
            fclose(digest);
        }
        seen_hash = 0xcbf29ce484222325u;
        if (wrong == 0)
            printf("ok   %s: %zu values\n", name, checked);
        else
            printf("FAIL %s: %zu of %zu values are wrong\n", name, wrong, checked);
        return wrong == 0 && checked > 0 ? 0 : 1;
    }
};

#endif

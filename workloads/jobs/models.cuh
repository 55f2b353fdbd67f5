/* The models of the inference server: weights on the device, one forward pass queued on a stream. */
#ifndef WORKLOADS_JOBS_MODELS_CUH
#define WORKLOADS_JOBS_MODELS_CUH

#include <memory>

#include "job.h"
#include "kernels.cuh"

static inline int pieces(int n, int of)
{
    return (n + of - 1) / of;
}

static inline void launch_gemm(const struct product &p, int batch, cudaStream_t s)
{
    gemm<<<dim3(pieces(p.n, TILE), pieces(p.m, TILE), batch), dim3(TILE, TILE / ROWS_PER_THREAD), 0, s>>>(p);
    CUDA(cudaGetLastError());
}

/* y[m][n] = f(x[m][k] * w[k][n] + bias). */
static inline void dense(float *y, const float *x, const float *w, const float *bias, int m, int n, int k,
                         enum activation f, cudaStream_t s)
{
    launch_gemm({x, w, bias, y, m, n, k, k, n, n, 0, 0, 0, false, false, f, 1.0f}, 1, s);
}

struct model {
    size_t n_in = 0, n_out = 0;
    float *in = nullptr, *out = nullptr; /* on the device */
    virtual void forward(cudaStream_t s) = 0;
    virtual ~model() = default;

  protected:
    static float *weights(size_t n, size_t fan_in)
    {
        static uint64_t seed = 1;
        return to_device(random_floats(n, seed++, sqrtf(3.0f / (float)fan_in)));
    }
};

/* Four dense layers over a small batch. */
struct mlp : model {
    int batch, wide;
    float *w[4], *b[4], *h[2];
    explicit mlp(double scale) : batch(32), wide((int)(512 * sqrt(scale)))
    {
        n_in = n_out = (size_t)batch * wide;
        in = device_floats(n_in);
        out = device_floats(n_out);
        for (int i = 0; i < 4; i++) {
            w[i] = weights((size_t)wide * wide, wide);
            b[i] = weights(wide, wide);
        }
        for (float *&x : h)
            x = device_floats(n_out);
    }
    void forward(cudaStream_t s) override
    {
        dense(h[0], in, w[0], b[0], batch, wide, wide, RELU, s);
        dense(h[1], h[0], w[1], b[1], batch, wide, wide, RELU, s);
        dense(h[0], h[1], w[2], b[2], batch, wide, wide, RELU, s);
        dense(out, h[0], w[3], b[3], batch, wide, wide, NONE, s);
    }
};

/* Two blocks of a transformer: attention with several heads, then two dense layers. */
struct transformer : model {
    enum { BLOCKS = 2, HEADS = 4, LENGTH = 64 };
    int wide;
    float *qkv_w[BLOCKS], *proj_w[BLOCKS], *up_w[BLOCKS], *down_w[BLOCKS];
    float *norm, *qkv, *scores, *mixed, *proj, *up, *x[2];
    explicit transformer(double scale) : wide((int)(128 * sqrt(scale)) / HEADS * HEADS)
    {
        n_in = n_out = (size_t)LENGTH * wide;
        in = device_floats(n_in);
        out = device_floats(n_out);
        for (int i = 0; i < BLOCKS; i++) {
            qkv_w[i] = weights((size_t)wide * 3 * wide, wide);
            proj_w[i] = weights((size_t)wide * wide, wide);
            up_w[i] = weights((size_t)wide * 4 * wide, wide);
            down_w[i] = weights((size_t)wide * 4 * wide, 4 * wide);
        }
        norm = device_floats(n_in);
        qkv = device_floats(3 * n_in);
        scores = device_floats((size_t)HEADS * LENGTH * LENGTH);
        mixed = device_floats(n_in);
        proj = device_floats(n_in);
        up = device_floats(4 * n_in);
        for (float *&b : x)
            b = device_floats(n_in);
    }
    void forward(cudaStream_t s) override
    {
        int head = wide / HEADS;
        const float *from = in;
        for (int i = 0; i < BLOCKS; i++) {
            float *to = i == BLOCKS - 1 ? out : x[1];
            normalise_rows<<<LENGTH, 128, 0, s>>>(norm, from, nullptr, wide);
            dense(qkv, norm, qkv_w[i], nullptr, LENGTH, 3 * wide, wide, NONE, s);
            launch_gemm({qkv, qkv + wide, nullptr, scores, LENGTH, LENGTH, head, 3 * wide, 3 * wide, LENGTH, (size_t)head,
                         (size_t)head, (size_t)LENGTH * LENGTH, false, true, NONE, 1.0f / sqrtf((float)head)},
                        HEADS, s);
            softmax_rows<<<HEADS * LENGTH, 128, 0, s>>>(scores, LENGTH);
            launch_gemm({scores, qkv + 2 * wide, nullptr, mixed, LENGTH, head, LENGTH, LENGTH, 3 * wide, wide,
                         (size_t)LENGTH * LENGTH, (size_t)head, (size_t)head, false, false, NONE, 1.0f},
                        HEADS, s);
            dense(proj, mixed, proj_w[i], nullptr, LENGTH, wide, wide, NONE, s);
            normalise_rows<<<LENGTH, 128, 0, s>>>(x[0], proj, from, wide);
            dense(up, x[0], up_w[i], nullptr, LENGTH, 4 * wide, wide, GELU, s);
            dense(proj, up, down_w[i], nullptr, LENGTH, wide, 4 * wide, NONE, s);
            normalise_rows<<<LENGTH, 128, 0, s>>>(to, proj, x[0], wide);
            from = to;
        }
    }
};

/* Three convolutions with pooling between them, then a dense layer. */
struct convnet : model {
    enum { SIDE = 32, CLASSES = 10 };
    int batch, channels;
    float *w[3], *fc, *a, *b;
    explicit convnet(double scale) : batch(4), channels((int)(16 * sqrt(scale)))
    {
        n_in = (size_t)batch * 3 * SIDE * SIDE;
        n_out = (size_t)batch * CLASSES;
        in = device_floats(n_in);
        out = device_floats(n_out);
        w[0] = weights((size_t)channels * 3 * 9, 27);
        w[1] = weights((size_t)2 * channels * channels * 9, channels * 9);
        w[2] = weights((size_t)2 * channels * 2 * channels * 9, 2 * channels * 9);
        fc = weights((size_t)2 * channels * 16 * CLASSES, 2 * channels * 16);
        a = device_floats((size_t)batch * 2 * channels * SIDE * SIDE);
        b = device_floats((size_t)batch * 2 * channels * SIDE * SIDE);
    }
    void layer(const float *x, const float *weight, int from, int to, int side, cudaStream_t s)
    {
        convolve<<<dim3(pieces(side * side, 128), to, batch), 128, 0, s>>>(a, x, weight, from, side);
        pool<<<pieces(batch * to * side * side / 4, 128), 128, 0, s>>>(b, a, batch * to, side);
    }
    void forward(cudaStream_t s) override
    {
        layer(in, w[0], 3, channels, SIDE, s);
        layer(b, w[1], channels, 2 * channels, SIDE / 2, s);
        layer(b, w[2], 2 * channels, 2 * channels, SIDE / 4, s);
        dense(out, b, fc, nullptr, batch, CLASSES, 2 * channels * 16, NONE, s);
    }
};

/* Layers over a few rows, as when a language model makes one token after the other: each kernel is as short as those of published
 * inference jobs, and there are hundreds of them in a request. */
struct decoder : model {
    enum { ROWS = 8, WEIGHTS = 4 };
    int wide, layers;
    float *w[WEIGHTS], *norm, *x[2];
    explicit decoder(double scale) : wide(128), layers(std::max(1, (int)(64 * scale)))
    {
        n_in = n_out = (size_t)ROWS * wide;
        in = device_floats(n_in);
        out = device_floats(n_out);
        for (float *&v : w)
            v = weights((size_t)wide * wide, wide);
        norm = device_floats(n_in);
        for (float *&v : x)
            v = device_floats(n_in);
    }
    void forward(cudaStream_t s) override
    {
        const float *from = in;
        for (int i = 0; i < layers; i++) {
            float *to = i == layers - 1 ? out : x[i % 2];
            normalise_rows<<<ROWS, 128, 0, s>>>(norm, from, nullptr, wide);
            dense(to, norm, w[i % WEIGHTS], nullptr, ROWS, wide, wide, GELU, s);
            from = to;
        }
    }
};

static inline std::unique_ptr<model> make_model(const char *name, double scale)
{
    if (strcmp(name, "mlp") == 0)
        return std::make_unique<mlp>(scale);
    if (strcmp(name, "transformer") == 0)
        return std::make_unique<transformer>(scale);
    if (strcmp(name, "convnet") == 0)
        return std::make_unique<convnet>(scale);
    if (strcmp(name, "decoder") == 0)
        return std::make_unique<decoder>(scale);
    fprintf(stderr, "--model=%s: there are mlp, transformer, convnet and decoder\n", name);
    exit(2);
}

#endif

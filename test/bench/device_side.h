/* One side of the comparison of the software device with PoCL and with native code: a process that
 * runs the same kernels on the same data in its own way, when told to on standard input.
 *
 *     check NAME         the kernel once, from fresh data; "ok NAME worst-error" or "bad NAME where"
 *     run NAME N         N times in a row; "time NAME wall-ns cpu-ns" of all threads
 *     first NAME         once with a grid of one block (device only); "time ..." as above
 *     during NAME MS     again and again for so long; "count NAME runs wall-ns"
 *     start NAME         a grid that takes minutes, without waiting (device only); "started NAME"
 *     nice               "nice N..." of the threads of this process
 */
#ifndef TALLY_BENCH_DEVICE_SIDE_H
#define TALLY_BENCH_DEVICE_SIDE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes.  Streams do not fit any cache; the matrices of the products fit the second one. */
enum {
    STREAM_N = 16 << 20,
    REDUCE_N = 16 << 20,
    REDUCE_PER_BLOCK = 512,
    MATRIX_N = 512,
    MATRIX_TILE = 16,
    SOFTMAX_ROWS = 1024,
    SOFTMAX_N = 1024,
    IMAGE_N = 4096, /* stencil and transposition: IMAGE_N squared */
    HISTOGRAM_N = 16 << 20,
    HISTOGRAM_BLOCKS = 64,
    MANDEL_N = 1024,
    MANDEL_ROUNDS = 256,
    COLLATZ_N = 1 << 20,
    BUFFER_N = 16 << 20, /* elements of each of the three buffers */
};

/* name, unit, work per run in units of 1e9 */
#define BENCH_KERNELS(X)                                                                           \
    X(empty, "launch", 1e-9)                                                                       \
    X(vadd, "GB/s", 12e-9 * STREAM_N)                                                              \
    X(saxpy, "GB/s", 12e-9 * STREAM_N)                                                             \
    X(naive_matmul, "GFLOP/s", 2e-9 * MATRIX_N * MATRIX_N * MATRIX_N)                              \
    X(tiled_matmul, "GFLOP/s", 2e-9 * MATRIX_N * MATRIX_N * MATRIX_N)                              \
    X(reduction, "GB/s", 4e-9 * REDUCE_N)                                                          \
    X(softmax, "Gelem/s", 1e-9 * SOFTMAX_ROWS * SOFTMAX_N)                                         \
    X(stencil, "GB/s", 8e-9 * IMAGE_N * IMAGE_N)                                                   \
    X(histogram, "Gelem/s", 1e-9 * HISTOGRAM_N)                                                    \
    X(mandelbrot, "Gpix/s", 1e-9 * MANDEL_N * MANDEL_N)                                            \
    X(collatz, "Gelem/s", 1e-9 * COLLATZ_N)                                                        \
    X(transpose, "GB/s", 8e-9 * IMAGE_N * IMAGE_N)

enum bench_kernel {
#define AS_ENUM(name, unit, work) BENCH_##name,
    BENCH_KERNELS(AS_ENUM)
#undef AS_ENUM
        BENCH_COUNT
};

/* What a side does.  The buffers `a` and `b` are inputs, `c` takes results (and is an input of
 * saxpy). */
struct bench_side {
    /* Takes the inputs; 0 or nothing else works. */
    int (*setup)(const float *a, const float *b, const float *c);
    void (*set_result)(const float *c);        /* c as given */
    void (*get_result)(float *c);              /* all BUFFER_N elements */
    int (*run)(enum bench_kernel k, int n);    /* n times; waits after each */
    int (*run_one_block)(enum bench_kernel k); /* or NULL */
    int (*start)(enum bench_kernel k);         /* or NULL: begins what takes minutes */
};

/* Serves standard input until it ends; the exit code. */
int bench_serve(const struct bench_side *side);

#ifdef __cplusplus
}
#endif
#endif

/* The kernels as one would write them for a CPU: the practical limit.  OpenMP over cores, vectors
 * by the compiler or by hand. */
#include "test/bench/device_side.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float *a, *b;
static float *c;

typedef float vector __attribute__((vector_size(64), aligned(4)));
typedef int ints __attribute__((vector_size(64), aligned(4)));

static void vadd(void)
{
#pragma omp parallel for simd schedule(static)
    for (int i = 0; i < STREAM_N; i++)
        c[i] = a[i] + b[i];
}

static void saxpy(void)
{
#pragma omp parallel for simd schedule(static)
    for (int i = 0; i < STREAM_N; i++)
        c[i] = 1.5f * a[i] + c[i];
}

/* Eight rows by two vectors stay in registers. */
static void matmul(void)
{
    enum { ROWS = 8, WIDTH = 16 };
#pragma omp parallel for schedule(dynamic, 1)
    for (int y = 0; y < MATRIX_N; y += ROWS) {
        for (int x = 0; x < MATRIX_N; x += 2 * WIDTH) {
            vector sum[ROWS][2] = {{{0}}};
            for (int k = 0; k < MATRIX_N; k++) {
                vector left = *(const vector *)&b[k * MATRIX_N + x],
                       right = *(const vector *)&b[k * MATRIX_N + x + WIDTH];
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; i++) {
                    float v = a[(y + i) * MATRIX_N + k];
                    sum[i][0] += v * left;
                    sum[i][1] += v * right;
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < ROWS; i++) {
                *(vector *)&c[(y + i) * MATRIX_N + x] = sum[i][0];
                *(vector *)&c[(y + i) * MATRIX_N + x + WIDTH] = sum[i][1];
            }
        }
    }
}

static void reduction(void)
{
#pragma omp parallel for schedule(static)
    for (int g = 0; g < REDUCE_N / REDUCE_PER_BLOCK; g++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < REDUCE_PER_BLOCK; i++)
            sum += a[g * REDUCE_PER_BLOCK + i];
        c[g] = sum;
    }
}

/* 2 to the power of the whole part by the exponent's bits, of the rest by a polynomial. */
static inline float fast_exp(float x)
{
    float scaled = x * 1.44269504f, whole = rintf(scaled), rest = scaled - whole, p = 0.00133390f;
    p = p * rest + 0.00961842f;
    p = p * rest + 0.05550344f;
    p = p * rest + 0.24022650f;
    p = p * rest + 0.69314718f;
    p = p * rest + 1.0f;
    int bits = ((int)(whole < -126.0f ? -126.0f : whole) + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static void softmax(void)
{
#pragma omp parallel for schedule(static)
    for (int y = 0; y < SOFTMAX_ROWS; y++) {
        const float *row = a + (size_t)y * SOFTMAX_N;
        float *to = c + (size_t)y * SOFTMAX_N, most = row[0], sum = 0;
#pragma omp simd reduction(max : most)
        for (int i = 0; i < SOFTMAX_N; i++)
            most = row[i] > most ? row[i] : most;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < SOFTMAX_N; i++) {
            float e = fast_exp(row[i] - most);
            to[i] = e;
            sum += e;
        }
        sum = 1.0f / sum;
#pragma omp simd
        for (int i = 0; i < SOFTMAX_N; i++)
            to[i] *= sum;
    }
}

static void stencil(void)
{
    const int w = IMAGE_N;
#pragma omp parallel for schedule(static)
    for (int y = 1; y < w - 1; y++) {
#pragma omp simd
        for (int i = y * w + 1; i < y * w + w - 1; i++)
            c[i] = 0.5f * a[i] + 0.125f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w]);
    }
}

/* Four tables, so that equal neighbours do not wait for each other. */
static void histogram(void)
{
    const unsigned *values = (const unsigned *)a;
    unsigned *out = (unsigned *)c;
#pragma omp parallel
    {
        unsigned bins[4][256];
        memset(bins, 0, sizeof bins);
#pragma omp for schedule(static)
        for (int i = 0; i < HISTOGRAM_N; i += 4) {
            for (int j = 0; j < 4; j++)
                bins[j][values[i + j] & 255]++;
        }
        for (int i = 0; i < 256; i++)
#pragma omp atomic
            out[i] += bins[0][i] + bins[1][i] + bins[2][i] + bins[3][i];
    }
}

static inline int any_set(const ints *v)
{
    uint64_t words[8];
    memcpy(words, v, sizeof words);
    return ((words[0] | words[1]) | (words[2] | words[3]) | (words[4] | words[5]) |
            (words[6] | words[7])) != 0;
}

/* Sixteen points at a time, until the last of them has left. */
static void mandelbrot(void)
{
    int *out = (int *)c;
    const ints lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma omp parallel for schedule(dynamic, 8)
    for (int y = 0; y < MANDEL_N; y++) {
        for (int x = 0; x < MANDEL_N; x += 16) {
            vector cx = __builtin_convertvector(lanes + x, vector) * (3.0f / MANDEL_N) - 2.0f,
                   zx = {0}, zy = {0};
            float cy = -1.5f + 3.0f * (float)y / MANDEL_N;
            ints n = {0}, inside = n - 1;
            for (int i = 0; i < MANDEL_ROUNDS; i++) {
                vector xx = zx * zx, yy = zy * zy;
                inside &= xx + yy <= 4.0f;
                if (!any_set(&inside))
                    break;
                n -= inside;
                zy = 2.0f * zx * zy + cy;
                zx = xx - yy + cx;
            }
            memcpy(&out[y * MANDEL_N + x], &n, sizeof n);
        }
    }
}

static void collatz(void)
{
    int *out = (int *)c;
#pragma omp parallel for schedule(dynamic, 4096)
    for (int i = 0; i < COLLATZ_N; i++) {
        unsigned v = (unsigned)i + 1;
        int n = 0;
        for (; v != 1; n++)
            v = v & 1 ? 3 * v + 1 : v >> 1;
        out[i] = n;
    }
}

static void transpose(void)
{
    const int w = IMAGE_N;
#pragma omp parallel for schedule(static)
    for (int y = 0; y < w; y += 32) {
        for (int x = 0; x < w; x += 32) {
            float tile[32][32];
            for (int i = 0; i < 32; i++)
                for (int j = 0; j < 32; j++)
                    tile[j][i] = a[(size_t)(y + i) * w + x + j];
            for (int i = 0; i < 32; i++)
                memcpy(&c[(size_t)(x + i) * w + y], tile[i], sizeof tile[i]);
        }
    }
}

static void empty(void)
{
}

static int native_run(enum bench_kernel k, int n)
{
    static void (*const kernels[BENCH_COUNT])(void) = {empty,     vadd,       saxpy,   matmul,
                                                       matmul,    reduction,  softmax, stencil,
                                                       histogram, mandelbrot, collatz, transpose};
    for (int i = 0; i < n; i++)
        kernels[k]();
    return 0;
}

static void native_set_result(const float *from)
{
    memcpy(c, from, sizeof(float) * BUFFER_N);
}

static void native_get_result(float *to)
{
    memcpy(to, c, sizeof(float) * BUFFER_N);
}

static int native_setup(const float *in_a, const float *in_b, const float *in_c)
{
    a = in_a;
    b = in_b;
    c = aligned_alloc(64, sizeof(float) * BUFFER_N);
    if (c == NULL)
        return 1;
    native_set_result(in_c);
    return 0;
}

int main(void)
{
    static const struct bench_side side = {
        native_setup, native_set_result, native_get_result, native_run, NULL, NULL};
    return bench_serve(&side);
}

/* What all sides share: data, the commands, and references to check results against. */
#include "test/bench/device_side.h"

#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static float *a, *b, *c, *result;

static double clock_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void fill(void)
{
    for (uint32_t i = 0; i < BUFFER_N; i++) {
        uint32_t mixed = i * 2654435761u;
        a[i] = (float)(mixed >> 8) / (1 << 24);
        b[i] = (float)((mixed ^ 0x9e3779b9u) >> 8) / (1 << 24);
        c[i] = 0.25f;
    }
}

/* --- references ------------------------------------------------------------------------------- */

/* Each says what element i of the result should be, in double precision. */

static double product_at(uint32_t i)
{
    uint32_t y = i / MATRIX_N, x = i % MATRIX_N;
    double sum = 0;
    for (uint32_t k = 0; k < MATRIX_N; k++)
        sum += (double)a[y * MATRIX_N + k] * b[k * MATRIX_N + x];
    return sum;
}

static double sum_at(uint32_t i)
{
    double sum = 0;
    for (uint32_t k = 0; k < REDUCE_PER_BLOCK; k++)
        sum += a[i * REDUCE_PER_BLOCK + k];
    return sum;
}

static double softmax_at(uint32_t i)
{
    const float *row = a + (size_t)(i / SOFTMAX_N) * SOFTMAX_N;
    double most = row[0], sum = 0;
    for (uint32_t k = 1; k < SOFTMAX_N; k++)
        most = row[k] > most ? row[k] : most;
    for (uint32_t k = 0; k < SOFTMAX_N; k++)
        sum += exp(row[k] - most);
    return exp(row[i % SOFTMAX_N] - most) / sum;
}

static double stencil_at(uint32_t i)
{
    uint32_t y = i / IMAGE_N, x = i % IMAGE_N;
    if (x == 0 || y == 0 || x == IMAGE_N - 1 || y == IMAGE_N - 1)
        return 0.25; /* untouched */
    return 0.5 * a[i] + 0.125 * ((double)a[i - 1] + a[i + 1] + a[i - IMAGE_N] + a[i + IMAGE_N]);
}

static uint32_t mandel_rounds(uint32_t i)
{
    uint32_t x = i % MANDEL_N, y = i / MANDEL_N, n = 0;
    float cx = -2.0f + 3.0f * (float)x / MANDEL_N, cy = -1.5f + 3.0f * (float)y / MANDEL_N, zx = 0,
          zy = 0;
    for (; n < MANDEL_ROUNDS && zx * zx + zy * zy <= 4.0f; n++) {
        float next = zx * zx - zy * zy + cx;
        zy = 2.0f * zx * zy + cy;
        zx = next;
    }
    return n;
}

static uint32_t collatz_steps(uint32_t i)
{
    uint32_t v = i + 1, n = 0;
    for (; v != 1; n++)
        v = v % 2 == 1 ? 3 * v + 1 : v / 2;
    return n;
}

static double vadd_at(uint32_t i)
{
    return (double)a[i] + b[i];
}

static double saxpy_at(uint32_t i)
{
    return 1.5 * a[i] + 0.25;
}

static double transpose_at(uint32_t i)
{
    return a[(size_t)(i % IMAGE_N) * IMAGE_N + i / IMAGE_N];
}

/* Compares the first n results, every step-th of them; relative to 1 or to the value, whichever is
 * more. */
static double worst_of(double (*at)(uint32_t), uint32_t n, uint32_t step)
{
    double worst = 0;
    for (uint32_t i = 0; i < n; i += step) {
        double want = at(i), far = fabs(result[i] - want) / (fabs(want) > 1 ? fabs(want) : 1);
        worst = far > worst || isnan(far) ? far : worst;
    }
    return worst;
}

/* The share of integers that differ. */
static double differing(uint32_t (*at)(uint32_t), uint32_t n)
{
    const uint32_t *got = (const uint32_t *)result;
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++)
        bad += got[i] != at(i);
    return (double)bad / n;
}

static double histogram_differs(void)
{
    const uint32_t *values = (const uint32_t *)a, *got = (const uint32_t *)result;
    uint32_t want[256] = {0}, before;
    memcpy(&before, &c[0], sizeof before); /* counts are added to what is there */
    for (uint32_t i = 0; i < HISTOGRAM_N; i++)
        want[values[i] & 255]++;
    for (uint32_t i = 0; i < 256; i++) {
        if (got[i] != want[i] + before)
            return 1;
    }
    return 0;
}

/* How far the result is from right, and how far it may be. */
static double error_of(enum bench_kernel k, double *allowed)
{
    *allowed = 0;
    switch (k) {
    case BENCH_vadd:
        *allowed = 1e-7;
        return worst_of(vadd_at, STREAM_N, 1);
    case BENCH_saxpy:
        *allowed = 2e-7; /* fused or not */
        return worst_of(saxpy_at, STREAM_N, 1);
    case BENCH_naive_matmul:
    case BENCH_tiled_matmul:
        *allowed = 1e-5;
        return worst_of(product_at, MATRIX_N * MATRIX_N, 97);
    case BENCH_reduction:
        *allowed = 1e-6;
        return worst_of(sum_at, REDUCE_N / REDUCE_PER_BLOCK, 1);
    case BENCH_softmax:
        *allowed = 1e-6;
        return worst_of(softmax_at, SOFTMAX_ROWS * SOFTMAX_N, 397);
    case BENCH_stencil:
        *allowed = 1e-6;
        return worst_of(stencil_at, IMAGE_N * IMAGE_N, 1);
    case BENCH_histogram:
        return histogram_differs();
    case BENCH_mandelbrot:
        *allowed = 0.005; /* fused or not, points at the edge differ */
        return differing(mandel_rounds, MANDEL_N * MANDEL_N);
    case BENCH_collatz:
        return differing(collatz_steps, COLLATZ_N);
    case BENCH_transpose:
        return worst_of(transpose_at, IMAGE_N * IMAGE_N, 1);
    default:
        return 0;
    }
}

/* --- commands --------------------------------------------------------------------------------- */

static const char *const names[] = {
#define AS_NAME(name, unit, work) #name,
    BENCH_KERNELS(AS_NAME)
#undef AS_NAME
};

static void print_kernels(void)
{
#define AS_LINE(name, unit, work) printf("kernel %s %s %.9g\n", #name, unit, (double)(work));
    BENCH_KERNELS(AS_LINE)
#undef AS_LINE
    printf("ready\n");
}

static void check(const struct bench_side *side, enum bench_kernel k)
{
    double allowed;
    side->set_result(c);
    if (side->run(k, 1) != 0) {
        printf("bad %s does-not-run\n", names[k]);
        return;
    }
    side->get_result(result);
    double error = error_of(k, &allowed);
    printf("%s %s %.3g\n", error <= allowed ? "ok" : "bad", names[k], error);
}

static void timed(const struct bench_side *side, enum bench_kernel k, int n)
{
    double wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    int rc = n > 0 ? side->run(k, n) : side->run_one_block(k);
    wall = clock_ns(CLOCK_MONOTONIC) - wall;
    cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (rc != 0)
        printf("bad %s does-not-run\n", names[k]);
    else
        printf("time %s %.0f %.0f\n", names[k], wall, cpu);
}

static void during(const struct bench_side *side, enum bench_kernel k, double ms)
{
    double begin = clock_ns(CLOCK_MONOTONIC), now = begin;
    int n = 0;
    for (; now - begin < ms * 1e6; n++) {
        if (side->run(k, 1) != 0)
            break;
        now = clock_ns(CLOCK_MONOTONIC);
    }
    printf("count %s %d %.0f\n", names[k], n, now - begin);
}

static void print_nice(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *t;
    printf("nice");
    while (tasks != NULL && (t = readdir(tasks)) != NULL) {
        if (t->d_name[0] != '.')
            printf(" %d", getpriority(PRIO_PROCESS, (id_t)strtoul(t->d_name, NULL, 10)));
    }
    if (tasks != NULL)
        closedir(tasks);
    printf("\n");
}

static void obey(const struct bench_side *side, const char *verb, const char *name, int n)
{
    uint32_t k = 0;
    if (strcmp(verb, "nice") == 0) {
        print_nice();
        return;
    }
    while (k < BENCH_COUNT && strcmp(names[k], name) != 0)
        k++;
    if (k == BENCH_COUNT) {
        printf("bad %s unknown\n", name);
        return;
    }
    if (strcmp(verb, "check") == 0)
        check(side, (enum bench_kernel)k);
    else if (strcmp(verb, "run") == 0)
        timed(side, (enum bench_kernel)k, n > 0 ? n : 1);
    else if (strcmp(verb, "first") == 0 && side->run_one_block != NULL)
        timed(side, (enum bench_kernel)k, 0);
    else if (strcmp(verb, "during") == 0)
        during(side, (enum bench_kernel)k, n);
    else if (strcmp(verb, "start") == 0 && side->start != NULL)
        printf("%s %s\n", side->start((enum bench_kernel)k) == 0 ? "started" : "bad", names[k]);
    else
        printf("bad %s cannot-%s\n", name, verb);
}

int bench_serve(const struct bench_side *side)
{
    size_t bytes = (size_t)BUFFER_N * sizeof *a;
    char line[256], verb[32], name[64];
    a = aligned_alloc(64, bytes);
    b = aligned_alloc(64, bytes);
    c = aligned_alloc(64, bytes);
    result = aligned_alloc(64, bytes);
    if (a == NULL || b == NULL || c == NULL || result == NULL)
        return 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    fill();
    if (side->setup(a, b, c) != 0)
        return 1;
    print_kernels();
    while (fgets(line, sizeof line, stdin) != NULL) {
        int n = 0;
        name[0] = '\0';
        if (sscanf(line, "%31s %63s %d", verb, name, &n) >= 1)
            obey(side, verb, name, n);
    }
    return 0;
}

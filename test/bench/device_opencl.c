/* The kernels through OpenCL: PoCL's side of the comparison.  The argument is the path of
 * device_kernels.cl. */
#define CL_TARGET_OPENCL_VERSION 120
#include "test/bench/device_side.h"

#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGS = 4 };

struct argument {
    const void *at;
    size_t bytes;
};

struct kernel {
    cl_kernel kernel;
    size_t global[2], local[2];
};

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_mem in_a, in_b, out_c;
static struct kernel kernels[BENCH_COUNT];
static const char *source_path;

static int failed(cl_int error, const char *what)
{
    if (error != CL_SUCCESS)
        fprintf(stderr, "bench: OpenCL: %s: error %d\n", what, error);
    return error != CL_SUCCESS;
}

static char *read_source(void)
{
    FILE *f = fopen(source_path, "r");
    char *text = calloc(1, 1 << 16);
    if (f == NULL || text == NULL || fread(text, 1, (1 << 16) - 1, f) == 0) {
        fprintf(stderr, "bench: cannot read %s\n", source_path);
        free(text);
        text = NULL;
    }
    if (f != NULL)
        fclose(f);
    return text;
}

static cl_program build(void)
{
    char options[1200], *text = read_source();
    const char *source = text;
    cl_int error = CL_INVALID_VALUE;
    cl_program p = text != NULL ? clCreateProgramWithSource(context, 1, &source, NULL, &error)
                                : NULL;
    free(text);
    const char *slash = strrchr(source_path, '/'); /* what it includes lies beside it */
    snprintf(options, sizeof options, "-DTILE=%d -DPER_BLOCK=%d -I%.*s", MATRIX_TILE,
             REDUCE_PER_BLOCK, slash != NULL ? (int)(slash - source_path) : 1,
             slash != NULL ? source_path : ".");
    if (failed(error, "clCreateProgramWithSource") ||
        failed(clBuildProgram(p, 1, &device, options, NULL, NULL), "build"))
        return NULL;
    return p;
}

static int prepare(cl_program p, enum bench_kernel k, const char *name, const size_t shape[4],
                   const struct argument args[MAX_ARGS])
{
    cl_int error;
    struct kernel *to = &kernels[k];
    to->kernel = clCreateKernel(p, name, &error);
    if (failed(error, name))
        return 1;
    for (int i = 0; i < 2; i++) {
        to->global[i] = shape[i] * shape[2 + i];
        to->local[i] = shape[2 + i];
    }
    for (cl_uint i = 0; i < MAX_ARGS && args[i].at != NULL; i++) {
        if (failed(clSetKernelArg(to->kernel, i, args[i].bytes, args[i].at), name))
            return 1;
    }
    return 0;
}

/* Grid and block, then arguments, as in device_cuda.cu. */
static int prepare_all(cl_program p)
{
    static const int stream_n = STREAM_N, matrix_n = MATRIX_N, softmax_n = SOFTMAX_N,
                     image_n = IMAGE_N, histogram_n = HISTOGRAM_N, mandel_n = MANDEL_N,
                     rounds = MANDEL_ROUNDS;
    static const float factor = 1.5f;
    const size_t m = MATRIX_N / MATRIX_TILE, t = MATRIX_TILE;
    struct {
        enum bench_kernel k;
        const char *name;
        size_t shape[4];
        struct argument args[MAX_ARGS];
    } list[] = {
#define KERNEL(name, x, y, bx, by, ...)                                                            \
    {                                                                                              \
        BENCH_##name, #name, {x, y, bx, by},                                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define ARG(x)                                                                                     \
    {                                                                                              \
        &(x), sizeof(x)                                                                            \
    }
        KERNEL(empty, 1, 1, 256, 1, ARG(out_c)),
        KERNEL(vadd, STREAM_N / 256, 1, 256, 1, ARG(in_a), ARG(in_b), ARG(out_c), ARG(stream_n)),
        KERNEL(saxpy, STREAM_N / 256, 1, 256, 1, ARG(in_a), ARG(out_c), ARG(factor), ARG(stream_n)),
        KERNEL(naive_matmul, m, m, t, t, ARG(in_a), ARG(in_b), ARG(out_c), ARG(matrix_n)),
        KERNEL(tiled_matmul, m, m, t, t, ARG(in_a), ARG(in_b), ARG(out_c), ARG(matrix_n)),
        KERNEL(reduction, REDUCE_N / REDUCE_PER_BLOCK, 1, REDUCE_PER_BLOCK / 2, 1, ARG(in_a),
               ARG(out_c)),
        KERNEL(softmax, SOFTMAX_ROWS, 1, 256, 1, ARG(in_a), ARG(out_c), ARG(softmax_n)),
        KERNEL(stencil, IMAGE_N / 32, IMAGE_N / 8, 32, 8, ARG(in_a), ARG(out_c), ARG(image_n),
               ARG(image_n)),
        KERNEL(histogram, HISTOGRAM_BLOCKS, 1, 256, 1, ARG(in_a), ARG(out_c), ARG(histogram_n)),
        KERNEL(mandelbrot, MANDEL_N / 16, MANDEL_N / 16, 16, 16, ARG(out_c), ARG(mandel_n),
               ARG(rounds)),
        KERNEL(collatz, COLLATZ_N / 256, 1, 256, 1, ARG(out_c)),
        KERNEL(transpose, IMAGE_N / 32, IMAGE_N / 32, 32, 8, ARG(in_a), ARG(out_c), ARG(image_n)),
#undef ARG
#undef KERNEL
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (prepare(p, list[i].k, list[i].name, list[i].shape, list[i].args) != 0)
            return 1;
    }
    return 0;
}

static int cl_run(enum bench_kernel k, int n)
{
    const struct kernel *to = &kernels[k];
    for (int i = 0; i < n; i++) {
        if (failed(clEnqueueNDRangeKernel(queue, to->kernel, 2, NULL, to->global, to->local, 0,
                                          NULL, NULL),
                   "launch") ||
            failed(clFinish(queue), "clFinish"))
            return 1;
    }
    return 0;
}

static void cl_set_result(const float *c)
{
    failed(
        clEnqueueWriteBuffer(queue, out_c, CL_TRUE, 0, sizeof(float) * BUFFER_N, c, 0, NULL, NULL),
        "write");
}

static void cl_get_result(float *c)
{
    failed(
        clEnqueueReadBuffer(queue, out_c, CL_TRUE, 0, sizeof(float) * BUFFER_N, c, 0, NULL, NULL),
        "read");
}

static cl_mem buffer_of(const float *from)
{
    cl_int error;
    float *host = (float *)(uintptr_t)from; /* it is only read: COPY_HOST_PTR */
    cl_mem m = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(float) * BUFFER_N, host,
                              &error);
    return failed(error, "clCreateBuffer") ? NULL : m;
}

static int cl_setup(const float *a, const float *b, const float *c)
{
    cl_platform_id platform;
    cl_int error;
    if (failed(clGetPlatformIDs(1, &platform, NULL), "no platform") ||
        failed(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL), "no CPU device"))
        return 1;
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    if (failed(error, "clCreateContext"))
        return 1;
    queue = clCreateCommandQueue(context, device, 0, &error);
    if (failed(error, "clCreateCommandQueue"))
        return 1;
    in_a = buffer_of(a);
    in_b = buffer_of(b);
    out_c = buffer_of(c);
    cl_program p = build();
    return in_a == NULL || in_b == NULL || out_c == NULL || p == NULL || prepare_all(p);
}

int main(int argc, char **argv)
{
    static const struct bench_side side = {cl_setup, cl_set_result, cl_get_result,
                                           cl_run,   NULL,          NULL};
    if (argc != 2 || strcmp(argv[1], "--help") == 0) {
        fprintf(stderr,
                "usage: bench-opencl KERNELS.cl, told what to do by scripts/bench-device\n");
        return 2;
    }
    source_path = argv[1];
    return bench_serve(&side);
}

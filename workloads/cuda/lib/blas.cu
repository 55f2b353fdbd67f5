/* cuBLAS against sums in double: products in all precisions, in batches, vectors with vectors and with matrices.
 *
 * `blas CASE` runs one case, `blas` all of them; each is a line, so that a script can tell what is missing.  `blas CASE quick`
 * takes one shape and one layout of matrices, for which one kernel is enough. */
#include "library.h"
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thread>

static cublasHandle_t handle;
static bool is_quick;

#define BLAS(call) TRY_AND_WAIT(call, CUBLAS_STATUS_SUCCESS, cublasGetStatusString(status_))

template <class T> static std::vector<T> make(size_t n, uint32_t seed)
{
    std::vector<float> f = random_floats(n, seed);
    std::vector<T> v(n);
    for (size_t i = 0; i < n; i++)
        v[i] = (T)f[i];
    return v;
}

template <class T> static double value(T v)
{
    return (double)(float)v;
}
template <> double value(double v)
{
    return v;
}

/* Column-major, as cuBLAS has it. */
template <class T>
static double entry(const std::vector<T> &m, size_t base, int row, int column, int lead, cublasOperation_t op)
{
    return value(m[base + (op == CUBLAS_OP_N ? (size_t)column * lead + row : (size_t)row * lead + column)]);
}

/* Compares alpha op(A) op(B) + beta C; tolerance is relative to the sum of magnitudes, which bounds all rounding. */
template <class T, class R>
static void compare(checker *check, const std::vector<T> &a, const std::vector<T> &b, const std::vector<R> &c,
                    const std::vector<R> &got, int m, int n, int k, cublasOperation_t ta, cublasOperation_t tb,
                    double alpha, double beta, int batch, double tolerance)
{
    int lda = ta == CUBLAS_OP_N ? m : k, ldb = tb == CUBLAS_OP_N ? k : n;
    for (int p = 0; p < batch; p++) {
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < m; i++) {
                size_t at = ((size_t)p * n + j) * m + i;
                double sum = 0, magnitude = 0;
                for (int l = 0; l < k; l++) {
                    double product = entry(a, (size_t)p * m * k, i, l, lda, ta) *
                                     entry(b, (size_t)p * k * n, l, j, ldb, tb);
                    sum += product;
                    magnitude += fabs(product);
                }
                double want = alpha * sum + beta * value(c[at]), error = fabs(value(got[at]) - want);
                check->is(error <= tolerance * (fabs(alpha) * magnitude + fabs(beta * value(c[at]))), "product", at);
            }
        }
    }
}

static const int shapes[][3] = {{64, 64, 64}, {33, 17, 65}, {128, 96, 200}, {1, 40, 7}};
static const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T};

/* All transpositions of one shape through one function call; T is the inputs' type, R the result's. */
template <class T, class R, class F>
static void gemm_of(checker *check, const int *shape, F call, double alpha, double beta, double tolerance)
{
    int m = shape[0], n = shape[1], k = shape[2];
    std::vector<T> a = make<T>((size_t)m * k, 1), b = make<T>((size_t)k * n, 2);
    std::vector<R> c = make<R>((size_t)m * n, 3);
    T *da = to_device(a), *db = to_device(b);
    for (cublasOperation_t ta : ops) {
        for (cublasOperation_t tb : ops) {
            if (is_quick && (m != n || n != k || ta != CUBLAS_OP_N || tb != CUBLAS_OP_N))
                continue;
            R *dc = to_device(c);
            BLAS(call(ta, tb, m, n, k, da, ta == CUBLAS_OP_N ? m : k, db, tb == CUBLAS_OP_N ? k : n, dc));
            compare(check, a, b, c, to_host(dc, (size_t)m * n), m, n, k, ta, tb, alpha, beta, 1, tolerance);
            CUDA(cudaFree(dc));
        }
    }
    CUDA(cudaFree(da));
    CUDA(cudaFree(db));
}

template <class T, class R, class F>
static void gemm(checker *check, F call, double alpha, double beta, double tolerance)
{
    for (const int *shape : shapes)
        gemm_of<T, R>(check, shape, call, alpha, beta, tolerance);
}

typedef cublasOperation_t op;

static void sgemm(checker *check)
{
    float alpha = 1.5f, beta = 0.5f;
    gemm<float, float>(
        check,
        [&](op ta, op tb, int m, int n, int k, float *a, int lda, float *b, int ldb, float *c) {
            return cublasSgemm(handle, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, m);
        },
        alpha, beta, 1e-5); /* 200 roundings of 2^-24 */
}

/* Few results of long sums, for which cuBLAS splits k: blocks add their parts up in turn. */
static void sgemm_deep(checker *check)
{
    static const int deep[][3] = {{40, 24, 6000}, {64, 64, 3000}};
    float alpha = 1.5f, beta = 0.5f;
    for (const int *shape : deep) {
        gemm_of<float, float>(
            check, shape,
            [&](op ta, op tb, int m, int n, int k, float *a, int lda, float *b, int ldb, float *c) {
                return cublasSgemm(handle, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, m);
            },
            alpha, beta, 1e-5); /* parts are summed on their own, so roundings do not add up to 6000 */
    }
}

static void dgemm(checker *check)
{
    double alpha = 1.5, beta = -0.5;
    gemm<double, double>(
        check,
        [&](op ta, op tb, int m, int n, int k, double *a, int lda, double *b, int ldb, double *c) {
            return cublasDgemm(handle, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, m);
        },
        alpha, beta, 1e-13); /* 200 roundings of 2^-53, and as many of the reference */
}

static void hgemm(checker *check)
{
    half alpha = 1.0f, beta = 0.5f;
    gemm<half, half>(
        check,
        [&](op ta, op tb, int m, int n, int k, half *a, int lda, half *b, int ldb, half *c) {
            return cublasHgemm(handle, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, m);
        },
        1.0, 0.5, 0.02); /* sums in half: 2^-11 each, some 40 in a row before they are merged */
}

template <class T> static void gemm_ex(checker *check, cudaDataType type, cublasComputeType_t compute, double tolerance)
{
    float alpha = 2.0f, beta = 0.25f;
    gemm<T, float>(
        check,
        [&](op ta, op tb, int m, int n, int k, T *a, int lda, T *b, int ldb, float *c) {
            return cublasGemmEx(handle, ta, tb, m, n, k, &alpha, a, type, lda, b, type, ldb, &beta, c, CUDA_R_32F, m,
                                compute, CUBLAS_GEMM_DEFAULT);
        },
        alpha, beta, tolerance);
}

static void gemm_f16(checker *check)
{
    gemm_ex<half>(check, CUDA_R_16F, CUBLAS_COMPUTE_32F, 1e-5); /* inputs are exact, sums are floats */
}

static void gemm_bf16(checker *check)
{
    gemm_ex<__nv_bfloat16>(check, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1e-5);
}

static void gemm_tf32(checker *check)
{
    gemm_ex<float>(check, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 2e-3); /* both inputs lose 2^-11 */
}

static void gemm_f16_to_f16(checker *check)
{
    float alpha = 1.0f, beta = 0.0f;
    gemm<half, half>(
        check,
        [&](op ta, op tb, int m, int n, int k, half *a, int lda, half *b, int ldb, half *c) {
            return cublasGemmEx(handle, ta, tb, m, n, k, &alpha, a, CUDA_R_16F, lda, b, CUDA_R_16F, ldb, &beta, c,
                                CUDA_R_16F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
        },
        1.0, 0.0, 1e-3); /* one rounding of the result, 2^-11 */
}

static void batched(checker *check)
{
    const int m = 24, n = 40, k = 31, batch = 7;
    float alpha = 1, beta = 1;
    std::vector<float> a = make<float>(m * k * batch, 4), b = make<float>(k * n * batch, 5),
                       c = make<float>(m * n * batch, 6);
    float *da = to_device(a), *db = to_device(b), *dc = to_device(c);
    BLAS(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &alpha, da, m, m * k, db, n, k * n, &beta,
                                   dc, m, m * n, batch));
    compare(check, a, b, c, to_host(dc, c.size()), m, n, k, CUBLAS_OP_N, CUBLAS_OP_T, 1, 1, batch, 1e-5);
}

template <class T> static void vectors(checker *check, double tolerance)
{
    for (int n : {1, 1000, 70001}) {
        std::vector<T> x = make<T>(n, 7), y = make<T>(n, 8);
        double want = 0, magnitude = 0, norm = 0, absolute = 0;
        int largest = 0;
        for (int i = 0; i < n; i++) {
            want += (double)x[i] * y[i];
            magnitude += fabs((double)x[i] * y[i]);
            norm += (double)x[i] * x[i];
            absolute += fabs(x[i]);
            largest = fabs(x[i]) > fabs(x[largest]) ? i : largest;
        }
        T *dx = to_device(x), *dy = to_device(y), dot = 0, length = 0, sum = 0, alpha = (T)-1.25;
        int at = 0;
        if constexpr (sizeof(T) == 4) {
            BLAS(cublasSdot(handle, n, dx, 1, dy, 1, &dot));
            BLAS(cublasSnrm2(handle, n, dx, 1, &length));
            BLAS(cublasSasum(handle, n, dx, 1, &sum));
            BLAS(cublasIsamax(handle, n, dx, 1, &at));
            BLAS(cublasSaxpy(handle, n, &alpha, dx, 1, dy, 1));
        } else {
            BLAS(cublasDdot(handle, n, dx, 1, dy, 1, &dot));
            BLAS(cublasDnrm2(handle, n, dx, 1, &length));
            BLAS(cublasDasum(handle, n, dx, 1, &sum));
            BLAS(cublasIdamax(handle, n, dx, 1, &at));
            BLAS(cublasDaxpy(handle, n, &alpha, dx, 1, dy, 1));
        }
        check->is(fabs((double)dot - want) <= tolerance * magnitude, "dot", n);
        check->near(length, sqrt(norm), tolerance, "norm", n);
        check->near(sum, absolute, tolerance, "absolute sum", n);
        check->is(at == largest + 1, "place of the largest", n);
        std::vector<T> got = to_host(dy, n);
        for (int i = 0; i < n; i++) /* one or two roundings */
            check->near(got[i], (double)alpha * x[i] + y[i], sizeof(T) == 4 ? 2e-7 : 4e-16, "axpy", i);
    }
}

static void svectors(checker *check)
{
    vectors<float>(check, 1e-5); /* some hundred roundings in a row at most, as reductions do it */
}

static void dvectors(checker *check)
{
    vectors<double>(check, 1e-13);
}

template <class T> static void gemv(checker *check, double tolerance)
{
    const int sizes[][2] = {{100, 60}, {1, 300}, {513, 129}};
    for (const int *size : sizes) {
        int m = size[0], n = size[1];
        std::vector<T> a = make<T>(m * n, 9);
        T *da = to_device(a), alpha = (T)0.5, beta = (T)2;
        for (op t : ops) {
            int rows = t == CUBLAS_OP_N ? m : n, columns = t == CUBLAS_OP_N ? n : m;
            std::vector<T> x = make<T>(columns, 10), y = make<T>(rows, 11);
            T *dx = to_device(x), *dy = to_device(y);
            if constexpr (sizeof(T) == 4)
                BLAS(cublasSgemv(handle, t, m, n, &alpha, da, m, dx, 1, &beta, dy, 1));
            else
                BLAS(cublasDgemv(handle, t, m, n, &alpha, da, m, dx, 1, &beta, dy, 1));
            compare(check, a, x, y, to_host(dy, rows), rows, 1, columns, t, CUBLAS_OP_N, alpha, beta, 1, tolerance);
        }
    }
}

static void sgemv(checker *check)
{
    gemv<float>(check, 1e-5);
}

static void dgemv(checker *check)
{
    gemv<double>(check, 1e-13);
}

/* By a thread that has asked CUDA for nothing before. */
static void dgemv_thread(checker *check)
{
    const int m = 100, n = 60;
    const double alpha = 0.5, beta = 2;
    std::vector<double> a = make<double>(m * n, 9), x = make<double>(n, 10), y = make<double>(m, 11);
    double *da = to_device(a), *dx = to_device(x), *dy = to_device(y);
    cublasStatus_t status = CUBLAS_STATUS_INTERNAL_ERROR;
    std::thread([&] {
        status = cublasDgemv(handle, CUBLAS_OP_N, m, n, &alpha, da, m, dx, 1, &beta, dy, 1);
    }).join();
    BLAS(status);
    compare(check, a, x, y, to_host(dy, m), m, 1, n, CUBLAS_OP_N, CUBLAS_OP_N, alpha, beta, 1, 1e-13);
}

static const struct {
    const char *name;
    void (*run)(checker *check);
} cases[] = {
    {"sgemm", sgemm},       {"sgemm_deep", sgemm_deep}, {"dgemm", dgemm},         {"hgemm", hgemm},
    {"gemm_f16", gemm_f16}, {"gemm_bf16", gemm_bf16},   {"gemm_tf32", gemm_tf32}, {"gemm_f16_f16", gemm_f16_to_f16},
    {"batched", batched},   {"svectors", svectors},     {"dvectors", dvectors},   {"sgemv", sgemv},
    {"dgemv", dgemv},       {"dgemv_thread", dgemv_thread}};

int main(int argc, char **argv)
{
    is_quick = argc == 3 && strcmp(argv[2], "quick") == 0;
    cublasStatus_t status = cublasCreate(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        printf("FAIL cublasCreate: %s\n", cublasGetStatusString(status));
        return 1;
    }
    int result = run_cases(argc, argv, cases, [](checker *check, const auto &c) { c.run(check); });
    cublasDestroy(handle);
    return result;
}

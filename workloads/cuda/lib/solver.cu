/* cuSOLVER, small and dense: what is found is put back into the equation that it solves, in double on the host.
 * LU, Cholesky, QR, eigenvalues, singular values.  `solver CASE` runs one case. */
#include "library.h"
#include <cusolverDn.h>

#define SOLVER(call) TRY(call, CUSOLVER_STATUS_SUCCESS, cudaGetErrorString(cudaGetLastError()))

enum { N = 48 };

/* Column by column, as LAPACK has it. */
typedef std::vector<double> dense;

static dense random_matrix(size_t rows, size_t columns, uint32_t seed)
{
    std::vector<float> f = random_floats(rows * columns, seed);
    return dense(f.begin(), f.end());
}

/* Symmetric, and positive definite by its diagonal. */
static dense symmetric(size_t n)
{
    dense a = random_matrix(n, n, 8);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < j; i++)
            a[j * n + i] = a[i * n + j];
        a[j * n + j] = (double)n;
    }
    return a;
}

/* a (rows x inner) * b (inner x columns) */
static dense product(const dense &a, const dense &b, size_t rows, size_t inner, size_t columns)
{
    dense c(rows * columns, 0.0);
    for (size_t j = 0; j < columns; j++)
        for (size_t k = 0; k < inner; k++)
            for (size_t i = 0; i < rows; i++)
                c[j * rows + i] += a[k * rows + i] * b[j * inner + k];
    return c;
}

static dense transposed(const dense &a, size_t rows, size_t columns)
{
    dense t(a.size());
    for (size_t j = 0; j < columns; j++)
        for (size_t i = 0; i < rows; i++)
            t[i * columns + j] = a[j * rows + i];
    return t;
}

static void compare(checker *check, const dense &got, const dense &want, const char *what)
{
    for (size_t i = 0; i < want.size(); i++)
        check->near(got[i], want[i], 1e-10, what, i);
}

static void good(checker *check, const int *info)
{
    FINISH();
    check->is(to_host(info, 1)[0] == 0, "info");
}

static void lu(checker *check, cusolverDnHandle_t handle, int *info)
{
    dense a = random_matrix(N, N, 1), b = random_matrix(N, 3, 2);
    double *da = to_device(a), *db = to_device(b), *work;
    int *pivots = device_array<int>(N), words;
    SOLVER(cusolverDnDgetrf_bufferSize(handle, N, N, da, N, &words));
    work = device_array<double>((size_t)words);
    SOLVER(cusolverDnDgetrf(handle, N, N, da, N, work, pivots, info));
    good(check, info);
    SOLVER(cusolverDnDgetrs(handle, CUBLAS_OP_N, N, 3, da, N, pivots, db, N, info));
    good(check, info);
    compare(check, product(a, to_host(db, b.size()), N, N, 3), b, "A x");
}

static void cholesky(checker *check, cusolverDnHandle_t handle, int *info)
{
    dense a = symmetric(N);
    double *da = to_device(a), *work;
    int words;
    SOLVER(cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, da, N, &words));
    work = device_array<double>((size_t)words);
    SOLVER(cusolverDnDpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, da, N, work, words, info));
    good(check, info);
    dense l = to_host(da, a.size());
    for (size_t j = 0; j < N; j++)
        for (size_t i = 0; i < j; i++)
            l[j * N + i] = 0;
    compare(check, product(l, transposed(l, N, N), N, N, N), a, "L L'");
}

static void qr(checker *check, cusolverDnHandle_t handle, int *info)
{
    const int rows = N + 10;
    dense a = random_matrix(rows, N, 3);
    double *da = to_device(a), *tau = device_array<double>(N), *work;
    int words, more;
    SOLVER(cusolverDnDgeqrf_bufferSize(handle, rows, N, da, rows, &words));
    SOLVER(cusolverDnDorgqr_bufferSize(handle, rows, N, N, da, rows, tau, &more));
    work = device_array<double>((size_t)(words > more ? words : more));
    SOLVER(cusolverDnDgeqrf(handle, rows, N, da, rows, tau, work, words, info));
    good(check, info);
    dense both = to_host(da, a.size()), r(N * N, 0.0), one(N * N, 0.0);
    for (size_t j = 0; j < N; j++) {
        one[j * N + j] = 1;
        for (size_t i = 0; i <= j; i++)
            r[j * N + i] = both[j * (size_t)rows + i];
    }
    SOLVER(cusolverDnDorgqr(handle, rows, N, N, da, rows, tau, work, more, info));
    good(check, info);
    dense q = to_host(da, a.size());
    compare(check, product(q, r, rows, N, N), a, "Q R");
    compare(check, product(transposed(q, rows, N), q, N, rows, N), one, "Q' Q");
}

static void eigen(checker *check, cusolverDnHandle_t handle, int *info)
{
    dense a = symmetric(N);
    double *da = to_device(a), *values = device_array<double>(N), *work;
    int words;
    SOLVER(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, da, N, values,
                                       &words));
    work = device_array<double>((size_t)words);
    SOLVER(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, da, N, values, work, words,
                            info));
    good(check, info);
    dense v = to_host(da, a.size()), w = to_host(values, N), scaled = v;
    for (size_t j = 0; j < N; j++)
        for (size_t i = 0; i < N; i++)
            scaled[j * N + i] *= w[j];
    compare(check, product(a, v, N, N, N), scaled, "A v");
}

/* Jacobi and the usual way; both give A = U S V'. */
static void put_together(checker *check, const dense &a, const double *u, const double *s, const dense &vt)
{
    dense left = to_host(u, a.size()), values = to_host(s, N);
    for (size_t j = 0; j < N; j++) {
        check->is(j == 0 || values[j] <= values[j - 1], "order", j);
        for (size_t i = 0; i < N; i++)
            left[j * N + i] *= values[j];
    }
    compare(check, product(left, vt, N, N, N), a, "U S V'");
}

static void svd(checker *check, cusolverDnHandle_t handle, int *info)
{
    dense a = random_matrix(N, N, 5);
    double *da = to_device(a), *u = device_array<double>(a.size()), *s = device_array<double>(N);
    double *v = device_array<double>(a.size()), *work;
    int words;
    SOLVER(cusolverDnDgesvd_bufferSize(handle, N, N, &words));
    work = device_array<double>((size_t)words);
    SOLVER(cusolverDnDgesvd(handle, 'A', 'A', N, N, da, N, s, u, N, v, N, work, words, NULL, info));
    good(check, info);
    put_together(check, a, u, s, to_host(v, a.size()));
}

static void jacobi(checker *check, cusolverDnHandle_t handle, int *info)
{
    dense a = random_matrix(N, N, 6);
    double *da = to_device(a), *u = device_array<double>(a.size()), *s = device_array<double>(N);
    double *v = device_array<double>(a.size()), *work;
    gesvdjInfo_t settings;
    int words;
    SOLVER(cusolverDnCreateGesvdjInfo(&settings));
    SOLVER(cusolverDnDgesvdj_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, 0, N, N, da, N, s, u, N, v, N, &words,
                                        settings));
    work = device_array<double>((size_t)words);
    SOLVER(cusolverDnDgesvdj(handle, CUSOLVER_EIG_MODE_VECTOR, 0, N, N, da, N, s, u, N, v, N, work, words, info,
                             settings));
    good(check, info);
    put_together(check, a, u, s, transposed(to_host(v, a.size()), N, N));
}

static const struct {
    const char *name;
    void (*run)(checker *, cusolverDnHandle_t, int *);
} cases[] = {{"lu", lu}, {"cholesky", cholesky}, {"qr", qr}, {"eigen", eigen}, {"svd", svd}, {"jacobi", jacobi}};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, [](checker *check, const auto &c) {
        cusolverDnHandle_t handle;
        SOLVER(cusolverDnCreate(&handle));
        c.run(check, handle, device_array<int>(1));
        cusolverDnDestroy(handle);
    });
}

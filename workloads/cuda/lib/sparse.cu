/* cuSPARSE against sums in double: a sparse matrix times a vector and times a dense matrix, float and double, CSR and COO, and a
 * conversion from dense to sparse.  `sparse CASE` runs one case. */
#include "library.h"
#include <cusparse.h>

#define SPARSE(call) TRY(call, CUSPARSE_STATUS_SUCCESS, cudaGetErrorString(cudaGetLastError()))

/* Rows with 0 to 12 values each, in both notations. */
struct matrix {
    int rows, columns;
    std::vector<int> begins, row, column;
    std::vector<double> value;

    matrix(int r, int c) : rows(r), columns(c)
    {
        struct sequence s = {99};
        for (int i = 0; i < rows; i++) {
            begins.push_back((int)column.size());
            int n = (int)(s.next() % 13), at = 0;
            for (int k = 0; k < n; k++) {
                at += 1 + (int)(s.next() % 7);
                if (at >= columns)
                    break;
                row.push_back(i);
                column.push_back(at);
                value.push_back((double)s.uniform());
            }
        }
        begins.push_back((int)column.size());
    }
    int count() const
    {
        return (int)column.size();
    }
    /* this * x * alpha + y * beta for `n` columns of x, column by column. */
    std::vector<double> times(const std::vector<double> &x, std::vector<double> y, int n, double alpha, double beta) const
    {
        for (int j = 0; j < n; j++)
            for (int i = 0; i < rows; i++) {
                double sum = 0;
                for (int k = begins[i]; k < begins[i + 1]; k++)
                    sum += value[k] * x[(size_t)j * columns + column[k]];
                y[(size_t)j * rows + i] = alpha * sum + beta * y[(size_t)j * rows + i];
            }
        return y;
    }
};

template <class T> struct type_of;
template <> struct type_of<float> {
    static const cudaDataType value = CUDA_R_32F;
};
template <> struct type_of<double> {
    static const cudaDataType value = CUDA_R_64F;
};

template <class T> static std::vector<T> as(const std::vector<double> &v)
{
    return std::vector<T>(v.begin(), v.end());
}

static std::vector<double> random_doubles(size_t n, uint32_t seed)
{
    std::vector<float> f = random_floats(n, seed);
    return std::vector<double>(f.begin(), f.end());
}

template <class T>
static void compare(checker *check, const T *device, const std::vector<double> &want, double tolerance, const char *what)
{
    std::vector<T> got = to_host(device, want.size());
    for (size_t i = 0; i < want.size(); i++)
        check->near((double)got[i], want[i], tolerance, what, i);
}

template <class T>
static void multiply(checker *check, cusparseHandle_t handle, const matrix &m, cusparseSpMatDescr_t a, int n,
                     double tolerance)
{
    std::vector<double> x = random_doubles((size_t)m.columns * n, 3), y = random_doubles((size_t)m.rows * n, 4);
    T *dx = to_device(as<T>(x)), *dy = to_device(as<T>(y)), alpha = 1.5, beta = -0.5;
    cudaDataType type = type_of<T>::value;
    size_t bytes = 0;
    char *work;
    if (n == 1) {
        cusparseDnVecDescr_t vx, vy;
        SPARSE(cusparseCreateDnVec(&vx, m.columns, dx, type));
        SPARSE(cusparseCreateDnVec(&vy, m.rows, dy, type));
        SPARSE(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, vx, &beta, vy, type,
                                       CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
        CUDA(cudaMalloc(&work, bytes + 1));
        SPARSE(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, vx, &beta, vy, type,
                            CUSPARSE_SPMV_ALG_DEFAULT, work));
    } else {
        cusparseDnMatDescr_t mx, my;
        SPARSE(cusparseCreateDnMat(&mx, m.columns, n, m.columns, dx, type, CUSPARSE_ORDER_COL));
        SPARSE(cusparseCreateDnMat(&my, m.rows, n, m.rows, dy, type, CUSPARSE_ORDER_COL));
        SPARSE(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha,
                                       a, mx, &beta, my, type, CUSPARSE_SPMM_ALG_DEFAULT, &bytes));
        CUDA(cudaMalloc(&work, bytes + 1));
        SPARSE(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, mx,
                            &beta, my, type, CUSPARSE_SPMM_ALG_DEFAULT, work));
    }
    FINISH();
    compare(check, dy, m.times(x, y, n, 1.5, -0.5), tolerance, n == 1 ? "vector" : "matrix");
}

template <class T> static void csr(checker *check, int n, double tolerance)
{
    matrix m(300, 211);
    cusparseHandle_t handle;
    cusparseSpMatDescr_t a;
    SPARSE(cusparseCreate(&handle));
    SPARSE(cusparseCreateCsr(&a, m.rows, m.columns, m.count(), to_device(m.begins), to_device(m.column),
                             to_device(as<T>(m.value)), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                             CUSPARSE_INDEX_BASE_ZERO, type_of<T>::value));
    multiply<T>(check, handle, m, a, n, tolerance);
    cusparseDestroy(handle);
}

static void spmv(checker *check)
{
    csr<float>(check, 1, 1e-5);
    csr<double>(check, 1, 1e-13);
}

static void spmm(checker *check)
{
    csr<float>(check, 24, 1e-5);
}

static void coo(checker *check)
{
    matrix m(300, 211);
    cusparseHandle_t handle;
    cusparseSpMatDescr_t a;
    SPARSE(cusparseCreate(&handle));
    SPARSE(cusparseCreateCoo(&a, m.rows, m.columns, m.count(), to_device(m.row), to_device(m.column),
                             to_device(as<float>(m.value)), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    multiply<float>(check, handle, m, a, 1, 1e-5);
    cusparseDestroy(handle);
}

static void dense_to_sparse(checker *check)
{
    matrix m(60, 45);
    std::vector<float> dense((size_t)m.rows * m.columns, 0.0f);
    for (int k = 0; k < m.count(); k++)
        dense[(size_t)m.row[k] * m.columns + m.column[k]] = (float)m.value[k];
    cusparseHandle_t handle;
    cusparseDnMatDescr_t from;
    cusparseSpMatDescr_t to;
    int *begins = device_array<int>((size_t)m.rows + 1);
    size_t bytes = 0;
    char *work;
    SPARSE(cusparseCreate(&handle));
    SPARSE(cusparseCreateDnMat(&from, m.rows, m.columns, m.columns, to_device(dense), CUDA_R_32F, CUSPARSE_ORDER_ROW));
    SPARSE(cusparseCreateCsr(&to, m.rows, m.columns, 0, begins, NULL, NULL, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                             CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    SPARSE(cusparseDenseToSparse_bufferSize(handle, from, to, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes));
    CUDA(cudaMalloc(&work, bytes + 1));
    SPARSE(cusparseDenseToSparse_analysis(handle, from, to, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, work));
    int64_t rows, columns, count;
    SPARSE(cusparseSpMatGetSize(to, &rows, &columns, &count));
    check->is(count == m.count(), "count", (size_t)count);
    if (count != m.count())
        return;
    int *column = device_array<int>((size_t)count);
    float *value = device_array<float>((size_t)count);
    SPARSE(cusparseCsrSetPointers(to, begins, column, value));
    SPARSE(cusparseDenseToSparse_convert(handle, from, to, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, work));
    FINISH();
    check->same(to_host(begins, (size_t)m.rows + 1), m.begins, "begin of row");
    check->same(to_host(column, (size_t)count), m.column, "column");
    check->same(to_host(value, (size_t)count), as<float>(m.value), "value");
    cusparseDestroy(handle);
}

static const struct {
    const char *name;
    void (*run)(checker *);
} cases[] = {{"spmv", spmv}, {"spmm", spmm}, {"coo", coo}, {"from_dense", dense_to_sparse}};

int main(int argc, char **argv)
{
    return run_cases(argc, argv, cases, [](checker *check, const auto &c) { c.run(check); });
}

/* cuBLASLt: products with what follows them in the same kernel (bias, ReLU, GELU), against sums in double.
 *
 * `blaslt CASE` runs one case, `blaslt` all of them. */
#include "library.h"
#include <cublasLt.h>
#include <cuda_fp16.h>

static cublasLtHandle_t handle;

#define LT(call) TRY(call, CUBLAS_STATUS_SUCCESS, cublasLtGetStatusString(status_))

enum { M = 64, N = 48, K = 80 };

static bool has_bias(cublasLtEpilogue_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
}

static double after(cublasLtEpilogue_t epilogue, double x, double bias)
{
    if (has_bias(epilogue))
        x += bias;
    if (epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS)
        return x > 0 ? x : 0;
    if (epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}

/* Column-major, A transposed, as all types allow it. */
template <class T>
static void product(checker *check, cudaDataType type, cublasComputeType_t compute, cublasLtEpilogue_t epilogue,
                    double tolerance)
{
    std::vector<float> fa = random_floats(M * K, 1), fb = random_floats(K * N, 2), fbias = random_floats(M, 3);
    std::vector<T> a(M * K), b(K * N), bias(M);
    for (int i = 0; i < M * K; i++)
        a[i] = (T)fa[i];
    for (int i = 0; i < K * N; i++)
        b[i] = (T)fb[i];
    for (int i = 0; i < M; i++)
        bias[i] = (T)fbias[i];
    T *da = to_device(a), *db = to_device(b), *dbias = to_device(bias), *dd = device_array<T>(M * N);
    float alpha = 1, beta = 0;
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t way;
    int found = 0;
    size_t room = 1 << 20;
    LT(cublasLtMatmulDescCreate(&what, compute, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    LT(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (has_bias(epilogue))
        LT(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias, sizeof dbias));
    LT(cublasLtMatrixLayoutCreate(&la, type, K, M, K));
    LT(cublasLtMatrixLayoutCreate(&lb, type, K, N, K));
    LT(cublasLtMatrixLayoutCreate(&lc, type, M, N, M));
    LT(cublasLtMatmulPreferenceCreate(&preference));
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
    LT(cublasLtMatmulAlgoGetHeuristic(handle, what, la, lb, lc, lc, preference, 1, &way, &found));
    check->is(found == 1, "algorithm");
    LT(cublasLtMatmul(handle, what, &alpha, da, la, db, lb, &beta, dd, lc, dd, lc, &way.algo, device_array<char>(room),
                      room, 0));
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        check->is(false, "CUDA error", (size_t)error);
        return;
    }
    std::vector<T> got = to_host(dd, M * N);
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)(float)a[i * K + k] * (double)(float)b[j * K + k];
            check->near((double)(float)got[j * M + i], after(epilogue, sum, (double)(float)bias[i]), tolerance,
                        "result", j * M + i);
        }
}

static const struct {
    const char *name;
    cublasLtEpilogue_t epilogue;
} epilogues[] = {{"none", CUBLASLT_EPILOGUE_DEFAULT},
                 {"bias", CUBLASLT_EPILOGUE_BIAS},
                 {"relu", CUBLASLT_EPILOGUE_RELU},
                 {"relu_bias", CUBLASLT_EPILOGUE_RELU_BIAS},
                 {"gelu_bias", CUBLASLT_EPILOGUE_GELU_BIAS}};

int main(int argc, char **argv)
{
    int failed = 0, ran = 0;
    cublasStatus_t status = cublasLtCreate(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        printf("FAIL cublasLtCreate: %s\n", cublasLtGetStatusString(status));
        return 1;
    }
    for (const auto &e : epilogues)
        for (int is_half = 0; is_half < 2; is_half++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%s", e.name, is_half ? "f16" : "f32");
            if (argc >= 2 && strcmp(argv[1], name) != 0)
                continue;
            checker check(name);
            if (is_half) /* one rounding of the result, 2^-11 */
                product<half>(&check, CUDA_R_16F, CUBLAS_COMPUTE_32F, e.epilogue, 2e-3);
            else
                product<float>(&check, CUDA_R_32F, CUBLAS_COMPUTE_32F, e.epilogue, 1e-4);
            failed += check.done();
            ran++;
        }
    cublasLtDestroy(handle);
    return failed > 0 || ran == 0;
}

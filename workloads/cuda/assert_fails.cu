/* A failed assert on the device: the message on stderr, the CUDA error, and a process that goes on. */
#undef NDEBUG
#include "check.h"
#include <cassert>
#include <unistd.h>

__global__ void strict(int *v, int limit)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < limit);
    v[i] = i + 1;
}

int main()
{
    checker check("assert_fails");
    const int n = 64;
    int *v = device_array<int>(n);
    strict<<<2, 32>>>(v, n);
    FINISH();
    std::vector<int> got = to_host(v, n);
    for (int i = 0; i < n; i++)
        check.is(got[i] == i + 1, "value without a failure", i);

    int kept = dup(2);
    FILE *file = tmpfile();
    if (kept < 0 || file == NULL || dup2(fileno(file), 2) < 0)
        return 1;
    strict<<<2, 32>>>(v, 40);
    cudaError_t error = cudaDeviceSynchronize();
    fflush(stderr);
    dup2(kept, 2);
    check.is(error == cudaErrorAssert, "error", (size_t)error);
    /* "FILE:LINE: FUNCTION: block: [1,0,0], thread: [8,0,0] Assertion `i < limit` failed." */
    char line[500];
    size_t messages = 0;
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL)
        messages += strstr(line, "Assertion `i < limit` failed") != NULL &&
                    strstr(line, "block: [1,0,0], thread: [") != NULL;
    check.is(messages >= 1, "message", messages);

    /* The context is lost, and says so again and again; the process is not. */
    strict<<<1, 32>>>(v, n);
    check.is(cudaGetLastError() == cudaErrorAssert, "sticky error at the launch");
    check.is(cudaDeviceSynchronize() == cudaErrorAssert, "sticky error at the end");
    int *more;
    check.is(cudaMalloc(&more, 4) == cudaErrorAssert, "sticky error of an allocation");
    return check.done();
}

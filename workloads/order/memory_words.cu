/* Waiting for and writing words in memory by streams (driver API). */
#include "order.h"
#include <cuda.h>

int main()
{
    order_check check("memory_words");
    cudaStream_t a, b;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    uint32_t *v = new_array(), *word, want = 0;
    MUST(cudaMallocHost(&word, 64));
    word[0] = word[1] = 0;
    MUST(cudaDeviceSynchronize());
    CUdeviceptr at = (CUdeviceptr)word;
    bool ok = true;
    for (uint32_t i = 1; i <= 20; i++) { /* hand over hand, through memory */
        step(v, i, a);
        ok &= cuStreamWriteValue32(a, at, i, 0) == CUDA_SUCCESS;
        ok &= cuStreamWaitValue32(b, at, i, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
        step(v, i + 5, b);
        ok &= cuStreamWriteValue32(b, at + 4, i, 0) == CUDA_SUCCESS;
        ok &= cuStreamWaitValue32(a, at + 4, i, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
        want = (want * 3 + i) * 3 + i + 5;
    }
    MUST(cudaStreamSynchronize(a));
    MUST(cudaStreamSynchronize(b));
    check.is(ok, "calls");
    check.all(v, want, "hand over hand");
    check.is(word[0] == 20 && word[1] == 20, "words");

    /* A stream waits for the host. */
    ok = cuStreamWaitValue32(a, at, 77, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS;
    step(v, 1, a);
    step(v, 2, b);
    MUST(cudaStreamSynchronize(b));
    check.is(cudaStreamQuery(a) == cudaErrorNotReady, "a waits for the host");
    *(volatile uint32_t *)word = 77;
    MUST(cudaStreamSynchronize(a));
    check.is(ok, "call");
    check.all(v, (want * 3 + 2) * 3 + 1, "around a wait for the host");
    return check.done();
}

/* Stream-ordered allocation: memory that is freed in a stream may come back at once, behind what still uses it. */
#include "order.h"

int main()
{
    order_check check("allocation");
    cudaStream_t a, b;
    cudaEvent_t done;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    uint32_t *sum = new_array();
    uint32_t want = 0;
    MUST(cudaDeviceSynchronize());
    for (uint32_t i = 1; i <= 40; i++) {
        uint32_t *v, *w;
        MUST(cudaMallocAsync(&v, order_bytes, a));
        MUST(cudaMemsetAsync(v, 0, order_bytes, a));
        step(v, i, a);
        MUST(cudaMallocAsync(&w, order_bytes, a));
        MUST(cudaMemcpyAsync(w, v, order_bytes, cudaMemcpyDeviceToDevice, a));
        MUST(cudaFreeAsync(v, a));
        step(w, i + 1, a);
        join(sum, w, a);
        want = want * 3 + i * 3 + i + 1;
        if (i % 4 == 0) { /* used and freed by another stream */
            MUST(cudaEventRecord(done, a));
            MUST(cudaStreamWaitEvent(b, done, 0));
            step(w, i, b);
            MUST(cudaFreeAsync(w, b));
        } else {
            MUST(cudaFreeAsync(w, a));
        }
    }
    MUST(cudaStreamSynchronize(b));
    MUST(cudaStreamSynchronize(a));
    check.all(sum, want, "memory that came and went");
    return check.done();
}

/* The legacy default stream and blocking streams wait for each other; non-blocking streams take no part. */
#include "order.h"

int main()
{
    order_check check("default_stream");
    cudaStream_t a, b, free_one;
    MUST(cudaStreamCreate(&a));
    MUST(cudaStreamCreate(&b));
    MUST(cudaStreamCreateWithFlags(&free_one, cudaStreamNonBlocking));
    uint32_t *v = new_array(), *w = new_array(), *x = new_array();
    uint32_t want = 0, want_w = 0, want_x = 0;
    MUST(cudaDeviceSynchronize());
    for (uint32_t i = 1; i <= 60; i++) {
        step(v, i, a);
        step(w, i, free_one);
        step(v, i + 1); /* behind a, in front of b */
        step(v, i + 2, b);
        step(v, i + 3); /* behind b, in front of a */
        want = (((want * 3 + i) * 3 + i + 1) * 3 + i + 2) * 3 + i + 3;
        want_w = want_w * 3 + i;
        if (i % 7 == 0) {
            MUST(cudaMemset(v, 0, order_bytes)); /* in the legacy stream, and the host does not wait */
            want = 0;
        }
        if (i % 11 == 0) {
            MUST(cudaMemcpyAsync(x, v, order_bytes, cudaMemcpyDeviceToDevice, 0));
            want_x = want;
        }
        if (i % 13 == 0) {
            MUST(cudaMemcpy(v, w, 0, cudaMemcpyDeviceToDevice)); /* nothing, but in the legacy stream */
            step(x, i, a);
            want_x = want_x * 3 + i;
        }
    }
    MUST(cudaStreamSynchronize(b));
    MUST(cudaStreamSynchronize(0));
    check.is(cudaStreamQuery(a) == cudaSuccess, "a is idle when the legacy stream is");
    check.all(v, want, "legacy, a and b in turn");
    check.all(x, want_x, "copy in the legacy stream");
    MUST(cudaStreamSynchronize(free_one));
    check.all(w, want_w, "non-blocking stream");
    /* Long enough that whoever watches over the stream looks at it while it is behind what it waits for. */
    int busy = 0;
    for (int round = 0; round < 100; round++) {
        order_step<<<order_blocks, order_threads, 0, a>>>(x, order_n, 1, 2000);
        order_step<<<order_blocks, order_threads>>>(v, order_n, 1, 2000);
        MUST(cudaStreamSynchronize(0));
        busy += cudaStreamQuery(a) != cudaSuccess;
    }
    check.is(busy == 0, "a is idle whenever the legacy stream is");
    MUST(cudaStreamDestroy(a));
    MUST(cudaStreamDestroy(b));
    MUST(cudaStreamDestroy(free_one));
    return check.done();
}

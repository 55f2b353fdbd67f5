/* Streams and events that are destroyed with work in them: the work is done all the same.  And streams that come and go. */
#include "order.h"

int main()
{
    order_check check("endings");
    uint32_t *v = new_array(), want = 0;
    MUST(cudaDeviceSynchronize());
    for (uint32_t round = 0; round < 20; round++) {
        cudaStream_t s;
        cudaEvent_t e;
        MUST(cudaStreamCreate(&s));
        MUST(cudaEventCreate(&e));
        for (uint32_t i = 1; i <= 5; i++) {
            step(v, i + round, s);
            want = want * 3 + i + round;
        }
        MUST(cudaEventRecord(e, s));
        MUST(cudaEventDestroy(e));
        MUST(cudaStreamDestroy(s));
        step(v, round); /* legacy: behind the stream that is no more */
        want = want * 3 + round;
    }
    MUST(cudaDeviceSynchronize());
    check.all(v, want, "streams that came and went");

    cudaStream_t s;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (uint32_t i = 1; i <= 1500; i++) { /* more than any queue holds */
        order_step<<<2, 64, 0, s>>>(v, order_n, 0, 1);
        if (i % 500 == 0)
            MUST(cudaMemsetAsync(v, 0, order_bytes, s));
    }
    step(v, 8, s);
    MUST(cudaStreamSynchronize(s));
    check.all(v, 8, "a long queue");

    /* Left behind at the end of the program. */
    for (uint32_t i = 1; i <= 50; i++)
        step(v, i, s);
    return check.done();
}

/* Events order streams among each other, also when they are recorded anew while somebody still waits for the old record. */
#include "order.h"

int main()
{
    order_check check("events");
    cudaStream_t a, b;
    cudaEvent_t ab, ba, begin, end, never;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&ab, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&ba, cudaEventDisableTiming));
    MUST(cudaEventCreate(&begin));
    MUST(cudaEventCreate(&end));
    MUST(cudaEventCreate(&never));
    uint32_t *v = new_array(), *y = new_array(), *z = new_array();
    uint32_t want = 0, want_y = 0, want_z = 0;
    MUST(cudaDeviceSynchronize());

    check.is(cudaEventQuery(never) == cudaSuccess, "an event that was never recorded is done");
    MUST(cudaStreamWaitEvent(a, never, 0));

    /* Hand over hand: the same array from stream to stream. */
    MUST(cudaEventRecord(begin, a));
    for (uint32_t i = 1; i <= 40; i++) {
        step(v, i, a);
        MUST(cudaEventRecord(ab, a));
        MUST(cudaStreamWaitEvent(b, ab, 0));
        step(v, i + 7, b);
        MUST(cudaEventRecord(ba, b));
        MUST(cudaStreamWaitEvent(a, ba, 0));
        want = (want * 3 + i) * 3 + i + 7;
    }
    MUST(cudaEventRecord(end, a));
    cudaError_t r = cudaEventQuery(end);
    check.is(r == cudaSuccess || r == cudaErrorNotReady, "query of a record that may be under way");
    MUST(cudaEventSynchronize(end));
    check.is(cudaEventQuery(end) == cudaSuccess, "query after waiting");
    float ms = -1;
    MUST(cudaEventElapsedTime(&ms, begin, end));
    check.is(ms >= 0, "elapsed time");
    check.all(v, want, "hand over hand");

    /* A producer that runs ahead, recording the same event; each consumer step uses what was there when it was asked for.  Two
     * arrays in turn, and the producer waits for the consumer before it writes one again. */
    uint32_t *both[2] = {y, z}, *wants[2] = {&want_y, &want_z};
    cudaEvent_t full, empty[2];
    MUST(cudaEventCreateWithFlags(&full, cudaEventDisableTiming));
    for (int k = 0; k < 2; k++)
        MUST(cudaEventCreateWithFlags(&empty[k], cudaEventDisableTiming));
    for (uint32_t i = 1; i <= 40; i++) {
        uint32_t k = i % 2;
        MUST(cudaStreamWaitEvent(a, empty[k], 0));
        step(both[k], i, a);
        *wants[k] = *wants[k] * 3 + i;
        MUST(cudaEventRecord(full, a));
        MUST(cudaStreamWaitEvent(b, full, 0));
        join(v, both[k], b);
        want = want * 3 + *wants[k];
        MUST(cudaEventRecord(empty[k], b));
    }
    MUST(cudaEventDestroy(full)); /* with records and waits under way */
    MUST(cudaStreamSynchronize(b));
    check.all(v, want, "producer and consumer");
    MUST(cudaStreamSynchronize(a));
    check.all(y, want_y, "first array of the producer");
    check.all(z, want_z, "second array of the producer");
    return check.done();
}

/* Host functions stand in their stream; one may wait for the host, which meanwhile uses other streams. */
#include "order.h"
#include <atomic>
#include <thread>

static std::atomic<int> flag, seen;
static std::vector<int> order;

static void push(void *what)
{
    order.push_back((int)(intptr_t)what);
}

static void wait_for_flag(void *)
{
    while (flag.load() == 0)
        std::this_thread::yield();
    seen = 1;
}

static void CUDART_CB callback(cudaStream_t, cudaError_t status, void *what)
{
    order.push_back(status == cudaSuccess ? (int)(intptr_t)what : -1);
}

static uint32_t *pinned;

static void change_pinned(void *value)
{
    for (int i = 0; i < order_n; i++)
        pinned[i] = (uint32_t)(intptr_t)value;
}

int main()
{
    order_check check("host_functions");
    cudaStream_t a, b;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    uint32_t *v = new_array(), *w = new_array();
    uint32_t want = 0;
    MUST(cudaMallocHost(&pinned, order_bytes));
    MUST(cudaDeviceSynchronize());

    /* Kernel, copy to pinned memory, host function that looks at it: in order. */
    for (intptr_t i = 1; i <= 10; i++) {
        step(v, (uint32_t)i, a);
        want = want * 3 + (uint32_t)i;
        if (i % 2 == 0)
            MUST(cudaLaunchHostFunc(a, push, (void *)i));
        else
            MUST(cudaStreamAddCallback(a, callback, (void *)i, 0));
    }
    MUST(cudaStreamSynchronize(a));
    check.is(order.size() == 10, "number of host functions");
    for (size_t i = 0; i < order.size(); i++)
        check.is(order[i] == (int)i + 1, "order of host functions");
    check.all(v, want, "kernels between host functions");

    /* A host function writes what the next copy reads. */
    for (intptr_t i = 1; i <= 8; i++) {
        step(v, (uint32_t)i, a);
        MUST(cudaLaunchHostFunc(a, change_pinned, (void *)(i * 1000)));
        MUST(cudaMemcpyAsync(w, pinned, order_bytes, cudaMemcpyHostToDevice, a));
        join(v, w, a);
        want = (want * 3 + (uint32_t)i) * 3 + (uint32_t)i * 1000;
    }
    MUST(cudaStreamSynchronize(a));
    check.all(v, want, "copies of what host functions wrote");

    /* Stream a stands at a host function that waits for us; b must go on by itself. */
    step(v, 1, a);
    MUST(cudaLaunchHostFunc(a, wait_for_flag, NULL));
    step(v, 2, a);
    want = (want * 3 + 1) * 3 + 2;
    MUST(cudaMemsetAsync(w, 0, order_bytes, b));
    uint32_t want_w = 0;
    for (uint32_t i = 1; i <= 20; i++) {
        step(w, i, b);
        want_w = want_w * 3 + i;
    }
    MUST(cudaStreamSynchronize(b)); /* while a waits */
    check.is(seen == 0, "a still waits");
    check.is(cudaStreamQuery(a) == cudaErrorNotReady, "a is not done");
    flag = 1;
    MUST(cudaStreamSynchronize(a));
    check.is(seen == 1, "a has gone on");
    check.all(v, want, "around a host function that waited");
    check.all(w, want_w, "beside a host function that waited");
    return check.done();
}

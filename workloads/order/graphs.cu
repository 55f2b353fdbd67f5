/* Graphs between other work: captured with fork and join, built by hand, launched again and again, changed in between. */
#include "order.h"

static void push(void *count)
{
    ++*(int *)count;
}

int main()
{
    order_check check("graphs");
    cudaStream_t a, b;
    cudaEvent_t fork, join_event;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
    uint32_t *v = new_array(), *w = new_array(), *x = new_array();
    static int calls;
    uint32_t want = 0;
    MUST(cudaDeviceSynchronize());

    /* Work in front of the capture, in both streams, which is not part of it. */
    for (uint32_t i = 1; i <= 5; i++) {
        step(v, i, a);
        step(x, i, b);
        want = want * 3 + i;
    }
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    step(v, 10, a);
    MUST(cudaEventRecord(fork, a));
    MUST(cudaStreamWaitEvent(b, fork, 0));
    MUST(cudaMemsetAsync(w, 1, order_bytes, b)); /* 0x01010101 */
    step(w, 3, b);
    MUST(cudaEventRecord(join_event, b));
    step(v, 11, a);
    MUST(cudaStreamWaitEvent(a, join_event, 0));
    join(v, w, a);
    MUST(cudaLaunchHostFunc(a, push, &calls));
    step(v, 12, a);
    MUST(cudaStreamEndCapture(a, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    uint32_t in_w = 0x01010101u * 3 + 3;
    auto model = [&](uint32_t y) { return (((y * 3 + 10) * 3 + 11) * 3 + in_w) * 3 + 12; };
    for (uint32_t i = 1; i <= 10; i++) {
        step(v, i, a);
        MUST(cudaGraphLaunch(exec, a));
        want = model(want * 3 + i);
    }
    step(v, 99, a);
    want = want * 3 + 99;
    MUST(cudaStreamSynchronize(a));
    check.all(v, want, "captured graph between kernels");
    check.is(calls == 10, "host function of the graph");
    /* One at a time, until it is known how long it takes; in two streams that wait for each other. */
    for (uint32_t i = 0; i < 60; i++) {
        MUST(cudaGraphLaunch(exec, i % 8 < 6 ? a : b));
        want = model(want);
        if (i % 8 == 5) { /* its launches never overlap, also in two streams */
            MUST(cudaGraphLaunch(exec, b));
            MUST(cudaStreamSynchronize(b));
            want = model(want);
        }
        if (i % 8 >= 6)
            MUST(cudaStreamSynchronize(b));
        else if (i % 3 != 0)
            MUST(cudaStreamSynchronize(a));
    }
    MUST(cudaDeviceSynchronize());
    check.all(v, want, "captured graph, again and again");
    MUST(cudaStreamSynchronize(b)); /* no longer part of the capture */
    step(x, 6, b);
    MUST(cudaStreamSynchronize(b));
    uint32_t want_x = 0;
    for (uint32_t i = 1; i <= 6; i++)
        want_x = want_x * 3 + i;
    check.all(x, want_x, "the stream that had joined");

    /* By hand: clear, two steps one after the other, a copy; then other parameters for one of them. */
    cudaGraph_t made, child;
    cudaGraphNode_t clear, first, second, copy, inner, outer;
    MUST(cudaGraphCreate(&made, 0));
    cudaMemsetParams zero = {};
    zero.dst = v, zero.elementSize = 4, zero.width = order_n, zero.height = 1, zero.value = 7;
    MUST(cudaGraphAddMemsetNode(&clear, made, NULL, 0, &zero));
    int n = order_n, rounds = 30;
    uint32_t k1 = 21, k2 = 22, k3 = 23;
    void *args1[] = {&v, &n, &k1, &rounds}, *args2[] = {&v, &n, &k2, &rounds}, *args3[] = {&v, &n, &k3, &rounds};
    cudaKernelNodeParams p = {};
    p.func = (void *)order_step, p.gridDim = order_blocks, p.blockDim = order_threads, p.kernelParams = args1;
    MUST(cudaGraphAddKernelNode(&first, made, &clear, 1, &p));
    p.kernelParams = args2;
    MUST(cudaGraphAddKernelNode(&second, made, &first, 1, &p));
    MUST(cudaGraphCreate(&child, 0));
    p.kernelParams = args3;
    MUST(cudaGraphAddKernelNode(&inner, child, NULL, 0, &p));
    MUST(cudaGraphAddChildGraphNode(&outer, made, &second, 1, child));
    MUST(cudaGraphAddMemcpyNode1D(&copy, made, &outer, 1, x, v, order_bytes, cudaMemcpyDeviceToDevice));
    cudaGraphExec_t made_exec;
    MUST(cudaGraphInstantiate(&made_exec, made, 0));
    MUST(cudaGraphLaunch(made_exec, a));
    step(v, 1, a);
    MUST(cudaStreamSynchronize(a));
    uint32_t after = ((7 * 3 + 21) * 3 + 22) * 3 + 23;
    check.all(x, after, "graph by hand");
    check.all(v, after * 3 + 1, "kernel behind the graph by hand");
    k2 = 52;
    p.kernelParams = args2;
    MUST(cudaGraphExecKernelNodeSetParams(made_exec, second, &p));
    for (int i = 0; i < 3; i++)
        MUST(cudaGraphLaunch(made_exec, a));
    k2 = 0; /* the parameters were copied */
    MUST(cudaStreamSynchronize(a));
    check.all(x, ((7 * 3 + 21) * 3 + 52) * 3 + 23, "graph with other parameters");
    MUST(cudaGraphExecDestroy(made_exec));
    MUST(cudaGraphDestroy(made));

    /* The whole of it exchanged. */
    cudaGraph_t other;
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    step(v, 31, a);
    step(v, 32, a);
    MUST(cudaStreamEndCapture(a, &other));
    cudaGraphExec_t twice;
    MUST(cudaGraphInstantiate(&twice, other, 0));
    MUST(cudaMemsetAsync(v, 0, order_bytes, a));
    MUST(cudaGraphLaunch(twice, a));
    cudaGraph_t changed;
    MUST(cudaStreamBeginCapture(b, cudaStreamCaptureModeThreadLocal));
    step(v, 41, b);
    step(v, 42, b);
    MUST(cudaStreamEndCapture(b, &changed));
    cudaGraphExecUpdateResultInfo info;
    MUST(cudaGraphExecUpdate(twice, changed, &info));
    MUST(cudaGraphLaunch(twice, a));
    MUST(cudaGraphDestroy(changed)); /* with the launch under way */
    MUST(cudaGraphDestroy(other));
    MUST(cudaGraphExecDestroy(twice));
    MUST(cudaStreamSynchronize(a));
    check.all(v, ((31u * 3 + 32) * 3 + 41) * 3 + 42, "graph that was exchanged");
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    return check.done();
}

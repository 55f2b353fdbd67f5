/* CUDA graphs captured from streams: a fork and a join, copies and memsets among kernels, launched many times, updated. */
#include "check.h"

__global__ void scale(int *v, int n, int by, int plus)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] = v[i] * by + plus;
}

__global__ void combine(int *out, const int *a, const int *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] += a[i] - 2 * b[i];
}

static const int n = 5000;

static void record(cudaStream_t main, cudaStream_t side, cudaEvent_t fork, cudaEvent_t join, int *a, int *b, int *out,
                   int by)
{
    CUDA(cudaStreamBeginCapture(main, cudaStreamCaptureModeThreadLocal));
    CUDA(cudaMemsetAsync(b, 0, n * sizeof(int), main));
    CUDA(cudaEventRecord(fork, main));
    CUDA(cudaStreamWaitEvent(side, fork, 0));
    scale<<<(n + 127) / 128, 128, 0, main>>>(a, n, by, 1);
    scale<<<(n + 127) / 128, 128, 0, side>>>(b, n, 1, 7);
    CUDA(cudaMemcpyAsync(b, a + 100, 10 * sizeof(int), cudaMemcpyDeviceToDevice,
                         main)); /* races with nothing: see below */
    CUDA(cudaEventRecord(join, side));
    CUDA(cudaStreamWaitEvent(main, join, 0));
    combine<<<(n + 127) / 128, 128, 0, main>>>(out + 10, a + 10, b + 10, n - 10);
}

int main()
{
    checker check("graph_capture");
    std::vector<int> start(n), a(n), out(n, 0);
    for (int i = 0; i < n; i++)
        a[i] = start[i] = i - 1000;
    int *da = to_device(start), *db = device_array<int>(n), *dout = to_device(out);
    cudaStream_t main, side;
    cudaEvent_t fork, join;
    CUDA(cudaStreamCreate(&main));
    CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

    cudaGraph_t graph, second;
    cudaGraphExec_t exec;
    size_t nodes = 0;
    record(main, side, fork, join, da, db, dout, 3);
    CUDA(cudaStreamEndCapture(main, &graph));
    CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    check.is(nodes == 5, "number of nodes", nodes);
    check.same(to_host(da, n), start, "value before the launch");
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 10; i++)
        CUDA(cudaGraphLaunch(exec, main));
    CUDA(cudaStreamSynchronize(main));
    /* The first ten values of b are written by both branches, and read by nobody. */
    auto advance = [&](int by) {
        for (int i = 0; i < n; i++) {
            a[i] = (int)((unsigned)a[i] * by + 1);
            if (i >= 10)
                out[i] = (int)((unsigned)out[i] + a[i] - 14);
        }
    };
    for (int i = 0; i < 10; i++)
        advance(3);
    check.same(to_host(da, n), a, "value");
    check.same(to_host(dout, n), out, "result");

    /* The same shape with another number: the instantiated graph is updated, not made anew. */
    cudaGraphExecUpdateResultInfo info;
    record(main, side, fork, join, da, db, dout, 5);
    CUDA(cudaStreamEndCapture(main, &second));
    CUDA(cudaGraphExecUpdate(exec, second, &info));
    check.is(info.result == cudaGraphExecUpdateSuccess, "update");
    CUDA(cudaGraphLaunch(exec, main));
    CUDA(cudaStreamSynchronize(main));
    advance(5);
    check.same(to_host(da, n), a, "value after the update");
    check.same(to_host(dout, n), out, "result after the update");
    CUDA(cudaGraphExecDestroy(exec));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaGraphDestroy(second));
    CUDA(cudaStreamDestroy(main));
    CUDA(cudaStreamDestroy(side));
    return check.done();
}

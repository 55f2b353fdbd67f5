/* Kernels that launch kernels (dynamic parallelism; nvcc -rdc=true): what follows what by the kernel's own streams, events and tail
 * launches, to some depth, in a graph, and what goes wrong.  And graphs that kernels launch: their own again, and others. */
#include "check.h"
#include <algorithm>

enum { THREADS = 64, WORDS = 4096, CUT = 32 };

/* --- order: each step depends on those before it ---------------------------------------------- */

/* From the end: its first blocks meet what the last ones of a kernel before it leave. */
__global__ void step(uint32_t *v, int n, uint32_t factor, uint32_t more)
{
    int i = (gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] = v[i] * factor + more;
}

/* Its last block waits for a while first: what comes behind it without waiting for it is too early. */
__global__ void late_step(uint32_t *v, int n, uint32_t factor, uint32_t more)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; blockIdx.x + 1 == gridDim.x && k < 20000; k++)
        (void)*(volatile uint32_t *)&v[i];
    if (i < n)
        v[i] = v[i] * factor + more;
}

__global__ void sum(const uint32_t *a, const uint32_t *b, uint32_t *out, int n)
{
    int i = (gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a[i] * 3u + b[i];
}

__global__ void in_order(uint32_t *v, int n)
{
    late_step<<<n / THREADS, THREADS>>>(v, n, 3, 1);
    step<<<n / THREADS, THREADS>>>(v, n, 5, 2);
    step<<<n / THREADS, THREADS, 0, cudaStreamTailLaunch>>>(v, n, 11, 4);
    step<<<n / THREADS, THREADS, 0, cudaStreamTailLaunch>>>(v, n, 13, 5);
    late_step<<<n / THREADS, THREADS>>>(v, n, 7, 3);
}

/* Two streams that meet in an event, a third that waits for nothing, and all of it behind the tail. */
__global__ void by_events(uint32_t *a, uint32_t *b, uint32_t *alone, uint32_t *out, int n)
{
    cudaStream_t left, right;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&right, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    late_step<<<n / THREADS, THREADS, 0, left>>>(a, n, 3, 1);
    cudaEventRecord(event, left);
    step<<<n / THREADS, THREADS, 0, right>>>(b, n, 5, 2);
    cudaStreamWaitEvent(right, event, 0);
    sum<<<n / THREADS, THREADS, 0, right>>>(a, b, out, n);
    late_step<<<n / THREADS, THREADS, 0, cudaStreamFireAndForget>>>(alone, n, 7, 3);
    sum<<<n / THREADS, THREADS, 0, cudaStreamTailLaunch>>>(out, alone, out, n);
    cudaEventDestroy(event);
    cudaStreamDestroy(left);
    cudaStreamDestroy(right);
}

__global__ void by_copies(uint32_t *from, uint32_t *to, int n)
{
    late_step<<<n / THREADS, THREADS>>>(from, n, 3, 1);
    cudaMemcpyAsync(to, from, n / 2 * sizeof *to, cudaMemcpyDeviceToDevice, 0);
    cudaMemsetAsync(to + n / 2, 0x21, n / 2 * sizeof *to, 0);
    step<<<n / THREADS, THREADS>>>(to, n, 5, 2);
}

/* --- depth ------------------------------------------------------------------------------------ */

/* Sorts; each half is sorted by a kernel of its own. */
__global__ void quicksort(uint32_t *v, int left, int right)
{
    if (right - left < CUT) {
        for (int i = left + 1; i < right; i++)
            for (int k = i; k > left && v[k - 1] > v[k]; k--) {
                uint32_t x = v[k];
                v[k] = v[k - 1];
                v[k - 1] = x;
            }
        return;
    }
    uint32_t pivot = v[left + (right - left) / 2];
    int i = left, k = right - 1;
    while (i <= k) {
        while (v[i] < pivot)
            i++;
        while (v[k] > pivot)
            k--;
        if (i <= k) {
            uint32_t x = v[i];
            v[i++] = v[k];
            v[k--] = x;
        }
    }
    cudaStream_t other;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    quicksort<<<1, 1>>>(v, left, k + 1);
    quicksort<<<1, 1, 0, other>>>(v, i, right);
    cudaStreamDestroy(other);
}

/* Every thread of every grid launches one grid of the next level. */
__global__ void tree(uint32_t *counts, int level, int levels)
{
    atomicAdd(&counts[level], 1);
    if (level + 1 < levels)
        tree<<<1, 3, 0, cudaStreamFireAndForget>>>(counts, level + 1, levels);
}

/* Each launches the next one at its end, until that is refused. */
__global__ void deeper(uint32_t *reached, uint32_t *error, int level)
{
    *reached = level;
    deeper<<<1, 1>>>(reached, error, level + 1);
    cudaError_t e = cudaGetLastError();
    if (e != cudaSuccess)
        *error = e;
}

/* --- graphs ----------------------------------------------------------------------------------- */

/* The last of a graph's kernels: has it launched again, behind itself, until that was so often. */
__global__ void repeat(uint32_t *rounds, uint32_t most)
{
    if (++*rounds < most)
        cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
}

__global__ void launch_graphs(cudaGraphExec_t now, cudaGraphExec_t last, uint32_t *errors)
{
    errors[0] = cudaGraphLaunch(last, cudaStreamGraphTailLaunch);
    errors[1] = cudaGraphLaunch(now, cudaStreamGraphFireAndForget);
}

/* --- what goes wrong -------------------------------------------------------------------------- */

__global__ void mistakes(uint32_t *errors, uint32_t *v)
{
    int t = threadIdx.x;
    if (t % 2 == 0)
        step<<<1, 4096>>>(v, 1, 2, 0); /* more threads than a block may have */
    errors[t] = cudaPeekAtLastError() * 1000 + cudaGetLastError();
    errors[t] += cudaGetLastError() == cudaSuccess ? 100000 : 0;
    if (t == 0) {
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaStreamDestroy(stream);
        errors[32] = cudaStreamDestroy(stream) != cudaSuccess;
    }
}

template <typename F> static cudaGraphExec_t graph_of(unsigned flags, F work)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    work(stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, flags));
    if (flags & cudaGraphInstantiateFlagDeviceLaunch)
        CUDA(cudaGraphUpload(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
    return exec;
}

static std::vector<uint32_t> numbers(int n, uint32_t seed)
{
    std::vector<uint32_t> v(n);
    struct sequence s = {seed};
    for (uint32_t &x : v)
        x = s.next();
    return v;
}

int main()
{
    checker check("nested");
    const int n = WORDS;
    std::vector<uint32_t> a = numbers(n, 1), b = numbers(n, 2), c = numbers(n, 3), want(n);
    auto steps = [](uint32_t x) { return (((x * 3 + 1) * 5 + 2) * 7 + 3) * 143 + 57; };

    uint32_t *d = to_device(a);
    in_order<<<1, 1>>>(d, n);
    step<<<n / THREADS, THREADS>>>(d, n, 17, 6); /* behind all of it */
    FINISH();
    for (int i = 0; i < n; i++)
        want[i] = steps(a[i]) * 17 + 6;
    check.same(to_host(d, n), want, "order");

    uint32_t *da = to_device(a), *db = to_device(b), *dc = to_device(c), *out = device_array<uint32_t>(n);
    by_events<<<1, 1>>>(da, db, dc, out, n);
    FINISH();
    for (int i = 0; i < n; i++)
        want[i] = ((a[i] * 3 + 1) * 3 + (b[i] * 5 + 2)) * 3 + (c[i] * 7 + 3);
    check.same(to_host(out, n), want, "events");

    uint32_t *from = to_device(b);
    by_copies<<<1, 1>>>(from, out, n);
    FINISH();
    for (int i = 0; i < n; i++)
        want[i] = (i < n / 2 ? b[i] * 3 + 1 : 0x21212121u) * 5 + 2;
    check.same(to_host(out, n), want, "copies");

    /* A graph of it, more than once. */
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaMemcpy(d, a.data(), n * sizeof *d, cudaMemcpyHostToDevice));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    in_order<<<1, 1, 0, stream>>>(d, n);
    step<<<n / THREADS, THREADS, 0, stream>>>(d, n, 17, 6);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int k = 0; k < 3; k++)
        CUDA(cudaGraphLaunch(exec, stream));
    FINISH();
    for (int i = 0; i < n; i++) {
        want[i] = a[i];
        for (int k = 0; k < 3; k++)
            want[i] = steps(want[i]) * 17 + 6;
    }
    check.same(to_host(d, n), want, "graph");

    CUDA(cudaMemcpy(d, c.data(), n * sizeof *d, cudaMemcpyHostToDevice));
    quicksort<<<1, 1>>>(d, 0, n);
    FINISH();
    want = c;
    std::sort(want.begin(), want.end());
    check.same(to_host(d, n), want, "sorted");

    const int levels = 6;
    uint32_t *counts = to_device(std::vector<uint32_t>(levels));
    tree<<<1, 3>>>(counts, 0, levels);
    FINISH();
    uint32_t threads = 3;
    want.assign(levels, 0);
    for (uint32_t &x : want) {
        x = threads;
        threads *= 3;
    }
    check.same(to_host(counts, levels), want, "tree");

    uint32_t *depth = to_device(std::vector<uint32_t>(2));
    deeper<<<1, 1>>>(depth, depth + 1, 0);
    FINISH();
    check.same(to_host(depth, 2), {24, cudaErrorLaunchMaxDepthExceeded}, "depth");

    const uint32_t rounds = 7;
    want.resize(n);
    uint32_t *round = to_device(std::vector<uint32_t>(1));
    CUDA(cudaMemcpy(d, a.data(), n * sizeof *d, cudaMemcpyHostToDevice));
    cudaGraphExec_t loop = graph_of(cudaGraphInstantiateFlagDeviceLaunch, [&](cudaStream_t s) {
        late_step<<<n / THREADS, THREADS, 0, s>>>(d, n, 3, 1);
        step<<<n / THREADS, THREADS, 0, s>>>(d, n, 5, 2);
        repeat<<<1, 1, 0, s>>>(round, rounds);
    });
    CUDA(cudaGraphLaunch(loop, 0));
    step<<<n / THREADS, THREADS>>>(d, n, 17, 6);
    FINISH();
    for (int i = 0; i < n; i++) {
        want[i] = a[i];
        for (uint32_t k = 0; k < rounds; k++)
            want[i] = (want[i] * 3 + 1) * 5 + 2;
        want[i] = want[i] * 17 + 6;
    }
    check.same(to_host(d, n), want, "loop");

    uint32_t *said = to_device(std::vector<uint32_t>(2, 1));
    CUDA(cudaMemcpy(d, b.data(), n * sizeof *d, cudaMemcpyHostToDevice));
    cudaGraphExec_t now = graph_of(cudaGraphInstantiateFlagDeviceLaunch,
                                   [&](cudaStream_t s) { late_step<<<n / THREADS, THREADS, 0, s>>>(d, n, 3, 1); });
    cudaGraphExec_t last =
        graph_of(cudaGraphInstantiateFlagDeviceLaunch, [&](cudaStream_t s) { step<<<n / THREADS, THREADS, 0, s>>>(d, n, 5, 2); });
    cudaGraphExec_t both = graph_of(0, [&](cudaStream_t s) { launch_graphs<<<1, 1, 0, s>>>(now, last, said); });
    for (int k = 0; k < 3; k++)
        CUDA(cudaGraphLaunch(both, 0));
    FINISH();
    for (int i = 0; i < n; i++) {
        want[i] = b[i];
        for (int k = 0; k < 3; k++)
            want[i] = (want[i] * 3 + 1) * 5 + 2;
    }
    check.same(to_host(d, n), want, "graphs");
    check.same(to_host(said, 2), {0, 0}, "errors of graphs");

    uint32_t *errors = to_device(std::vector<uint32_t>(33));
    mistakes<<<1, 32>>>(errors, d);
    FINISH();
    want.assign(33, 100000);
    for (int i = 0; i < 32; i += 2)
        want[i] = 100000 + cudaErrorInvalidConfiguration * 1001;
    want[32] = 1;
    check.same(to_host(errors, 33), want, "mistakes");
    return check.done();
}

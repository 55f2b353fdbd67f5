/* Streams and events: results that depend on the order in which kernels, copies and host functions run. */
#include "check.h"

__global__ void affine(unsigned *v, int n, unsigned by, unsigned plus)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] = v[i] * by + plus; /* does not commute: another order gives another value */
}

/* Long enough that whoever does not wait for it comes too early. */
__global__ void slowly(unsigned *v, int n, unsigned plus)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = v[i];
    for (int k = 0; k < 20000; k++)
        x = x * 1664525u + 1013904223u;
    v[i] = x + plus;
}

static unsigned slow(unsigned x, unsigned plus)
{
    for (int k = 0; k < 20000; k++)
        x = x * 1664525u + 1013904223u;
    return x + plus;
}

static void CUDART_CB triple(void *p)
{
    *(unsigned *)p *= 3;
}

int main()
{
    checker check("streams");
    const int n = 4096, streams = 4;
    cudaStream_t s[streams], free_stream;
    cudaEvent_t done[streams], begin, end;
    for (int i = 0; i < streams; i++) {
        CUDA(cudaStreamCreateWithPriority(&s[i], cudaStreamDefault, -(i % 2)));
        CUDA(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
    }
    CUDA(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));

    /* A relay through all streams: each waits for the one before. */
    std::vector<unsigned> v(n), want(n);
    for (int i = 0; i < n; i++)
        v[i] = want[i] = (unsigned)i * 40503u;
    unsigned *d = to_device(v);
    CUDA(cudaEventRecord(begin, s[0]));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < streams; i++) {
            if (round + i > 0)
                CUDA(cudaStreamWaitEvent(s[i], done[(i + streams - 1) % streams], 0));
            if (i == 1)
                slowly<<<n / 256, 256, 0, s[i]>>>(d, n, (unsigned)round);
            else
                affine<<<n / 128, 128, 0, s[i]>>>(d, n, 2u * (unsigned)i + 3u, (unsigned)round + 1u);
            CUDA(cudaEventRecord(done[i], s[i]));
        }
        for (unsigned &x : want)
            x = (slow(x * 3u + (unsigned)round + 1u, (unsigned)round) * 7u + (unsigned)round + 1u) * 9u +
                (unsigned)round + 1u;
    }
    CUDA(cudaEventRecord(end, s[streams - 1]));
    CUDA(cudaEventSynchronize(end));
    float ms = -1;
    CUDA(cudaEventElapsedTime(&ms, begin, end));
    check.is(ms > 0 && ms < 60000, "elapsed time");
    check.is(cudaEventQuery(end) == cudaSuccess, "query");
    check.same(to_host(d, n), want, "value of the relay");

    /* The legacy default stream waits for the others and they for it. */
    slowly<<<n / 256, 256, 0, s[0]>>>(d, n, 1);
    affine<<<n / 128, 128>>>(d, n, 5, 6);
    affine<<<n / 128, 128, 0, s[1]>>>(d, n, 7, 8);
    CUDA(cudaDeviceSynchronize());
    for (unsigned &x : want)
        x = (slow(x, 1) * 5 + 6) * 7 + 8;
    check.same(to_host(d, n), want, "value through the default stream");

    /* Copies and host functions keep their place among kernels of a stream. */
    unsigned *pinned;
    CUDA(cudaMallocHost(&pinned, 2 * sizeof(unsigned)));
    pinned[0] = 11;
    pinned[1] = 0;
    slowly<<<n / 256, 256, 0, free_stream>>>(d, n, 2);
    CUDA(cudaLaunchHostFunc(free_stream, triple, pinned));
    CUDA(cudaMemcpyAsync(d, pinned, sizeof(unsigned), cudaMemcpyHostToDevice, free_stream));
    affine<<<n / 128, 128, 0, free_stream>>>(d, n, 2, 1);
    CUDA(cudaMemcpyAsync(pinned + 1, d, sizeof(unsigned), cudaMemcpyDeviceToHost, free_stream));
    CUDA(cudaStreamSynchronize(free_stream));
    check.is(pinned[1] == 33 * 2 + 1, "value through host and device", pinned[1]);
    for (int i = 0; i < n; i++)
        want[i] = i == 0 ? 67 : slow(want[i], 2) * 2 + 1;
    check.same(to_host(d, n), want, "value in the free stream");

    /* Memory that belongs to a stream's order. */
    unsigned *temporary;
    CUDA(cudaMallocAsync(&temporary, n * sizeof(unsigned), s[2]));
    CUDA(cudaMemcpyAsync(temporary, d, n * sizeof(unsigned), cudaMemcpyDeviceToDevice, s[2]));
    affine<<<n / 128, 128, 0, s[2]>>>(temporary, n, 3, 0);
    CUDA(cudaMemcpyAsync(d, temporary, n * sizeof(unsigned), cudaMemcpyDeviceToDevice, s[2]));
    CUDA(cudaFreeAsync(temporary, s[2]));
    CUDA(cudaStreamSynchronize(s[2]));
    for (unsigned &x : want)
        x *= 3;
    check.same(to_host(d, n), want, "value through memory of the stream");
    check.is(cudaStreamQuery(s[2]) == cudaSuccess, "stream query");
    return check.done();
}

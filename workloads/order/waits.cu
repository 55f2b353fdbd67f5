/* Kernels whose blocks wait for blocks with higher numbers.  No CUDA program may count on that: a grid need not fit on the device at
 * once.  But every GPU begins blocks in ascending order, so these end wherever a few blocks fit side by side, and such programs
 * exist.
 *
 *     waits [TIMES [KERNEL [BLOCKS]]]      of KERNEL 0, 1 or 2 only; -1: all; -2: graphs only.  BLOCKS is a multiple
 *                                      of four */
#include "order.h"

enum { THREADS = 64, GROUP = 4 };

static __device__ void post(uint32_t *posted, unsigned block, uint32_t k)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        *(volatile uint32_t *)&posted[block] = k;
}

static __device__ void wait_for(uint32_t *posted, unsigned block, uint32_t k)
{
    if (threadIdx.x == 0) {
        while (*(volatile uint32_t *)&posted[block] < k) {}
    }
    __syncthreads();
}

static __device__ uint32_t busy(uint32_t x, int rounds)
{
    for (int r = 0; r < rounds; r++)
        x = x * 1664525u + 1013904223u;
    return x == 0x12345678u && rounds < 0;
}

/* Each even block waits for the one behind it. */
static __global__ void pairs(uint32_t *v, uint32_t *posted, uint32_t k, int rounds)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    v[i] = v[i] * 3u + k + busy(v[i], rounds);
    post(posted, blockIdx.x, k);
    if (blockIdx.x % 2 == 0)
        wait_for(posted, blockIdx.x + 1, k);
}

/* Each block goes on when the next has begun. */
static __global__ void hand_in_hand(uint32_t *v, uint32_t *posted, uint32_t k, int rounds)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    post(posted, blockIdx.x, k);
    if (blockIdx.x + 1 < gridDim.x)
        wait_for(posted, blockIdx.x + 1, k);
    v[i] = v[i] * 3u + k + busy(v[i], rounds);
}

/* A token goes from the last block of each group to its first. */
static __global__ void token(uint32_t *v, uint32_t *posted, uint32_t k, int rounds)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    v[i] = v[i] * 3u + busy(v[i], rounds);
    if (blockIdx.x % GROUP != GROUP - 1)
        wait_for(posted, blockIdx.x + 1, k);
    v[i] += k;
    post(posted, blockIdx.x, k);
}

typedef void kernel(uint32_t *, uint32_t *, uint32_t, int);

static uint32_t *v, *posted;
static unsigned blocks = 96;
static uint32_t number, want;

static void launch(kernel *f, cudaStream_t s)
{
    number++;
    f<<<blocks, THREADS, 0, s>>>(v, posted, number, 4000);
    want = want * 3 + number;
}

static bool all_are(uint32_t value)
{
    std::vector<uint32_t> host(blocks * THREADS);
    MUST(cudaMemcpy(host.data(), v, host.size() * sizeof host[0], cudaMemcpyDeviceToHost));
    for (uint32_t x : host) {
        if (x != value)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    order_check check("waits");
    int times = argc > 1 ? atoi(argv[1]) : 10, only = argc > 2 ? atoi(argv[2]) : -1;
    blocks = argc > 3 ? (unsigned)atoi(argv[3]) : blocks;
    kernel *kernels[] = {pairs, hand_in_hand, token};
    const char *names[] = {"pairs", "hand in hand", "token"};
    cudaStream_t s;
    MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    MUST(cudaMalloc(&v, blocks * THREADS * sizeof *v));
    MUST(cudaMalloc(&posted, blocks * sizeof *posted));
    MUST(cudaMemset(v, 0, blocks * THREADS * sizeof *v));
    MUST(cudaMemset(posted, 0, blocks * sizeof *posted));
    for (int f = 0; f < 3; f++) {
        if (only != -1 && f != only)
            continue;
        for (int i = 0; i < times; i++) {
            for (int chained = 0; chained < 4; chained++)
                launch(kernels[f], s);
            MUST(cudaStreamSynchronize(s));
        }
        check.is(all_are(want), names[f]);
    }
    for (int i = 0; i < times && only == -1; i++) { /* one behind the other, each of another kind */
        for (kernel *f : kernels)
            launch(f, s);
    }
    MUST(cudaStreamSynchronize(s));
    check.is(all_are(want), "all in turn");

    /* The same from a graph: the numbers must grow, so each launch has a graph of its own. */
    for (int i = 0; i < times && only < 0; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
        for (kernel *f : kernels)
            launch(f, s);
        MUST(cudaStreamEndCapture(s, &graph));
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, s));
        MUST(cudaStreamSynchronize(s));
        MUST(cudaGraphExecDestroy(exec));
        MUST(cudaGraphDestroy(graph));
    }
    check.is(all_are(want), "graphs");
    return check.done();
}

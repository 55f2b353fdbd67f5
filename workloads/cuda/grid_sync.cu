/* Cooperative groups: all blocks of a grid wait for each other, tiles inside a block reduce and shuffle. */
#include "check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

/* Each round, thread i takes the value of its right neighbour in the ring and adds its own number: wrong if any block
 * runs ahead of another by a round. */
__global__ void ring(unsigned *a, unsigned *b, int rounds)
{
    cg::grid_group grid = cg::this_grid();
    unsigned n = (unsigned)grid.size(), i = (unsigned)grid.thread_rank();
    for (int r = 0; r < rounds; r++) {
        b[i] = a[(i + 1) % n] * 3 + i;
        grid.sync();
        unsigned *kept = a;
        a = b;
        b = kept;
    }
}

__global__ void tiles(int *out, const int *in)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> eight = cg::tiled_partition<8>(block);
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int v = in[block.group_index().x * block.size() + block.thread_rank()];
    int sum8 = cg::reduce(eight, v, cg::plus<int>()), most = cg::reduce(warp, v, cg::greater<int>());
    int next = eight.shfl(v, (eight.thread_rank() + 1) % 8), odd = 0;
    if (v & 1) {
        cg::coalesced_group active = cg::coalesced_threads();
        odd = (int)active.size() * 100 + (int)active.thread_rank();
    }
    block.sync();
    int *to = out + 4 * (block.group_index().x * block.size() + block.thread_rank());
    to[0] = sum8;
    to[1] = most;
    to[2] = next;
    to[3] = odd;
}

int main()
{
    checker check("grid_sync");
    int device = 0, cooperative = 0, processors = 0, each = 0;
    CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
    CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    check.is(cooperative == 1, "cooperative launch attribute");
    for (int threads : {32, 96, 256}) {
        CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, ring, threads, 0));
        int blocks = each * processors < 24 ? each * processors : 24, rounds = 20;
        unsigned n = (unsigned)(blocks * threads);
        std::vector<unsigned> a(n), b(n);
        for (unsigned i = 0; i < n; i++)
            a[i] = i * i + 1;
        unsigned *da = to_device(a), *db = device_array<unsigned>(n);
        void *arguments[] = {&da, &db, &rounds};
        CUDA(cudaLaunchCooperativeKernel((void *)ring, dim3(blocks), dim3(threads), arguments, 0, NULL));
        FINISH();
        for (int r = 0; r < rounds; r++) {
            for (unsigned i = 0; i < n; i++)
                b[i] = a[(i + 1) % n] * 3 + i;
            a.swap(b);
        }
        check.same(to_host(da, n), a, "value in the ring"); /* rounds is even, so the result is in a */
    }
    int rounds = 2;
    unsigned *none = NULL;
    void *arguments[] = {&none, &none, &rounds};
    cudaError_t error = cudaLaunchCooperativeKernel((void *)ring, dim3(1000000), dim3(256), arguments, 0, NULL);
    check.is(error == cudaErrorCooperativeLaunchTooLarge, "refusal of a grid that does not fit");
    cudaGetLastError();

    const int blocks = 5, threads = 64, n = blocks * threads;
    std::vector<int> v(n), want(4 * n);
    struct sequence s = {31};
    for (int &x : v)
        x = (int)(s.next() % 1000) - 500;
    for (int i = 0; i < n; i++) {
        int first = i / 32 * 32, odd = 0, before = 0, eight = i / 8 * 8;
        want[4 * i + 1] = INT_MIN;
        for (int j = eight; j < eight + 8; j++)
            want[4 * i] += v[j];
        for (int j = first; j < first + 32; j++) {
            want[4 * i + 1] = v[j] > want[4 * i + 1] ? v[j] : want[4 * i + 1];
            odd += v[j] & 1;
            before += j < i && (v[j] & 1);
        }
        want[4 * i + 2] = v[eight + (i + 1) % 8];
        want[4 * i + 3] = v[i] & 1 ? odd * 100 + before : 0;
    }
    int *in = to_device(v), *out = device_array<int>(4 * n);
    tiles<<<blocks, threads>>>(out, in);
    FINISH();
    check.same(to_host(out, 4 * n), want, "value of a tile");
    return check.done();
}

/* A prefix sum in one pass, with decoupled look-back (Merrill and Garland 2016): blocks take tickets, publish their sum,
 * and wait for what the blocks before them publish.  It needs that a block with a ticket makes progress. */
#include "check.h"

#define THREADS 128
#define EACH 4

enum { NOTHING, OWN_SUM, PREFIX };

/* State and value in one word, so that they become visible together. */
__device__ unsigned long long published[4096];
__device__ unsigned tickets;

__global__ void scan(unsigned *out, const unsigned *in, int n)
{
    __shared__ unsigned ticket, before, warps[THREADS / 32];
    if (threadIdx.x == 0)
        ticket = atomicAdd(&tickets, 1);
    __syncthreads();
    int base = ticket * THREADS * EACH + threadIdx.x * EACH, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned v[EACH], sum = 0;
    for (int i = 0; i < EACH; i++)
        v[i] = sum += base + i < n ? in[base + i] : 0;
    unsigned inclusive = sum;
    for (int step = 1; step < 32; step *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (lane >= step)
            inclusive += other;
    }
    if (lane == 31)
        warps[warp] = inclusive;
    __syncthreads();
    unsigned offset = inclusive - sum, total = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        offset += w < warp ? warps[w] : 0;
        total += warps[w];
    }
    if (threadIdx.x == 0) {
        volatile unsigned long long *words = published;
        unsigned sofar = 0;
        if (ticket > 0) {
            words[ticket] = (unsigned long long)OWN_SUM << 32 | total;
            for (int other = (int)ticket - 1; other >= 0;) {
                unsigned long long word = words[other];
                if (word >> 32 == NOTHING)
                    continue;
                sofar += (unsigned)word;
                if (word >> 32 == PREFIX)
                    break;
                other--;
            }
        }
        words[ticket] = (unsigned long long)PREFIX << 32 | (unsigned)(sofar + total);
        before = sofar;
    }
    __syncthreads();
    for (int i = 0; i < EACH; i++) {
        if (base + i < n)
            out[base + i] = before + offset + v[i];
    }
}

int main()
{
    checker check("scan_lookback");
    for (int n : {1, 512, 513, 300007}) {
        std::vector<unsigned> v(n), want(n);
        struct sequence s = {8};
        unsigned sum = 0;
        for (int i = 0; i < n; i++) {
            v[i] = s.next() % 1000;
            want[i] = sum += v[i];
        }
        unsigned *in = to_device(v), *out = device_array<unsigned>(n), zero = 0;
        std::vector<unsigned long long> none(4096, 0);
        CUDA(cudaMemcpyToSymbol(published, none.data(), none.size() * sizeof(none[0])));
        CUDA(cudaMemcpyToSymbol(tickets, &zero, sizeof(zero)));
        scan<<<(n + THREADS * EACH - 1) / (THREADS * EACH), THREADS>>>(out, in, n);
        FINISH();
        check.same(to_host(out, n), want, "prefix sum");
        CUDA(cudaFree(in));
        CUDA(cudaFree(out));
    }
    return check.done();
}

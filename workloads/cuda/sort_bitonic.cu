/* Bitonic sort of pieces in shared memory, and of one long array across blocks with the wide steps in global memory. */
#include "check.h"

#define PIECE 512

__global__ void sort_pieces(unsigned *v, int alternate)
{
    __shared__ unsigned s[PIECE];
    unsigned *piece = v + blockIdx.x * PIECE;
    s[threadIdx.x] = piece[threadIdx.x];
    s[threadIdx.x + PIECE / 2] = piece[threadIdx.x + PIECE / 2];
    for (unsigned size = 2; size <= PIECE; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            unsigned at = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
            bool up = size == PIECE ? !(alternate && blockIdx.x % 2 == 1) : (threadIdx.x & (size / 2)) == 0;
            unsigned a = s[at], b = s[at + stride];
            if ((a > b) == up) {
                s[at] = b;
                s[at + stride] = a;
            }
        }
    }
    __syncthreads();
    piece[threadIdx.x] = s[threadIdx.x];
    piece[threadIdx.x + PIECE / 2] = s[threadIdx.x + PIECE / 2];
}

__global__ void merge_step(unsigned *v, unsigned size, unsigned stride)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x, at = 2 * t - (t & (stride - 1));
    bool up = (at & size) == 0;
    unsigned a = v[at], b = v[at + stride];
    if ((a > b) == up) {
        v[at] = b;
        v[at + stride] = a;
    }
}

static int compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return x < y ? -1 : x > y;
}

int main()
{
    checker check("sort_bitonic");
    const int n = PIECE * 32;
    std::vector<unsigned> v(n);
    struct sequence s = {29};
    for (unsigned &x : v)
        x = s.next() >> (s.next() % 3 * 8);
    unsigned *d = to_device(v);
    sort_pieces<<<n / PIECE, PIECE / 2>>>(d, 0);
    FINISH();
    std::vector<unsigned> want = v;
    for (int i = 0; i < n; i += PIECE)
        qsort(&want[i], PIECE, sizeof(unsigned), compare);
    check.same(to_host(d, n), want, "piece");

    CUDA(cudaMemcpy(d, v.data(), n * sizeof(unsigned), cudaMemcpyHostToDevice));
    sort_pieces<<<n / PIECE, PIECE / 2>>>(d, 1);
    for (unsigned size = 2 * PIECE; size <= n; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2)
            merge_step<<<n / 256, 128>>>(d, size, stride);
    }
    FINISH();
    want = v;
    qsort(want.data(), n, sizeof(unsigned), compare);
    check.same(to_host(d, n), want, "whole");
    return check.done();
}

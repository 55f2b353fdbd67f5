/* Places made of bits of the thread's number, as products of matrices have them: masks with holes, swizzles by xor, parts put
 * together by or, shifts that leave one number for a warp or for several.  Each formula is compiled for the host as well. */
#include "check.h"

enum { FORMULAS = 10, WORDS = 1024 };

__host__ __device__ static unsigned place(int formula, unsigned t, unsigned x, unsigned y)
{
    switch (formula) {
    case 0:
        return t & 24u;
    case 1:
        return ((t & 31u) >> 3) * 64u + (t & 7u) * 4u;
    case 2:
        return (t & 992u) | ((t & 31u) ^ 5u);
    case 3:
        return ((t & 7u) ^ (t >> 3 & 7u)) * 4u + (t >> 6);
    case 4:
        return t >> 7;
    case 5:
        return (t >> 5) * 8u + ((t >> 2) & 1u);
    case 6:
        return (t & 0x3ffe0u) | (t & 15u);
    case 7:
        return (x & 6u) | (y & 1u) | 256u;
    case 8:
        return ((y * 16u + x) ^ 21u) & 511u;
    default:
        return ((t ^ 511u) & 255u) | ((t & 1u) << 9);
    }
}

__global__ void look_up(float *out, float *spread, const float *in, int rounds)
{
    __shared__ float table[WORDS];
    unsigned x = threadIdx.x, y = threadIdx.y, t = y * blockDim.x + x, n = blockDim.x * blockDim.y;
    for (unsigned i = t; i < WORDS; i += n)
        table[i] = in[i];
    __syncthreads();
    float sums[FORMULAS] = {};
    for (int k = 0; k < rounds; k++) {
#pragma unroll
        for (int f = 0; f < FORMULAS; f++)
            sums[f] += table[place(f, t, x, y) + k];
        if (t % 3 == 1)
            sums[1] -= table[place(6, t, x, y) ^ (unsigned)k];
    }
#pragma unroll
    for (int f = 0; f < FORMULAS; f++)
        out[f * n + t] = sums[f];
    spread[place(2, t, x, y)] = sums[2]; /* a place for each thread */
}

/* A tile turned round through shared memory, round after round; a place in memory that was 64 bits wide before. */
__global__ void turn_round(float *out, const float *in, unsigned long long first, int rounds)
{
    __shared__ float tile[16 * 34];
    unsigned t = threadIdx.y * blockDim.x + threadIdx.x, n = blockDim.x * blockDim.y;
    int at = (int)(first + (t >> 4) * 16ull + (t & 15));
    for (int k = 0; k < rounds; k++) {
        float x = in[at];
        __syncthreads();
        tile[(t & 15) * 34 + (t >> 4)] = x;
        __syncthreads();
        out[k * n + t] = tile[(n - 1 - t & 15) * 34 + (n - 1 - t >> 4)];
        at += 16;
    }
}

int main()
{
    checker check("lane_bits");
    const int rounds = 6;
    std::vector<float> in(WORDS);
    struct sequence s = {77};
    for (float &x : in)
        x = (float)(s.next() % 1024); /* sums are exact */
    float *din = to_device(in);
    for (dim3 shape :
         {dim3(256), dim3(96), dim3(512), dim3(16, 16), dim3(8, 8), dim3(32, 4), dim3(64, 2), dim3(48), dim3(12, 5)}) {
        unsigned n = shape.x * shape.y;
        std::vector<float> want(FORMULAS * n), spread(WORDS, -1.0f);
        for (unsigned t = 0; t < n; t++) {
            unsigned x = t % shape.x, y = t / shape.x;
            for (int k = 0; k < rounds; k++) {
                for (int f = 0; f < FORMULAS; f++)
                    want[f * n + t] += in[place(f, t, x, y) + k];
                if (t % 3 == 1)
                    want[n + t] -= in[place(6, t, x, y) ^ (unsigned)k];
            }
            spread[place(2, t, x, y)] = want[2 * n + t];
        }
        float *out = device_array<float>(want.size()), *places = to_device(std::vector<float>(WORDS, -1.0f));
        look_up<<<1, shape>>>(out, places, din, rounds);
        FINISH();
        check.same(to_host(out, want.size()), want, "sum");
        check.same(to_host(places, WORDS), spread, "stored");
        float *turned = device_array<float>(rounds * n);
        turn_round<<<1, shape>>>(turned, din, 5, rounds);
        FINISH();
        std::vector<float> back(rounds * n);
        for (unsigned i = 0; i < back.size(); i++)
            back[i] = in[5 + i / n * 16 + (n - 1 - i % n)];
        check.same(to_host(turned, back.size()), back, "turned");
    }
    return check.done();
}

/* Attention in f32, a small flash attention: a warp per query, keys and values in tiles of shared memory, the running
 * maximum and sum corrected from tile to tile; with and without the causal mask. */
#include "check.h"

#define DIM 64
#define TILE 32
#define WARPS 4

__global__ void attention(float *out, const float *q, const float *k, const float *v, int length, float scale,
                          int causal)
{
    __shared__ float ks[TILE][DIM + 1], vs[TILE][DIM];
    int lane = threadIdx.x % 32, query = blockIdx.x * WARPS + threadIdx.x / 32;
    size_t head = (size_t)blockIdx.y * length * DIM;
    float largest = -INFINITY, sum = 0, acc0 = 0, acc1 = 0;
    float q0 = 0, q1 = 0;
    if (query < length) {
        q0 = q[head + query * DIM + lane];
        q1 = q[head + query * DIM + lane + 32];
    }
    for (int tile = 0; tile < length; tile += TILE) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DIM; i += blockDim.x) {
            int row = i / DIM, column = i % DIM;
            ks[row][column] = tile + row < length ? k[head + (tile + row) * DIM + column] : 0;
            vs[row][column] = tile + row < length ? v[head + (tile + row) * DIM + column] : 0;
        }
        __syncthreads();
        float score = 0; /* of this lane's key */
        for (int d = 0; d < 32; d++) {
            score += __shfl_sync(0xffffffffu, q0, d) * ks[lane][d];
            score += __shfl_sync(0xffffffffu, q1, d) * ks[lane][d + 32];
        }
        int key = tile + lane;
        score = key < length && (!causal || key <= query) ? score * scale : -INFINITY;
        float best = score;
        for (int step = 16; step > 0; step /= 2)
            best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, step));
        best = fmaxf(best, largest);
        float weight = best == -INFINITY ? 0 : expf(score - best),
              old = largest == -INFINITY ? 0 : expf(largest - best);
        float total = weight;
        for (int step = 16; step > 0; step /= 2)
            total += __shfl_xor_sync(0xffffffffu, total, step);
        sum = sum * old + total;
        acc0 *= old;
        acc1 *= old;
        for (int j = 0; j < TILE; j++) {
            float w = __shfl_sync(0xffffffffu, weight, j);
            acc0 += w * vs[j][lane];
            acc1 += w * vs[j][lane + 32];
        }
        largest = best;
    }
    if (query < length) {
        out[head + query * DIM + lane] = acc0 / sum;
        out[head + query * DIM + lane + 32] = acc1 / sum;
    }
}

int main()
{
    checker check("attention");
    const int heads = 2;
    for (int length : {32, 77}) {
        size_t n = (size_t)heads * length * DIM;
        std::vector<float> q = random_floats(n, 20), k = random_floats(n, 21), v = random_floats(n, 22);
        float *dq = to_device(q), *dk = to_device(k), *dv = to_device(v), *dout = device_array<float>(n);
        const double scale = 0.5;
        for (int causal : {0, 1}) {
            attention<<<dim3((length + WARPS - 1) / WARPS, heads), 32 * WARPS>>>(dout, dq, dk, dv, length, (float)scale,
                                                                                 causal);
            FINISH();
            std::vector<float> out = to_host(dout, n);
            for (int row = 0; row < heads * length; row++) {
                int first = row / length * length, last = causal ? row : first + length - 1;
                std::vector<double> want(DIM, 0.0);
                double sum = 0;
                for (int key = first; key <= last; key++) {
                    double score = 0;
                    for (int d = 0; d < DIM; d++)
                        score += (double)q[row * DIM + d] * k[key * DIM + d];
                    double weight = exp(score * scale);
                    sum += weight;
                    for (int d = 0; d < DIM; d++)
                        want[d] += weight * v[key * DIM + d];
                }
                /* Scores near 10 with some 64 roundings, taken to the exponent: 1e-4 relative is ample. */
                for (int d = 0; d < DIM; d++)
                    check.near(out[row * DIM + d], want[d] / sum, 1e-4, causal ? "causal value" : "value",
                               row * DIM + d);
            }
        }
    }
    return check.done();
}

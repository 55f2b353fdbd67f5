/* More sums per thread than a processor has registers, as in products of matrices, with all that may keep a multiply-add from being
 * done later: a sum that is stored, copied, started anew or taken as a factor half-way, and threads that take part or do not.
 * Results must have the bits that the order of the program gives them. */
#include "check.h"

enum { SIDE = 8, STEPS = 8, ROUNDS = 5, THREADS = 64, SUMS = SIDE * SIDE, FACTORS = ROUNDS * STEPS * SIDE };

/* One round: STEPS times SIDE x SIDE products.  `seen` gets what a sum is on the way. */
__host__ __device__ static inline void add(float sum[SIDE][SIDE], const float *a, const float *b, float *seen)
{
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] = fmaf(a[k * SIDE + i], b[k * SIDE + j], sum[i][j]);
        }
        if (k == 2)
            *seen = sum[4][4];
        if (k == 3) {
            sum[0][0] = sum[1][1];
            sum[3][3] = fmaf(sum[2][2], b[k * SIDE], sum[3][3]);
            sum[5][5] = fmaf(a[k * SIDE], b[k * SIDE + 1], 0.25f);
        }
        if (k == 5)
            sum[6][6] = sum[6][7] * 0.5f;
    }
}

__global__ void sums_of(float *out, float *seen, const float *a, const float *b, int modulus)
{
    __shared__ float rows[FACTORS], columns[FACTORS];
    unsigned t = threadIdx.x;
    for (int i = (int)t; i < FACTORS; i += THREADS) {
        rows[i] = a[i];
        columns[i] = b[i];
    }
    __syncthreads();
    float sum[SIDE][SIDE] = {};
    sum[1][2] = (float)t;
    for (int r = 0; r < ROUNDS; r++) {
        float x = 0;
        if (t % modulus == 0)
            add(sum, rows + r * STEPS * SIDE, columns + r * STEPS * SIDE, &x);
        seen[r * THREADS + t] = x;
        if (r == 2)
            __syncthreads();
    }
    for (int i = 0; i < SUMS; i++)
        out[i * THREADS + t] = sum[i / SIDE][i % SIDE];
}

int main()
{
    checker check("many_sums");
    std::vector<float> a = random_floats(FACTORS, 3), b = random_floats(FACTORS, 4);
    float *da = to_device(a), *db = to_device(b);
    for (int modulus : {1, 3}) {
        float *out = device_array<float>(SUMS * THREADS), *seen = device_array<float>(ROUNDS * THREADS);
        sums_of<<<1, THREADS>>>(out, seen, da, db, modulus);
        FINISH();
        std::vector<float> want(SUMS * THREADS), want_seen(ROUNDS * THREADS);
        for (int t = 0; t < THREADS; t++) {
            float sum[SIDE][SIDE] = {};
            sum[1][2] = (float)t;
            for (int r = 0; r < ROUNDS; r++) {
                if (t % modulus == 0)
                    add(sum, &a[r * STEPS * SIDE], &b[r * STEPS * SIDE], &want_seen[r * THREADS + t]);
            }
            for (int i = 0; i < SUMS; i++)
                want[i * THREADS + t] = sum[i / SIDE][i % SIDE];
        }
        check.same(to_host(out, want.size()), want, "sum");
        check.same(to_host(seen, want_seen.size()), want_seen, "sum on the way");
    }
    return check.done();
}

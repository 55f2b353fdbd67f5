/* Softmax over the rows of a matrix, one block per row: a typical kernel of inference.  It leaves early, synchronises the
 * block, exchanges values inside warps and keeps partial results in shared memory, so it has most of what makes rewriting
 * a kernel delicate. */
#include "check.h"

static __device__ float block_reduce(float value, float *partial, bool is_max)
{
    for (int lane = 16; lane > 0; lane /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, lane);
        value = is_max ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (unsigned warp = 1; warp < blockDim.x / 32; warp++)
        value = is_max ? fmaxf(value, partial[warp]) : value + partial[warp];
    return value;
}

/* blockDim.x is a multiple of 32. */
extern "C" __global__ void softmax_rows(float *out, const float *in, unsigned rows, unsigned columns)
{
    __shared__ float partial[32];
    unsigned row = blockIdx.y * gridDim.x + blockIdx.x;
    if (row >= rows)
        return;
    const float *from = in + (size_t)row * columns;
    float *to = out + (size_t)row * columns;

    float largest = -INFINITY;
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x)
        largest = fmaxf(largest, from[i]);
    largest = block_reduce(largest, partial, true);

    float sum = 0;
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x)
        sum += __expf(from[i] - largest);
    sum = block_reduce(sum, partial, false);

    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x)
        to[i] = __expf(from[i] - largest) / sum;
}

int main()
{
    checker check("softmax");
    for (unsigned columns : {1u, 50u, 1000u}) {
        const unsigned rows = 61;
        std::vector<float> in = random_floats(rows * columns, 17);
        for (float &x : in)
            x *= 20;
        float *from = to_device(in), *to = device_array<float>(rows * columns);
        softmax_rows<<<dim3(8, 8), 128>>>(to, from, rows, columns);
        FINISH();
        std::vector<float> out = to_host(to, rows * columns);
        for (unsigned r = 0; r < rows; r++) {
            double largest = -INFINITY, sum = 0;
            for (unsigned i = 0; i < columns; i++)
                largest = fmax(largest, in[r * columns + i]);
            for (unsigned i = 0; i < columns; i++)
                sum += exp(in[r * columns + i] - largest);
            /* __expf is good to 2 + |1.17 x| units in the last place, here below 50 of them.  Shares may be as small as
             * e^-40, so it is the ratio that counts. */
            for (unsigned i = r * columns; i < (r + 1) * columns; i++)
                check.near(out[i] / (exp(in[i] - largest) / sum), 1, 1e-5, "share", i);
        }
    }
    return check.done();
}

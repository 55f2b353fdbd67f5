/* Softmax over the rows of a matrix, one block per row: a typical kernel of inference.  It leaves early, synchronises the
 * block, exchanges values inside warps and keeps partial results in shared memory, so it has most of what makes rewriting
 * a kernel delicate. */

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

/* A 2-D convolution with the filter in constant memory and the image's tile with its border in shared memory. */
#include "check.h"

#define RADIUS 2
#define SIDE (2 * RADIUS + 1)
#define TILE 16

__constant__ float filter[SIDE * SIDE];

__global__ void convolve(float *out, const float *in, int width, int height)
{
    __shared__ float tile[TILE + 2 * RADIUS][TILE + 2 * RADIUS];
    int left = blockIdx.x * TILE - RADIUS, top = blockIdx.y * TILE - RADIUS;
    for (int y = threadIdx.y; y < TILE + 2 * RADIUS; y += TILE) {
        for (int x = threadIdx.x; x < TILE + 2 * RADIUS; x += TILE) {
            bool inside = left + x >= 0 && left + x < width && top + y >= 0 && top + y < height;
            tile[y][x] = inside ? in[(top + y) * width + left + x] : 0;
        }
    }
    __syncthreads();
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = 0; dy < SIDE; dy++) {
        for (int dx = 0; dx < SIDE; dx++)
            sum += filter[dy * SIDE + dx] * tile[threadIdx.y + dy][threadIdx.x + dx];
    }
    out[y * width + x] = sum;
}

/* Several channels and filters, straight from global memory, as layers of networks have them. */
__global__ void layer(float *out, const float *in, const float *weights, int channels, int width, int height,
                      int stride)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, filters = blockIdx.z;
    int wide = (width + stride - 1) / stride, high = (height + stride - 1) / stride;
    if (x >= wide)
        return;
    float sum = 0;
    for (int c = 0; c < channels; c++) {
        for (int dy = -1; dy <= 1; dy++) {
            for (int dx = -1; dx <= 1; dx++) {
                int sx = x * stride + dx, sy = y * stride + dy;
                if (sx < 0 || sx >= width || sy < 0 || sy >= height)
                    continue;
                sum += in[(c * height + sy) * width + sx] *
                       weights[((filters * channels + c) * 3 + dy + 1) * 3 + dx + 1];
            }
        }
    }
    out[(filters * high + y) * wide + x] = fmaxf(sum, 0);
}

int main()
{
    checker check("convolution");
    const int width = 101, height = 67;
    std::vector<float> image = random_floats(width * height, 23), weights = random_floats(SIDE * SIDE, 24);
    CUDA(cudaMemcpyToSymbol(filter, weights.data(), sizeof(filter)));
    float *in = to_device(image), *out = device_array<float>(width * height);
    convolve<<<dim3((width + TILE - 1) / TILE, (height + TILE - 1) / TILE), dim3(TILE, TILE)>>>(out, in, width, height);
    FINISH();
    std::vector<float> got = to_host(out, width * height);
    for (int i = 0; i < width * height; i++) {
        double want = 0;
        for (int dy = -RADIUS; dy <= RADIUS; dy++) {
            for (int dx = -RADIUS; dx <= RADIUS; dx++) {
                int x = i % width + dx, y = i / width + dy;
                if (x >= 0 && x < width && y >= 0 && y < height)
                    want += (double)weights[(dy + RADIUS) * SIDE + dx + RADIUS] * image[y * width + x];
            }
        }
        check.near(got[i], want, 1e-5, "pixel", i); /* 25 products below 1 */
    }

    const int channels = 3, filters = 4;
    std::vector<float> maps = random_floats(channels * width * height, 25),
                       kernels = random_floats(filters * channels * 9, 26);
    float *dmaps = to_device(maps), *dkernels = to_device(kernels),
          *dout = device_array<float>(filters * width * height);
    for (int stride : {1, 2}) {
        int wide = (width + stride - 1) / stride, high = (height + stride - 1) / stride;
        layer<<<dim3((wide + 63) / 64, high, filters), 64>>>(dout, dmaps, dkernels, channels, width, height, stride);
        FINISH();
        got = to_host(dout, (size_t)filters * wide * high);
        for (int i = 0; i < filters * wide * high; i++) {
            int f = i / (wide * high), x = i % wide * stride, y = i / wide % high * stride;
            double want = 0;
            for (int c = 0; c < channels; c++) {
                for (int t = 0; t < 9; t++) {
                    int sx = x + t % 3 - 1, sy = y + t / 3 - 1;
                    if (sx >= 0 && sx < width && sy >= 0 && sy < height)
                        want += (double)maps[(c * height + sy) * width + sx] * kernels[(f * channels + c) * 9 + t];
                }
            }
            check.near(got[i], fmax(want, 0), 1e-5, "layer's value", i); /* 27 products below 1 */
        }
    }
    return check.done();
}

/* Texture objects: 2-D arrays with point and linear filtering, several address modes, normalised coordinates, 8-bit values
 * read as floats; linear and pitched memory; a surface to write an array. */
#include "check.h"

__global__ void sample(float *out, cudaTextureObject_t texture, const float2 *at, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex2D<float>(texture, at[i].x, at[i].y);
}

__global__ void fetch(int *out, cudaTextureObject_t texture, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = tex1Dfetch<int>(texture, n - 1 - i);
}

__global__ void write(cudaSurfaceObject_t surface, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height)
        surf2Dwrite((float)(x * 100 + y), surface, x * (int)sizeof(float), y);
}

static const int width = 37, height = 23;

static double texel(const std::vector<float> &image, int x, int y, cudaTextureAddressMode mode)
{
    if (mode == cudaAddressModeBorder && (x < 0 || x >= width || y < 0 || y >= height))
        return 0;
    if (mode == cudaAddressModeWrap) {
        x = (x % width + width) % width;
        y = (y % height + height) % height;
    }
    x = x < 0 ? 0 : x >= width ? width - 1 : x;
    y = y < 0 ? 0 : y >= height ? height - 1 : y;
    return image[y * width + x];
}

static void try_mode(checker *check, cudaResourceDesc *resource, const std::vector<float> &image, bool is_linear,
                     bool is_normalised, cudaTextureAddressMode mode, cudaTextureReadMode read, const char *what)
{
    const int n = 2000;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = mode;
    how.filterMode = is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
    how.readMode = read;
    how.normalizedCoords = is_normalised;
    cudaTextureObject_t texture;
    CUDA(cudaCreateTextureObject(&texture, resource, &how, NULL));
    std::vector<float2> at(n);
    struct sequence s = {40};
    for (float2 &p : at) { /* multiples of 1/256 up to two texels outside, so that the filter's 8 bits are exact */
        p.x = (float)((int)(s.next() % ((width + 4) * 256)) - 512) / 256.0f;
        p.y = (float)((int)(s.next() % ((height + 4) * 256)) - 512) / 256.0f;
    }
    std::vector<float2> given = at;
    for (float2 &p : given) {
        if (is_normalised) {
            p.x /= width;
            p.y /= height;
        }
    }
    float2 *where = to_device(given);
    float *out = device_array<float>(n);
    sample<<<(n + 95) / 96, 96>>>(out, texture, where, n);
    FINISH();
    std::vector<float> got = to_host(out, n);
    for (int i = 0; i < n; i++) {
        double want, tolerance = 1e-6, x = at[i].x, y = at[i].y;
        if (is_linear) {
            int x0 = (int)floor(x - 0.5), y0 = (int)floor(y - 0.5);
            double fx = x - 0.5 - x0, fy = y - 0.5 - y0;
            want = (1 - fx) * (1 - fy) * texel(image, x0, y0, mode) + fx * (1 - fy) * texel(image, x0 + 1, y0, mode) +
                   (1 - fx) * fy * texel(image, x0, y0 + 1, mode) + fx * fy * texel(image, x0 + 1, y0 + 1, mode);
            tolerance = 0.01; /* normalised coordinates may round the 8-bit weights by one step */
        } else {
            if (is_normalised && (x == floor(x) || y == floor(y)))
                continue; /* on the border of two texels, the division above decides */
            want = texel(image, (int)floor(x), (int)floor(y), mode);
        }
        check->near(got[i], want, tolerance, what, i);
    }
    CUDA(cudaDestroyTextureObject(texture));
    CUDA(cudaFree(where));
    CUDA(cudaFree(out));
}

int main()
{
    checker check("textures");
    std::vector<float> image = random_floats(width * height, 41);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CUDA(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, image.data(), width * sizeof(float), width * sizeof(float), height,
                             cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    const cudaTextureReadMode as_is = cudaReadModeElementType;
    try_mode(&check, &resource, image, false, false, cudaAddressModeClamp, as_is, "point, clamp");
    try_mode(&check, &resource, image, false, false, cudaAddressModeBorder, as_is, "point, border");
    try_mode(&check, &resource, image, true, false, cudaAddressModeClamp, as_is, "linear, clamp");
    try_mode(&check, &resource, image, true, false, cudaAddressModeBorder, as_is, "linear, border");
    try_mode(&check, &resource, image, false, true, cudaAddressModeWrap, as_is, "point, wrap");
    try_mode(&check, &resource, image, true, true, cudaAddressModeWrap, as_is, "linear, wrap");

    /* Bytes that are read as fractions of 255, in pitched memory. */
    std::vector<unsigned char> bytes(width * height);
    std::vector<float> fractions(width * height);
    for (int i = 0; i < width * height; i++)
        fractions[i] = (float)(bytes[i] = (unsigned char)(i * 7)) / 255.0f;
    unsigned char *pitched;
    size_t pitch;
    CUDA(cudaMallocPitch(&pitched, &pitch, width, height));
    CUDA(cudaMemcpy2D(pitched, pitch, bytes.data(), width, width, height, cudaMemcpyHostToDevice));
    cudaResourceDesc flat = {};
    flat.resType = cudaResourceTypePitch2D;
    flat.res.pitch2D = {pitched, cudaCreateChannelDesc<unsigned char>(), width, height, pitch};
    try_mode(&check, &flat, fractions, false, false, cudaAddressModeClamp, cudaReadModeNormalizedFloat, "bytes, point");
    try_mode(&check, &flat, fractions, true, false, cudaAddressModeClamp, cudaReadModeNormalizedFloat, "bytes, linear");

    /* Linear memory. */
    const int n = 1000;
    std::vector<int> v(n), want(n);
    for (int i = 0; i < n; i++)
        want[n - 1 - i] = v[i] = i * i;
    cudaResourceDesc linear = {};
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear = {to_device(v), cudaCreateChannelDesc<int>(), n * sizeof(int)};
    cudaTextureDesc plain = {};
    cudaTextureObject_t texture;
    CUDA(cudaCreateTextureObject(&texture, &linear, &plain, NULL));
    int *out = device_array<int>(n);
    fetch<<<8, 128>>>(out, texture, n);
    FINISH();
    check.same(to_host(out, n), want, "fetch");

    cudaSurfaceObject_t surface;
    CUDA(cudaCreateSurfaceObject(&surface, &resource));
    write<<<dim3(2, height), 32>>>(surface, width, height);
    FINISH();
    CUDA(cudaMemcpy2DFromArray(image.data(), width * sizeof(float), array, 0, 0, width * sizeof(float), height,
                               cudaMemcpyDeviceToHost));
    for (int i = 0; i < width * height; i++)
        check.is(image[i] == (float)(i % width * 100 + i / width), "surface", i);
    return check.done();
}

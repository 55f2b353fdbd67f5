/* The rarer kinds of textures and surfaces: three dimensions, layers, cubes, gathers, levels of detail, vectors, and what
 * surfaces do outside. */
#include "check.h"

static const int W = 12, H = 10, D = 5;

__global__ void sample_3d(float *out, cudaTextureObject_t t)
{
    int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
    out[(z * H + y) * W + x] = tex3D<float>(t, x + 0.75f, y + 0.5f, z + 0.25f);
}

__global__ void sample_layers(float *out, cudaTextureObject_t t)
{
    int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
    out[(z * H + y) * W + x] = tex2DLayered<float>(t, x + 0.5f, y + 1.0f, z);
}

__global__ void sample_cube(float *out, cudaTextureObject_t t, const float3 *at, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = texCubemap<float>(t, at[i].x, at[i].y, at[i].z);
}

__global__ void gather(float4 *out, cudaTextureObject_t t)
{
    int x = threadIdx.x, y = threadIdx.y;
    out[y * W + x] = tex2Dgather<float4>(t, x + 0.6f, y + 0.6f, 1);
}

__global__ void sample_level(float *out, cudaTextureObject_t t, int n)
{
    int i = threadIdx.x;
    if (i < n)
        out[i] = tex2DLod<float>(t, 0.5f, 0.5f, i * 0.25f);
}

__global__ void vectors(int4 *out, cudaTextureObject_t t)
{
    out[threadIdx.x] = tex1D<int4>(t, (float)threadIdx.x + 0.5f);
}

/* Reads a word to the left of each element, in three ways of being outside, and copies within the surface. */
__global__ void surfaces(int *out, cudaSurfaceObject_t s)
{
    int x = threadIdx.x, y = blockIdx.x;
    int *at = out + (y * W + x) * 3;
    at[0] = surf2Dread<int>(s, (x - 1) * 4, y, cudaBoundaryModeClamp);
    at[1] = surf2Dread<int>(s, (x - 1) * 4, y, cudaBoundaryModeZero);
    at[2] = surf2Dread<int>(s, x * 4, y);
}

__global__ void write_pairs(cudaSurfaceObject_t s)
{
    surf1Dwrite(make_short2((short)threadIdx.x, (short)-threadIdx.x), s, threadIdx.x * 4, cudaBoundaryModeZero);
}

__global__ void write_outside(cudaSurfaceObject_t s)
{
    surf2Dwrite(1, s, W * 4, 0);
}

static cudaArray_t make_array(const std::vector<float> &v, int w, int h, int d, unsigned flags)
{
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CUDA(cudaMalloc3DArray(&array, &format, make_cudaExtent(w, h, d), flags));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr((void *)v.data(), w * sizeof(float), w, h);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(w, h, d);
    copy.kind = cudaMemcpyHostToDevice;
    CUDA(cudaMemcpy3D(&copy));
    return array;
}

static cudaTextureObject_t make_texture(cudaArray_t array, cudaTextureFilterMode filter, bool is_normal)
{
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = how.addressMode[2] = cudaAddressModeClamp;
    how.filterMode = filter;
    how.normalizedCoords = is_normal;
    cudaTextureObject_t t;
    CUDA(cudaCreateTextureObject(&t, &resource, &how, NULL));
    return t;
}

static int clamped(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void volumes(checker *check)
{
    std::vector<float> v = random_floats(W * H * D, 60);
    auto at = [&](int x, int y, int z) { return (double)v[(clamped(z, D) * H + clamped(y, H)) * W + clamped(x, W)]; };
    float *out = device_array<float>(W * H * D);
    sample_3d<<<D, dim3(W, H)>>>(out, make_texture(make_array(v, W, H, D, 0), cudaFilterModeLinear, false));
    FINISH();
    std::vector<float> got = to_host(out, W * H * D);
    for (int i = 0; i < W * H * D; i++) { /* a quarter to the right, three quarters from below */
        int x = i % W, y = i / W % H, z = i / W / H;
        double here = 0.75 * at(x, y, z) + 0.25 * at(x + 1, y, z);
        double below = 0.75 * at(x, y, z - 1) + 0.25 * at(x + 1, y, z - 1);
        check->near(got[i], 0.75 * here + 0.25 * below, 1e-6, "3-D", i);
    }
    sample_layers<<<D, dim3(W, H)>>>(out, make_texture(make_array(v, W, H, D, cudaArrayLayered), cudaFilterModeLinear, false));
    FINISH();
    got = to_host(out, W * H * D);
    for (int i = 0; i < W * H * D; i++) { /* layers do not mix */
        int x = i % W, y = i / W % H, z = i / W / H;
        check->near(got[i], 0.5 * at(x, y, z) + 0.5 * at(x, y + 1, z), 1e-6, "layers", i);
    }
}

static void cubes(checker *check)
{
    const int n = 6 * 4 * 4;
    std::vector<float> v(n);
    std::vector<float3> at(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; i++) {
        int face = i / 16, x = i % 4, y = i / 4 % 4;
        float s = (x + 0.5f) / 2 - 1, t = (y + 0.5f) / 2 - 1; /* from -1 to 1 on the face */
        v[i] = want[i] = (float)(face * 100 + y * 10 + x);
        const float3 directions[6] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1}, {-s, -t, -1}};
        at[i] = {directions[face].x * 3, directions[face].y * 3, directions[face].z * 3};
    }
    float *out = device_array<float>(n);
    sample_cube<<<1, n>>>(out, make_texture(make_array(v, 4, 4, 6, cudaArrayCubemap), cudaFilterModePoint, true),
                          to_device(at), n);
    FINISH();
    check->same(to_host(out, n), want, "cube");
}

static void gathers(checker *check)
{
    std::vector<float> v(W * H * 2);
    for (int i = 0; i < W * H; i++) {
        v[2 * i] = -1;
        v[2 * i + 1] = (float)i;
    }
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float2>();
    CUDA(cudaMallocArray(&array, &format, W, H, cudaArrayTextureGather));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, v.data(), W * 8, W * 8, H, cudaMemcpyHostToDevice));
    float4 *out = device_array<float4>(W * H);
    gather<<<1, dim3(W, H)>>>(out, make_texture(array, cudaFilterModePoint, false));
    FINISH();
    std::vector<float4> got = to_host(out, W * H);
    for (int i = 0; i < W * H; i++) {
        int x = i % W, y = i / W, right = clamped(x + 1, W), below = clamped(y + 1, H);
        check->is(got[i].x == below * W + x && got[i].y == below * W + right && got[i].z == y * W + right &&
                      got[i].w == y * W + x,
                  "gather", i);
    }
}

static void levels(checker *check)
{
    const int n = 17;
    cudaMipmappedArray_t mips;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CUDA(cudaMallocMipmappedArray(&mips, &format, make_cudaExtent(16, 16, 0), 4));
    for (int l = 0; l < 4; l++) {
        cudaArray_t level;
        int size = 16 >> l;
        CUDA(cudaGetMipmappedArrayLevel(&level, mips, l));
        std::vector<float> v(size * size, (float)(l * 10));
        CUDA(cudaMemcpy2DToArray(level, 0, 0, v.data(), size * 4, size * 4, size, cudaMemcpyHostToDevice));
    }
    for (int is_mixed = 0; is_mixed < 2; is_mixed++) {
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeMipmappedArray;
        resource.res.mipmap.mipmap = mips;
        cudaTextureDesc how = {};
        how.normalizedCoords = 1;
        how.filterMode = cudaFilterModeLinear;
        how.mipmapFilterMode = is_mixed ? cudaFilterModeLinear : cudaFilterModePoint;
        how.maxMipmapLevelClamp = 2.5f;
        cudaTextureObject_t t;
        CUDA(cudaCreateTextureObject(&t, &resource, &how, NULL));
        float *out = device_array<float>(n);
        sample_level<<<1, 32>>>(out, t, n);
        FINISH();
        std::vector<float> got = to_host(out, n);
        for (int i = 0; i < n; i++) {
            double level = i * 0.25 > 2.5 ? 2.5 : i * 0.25;
            if (!is_mixed && level - floor(level) == 0.5)
                continue; /* either is the nearest */
            check->near(got[i], 10 * (is_mixed ? level : floor(level + 0.5)), 1e-4, is_mixed ? "mixed levels" : "levels", i);
        }
    }
}

static void integers(checker *check)
{
    const int n = 64;
    std::vector<short4> v(n);
    for (int i = 0; i < n; i++)
        v[i] = {(short)i, (short)-i, (short)(i * 500), (short)(i - 32)};
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<short4>();
    CUDA(cudaMallocArray(&array, &format, n, 0, 0));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, v.data(), n * 8, n * 8, 1, cudaMemcpyHostToDevice));
    int4 *out = device_array<int4>(n);
    vectors<<<1, n>>>(out, make_texture(array, cudaFilterModePoint, false));
    FINISH();
    std::vector<int4> got = to_host(out, n);
    for (int i = 0; i < n; i++)
        check->is(got[i].x == v[i].x && got[i].y == v[i].y && got[i].z == v[i].z && got[i].w == v[i].w, "vectors", i);
}

static void surface_modes(checker *check)
{
    std::vector<int> v(W * H);
    for (int i = 0; i < W * H; i++)
        v[i] = i + 1;
    cudaArray_t array, line;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<int>(), pairs = cudaCreateChannelDesc<short2>();
    CUDA(cudaMallocArray(&array, &format, W, H, cudaArraySurfaceLoadStore));
    CUDA(cudaMemcpy2DToArray(array, 0, 0, v.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t s;
    CUDA(cudaCreateSurfaceObject(&s, &resource));
    int *out = device_array<int>(W * H * 3);
    surfaces<<<H, W>>>(out, s);
    FINISH();
    std::vector<int> got = to_host(out, W * H * 3);
    for (int i = 0; i < W * H; i++) {
        int x = i % W;
        check->is(got[3 * i] == (x == 0 ? v[i] : v[i - 1]) && got[3 * i + 1] == (x == 0 ? 0 : v[i - 1]) && got[3 * i + 2] == v[i],
                  "surface reads", i);
    }
    CUDA(cudaMallocArray(&line, &pairs, 40, 0, cudaArraySurfaceLoadStore));
    resource.res.array.array = line;
    cudaSurfaceObject_t t;
    CUDA(cudaCreateSurfaceObject(&t, &resource));
    write_pairs<<<1, 64>>>(t); /* the last 24 go nowhere */
    FINISH();
    std::vector<short2> back(40);
    CUDA(cudaMemcpy2DFromArray(back.data(), 160, line, 0, 0, 160, 1, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 40; i++)
        check->is(back[i].x == i && back[i].y == -i, "surface writes", i);
    write_outside<<<1, 1>>>(s); /* which is an error if nothing else is said */
    check->is(cudaDeviceSynchronize() != cudaSuccess, "a write outside", 0);
}

int main()
{
    checker check("textures_more");
    volumes(&check);
    cubes(&check);
    gathers(&check);
    levels(&check);
    integers(&check);
    surface_modes(&check);
    return check.done();
}

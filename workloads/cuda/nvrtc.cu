/* NVRTC: a kernel compiled while the program runs, loaded and launched through the driver API. */
#include "check.h"
#include <cuda.h>
#include <nvrtc.h>
#include <string>

static const char *source = R"(
template <class T> __device__ T twice(T x) { return x + x; }
__constant__ int offset = 3;
__device__ int calls;
extern "C" __global__ void run(int *out, const int *in, int n)
{
    extern __shared__ int tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    if (i < n)
        out[i] = twice(tile[blockDim.x - 1 - threadIdx.x]) * FACTOR + offset;
    if (threadIdx.x == 0)
        atomicAdd(&calls, 1);
}
template <class T> __global__ void scale(T *v, T by, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        v[i] *= by;
}
)";

#define DRIVER(call)                                                                                                   \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_ != CUDA_SUCCESS) {                                                                                 \
            const char *text_ = "?";                                                                                   \
            cuGetErrorString(result_, &text_);                                                                         \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, text_);                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define NVRTC(call)                                                                                                    \
    do {                                                                                                               \
        nvrtcResult result_ = (call);                                                                                  \
        if (result_ != NVRTC_SUCCESS) {                                                                                \
            printf("FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #call, nvrtcGetErrorString(result_));                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

int main()
{
    checker check("nvrtc");
    nvrtcProgram program;
    const char *options[] = {"--gpu-architecture=compute_90", "-DFACTOR=5", "--std=c++17"};
    NVRTC(nvrtcCreateProgram(&program, source, "kernel.cu", 0, NULL, NULL));
    NVRTC(nvrtcAddNameExpression(program, "scale<double>"));
    NVRTC(nvrtcCompileProgram(program, 3, options));
    size_t size;
    NVRTC(nvrtcGetPTXSize(program, &size));
    std::string ptx(size, 0), name;
    NVRTC(nvrtcGetPTX(program, &ptx[0]));
    const char *lowered;
    NVRTC(nvrtcGetLoweredName(program, "scale<double>", &lowered));
    name = lowered;
    NVRTC(nvrtcDestroyProgram(&program));

    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction run, scale;
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    DRIVER(cuCtxSetCurrent(context));
    DRIVER(cuModuleLoadData(&module, ptx.c_str()));
    DRIVER(cuModuleGetFunction(&run, module, "run"));
    DRIVER(cuModuleGetFunction(&scale, module, name.c_str()));
    check.is(cuModuleGetFunction(&run, module, "absent") == CUDA_ERROR_NOT_FOUND, "missing kernel");
    DRIVER(cuModuleGetFunction(&run, module, "run"));

    int n = 1000, threads = 128;
    std::vector<int> v(n), want(n);
    for (int i = 0; i < n; i++)
        v[i] = i * 3 - 500;
    for (int i = 0; i < n; i++) {
        int from = i / threads * threads + threads - 1 - i % threads;
        want[i] = 10 * (from < n ? v[from] : 0) + 3;
    }
    CUdeviceptr in, out, calls;
    DRIVER(cuMemAlloc(&in, n * sizeof(int)));
    DRIVER(cuMemAlloc(&out, n * sizeof(int)));
    DRIVER(cuMemcpyHtoD(in, v.data(), n * sizeof(int)));
    void *arguments[] = {&out, &in, &n};
    DRIVER(cuLaunchKernel(run, 8, 1, 1, threads, 1, 1, threads * sizeof(int), NULL, arguments, NULL));
    DRIVER(cuCtxSynchronize());
    std::vector<int> got(n);
    DRIVER(cuMemcpyDtoH(got.data(), out, n * sizeof(int)));
    check.same(got, want, "value");
    size_t bytes;
    int count = 0;
    DRIVER(cuModuleGetGlobal(&calls, &bytes, module, "calls"));
    DRIVER(cuMemcpyDtoH(&count, calls, sizeof(count)));
    check.is(bytes == sizeof(int) && count == 8, "counter", count);

    std::vector<double> reals(n), scaled(n);
    for (int i = 0; i < n; i++) {
        reals[i] = i * 0.1;
        scaled[i] = reals[i] * 1.5;
    }
    CUdeviceptr dreals;
    double by = 1.5;
    DRIVER(cuMemAlloc(&dreals, n * sizeof(double)));
    DRIVER(cuMemcpyHtoD(dreals, reals.data(), n * sizeof(double)));
    void *more[] = {&dreals, &by, &n};
    DRIVER(cuLaunchKernel(scale, 8, 1, 1, threads, 1, 1, 0, NULL, more, NULL));
    DRIVER(cuMemcpyDtoH(reals.data(), dreals, n * sizeof(double)));
    check.same(reals, scaled, "scaled value");
    DRIVER(cuModuleUnload(module));
    DRIVER(cuDevicePrimaryCtxRelease(device));
    return check.done();
}

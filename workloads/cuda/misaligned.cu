/* A misaligned access: CUDA error 716, sticky, and a process that lives. */
#include "check.h"

__global__ void misaligned(double *out, const char *v)
{
    *out = *(const double *)(v + 3);
}

int main()
{
    checker check("misaligned");
    char *v = device_array<char>(100);
    double *out = device_array<double>(2);
    misaligned<<<1, 1>>>(out, v);
    cudaError_t error = cudaDeviceSynchronize();
    check.is(error == cudaErrorMisalignedAddress, "error", (size_t)error);
    check.is(cudaMemset(v, 0, 4) == cudaErrorMisalignedAddress, "sticky error");
    misaligned<<<1, 1>>>(out, v);
    check.is(cudaGetLastError() == cudaErrorMisalignedAddress, "sticky error of a launch");
    return check.done();
}

/* An access outside of all allocations: CUDA error 700, sticky, and a process that lives; a reset brings the device back. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

__global__ void store(int *v, size_t at)
{
    v[at] = 1;
}

__global__ void load(int *out, const int *v, size_t at)
{
    *out = v[at];
}

/* Each kind in a process of its own, since the error stays with the context. */
static int try_kind(int kind)
{
    checker check("out_of_bounds, a child");
    int *v = device_array<int>(100), *out = device_array<int>(2);
    const cudaError_t want = cudaErrorIllegalAddress;
    if (kind == 0)
        store<<<1, 1>>>(v, (size_t)1 << 44);
    else if (kind == 1)
        load<<<1, 1>>>(out, NULL, 5);
    else
        load<<<4, 64>>>(out, v, (size_t)-1 << 40);
    cudaError_t error = cudaDeviceSynchronize();
    check.is(error == want, "error", (size_t)error);
    check.is(cudaMemset(v, 0, 4) == want, "sticky error");
    store<<<1, 1>>>(v, 0);
    check.is(cudaGetLastError() == want, "sticky error of a launch");
    /* As on hardware, only a new context helps. */
    check.is(cudaDeviceReset() == cudaSuccess, "reset");
    cudaGetLastError();
    v = device_array<int>(100);
    store<<<1, 1>>>(v, 99);
    check.is(cudaDeviceSynchronize() == cudaSuccess, "kernel after the reset");
    check.is(to_host(v, 100)[99] == 1, "value after the reset");
    if (check.wrong > 0)
        fprintf(stderr, "kind %d: %zu of %zu are wrong\n", kind, check.wrong, check.checked);
    return check.wrong > 0;
}

int main()
{
    checker check("out_of_bounds");
    const char *kinds[] = {"far store", "load from nearly NULL", "far load"};
    for (int kind = 0; kind < 3; kind++) {
        pid_t child = fork(); /* before this process has touched CUDA */
        if (child == 0)
            exit(try_kind(kind));
        int status = -1;
        waitpid(child, &status, 0);
        check.is(WIFEXITED(status), "survival", kind);
        check.is(WIFEXITED(status) && WEXITSTATUS(status) == 0, kinds[kind], kind);
    }
    return check.done();
}

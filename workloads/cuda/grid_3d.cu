/* Grids and blocks of three dimensions: every thread finds its place once, in the order that the manual gives. */
#include "check.h"

struct place {
    unsigned block, thread, lane;
};

__global__ void visit(struct place *out, int *visits, dim3 size)
{
    dim3 at(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
            blockIdx.z * blockDim.z + threadIdx.z);
    if (at.x >= size.x || at.y >= size.y || at.z >= size.z)
        return;
    unsigned i = (at.z * size.y + at.y) * size.x + at.x, lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    out[i].block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    out[i].thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[i].lane = lane;
    atomicAdd(&visits[i], 1);
}

int main()
{
    checker check("grid_3d");
    const dim3 sizes[] = {dim3(20, 30, 10), dim3(1, 1, 77), dim3(65, 3, 2), dim3(5, 64, 9)};
    const dim3 blocks[] = {dim3(8, 4, 2), dim3(1, 1, 64), dim3(3, 5, 7), dim3(16, 16, 4), dim3(2, 3, 1)};
    for (dim3 size : sizes) {
        for (dim3 block : blocks) {
            dim3 grid((size.x + block.x - 1) / block.x, (size.y + block.y - 1) / block.y,
                      (size.z + block.z - 1) / block.z);
            int n = (int)(size.x * size.y * size.z);
            struct place *places = device_array<struct place>(n);
            std::vector<int> none(n, 0), ones(n, 1);
            int *visits = to_device(none);
            visit<<<grid, block>>>(places, visits, size);
            FINISH();
            check.same(to_host(visits, n), ones, "number of visits");
            std::vector<struct place> got = to_host(places, n);
            for (int i = 0; i < n; i++) {
                unsigned x = i % size.x, y = i / size.x % size.y, z = i / size.x / size.y;
                unsigned b = (z / block.z * grid.y + y / block.y) * grid.x + x / block.x;
                unsigned t = (z % block.z * block.y + y % block.y) * block.x + x % block.x;
                check.is(got[i].block == b, "block", i);
                check.is(got[i].thread == t, "thread", i);
                check.is(got[i].lane == t % 32, "lane", i);
            }
            CUDA(cudaFree(places));
            CUDA(cudaFree(visits));
        }
    }
    return check.done();
}

// Cooperative groups: the whole grid synchronises.
// verdict: slice=grid-sync ticket=grid-sync persistent=grid-sync
#include <cooperative_groups.h>

extern "C" __global__ void grid_sync(unsigned *data)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i;
    cooperative_groups::this_grid().sync();
    data[i] += data[(i + blockDim.x) % (gridDim.x * blockDim.x)];
}

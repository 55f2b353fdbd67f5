/* Tiles of matrices copied by tensor maps, with libcu++'s wrappers: transposed by way of swizzled shared memory, with tiles that
 * reach over the edges, and added up in place. The driver's function is found as CUDA's programming guide does it. */
#include "check.h"
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>

#pragma nv_diag_suppress static_var_with_dynamic_init /* init() is called instead */

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace ptx = cuda::ptx;

enum { TILE = 32, ROWS = 100, COLUMNS = 84, PARTS = 5 };

static decltype(&cuTensorMapEncodeTiled) find_encode()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess || found == nullptr) {
        printf("FAIL: there is no cuTensorMapEncodeTiled\n");
        exit(1);
    }
    return (decltype(&cuTensorMapEncodeTiled))found;
}

/* A matrix of floats, row after row, taken in tiles. */
static CUtensorMap describe(float *matrix, uint64_t rows, uint64_t columns, CUtensorMapSwizzle swizzle)
{
    CUtensorMap map;
    cuuint64_t size[2] = {columns, rows}, stride[1] = {columns * sizeof(float)};
    cuuint32_t box[2] = {TILE, TILE}, step[2] = {1, 1};
    CUresult r = find_encode()(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, matrix, size, stride, box, step,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r != CUDA_SUCCESS) {
        printf("FAIL: cuTensorMapEncodeTiled gives %d\n", (int)r);
        exit(1);
    }
    return map;
}

/* The element of a tile with rows of 128 bytes whose chunks of 16 bytes are swizzled. */
__device__ float &swizzled(float *tile, int y, int x)
{
    return tile[y * TILE + ((x / 4) ^ (y % 8)) * 4 + x % 4];
}

/* One thread starts the copy of a tile, all wait for its bytes. */
__device__ void load(float *tile, const CUtensorMap *map, int x, int y)
{
    __shared__ barrier arrived;
    if (threadIdx.x == 0) {
        init(&arrived, blockDim.x);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        const int32_t at[2] = {x, y};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, map, at,
                                  cuda::device::barrier_native_handle(arrived));
        token = cuda::device::barrier_arrive_tx(arrived, 1, TILE * TILE * sizeof(float));
    } else {
        token = arrived.arrive();
    }
    arrived.wait(std::move(token));
}

__device__ void finish_copies()
{
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}

__global__ void transpose(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to)
{
    __shared__ alignas(1024) float in[TILE * TILE], out[TILE * TILE];
    int x = blockIdx.x * TILE, y = blockIdx.y * TILE;
    load(in, &from, x, y);
    for (int i = threadIdx.x; i < TILE * TILE; i += blockDim.x)
        out[i % TILE * TILE + i / TILE] = swizzled(in, i / TILE, i % TILE);
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        const int32_t at[2] = {y, x};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, at, out);
        finish_copies();
    }
}

/* All blocks add the same tiles, times their number, to the sums. */
__global__ void accumulate(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap sums)
{
    __shared__ alignas(1024) float tile[TILE * TILE];
    int x = blockIdx.x * TILE, y = blockIdx.y * TILE;
    load(tile, &from, x, y);
    for (int i = threadIdx.x; i < TILE * TILE; i += blockDim.x)
        tile[i] *= blockIdx.z + 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        const int32_t at[2] = {x, y};
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &sums, at, tile);
        finish_copies();
    }
}

int main()
{
    checker check("tensor_copy");
    const size_t n = ROWS * COLUMNS;
    std::vector<float> values(n), transposed(n), sum(n);
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)(i * 7 % 1009); /* sums of these are exact in any order */
        transposed[i % COLUMNS * ROWS + i / COLUMNS] = values[i];
        sum[i] = values[i] * (PARTS * (PARTS + 1) / 2);
    }
    float *in = to_device(values), *out = device_array<float>(n);
    dim3 grid((COLUMNS + TILE - 1) / TILE, (ROWS + TILE - 1) / TILE, 1);

    CUtensorMap from = describe(in, ROWS, COLUMNS, CU_TENSOR_MAP_SWIZZLE_128B);
    CUtensorMap to = describe(out, COLUMNS, ROWS, CU_TENSOR_MAP_SWIZZLE_NONE);
    transpose<<<grid, 128>>>(from, to);
    FINISH();
    check.same(to_host(out, n), transposed, "transposed");

    CUDA(cudaMemset(out, 0, n * sizeof(float)));
    CUtensorMap sums = describe(out, ROWS, COLUMNS, CU_TENSOR_MAP_SWIZZLE_128B);
    grid.z = PARTS;
    accumulate<<<grid, 128>>>(from, sums);
    FINISH();
    check.same(to_host(out, n), sum, "sums");
    return check.done();
}

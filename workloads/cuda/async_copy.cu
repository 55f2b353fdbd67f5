/* Barrier objects and asynchronous copies of libcu++: a block that meets at barriers, a pipeline of copies, and bulk copies that
 * one thread starts for all. */
#include "check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>

#pragma nv_diag_suppress static_var_with_dynamic_init /* init() is called instead */

using barrier = cuda::barrier<cuda::thread_scope_block>;

/* Each thread hands a value to the next one, round after round. */
__global__ void pass_on(int *out, int rounds)
{
    __shared__ int box[2][256];
    __shared__ barrier meeting;
    if (threadIdx.x == 0)
        init(&meeting, blockDim.x);
    __syncthreads();
    int value = threadIdx.x + 1000 * blockIdx.x;
    for (int r = 0; r < rounds; r++) {
        box[r & 1][threadIdx.x] = value;
        meeting.arrive_and_wait();
        value = box[r & 1][(threadIdx.x + 1) % blockDim.x] + 1;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

/* Sums of tiles, the next ones fetched while one is added up. */
__global__ void sum_tiles(const int *in, int *out, int tiles)
{
    __shared__ int stage[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int sum = 0;
    for (int fetch = 0, tile = 0; tile < tiles; tile++) {
        for (; fetch < tiles && fetch < tile + 2; fetch++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[fetch % 2], in + fetch * 128, cuda::aligned_size_t<16>(sizeof stage[0]),
                               pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += stage[tile % 2][(threadIdx.x * 7 + tile) % 128];
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}

/* One thread starts the copies in and out; all wait for the bytes. */
__global__ void add_one(int *v)
{
    __shared__ alignas(128) int tile[512];
    __shared__ barrier arrived;
    if (threadIdx.x == 0) {
        init(&arrived, blockDim.x);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::memcpy_async(tile, v + blockIdx.x * 512, cuda::aligned_size_t<16>(sizeof tile), arrived);
        token = cuda::device::barrier_arrive_tx(arrived, 1, 0);
    } else {
        token = arrived.arrive();
    }
    arrived.wait(std::move(token));
    for (int i = threadIdx.x; i < 512; i += blockDim.x)
        tile[i] += 1;
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, v + blockIdx.x * 512, tile,
                                 sizeof tile);
        cuda::ptx::cp_async_bulk_commit_group();
        cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
    }
}

int main()
{
    checker check("async_copy");
    const int blocks = 3, threads = 160, rounds = 7;
    int *out = device_array<int>(blocks * threads);
    pass_on<<<blocks, threads>>>(out, rounds);
    FINISH();
    std::vector<int> got = to_host(out, blocks * threads);
    bool ok = true;
    for (int i = 0; i < blocks * threads; i++)
        ok &= got[i] == (i % threads + rounds) % threads + 1000 * (i / threads) + rounds;
    check.is(ok, "barrier");

    const int tiles = 9;
    std::vector<int> in(tiles * 128);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (int)(i * 2654435761u >> 20);
    sum_tiles<<<1, 128>>>(to_device(in), out, tiles);
    FINISH();
    got = to_host(out, 128);
    ok = true;
    for (int t = 0; t < 128; t++) {
        int sum = 0;
        for (int k = 0; k < tiles; k++)
            sum += in[k * 128 + (t * 7 + k) % 128];
        ok &= got[t] == sum;
    }
    check.is(ok, "pipeline");

    std::vector<int> v(5 * 512);
    for (size_t i = 0; i < v.size(); i++)
        v[i] = (int)i * 3;
    int *d = to_device(v);
    add_one<<<5, 96>>>(d);
    FINISH();
    got = to_host(d, (int)v.size());
    ok = true;
    for (size_t i = 0; i < v.size(); i++)
        ok &= got[i] == v[i] + 1;
    check.is(ok, "bulk copies");
    return check.done();
}

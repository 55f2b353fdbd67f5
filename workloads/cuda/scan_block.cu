/* Prefix sums inside blocks: Hillis-Steele and Blelloch in shared memory, and by shuffles; then block sums on top. */
#include "check.h"

#define THREADS 256

__global__ void hillis_steele(int *out, int *sums, const int *in, int n)
{
    __shared__ int buffer[2][THREADS];
    int i = blockIdx.x * THREADS + threadIdx.x, t = threadIdx.x, from = 0;
    buffer[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        buffer[1 - from][t] = buffer[from][t] + (t >= step ? buffer[from][t - step] : 0);
        from = 1 - from;
        __syncthreads();
    }
    if (i < n)
        out[i] = buffer[from][t];
    if (sums != NULL && t == THREADS - 1)
        sums[blockIdx.x] = buffer[from][t];
}

__global__ void blelloch(int *out, const int *in, int n) /* exclusive, two values per thread */
{
    __shared__ int tree[2 * THREADS];
    int t = threadIdx.x, base = blockIdx.x * 2 * THREADS, offset = 1;
    tree[2 * t] = base + 2 * t < n ? in[base + 2 * t] : 0;
    tree[2 * t + 1] = base + 2 * t + 1 < n ? in[base + 2 * t + 1] : 0;
    for (int active = THREADS; active > 0; active /= 2) {
        __syncthreads();
        if (t < active)
            tree[offset * (2 * t + 2) - 1] += tree[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0)
        tree[2 * THREADS - 1] = 0;
    for (int active = 1; active <= THREADS; active *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < active) {
            int left = offset * (2 * t + 1) - 1, right = offset * (2 * t + 2) - 1, kept = tree[left];
            tree[left] = tree[right];
            tree[right] += kept;
        }
    }
    __syncthreads();
    if (base + 2 * t < n)
        out[base + 2 * t] = tree[2 * t];
    if (base + 2 * t + 1 < n)
        out[base + 2 * t + 1] = tree[2 * t + 1];
}

__global__ void by_shuffles(int *out, const int *in, int n)
{
    __shared__ int warps[THREADS / 32];
    int i = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int v = i < n ? in[i] : 0;
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step)
            v += other;
    }
    if (lane == 31)
        warps[warp] = v;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        v += warps[w];
    if (i < n)
        out[i] = v;
}

__global__ void add_offsets(int *out, const int *sums, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += sums[blockIdx.x - 1];
}

int main()
{
    checker check("scan_block");
    const int n = 256 * 200 + 17, blocks = (n + THREADS - 1) / THREADS;
    std::vector<int> v(n), whole(n), parts(n), exclusive(n);
    struct sequence s = {7};
    int sum = 0, part = 0, before = 0;
    for (int i = 0; i < n; i++) {
        v[i] = (int)(s.next() % 100) - 50;
        part = i % THREADS == 0 ? 0 : part;
        before = i % (2 * THREADS) == 0 ? 0 : before;
        exclusive[i] = before;
        before += v[i];
        whole[i] = sum += v[i];
        parts[i] = part += v[i];
    }
    int *in = to_device(v), *out = device_array<int>(n), *sums = device_array<int>(blocks);
    hillis_steele<<<blocks, THREADS>>>(out, sums, in, n);
    FINISH();
    check.same(to_host(out, n), parts, "Hillis-Steele");
    hillis_steele<<<1, THREADS>>>(sums, NULL, sums, blocks);
    add_offsets<<<blocks, THREADS>>>(out, sums, n);
    FINISH();
    check.same(to_host(out, n), whole, "scan of all");
    blelloch<<<(blocks + 1) / 2, THREADS>>>(out, in, n);
    FINISH();
    check.same(to_host(out, n), exclusive, "Blelloch");
    by_shuffles<<<blocks, THREADS>>>(out, in, n);
    FINISH();
    check.same(to_host(out, n), parts, "scan by shuffles");
    return check.done();
}

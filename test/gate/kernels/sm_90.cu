// From sm_90 on: clusters, bulk copies, launches that depend on each other.
#include <cooperative_groups.h>
#include <cuda.h>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void

KERNEL __cluster_dims__(2, 1, 1) pairs(int *a)
{
    __shared__ int s[64];
    auto c = cg::this_cluster();
    s[threadIdx.x] = a[threadIdx.x];
    c.sync();
    a[threadIdx.x] = c.map_shared_rank(s, c.block_rank() ^ 1)[threadIdx.x];
    c.sync();
}

KERNEL __cluster_dims__(4, 2, 1) eights(int *a) { auto c = cg::this_cluster(); c.sync(); a[c.block_rank()] = c.num_blocks(); }
KERNEL __cluster_dims__(3, 1, 2) sixes(int *a) { cg::this_cluster().sync(); a[blockIdx.x] = blockIdx.z; }
KERNEL any_cluster(int *a) { auto c = cg::this_cluster(); c.sync(); a[c.block_rank()] = 1; }

KERNEL bulk(const __grid_constant__ CUtensorMap m, float *a)
{
    __shared__ alignas(128) float s[1024];
    __shared__ alignas(8) unsigned long long b;
    unsigned bar = __cvta_generic_to_shared(&b), to = __cvta_generic_to_shared(s);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.proxy.async;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(bar));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(to), "l"(&m), "r"(0), "r"(blockIdx.x), "r"(bar) : "memory");
    }
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(bar) : "memory");
    a[threadIdx.x] = s[threadIdx.x];
}

KERNEL depends(float *a)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    a[threadIdx.x]++;
    asm volatile("griddepcontrol.launch_dependents;");
}

KERNEL elected(int *a)
{
    unsigned p;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(p));
    if (p)
        a[threadIdx.x] = 1;
}

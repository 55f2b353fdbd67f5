// sm_100a only: tensor memory, of one block and of two.
#define KERNEL extern "C" __global__ void

KERNEL tensor_memory(float *a)
{
    __shared__ unsigned where;
    unsigned at = __cvta_generic_to_shared(&where), r;
    if (threadIdx.x < 32) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at));
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    }
    __syncthreads();
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(r) : "r"(where));
    asm volatile("tcgen05.wait::ld.sync.aligned;");
    a[threadIdx.x] = r;
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(where));
}

KERNEL __cluster_dims__(2, 1, 1) tensor_memory_of_two(float *a)
{
    __shared__ unsigned where;
    unsigned at = __cvta_generic_to_shared(&where), r;
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(at));
    __syncthreads();
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(r) : "r"(where));
    asm volatile("tcgen05.wait::ld.sync.aligned;");
    a[threadIdx.x] = r;
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 64;" ::"r"(where));
}

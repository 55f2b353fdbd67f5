// From sm_80 on: copies that run beside, mbarriers, reductions over warps, sparse matrices.
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#define KERNEL extern "C" __global__ void

KERNEL copies(const float4 *a, float4 *b)
{
    __shared__ float4 s[2][128];
    __pipeline_memcpy_async(&s[0][threadIdx.x], a + threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_memcpy_async(&s[1][threadIdx.x], a + 128 + threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    b[threadIdx.x] = s[0][127 - threadIdx.x];
    __pipeline_wait_prior(0);
    __syncthreads();
    b[threadIdx.x + 128] = s[1][127 - threadIdx.x];
}

KERNEL reduces(int *a) { a[threadIdx.x] = __reduce_add_sync(~0u, a[threadIdx.x]) + __reduce_max_sync(~0u, threadIdx.x); }

KERNEL waits(int *a)
{
    __shared__ unsigned long long b;
    unsigned at = __cvta_generic_to_shared(&b);
    unsigned long long token;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(blockDim.x));
    __syncthreads();
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(at) : "memory");
    asm volatile("{ .reg .pred p; again: mbarrier.test_wait.shared.b64 p, [%0], %1; @!p bra again; }" ::"r"(at), "l"(token) : "memory");
    a[threadIdx.x] = 1;
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at));
}

KERNEL brain_floats(__nv_bfloat16 *a, __nv_bfloat162 *b) { *a = atomicAdd(a, __float2bfloat16(3.f)); atomicAdd(b, *b); }

KERNEL sparse(unsigned *a, unsigned *b, float *c, unsigned m)
{
    asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, 0x1;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(m));
}
KERNEL sparse_other(unsigned *a, unsigned *b, float *c, unsigned m)
{
    asm volatile("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, 0x0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(m));
}

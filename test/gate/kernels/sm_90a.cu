// sm_90a only: matrices of a warp group, and registers that change hands.
#define KERNEL extern "C" __global__ void

KERNEL __launch_bounds__(384, 1) group(float *a, unsigned long long d)
{
    float r[4] = {0, 0, 0, 0};
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        a[threadIdx.x] = 1;
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "l"(d), "l"(d));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;");
    for (int i = 0; i < 4; i++)
        a[threadIdx.x * 4 + i] = r[i];
}

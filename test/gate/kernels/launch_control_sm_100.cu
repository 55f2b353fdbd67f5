// Cluster launch control, which must be refused.
extern "C" __global__ void cancels(unsigned long long *a)
{
    __shared__ alignas(16) unsigned long long r[2];
    __shared__ alignas(8) unsigned long long b;
    unsigned bar = __cvta_generic_to_shared(&b), to = __cvta_generic_to_shared(r);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.proxy.async;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(bar));
        asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(to), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(bar) : "memory");
    a[blockIdx.x] = r[0];
}

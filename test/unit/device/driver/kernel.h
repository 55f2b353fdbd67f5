/* For tests of small kernels: one that writes a word per thread, and where it begins and ends. */
#ifndef TALLY_TEST_DRIVER_KERNEL_H
#define TALLY_TEST_DRIVER_KERNEL_H

#include "test/unit/device/driver/help.h"

#define N 96

/* Runs `k(out)` of the text with blocks of 48 threads; out[] has N words, all 7 before. */
static inline CUresult run(const char *text, unsigned *out)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    OK(CALL(cuModuleLoadData)(&m, text));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuMemAlloc_v2)(&d, N * 4));
    OK(CALL(cuMemsetD32_v2)(d, 7, N));
    void *args[] = {&d};
    OK(CALL(cuLaunchKernel)(f, N / 48, 1, 1, 48, 1, 1, 0, NULL, args, NULL));
    CUresult r = CALL(cuCtxSynchronize)();
    if (r == CUDA_SUCCESS) {
        OK(CALL(cuMemcpyDtoH_v2)(out, d, N * 4));
        OK(CALL(cuMemFree_v2)(d));
        OK(CALL(cuModuleUnload)(m));
    }
    return r;
}

/* %r1: the thread's number; %d1: where its word is. */
#define BEGIN                                                                                      \
    HEAD ".visible .entry k(.param .u64 p)\n{\n"                                                   \
         ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<9>; .shared .align 16 .b8 sh[256];\n"   \
         "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, "       \
         "%tid.x;\n"                                                                               \
         "mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;\n"
#define END "ret;\n}\n"

#endif

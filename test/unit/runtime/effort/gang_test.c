/* Which kernels wait for kernels of other processes. */
#include "runtime/effort/gang.h"

#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void by_their_names(void)
{
    TEST_ASSERT_TRUE(tl_eff_is_gang("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "/opt/libtorch.so"));
    TEST_ASSERT_TRUE(
        tl_eff_is_gang("_Z38ncclKernel_AllReduce_RING_LL_Sum_floatP11ncclDevComm", "memory"));
    TEST_ASSERT_TRUE(tl_eff_is_gang("_Z27ncclDevKernel_SendRecv24ncclDevKernelArgs", "memory"));
    TEST_ASSERT_FALSE(tl_eff_is_gang("gemm", "/opt/libtorch.so"));
    TEST_ASSERT_FALSE(tl_eff_is_gang("_Z9my_kernelPf", "memory"));
    TEST_ASSERT_FALSE(tl_eff_is_gang("prepare_ncclDevKernel_args", "memory"));
    TEST_ASSERT_FALSE(tl_eff_is_gang("", ""));
    TEST_ASSERT_FALSE(tl_eff_is_gang("_Z", ""));
}

static void by_their_library(void)
{
    TEST_ASSERT_TRUE(tl_eff_is_gang("anything", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"));
    TEST_ASSERT_TRUE(tl_eff_is_gang("anything", "libnvshmem_device.so"));
    TEST_ASSERT_FALSE(tl_eff_is_gang("anything", "/opt/libnccl/libmine.so"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(by_their_names);
    RUN_TEST(by_their_library);
    return UNITY_END();
}

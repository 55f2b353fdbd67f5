/* Green contexts of the software driver: resources, and that what is launched in them never has
 * more SMs than they have. */
#include "test/unit/device/driver/help.h"

#define SMS 4

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

/* Counts itself in and out, and keeps the highest count: counts[0] now, counts[1] most, counts[2]
 * blocks.  Between the two it computes, without anything that would let another block run on the
 * same SM. */
static const char crowd[] = HEAD
    ".visible .entry crowd(.param .u64 p)\n"
    "{\n"
    ".reg .pred %q; .reg .b32 %r<9>; .reg .b64 %d<5>;\n"
    "ld.param.u64 %d1, [p];\n"
    "atom.global.add.u32 %r1, [%d1], 1; add.u32 %r1, %r1, 1;\n"
    "red.global.max.u32 [%d1+4], %r1;\n"
    "mov.u32 %r2, 0; mov.u32 %r3, %ctaid.x;\n"
    "L: mad.lo.u32 %r3, %r3, 1664525, 1013904223; xor.b32 %r3, %r3, %r2;\n"
    "add.u32 %r2, %r2, 1; setp.lt.u32 %q, %r2, 20000; @%q bra L;\n"
    "st.global.u32 [%d1+12], %r3;\n"
    "red.global.add.u32 [%d1], -1;\n"
    "red.global.add.u32 [%d1+8], 1;\n"
    "ret;\n}\n";

static CUgreenCtx green_of(unsigned count)
{
    CUdevResource all, part;
    CUdevResourceDesc desc;
    CUgreenCtx g;
    unsigned n = 1;
    OK(CALL(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    TEST_ASSERT_EQUAL_UINT(SMS, all.sm.smCount);
    OK(CALL(cuDevSmResourceSplitByCount)(&part, &n, &all, NULL, 0, count));
    OK(CALL(cuDevResourceGenerateDesc)(&desc, &part, 1));
    OK(CALL(cuGreenCtxCreate)(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return g;
}

static void a_split_gives_equal_parts_and_a_rest(void)
{
    CUdevResource all, parts[SMS], rest;
    CUdevResourceDesc desc;
    unsigned n = 0;
    OK(CALL(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(CALL(cuDevSmResourceSplitByCount)(NULL, &n, &all, NULL, 0, 1));
    TEST_ASSERT_EQUAL_UINT(SMS, n);
    OK(CALL(cuDevSmResourceSplitByCount)(parts, &n, &all, &rest, 0, 3));
    TEST_ASSERT_EQUAL_UINT(1, n);
    TEST_ASSERT_EQUAL_UINT(3, parts[0].sm.smCount);
    TEST_ASSERT_EQUAL_UINT(1, rest.sm.smCount);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                          CALL(cuDevSmResourceSplitByCount)(parts, &n, &all, NULL, 0, SMS + 1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                          CALL(cuDevSmResourceSplitByCount)(parts, &n, &rest, NULL, 0, 1));
    n = 2;
    OK(CALL(cuDevSmResourceSplitByCount)(parts, &n, &all, &rest, 0, 2));
    TEST_ASSERT_EQUAL_INT(CU_DEV_RESOURCE_TYPE_INVALID, rest.type);
    OK(CALL(cuDevResourceGenerateDesc)(&desc, parts, 2));
    CUdevResource twice[2] = {parts[0], parts[0]};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                          CALL(cuDevResourceGenerateDesc)(&desc, twice, 2));
}

static void launch_crowd(CUstream s, CUdeviceptr counts, unsigned blocks)
{
    CUmodule m;
    CUfunction f;
    OK(CALL(cuModuleLoadData)(&m, crowd));
    OK(CALL(cuModuleGetFunction)(&f, m, "crowd"));
    void *args[] = {&counts};
    OK(CALL(cuLaunchKernel)(f, blocks, 1, 1, 1, 1, 1, 0, s, args, NULL));
}

static void a_green_context_keeps_to_its_sms(void)
{
    for (unsigned count = 1; count <= SMS; count++) {
        CUgreenCtx g = green_of(count), of;
        CUcontext c, other;
        CUdevResource mine;
        CUstream s[2];
        CUdeviceptr counts;
        unsigned got[4];
        OK(CALL(cuGreenCtxGetDevResource)(g, &mine, CU_DEV_RESOURCE_TYPE_SM));
        TEST_ASSERT_EQUAL_UINT(count, mine.sm.smCount);
        OK(CALL(cuCtxFromGreenCtx)(&c, g));
        OK(CALL(cuCtxGetDevResource)(c, &mine, CU_DEV_RESOURCE_TYPE_SM));
        TEST_ASSERT_EQUAL_UINT(count, mine.sm.smCount);
        OK(CALL(cuMemAlloc_v2)(&counts, sizeof got));
        OK(CALL(cuMemsetD32_v2)(counts, 0, 4));
        for (int i = 0; i < 2; i++) {
            OK(CALL(cuGreenCtxStreamCreate)(&s[i], g, CU_STREAM_NON_BLOCKING, i == 0 ? 0 : -5));
            OK(CALL(cuStreamGetGreenCtx)(s[i], &of));
            TEST_ASSERT_EQUAL_PTR(g, of);
            OK(CALL(cuStreamGetCtx_v2)(s[i], &other, &of));
            TEST_ASSERT_NULL(other);
            launch_crowd(s[i], counts, 100);
        }
        OK(CALL(cuCtxPushCurrent_v2)(c));
        launch_crowd(NULL, counts, 100);
        OK(CALL(cuCtxPopCurrent_v2)(&other));
        OK(CALL(cuCtxSynchronize)()); /* of the primary context: its green ones are parts */
        OK(CALL(cuMemcpyDtoH_v2)(got, counts, sizeof got));
        TEST_ASSERT_EQUAL_UINT(0, got[0]);
        TEST_ASSERT_EQUAL_UINT(300, got[2]);
        TEST_ASSERT_TRUE_MESSAGE(got[1] >= 1 && got[1] <= count, "more blocks at a time than SMs");
        OK(CALL(cuStreamDestroy_v2)(s[0]));
        OK(CALL(cuStreamDestroy_v2)(s[1]));
        OK(CALL(cuGreenCtxDestroy)(g));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, CALL(cuGreenCtxDestroy)(g));
        OK(CALL(cuMemFree_v2)(counts));
    }
}

static void events_order_whole_green_contexts(void)
{
    CUgreenCtx a = green_of(1), b = green_of(2);
    CUstream sa, sb;
    CUevent e;
    CUdeviceptr p;
    unsigned got[2];
    OK(CALL(cuMemAlloc_v2)(&p, 16));
    OK(CALL(cuMemsetD32_v2)(p, 0, 4));
    OK(CALL(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuGreenCtxStreamCreate)(&sa, a, CU_STREAM_NON_BLOCKING, 0));
    launch_crowd(sa, p, 50);
    OK(CALL(cuGreenCtxRecordEvent)(a, e));
    OK(CALL(cuGreenCtxWaitEvent)(b, e));
    /* later than the wait, and behind it */
    OK(CALL(cuGreenCtxStreamCreate)(&sb, b, CU_STREAM_NON_BLOCKING, 0));
    OK(CALL(cuMemcpyDtoHAsync_v2)(got, p + 8, 4, sb));
    OK(CALL(cuStreamSynchronize)(sb));
    TEST_ASSERT_EQUAL_UINT(50, got[0]);
    OK(CALL(cuEventDestroy_v2)(e));
    OK(CALL(cuGreenCtxDestroy)(a));
    OK(CALL(cuGreenCtxDestroy)(b));
    OK(CALL(cuMemFree_v2)(p));
}

static void an_ordinary_stream_has_no_green_context(void)
{
    CUstream s;
    CUgreenCtx g;
    CUcontext c, mine;
    OK(CALL(cuStreamCreate)(&s, 0));
    OK(CALL(cuStreamGetGreenCtx)(s, &g));
    TEST_ASSERT_NULL(g);
    OK(CALL(cuStreamGetCtx_v2)(s, &c, &g));
    OK(CALL(cuCtxGetCurrent)(&mine));
    TEST_ASSERT_EQUAL_PTR(mine, c);
    OK(CALL(cuStreamDestroy_v2)(s));
}

int main(void)
{
    char sms[8];
    snprintf(sms, sizeof sms, "%d", SMS);
    setenv("TALLY_DEVICE_SMS", sms, 1);
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_split_gives_equal_parts_and_a_rest);
    RUN_TEST(a_green_context_keeps_to_its_sms);
    RUN_TEST(events_order_whole_green_contexts);
    RUN_TEST(an_ordinary_stream_has_no_green_context);
    return UNITY_END();
}

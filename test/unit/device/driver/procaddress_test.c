/* cuGetProcAddress: the right version of every name, as measured on real clients. */
#include "test/unit/device/driver/help.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* Rows of the facts file, those where versions and flags matter. */
static const struct {
    const char *name;
    int version;
    cuuint64_t flags;
    const char *symbol; /* NULL: not found */
} rows[] = {
    {"cuMemAlloc", 3020, 0, "cuMemAlloc_v2"},
    {"cuCtxCreate", 3020, 0, "cuCtxCreate_v2"},
    {"cuCtxCreate", 12050, 0, "cuCtxCreate_v4"},
    {"cuCtxGetDevice", 2000, 0, "cuCtxGetDevice"},
    {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
    {"cuCtxSynchronize", 2000, 0, "cuCtxSynchronize"},
    {"cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"},
    {"cuEventElapsedTime", 13000, 0, "cuEventElapsedTime_v2"},
    {"cuDeviceGetUuid", 9020, 0, "cuDeviceGetUuid"},
    {"cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"},
    {"cuStreamGetCaptureInfo", 10010, 0, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCaptureInfo", 11030, 0, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 12030, 2, "cuStreamGetCaptureInfo_v3_ptsz"},
    {"cuStreamBeginCapture", 10000, 2, "cuStreamBeginCapture_ptsz"},
    {"cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz"},
    {"cuMemcpy", 4000, 0, "cuMemcpy"},
    {"cuMemcpy", 7000, 2, "cuMemcpy_ptds"},
    {"cuMemcpyHtoD", 3020, 0, "cuMemcpyHtoD_v2"},
    {"cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"},
    {"cuMemcpyHtoD", 3020, 2, "cuMemcpyHtoD_v2"}, /* the twin is newer than that */
    {"cuLaunchKernel", 7000, 2, "cuLaunchKernel_ptsz"},
    {"cuLaunchKernel", 4000, 0, "cuLaunchKernel"},
    {"cuMemPrefetchAsync", 8000, 2, "cuMemPrefetchAsync_ptsz"},
    {"cuMemPrefetchAsync", 12020, 2, "cuMemPrefetchAsync_v2_ptsz"},
    {"cuGraphInstantiateWithParams", 12000, 2, "cuGraphInstantiateWithParams_ptsz"},
    {"cuGraphAddKernelNode", 10000, 0, "cuGraphAddKernelNode"},
    {"cuGraphAddKernelNode", 12000, 0, "cuGraphAddKernelNode_v2"},
    {"cuMemsetD2D8", 7000, 2, "cuMemsetD2D8_v2_ptds"},
    {"cuStreamWaitValue32", 8000, 2, "cuStreamWaitValue32_ptsz"},
    {"cuMemcpyBatchAsync", 13000, 2, "cuMemcpyBatchAsync_v2_ptsz"},
    {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"},
    {"cuMemAlloc", 2000, 0, NULL},
    {"cuMemAlloc", 1000, 0, NULL},
    {"cuGLInit", 2000, 0, NULL},
    {"", 0, 0, NULL},
    {"cuNoSuchThing", 13000, 0, NULL},
};

static void each_name_gives_the_version_that_was_asked_for(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *p = (void *)1;
        CUresult r = CALL(cuGetProcAddress_v2)(rows[i].name, &p, rows[i].version, rows[i].flags,
                                               NULL);
        if (rows[i].symbol == NULL) {
            TEST_ASSERT_EQUAL_INT_MESSAGE(CUDA_ERROR_NOT_FOUND, r, rows[i].name);
            TEST_ASSERT_NULL(p);
        } else {
            TEST_ASSERT_EQUAL_INT_MESSAGE(CUDA_SUCCESS, r, rows[i].symbol);
            TEST_ASSERT_EQUAL_PTR_MESSAGE(driver_symbol(rows[i].symbol), p, rows[i].symbol);
        }
    }
}

static void the_status_tells_an_unknown_name_from_an_old_version(void)
{
    void *p;
    CUdriverProcAddressQueryResult status;
    CALL(cuGetProcAddress_v2)("cuNoSuchThing", &p, 13000, 0, &status);
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
    CALL(cuGetProcAddress_v2)("cuLaunchKernel", &p, 1000, 0, &status);
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
    CALL(cuGetProcAddress_v2)("cuLaunchKernel", &p, 13000, 0, &status);
    TEST_ASSERT_EQUAL_INT(CU_GET_PROC_ADDRESS_SUCCESS, status);
}

static void what_is_not_implemented_is_still_there_to_link_against(void)
{
    void *p = NULL;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED, CALL(cuGraphicsUnregisterResource)(NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuGetProcAddress_v2)("cuGraphicsUnregisterResource",
                                                                  &p, 13000, 0, NULL));
    TEST_ASSERT_EQUAL_PTR(driver_symbol("cuGraphicsUnregisterResource"), p);
}

static void CUDA_CB count_name(void *data, CUlogLevel level, char *message, size_t length)
{
    (void)level;
    if (memmem(message, length, "cuGraphicsMapResources", 22) != NULL)
        ++*(unsigned *)data;
}

static void what_is_not_implemented_is_logged_once(void)
{
    CUlogsCallbackHandle handle;
    unsigned n = 0;
    OK(CALL(cuInit)(0));
    OK(CALL(cuLogsRegisterCallback)(count_name, &n, &handle));
    for (int i = 0; i < 3; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                              CALL(cuGraphicsMapResources)(0, NULL, NULL));
    OK(CALL(cuLogsUnregisterCallback)(handle));
    TEST_ASSERT_EQUAL_UINT(1, n);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(each_name_gives_the_version_that_was_asked_for);
    RUN_TEST(the_status_tells_an_unknown_name_from_an_old_version);
    RUN_TEST(what_is_not_implemented_is_still_there_to_link_against);
    RUN_TEST(what_is_not_implemented_is_logged_once);
    return UNITY_END();
}

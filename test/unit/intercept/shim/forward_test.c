/* Forwarding and lookups, in front of a driver whose answers are known exactly
 * (test/standin/driver.c). */
#include "test/unit/intercept/help.h"

#include <pthread.h>
#include <sys/wait.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void *address_of(const char *name, int version, cuuint64_t flags)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult r = CALL(cuGetProcAddress_v2)(name, &found, version, flags, &status);
    TEST_ASSERT_EQUAL_INT(found != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, r);
    return found;
}

static void the_version_that_is_asked_for_decides(void)
{
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuMemAlloc"), address_of("cuMemAlloc", 2000, 0));
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuMemAlloc"), address_of("cuMemAlloc", 3010, 0));
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuMemAlloc_v2"), address_of("cuMemAlloc", 3020, 0));
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuMemAlloc_v2"), address_of("cuMemAlloc", 13000, 0));
    TEST_ASSERT_NULL(address_of("cuMemAlloc", 1000, 0));
}

static void the_first_form_of_the_lookup_answers_the_same(void)
{
    void *found = NULL;
    OK(CALL(cuGetProcAddress)("cuMemAlloc", &found, 13000, 0));
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuMemAlloc_v2"), found);
}

static void the_per_thread_flag_leads_to_the_twin(void)
{
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuMemcpyDtoHAsync_v2"),
                          address_of("cuMemcpyDtoHAsync", 13000, 0));
    TEST_ASSERT_EQUAL_PTR(
        symbol_of(shim, "cuMemcpyDtoHAsync_v2_ptsz"),
        address_of("cuMemcpyDtoHAsync", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
}

static void what_is_looked_up_is_intercepted(void)
{
    TEST_ASSERT_EQUAL_PTR(symbol_of(shim, "cuLaunchKernel"), address_of("cuLaunchKernel", 4000, 0));
    TEST_ASSERT_TRUE(symbol_of(driver, "cuLaunchKernel") != address_of("cuLaunchKernel", 4000, 0));
}

static void an_unknown_name_is_the_drivers_own(void)
{
    CUresult (*future)(void) = (CUresult(*)(void))address_of("cuFromTheFuture", 14000, 0);
    TEST_ASSERT_NOT_NULL(future);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ALREADY_MAPPED, future());
    TEST_ASSERT_NULL(address_of("cuNobodyHasThis", 13000, 0));
    TEST_ASSERT_NULL(address_of("", 0, 0));
}

static void versions_keep_their_signatures(void)
{
    CUdeviceptr address = 0;
    CUdeviceptr_v1 narrow = 0;
    OK(CALL(cuMemAlloc_v2)(&address, 16));
    OK(CALL(cuMemAlloc)(&narrow, 16));
    TEST_ASSERT_EQUAL_UINT64(2, address);
    TEST_ASSERT_EQUAL_UINT32(1, narrow);
}

static void what_the_driver_lacks_says_so(void)
{
    float bias = 1.5f;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED, CALL(cuTexRefSetMipmapLevelBias)(NULL, bias));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED, CALL(cuMemcpy2D_v2)(NULL));
    TEST_ASSERT_NULL(address_of("cuMemcpy2D", 13000, 0));
}

static void *call_without_context(void *out)
{
    CUfunction f = (CUfunction)0x1234;
    *(CUresult *)out = CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    CALL(cuStreamSynchronize)(NULL);
    return NULL;
}

static void a_thread_without_a_context_does_no_harm(void)
{
    pthread_t thread;
    CUresult r = CUDA_ERROR_UNKNOWN;
    OK(CALL(cuInit)(0));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, call_without_context, &r));
    pthread_join(thread, NULL);
    OK(r);
    TEST_ASSERT_TRUE(becomes_idle());
}

/* The child forgets the parent's job, and begins its own with its own cuInit. */
static void a_child_of_a_fork_begins_anew(void)
{
#ifdef __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("TSan does not start threads after a fork of many");
#endif
    CUstream stream;
    OK(CALL(cuInit)(0));
    OK(CALL(cuStreamCreate)(&stream, 0));
    *(_Atomic int *)symbol_of(driver, "standin_busy") = 1;
    OK(CALL(cuLaunchKernel)((CUfunction)0x1234, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    pid_t child = fork();
    if (child == 0) {
        bool is_right = in_flight() == 0;
        is_right = is_right && CALL(cuLaunchKernel)((CUfunction)0x1234, 1, 1, 1, 1, 1, 1, 0, stream,
                                                    NULL, NULL) == 0;
        is_right = is_right && CALL(cuInit)(0) == CUDA_SUCCESS && in_flight() == 0;
        is_right = is_right && CALL(cuLaunchKernel)((CUfunction)0x1234, 1, 1, 1, 1, 1, 1, 0, stream,
                                                    NULL, NULL) == 0;
        is_right = is_right && in_flight() == 1 && CALL(cuStreamSynchronize)(stream) == 0 &&
                   in_flight() == 0;
        _exit(is_right ? 0 : 1);
    }
    int status = -1;
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    *(_Atomic int *)symbol_of(driver, "standin_busy") = 0;
    OK(CALL(cuStreamSynchronize)(stream));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
}

int main(void)
{
    open_shim("test/standin/libcuda.so.1");
    UNITY_BEGIN();
    RUN_TEST(the_version_that_is_asked_for_decides);
    RUN_TEST(the_first_form_of_the_lookup_answers_the_same);
    RUN_TEST(the_per_thread_flag_leads_to_the_twin);
    RUN_TEST(what_is_looked_up_is_intercepted);
    RUN_TEST(an_unknown_name_is_the_drivers_own);
    RUN_TEST(versions_keep_their_signatures);
    RUN_TEST(what_the_driver_lacks_says_so);
    RUN_TEST(a_thread_without_a_context_does_no_harm);
    RUN_TEST(a_child_of_a_fork_begins_anew);
    return UNITY_END();
}

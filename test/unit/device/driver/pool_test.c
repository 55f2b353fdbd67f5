/* Pools of host and managed memory, and what is said of managed memory, as it is told again. */
#include "test/unit/device/driver/help.h"

enum { PAGE = 4096, N = 4 * PAGE };

static CUstream stream;

void setUp(void)
{
    use_device();
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
}

void tearDown(void)
{
    CALL(cuStreamDestroy_v2)(stream);
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static CUmemoryPool new_pool(CUmemAllocationType type, CUmemLocationType where, int id)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = {.allocType = type, .location = {.type = where, .id = id}};
    OK(CALL(cuMemPoolCreate)(&pool, &props));
    return pool;
}

static int pointer_attribute(CUdeviceptr p, CUpointer_attribute what)
{
    int value = -1;
    OK(CALL(cuPointerGetAttribute)(&value, what, p));
    return value;
}

static void a_managed_pool_gives_memory_that_both_sides_use(void)
{
    CUmemoryPool pool = new_pool(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
    CUdeviceptr p, again;
    OK(CALL(cuMemAllocFromPoolAsync)(&p, N, pool, stream));
    OK(CALL(cuMemsetD32Async)(p, 5, N / 4, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    TEST_ASSERT_EQUAL_UINT(5, ((const unsigned *)(uintptr_t)p)[N / 4 - 1]);
    TEST_ASSERT_EQUAL_INT(1, pointer_attribute(p, CU_POINTER_ATTRIBUTE_IS_MANAGED));
    OK(CALL(cuMemPrefetchAsync)(p, N, CU_DEVICE_CPU, stream));
    OK(CALL(cuMemFreeAsync)(p, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemAllocFromPoolAsync)(&again, N, pool, stream)); /* what the pool kept */
    TEST_ASSERT_EQUAL_UINT64(p, again);
    ((unsigned *)(uintptr_t)again)[0] = 9;
    OK(CALL(cuMemFree_v2)(again));
    OK(CALL(cuMemPoolDestroy)(pool));
}

static void a_pool_of_host_memory_takes_none_of_the_device(void)
{
    CUmemoryPool pool = new_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST, 0);
    size_t before, after, total;
    CUdeviceptr p;
    OK(CALL(cuMemGetInfo_v2)(&before, &total));
    OK(CALL(cuMemAllocFromPoolAsync)(&p, 1 << 20, pool, stream));
    OK(CALL(cuMemGetInfo_v2)(&after, &total));
    TEST_ASSERT_EQUAL_UINT64(before, after);
    TEST_ASSERT_EQUAL_INT(CU_MEMORYTYPE_HOST,
                          pointer_attribute(p, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
    OK(CALL(cuMemFreeAsync)(p, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemPoolDestroy)(pool));
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemPoolCreate)(&pool, &props));
}

/* Programs ask for these three before they make such a pool. */
static void pools_of_host_memory_are_told_of(void)
{
    int value;
    OK(CALL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0));
    TEST_ASSERT_EQUAL_INT(1, value);
    OK(CALL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0));
    TEST_ASSERT_EQUAL_INT(1, value);
    OK(CALL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, value);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = value}};
    CUmemoryPool pool;
    int fd = -1;
    OK(CALL(cuMemPoolCreate)(&pool, &props));
    OK(CALL(cuMemPoolExportToShareableHandle)(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              0));
    TEST_ASSERT_GREATER_OR_EQUAL_INT(0, fd);
    close(fd);
    OK(CALL(cuMemPoolDestroy)(pool));
}

static void a_place_has_a_pool_by_default_and_a_current_one(void)
{
    const CUmemAllocationType managed = CU_MEM_ALLOCATION_TYPE_MANAGED;
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_NONE},
                  device = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemoryPool first, other, current;
    OK(CALL(cuMemGetDefaultMemPool)(&first, &nowhere, managed));
    OK(CALL(cuMemGetMemPool)(&current, &nowhere, managed));
    TEST_ASSERT_EQUAL_PTR(first, current);
    OK(CALL(cuMemGetDefaultMemPool)(&other, &device, managed));
    TEST_ASSERT_NOT_EQUAL(first, other);
    CUmemoryPool own = new_pool(managed, CU_MEM_LOCATION_TYPE_NONE, 0);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuMemSetMemPool)(&device, managed, own)); /* another place's */
    OK(CALL(cuMemSetMemPool)(&nowhere, managed, own));
    OK(CALL(cuMemGetMemPool)(&current, &nowhere, managed));
    TEST_ASSERT_EQUAL_PTR(own, current);
    OK(CALL(cuMemPoolDestroy)(own));
    OK(CALL(cuMemGetMemPool)(&current, &nowhere, managed));
    TEST_ASSERT_EQUAL_PTR(first, current);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemPoolDestroy)(first));
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_INVALID_VALUE,
        CALL(cuMemGetDefaultMemPool)(&other, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED));
}

static void no_bytes_are_nothing(void)
{
    CUdeviceptr p = 1;
    OK(CALL(cuMemAllocAsync)(&p, 0, stream));
    TEST_ASSERT_EQUAL_UINT64(0, p);
    OK(CALL(cuMemFreeAsync)(p, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    CUgraph g;
    p = 1;
    OK(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CALL(cuMemAllocAsync)(&p, 0, stream));
    TEST_ASSERT_EQUAL_UINT64(0, p);
    OK(CALL(cuStreamEndCapture)(stream, &g));
    OK(CALL(cuGraphDestroy)(g));
}

static int range(CUdeviceptr p, size_t n, CUmem_range_attribute what)
{
    int value = -99;
    OK(CALL(cuMemRangeGetAttribute)(&value, sizeof value, what, p, n));
    return value;
}

static void advice_is_told_of_ranges_that_agree(void)
{
    CUdeviceptr p;
    int users[3];
    CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    OK(CALL(cuMemAllocManaged)(&p, N, CU_MEM_ATTACH_GLOBAL));
    TEST_ASSERT_EQUAL_INT(0, range(p, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
    TEST_ASSERT_EQUAL_INT(CU_DEVICE_INVALID,
                          range(p, N, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
    OK(CALL(cuMemAdvise)(p + PAGE, PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    OK(CALL(cuMemAdvise)(p, N, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    OK(CALL(cuMemAdvise)(p, N, CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    OK(CALL(cuMemAdvise_v2)(p + 2 * PAGE, 1, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node));
    TEST_ASSERT_EQUAL_INT(0, range(p, N, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
    TEST_ASSERT_EQUAL_INT(1, range(p + PAGE, PAGE, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY));
    TEST_ASSERT_EQUAL_INT(CU_DEVICE_CPU,
                          range(p, 2 * PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION));
    TEST_ASSERT_EQUAL_INT(CU_MEM_LOCATION_TYPE_HOST,
                          range(p, 2 * PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE));
    TEST_ASSERT_EQUAL_INT(
        CU_MEM_LOCATION_TYPE_HOST_NUMA,
        range(p + 2 * PAGE, PAGE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE));
    TEST_ASSERT_EQUAL_INT(CU_MEM_LOCATION_TYPE_INVALID,
                          range(p, N, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE));
    OK(CALL(cuMemRangeGetAttribute)(users, sizeof users, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, N));
    TEST_ASSERT_EQUAL_INT(0, users[0]);
    TEST_ASSERT_EQUAL_INT(CU_DEVICE_INVALID, users[1]);
    OK(CALL(cuMemAdvise)(p, PAGE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, 0));
    OK(CALL(cuMemRangeGetAttribute)(users, sizeof users, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, N));
    TEST_ASSERT_EQUAL_INT(CU_DEVICE_INVALID, users[0]);
    OK(CALL(cuMemPrefetchAsync)(p, N, 0, stream));
    OK(CALL(cuMemPrefetchAsync)(p + 3 * PAGE, PAGE, CU_DEVICE_CPU, stream));
    TEST_ASSERT_EQUAL_INT(0, range(p, 3 * PAGE, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
    TEST_ASSERT_EQUAL_INT(CU_DEVICE_INVALID,
                          range(p, N, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuMemAdvise)(p, N, (CU_MEM_ADVISE_UNSET_ACCESSED_BY + 1), 0));
    OK(CALL(cuMemFree_v2)(p));
    OK(CALL(cuMemAlloc_v2)(&p, N)); /* advice is for managed memory */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuMemAdvise)(p, N, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    OK(CALL(cuMemFree_v2)(p));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_managed_pool_gives_memory_that_both_sides_use);
    RUN_TEST(a_pool_of_host_memory_takes_none_of_the_device);
    RUN_TEST(pools_of_host_memory_are_told_of);
    RUN_TEST(a_place_has_a_pool_by_default_and_a_current_one);
    RUN_TEST(no_bytes_are_nothing);
    RUN_TEST(advice_is_told_of_ranges_that_agree);
    return UNITY_END();
}

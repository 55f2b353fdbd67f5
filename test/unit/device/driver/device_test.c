/* Devices, of which there are two here, and contexts on them: what they are, what they share, and
 * what they do not. */
#include "test/unit/device/driver/help.h"

#include <pthread.h>
#include <sys/wait.h>

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
    CALL(cuCtxSetCurrent)(NULL);
}

static int attribute(CUdevice_attribute which, CUdevice device)
{
    int value = -1;
    OK(CALL(cuDeviceGetAttribute)(&value, which, device));
    return value;
}

static void there_are_as_many_devices_as_asked_for(void)
{
    char first[64], second[64], name[100];
    CUuuid a, b;
    CUdevice device;
    int n, major, minor, value;
    size_t bytes;
    OK(CALL(cuDeviceGetCount)(&n));
    TEST_ASSERT_EQUAL_INT(2, n);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_DEVICE, CALL(cuDeviceGet)(&device, 2));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_DEVICE, CALL(cuDeviceGet)(&device, -1));
    OK(CALL(cuDeviceGetUuid_v2)(&a, 0));
    OK(CALL(cuDeviceGetUuid_v2)(&b, 1));
    TEST_ASSERT_TRUE(memcmp(&a, &b, sizeof a) != 0);
    OK(CALL(cuDeviceGetPCIBusId)(first, sizeof first, 0));
    OK(CALL(cuDeviceGetPCIBusId)(second, sizeof second, 1));
    TEST_ASSERT_TRUE(strcmp(first, second) != 0);
    OK(CALL(cuDeviceGetByPCIBusId)(&device, second));
    TEST_ASSERT_EQUAL_INT(1, device);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_DEVICE,
                          CALL(cuDeviceGetByPCIBusId)(&device, "0000:7f:00.0"));
    OK(CALL(cuDeviceGetName)(name, sizeof name, 1));
    TEST_ASSERT_TRUE(name[0] != 0);
    OK(CALL(cuDeviceTotalMem_v2)(&bytes, 1));
    TEST_ASSERT_EQUAL_UINT64(512 << 20, bytes);
    OK(CALL(cuDeviceComputeCapability)(&major, &minor, 0));
    TEST_ASSERT_EQUAL_INT(13, major);
    TEST_ASSERT_EQUAL_INT(0, minor);
    TEST_ASSERT_EQUAL_INT(13, attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 1));
    TEST_ASSERT_EQUAL_INT(32, attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    TEST_ASSERT_TRUE(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0) > 0);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuDeviceGetAttribute)(&value, 0, 0));
    OK(CALL(cuDriverGetVersion)(&n));
    TEST_ASSERT_EQUAL_INT(13000, n);
}

static void every_error_has_a_name_and_a_text(void)
{
    const char *name, *text;
    for (int code = 0; code <= 1000; code++) {
        CUresult r = CALL(cuGetErrorName)((CUresult)code, &name);
        TEST_ASSERT_EQUAL_INT(r, CALL(cuGetErrorString)((CUresult)code, &text));
        TEST_ASSERT_TRUE(r == CUDA_SUCCESS ? strncmp(name, "CUDA_", 5) == 0 && text[0] != 0
                                           : name == NULL);
    }
    OK(CALL(cuGetErrorName)(CUDA_ERROR_MPS_RPC_FAILURE, &name));
    TEST_ASSERT_EQUAL_STRING("CUDA_ERROR_MPS_RPC_FAILURE", name);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGetErrorName)((CUresult)998, &name));
}

static void devices_have_memory_of_their_own(void)
{
    CUcontext other;
    CUdeviceptr a, b;
    size_t before, after, total;
    int ordinal = -1;
    unsigned v = 0;
    OK(CALL(cuDevicePrimaryCtxRetain)(&other, 1));
    OK(CALL(cuCtxPushCurrent_v2)(other));
    OK(CALL(cuMemGetInfo_v2)(&before, &total));
    OK(CALL(cuCtxPopCurrent_v2)(NULL));
    OK(CALL(cuMemAlloc_v2)(&a, 100 << 20)); /* on the first */
    OK(CALL(cuCtxPushCurrent_v2)(other));
    OK(CALL(cuMemGetInfo_v2)(&after, &total));
    TEST_ASSERT_EQUAL_UINT64(before, after);
    OK(CALL(cuMemAlloc_v2)(&b, 1 << 20));
    OK(CALL(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, b));
    TEST_ASSERT_EQUAL_INT(1, ordinal);
    OK(CALL(cuCtxPopCurrent_v2)(NULL));
    /* From one to the other. */
    OK(CALL(cuMemsetD32_v2)(a, 0x1234, 4));
    OK(CALL(cuMemcpyPeer)(b, other, a, NULL, 16));
    OK(CALL(cuMemcpyDtoH_v2)(&v, b, 4));
    TEST_ASSERT_EQUAL_HEX(0x1234, v);
    OK(CALL(cuMemsetD32_v2)(a, 0x77, 4));
    OK(CALL(cuMemcpyPeerAsync)(b, other, a, NULL, 16, NULL));
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuMemcpyDtoH_v2)(&v, b, 4));
    TEST_ASSERT_EQUAL_HEX(0x77, v);
    OK(CALL(cuMemFree_v2)(a));
    OK(CALL(cuCtxPushCurrent_v2)(other));
    OK(CALL(cuMemFree_v2)(b));
    OK(CALL(cuCtxPopCurrent_v2)(NULL));
    OK(CALL(cuDevicePrimaryCtxRelease_v2)(1));
}

static void peers_are_enabled_once(void)
{
    CUcontext here, other;
    int can = -1;
    OK(CALL(cuDeviceCanAccessPeer)(&can, 0, 1));
    TEST_ASSERT_EQUAL_INT(1, can);
    OK(CALL(cuDeviceCanAccessPeer)(&can, 0, 0));
    TEST_ASSERT_EQUAL_INT(0, can);
    OK(CALL(cuDeviceGetP2PAttribute)(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    TEST_ASSERT_EQUAL_INT(1, can);
    OK(CALL(cuCtxGetCurrent)(&here));
    OK(CALL(cuDevicePrimaryCtxRetain)(&other, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, CALL(cuCtxDisablePeerAccess)(other));
    OK(CALL(cuCtxEnablePeerAccess)(other, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                          CALL(cuCtxEnablePeerAccess)(other, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT, CALL(cuCtxEnablePeerAccess)(here, 0));
    OK(CALL(cuCtxDisablePeerAccess)(other));
    OK(CALL(cuDevicePrimaryCtxRelease_v2)(1));
}

static void a_context_keeps_its_settings(void)
{
    CUcontext made, current;
    CUfunc_cache cache;
    CUsharedconfig shared;
    CUexecAffinityParam affinity;
    CUdevice device;
    unsigned flags, version;
    unsigned long long id, other_id;
    int least, greatest;
    size_t limit;
    OK(CALL(cuCtxGetId)(NULL, &other_id));
    OK(CALL(cuCtxCreate_v2)(&made, CU_CTX_SCHED_BLOCKING_SYNC, 1));
    OK(CALL(cuCtxGetCurrent)(&current));
    TEST_ASSERT_EQUAL_PTR(made, current);
    OK(CALL(cuCtxGetDevice)(&device));
    TEST_ASSERT_EQUAL_INT(1, device);
    OK(CALL(cuCtxGetFlags)(&flags));
    TEST_ASSERT_EQUAL_UINT(CU_CTX_SCHED_BLOCKING_SYNC, flags & CU_CTX_SCHED_MASK);
    OK(CALL(cuCtxSetFlags)(CU_CTX_SCHED_SPIN));
    OK(CALL(cuCtxGetFlags)(&flags));
    TEST_ASSERT_EQUAL_UINT(CU_CTX_SCHED_SPIN, flags & CU_CTX_SCHED_MASK);
    OK(CALL(cuCtxGetId)(made, &id));
    TEST_ASSERT_TRUE(id != other_id);
    OK(CALL(cuCtxGetApiVersion)(made, &version));
    TEST_ASSERT_TRUE(version >= 3020);
    OK(CALL(cuCtxSetCacheConfig)(CU_FUNC_CACHE_PREFER_L1));
    OK(CALL(cuCtxGetCacheConfig)(&cache));
    TEST_ASSERT_EQUAL_INT(CU_FUNC_CACHE_PREFER_L1, cache);
    OK(CALL(cuCtxSetSharedMemConfig)(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE));
    OK(CALL(cuCtxGetSharedMemConfig)(&shared));
    OK(CALL(cuCtxGetStreamPriorityRange)(&least, &greatest));
    TEST_ASSERT_TRUE(greatest < least);
    OK(CALL(cuCtxGetExecAffinity)(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT));
    TEST_ASSERT_EQUAL_INT(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1),
                          affinity.param.smCount.val);
    OK(CALL(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096));
    OK(CALL(cuCtxGetLimit)(&limit, CU_LIMIT_STACK_SIZE));
    TEST_ASSERT_EQUAL_UINT64(4096, limit);
    OK(CALL(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 16 << 20));
    OK(CALL(cuCtxGetLimit)(&limit, CU_LIMIT_MALLOC_HEAP_SIZE));
    TEST_ASSERT_EQUAL_UINT64(16 << 20, limit);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_UNSUPPORTED_LIMIT, CALL(cuCtxGetLimit)(&limit, CU_LIMIT_MAX));
    OK(CALL(cuCtxResetPersistingL2Cache)());
    OK(CALL(cuCtxDestroy_v2)(made));
    OK(CALL(cuCtxGetCurrent)(&current)); /* the one below it is current again */
    TEST_ASSERT_TRUE(current != NULL && current != made);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_CONTEXT_IS_DESTROYED, CALL(cuCtxDestroy_v2)(made));
}

static void names_without_a_number_are_the_first_versions(void)
{
    CUcontext made, popped;
    __typeof__(cuCtxCreate_v2) *create = (__typeof__(cuCtxCreate_v2) *)driver_symbol("cuCtxCreate");
    __typeof__(cuCtxDestroy_v2) *destroy = (__typeof__(cuCtxDestroy_v2) *)driver_symbol(
        "cuCtxDestroy");
    __typeof__(cuCtxPopCurrent_v2) *pop = (__typeof__(cuCtxPopCurrent_v2) *)driver_symbol(
        "cuCtxPopCurrent");
    __typeof__(cuCtxPushCurrent_v2) *push = (__typeof__(cuCtxPushCurrent_v2) *)driver_symbol(
        "cuCtxPushCurrent");
    OK(create(&made, 0, 0));
    OK(pop(&popped));
    TEST_ASSERT_EQUAL_PTR(made, popped);
    OK(push(made));
    OK(destroy(made));
}

static void the_primary_context_is_active_while_it_is_retained(void)
{
    CUcontext ctx;
    CUdeviceptr d;
    unsigned flags;
    int is_active;
    size_t before, after, total;
    OK(CALL(cuDevicePrimaryCtxGetState)(1, &flags, &is_active));
    TEST_ASSERT_EQUAL_INT(0, is_active);
    OK(CALL(cuDevicePrimaryCtxSetFlags_v2)(1, CU_CTX_SCHED_YIELD));
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 1));
    OK(CALL(cuDevicePrimaryCtxGetState)(1, &flags, &is_active));
    TEST_ASSERT_EQUAL_INT(1, is_active);
    TEST_ASSERT_EQUAL_UINT(CU_CTX_SCHED_YIELD, flags & CU_CTX_SCHED_MASK);
    OK(CALL(cuCtxPushCurrent_v2)(ctx));
    OK(CALL(cuMemGetInfo_v2)(&before, &total));
    OK(CALL(cuMemAlloc_v2)(&d, 64 << 20));
    OK(CALL(cuMemAllocAsync)(&d, 32 << 20, NULL));
    OK(CALL(cuDevicePrimaryCtxReset_v2)(1));
    OK(CALL(cuMemGetInfo_v2)(&after, &total));
    TEST_ASSERT_EQUAL_UINT64(before, after);
    OK(CALL(cuCtxPopCurrent_v2)(NULL));
    OK(CALL(cuDevicePrimaryCtxRelease_v2)(1)); /* a reset is no release */
    OK(CALL(cuDevicePrimaryCtxGetState)(1, &flags, &is_active));
    TEST_ASSERT_EQUAL_INT(0, is_active);
}

/* What is mapped belongs to no context, and its addresses to nobody else, until it is unmapped. */
static void mapped_memory_outlives_the_context(void)
{
    const CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    const CUmemAccessDesc access[] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READ},
                                      {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp told;
    CUcontext ctx;
    CUdeviceptr at;
    unsigned long long flags;
    size_t n;
    unsigned v = 0;
    OK(CALL(cuMemGetAllocationGranularity)(&n, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(CALL(cuCtxCreate_v2)(&ctx, 0, 1));
    OK(CALL(cuMemCreate)(&memory, n, &props, 0));
    OK(CALL(cuMemAddressReserve)(&at, n, 0, 0, 0));
    OK(CALL(cuMemMap)(at, n, 0, memory, 0));
    OK(CALL(cuMemSetAccess)(at, n, access, 2));
    OK(CALL(cuMemGetAccess)(&flags, &access[1].location, at));
    TEST_ASSERT_EQUAL_UINT64(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
    OK(CALL(cuMemGetAllocationPropertiesFromHandle)(&told, memory));
    TEST_ASSERT_EQUAL_INT(1, told.location.id);
    OK(CALL(cuMemsetD32_v2)(at, 99, 1));
    OK(CALL(cuCtxDestroy_v2)(ctx));
    OK(CALL(cuMemcpyDtoH_v2)(&v, at, 4));
    TEST_ASSERT_EQUAL_UINT(99, v);
    OK(CALL(cuMemUnmap)(at, n));
    OK(CALL(cuMemAddressFree)(at, n));
    OK(CALL(cuMemRelease)(memory));
}

static void *look_for_context(void *out)
{
    CALL(cuCtxGetCurrent)(out);
    return NULL;
}

struct number {
    CUresult result;
    uint64_t number;
};

/* By the table that cuBLAS asks, which looks for kernels before its runtime has taken a context. */
static void *ask_number(void *out)
{
    static const CUuuid id = {.bytes = {0x21, 0x31, (char)0x8c, 0x60, (char)0x97, 0x14, 0x32, 0x48,
                                        (char)0x8c, (char)0xa6, 0x41, (char)0xff, 0x73, 0x24,
                                        (char)0xc8, (char)0xf2}};
    struct number *n = out;
    const void *table;
    CUresult (*number)(CUcontext, uint64_t *);
    n->result = CALL(cuGetExportTable)(&table, &id);
    if (n->result != CUDA_SUCCESS)
        return NULL;
    memcpy(&number, (const char *)table + 4 * sizeof number, sizeof number);
    n->result = number(NULL, &n->number);
    return NULL;
}

static void a_thread_without_a_context_is_to_have_the_primary_one(void)
{
    pthread_t thread;
    CUcontext ctx;
    unsigned long long expected;
    struct number found = {.number = 0};
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(CALL(cuCtxGetId)(ctx, &expected));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, ask_number, &found));
    pthread_join(thread, NULL);
    OK(found.result);
    TEST_ASSERT_EQUAL_UINT64(expected, found.number);
}

static void a_thread_begins_without_a_context(void)
{
    CUcontext found = (CUcontext)1;
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, look_for_context, &found));
    pthread_join(thread, NULL);
    TEST_ASSERT_NULL(found);
}

static const char *self;

/* Runs this program again with CUDA_VISIBLE_DEVICES; its exit status is what cuInit said, or 100 +
 * 10 times the number of devices + the bus of the first. */
static int seen_with(const char *visible)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
        execl(self, self, "child", (char *)NULL);
        _exit(99);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int child(void)
{
    int n, bus;
    CUresult r = CALL(cuInit)(0);
    if (r != CUDA_SUCCESS)
        return (int)r;
    if (CALL(cuDeviceGetCount)(&n) != CUDA_SUCCESS ||
        CALL(cuDeviceGetAttribute)(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0) != CUDA_SUCCESS)
        return 98;
    return 100 + 10 * n + bus;
}

static void devices_can_be_hidden(void)
{
    TEST_ASSERT_EQUAL_INT(121, seen_with("0,1"));
    TEST_ASSERT_EQUAL_INT(122, seen_with("1,0"));
    TEST_ASSERT_EQUAL_INT(112, seen_with("1"));
    TEST_ASSERT_EQUAL_INT(111, seen_with("0,7,1"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_DEVICE, seen_with(""));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_DEVICE, seen_with("-1"));
}

int main(int argc, char **argv)
{
    self = argv[0];
    setenv("TALLY_DEVICES", "2", 1);
    open_driver();
    if (argc > 1)
        return child();
    unsetenv("CUDA_VISIBLE_DEVICES");
    UNITY_BEGIN();
    RUN_TEST(there_are_as_many_devices_as_asked_for);
    RUN_TEST(every_error_has_a_name_and_a_text);
    RUN_TEST(devices_have_memory_of_their_own);
    RUN_TEST(peers_are_enabled_once);
    RUN_TEST(a_context_keeps_its_settings);
    RUN_TEST(names_without_a_number_are_the_first_versions);
    RUN_TEST(the_primary_context_is_active_while_it_is_retained);
    RUN_TEST(mapped_memory_outlives_the_context);
    RUN_TEST(a_thread_begins_without_a_context);
    RUN_TEST(a_thread_without_a_context_is_to_have_the_primary_one);
    RUN_TEST(devices_can_be_hidden);
    return UNITY_END();
}

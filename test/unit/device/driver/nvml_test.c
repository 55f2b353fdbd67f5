/* NVML of the software device agrees with its driver. */
#include "test/unit/device/driver/help.h"

static void *nvml;

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void *function(const char *name)
{
    void *p = dlsym(nvml, name);
    TEST_ASSERT_NOT_NULL_MESSAGE(p, name);
    return p;
}

static void a_device_has_the_drivers_uuid(void)
{
    const void *device;
    char text[80], expected[80] = "GPU-";
    unsigned index = 9;
    CUuuid uuid;
    OK(CALL(cuDeviceGetUuid_v2)(&uuid, 0));
    for (int i = 0; i < 16; i++)
        snprintf(expected + strlen(expected), 8, "%s%02x",
                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid.bytes[i]);
    OK(((int (*)(unsigned, const void **))function("nvmlDeviceGetHandleByIndex_v2"))(0, &device));
    OK(((int (*)(const void *, char *, unsigned))function("nvmlDeviceGetUUID"))(device, text, 80));
    TEST_ASSERT_EQUAL_STRING(expected, text);
    OK(((int (*)(const void *, unsigned *))function("nvmlDeviceGetIndex"))(device, &index));
    TEST_ASSERT_EQUAL_UINT(0, index);
    TEST_ASSERT_EQUAL_INT(7, ((int (*)(const void *, char *, unsigned))function(
                                 "nvmlDeviceGetUUID"))(device, text, 8));
}

static void the_branch_is_the_drivers(void)
{
    struct {
        unsigned version;
        char branch[80];
    } info = {.version = 0};
    char version[80];
    OK(((int (*)(void *, unsigned))function("nvmlSystemGetDriverBranch"))(&info, 80));
    OK(((int (*)(char *, unsigned))function("nvmlSystemGetDriverVersion"))(version, 80));
    TEST_ASSERT_EQUAL_STRING_LEN(version, info.branch + 1, 3);
}

/* Rows of the first version are shorter; both tell the process that asks. */
static void processes_are_told_in_rows_of_both_lengths(void)
{
    const void *device;
    struct {
        unsigned pid;
        unsigned long long bytes;
    } short_row = {0};
    struct {
        unsigned pid;
        unsigned long long bytes;
        unsigned gpu, compute;
    } row = {0};
    unsigned n = 0;
    typedef int ask(const void *, unsigned *, void *);
    ask *first = (ask *)function("nvmlDeviceGetComputeRunningProcesses"),
        *third = (ask *)function("nvmlDeviceGetComputeRunningProcesses_v3");
    OK(((int (*)(unsigned, const void **))function("nvmlDeviceGetHandleByIndex_v2"))(0, &device));
    TEST_ASSERT_EQUAL_INT(7, first(device, &n, NULL));
    TEST_ASSERT_EQUAL_UINT(1, n);
    OK(first(device, &n, &short_row));
    OK(third(device, &n, &row));
    TEST_ASSERT_EQUAL_UINT(getpid(), short_row.pid);
    TEST_ASSERT_EQUAL_UINT64(row.bytes, short_row.bytes);
}

/* What NCCL looks up and calls, some of it without a look whether it is there. */
static void nccl_finds_what_it_calls(void)
{
    static const char *const names[] = {
        "nvmlDeviceGetCount",          "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetFieldValues",    "nvmlDeviceGetNvLinkRemotePciInfo",
        "nvmlDeviceGetNvLinkState",    "nvmlDeviceGetNvLinkCapability",
        "nvmlDeviceGetGpuFabricInfoV", "nvmlErrorString"};
    const void *device;
    int major = 0, minor = -1, expected[2], status = 9;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        function(names[i]);
    OK(((int (*)(unsigned, const void **))function("nvmlDeviceGetHandleByIndex"))(0, &device));
    OK(CALL(cuDeviceGetAttribute)(&expected[0], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    OK(CALL(cuDeviceGetAttribute)(&expected[1], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0));
    OK(((int (*)(const void *, int *, int *))function("nvmlDeviceGetCudaComputeCapability"))(
        device, &major, &minor));
    TEST_ASSERT_EQUAL_INT(expected[0], major);
    TEST_ASSERT_EQUAL_INT(expected[1], minor);
    int (*peers)(const void *, const void *, int, int *) = function("nvmlDeviceGetP2PStatus");
    OK(peers(device, device, 0, &status));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_INT(2, peers(device, device, 99, &status));
}

/* A monitor's questions: answered as the driver does, or by "Not Supported" (3). */
static void monitors_find_what_they_show(void)
{
    static const char *const absent[] = {"nvmlDeviceGetPersistenceMode",
                                         "nvmlDeviceGetDisplayActive",
                                         "nvmlDeviceGetEccMode",
                                         "nvmlDeviceGetFanSpeed",
                                         "nvmlDeviceGetTemperatureV",
                                         "nvmlDeviceGetTemperature",
                                         "nvmlDeviceGetPerformanceState",
                                         "nvmlDeviceGetPowerUsage",
                                         "nvmlDeviceGetEnforcedPowerLimit",
                                         "nvmlDeviceGetUtilizationRates",
                                         "nvmlDeviceGetMigMode",
                                         "nvmlEventSetCreate"};
    struct {
        char short_id[16];
        unsigned domain, bus, device, device_id, subsystem_id;
        char id[32];
    } pci;
    const void *device;
    char expected[32];
    int mode = 9;
    unsigned n = 9;
    OK(((int (*)(unsigned, const void **))function("nvmlDeviceGetHandleByIndex"))(0, &device));
    OK(CALL(cuDeviceGetPCIBusId)(expected, sizeof expected, 0));
    int (*get_pci)(const void *, void *) = function("nvmlDeviceGetPciInfo_v3");
    OK(get_pci(device, &pci));
    TEST_ASSERT_EQUAL_STRING(expected, pci.short_id);
    TEST_ASSERT_EQUAL_STRING(expected, pci.id + 4);
    TEST_ASSERT_EQUAL_INT(2, get_pci(expected, &pci));
    OK(((int (*)(const void *, int *))function("nvmlDeviceGetComputeMode"))(device, &mode));
    TEST_ASSERT_EQUAL_INT(CU_COMPUTEMODE_DEFAULT, mode);
    OK(((int (*)(const void *, unsigned *, void *))function(
        "nvmlDeviceGetGraphicsRunningProcesses_v3"))(device, &n, NULL));
    TEST_ASSERT_EQUAL_UINT(0, n);
    for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(
            3, ((int (*)(const void *, void *, void *))function(absent[i]))(device, &mode, &n),
            absent[i]);
}

int main(void)
{
    char path[PATH_MAX];
    const char *build = getenv("TALLY_BUILD");
    open_driver();
    snprintf(path, sizeof path, "%s/lib/tally/device/libnvidia-ml.so.1",
             build != NULL ? build : "build");
    nvml = dlopen(path, RTLD_NOW);
    if (nvml == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    UNITY_BEGIN();
    RUN_TEST(a_device_has_the_drivers_uuid);
    RUN_TEST(the_branch_is_the_drivers);
    RUN_TEST(processes_are_told_in_rows_of_both_lengths);
    RUN_TEST(nccl_finds_what_it_calls);
    RUN_TEST(monitors_find_what_they_show);
    return UNITY_END();
}

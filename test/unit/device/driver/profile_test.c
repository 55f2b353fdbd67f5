/* Profiles: what a device with that profile says of itself, and which functions its driver has.
 *
 * Each profile needs a process of its own, since one is for the life of a process: the test runs
 * itself again with TALLY_DEVICE_PROFILE set, and the child's part is named by its argument. */
#include "test/unit/device/driver/help.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const char *self;

void setUp(void)
{
}

void tearDown(void)
{
}

/* Runs a part of this file in a child; its output is kept. */
static int run_part(const char *profile, const char *part, char *said, size_t n)
{
    char command[PATH_MAX + 128];
    snprintf(command, sizeof command, "TALLY_DEVICE_PROFILE=%s '%s' %s 2>&1", profile, self, part);
    FILE *f = popen(command, "r");
    TEST_ASSERT_NOT_NULL(f);
    size_t got = fread(said, 1, n - 1, f);
    said[got] = 0;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void must(const char *profile, const char *part)
{
    char said[4096];
    if (run_part(profile, part, said, sizeof said) != 0) {
        printf("%s", said);
        TEST_FAIL_MESSAGE(profile);
    }
}

static int attribute(CUdevice_attribute a)
{
    int v = -1;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDeviceGetAttribute)(&v, a, 0));
    return v;
}

/* --- numbers: CUDA C++ Programming Guide, technical specifications per compute capability --- */

static const struct numbers {
    const char *profile;
    int cc, driver, sms, sm_threads, sm_blocks, sm_shared_kb, block_shared_kb;
} numbers[] = {
    {"a100-r535", 80, 12020, 108, 2048, 32, 164, 163},
    {"rtx4090-r550", 89, 12040, 128, 1536, 24, 100, 99},
    {"h100-r550", 90, 12040, 132, 2048, 32, 228, 227},
    {"h100-r580", 90, 13000, 132, 2048, 32, 228, 227},
    {"b200-r580", 100, 13000, 148, 2048, 32, 228, 227},
};
enum { N = sizeof numbers / sizeof numbers[0] };

static void part_numbers(void)
{
    const char *name = getenv("TALLY_DEVICE_PROFILE");
    char device[64];
    int version, cc;
    const struct numbers *want = NULL;
    for (size_t i = 0; i < N; i++)
        if (strcmp(numbers[i].profile, name) == 0)
            want = &numbers[i];
    TEST_ASSERT_NOT_NULL(want);
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuInit)(0));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDriverGetVersion)(&version));
    cc = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
         attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    TEST_ASSERT_EQUAL_INT(want->driver, version);
    TEST_ASSERT_EQUAL_INT(want->cc, cc);
    TEST_ASSERT_EQUAL_INT(want->sms, attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
    TEST_ASSERT_EQUAL_INT(want->sm_threads,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR));
    TEST_ASSERT_EQUAL_INT(want->sm_blocks,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
    TEST_ASSERT_EQUAL_INT(want->sm_shared_kb << 10,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR));
    TEST_ASSERT_EQUAL_INT(want->block_shared_kb << 10,
                          attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    TEST_ASSERT_EQUAL_INT(0, attribute(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED));
    TEST_ASSERT_EQUAL_INT(0, attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED));
    /* Whoever reads a name sees that it is no GPU. */
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDeviceGetName)(device, sizeof device, 0));
    TEST_ASSERT_NOT_NULL(strstr(device, "Tally Software Device"));
    TEST_ASSERT_NOT_NULL(strstr(device, name));
    /* An attribute of CUDA 12.8. */
    int unused;
    TEST_ASSERT_EQUAL_INT(
        want->driver < 13000 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS,
        CALL(cuDeviceGetAttribute)(&unused, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0));
}

static void each_profile_has_the_numbers_of_its_gpu(void)
{
    for (size_t i = 0; i < N; i++)
        must(numbers[i].profile, "numbers");
}

/* --- functions: cudaTypedefs.h has the version that brought each --- */

static const struct {
    const char *name;
    int since;
} functions[] = {
    {"cuLaunchKernel", 4000},
    {"cuLibraryLoadData", 12000},
    {"cuFuncGetName", 12030},
    {"cuFuncGetParamInfo", 12040},
    {"cuKernelGetParamInfo", 12040},
    {"cuGreenCtxCreate", 12040},
    {"cuLibraryEnumerateKernels", 12040},
    {"cuCtxCreate_v4", 12050},
    {"cuMemcpyBatchAsync", 12080},
    {"cuCtxSynchronize_v2", 13000},
};

static void part_functions(void)
{
    int driver_has = 0;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuDriverGetVersion)(&driver_has));
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        const char *name = functions[i].name;
        bool is_there = functions[i].since <= driver_has;
        CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
        void *found = dlsym(driver, name), *asked = (void *)1;
        TEST_ASSERT_EQUAL_INT_MESSAGE(is_there, found != NULL, name);
        if (strchr(name, '_') != NULL)
            continue; /* those names are the linker's only */
        CUresult r = CALL(cuGetProcAddress_v2)(name, &asked, 13000, 0, &status);
        TEST_ASSERT_EQUAL_INT_MESSAGE(is_there ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, r, name);
        TEST_ASSERT_EQUAL_PTR_MESSAGE(is_there ? asked : NULL, asked, name);
        TEST_ASSERT_EQUAL_INT_MESSAGE(is_there ? CU_GET_PROC_ADDRESS_SUCCESS
                                               : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
                                      status, name);
    }
    /* Of a function with several versions there is the newest that the driver has. */
    void *newest;
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS,
                          CALL(cuGetProcAddress_v2)("cuCtxSynchronize", &newest, 13000, 0, NULL));
    TEST_ASSERT_EQUAL_PTR(
        driver_symbol(driver_has < 13000 ? "cuCtxSynchronize" : "cuCtxSynchronize_v2"), newest);
}

static void a_driver_has_the_functions_of_its_version_and_no_others(void)
{
    for (size_t i = 0; i < N; i++)
        must(numbers[i].profile, "functions");
    must("soft", "functions");
}

/* --- names --- */

static void part_init(void)
{
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_DEVICE, CALL(cuInit)(0));
}

static void a_name_that_is_not_known_is_refused_with_those_that_are(void)
{
    char said[4096];
    TEST_ASSERT_EQUAL_INT(0, run_part("h200-r999", "init", said, sizeof said));
    TEST_ASSERT_NOT_NULL(strstr(said, "TALLY_DEVICE_PROFILE=h200-r999 is not known"));
    TEST_ASSERT_NOT_NULL(
        strstr(said, "soft, a100-r535, rtx4090-r550, h100-r550, h100-r580, b200-r580"));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"numbers", part_numbers}, {"functions", part_functions}, {"init", part_init}};
    self = argv[0];
    UNITY_BEGIN();
    if (argc > 1) {
        open_driver();
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            if (strcmp(argv[1], parts[i].name) == 0)
                UnityDefaultTestRun(parts[i].run, parts[i].name, __LINE__);
        return UNITY_END();
    }
    RUN_TEST(each_profile_has_the_numbers_of_its_gpu);
    RUN_TEST(a_driver_has_the_functions_of_its_version_and_no_others);
    RUN_TEST(a_name_that_is_not_known_is_refused_with_those_that_are);
    return UNITY_END();
}

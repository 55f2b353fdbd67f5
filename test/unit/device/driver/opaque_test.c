/* Cubins on the software driver: refused, or with TALLY_DEVICE_OPAQUE=time accepted as kernels that
 * only last a while. */
#include "tally/clock.h"
#include "tally/device.h"
#include "test/unit/device/driver/help.h"
#include "test/unit/image/build.h"
#include "test/unit/scratch.h"

enum { BLOCK_US = 3000, BLOCKS = 8, SMS = 2 };

static struct tl_buf cubin;

void setUp(void)
{
    cubin = (struct tl_buf){0};
    build_cubin(&cubin);
    use_device();
}

void tearDown(void)
{
    unsetenv("TALLY_DEVICE_OPAQUE");
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
    tl_buf_finish(&cubin);
}

static uint64_t now_us(void)
{
    return tl_clock_ns() / 1000;
}

static void machine_code_is_refused_unless_asked_for(void)
{
    CUmodule m;
    CUlibrary l;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU, CALL(cuModuleLoadData)(&m, cubin.p));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU,
                          CALL(cuLibraryLoadData)(&l, cubin.p, NULL, NULL, 0, NULL, NULL, 0));
    setenv("TALLY_DEVICE_OPAQUE", "yes", 1); /* no such mode */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU, CALL(cuModuleLoadData)(&m, cubin.p));
}

static void an_opaque_kernel_lasts_and_computes_nothing(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr p;
    float factor = 2;
    int value, data[16], n = 0;

    char mode[32];
    snprintf(mode, sizeof mode, "time:%d", BLOCK_US);
    setenv("TALLY_DEVICE_OPAQUE", mode, 1);
    OK(CALL(cuModuleLoadData)(&m, cubin.p));
    OK(CALL(cuModuleGetFunctionCount)((unsigned *)&n, m));
    TEST_ASSERT_EQUAL_INT(2, n);
    OK(CALL(cuModuleGetFunction)(&f, m, "scale"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetFunction)(&f, m, "other"));
    OK(CALL(cuFuncGetAttribute)(&value, (CUfunction_attribute)TL_DEVICE_ATTRIBUTE_OPAQUE, f));
    TEST_ASSERT_EQUAL_INT(1, value);
    OK(CALL(cuFuncGetAttribute)(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
    TEST_ASSERT_EQUAL_INT(10, value);
    OK(CALL(cuMemAlloc_v2)(&p, sizeof data));
    OK(CALL(cuMemsetD32_v2)(p, 77, 16));
    void *args[] = {&p, &factor};
    uint64_t begin = now_us();
    OK(CALL(cuLaunchKernel)(f, BLOCKS, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_TRUE_MESSAGE(now_us() - begin >= (uint64_t)BLOCKS / SMS * BLOCK_US,
                             "shorter than the model says");
    OK(CALL(cuMemcpyDtoH_v2)(data, p, sizeof data));
    TEST_ASSERT_EACH_EQUAL_INT(77, data, 16);
    OK(CALL(cuMemFree_v2)(p));
    OK(CALL(cuModuleUnload)(m));
}

static void the_model_needs_no_number(void)
{
    CUlibrary l;
    CUkernel k;
    CUdeviceptr p = 0;
    int value;
    setenv("TALLY_DEVICE_OPAQUE", "time", 1);
    OK(CALL(cuLibraryLoadData)(&l, cubin.p, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryGetKernel)(&k, l, "fill"));
    OK(CALL(cuKernelGetAttribute)(&value, (CUfunction_attribute)TL_DEVICE_ATTRIBUTE_OPAQUE, k, 0));
    TEST_ASSERT_EQUAL_INT(1, value);
    void *args[] = {&p};
    OK(CALL(cuLaunchKernel)((CUfunction)(void *)k, 64, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuLibraryUnload)(l));
}

static void ptx_is_not_opaque(void)
{
    CUmodule m;
    CUfunction f;
    int value;
    setenv("TALLY_DEVICE_OPAQUE", "time", 1);
    OK(CALL(cuModuleLoadData)(
        &m, ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() { ret; }\n"));
    OK(CALL(cuModuleGetFunction)(&f, m, "f"));
    OK(CALL(cuFuncGetAttribute)(&value, (CUfunction_attribute)TL_DEVICE_ATTRIBUTE_OPAQUE, f));
    TEST_ASSERT_EQUAL_INT(0, value);
    OK(CALL(cuModuleUnload)(m));
}

/* In a container, which says where the cubin ends: whatever else is wrong leads nowhere. */
static void broken_cubins_are_refused_or_taken(void)
{
    setenv("TALLY_DEVICE_OPAQUE", "time", 1);
    for (size_t at = 4; at < cubin.n; at += 3) {
        struct tl_buf container = {0};
        CUmodule m;
        char was = cubin.p[at];
        cubin.p[at] = (char)(was ^ 0x5a);
        build_container(
            &container,
            &(struct build_entry){
                .kind = BUILD_CUBIN, .arch = 90, .payload = cubin.p, .payload_bytes = cubin.n},
            1);
        if (CALL(cuModuleLoadData)(&m, container.p) == CUDA_SUCCESS)
            OK(CALL(cuModuleUnload)(m));
        cubin.p[at] = was;
        tl_buf_finish(&container);
    }
}

/* What is written to standard error while `work` runs. */
static void said_by(void (*work)(void), char *text, size_t size)
{
    char path[256];
    fflush(stderr);
    int file = mkstemp(scratch_path(path, sizeof path, "opaque-XXXXXX")), old = dup(2);
    unlink(path);
    dup2(file, 2);
    work();
    dup2(old, 2);
    close(old);
    ssize_t n = pread(file, text, size - 1, 0);
    close(file);
    TEST_ASSERT_TRUE(n > 0);
    text[n] = 0;
}

static void twice(void)
{
    an_opaque_kernel_lasts_and_computes_nothing();
    an_opaque_kernel_lasts_and_computes_nothing();
}

static void it_says_so_once(void)
{
    char text[1024];
    said_by(twice, text, sizeof text);
    const char *first = strstr(text, "COMPUTE NOTHING");
    TEST_ASSERT_NOT_NULL(first);
    TEST_ASSERT_NULL(strstr(first + 1, "COMPUTE NOTHING"));
}

static void a_fatbin_of_machine_code_is_refused(void)
{
    struct tl_buf container = {0};
    const struct build_entry entry = {
        .kind = BUILD_CUBIN, .arch = 90, .payload = cubin.p, .payload_bytes = cubin.n};
    CUmodule m;
    build_container(&container, &entry, 1);
    for (int i = 0; i < 2; i++)
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NO_BINARY_FOR_GPU,
                              CALL(cuModuleLoadData)(&m, container.p));
    tl_buf_finish(&container);
}

static void a_refusal_names_once_what_works_instead(void)
{
    char text[2048];
    said_by(a_fatbin_of_machine_code_is_refused, text, sizeof text);
    static const char *const choices[] = {"CUDA_ERROR_NO_BINARY_FOR_GPU",
                                          "python3-torch-cuda",
                                          "TORCH_CUDA_ARCH_LIST=\"9.0+PTX\"",
                                          "torch.compile",
                                          "nvcc -gencode arch=compute_90,code=compute_90",
                                          "tally-run --gate=auto",
                                          "TALLY_DEVICE_OPAQUE=time"};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const char *first = strstr(text, choices[i]);
        TEST_ASSERT_NOT_NULL_MESSAGE(first, choices[i]);
        TEST_ASSERT_NULL_MESSAGE(strstr(first + 1, choices[i]), choices[i]);
    }
}

int main(void)
{
    char sms[8];
    snprintf(sms, sizeof sms, "%d", SMS);
    setenv("TALLY_DEVICE_SMS", sms, 1);
    unsetenv("TALLY_LOG");
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(machine_code_is_refused_unless_asked_for);
    RUN_TEST(a_refusal_names_once_what_works_instead);
    RUN_TEST(it_says_so_once);
    RUN_TEST(an_opaque_kernel_lasts_and_computes_nothing);
    RUN_TEST(the_model_needs_no_number);
    RUN_TEST(ptx_is_not_opaque);
    RUN_TEST(broken_cubins_are_refused_or_taken);
    return UNITY_END();
}

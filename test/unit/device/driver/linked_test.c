/* Separately compiled programs as start-up code registers them: a wrapper that leads to the linked
 * machine code and to the parts.  Right ones, ones that lack something, and ones that lie. */
#include "test/unit/device/driver/help.h"
#include "test/unit/image/build.h"

enum { MOST = 4 };

static struct tl_buf linked, parts[MOST];
static uint64_t list[MOST + 1], wrapper[3];

static const char caller[] = HEAD
    ".extern .func (.param .b32 r) twice(.param .b32 v);\n"
    ".global .align 4 .u32 own = 5;\n"
    ".visible .entry go(.param .u64 p)\n"
    "{ .reg .b64 %d<2>; .reg .b32 %r<4>; ld.param.u64 %d1, [p]; ld.global.u32 %r1, [%d1];\n"
    "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), twice, (a); "
    "ld.param.b32 %r2, [b]; }\n"
    "ld.global.u32 %r3, [own]; add.u32 %r2, %r2, %r3; st.global.u32 [%d1], %r2; ret; }\n";
static const char callee[] = HEAD
    ".global .align 4 .u32 own = 1000;\n"
    ".visible .func (.param .b32 r) twice(.param .b32 v)\n"
    "{ .reg .b32 %r<4>; ld.param.b32 %r1, [v]; add.u32 %r2, %r1, %r1; "
    "ld.global.u32 %r3, [own]; add.u32 %r2, %r2, %r3; st.param.b32 [r], %r2; ret; }\n";

static void set_part(int i, uint16_t kind, uint32_t arch, const void *bytes, size_t n)
{
    struct build_entry entry = {.kind = kind, .arch = arch, .payload = bytes, .payload_bytes = n};
    tl_buf_finish(&parts[i]);
    build_container(&parts[i], &entry, 1);
    list[i] = (uintptr_t)parts[i].p;
}

void setUp(void)
{
    use_device();
    build_container(&linked, NULL, 0);
    memset(list, 0, sizeof list);
    set_part(0, BUILD_PTX, 80, caller, sizeof caller);
    set_part(1, BUILD_PTX, 90, callee, sizeof callee);
    wrapper[0] = UINT64_C(2) << 32 | 0x466243b1;
    wrapper[1] = (uintptr_t)linked.p;
    wrapper[2] = (uintptr_t)list;
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
    tl_buf_finish(&linked);
    for (int i = 0; i < MOST; i++)
        tl_buf_finish(&parts[i]);
}

static unsigned value_of(CUfunction f)
{
    CUdeviceptr d;
    unsigned v = 21;
    OK(CALL(cuMemAlloc_v2)(&d, 4));
    OK(CALL(cuMemcpyHtoD_v2)(d, &v, 4));
    void *params[] = {&d};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(&v, d, 4));
    OK(CALL(cuMemFree_v2)(d));
    return v;
}

/* What the kernel `go` makes of 21; 0 if the module is refused as `expected`. */
static unsigned loaded_value(CUresult expected)
{
    CUmodule m;
    CUfunction f;
    TEST_ASSERT_EQUAL_INT(expected, CALL(cuModuleLoadData)(&m, wrapper));
    if (expected != CUDA_SUCCESS)
        return 0;
    OK(CALL(cuModuleGetFunction)(&f, m, "go"));
    unsigned v = value_of(f);
    OK(CALL(cuModuleUnload)(m));
    return v;
}

static void the_ptx_of_the_parts_is_linked(void)
{
    TEST_ASSERT_EQUAL_UINT(1047, loaded_value(CUDA_SUCCESS));
}

static void libraries_and_fatbins_are_loaded_so_too(void)
{
    CUlibrary l;
    CUkernel k;
    CUfunction f;
    CUmodule m;
    OK(CALL(cuLibraryLoadData)(&l, wrapper, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryGetKernel)(&k, l, "go"));
    OK(CALL(cuKernelGetFunction)(&f, k));
    TEST_ASSERT_EQUAL_UINT(1047, value_of(f));
    OK(CALL(cuLibraryUnload)(l));
    OK(CALL(cuModuleLoadFatBinary)(&m, wrapper));
    OK(CALL(cuModuleGetFunction)(&f, m, "go"));
    TEST_ASSERT_EQUAL_UINT(1047, value_of(f));
    OK(CALL(cuModuleUnload)(m));
}

static void linked_machine_code_does_not_hide_the_parts(void)
{
    struct tl_buf cubin = {0};
    build_cubin(&cubin);
    struct build_entry entry = {
        .kind = BUILD_CUBIN, .arch = 90, .payload = cubin.p, .payload_bytes = cubin.n};
    tl_buf_finish(&linked);
    build_container(&linked, &entry, 1);
    wrapper[1] = (uintptr_t)linked.p;
    TEST_ASSERT_EQUAL_UINT(1047, loaded_value(CUDA_SUCCESS));
    tl_buf_finish(&cubin);
}

static void an_empty_part_is_no_obstacle(void)
{
    tl_buf_finish(&parts[2]);
    build_container(&parts[2], NULL, 0);
    list[2] = (uintptr_t)parts[2].p;
    TEST_ASSERT_EQUAL_UINT(1047, loaded_value(CUDA_SUCCESS));
}

static void a_part_without_ptx_is_refused(void)
{
    struct tl_buf cubin = {0};
    build_cubin(&cubin);
    set_part(2, BUILD_CUBIN, 90, cubin.p, cubin.n);
    loaded_value(CUDA_ERROR_NO_BINARY_FOR_GPU);
    set_part(2, BUILD_LTO, 90, "none", 5);
    loaded_value(CUDA_ERROR_NO_BINARY_FOR_GPU);
    set_part(2, BUILD_PTX, 999, callee, sizeof callee);
    loaded_value(CUDA_ERROR_NO_BINARY_FOR_GPU);
    tl_buf_finish(&cubin);
}

/* It is in each program, whatever it has it for. */
static void the_device_runtime_may_lack_ptx(void)
{
    static const char name[] = "__nv_static_52__1_22_cuda_device_runtime_cu_2_k";
    set_part(2, BUILD_CUBIN, 90, name, sizeof name);
    TEST_ASSERT_EQUAL_UINT(1047, loaded_value(CUDA_SUCCESS));
    static const char text[] = HEAD ".visible .func (.param .b32 r) twice(.param .b32 v) { ret; }\n"
                                    ".entry __nv_1_22_cuda_device_runtime_cu_2_k() { ret; }\n";
    set_part(2, BUILD_PTX, 90, text, sizeof text); /* and is not in it, since nobody wants it */
    TEST_ASSERT_EQUAL_UINT(1047, loaded_value(CUDA_SUCCESS));
}

static void what_no_part_defines_is_refused_when_it_is_launched(void)
{
    CUmodule m;
    CUfunction f;
    list[1] = 0;
    OK(CALL(cuModuleLoadData)(&m, wrapper));
    OK(CALL(cuModuleGetFunction)(&f, m, "go"));
    CUdeviceptr d;
    OK(CALL(cuMemAlloc_v2)(&d, 4));
    void *params[] = {&d};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                          CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
}

static void parts_that_do_not_fit_together_are_refused(void)
{
    set_part(2, BUILD_PTX, 80, callee, sizeof callee);
    loaded_value(CUDA_ERROR_INVALID_PTX);
    set_part(2, BUILD_PTX, 80, "no PTX", 7);
    loaded_value(CUDA_ERROR_INVALID_PTX);
}

static void lists_that_lie_are_refused(void)
{
    static const uint64_t nowhere[] = {1, 0x1000, UINT64_MAX - 7, UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        wrapper[2] = nowhere[i];
        loaded_value(CUDA_ERROR_INVALID_IMAGE);
        wrapper[2] = (uintptr_t)list;
        list[2] = nowhere[i];
        loaded_value(CUDA_ERROR_INVALID_IMAGE);
        list[2] = 0;
    }
    uint64_t *cut = guarded_copy(list, 2 * sizeof list[0]);
    wrapper[2] = (uintptr_t)cut;
    loaded_value(CUDA_ERROR_INVALID_IMAGE);
    guarded_free(cut, 2 * sizeof list[0]);
    wrapper[2] = 0; /* then there is just the linked code, which is empty */
    loaded_value(CUDA_ERROR_NO_BINARY_FOR_GPU);
    wrapper[0] = UINT64_C(1) << 32 | 0x466243b1;
    wrapper[2] = 1;
    loaded_value(CUDA_ERROR_NO_BINARY_FOR_GPU);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(the_ptx_of_the_parts_is_linked);
    RUN_TEST(libraries_and_fatbins_are_loaded_so_too);
    RUN_TEST(linked_machine_code_does_not_hide_the_parts);
    RUN_TEST(an_empty_part_is_no_obstacle);
    RUN_TEST(a_part_without_ptx_is_refused);
    RUN_TEST(the_device_runtime_may_lack_ptx);
    RUN_TEST(what_no_part_defines_is_refused_when_it_is_launched);
    RUN_TEST(parts_that_do_not_fit_together_are_refused);
    RUN_TEST(lists_that_lie_are_refused);
    return UNITY_END();
}

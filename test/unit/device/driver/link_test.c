/* Linking of several inputs: texts, objects and libraries that carry PTX, and what the driver has
 * of the device runtime. */
#include "test/unit/device/driver/help.h"
#include "test/unit/image/build.h"

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

struct part {
    CUjitInputType type;
    char *bytes;
    size_t n;
};

/* What a kernel `go` makes of 21. */
static unsigned linked_value(const struct part *parts, size_t n)
{
    CUlinkState s;
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    void *image;
    size_t bytes;
    unsigned v = 21;
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &s));
    for (size_t i = 0; i < n; i++)
        OK(CALL(cuLinkAddData_v2)(s, parts[i].type, parts[i].bytes, parts[i].n, "part", 0, NULL,
                                  NULL));
    OK(CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuModuleLoadData)(&m, image));
    OK(CALL(cuLinkDestroy)(s));
    OK(CALL(cuModuleGetFunction)(&f, m, "go"));
    OK(CALL(cuMemAlloc_v2)(&d, 4));
    OK(CALL(cuMemcpyHtoD_v2)(d, &v, 4));
    void *params[] = {&d};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(&v, d, 4));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
    return v;
}

static void texts_that_need_each_other_are_linked(void)
{
    static char caller[] = HEAD
        ".extern .func (.param .b32 r) twice(.param .b32 v);\n"
        ".extern .global .align 4 .u32 offset;\n"
        ".visible .entry go(.param .u64 p)\n"
        "{ .reg .b64 %d<2>; .reg .b32 %r<4>; ld.param.u64 %d1, [p]; ld.global.u32 %r1, [%d1];\n"
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), twice, (a); "
        "ld.param.b32 %r2, [b]; }\n"
        "ld.global.u32 %r3, [offset]; add.u32 %r2, %r2, %r3;\n"
        "st.global.u32 [%d1], %r2; ret; }\n";
    static char callee[] = HEAD ".visible .global .align 4 .u32 offset = 1000;\n"
                                ".visible .func (.param .b32 r) twice(.param .b32 v)\n"
                                "{ .reg .b32 %r<3>; ld.param.b32 %r1, [v]; add.u32 %r2, %r1, %r1; "
                                "st.param.b32 [r], %r2; ret; }\n";
    const struct part parts[] = {{CU_JIT_INPUT_PTX, caller, sizeof caller},
                                 {CU_JIT_INPUT_PTX, callee, sizeof callee}};
    TEST_ASSERT_EQUAL_UINT(1042, linked_value(parts, 2));
}

static void names_that_are_a_texts_own_may_be_in_two(void)
{
    static char go[] = HEAD
        ".extern .func (.param .b32 r) other();\n"
        ".global .align 4 .u32 own = 7;\n"
        ".func (.param .b32 r) get()\n{ .reg .b32 %r<2>; ld.global.u32 %r1, [own]; "
        "st.param.b32 [r], %r1; ret; }\n"
        ".visible .entry go(.param .u64 p)\n"
        "{ .reg .b64 %d<2>; .reg .b32 %r<4>; .param .b32 a; .param .b32 b; ld.param.u64 %d1, [p];\n"
        "call.uni (a), get, (); ld.param.b32 %r1, [a]; call.uni (b), other, (); ld.param.b32 %r2, "
        "[b];\nmad.lo.u32 %r3, %r1, 100, %r2; st.global.u32 [%d1], %r3; ret; }\n";
    static char other[] = HEAD
        ".global .align 4 .u32 own = 5;\n"
        ".func (.param .b32 r) get()\n{ .reg .b32 %r<2>; ld.global.u32 %r1, [own]; "
        "st.param.b32 [r], %r1; ret; }\n"
        ".visible .func (.param .b32 r) other()\n{ .reg .b32 %r<2>; .param .b32 a;\n"
        "call.uni (a), get, (); ld.param.b32 %r1, [a]; st.param.b32 [r], %r1; ret; }\n";
    const struct part parts[] = {{CU_JIT_INPUT_PTX, go, sizeof go},
                                 {CU_JIT_INPUT_PTX, other, sizeof other},
                                 {CU_JIT_INPUT_PTX, go, sizeof go}};
    TEST_ASSERT_EQUAL_UINT(705, linked_value(parts, 2));
    TEST_ASSERT_EQUAL_UINT(705, linked_value(parts + 1, 2));
    CUlinkState s;
    void *image;
    size_t bytes;
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &s));
    for (int i = 0; i < 2; i++)
        OK(CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_PTX, other, sizeof other, "other", 0, NULL,
                                  NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_PTX, CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuLinkDestroy)(s));
}

static void a_grid_is_synchronised_by_the_device_runtime(void)
{
    static char text[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".extern .func (.param .b64 h) cudaCGGetIntrinsicHandle(.param .b32 scope);\n"
        ".extern .func (.param .b32 e) cudaCGSynchronize(.param .b64 h, .param .b32 flags);\n"
        /* Every block adds its number and one; behind the barrier all see the sum. */
        ".visible .entry sum(.param .u64 p)\n{ .reg .b64 %d<4>; .reg .b32 %r<6>; .reg .pred %q;\n"
        ".param .b32 scope; .param .b64 h; .param .b64 g; .param .b32 flags; .param .b32 e;\n"
        "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; add.u32 %r2, %r1, 1; mov.u32 %r3, %tid.x;\n"
        "setp.ne.u32 %q, %r3, 0; @!%q red.global.add.u32 [%d1], %r2;\n"
        "st.param.b32 [scope], 1; call.uni (h), cudaCGGetIntrinsicHandle, (scope);\n"
        "ld.param.b64 %d2, [h]; st.param.b64 [g], %d2; st.param.b32 [flags], 0;\n"
        "call.uni (e), cudaCGSynchronize, (g, flags);\n"
        "ld.volatile.global.u32 %r4, [%d1]; mad.wide.u32 %d3, %r1, 4, %d1;\n"
        "@!%q st.global.u32 [%d3+4], %r4; ret; }\n";
    enum { BLOCKS = 5 };
    CUlinkState s;
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    void *image;
    size_t bytes;
    unsigned sums[BLOCKS + 1];
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &s));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_PTX, text, sizeof text, "text", 0, NULL, NULL));
    OK(CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuModuleLoadData)(&m, image));
    OK(CALL(cuLinkDestroy)(s));
    OK(CALL(cuModuleGetFunction)(&f, m, "sum"));
    OK(CALL(cuMemAlloc_v2)(&d, sizeof sums));
    OK(CALL(cuMemsetD32_v2)(d, 0, BLOCKS + 1));
    void *params[] = {&d};
    OK(CALL(cuLaunchCooperativeKernel)(f, BLOCKS, 1, 1, 64, 1, 1, 0, NULL, params));
    OK(CALL(cuMemcpyDtoH_v2)(sums, d, sizeof sums));
    for (int i = 0; i <= BLOCKS; i++)
        TEST_ASSERT_EQUAL_UINT(15, sums[i]);
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
}

/* An archive's worth of fatbins, one for each text, with bytes around them. */
static void carry(struct tl_buf *out, const char *const *texts, size_t n)
{
    tl_buf_printf(out, "!<arch>\nsome members:");
    for (size_t i = 0; i < n; i++) {
        struct build_entry entries[] = {
            {.kind = BUILD_PTX, .arch = 50, .payload = "no PTX", .payload_bytes = 7},
            {.kind = BUILD_PTX,
             .arch = 80,
             .payload = texts[i],
             .payload_bytes = strlen(texts[i]) + 1}};
        build_container(out, entries, 2);
    }
}

static void of_a_library_is_taken_what_is_wanted(void)
{
    static char go[] = HEAD
        ".extern .func (.param .b32 r) first(.param .b32 v);\n"
        ".visible .entry go(.param .u64 p)\n"
        "{ .reg .b64 %d<2>; .reg .b32 %r<3>; .param .b32 a; .param .b32 b; ld.param.u64 %d1, [p];\n"
        "ld.global.u32 %r1, [%d1]; st.param.b32 [a], %r1; call.uni (b), first, (a);\n"
        "ld.param.b32 %r2, [b]; st.global.u32 [%d1], %r2; ret; }\n";
    static const char *members[] = {
        HEAD ".visible .entry go() { ret; }\n", /* would be one too many */
        HEAD ".extern .func (.param .b32 r) second(.param .b32 v);\n"
             ".visible .func (.param .b32 r) first(.param .b32 v)\n"
             "{ .reg .b32 %r<3>; .param .b32 a; .param .b32 b; ld.param.b32 %r1, [v];\n"
             "st.param.b32 [a], %r1; call.uni (b), second, (a); ld.param.b32 %r2, [b];\n"
             "add.u32 %r2, %r2, 1; st.param.b32 [r], %r2; ret; }\n",
        HEAD ".visible .func (.param .b32 r) second(.param .b32 v)\n"
             "{ .reg .b32 %r<3>; ld.param.b32 %r1, [v]; shl.b32 %r2, %r1, 1; st.param.b32 [r], "
             "%r2; ret; }\n"};
    struct tl_buf library = {0}, object = {0};
    carry(&library, members, 3);
    carry(&object, members + 1, 2);
    struct part parts[] = {{CU_JIT_INPUT_PTX, go, sizeof go},
                           {CU_JIT_INPUT_LIBRARY, library.p, library.n}};
    TEST_ASSERT_EQUAL_UINT(43, linked_value(parts, 2));
    parts[1] = (struct part){CU_JIT_INPUT_OBJECT, object.p, object.n};
    TEST_ASSERT_EQUAL_UINT(43, linked_value(parts, 2));
    tl_buf_finish(&library);
    tl_buf_finish(&object);
}

static void what_was_refused_leaves_nothing_behind(void)
{
    static char go[] = HEAD ".visible .entry go() { ret; }\n";
    static const char *const wrong = HEAD ".visible .func first( {\n";
    struct tl_buf library = {0};
    CUlinkState s;
    void *image;
    size_t bytes;
    carry(&library, &wrong, 1);
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &s));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_PTX,
                          CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_LIBRARY, library.p, library.n,
                                                 "library", 0, NULL, NULL));
    OK(CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_PTX, go, sizeof go, "go", 0, NULL, NULL));
    OK(CALL(cuLinkComplete)(s, &image, &bytes));
    OK(CALL(cuLinkDestroy)(s));
    tl_buf_finish(&library);
}

static void machine_code_alone_is_not_linked(void)
{
    struct tl_buf cubin = {0};
    CUlinkState s;
    build_cubin(&cubin);
    OK(CALL(cuLinkCreate_v2)(0, NULL, NULL, &s));
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_OBJECT, cubin.p, cubin.n, "code", 0, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        CALL(cuLinkAddData_v2)(s, CU_JIT_INPUT_CUBIN, cubin.p, cubin.n, "code", 0, NULL, NULL));
    OK(CALL(cuLinkDestroy)(s));
    tl_buf_finish(&cubin);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(texts_that_need_each_other_are_linked);
    RUN_TEST(names_that_are_a_texts_own_may_be_in_two);
    RUN_TEST(a_grid_is_synchronised_by_the_device_runtime);
    RUN_TEST(of_a_library_is_taken_what_is_wanted);
    RUN_TEST(what_was_refused_leaves_nothing_behind);
    RUN_TEST(machine_code_alone_is_not_linked);
    return UNITY_END();
}

/* Kernels that launch kernels, asked for by hand: what threads are told, in what order it all
 * comes, and what of it is wrong.  workloads/cuda/nested.cu has what the compiler makes of it. */
#include "test/unit/device/driver/digits.h"

enum { WORDS = 8 };

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxReset_v2)(0);
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

/* --- PTX -------------------------------------------------------------------------------------- */

#define ERROR(name, parameters)                                                                    \
    ".extern .func (.param .b32 e) __cudaCDP2" name " (" parameters ");\n"
#define DECLARED                                                                                   \
    HEAD ".extern .func (.param .b64 b) __cudaCDP2GetParameterBufferV2 (.param .b64 f, "           \
         ".param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 "               \
         "shared);\n" ERROR("LaunchDeviceV2", ".param .b64 b, .param .b64 s") ERROR(               \
             "GetLastError", "") ERROR("StreamCreateWithFlags", ".param .b64 s, .param .b32 f")    \
             ERROR("StreamDestroy", ".param .b64 s")                                               \
                 ERROR("StreamWaitEvent", ".param .b64 s, .param .b64 e, .param .b32 f")           \
                     ERROR("EventRecord", ".param .b64 e, .param .b64 s")                          \
                         ERROR("MemsetAsync",                                                      \
                               ".param .b64 p, .param .b32 v, .param .b64 n, .param .b64 s")       \
                             ERROR("MemcpyAsync",                                                  \
                                   ".param .b64 p, .param .b64 f, .param .b64 n, .param .b32 k, "  \
                                   ".param .b64 s")
#define FAULT                                                                                      \
    ".visible .entry fault(.param .u64 p, .param .u32 digit)\n"                                    \
    "{ .reg .b64 %d; mov.u64 %d, 8; st.global.u32 [%d], 1; ret; }\n"
/* %d1: out; %d2: the last buffer; %r1: the last error. */
#define BEGIN                                                                                      \
    ".visible .entry k(.param .u64 out)\n"                                                         \
    "{ .reg .b64 %d<9>; .reg .b32 %r<9>; ld.param.u64 %d1, [out];\n"
#define END " ret; }\n"
#define BUFFER(function, grid, block)                                                              \
    " { .param .b64 f; .param .align 4 .b8 g[12]; .param .align 4 .b8 b[12]; .param .b32 s;\n"     \
    " .param .b64 back; mov.u64 %d3, " function "; st.param.b64 [f], %d3;\n"                       \
    " st.param.b32 [g], " grid "; st.param.b32 [g+4], 1; st.param.b32 [g+8], 1;\n"                 \
    " st.param.b32 [b], " block "; st.param.b32 [b+4], 1; st.param.b32 [b+8], 1;\n"                \
    " st.param.b32 [s], 0; call (back), __cudaCDP2GetParameterBufferV2, (f, g, b, s);\n"           \
    " ld.param.b64 %d2, [back]; }\n"
#define FILL_IN(digit) " mov.u32 %r2, " digit "; st.u64 [%d2], %d1; st.u32 [%d2+8], %r2;\n"
#define LAUNCH(stream)                                                                             \
    " { .param .b64 b; .param .b64 s; .param .b32 back; st.param.b64 [b], %d2;\n"                  \
    " mov.u64 %d3, " stream "; st.param.b64 [s], %d3;\n"                                           \
    " call (back), __cudaCDP2LaunchDeviceV2, (b, s); ld.param.b32 %r1, [back]; }\n"
#define ASK0(name)                                                                                 \
    " { .param .b32 back; call (back), __cudaCDP2" name "; ld.param.b32 %r1, [back]; }\n"
#define ASK1(name, handle)                                                                         \
    " { .param .b64 h; .param .b32 back; mov.u64 %d3, " handle "; st.param.b64 [h], %d3;\n"        \
    " call (back), __cudaCDP2" name ", (h); ld.param.b32 %r1, [back]; }\n"
#define ASK2(name, one, other, more, its)                                                          \
    " { .param .b64 h; .param .b64 i;" more " .param .b32 back; mov.u64 %d3, " one ";\n"           \
    " st.param.b64 [h], %d3; mov.u64 %d3, " other "; st.param.b64 [i], %d3;\n"                     \
    " call (back), __cudaCDP2" name ", (h, i" its "); ld.param.b32 %r1, [back]; }\n"
#define DIGIT_IN(digit, stream) BUFFER("digit", "1", "1") FILL_IN(digit) LAUNCH(stream)
#define KEEP(word) " st.global.u32 [%d1+4*" #word "], %r1;\n"

#define TAIL "3"
#define FORGET "4"

/* Runs `k` so many times. */
static CUresult run_times(const char *text, unsigned out[WORDS], int times)
{
    CUmodule m = linked_module(text);
    CUfunction f;
    CUdeviceptr d;
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuMemAlloc_v2)(&d, WORDS * 4));
    OK(CALL(cuMemsetD32_v2)(d, 0, WORDS));
    void *args[] = {&d};
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < times && r == CUDA_SUCCESS; i++) {
        OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
        r = CALL(cuCtxSynchronize)();
    }
    if (r != CUDA_SUCCESS)
        return r;
    OK(CALL(cuMemcpyDtoH_v2)(out, d, WORDS * 4));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
    return r;
}

static CUresult run(const char *text, unsigned out[WORDS])
{
    return run_times(text, out, 1);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void tail_launches_come_last_and_all_in_order(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED DIGIT BEGIN DIGIT_IN("1", "0") DIGIT_IN("4", TAIL)
        DIGIT_IN("2", "0") DIGIT_IN("5", TAIL) DIGIT_IN("3", "0") END;
    OK(run(text, out));
    TEST_ASSERT_EQUAL_UINT(12345, out[0]);
}

static void the_next_kernel_waits_for_all_of_it(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED DIGIT BEGIN DIGIT_IN("1", FORGET) DIGIT_IN("2", TAIL) END;
    OK(run_times(text, out, 3));
    TEST_ASSERT_EQUAL_UINT(121212, out[0]);
}

/* One per launch, and of nobody else. */
static void a_buffer_is_good_for_one_launch(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED DIGIT BEGIN BUFFER("digit", "1", "1") FILL_IN("7")
        LAUNCH("0") KEEP(1) LAUNCH("0") KEEP(2) " mov.u64 %d2, 64;\n" LAUNCH("0")
            KEEP(3) " mov.u64 %d2, 0;\n" LAUNCH(TAIL) KEEP(4) ASK0("GetLastError") KEEP(5)
                ASK0("GetLastError") KEEP(6) END;
    static const unsigned want[] = {7, 0, 1, 1, 1, 1, 0, 0};
    OK(run(text, out));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

#define NO_BUFFER(function, grid, block, word)                                                     \
    BUFFER(function, grid, block)                                                                  \
    " cvt.u32.u64 %r3, %d2;\n" ASK0("GetLastError") " add.u32 %r1, %r1, %r3;\n" KEEP(word)

static void what_cannot_be_launched_has_no_buffer(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED DIGIT
        ".visible .global .align 4 .u32 variable;\n" BEGIN NO_BUFFER("64", "1", "1", 1)
            NO_BUFFER("variable", "1", "1", 2) NO_BUFFER("digit", "0", "1", 3)
                NO_BUFFER("digit", "1", "4096", 4) NO_BUFFER("digit", "1", "0", 5) END;
    static const unsigned want[] = {0, 98, 98, 9, 9, 9, 0, 0};
    OK(run(text, out));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

static void handles_that_are_none_are_refused(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED DIGIT BEGIN DIGIT_IN("1", "65536") KEEP(1)
        ASK1("StreamDestroy", "0") KEEP(2) ASK1("StreamDestroy", "65536") KEEP(3)
            ASK2("EventRecord", "65537", "0", "", "") KEEP(4)
                ASK2("StreamWaitEvent", "0", "65537", " .param .b32 f; st.param.b32 [f], 0;", ", f")
                    KEEP(5) END;
    static const unsigned want[] = {0, 400, 400, 400, 400, 400, 0, 0};
    OK(run(text, out));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

/* Tail launches do not begin before the kernel is over, so all of them are outstanding. */
static void more_launches_than_the_limit_are_refused(void)
{
    unsigned out[WORDS];
    size_t before;
    static const char text[] = DECLARED DIGIT BEGIN DIGIT_IN("1", TAIL) KEEP(1) DIGIT_IN("2", TAIL)
        KEEP(2) DIGIT_IN("3", TAIL) KEEP(3) DIGIT_IN("3", "0") KEEP(4) ASK0("GetLastError") KEEP(5)
            END;
    static const unsigned want[] = {1212, 0, 0, 69, 69, 69, 0, 0};
    OK(CALL(cuCtxGetLimit)(&before, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT));
    OK(CALL(cuCtxSetLimit)(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2));
    OK(run_times(text, out, 2)); /* what is done counts no more */
    OK(CALL(cuCtxSetLimit)(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, before));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

static void a_fault_of_what_was_launched_is_the_contexts(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED FAULT DIGIT BEGIN DIGIT_IN("1", TAIL)
        BUFFER("fault", "1", "1") LAUNCH("0") END;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, run(text, out));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, CALL(cuCtxSynchronize)());
}

#define SET(pointer, bytes, word)                                                                  \
    " { .param .b64 p; .param .b32 v; .param .b64 n; .param .b64 s; .param .b32 back;\n"           \
    " mov.u64 %d3, " pointer "; st.param.b64 [p], %d3; st.param.b32 [v], 0x101;\n"                 \
    " mov.u64 %d3, " bytes "; st.param.b64 [n], %d3; mov.u64 %d3, 0; st.param.b64 [s], %d3;\n"     \
    " call (back), __cudaCDP2MemsetAsync, (p, v, n, s); ld.param.b32 %r1, [back]; }\n" KEEP(word)
#define COPY(to, from, bytes, word)                                                                \
    " { .param .b64 p; .param .b64 f; .param .b64 n; .param .b32 k; .param .b64 s;\n"              \
    " .param .b32 back; mov.u64 %d3, " to "; st.param.b64 [p], %d3; mov.u64 %d3, " from ";\n"      \
    " st.param.b64 [f], %d3; mov.u64 %d3, " bytes "; st.param.b64 [n], %d3;\n"                     \
    " st.param.b32 [k], 3; mov.u64 %d3, 0; st.param.b64 [s], %d3;\n"                               \
    " call (back), __cudaCDP2MemcpyAsync, (p, f, n, k, s); ld.param.b32 %r1, [back]; }\n" KEEP(    \
        word)

static void copies_and_fills_are_checked(void)
{
    unsigned out[WORDS];
    static const char text[] = DECLARED BEGIN SET("8", "4", 1) SET("%d1", "0x1000000000000", 2)
        COPY("%d1", "8", "4", 3) COPY("8", "%d1", "4", 4) COPY("%d1", "%d1", "0", 5)
            SET("%d1", "4", 6) END;
    static const unsigned want[] = {0x01010101, 1, 1, 1, 1, 0, 0, 0};
    OK(run(text, out));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(tail_launches_come_last_and_all_in_order);
    RUN_TEST(the_next_kernel_waits_for_all_of_it);
    RUN_TEST(a_buffer_is_good_for_one_launch);
    RUN_TEST(what_cannot_be_launched_has_no_buffer);
    RUN_TEST(handles_that_are_none_are_refused);
    RUN_TEST(more_launches_than_the_limit_are_refused);
    RUN_TEST(a_fault_of_what_was_launched_is_the_contexts);
    RUN_TEST(copies_and_fills_are_checked);
    return UNITY_END();
}

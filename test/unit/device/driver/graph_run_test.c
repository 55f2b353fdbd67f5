/* Graphs that kernels launch: in what order they come, which may be launched, and what of it is
 * wrong.  Each inner graph appends a digit to the first word of `out`, slowly. */
#include "test/unit/device/driver/digits.h"

#include <malloc.h>

enum { WORDS = 8, INNER = 4, UPLOADED = 4 | 2 };

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

#define DECLARED                                                                                   \
    HEAD ".extern .func (.param .b32 e) cudaGraphLaunch (.param .b64 g, .param .b64 s);\n" DIGIT
/* %d1: out; %d3 to %d6: graphs; %r1: the last error.  As device code has it, of any graph. */
#define BEGIN(name)                                                                                \
    ".visible .entry " name                                                                        \
    "(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n"              \
    "{ .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %q; ld.param.u64 %d1, [out];\n"                \
    " ld.param.u64 %d3, [a]; ld.param.u64 %d4, [b]; ld.param.u64 %d5, [c];\n"                      \
    " ld.param.u64 %d6, [d];\n"
#define END " ret; }\n"
#define LAUNCH(graph, stream)                                                                      \
    " { .param .b64 g; .param .b64 s; .param .b32 back; st.param.b64 [g], " graph ";\n"            \
    " mov.u64 %d2, " stream "; st.param.b64 [s], %d2;\n"                                           \
    " call (back), cudaGraphLaunch, (g, s); ld.param.b32 %r1, [back]; }\n"
#define KEEP(word) " st.global.u32 [%d1+4*" #word "], %r1;\n"

#define A "%d3"
#define B "%d4"
#define C "%d5"
#define D "%d6"
#define TAIL "0x0100000000000000"
#define FIRE "0x0200000000000000"
#define SIBLING "0x0300000000000000"

/* --- graphs ----------------------------------------------------------------------------------- */

static struct {
    CUmodule module;
    CUdeviceptr out;
    CUgraphExec inner[INNER]; /* 1, 2, 3, 4 */
} own;

static CUgraphNode add(CUgraph g, const char *name, void **params)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS_v2 p = {.gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = params};
    OK(CALL(cuModuleGetFunction)(&p.func, own.module, name));
    OK(CALL(cuGraphAddKernelNode_v2)(&node, g, NULL, 0, &p));
    return node;
}

static CUgraphExec exec_of(CUgraph g, unsigned long long flags)
{
    CUgraphExec e;
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, flags));
    OK(CALL(cuGraphDestroy)(g));
    return e;
}

/* With the inner graphs among its parameters. */
static CUgraphExec outer(const char *name, unsigned long long flags)
{
    CUgraph g;
    void *params[1 + INNER] = {&own.out};
    for (int i = 0; i < INNER; i++)
        params[1 + i] = &own.inner[i];
    OK(CALL(cuGraphCreate)(&g, 0));
    add(g, name, params);
    return exec_of(g, flags);
}

static void begin(const char *text, unsigned long long flags)
{
    own.module = linked_module(text);
    OK(CALL(cuMemAlloc_v2)(&own.out, WORDS * 4));
    OK(CALL(cuMemsetD32_v2)(own.out, 0, WORDS));
    for (unsigned i = 0; i < INNER; i++) {
        CUgraph g;
        unsigned digit = i + 1;
        OK(CALL(cuGraphCreate)(&g, 0));
        add(g, "digit", (void *[]){&own.out, &digit});
        own.inner[i] = exec_of(g, flags);
    }
}

static CUresult finish(CUgraphExec e, unsigned out[WORDS], int times)
{
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < times && r == CUDA_SUCCESS; i++)
        r = CALL(cuGraphLaunch)(e, NULL);
    if (r == CUDA_SUCCESS)
        r = CALL(cuCtxSynchronize)();
    OK(CALL(cuGraphExecDestroy)(e));
    for (int i = 0; i < INNER; i++)
        if (own.inner[i] != NULL)
            OK(CALL(cuGraphExecDestroy)(own.inner[i]));
    if (r != CUDA_SUCCESS)
        return r;
    OK(CALL(cuMemcpyDtoH_v2)(out, own.out, WORDS * 4));
    OK(CALL(cuMemFree_v2)(own.out));
    OK(CALL(cuModuleUnload)(own.module));
    return r;
}

/* The graph of `k`, whose second graph is that of `l`, whose second graph is the usual one. */
static void run_l_as_b(unsigned out[WORDS])
{
    CUgraphExec l = outer("l", UPLOADED), b = own.inner[1];
    own.inner[1] = l;
    CUgraphExec k = outer("k", 0);
    own.inner[1] = b;
    OK(finish(k, out, 1));
    OK(CALL(cuGraphExecDestroy)(l));
}

/* --- order ------------------------------------------------------------------------------------ */

static void tails_come_one_by_one_behind_what_was_fired(void)
{
    unsigned out[WORDS];
    begin(DECLARED BEGIN("k") LAUNCH(B, TAIL) LAUNCH(A, FIRE) LAUNCH(C, TAIL) LAUNCH(D, TAIL)
              KEEP(1) END,
          UPLOADED);
    OK(finish(outer("k", 0), out, 3));
    TEST_ASSERT_EQUAL_UINT(0, out[1]);
    /* in 32 bits */
    TEST_ASSERT_EQUAL_UINT((unsigned)123412341234, out[0]);
}

/* The tails of a tail come before those that were asked for earlier, and a sibling is waited for by
 * the end of all, and by no tail. */
static void tails_of_tails_come_first(void)
{
    unsigned out[WORDS];
    begin(DECLARED BEGIN("k") LAUNCH(B, TAIL) LAUNCH(A, TAIL) KEEP(1) END BEGIN("l") LAUNCH(D, TAIL)
              KEEP(2) LAUNCH(C, FIRE) KEEP(3) END,
          UPLOADED);
    run_l_as_b(out);
    static const unsigned want[WORDS] = {341};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

static void what_follows_in_the_stream_waits_for_siblings(void)
{
    unsigned out[WORDS];
    begin(DECLARED BEGIN("k") LAUNCH(A, SIBLING) KEEP(1) END BEGIN("l") LAUNCH(A, SIBLING) KEEP(2)
              END,
          UPLOADED);
    OK(finish(outer("k", 0), out, 3));
    TEST_ASSERT_EQUAL_UINT(111, out[0]);
    TEST_ASSERT_EQUAL_UINT(0, out[1]);
    /* of a launch that a kernel made: that kernel's own launch waits */
    begin(DECLARED BEGIN("k") LAUNCH(B, FIRE) KEEP(1) LAUNCH(D, TAIL) END BEGIN("l")
              LAUNCH(A, SIBLING) KEEP(2) END,
          UPLOADED);
    run_l_as_b(out);
    static const unsigned want[WORDS] = {14};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

/* A loop without the host: five times itself. */
static void a_graph_goes_on_with_itself(void)
{
    unsigned out[WORDS];
    begin(DECLARED BEGIN("k") " mov.u64 %d7, %current_graph_exec; ld.global.u32 %r2, [%d1];\n"
                              " add.u32 %r2, %r2, 1; st.global.u32 [%d1], %r2;\n"
                              " setp.ge.u32 %q, %r2, 5; @%q bra done;\n" LAUNCH("%d7", TAIL) KEEP(1)
                                  LAUNCH("%d7", TAIL) KEEP(2) LAUNCH("%d7", FIRE)
                                      KEEP(3) "done:\n" END,
          UPLOADED);
    OK(finish(outer("k", UPLOADED), out, 1));
    static const unsigned want[WORDS] = {5, 0, 1, 1};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

/* And so often that each time must leave nothing behind. */
static void a_graph_goes_on_with_itself_for_ever(void)
{
    enum { MOST_BYTES = 10 << 20 }; /* a launch has more than 100 */
    unsigned out[WORDS];
    begin(DECLARED BEGIN("k") " mov.u64 %d7, %current_graph_exec; ld.global.u32 %r2, [%d1];\n"
                              " add.u32 %r2, %r2, 1; st.global.u32 [%d1], %r2;\n"
                              " setp.ge.u32 %q, %r2, 200000; @%q bra done;\n" LAUNCH("%d7", TAIL)
                                  KEEP(1) "done:\n" END,
          UPLOADED);
    size_t before = mallinfo2().uordblks;
    OK(finish(outer("k", UPLOADED), out, 1));
    TEST_ASSERT_EQUAL_UINT32(200000, out[0]);
    TEST_ASSERT_EQUAL_UINT32(0, out[1]);
    TEST_ASSERT_LESS_THAN(before + MOST_BYTES, mallinfo2().uordblks);
}

/* --- what is refused -------------------------------------------------------------------------- */

#define ALL                                                                                        \
    DECLARED BEGIN("k") LAUNCH(A, FIRE) KEEP(1) LAUNCH(A, TAIL) KEEP(2) LAUNCH(B, "0") KEEP(3)     \
        LAUNCH(B, "0x0400000000000000") KEEP(4) " mov.u64 %d7, 4096;\n" LAUNCH("%d7", FIRE)        \
            KEEP(5) " mov.u64 %d7, %current_graph_exec; cvt.u32.u64 %r1, %d7;\n" KEEP(6) END

static void a_graph_runs_once_at_a_time_and_streams_are_of_graphs(void)
{
    unsigned out[WORDS];
    begin(ALL, UPLOADED);
    OK(finish(outer("k", 0), out, 1));
    static const unsigned want[WORDS] = {1, 0, 1, 1, 1, 1, 0};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

static void it_is_for_graphs_and_kernels_of_graphs(void)
{
    unsigned out[WORDS];
    static const unsigned want[WORDS] = {0, 1, 1, 1, 1, 1, 0};
    begin(ALL, 0); /* these are the host's */
    OK(finish(outer("k", 0), out, 1));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
    begin(ALL, 4); /* these were not uploaded */
    OK(finish(outer("k", 0), out, 1));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
    begin(ALL, 4);
    CUfunction f;
    void *params[1 + INNER] = {&own.out};
    for (int i = 0; i < INNER; i++) {
        OK(CALL(cuGraphUpload)(own.inner[i], NULL));
        params[1 + i] = &own.inner[i];
    }
    OK(CALL(cuModuleGetFunction)(&f, own.module, "k"));
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL)); /* a kernel of no graph */
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuMemcpyDtoH_v2)(out, own.out, sizeof out));
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
    OK(finish(outer("k", 0), out, 1)); /* they were uploaded */
    static const unsigned good[WORDS] = {1, 0, 1, 1, 1, 1, 0};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(good, out, WORDS);
}

/* One that counts how many of a kind are taken. */
#define MANY(stream)                                                                               \
    DECLARED BEGIN("k") " mov.u32 %r3, 0;\n"                                                       \
                        "more:\n" LAUNCH(A, stream) " setp.ne.u32 %q, %r1, 0; @%q bra done;\n"     \
                                                    " add.u32 %r3, %r3, 1; bra more;\n"            \
                                                    "done: st.global.u32 [%d1+12], %r3;\n" KEEP(4) \
                                                        END

static void a_tail_waits_for_its_turn_once(void)
{
    unsigned out[WORDS];
    begin(MANY(TAIL), UPLOADED);
    OK(finish(outer("k", 0), out, 1));
    static const unsigned want[WORDS] = {1, 0, 0, 1, 1};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(want, out, WORDS);
}

static void host_functions_and_empty_graphs_are_not_for_kernels(void)
{
    CUgraph g;
    CUgraphNode node;
    CUgraphExec e;
    CUDA_HOST_NODE_PARAMS host = {.fn = (CUhostFn)(void (*)(void))setUp};
    CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = 4};
    begin(DECLARED BEGIN("k") END, UPLOADED);
    OK(CALL(cuGraphCreate)(&g, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphInstantiateWithParams)(&e, g, &p));
    TEST_ASSERT_NULL(p.hErrNode_out);
    OK(CALL(cuGraphAddHostNode)(&node, g, NULL, 0, &host));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphInstantiateWithParams)(&e, g, &p));
    TEST_ASSERT_EQUAL_PTR(node, p.hErrNode_out);
    TEST_ASSERT_EQUAL_INT(CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, p.result_out);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphInstantiateWithFlags)(&e, g, 4));
    OK(CALL(cuGraphDestroy)(g));
    unsigned out[WORDS];
    OK(finish(outer("k", 0), out, 1));
}

/* --- what goes wrong -------------------------------------------------------------------------- */

static void wait_for_word(void *word)
{
    while (__atomic_load_n((unsigned *)word, __ATOMIC_ACQUIRE) == 0) {}
}

static CUgraph digits(void)
{
    CUgraph g;
    unsigned digit = 7;
    OK(CALL(cuGraphCreate)(&g, 0));
    add(g, "digit", (void *[]){&own.out, &digit});
    return g;
}

/* One at the place of another, which is destroyed; another one if malloc does not do that.  What is
 * freed first it keeps for other uses. */
static CUgraphExec in_place_of(CUgraphExec old)
{
    enum { N = 16 };
    CUgraphExec others[N];
    CUgraph g = digits();
    for (int i = 0; i < N; i++)
        others[i] = exec_of(digits(), UPLOADED);
    for (int i = 0; i < N; i++)
        OK(CALL(cuGraphExecDestroy)(others[i]));
    OK(CALL(cuGraphExecDestroy)(old));
    return exec_of(g, UPLOADED);
}

/* A kernel has asked to launch what the host has destroyed since, and perhaps made anew. */
static void launch_what_is_gone(bool is_made_anew)
{
    unsigned go = 0, out[WORDS];
    CUgraph g;
    CUgraphNode first, last;
    CUgraphExec k;
    CUDA_HOST_NODE_PARAMS host = {.fn = wait_for_word, .userData = &go};
    begin(DECLARED BEGIN("k") LAUNCH(A, TAIL) " mov.u32 %r1, 1;\n" KEEP(1) END, UPLOADED);
    void *params[1 + INNER] = {&own.out};
    for (int i = 0; i < INNER; i++)
        params[1 + i] = &own.inner[i];
    OK(CALL(cuGraphCreate)(&g, 0));
    first = add(g, "k", params);
    OK(CALL(cuGraphAddHostNode)(&last, g, &first, 1, &host));
    k = exec_of(g, 0);
    OK(CALL(cuGraphLaunch)(k, NULL));
    while (((volatile unsigned *)(uintptr_t)own.out)[1] == 0) {}
    if (is_made_anew) {
        own.inner[0] = in_place_of(own.inner[0]);
    } else {
        OK(CALL(cuGraphExecDestroy)(own.inner[0]));
        own.inner[0] = NULL;
    }
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_HANDLE, CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_HANDLE, finish(k, out, 1));
}

static void a_graph_that_is_gone_when_its_turn_comes_is_an_error(void)
{
    launch_what_is_gone(false);
}

static void also_if_another_one_stands_in_its_place(void)
{
    launch_what_is_gone(true);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(tails_come_one_by_one_behind_what_was_fired);
    RUN_TEST(tails_of_tails_come_first);
    RUN_TEST(what_follows_in_the_stream_waits_for_siblings);
    RUN_TEST(a_graph_goes_on_with_itself);
    RUN_TEST(a_graph_goes_on_with_itself_for_ever);
    RUN_TEST(a_graph_runs_once_at_a_time_and_streams_are_of_graphs);
    RUN_TEST(it_is_for_graphs_and_kernels_of_graphs);
    RUN_TEST(a_tail_waits_for_its_turn_once);
    RUN_TEST(host_functions_and_empty_graphs_are_not_for_kernels);
    RUN_TEST(a_graph_that_is_gone_when_its_turn_comes_is_an_error);
    RUN_TEST(also_if_another_one_stands_in_its_place);
    return UNITY_END();
}

/* Conditional nodes of graphs, and nodes of several operations on words. */
#include "test/unit/device/driver/help.h"

#define N_WORDS 16

static CUmodule module;
static CUfunction add, decide;
static CUdeviceptr words;

void setUp(void)
{
    use_device();
    OK(CALL(cuModuleLoadData)(
        &module, ".version 8.3\n.target sm_90\n.address_size 64\n"
                 ".extern .func cudaGraphSetConditional(.param .b64 a, .param .b32 b);\n"
                 ".visible .entry add(.param .u64 p, .param .u32 n)\n{ .reg .b64 %d<2>; .reg .b32 "
                 "%r<3>; ld.param.u64 %d1, "
                 "[p]; ld.param.u32 %r1, [n]; red.global.add.u32 [%d1], %r1; ret; }\n"
                 /* Adds n to *p and makes the sum the condition. */
                 ".visible .entry decide(.param .u64 p, .param .u32 n, .param .u64 handle)\n{ .reg "
                 ".b64 %d<3>; .reg .b32 "
                 "%r<4>; .param .b64 a; .param .b32 b;\n"
                 "ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; ld.param.u64 %d2, [handle]; "
                 "ld.global.u32 %r2, [%d1]; "
                 "add.u32 %r2, %r2, %r1; st.global.u32 [%d1], %r2; st.param.b64 [a], %d2; "
                 "st.param.b32 [b], %r2;\n"
                 "call cudaGraphSetConditional, (a, b); ret; }\n"));
    OK(CALL(cuModuleGetFunction)(&add, module, "add"));
    OK(CALL(cuModuleGetFunction)(&decide, module, "decide"));
    OK(CALL(cuMemAlloc_v2)(&words, 4 * N_WORDS));
    OK(CALL(cuMemsetD32_v2)(words, 0, N_WORDS));
}

void tearDown(void)
{
    CALL(cuMemFree_v2)(words);
    CALL(cuModuleUnload)(module);
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static CUgraphNode add_kernel(CUgraph g, CUgraphNode after, CUfunction f, unsigned word, unsigned n,
                              CUgraphConditionalHandle handle)
{
    CUdeviceptr p = words + 4ull * word;
    void *args[] = {&p, &n, &handle};
    CUDA_KERNEL_NODE_PARAMS k = {.func = f,
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    CUgraphNode node;
    OK(CALL(cuGraphAddKernelNode_v2)(&node, g, &after, after != NULL, &k));
    return node;
}

static CUgraphNode add_conditional(CUgraph g, CUgraphNode after, CUgraphConditionalHandle handle,
                                   CUgraphConditionalNodeType type, unsigned size, CUgraph *bodies)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                           .conditional = {.handle = handle, .type = type, .size = size}};
    CUgraphNode node;
    OK(CALL(cuGraphAddNode_v2)(&node, g, &after, NULL, after != NULL, &p));
    for (unsigned i = 0; i < size; i++)
        bodies[i] = p.conditional.phGraph_out[i];
    return node;
}

static CUgraphConditionalHandle new_handle(CUgraph g, unsigned value, unsigned flags)
{
    CUgraphConditionalHandle h;
    CUcontext ctx;
    OK(CALL(cuCtxGetCurrent)(&ctx));
    OK(CALL(cuGraphConditionalHandleCreate)(&h, g, ctx, value, flags));
    return h;
}

static void run(CUgraph g, unsigned times, unsigned *out)
{
    CUgraphExec e;
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, 0));
    for (unsigned i = 0; i < times; i++)
        OK(CALL(cuGraphLaunch)(e, NULL));
    OK(CALL(cuGraphExecDestroy)(e)); /* while it may be running */
    OK(CALL(cuMemcpyDtoH_v2)(out, words, 4 * N_WORDS));
}

/* The word goes 1, 2, 0 by turns; so the body runs twice of three times, its other half once. */
static void a_body_runs_if_the_kernel_before_says_so(void)
{
    CUgraph g, bodies[2];
    CUgraphNodeType type;
    unsigned out[N_WORDS];
    OK(CALL(cuGraphCreate)(&g, 0));
    CUgraphConditionalHandle h = new_handle(g, 0, 0);
    CUgraphNode first = add_kernel(g, NULL, decide, 0, 1, h);
    CUgraphNode node = add_conditional(g, first, h, CU_GRAPH_COND_TYPE_IF, 2, bodies);
    add_kernel(bodies[0], add_kernel(bodies[0], NULL, add, 1, 1, 0), add, 1, 10, 0);
    add_kernel(bodies[1], NULL, add, 2, 1, 0);
    add_kernel(g, node, add, 3, 1, 0);
    OK(CALL(cuGraphNodeGetType)(node, &type));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_CONDITIONAL, type);
    run(g, 2, out);
    OK(CALL(cuMemsetD32_v2)(words, UINT32_MAX, 1));
    run(g, 1, out);
    TEST_ASSERT_EQUAL_UINT(22, out[1]);
    TEST_ASSERT_EQUAL_UINT(1, out[2]);
    TEST_ASSERT_EQUAL_UINT(3, out[3]);
    OK(CALL(cuGraphDestroy)(g));
}

static void a_loop_runs_until_its_body_says_no(void)
{
    CUgraph g, body;
    unsigned out[N_WORDS];
    OK(CALL(cuGraphCreate)(&g, 0));
    CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphNode start = add_kernel(g, NULL, add, 0, 300, 0);
    CUgraphNode node = add_conditional(g, start, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
    add_kernel(body, add_kernel(body, NULL, add, 1, 1, 0), decide, 0, UINT32_MAX, h);
    add_kernel(g, node, add, 2, 1, 0);
    run(g, 3, out);
    TEST_ASSERT_EQUAL_UINT(0, out[0]);
    TEST_ASSERT_EQUAL_UINT(900, out[1]);
    TEST_ASSERT_EQUAL_UINT(3, out[2]);
    OK(CALL(cuGraphDestroy)(g));
}

/* Which body: by the word, none if it is too large; inside of a loop, with a loop inside. */
static void conditions_stand_inside_of_each_other(void)
{
    CUgraph g, loop, bodies[3], inner;
    unsigned out[N_WORDS];
    OK(CALL(cuGraphCreate)(&g, 0));
    CUgraphConditionalHandle outer = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphConditionalHandle which = new_handle(g, 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraphConditionalHandle again = new_handle(g, 0, 0);
    CUgraphNode start = add_kernel(g, NULL, add, 0, 5, 0);
    add_conditional(g, start, outer, CU_GRAPH_COND_TYPE_WHILE, 1, &loop);
    /* Word 0 goes 4, 3, 2, 1, 0 and ends the loop; word 1 goes 1, 2, 3, 4, 5 and is the choice. */
    CUgraphNode a = add_kernel(loop, NULL, decide, 0, UINT32_MAX, outer);
    CUgraphNode b = add_kernel(loop, a, decide, 1, 1, which);
    add_conditional(loop, b, which, CU_GRAPH_COND_TYPE_SWITCH, 3, bodies);
    add_kernel(bodies[0], NULL, add, 2, 1, 0);
    add_kernel(bodies[1], NULL, add, 3, 1, 0);
    CUgraphNode c = add_kernel(bodies[2], NULL, decide, 4, 7, again);
    add_conditional(bodies[2], c, again, CU_GRAPH_COND_TYPE_WHILE, 1, &inner);
    add_kernel(inner, add_kernel(inner, NULL, add, 5, 1, 0), decide, 4, UINT32_MAX, again);
    run(g, 1, out);
    TEST_ASSERT_EQUAL_UINT(0, out[0]);
    TEST_ASSERT_EQUAL_UINT(5, out[1]);
    TEST_ASSERT_EQUAL_UINT(0, out[2]);
    TEST_ASSERT_EQUAL_UINT(1, out[3]);
    TEST_ASSERT_EQUAL_UINT(0, out[4]);
    TEST_ASSERT_EQUAL_UINT(7, out[5]);
    OK(CALL(cuGraphDestroy)(g));
}

/* A stream's work goes into the body, and a node there can be given other parameters when
 * executable. */
static void a_body_is_captured_and_changed(void)
{
    CUgraph g, body, same;
    CUgraphExec e;
    CUstream s;
    CUgraphNode nodes[4];
    size_t n = 4;
    unsigned out[N_WORDS], one = 1, five = 5;
    OK(CALL(cuGraphCreate)(&g, 0));
    CUgraphConditionalHandle h = new_handle(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_conditional(g, NULL, h, CU_GRAPH_COND_TYPE_IF, 1, &body);
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamBeginCaptureToGraph)(s, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    void *args[] = {&words, &one};
    OK(CALL(cuLaunchKernel)(add, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    OK(CALL(cuStreamEndCapture)(s, &same));
    TEST_ASSERT_EQUAL_PTR(body, same);
    OK(CALL(cuGraphGetNodes)(body, nodes, &n));
    TEST_ASSERT_EQUAL_UINT(1, n);
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, 0));
    OK(CALL(cuGraphLaunch)(e, s));
    void *others[] = {&words, &five};
    CUDA_KERNEL_NODE_PARAMS k = {add, 1, 1, 1, 1, 1, 1, 0, others, NULL, NULL, NULL};
    OK(CALL(cuGraphExecKernelNodeSetParams_v2)(e, nodes[0], &k));
    OK(CALL(cuGraphLaunch)(e, s));
    OK(CALL(cuGraphExecUpdate_v2)(e, g, &(CUgraphExecUpdateResultInfo){0}));
    OK(CALL(cuGraphLaunch)(e, s));
    OK(CALL(cuStreamSynchronize)(s));
    OK(CALL(cuMemcpyDtoH_v2)(out, words, 4));
    TEST_ASSERT_EQUAL_UINT(7, out[0]);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphDestroy)(body));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuGraphDestroy)(g));
}

static void a_handle_that_is_none_is_refused(void)
{
    CUgraph g;
    CUgraphExec e;
    CUgraphNode node;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    OK(CALL(cuGraphCreate)(&g, 0));
    CUgraphNodeParams p = {
        .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
        .conditional = {.handle = 4711, .type = CU_GRAPH_COND_TYPE_IF, .size = 1}};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuGraphAddNode_v2)(&node, g, NULL, NULL, 0, &p));
    p.conditional.handle = new_handle(g, 0, 0);
    p.conditional.size = 3;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuGraphAddNode_v2)(&node, g, NULL, NULL, 0, &p));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuGraphInstantiateWithParams)(&e, g, &params));
    TEST_ASSERT_EQUAL_INT(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, params.result_out);
    OK(CALL(cuGraphDestroy)(g));
}

static void a_handle_is_for_its_graph_and_what_is_inside_of_it(void)
{
    CUgraph g, other, body, inner;
    CUgraphExec e;
    CUgraphNode node;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphCreate)(&other, 0));
    CUgraphConditionalHandle h = new_handle(g, 0, 0), second = new_handle(g, 0, 0);
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                           .conditional = {.handle = h, .type = CU_GRAPH_COND_TYPE_IF, .size = 1}};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuGraphAddNode_v2)(&node, other, NULL, NULL, 0, &p));
    add_conditional(g, NULL, second, CU_GRAPH_COND_TYPE_IF, 1, &body);
    /* what was refused has not used the first */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuGraphInstantiateWithParams)(&e, g, &params));
    TEST_ASSERT_EQUAL_INT(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, params.result_out);
    add_conditional(body, NULL, h, CU_GRAPH_COND_TYPE_WHILE, 1, &inner);
    OK(CALL(cuGraphInstantiateWithParams)(&e, g, &params));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuGraphAddNode_v2)(&node, other, NULL, NULL, 0, &p));
    OK(CALL(cuGraphDestroy)(other));
}

static void a_node_has_several_operations_on_words(void)
{
    CUgraph g;
    CUgraphNode node;
    CUgraphExec e;
    unsigned out[N_WORDS];
    CUstreamBatchMemOpParams ops[3] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                        .address = words,
                        .value = 11}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = words, .value = 11}},
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                        .address = words + 8,
                        .value64 = 22}},
    };
    CUcontext ctx;
    OK(CALL(cuCtxGetCurrent)(&ctx));
    CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.ctx = ctx, .count = 3, .paramArray = ops}, got;
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphAddBatchMemOpNode)(&node, g, NULL, 0, &p));
    OK(CALL(cuGraphBatchMemOpNodeGetParams)(node, &got));
    TEST_ASSERT_EQUAL_UINT(3, got.count);
    TEST_ASSERT_EQUAL_INT(CU_STREAM_MEM_OP_WAIT_VALUE_32, got.paramArray[1].operation);
    TEST_ASSERT_EQUAL_UINT64(22, got.paramArray[2].writeValue.value64);
    ops[2].writeValue.value64 = 33;
    OK(CALL(cuGraphBatchMemOpNodeSetParams)(node, &p));
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, 0));
    OK(CALL(cuGraphLaunch)(e, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, words, 16));
    TEST_ASSERT_EQUAL_UINT(11, out[0]);
    TEST_ASSERT_EQUAL_UINT(33, out[2]);
    ops[0].writeValue.value = ops[1].waitValue.value = 44;
    OK(CALL(cuGraphExecBatchMemOpNodeSetParams)(e, node, &p));
    OK(CALL(cuGraphLaunch)(e, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, words, 16));
    TEST_ASSERT_EQUAL_UINT(44, out[0]);
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
}

/* All streams of a context wait, those that come later too. */
static void a_context_waits_for_an_event(void)
{
    CUcontext ctx;
    CUstream before, early, late;
    CUevent e;
    unsigned *pinned, out;
    OK(CALL(cuCtxGetCurrent)(&ctx));
    OK(CALL(cuMemHostAlloc)((void **)&pinned, 64, 0));
    memset(pinned, 0, 64);
    OK(CALL(cuStreamCreate)(&before, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&early, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuStreamWaitValue32_v2)(before, (CUdeviceptr)pinned, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(CALL(cuMemsetD32Async)(words, 9, 1, before));
    OK(CALL(cuEventRecord)(e, before));
    OK(CALL(cuCtxWaitEvent)(ctx, e));
    OK(CALL(cuStreamCreate)(&late, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuMemcpyDtoDAsync_v2)(words + 4, words, 4, early));
    OK(CALL(cuMemcpyDtoDAsync_v2)(words + 8, words, 4, late));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(early));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(late));
    __atomic_store_n(pinned, 1, __ATOMIC_RELEASE);
    OK(CALL(cuCtxSynchronize)());
    for (unsigned i = 1; i < 3; i++) {
        OK(CALL(cuMemcpyDtoH_v2)(&out, words + 4ull * i, 4));
        TEST_ASSERT_EQUAL_UINT(9, out);
    }
    OK(CALL(cuStreamDestroy_v2)(before));
    OK(CALL(cuStreamDestroy_v2)(early));
    OK(CALL(cuStreamDestroy_v2)(late));
    OK(CALL(cuEventDestroy_v2)(e));
    OK(CALL(cuMemFreeHost)(pinned));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_body_runs_if_the_kernel_before_says_so);
    RUN_TEST(a_loop_runs_until_its_body_says_no);
    RUN_TEST(conditions_stand_inside_of_each_other);
    RUN_TEST(a_body_is_captured_and_changed);
    RUN_TEST(a_handle_that_is_none_is_refused);
    RUN_TEST(a_handle_is_for_its_graph_and_what_is_inside_of_it);
    RUN_TEST(a_node_has_several_operations_on_words);
    RUN_TEST(a_context_waits_for_an_event);
    return UNITY_END();
}

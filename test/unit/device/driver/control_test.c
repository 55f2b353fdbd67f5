/* What a scheduler that stands between program and driver asks for: what a kernel is called and
 * takes, what a graph consists of, whether a stream is captured, words in memory that other
 * processes write and streams write and wait for. */
#include "test/unit/device/driver/help.h"

#include <stdatomic.h>
#include <sys/mman.h>

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

/* poll: waits until *word is not 0 and gives it out; add: *out += k. */
static const char kernels[] = HEAD
    ".visible .entry poll(.param .u64 word, .param .u64 out)\n"
    "{ .reg .pred %q; .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d1, [word]; ld.param.u64 %d2, [out];\n"
    "L: ld.volatile.global.u32 %r1, [%d1]; setp.eq.u32 %q, %r1, 0; @%q bra L;\n"
    "st.global.u32 [%d2], %r1; ret; }\n"
    ".visible .entry add(.param .u64 out, .param .align 4 .b8 pad[6], .param .u32 k)\n"
    "{ .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
    "ld.param.u64 %d1, [out]; ld.param.u32 %r1, [k]; red.global.add.u32 [%d1], %r1; ret; }\n"
    ".visible .entry store(.param .u64 out)\n"
    "{ .reg .b64 %d<3>; ld.param.u64 %d1, [out]; st.global.u32 [%d1], 1; ret; }\n"
    ".func helper() { ret; }\n";

static void a_kernel_tells_its_name_its_module_and_its_parameters(void)
{
    CUmodule m, of;
    CUfunction f, all[8] = {0};
    CUlibrary l, back;
    CUkernel k, list[8];
    const char *name;
    size_t offset, bytes;
    CUcontext ctx;
    unsigned n;
    OK(CALL(cuModuleLoadData)(&m, kernels));
    OK(CALL(cuModuleGetFunction)(&f, m, "add"));
    OK(CALL(cuFuncGetName)(&name, f));
    TEST_ASSERT_EQUAL_STRING("add", name);
    OK(CALL(cuFuncGetModule)(&of, f));
    TEST_ASSERT_EQUAL_PTR(m, of);
    static const size_t want[3][2] = {{0, 8}, {8, 6}, {16, 4}};
    for (size_t i = 0; i < 3; i++) {
        OK(CALL(cuFuncGetParamInfo)(f, i, &offset, &bytes));
        TEST_ASSERT_EQUAL_UINT64(want[i][0], offset);
        TEST_ASSERT_EQUAL_UINT64(want[i][1], bytes);
    }
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuFuncGetParamInfo)(f, 3, &offset, &bytes));
    OK(CALL(cuModuleGetFunctionCount)(&n, m));
    TEST_ASSERT_EQUAL_UINT(3, n);
    OK(CALL(cuModuleEnumerateFunctions)(all, 8, m));
    TEST_ASSERT_EQUAL_PTR(f, all[1]);
    TEST_ASSERT_NULL(all[3]);
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuLibraryLoadData)(&l, kernels, NULL, NULL, 0, NULL, NULL, 0));
    OK(CALL(cuLibraryGetKernelCount)(&n, l));
    TEST_ASSERT_EQUAL_UINT(3, n);
    OK(CALL(cuLibraryEnumerateKernels)(list, 3, l));
    OK(CALL(cuLibraryGetKernel)(&k, l, "add"));
    TEST_ASSERT_EQUAL_PTR(k, list[1]);
    OK(CALL(cuKernelGetName)(&name, k));
    TEST_ASSERT_EQUAL_STRING("add", name);
    OK(CALL(cuKernelGetLibrary)(&back, k));
    TEST_ASSERT_EQUAL_PTR(l, back);
    OK(CALL(cuKernelGetParamInfo)(k, 2, &offset, &bytes));
    TEST_ASSERT_EQUAL_UINT64(16, offset);
    OK(CALL(cuCtxGetCurrent)(&ctx));
    OK(CALL(cuCtxSetCurrent)(NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CONTEXT,
                          CALL(cuKernelGetParamInfo)(k, 2, &offset, &bytes));
    OK(CALL(cuCtxSetCurrent)(ctx));
    OK(CALL(cuKernelGetFunction)(&f, k));
    OK(CALL(cuFuncGetName)(&name, f)); /* of a function that came from a kernel */
    TEST_ASSERT_EQUAL_STRING("add", name);
    OK(CALL(cuFuncGetName)(&name, (CUfunction)(void *)k)); /* and of the kernel itself */
    TEST_ASSERT_EQUAL_STRING("add", name);
    OK(CALL(cuLibraryUnload)(l));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuFuncGetName)(&name, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuKernelGetName)(&name, NULL));
}

static void settings_of_core_dumps_are_kept_and_dumps_refused(void)
{
    bool on = true, off = false, flag = true;
    size_t one = sizeof flag, n = 8;
    char name[1024] = "", longer[1024];
    memset(longer, 'x', sizeof longer);
    OK(CALL(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(sizeof name, n);
    OK(CALL(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, name, &n));
    TEST_ASSERT_EQUAL_STRING_LEN("core.cuda.", name, 10);
    n = 6;
    OK(CALL(cuCoredumpSetAttributeGlobal)(CU_COREDUMP_FILE, "folder", &n));
    OK(CALL(cuCoredumpSetAttribute)(CU_COREDUMP_TRIGGER_HOST, &off, &one));
    n = sizeof name;
    OK(CALL(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, name, &n));
    TEST_ASSERT_EQUAL_STRING("folder", name);
    TEST_ASSERT_EQUAL_UINT64(7, n);
    OK(CALL(cuCoredumpGetAttribute)(CU_COREDUMP_TRIGGER_HOST, &flag, &one));
    TEST_ASSERT_FALSE(flag);
    OK(CALL(cuCoredumpGetAttributeGlobal)(CU_COREDUMP_TRIGGER_HOST, &flag, &one));
    TEST_ASSERT_TRUE(flag);
    n = sizeof longer;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuCoredumpSetAttribute)(CU_COREDUMP_PIPE, longer, &n));
    n = 3;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuCoredumpGetAttribute)(CU_COREDUMP_FILE, name, &n));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuCoredumpGetAttribute)(CU_COREDUMP_MAX, name, &n));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                          CALL(cuCoredumpSetAttribute)(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &one));
    OK(CALL(cuCoredumpSetAttribute)(CU_COREDUMP_ENABLE_ON_EXCEPTION, &off, &one));
}

/* A page that somebody else writes, mapped here for reading only, as a kernel sees it. */
static void a_kernel_polls_a_page_that_its_process_cannot_write(void)
{
    int fd = memfd_create("words", MFD_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0 && ftruncate(fd, 4096) == 0);
    _Atomic unsigned *writer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *reader = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    TEST_ASSERT_TRUE(writer != MAP_FAILED && reader != MAP_FAILED);
    CUmodule m;
    CUfunction f;
    CUdeviceptr word, out;
    unsigned got = 0;
    CUstream s;
    OK(CALL(cuMemHostRegister_v2)(reader, 4096,
                                  CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY));
    OK(CALL(cuMemHostGetDevicePointer_v2)(&word, reader, 0));
    OK(CALL(cuModuleLoadData)(&m, kernels));
    OK(CALL(cuModuleGetFunction)(&f, m, "poll"));
    OK(CALL(cuMemAlloc_v2)(&out, 4));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    word += 64;
    void *args[] = {&word, &out};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, s, args, NULL));
    atomic_store(&writer[16], 42);
    OK(CALL(cuStreamSynchronize)(s));
    OK(CALL(cuMemcpyDtoH_v2)(&got, out, 4));
    TEST_ASSERT_EQUAL_UINT(42, got);
    OK(CALL(cuStreamWaitValue32_v2)(s, word, 42, CU_STREAM_WAIT_VALUE_EQ));
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuStreamWriteValue32_v2)(s, word, 1, 0));
    OK(CALL(cuMemHostUnregister)(reader));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuStreamWaitValue32_v2)(s, word, 42, 0));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuMemFree_v2)(out));
    OK(CALL(cuModuleUnload)(m));
    munmap((void *)writer, 4096);
    munmap(reader, 4096);
    close(fd);
}

static void count(void *n)
{
    atomic_fetch_add((atomic_uint *)n, 1);
}

/* The driver has one idle thread, left by the first function, when a wait and another function are
 * given to its threads at once: it must not be counted on twice.  First of all tests, so that there
 * is no other thread. */
static void a_wait_for_the_host_holds_up_no_other_stream(void)
{
    atomic_uint n = 0;
    CUstream a, b;
    _Atomic uint32_t *word;
    OK(CALL(cuMemHostAlloc)((void **)&word, 64, 0));
    OK(CALL(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    atomic_store(word, 0);
    OK(CALL(cuLaunchHostFunc)(b, count, &n));
    OK(CALL(cuStreamSynchronize)(b));
    OK(CALL(cuStreamWaitValue32_v2)(a, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(CALL(cuLaunchHostFunc)(b, count, &n));
    OK(CALL(cuStreamSynchronize)(b));
    TEST_ASSERT_EQUAL_UINT(2, atomic_load(&n));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(a));
    atomic_store(word, 1);
    OK(CALL(cuStreamSynchronize)(a));
    OK(CALL(cuStreamDestroy_v2)(a));
    OK(CALL(cuStreamDestroy_v2)(b));
    OK(CALL(cuMemFreeHost)((void *)word));
}

static void streams_write_words_of_both_widths_and_wait_for_them(void)
{
    CUstream a, b;
    void *p;
    OK(CALL(cuMemHostAlloc)(&p, 64, 0));
    memset(p, 0, 64);
    CUdeviceptr w = (CUdeviceptr)p;
    OK(CALL(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamWaitValue64_v2)(b, w, 0x100000001, CU_STREAM_WAIT_VALUE_GEQ));
    OK(CALL(cuStreamWriteValue32_v2)(b, w + 8, 5, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(b));
    OK(CALL(cuStreamWriteValue64_v2)(a, w, 0x100000000, 0)); /* not enough */
    OK(CALL(cuStreamSynchronize)(a));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(b));
    CUstreamBatchMemOpParams ops[2] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                        .address = w,
                        .value64 = 0x100000001}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = w + 8, .value = 5}}};
    OK(CALL(cuStreamBatchMemOp_v2)(a, 2, ops, 0));
    OK(CALL(cuStreamSynchronize)(a));
    OK(CALL(cuStreamSynchronize)(b));
    TEST_ASSERT_EQUAL_UINT(5, ((unsigned *)p)[2]);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuStreamWriteValue32_v2)(a, w + 2, 1, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuStreamWriteValue64_v2)(a, w + 4, 1, 0));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuStreamWriteValue32_v2)(a, (CUdeviceptr)&ops, 1, 0));
    OK(CALL(cuStreamDestroy_v2)(a));
    OK(CALL(cuStreamDestroy_v2)(b));
    OK(CALL(cuMemFreeHost)(p));
}

static CUgraphNode add_node(CUgraph g, CUfunction f, CUgraphNode *deps, size_t n, CUdeviceptr out,
                            unsigned k)
{
    CUgraphNode node;
    char pad[6] = {0};
    void *args[] = {&out, pad, &k};
    CUDA_KERNEL_NODE_PARAMS p = {f, 1, 1, 1, 1, 1, 1, 0, args, NULL, NULL, NULL};
    OK(CALL(cuGraphAddKernelNode_v2)(&node, g, deps, n, &p));
    return node;
}

/* Nodes that add 1, 10 and 100, the last behind both others, then a graph that adds 1000. */
struct sum {
    CUmodule m;
    CUfunction f;
    CUdeviceptr out;
    CUgraph g, inner;
    CUgraphNode a, b, c, child;
};

static void sum_begin(struct sum *s)
{
    OK(CALL(cuModuleLoadData)(&s->m, kernels));
    OK(CALL(cuModuleGetFunction)(&s->f, s->m, "add"));
    OK(CALL(cuMemAlloc_v2)(&s->out, 4));
    OK(CALL(cuMemsetD32_v2)(s->out, 0, 1));
    OK(CALL(cuGraphCreate)(&s->inner, 0));
    add_node(s->inner, s->f, NULL, 0, s->out, 1000);
    OK(CALL(cuGraphCreate)(&s->g, 0));
    s->a = add_node(s->g, s->f, NULL, 0, s->out, 1);
    s->b = add_node(s->g, s->f, &s->a, 1, s->out, 10);
    s->c = add_node(s->g, s->f, (CUgraphNode[]){s->a, s->b}, 2, s->out, 100);
    OK(CALL(cuGraphAddChildGraphNode)(&s->child, s->g, &s->c, 1, s->inner));
}

static void sum_is(const struct sum *s, unsigned expected)
{
    unsigned got = 0;
    OK(CALL(cuMemcpyDtoH_v2)(&got, s->out, 4));
    TEST_ASSERT_EQUAL_UINT(expected, got);
}

static void sum_end(struct sum *s)
{
    OK(CALL(cuGraphDestroy)(s->g));
    OK(CALL(cuGraphDestroy)(s->inner));
    OK(CALL(cuMemFree_v2)(s->out));
    OK(CALL(cuModuleUnload)(s->m));
}

static void a_graph_shows_its_nodes_and_edges_and_can_be_replayed_by_hand(void)
{
    struct sum s;
    CUgraphNode nodes[8], from[8], to[8];
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS p;
    size_t n = 0;
    sum_begin(&s);
    OK(CALL(cuGraphGetNodes)(s.g, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(4, n);
    n = 8;
    OK(CALL(cuGraphGetNodes)(s.g, nodes, &n));
    TEST_ASSERT_EQUAL_UINT64(4, n);
    TEST_ASSERT_EQUAL_PTR(s.b, nodes[1]);
    OK(CALL(cuGraphGetEdges)(s.g, NULL, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(4, n);
    n = 8;
    OK(CALL(cuGraphGetEdges_v2)(s.g, from, to, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(4, n);
    TEST_ASSERT_TRUE(from[0] == s.a && to[0] == s.b && from[3] == s.c && to[3] == s.child);
    OK(CALL(cuGraphNodeGetType)(s.child, &type));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_GRAPH, type);
    /* By hand: each node's parameters, as they would be launched. */
    for (int i = 0; i < 3; i++) {
        OK(CALL(cuGraphKernelNodeGetParams_v2)(nodes[i], &p));
        TEST_ASSERT_EQUAL_PTR(s.f, p.func);
        OK(CALL(cuLaunchKernel)(p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX,
                                p.blockDimY, p.blockDimZ, p.sharedMemBytes, NULL, p.kernelParams,
                                p.extra));
    }
    sum_is(&s, 111);
    sum_end(&s);
}

/* Before and after an update of the whole. */
static void a_node_in_a_child_graph_takes_new_parameters(void)
{
    struct sum s;
    CUgraph inner;
    CUgraphNode in_child;
    CUgraphExec x;
    CUgraphExecUpdateResultInfo info;
    CUDA_KERNEL_NODE_PARAMS p;
    size_t one = 1;
    sum_begin(&s);
    OK(CALL(cuGraphChildGraphNodeGetGraph)(s.child, &inner));
    OK(CALL(cuGraphGetNodes)(inner, &in_child, &one));
    OK(CALL(cuGraphInstantiateWithFlags)(&x, s.g, 0));
    OK(CALL(cuGraphLaunch)(x, NULL));
    sum_is(&s, 1111);
    OK(CALL(cuGraphKernelNodeGetParams_v2)(in_child, &p));
    unsigned k = 2000;
    void *args[] = {p.kernelParams[0], p.kernelParams[1], &k};
    p.kernelParams = args;
    OK(CALL(cuGraphExecKernelNodeSetParams_v2)(x, in_child, &p));
    OK(CALL(cuGraphLaunch)(x, NULL));
    sum_is(&s, 3222);
    OK(CALL(cuGraphExecUpdate_v2)(x, s.g, &info));
    OK(CALL(cuGraphLaunch)(x, NULL));
    sum_is(&s, 4333);
    k = 5000;
    OK(CALL(cuGraphExecKernelNodeSetParams_v2)(x, in_child, &p));
    OK(CALL(cuGraphLaunch)(x, NULL));
    sum_is(&s, 9444);
    OK(CALL(cuGraphRemoveDependencies)(s.g, &s.a, &s.b, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                          CALL(cuGraphExecUpdate_v2)(x, s.g, &info));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
    OK(CALL(cuGraphExecDestroy)(x));
    sum_end(&s);
}

static void a_capture_can_be_seen_and_its_mode_changed(void)
{
    CUstream s;
    CUgraph g, seen;
    CUgraphNode const *deps;
    const CUgraphEdgeData *edges = NULL;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUdeviceptr p, other;
    size_t n;
    CUcontext ctx, mine;
    OK(CALL(cuMemAlloc_v2)(&p, 16));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamGetCaptureInfo_v2)(s, &status, &id, &seen, &deps, &n));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_NONE, status);
    OK(CALL(cuStreamGetCtx)(s, &ctx));
    OK(CALL(cuCtxGetCurrent)(&mine));
    TEST_ASSERT_EQUAL_PTR(mine, ctx);
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CALL(cuMemsetD32Async)(p, 7, 4, s));
    OK(CALL(cuStreamGetCaptureInfo_v3)(s, &status, &id, &seen, &deps, &edges, &n));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    TEST_ASSERT_EQUAL_UINT64(1, n);
    TEST_ASSERT_NOT_NULL(edges); /* one for each dependency, a plain one */
    TEST_ASSERT_EQUAL_MEMORY(&(CUgraphEdgeData){0}, edges, sizeof *edges);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(CALL(cuThreadExchangeStreamCaptureMode)(&mode));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    OK(CALL(cuMemAlloc_v2)(&other, 16)); /* allowed now */
    OK(CALL(cuThreadExchangeStreamCaptureMode)(&mode));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
    OK(CALL(cuStreamEndCapture)(s, &g));
    TEST_ASSERT_EQUAL_PTR(seen, g);
    OK(CALL(cuStreamIsCapturing)(s, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_NONE, status);
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuMemFree_v2)(p));
    OK(CALL(cuMemFree_v2)(other));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* A kernel that writes what it may only read ends as one that writes nowhere. */
static void a_kernel_cannot_write_a_page_for_reading(void)
{
    CUmodule m;
    CUfunction f;
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr p;
    OK(CALL(cuMemHostRegister_v2)(page, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
    OK(CALL(cuMemHostGetDevicePointer_v2)(&p, page, 0));
    OK(CALL(cuModuleLoadData)(&m, kernels));
    OK(CALL(cuModuleGetFunction)(&f, m, "store"));
    void *args[] = {&p};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, CALL(cuCtxSynchronize)());
    munmap(page, 4096);
}

static void who_captures_into_a_graph_of_his_own_need_not_be_told_which(void)
{
    CUstream s;
    CUgraph g;
    CUdeviceptr p;
    size_t n = 0;
    OK(CALL(cuMemAlloc_v2)(&p, 4));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuStreamBeginCaptureToGraph)(s, g, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CALL(cuMemsetD32Async)(p, 7, 1, s));
    OK(CALL(cuStreamEndCapture)(s, NULL));
    OK(CALL(cuGraphGetNodes)(g, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(1, n);
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuStreamEndCapture)(s, NULL));
    OK(CALL(cuStreamEndCapture)(s, &g));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuMemFree_v2)(p));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_wait_for_the_host_holds_up_no_other_stream);
    RUN_TEST(a_kernel_tells_its_name_its_module_and_its_parameters);
    RUN_TEST(settings_of_core_dumps_are_kept_and_dumps_refused);
    RUN_TEST(a_kernel_polls_a_page_that_its_process_cannot_write);
    RUN_TEST(streams_write_words_of_both_widths_and_wait_for_them);
    RUN_TEST(a_graph_shows_its_nodes_and_edges_and_can_be_replayed_by_hand);
    RUN_TEST(a_node_in_a_child_graph_takes_new_parameters);
    RUN_TEST(a_capture_can_be_seen_and_its_mode_changed);
    RUN_TEST(who_captures_into_a_graph_of_his_own_need_not_be_told_which);
    RUN_TEST(a_kernel_cannot_write_a_page_for_reading);
    return UNITY_END();
}

/* Graphs made by hand: every kind of node, its parameters read back and changed, in the graph and
 * in what was made of it. */
#include "test/unit/device/driver/help.h"

#include <stdatomic.h>

static CUmodule module;
static CUfunction add_one; /* add(p, v): *p += v, by thread 0 */
static CUdeviceptr word;
static CUcontext here;

void setUp(void)
{
    static const char text[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry "
                               "add(.param .u64 p, .param .u32 v)\n{\n"
                               ".reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<2>;\n"
                               "mov.u32 %r1, %tid.x; mov.u32 %r4, %ctaid.x; or.b32 %r1, %r1, %r4; "
                               "setp.ne.u32 %p1, %r1, 0; @%p1 bra E;\n"
                               "ld.param.u64 %d1, [p]; ld.param.u32 %r2, [v]; ld.global.u32 %r3, "
                               "[%d1]; add.u32 %r3, %r3, %r2;\n"
                               "st.global.u32 [%d1], %r3;\nE: ret;\n}\n";
    here = use_device();
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&add_one, module, "add"));
    OK(CALL(cuMemAlloc_v2)(&word, 64));
    OK(CALL(cuMemsetD8_v2)(word, 0, 64));
}

void tearDown(void)
{
    CALL(cuMemFree_v2)(word);
    CALL(cuModuleUnload)(module);
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static unsigned value(unsigned i)
{
    unsigned v = 0;
    OK(CALL(cuMemcpyDtoH_v2)(&v, word + 4 * i, 4));
    return v;
}

static CUgraph new_graph(void)
{
    CUgraph g = NULL;
    OK(CALL(cuGraphCreate)(&g, 0));
    return g;
}

static CUgraphExec ready(CUgraph g)
{
    CUgraphExec e = NULL;
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, 0));
    return e;
}

static void run(CUgraphExec e)
{
    OK(CALL(cuGraphLaunch)(e, NULL));
    OK(CALL(cuCtxSynchronize)());
}

struct arguments {
    CUdeviceptr at;
    unsigned v;
    void *list[2];
};

static CUDA_KERNEL_NODE_PARAMS adding(struct arguments *a, unsigned i, unsigned v)
{
    a->at = word + 4 * i;
    a->v = v;
    a->list[0] = &a->at;
    a->list[1] = &a->v;
    return (CUDA_KERNEL_NODE_PARAMS){.func = add_one,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 32,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = a->list};
}

static CUgraphNode add_kernel(CUgraph g, const CUgraphNode *after, size_t n, unsigned i, unsigned v)
{
    struct arguments a;
    CUDA_KERNEL_NODE_PARAMS p = adding(&a, i, v);
    CUgraphNode node = NULL;
    OK(CALL(cuGraphAddKernelNode_v2)(&node, g, after, n, &p));
    return node;
}

static void a_kernels_parameters_are_told_and_changed(void)
{
    CUgraph g = new_graph();
    CUgraphNode node = add_kernel(g, NULL, 0, 0, 5);
    CUDA_KERNEL_NODE_PARAMS got, next;
    struct arguments a;
    OK(CALL(cuGraphKernelNodeGetParams_v2)(node, &got));
    TEST_ASSERT_EQUAL_PTR(add_one, got.func);
    TEST_ASSERT_EQUAL_UINT(32, got.blockDimX);
    TEST_ASSERT_EQUAL_UINT(5, *(unsigned *)got.kernelParams[1]);
    CUgraphExec e = ready(g);
    run(e);
    TEST_ASSERT_EQUAL_UINT(5, value(0));
    next = adding(&a, 0, 7);
    OK(CALL(cuGraphExecKernelNodeSetParams_v2)(e, node, &next)); /* in what was made of it */
    run(e);
    TEST_ASSERT_EQUAL_UINT(12, value(0));
    OK(CALL(cuGraphKernelNodeGetParams_v2)(node, &got)); /* the graph is as it was */
    TEST_ASSERT_EQUAL_UINT(5, *(unsigned *)got.kernelParams[1]);
    next = adding(&a, 1, 100);
    OK(CALL(cuGraphKernelNodeSetParams_v2)(node, &next));
    CUgraphExec other = ready(g);
    run(other);
    TEST_ASSERT_EQUAL_UINT(12, value(0));
    TEST_ASSERT_EQUAL_UINT(100, value(1));
    CUkernelNodeAttrValue attribute = {.priority = -1}, read_back = {0};
    OK(CALL(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
    OK(CALL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read_back));
    TEST_ASSERT_EQUAL_INT(-1, read_back.priority);
    CUgraphNode second = add_kernel(g, NULL, 0, 2, 1);
    OK(CALL(cuGraphKernelNodeCopyAttributes)(second, node));
    OK(CALL(cuGraphKernelNodeGetAttribute)(second, CU_LAUNCH_ATTRIBUTE_PRIORITY, &read_back));
    TEST_ASSERT_EQUAL_INT(-1, read_back.priority);
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphExecDestroy)(other));
    OK(CALL(cuGraphDestroy)(g));
}

static void an_update_takes_the_parameters_of_another_graph(void)
{
    CUgraph g = new_graph(), other = new_graph(), longer = new_graph();
    CUgraphNode first = add_kernel(g, NULL, 0, 0, 1);
    add_kernel(g, &first, 1, 1, 1);
    first = add_kernel(other, NULL, 0, 0, 10);
    add_kernel(other, &first, 1, 1, 20);
    first = add_kernel(longer, NULL, 0, 0, 10);
    first = add_kernel(longer, &first, 1, 1, 20);
    add_kernel(longer, &first, 1, 2, 20);
    CUgraphExec e = ready(g);
    CUgraphExecUpdateResultInfo info;
    OK(CALL(cuGraphExecUpdate_v2)(e, other, &info));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
    run(e);
    TEST_ASSERT_EQUAL_UINT(10, value(0));
    TEST_ASSERT_EQUAL_UINT(20, value(1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                          CALL(cuGraphExecUpdate_v2)(e, longer, &info));
    TEST_ASSERT_TRUE(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(e); /* as it was */
    TEST_ASSERT_EQUAL_UINT(20, value(0));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuGraphDestroy)(other));
    OK(CALL(cuGraphDestroy)(longer));
}

static void copies_and_fills_are_told_and_changed(void)
{
    CUgraph g = new_graph();
    CUgraphNode fill, copy;
    CUDA_MEMSET_NODE_PARAMS f = {.dst = word,
                                 .value = 3,
                                 .elementSize = 4,
                                 .width = 2,
                                 .height = 1},
                            f2;
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = word,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = word + 16,
                       .WidthInBytes = 8,
                       .Height = 1,
                       .Depth = 1},
                  c2;
    OK(CALL(cuGraphAddMemsetNode)(&fill, g, NULL, 0, &f, here));
    OK(CALL(cuGraphAddMemcpyNode)(&copy, g, &fill, 1, &c, here));
    OK(CALL(cuGraphMemsetNodeGetParams)(fill, &f2));
    TEST_ASSERT_EQUAL_UINT(3, f2.value);
    OK(CALL(cuGraphMemcpyNodeGetParams)(copy, &c2));
    TEST_ASSERT_EQUAL_UINT64(word + 16, c2.dstDevice);
    CUgraphExec e = ready(g);
    run(e);
    TEST_ASSERT_EQUAL_UINT(3, value(4));
    TEST_ASSERT_EQUAL_UINT(3, value(5));
    f.value = 8;
    c.dstDevice = word + 32;
    OK(CALL(cuGraphExecMemsetNodeSetParams)(e, fill, &f, here));
    OK(CALL(cuGraphExecMemcpyNodeSetParams)(e, copy, &c, here));
    run(e);
    TEST_ASSERT_EQUAL_UINT(3, value(4));
    TEST_ASSERT_EQUAL_UINT(8, value(9));
    OK(CALL(cuGraphMemcpyNodeSetParams)(copy, &c));
    OK(CALL(cuGraphMemcpyNodeGetParams)(copy, &c2));
    TEST_ASSERT_EQUAL_UINT64(word + 32, c2.dstDevice);
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .memcpy = {.copyParams = c}};
    any.memcpy.copyParams.dstDevice = word + 24;
    OK(CALL(cuGraphNodeSetParams)(copy, &any));
    OK(CALL(cuGraphMemcpyNodeGetParams)(copy, &c2));
    TEST_ASSERT_EQUAL_UINT64(word + 24, c2.dstDevice);
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
}

static void CUDA_CB count(void *data)
{
    atomic_fetch_add((atomic_uint *)data, 1);
}

static void host_functions_and_events_are_nodes(void)
{
    static atomic_uint first, second;
    CUgraph g = new_graph();
    CUgraphNode host, record, wait;
    CUDA_HOST_NODE_PARAMS p = {.fn = count, .userData = &first}, got;
    CUevent e, f, told;
    OK(CALL(cuEventCreate)(&e, 0));
    OK(CALL(cuEventCreate)(&f, 0));
    OK(CALL(cuGraphAddHostNode)(&host, g, NULL, 0, &p));
    OK(CALL(cuGraphAddEventRecordNode)(&record, g, &host, 1, e));
    OK(CALL(cuGraphAddEventWaitNode)(&wait, g, NULL, 0, f));
    OK(CALL(cuGraphHostNodeGetParams)(host, &got));
    TEST_ASSERT_EQUAL_PTR(&first, got.userData);
    OK(CALL(cuGraphEventRecordNodeGetEvent)(record, &told));
    TEST_ASSERT_EQUAL_PTR(e, told);
    OK(CALL(cuGraphEventWaitNodeGetEvent)(wait, &told));
    TEST_ASSERT_EQUAL_PTR(f, told);
    CUgraphExec x = ready(g);
    run(x);
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&first));
    OK(CALL(cuEventQuery)(e));
    p.userData = &second;
    OK(CALL(cuGraphExecHostNodeSetParams)(x, host, &p));
    OK(CALL(cuGraphExecEventRecordNodeSetEvent)(x, record, f));
    OK(CALL(cuGraphExecEventWaitNodeSetEvent)(x, wait, e));
    run(x);
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&first));
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&second));
    OK(CALL(cuGraphHostNodeSetParams)(host, &p));
    OK(CALL(cuGraphEventRecordNodeSetEvent)(record, f));
    OK(CALL(cuGraphEventWaitNodeSetEvent)(wait, e));
    OK(CALL(cuGraphEventRecordNodeGetEvent)(record, &told));
    TEST_ASSERT_EQUAL_PTR(f, told);
    OK(CALL(cuGraphExecDestroy)(x));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuEventDestroy_v2)(e));
    OK(CALL(cuEventDestroy_v2)(f));
}

static void a_graph_is_cloned_and_its_nodes_found_again(void)
{
    CUgraph g = new_graph(), copy;
    CUgraphNode a = add_kernel(g, NULL, 0, 0, 1), b = add_kernel(g, NULL, 0, 1, 1), found, list[4];
    CUgraphEdgeData edges[4];
    size_t n = 4;
    CUgraphNodeType type;
    OK(CALL(cuGraphAddDependencies_v2)(g, &a, &b, NULL, 1));
    OK(CALL(cuGraphNodeGetDependencies_v2)(b, list, edges, &n));
    TEST_ASSERT_EQUAL_UINT64(1, n);
    TEST_ASSERT_EQUAL_PTR(a, list[0]);
    n = 4;
    OK(CALL(cuGraphNodeGetDependentNodes_v2)(a, list, edges, &n));
    TEST_ASSERT_EQUAL_UINT64(1, n);
    TEST_ASSERT_EQUAL_PTR(b, list[0]);
    OK(CALL(cuGraphClone)(&copy, g));
    OK(CALL(cuGraphNodeFindInClone)(&found, b, copy));
    TEST_ASSERT_TRUE(found != b);
    OK(CALL(cuGraphNodeGetType)(found, &type));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_KERNEL, type);
    OK(CALL(cuGraphDestroyNode)(b));
    n = 0;
    OK(CALL(cuGraphGetNodes)(g, NULL, &n));
    TEST_ASSERT_EQUAL_UINT64(1, n);
    CUgraphExec e = ready(copy); /* still has both */
    run(e);
    TEST_ASSERT_EQUAL_UINT(1, value(0));
    TEST_ASSERT_EQUAL_UINT(1, value(1));
    /* A node that is off does nothing. */
    unsigned is_on = 2;
    OK(CALL(cuGraphNodeSetEnabled)(e, found, 0));
    OK(CALL(cuGraphNodeGetEnabled)(e, found, &is_on));
    TEST_ASSERT_EQUAL_UINT(0, is_on);
    run(e);
    TEST_ASSERT_EQUAL_UINT(2, value(0));
    TEST_ASSERT_EQUAL_UINT(1, value(1));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(copy));
    OK(CALL(cuGraphDestroy)(g));
}

static void a_graph_stands_in_another(void)
{
    CUgraph inner = new_graph(), outer = new_graph(), next = new_graph();
    CUgraphNode child;
    add_kernel(inner, NULL, 0, 0, 2);
    add_kernel(next, NULL, 0, 0, 30);
    OK(CALL(cuGraphAddChildGraphNode)(&child, outer, NULL, 0, inner));
    add_kernel(outer, &child, 1, 1, 4);
    CUgraphExec e = ready(outer);
    OK(CALL(cuGraphUpload)(e, NULL));
    run(e);
    TEST_ASSERT_EQUAL_UINT(2, value(0));
    TEST_ASSERT_EQUAL_UINT(4, value(1));
    OK(CALL(cuGraphExecChildGraphNodeSetParams)(e, child, next));
    run(e);
    TEST_ASSERT_EQUAL_UINT(32, value(0));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(inner));
    OK(CALL(cuGraphDestroy)(outer));
    OK(CALL(cuGraphDestroy)(next));
}

static void nodes_of_all_kinds_come_by_one_call(void)
{
    CUgraph g = new_graph();
    CUgraphNode made, set, freed;
    CUgraphNodeParams p = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
                  .bytesize = 4096}};
    CUDA_MEM_ALLOC_NODE_PARAMS told;
    CUdeviceptr gone;
    OK(CALL(cuGraphAddNode_v2)(&made, g, NULL, NULL, 0, &p));
    TEST_ASSERT_TRUE(p.alloc.dptr != 0);
    CUdeviceptr d = p.alloc.dptr;
    OK(CALL(cuGraphMemAllocNodeGetParams)(made, &told));
    TEST_ASSERT_EQUAL_UINT64(d, told.dptr);
    p = (CUgraphNodeParams){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {.dst = d, .value = 6, .elementSize = 4, .width = 1, .height = 1, .ctx = here}};
    OK(CALL(cuGraphAddNode_v2)(&set, g, &made, NULL, 1, &p));
    p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                            .memcpy = {.copyCtx = here,
                                       .copyParams = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                                      .srcDevice = d,
                                                      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                                      .dstDevice = word,
                                                      .WidthInBytes = 4,
                                                      .Height = 1,
                                                      .Depth = 1}}};
    OK(CALL(cuGraphAddNode_v2)(&set, g, &set, NULL, 1, &p));
    p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = d}};
    OK(CALL(cuGraphAddNode_v2)(&freed, g, &set, NULL, 1, &p));
    OK(CALL(cuGraphMemFreeNodeGetParams)(freed, &gone));
    TEST_ASSERT_EQUAL_UINT64(d, gone);
    CUgraphExec e = ready(g);
    run(e);
    run(e); /* the memory is there each time */
    TEST_ASSERT_EQUAL_UINT(6, value(0));
    cuuint64_t flags = 1;
    OK(CALL(cuGraphExecGetFlags)(e, &flags));
    TEST_ASSERT_EQUAL_UINT64(0, flags);
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
    CALL(cuMemFree_v2)(d);
}

static void an_object_lives_as_long_as_its_graphs(void)
{
    static atomic_uint ended;
    CUgraph g = new_graph();
    CUuserObject o;
    atomic_store(&ended, 0);
    OK(CALL(cuUserObjectCreate)(&o, &ended, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(CALL(cuUserObjectRetain)(o, 1));
    OK(CALL(cuGraphRetainUserObject)(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(CALL(cuUserObjectRelease)(o, 1));
    TEST_ASSERT_EQUAL_UINT(0, atomic_load(&ended));
    CUgraphExec e = ready(g);
    OK(CALL(cuGraphDestroy)(g));
    TEST_ASSERT_EQUAL_UINT(0, atomic_load(&ended)); /* what was made of the graph has it as well */
    run(e);
    OK(CALL(cuGraphExecDestroy)(e));
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&ended));
    g = new_graph();
    OK(CALL(cuUserObjectCreate)(&o, &ended, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(CALL(cuGraphRetainUserObject)(g, o, 2, 0));
    OK(CALL(cuUserObjectRelease)(o, 1));
    OK(CALL(cuGraphReleaseUserObject)(g, o, 1));
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&ended));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphReleaseUserObject)(g, o, 2));
    OK(CALL(cuGraphReleaseUserObject)(g, o, 1));
    TEST_ASSERT_EQUAL_UINT(2, atomic_load(&ended));
    OK(CALL(cuGraphDestroy)(g));
}

static void an_object_of_a_child_goes_with_its_node(void)
{
    static atomic_uint ended;
    CUgraph g = new_graph(), child = new_graph();
    CUuserObject o;
    CUgraphNode node;
    atomic_store(&ended, 0);
    OK(CALL(cuUserObjectCreate)(&o, &ended, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(CALL(cuGraphRetainUserObject)(child, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(CALL(cuGraphAddChildGraphNode)(&node, g, NULL, 0, child));
    OK(CALL(cuGraphDestroy)(child));
    TEST_ASSERT_EQUAL_UINT(0, atomic_load(&ended));
    OK(CALL(cuGraphDestroyNode)(node));
    TEST_ASSERT_EQUAL_UINT(1, atomic_load(&ended));
    OK(CALL(cuGraphDestroy)(g));
}

static void a_graph_is_drawn(void)
{
    char path[PATH_MAX], line[1024];
    const char *tmp = getenv("TMPDIR");
    CUgraph g = new_graph();
    snprintf(path, sizeof path, "%s/graph-%d.dot", tmp != NULL ? tmp : "/tmp", (int)getpid());
    add_kernel(g, NULL, 0, 0, 1);
    OK(CALL(cuGraphDebugDotPrint)(g, path, 0));
    FILE *f = fopen(path, "r");
    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_NOT_NULL(fgets(line, sizeof line, f));
    TEST_ASSERT_NOT_NULL(strstr(line, "digraph"));
    fclose(f);
    unlink(path);
    OK(CALL(cuGraphDestroy)(g));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_kernels_parameters_are_told_and_changed);
    RUN_TEST(an_update_takes_the_parameters_of_another_graph);
    RUN_TEST(copies_and_fills_are_told_and_changed);
    RUN_TEST(host_functions_and_events_are_nodes);
    RUN_TEST(a_graph_is_cloned_and_its_nodes_found_again);
    RUN_TEST(a_graph_stands_in_another);
    RUN_TEST(nodes_of_all_kinds_come_by_one_call);
    RUN_TEST(an_object_lives_as_long_as_its_graphs);
    RUN_TEST(an_object_of_a_child_goes_with_its_node);
    RUN_TEST(a_graph_is_drawn);
    return UNITY_END();
}

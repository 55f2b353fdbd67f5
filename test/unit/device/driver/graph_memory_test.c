/* Memory that nodes of graphs allocate: all the ways to free it, what CUDA forbids, what a device
 * keeps of it. */
#include "test/unit/device/driver/help.h"

enum { BYTES = 1 << 20 };

void setUp(void)
{
    use_device();
    OK(CALL(cuDeviceGraphMemTrim)(0));
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

#define REFUSED(call) TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, (call))

static cuuint64_t amount(CUgraphMem_attribute which)
{
    cuuint64_t bytes = UINT64_MAX;
    OK(CALL(cuDeviceGetGraphMemAttribute)(0, which, &bytes));
    return bytes;
}

static void expect_amounts(cuuint64_t used, cuuint64_t reserved)
{
    TEST_ASSERT_EQUAL_UINT64(used, amount(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
    TEST_ASSERT_EQUAL_UINT64(reserved, amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
}

static size_t free_bytes(void)
{
    size_t left = 0, all;
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    return left;
}

/* --- graphs that allocate --------------------------------------------------------------------- */

struct made {
    CUgraph graph;
    CUgraphNode alloc, fill, free;
    CUdeviceptr at;
};

static CUDA_MEM_ALLOC_NODE_PARAMS wanted(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = bytes};
}

/* Allocates BYTES and fills them with 9; frees them if asked to. */
static struct made make(bool frees)
{
    struct made m = {0};
    CUDA_MEM_ALLOC_NODE_PARAMS p = wanted(BYTES);
    OK(CALL(cuGraphCreate)(&m.graph, 0));
    OK(CALL(cuGraphAddMemAllocNode)(&m.alloc, m.graph, NULL, 0, &p));
    m.at = p.dptr;
    CUDA_MEMSET_NODE_PARAMS nines = {
        .dst = m.at, .value = 9, .elementSize = 1, .width = BYTES, .height = 1};
    OK(CALL(cuGraphAddMemsetNode)(&m.fill, m.graph, &m.alloc, 1, &nines, NULL));
    if (frees)
        OK(CALL(cuGraphAddMemFreeNode)(&m.free, m.graph, &m.fill, 1, m.at));
    return m;
}

static CUgraphExec ready(CUgraph g, unsigned long long flags)
{
    CUgraphExec e = NULL;
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, flags));
    return e;
}

static CUresult launch(CUgraphExec e)
{
    CUresult r = CALL(cuGraphLaunch)(e, NULL);
    OK(CALL(cuCtxSynchronize)());
    return r;
}

static unsigned byte_at(CUdeviceptr p)
{
    unsigned char b = 0;
    OK(CALL(cuMemcpyDtoH_v2)(&b, p, 1));
    return b;
}

static void drop(struct made *m, CUgraphExec e)
{
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(m->graph));
}

/* --- freeing ---------------------------------------------------------------------------------- */

static void what_a_graph_frees_itself_is_there_for_every_launch_and_nobody_elses_to_free(void)
{
    struct made m = make(true);
    size_t before = free_bytes();
    expect_amounts(0, 0);
    CUgraphExec e = ready(m.graph, 0);
    expect_amounts(0, 0);
    for (int i = 0; i < 3; i++) {
        OK(launch(e));
        expect_amounts(BYTES, BYTES);
    }
    TEST_ASSERT_EQUAL_UINT64(before - BYTES, free_bytes());
    REFUSED(CALL(cuMemFree_v2)(m.at));
    REFUSED(CALL(cuMemFreeAsync)(m.at, NULL));
    drop(&m, e);
    expect_amounts(BYTES, BYTES); /* until somebody trims */
    OK(CALL(cuDeviceGraphMemTrim)(0));
    expect_amounts(0, 0);
    TEST_ASSERT_EQUAL_UINT64(before, free_bytes());
}

static void by_hand(CUdeviceptr at)
{
    OK(CALL(cuMemFree_v2)(at));
}

static void by_a_stream(CUdeviceptr at)
{
    OK(CALL(cuMemFreeAsync)(at, NULL));
}

static void by_another_graph(CUdeviceptr at)
{
    CUgraph g;
    CUgraphNode n;
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphAddMemFreeNode)(&n, g, NULL, 0, at));
    CUgraphExec e = ready(g, 0);
    OK(launch(e));
    REFUSED(launch(e)); /* there is nothing to free */
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
}

static void what_a_graph_leaves_is_freed_in_three_ways_and_must_be_before_the_next_launch(void)
{
    static void (*const ways[])(CUdeviceptr) = {by_hand, by_a_stream, by_another_graph};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct made m = make(false);
        CUgraphExec e = ready(m.graph, 0);
        REFUSED(CALL(cuMemFree_v2)(m.at)); /* it is not there yet */
        for (int round = 0; round < 2; round++) {
            OK(launch(e));
            TEST_ASSERT_EQUAL_UINT(9, byte_at(m.at + BYTES - 1));
            REFUSED(launch(e));
            ways[i](m.at);
            REFUSED(CALL(cuMemFree_v2)(m.at));
            REFUSED(CALL(cuMemFreeAsync)(m.at, NULL));
        }
        OK(CALL(cuCtxSynchronize)());
        drop(&m, e);
        OK(CALL(cuDeviceGraphMemTrim)(0));
        expect_amounts(0, 0);
    }
}

static void if_asked_for_a_launch_frees_what_the_one_before_left(void)
{
    struct made m = make(false);
    CUgraphExec e = ready(m.graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; i++)
        OK(CALL(cuGraphLaunch)(e, NULL));
    TEST_ASSERT_EQUAL_UINT(9, byte_at(m.at));
    expect_amounts(BYTES, BYTES);
    OK(CALL(cuMemFree_v2)(m.at));
    OK(launch(e));
    OK(CALL(cuMemFreeAsync)(m.at, NULL));
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuDeviceGraphMemTrim)(0)); /* all frees were reached, so it is idle */
    expect_amounts(0, 0);
    drop(&m, e);
}

static void memory_outlives_its_graph_until_it_is_freed(void)
{
    size_t before = free_bytes();
    struct made m = make(false);
    CUgraphExec e = ready(m.graph, 0);
    OK(launch(e));
    drop(&m, e);
    OK(CALL(cuDeviceGraphMemTrim)(0));
    TEST_ASSERT_EQUAL_UINT(9, byte_at(m.at));
    expect_amounts(BYTES, BYTES);
    OK(CALL(cuMemFree_v2)(m.at));
    expect_amounts(BYTES, BYTES);
    struct made next = make(true); /* takes what was kept */
    TEST_ASSERT_EQUAL_UINT64(m.at, next.at);
    expect_amounts(BYTES, BYTES);
    OK(CALL(cuGraphDestroy)(next.graph));
    OK(CALL(cuDeviceGraphMemTrim)(0));
    TEST_ASSERT_EQUAL_UINT64(before, free_bytes());
}

/* --- what is forbidden ------------------------------------------------------------------------ */

static void an_allocation_has_one_free_node_in_its_own_graph_or_some_in_others(void)
{
    struct made inside = make(true), outside = make(false);
    CUgraphNode n;
    CUdeviceptr plain;
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, inside.graph, NULL, 0, inside.at));
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, outside.graph, NULL, 0, inside.at));
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, inside.graph, NULL, 0, outside.at + 1));
    OK(CALL(cuMemAlloc_v2)(&plain, 4096));
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, inside.graph, NULL, 0, plain));
    OK(CALL(cuMemFree_v2)(plain));
    /* not its node */
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, inside.graph, &outside.alloc, 1, outside.at));
    OK(CALL(cuGraphAddMemFreeNode)(&n, inside.graph, NULL, 0, outside.at));
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, inside.graph, NULL, 0, outside.at));
    REFUSED(CALL(cuGraphAddMemFreeNode)(&n, outside.graph, NULL, 0, outside.at));
    OK(CALL(cuGraphDestroy)(inside.graph));
    OK(CALL(cuGraphDestroy)(outside.graph));
}

static void graphs_with_memory_are_not_copied_nor_taken_apart(void)
{
    struct made m = make(true);
    CUgraph other, copy;
    CUgraphNode n;
    CUgraphExec e, second;
    OK(CALL(cuGraphCreate)(&other, 0));
    REFUSED(CALL(cuGraphClone)(&copy, m.graph));
    REFUSED(CALL(cuGraphAddChildGraphNode)(&n, other, NULL, 0, m.graph));
    REFUSED(CALL(cuGraphDestroyNode)(m.fill));
    REFUSED(CALL(cuGraphRemoveDependencies)(m.graph, &m.alloc, &m.fill, 1));
    e = ready(m.graph, 0);
    REFUSED(CALL(cuGraphInstantiateWithFlags)(&second, m.graph, 0));
    REFUSED(CALL(cuGraphNodeSetEnabled)(e, m.free, 0));
    OK(CALL(cuGraphExecDestroy)(e));
    e = ready(m.graph, 0);
    OK(CALL(cuGraphDestroy)(m.graph)); /* what was instantiated stays */
    OK(launch(e));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(other));
}

static void a_child_with_memory_is_moved_into_its_parent(void)
{
    struct made m = make(false);
    CUgraph parent, told;
    CUgraphNode child, n;
    CUgraphExec e;
    CUgraphNodeParams p = {
        .type = CU_GRAPH_NODE_TYPE_GRAPH,
        .graph = {.graph = m.graph, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    CUDA_MEM_ALLOC_NODE_PARAMS more = wanted(BYTES);
    OK(CALL(cuGraphCreate)(&parent, 0));
    /* not its node: nothing is moved */
    REFUSED(CALL(cuGraphAddNode_v2)(&child, parent, &m.alloc, NULL, 1, &p));
    OK(CALL(cuGraphAddNode_v2)(&child, parent, NULL, NULL, 0, &p));
    OK(CALL(cuGraphChildGraphNodeGetGraph)(child, &told));
    TEST_ASSERT_EQUAL_PTR(m.graph, told);
    REFUSED(CALL(cuGraphInstantiateWithFlags)(&e, m.graph, 0));
    REFUSED(CALL(cuGraphDestroy)(m.graph));
    REFUSED(CALL(cuGraphAddChildGraphNode)(&n, parent, NULL, 0, m.graph));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_SUPPORTED,
                          CALL(cuGraphAddMemAllocNode)(&n, m.graph, NULL, 0, &more));
    OK(CALL(cuGraphAddMemFreeNode)(&n, parent, &child, 1, m.at));
    e = ready(parent, 0);
    OK(launch(e));
    OK(launch(e));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(parent));
    OK(CALL(cuDeviceGraphMemTrim)(0));
    expect_amounts(0, 0);
}

/* --- captured --------------------------------------------------------------------------------- */

static void a_stream_that_is_captured_makes_nodes_of_its_allocations(void)
{
    CUstream s;
    CUgraph g;
    CUgraphNode nodes[8];
    CUgraphNodeType types[3];
    CUdeviceptr at, plain;
    size_t n = 8;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuMemAllocAsync)(&plain, 4096, s));
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(CALL(cuMemFreeAsync)(plain, s)); /* no graph's */
    OK(CALL(cuMemAllocAsync)(&at, BYTES, s));
    OK(CALL(cuMemsetD8Async)(at, 7, BYTES, s));
    OK(CALL(cuMemFreeAsync)(at, s));
    OK(CALL(cuStreamEndCapture)(s, &g));
    OK(CALL(cuGraphGetNodes)(g, nodes, &n));
    TEST_ASSERT_EQUAL_size_t(3, n);
    for (size_t i = 0; i < n; i++)
        OK(CALL(cuGraphNodeGetType)(nodes[i], &types[i]));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_MEM_ALLOC, types[0]);
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_NODE_TYPE_MEM_FREE, types[2]);
    CUgraphExec e = ready(g, 0);
    OK(launch(e));
    OK(launch(e));
    expect_amounts(BYTES, BYTES);
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuMemFreeAsync)(plain, s));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* --- host and managed memory ------------------------------------------------------------------ */

static void expect_place(CUgraphNode n, const CUmemPoolProps *wanted_props)
{
    CUDA_MEM_ALLOC_NODE_PARAMS told;
    OK(CALL(cuGraphMemAllocNodeGetParams)(n, &told));
    TEST_ASSERT_EQUAL_INT(wanted_props->allocType, told.poolProps.allocType);
    TEST_ASSERT_EQUAL_INT(wanted_props->location.type, told.poolProps.location.type);
}

static void expect_managed(CUdeviceptr at, unsigned is_managed)
{
    unsigned told = 2;
    OK(CALL(cuPointerGetAttribute)(&told, CU_POINTER_ATTRIBUTE_IS_MANAGED, at));
    TEST_ASSERT_EQUAL_UINT(is_managed, told);
}

/* The host reads and writes it where it is, between a launch and the free. */
static void nodes_allocate_memory_that_the_host_uses_as_well(void)
{
    static const CUmemPoolProps places[] = {
        {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
         .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
         .location = {.type = CU_MEM_LOCATION_TYPE_NONE}},
        {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
         .location = {.type = CU_MEM_LOCATION_TYPE_HOST}},
    };
    static void (*const ways[])(CUdeviceptr) = {by_hand, by_a_stream, by_another_graph};
    for (size_t i = 0; i < 9; i++) {
        const CUmemPoolProps *place = &places[i / 3];
        struct made m = {0};
        CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = *place, .bytesize = BYTES};
        OK(CALL(cuGraphCreate)(&m.graph, 0));
        OK(CALL(cuGraphAddMemAllocNode)(&m.alloc, m.graph, NULL, 0, &p));
        CUDA_MEMSET_NODE_PARAMS nines = {
            .dst = p.dptr, .value = 9, .elementSize = 1, .width = BYTES, .height = 1};
        OK(CALL(cuGraphAddMemsetNode)(&m.fill, m.graph, &m.alloc, 1, &nines, NULL));
        expect_place(m.alloc, place);
        CUgraphExec e = ready(m.graph, 0);
        REFUSED(CALL(cuMemFreeAsync)(p.dptr, NULL));
        OK(launch(e));
        volatile unsigned char *here = (void *)(uintptr_t)p.dptr;
        TEST_ASSERT_EQUAL_UINT(9, here[BYTES - 1]);
        here[0] = 5;
        TEST_ASSERT_EQUAL_UINT(5, byte_at(p.dptr));
        expect_managed(p.dptr, place->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED);
        expect_amounts(0, 0); /* nothing of the device's own */
        REFUSED(launch(e));
        ways[i % 3](p.dptr);
        OK(CALL(cuCtxSynchronize)());
        REFUSED(CALL(cuMemFree_v2)(p.dptr));
        OK(CALL(cuDeviceGraphMemTrim)(0));
        OK(launch(e));
        TEST_ASSERT_EQUAL_UINT(9, here[0]);
        drop(&m, e);
        OK(CALL(cuMemFree_v2)(p.dptr));
    }
    CUmemPoolProps nowhere = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = nowhere, .bytesize = BYTES};
    CUgraph g;
    CUgraphNode n;
    OK(CALL(cuGraphCreate)(&g, 0));
    REFUSED(CALL(cuGraphAddMemAllocNode)(&n, g, NULL, 0, &p));
    OK(CALL(cuGraphDestroy)(g));
}

static void what_is_captured_of_a_pool_has_that_pools_kind(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUstream s;
    CUgraph g;
    CUgraphNode first;
    CUdeviceptr at;
    size_t n = 1;
    OK(CALL(cuMemPoolCreate)(&pool, &props));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(CALL(cuMemAllocFromPoolAsync)(&at, BYTES, pool, s));
    OK(CALL(cuMemsetD8Async)(at, 7, BYTES, s));
    OK(CALL(cuStreamEndCapture)(s, &g));
    OK(CALL(cuGraphGetNodes)(g, &first, &n));
    expect_place(first, &props);
    CUgraphExec e = ready(g, 0);
    OK(launch(e));
    TEST_ASSERT_EQUAL_UINT(7, *(volatile unsigned char *)(uintptr_t)at);
    expect_managed(at, 1);
    OK(CALL(cuMemFreeAsync)(at, s));
    OK(CALL(cuStreamSynchronize)(s));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
    OK(CALL(cuMemPoolDestroy)(pool));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* --- the device's side ------------------------------------------------------------------------ */

static void trimming_takes_what_is_idle_and_leaves_what_is_live(void)
{
    struct made idle = make(true), live = make(false);
    CUgraphExec a = ready(idle.graph, 0), b = ready(live.graph, 0);
    OK(launch(a));
    OK(launch(b));
    expect_amounts(2 * BYTES, 2 * BYTES);
    OK(CALL(cuDeviceGraphMemTrim)(0));
    expect_amounts(BYTES, BYTES);
    TEST_ASSERT_EQUAL_UINT(9, byte_at(live.at));
    OK(launch(a)); /* takes it again */
    expect_amounts(2 * BYTES, 2 * BYTES);
    OK(CALL(cuMemFree_v2)(live.at));
    drop(&idle, a);
    drop(&live, b);
}

static void memory_is_taken_when_it_is_uploaded_or_launched_and_may_not_be_there(void)
{
    CUgraph g;
    CUgraphNode n;
    CUDA_MEM_ALLOC_NODE_PARAMS p = wanted((size_t)1 << 30); /* the device has half of it */
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphAddMemAllocNode)(&n, g, NULL, 0, &p));
    CUgraphExec e = ready(g, 0);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, launch(e));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuGraphUpload)(e, NULL));
    REFUSED(CALL(cuMemFree_v2)(p.dptr));
    OK(CALL(cuGraphExecDestroy)(e));
    OK(CALL(cuGraphDestroy)(g));
    struct made m = make(true);
    e = ready(m.graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    expect_amounts(BYTES, BYTES);
    drop(&m, e);
}

static void the_highest_amounts_are_kept_until_they_are_reset(void)
{
    cuuint64_t none = 0, some = 1;
    OK(CALL(cuDeviceSetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
    OK(CALL(cuDeviceSetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &none));
    TEST_ASSERT_EQUAL_UINT64(0, amount(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
    struct made m = make(true);
    CUgraphExec e = ready(m.graph, 0);
    OK(launch(e));
    drop(&m, e);
    TEST_ASSERT_EQUAL_UINT64(BYTES, amount(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
    TEST_ASSERT_EQUAL_UINT64(BYTES, amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    OK(CALL(cuDeviceGraphMemTrim)(0));
    OK(CALL(cuDeviceSetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &none));
    TEST_ASSERT_EQUAL_UINT64(0, amount(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH));
    TEST_ASSERT_EQUAL_UINT64(BYTES, amount(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
    REFUSED(CALL(cuDeviceSetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &some));
    REFUSED(CALL(cuDeviceSetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &none));
}

/* Its nodes are still there, and its address may be another one's by then. */
static void a_context_takes_the_memory_along(void)
{
    struct made m = make(false);
    CUgraphExec e = ready(m.graph, 0);
    OK(launch(e));
    OK(CALL(cuDevicePrimaryCtxReset_v2)(0));
    expect_amounts(0, 0);
    use_device();
    struct made next = make(false);
    CUgraphExec f = ready(next.graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    REFUSED(launch(e));
    OK(launch(f));
    drop(&m, e);
    OK(launch(f));
    TEST_ASSERT_EQUAL_UINT(9, byte_at(next.at));
    OK(CALL(cuMemFree_v2)(next.at));
    drop(&next, f);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(what_a_graph_frees_itself_is_there_for_every_launch_and_nobody_elses_to_free);
    RUN_TEST(what_a_graph_leaves_is_freed_in_three_ways_and_must_be_before_the_next_launch);
    RUN_TEST(if_asked_for_a_launch_frees_what_the_one_before_left);
    RUN_TEST(memory_outlives_its_graph_until_it_is_freed);
    RUN_TEST(an_allocation_has_one_free_node_in_its_own_graph_or_some_in_others);
    RUN_TEST(graphs_with_memory_are_not_copied_nor_taken_apart);
    RUN_TEST(a_child_with_memory_is_moved_into_its_parent);
    RUN_TEST(a_stream_that_is_captured_makes_nodes_of_its_allocations);
    RUN_TEST(nodes_allocate_memory_that_the_host_uses_as_well);
    RUN_TEST(what_is_captured_of_a_pool_has_that_pools_kind);
    RUN_TEST(trimming_takes_what_is_idle_and_leaves_what_is_live);
    RUN_TEST(memory_is_taken_when_it_is_uploaded_or_launched_and_may_not_be_there);
    RUN_TEST(the_highest_amounts_are_kept_until_they_are_reset);
    RUN_TEST(a_context_takes_the_memory_along);
    return UNITY_END();
}

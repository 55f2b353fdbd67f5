/* Streams, events, graphs: what comes before what.  Operations are held back by waits on memory
 * that the test lets go, so that an order is shown and not hoped for; nothing sleeps. */
#include "test/unit/device/driver/help.h"

#include <stdatomic.h>

static CUdeviceptr gate; /* a word in pinned memory that streams wait on */
static _Atomic unsigned *gate_word;
static void *pinned;

void setUp(void)
{
    use_device();
    OK(CALL(cuMemHostAlloc)(&pinned, 4096, 0));
    memset(pinned, 0, 4096);
    gate_word = pinned;
    gate = (CUdeviceptr)pinned;
}

void tearDown(void)
{
    CALL(cuMemFreeHost)(pinned);
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void close_gate(CUstream s)
{
    OK(CALL(cuStreamWaitValue32_v2)(s, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void open_gate(void)
{
    atomic_store(gate_word, 1);
}

static unsigned *word(size_t i)
{
    return (unsigned *)pinned + 8 + i;
}

static void write_word(CUstream s, size_t i, unsigned value)
{
    OK(CALL(cuStreamWriteValue32_v2)(s, (CUdeviceptr)word(i), value, 0));
}

static void a_stream_keeps_its_order(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    close_gate(s);
    write_word(s, 0, 5);
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(1), (CUdeviceptr)word(0), 4, s));
    write_word(s, 0, 6);
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(s));
    TEST_ASSERT_EQUAL_UINT(0, *word(0));
    open_gate();
    OK(CALL(cuStreamSynchronize)(s));
    OK(CALL(cuStreamQuery)(s));
    TEST_ASSERT_EQUAL_UINT(6, *word(0));
    TEST_ASSERT_EQUAL_UINT(5, *word(1));
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void the_legacy_stream_waits_for_blocking_streams_and_they_for_it(void)
{
    CUstream blocking, other, free_stream;
    OK(CALL(cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
    OK(CALL(cuStreamCreate)(&other, CU_STREAM_DEFAULT));
    OK(CALL(cuStreamCreate)(&free_stream, CU_STREAM_NON_BLOCKING));
    close_gate(blocking);
    write_word(blocking, 0, 1);
    /* behind blocking */
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(1), (CUdeviceptr)word(0), 4, CU_STREAM_LEGACY));
    /* behind legacy */
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(2), (CUdeviceptr)word(1), 4, other));
    write_word(free_stream, 3, 9);
    OK(CALL(cuStreamSynchronize)(free_stream)); /* behind nobody */
    TEST_ASSERT_EQUAL_UINT(9, *word(3));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(other));
    open_gate();
    OK(CALL(cuStreamSynchronize)(other));
    TEST_ASSERT_EQUAL_UINT(1, *word(1));
    TEST_ASSERT_EQUAL_UINT(1, *word(2));
    OK(CALL(cuStreamDestroy_v2)(blocking));
    OK(CALL(cuStreamDestroy_v2)(other));
    OK(CALL(cuStreamDestroy_v2)(free_stream));
}

static void per_thread_streams_are_named_by_the_twins(void)
{
    /* A _ptsz function takes stream 0 as the thread's own: it is then not behind another thread's,
     * nor is it legacy. */
    CUstream s;
    unsigned long long own, legacy, explicit_own;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamGetId)(NULL, &legacy));
    OK(((__typeof__(cuStreamGetId) *)driver_symbol("cuStreamGetId_ptsz"))(NULL, &own));
    OK(CALL(cuStreamGetId)(CU_STREAM_PER_THREAD, &explicit_own));
    TEST_ASSERT_NOT_EQUAL_UINT64(legacy, own);
    TEST_ASSERT_EQUAL_UINT64(explicit_own, own);
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void an_event_orders_two_streams(void)
{
    CUstream a, b;
    CUevent e;
    OK(CALL(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&e, 0));
    OK(CALL(cuEventQuery)(e)); /* never recorded */
    close_gate(a);
    write_word(a, 0, 3);
    OK(CALL(cuEventRecord)(e, a));
    OK(CALL(cuStreamWaitEvent)(b, e, 0));
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(1), (CUdeviceptr)word(0), 4, b));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuEventQuery)(e));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(b));
    open_gate();
    OK(CALL(cuStreamSynchronize)(b));
    OK(CALL(cuEventSynchronize)(e));
    TEST_ASSERT_EQUAL_UINT(3, *word(1));
    OK(CALL(cuEventDestroy_v2)(e));
    OK(CALL(cuStreamDestroy_v2)(a));
    OK(CALL(cuStreamDestroy_v2)(b));
}

static void times_of_events_grow_along_a_stream(void)
{
    CUevent e[3], untimed;
    float first, second, both;
    for (int i = 0; i < 3; i++) {
        OK(CALL(cuEventCreate)(&e[i], 0));
        OK(CALL(cuEventRecord)(e[i], NULL));
    }
    OK(CALL(cuStreamSynchronize)(NULL));
    OK(CALL(cuEventElapsedTime)(&first, e[0], e[1]));
    OK(CALL(cuEventElapsedTime)(&second, e[1], e[2]));
    OK(CALL(cuEventElapsedTime)(&both, e[0], e[2]));
    TEST_ASSERT_TRUE(first >= 0 && second >= 0);
    TEST_ASSERT_FLOAT_WITHIN(1e-4f, first + second, both);
    OK(CALL(cuEventCreate)(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuEventRecord)(untimed, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_HANDLE,
                          CALL(cuEventElapsedTime)(&both, e[0], untimed));
    for (int i = 0; i < 3; i++)
        OK(CALL(cuEventDestroy_v2)(e[i]));
    OK(CALL(cuEventDestroy_v2)(untimed));
}

static void note(void *data)
{
    unsigned *p = data;
    p[1] = p[0] + 1;
}

static void host_functions_run_in_their_turn(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    close_gate(s);
    write_word(s, 0, 41);
    OK(CALL(cuLaunchHostFunc)(s, note, word(0)));
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(2), (CUdeviceptr)word(1), 4, s));
    open_gate();
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_UINT(42, *word(2));
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void pageable_bytes_are_taken_before_the_call_returns(void)
{
    CUstream s;
    CUdeviceptr d;
    unsigned v = 7, out = 0;
    OK(CALL(cuMemAlloc_v2)(&d, 4));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    close_gate(s);
    OK(CALL(cuMemcpyHtoDAsync_v2)(d, &v, 4, s));
    v = 8;
    open_gate();
    OK(CALL(cuMemcpyDtoHAsync_v2)(&out, d, 4, s)); /* and these are there when it returns */
    TEST_ASSERT_EQUAL_UINT(7, out);
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuMemFree_v2)(d));
}

static void a_stream_may_be_destroyed_with_work_in_it(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_DEFAULT));
    close_gate(s);
    write_word(s, 0, 4);
    OK(CALL(cuStreamDestroy_v2)(s));
    open_gate();
    OK(CALL(cuStreamSynchronize)(NULL)); /* the legacy stream still comes behind it */
    TEST_ASSERT_EQUAL_UINT(4, *word(0));
}

static void a_capture_runs_nothing_and_keeps_forks_and_joins(void)
{
    CUstream a, b;
    CUevent fork, join;
    CUgraph g;
    CUgraphExec x;
    CUstreamCaptureStatus status;
    size_t nodes = 0, edges = 0, roots = 0;
    OK(CALL(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&fork, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuEventCreate)(&join, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CALL(cuStreamIsCapturing)(a, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    OK(CALL(cuMemsetD32Async)((CUdeviceptr)word(0), 10, 1, a));
    OK(CALL(cuEventRecord)(fork, a));
    OK(CALL(cuStreamWaitEvent)(b, fork, 0));
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(1), (CUdeviceptr)word(0), 4, b));
    OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(2), (CUdeviceptr)word(0), 4, a));
    OK(CALL(cuEventRecord)(join, b));
    OK(CALL(cuStreamWaitEvent)(a, join, 0));
    OK(CALL(cuLaunchHostFunc)(a, note, word(2)));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CALL(cuStreamSynchronize)(a));
    OK(CALL(cuStreamEndCapture)(a, &g));
    TEST_ASSERT_EQUAL_UINT(0, *word(0));
    OK(CALL(cuStreamIsCapturing)(b, &status));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_CAPTURE_STATUS_NONE, status);
    OK(CALL(cuGraphGetNodes)(g, NULL, &nodes));
    OK(CALL(cuGraphGetEdges_v2)(g, NULL, NULL, NULL, &edges));
    OK(CALL(cuGraphGetRootNodes)(g, NULL, &roots));
    TEST_ASSERT_EQUAL_UINT64(4, nodes);
    TEST_ASSERT_EQUAL_UINT64(4, edges);
    TEST_ASSERT_EQUAL_UINT64(1, roots);
    OK(CALL(cuGraphInstantiateWithFlags)(&x, g, 0));
    OK(CALL(cuGraphDestroy)(g)); /* an executable stands on its own */
    OK(CALL(cuGraphLaunch)(x, a));
    OK(CALL(cuGraphLaunch)(x, b));
    OK(CALL(cuStreamSynchronize)(a));
    OK(CALL(cuStreamSynchronize)(b));
    TEST_ASSERT_EQUAL_UINT(10, *word(1));
    TEST_ASSERT_EQUAL_UINT(10, *word(2));
    TEST_ASSERT_EQUAL_UINT(11, *word(3));
    OK(CALL(cuGraphExecDestroy)(x));
    OK(CALL(cuEventDestroy_v2)(fork));
    OK(CALL(cuEventDestroy_v2)(join));
    OK(CALL(cuStreamDestroy_v2)(a));
    OK(CALL(cuStreamDestroy_v2)(b));
}

static void a_capture_that_is_not_joined_is_refused(void)
{
    CUstream a, b;
    CUevent fork;
    CUgraph g = NULL;
    OK(CALL(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&fork, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuStreamBeginCapture_v2)(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(CALL(cuMemsetD32Async)((CUdeviceptr)word(0), 10, 1, a));
    OK(CALL(cuEventRecord)(fork, a));
    OK(CALL(cuStreamWaitEvent)(b, fork, 0));
    OK(CALL(cuMemsetD32Async)((CUdeviceptr)word(1), 10, 1, b));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CALL(cuStreamEndCapture)(b, &g));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CALL(cuStreamEndCapture)(a, &g));
    TEST_ASSERT_NULL(g);
    OK(CALL(cuEventDestroy_v2)(fork));
    OK(CALL(cuStreamDestroy_v2)(a));
    OK(CALL(cuStreamDestroy_v2)(b));
}

static void an_executable_takes_new_parameters(void)
{
    CUgraph g;
    CUgraphExec x;
    CUgraphNode fill, copy, empty;
    CUDA_MEMSET_NODE_PARAMS p = {
        .dst = (CUdeviceptr)word(0), .value = 1, .elementSize = 4, .width = 1, .height = 1};
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .srcDevice = (CUdeviceptr)word(0),
                       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                       .dstDevice = (CUdeviceptr)word(1),
                       .WidthInBytes = 4,
                       .Height = 1,
                       .Depth = 1};
    CUgraphExecUpdateResultInfo info;
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphAddMemcpyNode)(&copy, g, NULL, 0, &c,
                                  NULL)); /* the edge comes later, against the order of creation */
    OK(CALL(cuGraphAddMemsetNode)(&fill, g, NULL, 0, &p, NULL));
    OK(CALL(cuGraphAddDependencies_v2)(g, &fill, &copy, NULL, 1));
    OK(CALL(cuGraphInstantiateWithFlags)(&x, g, 0));
    OK(CALL(cuGraphLaunch)(x, NULL));
    OK(CALL(cuStreamSynchronize)(NULL));
    TEST_ASSERT_EQUAL_UINT(1, *word(1));
    p.value = 2;
    OK(CALL(cuGraphExecMemsetNodeSetParams)(x, fill, &p, NULL));
    OK(CALL(cuGraphLaunch)(x, NULL));
    OK(CALL(cuStreamSynchronize)(NULL));
    TEST_ASSERT_EQUAL_UINT(2, *word(1));
    p.value = 3;
    OK(CALL(cuGraphMemsetNodeSetParams)(fill, &p));
    OK(CALL(cuGraphExecUpdate_v2)(x, g, &info));
    OK(CALL(cuGraphLaunch)(x, NULL));
    OK(CALL(cuStreamSynchronize)(NULL));
    TEST_ASSERT_EQUAL_UINT(3, *word(1));
    OK(CALL(cuGraphNodeSetEnabled)(x, fill, 0));
    *word(0) = 99;
    OK(CALL(cuGraphLaunch)(x, NULL));
    OK(CALL(cuStreamSynchronize)(NULL));
    TEST_ASSERT_EQUAL_UINT(99, *word(1));
    OK(CALL(cuGraphAddEmptyNode)(&empty, g, &copy, 1));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                          CALL(cuGraphExecUpdate_v2)(x, g, &info));
    TEST_ASSERT_EQUAL_INT(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
    OK(CALL(cuGraphAddDependencies_v2)(g, &copy, &fill, NULL, 1));
    CUgraphExec y;
    /* a cycle */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphInstantiateWithFlags)(&y, g, 0));
    OK(CALL(cuGraphExecDestroy)(x));
    OK(CALL(cuGraphDestroy)(g));
}

static void many_streams_and_events_end_in_the_right_sum(void)
{
    enum { STREAMS = 8, ROUNDS = 50 };
    CUstream s[STREAMS];
    CUevent e;
    OK(CALL(cuEventCreate)(&e, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < STREAMS; i++)
        OK(CALL(cuStreamCreate)(&s[i], CU_STREAM_NON_BLOCKING));
    close_gate(s[0]);
    *word(0) = 0;
    for (int round = 0; round < ROUNDS; round++) {
        /* a token goes round: word 0 -> 1 by a host function, 1 -> 0 by a copy */
        for (int i = 0; i < STREAMS; i++) {
            OK(CALL(cuLaunchHostFunc)(s[i], note, word(0)));
            OK(CALL(cuMemcpyAsync)((CUdeviceptr)word(0), (CUdeviceptr)word(1), 4, s[i]));
            OK(CALL(cuEventRecord)(e, s[i]));
            OK(CALL(cuStreamWaitEvent)(s[(i + 1) % STREAMS], e, 0));
        }
    }
    open_gate();
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT(STREAMS * ROUNDS, *word(0));
    for (int i = 0; i < STREAMS; i++)
        OK(CALL(cuStreamDestroy_v2)(s[i]));
    OK(CALL(cuEventDestroy_v2)(e));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_stream_keeps_its_order);
    RUN_TEST(the_legacy_stream_waits_for_blocking_streams_and_they_for_it);
    RUN_TEST(per_thread_streams_are_named_by_the_twins);
    RUN_TEST(an_event_orders_two_streams);
    RUN_TEST(times_of_events_grow_along_a_stream);
    RUN_TEST(host_functions_run_in_their_turn);
    RUN_TEST(pageable_bytes_are_taken_before_the_call_returns);
    RUN_TEST(a_stream_may_be_destroyed_with_work_in_it);
    RUN_TEST(a_capture_runs_nothing_and_keeps_forks_and_joins);
    RUN_TEST(a_capture_that_is_not_joined_is_refused);
    RUN_TEST(an_executable_takes_new_parameters);
    RUN_TEST(many_streams_and_events_end_in_the_right_sum);
    return UNITY_END();
}

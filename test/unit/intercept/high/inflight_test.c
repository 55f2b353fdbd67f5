/* The in-flight word of the highest level, on the software device: it tells of work exactly while
 * there is some, whichever way it was launched and waited for. */
#include "test/unit/intercept/help.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

/* Runs until the word in mapped memory is set; then adds one to a counter. */
static const char gate_ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry gate(.param .u64 word, .param .u64 counter)\n{\n"
    "    .reg .pred %p<2>;\n    .reg .b32 %r<4>;\n    .reg .b64 %rd<4>;\n"
    "    ld.param.u64 %rd1, [word];\n    ld.param.u64 %rd2, [counter];\n"
    "again:\n    ld.volatile.global.u32 %r1, [%rd1];\n    setp.eq.u32 %p1, %r1, 0;\n"
    "    @%p1 bra again;\n    atom.global.add.u32 %r2, [%rd2], 1;\n    ret;\n}\n";

static CUcontext ctx;
static CUfunction gate;
static uint32_t *words; /* the gate's and the counter, seen by host and device */
static CUdeviceptr device_words;

static void close_gate(void)
{
    atomic_store((_Atomic uint32_t *)&words[0], 0);
    words[1] = 0;
}

static void open_gate(void)
{
    atomic_store((_Atomic uint32_t *)&words[0], 1);
}

static CUresult launch(CUstream stream)
{
    CUdeviceptr word = device_words, counter = device_words + 4;
    void *params[] = {&word, &counter};
    return CALL(cuLaunchKernel)(gate, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

void setUp(void)
{
    close_gate();
    TEST_ASSERT_TRUE(becomes_idle());
}

void tearDown(void)
{
    open_gate();
}

static void a_stream_that_is_waited_for_is_done(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(launch(s));
    OK(launch(s));
    TEST_ASSERT_EQUAL_UINT32(2, in_flight());
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuStreamQuery)(s));
    TEST_ASSERT_EQUAL_UINT32(2, in_flight());
    open_gate();
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    TEST_ASSERT_EQUAL_UINT32(2, words[1]);
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void a_context_that_is_waited_for_is_done(void)
{
    CUstream s, t;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&t, CU_STREAM_NON_BLOCKING));
    OK(launch(s));
    OK(launch(t));
    OK(launch(NULL));
    TEST_ASSERT_EQUAL_UINT32(3, in_flight());
    open_gate();
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuStreamDestroy_v2)(t));
}

/* One stream's end says nothing of another. */
static void streams_are_counted_apart(void)
{
    CUstream s, t;
    CUdeviceptr bytes;
    OK(CALL(cuMemAlloc_v2)(&bytes, 64));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&t, CU_STREAM_NON_BLOCKING));
    OK(launch(s));
    OK(CALL(cuMemsetD8Async)(bytes, 1, 64, t));
    OK(CALL(cuStreamSynchronize)(t));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    open_gate();
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    OK(CALL(cuMemFree_v2)(bytes));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuStreamDestroy_v2)(t));
}

static void an_event_proves_what_was_before_it(void)
{
    CUstream s;
    CUevent before, behind;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&before, 0));
    OK(CALL(cuEventCreate)(&behind, 0));
    OK(CALL(cuEventRecord)(before, s));
    OK(launch(s));
    OK(CALL(cuEventRecord)(behind, s));
    OK(CALL(cuEventSynchronize)(before));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_READY, CALL(cuEventQuery)(behind));
    open_gate();
    OK(CALL(cuEventSynchronize)(behind));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    OK(CALL(cuEventDestroy_v2)(before));
    OK(CALL(cuEventDestroy_v2)(behind));
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void a_synchronous_copy_is_a_wait(void)
{
    uint32_t counter = 0;
    open_gate();
    OK(launch(NULL));
    OK(CALL(cuMemcpyDtoH_v2)(&counter, device_words + 4, 4));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    TEST_ASSERT_EQUAL_UINT32(1, counter);
}

/* How often the watcher has gone to sleep so far, which it does after each look; 0 if there is none
 * yet. */
static unsigned long sleeps_of_watcher(void)
{
    unsigned long sleeps = 0;
    DIR *tasks = opendir("/proc/self/task");
    TEST_ASSERT_NOT_NULL(tasks);
    for (const struct dirent *e = readdir(tasks); e != NULL; e = readdir(tasks)) {
        char path[300], line[128];
        bool is_it = false;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            is_it |= strcmp(line, "Name:\ttally-watch\n") == 0;
            if (is_it && strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
                sleeps = strtoul(line + 24, NULL, 10);
        }
        if (f != NULL)
            fclose(f);
    }
    closedir(tasks);
    return sleeps;
}

/* Whether the watcher looks several times more before long.  Something must be in flight, or it
 * sleeps until it is woken. */
static bool watcher_looks(void)
{
    enum { LOOKS = 5 };
    unsigned long before = sleeps_of_watcher();
    for (int i = 0; i < 10000 && sleeps_of_watcher() < before + LOOKS; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return sleeps_of_watcher() >= before + LOOKS;
}

static void what_nobody_waits_for_is_found_done(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(launch(s));
    OK(launch(NULL));
    TEST_ASSERT_TRUE(watcher_looks());
    TEST_ASSERT_EQUAL_UINT32(2, in_flight());
    open_gate();
    TEST_ASSERT_TRUE(becomes_idle());
    TEST_ASSERT_EQUAL_UINT32(2, words[1]);
    OK(CALL(cuStreamDestroy_v2)(s));
}

static void work_outlives_the_handle_of_its_stream(void)
{
    CUstream s;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(launch(s));
    OK(CALL(cuStreamDestroy_v2)(s));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    open_gate();
    TEST_ASSERT_TRUE(becomes_idle());
    TEST_ASSERT_EQUAL_UINT32(1, words[1]);
}

static void a_refused_launch_is_no_work(void)
{
    void *params[] = {NULL, NULL};
    TEST_ASSERT_TRUE(CALL(cuLaunchKernel)(gate, 0, 0, 0, 1, 1, 1, 0, NULL, params, NULL) !=
                     CUDA_SUCCESS);
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
}

/* What is captured runs later, and then counts as the graph that it is part of. */
static void captured_launches_are_no_work_but_graphs_are(void)
{
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch(s));
    OK(launch(s));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    OK(CALL(cuStreamEndCapture)(s, &graph));
    OK(CALL(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(CALL(cuGraphLaunch)(exec, s));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    open_gate();
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    TEST_ASSERT_EQUAL_UINT32(2, words[1]);
    OK(CALL(cuGraphExecDestroy)(exec));
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* The watcher must not ask about a stream in capture, also of one that joined by an event, while
 * other work is in flight. */
static void a_capture_goes_on_beside_work(void)
{
    CUstream busy, s, t;
    CUevent fork_event, join;
    CUgraph graph;
    OK(CALL(cuStreamCreate)(&busy, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&t, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuEventCreate)(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(CALL(cuEventCreate)(&join, CU_EVENT_DISABLE_TIMING));
    OK(launch(busy));
    OK(launch(t)); /* so that the watcher has a reason to ask about it */
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(CALL(cuEventRecord)(fork_event, s));
    OK(CALL(cuStreamWaitEvent)(t, fork_event, 0));
    OK(launch(t));
    TEST_ASSERT_TRUE(watcher_looks());
    OK(CALL(cuEventRecord)(join, t));
    OK(CALL(cuStreamWaitEvent)(s, join, 0));
    OK(CALL(cuStreamEndCapture)(s, &graph));
    TEST_ASSERT_NOT_NULL(graph);
    TEST_ASSERT_EQUAL_UINT32(2, in_flight());
    open_gate();
    TEST_ASSERT_TRUE(becomes_idle());
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuEventDestroy_v2)(fork_event));
    OK(CALL(cuEventDestroy_v2)(join));
    OK(CALL(cuStreamDestroy_v2)(busy));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuStreamDestroy_v2)(t));
}

/* Default streams cannot be asked about then: the question would make the capture invalid. */
static void a_capture_goes_on_beside_work_of_default_streams(void)
{
    CUstream s;
    CUgraph graph;
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_DEFAULT));
    OK(launch(NULL));
    OK(launch(CU_STREAM_PER_THREAD));
    OK(CALL(cuStreamBeginCapture_v2)(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch(s));
    TEST_ASSERT_TRUE(watcher_looks());
    OK(CALL(cuStreamEndCapture)(s, &graph));
    TEST_ASSERT_NOT_NULL(graph);
    TEST_ASSERT_EQUAL_UINT32(2, in_flight());
    open_gate();
    TEST_ASSERT_TRUE(becomes_idle());
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuStreamDestroy_v2)(s));
}

/* --- threads --- */

enum { THREADS = 8, ROUNDS = 200 };

static void *launch_and_wait(void *is_per_thread)
{
    CUdeviceptr word = device_words, counter = device_words + 4;
    void *params[] = {&word, &counter};
    CUstream s = NULL;
    uintptr_t failures = CALL(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS;
    if (is_per_thread == NULL)
        failures += CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
    for (int i = 0; i < ROUNDS; i++) {
        __typeof__(cuLaunchKernel) *f = is_per_thread != NULL ? CALL(cuLaunchKernel_ptsz)
                                                              : CALL(cuLaunchKernel);
        failures += f(gate, 1, 1, 1, 1, 1, 1, 0, s, params, NULL) != CUDA_SUCCESS;
        if (i % 3 == 0)
            failures += (is_per_thread != NULL ? CALL(cuStreamSynchronize_ptsz)
                                               : CALL(cuStreamSynchronize))(s) != 0;
    }
    if (s != NULL)
        failures += CALL(cuStreamDestroy_v2)(s) != CUDA_SUCCESS;
    return (void *)failures; /* NOLINT(performance-no-int-to-ptr) */
}

static void many_threads(void *is_per_thread)
{
    pthread_t threads[THREADS];
    open_gate();
    for (int i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, launch_and_wait, is_per_thread));
    for (int i = 0; i < THREADS; i++) {
        void *failures;
        pthread_join(threads[i], &failures);
        TEST_ASSERT_NULL(failures);
    }
    TEST_ASSERT_TRUE(becomes_idle());
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT32(THREADS * ROUNDS, words[1]);
}

static void many_threads_with_streams_of_their_own(void)
{
    many_threads(NULL);
}

static void many_threads_on_their_default_streams(void)
{
    many_threads((void *)1);
}

/* Nobody but the thread can name its stream, and it does not wait. */
static void work_of_a_threads_default_stream_is_found_done(void)
{
    CUdeviceptr word = device_words, counter = device_words + 4;
    void *params[] = {&word, &counter};
    OK(CALL(cuLaunchKernel_ptsz)(gate, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    open_gate();
    TEST_ASSERT_TRUE(becomes_idle());
}

/* --- contexts --- */

static void a_context_takes_its_work_with_it(void)
{
    CUcontext own, popped;
    CUmodule module;
    CUfunction f;
    CUdeviceptr word = device_words, counter = device_words + 4;
    void *params[] = {&word, &counter};
    OK(CALL(cuCtxCreate_v2)(&own, 0, 0));
    OK(CALL(cuModuleLoadData)(&module, gate_ptx));
    OK(CALL(cuModuleGetFunction)(&f, module, "gate"));
    open_gate();
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuCtxDestroy_v2)(own));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
    CALL(cuCtxPopCurrent_v2)(&popped);
    OK(CALL(cuCtxSetCurrent)(ctx));
    close_gate();
    OK(launch(NULL)); /* the default stream of the other context */
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    open_gate();
    OK(CALL(cuStreamSynchronize)(NULL));
    TEST_ASSERT_EQUAL_UINT32(0, in_flight());
}

static void a_green_context_takes_its_work_with_it(void)
{
    CUdevResource sms, part;
    CUdevResourceDesc description;
    CUgreenCtx green;
    CUstream s;
    unsigned groups = 1;
    if (CALL(cuDeviceGetDevResource)(0, &sms, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS)
        TEST_IGNORE_MESSAGE("the device has no green contexts");
    OK(CALL(cuDevSmResourceSplitByCount)(&part, &groups, &sms, NULL, 0, 1));
    OK(CALL(cuDevResourceGenerateDesc)(&description, &part, 1));
    OK(CALL(cuGreenCtxCreate)(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    CUresult r = CALL(cuGreenCtxStreamCreate)(&s, green, CU_STREAM_NON_BLOCKING, 0);
    if (r == CUDA_ERROR_NOT_SUPPORTED) { /* it is of CUDA 12.5, the rest of 12.4 */
        OK(CALL(cuGreenCtxDestroy)(green));
        TEST_IGNORE_MESSAGE("the driver has no streams of green contexts");
    }
    OK(r);
    OK(launch(s));
    TEST_ASSERT_EQUAL_UINT32(1, in_flight());
    open_gate();
    OK(CALL(cuGreenCtxDestroy)(green));
    TEST_ASSERT_TRUE(becomes_idle());
}

static void remove_device(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "/dev/shm/%s.2", getenv("TALLY_DEVICE_NAME"));
    unlink(path);
}

int main(void)
{
    char name[64];
    CUmodule module;
    snprintf(name, sizeof name, "tally-test-shim-%d", (int)getpid());
    setenv("TALLY_DEVICE_NAME", name, 1);
    setenv("TALLY_DEVICE_MEM", "256M", 1);
    atexit(remove_device);
    open_shim("lib/tally/device/libcuda.so.1");
    UNITY_BEGIN();
    if (CALL(cuInit)(0) != CUDA_SUCCESS ||
        CALL(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS ||
        CALL(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS ||
        CALL(cuModuleLoadData)(&module, gate_ptx) != CUDA_SUCCESS ||
        CALL(cuModuleGetFunction)(&gate, module, "gate") != CUDA_SUCCESS ||
        CALL(cuMemHostAlloc)((void **)&words, 64, CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
        CALL(cuMemHostGetDevicePointer_v2)(&device_words, words, 0) != CUDA_SUCCESS) {
        printf("the software device does not start\n");
        return 1;
    }
    RUN_TEST(a_stream_that_is_waited_for_is_done);
    RUN_TEST(a_context_that_is_waited_for_is_done);
    RUN_TEST(streams_are_counted_apart);
    RUN_TEST(an_event_proves_what_was_before_it);
    RUN_TEST(a_synchronous_copy_is_a_wait);
    RUN_TEST(what_nobody_waits_for_is_found_done);
    RUN_TEST(work_outlives_the_handle_of_its_stream);
    RUN_TEST(a_refused_launch_is_no_work);
    RUN_TEST(captured_launches_are_no_work_but_graphs_are);
    RUN_TEST(a_capture_goes_on_beside_work);
    RUN_TEST(a_capture_goes_on_beside_work_of_default_streams);
    RUN_TEST(many_threads_with_streams_of_their_own);
    RUN_TEST(many_threads_on_their_default_streams);
    RUN_TEST(work_of_a_threads_default_stream_is_found_done);
    RUN_TEST(a_context_takes_its_work_with_it);
    RUN_TEST(a_green_context_takes_its_work_with_it);
    return UNITY_END();
}

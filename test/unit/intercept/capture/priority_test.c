/* Priorities of streams, launches and graphs as a program sees them through the interception
 * library, against what the software device says that they are: in jobs of the highest level and of
 * the lowest, on several profiles of it. */
#include "../help.h"

#include <sys/wait.h>

#define REAL(name) ((__typeof__(name) *)symbol_of(driver, #name))
static bool is_high;

void setUp(void)
{
}

void tearDown(void)
{
}

/* What the device has for a stream, and what the program is told. */
static int given(CUstream stream)
{
    int priority = 99;
    OK(REAL(cuStreamGetPriority)(stream, &priority));
    return priority;
}

static int told(CUstream stream)
{
    CUlaunchAttributeValue v = {.priority = 77};
    int priority = 99;
    OK(CALL(cuStreamGetPriority)(stream, &priority));
    OK(CALL(cuStreamGetAttribute)(stream, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
    TEST_ASSERT_EQUAL_INT(priority, v.priority);
    return priority;
}

static void range_is_the_driver_s(void)
{
    int least = 9, greatest = 9, real_least = 8, real_greatest = 8;
    OK(CALL(cuCtxGetStreamPriorityRange)(&least, &greatest));
    OK(REAL(cuCtxGetStreamPriorityRange)(&real_least, &real_greatest));
    TEST_ASSERT_EQUAL_INT(real_least, least);
    TEST_ASSERT_EQUAL_INT(real_greatest, greatest);
}

static void streams_are_moved_and_tell_what_they_asked_for(void)
{
    static const int asked[] = {0, -1, -4, -5, -9, 3}, clamped[] = {0, -1, -4, -5, -5, 0},
                     raised[] = {-1, -2, -5, -5, -5, -1};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        CUstream stream;
        OK(CALL(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, asked[i]));
        TEST_ASSERT_EQUAL_INT(clamped[i], told(stream));
        TEST_ASSERT_EQUAL_INT(is_high ? raised[i] : 0, given(stream));
        OK(CALL(cuStreamDestroy_v2)(stream));
    }
}

static void ordinary_streams_are_raised(void)
{
    CUstream stream;
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_DEFAULT));
    TEST_ASSERT_EQUAL_INT(0, told(stream));
    TEST_ASSERT_EQUAL_INT(is_high ? -1 : 0, given(stream));
    unsigned flags = 9;
    OK(CALL(cuStreamGetFlags)(stream, &flags));
    TEST_ASSERT_EQUAL_INT(CU_STREAM_DEFAULT, flags);
    OK(CALL(cuStreamDestroy_v2)(stream));
}

static void default_streams_stay_as_they_are(void)
{
    TEST_ASSERT_EQUAL_INT(0, told(CU_STREAM_LEGACY));
    TEST_ASSERT_EQUAL_INT(0, given(CU_STREAM_LEGACY));
}

static void attributes_are_moved_and_copied(void)
{
    CUstream one, other;
    CUlaunchAttributeValue v = {.priority = -3};
    OK(CALL(cuStreamCreate)(&one, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamSetAttribute)(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
    TEST_ASSERT_EQUAL_INT(-3, told(one));
    TEST_ASSERT_EQUAL_INT(is_high ? -4 : 0, given(one));
    OK(CALL(cuStreamCopyAttributes)(other, one));
    TEST_ASSERT_EQUAL_INT(-3, told(other));
    TEST_ASSERT_EQUAL_INT(is_high ? -4 : 0, given(other));
    OK(CALL(cuStreamDestroy_v2)(one));
    OK(CALL(cuStreamDestroy_v2)(other));
}

/* A handle that is used again is another stream. */
static void destroyed_streams_are_forgotten(void)
{
    CUstream stream;
    for (int i = 0; i < 100; i++) {
        OK(CALL(cuStreamCreateWithPriority)(&stream, CU_STREAM_NON_BLOCKING, i % 2 == 0 ? -2 : 0));
        TEST_ASSERT_EQUAL_INT(i % 2 == 0 ? -2 : 0, told(stream));
        OK(CALL(cuStreamDestroy_v2)(stream));
    }
}

static CUfunction kernel(void)
{
    static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry "
                               "k()\n{\nret;\n}\n";
    CUmodule module;
    CUfunction f;
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&f, module, "k"));
    return f;
}

/* A launch with a priority of its own, as the graph that it is captured into has it. */
static void launches_are_moved(void)
{
    CUstream stream;
    CUgraph graph;
    CUgraphNode node;
    CUkernelNodeAttrValue v = {.priority = 77};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = -3}};
    size_t n = 1;
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUfunction f = kernel();
    OK(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(CALL(cuLaunchKernelEx)(&config, f, NULL, NULL));
    OK(CALL(cuStreamEndCapture)(stream, &graph));
    TEST_ASSERT_EQUAL_INT(-3, attribute.value.priority);
    OK(REAL(cuGraphGetNodes)(graph, &node, &n));
    OK(REAL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
    TEST_ASSERT_EQUAL_INT(is_high ? -4 : 0, v.priority);
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuStreamDestroy_v2)(stream));
}

/* What a node asks for counts only where the executable says so, and says so to the program. */
static void nodes_of_lower_jobs_do_not_count(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUkernelNodeAttrValue v = {.priority = -5};
    CUDA_KERNEL_NODE_PARAMS_v2 p = {.func = kernel(),
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1};
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY};
    cuuint64_t own = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY, flags = 0, real = 0;
    OK(CALL(cuGraphCreate)(&graph, 0));
    OK(CALL(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &p));
    OK(CALL(cuGraphKernelNodeSetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
    for (int i = 0; i < 2; i++) {
        OK(i == 0 ? CALL(cuGraphInstantiateWithFlags)(&exec, graph, own)
                  : CALL(cuGraphInstantiateWithParams)(&exec, graph, &how));
        OK(CALL(cuGraphExecGetFlags)(exec, &flags));
        OK(REAL(cuGraphExecGetFlags)(exec, &real));
        TEST_ASSERT_EQUAL_UINT64(own, flags);
        TEST_ASSERT_EQUAL_UINT64(is_high ? own : 0, real);
        OK(CALL(cuGraphExecDestroy)(exec));
    }
    TEST_ASSERT_EQUAL_UINT64(own, how.flags);
    v.priority = 0;
    OK(CALL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &v));
    TEST_ASSERT_EQUAL_INT(-5, v.priority);
    OK(CALL(cuGraphDestroy)(graph));
}

/* One job: a process has one level. */
static int run(const char *level, const char *profile)
{
    CUcontext ctx;
    char name[64], path[PATH_MAX];
    is_high = strcmp(level, "high") == 0;
    snprintf(name, sizeof name, "tally-test-priority-%d", (int)getpid());
    setenv("TALLY_DEVICE_NAME", name, 1);
    setenv("TALLY_DEVICE_PROFILE", profile, 1);
    setenv("TALLY_CACHE", "", 1);
    open_shim("lib/tally/device/libcuda.so.1");
    setenv("TALLY_PRIORITY", level, 1);
    UNITY_BEGIN();
    OK(CALL(cuInit)(0));
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(CALL(cuCtxSetCurrent)(ctx));
    RUN_TEST(range_is_the_driver_s);
    RUN_TEST(streams_are_moved_and_tell_what_they_asked_for);
    RUN_TEST(ordinary_streams_are_raised);
    RUN_TEST(default_streams_stay_as_they_are);
    RUN_TEST(attributes_are_moved_and_copied);
    RUN_TEST(destroyed_streams_are_forgotten);
    RUN_TEST(launches_are_moved);
    RUN_TEST(nodes_of_lower_jobs_do_not_count);
    int failed = UNITY_END();
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    unlink(path);
    return failed;
}

int main(void)
{
    static const char *const levels[] = {"high", "low"}, *const profiles[] = {"soft", "a100-r535",
                                                                              "h100-r580"};
    int failed = 0;
    for (int i = 0; i < 6; i++) {
        int status = 1;
        printf("a %s job, %s\n", levels[i / 3], profiles[i % 3]);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0)
            exit(run(levels[i / 3], profiles[i % 3]) == 0 ? 0 : 1);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            failed = 1;
    }
    return failed;
}

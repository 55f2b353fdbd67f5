/* A job with a limit of memory, on the software device: random allocations of every kind against a
 * model of its own.  Nothing is refused that fits, nothing is given that does not, and every way to
 * ask for the device's size gives the same answer.
 *
 * An argument is the profile of the device. */
#include "test/unit/intercept/help.h"

#ifndef LEVEL
#define LEVEL "high"
#endif

enum { THINGS = 48, STEPS = 4000, GRAIN = 2 << 20 };
#define LIMIT ((size_t)256 << 20)

enum kind { LINEAR, PITCHED, MANAGED, POOLED, OWN_POOL, PHYSICAL, ARRAY, MIPMAPPED, GRAPH, KINDS };
static const char *const kind_names[] = {"linear",   "pitched", "managed",   "pooled", "own",
                                         "physical", "array",   "mipmapped", "graph"};

static struct thing {
    bool is_there, is_mapped, has_handle;
    enum kind kind;
    size_t bytes, piece; /* piece: of a graph, which may be larger */
    CUdeviceptr at;
    CUmemGenericAllocationHandle handle;
    CUarray array;
    CUmipmappedArray mipmapped;
    CUgraph graph;
    CUgraphExec exec;
} things[THINGS];
static CUmemoryPool own_pool;
static CUstream stream;
static uint32_t refused[KINDS], given[KINDS];

void setUp(void)
{
}

void tearDown(void)
{
}

/* What the driver itself says that is in use of a pool: it may give out larger pieces than were
 * asked for. */
static size_t used_of(CUmemoryPool pool)
{
    cuuint64_t used = 0;
    OK(((__typeof__(cuMemPoolGetAttribute) *)symbol_of(driver, "cuMemPoolGetAttribute"))(
        pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    return used;
}

/* What graphs have, and what is kept of it when it was freed, until somebody needs it. */
static size_t kept_for_graphs(void)
{
    cuuint64_t bytes = 0;
    OK(CALL(cuDeviceGetGraphMemAttribute)(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

/* What the model says is held. */
static size_t held(void)
{
    CUmemoryPool pool;
    OK(CALL(cuDeviceGetDefaultMemPool)(&pool, 0));
    size_t sum = used_of(pool) + used_of(own_pool);
    for (int i = 0; i < THINGS; i++)
        if (things[i].is_there && things[i].kind != POOLED && things[i].kind != OWN_POOL)
            sum += things[i].kind == GRAPH ? things[i].piece : things[i].bytes;
    return sum;
}

static CUmemAllocationProp physical_prop(void)
{
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return p;
}

static CUresult map_physical(struct thing *t)
{
    CUmemAllocationProp prop = physical_prop();
    CUresult r = CALL(cuMemCreate)(&t->handle, t->bytes, &prop, 0);
    if (r != CUDA_SUCCESS)
        return r;
    t->has_handle = true;
    OK(CALL(cuMemAddressReserve)(&t->at, t->bytes, 0, 0, 0));
    OK(CALL(cuMemMap)(t->at, t->bytes, 0, t->handle, 0));
    t->is_mapped = true;
    if (rand() % 2 == 0) { /* as many programs do: the mapping keeps it */
        OK(CALL(cuMemRelease)(t->handle));
        t->has_handle = false;
    }
    return r;
}

/* A graph whose launch allocates, and leaves the freeing to the program.  With nothing kept it gets
 * a new piece, and how large that is shows. */
static CUresult launch_graph(struct thing *t)
{
    OK(CALL(cuDeviceGraphMemTrim)(0));
    size_t before = kept_for_graphs();
    OK(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(CALL(cuMemAllocAsync)(&t->at, t->bytes, stream));
    OK(CALL(cuStreamEndCapture)(stream, &t->graph));
    OK(CALL(cuGraphInstantiateWithFlags)(&t->exec, t->graph, 0));
    CUresult r = CALL(cuGraphLaunch)(t->exec, stream);
    if (r != CUDA_SUCCESS) {
        OK(CALL(cuGraphExecDestroy)(t->exec));
        OK(CALL(cuGraphDestroy)(t->graph));
    }
    t->piece = kept_for_graphs() - before;
    return r;
}

static CUresult make(struct thing *t)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 512, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
    size_t pitch;
    switch (t->kind) {
    case LINEAR:
        return CALL(cuMemAlloc_v2)(&t->at, t->bytes);
    case PITCHED:
        return CALL(cuMemAllocPitch_v2)(&t->at, &pitch, 4096, t->bytes / 4096, 4);
    case MANAGED:
        return CALL(cuMemAllocManaged)(&t->at, t->bytes, CU_MEM_ATTACH_GLOBAL);
    case POOLED:
        return CALL(cuMemAllocAsync)(&t->at, t->bytes, stream);
    case OWN_POOL:
        return CALL(cuMemAllocFromPoolAsync)(&t->at, t->bytes, own_pool, stream);
    case PHYSICAL:
        return map_physical(t);
    case ARRAY:
        d.Height = t->bytes / (512 * 16);
        return CALL(cuArray3DCreate_v2)(&t->array, &d);
    case GRAPH:
        return launch_graph(t);
    default:
        d.Height = t->bytes / (512 * 16);
        return CALL(cuMipmappedArrayCreate)(&t->mipmapped, &d, 1);
    }
}

static void unmake(struct thing *t)
{
    switch (t->kind) {
    case POOLED:
    case OWN_POOL:
        if (rand() % 8 != 0)
            OK(CALL(cuMemFreeAsync)(t->at, stream));
        else
            OK(CALL(cuMemFree_v2)(t->at));
        break;
    case PHYSICAL:
        OK(CALL(cuMemUnmap)(t->at, t->bytes));
        if (t->has_handle)
            OK(CALL(cuMemRelease)(t->handle));
        OK(CALL(cuMemAddressFree)(t->at, t->bytes));
        break;
    case GRAPH:
        OK(rand() % 2 == 0 ? CALL(cuMemFree_v2)(t->at) : CALL(cuMemFreeAsync)(t->at, stream));
        OK(CALL(cuGraphExecDestroy)(t->exec));
        OK(CALL(cuGraphDestroy)(t->graph));
        break;
    case ARRAY:
        OK(CALL(cuArrayDestroy)(t->array));
        break;
    case MIPMAPPED:
        OK(CALL(cuMipmappedArrayDestroy)(t->mipmapped));
        break;
    default:
        OK(CALL(cuMemFree_v2)(t->at));
    }
    t->is_there = false;
}

static void check_answers(void)
{
    size_t left, all, size;
    CUdevice device;
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    OK(CALL(cuCtxGetDevice)(&device));
    OK(CALL(cuDeviceTotalMem_v2)(&size, device));
    TEST_ASSERT_EQUAL_UINT64(LIMIT, all);
    TEST_ASSERT_EQUAL_UINT64(LIMIT, size);
    /* pools may keep more than they gave out */
    TEST_ASSERT_TRUE(left <= LIMIT - held());
}

static void step(void)
{
    char what[128];
    struct thing *t = &things[rand() % THINGS];
    if (t->is_there) {
        unmake(t);
        return;
    }
    *t = (struct thing){.kind = (enum kind)(rand() % KINDS),
                        .bytes = (size_t)(1 + rand() % 24) * GRAIN};
    /* What was freed in the order of a stream is free when the stream has come to it. */
    OK(CALL(cuStreamSynchronize)(stream));
    bool fits = held() + t->bytes <= LIMIT, is_close = fits && held() + t->bytes * 5 / 4 > LIMIT;
    CUresult r = make(t);
    /* the piece of a graph is chosen when the node is made, and may be a quarter larger */
    if (t->kind == GRAPH && is_close && r == CUDA_ERROR_OUT_OF_MEMORY)
        return;
    snprintf(what, sizeof what, "%s of %zu MiB, %zu MiB held", kind_names[t->kind], t->bytes >> 20,
             held() >> 20);
    TEST_ASSERT_EQUAL_INT_MESSAGE(fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, r, what);
    t->is_there = r == CUDA_SUCCESS;
    *(fits ? &given[t->kind] : &refused[t->kind]) += 1;
}

static void random_allocations_agree_with_the_model(void)
{
    srand(21);
    for (int i = 0; i < STEPS; i++) {
        step();
        if (i % 16 == 0)
            check_answers();
    }
    for (int k = 0; k < KINDS; k++) { /* it has tried everything */
        TEST_ASSERT_TRUE(given[k] > 20);
        TEST_ASSERT_TRUE(refused[k] > 20);
    }
}

static void when_all_is_freed_all_is_free(void)
{
    size_t left, all;
    for (int i = 0; i < THINGS; i++)
        if (things[i].is_there)
            unmake(&things[i]);
    OK(CALL(cuStreamSynchronize)(stream));
    CUmemoryPool pool;
    OK(CALL(cuDeviceGetDefaultMemPool)(&pool, 0));
    OK(CALL(cuMemPoolTrimTo)(pool, 0));
    OK(CALL(cuMemPoolTrimTo)(own_pool, 0));
    OK(CALL(cuDeviceGraphMemTrim)(0));
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    TEST_ASSERT_EQUAL_UINT64(LIMIT, left);
}

static void what_a_pool_keeps_is_given_up_for_others(void)
{
    CUdeviceptr at, other;
    cuuint64_t all = UINT64_MAX;
    CUmemoryPool pool;
    OK(CALL(cuDeviceGetDefaultMemPool)(&pool, 0));
    OK(CALL(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    OK(CALL(cuMemAllocAsync)(&at, LIMIT / 2, stream));
    OK(CALL(cuMemFreeAsync)(at, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemAlloc_v2)(&other, LIMIT));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAllocAsync)(&at, GRAIN, stream));
    OK(CALL(cuMemFree_v2)(other));
}

static void memory_of_graphs_counts(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr at, other;
    OK(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAllocAsync)(&at, 2 * LIMIT, stream));
    OK(CALL(cuMemAllocAsync)(&at, LIMIT / 2, stream));
    OK(CALL(cuMemsetD8Async)(at, 1, LIMIT / 2, stream));
    OK(CALL(cuMemFreeAsync)(at, stream));
    OK(CALL(cuStreamEndCapture)(stream, &graph));
    OK(CALL(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(CALL(cuGraphLaunch)(exec, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    size_t left, all;
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    TEST_ASSERT_TRUE(left <= LIMIT / 2);
    OK(CALL(cuGraphExecDestroy)(exec));
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuMemAlloc_v2)(&other, LIMIT)); /* what graphs keep is given up for it */
    OK(CALL(cuMemFree_v2)(other));
}

static CUgraphExec two_in_turn(CUgraph *graph, size_t first, size_t second)
{
    CUgraphExec exec;
    CUdeviceptr at;
    OK(CALL(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(CALL(cuMemAllocAsync)(&at, first, stream));
    OK(CALL(cuMemsetD8Async)(at, 1, first, stream));
    OK(CALL(cuMemFreeAsync)(at, stream));
    OK(CALL(cuMemAllocAsync)(&at, second, stream));
    OK(CALL(cuMemsetD8Async)(at, 1, second, stream));
    OK(CALL(cuMemFreeAsync)(at, stream));
    OK(CALL(cuStreamEndCapture)(stream, graph));
    OK(CALL(cuGraphInstantiateWithFlags)(&exec, *graph, 0));
    return exec;
}

/* The memory of each node fits, and that of the graph does not beside what is held: nothing of it
 * runs, nothing of it stays, and it runs once there is room. */
static void a_graph_that_goes_beyond_what_is_left_is_refused_before_it_runs(void)
{
    CUgraph graph;
    CUdeviceptr other, flag;
    size_t left, all;
    unsigned char seen = 7;
    OK(CALL(cuMemAlloc_v2)(&flag, 512));
    OK(CALL(cuMemsetD8_v2)(flag, 7, 1));
    OK(CALL(cuMemAlloc_v2)(&other, LIMIT / 2));
    CUgraphExec exec = two_in_turn(&graph, LIMIT / 2, LIMIT / 4);
    for (int i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuGraphLaunch)(exec, stream));
        TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuGraphUpload)(exec, stream));
    }
    OK(CALL(cuStreamSynchronize)(stream));
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    TEST_ASSERT_EQUAL_UINT64(LIMIT / 2 - 512, left);
    OK(CALL(cuMemFree_v2)(other));
    OK(CALL(cuGraphLaunch)(exec, stream));
    OK(CALL(cuGraphLaunch)(exec, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    TEST_ASSERT_EQUAL_INT(CUDA_SUCCESS, CALL(cuMemcpyDtoH_v2)(&seen, flag, 1));
    TEST_ASSERT_EQUAL_UINT8(7, seen);
    OK(CALL(cuGraphExecDestroy)(exec));
    OK(CALL(cuGraphDestroy)(graph));
    OK(CALL(cuMemFree_v2)(flag));
}

static void a_context_takes_its_memory_with_it(void)
{
    CUcontext before, fresh;
    CUdeviceptr at;
    size_t left, all;
    OK(CALL(cuCtxGetCurrent)(&before));
    OK(CALL(cuCtxCreate_v2)(&fresh, 0, 0));
    OK(CALL(cuMemAlloc_v2)(&at, LIMIT));
    OK(CALL(cuCtxDestroy_v2)(fresh));
    OK(CALL(cuCtxSetCurrent)(before));
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    TEST_ASSERT_EQUAL_UINT64(LIMIT, left);
}

static void the_job_has_the_level_that_is_tested(void)
{
    char line[PATH_MAX + 128];
    bool has_effort = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        has_effort |= strstr(line, "libtally-effort.so") != NULL;
    fclose(maps);
    TEST_ASSERT_EQUAL_INT(strcmp(LEVEL, "low") == 0, has_effort);
}

static void remove_device(void)
{
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s.2", getenv("TALLY_DEVICE_NAME"));
    unlink(path);
}

int main(int argc, char **argv)
{
    char name[64];
    if (argc > 1)
        setenv("TALLY_DEVICE_PROFILE", argv[1], 1);
    setenv("TALLY_MEMORY", "256M", 1);
    setenv("TALLY_DEVICE_MEM", "1G", 1);
    atexit(remove_device);
    snprintf(name, sizeof name, "tally-limit-%d", (int)getpid());
    setenv("TALLY_DEVICE_NAME", name, 1);
    open_shim("lib/tally/device/libcuda.so.1");
    setenv("TALLY_PRIORITY", LEVEL, 1);
    CUcontext ctx;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED};
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    UNITY_BEGIN();
    OK(CALL(cuInit)(0));
    OK(CALL(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(CALL(cuCtxSetCurrent)(ctx));
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuMemPoolCreate)(&own_pool, &props));
    RUN_TEST(random_allocations_agree_with_the_model);
    RUN_TEST(when_all_is_freed_all_is_free);
    RUN_TEST(what_a_pool_keeps_is_given_up_for_others);
    RUN_TEST(memory_of_graphs_counts);
    RUN_TEST(a_graph_that_goes_beyond_what_is_left_is_refused_before_it_runs);
    RUN_TEST(a_context_takes_its_memory_with_it);
    RUN_TEST(the_job_has_the_level_that_is_tested);
    return UNITY_END();
}

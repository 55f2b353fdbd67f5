/* Kernels that are compiled quickly first, and well when they have run for long enough: results are
 * equal, and launches go on meanwhile. */
#include "tally/base.h"
#include "tally/clock.h"
#include "test/unit/device/driver/help.h"
#include "test/unit/scratch.h"

enum { STEPS = 300, THREADS = 128 };

static struct tl_buf text;
static char cache[PATH_MAX];

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
    tl_buf_finish(&text);
}

/* Long enough to be compiled quickly first: STEPS steps, `rounds` times. */
static void write_kernel(const char *name)
{
    tl_buf_printf(&text,
                  HEAD ".visible .entry %s(.param .u64 a, .param .u32 rounds) {\n"
                       ".reg .u64 %%d<4>; .reg .u32 %%r<6>; .reg .pred %%p<3>;\n"
                       "ld.param.u64 %%d1, [a]; ld.param.u32 %%r1, [rounds];\n"
                       "mov.u32 %%r2, %%tid.x; mul.wide.u32 %%d2, %%r2, 4;\n"
                       "add.u64 %%d3, %%d1, %%d2; mul.lo.u32 %%r3, %%r2, 77;\n$again:\n",
                  name);
    for (int i = 0; i < STEPS; i++)
        tl_buf_printf(&text,
                      "mad.lo.u32 %%r3, %%r3, 1664525, %d;\nsetp.lt.s32 %%p1, %%r3, %d;\n"
                      "@%%p1 xor.b32 %%r3, %%r3, %d;\n",
                      i, i * 9999, i + 1);
    tl_buf_puts(&text, "sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra $again;\n"
                       "st.global.u32 [%d3], %r3; ret;\n}\n");
    TEST_ASSERT_FALSE(text.failed);
}

static uint32_t expected(uint32_t thread, uint32_t rounds)
{
    uint32_t x = thread * 77;
    for (uint32_t k = 0; k < rounds; k++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            x = x * 1664525 + i;
            if ((int32_t)x < (int32_t)(i * 9999))
                x ^= i + 1;
        }
    }
    return x;
}

/* The number that a line for the shell prints. */
static int number_of(const char *line)
{
    int n = 0;
    FILE *f = popen(line, "r");
    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_EQUAL_INT(1, fscanf(f, "%d", &n));
    pclose(f);
    return n;
}

/* Files of compiled kernels. */
static int n_kept(void)
{
    char line[PATH_MAX + 128];
    snprintf(line, sizeof line,
             "find '%s' -name '*.so' -exec grep -qa tally_info {} \\; -print | wc -l", cache);
    return number_of(line);
}

/* Of these, those that this process has. */
static int n_mapped(void)
{
    int n = 0;
    char line[PATH_MAX + 200];
    FILE *f = fopen("/proc/self/maps", "r");
    TEST_ASSERT_NOT_NULL(f);
    while (fgets(line, sizeof line, f) != NULL)
        n += strstr(line, cache) != NULL && strstr(line, " r-xp ") != NULL;
    fclose(f);
    return n;
}

/* All blocks compute the same. */
static void launch_blocks(CUfunction f, CUdeviceptr memory, uint32_t rounds, uint32_t blocks)
{
    uint32_t out[THREADS];
    void *args[2] = {&memory, &rounds};
    OK(CALL(cuMemsetD8_v2)(memory, 0xee, sizeof out));
    OK(CALL(cuLaunchKernel)(f, blocks, 1, 1, THREADS, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(out, memory, sizeof out));
    for (uint32_t i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_HEX32(expected(i, rounds), out[i]);
}

static void launch(CUfunction f, CUdeviceptr memory, uint32_t rounds)
{
    launch_blocks(f, memory, rounds, 1);
}

static CUmodule module; /* of load() */

static CUfunction load(const char *name, CUdeviceptr *memory)
{
    CUfunction f;
    tl_buf_finish(&text);
    write_kernel(name);
    OK(CALL(cuModuleLoadData)(&module, text.p));
    OK(CALL(cuModuleGetFunction)(&f, module, name));
    OK(CALL(cuMemAlloc_v2)(memory, 4 * THREADS));
    return f;
}

static void one_that_runs_for_long_is_compiled_again(void)
{
    CUdeviceptr memory;
    int before = n_kept(), mapped = n_mapped();
    CUfunction f = load("often", &memory);
    launch(f, memory, 1);
    TEST_ASSERT_EQUAL_INT(before + 1, n_kept());
    TEST_ASSERT_EQUAL_INT(mapped + 1, n_mapped());
    for (int i = 0; i < 5000 && n_mapped() == mapped + 1; i++)
        launch(f, memory, 200);
    TEST_ASSERT_EQUAL_INT(before + 2, n_kept());
    TEST_ASSERT_EQUAL_INT(mapped + 2, n_mapped());
    for (int i = 0; i < 10; i++)
        launch(f, memory, 50);
    OK(CALL(cuMemFree_v2)(memory));
}

static uint64_t shortest_ns(CUgraphExec e, CUstream s)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t begin = tl_clock_ns();
        OK(CALL(cuGraphLaunch)(e, s));
        OK(CALL(cuStreamSynchronize)(s));
        uint64_t took = tl_clock_ns() - begin;
        least = took < least ? took : least;
    }
    return least;
}

static CUgraphExec graph_of(CUfunction f, CUdeviceptr memory)
{
    CUgraph g;
    CUgraphNode node;
    CUgraphExec e;
    uint32_t rounds = 200;
    void *args[2] = {&memory, &rounds};
    CUDA_KERNEL_NODE_PARAMS_v2 p = {.func = f,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = THREADS,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = args};
    OK(CALL(cuGraphCreate)(&g, 0));
    OK(CALL(cuGraphAddKernelNode_v2)(&node, g, NULL, 0, &p));
    OK(CALL(cuGraphInstantiateWithFlags)(&e, g, 0));
    OK(CALL(cuGraphDestroy)(g));
    return e;
}

/* A graph of before the good version was there takes as long as one of afterwards. */
static void a_graph_goes_on_with_the_good_one(void)
{
    CUdeviceptr memory;
    CUstream s;
    int mapped = n_mapped();
    CUfunction f = load("captured", &memory);
    CUgraphExec before = graph_of(f, memory);
    OK(CALL(cuStreamCreate)(&s, 0));
    for (int i = 0; i < 5000 && n_mapped() != mapped + 2; i++)
        (void)shortest_ns(before, s);
    TEST_ASSERT_EQUAL_INT(mapped + 2, n_mapped());
    CUgraphExec after = graph_of(f, memory);
    uint64_t good = shortest_ns(after, s), still = shortest_ns(before, s);
    TEST_ASSERT_LESS_THAN_UINT64(good + good / 2, still);
    OK(CALL(cuGraphExecDestroy)(before));
    OK(CALL(cuGraphExecDestroy)(after));
    OK(CALL(cuStreamDestroy_v2)(s));
    OK(CALL(cuMemFree_v2)(memory));
}

/* How long compiling takes is not known here, so launches grow until one is long enough. */
static void one_long_launch_goes_on_with_the_good_one(void)
{
    bool was_met = false;
    for (uint32_t i = 0; i < 10 && !was_met; i++) {
        char name[32];
        CUdeviceptr memory;
        int mapped = n_mapped();
        snprintf(name, sizeof name, "long%u", i);
        CUfunction f = load(name, &memory);
        launch_blocks(f, memory, 50, 1000u << i);
        was_met = n_mapped() == mapped + 2;
        OK(CALL(cuMemFree_v2)(memory));
    }
    TEST_ASSERT_TRUE(was_met);
}

static void unloading_what_is_compiled_again_harms_nothing(void)
{
    for (uint32_t i = 0; i < 10; i++) {
        char name[32];
        CUdeviceptr memory;
        snprintf(name, sizeof name, "unloaded%u", i);
        CUfunction f = load(name, &memory);
        launch(f, memory, 1000 + 200 * i);
        launch(f, memory, 1);
        OK(CALL(cuModuleUnload)(module));
        OK(CALL(cuMemFree_v2)(memory));
    }
}

/* On a busy machine a short launch may take long, so it may try again. */
static void one_that_runs_once_is_not(void)
{
    int again = 1;
    for (uint32_t i = 0; i < 10 && again > 0; i++) {
        char name[32];
        CUdeviceptr memory;
        int before = n_kept();
        snprintf(name, sizeof name, "once%u", i);
        CUfunction f = load(name, &memory);
        launch(f, memory, 1);
        launch(f, memory, 2);
        again = n_kept() - before - 1;
        TEST_ASSERT_TRUE(again >= 0);
        OK(CALL(cuMemFree_v2)(memory));
    }
    TEST_ASSERT_EQUAL_INT(0, again);
}

/* Threads of this process that look after quick versions. */
static int n_lookers(void)
{
    char line[128];
    snprintf(line, sizeof line, "cat /proc/%d/task/*/comm | grep -c tally-quick || :", getpid());
    return number_of(line);
}

/* Nobody would find what is compiled again: it is given up, and nobody looks for it for ever. */
static void where_nothing_is_kept_it_stays_quick(void)
{
    CUdeviceptr memory;
    setenv("TALLY_CACHE", "/proc/nowhere", 1);
    CUfunction f = load("homeless", &memory);
    for (int i = 0; i < 20; i++)
        launch(f, memory, 200);
    for (int i = 0; i < 600 && n_lookers() > 0; i++)
        usleep(50000);
    TEST_ASSERT_EQUAL_INT(0, n_lookers());
    launch(f, memory, 3);
    setenv("TALLY_CACHE", cache, 1);
    OK(CALL(cuMemFree_v2)(memory));
}

static void who_does_not_want_that_has_none(void)
{
    CUdeviceptr memory;
    int before = n_kept();
    setenv("TALLY_JIT_QUICK", "0", 1);
    CUfunction f = load("well", &memory);
    for (int i = 0; i < 100; i++)
        launch(f, memory, 50);
    TEST_ASSERT_EQUAL_INT(before + 1, n_kept());
    setenv("TALLY_JIT_QUICK", "1", 1);
    OK(CALL(cuMemFree_v2)(memory));
}

int main(void)
{
    char line[PATH_MAX + 64];
    UNITY_BEGIN();
    scratch_path(cache, sizeof cache, "quick-cache-XXXXXX");
    if (mkdtemp(cache) == NULL)
        return 1;
    setenv("TALLY_CACHE", cache, 1);
    setenv("TALLY_JIT_QUICK", "1", 1);
    open_driver();
    RUN_TEST(one_that_runs_for_long_is_compiled_again);
    RUN_TEST(a_graph_goes_on_with_the_good_one);
    RUN_TEST(one_long_launch_goes_on_with_the_good_one);
    RUN_TEST(unloading_what_is_compiled_again_harms_nothing);
    RUN_TEST(one_that_runs_once_is_not);
    RUN_TEST(where_nothing_is_kept_it_stays_quick);
    RUN_TEST(who_does_not_want_that_has_none);
    snprintf(line, sizeof line, "rm -rf '%s'", cache);
    if (system(line) != 0)
        return 1;
    return UNITY_END();
}

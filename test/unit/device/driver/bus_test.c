/* The bus, where it is modelled (TALLY_DEVICE_PCIE): which accesses of kernels are counted as such,
 * and what is waited for.  How long that takes is set to nothing, so nothing here depends on a
 * clock. */
#include "tally/device.h"
#include "test/unit/device/driver/help.h"

static CUmodule module;
static CUdeviceptr device, host;
static uint64_t *words;

/* Each loads words at its first parameter or stores there, and adds up what it read at its
 * second. */
#define ENTRY(name, body)                                                                          \
    ".visible .entry " name "(.param .u64 p, .param .u64 q)\n{\n"                                  \
    " .reg .u64 %a, %b, %v<8>;\n .reg .pred %q;\n .reg .u32 %t;\n"                                 \
    " ld.param.u64 %a, [p];\n ld.param.u64 %b, [q];\n" body " ret;\n}\n"
static const char ptx[] = HEAD ENTRY(
    "apart", " ld.volatile.global.u64 %v0, [%a];\n ld.relaxed.sys.global.u64 %v1, [%a+8];\n"
             " ld.volatile.global.u64 %v2, [%a+16];\n add.u64 %v0, %v0, %v1;\n"
             " add.u64 %v0, %v0, %v2;\n st.global.u64 [%b], %v0;\n")
    ENTRY("chain", " ld.volatile.global.u64 %v0, [%a];\n add.u64 %a, %a, %v0;\n"
                   " ld.volatile.global.u64 %v1, [%a];\n add.u64 %a, %a, %v1;\n"
                   " ld.volatile.global.u64 %v2, [%a];\n st.global.u64 [%b], %v2;\n")
        ENTRY("guarded", " ld.param.u64 %v0, [p];\n setp.eq.u64 %q, %v0, 0;\n"
                         " @%q ld.volatile.global.u64 %v0, [%v0];\n st.global.u64 [%b], %v0;\n")
            ENTRY("store", " st.volatile.global.u64 [%a], 7;\n st.volatile.global.u64 [%a+8], 8;\n")
                ENTRY("atomic", " atom.global.add.u64 %v0, [%a], 1;\n st.global.u64 [%b], %v0;\n"
                                " red.global.add.u64 [%a+8], 1;\n");

struct counts {
    int reads, writes, atomics, waits;
};

static struct counts now(void)
{
    struct counts c;
    OK(CALL(cuDeviceGetAttribute)(&c.reads, (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_HOST_READS, 0));
    OK(CALL(cuDeviceGetAttribute)(&c.writes, (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_HOST_WRITES,
                                  0));
    OK(CALL(cuDeviceGetAttribute)(&c.atomics, (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_HOST_ATOMICS,
                                  0));
    OK(CALL(cuDeviceGetAttribute)(&c.waits, (CUdevice_attribute)TL_DEVICE_ATTRIBUTE_HOST_WAITS, 0));
    return c;
}

/* Runs a kernel of one thread on these words, and tells what it did to host memory. */
static struct counts run(const char *name, CUdeviceptr at)
{
    CUfunction f;
    CUdeviceptr out = device + 1024;
    void *params[] = {&at, &out};
    OK(CALL(cuModuleGetFunction)(&f, module, name));
    struct counts before = now();
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuCtxSynchronize)());
    struct counts c = now();
    return (struct counts){c.reads - before.reads, c.writes - before.writes,
                           c.atomics - before.atomics, c.waits - before.waits};
}

static void expect(struct counts c, int reads, int writes, int atomics, int waits)
{
    TEST_ASSERT_EQUAL_INT(reads, c.reads);
    TEST_ASSERT_EQUAL_INT(writes, c.writes);
    TEST_ASSERT_EQUAL_INT(atomics, c.atomics);
    TEST_ASSERT_EQUAL_INT(waits, c.waits);
}

void setUp(void)
{
    memset(words, 0, 4096);
    OK(CALL(cuMemsetD8_v2)(device, 0, 4096));
    OK(CALL(cuCtxSynchronize)());
}

void tearDown(void)
{
}

static void loads_that_do_not_need_each_other_are_waited_for_once(void)
{
    words[0] = 1, words[1] = 2, words[2] = 4;
    expect(run("apart", host), 3, 0, 0, 1);
    uint64_t sum;
    OK(CALL(cuMemcpyDtoH_v2)(&sum, device + 1024, 8));
    TEST_ASSERT_EQUAL_UINT64(7, sum);
}

static void loads_that_need_each_other_are_waited_for_one_by_one(void)
{
    words[0] = 8, words[1] = 8;
    expect(run("chain", host), 3, 0, 0, 3);
}

static void what_is_not_executed_is_not_counted(void)
{
    expect(run("guarded", host), 0, 0, 0, 0);
}

static void stores_are_counted_and_not_waited_for(void)
{
    expect(run("store", host), 0, 2, 0, 0);
    TEST_ASSERT_EQUAL_UINT64(8, words[1]);
}

static void atomics_are_waited_for_and_reductions_are_not(void)
{
    expect(run("atomic", host), 0, 1, 1, 1);
    TEST_ASSERT_EQUAL_UINT64(1, words[0]);
    TEST_ASSERT_EQUAL_UINT64(1, words[1]);
}

static void memory_of_the_device_is_not_behind_the_bus(void)
{
    static const char *const names[] = {"apart", "chain", "store", "atomic"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        expect(run(names[i], device), 0, 0, 0, 0);
}

static void a_registered_page_is_behind_the_bus(void)
{
    uint64_t *own = aligned_alloc(4096, 4096);
    CUdeviceptr p;
    TEST_ASSERT_NOT_NULL(own);
    memset(own, 0, 4096);
    OK(CALL(cuMemHostRegister_v2)(own, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(CALL(cuMemHostGetDevicePointer_v2)(&p, own, 0));
    expect(run("apart", p), 3, 0, 0, 1);
    OK(CALL(cuMemHostUnregister)(own));
    free(own);
}

/* All directions and kinds, on engines: what arrives is what was sent, in the order of the
 * stream. */
static void copies_on_engines_copy(void)
{
    enum { N = 1 << 16 };
    uint8_t *from = malloc(N), *to = calloc(1, N);
    CUdeviceptr a, b;
    CUstream s;
    TEST_ASSERT_TRUE(from != NULL && to != NULL);
    for (uint32_t i = 0; i < N; i++)
        from[i] = (uint8_t)(i * 7 + i / 256);
    OK(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuMemAlloc_v2)(&a, N));
    OK(CALL(cuMemAlloc_v2)(&b, N));
    OK(CALL(cuMemcpyHtoDAsync_v2)(a, from, N, s));
    OK(CALL(cuMemcpyDtoDAsync_v2)(b, a, N, s));
    OK(CALL(cuMemcpyHtoDAsync_v2)(b, from, 16, s));
    OK(CALL(cuMemcpyDtoHAsync_v2)(to, b, N, s));
    OK(CALL(cuStreamSynchronize)(s));
    TEST_ASSERT_EQUAL_MEMORY(from, to, N);
    OK(CALL(cuMemFree_v2)(a));
    OK(CALL(cuMemFree_v2)(b));
    OK(CALL(cuStreamDestroy_v2)(s));
    free(from);
    free(to);
}

int main(void)
{
    setenv("TALLY_DEVICE_PCIE", "0", 1);
    open_driver();
    use_device();
    OK(CALL(cuMemAlloc_v2)(&device, 4096));
    OK(CALL(cuMemHostAlloc)((void **)&words, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(CALL(cuMemHostGetDevicePointer_v2)(&host, words, 0));
    OK(CALL(cuModuleLoadData)(&module, ptx));
    UNITY_BEGIN();
    RUN_TEST(loads_that_do_not_need_each_other_are_waited_for_once);
    RUN_TEST(loads_that_need_each_other_are_waited_for_one_by_one);
    RUN_TEST(what_is_not_executed_is_not_counted);
    RUN_TEST(stores_are_counted_and_not_waited_for);
    RUN_TEST(atomics_are_waited_for_and_reductions_are_not);
    RUN_TEST(memory_of_the_device_is_not_behind_the_bus);
    RUN_TEST(a_registered_page_is_behind_the_bus);
    RUN_TEST(copies_on_engines_copy);
    return UNITY_END();
}

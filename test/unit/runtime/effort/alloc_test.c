/* Memory that a stream has freed is there for its next allocation, also while the free is queued
 * behind a kernel that has not ended; on a device that has room for one of the two only. */
#include "job.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { BLOCKS = 64, MIB = 1 << 20, MOST = 40 * MIB };
static CUfunction kernel;
static CUdeviceptr counter, flag;
static _Atomic uint32_t *flag_word;
static CUstream stream, other;
static uint32_t turn;

void setUp(void)
{
    OK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(CALL(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    turn++;
}

void tearDown(void)
{
    OK(CALL(cuStreamDestroy_v2)(stream));
    OK(CALL(cuStreamDestroy_v2)(other));
}

/* A kernel in pieces that cannot begin before the flag is up: what comes behind it stays queued. */
static void hold_up(CUstream s)
{
    void *params[] = {&counter};
    OK(CALL(cuStreamWaitValue32)(s, flag, turn, CU_STREAM_WAIT_VALUE_GEQ));
    OK(CALL(cuLaunchKernel)(kernel, BLOCKS, 1, 1, 1, 1, 1, 0, s, params, NULL));
}

static void let_go(void)
{
    atomic_store(flag_word, turn);
}

static void memory_of_a_queued_free_is_used_again(void)
{
    CUdeviceptr one, two = 0;
    uint32_t n, n_frees = 0, n_allocs = 0;
    OK(CALL(cuMemAllocAsync)(&one, MOST, stream));
    forget_calls();
    hold_up(stream);
    OK(CALL(cuMemFreeAsync)(one, stream));
    OK(CALL(cuMemAllocAsync)(&two, MOST, stream)); /* it does not wait: the flag is still down */
    TEST_ASSERT_EQUAL_UINT64(one, two);
    OK(CALL(cuMemsetD8Async)(two, 0x5a, MOST, stream));
    let_go();
    OK(CALL(cuStreamSynchronize)(stream));
    const struct witness_call *c = calls(&n);
    for (uint32_t i = 0; i < n; i++) {
        n_frees += c[i].kind == WITNESS_FREE;
        n_allocs += c[i].kind == WITNESS_ALLOC;
    }
    TEST_ASSERT_EQUAL_UINT32(0, n_frees);
    TEST_ASSERT_EQUAL_UINT32(0, n_allocs);
    uint8_t last = 0;
    OK(CALL(cuMemcpyDtoH_v2)(&last, two + MOST - 1, 1));
    TEST_ASSERT_EQUAL_HEX8(0x5a, last);
    OK(CALL(cuMemFreeAsync)(two, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2)(two)); /* it is free */
}

static void fewer_bytes_come_out_of_more_only_where_there_are_no_others(void)
{
    CUdeviceptr one, two = 0, three = 0;
    OK(CALL(cuMemAllocAsync)(&one, MOST, stream));
    hold_up(stream);
    OK(CALL(cuMemFreeAsync)(one, stream));
    OK(CALL(cuMemAllocAsync)(&two, MIB, stream)); /* the device has that much */
    TEST_ASSERT_NOT_EQUAL_UINT64(one, two);
    OK(CALL(cuMemAllocAsync)(&three, MOST - MIB, stream)); /* but not that */
    TEST_ASSERT_EQUAL_UINT64(one, three);
    let_go();
    OK(CALL(cuMemFreeAsync)(two, stream));
    OK(CALL(cuMemFreeAsync)(three, stream));
    OK(CALL(cuStreamSynchronize)(stream));
}

/* Lets the kernel go when the driver has said that there is no memory. */
static void *let_go_then(void *unused)
{
    for (bool was_refused = false; !was_refused; sched_yield()) {
        uint32_t n;
        const struct witness_call *c = calls(&n);
        for (uint32_t i = 0; i < n; i++)
            was_refused |= c[i].kind == WITNESS_ALLOC && c[i].result == CUDA_ERROR_OUT_OF_MEMORY;
    }
    let_go();
    return unused;
}

static void frees_of_other_streams_are_waited_for(void)
{
    CUdeviceptr one, two = 0;
    pthread_t thread;
    OK(CALL(cuMemAllocAsync)(&one, MOST, stream));
    OK(CALL(cuStreamSynchronize)(stream));
    forget_calls();
    hold_up(stream);
    OK(CALL(cuMemFreeAsync)(one, stream));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, let_go_then, NULL));
    OK(CALL(cuMemAllocAsync)(&two, MOST, other));
    pthread_join(thread, NULL);
    OK(CALL(cuMemFreeAsync)(two, other));
    OK(CALL(cuCtxSynchronize)());
}

static void without_frees_there_is_no_memory(void)
{
    CUdeviceptr one, two = 0;
    OK(CALL(cuMemAllocAsync)(&one, MOST, stream));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAllocAsync)(&two, MOST, stream));
    OK(CALL(cuMemFreeAsync)(one, stream));
    OK(CALL(cuStreamSynchronize)(stream));
}

static void prepare(void)
{
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .b32 %r<2>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [p];\n"
        "atom.global.add.u32 %r1, [%d1], 1;\nret;\n}\n";
    CUmodule module;
    void *p, *params[] = {&counter};
    OK(CALL(cuModuleLoadData)(&module, text));
    OK(CALL(cuModuleGetFunction)(&kernel, module, "k"));
    OK(CALL(cuMemAlloc_v2)(&counter, 4));
    OK(CALL(cuMemHostAlloc)(&p, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(CALL(cuMemHostGetDevicePointer_v2)(&flag, p, 0));
    flag_word = p;
    /* its form is built now, and not when the flag is waited for */
    OK(CALL(cuLaunchKernel)(kernel, BLOCKS, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CALL(cuCtxSynchronize)());
}

static int run(const char *profile, const char *rung)
{
    setenv("TALLY_DEVICE_MEM", "64M", 1);
    UNITY_BEGIN();
    begin_job(profile, rung);
    prepare();
    RUN_TEST(without_frees_there_is_no_memory);
    RUN_TEST(memory_of_a_queued_free_is_used_again);
    RUN_TEST(fewer_bytes_come_out_of_more_only_where_there_are_no_others);
    RUN_TEST(frees_of_other_streams_are_waited_for);
    int failed = UNITY_END();
    end_job();
    return failed;
}

int main(void)
{
    return each_job(run, (const char *const[]){"slice", "persistent", NULL});
}

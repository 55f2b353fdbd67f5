/* Managed memory of the software device: more of it than the device has, who gives way to whom, and
 * what it costs.  The other process is this program again. */
#include "test/unit/device/driver/help.h"

#include <sys/wait.h>
#include <time.h>

enum { MIB = 1 << 20, DEVICE = 32 * MIB };

static const char *self;

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

/* Adds one to each word; a block has 8192 of them. */
enum { BLOCK_BYTES = 32 << 10 };
static const char add_one[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry add_one(.param .u64 p)\n{\n"
                              ".reg .pred %q; .reg .b32 %r<9>; .reg .b64 %d<4>;\n"
                              "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r3, %tid.x; "
                              "mad.lo.u32 %r1, %r1, 8192, %r3;\n"
                              "mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2; mov.u32 %r5, 0;\n"
                              "L: ld.global.u32 %r4, [%d2]; add.u32 %r4, %r4, 1; st.global.u32 "
                              "[%d2], %r4; add.u64 %d2, %d2, 512;\n"
                              "add.u32 %r5, %r5, 1; setp.lt.u32 %q, %r5, 64; @%q bra L;\n"
                              "ret;\n}\n";

static void add_one_to(CUdeviceptr d, size_t bytes)
{
    CUmodule m;
    CUfunction f;
    void *args[] = {&d};
    OK(CALL(cuModuleLoadData)(&m, add_one));
    OK(CALL(cuModuleGetFunction)(&f, m, "add_one"));
    OK(CALL(cuLaunchKernel)(f, (unsigned)(bytes / BLOCK_BYTES), 1, 1, 128, 1, 1, 0, NULL, args,
                            NULL));
    OK(CALL(cuCtxSynchronize)());
    OK(CALL(cuModuleUnload)(m));
}

static size_t free_bytes(void)
{
    size_t left, all;
    OK(CALL(cuMemGetInfo_v2)(&left, &all));
    TEST_ASSERT_EQUAL_UINT64(DEVICE, all);
    return left;
}

/* All words are `value` plus their number. */
static void check_words(CUdeviceptr d, size_t bytes, unsigned value)
{
    static unsigned words[MIB / 4];
    for (size_t at = 0; at < bytes; at += sizeof words) {
        OK(CALL(cuMemcpyDtoH_v2)(words, d + at, sizeof words));
        for (size_t i = 0; i < sizeof words / 4; i++)
            if (words[i] != value + (unsigned)(at / 4 + i))
                TEST_ASSERT_EQUAL_UINT(value + (unsigned)(at / 4 + i), words[i]);
    }
}

static void write_words(CUdeviceptr d, size_t bytes)
{
    static unsigned words[MIB / 4];
    for (size_t at = 0; at < bytes; at += sizeof words) {
        for (size_t i = 0; i < sizeof words / 4; i++)
            words[i] = (unsigned)(at / 4 + i);
        OK(CALL(cuMemcpyHtoD_v2)(d + at, words, sizeof words));
    }
}

static void a_job_of_three_times_the_device_computes_what_it_should(void)
{
    CUdeviceptr d;
    OK(CALL(cuMemAllocManaged)(&d, 3 * DEVICE, CU_MEM_ATTACH_GLOBAL));
    write_words(d, 3 * DEVICE);
    for (unsigned round = 1; round <= 2; round++)
        add_one_to(d, 3 * DEVICE);
    check_words(d, 3 * DEVICE, 2);
    OK(CALL(cuMemFree_v2)(d));
    TEST_ASSERT_EQUAL_UINT64(DEVICE, free_bytes());
}

static void memory_without_pages_is_still_refused_beyond_the_device(void)
{
    CUdeviceptr d;
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAlloc_v2)(&d, DEVICE + MIB));
}

static void plain_memory_takes_the_place_of_pages(void)
{
    CUdeviceptr pages, plain;
    OK(CALL(cuMemAllocManaged)(&pages, 24 * MIB, CU_MEM_ATTACH_GLOBAL));
    write_words(pages, 24 * MIB);
    TEST_ASSERT_EQUAL_UINT64(8 * MIB, free_bytes());
    OK(CALL(cuMemAlloc_v2)(&plain, 28 * MIB));
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(4 * MIB, free_bytes());
    write_words(plain, 28 * MIB);
    add_one_to(pages, 24 * MIB); /* through the four mebibytes that are left */
    add_one_to(plain, 28 * MIB);
    check_words(pages, 24 * MIB, 1);
    check_words(plain, 28 * MIB, 1);
    OK(CALL(cuMemFree_v2)(plain));
    OK(CALL(cuMemFree_v2)(pages));
}

static void the_host_reads_and_writes_pages_wherever_they_are(void)
{
    CUdeviceptr d;
    OK(CALL(cuMemAllocManaged)(&d, 2 * DEVICE, CU_MEM_ATTACH_GLOBAL));
    unsigned *words = (unsigned *)d; /* NOLINT(performance-no-int-to-ptr) */
    for (size_t i = 0; i < 2 * DEVICE / 4; i += 1024)
        words[i] = (unsigned)i;
    add_one_to(d, 2 * DEVICE);
    for (size_t i = 0; i < 2 * DEVICE / 4; i += 1024) {
        TEST_ASSERT_EQUAL_UINT(i + 1, words[i]);
        TEST_ASSERT_EQUAL_UINT(1, words[i + 1]);
    }
    OK(CALL(cuMemFree_v2)(d));
}

static void pages_go_and_come_when_asked_to(void)
{
    CUdeviceptr d;
    OK(CALL(cuMemAllocManaged)(&d, 16 * MIB, CU_MEM_ATTACH_GLOBAL));
    write_words(d, 16 * MIB);
    TEST_ASSERT_EQUAL_UINT64(DEVICE - 16 * MIB, free_bytes());
    OK(CALL(cuMemPrefetchAsync)(d, 16 * MIB, CU_DEVICE_CPU, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT64(DEVICE, free_bytes());
    OK(CALL(cuMemPrefetchAsync)(d, 16 * MIB, 0, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT64(DEVICE - 16 * MIB, free_bytes());
    check_words(d, 16 * MIB, 0);
    OK(CALL(cuMemFree_v2)(d));
}

/* It asks for so much that what prefers to be elsewhere has to go, and what wants to stay does
 * not. */
static void pages_that_prefer_the_device_stay_before_others(void)
{
    CUdeviceptr firm, soft;
    int where;
    OK(CALL(cuMemAllocManaged)(&firm, 20 * MIB, CU_MEM_ATTACH_GLOBAL));
    OK(CALL(cuMemAdvise)(firm, 20 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
    OK(CALL(cuMemRangeGetAttribute)(&where, sizeof where, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                    firm, 20 * MIB));
    TEST_ASSERT_EQUAL_INT(0, where);
    write_words(firm, 20 * MIB);
    OK(CALL(cuMemAllocManaged)(&soft, 40 * MIB, CU_MEM_ATTACH_GLOBAL));
    write_words(soft, 40 * MIB);
    add_one_to(soft, 40 * MIB);
    /* All of it is still there: sending the soft ones away leaves just that. */
    OK(CALL(cuMemPrefetchAsync)(soft, 40 * MIB, CU_DEVICE_CPU, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT64(DEVICE - 20 * MIB, free_bytes());
    check_words(soft, 40 * MIB, 1);
    check_words(firm, 20 * MIB, 0);
    OK(CALL(cuMemFree_v2)(soft));
    OK(CALL(cuMemFree_v2)(firm));
}

/* --- another process -------------------------------------------------------------------------- */

/* The child takes plain memory that is not free, and says so; then it waits until it may end. */
static int child(void)
{
    CUdeviceptr d;
    CUcontext ctx;
    char letter;
    if (CALL(cuInit)(0) != CUDA_SUCCESS ||
        CALL(cuDevicePrimaryCtxRetain)(&ctx, 0) != CUDA_SUCCESS ||
        CALL(cuCtxSetCurrent)(ctx) != CUDA_SUCCESS)
        return 3;
    if (CALL(cuMemAlloc_v2)(&d, 24 * MIB) != CUDA_SUCCESS)
        return 4;
    if (CALL(cuMemsetD8_v2)(d, 1, 24 * MIB) != CUDA_SUCCESS ||
        CALL(cuCtxSynchronize)() != CUDA_SUCCESS)
        return 5;
    if (write(STDOUT_FILENO, "t", 1) != 1 || read(STDIN_FILENO, &letter, 1) != 1)
        return 6;
    return 0;
}

static void pages_give_way_to_another_process_and_come_back(void)
{
    int to[2], from[2], status;
    char letter;
    CUdeviceptr d;
    TEST_ASSERT_EQUAL_INT(0, pipe(to));
    TEST_ASSERT_EQUAL_INT(0, pipe(from));
    OK(CALL(cuMemAllocManaged)(&d, 30 * MIB, CU_MEM_ATTACH_GLOBAL));
    write_words(d, 30 * MIB);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        execl(self, self, "child", (char *)NULL);
        _exit(9);
    }
    TEST_ASSERT_EQUAL_INT(1, read(from[0], &letter, 1));
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(8 * MIB, free_bytes());
    add_one_to(d, 30 * MIB); /* beside it, in what is left */
    check_words(d, 30 * MIB, 1);
    TEST_ASSERT_EQUAL_INT(1, write(to[1], "e", 1));
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status));
    TEST_ASSERT_EQUAL_INT(0, WEXITSTATUS(status));
    OK(CALL(cuMemPrefetchAsync)(d, 30 * MIB, 0, NULL));
    OK(CALL(cuCtxSynchronize)());
    TEST_ASSERT_EQUAL_UINT64(2 * MIB, free_bytes());
    check_words(d, 30 * MIB, 1);
    OK(CALL(cuMemFree_v2)(d));
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
}

/* At 1 GiB per second, 16 MiB to the host take a 64th of a second, whatever the machine. */
static void moving_takes_the_time_of_the_bus(void)
{
    struct timespec begin, end;
    CUdeviceptr d;
    OK(CALL(cuMemAllocManaged)(&d, 16 * MIB, CU_MEM_ATTACH_GLOBAL));
    write_words(d, 16 * MIB);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    OK(CALL(cuMemPrefetchAsync)(d, 16 * MIB, CU_DEVICE_CPU, NULL));
    OK(CALL(cuCtxSynchronize)());
    clock_gettime(CLOCK_MONOTONIC, &end);
    double s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
    /* a model's time, so it is a bound from below and no measurement */
    TEST_ASSERT_TRUE(s >= 1.0 / 64);
    OK(CALL(cuMemFree_v2)(d));
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1) {
        char name[64];
        snprintf(name, sizeof name, "%s", getenv("TALLY_DEVICE_NAME"));
        open_driver();
        setenv("TALLY_DEVICE_NAME", name, 1);
        return child();
    }
    open_driver();
    setenv("TALLY_DEVICE_MEM", "32M", 1);
    setenv("TALLY_DEVICE_BUS", "1G", 1);
    UNITY_BEGIN();
    RUN_TEST(a_job_of_three_times_the_device_computes_what_it_should);
    RUN_TEST(memory_without_pages_is_still_refused_beyond_the_device);
    RUN_TEST(plain_memory_takes_the_place_of_pages);
    RUN_TEST(the_host_reads_and_writes_pages_wherever_they_are);
    RUN_TEST(pages_go_and_come_when_asked_to);
    RUN_TEST(pages_that_prefer_the_device_stay_before_others);
    RUN_TEST(pages_give_way_to_another_process_and_come_back);
    RUN_TEST(moving_takes_the_time_of_the_bus);
    return UNITY_END();
}

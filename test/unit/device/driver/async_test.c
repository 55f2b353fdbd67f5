/* Barrier objects in shared memory, and the copies that signal them. */
#include "test/unit/device/driver/help.h"

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

#define N 96

/* Runs `k(out, in)` with one block of N threads; in[i] is 1000 + i, out[] has 4 N words, all 7
 * before. */
static CUresult run(const char *body, unsigned *out)
{
    static char text[16384];
    CUmodule m;
    CUfunction f;
    CUdeviceptr d, in;
    unsigned values[4 * N];
    /* %r1: the thread's number; %d1: where its word of out is, %d2: that of in; %d3, %d4: where
     * both begin. */
    snprintf(
        text, sizeof text,
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param "
        ".u64 q)\n{\n"
        ".reg .pred %%p<9>; .reg .b16 %%h<4>; .reg .b32 %%r<30>; .reg .b64 %%d<30>;\n"
        ".shared .align 128 .b8 sh[1024]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;\n"
        "ld.param.u64 %%d3, [p]; ld.param.u64 %%d4, [q]; mov.u32 %%r1, %%tid.x; mul.wide.u32 %%d5, "
        "%%r1, 4;\n"
        "add.u64 %%d1, %%d3, %%d5; add.u64 %%d2, %%d4, %%d5; setp.eq.u32 %%p1, %%r1, "
        "0;\n%s\nret;\n}\n",
        body);
    for (unsigned i = 0; i < 4 * N; i++)
        values[i] = 1000 + i;
    OK(CALL(cuModuleLoadData)(&m, text));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuMemAlloc_v2)(&d, sizeof values));
    OK(CALL(cuMemAlloc_v2)(&in, sizeof values));
    OK(CALL(cuMemsetD32_v2)(d, 7, 4 * N));
    OK(CALL(cuMemcpyHtoD_v2)(in, values, sizeof values));
    void *args[] = {&d, &in};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, N, 1, 1, 0, NULL, args, NULL));
    CUresult r = CALL(cuCtxSynchronize)();
    if (r == CUDA_SUCCESS) {
        OK(CALL(cuMemcpyDtoH_v2)(out, d, sizeof values));
        OK(CALL(cuMemFree_v2)(d));
        OK(CALL(cuMemFree_v2)(in));
        OK(CALL(cuModuleUnload)(m));
    }
    return r;
}

#define INIT(n) "@%p1 mbarrier.init.shared.b64 [bar], " #n "; bar.sync 0;\n"
#define SPIN(name, test) name ": " test " @!%p2 bra " name ";\n"

/* clang-format off */
static const char meeting[] =
    INIT(96)
    "mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, sh; add.u32 %r3, %r3, %r2;\n"
    "sub.u32 %r4, 95, %r1; mul.lo.u32 %r4, %r4, 4; mov.u32 %r5, sh; add.u32 %r4, %r4, %r5;\n"
    "st.shared.u32 [%r3], %r1;\n"
    "mbarrier.arrive.shared.b64 %d6, [bar];\n"
    SPIN("A", "mbarrier.test_wait.shared.b64 %p2, [bar], %d6;")
    "ld.shared.u32 %r6, [%r4]; add.u32 %r6, %r6, %r1;\n"
    "mbarrier.arrive.release.cta.shared::cta.b64 _, [bar];\n"
    SPIN("B", "mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 1;")
    "st.shared.u32 [%r3], %r6;\n"
    "cvta.shared.u64 %d8, 0; mov.u64 %d7, bar; add.u64 %d7, %d7, %d8;\n"
    "mbarrier.arrive.b64 %d6, [%d7];\n"
    SPIN("C", "mbarrier.try_wait.b64 %p2, [%d7], %d6, 1000;")
    "ld.shared.u32 %r7, [%r4]; add.u32 %r7, %r7, %r6; st.global.u32 [%d1], %r7;\n";
/* clang-format on */

/* Three phases, with words handed on in each; waiting by state, by parity, and with a limit. */
static void threads_meet_at_an_object(void)
{
    unsigned out[4 * N];
    OK(run(meeting, out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(190, out[i]);
}

/* Counts: arrivals of several, those that drop out, pending ones in a state, parity from phase to
 * phase. */
static void an_object_counts_arrivals(void)
{
    unsigned out[4 * N];
    OK(run("@!%p1 bra DONE; mbarrier.init.shared.b64 [bar], 5;\n"
           "mbarrier.arrive.shared.b64 %d6, [bar]; mbarrier.pending_count.b64 %r2, %d6; "
           "st.global.u32 [%d3], %r2;\n"
           "mbarrier.arrive.noComplete.shared.b64 %d6, [bar], 2; mbarrier.pending_count.b64 %r2, "
           "%d6; st.global.u32 "
           "[%d3+4], %r2;\n"
           "mbarrier.arrive_drop.shared.b64 %d6, [bar]; mbarrier.pending_count.b64 %r2, %d6; "
           "st.global.u32 [%d3+8], %r2;\n"
           "mbarrier.test_wait.shared.b64 %p2, [bar], %d6; selp.u32 %r2, 1, 0, %p2; st.global.u32 "
           "[%d3+12], %r2;\n"
           "mbarrier.test_wait.parity.shared.b64 %p2, [bar], 1; selp.u32 %r2, 1, 0, %p2; "
           "st.global.u32 [%d3+16], %r2;\n"
           "mbarrier.arrive.shared.b64 %d7, [bar];\n"
           "mbarrier.test_wait.shared.b64 %p2, [bar], %d6; selp.u32 %r2, 1, 0, %p2; st.global.u32 "
           "[%d3+20], %r2;\n"
           "mbarrier.test_wait.parity.shared.b64 %p2, [bar], 1; selp.u32 %r2, 1, 0, %p2; "
           "st.global.u32 [%d3+24], %r2;\n"
           "mbarrier.arrive.shared.b64 %d7, [bar]; mbarrier.pending_count.b64 %r2, %d7; "
           "st.global.u32 [%d3+28], %r2;\n"
           "mbarrier.inval.shared.b64 [bar];\n"
           "DONE:",
           out));
    static const unsigned want[] = {5, 4, 2, 0, 1, 1, 0, 4};
    for (unsigned i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_UINT_MESSAGE(want[i], out[i], "word");
    TEST_ASSERT_EQUAL_UINT(7, out[8]);
}

/* A phase does not end before its bytes have come, whoever says so. */
static void an_object_waits_for_bytes(void)
{
    unsigned out[4 * N];
    OK(run("@!%p1 bra DONE; mbarrier.init.shared.b64 [bar], 1;\n"
           "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 64;\n"
           "mbarrier.arrive.expect_tx.shared.b64 %d6, [bar], 16;\n"
           "mbarrier.test_wait.shared.b64 %p2, [bar], %d6; selp.u32 %r2, 1, 0, %p2; st.global.u32 "
           "[%d3], %r2;\n"
           "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 48;\n"
           "mbarrier.test_wait.shared.b64 %p2, [bar], %d6; selp.u32 %r2, 1, 0, %p2; st.global.u32 "
           "[%d3+4], %r2;\n"
           "mov.u32 %r3, 77; mov.u32 %r4, 88;\n"
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [sh], {%r3, %r4}, "
           "[bar];\n"
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [sh+8], %r3, [bar];\n"
           "st.shared.u32 [sh+12], 5; mov.u64 %d8, 9;\n"
           "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
           "[sh+12], %r4, [bar];\n"
           "st.shared.u64 [sh+16], %d8;\n"
           "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 "
           "[sh+16], %d8, [bar];\n"
           "mbarrier.test_wait.shared.b64 %p2, [bar], %d6; selp.u32 %r2, 1, 0, %p2; st.global.u32 "
           "[%d3+8], %r2;\n"
           "mbarrier.complete_tx.shared.b64 [bar], 8;\n"
           "mbarrier.test_wait.shared.b64 %p2, [bar], %d6; selp.u32 %r2, 1, 0, %p2; st.global.u32 "
           "[%d3+12], %r2;\n"
           "ld.shared.u32 %r2, [sh]; st.global.u32 [%d3+16], %r2; ld.shared.u32 %r2, [sh+4]; "
           "st.global.u32 [%d3+20], "
           "%r2;\n"
           "ld.shared.u32 %r2, [sh+8]; st.global.u32 [%d3+24], %r2; ld.shared.u32 %r2, [sh+12]; "
           "st.global.u32 "
           "[%d3+28], %r2; ld.shared.u32 %r2, [sh+16]; st.global.u32 [%d3+32], %r2;\n"
           "DONE:",
           out));
    static const unsigned want[] = {0, 0, 0, 1, 77, 88, 77, 93, 18};
    for (unsigned i = 0; i < 9; i++)
        TEST_ASSERT_EQUAL_UINT_MESSAGE(want[i], out[i], "word");
}

/* One thread fetches for all, as programs for recent GPUs do; then the block's shared memory goes
 * back. */
static void one_thread_copies_for_all(void)
{
    unsigned out[4 * N];
    OK(run(
        INIT(
            1) "fence.proxy.async.shared::cta; mov.u32 %r2, -1; setp.lt.u32 %p4, %r1, 32; @!%p4 "
               "bra WAIT;\n"
               "elect.sync %r3|%p3, -1; @!%p3 bra WAIT;\n"
               "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 384;\n"
               "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [sh], [%d4], "
               "256, [bar];\n"
               "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [sh+256], [%d4+512], "
               "128, [bar];\n" SPIN("WAIT", "mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], "
                                            "0;") "cvt.u32.u64 %r4, %d5; mov.u32 %r5, sh; "
                                                  "add.u32 %r5, %r5, %r4; ld.shared.u32 "
                                                  "%r6, [%r5];\n"
                                                  "add.u32 %r6, %r6, 1; st.shared.u32 "
                                                  "[%r5], %r6; fence.proxy.async; bar.sync "
                                                  "0; @!%p1 bra OVER;\n"
                                                  "cp.async.bulk.global.shared::cta.bulk_"
                                                  "group [%d3], [sh], 384; "
                                                  "cp.async.bulk.commit_group;\n"
                                                  "add.u64 %d9, %d3, 384;\n"
                                                  "cp.reduce.async.bulk.global.shared::cta."
                                                  "bulk_group.add.u32 [%d9], [sh], 384;\n"
                                                  "cp.async.bulk.prefetch.L2.global [%d4], "
                                                  "64; cp.async.bulk.commit_group;\n"
                                                  "cp.async.bulk.wait_group.read 0; "
                                                  "cp.async.bulk.wait_group 0;\n"
                                                  "OVER: griddepcontrol.wait; "
                                                  "setmaxnreg.inc.sync.aligned.u32 96;",
        out));
    for (unsigned i = 0; i < N; i++) {
        unsigned value = 1001 + (i < 64 ? i : i + 64);
        TEST_ASSERT_EQUAL_UINT(value, out[i]);
        TEST_ASSERT_EQUAL_UINT(value + 7, out[N + i]);
    }
}

/* Copies of single threads, with the arrival behind them. */
static void small_copies_arrive(void)
{
    unsigned out[4 * N];
    OK(run(
        INIT(96) "cvt.u32.u64 %r4, %d5; mov.u32 %r5, sh; add.u32 %r5, %r5, %r4;\n"
                 "cp.async.ca.shared.global [%r5], [%d2], 4; cp.async.mbarrier.arrive.shared.b64 "
                 "[bar];\n"
                 "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\n" SPIN(
                     "WAIT",
                     "mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;") "xor.b32 %r6, %r1, 33; "
                                                                            "mul.lo.u32 %r6, "
                                                                            "%r6, 4; mov.u32 %r7, "
                                                                            "sh; add.u32 %r6, "
                                                                            "%r6, %r7;\n"
                                                                            "setp.lt.u32 %p3, %r1, "
                                                                            "64; @!%p3 "
                                                                            "mov.u32 %r6, %r5; "
                                                                            "ld.shared.u32 %r8, "
                                                                            "[%r6]; st.global.u32 "
                                                                            "[%d1], %r8;\n",
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(1000 + (i < 64 ? i ^ 33 : i), out[i]);
}

/* A lane waits for others of its own warp, which come only later. */
static void lanes_of_a_warp_may_wait_for_each_other(void)
{
    unsigned out[4 * N];
    OK(run(INIT(95) "@!%p1 bra OTHERS;\n" SPIN("WAIT",
                                               "mbarrier.try_wait.parity.shared.b64 %p2, [bar], "
                                               "0;") "st.global.u32 [%d1], 5; bra.uni DONE;\n"
                                                     "OTHERS: mbarrier.arrive.shared.b64 %d6, "
                                                     "[bar]; st.global.u32 [%d1], 6;\n"
                                                     "DONE:",
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i == 0 ? 5 : 6, out[i]);
}

/* 16 bytes at once: loaded, stored, exchanged, compared. */
static void words_of_sixteen_bytes(void)
{
    unsigned out[4 * N];
    OK(run(".reg .b128 %q<8>; setp.lt.u32 %p2, %r1, 24; @!%p2 bra DONE; mul.wide.u32 %d6, %r1, 16; "
           "add.u64 %d7, %d3, %d6; "
           "add.u64 %d8, %d4, %d6;\n"
           "ld.global.b128 %q1, [%d8]; and.b32 %r2, %r1, 1; setp.ne.u32 %p3, %r2, 0;\n"
           "@%p3 st.global.b128 [%d7], %q1; @%p3 bra DONE;\n"
           "mov.b128 {%d9, %d10}, %q1; add.u64 %d10, %d10, 5; mov.b128 %q2, {%d9, %d10};\n"
           /* sees 7s, then q1 */
           "atom.global.exch.b128 %q3, [%d7], %q1; atom.global.cas.b128 %q4, [%d7], %q1, %q2;\n"
           "mov.b128 {%d11, %d12}, %q3; mov.b128 {%d13, %d14}, %q4; sub.u64 %d14, %d10, %d14;\n"
           "ld.relaxed.gpu.global.b128 %q5, [%d7]; mov.b128 {%d15, %d16}, %q5; add.u64 %d16, %d16, "
           "%d14; add.u64 %d15, "
           "%d15, "
           "%d11;\n"
           "mov.b128 %q6, {%d15, %d16}; st.relaxed.gpu.global.b128 [%d7], %q6;\n"
           "DONE:",
           out));
    for (unsigned i = 0; i < 96; i++) {
        unsigned lane = i / 4, part = i % 4, plain = 1000 + i;
        if (lane % 2 == 1)
            TEST_ASSERT_EQUAL_UINT(plain, out[i]);
        else /* the lower half has the sevens of before added, the upper twice five */
            TEST_ASSERT_EQUAL_UINT(part < 2 ? plain + 7 : part == 2 ? plain + 10 : plain, out[i]);
    }
}

static void shared_memory_is_cleared(void)
{
    unsigned out[4 * N];
    OK(run("cvt.u32.u64 %r4, %d5; mov.u32 %r5, sh; add.u32 %r5, %r5, %r4; st.shared.u32 [%r5], 9; "
           "bar.sync 0;\n"
           "@%p1 st.bulk.weak.shared::cta [sh+64], 128, 0; bar.sync 0; ld.shared.u32 %r6, [%r5]; "
           "st.global.u32 [%d1], "
           "%r6;",
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i >= 16 && i < 48 ? 0 : 9, out[i]);
}

static void what_cannot_be_is_an_error(void)
{
    unsigned out[4 * N];
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        run("mbarrier.init.shared.b64 [bar], 3; mbarrier.arrive.shared.b64 %d6, [bar], 4;", out));
    CALL(cuDevicePrimaryCtxReset_v2)(0);
    use_device();
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_MISALIGNED_ADDRESS,
                          run("mbarrier.init.shared.b64 [sh+4], 3;", out));
    CALL(cuDevicePrimaryCtxReset_v2)(0);
    use_device();
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_MISALIGNED_ADDRESS,
        run("cp.async.bulk.global.shared::cta.bulk_group [%d3+4], [sh], 32;", out));
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(threads_meet_at_an_object);
    RUN_TEST(an_object_counts_arrivals);
    RUN_TEST(an_object_waits_for_bytes);
    RUN_TEST(one_thread_copies_for_all);
    RUN_TEST(small_copies_arrive);
    RUN_TEST(lanes_of_a_warp_may_wait_for_each_other);
    RUN_TEST(words_of_sixteen_bytes);
    RUN_TEST(shared_memory_is_cleared);
    RUN_TEST(what_cannot_be_is_an_error);
    return UNITY_END();
}

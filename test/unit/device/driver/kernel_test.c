/* Small kernels of which no single instruction is the point: ways through them that compilers
 * rarely take. */
#include "test/unit/device/driver/kernel.h"

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

static void a_guarded_branch_through_a_table_falls_through(void)
{
    unsigned out[N];
    OK(run(BEGIN
           "t: .branchtargets L0, L1, L2, L1;\n"
           "and.b32 %r4, %r1, 3; and.b32 %r5, %r1, 8; setp.ne.u32 %p1, %r5, 0; mov.u32 %r6, 9;\n"
           "@%p1 brx.idx %r4, t;\n"
           "add.u32 %r6, %r6, 1000; bra.uni DONE;\n"
           "L0: add.u32 %r6, %r6, 10; bra.uni DONE;\n"
           "L1: add.u32 %r6, %r6, 20; bra.uni DONE;\n"
           "L2: add.u32 %r6, %r6, 30;\n"
           "DONE: st.global.u32 [%d1], %r6;\n" END,
           out));
    static const unsigned add[4] = {10, 20, 30, 20};
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(9 + ((i & 8) != 0 ? add[i & 3] : 1000), out[i]);
}

/* The first warp waits for the second one, which no barrier lets pass it. */
static void a_warp_may_wait_for_another_one_between_barriers(void)
{
    unsigned out[N];
    OK(run(BEGIN "bar.sync 0; mul.wide.u32 %d3, %r3, 4; sub.u64 %d3, %d1, %d3; setp.ge.u32 %p1, "
                 "%r3, 32; @%p1 bra WRITE;\n"
                 "WAIT: ld.volatile.global.u32 %r4, [%d3+160]; setp.eq.u32 %p2, %r4, 7; @%p2 bra "
                 "WAIT; bra.uni MEET;\n"
                 "WRITE: mov.u32 %r4, 11; st.volatile.global.u32 [%d1], %r4;\n"
                 "MEET: bar.sync 0; st.global.u32 [%d1], %r4;\n" END,
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(11, out[i]);
}

/* In a loop with a barrier all warps go together, so a strong load in it is no wait: what the
 * others wrote a round before is seen. */
static void strong_loads_between_barriers_see_what_was_written_before(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        /* %d3: the block's first word */
        "mul.wide.u32 %d3, %r3, 4; sub.u64 %d3, %d1, %d3; mov.u32 %r5, 0;\n"
        "xor.b32 %r6, %r3, 32; min.u32 %r6, %r6, 47; mul.wide.u32 %d4, %r6, 4; add.u64 %d4, %d3, "
        "%d4;\n"
        "mov.u32 %r4, 0; st.volatile.global.u32 [%d1], %r4;\n"
        "NEXT: bar.sync 0; ld.volatile.global.u32 %r4, [%d4]; bar.sync 0;\n"
        "add.u32 %r4, %r4, 1; st.volatile.global.u32 [%d1], %r4;\n"
        "add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5; @%p1 bra NEXT;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(5, out[i]);
}

static void a_shared_address_below_zero_comes_back_by_its_offset(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        "mov.u32 %r4, sh; shl.b32 %r5, %r3, 2; add.u32 %r6, %r4, %r5; st.shared.u32 [%r6], %r3; "
        "bar.sync 0;\n"
        "xor.b32 %r7, %r3, 5; shl.b32 %r7, %r7, 2; sub.u32 %r7, %r7, 200; add.u32 %r7, %r7, %r4;\n"
        "ld.shared.u32 %r8, [%r7+200]; st.global.u32 [%d1], %r8;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i % 48 ^ 5, out[i]);
}

/* Lanes may part on the way to the barrier, as far as one can see; but they do not, and the shuffle
 * behind it works. */
static void a_barrier_that_lanes_might_miss_does_not_forbid_shuffles(void)
{
    unsigned out[N];
    OK(run(BEGIN "ld.global.u32 %r4, [%d1]; setp.ne.u32 %p1, %r4, 7; @%p1 bra OTHER;\n"
                 "bar.sync 0; bra.uni DONE;\n"
                 "OTHER: add.u32 %r1, %r1, 500; bar.sync 1;\n"
                 "DONE: mov.u32 %r5, %laneid; xor.b32 %r6, %r5, 1;\n"
                 "shfl.sync.idx.b32 %r7, %r1, %r6, 31, -1; st.global.u32 [%d1], %r7;\n" END,
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i ^ 1, out[i]);
}

/* Lane by lane a value goes through shared memory, in a kernel whose barrier lanes might miss as
 * far as one can see: the barriers of the warp have to hold all the same. */
static void lanes_meet_at_barriers_of_their_warp(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        "ld.volatile.global.u32 %r4, [%d1]; mov.u32 %r5, 0; mov.u32 %r10, %laneid; mov.u32 %r11, "
        "1;\n"
        "shr.u32 %r12, %r3, 5; shl.b32 %r12, %r12, 2; mov.u32 %r13, sh; add.u32 %r13, %r13, %r12;\n"
        "LOOP: bar.sync 0;\n"
        "setp.ne.u32 %p1, %r10, %r5; @%p1 bra NEXT; st.shared.u32 [%r13], %r11; NEXT: "
        "bar.warp.sync -1;\n"
        "setp.le.u32 %p2, %r10, %r5; @%p2 bra AFTER; ld.shared.u32 %r14, [%r13]; add.u32 %r11, "
        "%r11, %r14;\n"
        "AFTER: bar.warp.sync -1; add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %r4; @%p3 bra LOOP;\n"
        "st.global.u32 [%d1], %r11;\n" END,
        out));
    for (unsigned i = 0; i < N; i++) {
        unsigned lane = i % 48 % 32;
        TEST_ASSERT_EQUAL_UINT(1U << (lane < 7 ? lane : 7), out[i]);
    }
}

/* Lanes that wait for others of their warp elsewhere: not done, but told. */
static void a_barrier_of_a_warp_that_some_lanes_miss_is_an_error(void)
{
    unsigned out[N];
    TEST_ASSERT_NOT_EQUAL(CUDA_SUCCESS,
                          run(BEGIN "and.b32 %r4, %r3, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra EVEN;\n"
                                    "st.shared.u32 [sh], %r1; bar.warp.sync -1; bra.uni DONE;\n"
                                    "EVEN: bar.warp.sync -1; ld.shared.u32 %r1, [sh];\n"
                                    "DONE: st.global.u32 [%d1], %r1;\n" END,
                              out));
    CALL(cuDevicePrimaryCtxReset_v2)(0);
}

/* copy[i - 1] with an unsigned index, by threads whose i is not 0: that of thread 0 would wrap, but
 * nobody asks for it. */
static void an_index_may_wrap_in_lanes_that_are_away(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        ".global .align 4 .u32 copy[96]; mov.u64 %d3, copy; mov.u32 %r4, %ctaid.x; mul.wide.u32 "
        "%d4, %r4, 192;\n"
        "add.u64 %d3, %d3, %d4; mul.wide.u32 %d5, %r3, 4; add.u64 %d5, %d3, %d5; st.global.u32 "
        "[%d5], %r1;\n"
        "bar.sync 0; setp.eq.u32 %p1, %r3, 0; @%p1 bra DONE;\n"
        "add.u32 %r5, %r3, -1; cvt.u64.u32 %d6, %r5; shl.b64 %d6, %d6, 2; add.u64 %d6, %d3, %d6;\n"
        "ld.global.u32 %r6, [%d6]; mul.wide.u32 %d7, %r5, 4; add.u64 %d7, %d3, %d7; ld.global.u32 "
        "%r7, [%d7];\n"
        "mad.lo.u32 %r7, %r7, 1000, %r6; st.global.u32 [%d1], %r7;\n"
        "DONE:\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i % 48 == 0 ? 7 : (i - 1) * 1001, out[i]);
}

static void a_cluster_of_one_block_is_that_block(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        "mov.u32 %r4, sh; shl.b32 %r5, %r3, 2; add.u32 %r6, %r4, %r5; st.shared.u32 [%r6], %r3;\n"
        "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
        "mov.u32 %r8, %cluster_ctarank; mapa.shared::cluster.u32 %r7, %r4, %r8;\n"
        "mov.u32 %r9, 47; sub.u32 %r9, %r9, %r3; shl.b32 %r9, %r9, 2; add.u32 %r7, %r7, %r9;\n"
        "ld.shared::cluster.u32 %r10, [%r7];\n"
        "mov.u32 %r11, %cluster_nctarank; mul.lo.u32 %r11, %r11, 1000; mov.u32 %r12, "
        "%clusterid.x;\n"
        "add.u32 %r10, %r10, %r11; mad.lo.u32 %r10, %r12, 100, %r10; st.global.u32 [%d1], "
        "%r10;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(1000 + i / 48 * 100 + 47 - i % 48, out[i]);
}

static void larger_clusters_are_refused(void)
{
    CUmodule m;
    CUfunction f;
    OK(CALL(cuModuleLoadData)(&m,
                              HEAD ".visible .entry k() .reqnctapercluster 2, 1, 1 { ret; }\n"));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                          CALL(cuLaunchKernel)(f, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    OK(CALL(cuModuleUnload)(m));
}

/* A structure that comes as a parameter, read through its address, at a place that differs from
 * lane to lane. */
static void a_parameter_of_a_call_has_an_address(void)
{
    unsigned out[N];
    OK(run(
        HEAD
        ".func (.param .b32 r) pick(.param .align 8 .b8 s[16], .param .b32 which)\n"
        "{ .reg .b32 %r<4>; .reg .b64 %d<5>;\n"
        "ld.param.u32 %r1, [which]; mov.b64 %d1, s; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, "
        "%d2;\n"
        "ld.param.u32 %r2, [%d3]; st.param.b32 [r], %r2; ret; }\n"
        ".visible .entry k(.param .u64 p)\n{\n"
        ".reg .b32 %r<9>; .reg .b64 %d<9>;\n"
        "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
        "mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;\n"
        "mul.lo.u32 %r4, %r1, 100; add.u32 %r5, %r4, 1; add.u32 %r6, %r4, 2; add.u32 %r7, %r4, 3; "
        "and.b32 %r8, "
        "%r1, 3;\n"
        "{ .param .align 8 .b8 a[16]; .param .b32 b; .param .b32 c;\n"
        "st.param.b32 [a], %r4; st.param.b32 [a+4], %r5; st.param.b32 [a+8], %r6; st.param.b32 "
        "[a+12], %r7;\n"
        "st.param.b32 [b], %r8; call.uni (c), pick, (a, b); ld.param.b32 %r5, [c]; }\n"
        "st.global.u32 [%d1], %r5; ret;\n}\n",
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i * 100 + (i & 3), out[i]);
}

/* A branch that all take alike, to where lanes have parted on another way. */
static void all_lanes_may_go_to_where_some_went_before(void)
{
    unsigned out[N];
    OK(run(BEGIN "mov.u32 %r9, %ctaid.x; setp.ne.u32 %p1, %r9, 0; mov.u32 %r6, 1; @%p1 bra ALL;\n"
                 "setp.ge.u32 %p2, %r3, 20; @%p2 bra LATE;\n"
                 "bra.uni PARTED;\n"
                 "ALL: and.b32 %r10, %r9, 2; setp.ne.u32 %p3, %r10, 0; @%p3 bra PARTED;\n"
                 "add.u32 %r6, %r6, 10;\n"
                 "PARTED: add.u32 %r6, %r6, %r3; bra.uni DONE;\n"
                 "LATE: add.u32 %r6, %r6, 500;\n"
                 "DONE: st.global.u32 [%d1], %r6;\n" END,
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i >= 48 ? 11 + i % 48 : i >= 20 ? 501 : 1 + i, out[i]);
}

/* Loads of eight bytes, and of two words at once, from places that the number of a word decides. */
static void a_misaligned_access_is_an_error(void)
{
    static const char *const access[] = {"ld.global.u64 %d3, [%d2];",
                                         "ld.global.v2.u32 {%r5, %r6}, [%d2];",
                                         "st.global.u64 [%d2], %d2;", "ld.u64 %d3, [%d2];"};
    unsigned out[N];
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned shift = 0; shift < 2; shift++) { /* lane 5 alone is wrong, or none is */
            char text[2000];
            snprintf(text, sizeof text,
                     "%sselp.b32 %%r4, %u, 0, %%p1; cvt.u64.u32 %%d3, %%r4;\n%s%s\n%s",
                     BEGIN "setp.eq.u32 %p1, %r3, 5; ld.param.u64 %d2, [p];\n", shift * 4,
                     "add.u64 %d2, %d2, %d3;\n", access[i], END);
            CUresult r = run(text, out);
            TEST_ASSERT_EQUAL_INT(shift == 0 ? CUDA_SUCCESS : CUDA_ERROR_MISALIGNED_ADDRESS, r);
            if (r != CUDA_SUCCESS) { /* the context has failed for good */
                OK(CALL(cuDevicePrimaryCtxReset_v2)(0));
                use_device();
                CALL(cuDevicePrimaryCtxRelease_v2)(0);
            }
        }
    }
}

/* Where an array of shared memory begins is known when compiling; what is added to that may spoil
 * it. */
static void a_misaligned_access_of_an_array_is_an_error(void)
{
    static const struct {
        const char *text;
        bool is_wrong;
    } access[] = {
        {"mov.u32 %r4, a; ld.shared.u64 %d3, [%r4+8];", false},
        {"mov.u32 %r4, a; ld.shared.u64 %d3, [%r4+4];", true},
        {"ld.shared.u64 %d3, [a+16];", false},
        {"ld.shared.u64 %d3, [a+20];", true},
        {"mov.u32 %r4, b; ld.shared.u64 %d3, [%r4];", true},
        {"mov.u32 %r4, b; ld.shared.u64 %d3, [%r4+4];", false},
        {"mov.u32 %r4, a; shl.b32 %r5, %r3, 3; add.u32 %r4, %r4, %r5; st.shared.u64 [%r4], %d1;",
         false},
        {"mov.u32 %r4, a; shl.b32 %r5, %r3, 3; add.u32 %r4, %r4, %r5; st.shared.u64 [%r4+2], %d1;",
         true},
        {"mov.u32 %r4, b; shl.b32 %r5, %r3, 3; add.u32 %r4, %r4, %r5; st.shared.u64 [%r4], %d1;",
         true},
        {"mov.u32 %r4, a; shl.b32 %r5, %r3, 2; add.u32 %r4, %r4, %r5; ld.shared.u64 %d3, [%r4];",
         true},
    };
    unsigned out[N];
    for (unsigned i = 0; i < sizeof access / sizeof access[0]; i++) {
        char text[2000];
        snprintf(text, sizeof text, "%s%s%s\n%s", BEGIN,
                 ".shared .align 16 .b8 a[4100]; .shared .align 4 .b8 b[4100];\n", access[i].text,
                 END);
        CUresult r = run(text, out);
        TEST_ASSERT_EQUAL_INT_MESSAGE(
            access[i].is_wrong ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_SUCCESS, r, access[i].text);
        if (r != CUDA_SUCCESS) { /* the context has failed for good */
            OK(CALL(cuDevicePrimaryCtxReset_v2)(0));
            use_device();
            CALL(cuDevicePrimaryCtxRelease_v2)(0);
        }
    }
}

static const char callee[] = HEAD
    ".func (.param .b32 r) twice(.param .b32 v)\n"
    "{ .reg .b32 %r<3>; ld.param.u32 %r1, [v]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; "
    "}\n"
    ".func (.param .b32 r) third(.param .b32 v)\n"
    "{ .reg .b32 %r<3>; ld.param.u32 %r1, [v]; div.u32 %r2, %r1, 3; st.param.b32 [r], %r2; ret; }\n"
    ".func other(.param .b64 v) { ret; }\n"
    ".global .align 8 .u64 table[4] = {twice, third, other, 0};\n"
    ".visible .entry k(.param .u64 p)\n{\n"
    ".reg .b32 %r<9>; .reg .b64 %d<9>;\n"
    "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;\n"
    "and.b32 %r4, %r1, $; mul.wide.u32 %d3, %r4, 8; mov.u64 %d4, table; add.u64 %d4, %d4, %d3;\n"
    "ld.global.u64 %d5, [%d4];\n"
    "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"
    "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
    "call (b), %d5, (a), proto; ld.param.b32 %r5, [b]; }\n"
    "st.global.u32 [%d1], %r5; ret;\n}\n";

static void lanes_call_what_their_pointers_say(void)
{
    char text[sizeof callee];
    unsigned out[N];
    strcpy(text, callee);
    *strchr(text, '$') = '1';
    OK(run(text, out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i % 2 == 0 ? 2 * i : i / 3, out[i]);
    strcpy(text, callee);
    *strchr(text, '$') = '3'; /* some go to a function of another kind, some to nothing */
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_ILLEGAL_ADDRESS, run(text, out));
}

/* Functions whose parameters and results are registers, called by lanes apart, with a number and
 * with memory. */
static void functions_get_and_give_back_registers(void)
{
    unsigned out[N];
    OK(run(
        HEAD
        ".func (.reg .u32 %q) less(.reg .u32 %a, .reg .u32 %b)\n{ .reg .pred %p; setp.lt.u32 %p, "
        "%a, %b; mov.u32 "
        "%q, %b; @!%p ret; add.u32 %a, %a, 1000; mov.u32 %q, %a; ret; }\n"
        ".func (.param .b32 r) twice(.param .b32 x)\n{ .reg .b32 %r<3>; ld.param.b32 %r1, [x]; "
        "add.u32 %r2, %r1, "
        "%r1; st.param.b32 [r], %r2; ret; }\n"
        ".visible .entry k(.param .u64 p)\n{\n"
        ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<9>;\n"
        "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
        "mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;\n"
        "and.b32 %r4, %r1, 3; setp.eq.u32 %p1, %r4, 0; mov.u32 %r5, 5; @%p1 bra DONE;\n"
        "call (%r5), less, (%r1, 40); call (%r5), twice, (%r5);\n"
        "DONE: st.global.u32 [%d1], %r5;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i % 4 == 0 ? 5 : 2 * (i < 40 ? i + 1000 : 40), out[i]);
}

static void a_vector_register_has_its_elements(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        ".reg .v4 .u32 %v; .reg .v2 .u32 %w; and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0;\n"
        "mov.v4.u32 %v, %ctaid; mov.u32 %v.y, %r1; @%p1 mov.u32 %v.z, 100; @!%p1 mov.u32 %v.z, "
        "%r3;\n"
        "mov.v2.u32 %w, {%v.y, %v.z}; bar.sync 0; mov.u32 %r5, sh; mad.lo.u32 %r5, %r3, 0, %r5;\n"
        "setp.eq.u32 %p2, %r3, 47; @%p2 st.shared.v2.u32 [%r5], %w; bar.sync 0;\n"
        "ld.shared.v2.u32 %w, [%r5]; add.u32 %r6, %w.x, %w.y; add.u32 %r6, %r6, %v.z; add.u32 %r6, "
        "%r6, %v.w;\n"
        "mad.lo.u32 %r6, %v.x, 10000, %r6; st.global.u32 [%d1], %r6;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(
            i / 48 * 10000 + (i / 48 * 48 + 47) + 100 + (i % 2 != 0 ? 100 : i % 48), out[i]);
}

/* Each lane takes another amount, a function takes more and gives it back. */
static void stack_memory_is_each_threads_own(void)
{
    unsigned out[N];
    OK(run(
        HEAD
        ".func (.param .b64 r) taken()\n{ .reg .b64 %d<4>; mov.u64 %d1, 512; alloca.u64 %d2, %d1; "
        "st.local.u32 "
        "[%d2], 77; st.param.b64 [r], %d2; ret; }\n"
        ".visible .entry k(.param .u64 p)\n{\n"
        ".reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<20>; .local .align 8 .b8 own[24];\n"
        "ld.param.u64 %d1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
        "mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;\n"
        "st.local.u32 [own], %r1; cvt.u64.u32 %d3, %r3; shl.b64 %d3, %d3, 3; add.u64 %d3, %d3, 4;\n"
        "alloca.u64 %d4, %d3, 16; st.local.u32 [%d4], %r1; mov.u32 %r4, 0;\n"
        "AGAIN: call (%d5), taken, (); add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 100; @%p1 bra "
        "AGAIN;\n"
        "stacksave.u64 %d6; mov.u64 %d7, 64; alloca.u64 %d8, %d7; stackrestore.u64 %d6; alloca.u64 "
        "%d9, %d7;\n"
        "and.b64 %d10, %d4, 15; cvt.u32.u64 %r5, %d10; sub.u64 %d11, %d9, %d8; cvt.u32.u64 %r6, "
        "%d11;\n"
        "ld.local.u32 %r7, [own]; ld.local.u32 %r8, [%d4]; add.u32 %r7, %r7, %r8; add.u32 %r7, "
        "%r7, %r5;\n"
        "add.u32 %r7, %r7, %r6; st.global.u32 [%d1], %r7;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(2 * i, out[i]);
    TEST_ASSERT_EQUAL_INT(
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        run(BEGIN "cvt.u64.u32 %d3, %r3; mul.lo.u64 %d3, %d3, 1000; alloca.u64 %d4, %d3;\n" END,
            out));
}

/* It keeps what launches leave in it, and is initialised once. */
static void a_variable_inside_of_a_function_lives_as_long_as_the_module(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    unsigned out[2];
    OK(CALL(cuModuleLoadData)(
        &m, HEAD ".func bump(.param .b64 p)\n{ .reg .b64 %d<3>; .reg .b32 %r<3>; .global .u32 "
                 "calls = 40; ld.param.b64 "
                 "%d1, [p]; atom.global.add.u32 %r1, [calls], 1; st.global.u32 [%d1], %r1; ret; }\n"
                 ".visible .entry k(.param .u64 p)\n{ .reg .b64 %d<3>; .reg .b32 %r<3>; .const "
                 ".u32 inside[2] = {5, 6};\n"
                 "ld.param.u64 %d1, [p]; { .global .u64 at = {0}; }\n"
                 "{ .param .b64 q; st.param.b64 [q], %d1; call bump, (q); } ld.const.u32 %r1, "
                 "[inside+4]; st.global.u32 "
                 "[%d1+4], %r1; ret; }\n"));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    OK(CALL(cuMemAlloc_v2)(&d, 8));
    void *args[] = {&d};
    for (unsigned i = 0; i < 3; i++) {
        /* Another block size is another compiled kernel, with the same variable. */
        OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, i + 1, 1, 0, NULL, args, NULL));
        OK(CALL(cuMemcpyDtoH_v2)(out, d, 8));
        TEST_ASSERT_EQUAL_UINT(6, out[1]);
    }
    TEST_ASSERT_TRUE(out[0] >= 40 + 1 + 2 && out[0] < 40 + 1 + 2 + 3);
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuModuleUnload)(m));
}

static const char named_images[] = HEAD
    ".global .texref colours;\n.global .surfref marks;\n.global .u64 other;\n"
    ".visible .entry k(.param .u64 p)\n{ .reg .b64 %d<4>; .reg .b32 %r<4>; .reg .f32 %f<9>;\n"
    "ld.param.u64 %d1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, "
    "%d2;\n"
    "cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f40C00000;\n" /* x = 6, 7, 8, ...; y = 1 */
    "tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [colours, {%f1, 0f3F800000}]; st.global.f32 "
    "[%d1], %f3; ret; }\n"
    ".visible .entry mark()\n{ .reg .b32 %r<4>; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2;\n"
    "sust.b.2d.b32.trap [marks, {%r2, 2}], {%r1}; ret; }\n";

static CUarray square_array(void)
{
    CUarray a = NULL;
    OK(CALL(cuArray3DCreate_v2)(
        &a, &(CUDA_ARRAY3D_DESCRIPTOR){8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST}));
    return a;
}

/* Bound to memory, then to an array, with another way to treat what is outside. */
static void textures_are_found_by_name(void)
{
    CUmodule m;
    CUfunction f;
    CUtexref t;
    CUdeviceptr d, in;
    float values[64], got[4];
    for (int i = 0; i < 64; i++)
        values[i] = (float)i;
    OK(CALL(cuModuleLoadData)(&m, named_images));
    OK(CALL(cuMemAlloc_v2)(&d, 32));
    OK(CALL(cuMemAlloc_v2)(&in, sizeof values));
    OK(CALL(cuMemcpyHtoD_v2)(in, values, sizeof values));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetTexRef)(&t, m, "other"));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetTexRef)(&t, m, "marks"));
    OK(CALL(cuModuleGetTexRef)(&t, m, "colours"));
    OK(CALL(cuTexRefSetAddress2D_v3)(
        t,
        &(CUDA_ARRAY_DESCRIPTOR){
            .Width = 8, .Height = 8, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1},
        in, 32));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    void *args[] = {&d};
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 4, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(got, d, 16));
    static const float clamped[4] = {14, 15, 15, 15}, bordered[4] = {14, 15, -1, -1};
    TEST_ASSERT_EQUAL_FLOAT_ARRAY(clamped, got, 4);
    CUarray a = square_array();
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = in,
                       .srcPitch = 32,
                       .srcHeight = 8,
                       .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                       .dstArray = a,
                       .WidthInBytes = 32,
                       .Height = 8,
                       .Depth = 1};
    OK(CALL(cuMemcpy3D_v2)(&c));
    OK(CALL(cuTexRefSetArray)(t, a, CU_TRSA_OVERRIDE_FORMAT));
    for (int i = 0; i < 2; i++)
        OK(CALL(cuTexRefSetAddressMode)(t, i, CU_TR_ADDRESS_MODE_BORDER));
    OK(CALL(cuTexRefSetBorderColor)(t, (float[4]){-1, -1, -1, -1}));
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 4, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(got, d, 16));
    TEST_ASSERT_EQUAL_FLOAT_ARRAY(bordered, got, 4);
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuArrayDestroy)(a));
    OK(CALL(cuMemFree_v2)(d));
    OK(CALL(cuMemFree_v2)(in));
}

static void a_surface_is_written_through_its_name(void)
{
    CUmodule m;
    CUfunction f;
    CUsurfref s;
    unsigned raw[64];
    CUarray a = square_array();
    OK(CALL(cuModuleLoadData)(&m, named_images));
    OK(CALL(cuModuleGetSurfRef)(&s, m, "marks"));
    OK(CALL(cuSurfRefSetArray)(s, a, 0));
    OK(CALL(cuModuleGetFunction)(&f, m, "mark"));
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 8, 1, 1, 0, NULL, NULL, NULL));
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                       .srcArray = a,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = raw,
                       .dstPitch = 32,
                       .dstHeight = 8,
                       .WidthInBytes = 32,
                       .Height = 8,
                       .Depth = 1};
    OK(CALL(cuMemcpy3D_v2)(&c));
    for (unsigned i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_UINT(i, raw[16 + i]);
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuArrayDestroy)(a));
}

static void a_kernel_with_a_parameter_that_is_not_there_is_refused(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr p;
    unsigned value = 3, out = 0;
    OK(CALL(cuMemAlloc_v2)(&p, 4));
    OK(CALL(cuModuleLoadData)(
        &m, HEAD ".visible .entry two(.param .u64 p, .param .u32 n) { .reg .b64 %d<2>; .reg .b32 "
                 "%r<2>; ld.param.u64 %d1, [p]; ld.param.u32 %r1, [n]; st.global.u32 [%d1], %r1; "
                 "ret; }"));
    OK(CALL(cuModuleGetFunction)(&f, m, "two"));
    void *args[] = {&p, &value}, *few[] = {&p, NULL};
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(CUDA_ERROR_INVALID_VALUE,
                          CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, few, NULL));
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(CALL(cuMemcpyDtoH_v2)(&out, p, 4));
    TEST_ASSERT_EQUAL_UINT(3, out);
    OK(CALL(cuModuleUnload)(m));
    OK(CALL(cuMemFree_v2)(p));
}

/* The others stand in front of it, and come along with it when it is compiled. */
static void a_kernel_that_names_others_is_not_taken_for_them(void)
{
    unsigned out[N];
    OK(run(HEAD ".visible .entry other(.param .u64 p)\n"
                "{ .reg .b64 %d<2>; ld.param.u64 %d1, [p]; st.global.u32 [%d1], 666; ret; }\n"
                ".visible .entry third(.param .u64 p)\n"
                "{ .reg .b64 %d<2>; ld.param.u64 %d1, [p]; st.global.u32 [%d1], 667; ret; }\n"
                ".visible .entry k(.param .u64 p)\n"
                "{ .reg .b64 %d<6>; .reg .b32 %r<5>; .reg .pred %p<2>; ld.param.u64 %d1, [p];\n"
                "mov.u64 %d2, other; mov.u64 %d5, third; setp.ne.u64 %p1, %d2, %d5;\n"
                "selp.u32 %r1, 5, 6, %p1;\n"
                "mov.u32 %r2, %tid.x; mul.wide.u32 %d3, %r2, 4; add.u64 %d1, %d1, %d3;\n"
                "st.global.u32 [%d1], %r1; ret; }\n",
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i < 48 ? 5 : 7, out[i]);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(a_guarded_branch_through_a_table_falls_through);
    RUN_TEST(a_warp_may_wait_for_another_one_between_barriers);
    RUN_TEST(strong_loads_between_barriers_see_what_was_written_before);
    RUN_TEST(a_shared_address_below_zero_comes_back_by_its_offset);
    RUN_TEST(a_barrier_that_lanes_might_miss_does_not_forbid_shuffles);
    RUN_TEST(an_index_may_wrap_in_lanes_that_are_away);
    RUN_TEST(lanes_meet_at_barriers_of_their_warp);
    RUN_TEST(a_barrier_of_a_warp_that_some_lanes_miss_is_an_error);
    RUN_TEST(a_cluster_of_one_block_is_that_block);
    RUN_TEST(larger_clusters_are_refused);
    RUN_TEST(a_parameter_of_a_call_has_an_address);
    RUN_TEST(all_lanes_may_go_to_where_some_went_before);
    RUN_TEST(a_misaligned_access_is_an_error);
    RUN_TEST(a_misaligned_access_of_an_array_is_an_error);
    RUN_TEST(lanes_call_what_their_pointers_say);
    RUN_TEST(functions_get_and_give_back_registers);
    RUN_TEST(textures_are_found_by_name);
    RUN_TEST(a_surface_is_written_through_its_name);
    RUN_TEST(a_vector_register_has_its_elements);
    RUN_TEST(stack_memory_is_each_threads_own);
    RUN_TEST(a_variable_inside_of_a_function_lives_as_long_as_the_module);
    RUN_TEST(a_kernel_with_a_parameter_that_is_not_there_is_refused);
    RUN_TEST(a_kernel_that_names_others_is_not_taken_for_them);
    return UNITY_END();
}

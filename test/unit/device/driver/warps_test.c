/* Warps that get ahead of each other between barriers, and lanes that get ahead of each other in a
 * warp: what programs rely on that no rule promises, and what the rules do promise. */
#include "test/unit/device/driver/kernel.h"

void setUp(void)
{
    use_device();
}

void tearDown(void)
{
    CALL(cuDevicePrimaryCtxRelease_v2)(0);
}

/* --- shared memory that is read and written again with no barrier in between ------------------ */

/* %r4: the warp's number, %r5: the lane's; word 0 of sh is 500 + the block's first thread for all
 * threads. */
#define SHARE_FIRST                                                                                \
    "shr.u32 %r4, %r3, 5; and.b32 %r5, %r3, 31; setp.ne.u32 %p1, %r3, 0; @%p1 bra SHARED;\n"       \
    "add.u32 %r6, %r1, 500; st.shared.u32 [sh], %r6;\n"                                            \
    "SHARED: bar.sync 0;\n"

static void expect_first(const unsigned *out, unsigned extra)
{
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(500 + i / 48 * 48 + extra, out[i]);
}

/* As in a softmax: all read the maximum, and each warp's first lane leaves its sum in its place. */
static void what_all_warps_read_is_read_before_lanes_overwrite_it(void)
{
    unsigned out[N];
    OK(run(
        BEGIN SHARE_FIRST
        "ld.shared.u32 %r7, [sh]; setp.ne.u32 %p2, %r5, 0; @%p2 bra MEET;\n"
        "shl.b32 %r8, %r4, 2; mov.u32 %r9, sh; add.u32 %r9, %r9, %r8; st.shared.u32 [%r9], %r3;\n"
        "MEET: bar.sync 0; ld.shared.u32 %r10, [sh+4]; add.u32 %r7, %r7, %r10;\n"
        "st.global.u32 [%d1], %r7;\n" END,
        out));
    expect_first(out, 32);
}

static void what_all_warps_read_is_read_before_all_overwrite_it(void)
{
    unsigned out[N];
    OK(run(BEGIN SHARE_FIRST
           "ld.shared.u32 %r7, [sh]; shl.b32 %r8, %r3, 2; mov.u32 %r9, sh; add.u32 %r9, %r9, %r8;\n"
           "st.shared.u32 [%r9], %r3; st.global.u32 [%d1], %r7;\n" END,
           out));
    expect_first(out, 0);
}

/* The first instruction of a block of its own, to which a loop leads back. */
static void what_all_warps_read_in_a_loop_is_read_before_they_overwrite_it(void)
{
    unsigned out[N];
    OK(run(BEGIN SHARE_FIRST
           "mov.u32 %r10, 0; mov.u32 %r11, 0; shl.b32 %r8, %r3, 2; mov.u32 %r9, sh;\n"
           "add.u32 %r9, %r9, %r8; ld.shared.u32 %r7, [sh];\n"
           "LOOP: st.shared.u32 [%r9], %r7; bar.sync 0; ld.shared.u32 %r12, [sh];\n"
           "add.u32 %r11, %r11, %r12; add.u32 %r7, %r12, 1; add.u32 %r10, %r10, 1;\n"
           "setp.lt.u32 %p2, %r10, 4; @%p2 bra LOOP; st.global.u32 [%d1], %r11;\n" END,
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(4 * (500 + i / 48 * 48) + 6, out[i]);
}

/* Every warp adds up what lies at its lanes' numbers, which no warp's number decides. */
static void what_lanes_of_all_warps_read_is_read_before_they_overwrite_it(void)
{
    unsigned out[N];
    OK(run(
        BEGIN
        "shr.u32 %r4, %r3, 5; and.b32 %r5, %r3, 31; mov.u32 %r9, sh;\n"
        "setp.ge.u32 %p1, %r3, 32; @%p1 bra FILLED; shl.b32 %r6, %r3, 2; add.u32 %r6, %r9, %r6;\n"
        "add.u32 %r7, %r3, 3; st.shared.u32 [%r6], %r7;\n"
        "FILLED: bar.sync 0; shl.b32 %r11, %r5, 2; add.u32 %r12, %r9, %r11;\n"
        "ld.shared.u32 %r7, [%r12]; setp.ne.u32 %p2, %r5, 0; @%p2 bra DONE;\n"
        "shl.b32 %r8, %r4, 2; add.u32 %r8, %r9, %r8; mov.u32 %r10, 9; st.shared.u32 [%r8], %r10;\n"
        "DONE: st.global.u32 [%d1], %r7;\n" END,
        out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(i % 48 % 32 + 3, out[i]);
}

/* --- masks that differ from lane to lane ------------------------------------------------------ */

/* Groups of eight lanes, each with a mask of its own in %r6; %r5: the lane. */
#define GROUPS_OF_EIGHT                                                                            \
    "mov.u32 %r5, %laneid; and.b32 %r6, %r5, 24; mov.u32 %r7, 255; shl.b32 %r6, %r7, %r6;\n"

/* In the second warp of a block, of 16 lanes, two groups are there. */
static unsigned group_of(unsigned i)
{
    return i % 48 % 32 / 8;
}

static void votes_count_each_lanes_own_mask(void)
{
    unsigned out[N];
    OK(run(BEGIN GROUPS_OF_EIGHT
           "and.b32 %r8, %r5, 2; setp.eq.u32 %p1, %r8, 0; setp.lt.u32 %p2, %r5, 8;\n"
           "vote.sync.ballot.b32 %r9, %p1, %r6; vote.sync.any.pred %p3, %p2, %r6;\n"
           "vote.sync.all.pred %p4, %p2, %r6; vote.sync.uni.pred %p5, %p1, %r6;\n"
           "selp.u32 %r10, 1, 0, %p3; selp.u32 %r11, 2, 0, %p4; selp.u32 %r12, 4, 0, %p5;\n"
           "add.u32 %r9, %r9, %r10; add.u32 %r9, %r9, %r11; add.u32 %r9, %r9, %r12;\n"
           "st.global.u32 [%d1], %r9;\n" END,
           out));
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT((0x33u << 8 * group_of(i)) + (group_of(i) == 0 ? 3 : 0), out[i]);
}

static void sums_and_matches_count_each_lanes_own_mask(void)
{
    unsigned out[N];
    OK(run(BEGIN GROUPS_OF_EIGHT
           "redux.sync.add.u32 %r8, %r5, %r6; match.any.sync.b32 %r9, %r7, %r6;\n"
           "shr.u32 %r10, %r5, 3; match.all.sync.b32 %r11|%p1, %r10, %r6; selp.u32 %r12, 1000, 0, "
           "%p1;\n"
           "elect.sync %r13|%p2, %r6; selp.u32 %r14, 10000, 0, %p2;\n"
           "xor.b32 %r9, %r9, %r11; add.u32 %r8, %r8, %r9; add.u32 %r8, %r8, %r12;\n"
           "add.u32 %r8, %r8, %r14; mad.lo.u32 %r8, %r13, 100000, %r8; st.global.u32 [%d1], "
           "%r8;\n" END,
           out));
    for (unsigned i = 0; i < N; i++) {
        unsigned first = 8 * group_of(i), sum = 8 * first + 28;
        TEST_ASSERT_EQUAL_UINT(sum + 1000 + (i % 48 % 8 == 0 ? 10000 : 0) + first * 100000, out[i]);
    }
}

/* --- lanes that are not there ----------------------------------------------------------------- */

/* Lanes whose rounds are over wait behind the loop and only return: a GPU goes on without them. */
static void a_loop_goes_on_without_lanes_that_are_about_to_return(void)
{
    unsigned out[N];
    OK(run(BEGIN
           "mov.u32 %r5, %laneid; and.b32 %r6, %r5, 24; mov.u32 %r7, 0; mov.u32 %r8, 0;\n"
           "LOOP: shfl.sync.down.b32 %r9, %r5, 1, 6175, -1; add.u32 %r8, %r8, %r9;\n"
           "vote.sync.ballot.b32 %r10, 1, -1; popc.b32 %r10, %r10; mad.lo.u32 %r8, %r10, 1000, "
           "%r8;\n"
           "add.u32 %r7, %r7, 8; setp.le.u32 %p1, %r7, %r6; @%p1 bra LOOP;\n"
           "st.global.u32 [%d1], %r8;\n" END,
           out));
    for (unsigned i = 0; i < N; i++) {
        unsigned lane = i % 48 % 32, lanes = i % 48 < 32 ? 32 : 16, want = 0;
        for (unsigned round = 0; round <= lane / 8; round++)
            want += (lane % 8 == 7 ? lane : lane + 1) + 1000 * (lanes - 8 * round);
        TEST_ASSERT_EQUAL_UINT(want, out[i]);
    }
}

/* The same where the lanes that have left meet the others behind the loop. */
static void a_loop_goes_on_without_lanes_that_wait_behind_it(void)
{
    unsigned out[N];
    OK(run(BEGIN "mov.u32 %r5, %laneid; and.b32 %r6, %r5, 24; mov.u32 %r7, 0; mov.u32 %r8, 0;\n"
                 "LOOP: shfl.sync.bfly.b32 %r9, %r5, 1, 31, -1; add.u32 %r8, %r8, %r9;\n"
                 "add.u32 %r7, %r7, 8; setp.le.u32 %p1, %r7, %r6; @%p1 bra LOOP;\n"
                 "shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1; st.global.u32 [%d1], %r9;\n" END,
           out));
    for (unsigned i = 0; i < N; i++) {
        unsigned lane = i % 48 % 32;
        TEST_ASSERT_EQUAL_UINT(lane * (lane / 8 + 1), out[i]);
    }
}

/* Both sides of a branch wait for the whole warp: nothing says who meets whom. */
static void two_sides_that_wait_for_each_other_are_an_error(void)
{
    unsigned out[N];
    TEST_ASSERT_NOT_EQUAL(CUDA_SUCCESS,
                          run(BEGIN "and.b32 %r4, %r3, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra EVEN;\n"
                                    "shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1; bra.uni DONE;\n"
                                    "EVEN: shfl.sync.bfly.b32 %r5, %r3, 3, 31, -1;\n"
                                    "DONE: st.global.u32 [%d1], %r5;\n" END,
                              out));
    CALL(cuDevicePrimaryCtxReset_v2)(0);
}

/* --- indices below 0 -------------------------------------------------------------------------- */

/* Of a thread's neighbour, worked out before it is known who has one: without a sign that wraps in
 * the first lane, and only there. */
static void an_index_that_wraps_in_the_first_lane_is_nobodys_fault(void)
{
    static const char *const widened[] = {
        "add.s32 %r5, %r3, -1; mul.wide.u32 %d3, %r5, 4;\n",
        "sub.u32 %r5, %r3, 1; cvt.u64.u32 %d3, %r5; shl.b64 %d3, %d3, 2;\n",
        "mad.lo.u32 %r5, %r3, 2, 4294967294; mul.wide.u32 %d3, %r5, 2;\n"};
    char text[2048];
    unsigned out[N];
    for (unsigned k = 0; k < sizeof widened / sizeof *widened; k++) {
        strcpy(text,
               BEGIN "ld.param.u64 %d4, [p]; mov.u32 %r4, %ctaid.x; mul.lo.u32 %r4, %r4, 192;\n"
                     "cvt.u64.u32 %d5, %r4; add.u64 %d4, %d4, %d5;\n");
        strcat(text, widened[k]);
        strcat(text, "add.u64 %d4, %d4, %d3; add.u32 %r6, %r3, 100; setp.ne.u32 %p1, %r3, 0;\n"
                     "@%p1 st.global.u32 [%d4], %r6;\n" END);
        OK(run(text, out));
        for (unsigned i = 0; i < N; i++)
            TEST_ASSERT_EQUAL_UINT(i % 48 == 47 ? 7 : i % 48 + 101, out[i]);
    }
}

/* --- matrices of bytes ------------------------------------------------------------------------ */

/* Byte b of the matrix is b.  Lane 4 g + t gets of column g or 8 + g the rows from 4 t. */
static void a_matrix_of_bytes_comes_transposed(void)
{
    static const char *const kept[] = {"%r10", "%r11"};
    char text[2048];
    unsigned out[N];
    for (unsigned h = 0; h < 2; h++) {
        strcpy(text, BEGIN "mov.u32 %r4, sh; shl.b32 %r5, %r3, 2; add.u32 %r5, %r4, %r5;\n"
                           "mul.lo.u32 %r6, %r3, 0x04040404; add.u32 %r6, %r6, 0x03020100;\n"
                           "setp.ge.u32 %p1, %r3, 32; @%p1 bra DONE;\n"
                           "st.shared.u32 [%r5], %r6; add.u32 %r6, %r6, 0x80808080;\n"
                           "st.shared.u32 [%r5+128], %r6; bar.warp.sync -1;\n"
                           "and.b32 %r7, %r3, 15; shl.b32 %r7, %r7, 4; add.u32 %r7, %r4, %r7;\n"
                           "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r10, %r11}, [%r7];\n"
                           "st.global.u32 [%d1], ");
        strcat(strcat(text, kept[h]), "; DONE: " END);
        OK(run(text, out));
        for (unsigned i = 0; i < N; i++) {
            unsigned lane = i % 48, first = 64 * (lane % 4) + lane / 4 + 8 * h;
            TEST_ASSERT_EQUAL_HEX32(lane < 32 ? first * 0x01010101u + 0x30201000u : 7, out[i]);
        }
    }
}

/* --- stores with holes ------------------------------------------------------------------------ */

/* Each eighth thread for itself and the seven behind it, whose own values are there already. */
static void what_a_store_leaves_out_stays(void)
{
    unsigned out[N];
    OK(run(BEGIN "mov.u32 %r4, 7; st.global.u32 [%d1], %r4; bar.sync 0;\n"
                 "and.b32 %r5, %r3, 7; setp.ne.u32 %p1, %r5, 0; add.u32 %r6, %r1, 1000;\n"
                 "add.u32 %r7, %r1, 2000; add.u32 %r8, %r1, 3000;\n"
                 "@!%p1 st.global.v8.b32 [%d1], {%r6, _, %r7, %r8, _, _, %r6, _};\n" END,
           out));
    static const unsigned more[8] = {1000, 0, 2000, 3000, 0, 0, 1000, 0};
    for (unsigned i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT(more[i % 8] != 0 ? i / 8 * 8 + more[i % 8] : 7, out[i]);
}

/* --- sleep ------------------------------------------------------------------------------------ */

/* Odd lanes not at all. */
static void whoever_sleeps_is_away_for_that_long(void)
{
    unsigned out[N];
    OK(run(BEGIN "mov.u64 %d2, %globaltimer; and.b32 %r5, %r3, 1; setp.eq.u32 %p1, %r5, 0;\n"
                 "@%p1 nanosleep.u32 200000; @%p1 nanosleep.u32 200000;\n"
                 "mov.u64 %d3, %globaltimer; sub.u64 %d3, %d3, %d2; cvt.u32.u64 %r7, %d3;\n"
                 "st.global.u32 [%d1], %r7;\n" END,
           out));
    for (unsigned i = 0; i < N; i += 2)
        TEST_ASSERT_GREATER_THAN_UINT(390000, out[i]);
}

int main(void)
{
    open_driver();
    UNITY_BEGIN();
    RUN_TEST(what_all_warps_read_is_read_before_lanes_overwrite_it);
    RUN_TEST(what_all_warps_read_is_read_before_all_overwrite_it);
    RUN_TEST(what_all_warps_read_in_a_loop_is_read_before_they_overwrite_it);
    RUN_TEST(what_lanes_of_all_warps_read_is_read_before_they_overwrite_it);
    RUN_TEST(votes_count_each_lanes_own_mask);
    RUN_TEST(sums_and_matches_count_each_lanes_own_mask);
    RUN_TEST(a_loop_goes_on_without_lanes_that_are_about_to_return);
    RUN_TEST(a_loop_goes_on_without_lanes_that_wait_behind_it);
    RUN_TEST(two_sides_that_wait_for_each_other_are_an_error);
    RUN_TEST(an_index_that_wraps_in_the_first_lane_is_nobodys_fault);
    RUN_TEST(a_matrix_of_bytes_comes_transposed);
    RUN_TEST(what_a_store_leaves_out_stays);
    RUN_TEST(whoever_sleeps_is_away_for_that_long);
    return UNITY_END();
}

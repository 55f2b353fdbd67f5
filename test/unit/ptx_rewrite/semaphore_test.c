/* Waits for the block's turn: what CUTLASS, cuBLAS and cuDNN do is allowed, and each way to make it
 * a wait for a later block, or one of which that is not known, is refused.  Cases wait_turn_*.ptx
 * run what is allowed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t;

void setUp(void)
{
    t = (struct ptx_text){0};
}

void tearDown(void)
{
    ptx_close(&t);
}

/* By %ctaid.z, as in CUTLASS: the tile is a swizzled number, threads hear of the word by a vote,
 * the last block resets it. */
static const char by_number[] =
    ".version 8.3\n.target sm_90\n.address_size 64\n"
    ".visible .entry k(.param .align 8 .b8 params[48])\n"
    "{\n"
    ".reg .pred %p<20>;\n.reg .b16 %rs<20>;\n.reg .b32 %r<60>;\n.reg .b64 %rd<20>;\n"
    "mov.b64 %rd1, params;\n"
    "ld.param.u32 %r1, [%rd1+24];\n"
    "ld.param.u32 %r2, [%rd1+28];\n"
    "ld.param.u32 %r3, [%rd1+32];\n"
    "mov.u32 %r4, %ctaid.x;\n"
    "mov.u32 %r5, %ctaid.y;\n"
    "mov.u32 %r6, %ctaid.z;\n"
    "mov.u32 %r7, %tid.x;\n"
    "mov.b32 %r40, -1;\n"
    "shl.b32 %r10, %r40, %r1;\n" /* -1 comes from a register that later holds the word */
    "not.b32 %r11, %r10;\n"
    "and.b32 %r12, %r4, %r11;\n"
    "shl.b32 %r13, %r5, %r1;\n"
    "add.s32 %r14, %r12, %r13;\n"
    "shr.u32 %r15, %r4, %r1;\n"
    "mad.lo.s32 %r16, %r2, %r14, %r15;\n"
    "ld.param.u64 %rd2, [%rd1];\n"
    "mul.wide.s32 %rd3, %r16, 4;\n"
    "add.s64 %rd4, %rd2, %rd3;\n"
    "ld.param.u64 %rd10, [%rd1+8];\n"
    "add.s64 %rd11, %rd10, %rd3;\n"
    "ld.global.u64 %rd12, [%rd10];\n"
    "setp.ne.s32 %p1, %r7, 0;\n"
    "@%p1 bra $loop;\n"
    "ld.global.acquire.gpu.b32 %r40, [%rd4];\n"
    "$loop:\n"
    "setp.ne.s32 %p2, %r40, %r6;\n"
    "selp.u32 %r20, 1, 0, %p2;\n"
    "{\n.reg .pred %q1;\n.reg .pred %q2;\n"
    "setp.ne.u32 %q1, %r20, 0;\n"
    "bar.red.and.pred %q2, 0, %q1;\n"
    "selp.u32 %r21, 1, 0, %q2;\n}\n"
    "setp.eq.s32 %p3, %r21, 0;\n"
    "@%p3 bra $turn;\n"
    "@%p1 bra $loop;\n"
    "ld.global.acquire.gpu.b32 %r40, [%rd4];\n"
    "bra.uni $loop;\n"
    "$turn:\n"
    "st.global.u32 [%rd11], %r6;\n"
    "add.s32 %r30, %r6, 1;\n"
    "setp.eq.s32 %p4, %r3, %r30;\n"
    "selp.b32 %r31, 0, %r30, %p4;\n"
    "bar.sync 0;\n"
    "@%p1 bra $end;\n"
    "st.global.release.gpu.b32 [%rd4], %r31;\n"
    "$end:\n"
    "ret;\n"
    "}\n";

/* By a ticket of the tile's counter, as in cuBLAS and cuDNN; the tile's number is computed
 * twice. */
static const char by_ticket[] =
    ".version 8.3\n.target sm_90\n.address_size 64\n"
    ".visible .entry k(.param .u64 counters, .param .u64 words, .param .u64 out)\n"
    "{\n"
    ".reg .pred %p<20>;\n.reg .b32 %r<60>;\n.reg .b64 %rd<20>;\n"
    ".shared .align 4 .u32 slot;\n"
    "mov.u32 %r1, %tid.x;\n"
    "mov.u32 %r2, %ctaid.x;\n"
    "mov.u32 %r3, %ctaid.y;\n"
    "mov.u32 %r4, %nctaid.x;\n"
    "mad.lo.s32 %r5, %r3, %r4, %r2;\n"
    "setp.ne.s32 %p1, %r1, 0;\n"
    "@%p1 bra $taken;\n"
    "ld.param.u64 %rd1, [counters];\n"
    "mul.wide.s32 %rd2, %r5, 4;\n"
    "add.s64 %rd3, %rd1, %rd2;\n"
    "atom.global.add.u32 %r6, [%rd3], 1;\n"
    "st.shared.u32 [slot], %r6;\n"
    "$taken:\n"
    "bar.sync 0;\n"
    "ld.shared.u32 %r7, [slot];\n"
    "mov.u32 %r10, %ctaid.y;\n"
    "mov.u32 %r11, %nctaid.x;\n"
    "mov.u32 %r12, %ctaid.x;\n"
    "mad.lo.s32 %r13, %r10, %r11, %r12;\n"
    "ld.param.u64 %rd4, [words];\n"
    "cvta.to.global.u64 %rd5, %rd4;\n"
    "mul.wide.s32 %rd6, %r13, 4;\n"
    "add.s64 %rd7, %rd5, %rd6;\n"
    "@%p1 bra $turn;\n"
    "$loop:\n"
    "ld.volatile.global.u32 %r20, [%rd7];\n"
    "setp.ne.s32 %p2, %r7, %r20;\n"
    "@%p2 bra $loop;\n"
    "$turn:\n"
    "bar.sync 0;\n"
    "@%p1 bra $end;\n"
    "add.s32 %r21, %r7, 1;\n"
    "st.volatile.global.u32 [%rd7], %r21;\n"
    "$end:\n"
    "ret;\n"
    "}\n";

/* One change of a text, and why it makes a difference. */
struct change {
    const char *why, *from, *to;
};

static char *changed(const char *text, const struct change *c)
{
    char *out;
    const char *at = strstr(text, c->from);
    TEST_ASSERT_NOT_NULL_MESSAGE(at, c->why);
    TEST_ASSERT_NULL_MESSAGE(strstr(at + 1, c->from), c->why);
    TEST_ASSERT_GREATER_THAN_INT(
        0, asprintf(&out, "%.*s%s%s", (int)(at - text), text, c->to, at + strlen(c->from)));
    return out;
}

static void expect(const char *text, enum tl_ptx_reason reason, uint32_t conditions,
                   const char *why)
{
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    ptx_open(&t, text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_ptx_judge(t.ix, TL_STR("k"), verdicts, &t.err), t.err.text);
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        TEST_ASSERT_EQUAL_STRING_MESSAGE(tl_ptx_reason_code(reason),
                                         tl_ptx_reason_code(verdicts[v].reason), why);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(conditions, verdicts[v].conditions, why);
    }
    ptx_close(&t);
    t = (struct ptx_text){0};
}

static void expect_all(const char *text, const struct change *list, size_t n,
                       enum tl_ptx_reason reason)
{
    for (size_t i = 0; i < n; i++) {
        char *other = changed(text, &list[i]);
        expect(other, reason, 0, list[i].why);
        free(other);
    }
}

#define EXPECT_ALL(text, list, reason) expect_all(text, list, sizeof(list) / sizeof *(list), reason)

static void turns_by_number_or_ticket_are_allowed(void)
{
    expect(by_number, TL_PTX_REASON_OK, 0, "by number");
    expect(by_ticket, TL_PTX_REASON_OK, 0, "by ticket");
}

static void other_ways_to_say_the_same_are_allowed(void)
{
    static const struct change numbers[] = {
        {"no reset", "selp.b32 %r31, 0, %r30, %p4;", "mov.u32 %r31, %r30;"},
        {"the value is made in two branches", "selp.b32 %r31, 0, %r30, %p4;",
         "mov.u32 %r31, 0;\n@%p4 bra $reset;\nadd.s32 %r31, %r6, 1;\n$reset:"},
        {"compares the other way round", "setp.ne.s32 %p2, %r40, %r6;\nselp.u32 %r20, 1, 0, %p2;",
         "setp.eq.s32 %p2, %r6, %r40;\nselp.u32 %r20, 0, 1, %p2;"},
        {"the vote in other words", "selp.u32 %r21, 1, 0, %q2;\n}\nsetp.eq.s32 %p3, %r21, 0;",
         "selp.b32 %r21, 0, -1, %q2;\n}\nsetp.eq.s32 %p3, %r21, 4294967295;"},
        {"a copy of the word", "setp.ne.s32 %p2, %r40, %r6;",
         "mov.u32 %r41, %r40;\nsetp.ne.s32 %p2, %r41, %r6;"},
        {"the number comes again", "add.s32 %r30, %r6, 1;",
         "mov.u32 %r32, %ctaid.z;\nadd.s32 %r30, %r32, 1;"},
        {"some thread has seen it", "setp.ne.u32 %q1, %r20, 0;\nbar.red.and.pred %q2, 0, %q1;",
         "setp.eq.u32 %q1, %r20, 0;\nvote.sync.any.pred %q2, %q1, -1;\nnot.pred %q2, %q2;"},
    };
    EXPECT_ALL(by_number, numbers, TL_PTX_REASON_OK);
    static const struct change tickets[] = {
        {"one counter for the grid", "add.s64 %rd3, %rd1, %rd2;", "mov.u64 %rd3, %rd1;"},
        {"the same register for both", "mul.wide.s32 %rd6, %r13, 4;", "mul.wide.s32 %rd6, %r5, 4;"},
    };
    EXPECT_ALL(by_ticket, tickets, TL_PTX_REASON_OK);
}

static void waits_that_others_can_end_are_refused(void)
{
    static const struct change list[] = {
        {"until it is not its own number", "setp.eq.s32 %p3, %r21, 0;",
         "setp.ne.s32 %p3, %r21, 0;"},
        {"until it is at least that", "setp.ne.s32 %p2, %r40, %r6;", "setp.lt.s32 %p2, %r40, %r6;"},
        {"until it is another number", "setp.ne.s32 %p2, %r40, %r6;",
         "setp.ne.s32 %p2, %r40, %r3;"},
        {"or is the next one's", "selp.u32 %r20, 1, 0, %p2;",
         "setp.ne.s32 %p5, %r40, %r30;\nand.pred %p2, %p2, %p5;\nselp.u32 %r20, 1, 0, %p2;"},
        {"part of the word", "setp.ne.s32 %p2, %r40, %r6;",
         "and.b32 %r41, %r40, 255;\nsetp.ne.s32 %p2, %r41, %r6;"},
        {"part of the number", "mov.u32 %r6, %ctaid.z;",
         "mov.u32 %r8, %ctaid.z;\ncvt.u16.u32 %rs1, %r8;\ncvt.u32.u16 %r6, %rs1;"},
        {"until it is not its own number, in other words",
         "selp.u32 %r21, 1, 0, %q2;\n}\nsetp.eq.s32 %p3, %r21, 0;",
         "selp.b32 %r21, 0, -1, %q2;\n}\nsetp.ne.s32 %p3, %r21, 4294967295;"},
        {"until all have seen it", "bar.red.and.pred", "bar.red.or.pred"},
        {"twice the number", "mov.u32 %r6, %ctaid.z;",
         "mov.u32 %r8, %ctaid.z;\nshl.b32 %r6, %r8, 1;"},
        {"the number backwards", "mov.u32 %r6, %ctaid.z;",
         "mov.u32 %r8, %ctaid.z;\nmov.u32 %r9, %nctaid.z;\nsub.s32 %r6, %r9, %r8;"},
        {"a number that is no order of starting", "mov.u32 %r5, %ctaid.y;\nmov.u32 %r6, %ctaid.z;",
         "mov.u32 %r5, %ctaid.z;\nmov.u32 %r6, %ctaid.y;"},
        {"numbers of threads", "mov.u32 %r6, %ctaid.z;", "mov.u32 %r6, %tid.z;"},
    };
    EXPECT_ALL(by_number, list, TL_PTX_REASON_BLOCK_WAIT);
}

static void stores_of_other_numbers_are_refused(void)
{
    static const struct change list[] = {
        {"one back", "add.s32 %r30, %r6, 1;", "add.s32 %r30, %r6, -1;"},
        {"its own", "add.s32 %r30, %r6, 1;", "mov.u32 %r30, %r6;"},
        {"two on", "add.s32 %r30, %r6, 1;", "add.s32 %r30, %r6, 2;"},
        {"a parameter", "add.s32 %r30, %r6, 1;", "mov.u32 %r30, %r2;"},
        {"back to what is not the first one's number", "selp.b32 %r31, 0, %r30, %p4;",
         "selp.b32 %r31, 2, %r30, %p4;"},
        {"any number in one branch", "selp.b32 %r31, 0, %r30, %p4;",
         "mov.u32 %r31, %r3;\n@%p4 bra $reset;\nadd.s32 %r31, %r6, 1;\n$reset:"},
        {"exchanged", "st.global.release.gpu.b32 [%rd4], %r31;",
         "atom.global.exch.b32 %r50, [%rd4], %r31;"},
        {"a half of it", "st.global.release.gpu.b32 [%rd4], %r31;",
         "cvt.u16.u32 %rs1, %r31;\nst.global.release.gpu.b16 [%rd4], %rs1;"},
        {"nothing", "st.global.release.gpu.b32 [%rd4], %r31;", "mov.u32 %r50, %r31;"},
        {"and somebody stores to who knows where", "bar.sync 0;",
         "st.release.gpu.b32 [%rd12], %r3;\nbar.sync 0;"},
        {"and somebody stores to the same array", "bar.sync 0;",
         "st.global.u32 [%rd2+64], %r3;\nbar.sync 0;"},
        {"and somebody counts who knows what", "bar.sync 0;",
         "red.global.add.u32 [%rd12], 1;\nbar.sync 0;"},
    };
    EXPECT_ALL(by_number, list, TL_PTX_REASON_BLOCK_WAIT);
    static const struct change counted[] = {
        {"counted", "st.global.release.gpu.b32 [%rd4], %r31;", "red.global.add.u32 [%rd4], 1;"},
    };
    EXPECT_ALL(by_number, counted, TL_PTX_REASON_GRID_BARRIER);
}

static void the_first_block_must_not_wait_for_the_last(void)
{
    static const struct change list[] = {
        {"one word for two rows of tiles", "add.s32 %r14, %r12, %r13;", "mov.u32 %r14, %r12;"},
        {"one word for all tiles", "mul.wide.s32 %rd3, %r16, 4;", "mul.wide.s32 %rd3, %r2, 4;"},
        {"a word of the number", "mul.wide.s32 %rd3, %r16, 4;",
         "add.s32 %r17, %r16, %r6;\nmul.wide.s32 %rd3, %r17, 4;"},
        {"a shifted word of the number", "mul.wide.s32 %rd3, %r16, 4;",
         "shr.u32 %r17, %r6, 1;\nadd.s32 %r18, %r16, %r17;\nmul.wide.s32 %rd3, %r18, 4;"},
        {"a word that memory tells", "ld.param.u32 %r2, [%rd1+28];",
         "ld.param.u64 %rd14, [%rd1+40];\nld.global.u32 %r2, [%rd14];"},
        {"a word that is stored elsewhere", "st.global.release.gpu.b32 [%rd4], %r31;",
         "mul.wide.u32 %rd15, %r6, 4;\nadd.s64 %rd16, %rd4, %rd15;\nst.global.release.gpu.b32 "
         "[%rd16], %r31;"},
        {"waits again behind the store", "$end:\nret;",
         "$end:\nld.global.acquire.gpu.b32 %r42, [%rd4];\nsetp.ne.s32 %p6, %r42, %r6;\n@%p6 bra "
         "$end;\nret;"},
        {"waits in rounds", "$end:\nret;", "bra.uni $loop;\n$end:\nret;"},
        {"stores before the wait", "setp.ne.s32 %p1, %r7, 0;",
         "setp.ne.s32 %p1, %r7, 0;\n@%p1 st.global.release.gpu.b32 [%rd4], 0;"},
    };
    EXPECT_ALL(by_number, list, TL_PTX_REASON_BLOCK_WAIT);
}

static void tickets_must_be_the_words_own(void)
{
    static const struct change list[] = {
        {"one counter for two tiles", "mul.wide.s32 %rd2, %r5, 4;",
         "shr.u32 %r8, %r5, 1;\nmul.wide.s32 %rd2, %r8, 4;"},
        {"a word for each row", "mul.wide.s32 %rd6, %r13, 4;", "mul.wide.s32 %rd6, %r10, 4;"},
        {"words of another number", "mov.u32 %r12, %ctaid.x;", "mov.u32 %r12, %ctaid.z;"},
        {"each block counts for itself", "atom.global.add.u32 %r6, [%rd3], 1;",
         "atom.shared.add.u32 %r6, [slot], 1;"},
        {"downwards", "atom.global.add.u32 %r6, [%rd3], 1;",
         "atom.global.add.u32 %r6, [%rd3], -1;"},
        {"round and round", "atom.global.add.u32 %r6, [%rd3], 1;",
         "atom.global.inc.u32 %r6, [%rd3], 3;"},
        {"the counter is the word", "ld.param.u64 %rd4, [words];",
         "ld.param.u64 %rd4, [counters];"},
        {"stores a constant", "add.s32 %r21, %r7, 1;", "mov.u32 %r21, 0;"},
        {"a ticket that may be another one's", "st.shared.u32 [slot], %r6;",
         "st.shared.u32 [slot], %r6;\natom.global.add.u32 %r9, [%rd3+4], 1;\nst.shared.u32 [slot], "
         "%r9;"},
    };
    EXPECT_ALL(by_ticket, list, TL_PTX_REASON_BLOCK_WAIT);
}

static void a_line_of_blocks_is_ordered_by_x(void)
{
    static const struct change numbers[] = {
        {"x", "mov.u32 %r5, %ctaid.y;\nmov.u32 %r6, %ctaid.z;",
         "mov.u32 %r5, %ctaid.y;\nmov.u32 %r6, %ctaid.x;"},
    };
    char *by_x = changed(by_number, &numbers[0]);
    static const struct change word = {"the tile", "and.b32 %r12, %r4, %r11;", "mov.b32 %r12, 0;"};
    static const struct change rest = {"the rest", "shr.u32 %r15, %r4, %r1;", "mov.b32 %r15, 0;"};
    expect(by_x, TL_PTX_REASON_BLOCK_WAIT, 0, "x is in the word");
    char *tile = changed(by_x, &word);
    char *line = changed(tile, &rest);
    expect(line, TL_PTX_REASON_OK, TL_PTX_IF_GRID_IS_LINE, "x alone");
    free(by_x);
    free(tile);
    free(line);
}

/* A way to the word's address through vectors in vectors, as deep as the parser lets them be. */
static void a_computation_that_goes_too_deep_is_refused(void)
{
    enum { REGISTERS = 900, VECTORS = 190 };
    struct tl_buf way = {0};
    tl_buf_printf(&way, ".reg .b32 %%x<%d>;\nmov.b32 %%x0, %%r16;\n", REGISTERS + 1);
    for (int i = 1; i <= REGISTERS; i++) {
        tl_buf_printf(&way, "mov.b32 %%x%d, ", i);
        for (int k = 0; k < VECTORS; k++)
            tl_buf_puts(&way, "{");
        tl_buf_printf(&way, "%%x%d", i - 1);
        for (int k = 0; k < VECTORS; k++)
            tl_buf_puts(&way, "}");
        tl_buf_puts(&way, ";\n");
    }
    tl_buf_printf(&way, "mul.wide.s32 %%rd3, %%x%d, 4;", REGISTERS);
    TEST_ASSERT_FALSE(way.failed);
    struct change c = {"through vectors in vectors", "mul.wide.s32 %rd3, %r16, 4;", way.p};
    expect_all(by_number, &c, 1, TL_PTX_REASON_BLOCK_WAIT);
    tl_buf_finish(&way);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(turns_by_number_or_ticket_are_allowed);
    RUN_TEST(other_ways_to_say_the_same_are_allowed);
    RUN_TEST(waits_that_others_can_end_are_refused);
    RUN_TEST(stores_of_other_numbers_are_refused);
    RUN_TEST(the_first_block_must_not_wait_for_the_last);
    RUN_TEST(tickets_must_be_the_words_own);
    RUN_TEST(a_line_of_blocks_is_ordered_by_x);
    RUN_TEST(a_computation_that_goes_too_deep_is_refused);
    return UNITY_END();
}

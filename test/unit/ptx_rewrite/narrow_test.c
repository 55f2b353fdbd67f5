/* Grids that are one block wide: which launches have what a verdict demands, and that finding out
 * what such a grid does not reach takes no longer for text that was written to make it long.
 * test/cases/narrow_split.ptx and nasty_narrow.ptx have the verdicts. */
#include "tally/ptx.h"

#include <time.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static bool holds(uint32_t conditions, uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t grid[3] = {x, y, z}, block[3] = {33, 1, 1};
    return tl_ptx_conditions_hold(conditions, grid, block);
}

static void a_grid_is_narrow_where_the_condition_says(void)
{
    TEST_ASSERT_TRUE(holds(0, 5, 6, 7));
    TEST_ASSERT_TRUE(holds(TL_PTX_IF_ONE_WIDE_X, 1, 6, 7));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_ONE_WIDE_X, 2, 1, 1));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_ONE_WIDE_X, 65537, 1, 1)); /* 1 in 16 bits */
    TEST_ASSERT_TRUE(holds(TL_PTX_IF_ONE_WIDE_Y, 5, 1, 7));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_ONE_WIDE_Y, 1, 2, 1));
    TEST_ASSERT_TRUE(holds(TL_PTX_IF_ONE_WIDE_Z, 5, 6, 1));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_ONE_WIDE_Z, 1, 1, 2));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_ONE_WIDE_X | TL_PTX_IF_ONE_WIDE_Z, 1, 6, 2));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_ONE_WIDE_X | TL_PTX_IF_GRID_IS_LINE, 1, 2, 1));
}

static void the_other_conditions_are_as_before(void)
{
    const uint32_t grid[3] = {4, 1, 1}, rows[3] = {64, 3, 1}, ragged[3] = {33, 3, 1};
    TEST_ASSERT_TRUE(tl_ptx_conditions_hold(TL_PTX_IF_WARPS_ARE_ROWS, grid, rows));
    TEST_ASSERT_FALSE(tl_ptx_conditions_hold(TL_PTX_IF_WARPS_ARE_ROWS, grid, ragged));
    TEST_ASSERT_TRUE(holds(TL_PTX_IF_WARPS_ARE_ROWS, 4, 2, 2)); /* a line of 33 threads */
    TEST_ASSERT_TRUE(holds(TL_PTX_IF_GRID_IS_LINE, 4, 1, 1));
    TEST_ASSERT_FALSE(holds(TL_PTX_IF_GRID_IS_LINE, 4, 2, 1));
    TEST_ASSERT_TRUE(holds(TL_PTX_IF_TAKEN_SINGLY, 4, 2, 1)); /* of the batch, not of the launch */
}

/* A wait behind a branch whose guard is a sum of sums, each of the one before and itself: that is
 * as many ways down as there are numbers of that many bits. */
static void sums_of_sums_take_no_time(void)
{
    enum { DEEP = 22 };
    struct tl_buf text = {0};
    tl_buf_printf(&text,
                  ".version 8.3\n.target sm_90\n.address_size 64\n"
                  ".visible .entry k(.param .u64 word)\n{\n"
                  ".reg .b32 %%r<%u>; .reg .b64 %%rd<4>; .reg .pred %%p<%u>;\n"
                  "ld.param.u64 %%rd1, [word];\nmov.u32 %%r0, %%tid.x;\n",
                  40u * DEEP + 9, 40u);
    for (uint32_t chain = 0; chain < 39; chain++) {
        uint32_t first = 1 + chain * DEEP;
        tl_buf_printf(&text, "add.u32 %%r%u, %%r0, %%r0;\n", first);
        for (uint32_t i = 1; i < DEEP; i++)
            tl_buf_printf(&text, "add.u32 %%r%u, %%r%u, %%r%u;\n", first + i, first + i - 1,
                          first + i - 1);
        tl_buf_printf(&text, "setp.eq.u32 %%p%u, %%r%u, 1;\n@%%p%u bra $on;\n", chain,
                      first + DEEP - 1, chain);
    }
    tl_buf_printf(&text,
                  "$spin:\nld.acquire.gpu.global.u32 %%r%u, [%%rd1];\n"
                  "setp.eq.u32 %%p39, %%r%u, 0;\n@%%p39 bra $spin;\n"
                  "$on:\nst.release.gpu.global.u32 [%%rd1], 1;\nret;\n}\n",
                  40u * DEEP + 8, 40u * DEEP + 8);
    struct tl_ptx_index *ix;
    struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_ptx_index_create(&ix, text.p, text.n, "sums", &err),
                                  err.text);
    clock_t begin = clock(); /* processor time: milliseconds, or half a minute */
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_ptx_judge(ix, TL_STR("k"), verdicts, &err), err.text);
    TEST_ASSERT_TRUE(clock() - begin < 5 * CLOCKS_PER_SEC);
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_BLOCK_WAIT, verdicts[TL_PTX_SLICE].reason);
    tl_ptx_index_destroy(ix);
    tl_buf_finish(&text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_grid_is_narrow_where_the_condition_says);
    RUN_TEST(the_other_conditions_are_as_before);
    RUN_TEST(sums_of_sums_take_no_time);
    return UNITY_END();
}

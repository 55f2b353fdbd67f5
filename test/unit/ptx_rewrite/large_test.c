/* Images with so many of something that a step too many for each would never end: what took the
 * square of these numbers would meet the time limit of a test file. */
#include <unity.h>

#include "ptx_rewrite/program.h"
#include "test/unit/ptx_rewrite/help.h"

enum { MANY = 200000 };

static struct ptx_text t;
static struct tl_ptx_verdict verdicts[TL_PTX_VARIANTS];

void setUp(void)
{
    t = (struct ptx_text){0};
}

void tearDown(void)
{
    ptx_close(&t);
}

static void judge(struct tl_buf *text)
{
    TEST_ASSERT_FALSE(text->failed);
    ptx_open(&t, text->p);
    tl_buf_finish(text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_ptx_judge(t.ix, TL_STR("k"), verdicts, &t.err), t.err.text);
}

static void begin(struct tl_buf *text)
{
    tl_buf_puts(text, ".version 8.3\n.target sm_90\n.address_size 64\n");
}

/* k calls f[n - 1], which calls f[n - 2], and so on. */
static void judge_chain(uint32_t n)
{
    struct tl_buf text = {0};
    begin(&text);
    tl_buf_puts(&text, ".func f0()\n{\nret;\n}\n");
    for (uint32_t i = 1; i < n; i++)
        tl_buf_printf(&text, ".func f%u()\n{\ncall f%u;\nret;\n}\n", i, i - 1);
    tl_buf_printf(&text, ".visible .entry k()\n{\ncall f%u;\nret;\n}\n", n - 1);
    judge(&text);
}

static void a_chain_of_calls_is_judged(void)
{
    judge_chain(1500);
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_OK, verdicts[TL_PTX_PERSISTENT].reason);
}

static void too_long_a_chain_of_calls_is_refused(void)
{
    judge_chain(MANY);
    for (int v = 0; v < TL_PTX_VARIANTS; v++)
        TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_TOO_LARGE, verdicts[v].reason);
}

/* The functions are met in an order in which nothing is known of those that each calls. */
static void an_unlucky_order_costs_little(void)
{
    enum { N = 1900 };
    struct tl_buf text = {0};
    begin(&text);
    for (uint32_t i = 0; i < N; i++)
        tl_buf_printf(&text, ".func f%u();\n", i);
    tl_buf_puts(&text, ".func f0()\n{\nbar.sync 0;\nret;\n}\n");
    for (uint32_t i = 1; i < N; i++)
        tl_buf_printf(&text, ".func f%u()\n{\ncall f%u;\nret;\n}\n", i, i - 1);
    tl_buf_puts(&text, ".visible .entry k()\n{\n");
    for (uint32_t i = 0; i < N; i++)
        tl_buf_printf(&text, "call f%u;\n", i);
    tl_buf_puts(&text, "ret;\n}\n");
    judge(&text);
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_OK, verdicts[TL_PTX_SLICE].reason);
}

static void many_variables_are_found(void)
{
    struct tl_buf text = {0};
    begin(&text);
    for (uint32_t i = 0; i < MANY; i++)
        tl_buf_printf(&text, ".global .u64 v%u;\n", i);
    tl_buf_puts(&text, ".visible .entry k()\n{\n.reg .u64 %rd;\n");
    for (uint32_t i = 0; i < MANY; i++)
        tl_buf_printf(&text, "mov.u64 %%rd, v%u;\n", i);
    tl_buf_puts(&text, "ret;\n}\n");
    judge(&text);
    TEST_ASSERT_TRUE(verdicts[TL_PTX_SLICE].reason != TL_PTX_REASON_OK); /* no such parameters */
}

static void many_aliases_are_found(void)
{
    struct tl_buf text = {0};
    begin(&text);
    tl_buf_puts(&text, ".func g()\n{\nret;\n}\n");
    for (uint32_t i = 0; i < MANY; i++)
        tl_buf_printf(&text, ".func f%u();\n.alias f%u, g;\n", i, i);
    tl_buf_puts(&text, ".visible .entry k()\n{\n");
    for (uint32_t i = 0; i < MANY; i++)
        tl_buf_printf(&text, "call f%u;\n", i);
    tl_buf_puts(&text, "ret;\n}\n");
    judge(&text);
    TEST_ASSERT_EQUAL_INT(TL_PTX_REASON_OK, verdicts[TL_PTX_SLICE].reason);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_chain_of_calls_is_judged);
    RUN_TEST(too_long_a_chain_of_calls_is_refused);
    RUN_TEST(an_unlucky_order_costs_little);
    RUN_TEST(many_variables_are_found);
    RUN_TEST(many_aliases_are_found);
    return UNITY_END();
}

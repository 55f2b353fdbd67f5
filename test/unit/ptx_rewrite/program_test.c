/* What a kernel reaches, where the text goes out of its way. */
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "ptx_rewrite/program.h"
#include "test/unit/ptx_rewrite/help.h"

static struct ptx_text t;
static struct tl_ptx_program program;
static struct tl_arena arena;

void setUp(void)
{
    t = (struct ptx_text){0};
    tl_arena_init(&arena, 0);
}

void tearDown(void)
{
    tl_ptx_program_finish(&program);
    tl_arena_finish(&arena);
    ptx_close(&t);
}

/* k calls f0, which is an alias of f1, and so on; the last one has a body.  Returns what was
 * found. */
static uint32_t functions_behind_aliases(uint32_t n)
{
    struct tl_buf text = {0};
    uint32_t found = 0;
    tl_buf_puts(&text, ".version 8.3\n.target sm_90\n.address_size 64\n");
    for (uint32_t i = 0; i < n; i++)
        tl_buf_printf(&text, ".func f%u();\n.alias f%u, f%u;\n", i, i, i + 1);
    tl_buf_printf(&text, ".func f%u()\n{\nret;\n}\n.visible .entry k()\n{\ncall f0;\nret;\n}\n", n);
    TEST_ASSERT_FALSE(text.failed);
    ptx_open(&t, text.p);
    tl_buf_finish(&text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, tl_ptx_program_init(&program, t.ix, TL_STR("k"), &arena, &t.err), t.err.text);
    for (const struct tl_ptx_program_func *f = program.funcs; f != NULL; f = f->next)
        found++;
    return found;
}

static void an_alias_brings_what_it_stands_for(void)
{
    TEST_ASSERT_EQUAL_UINT32(5, functions_behind_aliases(3));
    const struct tl_ptx_program_func *alias = program.funcs->next;
    TEST_ASSERT_EQUAL_STRING_LEN("f0", alias->func->name.p, alias->func->name.n);
    const struct tl_ptx_sym sym = {.name = alias->func->name};
    const struct tl_ptx_program_func *callee = tl_ptx_program_callee(&program, &sym);
    TEST_ASSERT_NOT_NULL(callee);
    TEST_ASSERT_EQUAL_STRING_LEN("f3", callee->func->name.p, callee->func->name.n);
}

static void aliases_of_aliases_are_followed_only_so_far(void)
{
    TEST_ASSERT_EQUAL_UINT32(1 + 9, functions_behind_aliases(1000));
    const struct tl_ptx_sym sym = {.name = TL_STR("f0")};
    TEST_ASSERT_NULL(tl_ptx_program_callee(&program, &sym));
}

/* By pointers in variables a kernel may reach more than can be compiled; what it reaches otherwise
 * is always there. */
static void what_only_a_table_reaches_can_be_left_out(void)
{
    static const char text[] =
        ".version 8.3\n.target sm_90\n.address_size 64\n"
        ".func direct()\n{\nret;\n}\n.func first()\n{\nret;\n}\n.func second()\n{\nret;\n}\n"
        ".visible .global .align 8 .u64 table[2] = {first, second};\n"
        ".visible .entry k()\n{\n.reg .b64 %d<3>;\ncall direct, ();\nld.global.u64 %d1, [table];\n"
        "proto: .callprototype _ ();\ncall %d1, (), proto;\nret;\n}\n";
    uint64_t left_out = 99;
    char *out;
    size_t n;
    ptx_open(&t, text);
    TEST_ASSERT_EQUAL_INT(
        0, tl_ptx_extract_within(t.ix, TL_STR("k"), 1000, &left_out, &out, &n, &t.err));
    TEST_ASSERT_EQUAL_UINT64(0, left_out);
    TEST_ASSERT_NOT_NULL(strstr(out, "second"));
    free(out);
    TEST_ASSERT_EQUAL_INT(
        0, tl_ptx_extract_within(t.ix, TL_STR("k"), 30, &left_out, &out, &n, &t.err));
    TEST_ASSERT_EQUAL_UINT64(2 * strlen(".func first()\n{\nret;\n}") + 1, left_out);
    TEST_ASSERT_NULL(strstr(out, "second"));
    TEST_ASSERT_NOT_NULL(strstr(out, "direct"));
    free(out);
    /* program_init is what tearDown ends */
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_program_init(&program, t.ix, TL_STR("k"), &arena, &t.err));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(an_alias_brings_what_it_stands_for);
    RUN_TEST(aliases_of_aliases_are_followed_only_so_far);
    RUN_TEST(what_only_a_table_reaches_can_be_left_out);
    return UNITY_END();
}

/* Kernels that are deep rather than long: what the translator does with them must not depend on how
 * much stack it has, for PTX is untrusted. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "device/jit/jit.h"

static struct tl_buf text;
static struct tl_error err;

void setUp(void)
{
    text = (struct tl_buf){0};
    err = (struct tl_error){0};
    tl_buf_puts(&text, ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
                       ".reg .pred %p<4>;\n.reg .b32 %r<4>;\nmov.u32 %r1, %tid.x;\n");
}

void tearDown(void)
{
    tl_buf_finish(&text);
}

static void *compile(void *rc)
{
    struct tl_jit_options options = {.block = {32, 1, 1}};
    struct tl_jit_object object = {0};
    *(int *)rc = tl_jit_compile(text.p, text.n, "deep", &options, &object, &err);
    if (*(int *)rc == 0)
        tl_jit_object_finish(&object);
    return NULL;
}

/* Compiles in a thread of its own, which has that much stack. */
static int compile_with_stack(size_t bytes)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc = 0;
    tl_buf_puts(&text, "ret;\n}\n");
    TEST_ASSERT_FALSE(text.failed);
    TEST_ASSERT_EQUAL_INT(0, tl_jit_init(&err));
    TEST_ASSERT_EQUAL_INT(0, pthread_attr_init(&attr));
    TEST_ASSERT_EQUAL_INT(0, pthread_attr_setstacksize(&attr, bytes));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, &attr, compile, &rc));
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    pthread_attr_destroy(&attr);
    return rc;
}

/* A loop of many blocks, each of which some lanes leave it from.  The first has an instruction that
 * is refused, so that LLVM, which needs what it needs, is never asked. */
static void a_long_loop_of_parted_lanes_needs_no_stack(void)
{
    enum { BLOCKS = 6000 };
    tl_buf_puts(&text, "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra $end;\n$loop:\nfrob.b32 %r2, %r1;\n");
    for (uint32_t i = 0; i < BLOCKS; i++)
        tl_buf_printf(
            &text, "setp.eq.u32 %%p1, %%r1, %u;\n@%%p1 bra $end;\nadd.u32 %%r2, %%r2, 1;\n", i + 1);
    tl_buf_puts(&text, "setp.lt.u32 %p1, %r2, %r1;\n@%p1 bra $loop;\n$end:\n");
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, compile_with_stack(256 << 10));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "frob.b32"), err.text);
}

/* Loops inside each other, each left by some lanes earlier than by others. */
static void nest_loops(uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++)
        tl_buf_printf(&text, "$loop%u:\nadd.u32 %%r2, %%r2, 1;\n", i);
    for (uint32_t i = depth; i-- > 0;)
        tl_buf_printf(&text, "setp.lt.u32 %%p1, %%r2, %%r1;\n@%%p1 bra $loop%u;\n", i);
}

static void loops_of_parted_lanes_inside_each_other_are_bounded(void)
{
    nest_loops(10);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, compile_with_stack(8 << 20), err.text);
    tearDown();
    setUp();
    nest_loops(300);
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, compile_with_stack(512 << 10));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, "loops are nested more than"), err.text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_long_loop_of_parted_lanes_needs_no_stack);
    RUN_TEST(loops_of_parted_lanes_inside_each_other_are_bounded);
    return UNITY_END();
}

/* A kernel of the kind that LLVM does not come back from, hundreds of values that all live while
 * lanes part again and again, compiled with much of LLVM and with as little as possible: both must
 * leave the same bits behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "device/exec/exec.h"
#include "device/jit/jit.h"
#include "device/service/link.h"
#include "test/unit/device/jit/launch.h"
#include "test/unit/scratch.h"

enum { VALUES = 250, THREADS = 96, WORDS = VALUES * THREADS };

static struct tl_exec_device *device;
static struct tl_buf text;

void setUp(void)
{
}

void tearDown(void)
{
    tl_buf_finish(&text);
}

/* Each thread has VALUES floats, THREADS words apart; a barrier in the middle, if asked for, cuts
 * the kernel. */
static void write_kernel(bool has_barrier)
{
    tl_buf_printf(&text,
                  ".version 7.0\n.target sm_70\n.address_size 64\n"
                  ".visible .entry big(.param .u64 a) {\n.reg .u64 %%d<4>; .reg .u32 %%t;\n"
                  ".reg .f32 %%f<%d>; .reg .pred %%p<%d>;\n"
                  "ld.param.u64 %%d1, [a]; mov.u32 %%t, %%tid.x; mul.wide.u32 %%d2, %%t, 4;\n"
                  "add.u64 %%d3, %%d1, %%d2;\n",
                  VALUES, VALUES);
    for (int i = 0; i < VALUES; i++)
        tl_buf_printf(&text, "ld.global.f32 %%f%d, [%%d3+%d];\n", i, 4 * THREADS * i);
    for (int i = 0; i < VALUES; i++) {
        int x = (i * 79 + 1) % VALUES, y = (i * 47 + 2) % VALUES, z = (i * 31 + 3) % VALUES;
        if (has_barrier && i == VALUES / 2)
            tl_buf_puts(&text, "bar.sync 0;\n");
        tl_buf_printf(&text, "setp.gt.f32 %%p%d, %%f%d, %%f%d;\n@%%p%d bra $a%d;\n", i, x, y, i, i);
        tl_buf_printf(&text, "fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d;\n", z, x, y, z);
        tl_buf_printf(&text, "add.f32 %%f%d, %%f%d, %%f%d;\nbra $b%d;\n", x, x, z, i);
        tl_buf_printf(&text, "$a%d:\nsub.f32 %%f%d, %%f%d, %%f%d;\n$b%d:\n", i, y, z, x, i);
    }
    for (int i = 0; i < VALUES; i++)
        tl_buf_printf(&text, "st.global.f32 [%%d3+%d], %%f%d;\n", 4 * THREADS * i, i);
    tl_buf_puts(&text, "ret;\n}\n");
    TEST_ASSERT_FALSE(text.failed);
}

static void run(const struct tl_jit_options *options, float *values)
{
    struct tl_error err = {0};
    struct tl_jit_object object;
    struct tl_exec_object *code;
    void *linked = NULL;
    size_t n = 0;
    char path[4096];
    int rc = tl_jit_compile(text.p, text.n, "big", options, &object, &err);
    if (rc == 0) {
        rc = tl_jit_link(object.bytes, object.n, "big", object.stack_bytes, &linked, &n, &err);
        tl_jit_object_finish(&object);
    }
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
    scratch_path(path, sizeof path, "big-XXXXXX");
    int fd = mkstemp(path);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)n, write(fd, linked, n));
    close(fd);
    free(linked);
    rc = tl_exec_object_open(&code, path, &err);
    unlink(path);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
    uint64_t params[1] = {(uintptr_t)values};
    struct tl_exec_launch l = {.object = code, .grid = {1, 1, 1}, .params = params};
    TEST_ASSERT_TRUE_MESSAGE(jit_launch(device, &l, &err), err.text);
    tl_exec_object_unref(code);
}

static void assert_equal_results(bool has_barrier)
{
    static float first[WORDS], values[WORDS];
    write_kernel(has_barrier);
    for (int way = 0; way < 5; way++) {
        struct tl_jit_options options = {.block = {THREADS, 1, 1},
                                         .is_least = way == 1 || way == 2,
                                         .is_quick = way > 2,
                                         .is_plain = way == 2 || way == 4};
        for (int i = 0; i < WORDS; i++)
            values[i] = (float)(i * 37 % 1009) / 512.0f - 1.0f;
        run(&options, values);
        if (way == 0)
            memcpy(first, values, sizeof first);
        TEST_ASSERT_EQUAL_MEMORY(first, values, sizeof first);
    }
    int changed = 0;
    for (int i = 0; i < WORDS; i++)
        changed += first[i] != (float)(i * 37 % 1009) / 512.0f - 1.0f;
    TEST_ASSERT_GREATER_THAN(WORDS / 4, changed);
}

static void little_of_llvm_gives_the_same_bits(void)
{
    assert_equal_results(false);
}

static void as_it_does_where_a_barrier_cuts_the_kernel(void)
{
    assert_equal_results(true);
}

int main(void)
{
    struct tl_error err = {0};
    char name[64];
    UNITY_BEGIN();
    snprintf(name, sizeof name, "tally-test-least-%d", (int)getpid());
    struct tl_exec_config config = {.name = name};
    if (tl_jit_init(&err) < 0 || tl_exec_device_open(&device, &config, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    RUN_TEST(little_of_llvm_gives_the_same_bits);
    RUN_TEST(as_it_does_where_a_barrier_cuts_the_kernel);
    tl_exec_device_close(device);
    return UNITY_END();
}

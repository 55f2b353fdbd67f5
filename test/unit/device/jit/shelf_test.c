/* Functions of quick versions, compiled in one process and used in another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#include "device/jit/jit.h"
#include "device/jit/shelf.h"

static const char text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry k(.param .u64 a, .param .u32 n) {\n"
    ".reg .u64 %d<4>; .reg .u32 %r<6>; .reg .f32 %f<6>; .reg .pred %p<2>;\n"
    "ld.param.u64 %d1, [a]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x;\n"
    "xor.b32 %r3, %r2, %r1; mul.wide.u32 %d2, %r3, 4; add.u64 %d3, %d1, %d2;\n"
    "ld.global.f32 %f1, [%d3]; mul.f32 %f2, %f1, %f1; sqrt.rn.f32 %f3, %f2;\n"
    "setp.gt.f32 %p1, %f3, 0f40000000; @%p1 bra $a;\n"
    "sin.approx.f32 %f4, %f3; st.global.f32 [%d3], %f4;\n"
    "$a: ret;\n}\n";

static struct tl_shelf *shelf;

void setUp(void)
{
    shelf = aligned_alloc(64, TL_SHELF_BYTES);
    TEST_ASSERT_NOT_NULL(shelf);
    atomic_init(&shelf->n, 0);
}

void tearDown(void)
{
    free(shelf);
}

static struct tl_jit_object compile(void)
{
    struct tl_error err = {0};
    struct tl_jit_options options = {.block = {64, 1, 1}, .is_quick = true};
    struct tl_jit_object o = {0};
    int rc = tl_jit_compile(text, sizeof text - 1, "k", &options, &o, &err);
    TEST_ASSERT_EQUAL_STRING("", rc < 0 ? err.text : "");
    return o;
}

/* What a process that has nothing yet compiles, with this on its shelf: in a child, which ends with
 * 0 if the code is that of `expected` and `n_new` bytes of entries are new. */
static int in_another_process(const void *entries, size_t n, const struct tl_jit_object *expected,
                              size_t n_new)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct tl_buf told = {0};
        memcpy((char *)shelf + TL_SHELF_HEAD, entries, n);
        atomic_store(&shelf->n, n);
        tl_forms_read(shelf);
        struct tl_jit_object o = compile();
        tl_forms_tell(&told);
        bool is_equal = o.n == expected->n && memcmp(o.bytes, expected->bytes, o.n) == 0 &&
                        o.stack_bytes == expected->stack_bytes;
        _exit(!is_equal ? 1 : told.n != n_new ? 2 : 0);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* What this process has compiled is another's child's as well, so it must not compile itself. */
static void make_entries(struct tl_buf *entries, struct tl_jit_object *o)
{
    int ends[2], status;
    size_t n[3];
    TEST_ASSERT_EQUAL_INT(0, pipe(ends));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct tl_buf told = {0};
        struct tl_jit_object made = compile();
        tl_forms_tell(&told);
        FILE *f = fdopen(ends[1], "w");
        n[0] = told.n, n[1] = made.n, n[2] = made.stack_bytes;
        fwrite(n, sizeof n, 1, f);
        fwrite(told.p, 1, told.n, f);
        fwrite(made.bytes, 1, made.n, f);
        _exit(fclose(f) != 0);
    }
    close(ends[1]);
    FILE *f = fdopen(ends[0], "r");
    TEST_ASSERT_EQUAL_size_t(1, fread(n, sizeof n, 1, f));
    char *bytes = malloc(n[0] + n[1]);
    TEST_ASSERT_EQUAL_size_t(n[0] + n[1], fread(bytes, 1, n[0] + n[1], f));
    fclose(f);
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    tl_buf_add(entries, bytes, n[0]);
    *o = (struct tl_jit_object){.bytes = malloc(n[1]), .n = n[1], .stack_bytes = (uint32_t)n[2]};
    memcpy(o->bytes, bytes + n[0], n[1]);
    free(bytes);
}

static void what_is_on_the_shelf_is_not_compiled_again(void)
{
    struct tl_buf entries = {0};
    struct tl_jit_object o;
    make_entries(&entries, &o);
    TEST_ASSERT_TRUE(entries.n > 0);
    TEST_ASSERT_EQUAL_INT(0, in_another_process(entries.p, 0, &o, entries.n));
    TEST_ASSERT_EQUAL_INT(0, in_another_process(entries.p, entries.n, &o, 0));
    const struct tl_shelf_entry *first = tl_shelf_entry_at(entries.p, entries.n);
    TEST_ASSERT_NOT_NULL(first);
    TEST_ASSERT_EQUAL_INT(
        0, in_another_process(entries.p, first->bytes, &o, entries.n - first->bytes));
    tl_buf_finish(&entries);
    tl_jit_object_finish(&o);
}

static void lengths_that_lie_end_the_reading(void)
{
    struct tl_buf entries = {0};
    struct tl_jit_object o;
    make_entries(&entries, &o);
    struct tl_shelf_entry *first = (void *)entries.p, good = *first;
    for (int i = 0; i < 6; i++) {
        *first = good;
        uint32_t *lies[] = {&first->bytes, &first->key_n, &first->code_n};
        *lies[i / 2] = i % 2 ? UINT32_MAX - 7 : 0;
        if (i == 4) /* a function without code is written in place */
            continue;
        TEST_ASSERT_NULL(tl_shelf_entry_at(entries.p, entries.n));
        TEST_ASSERT_EQUAL_INT(0, in_another_process(entries.p, entries.n, &o, entries.n));
    }
    *first = good;
    for (size_t n = 0; n < good.bytes; n++)
        TEST_ASSERT_NULL(tl_shelf_entry_at(entries.p, n));
    tl_buf_finish(&entries);
    tl_jit_object_finish(&o);
}

/* Where translations are verified, a function is held against what would be written here. */
static void another_translators_functions_are_found_out(void)
{
    struct tl_buf entries = {0};
    struct tl_jit_object o;
    make_entries(&entries, &o);
    struct tl_shelf_entry *first = (void *)entries.p;
    TEST_ASSERT_TRUE(first->ir_hash != 0);
    first->ir_hash ^= 2;
    TEST_ASSERT_EQUAL_INT(1, in_another_process(entries.p, entries.n, &o, 0));
    tl_buf_finish(&entries);
    tl_jit_object_finish(&o);
}

int main(void)
{
    struct tl_error err;
    UNITY_BEGIN();
    setenv("TALLY_JIT_VERIFY", "1", 1);
    if (tl_jit_init(&err) < 0)
        return 1;
    RUN_TEST(what_is_on_the_shelf_is_not_compiled_again);
    RUN_TEST(lengths_that_lie_end_the_reading);
    RUN_TEST(another_translators_functions_are_found_out);
    return UNITY_END();
}

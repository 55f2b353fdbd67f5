/* Each instruction form alone, on the software device, against a C reference: over edge values
 * crossed and random ones, with operands that vary or are the same in all lanes, under guards and
 * in partial warps, with and without AVX-512, with much of LLVM and with little. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

#include "device/exec/exec.h"
#include "device/jit/jit.h"
#include "device/service/link.h"
#include "test/unit/device/jit/launch.h"
#include "test/unit/device/jit/op.h"

enum { OPS_PER_KERNEL = 40, MOST_COMPLAINTS = 2 };

static const char without_avx512[] = "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,-avx512f";
static struct tl_exec_device *device;
static const char *features;          /* of the run under way; NULL: the host's */
static bool is_least, is_quick;       /* of the run under way, as tl_jit_options */
static uint64_t *in, *out, *expected; /* as op_kernel says */
static struct tl_buf text, wrong;
static uint32_t n_forms;

/* --- compile and run -------------------------------------------------------------------------- */

static int compile(struct tl_exec_object **object, uint32_t block, struct tl_error *err)
{
    struct tl_jit_options options = {
        .block = {block, 1, 1}, .features = features, .cpu = features != NULL ? "x86-64" : NULL};
    /* without AVX-512 every other kernel as if it were a large one, and every fourth with little of
     * LLVM */
    static uint32_t n_compiled;
    options.is_large = features != NULL && n_compiled % 2 == 0;
    options.is_least = is_least || (features != NULL && n_compiled % 4 == 3);
    options.is_quick = is_quick;
    n_compiled++;
    struct tl_jit_object compiled;
    void *linked = NULL;
    size_t n = 0;
    char path[64];
    int rc = tl_jit_compile(text.p, text.n, "op", &options, &compiled, err);
    if (rc < 0)
        return rc;
    rc = tl_jit_link(compiled.bytes, compiled.n, "op", compiled.stack_bytes, &linked, &n, err);
    tl_jit_object_finish(&compiled);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/op-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    int fd = mkstemp(path);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)n, write(fd, linked, n));
    close(fd);
    free(linked);
    rc = tl_exec_object_open(object, path, err);
    unlink(path);
    return rc;
}

static bool launch(struct tl_exec_object *object, uint32_t grid, struct tl_error *err)
{
    uint64_t params[2] = {(uintptr_t)in, (uintptr_t)out};
    struct tl_exec_launch l = {.object = object, .grid = {grid, 1, 1}, .params = params};
    return jit_launch(device, &l, err);
}

static bool run(uint32_t block, uint32_t grid, struct tl_error *err)
{
    struct tl_exec_object *object;
    if (compile(&object, block, err) < 0)
        return false;
    bool ok = launch(object, grid, err);
    tl_exec_object_unref(object);
    return ok;
}

/* --- lane by lane ----------------------------------------------------------------------------- */

struct shape {
    const char *name;
    uint32_t block, grid, vectors;
};

/* Blocks of 48 and 80 threads end with half a warp. */
static const struct shape shapes[OP_MODES] = {
    [OP_VARYING] = {"varying", 64, OP_VECTORS / 64, OP_VECTORS},
    [OP_UNIFORM] = {"uniform", 32, 256, 256},
    [OP_GUARDED] = {"guarded", 48, OP_VECTORS / 48, OP_VECTORS / 48 * 48},
    [OP_BRANCHED] = {"branched", 80, OP_VECTORS / 80, OP_VECTORS / 80 * 80},
};

static void complain(const struct op *o, enum op_mode mode, uint32_t k, uint32_t i, uint32_t result,
                     uint64_t got, uint64_t want)
{
    tl_buf_printf(&wrong, "\n%s (%s%s): ", o->row->form, shapes[mode].name,
                  features != NULL ? ", no AVX-512" : "");
    for (uint32_t j = 0; j < o->n_sources; j++)
        tl_buf_printf(&wrong, "%s0x%llx", j == 0 ? "" : ", ",
                      (unsigned long long)in[((size_t)k * OP_SOURCES + j) * OP_VECTORS + i]);
    tl_buf_printf(&wrong, " gives 0x%llx in result %u, not 0x%llx", (unsigned long long)got, result,
                  (unsigned long long)want);
}

static void check_op(const struct op *o, uint32_t k, enum op_mode mode)
{
    uint32_t n_wrong = 0;
    bool has_some = mode == OP_GUARDED || mode == OP_BRANCHED;
    for (uint32_t i = 0; i < shapes[mode].vectors && n_wrong < MOST_COMPLAINTS; i++) {
        bool is_active = !has_some || op_takes_part(i);
        for (uint32_t j = 0; j < o->n_results; j++) {
            size_t at = ((size_t)k * OP_RESULTS + j) * OP_VECTORS + i;
            uint64_t got = out[at], want = is_active ? expected[at] : op_old_value(&o->result[j]);
            if (is_active ? op_result_is(o, j, got, want) : got == want)
                continue;
            complain(o, mode, k, i, j, got, want);
            n_wrong++;
        }
    }
}

/* Inputs of all ops, and what comes out of them. */
static void prepare(const struct op *ops, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        uint64_t *from = in + (size_t)k * OP_SOURCES * OP_VECTORS,
                 *to = expected + (size_t)k * OP_RESULTS * OP_VECTORS;
        op_inputs(&ops[k], from, k);
        for (uint32_t i = 0; i < OP_VECTORS; i++) {
            uint64_t sources[OP_SOURCES], results[OP_RESULTS] = {0};
            for (uint32_t j = 0; j < ops[k].n_sources; j++)
                sources[j] = from[j * OP_VECTORS + i];
            ops[k].row->reference(&ops[k], sources, results);
            for (uint32_t j = 0; j < ops[k].n_results; j++)
                to[j * OP_VECTORS + i] = results[j];
        }
    }
}

static void run_ops(const struct op *ops, uint32_t n, enum op_mode mode)
{
    struct tl_error err;
    op_kernel(&text, ops, n, mode);
    memset(out, 0, (size_t)OPS_PER_KERNEL * OP_RESULTS * OP_VECTORS * sizeof *out);
    if (run(shapes[mode].block, shapes[mode].grid, &err)) {
        for (uint32_t k = 0; k < n; k++)
            check_op(&ops[k], k, mode);
    } else if (n > 1) { /* some of them are at fault: find them */
        for (uint32_t part = 0; part < 2; part++) {
            const struct op *first = &ops[part * (n / 2)];
            uint32_t count = part == 0 ? n / 2 : n - n / 2;
            prepare(first, count);
            run_ops(first, count, mode);
        }
    } else {
        tl_buf_printf(&wrong, "\n%s: %s", ops[0].row->form, err.text);
    }
}

static void fail_if_wrong(void)
{
    if (wrong.n == 0)
        return;
    puts(wrong.p);
    TEST_FAIL_MESSAGE("results differ from the reference, see above");
}

static void check_rows(const struct op_row *rows)
{
    static struct op ops[OPS_PER_KERNEL];
    const char *only = getenv("FORM");
    uint32_t batch = 0;
    while (rows->form != NULL) {
        uint32_t n = 0;
        for (; rows->form != NULL && n < OPS_PER_KERNEL; rows++) {
            if (only == NULL || strstr(rows->form, only) != NULL)
                op_parse(&ops[n++], rows);
        }
        if (n == 0)
            continue;
        prepare(ops, n);
        /* Masks are set by guards and by branches in turn: what they do to a result is the same
         * code. */
        enum op_mode modes[] = {OP_VARYING, OP_UNIFORM,
                                batch++ % 2 == 0 ? OP_GUARDED : OP_BRANCHED};
        size_t before = wrong.n;
        for (uint32_t i = 0; i < (features == NULL ? 3 : 2) && wrong.n == before; i++)
            run_ops(ops, n, modes[i]);
        n_forms += features == NULL ? n : 0;
    }
    fail_if_wrong();
}

static void integers_and_bits(void)
{
    check_rows(op_integer_rows);
}

static void floating_point(void)
{
    check_rows(op_float_rows);
}

static void conversions(void)
{
    check_rows(op_convert_rows);
}

static void textures(void)
{
    check_rows(op_texture_rows);
}

static void directed_rounding_of_f64(void)
{
    check_rows(op_directed_rows);
}

static void check_part(enum op_warp_part part, bool is_guarded)
{
    struct tl_exec_object *object;
    struct tl_error err;
    op_warp_kernel(&text, part, is_guarded);
    if (compile(&object, is_guarded ? 24 : 32, &err) < 0)
        TEST_FAIL_MESSAGE(err.text);
    for (uint32_t round = 0; round < 6 && wrong.n == 0; round++) {
        op_warp_inputs(part, in, out, round);
        if (launch(object, 1, &err))
            op_warp_check(part, in, out, is_guarded, &wrong);
        else
            tl_buf_printf(&wrong, "\n%s", err.text);
    }
    tl_exec_object_unref(object);
}

static void warps_and_atomics(void)
{
    for (int part = 0; part < OP_WARP_PARTS; part++) {
        check_part((enum op_warp_part)part, false);
        check_part((enum op_warp_part)part, true);
    }
    n_forms += features == NULL ? op_warp_rows() : 0;
    fail_if_wrong();
}

static void matrices(void)
{
    const char *only = getenv("FORM");
    for (uint32_t row = 0; row < op_matrix_rows(); row++) {
        struct tl_exec_object *object;
        struct tl_error err;
        if (only != NULL && strstr(op_matrix_form(row), only) == NULL)
            continue;
        op_matrix_kernel(&text, row);
        if (compile(&object, 32, &err) < 0) {
            tl_buf_printf(&wrong, "\n%s", err.text);
            continue;
        }
        for (uint32_t round = 0; round < 3; round++) {
            op_matrix_inputs(row, in, round);
            if (launch(object, 1, &err))
                op_matrix_check(row, in, out, &wrong);
            else
                tl_buf_printf(&wrong, "\n%s", err.text);
        }
        tl_exec_object_unref(object);
        n_forms += features == NULL;
    }
    fail_if_wrong();
}

void setUp(void)
{
    wrong.n = 0;
}

void tearDown(void)
{
}

static void *must_alloc(size_t n)
{
    void *p = calloc(n, sizeof(uint64_t));
    if (p == NULL)
        exit(1);
    return p;
}

/* A loop that keeps so many values per thread that no CPU has registers for them: their frame is
 * larger than what a stack has for kernels that need none, and than the guard below it. */
static void values_that_find_no_register_find_room_on_the_stack(void)
{
    enum { VALUES = 2400, ROUNDS = 3 };
    struct tl_error err = {0};
    uint32_t value[VALUES], sum = 0;
    text.n = 0;
    tl_buf_printf(
        &text,
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry op(.param .u64 a, .param .u64 b)\n{\n.reg .pred %%p;\n.reg .b32 %%r<%d>, "
        "%%t, %%n;\n"
        ".reg .b64 %%a<3>;\nmov.u32 %%t, %%tid.x;\nmov.u32 %%n, 0;\nmul.lo.u32 %%r0, %%t, %%t;\n",
        VALUES);
    for (uint32_t i = 1; i < VALUES; i++)
        tl_buf_printf(&text, "mad.lo.u32 %%r%u, %%r%u, 5, %u;\n", i, i - 1, i);
    tl_buf_puts(&text, "again:\n");
    for (uint32_t i = 0; i < VALUES; i++)
        tl_buf_printf(&text, "xor.b32 %%r%u, %%r%u, %%r%u;\n", i, i, (i + 7) % VALUES);
    tl_buf_printf(&text, "add.u32 %%n, %%n, 1;\nsetp.lt.u32 %%p, %%n, %u;\n@%%p bra again;\n",
                  (uint32_t)ROUNDS);
    for (uint32_t i = 1; i < VALUES; i++)
        tl_buf_printf(&text, "mad.lo.u32 %%r0, %%r0, 3, %%r%u;\n", i);
    tl_buf_puts(&text, "ld.param.u64 %a1, [b];\nmad.wide.u32 %a2, %t, 4, %a1;\nst.global.u32 "
                       "[%a2], %r0;\nret;\n}\n");
    struct tl_exec_object *object = NULL;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, compile(&object, 32, &err), err.text);
    uint32_t stack = tl_exec_object_info(object)->stack_bytes;
    TEST_ASSERT_GREATER_THAN_UINT32(VALUES * 32 * 4 * 9 / 10, stack);
    TEST_ASSERT_LESS_THAN_UINT32(VALUES * 32 * 4 * 2, stack);
    TEST_ASSERT_TRUE_MESSAGE(launch(object, 1, &err), err.text);
    tl_exec_object_unref(object);
    for (uint32_t t = 0; t < 32; t++) {
        value[0] = t * t;
        for (uint32_t i = 1; i < VALUES; i++)
            value[i] = value[i - 1] * 5 + i;
        for (uint32_t i = 0; i < VALUES * ROUNDS; i++)
            value[i % VALUES] ^= value[(i + 7) % VALUES];
        sum = value[0];
        for (uint32_t i = 1; i < VALUES; i++)
            sum = sum * 3 + value[i];
        TEST_ASSERT_EQUAL_HEX32(sum, ((const uint32_t *)out)[t]);
    }
}

int main(void)
{
    struct tl_error err;
    char name[64];
    snprintf(name, sizeof name, "tally-test-ops-%d", (int)getpid());
    struct tl_exec_config config = {
        .name = name, .tex = op_texture_fetch, .surf = op_texture_surface};
    UNITY_BEGIN();
    if (tl_jit_init(&err) < 0 || tl_exec_device_open(&device, &config, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    in = must_alloc((size_t)OPS_PER_KERNEL * OP_SOURCES * OP_VECTORS);
    expected = must_alloc((size_t)OPS_PER_KERNEL * OP_RESULTS * OP_VECTORS);
    out = must_alloc((size_t)OPS_PER_KERNEL * OP_RESULTS * OP_VECTORS);
    RUN_TEST(integers_and_bits);
    RUN_TEST(floating_point);
    RUN_TEST(directed_rounding_of_f64);
    RUN_TEST(conversions);
    RUN_TEST(warps_and_atomics);
    RUN_TEST(matrices);
    RUN_TEST(textures);
    RUN_TEST(values_that_find_no_register_find_room_on_the_stack);
    is_least = true;
    UnityDefaultTestRun(floating_point, "floating_point_with_little_llvm", __LINE__);
    UnityDefaultTestRun(conversions, "conversions_with_little_llvm", __LINE__);
    UnityDefaultTestRun(warps_and_atomics, "warps_and_atomics_with_little_llvm", __LINE__);
    UnityDefaultTestRun(matrices, "matrices_with_little_llvm", __LINE__);
    is_least = false;
    is_quick = true;
    UnityDefaultTestRun(integers_and_bits, "integers_and_bits_quickly", __LINE__);
    UnityDefaultTestRun(floating_point, "floating_point_quickly", __LINE__);
    UnityDefaultTestRun(directed_rounding_of_f64, "directed_rounding_of_f64_quickly", __LINE__);
    UnityDefaultTestRun(conversions, "conversions_quickly", __LINE__);
    UnityDefaultTestRun(warps_and_atomics, "warps_and_atomics_quickly", __LINE__);
    UnityDefaultTestRun(matrices, "matrices_quickly", __LINE__);
    UnityDefaultTestRun(textures, "textures_quickly", __LINE__);
    UnityDefaultTestRun(values_that_find_no_register_find_room_on_the_stack,
                        "values_find_room_on_the_stack_quickly", __LINE__);
    is_quick = false;
    features = without_avx512;
    UnityDefaultTestRun(integers_and_bits, "integers_and_bits_without_avx512", __LINE__);
    UnityDefaultTestRun(floating_point, "floating_point_without_avx512", __LINE__);
    UnityDefaultTestRun(directed_rounding_of_f64, "directed_rounding_of_f64_without_avx512",
                        __LINE__);
    UnityDefaultTestRun(conversions, "conversions_without_avx512", __LINE__);
    UnityDefaultTestRun(warps_and_atomics, "warps_and_atomics_without_avx512", __LINE__);
    UnityDefaultTestRun(matrices, "matrices_without_avx512", __LINE__);
    is_quick = true;
    UnityDefaultTestRun(integers_and_bits, "integers_and_bits_quickly_without_avx512", __LINE__);
    UnityDefaultTestRun(floating_point, "floating_point_quickly_without_avx512", __LINE__);
    UnityDefaultTestRun(conversions, "conversions_quickly_without_avx512", __LINE__);
    UnityDefaultTestRun(warps_and_atomics, "warps_and_atomics_quickly_without_avx512", __LINE__);
    is_quick = false;
    printf("%u forms tested\n", n_forms);
    tl_exec_device_close(device);
    tl_buf_finish(&text);
    tl_buf_finish(&wrong);
    free(in);
    free(out);
    free(expected);
    return UNITY_END();
}

/* Parameters of kernels as their PTX and their machine code tell them: the same, wherever ptxas
 * compiles the one into the other; and nothing at all of what is broken or does not agree. */
#include "tally/base.h"
#include "tally/file.h"
#include "tally/image.h"
#include "tally/ptx.h"
#include "test/unit/image/build.h"
#include "test/unit/scratch.h"
#include "unity.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CAP = 64 };

void setUp(void)
{
}

void tearDown(void)
{
}

static const char text[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry none()\n{\n ret;\n}\n"
    ".visible .entry one(.param .u64 a)\n{\n ret;\n}\n"
    ".visible .entry mixed(.param .u8 a, .param .u32 b, .param .u16 c, .param .f64 d,\n"
    " .param .align 4 .b8 e[7], .param .u8 f, .param .align 16 .b8 g[48], .param .u32 h)\n"
    "{\n ret;\n}\n"
    ".visible .entry large(.param .align 8 .b8 a[3000], .param .u8 b)\n{\n ret;\n}\n";

static uint32_t of_ptx(const struct tl_ptx_index *ix, const char *kernel,
                       struct tl_ptx_param out[CAP])
{
    struct tl_error err = {0};
    uint32_t n;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_ptx_params(ix, tl_str_of(kernel), out, CAP, &n, &err),
                                  err.text);
    return n;
}

static struct tl_ptx_index *indexed(void)
{
    struct tl_ptx_index *ix;
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_index_create(&ix, text, strlen(text), "params", NULL));
    return ix;
}

static void ptx_tells_where_parameters_stand(void)
{
    /* By the rules of the PTX ISA: each at the next multiple of its alignment. */
    static const struct tl_ptx_param want[] = {{0, 1},  {4, 4},  {8, 2},   {16, 8},
                                               {24, 7}, {31, 1}, {32, 48}, {80, 4}};
    struct tl_ptx_index *ix = indexed();
    struct tl_ptx_param p[CAP];
    uint32_t n;
    TEST_ASSERT_EQUAL_UINT32(0, of_ptx(ix, "none", p));
    TEST_ASSERT_EQUAL_UINT32(8, of_ptx(ix, "mixed", p));
    TEST_ASSERT_EQUAL_MEMORY(want, p, sizeof want);
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, tl_ptx_params(ix, tl_str_of("mixed"), p, 7, &n, NULL));
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_ptx_params(ix, tl_str_of("nobody"), p, CAP, &n, NULL));
    tl_ptx_index_destroy(ix);
}

/* The compiler's own opinion of the same text, for several architectures. */
static void machine_code_tells_the_same_as_its_ptx(void)
{
    static const char *const kernels[] = {"none", "one", "mixed", "large"};
    static const char *const archs[] = {"sm_80", "sm_90", "sm_100", "sm_120"};
    const char *ptxas = getenv("PTXAS");
    char source[256], object[256], command[1200];
    if (ptxas == NULL || *ptxas == 0)
        TEST_IGNORE_MESSAGE("no ptxas here");
    scratch_path(source, sizeof source, "params.ptx");
    scratch_path(object, sizeof object, "params.cubin");
    FILE *f = fopen(source, "w");
    TEST_ASSERT_NOT_NULL(f);
    fputs(text, f);
    fclose(f);
    struct tl_ptx_index *ix = indexed();
    for (size_t a = 0; a < sizeof archs / sizeof archs[0]; a++) {
        char *bytes;
        size_t size;
        snprintf(command, sizeof command, "'%s' -arch=%s -o '%s' '%s'", ptxas, archs[a], object,
                 source);
        TEST_ASSERT_EQUAL_INT(0, system(command));
        TEST_ASSERT_EQUAL_INT(0, tl_file_read(object, SIZE_MAX, &bytes, &size));
        TEST_ASSERT_EQUAL_UINT32(80, tl_cubin_virtual_arch(bytes, size)); /* as its .target says */
        for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
            struct tl_cubin_param code[CAP];
            struct tl_ptx_param ptx[CAP];
            struct tl_error err = {0};
            uint32_t n;
            int rc = tl_cubin_params(bytes, size, kernels[k], code, CAP, &n, &err);
            TEST_ASSERT_EQUAL_INT_MESSAGE(0, rc, err.text);
            TEST_ASSERT_EQUAL_UINT32(of_ptx(ix, kernels[k], ptx), n);
            for (uint32_t i = 0; i < n; i++) {
                TEST_ASSERT_EQUAL_UINT32(ptx[i].offset, code[i].offset);
                TEST_ASSERT_EQUAL_UINT32(ptx[i].size, code[i].size);
            }
        }
        free(bytes);
    }
    tl_ptx_index_destroy(ix);
    unlink(source);
    unlink(object);
}

/* A cubin with one kernel k whose attributes are these. */
static int read_info(const uint32_t *info, size_t n, uint32_t *count)
{
    const struct build_section section = {".nv.info.k", 0x70000000, 0, 0, 0, info, n};
    struct tl_buf out = {0};
    struct tl_cubin_param params[CAP];
    build_elf(&out, &(struct build_elf){.machine = 190, .type = ET_EXEC}, &section, 1);
    void *copy = guarded_copy(out.p, out.n);
    int rc = tl_cubin_params(copy, out.n, "k", params, CAP, count, NULL);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_cubin_params(copy, out.n, "kk", params, CAP, count, NULL));
    for (size_t cut = 0; cut < out.n; cut++) { /* none of it is read behind its end */
        void *shorter = guarded_copy(out.p, cut);
        uint32_t unused;
        tl_cubin_params(shorter, cut, "k", params, CAP, &unused, NULL);
        tl_cubin_virtual_arch(shorter, cut);
        guarded_free(shorter, cut);
    }
    guarded_free(copy, out.n);
    tl_buf_finish(&out);
    return rc;
}

#define READ(...) read_info((const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}), &n)
#define PARAM(number, offset, bytes) 0x000c1704, 0, (number) | (offset) << 16, (bytes) << 18
#define ALL(bytes) 0x00001903 | (uint32_t)(bytes) << 16

static void what_does_not_agree_is_not_believed(void)
{
    uint32_t n = 0;
    TEST_ASSERT_EQUAL_INT(0, READ(PARAM(1, 8, 4), PARAM(0, 0, 8), ALL(12)));
    TEST_ASSERT_EQUAL_INT(0, READ(ALL(0)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(PARAM(1, 8, 4), PARAM(0, 0, 8), ALL(16)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(PARAM(1, 4, 4), PARAM(0, 0, 8), ALL(8)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(PARAM(2, 8, 4), PARAM(0, 0, 8), ALL(12)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(PARAM(0, 0, 8), PARAM(0, 0, 8), ALL(8)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(PARAM(0, 0, 8)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(PARAM(CAP, 0, 8), ALL(8)));
    TEST_ASSERT_EQUAL_INT(-ENOTSUP, READ(0x000c4504, 0, 0, 8 << 18, ALL(8)));
    TEST_ASSERT_EQUAL_INT(-EINVAL, READ(0x00401704, 0, 0, 8 << 18));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(ptx_tells_where_parameters_stand);
    RUN_TEST(machine_code_tells_the_same_as_its_ptx);
    RUN_TEST(what_does_not_agree_is_not_believed);
    return UNITY_END();
}

/* Which text a separately compiled program's kernels are of, and when that is in doubt. */
#include "runtime/effort/linked.h"

#include "tally/effort.h"
#include "test/unit/image/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
enum { MOST = 4, FLAG_SPECIFIC = 0x100000 };

static const char caller[] = HEAD ".extern .func f;\n.visible .entry k() { call.uni f; ret; }\n";
static const char callee[] = HEAD ".visible .func f { ret; }\n";
static const char runtime[] = HEAD ".entry __nv_1_22_cuda_device_runtime_cu_2_k() { ret; }\n";

static struct tl_buf built[MOST];
static const void *parts[MOST];
static struct tl_captured_image image;
static char *text;
static size_t n;
static struct tl_error err;

static struct build_entry ptx(uint32_t arch, const char *t)
{
    return (struct build_entry){
        .kind = BUILD_PTX, .arch = arch, .payload = t, .payload_bytes = strlen(t) + 1};
}

static void set_part(int i, const struct build_entry *entries, size_t count)
{
    tl_buf_finish(&built[i]);
    build_container(&built[i], entries, count);
    parts[i] = built[i].p;
}

void setUp(void)
{
    const struct build_entry one[] = {ptx(90, caller)}, two[] = {ptx(80, callee), ptx(90, callee)};
    set_part(0, one, 1);
    set_part(1, two, 2);
    image = (struct tl_captured_image){.parts = parts, .n_parts = 2};
    text = NULL;
    err = (struct tl_error){0};
}

void tearDown(void)
{
    free(text);
    for (int i = 0; i < MOST; i++)
        tl_buf_finish(&built[i]);
}

static int join(uint32_t arch)
{
    free(text);
    text = NULL;
    return tl_eff_linked_text(&image, arch, 90, &text, &n, &err);
}

static void all_parts_of_the_architecture_become_one_text(void)
{
    TEST_ASSERT_TRUE(tl_eff_linked_has(&image, 90));
    TEST_ASSERT_EQUAL_INT(0, join(90));
    TEST_ASSERT_NOT_NULL(strstr(text, ".entry k()"));
    TEST_ASSERT_NOT_NULL(strstr(text, ".func f { ret; }"));
}

static void a_part_of_another_architecture_is_told(void)
{
    TEST_ASSERT_FALSE(tl_eff_linked_has(&image, 80));
    TEST_ASSERT_EQUAL_INT(-ENOENT, join(80));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "part 1 of the 2"));
    TEST_ASSERT_NULL(text);
}

static void what_could_be_either_is_refused(void)
{
    struct build_entry two[] = {ptx(90, callee), ptx(90, callee)};
    two[1].flags = FLAG_SPECIFIC;
    set_part(1, two, 2);
    TEST_ASSERT_EQUAL_INT(-EMLINK, join(90));
    TEST_ASSERT_FALSE(tl_eff_linked_has(&image, 90));
}

/* Machine code that a driver or nvlink would take of the part must be of that PTX. */
static void machine_code_of_other_ptx_is_refused(void)
{
    struct tl_buf cubin = {0};
    uint32_t flags;
    enum { FLAGS_AT = 48 };
    build_cubin(&cubin);
    memcpy(&flags, cubin.p + FLAGS_AT, sizeof flags);
    TEST_ASSERT_EQUAL_UINT32(90, tl_cubin_virtual_arch(cubin.p, cubin.n));
    struct build_entry two[] = {
        ptx(90, callee),
        {.kind = BUILD_CUBIN, .arch = 90, .payload = cubin.p, .payload_bytes = cubin.n}};
    set_part(1, two, 2);
    TEST_ASSERT_EQUAL_INT(0, join(90));
    patch32(&cubin, FLAGS_AT, (flags & ~UINT32_C(0xff0000)) | 80u << 16);
    TEST_ASSERT_EQUAL_UINT32(80, tl_cubin_virtual_arch(cubin.p, cubin.n));
    set_part(1, two, 2);
    TEST_ASSERT_EQUAL_INT(-ENOENT, join(90));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "the machine code of part 2"));
    two[1].arch = 80; /* which runs on no device of 9.0 */
    set_part(1, two, 2);
    TEST_ASSERT_EQUAL_INT(0, join(90));
    tl_buf_finish(&cubin);
}

/* sm_90a has the number of sm_90, and source may ask which of them it is compiled for. */
static void machine_code_for_one_architecture_only_is_of_such_ptx(void)
{
    struct tl_buf cubin = {0};
    build_cubin(&cubin);
    struct build_entry all[] = {
        ptx(90, callee),
        {.kind = BUILD_CUBIN, .arch = 90, .payload = cubin.p, .payload_bytes = cubin.n},
        {.kind = BUILD_CUBIN, .arch = 90, .payload = cubin.p, .payload_bytes = cubin.n}};
    all[1].flags = FLAG_SPECIFIC;
    set_part(1, all, 2);
    TEST_ASSERT_EQUAL_INT(-ENOENT, join(90));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "is for sm_90a, its PTX for sm_90"));
    set_part(1, all, 3);
    TEST_ASSERT_EQUAL_INT(-EMLINK, join(90));
    all[0].flags = FLAG_SPECIFIC;
    set_part(1, all, 2);
    TEST_ASSERT_EQUAL_INT(0, join(90));
    tl_buf_finish(&cubin);
}

static void the_device_runtime_and_empty_parts_do_not_count(void)
{
    const struct build_entry later[] = {ptx(121, runtime)};
    set_part(2, later, 1);
    set_part(3, NULL, 0);
    image.n_parts = 4;
    TEST_ASSERT_TRUE(tl_eff_linked_has(&image, 90));
    TEST_ASSERT_EQUAL_INT(0, join(90));
    TEST_ASSERT_NULL(strstr(text, "cuda_device_runtime"));
}

/* The software device does not count it either, nor libraries of its own. */
static void the_device_runtime_is_a_library_and_not_counted(void)
{
    static const char own[] = HEAD ".global .u32 own;\n";
    static const char too[] = HEAD ".global .u32 own;\n"
                                   ".entry __nv_1_22_cuda_device_runtime_cu_2_k() { ret; }\n";
    const struct build_entry front[] = {ptx(90, too)}, one[] = {ptx(90, own)};
    set_part(0, front, 1);
    set_part(1, one, 1);
    set_part(2, one, 1);
    image.n_parts = 3;
    TEST_ASSERT_EQUAL_INT(0, join(90));
    TEST_ASSERT_NOT_NULL(strstr(text, "own$part1;"));
    TEST_ASSERT_NOT_NULL(strstr(text, "own$part2;"));
    TEST_ASSERT_NULL(strstr(text, "cuda_device_runtime"));
}

static void parts_that_do_not_fit_together_are_refused(void)
{
    const struct build_entry again[] = {ptx(90, callee)}, broken[] = {ptx(90, "no PTX")};
    set_part(2, again, 1);
    image.n_parts = 3;
    TEST_ASSERT_EQUAL_INT(-EEXIST, join(90));
    set_part(2, broken, 1);
    TEST_ASSERT_EQUAL_INT(-EINVAL, join(90));
}

static void without_parts_there_is_none(void)
{
    image.n_parts = 0;
    TEST_ASSERT_FALSE(tl_eff_linked_has(&image, 90));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(all_parts_of_the_architecture_become_one_text);
    RUN_TEST(a_part_of_another_architecture_is_told);
    RUN_TEST(what_could_be_either_is_refused);
    RUN_TEST(machine_code_of_other_ptx_is_refused);
    RUN_TEST(machine_code_for_one_architecture_only_is_of_such_ptx);
    RUN_TEST(the_device_runtime_and_empty_parts_do_not_count);
    RUN_TEST(the_device_runtime_is_a_library_and_not_counted);
    RUN_TEST(parts_that_do_not_fit_together_are_refused);
    RUN_TEST(without_parts_there_is_none);
    return UNITY_END();
}

/* Which text of an image a kernel's code was made of, where the number alone does not tell. */
#include "runtime/effort/texts.h"

#include "runtime/effort/real.h"
#include "tally/effort.h"
#include "test/unit/image/build.h"

#include <errno.h>
#include <string.h>
#include <unity.h>

enum { FLAG_SPECIFIC = 0x100000, MOST = 3 };

static const char plain[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                            ".visible .entry scale() { ret; }\n";
static const char special[] = ".version 8.0\n.target sm_90a\n.address_size 64\n"
                              ".visible .entry scale() { ret; }\n";
static struct tl_buf built, cubin;
static struct tl_captured_image image;
static struct tl_eff_text found;
static struct tl_error err;

static CUresult some_device(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

static CUresult capability(int *value, CUdevice_attribute a, CUdevice device)
{
    (void)device;
    *value = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}

void setUp(void)
{
    tl_eff_real.cuCtxGetDevice = some_device;
    tl_eff_real.cuDeviceGetAttribute = capability;
    build_cubin(&cubin);
}

void tearDown(void)
{
    tl_eff_texts_forget(&image);
    tl_buf_finish(&built);
    tl_buf_finish(&cubin);
}

static struct build_entry ptx(const char *text, uint64_t flags)
{
    return (struct build_entry){.kind = BUILD_PTX,
                                .arch = 90,
                                .flags = flags,
                                .payload = text,
                                .payload_bytes = strlen(text) + 1};
}

static struct build_entry code(uint32_t arch, uint64_t flags)
{
    return (struct build_entry){.kind = BUILD_CUBIN,
                                .arch = arch,
                                .flags = flags,
                                .payload = cubin.p,
                                .payload_bytes = cubin.n};
}

static int text_of(const struct build_entry *entries, size_t n)
{
    tl_eff_texts_forget(&image);
    tl_buf_finish(&built);
    build_container(&built, entries, n);
    image = (struct tl_captured_image){.bytes = built.p, .n = built.n};
    return tl_eff_text(&image, "scale", 90, &found, &err);
}

static void code_of_the_number_is_of_the_text_of_that_number(void)
{
    const struct build_entry list[] = {ptx(plain, 0), code(90, 0)};
    TEST_ASSERT_EQUAL_INT(0, text_of(list, 2));
}

/* nvcc -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90 */
static void code_for_one_architecture_only_is_not_of_a_text_for_all_newer_ones(void)
{
    const struct build_entry list[] = {ptx(plain, 0), code(90, FLAG_SPECIFIC), code(90, 0)};
    TEST_ASSERT_EQUAL_INT(-ENOENT, text_of(list, 2));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "its PTX is for sm_90"));
    TEST_ASSERT_EQUAL_INT(-ENOENT, text_of(list, MOST)); /* whichever the driver takes */
}

static void code_for_one_architecture_only_is_of_such_a_text(void)
{
    const struct build_entry list[] = {ptx(special, FLAG_SPECIFIC), code(90, FLAG_SPECIFIC)};
    TEST_ASSERT_EQUAL_INT(0, text_of(list, 2));
}

static void code_for_another_architecture_only_does_not_count(void)
{
    const struct build_entry list[] = {ptx(plain, 0), code(100, FLAG_SPECIFIC)};
    TEST_ASSERT_EQUAL_INT(0, text_of(list, 2));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(code_of_the_number_is_of_the_text_of_that_number);
    RUN_TEST(code_for_one_architecture_only_is_not_of_a_text_for_all_newer_ones);
    RUN_TEST(code_for_one_architecture_only_is_of_such_a_text);
    RUN_TEST(code_for_another_architecture_only_does_not_count);
    return UNITY_END();
}

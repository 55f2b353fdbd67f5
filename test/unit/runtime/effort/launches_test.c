/* Which images have kernels that launch graphs: those that name the call, and those of which nobody
 * can tell. */
#include "runtime/effort/launches.h"

#include "tally/effort.h"
#include "test/unit/image/build.h"

#include <string.h>
#include <unity.h>

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"

static const char caller[] = HEAD ".extern .func (.param .b32 r) cudaGraphLaunch(.param .b64 a);\n";
static const char other[] = HEAD ".visible .entry k() { ret; }\n";
static struct tl_buf built;

void setUp(void)
{
}

void tearDown(void)
{
    tl_buf_finish(&built);
}

static struct build_entry ptx(const char *text)
{
    return (struct build_entry){
        .kind = BUILD_PTX, .arch = 90, .payload = text, .payload_bytes = strlen(text) + 1};
}

static struct tl_captured_image image_of(const struct build_entry *entries, size_t n)
{
    tl_buf_finish(&built);
    build_container(&built, entries, n);
    return (struct tl_captured_image){.bytes = built.p, .n = built.n};
}

static void a_text_that_names_the_call_launches_graphs(void)
{
    const struct build_entry both[] = {ptx(other), ptx(caller)};
    struct tl_captured_image image = image_of(both, 2);
    TEST_ASSERT_TRUE(tl_eff_launches_graphs(&image));
    image = image_of(both, 1);
    TEST_ASSERT_FALSE(tl_eff_launches_graphs(&image));
    image.ptx = caller;
    image.ptx_n = strlen(caller);
    TEST_ASSERT_TRUE(tl_eff_launches_graphs(&image));
}

static void so_does_a_program_one_part_of_which_does(void)
{
    const struct build_entry one[] = {ptx(caller)};
    struct tl_captured_image image = image_of(one, 1);
    const void *parts[] = {image.bytes};
    image = (struct tl_captured_image){.parts = parts, .n_parts = 1};
    TEST_ASSERT_TRUE(tl_eff_launches_graphs(&image));
}

/* The driver may know how it is packed. */
static void what_cannot_be_unpacked_may_launch_graphs(void)
{
    struct build_entry one[] = {ptx(other)};
    one[0].unpacked_bytes = 2 * sizeof other;
    struct tl_captured_image image = image_of(one, 1);
    TEST_ASSERT_TRUE(tl_eff_launches_graphs(&image));
    one[0].flags = BUILD_LZ4; /* broken */
    image = image_of(one, 1);
    TEST_ASSERT_TRUE(tl_eff_launches_graphs(&image));
    image = image_of(one, 0);
    TEST_ASSERT_FALSE(tl_eff_launches_graphs(&image));
    patch16(&built, 4, 2); /* a container of another version */
    TEST_ASSERT_TRUE(tl_eff_launches_graphs(&image));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_text_that_names_the_call_launches_graphs);
    RUN_TEST(so_does_a_program_one_part_of_which_does);
    RUN_TEST(what_cannot_be_unpacked_may_launch_graphs);
    return UNITY_END();
}

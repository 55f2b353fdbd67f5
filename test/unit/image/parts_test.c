/* The parts of separately compiled programs: lists that are right, and lists that lie. */
#include "test/unit/image/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unity.h>

enum { PARTS = 3 };

static const char ptx[] = ".version 8.3\n.target sm_90\n.address_size 64\n";
static struct tl_buf parts[PARTS];
static uint64_t list[PARTS + 1], wrapper[3];
static const void **found;
static uint32_t n_found;
static struct tl_error err;

static void build_part(struct tl_buf *out, const char *text, size_t n)
{
    struct build_entry entry = {
        .kind = BUILD_PTX, .arch = 90, .flags = 0x11, .payload = text, .payload_bytes = n};
    *out = (struct tl_buf){0};
    build_container(out, &entry, 1);
}

void setUp(void)
{
    for (int i = 0; i < PARTS; i++) {
        build_part(&parts[i], ptx, sizeof ptx);
        list[i] = (uintptr_t)parts[i].p;
    }
    list[PARTS] = 0;
    wrapper[0] = UINT64_C(2) << 32 | 0x466243b1;
    wrapper[1] = (uintptr_t)parts[0].p;
    wrapper[2] = (uintptr_t)list;
    found = NULL;
    n_found = 99;
    err = (struct tl_error){0};
}

void tearDown(void)
{
    free(found);
    for (int i = 0; i < PARTS; i++)
        tl_buf_finish(&parts[i]);
}

static int look(void)
{
    free(found);
    return tl_image_parts(wrapper, SIZE_MAX, &found, &n_found, &err);
}

static void assert_none(int expected)
{
    TEST_ASSERT_EQUAL_INT(expected, look());
    TEST_ASSERT_NULL(found);
    TEST_ASSERT_EQUAL_UINT32(0, n_found);
}

static void a_list_gives_its_parts_in_order(void)
{
    TEST_ASSERT_EQUAL_INT(0, look());
    TEST_ASSERT_EQUAL_UINT32(PARTS, n_found);
    for (int i = 0; i < PARTS; i++)
        TEST_ASSERT_EQUAL_PTR(parts[i].p, found[i]);
}

static void a_list_may_stand_at_any_address(void)
{
    char *at = guarded_copy(list, sizeof list);
    char *odd = at - 1;
    memmove(odd, list, sizeof list);
    wrapper[2] = (uintptr_t)odd;
    TEST_ASSERT_EQUAL_INT(0, look());
    TEST_ASSERT_EQUAL_UINT32(PARTS, n_found);
    guarded_free(at, sizeof list);
}

static void without_a_list_there_are_no_parts(void)
{
    wrapper[2] = 0;
    assert_none(0);
    list[0] = 0;
    wrapper[2] = (uintptr_t)list;
    assert_none(0);
}

/* In the first version the word is the name of a file. */
static void a_wrapper_of_another_version_has_no_list(void)
{
    wrapper[0] = UINT64_C(1) << 32 | 0x466243b1;
    assert_none(0);
    wrapper[0] = UINT64_C(3) << 32 | 0x466243b1;
    wrapper[2] = 1;
    assert_none(0);
}

static void what_is_no_wrapper_has_no_parts(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_image_parts(parts[0].p, parts[0].n, &found, &n_found, &err));
    TEST_ASSERT_EQUAL_INT(0, tl_image_parts(ptx, sizeof ptx, &found, &n_found, &err));
    TEST_ASSERT_EQUAL_INT(0, tl_image_parts("", 0, &found, &n_found, &err));
    TEST_ASSERT_EQUAL_UINT32(0, n_found);
}

static void a_list_that_leads_nowhere_is_refused(void)
{
    static const uint64_t nowhere[] = {
        1, 4095, 0x1000, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, UINT64_C(1) << 47};
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        wrapper[2] = nowhere[i];
        assert_none(-EINVAL);
    }
}

static void a_list_without_an_end_stops_at_the_end_of_its_memory(void)
{
    for (size_t n = 1; n <= PARTS * sizeof list[0]; n++) {
        char *copy = guarded_copy(list, n);
        wrapper[2] = (uintptr_t)copy;
        assert_none(-EINVAL);
        guarded_free(copy, n);
    }
}

static void a_list_of_too_many_is_refused(void)
{
    enum { MANY = TL_IMAGE_PARTS + 1 };
    uint64_t *many = calloc(MANY + 1, sizeof *many);
    for (int i = 0; i < MANY; i++)
        many[i] = (uintptr_t)parts[0].p;
    wrapper[2] = (uintptr_t)many;
    assert_none(-EFBIG);
    many[TL_IMAGE_PARTS] = 0;
    TEST_ASSERT_EQUAL_INT(0, look());
    TEST_ASSERT_EQUAL_UINT32(TL_IMAGE_PARTS, n_found);
    free(many);
}

/* The same gibibyte again and again: nobody looks through all of them. */
static void a_list_that_repeats_what_is_large_is_refused(void)
{
    enum { AGAIN = 100 };
    size_t n = (size_t)1 << 30;
    char *large = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
    TEST_ASSERT_TRUE(large != MAP_FAILED);
    memcpy(large, parts[0].p, parts[0].n);
    uint64_t entries = n - 16, payload = n - 16 - 64;
    memcpy(large + 8, &entries, sizeof entries);
    memcpy(large + 16 + 8, &payload, sizeof payload);
    uint64_t again[AGAIN + 1] = {0};
    for (int i = 0; i < AGAIN; i++)
        again[i] = (uintptr_t)large;
    wrapper[2] = (uintptr_t)again;
    assert_none(-EFBIG);
    munmap(large, n);
}

static void a_part_that_is_no_container_is_told(void)
{
    static const uint64_t wrong[] = {1, UINT64_MAX, 0x1000};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        list[1] = wrong[i];
        assert_none(-EINVAL);
        TEST_ASSERT_NOT_NULL(strstr(err.text, "linked part 2 of 3"));
    }
    list[1] = (uintptr_t)ptx;
    assert_none(-EINVAL);
    list[1] = (uintptr_t)wrapper;
    assert_none(-EINVAL);
}

static void a_part_that_is_cut_off_is_refused(void)
{
    for (size_t n = 1; n < parts[2].n; n++) {
        char *copy = guarded_copy(parts[2].p, n);
        list[2] = (uintptr_t)copy;
        assert_none(-EINVAL);
        guarded_free(copy, n);
    }
}

static void with_a_limit_nothing_may_lie_outside(void)
{
    enum { BYTES = 4096 };
    char room[BYTES];
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_parts(wrapper, sizeof wrapper, &found, &n_found, &err));
    memcpy(room + 256, parts[0].p, parts[0].n);
    uint64_t inside[2] = {(uintptr_t)(room + 256), 0};
    memcpy(room + 64, inside, sizeof inside);
    uint64_t w[3] = {wrapper[0], (uintptr_t)(room + 256), (uintptr_t)(room + 64)};
    memcpy(room, w, sizeof w);
    TEST_ASSERT_EQUAL_INT(0, tl_image_parts(room, BYTES, &found, &n_found, &err));
    TEST_ASSERT_EQUAL_UINT32(1, n_found);
    free(found);
    for (size_t n = sizeof w; n < 256 + parts[0].n; n++)
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_parts(room, n, &found, &n_found, &err));
}

static void the_device_runtime_is_told_by_the_name_of_its_source(void)
{
    static const char text[] =
        ".version 8.3\n.target sm_90\n.address_size 64\n"
        ".entry __nv_static_52__1_22_cuda_device_runtime_cu_2_k() { ret; }\n";
    struct tl_buf b;
    build_part(&b, text, sizeof text);
    TEST_ASSERT_TRUE(tl_image_is_runtime(b.p));
    TEST_ASSERT_FALSE(tl_image_is_runtime(parts[0].p));
    tl_buf_finish(&b);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_list_gives_its_parts_in_order);
    RUN_TEST(a_list_may_stand_at_any_address);
    RUN_TEST(without_a_list_there_are_no_parts);
    RUN_TEST(a_wrapper_of_another_version_has_no_list);
    RUN_TEST(what_is_no_wrapper_has_no_parts);
    RUN_TEST(a_list_that_leads_nowhere_is_refused);
    RUN_TEST(a_list_without_an_end_stops_at_the_end_of_its_memory);
    RUN_TEST(a_list_of_too_many_is_refused);
    RUN_TEST(a_list_that_repeats_what_is_large_is_refused);
    RUN_TEST(a_part_that_is_no_container_is_told);
    RUN_TEST(a_part_that_is_cut_off_is_refused);
    RUN_TEST(with_a_limit_nothing_may_lie_outside);
    RUN_TEST(the_device_runtime_is_told_by_the_name_of_its_source);
    return UNITY_END();
}

/* Arrays that grow, up to where their types or the memory end. */
#include "tally/array.h"

#include <stdlib.h>
#include <unity.h>

void setUp(void)
{
}

void tearDown(void)
{
}

static void items_stay_while_room_doubles(void)
{
    uint64_t *list = NULL;
    uint32_t cap = 0, n = 0, times = 0;
    while (n < 1000) {
        uint32_t before = cap;
        TEST_ASSERT_TRUE(TL_ARRAY_FIT(list, cap, n + 1));
        times += cap != before;
        list[n] = n * UINT64_C(3);
        n++;
    }
    for (uint32_t i = 0; i < n; i++)
        TEST_ASSERT_EQUAL_UINT64(i * UINT64_C(3), list[i]);
    TEST_ASSERT_EQUAL_UINT32(1024, cap);
    TEST_ASSERT_EQUAL_UINT32(8, times); /* 8, 16, ... 1024 */
    free(list);
}

static void room_for_many_at_once_is_had_at_once(void)
{
    char **list = NULL;
    size_t cap = 0;
    TEST_ASSERT_TRUE(TL_ARRAY_FIT(list, cap, 1000));
    TEST_ASSERT_TRUE(cap >= 1000);
    list[999] = NULL;
    free(list);
}

static void what_has_room_is_not_touched(void)
{
    int *list = NULL;
    size_t cap = 0;
    TEST_ASSERT_TRUE(TL_ARRAY_FIT(list, cap, 0));
    TEST_ASSERT_NULL(list);
    TEST_ASSERT_TRUE(TL_ARRAY_FIT(list, cap, 1));
    int *before = list;
    TEST_ASSERT_TRUE(TL_ARRAY_FIT(list, cap, cap));
    TEST_ASSERT_EQUAL_PTR(before, list);
    free(list);
}

/* Nothing is taken or changed; the sizes would come out small if they were multiplied. */
static void more_than_a_size_can_tell_is_refused(void)
{
    struct {
        char bytes[64];
    } *list = NULL;
    size_t cap = 0;
    uint32_t cap_32 = 0;
    TEST_ASSERT_FALSE(TL_ARRAY_FIT(list, cap, SIZE_MAX / 64 + 2));
    TEST_ASSERT_FALSE(TL_ARRAY_FIT(list, cap, SIZE_MAX));
    TEST_ASSERT_FALSE(TL_ARRAY_FIT(list, cap_32, (size_t)UINT32_MAX + 1));
    TEST_ASSERT_NULL(list);
    TEST_ASSERT_EQUAL_size_t(0, cap);
    TEST_ASSERT_EQUAL_UINT32(0, cap_32);
}

/* A full list whose count cannot be doubled any more gets what its count can still tell. */
static void doubling_stops_where_the_count_ends(void)
{
    char *list = malloc(1);
    uint32_t cap = UINT32_MAX - 1;
    TEST_ASSERT_NOT_NULL(list);
    if (!TL_ARRAY_FIT(list, cap, UINT32_MAX)) {
        free(list);
        TEST_IGNORE_MESSAGE("4 GiB of addresses cannot be had here");
    }
    TEST_ASSERT_EQUAL_UINT32(UINT32_MAX, cap);
    free(list);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(items_stay_while_room_doubles);
    RUN_TEST(room_for_many_at_once_is_had_at_once);
    RUN_TEST(what_has_room_is_not_touched);
    RUN_TEST(more_than_a_size_can_tell_is_refused);
    RUN_TEST(doubling_stops_where_the_count_ends);
    return UNITY_END();
}

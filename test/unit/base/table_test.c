/* Tables by name, against a plain list of the same things. */
#include "tally/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

enum { N = 5000 };

static struct tl_table table;
static char names[N][24];
static int things[N];

void setUp(void)
{
    table = (struct tl_table){0};
}

void tearDown(void)
{
    tl_table_finish(&table);
}

static struct tl_str name_of(uint32_t i)
{
    return tl_str_of(names[i]);
}

static void an_empty_table_has_nothing(void)
{
    uint32_t at = 0;
    TEST_ASSERT_NULL(tl_table_get(&table, TL_STR("a")));
    TEST_ASSERT_NULL(tl_table_get(&table, (struct tl_str){0}));
    TEST_ASSERT_NULL(tl_table_next(&table, &at));
}

/* Names that begin alike and differ in length, each looked up among all that came before. */
static void what_was_put_is_found_and_nothing_else_is(void)
{
    for (uint32_t i = 0; i < N; i++)
        snprintf(names[i], sizeof names[i], "%%%c%.*s%u", "rfpd"[i % 4], (int)(i % 7), "xxxxxxx",
                 i);
    for (uint32_t i = 0; i < N; i++) {
        TEST_ASSERT_NULL(tl_table_get(&table, name_of(i)));
        void **place = tl_table_place(&table, name_of(i));
        TEST_ASSERT_NOT_NULL(place);
        TEST_ASSERT_NULL(*place);
        *place = &things[i];
        TEST_ASSERT_EQUAL_UINT32(i + 1, table.n);
        TEST_ASSERT_TRUE(table.n < table.n_slots);
    }
    for (uint32_t i = 0; i < N; i++) {
        /* another copy of the text, and one that ends earlier */
        char copy[24];
        memcpy(copy, names[i], sizeof copy);
        TEST_ASSERT_EQUAL_PTR(&things[i], tl_table_get(&table, tl_str_of(copy)));
        TEST_ASSERT_EQUAL_PTR(&things[i], *tl_table_place(&table, name_of(i)));
        TEST_ASSERT_NULL(tl_table_get(&table, (struct tl_str){copy, 2}));
        TEST_ASSERT_NULL(tl_table_get(&table, (struct tl_str){copy, (uint32_t)strlen(copy) + 1}));
    }
    TEST_ASSERT_EQUAL_UINT32(N, table.n);
}

static void each_thing_is_met_once(void)
{
    static uint8_t met[N];
    memset(met, 0, sizeof met);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "n%u", i);
        *tl_table_place(&table, name_of(i)) = &things[i];
    }
    tl_table_place(&table, TL_STR("a name with nothing under it"));
    uint32_t at = 0, n = 0;
    for (const int *p; (p = tl_table_next(&table, &at)) != NULL; n++)
        met[p - things]++;
    TEST_ASSERT_EQUAL_UINT32(N, n);
    for (uint32_t i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_UINT8(1, met[i]);
}

static void the_empty_name_is_a_name(void)
{
    *tl_table_place(&table, (struct tl_str){NULL, 0}) = &things[0];
    *tl_table_place(&table, (struct tl_str){"\0", 1}) = &things[1];
    TEST_ASSERT_EQUAL_PTR(&things[0], tl_table_get(&table, TL_STR("")));
    TEST_ASSERT_EQUAL_PTR(&things[1], tl_table_get(&table, (struct tl_str){"\0x", 1}));
    TEST_ASSERT_EQUAL_UINT32(2, table.n);
}

/* "costarring" and "liquid" have the same 32 bits of FNV-1a, as have "declinate" and
 * "macallums". */
static void names_of_one_hash_stay_apart(void)
{
    static const char *const pairs[] = {"costarring", "liquid", "declinate", "macallums"};
    for (uint32_t i = 0; i < 4; i++)
        *tl_table_place(&table, tl_str_of(pairs[i])) = &things[i];
    uint32_t same = 0;
    for (uint32_t i = 0; i < table.n_slots; i++) {
        for (uint32_t j = 0; j < i; j++)
            same += table.slots[i].p != NULL && table.slots[j].p != NULL &&
                    table.slots[i].hash == table.slots[j].hash;
    }
    TEST_ASSERT_EQUAL_UINT32(2, same);
    for (uint32_t i = 0; i < 4; i++)
        TEST_ASSERT_EQUAL_PTR(&things[i], tl_table_get(&table, tl_str_of(pairs[i])));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(an_empty_table_has_nothing);
    RUN_TEST(what_was_put_is_found_and_nothing_else_is);
    RUN_TEST(each_thing_is_met_once);
    RUN_TEST(the_empty_name_is_a_name);
    RUN_TEST(names_of_one_hash_stay_apart);
    return UNITY_END();
}

/* The JSON reader: values as written, and the line of whatever is wrong. */
#include "tally/json.h"

#include <errno.h>
#include <string.h>
#include <unity.h>

static struct tl_arena arena;
static struct tl_error err;

void setUp(void)
{
    tl_arena_init(&arena, 0);
    err = (struct tl_error){0};
}

void tearDown(void)
{
    tl_arena_finish(&arena);
}

static int read_json(const char *text, struct tl_json_value **out)
{
    return tl_json_read(out, &arena, tl_str_of(text), &err);
}

static void values_of_every_kind_are_read(void)
{
    struct tl_json_value *j;
    TEST_ASSERT_EQUAL_INT(0, read_json("{\"n\": -2.5e1, \"t\": \"a\\\"b\", \"yes\": true, "
                                       "\"no\": false, \"none\": null, \"list\": [1, [], {}]}",
                                       &j));
    TEST_ASSERT_EQUAL_INT(TL_JSON_OBJECT, j->kind);
    TEST_ASSERT_EQUAL_DOUBLE(-25, tl_json_number(j, "n", 0));
    TEST_ASSERT_TRUE(tl_str_is(tl_json_get(j, "t")->text, "a\\\"b"));
    TEST_ASSERT_EQUAL_DOUBLE(1, tl_json_number(j, "yes", 7));
    TEST_ASSERT_EQUAL_DOUBLE(0, tl_json_number(j, "no", 7));
    TEST_ASSERT_EQUAL_INT(TL_JSON_NULL, tl_json_get(j, "none")->kind);
    const struct tl_json_value *list = tl_json_get(j, "list");
    TEST_ASSERT_EQUAL_INT(TL_JSON_ARRAY, list->kind);
    TEST_ASSERT_EQUAL_DOUBLE(1, list->first->number);
    TEST_ASSERT_EQUAL_INT(TL_JSON_ARRAY, list->first->next->kind);
    TEST_ASSERT_EQUAL_INT(TL_JSON_OBJECT, list->first->next->next->kind);
    TEST_ASSERT_NULL(list->first->next->next->next);
}

static void what_is_not_there_is_what_was_said_instead(void)
{
    struct tl_json_value *j;
    TEST_ASSERT_EQUAL_INT(0, read_json("{\"text\": \"5\"}", &j));
    TEST_ASSERT_NULL(tl_json_get(j, "tex"));
    TEST_ASSERT_NULL(tl_json_get(NULL, "text"));
    TEST_ASSERT_NULL(tl_json_get(j->first, "text"));
    TEST_ASSERT_EQUAL_DOUBLE(3, tl_json_number(j, "other", 3));
    TEST_ASSERT_EQUAL_DOUBLE(3, tl_json_number(j, "text", 3));
}

static void what_is_wrong_is_told_with_its_line(void)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1: "},
        {"{\n\"a\" 1}", "line 2: a ':'"},
        {"[1,\n2\n3]", "line 3: a ']' or ','"},
        {"{\"a\": 1 \"b\": 2}", "line 1: a '}' or ','"},
        {"\n\n\"no end", "line 3: a text does not end"},
        {"{} x", "line 1: something stands behind the end"},
        {"[nul]", "line 1: a value is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tl_json_value *j;
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, read_json(cases[i].text, &j), cases[i].text);
        TEST_ASSERT_EQUAL_STRING_LEN(cases[i].message, err.text, strlen(cases[i].message));
    }
}

static void brackets_inside_each_other_end_somewhere(void)
{
    char deep[20000];
    struct tl_json_value *j;
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    TEST_ASSERT_EQUAL_INT(-EINVAL, read_json(deep, &j));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "too many brackets"));
}

/* The last letter of a slice is the last that is looked at. */
static void a_text_need_not_be_terminated(void)
{
    struct tl_json_value *j;
    TEST_ASSERT_EQUAL_INT(0, tl_json_read(&j, &arena, (struct tl_str){"1234", 2}, &err));
    TEST_ASSERT_EQUAL_DOUBLE(12, j->number);
}

static void numbers_that_are_no_counts_are_brought_to_the_next_one(void)
{
    static const char text[] =
        "{\"n\": 7.9, \"less\": -3, \"none\": nan, \"more\": 1e300, \"t\": \"5\"}";
    struct tl_json_value *j;
    TEST_ASSERT_EQUAL_INT(0, read_json(text, &j));
    TEST_ASSERT_EQUAL_UINT64(7, tl_json_whole(j, "n", 1, 100));
    TEST_ASSERT_EQUAL_UINT64(0, tl_json_whole(j, "less", 1, 100));
    TEST_ASSERT_EQUAL_UINT64(0, tl_json_whole(j, "none", 1, 100));
    TEST_ASSERT_EQUAL_UINT64(100, tl_json_whole(j, "more", 1, 100));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, tl_json_whole(j, "more", 1, UINT64_MAX));
    TEST_ASSERT_EQUAL_UINT64(1, tl_json_whole(j, "t", 1, 100));
    TEST_ASSERT_EQUAL_UINT64(1, tl_json_whole(j, "missing", 1, 100));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(values_of_every_kind_are_read);
    RUN_TEST(what_is_not_there_is_what_was_said_instead);
    RUN_TEST(what_is_wrong_is_told_with_its_line);
    RUN_TEST(brackets_inside_each_other_end_somewhere);
    RUN_TEST(a_text_need_not_be_terminated);
    RUN_TEST(numbers_that_are_no_counts_are_brought_to_the_next_one);
    return UNITY_END();
}

/* Joining modules: whose definition counts, which declarations stay, and names that are a text's
 * own. */
#include "tally/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"
enum { MOST = 8 };

static struct tl_ptx_part parts[MOST];
static struct tl_ptx_index *made[MOST];
static uint32_t n_parts;
static char *text;
static size_t n_text;
static struct tl_error err;

void setUp(void)
{
    n_parts = 0;
    text = NULL;
    err = (struct tl_error){0};
}

void tearDown(void)
{
    for (uint32_t i = 0; i < n_parts; i++)
        tl_ptx_index_destroy(made[i]);
    free(text);
}

static void add(const char *t, bool is_library)
{
    TEST_ASSERT_EQUAL_INT(0, tl_ptx_index_create(&made[n_parts], t, strlen(t), "part", &err));
    parts[n_parts] = (struct tl_ptx_part){.index = made[n_parts], .is_library = is_library};
    n_parts++;
}

static int join(void)
{
    free(text);
    return tl_ptx_join(parts, n_parts, 0, &text, &n_text, &err);
}

/* How often a word stands in what was joined. */
static int count(const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word))
        n++;
    return n;
}

static void what_one_declares_and_another_defines_meets(void)
{
    add(HEAD ".extern .global .u32 there;\n.extern .func f;\n"
             ".visible .entry k() { call.uni f; ret; }\n",
        false);
    add(HEAD ".visible .global .u32 there;\n.visible .func f { ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count(".global .u32 there"));
    TEST_ASSERT_EQUAL_INT(0, count(".extern .global"));
    TEST_ASSERT_EQUAL_INT(1, count(".func f { ret; }"));
    TEST_ASSERT_EQUAL_size_t(strlen(text), n_text);
}

static void the_newest_version_and_target_serve_all(void)
{
    add(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry a() { ret; }\n", false);
    add(".version 7.8\n.target sm_100\n.address_size 64\n.visible .entry b() { ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_NOT_NULL(strstr(text, ".version 8.0\n.target sm_100\n"));
    TEST_ASSERT_EQUAL_INT(1, count(".version"));
    TEST_ASSERT_EQUAL_INT(1, count(".address_size"));
}

static void two_definitions_for_all_are_refused_by_name(void)
{
    add(HEAD ".visible .func twice { ret; }\n", false);
    add(HEAD ".visible .func twice { ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(-EEXIST, join());
    TEST_ASSERT_NOT_NULL(strstr(err.text, "twice is defined twice"));
    TEST_ASSERT_NULL(text);
}

static void of_weak_definitions_the_first_counts_and_a_strong_one_before_all(void)
{
    add(HEAD ".weak .func f { mov.u32 %r1, 1; ret; }\n.weak .global .u32 v = 1;\n", false);
    add(HEAD ".weak .func f { mov.u32 %r1, 2; ret; }\n.weak .global .u32 v = 2;\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count("%r1, 1"));
    TEST_ASSERT_EQUAL_INT(0, count("%r1, 2"));
    TEST_ASSERT_EQUAL_INT(1, count(".u32 v"));
    add(HEAD ".visible .func f { mov.u32 %r1, 3; ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(0, count("%r1, 1"));
    TEST_ASSERT_EQUAL_INT(1, count("%r1, 3"));
}

/* As nvlink does it. */
static void of_common_variables_the_largest_counts_or_the_one_with_a_value(void)
{
    add(HEAD ".common .global .align 4 .b8 a[4];\n.common .global .u32 b;\n"
             ".common .global .v2 .f32 c[2][3];\n",
        false);
    add(HEAD ".common .global .align 4 .b8 a[64];\n.common .global .u32 b = 7;\n"
             ".common .global .u32 c[9];\n",
        false);
    add(HEAD ".common .global .align 4 .b8 a[16];\n.common .global .u32 b;\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count(" a["));
    TEST_ASSERT_EQUAL_INT(1, count(" a[64];"));
    TEST_ASSERT_EQUAL_INT(1, count(".u32 b"));
    TEST_ASSERT_EQUAL_INT(1, count(".u32 b = 7;"));
    TEST_ASSERT_EQUAL_INT(1, count(" c["));
    TEST_ASSERT_EQUAL_INT(1, count(" c[2][3];"));
}

static void own_names_of_several_are_all_changed_wherever_they_stand(void)
{
    add(HEAD ".global .u32 own = 1;\n.global .u64 at = own;\n"
             ".visible .entry a() { ld.global.u32 %r1, [own]; ret; }\n",
        false);
    add(HEAD ".global .u32 own = 2;\n.visible .entry b() { ld.global.u32 %r1, [own]; ret; }\n",
        false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(3, count("own$part1"));
    TEST_ASSERT_EQUAL_INT(2, count("own$part2"));
    TEST_ASSERT_EQUAL_INT(5, count("own"));
    TEST_ASSERT_EQUAL_INT(1, count(" at = "));
}

/* The one who runs a program and the one who rewrites it may have other libraries: a name that is
 * in both texts must mean the same in both. */
static void names_that_are_changed_do_not_depend_on_libraries(void)
{
    static const char own[] = HEAD ".global .u32 own;\n.visible .entry k() { ret; }\n";
    add(HEAD ".visible .func first { ret; }\n.global .u32 own;\n", true);
    add(HEAD
        ".extern .func first;\n.global .u32 own = 1;\n.visible .entry a() { call.uni first; ret; "
        "}\n",
        false);
    add(HEAD ".visible .func unwanted { ret; }\n", true);
    add(own, false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count("own$part1 = 1"));
    TEST_ASSERT_EQUAL_INT(1, count("own$part2"));
    TEST_ASSERT_EQUAL_INT(1, count("own$library1"));
    TEST_ASSERT_EQUAL_INT(3, count("own$"));
}

/* nvcc numbers the strings of a file so. */
static void texts_that_count_their_strings_are_joined(void)
{
    static const char given[] = HEAD
        ".global .align 1 .b8 $str[2] = {65, 0};\n.global .align 1 .b8 $str$1[2] = {66, 0};\n"
        ".global .align 1 .b8 $str$2[2] = {67, 0};\n";
    add(given, false);
    add(given, false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count("$str$part1[2]"));
    TEST_ASSERT_EQUAL_INT(1, count("$str$part2[2]"));
    TEST_ASSERT_EQUAL_INT(1, count("$str$2$part2[2]"));
}

/* Neither is the one that the other means. */
static void an_own_name_is_not_what_another_only_declares(void)
{
    add(HEAD ".func f { ret; }\n.visible .entry a() { call.uni f; ret; }\n", false);
    add(HEAD ".extern .func f;\n.visible .entry b() { call.uni f; ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(2, count("f$part1"));
    TEST_ASSERT_EQUAL_INT(1, count(".extern .func f;"));
    TEST_ASSERT_EQUAL_INT(1, count("call.uni f;"));
}

/* ptxas takes the name of an instruction for a function. */
static void instructions_keep_their_names(void)
{
    for (int i = 0; i < 2; i++)
        add(i == 0 ? HEAD ".func add { add.u32 %r1, %r1, 1; ret; }\n"
                          ".visible .entry a() { call.uni add; ret; }\n"
                   : HEAD ".func add { add.u32 %r1, %r1, 2; ret; }\n",
            false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(2, count("add.u32"));
    TEST_ASSERT_EQUAL_INT(1, count(".func add$part2 "));
    TEST_ASSERT_EQUAL_INT(1, count("call.uni add$part1;"));
}

static void a_new_name_that_somebody_has_is_refused(void)
{
    add(HEAD ".global .u32 own;\n", false);
    add(HEAD ".global .u32 own;\n.visible .global .u32 own$part1;\n", false);
    TEST_ASSERT_EQUAL_INT(-EEXIST, join());
}

static void a_function_is_no_variable(void)
{
    add(HEAD ".extern .global .u32 f;\n", false);
    add(HEAD ".visible .func f { ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(-EINVAL, join());
    TEST_ASSERT_NOT_NULL(strstr(err.text, "linking: f "));
}

static void shared_memory_is_aligned_as_the_strictest_wants_it(void)
{
    add(HEAD ".extern .shared .align 4 .b8 dyn[];\n.visible .entry a() { ret; }\n", false);
    add(HEAD ".extern .shared .align 16 .b8 dyn[];\n.visible .entry b() { ret; }\n", false);
    add(HEAD ".extern .shared .align 8 .b8 dyn[];\n.visible .entry c() { ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count("dyn"));
    TEST_ASSERT_EQUAL_INT(1, count(".align 16 .b8 dyn[]"));
}

static void several_names_of_one_statement_stand_there_once(void)
{
    add(HEAD ".visible .global .u32 a, b;\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count("a, b"));
}

static void libraries_come_in_if_they_are_wanted_also_by_each_other(void)
{
    add(HEAD ".visible .func second { ret; }\n", true);
    add(HEAD ".extern .func second;\n.visible .func first { call.uni second; ret; }\n", true);
    add(HEAD ".visible .func unwanted { ret; }\n", true);
    add(HEAD ".extern .func first;\n.visible .entry k() { call.uni first; ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_TRUE(parts[0].is_in && parts[1].is_in && !parts[2].is_in && parts[3].is_in);
    TEST_ASSERT_EQUAL_INT(0, count("unwanted"));
    n_parts--;
    TEST_ASSERT_EQUAL_INT(-EINVAL, join());
    n_parts++;
}

static void a_librarys_own_function_serves_nobody_else(void)
{
    add(HEAD ".func hidden { ret; }\n", true);
    add(HEAD ".extern .func hidden;\n.visible .entry k() { call.uni hidden; ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_FALSE(parts[0].is_in);
}

static void of_two_libraries_the_first_counts(void)
{
    add(HEAD ".visible .func f { mov.u32 %r1, 1; ret; }\n", true);
    add(HEAD ".visible .func f { mov.u32 %r1, 2; ret; }\n.visible .func g { ret; }\n", true);
    add(HEAD ".extern .func f;\n.extern .func g;\n.visible .entry k() { call.uni f; ret; }\n",
        false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_INT(1, count("%r1, 1"));
    TEST_ASSERT_EQUAL_INT(0, count("%r1, 2"));
    TEST_ASSERT_EQUAL_INT(1, count(".func g { ret; }"));
}

static void addresses_of_32_bits_are_refused(void)
{
    add(".version 8.0\n.target sm_80\n.address_size 32\n", false);
    TEST_ASSERT_EQUAL_INT(-EINVAL, join());
}

/* What comes out is PTX, and joined with itself alone it is the same. */
static void what_was_joined_can_be_joined_again(void)
{
    add(HEAD ".global .u32 own;\n.visible .entry a() { ld.global.u32 %r1, [own]; ret; }\n", false);
    add(HEAD ".global .u32 own;\n.weak .func w { ret; }\n", false);
    TEST_ASSERT_EQUAL_INT(0, join());
    char *first = text;
    text = NULL;
    tearDown();
    n_parts = 0;
    add(first, false);
    TEST_ASSERT_EQUAL_INT(0, join());
    TEST_ASSERT_EQUAL_STRING(first, text);
    tearDown();
    n_parts = 0;
    text = NULL;
    free(first);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_one_declares_and_another_defines_meets);
    RUN_TEST(the_newest_version_and_target_serve_all);
    RUN_TEST(two_definitions_for_all_are_refused_by_name);
    RUN_TEST(of_weak_definitions_the_first_counts_and_a_strong_one_before_all);
    RUN_TEST(of_common_variables_the_largest_counts_or_the_one_with_a_value);
    RUN_TEST(own_names_of_several_are_all_changed_wherever_they_stand);
    RUN_TEST(names_that_are_changed_do_not_depend_on_libraries);
    RUN_TEST(texts_that_count_their_strings_are_joined);
    RUN_TEST(an_own_name_is_not_what_another_only_declares);
    RUN_TEST(instructions_keep_their_names);
    RUN_TEST(a_new_name_that_somebody_has_is_refused);
    RUN_TEST(a_function_is_no_variable);
    RUN_TEST(shared_memory_is_aligned_as_the_strictest_wants_it);
    RUN_TEST(several_names_of_one_statement_stand_there_once);
    RUN_TEST(libraries_come_in_if_they_are_wanted_also_by_each_other);
    RUN_TEST(a_librarys_own_function_serves_nobody_else);
    RUN_TEST(of_two_libraries_the_first_counts);
    RUN_TEST(addresses_of_32_bits_are_refused);
    RUN_TEST(what_was_joined_can_be_joined_again);
    return UNITY_END();
}

/* PTX that is kept on disk for programs that come later, and is not taken from where others could
 * have put it. */
#include "intercept/doors/doors.h"
#include "test/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static const char code[] = "machine code", ptx[] = ".version 8.0";
static char cache[256];

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(cache, sizeof cache, "doors_XXXXXX")));
    setenv("TALLY_CACHE", cache, 1);
}

void tearDown(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

/* In a process of its own, so that this one has it from the disk alone. */
static void keep(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        tl_doors_keep(code, sizeof code, ptx, strlen(ptx));
        _exit(0);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

static void assert_found(bool is_wanted)
{
    size_t n = 0;
    char *text = tl_doors_find(code, sizeof code, &n);
    TEST_ASSERT_EQUAL_INT(is_wanted, text != NULL);
    if (is_wanted) {
        TEST_ASSERT_EQUAL_STRING(ptx, text);
        TEST_ASSERT_EQUAL_UINT64(strlen(ptx), n);
    }
    free(text);
}

static void what_another_process_kept_is_found(void)
{
    keep();
    assert_found(true);
}

static void who_only_looks_makes_no_folder(void)
{
    char folder[300];
    assert_found(false);
    snprintf(folder, sizeof folder, "%s/ptx", cache);
    TEST_ASSERT_NOT_EQUAL(0, access(folder, F_OK));
}

static void nothing_is_taken_from_where_others_can_write(void)
{
    char folder[300];
    keep();
    snprintf(folder, sizeof folder, "%s/ptx", cache);
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0777));
    assert_found(false);
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0700));
    TEST_ASSERT_EQUAL_INT(0, chmod(cache, 0777)); /* they could put another folder there */
    assert_found(false);
    TEST_ASSERT_EQUAL_INT(0, chmod(cache, 0755));
    assert_found(true);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_another_process_kept_is_found);
    RUN_TEST(who_only_looks_makes_no_folder);
    RUN_TEST(nothing_is_taken_from_where_others_can_write);
    return UNITY_END();
}

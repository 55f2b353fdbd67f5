/* Compiled kernels come from folders that nobody else can write to, or are not run. */
#include "device/exec/internal.h"
#include "tally/base.h"
#include "test/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

enum { NOBODY = 65534 };

static char folder[200], file[256];
static struct tl_error err;

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "object-XXXXXX")));
    snprintf(file, sizeof file, "%s/kernel.so", folder);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0600);
    TEST_ASSERT_EQUAL_INT(4, write(fd, "none", 4));
    close(fd);
}

void tearDown(void)
{
    unlink(file);
    rmdir(folder);
}

static int try_to_open(void)
{
    struct tl_exec_object *o;
    return tl_exec_object_open(&o, file, &err);
}

/* The linker gets to see it; it is no library. */
static void a_file_of_ours_is_looked_at(void)
{
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, try_to_open());
}

static void a_folder_that_others_may_write_to_is_not_used(void)
{
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0770));
    TEST_ASSERT_EQUAL_INT(-EPERM, try_to_open());
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0707));
    TEST_ASSERT_EQUAL_INT(-EPERM, try_to_open());
}

static void a_link_is_not_followed(void)
{
    TEST_ASSERT_EQUAL_INT(0, unlink(file));
    TEST_ASSERT_EQUAL_INT(0, symlink("/proc/self/exe", file));
    TEST_ASSERT_EQUAL_INT(-EPERM, try_to_open());
}

static void what_belongs_to_somebody_else_is_not_run(void)
{
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("only root can give files away");
    TEST_ASSERT_EQUAL_INT(0, chown(file, NOBODY, NOBODY));
    TEST_ASSERT_EQUAL_INT(-EPERM, try_to_open());
    TEST_ASSERT_EQUAL_INT(0, chown(file, 0, 0));
    TEST_ASSERT_EQUAL_INT(0, chown(folder, NOBODY, NOBODY));
    TEST_ASSERT_EQUAL_INT(-EPERM, try_to_open());
}

/* Only a descriptor's own path needs no folder that is looked at: others in /proc lead anywhere. */
static void a_way_through_proc_is_looked_at_too(void)
{
    struct tl_exec_object *o;
    char way[300];
    int fd = open(folder, O_PATH | O_DIRECTORY);
    snprintf(way, sizeof way, "/proc/self/fd/%d/kernel.so", fd);
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, tl_exec_object_open(&o, way, &err));
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0777));
    TEST_ASSERT_EQUAL_INT(-EPERM, tl_exec_object_open(&o, way, &err));
    close(fd);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_file_of_ours_is_looked_at);
    RUN_TEST(a_folder_that_others_may_write_to_is_not_used);
    RUN_TEST(a_link_is_not_followed);
    RUN_TEST(a_way_through_proc_is_looked_at_too);
    RUN_TEST(what_belongs_to_somebody_else_is_not_run);
    return UNITY_END();
}

/* PTX that is kept on disk for programs that come later, and is not taken from where others could
 * have put it. */
#include "intercept/doors/doors.h"
#include "test/unit/scratch.h"

#include <dirent.h>
#include <fcntl.h>
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

/* Makes a file that was last used so many seconds after 1970; 0: now. */
static void make_file(int folder, const char *name, time_t used)
{
    int fd = openat(folder, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    TEST_ASSERT_TRUE(fd >= 0);
    if (used != 0)
        TEST_ASSERT_EQUAL_INT(
            0, futimens(fd, (struct timespec[2]){{.tv_sec = used}, {.tv_sec = used}}));
    close(fd);
}

static int open_folder(const char *below)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", cache, below);
    (void)mkdir(path, 0700);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    return fd;
}

static void what_is_not_used_goes_at_last_and_code_with_it(void)
{
    enum { MOST = 65536, TRIES = 20000 };
    char name[32];
    keep();
    int texts = open_folder("ptx"), cupy = open_folder("cupy"), i = 0;
    DIR *dir = fdopendir(dup(texts));
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        TEST_ASSERT_EQUAL_INT(0, utimensat(texts, entry->d_name,
                                           (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}, 0));
    closedir(dir);
    assert_found(true); /* used, so not old any more */
    for (; i <= MOST; i++) {
        snprintf(name, sizeof name, "%d.ptx", i);
        make_file(texts, name, 1000);
    }
    make_file(cupy, "old.cubin", 1000);
    make_file(cupy, "later.cubin", 1010); /* written when its text had been kept */
    make_file(cupy, "new.cubin", 0);
    for (i = 0; i < TRIES && faccessat(cupy, "old.cubin", F_OK, 0) == 0; i++)
        tl_doors_keep(&i, sizeof i, ptx, strlen(ptx));
    TEST_ASSERT_LESS_THAN_INT(TRIES, i);
    TEST_ASSERT_NOT_EQUAL(0, faccessat(texts, "0.ptx", F_OK, 0));
    TEST_ASSERT_NOT_EQUAL(0, faccessat(cupy, "later.cubin", F_OK, 0));
    TEST_ASSERT_EQUAL_INT(0, faccessat(cupy, "new.cubin", F_OK, 0));
    assert_found(true);
    close(texts);
    close(cupy);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_another_process_kept_is_found);
    RUN_TEST(who_only_looks_makes_no_folder);
    RUN_TEST(nothing_is_taken_from_where_others_can_write);
    RUN_TEST(what_is_not_used_goes_at_last_and_code_with_it);
    return UNITY_END();
}

/* Admissions: who is let in, and who is not. */
#include "runtime/job/admit.h"
#include "unity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[128], socket_path[160], file[256];
static struct tl_error err;
static const struct tl_admission admission = {"slurm:12", "50 memory=8G slo"};

void setUp(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.80s/admit.XXXXXX", tmp != NULL ? tmp : "/tmp");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    snprintf(socket_path, sizeof socket_path, "%s/sock", folder);
    snprintf(file, sizeof file, "%s/admitted/%d", folder, (int)getpid());
}

void tearDown(void)
{
    char path[256];
    tl_admit_remove(socket_path, getpid());
    snprintf(path, sizeof path, "%s/admitted", folder);
    (void)rmdir(path);
    (void)rmdir(folder);
}

static void admit_this_process(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_admit_write(socket_path, getpid(), &admission, &err),
                                  err.text);
}

static void write_file(const char *text)
{
    FILE *out = fopen(file, "w");
    TEST_ASSERT_NOT_NULL(out);
    fputs(text, out);
    TEST_ASSERT_EQUAL_INT(0, fclose(out));
}

static void a_process_and_its_children_are_let_in(void)
{
    struct tl_admission found;
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getpid(), &found));
    admit_this_process();
    TEST_ASSERT_EQUAL_INT(0, tl_admit_find(socket_path, getpid(), &found));
    TEST_ASSERT_EQUAL_STRING("slurm:12", found.account);
    TEST_ASSERT_EQUAL_STRING("50 memory=8G slo", found.rights);
    pid_t child = fork();
    if (child == 0)
        _exit(tl_admit_find(socket_path, getpid(), &found) == 0 &&
                      strcmp(found.rights, admission.rights) == 0
                  ? 0
                  : 1);
    int status;
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getppid(), &found)); /* not above */
    tl_admit_remove(socket_path, getpid());
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getpid(), &found));
}

static void the_file_of_an_earlier_process_of_that_number_is_nothing(void)
{
    struct tl_admission found;
    admit_this_process();
    write_file("1 slurm:12\nhigh\n"); /* it began when the machine did */
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getpid(), &found));
}

static void files_that_others_can_write_are_nothing(void)
{
    struct tl_admission found;
    char path[256];
    admit_this_process();
    TEST_ASSERT_EQUAL_INT(0, chmod(file, 0666));
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getpid(), &found));
    TEST_ASSERT_EQUAL_INT(0, chmod(file, 0644));
    snprintf(path, sizeof path, "%s/admitted", folder);
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0777));
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getpid(), &found));
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0755));
    TEST_ASSERT_EQUAL_INT(0, tl_admit_find(socket_path, getpid(), &found));
}

static void damaged_files_are_nothing(void)
{
    static const char *const texts[] = {"", "x\n", "5", "99999999999999999999 a\nhigh\n", "\n\n"};
    struct tl_admission found;
    admit_this_process();
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file(texts[i]);
        TEST_ASSERT_EQUAL_INT(-ENOENT, tl_admit_find(socket_path, getpid(), &found));
    }
}

static void names_that_would_break_the_file_are_refused(void)
{
    struct tl_admission bad = {"two words", "high"};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_admit_write(socket_path, getpid(), &bad, &err));
    bad = (struct tl_admission){"ok", "high\nhigh"};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_admit_write(socket_path, getpid(), &bad, &err));
    bad = (struct tl_admission){"", "high"};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_admit_write(socket_path, getpid(), &bad, &err));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_process_and_its_children_are_let_in);
    RUN_TEST(the_file_of_an_earlier_process_of_that_number_is_nothing);
    RUN_TEST(files_that_others_can_write_are_nothing);
    RUN_TEST(damaged_files_are_nothing);
    RUN_TEST(names_that_would_break_the_file_are_refused);
    return UNITY_END();
}

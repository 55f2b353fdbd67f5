/* Whom a path leads past: folders and links that others could have changed. */
#include "tally/trust.h"
#include "test/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

enum { SOMEBODY = 65533 };

static char folder[256];
static struct tl_error err;

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "trust_XXXXXX")));
    err = (struct tl_error){0};
}

void tearDown(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

/* A path in the test's folder; valid until the next call but one. */
static const char *in(const char *name)
{
    static char paths[2][600];
    static unsigned turn;
    char *path = paths[turn++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make(const char *name, mode_t mode)
{
    TEST_ASSERT_EQUAL_INT(0, mkdir(in(name), 0700));
    TEST_ASSERT_EQUAL_INT(0, chmod(in(name), mode));
}

static void assert_trusted(const char *name)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_trust_path(in(name), &err), err.text);
}

static void assert_refused(const char *name, const char *because_of)
{
    TEST_ASSERT_EQUAL_INT(-EPERM, tl_trust_path(in(name), &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, because_of), err.text);
}

static void folders_of_ones_own_are_trusted(void)
{
    make("a", 0755);
    make("a/b", 0700);
    assert_trusted("a/b");
    assert_trusted("a//b/./../b/");
    assert_trusted("a/b/missing/and/more");
    TEST_ASSERT_EQUAL_INT(0, tl_trust_path("/", &err));
}

static void a_folder_that_others_can_write_to_is_named(void)
{
    make("open", 0777);
    make("open/b", 0700);
    assert_refused("open/b", "/open, to which other users can write");
    TEST_ASSERT_EQUAL_INT(0, chmod(in("open"), 0770));
    assert_refused("open/b", "/open,");
    TEST_ASSERT_EQUAL_INT(0, chmod(in("open"), 01777)); /* as /tmp */
    assert_trusted("open/b");
}

static void links_are_followed_and_what_they_lead_through_is_looked_at(void)
{
    make("good", 0700);
    make("open", 0777);
    make("open/b", 0700);
    TEST_ASSERT_EQUAL_INT(0, symlink("good", in("relative")));
    TEST_ASSERT_EQUAL_INT(0, symlink(in("good"), in("absolute")));
    TEST_ASSERT_EQUAL_INT(0, symlink("open/b", in("astray")));
    TEST_ASSERT_EQUAL_INT(0, symlink("round", in("round")));
    assert_trusted("relative");
    assert_trusted("absolute/missing");
    assert_refused("astray", "/open,");
    TEST_ASSERT_EQUAL_INT(-ELOOP, tl_trust_path(in("round/x"), &err));
}

static void a_path_from_here_is_a_path_from_the_root(void)
{
    char back[1024];
    TEST_ASSERT_NOT_NULL(getcwd(back, sizeof back));
    make("open", 0777);
    make("open/b", 0700);
    TEST_ASSERT_EQUAL_INT(0, chdir(in("open/b")));
    int rc = tl_trust_path("cache", &err);
    TEST_ASSERT_EQUAL_INT(0, chdir(back));
    TEST_ASSERT_EQUAL_INT(-EPERM, rc);
}

static void what_belongs_to_somebody_else_is_not_trusted(void)
{
    make("his", 0755);
    make("his/b", 0700);
    make("tmp", 01777);
    TEST_ASSERT_EQUAL_INT(0, symlink(in("tmp"), in("tmp/link")));
    if (chown(in("his"), SOMEBODY, (gid_t)-1) < 0)
        TEST_IGNORE_MESSAGE("only root can give folders away");
    TEST_ASSERT_EQUAL_INT(0, lchown(in("tmp/link"), SOMEBODY, (gid_t)-1));
    assert_refused("his/b", "/his, to which other users can write");
    assert_refused("tmp/link", "/tmp, where somebody else has put a link");
}

/* Root of mount and process namespaces of its own, which an ordinary user is in a user
 * namespace. */
static bool enter_container(void)
{
    char map[32];
    int n = snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
    if (geteuid() == 0)
        return unshare(CLONE_NEWNS | CLONE_NEWPID) == 0;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0)
        return false;
    int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    bool is_root = fd >= 0 && write(fd, map, (size_t)n) == n;
    if (fd >= 0)
        close(fd);
    return is_root;
}

/* 0 if a folder in it is trusted there, 1 if not, 33 if there can be no container. */
static int ask_in_container(bool is_volume)
{
    int status = 0;
    if (!enter_container())
        return 33;
    pid_t pid = fork(); /* who is born from here on is in the other namespace */
    if (pid == 0) {
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            (is_volume && mount("none", in("open"), "tmpfs", 0, "mode=0777") < 0))
            _exit(33);
        (void)mkdir(in("open/b"), 0700);
        _exit(tl_trust_path(in("open/b"), NULL) == 0 ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static void a_volume_of_a_container_is_its_own(void)
{
    make("open", 0777);
    for (int is_volume = 1; is_volume >= 0; is_volume--) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(ask_in_container(is_volume != 0));
        waitpid(pid, &status, 0);
        if (WEXITSTATUS(status) == 33)
            TEST_IGNORE_MESSAGE("no namespaces can be made here");
        TEST_ASSERT_EQUAL_INT(is_volume ? 0 : 1, WEXITSTATUS(status));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(folders_of_ones_own_are_trusted);
    RUN_TEST(a_folder_that_others_can_write_to_is_named);
    RUN_TEST(links_are_followed_and_what_they_lead_through_is_looked_at);
    RUN_TEST(a_path_from_here_is_a_path_from_the_root);
    RUN_TEST(what_belongs_to_somebody_else_is_not_trusted);
    RUN_TEST(a_volume_of_a_container_is_its_own);
    return UNITY_END();
}

/* Where tallyd listens, locks and logs, when somebody else was there first. */
#include "test/unit/runtime/tallyd/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unity.h>

void setUp(void)
{
    daemon_test_begin();
}

void tearDown(void)
{
    daemon_test_end();
}

static void assert_refused(const char *word)
{
    struct tl_error remark = {0};
    daemon_may_start(); /* started by the client, which then can say why it failed */
    struct tl_client *c = daemon_client(0, &remark);
    TEST_ASSERT_FALSE(tl_client_is_joined(c));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(remark.text, word), remark.text);
    tl_client_destroy(c);
}

static void assert_joins(void)
{
    daemon_may_start();
    struct tl_client *c = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    tl_client_destroy(c);
}

static void a_pipe_in_place_of_the_log_holds_nobody_up(void)
{
    TEST_ASSERT_EQUAL_INT(0, mkfifo(daemon_test_path("tallyd.log"), 0600));
    assert_joins();
}

static void a_pipe_in_place_of_the_lock_is_refused(void)
{
    char lock[600];
    snprintf(lock, sizeof lock, "%s.lock", getenv("TALLY_SOCKET"));
    TEST_ASSERT_EQUAL_INT(0, mkfifo(lock, 0600));
    assert_refused("is no file of this user");
}

/* The socket's folder by way of a link. */
static void go_by_link(uid_t owner)
{
    char link[600], folder[500], *slash;
    snprintf(folder, sizeof folder, "%s", getenv("TALLY_SOCKET"));
    slash = strrchr(folder, '/');
    *slash = '\0';
    snprintf(link, sizeof link, "%s/l", folder);
    TEST_ASSERT_EQUAL_INT(0, symlink(folder, link));
    if (owner != geteuid() && lchown(link, owner, (gid_t)-1) < 0)
        TEST_IGNORE_MESSAGE("only root can give a link away");
    snprintf(link, sizeof link, "%s/l/s", folder);
    setenv("TALLY_SOCKET", link, 1);
}

static void a_link_of_ones_own_is_followed(void)
{
    go_by_link(geteuid());
    assert_joins();
}

static void a_link_of_somebody_else_is_not(void)
{
    go_by_link(65534);
    assert_refused("is a link that user 65534 made");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_pipe_in_place_of_the_log_holds_nobody_up);
    RUN_TEST(a_pipe_in_place_of_the_lock_is_refused);
    RUN_TEST(a_link_of_ones_own_is_followed);
    RUN_TEST(a_link_of_somebody_else_is_not);
    return UNITY_END();
}

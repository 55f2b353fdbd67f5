/* Where tallyd listens, locks and logs, when somebody else was there first. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

/* Whoever can rename what is above decides who is tallyd. */
static void a_folder_that_others_can_exchange_is_refused(void)
{
    char below[600], folder[500];
    snprintf(folder, sizeof folder, "%s", daemon_test_path("open"));
    TEST_ASSERT_EQUAL_INT(0, mkdir(folder, 0777));
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0777));
    snprintf(below, sizeof below, "%s/t/s", folder);
    setenv("TALLY_SOCKET", below, 1);
    assert_refused("to which other users can write");
    snprintf(below, sizeof below, "%s/t", folder);
    (void)rmdir(below);
    TEST_ASSERT_EQUAL_INT(0, rmdir(folder));
}

/* In a process of its own: holds the place as a tallyd does that is being killed, until somebody
 * other than its parent connects, and then dies. */
static pid_t start_dying(void)
{
    char lock[600], byte = 0;
    int ready[2];
    TEST_ASSERT_EQUAL_INT(0, pipe2(ready, O_CLOEXEC));
    snprintf(lock, sizeof lock, "%s.lock", getenv("TALLY_SOCKET"));
    pid_t pid = fork();
    if (pid == 0) {
        struct ucred who = {.pid = getppid()};
        socklen_t n = sizeof who;
        int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600), listener = daemon_listen();
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write(ready[1], "+", 1) != 1)
            _exit(1);
        while (who.pid == getppid()) {
            int peer = accept(listener, NULL, NULL);
            if (peer < 0 || getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
                _exit(1);
        }
        _exit(0);
    }
    TEST_ASSERT_EQUAL_INT(1, read(ready[0], &byte, 1));
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Whether a question is answered, by whoever listens. */
static bool is_answered(void)
{
    struct tl_wire_list list = {.after = 0};
    struct tl_wire_packet packet;
    int fd = tl_wire_connect_patiently(getenv("TALLY_SOCKET"), NULL);
    bool is_so = fd >= 0 && tl_wire_send(fd, TL_WIRE_LIST, &list, sizeof list, NULL, 0) == 0 &&
                 daemon_receive(fd, &packet) == 1;
    if (fd >= 0)
        close(fd);
    return is_so;
}

static void a_tallyd_that_is_about_to_die_is_waited_for(void)
{
    int status = -1;
    pid_t dying = start_dying(), next = daemon_start(NULL); /* this one finds the place taken */
    TEST_ASSERT_EQUAL_INT(dying, waitpid(dying, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; !is_answered();) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, waitpid(next, NULL, WNOHANG), "the next tallyd gave up");
        TEST_ASSERT_TRUE(tl_clock_ns() < end);
    }
}

static void one_that_does_not_answer_is_named(void)
{
    pid_t stopped = daemon_start(NULL);
    (void)kill(stopped, SIGSTOP);
    int status = -1;
    pid_t next = daemon_start(NULL);
    TEST_ASSERT_EQUAL_INT(next, waitpid(next, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    char text[1024] = "";
    FILE *f = fopen(daemon_test_path("log"), "r");
    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_TRUE(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "does not answer"), text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_pipe_in_place_of_the_log_holds_nobody_up);
    RUN_TEST(a_pipe_in_place_of_the_lock_is_refused);
    RUN_TEST(a_link_of_ones_own_is_followed);
    RUN_TEST(a_link_of_somebody_else_is_not);
    RUN_TEST(a_folder_that_others_can_exchange_is_refused);
    RUN_TEST(a_tallyd_that_is_about_to_die_is_waited_for);
    RUN_TEST(one_that_does_not_answer_is_named);
    return UNITY_END();
}

/* A log that takes no lines holds nobody up: tallyd's standard error is a pipe that nobody
 * reads. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
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

/* What daemon_start makes of it becomes a pipe without room; this end reads and writes. */
static int make_full_log(void)
{
    char bytes[512];
    memset(bytes, '.', sizeof bytes);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(daemon_test_path("log"), 0600));
    int fd = open(daemon_test_path("log"), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    TEST_ASSERT_TRUE(fd >= 0);
    while (write(fd, bytes, sizeof bytes) > 0)
        ;
    TEST_ASSERT_EQUAL_INT(EAGAIN, errno);
    return fd;
}

static pid_t start_talkative(void)
{
    return daemon_start((const char *const[]){"--log=debug", NULL});
}

static void a_log_that_nobody_reads_holds_nobody_up(void)
{
    int log = make_full_log();
    pid_t d = start_talkative();
    struct tl_client *c = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    tl_client_destroy(c);
    TEST_ASSERT_TRUE(daemon_await_clients(0));
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
    close(log);
}

/* Each is two lines for tallyd. */
static void be_refused(void)
{
    struct tl_wire_hello hello = daemon_hello(0);
    struct tl_wire_packet packet;
    hello.share_version++;
    int fd = daemon_connect(), page = daemon_page();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &page, 1));
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_REFUSED, packet.m.head.kind);
    close(fd);
    close(page);
}

/* Reads the log until that word comes. */
static bool await_word(int log, const char *word)
{
    static char text[1 << 17];
    size_t n = 0;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end;) {
        (void)poll(&(struct pollfd){.fd = log, .events = POLLIN}, 1, 100);
        if (n > sizeof text / 2) { /* the word may lie across the end */
            memmove(text, text + n - 64, 64);
            n = 64;
        }
        ssize_t more = read(log, text + n, sizeof text - 1 - n);
        n += more > 0 ? (size_t)more : 0;
        text[n] = 0;
        if (strstr(text, word) != NULL)
            return true;
    }
    return false;
}

static void lines_that_are_lost_are_told_of(void)
{
    enum { MORE_THAN_WAIT = 700 };
    int log = make_full_log();
    pid_t d = start_talkative();
    for (int i = 0; i < MORE_THAN_WAIT; i++)
        be_refused();
    TEST_ASSERT_TRUE(await_word(log, " lines are missing here"));
    be_refused(); /* and from there on it is whole again */
    TEST_ASSERT_TRUE(await_word(log, "its shared pages are of another version"));
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
    close(log);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_log_that_nobody_reads_holds_nobody_up);
    RUN_TEST(lines_that_are_lost_are_told_of);
    return UNITY_END();
}

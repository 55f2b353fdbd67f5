/* Jobs that are stopped (SIGSTOP, as Ctrl-Z does) while others wait for them: they lose their
 * place, and have it again when they go on.  Everything waits for what it asks of tallyd, never
 * for time. */
#include "runtime/tallyd/tallyd.h"
#include "test/unit/runtime/tallyd/help.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#include "tally/clock.h"

void setUp(void)
{
    daemon_test_begin();
}

void tearDown(void)
{
    daemon_test_end();
}

/* What `tally ps` is told of that process. */
static struct tl_wire_status status_of(pid_t pid)
{
    struct tl_wire_list list = {.after = 0};
    struct tl_wire_packet packet;
    for (;;) {
        packet = daemon_ask(TL_WIRE_LIST, &list, sizeof list);
        TEST_ASSERT_EQUAL_UINT32(TL_WIRE_CLIENT, packet.m.head.kind);
        if (packet.m.status.pid == pid)
            return packet.m.status;
        list.after = packet.m.status.id;
    }
}

static bool await_stopped(pid_t pid, bool is_wanted)
{
    uint64_t until = tl_clock_ns() + DAEMON_PATIENCE_NS;
    while ((status_of(pid).is_stopped != 0) != is_wanted) {
        if (tl_clock_ns() > until)
            return false;
        sched_yield();
    }
    return true;
}

static void stop(struct daemon_child *c)
{
    int status;
    TEST_ASSERT_EQUAL_INT(0, kill(c->pid, SIGSTOP));
    TEST_ASSERT_EQUAL_INT(c->pid, waitpid(c->pid, &status, WUNTRACED));
    TEST_ASSERT_TRUE(WIFSTOPPED(status));
}

static void a_stopped_high_job_halts_nobody(void)
{
    daemon_start(NULL);
    struct daemon_child high = daemon_child_start(TL_LEVEL_HIGH);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    daemon_child_set(&high, true);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
    stop(&high);
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    TEST_ASSERT_FALSE(tl_client_is_preempted(low));
    TEST_ASSERT_FALSE(daemon_is_told(low));
    TEST_ASSERT_TRUE(await_stopped(high.pid, true));
    /* It was busy, and is again as soon as it goes on. */
    TEST_ASSERT_EQUAL_INT(0, kill(high.pid, SIGCONT));
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
    TEST_ASSERT_TRUE(await_stopped(high.pid, false));
    daemon_child_set(&high, false);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
    tl_client_destroy(low);
    daemon_child_kill(&high);
}

static void who_is_stopped_without_work_keeps_its_place(void)
{
    daemon_start(NULL);
    struct daemon_child idle = daemon_child_start(TL_LEVEL_HIGH),
                        busy = daemon_child_start(TL_LEVEL_HIGH);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 2));
    daemon_child_set(&busy, true);
    stop(&idle);
    stop(&busy);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1)); /* the other's */
    TEST_ASSERT_FALSE(tl_client_is_preempted(low));
    TEST_ASSERT_EQUAL_UINT32(0, status_of(idle.pid).is_stopped);
    TEST_ASSERT_TRUE(status_of(busy.pid).is_stopped != 0);
    tl_client_destroy(low);
    daemon_child_kill(&idle);
    daemon_child_kill(&busy);
}

static void who_is_killed_while_it_is_stopped_is_forgotten(void)
{
    daemon_start(NULL);
    struct daemon_child high = daemon_child_start(TL_LEVEL_HIGH);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    daemon_child_set(&high, true);
    stop(&high);
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    daemon_child_kill(&high);
    TEST_ASSERT_TRUE(daemon_await_clients(1));
    TEST_ASSERT_FALSE(tl_client_is_preempted(low));
    tl_client_destroy(low);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_stopped_high_job_halts_nobody);
    RUN_TEST(who_is_stopped_without_work_keeps_its_place);
    RUN_TEST(who_is_killed_while_it_is_stopped_is_forgotten);
    return UNITY_END();
}

/* Several GPUs: who has to do with whom, and a policy for each. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include "runtime/job/wire.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
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

static void place(struct tl_client *c, char gpu)
{
    uint8_t uuid[16] = "a GPU of a test";
    uuid[15] = (uint8_t)gpu;
    tl_client_place(c, uuid);
}

static struct tl_client *client_on(int level, const char *gpus)
{
    struct tl_client *c = daemon_client(level, NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    for (; *gpus != 0; gpus++)
        place(c, *gpus);
    return c;
}

static uint32_t count_words(struct tl_client *c)
{
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    return tl_client_words(c, words);
}

static void a_high_job_on_one_gpu_leaves_the_others_alone(void)
{
    daemon_start(NULL);
    struct tl_client *high = client_on(TL_LEVEL_HIGH, "0"), *here = client_on(TL_LEVEL_LOW, "0"),
                     *there = client_on(TL_LEVEL_LOW, "1");
    TEST_ASSERT_TRUE(daemon_await_words(here, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(here));
    TEST_ASSERT_EQUAL_UINT32(0, count_words(there)); /* it was told before its place was answered */
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(tl_client_is_preempted(here));
    TEST_ASSERT_TRUE(daemon_is_told(here));
    TEST_ASSERT_FALSE(tl_client_is_preempted(there));
    TEST_ASSERT_FALSE(daemon_is_told(there));
    tl_client_destroy(there);
    tl_client_destroy(here);
    tl_client_destroy(high);
}

/* When the call returns, the words are those of the place. */
static void who_has_said_where_it_is_has_the_words_of_that_place(void)
{
    daemon_start(NULL);
    struct tl_client *on_0 = client_on(TL_LEVEL_HIGH, "0"), *on_1 = client_on(TL_LEVEL_HIGH, "1"),
                     *nowhere = client_on(50, "");
    for (int i = 0; i < 10; i++) {
        struct tl_client *low = client_on(TL_LEVEL_LOW, "");
        TEST_ASSERT_TRUE(daemon_await_words(low, 3)); /* it counts for all, and all for it */
        place(low, i % 2 == 0 ? '0' : '1');
        TEST_ASSERT_EQUAL_UINT32(2, count_words(low));
        tl_client_issue(i % 2 == 0 ? on_1 : on_0, 1);
        TEST_ASSERT_FALSE(tl_client_is_preempted(low));
        tl_client_complete(i % 2 == 0 ? on_1 : on_0, 1);
        tl_client_issue(nowhere, 1);
        TEST_ASSERT_TRUE(tl_client_is_preempted(low));
        tl_client_complete(nowhere, 1);
        tl_client_destroy(low);
    }
    tl_client_destroy(nowhere);
    tl_client_destroy(on_1);
    tl_client_destroy(on_0);
}

static void a_job_on_two_gpus_has_to_do_with_both(void)
{
    daemon_start(NULL);
    struct tl_client *high = client_on(TL_LEVEL_HIGH, "01"), *middle = client_on(0, "1"),
                     *low = client_on(TL_LEVEL_LOW, "12"), *other = client_on(TL_LEVEL_LOW, "2");
    TEST_ASSERT_TRUE(daemon_await_words(low, 2));
    TEST_ASSERT_TRUE(daemon_await_words(middle, 1));
    TEST_ASSERT_TRUE(daemon_await_words(other, 0));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    tl_client_issue(middle, 1);
    TEST_ASSERT_TRUE(daemon_is_told(low));
    tl_client_complete(middle, 1);
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(daemon_is_told(low) && tl_client_is_preempted(middle));
    TEST_ASSERT_FALSE(tl_client_is_preempted(other));
    tl_client_destroy(other);
    tl_client_destroy(low);
    tl_client_destroy(middle);
    tl_client_destroy(high);
}

static void places_are_kept_when_tallyd_is_restarted(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *high = client_on(TL_LEVEL_HIGH, "0"), *low = client_on(TL_LEVEL_LOW, "1");
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(low, false));
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(low, true));
    TEST_ASSERT_TRUE(daemon_await_joined(high, true));
    TEST_ASSERT_EQUAL_UINT32(2, daemon_count_clients());
    TEST_ASSERT_EQUAL_UINT32(0, count_words(low));
    place(low, '0');
    TEST_ASSERT_EQUAL_UINT32(1, count_words(low));
    tl_client_destroy(low);
    tl_client_destroy(high);
}

static bool may_run(struct tl_client *c)
{
    struct tl_grant g;
    tl_client_grant(c, &g);
    return g.may_run;
}

static bool await_both(struct tl_client *a, struct tl_client *b)
{
    uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS;
    while (!(may_run(a) && may_run(b)) && tl_clock_ns() < end)
        tl_client_wait(a, tl_client_changes(a), 1000000);
    return may_run(a) && may_run(b);
}

/* Under a policy that lets one run at a time: the one might wait for the other in a kernel, and its
 * turn would not end. */
static void members_of_a_gang_run_together(void)
{
    daemon_start((const char *const[]){"--policy=timeslice", NULL});
    setenv("TALLY_JOB", "gang", 1);
    struct tl_client *a = client_on(0, "0"), *b = client_on(0, "0");
    setenv("TALLY_JOB", "another", 1);
    struct tl_client *c = client_on(0, "0");
    atomic_store(&tl_client_page(a)->is_in_gang, 1);
    atomic_store(&tl_client_page(b)->is_in_gang, 1);
    atomic_store(&tl_client_page(c)->is_in_gang, 1);
    tl_client_backlog(a, true);
    tl_client_backlog(b, true);
    tl_client_backlog(c, true);
    for (int i = 0; i < 5; i++) { /* and so each time that their turn comes */
        TEST_ASSERT_TRUE(daemon_await_may_run(c, true));
        TEST_ASSERT_TRUE(await_both(a, b));
    }
    unsetenv("TALLY_JOB");
    tl_client_destroy(c);
    tl_client_destroy(b);
    tl_client_destroy(a);
}

/* Equals take turns on one GPU, and not with those on another. */
static void each_gpu_has_a_policy_of_its_own(void)
{
    daemon_start((const char *const[]){"--policy=timeslice", NULL});
    struct tl_client *a = client_on(0, "0"), *b = client_on(0, "1"), *c = client_on(0, "1");
    bool has_waited[2] = {false, false};
    tl_client_backlog(a, true);
    tl_client_backlog(b, true);
    tl_client_backlog(c, true);
    TEST_ASSERT_EQUAL_UINT32(3, daemon_count_clients()); /* it has looked */
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS;
         tl_clock_ns() < end && !(has_waited[0] && has_waited[1]);) {
        uint32_t seen = tl_client_changes(b);
        TEST_ASSERT_TRUE(may_run(a));
        has_waited[0] |= !may_run(b);
        has_waited[1] |= !may_run(c);
        atomic_fetch_add(&tl_client_page(may_run(b) ? b : c)->device_ns, 1000000);
        tl_client_wait(b, seen, 1000000);
    }
    TEST_ASSERT_TRUE(has_waited[0] && has_waited[1]);
    place(a, '1'); /* where there are three now, so it waits as well */
    TEST_ASSERT_TRUE(daemon_await_may_run(a, false));
    tl_client_destroy(c);
    tl_client_destroy(b);
    tl_client_destroy(a);
}

/* More than can be told: it counts for all again. */
static void a_job_on_very_many_gpus_has_to_do_with_all(void)
{
    daemon_start(NULL);
    struct tl_client *high = client_on(TL_LEVEL_HIGH, ""), *low = client_on(TL_LEVEL_LOW, "z");
    for (int g = 0; g <= TL_WIRE_GPUS; g++) {
        place(high, (char)g);
        TEST_ASSERT_TRUE(daemon_await_words(low, g < TL_WIRE_GPUS ? 0 : 1));
    }
    tl_client_destroy(low);
    tl_client_destroy(high);
}

/* More GPUs than tallyd tells apart: who is on one too many counts for all. */
static void more_gpus_than_there_can_be_harm_nobody(void)
{
    enum { CLIENTS = 8, EACH = 12 };
    pid_t d = daemon_start(NULL);
    struct tl_client *c[CLIENTS], *low = client_on(TL_LEVEL_LOW, "z");
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = client_on(5, "");
        for (int g = 0; g < EACH; g++)
            place(c[i], (char)(128 + i * EACH + g));
    }
    TEST_ASSERT_EQUAL_UINT32(CLIENTS + 1, daemon_count_clients());
    TEST_ASSERT_TRUE(count_words(low) > 0);
    for (int i = 0; i < CLIENTS; i++)
        tl_client_destroy(c[i]);
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    tl_client_destroy(low);
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
}

/* Before it has joined, and with a number that is too large. */
static void places_that_make_no_sense_harm_nobody(void)
{
    daemon_start(NULL);
    struct tl_client *high = client_on(TL_LEVEL_HIGH, "0");
    struct tl_wire_place nonsense = {.gpus = {.n = UINT32_MAX}};
    struct tl_wire_packet packet;
    int fd = daemon_connect();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_PLACE, &nonsense, sizeof nonsense, NULL, 0));
    TEST_ASSERT_EQUAL_INT(0, daemon_receive(fd, &packet));
    close(fd);
    struct tl_client *low = client_on(TL_LEVEL_LOW, "0");
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    tl_client_destroy(low);
    tl_client_destroy(high);
}

static void it_is_told_who_is_where(void)
{
    daemon_start(NULL);
    struct tl_client *c = client_on(0, "xy");
    struct tl_wire_list list = {0};
    struct tl_wire_packet packet = daemon_ask(TL_WIRE_LIST, &list, sizeof list);
    char name[48];
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_CLIENT, packet.m.head.kind);
    TEST_ASSERT_EQUAL_UINT32(2, packet.m.status.gpus.n);
    TEST_ASSERT_EQUAL_MEMORY("a GPU of a testx", packet.m.status.gpus.uuids[0], 16);
    TEST_ASSERT_EQUAL_MEMORY("a GPU of a testy", packet.m.status.gpus.uuids[1], 16);
    tl_wire_gpu_name((const uint8_t *)"a GPU of a testx", name);
    TEST_ASSERT_EQUAL_STRING("GPU-61204750-5520-6f66-2061-207465737478", name);
    tl_client_destroy(c);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_high_job_on_one_gpu_leaves_the_others_alone);
    RUN_TEST(who_has_said_where_it_is_has_the_words_of_that_place);
    RUN_TEST(a_job_on_two_gpus_has_to_do_with_both);
    RUN_TEST(places_are_kept_when_tallyd_is_restarted);
    RUN_TEST(members_of_a_gang_run_together);
    RUN_TEST(each_gpu_has_a_policy_of_its_own);
    RUN_TEST(a_job_on_very_many_gpus_has_to_do_with_all);
    RUN_TEST(more_gpus_than_there_can_be_harm_nobody);
    RUN_TEST(places_that_make_no_sense_harm_nobody);
    RUN_TEST(it_is_told_who_is_where);
    return UNITY_END();
}

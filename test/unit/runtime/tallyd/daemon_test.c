/* A real tallyd: levels, grants, control, rules, deaths, start and end. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include "runtime/job/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static int set(pid_t pid, uint32_t what, const struct tl_sched_client *c)
{
    struct tl_wire_set s = {.pid = pid, .what = what, .client = tl_wire_pack(c)};
    struct tl_wire_packet packet = daemon_ask(TL_WIRE_SET, &s, sizeof s);
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_ANSWER, packet.m.head.kind);
    return packet.m.answer.code;
}

/* --- levels ----------------------------------------------------------------------------------- */

static void a_low_job_sees_the_word_of_a_high_one_and_not_the_other_way_round(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_EQUAL_UINT32(0, tl_client_words(high, words));
    atomic_fetch_add(&tl_client_page(high)->issued, 3);
    TEST_ASSERT_TRUE(tl_client_is_preempted(low));
    atomic_fetch_add(&tl_client_page(high)->completed, 2);
    TEST_ASSERT_TRUE(tl_client_is_preempted(low));
    atomic_fetch_add(&tl_client_page(high)->completed, 1);
    TEST_ASSERT_FALSE(tl_client_is_preempted(low));
    atomic_fetch_add(&tl_client_page(low)->issued, 1);
    TEST_ASSERT_FALSE(tl_client_is_preempted(high));
    tl_client_destroy(high);
    tl_client_destroy(low);
}

static void equals_do_not_see_each_other(void)
{
    daemon_start(NULL);
    struct tl_client *a = daemon_client(5, NULL), *b = daemon_client(5, NULL),
                     *c = daemon_client(4, NULL);
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    TEST_ASSERT_TRUE(daemon_await_words(c, 2));
    TEST_ASSERT_EQUAL_UINT32(0, tl_client_words(a, words));
    TEST_ASSERT_EQUAL_UINT32(0, tl_client_words(b, words));
    tl_client_destroy(a);
    TEST_ASSERT_TRUE(daemon_await_words(c, 1));
    tl_client_destroy(b);
    tl_client_destroy(c);
}

static void a_killed_job_holds_nobody_back(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    for (int i = 0; i < 5; i++) {
        struct daemon_child high = daemon_child_start(TL_LEVEL_HIGH);
        TEST_ASSERT_TRUE(daemon_await_words(low, 1));
        daemon_child_set(&high, true);
        TEST_ASSERT_TRUE(tl_client_is_preempted(low));
        daemon_child_kill(&high);
        TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
        TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    }
    TEST_ASSERT_EQUAL_UINT32(1, daemon_count_clients());
    tl_client_destroy(low);
}

/* What tallyd's epoll watches, of all that was ever given to it. */
static uint32_t count_watched(pid_t d)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 64; fd++) {
        char path[64], line[256];
        snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)d, fd);
        FILE *f = fopen(path, "r");
        while (f != NULL && fgets(line, sizeof line, f) != NULL)
            n += strncmp(line, "tfd:", 4) == 0;
        if (f != NULL)
            fclose(f);
    }
    return n;
}

/* Joins without the library, to see what tallyd sends: the socket, and its first answer. */
static int join_by_hand(int level, struct tl_wire_packet *answer)
{
    struct tl_wire_hello hello = daemon_hello(level);
    int fd = daemon_connect(), own = daemon_page();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &own, 1));
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, answer));
    close(own); /* tallyd has a descriptor of its own */
    return fd;
}

/* Those below hold a pidfd of who is above, the same open file that tallyd has; to close its own
 * ends nothing. */
static void who_has_left_is_no_longer_watched_while_others_hold_its_pidfd(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_wire_packet packet;
    int fd = join_by_hand(TL_LEVEL_LOW, &packet);
    tl_wire_close(&packet);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(tl_client_is_joined(high));
    do /* its words, with the pidfd; it has none to begin with */
        TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    while (packet.m.head.kind != TL_WIRE_WORDS || packet.n_fds == 0);
    TEST_ASSERT_EQUAL_UINT32(2, packet.n_fds);
    tl_client_destroy(high);
    /* the listener, time, signals, the porters' bell; the process of who is left */
    const uint32_t expected = 4 + 1;
    uint32_t watched = 0;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end; usleep(1000)) {
        watched = count_watched(d);
        if (watched == expected)
            break;
    }
    TEST_ASSERT_EQUAL_UINT32(expected, watched);
    tl_wire_close(&packet);
    close(fd);
}

struct sleeper {
    struct tl_client *client;
    _Atomic uint32_t bell, has_begun, has_waited;
};

static void *sleep_while_preempted(void *of)
{
    struct sleeper *s = of;
    pthread_setname_np(pthread_self(), "sleeper");
    atomic_store(&s->has_begun, 1);
    while (tl_client_is_preempted(s->client))
        tl_client_wait_rung(s->client, tl_client_changes(s->client), &s->bell, 0,
                            100 * DAEMON_PATIENCE_NS);
    atomic_store(&s->has_waited, 1);
    return NULL;
}

/* The sleeper's own time is far beyond the patience of this test, so only being told ends it. */
static void who_sleeps_until_a_word_is_idle_is_told(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    struct tl_client_page *page = tl_client_page(high);
    struct sleeper s = {.client = low};
    pthread_t thread;
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    atomic_fetch_add(&page->issued, 1);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, sleep_while_preempted, &s));
    TEST_ASSERT_TRUE(daemon_await_set(&s.has_begun));
    TEST_ASSERT_TRUE(daemon_await_asleep("sleeper"));
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&s.has_waited));
    atomic_fetch_add(&page->completed, 1);
    tl_client_tell_idle(high);
    TEST_ASSERT_TRUE(daemon_await_set(&s.has_waited));
    pthread_join(thread, NULL);
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* What the kernel does to the word when the client's thread dies, done by hand: its process is
 * still there, as one is whose memory takes long to unmap. */
static void a_word_is_forgotten_when_its_page_tells_of_the_death(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    struct tl_client_page *page = tl_client_page(high);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE((atomic_load(&page->alive) & FUTEX_TID_MASK) != 0);
    atomic_fetch_add(&page->issued, 1);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
    atomic_fetch_or(&page->alive, FUTEX_OWNER_DIED);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
    TEST_ASSERT_TRUE(tl_word_is_busy(atomic_load(&page->word)));
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* A kernel polls four words; of seven clients above, three are seen directly and four through
 * tallyd's page. */
static void more_levels_above_than_words_are_merged(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL), *above[7];
    for (int i = 0; i < 7; i++)
        above[i] = daemon_client(10 + i, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 4));
    tl_client_backlog(low, true); /* tallyd keeps the merged word for those who have work */
    TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
    for (int i = 0; i < 7; i++) {
        tl_client_issue(above[i], 1);
        TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
        TEST_ASSERT_TRUE(daemon_await_told(low, true));
        tl_client_complete(above[i], 1);
        TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
        TEST_ASSERT_TRUE(daemon_await_told(low, false));
    }
    for (int i = 6; i >= 3; i--)
        tl_client_destroy(above[i]);
    TEST_ASSERT_TRUE(daemon_await_words(low, 3));
    for (int i = 0; i < 3; i++)
        tl_client_destroy(above[i]);
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    tl_client_destroy(low);
}

/* The word of a merged client that dies busy, and tallyd's own death with a busy merged word. */
static void a_merged_word_dies_with_those_who_keep_it(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL), *above[4];
    for (int i = 0; i < 4; i++)
        above[i] = daemon_client(10 + i, NULL);
    struct daemon_child fifth = daemon_child_start(5);
    TEST_ASSERT_TRUE(daemon_await_words(low, 4));
    tl_client_backlog(low, true);
    daemon_child_set(&fifth, true);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
    daemon_child_kill(&fifth);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
    struct daemon_child sixth = daemon_child_start(6);
    daemon_child_set(&sixth, true);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, true));
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
    daemon_child_kill(&sixth);
    for (int i = 0; i < 4; i++)
        tl_client_destroy(above[i]);
    tl_client_destroy(low);
}

static void no_job_can_write_to_a_word_above_it(void)
{
    daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL);
    struct tl_wire_packet packet;
    int fd = join_by_hand(TL_LEVEL_LOW, &packet);
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_WELCOME, packet.m.head.kind);
    int grant = packet.fds[0];
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, &packet));
    TEST_ASSERT_EQUAL_UINT32(TL_WIRE_WORDS, packet.m.head.kind);
    TEST_ASSERT_EQUAL_UINT32(2, packet.n_fds);
    int pages[2] = {grant, packet.fds[0]};
    for (int i = 0; i < 2; i++) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", pages[i]);
        TEST_ASSERT_TRUE(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, pages[i], 0) ==
                         MAP_FAILED);
        TEST_ASSERT_TRUE(write(pages[i], "x", 1) < 0);
        TEST_ASSERT_TRUE(ftruncate(pages[i], 0) < 0);
        int again = open(path, O_RDWR); /* the same file, opened anew */
        TEST_ASSERT_TRUE(again < 0 || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again,
                                           0) == MAP_FAILED);
        TEST_ASSERT_TRUE(again < 0 || write(again, "x", 1) < 0);
        if (again >= 0)
            close(again);
    }
    tl_wire_close(&packet);
    close(grant);
    close(fd);
    tl_client_destroy(high);
}

/* --- grants and control ----------------------------------------------------------------------- */

static void a_job_is_paused_and_resumed_and_waits_meanwhile(void)
{
    daemon_start(NULL);
    struct daemon_child other = daemon_child_start(0);
    struct tl_client *c = daemon_client(0, NULL);
    struct tl_grant g;
    uint32_t seen = tl_client_changes(c);
    TEST_ASSERT_EQUAL_INT(
        0, set(getpid(), TL_SET_PAUSED, &(struct tl_sched_client){.is_paused = true}));
    tl_client_wait(c, seen, DAEMON_PATIENCE_NS);
    tl_client_grant(c, &g);
    TEST_ASSERT_FALSE(g.may_run);
    seen = tl_client_changes(c);
    TEST_ASSERT_EQUAL_INT(
        0, set(getpid(), TL_SET_PAUSED, &(struct tl_sched_client){.is_paused = false}));
    tl_client_wait(c, seen, DAEMON_PATIENCE_NS);
    tl_client_grant(c, &g);
    TEST_ASSERT_TRUE(g.may_run);
    TEST_ASSERT_EQUAL_INT(-ESRCH,
                          set(1, TL_SET_PAUSED, &(struct tl_sched_client){.is_paused = true}));
    TEST_ASSERT_EQUAL_INT(-EINVAL, set(getpid(), TL_SET_ALL + 1, &(struct tl_sched_client){0}));
    TEST_ASSERT_EQUAL_INT(-EINVAL,
                          set(getpid(), TL_SET_LEVEL, &(struct tl_sched_client){.level = 1000}));
    daemon_child_kill(&other);
    tl_client_destroy(c);
}

static void what_was_set_is_kept_when_tallyd_is_restarted(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *c = daemon_client(3, NULL);
    struct tl_sched_client to = {.level = -7, .is_paused = true};
    TEST_ASSERT_EQUAL_INT(0, set(getpid(), TL_SET_LEVEL | TL_SET_PAUSED, &to));
    TEST_ASSERT_EQUAL_INT(-7, tl_client_level(c));
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(c, false));
    TEST_ASSERT_EQUAL_INT(-7, tl_client_level(c));
    TEST_ASSERT_TRUE(daemon_await_may_run(c, true)); /* nobody is left who could resume it */
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    TEST_ASSERT_EQUAL_INT(-7, tl_client_level(c));
    TEST_ASSERT_TRUE(daemon_await_may_run(c, false));
    tl_client_destroy(c);
}

static void a_new_level_changes_who_sees_whom(void)
{
    daemon_start(NULL);
    struct daemon_child child = daemon_child_start(1);
    struct tl_client *c = daemon_client(2, NULL);
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    TEST_ASSERT_EQUAL_UINT32(0, tl_client_words(c, words));
    TEST_ASSERT_EQUAL_INT(0, set(child.pid, TL_SET_LEVEL, &(struct tl_sched_client){.level = 3}));
    TEST_ASSERT_TRUE(daemon_await_words(c, 1));
    TEST_ASSERT_EQUAL_INT(0, set(child.pid, TL_SET_LEVEL, &(struct tl_sched_client){.level = 2}));
    TEST_ASSERT_TRUE(daemon_await_words(c, 0));
    daemon_child_kill(&child);
    tl_client_destroy(c);
}

static struct tl_wire_packet set_policy(const char *name)
{
    struct tl_wire_policy q = {0};
    snprintf(q.policy, sizeof q.policy, "%s", name);
    return daemon_ask(TL_WIRE_POLICY, &q, sizeof q);
}

static void policies_are_swapped_under_running_jobs(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    struct tl_grant g;
    tl_client_grant(low, &g);
    TEST_ASSERT_TRUE(g.yields);
    struct tl_wire_packet answer = set_policy("none");
    TEST_ASSERT_EQUAL_INT(0, answer.m.answer.code);
    tl_client_grant(low, &g);
    TEST_ASSERT_FALSE(g.yields);
    answer = set_policy("nonsense");
    TEST_ASSERT_EQUAL_INT(-ENOENT, answer.m.answer.code);
    TEST_ASSERT_NOT_NULL(strstr(answer.m.answer.text, "tally"));
    TEST_ASSERT_EQUAL_STRING("none", set_policy("").m.answer.policy);
    for (const struct tl_policy *const *p = tl_sched_policies(); *p != NULL; p++) {
        answer = set_policy(tl_policy_name(*p));
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, answer.m.answer.code, tl_policy_name(*p));
        TEST_ASSERT_EQUAL_STRING(tl_policy_name(*p), answer.m.answer.policy);
    }
    tl_client_destroy(low);
}

/* Two equals with work take turns: each is seen held back, and each is seen running. */
static void equals_take_turns(void)
{
    daemon_start(NULL);
    struct tl_client *c[2] = {daemon_client(0, NULL), daemon_client(0, NULL)};
    bool ran[2] = {false, false}, waited[2] = {false, false};
    tl_client_backlog(c[0], true);
    tl_client_backlog(c[1], true);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end;) {
        struct tl_grant g[2];
        uint32_t seen = tl_client_changes(c[0]);
        for (int i = 0; i < 2; i++) {
            tl_client_grant(c[i], &g[i]);
            ran[i] |= g[i].may_run;
            waited[i] |= !g[i].may_run;
            if (g[i].may_run)
                atomic_fetch_add(&tl_client_page(c[i])->device_ns, 1000000);
        }
        if (ran[0] && ran[1] && waited[0] && waited[1])
            break;
        tl_client_wait(c[0], seen, 1000000);
    }
    TEST_ASSERT_TRUE(ran[0] && ran[1] && waited[0] && waited[1]);
    tl_client_destroy(c[0]);
    tl_client_destroy(c[1]);
}

/* A tallyd that hangs must not hold anybody back for ever. */
static void a_stopped_tallyd_is_noticed(void)
{
    pid_t d = daemon_start((const char *const[]){"--policy=timeslice", NULL});
    struct tl_client *c[2] = {daemon_client(0, NULL), daemon_client(0, NULL)};
    tl_client_backlog(c[0], true);
    tl_client_backlog(c[1], true);
    struct tl_grant g;
    bool is_held_back = false;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; !is_held_back && tl_clock_ns() < end;) {
        kill(d, SIGSTOP);
        tl_client_grant(c[0], &g);
        is_held_back = !g.may_run;
        if (!is_held_back) {
            kill(d, SIGCONT);
            tl_client_wait(c[0], tl_client_changes(c[0]), 1000000);
        }
    }
    TEST_ASSERT_TRUE(is_held_back);
    TEST_ASSERT_TRUE(daemon_await_may_run(c[0], true));
    kill(d, SIGCONT);
    tl_client_destroy(c[0]);
    tl_client_destroy(c[1]);
}

/* --- rules ------------------------------------------------------------------------------------ */

static void write_rules(const char *text)
{
    FILE *f = fopen(daemon_test_path("rules"), "w");
    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_TRUE(fputs(text, f) >= 0);
    fclose(f);
    setenv("TALLY_RULES", daemon_test_path("rules"), 1);
}

static void a_level_above_the_rules_is_lowered_and_told(void)
{
    char text[256];
    struct tl_error remark = {0};
    snprintf(text, sizeof text, "# remark\nuid 4000000000 high\n\nuid %u 10 # me\neverybody low\n",
             (unsigned)getuid());
    write_rules(text);
    daemon_start(NULL);
    struct tl_client *c = daemon_client(TL_LEVEL_HIGH, &remark);
    TEST_ASSERT_TRUE(tl_client_is_joined(c));
    TEST_ASSERT_NOT_NULL(strstr(remark.text, "it is 10 now"));
    TEST_ASSERT_EQUAL_INT(10, tl_client_level(c));
    TEST_ASSERT_EQUAL_INT(0, set(getpid(), TL_SET_LEVEL, &(struct tl_sched_client){.level = 50}));
    TEST_ASSERT_EQUAL_INT(10, tl_client_level(c));
    TEST_ASSERT_EQUAL_INT(0, set(getpid(), TL_SET_LEVEL, &(struct tl_sched_client){.level = 5}));
    TEST_ASSERT_EQUAL_INT(5, tl_client_level(c));
    tl_client_destroy(c);
}

static void groups_and_cgroups_have_rules(void)
{
    char text[512];
    snprintf(text, sizeof text, "cgroup /nonexistent high\ngid %u 7\n", (unsigned)getgid());
    write_rules(text);
    pid_t d = daemon_start(NULL);
    struct tl_client *c = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_EQUAL_INT(7, tl_client_level(c));
    tl_client_destroy(c);
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
    write_rules("cgroup / 8\n"); /* everybody is below that one */
    daemon_start(NULL);
    c = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_EQUAL_INT(8, tl_client_level(c));
    tl_client_destroy(c);
}

static void rules_that_make_no_sense_keep_tallyd_from_starting(void)
{
    static const char *const bad[] = {"uid x high\n",          "uid 5\n",         "everybody\n",
                                      "everybody 500\n",       "cgroup x low\n",  "nobody 5 6\n",
                                      "everybody low extra\n", "user \001 high\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tl_error remark = {0};
        write_rules(bad[i]);
        daemon_may_start(); /* started by the client, which then can say why it failed */
        struct tl_client *c = daemon_client(0, &remark);
        TEST_ASSERT_FALSE(tl_client_is_joined(c));
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(remark.text, "rules:1: "), remark.text);
        tl_client_destroy(c);
    }
}

/* --- start and end ---------------------------------------------------------------------------- */

static void the_first_client_starts_tallyd_and_it_ends_after_the_last(void)
{
    struct tl_error remark = {0};
    struct stat st;
    daemon_may_start();
    setenv("TALLY_DAEMON_IDLE", "1", 1);
    struct tl_client *a = daemon_client(0, &remark);
    TEST_ASSERT_TRUE_MESSAGE(tl_client_is_joined(a), remark.text);
    setenv("TALLY_DAEMON", "no", 1);
    struct tl_client *b = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(tl_client_is_joined(b));
    TEST_ASSERT_EQUAL_UINT32(2, daemon_count_clients());
    tl_client_destroy(a);
    tl_client_destroy(b);
    bool is_gone = false;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; !is_gone && tl_clock_ns() < end;
         usleep(10000))
        is_gone = stat(getenv("TALLY_SOCKET"), &st) < 0;
    TEST_ASSERT_TRUE(is_gone);
}

static void of_many_that_are_started_at_once_one_stays(void)
{
    enum { N = 8 };
    pid_t children[N];
    daemon_may_start();
    setenv("TALLY_DAEMON_IDLE", "1", 1);
    int hold[2];
    TEST_ASSERT_EQUAL_INT(0, pipe(hold));
    for (int i = 0; i < N; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            char byte;
            close(hold[1]);
            struct tl_client *c = daemon_client(0, NULL);
            bool is_joined = tl_client_is_joined(c);
            (void)!read(hold[0], &byte, 1);
            _exit(is_joined ? 0 : 1);
        }
    }
    close(hold[0]);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end; usleep(10000)) {
        int fd = tl_wire_connect(getenv("TALLY_SOCKET"), NULL);
        if (fd < 0)
            continue;
        close(fd);
        if (daemon_count_clients() == N)
            break;
    }
    TEST_ASSERT_EQUAL_UINT32(N, daemon_count_clients());
    close(hold[1]);
    for (int i = 0; i < N; i++) {
        int status;
        TEST_ASSERT_EQUAL_INT(children[i], waitpid(children[i], &status, 0));
        TEST_ASSERT_EQUAL_INT(0, status);
    }
    struct stat st;
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end; usleep(10000))
        if (stat(getenv("TALLY_SOCKET"), &st) < 0)
            break;
}

/* A program in the place of tallyd that leaves a file and fails. */
static void be_started_by(const char *program, const char *mark)
{
    FILE *f = fopen(program, "w");
    TEST_ASSERT_NOT_NULL(f);
    fprintf(f, "#!/bin/sh\n: >'%s'\nexit 1\n", mark);
    TEST_ASSERT_EQUAL_INT(0, fchmod(fileno(f), 0700));
    fclose(f);
    setenv("TALLY_DAEMON", program, 1);
}

/* The next that the client does where it would have to start one is to ask again whether one
 * listens: the test does. */
static void told_to_end_it_says_goodbye_and_nobody_starts_it_again(void)
{
    char program[160], mark[160];
    pid_t d = daemon_start(NULL);
    snprintf(program, sizeof program, "%s", daemon_test_path("another-tallyd"));
    snprintf(mark, sizeof mark, "%s", daemon_test_path("was-started"));
    be_started_by(program, mark);
    struct tl_client *c = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
    TEST_ASSERT_TRUE(daemon_await_joined(c, false));
    TEST_ASSERT_TRUE(access(getenv("TALLY_SOCKET"), F_OK) < 0);
    int listener = daemon_listen();
    TEST_ASSERT_EQUAL_INT(1, poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1,
                                  DAEMON_PATIENCE_NS / 1000000));
    TEST_ASSERT_TRUE(access(mark, F_OK) < 0);
    tl_client_destroy(c);
    close(listener);
    unlink(getenv("TALLY_SOCKET"));
}

static void work_that_is_in_flight_when_tallyd_ends_is_counted_on(void)
{
    pid_t daemon = daemon_start(NULL);
    struct tl_client *c = daemon_client(100, NULL);
    tl_client_issue(c, 1);
    TEST_ASSERT_EQUAL_INT(0, kill(daemon, SIGTERM));
    TEST_ASSERT_EQUAL_INT(0, daemon_end(daemon));
    TEST_ASSERT_TRUE(tl_word_is_busy(atomic_load(&tl_client_page(c)->word)));
    tl_client_complete(c, 1);
    TEST_ASSERT_FALSE(tl_word_is_busy(atomic_load(&tl_client_page(c)->word)));
    tl_client_destroy(c);
}

static void a_folder_that_cannot_be_used_is_named(void)
{
    struct tl_error remark = {0};
    daemon_may_start();
    setenv("TALLY_SOCKET", "/proc/nothing/tallyd.sock", 1);
    struct tl_client *c = daemon_client(0, &remark);
    TEST_ASSERT_FALSE(tl_client_is_joined(c));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(remark.text, "/proc/nothing"), remark.text);
    tl_client_destroy(c);
}

static void others_must_not_be_able_to_write_to_the_folder(void)
{
    struct tl_error remark = {0};
    char path[160];
    daemon_may_start();
    snprintf(path, sizeof path, "%s", daemon_test_path("open"));
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0777));
    strcat(path, "/s");
    setenv("TALLY_SOCKET", path, 1);
    struct tl_client *c = daemon_client(0, &remark);
    TEST_ASSERT_FALSE(tl_client_is_joined(c));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(remark.text, "others can write"), remark.text);
    tl_client_destroy(c);
    TEST_ASSERT_EQUAL_INT(0, rmdir(daemon_test_path("open")));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_low_job_sees_the_word_of_a_high_one_and_not_the_other_way_round);
    RUN_TEST(equals_do_not_see_each_other);
    RUN_TEST(a_killed_job_holds_nobody_back);
    RUN_TEST(who_has_left_is_no_longer_watched_while_others_hold_its_pidfd);
    RUN_TEST(more_levels_above_than_words_are_merged);
    RUN_TEST(who_sleeps_until_a_word_is_idle_is_told);
    RUN_TEST(a_word_is_forgotten_when_its_page_tells_of_the_death);
    RUN_TEST(a_merged_word_dies_with_those_who_keep_it);
    RUN_TEST(no_job_can_write_to_a_word_above_it);
    RUN_TEST(a_job_is_paused_and_resumed_and_waits_meanwhile);
    RUN_TEST(what_was_set_is_kept_when_tallyd_is_restarted);
    RUN_TEST(a_new_level_changes_who_sees_whom);
    RUN_TEST(policies_are_swapped_under_running_jobs);
    RUN_TEST(equals_take_turns);
    RUN_TEST(a_stopped_tallyd_is_noticed);
    RUN_TEST(a_level_above_the_rules_is_lowered_and_told);
    RUN_TEST(groups_and_cgroups_have_rules);
    RUN_TEST(rules_that_make_no_sense_keep_tallyd_from_starting);
    RUN_TEST(the_first_client_starts_tallyd_and_it_ends_after_the_last);
    RUN_TEST(of_many_that_are_started_at_once_one_stays);
    RUN_TEST(told_to_end_it_says_goodbye_and_nobody_starts_it_again);
    RUN_TEST(work_that_is_in_flight_when_tallyd_ends_is_counted_on);
    RUN_TEST(a_folder_that_cannot_be_used_is_named);
    RUN_TEST(others_must_not_be_able_to_write_to_the_folder);
    return UNITY_END();
}

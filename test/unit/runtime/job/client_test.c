/* The client without a tallyd, through the death of one, and in forked children. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
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

/* --- alone ------------------------------------------------------------------------------------ */

static void without_tallyd_a_job_is_alone_and_is_told_why(void)
{
    struct tl_error remark = {0};
    struct tl_client *c = daemon_client(TL_LEVEL_LOW, &remark);
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    struct tl_grant g;
    TEST_ASSERT_FALSE(tl_client_is_joined(c));
    TEST_ASSERT_NOT_NULL(strstr(remark.text, "unmanaged"));
    tl_client_grant(c, &g);
    TEST_ASSERT_TRUE(g.may_run && g.yields);
    TEST_ASSERT_EQUAL_INT(TL_RUNG_PERSISTENT, g.finest);
    TEST_ASSERT_EQUAL_UINT32(0, tl_client_words(c, words));
    for (int i = 0; i < TL_SHARE_WORDS; i++)
        TEST_ASSERT_EQUAL_UINT64(0, *words[i]);
    TEST_ASSERT_FALSE(tl_client_is_preempted(c));
    TEST_ASSERT_EQUAL_INT(TL_LEVEL_LOW, tl_client_level(c));
    tl_client_backlog(c, true);
    tl_client_request(c, 77);
    TEST_ASSERT_EQUAL_UINT64(77, tl_client_page(c)->requests_ns[0]);
    tl_client_destroy(c);
    tl_client_destroy(NULL);
}

static void high_priority_alone_gives_way_to_nobody(void)
{
    struct tl_client *c = daemon_client(TL_LEVEL_HIGH, NULL);
    struct tl_grant g;
    tl_client_grant(c, &g);
    TEST_ASSERT_TRUE(g.may_run && !g.yields);
    TEST_ASSERT_EQUAL_INT(TL_RUNG_WHOLE, g.finest);
    tl_client_destroy(c);
}

static void closed_without_tallyd_is_refused(void)
{
    struct tl_settings s;
    struct tl_client *c;
    struct tl_error err = {0};
    setenv("TALLY_FAIL", "closed", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
    TEST_ASSERT_EQUAL_INT(-ECONNREFUSED, tl_client_create(&c, &s, &err));
    TEST_ASSERT_NULL(c);
    TEST_ASSERT_NOT_EQUAL_INT(0, (int)strlen(err.text));
}

/* No descriptor is left, so neither a memfd nor a socket can be had. */
static void without_shared_memory_a_job_still_runs(void)
{
    struct rlimit old, none;
    struct tl_error remark = {0};
    TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_NOFILE, &old));
    none = (struct rlimit){3, old.rlim_max};
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &none));
    struct tl_client *c = daemon_client(TL_LEVEL_LOW, &remark);
    setrlimit(RLIMIT_NOFILE, &old);
    TEST_ASSERT_NOT_NULL(strstr(remark.text, "no shared memory"));
    tl_client_page(c)->word = 1;
    tl_client_backlog(c, true);
    TEST_ASSERT_FALSE(tl_client_is_joined(c));
    tl_client_destroy(c);
}

static void a_tallyd_that_cannot_start_is_told_of(void)
{
    struct tl_error remark = {0};
    setenv("TALLY_DAEMON", "/nonexistent/tallyd", 1);
    struct tl_client *c = daemon_client(0, &remark);
    TEST_ASSERT_NOT_NULL(strstr(remark.text, "/nonexistent/tallyd"));
    tl_client_destroy(c);
}

static void waiting_ends_with_the_time(void)
{
    struct tl_client *c = daemon_client(0, NULL);
    uint64_t begin = tl_clock_ns();
    tl_client_wait(c, tl_client_changes(c), 3000000);
    TEST_ASSERT_TRUE(tl_clock_ns() - begin >= 3000000);
    tl_client_wait(c, tl_client_changes(c) + 1, UINT64_MAX); /* it differs already */
    tl_client_destroy(c);
}

/* --- tallyd comes and goes -------------------------------------------------------------------- */

static void tallyd_that_starts_later_is_joined(void)
{
    struct tl_client *c = daemon_client(TL_LEVEL_LOW, NULL);
    uint32_t seen = tl_client_changes(c);
    TEST_ASSERT_FALSE(tl_client_is_joined(c));
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    TEST_ASSERT_NOT_EQUAL_UINT32(seen, tl_client_changes(c));
    tl_client_destroy(c);
}

static void a_killed_tallyd_leaves_its_clients_alone_and_running(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *c = daemon_client(TL_LEVEL_LOW, NULL);
    struct tl_grant g;
    TEST_ASSERT_TRUE(tl_client_is_joined(c));
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(c, false));
    tl_client_grant(c, &g);
    TEST_ASSERT_TRUE(g.may_run && g.yields);
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    tl_client_destroy(c);
}

static void words_outlive_tallyd_and_are_the_same_with_the_next(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL),
                     *low = daemon_client(TL_LEVEL_LOW, NULL);
    const _Atomic uint64_t *before[TL_SHARE_WORDS], *after[TL_SHARE_WORDS];
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    tl_client_words(low, before);
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(low, false) && daemon_await_joined(high, false));
    tl_client_page(high)->issued++;
    TEST_ASSERT_TRUE(tl_client_is_preempted(low));
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(low, true) && daemon_await_joined(high, true));
    TEST_ASSERT_TRUE(tl_client_is_preempted(low));
    TEST_ASSERT_EQUAL_UINT32(1, tl_client_words(low, after));
    TEST_ASSERT_EQUAL_PTR(before[0], after[0]);
    tl_client_page(high)->completed++;
    TEST_ASSERT_FALSE(tl_client_is_preempted(low));
    tl_client_destroy(high);
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    tl_client_destroy(low);
}

static void a_burst_has_ended_when_its_owner_says_so(void)
{
    daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL),
                     *other = daemon_client(TL_LEVEL_HIGH, NULL),
                     *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 2));
    TEST_ASSERT_EQUAL_UINT64(0, tl_client_idle_since(low)); /* there was none */
    struct tl_client_page *page = tl_client_page(high);
    page->burst_ns = 1000;
    page->issued++;
    page->completed++;
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, tl_client_idle_since(low)); /* not told yet */
    page->idle_ns = 3000;
    TEST_ASSERT_EQUAL_UINT64(3000, tl_client_idle_since(low));
    tl_client_page(other)->burst_ns = 2000;
    tl_client_page(other)->idle_ns = 2500;
    tl_client_page(other)->word = 0x100000001;
    TEST_ASSERT_EQUAL_UINT64(3000, tl_client_idle_since(low)); /* the last counts */
    tl_client_page(other)->burst_ns = 4000;                    /* what it says is of an older one */
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, tl_client_idle_since(low));
    tl_client_destroy(high);
    tl_client_destroy(other);
    tl_client_destroy(low);
}

static void a_dead_high_job_holds_nobody_back_even_without_tallyd(void)
{
    pid_t d = daemon_start(NULL);
    struct daemon_child high = daemon_child_start(TL_LEVEL_HIGH);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(low, false));
    daemon_child_set(&high, true);
    TEST_ASSERT_TRUE(tl_client_is_preempted(low));
    const _Atomic uint64_t *words[TL_SHARE_WORDS];
    tl_client_words(low, words);
    daemon_child_kill(&high);
    TEST_ASSERT_TRUE(daemon_await_preempted(low, false));
    TEST_ASSERT_EQUAL_INT(0, tl_word_is_busy(*words[0])); /* the old address reads as idle, too */
    tl_client_destroy(low);
}

/* --- a tallyd of another version -------------------------------------------------------------- */

/* Listens in the place of tallyd; a child answers whoever comes with a message of another version,
 * or with a refusal. */
static pid_t start_other_version(bool refuses)
{
    int listener = daemon_listen();
    pid_t pid = fork();
    while (pid == 0) {
        struct tl_wire_answer answer = {.code = -EPROTONOSUPPORT,
                                        .text = "it is of another version"};
        char hello[TL_WIRE_BYTES];
        int fd = accept(listener, NULL, NULL);
        if (fd < 0 || recv(fd, hello, sizeof hello, 0) <= 0)
            _exit(1);
        answer.head = (struct tl_wire_head){TL_WIRE_MAGIC, TL_WIRE_VERSION + !refuses,
                                            TL_WIRE_REFUSED, sizeof answer};
        (void)send(fd, &answer, sizeof answer, MSG_NOSIGNAL);
        close(fd);
    }
    close(listener);
    return pid;
}

static void a_tallyd_of_another_version_leaves_an_open_job_alone_and_stops_a_closed_one(void)
{
    for (int refuses = 0; refuses < 2; refuses++) {
        pid_t pid = start_other_version(refuses != 0);
        struct tl_error remark = {0};
        struct tl_settings s;
        struct tl_client *c = daemon_client(TL_LEVEL_LOW, &remark);
        TEST_ASSERT_FALSE(tl_client_is_joined(c));
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(remark.text, "version"), remark.text);
        tl_client_destroy(c);
        TEST_ASSERT_EQUAL_INT(0, tl_settings_read(&s, NULL));
        s.is_closed = true;
        TEST_ASSERT_EQUAL_INT(-ECONNREFUSED, tl_client_create(&c, &s, &remark));
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(remark.text, "version"), remark.text);
        daemon_kill(pid);
        unlink(getenv("TALLY_SOCKET"));
    }
}

/* --- forks ------------------------------------------------------------------------------------ */

static void a_forked_child_does_not_touch_its_parents_page(void)
{
#ifdef __SANITIZE_THREAD__
    TEST_IGNORE_MESSAGE("TSan does not start threads after a fork of many");
#endif
    daemon_start(NULL);
    struct tl_client *c = daemon_client(TL_LEVEL_LOW, NULL);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct tl_settings s;
        struct tl_client *own = NULL;
        tl_client_abandon(c);
        tl_client_page(c)->word = 7;
        tl_client_request(c, 1);
        bool is_good = !tl_client_is_joined(c) && tl_client_page(c)->pid == (uint32_t)getpid();
        is_good &= tl_settings_read(&s, NULL) == 0 && tl_client_create(&own, &s, NULL) == 0 &&
                   tl_client_is_joined(own);
        tl_client_destroy(own);
        tl_client_destroy(c);
        _exit(is_good ? 0 : 1);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_UINT64(0, tl_client_page(c)->word);
    TEST_ASSERT_EQUAL_UINT64(0, tl_client_page(c)->n_requests);
    TEST_ASSERT_TRUE(tl_client_is_joined(c));
    tl_client_destroy(c);
}

/* The numbers that a job may take for itself: each becomes the reading end of a pipe with a byte in
 * it, or the writing end of another one, of which poll has nothing to say; from one moment to the
 * next, or after all were closed. */
enum { FIRST_TAKEN = 3, LAST_TAKEN = 899 };
enum loud { ALL_WERE_CLOSED, ALL_ARE_LOUD, SOCKETS_ARE_LOUD };
struct taken {
    int loud, quiet; /* reading ends of the two pipes */
};

static bool take_numbers(struct taken *t, enum loud which)
{
    int loud[2], quiet[2];
    bool is_good = pipe(loud) == 0 && pipe(quiet) == 0 && write(loud[1], "x", 1) == 1;
    int to = fcntl(quiet[1], F_DUPFD, LAST_TAKEN + 1);
    t->loud = fcntl(loud[0], F_DUPFD, LAST_TAKEN + 1);
    t->quiet = fcntl(quiet[0], F_DUPFD, LAST_TAKEN + 1);
    for (int fd = FIRST_TAKEN; which == ALL_WERE_CLOSED && fd <= LAST_TAKEN; fd++)
        close(fd);
    /* The free ones first: when those of the client change, it may wake up and open something. */
    for (int was_open = 0; was_open < 2; was_open++)
        for (int fd = FIRST_TAKEN; fd <= LAST_TAKEN; fd++) {
            struct stat st;
            bool is_open = fstat(fd, &st) == 0;
            bool is_loud = which == ALL_ARE_LOUD ||
                           (which == SOCKETS_ARE_LOUD && is_open && S_ISSOCK(st.st_mode));
            if (is_open == (was_open != 0))
                is_good &= dup2(is_loud ? t->loud : to, fd) == fd;
        }
    return is_good && fcntl(t->quiet, F_SETFL, O_NONBLOCK) == 0;
}

/* Nothing was read, written or closed. */
static bool are_untouched(const struct taken *t)
{
    char bytes[2];
    bool is_good = true;
    for (int fd = FIRST_TAKEN; fd <= LAST_TAKEN; fd++)
        is_good &= fcntl(fd, F_GETFD) >= 0;
    is_good &= read(t->loud, bytes, sizeof bytes) == 1 && bytes[0] == 'x';
    return is_good && read(t->quiet, bytes, sizeof bytes) == -1 && errno == EAGAIN;
}

static int close_all_and_look(_Atomic uint32_t *has_closed, enum loud which)
{
    struct taken t;
    struct tl_client *c = daemon_client(TL_LEVEL_LOW, NULL);
    /* When tallyd answers, it has sent all that there is to say to those who joined before. */
    bool is_good = tl_client_is_joined(c) && daemon_count_clients() == 1 &&
                   daemon_await_asleep("tally-client");
    is_good &= take_numbers(&t, which);
    tl_client_backlog(c, true);
    atomic_store(has_closed, 1);
    if (which != ALL_WERE_CLOSED) /* else it may hear nothing any more */
        is_good &= daemon_await_deaf(c);
    return is_good && are_untouched(&t) ? 0 : 1;
}

/* Daemons and shells close what they did not open, and take the numbers for themselves.  The
 * client's thread, asleep in poll, learns of it when tallyd has news for it: of somebody above, who
 * comes when all descriptors are others. */
static void a_job_that_closes_all_descriptors_keeps_what_it_opens_next(void)
{
    daemon_start(NULL);
    _Atomic uint32_t *has_closed = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(has_closed != MAP_FAILED);
    for (int which = ALL_WERE_CLOSED; which <= SOCKETS_ARE_LOUD; which++) {
        int status;
        atomic_store(has_closed, 0);
        pid_t pid = fork();
        if (pid == 0)
            _exit(close_all_and_look(has_closed, (enum loud)which));
        TEST_ASSERT_TRUE(daemon_await_set(has_closed));
        struct tl_client *above = daemon_client(TL_LEVEL_HIGH, NULL);
        TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
        TEST_ASSERT_EQUAL_INT(0, status);
        tl_client_destroy(above);
        /* No news of those that went may reach the next one while it takes the numbers. */
        TEST_ASSERT_TRUE(daemon_await_clients(0));
    }
    munmap((void *)has_closed, 4096);
}

/* --- the job's signals ------------------------------------------------------------------------ */

/* The blocked signals of the thread of that name, as the kernel tells them; 0 if there is none. */
static uint64_t blocked_signals(const char *name)
{
    uint64_t blocked = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e = readdir(tasks); e != NULL; e = readdir(tasks)) {
        char path[300], line[128];
        bool is_it = false;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            if (strncmp(line, "Name:", 5) == 0)
                is_it = strstr(line, name) != NULL;
            if (is_it && strncmp(line, "SigBlk:", 7) == 0)
                blocked = strtoull(line + 7, NULL, 16);
        }
        if (f != NULL)
            fclose(f);
    }
    closedir(tasks);
    return blocked;
}

static void signals_of_the_job_are_not_handled_by_our_thread(void)
{
    static const int signals[] = {SIGHUP,  SIGINT,  SIGTERM, SIGUSR1, SIGUSR2,
                                  SIGCHLD, SIGALRM, SIGPROF, SIGWINCH};
    struct tl_client *c = daemon_client(0, NULL);
    uint64_t blocked = blocked_signals("tally-client");
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        TEST_ASSERT_TRUE((blocked & UINT64_C(1) << (signals[i] - 1)) != 0);
    tl_client_destroy(c);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(without_tallyd_a_job_is_alone_and_is_told_why);
    RUN_TEST(high_priority_alone_gives_way_to_nobody);
    RUN_TEST(closed_without_tallyd_is_refused);
    RUN_TEST(without_shared_memory_a_job_still_runs);
    RUN_TEST(a_tallyd_that_cannot_start_is_told_of);
    RUN_TEST(waiting_ends_with_the_time);
    RUN_TEST(tallyd_that_starts_later_is_joined);
    RUN_TEST(a_killed_tallyd_leaves_its_clients_alone_and_running);
    RUN_TEST(words_outlive_tallyd_and_are_the_same_with_the_next);
    RUN_TEST(a_burst_has_ended_when_its_owner_says_so);
    RUN_TEST(a_dead_high_job_holds_nobody_back_even_without_tallyd);
    RUN_TEST(a_tallyd_of_another_version_leaves_an_open_job_alone_and_stops_a_closed_one);
    RUN_TEST(a_forked_child_does_not_touch_its_parents_page);
    RUN_TEST(a_job_that_closes_all_descriptors_keeps_what_it_opens_next);
    RUN_TEST(signals_of_the_job_are_not_handled_by_our_thread);
    return UNITY_END();
}

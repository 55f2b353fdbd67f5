/* The copies of words that kernels poll: who writes them, who cannot, and what is left of them when
 * somebody dies. */
#include "test/unit/runtime/tallyd/help.h"

#include "runtime/job/wire.h"

#include <fcntl.h>
#include <pthread.h>
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

static struct tl_copy_page *polled_of(struct tl_client *c, uint32_t which)
{
    struct tl_copy_page *polled[TL_SHARE_WORDS];
    tl_client_polled(c, polled);
    return polled[which];
}

static bool is_busy(const struct tl_copy_page *page)
{
    return tl_word_is_busy(atomic_load(&page->word)) != 0;
}

/* --- the word and its copies ------------------------------------------------------------------ */

static void a_burst_is_told_when_it_begins_and_when_it_ends(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    TEST_ASSERT_FALSE(daemon_is_told(low));
    for (int i = 0; i < 3; i++) {
        tl_client_issue(high, 2);
        TEST_ASSERT_TRUE(daemon_is_told(low));
        tl_client_issue(high, 1);
        tl_client_complete(high, 2);
        TEST_ASSERT_TRUE(daemon_is_told(low));
        tl_client_complete(high, 1);
        TEST_ASSERT_FALSE(daemon_is_told(low));
    }
    tl_client_destroy(high);
    tl_client_destroy(low);
}

static void who_comes_in_the_middle_of_a_burst_is_told(void)
{
    daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL);
    tl_client_issue(high, 1);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    TEST_ASSERT_TRUE(daemon_is_told(low));
    tl_client_complete(high, 1);
    TEST_ASSERT_FALSE(daemon_is_told(low));
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* Numbers of bursts go round. */
static void counters_that_overflow_are_told_of_as_well(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    for (int i = 0; i < 9; i++) {
        tl_client_issue(high, 1);
        tl_client_issue(high, 0x3fffffff);
        TEST_ASSERT_TRUE(daemon_is_told(low));
        tl_client_complete(high, 0x40000000);
        TEST_ASSERT_FALSE(daemon_is_told(low));
    }
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* From the beginning of a piece to its end every copy is busy, whatever other threads do; when all
 * have ended it is not. */
enum { THREADS = 3, ROUNDS = 20000 };
struct hammer {
    struct tl_client *high;
    const struct tl_copy_page *copies[2];
    _Atomic uint32_t n_missed;
};

static void *hammer(void *of)
{
    struct hammer *h = of;
    for (int i = 0; i < ROUNDS; i++) {
        tl_client_issue(h->high, 1);
        bool is_told = is_busy(h->copies[0]) && is_busy(h->copies[1]);
        if (!is_told)
            atomic_fetch_add(&h->n_missed, 1);
        tl_client_complete(h->high, 1);
    }
    return NULL;
}

static void no_thread_of_a_job_sees_its_work_untold(void)
{
    daemon_start(NULL);
    struct tl_client *low[2] = {daemon_client(TL_LEVEL_LOW, NULL), daemon_client(0, NULL)},
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    struct hammer h = {.high = high};
    pthread_t threads[THREADS];
    for (int i = 0; i < 2; i++) { /* the last in the middle is above the first */
        TEST_ASSERT_TRUE(daemon_await_words(low[i], i == 0 ? 2 : 1));
        TEST_ASSERT_TRUE(daemon_await_kept(low[i]));
        h.copies[i] = polled_of(low[i], 0);
    }
    for (int i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, hammer, &h));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&h.n_missed));
    TEST_ASSERT_FALSE(is_busy(h.copies[0]) || is_busy(h.copies[1]));
    tl_client_destroy(high);
    tl_client_destroy(low[1]);
    tl_client_destroy(low[0]);
}

/* The same while others come and go, so that copies are shown and dropped all the time. */
static void copies_come_and_go_under_a_busy_job(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    struct hammer h = {.high = high, .copies = {polled_of(low, 0), polled_of(low, 0)}};
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, hammer, &h));
    for (int i = 0; i < 20; i++) {
        struct tl_client *guest = daemon_client(TL_LEVEL_LOW, NULL);
        TEST_ASSERT_TRUE(daemon_await_words(guest, 1));
        TEST_ASSERT_TRUE(daemon_await_kept(guest));
        tl_client_destroy(guest);
    }
    pthread_join(thread, NULL);
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&h.n_missed));
    struct tl_client *last = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(last, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(last));
    TEST_ASSERT_FALSE(daemon_is_told(last));
    TEST_ASSERT_FALSE(daemon_is_told(low));
    tl_client_destroy(last);
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* --- who may write what ----------------------------------------------------------------------- */

/* A client that speaks by hand, and the next message of a kind that it gets. */
static int join(int level)
{
    struct tl_wire_hello hello = daemon_hello(level);
    int fd = daemon_connect(), own = daemon_page();
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(fd, TL_WIRE_HELLO, &hello, sizeof hello, &own, 1));
    close(own);
    return fd;
}

static void expect(int fd, enum tl_wire_kind kind, uint32_t n_fds, struct tl_wire_packet *packet)
{
    TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, packet));
    while (packet->m.head.kind != kind || packet->n_fds != n_fds) {
        tl_wire_close(packet);
        TEST_ASSERT_EQUAL_INT(1, daemon_receive(fd, packet));
    }
}

static ino_t inode_of(int fd)
{
    struct stat st;
    TEST_ASSERT_EQUAL_INT(0, fstat(fd, &st));
    return st.st_ino;
}

/* A client in the middle gets a page of the lowest one, but not the one that the highest writes. */
static void the_middle_cannot_clear_what_the_highest_says_to_the_lowest(void)
{
    daemon_start(NULL);
    struct tl_wire_packet to_high, to_middle;
    int high = join(20), middle = join(10);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 2));
    expect(high, TL_WIRE_BELOW, 1, &to_high);
    expect(middle, TL_WIRE_BELOW, 1, &to_middle);
    TEST_ASSERT_TRUE(inode_of(to_high.fds[0]) != inode_of(to_middle.fds[0]));
    struct tl_copy_page *forged = tl_share_map(to_middle.fds[0], true);
    TEST_ASSERT_NOT_NULL(forged);
    struct tl_copy_page *of_high = polled_of(low, 0), *of_middle = polled_of(low, 1);
    atomic_store(&of_high->began, 1); /* as the highest would */
    atomic_store(&forged->word, 0);
    TEST_ASSERT_TRUE(is_busy(of_high));
    atomic_store(&forged->began, 5); /* its own it may write, and that is all it can */
    TEST_ASSERT_TRUE(is_busy(of_middle));
    atomic_store(&of_high->began, 0);
    TEST_ASSERT_FALSE(is_busy(of_high));
    munmap(forged, TL_SHARE_PAGE);
    tl_wire_close(&to_high);
    tl_wire_close(&to_middle);
    tl_client_destroy(low);
    close(middle);
    close(high);
}

/* What a lower job does to the page that it made does not reach the job above that keeps it. */
static void a_page_that_is_kept_cannot_be_taken_away_or_mapped_anew(void)
{
    daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL);
    struct tl_wire_packet packet;
    int low = join(TL_LEVEL_LOW), fd = tl_share_make("copy");
    struct tl_copy_page *page = tl_share_map(fd, true);
    expect(low, TL_WIRE_WORDS, 2, &packet);
    struct tl_wire_copy copy = {.above = packet.m.words.above[0]};
    tl_wire_close(&packet);
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(low, TL_WIRE_COPY, &copy, sizeof copy, &fd, 1));
    TEST_ASSERT_TRUE(daemon_await_set(&page->is_kept));
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(is_busy(page));
    TEST_ASSERT_TRUE(ftruncate(fd, 0) < 0);
    TEST_ASSERT_TRUE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0);
    TEST_ASSERT_TRUE(tl_share_map(fd, true) == NULL);
    memset(page, 0xa5, sizeof *page); /* it fools itself: the highest does not read it */
    TEST_ASSERT_TRUE(tl_word_is_busy(atomic_load(&tl_client_page(high)->word)));
    tl_client_complete(high, 1);
    TEST_ASSERT_FALSE(tl_word_is_busy(atomic_load(&tl_client_page(high)->word)));
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(is_busy(page));
    tl_client_complete(high, 1);
    TEST_ASSERT_FALSE(is_busy(page));
    close(fd);
    close(low);
    tl_client_destroy(high);
}

/* Pages for somebody who is not above, or that are none. */
static void what_is_offered_to_nobody_is_not_kept(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL);
    struct tl_wire_packet packet;
    int low = join(TL_LEVEL_LOW), fd = tl_share_make("copy");
    struct tl_copy_page *page = tl_share_map(fd, true);
    expect(low, TL_WIRE_WORDS, 2, &packet);
    struct tl_wire_copy copy = {.above = packet.m.words.above[0] + 7}, right = copy;
    right.above -= 7;
    tl_wire_close(&packet);
    int bad = open("/dev/zero", O_RDWR);
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(low, TL_WIRE_COPY, &copy, sizeof copy, &fd, 1));
    TEST_ASSERT_EQUAL_INT(0, tl_wire_send(low, TL_WIRE_COPY, &right, sizeof right, &bad, 1));
    TEST_ASSERT_EQUAL_UINT32(2, daemon_count_clients()); /* so it has heard both */
    tl_client_issue(high, 1);
    TEST_ASSERT_FALSE(is_busy(page));
    tl_client_destroy(high);
    close(bad);
    close(fd);
    close(low);
    TEST_ASSERT_EQUAL_INT(0, daemon_end(d));
}

/* --- when somebody dies ----------------------------------------------------------------------- */

static void kernels_are_not_held_back_by_the_dead(void)
{
    pid_t d = daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL);
    for (int i = 0; i < 4; i++) {
        struct daemon_child high = daemon_child_start(TL_LEVEL_HIGH);
        TEST_ASSERT_TRUE(daemon_await_words(low, 1));
        TEST_ASSERT_TRUE(daemon_await_kept(low));
        const struct tl_copy_page *page = polled_of(low, 0);
        daemon_child_set(&high, true);
        TEST_ASSERT_TRUE(daemon_is_told(low));
        if (i == 3) /* and without tallyd */
            daemon_kill(d);
        daemon_child_kill(&high);
        TEST_ASSERT_TRUE(daemon_await_words(low, 0));
        TEST_ASSERT_FALSE(daemon_is_told(low));
        TEST_ASSERT_FALSE(is_busy(page)); /* who still polls the old address */
    }
    tl_client_destroy(low);
}

/* A low and a high client whose copy is in use, and no tallyd any more. */
static struct tl_copy_page *meet_and_lose_tallyd(struct tl_client **low, struct tl_client **high)
{
    pid_t d = daemon_start(NULL);
    *low = daemon_client(TL_LEVEL_LOW, NULL);
    *high = daemon_client(TL_LEVEL_HIGH, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(*low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(*low));
    struct tl_copy_page *page = polled_of(*low, 0);
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(*low, false));
    return page;
}

static void copies_outlive_tallyd_and_are_kept_with_the_next(void)
{
    struct tl_client *low, *high;
    struct tl_copy_page *page = meet_and_lose_tallyd(&low, &high);
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(daemon_is_told(low));
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(low, true));
    TEST_ASSERT_TRUE(daemon_await_joined(high, true));
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_EQUAL_PTR(page, polled_of(low, 0));
    TEST_ASSERT_TRUE(daemon_is_told(low));
    tl_client_complete(high, 1);
    TEST_ASSERT_FALSE(daemon_is_told(low));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* The page was given up and is sealed: another is made in its place. */
static void a_copy_that_was_given_up_is_replaced(void)
{
    struct tl_client *low, *high;
    struct tl_copy_page *page = meet_and_lose_tallyd(&low, &high);
    atomic_store(&page->is_kept, 0); /* as the one above leaves it */
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(high, true));
    for (bool is_other = false; !is_other;) {
        TEST_ASSERT_TRUE(daemon_await_words(low, 1));
        TEST_ASSERT_TRUE(daemon_await_kept(low));
        is_other = polled_of(low, 0) != page;
    }
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(daemon_is_told(low));
    tl_client_destroy(high);
    tl_client_destroy(low);
}

static void a_new_level_ends_the_right_to_write(void)
{
    daemon_start(NULL);
    struct daemon_child child = daemon_child_start(5);
    struct tl_client *low = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    struct tl_sched_client to = {.level = -3};
    struct tl_wire_set set = {.pid = child.pid, .what = TL_SET_LEVEL, .client = tl_wire_pack(&to)};
    TEST_ASSERT_EQUAL_INT(0, daemon_ask(TL_WIRE_SET, &set, sizeof set).m.answer.code);
    TEST_ASSERT_TRUE(daemon_await_words(low, 0));
    daemon_child_set(&child, true);
    TEST_ASSERT_FALSE(daemon_is_told(low));
    daemon_child_kill(&child);
    tl_client_destroy(low);
}

/* What a child of the job does is not the job's. */
static void a_forked_child_writes_to_nobody(void)
{
    daemon_start(NULL);
    struct tl_client *low = daemon_client(TL_LEVEL_LOW, NULL),
                     *high = daemon_client(TL_LEVEL_HIGH, NULL);
    int status = -1;
    TEST_ASSERT_TRUE(daemon_await_words(low, 1));
    TEST_ASSERT_TRUE(daemon_await_kept(low));
    pid_t pid = fork();
    if (pid == 0) {
        tl_client_abandon(high);
        tl_client_abandon(low);
        tl_client_issue(high, 1);
        bool is_good = !daemon_is_told(low) && tl_client_is_kept(low);
        _exit(is_good ? 0 : 1);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_FALSE(daemon_is_told(low));
    tl_client_issue(high, 1);
    TEST_ASSERT_TRUE(daemon_is_told(low));
    tl_client_destroy(high);
    tl_client_destroy(low);
}

/* More below than one keeps copies for: those beyond see the word, and know that nobody tells their
 * kernels.  Each that leaves makes room. */
static void who_is_beyond_the_copies_knows_it(void)
{
    enum { BELOW = TL_SHARE_COPIES + 2 };
    daemon_start(NULL);
    struct tl_client *high = daemon_client(TL_LEVEL_HIGH, NULL), *low[BELOW];
    for (int i = 0; i < BELOW; i++) {
        low[i] = daemon_client(TL_LEVEL_LOW, NULL);
        TEST_ASSERT_TRUE(daemon_await_words(low[i], 1));
        TEST_ASSERT_TRUE(i >= TL_SHARE_COPIES || daemon_await_kept(low[i]));
    }
    tl_client_issue(high, 1);
    for (int i = 0; i < BELOW; i++) {
        TEST_ASSERT_TRUE(tl_client_is_preempted(low[i]));
        TEST_ASSERT_EQUAL_INT(i < TL_SHARE_COPIES, tl_client_is_kept(low[i]));
        TEST_ASSERT_EQUAL_INT(i < TL_SHARE_COPIES, daemon_is_told(low[i]));
    }
    tl_client_destroy(low[0]);
    TEST_ASSERT_TRUE(daemon_await_kept(low[TL_SHARE_COPIES]));
    TEST_ASSERT_TRUE(daemon_is_told(low[TL_SHARE_COPIES]));
    for (int i = 1; i < BELOW; i++)
        tl_client_destroy(low[i]);
    tl_client_destroy(high);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_burst_is_told_when_it_begins_and_when_it_ends);
    RUN_TEST(who_comes_in_the_middle_of_a_burst_is_told);
    RUN_TEST(counters_that_overflow_are_told_of_as_well);
    RUN_TEST(no_thread_of_a_job_sees_its_work_untold);
    RUN_TEST(copies_come_and_go_under_a_busy_job);
    RUN_TEST(the_middle_cannot_clear_what_the_highest_says_to_the_lowest);
    RUN_TEST(a_page_that_is_kept_cannot_be_taken_away_or_mapped_anew);
    RUN_TEST(what_is_offered_to_nobody_is_not_kept);
    RUN_TEST(kernels_are_not_held_back_by_the_dead);
    RUN_TEST(copies_outlive_tallyd_and_are_kept_with_the_next);
    RUN_TEST(a_copy_that_was_given_up_is_replaced);
    RUN_TEST(a_new_level_ends_the_right_to_write);
    RUN_TEST(a_forked_child_writes_to_nobody);
    RUN_TEST(who_is_beyond_the_copies_knows_it);
    return UNITY_END();
}

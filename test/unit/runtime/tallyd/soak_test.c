/* kill -9 of high jobs, low jobs and tallyd, at random: nobody who survives may stay stuck, and
 * nothing may be left behind.
 *
 * High jobs hold their words busy when they are told to, low jobs watch them, all in processes of
 * their own; tallyd is started by whichever client misses it first.  What the processes see goes
 * into a page that all share, with times, so that recovery is measured where it happens.
 * TALLY_TEST_KILLS=1000 makes a soak of it (make soak-runtime). */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

enum { HIGH = 3, LOW = 3, JOBS = HIGH + LOW, USUAL_KILLS = 40, MOST_KILLS = 100000 };

/* One job, as it tells of itself and is told what to do. */
struct job {
    pid_t pid;
    _Atomic uint32_t is_held_busy; /* high: told to be so */
    _Atomic uint32_t is_joined, is_preempted;
    _Atomic uint32_t is_told;  /* low: its kernels would be told to leave */
    _Atomic uint64_t looks;    /* low: grows while it lives */
    _Atomic uint64_t progress; /* low: grows while it may run and nobody above is busy */
    _Atomic uint64_t freed_ns; /* low: when it last saw that it is no longer preempted ... */
    /* ... and when it saw for the last time that it is: what lies between may be sleep */
    _Atomic uint64_t held_ns;
};

static struct job *jobs; /* shared with the children */

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* --- jobs ------------------------------------------------------------------------------------- */

/* Memory that takes the kernel a while to give back, as a real job's does: who is waiting must not
 * wait for that. */
static void hold_memory(void)
{
    size_t bytes = getenv("TALLY_TEST_KILLS") != NULL ? (size_t)256 << 20 : 0;
    void *p = bytes > 0
                  ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : MAP_FAILED;
    if (p == MAP_FAILED)
        return;
    (void)madvise(p, bytes, MADV_NOHUGEPAGE);
    memset(p, 1, bytes);
}

static void run_high(struct tl_client *c, struct job *j)
{
    struct tl_client_page *page = tl_client_page(c);
    for (;; sleep_us(200)) {
        bool is_busy = tl_word_is_busy(atomic_load(&page->word)) != 0,
             should = atomic_load(&j->is_held_busy) != 0;
        if (should && !is_busy)
            tl_client_issue(c, 1);
        else if (!should && is_busy)
            tl_client_complete(c, 1);
        tl_client_backlog(c, should);
        atomic_store(&j->is_joined, tl_client_is_joined(c));
        atomic_fetch_add(&j->looks, 1);
    }
}

static void run_low(struct tl_client *c, struct job *j)
{
    tl_client_backlog(c, true);
    for (;; sleep_us(100)) {
        struct tl_grant g;
        uint64_t now = tl_clock_ns();
        bool is_preempted = tl_client_is_preempted(c);
        if (is_preempted)
            atomic_store(&j->held_ns, now);
        else if (atomic_load(&j->is_preempted) != 0)
            atomic_store(&j->freed_ns, tl_clock_ns());
        atomic_store(&j->is_preempted, is_preempted);
        atomic_store(&j->is_told, daemon_is_told(c));
        atomic_store(&j->is_joined, tl_client_is_joined(c));
        tl_client_grant(c, &g);
        if (!is_preempted && g.may_run)
            atomic_fetch_add(&j->progress, 1);
        atomic_fetch_add(&tl_client_page(c)->device_ns, 50000); /* so that equals take turns */
        atomic_fetch_add(&j->looks, 1);
    }
}

static void start_job(int i)
{
    struct job *j = &jobs[i];
    memset(j, 0, sizeof *j);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct tl_client *c = daemon_client(i < HIGH ? TL_LEVEL_HIGH - i : TL_LEVEL_LOW, NULL);
        if (i == 0)
            hold_memory();
        if (i < HIGH)
            run_high(c, j);
        else
            run_low(c, j);
    }
    j->pid = pid;
}

static void kill_job(int i)
{
    (void)kill(jobs[i].pid, SIGKILL);
    while (waitpid(jobs[i].pid, NULL, 0) < 0 && errno == EINTR)
        ;
    jobs[i].pid = 0;
}

/* --- waiting ---------------------------------------------------------------------------------- */

typedef bool condition_fn(void);

static bool all_joined(void)
{
    for (int i = 0; i < JOBS; i++)
        if (jobs[i].pid != 0 && atomic_load(&jobs[i].is_joined) == 0)
            return false;
    return true;
}

static bool all_low_preempted(void)
{
    for (int i = HIGH; i < JOBS; i++)
        if (jobs[i].pid != 0 &&
            (atomic_load(&jobs[i].is_preempted) == 0 || atomic_load(&jobs[i].is_told) == 0))
            return false;
    return true;
}

static bool no_low_preempted(void)
{
    for (int i = HIGH; i < JOBS; i++)
        if (jobs[i].pid != 0 &&
            (atomic_load(&jobs[i].is_preempted) != 0 || atomic_load(&jobs[i].is_told) != 0))
            return false;
    return true;
}

/* Counted in looks, not by the clock: if all of this is stopped for a while, nobody is stuck. */
enum { LOOK_US = 100, PATIENCE_LOOKS = (int)(DAEMON_PATIENCE_NS / 1000 / LOOK_US) };

static void await(condition_fn *is_so, const char *what)
{
    for (int look = 0; look < PATIENCE_LOOKS; look++, sleep_us(LOOK_US))
        if (is_so())
            return;
    TEST_FAIL_MESSAGE(what);
}

/* Every low job gets on. */
static void await_progress(void)
{
    uint64_t before[JOBS];
    for (int i = HIGH; i < JOBS; i++)
        before[i] = atomic_load(&jobs[i].progress);
    for (int i = HIGH; i < JOBS; i++) {
        int look = 0;
        while (jobs[i].pid != 0 && atomic_load(&jobs[i].progress) == before[i]) {
            TEST_ASSERT_TRUE_MESSAGE(look++ < PATIENCE_LOOKS, "a survivor is stuck");
            sleep_us(LOOK_US);
        }
    }
}

/* --- tallyd, which nobody here started -------------------------------------------------------- */

/* Its process, from the other end of a connection; -1 if there is none. */
static pid_t find_daemon(void)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    int fd = tl_wire_connect(getenv("TALLY_SOCKET"), NULL);
    if (fd < 0)
        return -1;
    bool is_known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0;
    close(fd);
    return is_known ? peer.pid : -1;
}

static uint32_t count_descriptors(pid_t pid)
{
    char path[64];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    for (; d != NULL && readdir(d) != NULL; n++)
        ;
    if (d != NULL)
        closedir(d);
    return n;
}

/* Until it has fewer: those who have just asked tallyd something may still be there. */
static void await_fewer(pid_t pid, uint32_t most)
{
    uint32_t n = count_descriptors(pid);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; n >= most && tl_clock_ns() < end;
         sleep_us(10000))
        n = count_descriptors(pid);
    char message[96];
    snprintf(message, sizeof message, "process %d has %u descriptors, and may have less than %u",
             (int)pid, n, most);
    TEST_ASSERT_TRUE_MESSAGE(n < most, message);
}

/* Mappings of shared pages, living or of the dead. */
static uint32_t count_pages(pid_t pid)
{
    char path[64], line[512];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, "memfd:tally") != NULL;
    if (f != NULL)
        fclose(f);
    return n;
}

/* --- figures ---------------------------------------------------------------------------------- */

struct figures {
    const char *name;
    uint64_t ns[MOST_KILLS];
    uint32_t n;
};
static struct figures freed = {.name =
                                   "low jobs saw that they are free after the death of a high one"},
                      held = {.name = "  and saw before that they are not"},
                      freed_alone = {.name = "the same, with tallyd dead"},
                      held_alone = {.name = "  and saw before that they are not"},
                      returned = {.name = "all jobs back after the death of tallyd"};

static void add(struct figures *f, uint64_t ns)
{
    if (f->n < MOST_KILLS)
        f->ns[f->n++] = ns;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void print(struct figures *f)
{
    if (f->n == 0)
        return;
    qsort(f->ns, f->n, sizeof f->ns[0], by_size);
    uint64_t median = f->ns[f->n / 2], p99 = f->ns[(uint64_t)f->n * 99 / 100],
             longest = f->ns[f->n - 1];
    printf("%s: %u times, median %.3f ms, p99 %.3f ms, longest %.3f ms\n", f->name, f->n,
           (double)median / 1e6, (double)p99 / 1e6, (double)longest / 1e6);
}

/* --- rounds ----------------------------------------------------------------------------------- */

/* The latest time that the low jobs tell, as time since then. */
static uint64_t latest(uint64_t since, bool is_free)
{
    uint64_t last = since;
    for (int i = HIGH; i < JOBS; i++) {
        uint64_t at = atomic_load(is_free ? &jobs[i].freed_ns : &jobs[i].held_ns);
        if (jobs[i].pid != 0 && at > last)
            last = at;
    }
    return last - since;
}

/* A high job dies busy, with tallyd there or with tallyd dying at the same moment. */
static void kill_busy_high(int victim, bool with_daemon)
{
    pid_t daemon = with_daemon ? find_daemon() : -1;
    atomic_store(&jobs[victim].is_held_busy, 1);
    await(all_low_preempted, "a low job does not see a busy high one");
    if (daemon > 0)
        (void)kill(daemon, SIGKILL);
    uint64_t begin = tl_clock_ns();
    kill_job(victim);
    await(no_low_preempted, "a dead high job holds a low one back");
    add(with_daemon ? &freed_alone : &freed, latest(begin, true));
    add(with_daemon ? &held_alone : &held, latest(begin, false));
    await_progress();
    start_job(victim);
}

static void kill_daemon(void)
{
    pid_t daemon = find_daemon();
    TEST_ASSERT_TRUE(daemon > 0);
    uint64_t begin = tl_clock_ns();
    (void)kill(daemon, SIGKILL);
    await_progress();
    bool is_other = false;
    for (int look = 0; !is_other && look < PATIENCE_LOOKS; look++, sleep_us(LOOK_US)) {
        pid_t now = find_daemon();
        is_other = now > 0 && now != daemon;
    }
    TEST_ASSERT_TRUE_MESSAGE(is_other, "nobody starts tallyd again");
    await(all_joined, "a job does not come back to tallyd");
    add(&returned, tl_clock_ns() - begin);
}

/* Kills whom the number names, and starts jobs again; how many were killed. */
static uint32_t kill_one(unsigned choice)
{
    int low = HIGH + (int)(choice / 4 % LOW);
    switch (choice % 4) {
    case 0:
        kill_busy_high((int)(choice / 4 % HIGH), false);
        return 1;
    case 1:
        kill_busy_high((int)(choice / 4 % HIGH), true); /* and tallyd */
        return 2;
    case 2:
        kill_job(low);
        await_progress();
        start_job(low);
        return 1;
    default:
        kill_daemon();
        return 1;
    }
}

static void nobody_stays_stuck_whoever_is_killed(void)
{
    const char *text = getenv("TALLY_TEST_KILLS");
    uint32_t kills = text != NULL ? (uint32_t)strtoul(text, NULL, 10) : USUAL_KILLS;
    unsigned seed = 20260;
    daemon_may_start();
    setenv("TALLY_DAEMON_IDLE", "1", 1);
    for (int i = 0; i < JOBS; i++)
        start_job(i);
    await(all_joined, "the jobs do not join");
    for (uint32_t i = 0; i < kills;) {
        seed = seed * 1103515245 + 12345;
        i += kill_one(seed >> 16);
        await(all_joined, "a job does not join");
        await(no_low_preempted, "a low job is held back by nobody");
        await_progress();
    }
    uint32_t clients = 0; /* those of the dead may be noticed a moment later */
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end && clients != JOBS;
         sleep_us(1000))
        /* it may have been the last to be killed */
        clients = find_daemon() > 0 ? daemon_count_clients() : 0;
    TEST_ASSERT_EQUAL_UINT32(JOBS, clients);
    /* A low job has its own page, a grant (perhaps an old one, too), the words above and a copy of
     * each; tallyd two pages per client, the ledger of its tree, and a descriptor of each copy. */
    for (int i = HIGH; i < JOBS; i++) {
        TEST_ASSERT_TRUE(count_pages(jobs[i].pid) <= 3 + 2 * (HIGH + 1));
        await_fewer(jobs[i].pid, 40);
    }
    pid_t daemon = find_daemon();
    TEST_ASSERT_TRUE(count_pages(daemon) <= 3 * JOBS);
    await_fewer(daemon, 20 + 4 * JOBS + HIGH * LOW);
    for (int i = 0; i < JOBS; i++)
        kill_job(i);
    struct stat st;
    bool is_gone = false;
    for (uint64_t end = tl_clock_ns() + 3 * DAEMON_PATIENCE_NS; !is_gone && tl_clock_ns() < end;
         sleep_us(10000))
        is_gone = stat(getenv("TALLY_SOCKET"), &st) < 0;
    char message[96];
    snprintf(message, sizeof message, "tallyd does not end: it was %d, is %d, with %u clients",
             (int)daemon, (int)find_daemon(), is_gone ? 0 : daemon_count_clients());
    TEST_ASSERT_TRUE_MESSAGE(is_gone, message);
    print(&freed);
    print(&held);
    print(&freed_alone);
    print(&held_alone);
    print(&returned);
}

void setUp(void)
{
    daemon_test_begin();
}

void tearDown(void)
{
    for (int i = 0; i < JOBS; i++)
        if (jobs[i].pid > 0)
            kill_job(i);
    daemon_test_end();
}

int main(void)
{
    jobs = mmap(NULL, JOBS * sizeof *jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
    if (jobs == MAP_FAILED)
        return 1;
    UNITY_BEGIN();
    RUN_TEST(nobody_stays_stuck_whoever_is_killed);
    return UNITY_END();
}

/* Who closes for tallyd what was refused at the door has nothing of tallyd's: if it is held up, or
 * dies, nobody else notices. */
#include "tally/clock.h"
#include "test/unit/runtime/tallyd/help.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

static pid_t held; /* a process that tallyd started, and that is stopped */

void setUp(void)
{
    daemon_test_begin();
    held = -1;
}

void tearDown(void)
{
    if (held > 0)
        (void)kill(held, SIGKILL);
    daemon_test_end();
}

/* The process that buries for a tallyd; -1 if there is none. */
static pid_t find_burier(pid_t of)
{
    pid_t found = -1;
    DIR *d = opendir("/proc");
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && found < 0;
         e = readdir(d)) {
        char path[300], line[512] = "";
        int pid = 0, parent = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        if (f == NULL)
            continue;
        if (fgets(line, sizeof line, f) != NULL &&
            sscanf(line, "%d (tallyd-bury) %*c %d", &pid, &parent) == 2 && parent == of)
            found = pid;
        fclose(f);
    }
    if (d != NULL)
        closedir(d);
    return found;
}

/* tallyd listens a moment before. */
static pid_t await_burier(pid_t of)
{
    pid_t found = find_burier(of);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; found < 0 && tl_clock_ns() < end;
         found = find_burier(of))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    TEST_ASSERT_TRUE_MESSAGE(found > 0, "nobody buries for tallyd");
    return found;
}

static uint32_t count_descriptors(pid_t pid)
{
    char path[64];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d != NULL)
        closedir(d);
    return n;
}

static bool await_descriptors(pid_t pid, uint32_t n)
{
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; tl_clock_ns() < end;) {
        if (count_descriptors(pid) == n)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static void come_and_go(int times)
{
    for (int i = 0; i < times; i++)
        close(daemon_connect());
}

static void it_has_nothing_but_what_it_is_handed(void)
{
    pid_t d = daemon_start(NULL), burier = await_burier(d);
    TEST_ASSERT_TRUE(await_descriptors(burier, 1));
    struct tl_client *c = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    come_and_go(600);
    TEST_ASSERT_TRUE(await_descriptors(burier, 1));
    tl_client_destroy(c);
}

static void whoever_holds_it_up_holds_up_nobody_else(void)
{
    pid_t d = daemon_start(NULL);
    held = await_burier(d);
    (void)kill(held, SIGSTOP);
    struct tl_client *c = daemon_client(0, NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    come_and_go(600);
    TEST_ASSERT_EQUAL_UINT32(1, daemon_count_clients());
    /* Nothing of the dead tallyd is left: its client sees that it is gone, and there may be
     * another. */
    daemon_kill(d);
    TEST_ASSERT_TRUE(daemon_await_joined(c, false));
    daemon_start(NULL);
    TEST_ASSERT_TRUE(daemon_await_joined(c, true));
    tl_client_destroy(c);
}

static void if_it_is_killed_there_is_another(void)
{
    pid_t d = daemon_start(NULL), first = await_burier(d);
    TEST_ASSERT_EQUAL_UINT32(0, daemon_count_clients());
    (void)kill(first, SIGKILL);
    pid_t next = find_burier(d);
    for (uint64_t end = tl_clock_ns() + DAEMON_PATIENCE_NS; next <= 0 || next == first;
         next = find_burier(d)) {
        TEST_ASSERT_TRUE_MESSAGE(tl_clock_ns() < end, "nobody buries");
        come_and_go(1);
    }
    TEST_ASSERT_TRUE(await_descriptors(next, 1));
    TEST_ASSERT_EQUAL_UINT32(0, daemon_count_clients());
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(it_has_nothing_but_what_it_is_handed);
    RUN_TEST(whoever_holds_it_up_holds_up_nobody_else);
    RUN_TEST(if_it_is_killed_there_is_another);
    return UNITY_END();
}

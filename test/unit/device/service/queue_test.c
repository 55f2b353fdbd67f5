/* Who is compiled next: levels in the queue of the compiler service, and compilations that are put
 * aside.  Kernels that never end stand for those that take long, so that what comes after them
 * comes only by going past them. */
#include "device/service/client.h"
#include "test/unit/device/service/help.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static pid_t children[16];
static int n_children;

void setUp(void)
{
    service_set_up();
    setenv("TALLY_JIT_WORKERS", "2", 1);
    setenv("TALLY_JIT_TEST_CRASH", "long*@spin", 1);
    setenv("TALLY_PROGRESS", "no", 1);
    n_children = 0;
}

/* What never ends is ended with the service. */
void tearDown(void)
{
    pid_t pid = service_pid();
    for (int i = 0; i < n_children; i++)
        kill(children[i], SIGKILL);
    for (int i = 0; i < n_children; i++)
        waitpid(children[i], NULL, 0);
    if (pid > 0)
        kill(pid, SIGKILL);
    service_tear_down();
}

static int get(const char *kernel)
{
    char path[2048];
    struct tl_error err = {0};
    const char *ptx = service_ptx(kernel);
    int rc = tl_jit_client_get(ptx, strlen(ptx), kernel, service_block, path, sizeof path, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    return rc;
}

/* A process of that level asks for a kernel; returns which of the children it is. */
static int ask(const char *level, const char *kernel)
{
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        setenv("TALLY_PRIORITY", level, 1);
        _exit(get(kernel) != 0);
    }
    children[n_children] = pid;
    return n_children++;
}

static void assert_gets(int child)
{
    int status = -1;
    TEST_ASSERT_EQUAL_INT(children[child], waitpid(children[child], &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    children[child] = children[--n_children];
}

static bool is_waiting(int child)
{
    return waitpid(children[child], NULL, WNOHANG) == 0;
}

static void ask_for_long_ones(int n, const char *level)
{
    char name[16];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "long%d", i);
        (void)ask(level, name);
    }
    service_wait_number("in work", n);
    service_wait_number("workers", 1);
}

static void a_high_kernel_is_compiled_next_whatever_waits(void)
{
    ask_for_long_ones(6, "low");
    assert_gets(ask("high", "small"));
    assert_gets(ask("high", "other"));
    TEST_ASSERT_EQUAL_INT(2, service_number("compiled"));
    for (int i = 0; i < 6; i++)
        TEST_ASSERT_TRUE(is_waiting(i));
    TEST_ASSERT_EQUAL_INT(0, service_number("deaths"));
}

static void what_was_put_aside_goes_on_and_is_finished(void)
{
    setenv("TALLY_JIT_WORKERS", "1", 1);
    setenv("TALLY_JIT_TEST_CRASH", "slow*@slow", 1);
    int low = ask("low", "slow");
    service_wait_number("in work", 1);
    service_wait_number("workers", 1);
    assert_gets(ask("high", "slow_but_high"));
    assert_gets(low);
    TEST_ASSERT_EQUAL_INT(2, service_number("compiled"));
    TEST_ASSERT_EQUAL_INT(0, service_number("deaths"));
    TEST_ASSERT_EQUAL_INT(1, service_number("workers"));
}

/* Whoever kills the service, the next one gets the kernel that it had: it is not refused. */
static void a_service_that_is_killed_is_not_the_kernels_fault(void)
{
    int child = ask("low", "long");
    for (int i = 0; i < 4; i++) {
        service_wait_number("in work", 1);
        pid_t pid = service_pid();
        TEST_ASSERT_TRUE(pid > 0 && kill(pid, SIGKILL) == 0);
        while (service_pid() == pid)
            service_sleep_ms(1);
    }
    service_wait_number("in work", 1);
    TEST_ASSERT_TRUE(is_waiting(child));
}

/* Whoever stops the service, who wants a kernel has it go on. */
static void a_service_that_is_stopped_goes_on(void)
{
    unsetenv("TALLY_JIT_TEST_CRASH");
    assert_gets(ask("low", "first"));
    pid_t pid = service_pid();
    TEST_ASSERT_TRUE(pid > 0 && kill(pid, SIGSTOP) == 0);
    assert_gets(ask("low", "second"));
    TEST_ASSERT_EQUAL_INT(pid, service_pid());
}

static void equals_wait_for_each_other(void)
{
    setenv("TALLY_JIT_WORKERS", "1", 1);
    ask_for_long_ones(1, "high");
    int equal = ask("high", "small"), lower = ask("low", "other");
    service_wait_number("in work", 3);
    TEST_ASSERT_TRUE(is_waiting(equal) && is_waiting(lower));
    TEST_ASSERT_EQUAL_INT(0, service_number("put aside"));
    TEST_ASSERT_EQUAL_INT(0, service_number("compiled"));
}

static void a_kernel_that_a_high_job_wants_too_is_raised(void)
{
    setenv("TALLY_JIT_WORKERS", "1", 1);
    ask_for_long_ones(3, "low");
    int low = ask("low", "shared");
    service_wait_number("in work", 4);
    assert_gets(ask("high", "shared"));
    assert_gets(low);
    TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
}

/* One worker, and at most one more that is put aside: what is lowest begins again later. */
static void any_number_of_levels_can_pass_each_other(void)
{
    char name[16], level[8];
    setenv("TALLY_JIT_WORKERS", "1", 1);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "long%d", i);
        snprintf(level, sizeof level, "%d", i);
        (void)ask(level, name);
        service_wait_number("in work", i + 1);
    }
    assert_gets(ask("99", "small"));
    TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
    TEST_ASSERT_EQUAL_INT(0, service_number("failed"));
    TEST_ASSERT_EQUAL_INT(0, service_number("deaths"));
    TEST_ASSERT_TRUE(service_number("workers") <= 2);
}

static void a_kernel_that_was_asked_for_ahead_makes_way(void)
{
    const char *ptx = service_ptx("long_ahead");
    setenv("TALLY_JIT_WORKERS", "1", 1);
    tl_jit_client_prefetch(ptx, strlen(ptx), "long_ahead", service_block);
    service_wait_number("workers", 1);
    assert_gets(ask("0", "small"));
    TEST_ASSERT_EQUAL_INT(1, service_number("compiled"));
}

/* --- niceness --------------------------------------------------------------------------------- */

static int niceness(pid_t pid)
{
    return getpriority(PRIO_PROCESS, (id_t)pid);
}

/* As a user who may not lower a niceness; without root he is one anyway.  3 ends the process where
 * another user cannot do what the test wants. */
static void become_plain(void)
{
    char *program = realpath(service_program, NULL); /* not from where we are, which it may enter */
    if (geteuid() == 0 &&
        (chown(service_folder, 65534, 65534) < 0 || setgid(65534) < 0 || setuid(65534) < 0))
        _exit(3);
    if (program == NULL || access(program, X_OK) < 0 || access(service_folder, W_OK) < 0)
        _exit(3);
    free(program);
}

static void ask_nicely_then_plainly(void)
{
    become_plain();
    pid_t nice_one = fork();
    if (nice_one == 0)
        _exit(nice(7) == -1 || get("first") != 0);
    int status = -1;
    waitpid(nice_one, &status, 0);
    pid_t before = service_pid();
    if (status != 0 || before < 0 || get("second") != 0)
        _exit(1);
    pid_t after = service_pid();
    if (after < 0 || niceness(after) != niceness(0)) {
        fprintf(stderr, "the service has niceness %d, its client %d\n", niceness(after),
                niceness(0));
        _exit(2);
    }
    (void)service_says("stop");
    service_wait(false);
    _exit(0);
}

/* The service keeps no niceness of who started it if it may; if it may not, the next who is less
 * nice gets one of his own. */
static void nobody_is_served_by_who_is_nicer_than_he(void)
{
    unsetenv("TALLY_JIT_TEST_CRASH");
    char own[512];
    strcpy(own, service_folder);
    strcpy(service_folder, "/tmp/jit_nice_XXXXXX"); /* where another user gets in */
    TEST_ASSERT_NOT_NULL(mkdtemp(service_folder));
    setenv("XDG_RUNTIME_DIR", service_folder, 1);
    setenv("TALLY_CACHE", service_folder, 1);
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (pid == 0)
        ask_nicely_then_plainly();
    int status = -1;
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", service_folder);
    TEST_ASSERT_EQUAL_INT(0, system(command));
    strcpy(service_folder, own);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        TEST_IGNORE_MESSAGE("cannot become another user here");
    TEST_ASSERT_EQUAL_INT(0, status);
}

static void who_may_lowers_the_niceness(void)
{
    if (geteuid() != 0 || setpriority(PRIO_PROCESS, 0, niceness(0)) < 0)
        TEST_IGNORE_MESSAGE("only root may lower a niceness");
    unsetenv("TALLY_JIT_TEST_CRASH");
    pid_t pid = fork();
    if (pid == 0)
        _exit(nice(7) == -1 || get("first") != 0);
    int status = -1;
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_INT(0, niceness(service_pid()));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_high_kernel_is_compiled_next_whatever_waits);
    RUN_TEST(what_was_put_aside_goes_on_and_is_finished);
    RUN_TEST(a_service_that_is_killed_is_not_the_kernels_fault);
    RUN_TEST(a_service_that_is_stopped_goes_on);
    RUN_TEST(equals_wait_for_each_other);
    RUN_TEST(a_kernel_that_a_high_job_wants_too_is_raised);
    RUN_TEST(any_number_of_levels_can_pass_each_other);
    RUN_TEST(a_kernel_that_was_asked_for_ahead_makes_way);
    RUN_TEST(nobody_is_served_by_who_is_nicer_than_he);
    RUN_TEST(who_may_lowers_the_niceness);
    return UNITY_END();
}

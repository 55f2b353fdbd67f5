/* The line that tells how far compiling is.  What waits for the compiler is played by a pipe;
 * standard error is a pipe or a terminal of the test's own. */
#include "device/service/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

static int service[2]; /* readable once the compiler has answered */
static int heard;      /* where standard error goes */
static int kept;       /* the real standard error */

static struct tl_store_key key_of(unsigned number)
{
    struct tl_store_key key = {{0}};
    memcpy(key.bytes, &number, sizeof number);
    return key;
}

void setUp(void)
{
    char folder[512];
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/jit_progress_XXXXXX", tmp != NULL ? tmp : "/tmp");
    unsetenv("TALLY_LOG");
    unsetenv("TALLY_PROGRESS");
    TEST_ASSERT_NOT_NULL(mkdtemp(folder));
    setenv("TALLY_CACHE", folder, 1);
    TEST_ASSERT_EQUAL_INT(0, pipe(service));
    kept = dup(STDERR_FILENO);
}

void tearDown(void)
{
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(heard);
    close(service[0]);
    close(service[1]);
    rmdir(getenv("TALLY_CACHE"));
}

static void hear_pipe(void)
{
    int ends[2];
    TEST_ASSERT_EQUAL_INT(0, pipe(ends));
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    heard = ends[0];
}

static void hear_terminal(void)
{
    heard = posix_openpt(O_RDWR | O_NOCTTY);
    TEST_ASSERT_TRUE(heard >= 0 && grantpt(heard) == 0 && unlockpt(heard) == 0);
    int terminal = open(ptsname(heard), O_RDWR | O_NOCTTY);
    TEST_ASSERT_TRUE(terminal >= 0);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
}

/* The next text up to and with `end`; waits for it. */
static const char *next_until(const char *end)
{
    static char text[300];
    size_t n = 0;
    while (n < sizeof text - 1 && read(heard, text + n, 1) == 1) {
        text[++n] = 0;
        if (n >= strlen(end) && strcmp(text + n - strlen(end), end) == 0)
            return text;
    }
    text[n] = 0;
    return text;
}

/* Whether everything that was said has been heard. */
static bool is_silent(void)
{
    struct pollfd p = {.fd = heard, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static void *wait_for_one(void *argument)
{
    struct tl_store_key key = key_of(*(unsigned *)argument);
    tl_jit_progress_begin(&key);
    tl_jit_progress_wait(service[0], -1);
    tl_jit_progress_end(&key);
    return NULL;
}

static void answer(void)
{
    TEST_ASSERT_EQUAL_INT(1, write(service[1], "+", 1));
}

static pthread_t start_waiting(unsigned *number)
{
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, wait_for_one, number));
    return thread;
}

/* Counters go on from test to test; each runs in a process of its own. */
static void in_child(void (*test)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        test();
        _exit(0);
    }
    TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
}

/* Unity's assertions jump into the parent's frame, so the child says by its exit status what is
 * wrong. */
#define CHECK(is_right)                                                                            \
    do {                                                                                           \
        if (!(is_right)) {                                                                         \
            printf("line %d: %s\n", __LINE__, #is_right);                                          \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void plain_lines(void)
{
    unsigned number = 1;
    struct tl_store_key expected = key_of(7);
    hear_pipe();
    tl_jit_progress_expect(&expected);
    tl_jit_progress_expect(&expected);
    pthread_t thread = start_waiting(&number);
    CHECK(strcmp(next_until("\n"), "tally: compiling kernels 0/2\n") == 0);
    CHECK(strcmp(next_until("\n"), "tally: compiling kernels 0/2\n") == 0);
    answer();
    pthread_join(thread, NULL);
    CHECK(is_silent());
}

static void a_job_that_waits_is_told_how_far_it_is(void)
{
    in_child(plain_lines);
}

static void line_on_terminal(void)
{
    unsigned first = 1, second = 2;
    hear_terminal();
    pthread_t thread = start_waiting(&first);
    CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 0/1\033[K") == 0);
    CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 0/1\033[K") == 0);
    answer();
    pthread_join(thread, NULL);
    const char *text = next_until("\033[K");
    while (strcmp(text, "\r\033[K") != 0) { /* it may have been told once more */
        CHECK(strcmp(text, "\rtally: compiling kernels 0/1\033[K") == 0);
        text = next_until("\033[K");
    }
    CHECK(is_silent());
    char byte;
    CHECK(read(service[0], &byte, 1) == 1);
    thread = start_waiting(&second);
    CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 1/2\033[K") == 0);
    answer();
    pthread_join(thread, NULL);
}

static void on_a_terminal_the_line_is_rewritten_and_wiped_away(void)
{
    in_child(line_on_terminal);
}

static void two_of_one_kernel(void)
{
    unsigned same = 1, other = 2;
    hear_terminal();
    pthread_t a = start_waiting(&same), b = start_waiting(&same), c = start_waiting(&other);
    for (int i = 0; i < 5; i++)
        CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 0/2\033[K") == 0);
    answer();
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    pthread_join(c, NULL);
}

static void a_kernel_that_two_threads_want_counts_once(void)
{
    in_child(two_of_one_kernel);
}

static void compiled_in_background(void)
{
    unsigned number = 1;
    struct tl_store_key expected = key_of(7);
    struct tl_store cache;
    char path[TL_STORE_PATH + 100];
    CHECK(tl_store_open(&cache, getenv("TALLY_CACHE"), 100, NULL) == 0);
    hear_terminal();
    tl_jit_progress_expect(&expected);
    pthread_t thread = start_waiting(&number);
    CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 0/2\033[K") == 0);
    CHECK(tl_store_put(&cache, &expected, "code", 4, path, sizeof path, NULL) == 0);
    const char *text = next_until("\033[K");
    while (strcmp(text, "\rtally: compiling kernels 1/2\033[K") != 0) {
        CHECK(strcmp(text, "\rtally: compiling kernels 0/2\033[K") == 0);
        text = next_until("\033[K");
    }
    answer();
    pthread_join(thread, NULL);
    unlink(path);
}

static void what_was_compiled_ahead_counts_when_it_is_there(void)
{
    in_child(compiled_in_background);
}

static void quiet_modes(void)
{
    struct tl_store_key key = key_of(1);
    hear_pipe();
    tl_jit_progress_begin(&key);
    /* Nobody ever answers: that it returns tells that it does not stay to tell. */
    setenv("TALLY_LOG", "error", 1);
    tl_jit_progress_wait(service[0], -1);
    setenv("TALLY_LOG", "off", 1);
    tl_jit_progress_wait(service[0], -1);
    setenv("TALLY_LOG", "debug", 1);
    setenv("TALLY_PROGRESS", "no", 1);
    tl_jit_progress_wait(service[0], -1);
    tl_jit_progress_end(&key);
    CHECK(is_silent());
}

static void nothing_is_told_when_errors_only_are_wanted(void)
{
    in_child(quiet_modes);
}

static void two_processes(void)
{
    unsigned number = 1;
    hear_terminal();
    pid_t first = fork();
    if (first == 0) {
        wait_for_one(&number);
        _exit(0);
    }
    CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 0/1\033[K") == 0);
    struct tl_store_key others[2] = {key_of(2), key_of(3)};
    tl_jit_progress_expect(&others[0]);
    tl_jit_progress_expect(&others[1]);
    pthread_t thread = start_waiting(&number);
    for (int i = 0; i < 10; i++) /* meanwhile the second one would have had something to tell */
        CHECK(strcmp(next_until("\033[K"), "\rtally: compiling kernels 0/1\033[K") == 0);
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    const char *text = next_until("\033[K");
    while (strcmp(text, "\rtally: compiling kernels 0/3\033[K") != 0) {
        CHECK(strcmp(text, "\rtally: compiling kernels 0/1\033[K") == 0);
        text = next_until("\033[K");
    }
    answer();
    pthread_join(thread, NULL);
}

static void of_two_processes_on_one_terminal_one_tells(void)
{
    in_child(two_processes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_job_that_waits_is_told_how_far_it_is);
    RUN_TEST(on_a_terminal_the_line_is_rewritten_and_wiped_away);
    RUN_TEST(a_kernel_that_two_threads_want_counts_once);
    RUN_TEST(what_was_compiled_ahead_counts_when_it_is_there);
    RUN_TEST(nothing_is_told_when_errors_only_are_wanted);
    RUN_TEST(of_two_processes_on_one_terminal_one_tells);
    return UNITY_END();
}

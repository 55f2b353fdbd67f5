/* Threads of ours: no signal of the process is theirs, and the maker's mask is as it was. */
#include "tally/thread.h"

#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unity.h>

/* What a thread saw of itself. */
struct seen {
    sigset_t mask;
    size_t stack_bytes;
    sem_t is_done;
};

static struct seen seen;

void setUp(void)
{
    memset(&seen, 0, sizeof seen);
    TEST_ASSERT_EQUAL_INT(0, sem_init(&seen.is_done, 0, 0));
}

void tearDown(void)
{
    sem_destroy(&seen.is_done);
}

static void *look(void *argument)
{
    struct seen *s = argument;
    pthread_attr_t attributes;
    pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &s->stack_bytes);
    pthread_attr_destroy(&attributes);
    sem_post(&s->is_done);
    return argument;
}

static void a_thread_takes_no_signal_and_its_maker_those_of_before(void)
{
    sigset_t some, mine;
    pthread_t thread;
    void *result = NULL;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_SETMASK, &some, NULL);
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(&thread, NULL, look, &seen));
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, &result));
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    TEST_ASSERT_EQUAL_PTR(&seen, result);
    for (int s = 1; s < 32; s++) { /* those behind are libc's own */
        if (s != SIGKILL && s != SIGSTOP)
            TEST_ASSERT_EQUAL_INT_MESSAGE(1, sigismember(&seen.mask, s), strsignal(s));
        TEST_ASSERT_EQUAL_INT_MESSAGE(s == SIGUSR2, sigismember(&mine, s), strsignal(s));
    }
    sigemptyset(&some);
    pthread_sigmask(SIG_SETMASK, &some, NULL);
}

static void one_that_takes_faults_takes_only_those(void)
{
    static const struct tl_thread_kind kind = {.takes_faults = true};
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(&thread, &kind, look, &seen));
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    TEST_ASSERT_EQUAL_INT(0, sigismember(&seen.mask, SIGSEGV));
    TEST_ASSERT_EQUAL_INT(1, sigismember(&seen.mask, SIGTERM));
}

static void *wait_for_it(void *gate)
{
    sem_wait(gate);
    return NULL;
}

static void it_has_the_name_that_was_asked_for(void)
{
    static const struct tl_thread_kind kind = {.name = "tally-test"};
    char name[16] = "";
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(&thread, &kind, wait_for_it, &seen.is_done));
    TEST_ASSERT_EQUAL_INT(0, pthread_getname_np(thread, name, sizeof name));
    sem_post(&seen.is_done);
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    TEST_ASSERT_EQUAL_STRING("tally-test", name);
}

static void it_has_the_stack_that_was_asked_for(void)
{
    static const struct tl_thread_kind kind = {.stack_bytes = 1 << 20};
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(&thread, &kind, look, &seen));
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    TEST_ASSERT_EQUAL_size_t(1 << 20, seen.stack_bytes);
}

static void a_stack_that_cannot_be_had_is_no_reason_to_have_no_thread(void)
{
    static const struct tl_thread_kind kind = {.stack_bytes = 1};
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(&thread, &kind, look, &seen));
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    TEST_ASSERT_TRUE(seen.stack_bytes >= (size_t)PTHREAD_STACK_MIN);
}

static void *tell_whether_detached(void *argument)
{
    pthread_attr_t attributes;
    int state = -1;
    /* Its maker detaches it behind its start. */
    do {
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getdetachstate(&attributes, &state);
        pthread_attr_destroy(&attributes);
    } while (state != PTHREAD_CREATE_DETACHED);
    sem_post(argument);
    return NULL;
}

static void without_a_place_for_it_a_thread_is_detached(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(NULL, NULL, tell_whether_detached, &seen.is_done));
    TEST_ASSERT_EQUAL_INT(0, sem_wait(&seen.is_done));
}

static void *lock_within_a_moment(void *mutex)
{
    static int rc;
    rc = tl_thread_lock_within(mutex, 1000000);
    if (rc == 0)
        pthread_mutex_unlock(mutex);
    return &rc;
}

static void a_lock_that_is_not_given_back_is_waited_for_no_longer_than_asked(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_t other;
    void *rc;
    TEST_ASSERT_EQUAL_INT(0, *(int *)lock_within_a_moment(&mutex));
    pthread_mutex_lock(&mutex);
    TEST_ASSERT_EQUAL_INT(0, tl_thread_start(&other, NULL, lock_within_a_moment, &mutex));
    pthread_join(other, &rc);
    TEST_ASSERT_EQUAL_INT(ETIMEDOUT, *(int *)rc);
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_thread_takes_no_signal_and_its_maker_those_of_before);
    RUN_TEST(one_that_takes_faults_takes_only_those);
    RUN_TEST(it_has_the_name_that_was_asked_for);
    RUN_TEST(it_has_the_stack_that_was_asked_for);
    RUN_TEST(a_stack_that_cannot_be_had_is_no_reason_to_have_no_thread);
    RUN_TEST(without_a_place_for_it_a_thread_is_detached);
    RUN_TEST(a_lock_that_is_not_given_back_is_waited_for_no_longer_than_asked);
    return UNITY_END();
}

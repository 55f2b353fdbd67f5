/* The ledger between processes: nobody gets more than the limit, nobody is refused what fits, and
 * whoever dies in the middle, also with the lock, leaves nothing behind. */
#include "runtime/job/ledger.h"
#include "unity.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tl_ledger_page *l;
enum { GPU = 7 };

void setUp(void)
{
    l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(l != MAP_FAILED);
    tl_ledger_init(l);
}

void tearDown(void)
{
    munmap(l, sizeof *l);
}

static void the_sum_of_a_gpu_is_held_to_the_limit(void)
{
    struct tl_ledger_slot *a = tl_ledger_slot(l, 1, GPU), *b = tl_ledger_slot(l, 2, GPU),
                          *other = tl_ledger_slot(l, 1, GPU + 1);
    TEST_ASSERT_EQUAL_PTR(a, tl_ledger_slot(l, 1, GPU));
    TEST_ASSERT_TRUE(tl_ledger_take(l, a, 60, 100));
    TEST_ASSERT_FALSE(tl_ledger_take(l, b, 41, 100));
    TEST_ASSERT_TRUE(tl_ledger_take(l, b, 40, 100));
    TEST_ASSERT_TRUE(tl_ledger_take(l, other, 100, 100));
    TEST_ASSERT_FALSE(tl_ledger_take(l, other, UINT64_MAX, 100));
    TEST_ASSERT_TRUE(tl_ledger_take(l, b, 1000, 0));
    TEST_ASSERT_EQUAL_UINT64(1100, tl_ledger_total(l, GPU));
    tl_ledger_forget(l, 2);
    TEST_ASSERT_EQUAL_UINT64(60, tl_ledger_total(l, GPU));
}

static void a_full_ledger_says_so(void)
{
    for (uint64_t i = 1; i <= TL_LEDGER_SLOTS; i++)
        TEST_ASSERT_NOT_NULL(tl_ledger_slot(l, i, GPU));
    TEST_ASSERT_NULL(tl_ledger_slot(l, TL_LEDGER_SLOTS + 1, GPU));
    tl_ledger_forget(l, 5);
    TEST_ASSERT_NOT_NULL(tl_ledger_slot(l, TL_LEDGER_SLOTS + 1, GPU));
}

static void who_dies_with_the_lock_holds_up_nobody(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_lock(&l->lock);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    TEST_ASSERT_TRUE(tl_ledger_take(l, tl_ledger_slot(l, 1, GPU), 10, 10));
    TEST_ASSERT_FALSE(tl_ledger_take(l, tl_ledger_slot(l, 1, GPU), 1, 10));
}

/* Four processes take and give what just fits: between them they hold 3 of 4 at most while one
 * more asks, so nobody may ever be refused; and the sum is never too large. */
static void processes_that_ask_at_once_are_neither_refused_nor_given_too_much(void)
{
    enum { PROCESSES = 4, TIMES = 50000 };
    pid_t children[PROCESSES];
    for (uint64_t i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        struct tl_ledger_slot *s = tl_ledger_slot(l, i + 1, GPU);
        for (int k = 0; k < TIMES; k++) {
            if (!tl_ledger_take(l, s, 1, PROCESSES) || tl_ledger_total(l, GPU) > PROCESSES)
                _exit(1);
            tl_ledger_change(s, -1);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        waitpid(children[i], &status, 0);
        TEST_ASSERT_EQUAL_INT(0, status);
    }
    TEST_ASSERT_EQUAL_UINT64(0, tl_ledger_total(l, GPU));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_sum_of_a_gpu_is_held_to_the_limit);
    RUN_TEST(a_full_ledger_says_so);
    RUN_TEST(who_dies_with_the_lock_holds_up_nobody);
    RUN_TEST(processes_that_ask_at_once_are_neither_refused_nor_given_too_much);
    return UNITY_END();
}

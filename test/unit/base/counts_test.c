/* Counters that mostly one thread adds to: nothing is lost, whoever comes first. */
#include "tally/counts.h"

#include <pthread.h>
#include <unity.h>

enum { THREADS = 4, ADDITIONS = 200000 };

static struct tl_counts counts;
static pthread_barrier_t begin;

void setUp(void)
{
    counts = (struct tl_counts){0};
}

void tearDown(void)
{
}

static void *add_many(void *unused)
{
    char self;
    (void)unused;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < ADDITIONS; i++)
        tl_counts_add(&counts, (uintptr_t)&self, 1, 3);
    return NULL;
}

static void nothing_is_lost_when_threads_add_at_once(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&begin, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, add_many, NULL));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&begin);
    TEST_ASSERT_EQUAL_UINT64((uint64_t)THREADS * ADDITIONS, tl_counts_sum(&counts, 0));
    TEST_ASSERT_EQUAL_UINT64((uint64_t)THREADS * ADDITIONS * 3, tl_counts_sum(&counts, 1));
    TEST_ASSERT_TRUE_MESSAGE(counts.own[0] >= ADDITIONS, "the first one adds to its own pair");
}

static void the_first_has_a_pair_of_its_own(void)
{
    tl_counts_add(&counts, 8, 1, 10);
    tl_counts_add(&counts, 16, 2, 20);
    tl_counts_add(&counts, 8, 4, 40);
    TEST_ASSERT_EQUAL_UINT64(5, counts.own[0]);
    TEST_ASSERT_EQUAL_UINT64(50, counts.own[1]);
    TEST_ASSERT_EQUAL_UINT64(2, counts.others[0]);
    TEST_ASSERT_EQUAL_UINT64(20, counts.others[1]);
    TEST_ASSERT_EQUAL_UINT64(7, tl_counts_sum(&counts, 0));
    TEST_ASSERT_EQUAL_UINT64(70, tl_counts_sum(&counts, 1));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(nothing_is_lost_when_threads_add_at_once);
    RUN_TEST(the_first_has_a_pair_of_its_own);
    return UNITY_END();
}

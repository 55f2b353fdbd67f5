/* What a process loses to others is written down: when it stands ready and others have the SMs,
 * until it has one; and nothing else is. */
#include "device/exec/sm.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "test/unit/device/exec/help.h"
#include "test/unit/scratch.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

static char folder[256];

/* The spans that this process wrote, and how many. */
static struct tl__waits_file *written(size_t *n)
{
    char path[512];
    char *bytes;
    size_t size;
    snprintf(path, sizeof path, "%s/%s.%d.waits", folder, name, (int)getpid());
    TEST_ASSERT_EQUAL_INT(0, tl_file_read(path, SIZE_MAX, &bytes, &size));
    struct tl__waits_file *f = (struct tl__waits_file *)bytes;
    TEST_ASSERT_EQUAL_UINT64(TL__WAITS_MAGIC, f->magic);
    *n = (size_t)f->n;
    TEST_ASSERT_EQUAL_UINT64(0, f->n_dropped);
    unlink(path);
    return f;
}

static struct tl__sm *join_and_keep(uint32_t n_slots, enum tl_exec_mode mode)
{
    struct tl__waits *w;
    struct tl__sm *s = join(n_slots, mode);
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_EQUAL_INT(0, tl__waits_create(&w, folder, name, NULL));
    tl__sm_keep_waits(s, w);
    return s;
}

/* Holds the only SM from `ready` = 1 until `go` = 1. */
static void hold_the_slot(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    expect(tl__sm_try_acquire(s, 0) == 0, 2);
    tl__sm_set_head(s, TL_EXEC_NO_KEY); /* its last block is dispatched, and runs */
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    tl__sm_release(s, 0);
    tl__sm_close(s);
}

static void who_has_the_sms_to_himself_loses_nothing(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(1, TL_EXEC_MPS);
    for (int i = 0; i < 3; i++) {
        tl__sm_set_head(s, tl__sm_arrive(s, 0));
        TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
        tl__sm_set_head(s, TL_EXEC_NO_KEY);
        tl__sm_release(s, 0);
    }
    tl__sm_close(s);
    free(written(&n));
    TEST_ASSERT_EQUAL_UINT64(0, n);
}

/* Two SMs count twice; what lies between an SM that is left and the next that is had does not. */
static void what_is_had_is_added_up(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(2, TL_EXEC_MPS);
    uint64_t least = 0, most = 0;
    for (int i = 0; i < 3; i++) {
        tl__sm_set_head(s, tl__sm_arrive(s, 0));
        uint64_t before = tl_clock_ns();
        TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
        TEST_ASSERT_EQUAL_INT(1, tl__sm_try_acquire(s, 1));
        uint64_t begin = tl_clock_ns(), end = begin;
        while (end - begin < 100000)
            end = tl_clock_ns();
        tl__sm_set_head(s, TL_EXEC_NO_KEY);
        tl__sm_release(s, 0);
        tl__sm_release(s, 1);
        least += 2 * (end - begin);
        most += 2 * (tl_clock_ns() - before);
    }
    tl__sm_close(s);
    struct tl__waits_file *f = written(&n);
    TEST_ASSERT_TRUE(least <= f->held_ns && f->held_ns <= most);
    free(f);
}

static void waiting_for_another_ones_block_is_a_loss(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(1, TL_EXEC_MPS);
    start(0, hold_the_slot);
    wait_for(&board->ready, 1);
    uint64_t before = tl_clock_ns();
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint64_t after = tl_clock_ns();
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    uint64_t until = tl_clock_ns();
    atomic_store(&board->go, 1);
    while (tl__sm_acquire_or_wait(s, 0) < 0)
        ;
    uint64_t end = tl_clock_ns();
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, 0);
    tl__sm_close(s);
    ends_well(0);
    struct tl__waits_file *f = written(&n);
    TEST_ASSERT_EQUAL_UINT64(1, n);
    TEST_ASSERT_TRUE(before <= f->spans[0].begin_ns && f->spans[0].begin_ns <= after);
    TEST_ASSERT_TRUE(until <= f->spans[0].end_ns && f->spans[0].end_ns <= end);
    free(f);
}

/* What was measured is spoilt; the process goes on. */
static void a_file_that_is_truncated_ends_nobody(void)
{
    char path[512];
    struct tl__sm *s = join_and_keep(1, TL_EXEC_MPS);
    snprintf(path, sizeof path, "%s/%s.%d.waits", folder, name, (int)getpid());
    TEST_ASSERT_EQUAL_INT(0, truncate(path, 0));
    start(0, hold_the_slot);
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    atomic_store(&board->go, 1);
    while (tl__sm_acquire_or_wait(s, 0) < 0)
        ;
    tl__sm_release(s, 0);
    tl__sm_close(s);
    ends_well(0);
    unlink(path);
}

static void who_gives_up_waiting_has_lost_nothing(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(1, TL_EXEC_MPS);
    start(0, hold_the_slot);
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    tl__sm_set_head(s, TL_EXEC_NO_KEY); /* it was cancelled */
    atomic_store(&board->go, 1);
    ends_well(0);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
    tl__sm_release(s, 0);
    tl__sm_close(s);
    free(written(&n));
    TEST_ASSERT_EQUAL_UINT64(0, n);
}

static void an_sm_that_is_left_counts(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(2, TL_EXEC_MPS);
    start(0, hold_the_slot); /* takes the first of two */
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(1, tl__sm_try_acquire(s, 0));
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, 1);
    atomic_store(&board->go, 1);
    ends_well(0);
    tl__sm_close(s);
    free(written(&n));
    TEST_ASSERT_EQUAL_UINT64(0, n);
}

static void what_the_holder_ran_is_the_wait_less_what_it_stood_still(void)
{
    /* begin, end, told, stalled */
    TEST_ASSERT_EQUAL_UINT64(100, tl__stall_ran_ns(1000, 1100, 1000, 0));
    TEST_ASSERT_EQUAL_UINT64(60, tl__stall_ran_ns(1000, 1100, 1000, 40));
    TEST_ASSERT_EQUAL_UINT64(0, tl__stall_ran_ns(1000, 1100, 1000, 100));
    /* what may have been before the begin is not taken off */
    TEST_ASSERT_EQUAL_UINT64(100, tl__stall_ran_ns(1000, 1100, 960, 40));
    TEST_ASSERT_EQUAL_UINT64(70, tl__stall_ran_ns(1000, 1100, 960, 70));
    /* all of 960 to 1100 but 10: these may have been on either side */
    TEST_ASSERT_EQUAL_UINT64(10, tl__stall_ran_ns(1000, 1100, 960, 130));
    /* clocks of different threads, and what somebody scribbled */
    TEST_ASSERT_EQUAL_UINT64(60, tl__stall_ran_ns(1000, 1100, 1010, 40));
    TEST_ASSERT_EQUAL_UINT64(0, tl__stall_ran_ns(1000, 1100, 1000, UINT64_MAX));
    TEST_ASSERT_EQUAL_UINT64(0, tl__stall_ran_ns(1000, 990, 1000, 0));
    TEST_ASSERT_EQUAL_UINT64(100, tl__stall_ran_ns(1000, 1100, 0, 100));
}

/* Waits for two SMs, of which the holders that are named stood still all the time, and which were
 * left or not.  What was kept. */
static uint64_t kept_ns(uint32_t still, uint32_t left)
{
    size_t n;
    struct tl__waits *w;
    static struct sm_slot slots[2];
    memset(slots, 0, sizeof slots);
    TEST_ASSERT_EQUAL_INT(0, tl__waits_create(&w, folder, name, NULL));
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&slots[i].stall.total_ns, 1ULL << 40); /* before: of no interest */
        atomic_store(&slots[i].stall.told_ns, tl_clock_ns());
    }
    tl__waits_begin(w, slots, 2);
    uint64_t freed = tl_clock_ns() + 1;
    while (tl_clock_ns() < freed)
        ;
    for (uint32_t i = 0; i < 2; i++) {
        if ((still >> i & 1) != 0)
            atomic_fetch_add(&slots[i].stall.total_ns, 1ULL << 40);
        if ((left >> i & 1) != 0)
            atomic_store(&slots[i].freed_ns, freed);
    }
    tl__waits_end(w, slots, 2);
    tl__waits_end(w, slots, 2); /* it is over: nothing more is kept */
    tl__waits_destroy(w);
    struct tl__waits_file *f = written(&n);
    TEST_ASSERT_EQUAL_UINT64(1, n);
    uint64_t end = f->spans[0].end_ns, lost = end - f->spans[0].begin_ns;
    if (lost != 0 && left != 0)
        TEST_ASSERT_EQUAL_UINT64(freed, end);
    free(f);
    return lost;
}

static void a_wait_is_over_when_the_sm_is_left(void)
{
    TEST_ASSERT_NOT_EQUAL_UINT64(0, kept_ns(0, 1));
    TEST_ASSERT_EQUAL_UINT64(0, kept_ns(1, 1));     /* it stood still */
    TEST_ASSERT_NOT_EQUAL_UINT64(0, kept_ns(1, 3)); /* the other one ran */
    TEST_ASSERT_NOT_EQUAL_UINT64(0, kept_ns(2, 1));
    TEST_ASSERT_EQUAL_UINT64(0, kept_ns(3, 3));
    TEST_ASSERT_NOT_EQUAL_UINT64(0, kept_ns(3, 0)); /* nobody said so */
}

/* Is first, and leaves the SM alone until `go` = 1, as a thread that does not get a processor; then
 * has it for a moment.  `count[0]` is how long at most. */
static void come_first_and_be_late(uint32_t i)
{
    (void)i;
    struct tl__waits *w;
    char path[512];
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL && tl__waits_create(&w, folder, name, NULL) == 0, 1);
    tl__sm_keep_waits(s, w);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    expect(tl__sm_try_acquire(s, 0) == 0, 2);
    tl__sm_release(s, 0); /* it still has blocks to run */
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    uint64_t before = tl_clock_ns();
    expect(tl__sm_try_acquire(s, 0) == 0, 3);
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    uint64_t begin = tl_clock_ns();
    while (tl_clock_ns() - begin < 1000000)
        ;
    tl__sm_release(s, 0);
    atomic_store(&board->count[0], (uint32_t)(tl_clock_ns() - before));
    tl__sm_close(s);
    snprintf(path, sizeof path, "%s/%s.%d.waits", folder, name, (int)getpid());
    expect(unlink(path) == 0, 4);
}

static void while_nobody_has_the_sm_nothing_is_lost_to_who_is_first(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(1, TL_EXEC_MPS);
    start(0, come_first_and_be_late);
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint64_t begin = tl_clock_ns();
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    while (tl_clock_ns() - begin < 20000000)
        ;
    atomic_store(&board->go, 1);
    uint32_t slot = acquire(s);
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, slot);
    tl__sm_close(s);
    ends_well(0);
    struct tl__waits_file *f = written(&n);
    TEST_ASSERT_EQUAL_UINT64(1, n);
    uint64_t lost = f->spans[0].end_ns - f->spans[0].begin_ns;
    free(f);
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(atomic_load(&board->count[0]), lost);
    TEST_ASSERT_NOT_EQUAL_UINT64(0, lost);
}

static uint64_t thread_cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* One processor for this thread: the first that it may use, the same in all children. */
static void stay_on_one_core(void)
{
    cpu_set_t all, one;
    expect(sched_getaffinity(0, sizeof all, &all) == 0, 10);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    expect(sched_setaffinity(0, sizeof one, &one) == 0, 11);
}

/* A kernel that has the only SM and, beside `take_the_core`, hardly a processor: from `ready` = 1
 * until `go` = 2.  `count[0]` is its processor time. */
static void hold_the_slot_without_a_core(uint32_t i)
{
    (void)i;
    struct tl__waits *w;
    char path[512];
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL && tl__waits_create(&w, folder, name, NULL) == 0, 1);
    tl__sm_keep_waits(s, w);
    stay_on_one_core();
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint64_t before_us = thread_cpu_us();
    expect(tl__sm_try_acquire(s, 0) == 0, 2);
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    expect(sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0}) == 0, 3);
    atomic_store(&board->ready, 1);
    while (atomic_load(&board->go) < 2)
        ;
    tl__sm_release(s, 0);
    atomic_store(&board->count[0], (uint32_t)(thread_cpu_us() - before_us));
    tl__sm_close(s);
    snprintf(path, sizeof path, "%s/%s.%d.waits", folder, name, (int)getpid());
    expect(unlink(path) == 0, 4);
}

#define TAKEN_US 50000
/* From `go` = 1 on, takes that much of the processor. */
static void take_the_core(uint32_t i)
{
    (void)i;
    stay_on_one_core();
    wait_for(&board->go, 1);
    uint64_t since_us = thread_cpu_us();
    while (thread_cpu_us() - since_us < TAKEN_US)
        ;
    atomic_store(&board->go, 2);
}

static void what_the_machine_takes_from_the_holder_is_no_loss_to_it(void)
{
    size_t n;
    struct tl__sm *s = join_and_keep(1, TL_EXEC_MPS);
    start(0, hold_the_slot_without_a_core);
    wait_for(&board->ready, 1);
    start(1, take_the_core);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    atomic_store(&board->go, 1);
    uint32_t slot = acquire(s);
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, slot);
    tl__sm_close(s);
    ends_well(0);
    ends_well(1);
    struct tl__waits_file *f = written(&n);
    TEST_ASSERT_EQUAL_UINT64(1, n);
    uint64_t lost_us = (f->spans[0].end_ns - f->spans[0].begin_ns) / 1000;
    free(f);
    /* It waited for that and for what the other one took; only the former is lost to the kernel. */
    TEST_ASSERT_LESS_OR_EQUAL_UINT64(atomic_load(&board->count[0]) + TAKEN_US / 2, lost_us);
}

static void a_folder_that_is_not_there_is_named(void)
{
    struct tl__waits *w = NULL;
    struct tl_error err;
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl__waits_create(&w, "/nonexistent", "device", &err));
    TEST_ASSERT_NULL(w);
    TEST_ASSERT_NOT_NULL(strstr(err.text, "/nonexistent/device."));
}

int main(void)
{
    if (mkdtemp(scratch_path(folder, sizeof folder, "waits-XXXXXX")) == NULL)
        return 1;
    UNITY_BEGIN();
    RUN_TEST(who_has_the_sms_to_himself_loses_nothing);
    RUN_TEST(what_is_had_is_added_up);
    RUN_TEST(waiting_for_another_ones_block_is_a_loss);
    RUN_TEST(a_file_that_is_truncated_ends_nobody);
    RUN_TEST(who_gives_up_waiting_has_lost_nothing);
    RUN_TEST(an_sm_that_is_left_counts);
    RUN_TEST(what_the_holder_ran_is_the_wait_less_what_it_stood_still);
    RUN_TEST(a_wait_is_over_when_the_sm_is_left);
    RUN_TEST(while_nobody_has_the_sm_nothing_is_lost_to_who_is_first);
    RUN_TEST(what_the_machine_takes_from_the_holder_is_no_loss_to_it);
    RUN_TEST(a_folder_that_is_not_there_is_named);
    rmdir(folder);
    return UNITY_END();
}

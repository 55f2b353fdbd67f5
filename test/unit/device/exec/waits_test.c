/* What a process loses to others is written down: when it stands ready and others have the SMs,
 * until it has one; and nothing else is. */
#include "device/exec/waits.h"
#include "tally/clock.h"
#include "tally/file.h"
#include "test/unit/device/exec/help.h"
#include "test/unit/scratch.h"

#include <errno.h>
#include <stdlib.h>

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
    RUN_TEST(waiting_for_another_ones_block_is_a_loss);
    RUN_TEST(who_gives_up_waiting_has_lost_nothing);
    RUN_TEST(an_sm_that_is_left_counts);
    RUN_TEST(a_folder_that_is_not_there_is_named);
    rmdir(folder);
    return UNITY_END();
}

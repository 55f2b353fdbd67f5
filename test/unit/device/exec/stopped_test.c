/* Processes that are stopped (SIGSTOP, as Ctrl-Z does) while they hold SMs: others take them after
 * a while, and who goes on asks for one like anybody else.  Nothing here goes by time. */
#include "device/exec/sm.h"
#include "test/unit/device/exec/help.h"

#include <errno.h>

static void stop(uint32_t i)
{
    int status;
    TEST_ASSERT_EQUAL_INT(0, kill(children[i], SIGSTOP));
    TEST_ASSERT_EQUAL_INT(children[i], waitpid(children[i], &status, WUNTRACED));
    TEST_ASSERT_TRUE(WIFSTOPPED(status));
}

/* Holds the only slot; when it is told to go on, it finds that it has lost it, and waits for it. */
static void hold_then_ask_again(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint32_t slot = acquire(s);
    expect(!tl__sm_has_lost(s, slot), 2);
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    expect(tl__sm_has_lost(s, slot), 3);
    tl__sm_release(s, slot); /* which is not his any more, and stays whose it is */
    atomic_store(&board->ready, 2);
    slot = acquire(s);
    expect(!tl__sm_has_lost(s, slot) && tl__sm_slot_pid(s, slot) == (uint32_t)getpid(), 4);
    tl__sm_release(s, slot);
    tl__sm_close(s);
}

static void a_stopped_holder_loses_its_slot_and_gets_one_again(void)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    start(0, hold_then_ask_again);
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    stop(0);
    uint32_t slot = acquire(s); /* for ever, if nobody takes it */
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), tl__sm_slot_pid(s, slot));
    TEST_ASSERT_EQUAL_INT(0, kill(children[0], SIGCONT));
    atomic_store(&board->go, 1);
    wait_for(&board->ready, 2);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), tl__sm_slot_pid(s, slot));
    TEST_ASSERT_FALSE(tl__sm_has_lost(s, slot));
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, slot);
    ends_well(0);
    TEST_ASSERT_TRUE(tl__sm_is_free(s, 0));
    tl__sm_close(s);
}

static void hold_until_told(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint32_t slot = acquire(s);
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    expect(!tl__sm_has_lost(s, slot), 2);
    tl__sm_release(s, slot);
    tl__sm_close(s);
}

/* As one that was stopped and goes on just before somebody takes its slot. */
static void who_has_gone_on_loses_nothing(void)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    start(0, hold_until_told);
    wait_for(&board->ready, 1);
    uint32_t other = s->index == 0 ? 1 : 0;
    uint32_t beat = atomic_load(&s->m->procs[other].beat);
    atomic_store(&s->aside[other], (uint64_t)1 << 32 | beat);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    TEST_ASSERT_FALSE(tl__sm_is_aside(s, other));
    TEST_ASSERT_EQUAL_UINT32((uint32_t)children[0], tl__sm_slot_pid(s, 0));
    atomic_store(&board->go, 1);
    ends_well(0);
    tl__sm_close(s);
}

static void count_and_go_on(struct tl_exec_launch *l)
{
    struct load *load = l->user;
    atomic_fetch_add(&board->total, 1);
    if (tl_exec_submit(load->device, l) < 0)
        atomic_store(&load->is_over, true);
}

/* Kernels on the only SM, one after the other, for ever. */
static void compute_for_ever(uint32_t i)
{
    (void)i;
    struct tl_exec_config settings = {.name = name, .n_slots = 1, .memory_bytes = 1000};
    struct tl_exec_object *o;
    static struct load load;
    expect(tl_exec_device_open(&load.device, &settings, NULL) == 0, 1);
    expect(tl_exec_object_from(&o, &info.info, NULL, burn, NULL) == 0, 2);
    load.launch = (struct tl_exec_launch){
        .object = o, .grid = {1000000, 1, 1}, .done = count_and_go_on, .user = &load};
    expect(tl_exec_submit(load.device, &load.launch) == 0, 3);
    atomic_store(&board->ready, 1);
    for (;;)
        pause();
}

static void a_kernel_gets_past_a_stopped_one(void)
{
    struct tl_exec_config settings = {.name = name, .n_slots = 1, .memory_bytes = 1000};
    struct tl_exec_device *d;
    struct tl_exec_object *o;
    atomic_bool is_over = false;
    start(0, compute_for_ever);
    wait_for(&board->ready, 1);
    TEST_ASSERT_EQUAL_INT(0, tl_exec_device_open(&d, &settings, NULL));
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &info.info, NULL, burn, NULL));
    stop(0);
    struct tl_exec_launch launch = {
        .object = o, .grid = {3, 1, 1}, .done = mark_over, .user = &is_over};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(d, &launch));
    while (!atomic_load(&is_over)) /* for ever, if it waits for the stopped one */
        sched_yield();
    TEST_ASSERT_EQUAL_INT(0, kill(children[0], SIGCONT));
    kill_child(0);
    reap(0);
    tl_exec_object_unref(o);
    tl_exec_device_close(d);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_stopped_holder_loses_its_slot_and_gets_one_again);
    RUN_TEST(who_has_gone_on_loses_nothing);
    RUN_TEST(a_kernel_gets_past_a_stopped_one);
    return UNITY_END();
}

/* What processes leave behind that die, or stop, while they use the shared device: nothing.
 *
 * What is compared are counts and orders, never times; how long it took is told.  TALLY_TEST_KILLS
 * sets how many processes are killed (100). */
#include "device/exec/sm.h"
#include "tally/clock.h"
#include "test/unit/device/exec/help.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <time.h>

/* Takes and gives everything it can get until it is killed. */
static void live_until_killed(uint32_t i)
{
    (void)i;
    for (bool is_first = true;; is_first = false) {
        struct tl__sm *s = join(2, TL_EXEC_MPS);
        expect(s != NULL, 1);
        for (uint32_t k = 0; k < 20; k++) {
            tl__sm_set_head(s, tl__sm_arrive(s, 0));
            int a = tl__sm_try_acquire(s, 0), b = tl__sm_try_acquire(s, 1);
            int got = tl__sm_memory_take(s, 700);
            if (is_first && k == 0)
                atomic_store(&board->ready, 1);
            if (a >= 0)
                tl__sm_release(s, (uint32_t)a);
            if (b >= 0)
                tl__sm_release(s, (uint32_t)b);
            if (got == 0)
                tl__sm_memory_give(s, 700);
            if (k % 4 != 0)
                tl__sm_set_head(s, TL_EXEC_NO_KEY);
        }
        tl__sm_close(s);
    }
}

/* How long this thread could have run and had no processor, so far. */
static uint64_t delayed_ns(void)
{
    unsigned long long ran = 0, delayed = 0;
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    if (f != NULL) {
        if (fscanf(f, "%llu %llu", &ran, &delayed) != 2)
            delayed = 0;
        fclose(f);
    }
    return delayed;
}

static void the_dead_leave_nothing_behind(void)
{
    const char *text = getenv("TALLY_TEST_KILLS");
    uint32_t n = text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 100;
    uint64_t longest = 0, longest_own = 0, sum = 0;
    uint32_t late = 0, late_own = 0;
    unsigned seed = 1;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    for (uint32_t k = 0; k < n; k++) {
        atomic_store(&board->ready, 0);
        start(0, live_until_killed);
        wait_for(&board->ready, 1);
        for (volatile int spin = rand_r(&seed) % 20000; spin > 0; spin--)
            ;
        /* Arrived after the victim, so it is the victim's death that lets us in. */
        tl__sm_set_head(s, tl__sm_arrive(s, 0));
        uint64_t delayed = delayed_ns(), begin = tl_clock_ns();
        kill_child(0);
        uint32_t a = acquire(s), b = acquire(s);
        while (tl__sm_memory_take(s, 1000) < 0)
            sched_yield();
        uint64_t took = tl_clock_ns() - begin;
        /* On a busy machine the survivor waits for a processor as well, which is nobody's fault
         * here. */
        uint64_t waited = delayed_ns() - delayed, own = took > waited ? took - waited : 0;
        longest = took > longest ? took : longest;
        longest_own = own > longest_own ? own : longest_own;
        late += took > 10000000;
        late_own += own > 10000000;
        sum += took;
        tl__sm_memory_give(s, 1000);
        TEST_ASSERT_TRUE(a != b);
        tl__sm_set_head(s, TL_EXEC_NO_KEY);
        tl__sm_release(s, a);
        tl__sm_release(s, b);
        reap(0);
    }
    char report[256];
    snprintf(report, sizeof report,
             "%u kills: everything back after %llu us on average, %llu at most, %u later than 10 "
             "ms; without the time "
             "that the survivor had no processor: %llu at most, %u",
             n, (unsigned long long)(sum / (n + (n == 0)) / 1000),
             (unsigned long long)(longest / 1000), late, (unsigned long long)(longest_own / 1000),
             late_own);
    TEST_MESSAGE(report);
    tl__sm_close(s);
}

static void mark_ready(struct tl_exec_launch *l)
{
    struct load *load = l->user;
    atomic_store(&board->ready, 1);
    if (tl_exec_submit(load->device, l) < 0)
        atomic_store(&load->is_over, true);
}

/* Kernels on all slots, one after the other, for ever. */
static void compute_until_killed(uint32_t i)
{
    (void)i;
    struct tl_exec_config settings = {.name = name, .n_slots = 2, .memory_bytes = 1000};
    struct tl_exec_object *o;
    struct load loads[3];
    memset(loads, 0, sizeof loads);
    expect(tl_exec_device_open(&loads[0].device, &settings, NULL) == 0, 1);
    expect(tl_exec_object_from(&o, &info.info, NULL, burn, NULL) == 0, 2);
    expect(tl_exec_memory_take(loads[0].device, 600) == 0, 3);
    for (uint32_t k = 0; k < 3; k++) {
        loads[k].device = loads[0].device;
        loads[k].launch = (struct tl_exec_launch){
            .object = o, .grid = {3, 1, 1}, .done = mark_ready, .user = &loads[k]};
        expect(tl_exec_submit(loads[k].device, &loads[k].launch) == 0, 4);
    }
    for (;;)
        pause();
}

static void who_is_killed_while_computing_is_not_missed(void)
{
    const char *text = getenv("TALLY_TEST_KILLS");
    uint32_t n = text != NULL ? (uint32_t)strtoul(text, NULL, 10) : 30;
    unsigned seed = 3;
    struct tl_exec_config settings = {.name = name, .n_slots = 2, .memory_bytes = 1000};
    for (uint32_t k = 0; k < n; k++) {
        atomic_store(&board->ready, 0);
        start(0, compute_until_killed); /* forks while this process has no threads */
        struct tl_exec_device *d;
        struct tl_exec_object *o;
        atomic_bool is_over = false;
        TEST_ASSERT_EQUAL_INT(0, tl_exec_device_open(&d, &settings, NULL));
        TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &info.info, NULL, burn, NULL));
        struct tl_exec_launch l = {
            .object = o, .grid = {100, 1, 1}, .done = mark_over, .user = &is_over};
        wait_for(&board->ready, 1);
        TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(d, &l));
        for (volatile int spin = rand_r(&seed) % 200000; spin > 0; spin--)
            ;
        kill_child(0);
        while (!atomic_load(&is_over))
            sched_yield();
        TEST_ASSERT_EQUAL_UINT32(0, l.fault.what);
        while (tl_exec_memory_take(d, 1000) < 0)
            sched_yield();
        tl_exec_memory_give(d, 1000);
        reap(0);
        tl_exec_object_unref(o);
        tl_exec_device_close(d);
    }
}

static void hold_everything(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint32_t first = acquire(s), second = acquire(s);
    expect(first != second, 2);
    expect(tl__sm_memory_take(s, 900) == 0, 3);
    atomic_store(&board->ready, 1);
    for (;;)
        pause();
}

static void a_zombie_is_dead(void)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    start(0, hold_everything);
    wait_for(&board->ready, 1);
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(s, 200));
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    kill_child(0); /* and not reaped */
    uint32_t a = acquire(s), b = acquire(s);
    while (tl__sm_memory_take(s, 1000) < 0)
        sched_yield();
    tl__sm_release(s, a);
    tl__sm_release(s, b);
    reap(0);
    tl__sm_close(s);
}

/* Who is traced like this stays in the kernel when it is killed, as if it got no processor to die
 * on, until it is let go. */
static bool hold_at_exit(uint32_t i)
{
    return ptrace(PTRACE_SEIZE, children[i], NULL, (void *)PTRACE_O_TRACEEXIT) == 0;
}

static void let_go(uint32_t i)
{
    int status;
    TEST_ASSERT_EQUAL_INT(children[i], waitpid(children[i], &status, 0));
    TEST_ASSERT_TRUE(WIFSTOPPED(status)); /* it was not dead */
    ptrace(PTRACE_CONT, children[i], NULL, NULL);
    reap(i);
}

static void who_was_killed_is_dead_before_it_has_died(void)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    start(0, hold_everything);
    wait_for(&board->ready, 1);
    if (!hold_at_exit(0))
        TEST_IGNORE_MESSAGE("ptrace is not allowed here");
    TEST_ASSERT_EQUAL_INT(TL__TASK_GOES_ON,
                          tl__task_state((uint32_t)children[0], (uint32_t)children[0], true));
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    kill_child(0);
    int first = -1, second = -1;
    for (uint32_t tries = 0; tries < 5000 && second < 0; tries++) {
        int slot = tl__sm_acquire_or_wait(s, 0);
        if (first < 0)
            first = slot;
        else
            second = slot;
    }
    TEST_ASSERT_TRUE(second >= 0 && first != second);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 1000));
    TEST_ASSERT_EQUAL_INT(TL__TASK_DYING,
                          tl__task_state((uint32_t)children[0], (uint32_t)children[0], true));
    let_go(0);
    /* The kernel has marked its word by now as well, and has not touched ours. */
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(s, 1));
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), tl__sm_slot_pid(s, 0));
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), tl__sm_slot_pid(s, 1));
    tl__sm_close(s);
}

/* As a process of the same user could write it: an entry and slots of a thread that never was. */
static void who_does_not_exist_holds_nothing(void)
{
    enum { FORGED = 5 };
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    struct sm_proc *p = &s->m->procs[FORGED];
    const uint32_t nobody = FUTEX_TID_MASK - 1; /* more than a kernel gives */
    atomic_store(&p->pid, nobody);
    atomic_store(&p->pid_namespace, tl__pid_namespace());
    atomic_store(&p->generation, 7);
    atomic_store(&p->head, 0); /* before everybody */
    atomic_store(&p->alive, nobody);
    atomic_store(&s->m->n_procs, FORGED + 1);
    for (uint32_t i = 0; i < 2; i++)
        atomic_store(&s->m->slots[i].owner,
                     (uint64_t)(FORGED + 1) << 48 | (uint64_t)7 << 32 | nobody);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    int slot = -1;
    for (uint32_t tries = 0; tries < 5000 && slot < 0; tries++)
        slot = tl__sm_acquire_or_wait(s, 0);
    TEST_ASSERT_TRUE(slot >= 0);
    TEST_ASSERT_FALSE(tl__sm_is_alive(p));
    tl__sm_release(s, (uint32_t)slot);
    tl__sm_close(s);
}

/* As a process of the same user could write it: nothing is free for almost a minute. */
static void spoil_until_killed(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    const uint64_t later = tl_clock_ns() + (uint64_t)50 * TL_SECOND_NS;
    atomic_store(&s->m->bus_free_ns, later);
    atomic_store(&s->m->engine_free_ns[0], later);
    atomic_store(&s->m->slots[1].freed_ns, UINT64_MAX);
    atomic_store(&s->m->arrival, UINT64_MAX);
    atomic_store(&s->m->turn, UINT64_MAX);
    atomic_store(&board->ready, 1);
    for (;;)
        pause();
}

static void damage_ends_with_those_who_did_it(void)
{
    start(0, spoil_until_killed);
    wait_for(&board->ready, 1);
    kill_child(0);
    reap(0);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    /* modelled times: what is free now is free at once */
    TEST_ASSERT_TRUE(tl__sm_bus(s, 0) <= tl_clock_ns());
    TEST_ASSERT_TRUE(tl__sm_engine(s, 0, 0) <= tl_clock_ns());
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&s->m->slots[1].freed_ns));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&s->m->arrival));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&s->m->turn));
    tl__sm_close(s);
}

static void work_when_told(uint32_t i)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    atomic_fetch_add(&board->ready, 1);
    wait_for(&board->go, 1);
    for (uint32_t turn = 0; turn < 100; turn++) {
        tl__sm_set_head(s, tl__sm_arrive(s, (int32_t)i));
        uint32_t slot = acquire(s);
        expect(atomic_fetch_add(&board->inside[slot], 1) == 0, 2); /* the other one sees it, too */
        sched_yield();
        atomic_fetch_sub(&board->inside[slot], 1);
        tl__sm_release(s, slot);
        tl__sm_set_head(s, TL_EXEC_NO_KEY);
    }
    tl__sm_close(s);
}

/* Those who are on it go on, together; who comes then has a device, if another one. */
static void nobody_misses_what_leads_to_the_device(bool (*spoil)(const char *path))
{
    char path[128];
    for (uint32_t i = 0; i < 2; i++)
        start(i, work_when_told);
    wait_for(&board->ready, 2);
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    TEST_ASSERT_TRUE(spoil(path));
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    atomic_store(&board->go, 1);
    for (uint32_t i = 0; i < 2; i++)
        ends_well(i);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint32_t a = acquire(s), b = acquire(s);
    TEST_ASSERT_TRUE(a != b);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 1000));
    tl__sm_memory_give(s, 1000);
    tl__sm_release(s, a);
    tl__sm_release(s, b);
    tl__sm_close(s);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl__sm_unlink(name)); /* the last one has taken it away */
}

static bool truncate_it(const char *path)
{
    return truncate(path, 0) == 0;
}

static bool lengthen_it(const char *path)
{
    return truncate(path, 1 << 20) == 0 && truncate(path, 8) == 0;
}

static bool remove_it(const char *path)
{
    return unlink(path) == 0;
}

static void a_truncation_ends_nobody(void)
{
    nobody_misses_what_leads_to_the_device(truncate_it);
}

static void nor_does_another_length(void)
{
    nobody_misses_what_leads_to_the_device(lengthen_it);
}

static void nor_does_a_removal(void)
{
    nobody_misses_what_leads_to_the_device(remove_it);
}

/* The memory is found by a file where System V's cannot be. */
static void nor_does_any_of_it_end_containers(void)
{
    setenv("TALLY_DEVICE_SHM", "file", 1);
    nobody_misses_what_leads_to_the_device(truncate_it);
    atomic_store(&board->ready, 0);
    atomic_store(&board->go, 0);
    nobody_misses_what_leads_to_the_device(lengthen_it);
    unsetenv("TALLY_DEVICE_SHM");
}

/* Memory of System V that this process has made and that is still there. */
static uint32_t segments_of(unsigned pid)
{
    char line[512];
    uint32_t n = 0;
    FILE *f = fopen("/proc/sysvipc/shm", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        unsigned maker = 0;
        n += sscanf(line, "%*d %*d %*o %*u %u", &maker) == 1 && maker == pid;
    }
    if (f != NULL)
        fclose(f);
    return n;
}

static void make_one_and_wait(uint32_t i)
{
    (void)i;
    expect(join(2, TL_EXEC_MPS) != NULL, 1);
    atomic_store(&board->ready, 1);
    for (;;)
        pause();
}

static void the_memory_ends_with_the_last_who_was_killed(void)
{
    start(0, make_one_and_wait);
    unsigned maker = (unsigned)children[0];
    wait_for(&board->ready, 1);
    TEST_ASSERT_EQUAL_UINT32(1, segments_of(maker));
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    kill_child(0);
    reap(0);
    TEST_ASSERT_EQUAL_UINT32(1, segments_of(maker)); /* somebody has it */
    tl__sm_abandon(s);                               /* as if this one had died as well */
    TEST_ASSERT_EQUAL_UINT32(0, segments_of(maker));
}

/* In another namespace the same numbers are others', or nobody's that we could see. */
static void who_cannot_be_seen_is_not_taken_for_dead(void)
{
    uint32_t nobody = FUTEX_TID_MASK - 1;
    TEST_ASSERT_EQUAL_INT(TL__TASK_GOES_ON, tl__task_state(nobody, nobody, false));
    TEST_ASSERT_EQUAL_INT(TL__TASK_DYING, tl__task_state(nobody, nobody, true));
    TEST_ASSERT_EQUAL_INT(TL__TASK_GOES_ON,
                          tl__task_state((uint32_t)getpid(), (uint32_t)gettid(), true));
}

static void memory_of_the_killed_is_free_before_they_have_died(void)
{
    uint64_t left = 0, all;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    start(0, hold_everything);
    wait_for(&board->ready, 1);
    if (!hold_at_exit(0))
        TEST_IGNORE_MESSAGE("ptrace is not allowed here");
    kill_child(0);
    for (uint32_t tries = 0; tries < 5000 && left != 1000; tries++) {
        tl__sm_memory_info(s, &left, &all);
        usleep(2000);
    }
    TEST_ASSERT_EQUAL_UINT64(1000, left);
    let_go(0);
    tl__sm_close(s);
}

static void want_and_stop(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    atomic_store(&board->ready, 1);
    for (;;)
        pause(); /* first in order, and never takes its slot */
}

static void who_is_stopped_does_not_hold_up_the_others(void)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    start(0, want_and_stop);
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    tl__sm_release(s, acquire(s));
    /* From now on it is not waited for. */
    TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
    tl__sm_release(s, 0);
    tl__sm_close(s);
}

int main(void)
{
    UNITY_BEGIN();
    strcpy(info.info.text, "burn");
    RUN_TEST(the_dead_leave_nothing_behind);
    RUN_TEST(who_is_killed_while_computing_is_not_missed);
    RUN_TEST(a_zombie_is_dead);
    RUN_TEST(who_was_killed_is_dead_before_it_has_died);
    RUN_TEST(who_does_not_exist_holds_nothing);
    RUN_TEST(damage_ends_with_those_who_did_it);
    RUN_TEST(a_truncation_ends_nobody);
    RUN_TEST(nor_does_another_length);
    RUN_TEST(nor_does_a_removal);
    RUN_TEST(nor_does_any_of_it_end_containers);
    RUN_TEST(the_memory_ends_with_the_last_who_was_killed);
    RUN_TEST(who_cannot_be_seen_is_not_taken_for_dead);
    RUN_TEST(memory_of_the_killed_is_free_before_they_have_died);
    RUN_TEST(who_is_stopped_does_not_hold_up_the_others);
    return UNITY_END();
}

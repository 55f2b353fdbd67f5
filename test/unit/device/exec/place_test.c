/* Where SMs run, and who makes room for them. */
#include "device/exec/internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

static char name[64];
static struct tl_exec_device *device;
static cpu_set_t all, sms, others, seen;
static atomic_uint n_done;

void setUp(void)
{
    static uint32_t n;
    snprintf(name, sizeof name, "tally-test-place-%d-%u", (int)getpid(), n++);
    device = NULL;
    atomic_store(&n_done, 0);
}

void tearDown(void)
{
    sched_setaffinity(0, sizeof all, &all);
    tl_exec_device_close(device);
    tl__sm_unlink(name);
}

static void see_affinity(struct tl_dev_frame *f, uint32_t first, uint32_t n)
{
    (void)f, (void)first, (void)n;
    sched_getaffinity(0, sizeof seen, &seen);
}

static void on_done(struct tl_exec_launch *l)
{
    (void)l;
    atomic_fetch_add(&n_done, 1);
}

/* The affinity of the worker that runs a block. */
static cpu_set_t affinity_of_worker(bool has_own_cpus)
{
    static struct {
        struct tl_dev_info info;
        char text[64];
    } k;
    struct tl_error err;
    struct tl_exec_object *o = NULL;
    struct tl_exec_config config = {.name = name, .n_slots = 1, .has_own_cpus = has_own_cpus};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_device_open(&device, &config, &err));
    k.info.abi_version = TL_DEV_ABI_VERSION;
    k.info.block[0] = k.info.block[1] = k.info.block[2] = 1;
    strcpy(k.info.text, "kernel");
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &k.info, NULL, see_affinity, NULL));
    struct tl_exec_launch launch = {.object = o, .grid = {1, 1, 1}, .done = on_done};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, &launch));
    while (atomic_load(&n_done) == 0)
        sched_yield();
    tl_exec_object_unref(o);
    return seen;
}

static void a_device_that_was_not_asked_to_leaves_its_workers_free(void)
{
    cpu_set_t worker = affinity_of_worker(false);
    TEST_ASSERT_TRUE(CPU_EQUAL(&worker, &all));
}

static void an_sm_keeps_to_the_last_cpu(void)
{
    cpu_set_t worker = affinity_of_worker(true);
    TEST_ASSERT_TRUE(CPU_EQUAL(&worker, &sms));
}

static void who_waits_is_not_on_the_cpu_of_an_sm_and_gets_its_affinity_back(void)
{
    struct tl_exec_aside aside;
    cpu_set_t now;
    tl_exec_wait_aside(&aside);
    TEST_ASSERT_FALSE(CPU_ISSET(sched_getcpu(), &sms));
    sched_getaffinity(0, sizeof now, &now);
    TEST_ASSERT_TRUE(CPU_EQUAL(&now, &others));
    tl_exec_waited(&aside);
    sched_getaffinity(0, sizeof now, &now);
    TEST_ASSERT_TRUE(CPU_EQUAL(&now, &all));
}

static void an_affinity_that_is_set_during_the_wait_stays(void)
{
    struct tl_exec_aside aside;
    cpu_set_t now;
    tl_exec_wait_aside(&aside);
    sched_setaffinity(0, sizeof sms, &sms);
    tl_exec_waited(&aside);
    sched_getaffinity(0, sizeof now, &now);
    TEST_ASSERT_TRUE(CPU_EQUAL(&now, &sms));
}

static void who_may_run_nowhere_else_stays(void)
{
    struct tl_exec_aside aside;
    cpu_set_t now;
    sched_setaffinity(0, sizeof sms, &sms);
    tl_exec_step_aside();
    tl_exec_wait_aside(&aside);
    TEST_ASSERT_FALSE(aside.is_moved);
    tl_exec_waited(&aside);
    tl_exec_stay_aside(false);
    sched_getaffinity(0, sizeof now, &now);
    TEST_ASSERT_TRUE(CPU_EQUAL(&now, &sms));
}

static void unless_it_is_a_workers_thread(void)
{
    cpu_set_t now;
    TEST_ASSERT_FALSE(tl_exec_is_worker());
    sched_setaffinity(0, sizeof sms, &sms);
    tl_exec_stay_aside(true);
    sched_getaffinity(0, sizeof now, &now);
    TEST_ASSERT_TRUE(CPU_EQUAL(&now, &others));
}

static void a_thread_of_the_driver_stays_away_for_good(void)
{
    cpu_set_t now;
    tl_exec_stay_aside(false);
    sched_getaffinity(0, sizeof now, &now);
    TEST_ASSERT_TRUE(CPU_EQUAL(&now, &others));
}

/* Brings this thread onto the SM's CPU with the affinity that it had, launches, and tells what it
 * has then. */
static cpu_set_t affinity_after_launch(const char *thread)
{
    cpu_set_t now;
    char before[16];
    prctl(PR_GET_NAME, before);
    prctl(PR_SET_NAME, thread);
    /* who has just stepped aside does not do it again */
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    do {
        sched_setaffinity(0, sizeof sms, &sms);
        sched_setaffinity(0, sizeof all, &all);
    } while (!CPU_ISSET(sched_getcpu(), &sms));
    tl_exec_step_aside();
    sched_getaffinity(0, sizeof now, &now);
    prctl(PR_SET_NAME, before);
    return now;
}

static void who_launches_keeps_its_affinity_unless_it_is_ours(void)
{
    cpu_set_t program, ours = {0};
    program = affinity_after_launch("program");
    TEST_ASSERT_TRUE(CPU_EQUAL(&program, &all));
    for (uint32_t tries = 0; tries < 50 && !CPU_EQUAL(&ours, &others);
         tries++) /* the scheduler may move it before it looks */
        ours = affinity_after_launch("tally-effort");
    TEST_ASSERT_TRUE(CPU_EQUAL(&ours, &others));
}

static void cpus_are_divided(void)
{
    TEST_IGNORE_MESSAGE("there is one CPU, and nothing to divide");
}

int main(void)
{
    UNITY_BEGIN();
    sched_getaffinity(0, sizeof all, &all);
    int last = CPU_SETSIZE - 1;
    while (last > 0 && !CPU_ISSET(last, &all))
        last--;
    CPU_SET(last, &sms);
    others = all;
    CPU_CLR(last, &others);
    RUN_TEST(a_device_that_was_not_asked_to_leaves_its_workers_free);
    if (CPU_COUNT(&all) == 1) {
        RUN_TEST(cpus_are_divided);
    } else {
        RUN_TEST(an_sm_keeps_to_the_last_cpu);
        RUN_TEST(who_waits_is_not_on_the_cpu_of_an_sm_and_gets_its_affinity_back);
        RUN_TEST(an_affinity_that_is_set_during_the_wait_stays);
        RUN_TEST(who_may_run_nowhere_else_stays);
        RUN_TEST(unless_it_is_a_workers_thread);
        RUN_TEST(a_thread_of_the_driver_stays_away_for_good);
        RUN_TEST(who_launches_keeps_its_affinity_unless_it_is_ours);
    }
    return UNITY_END();
}

/* Who wakes a worker: the launch if there is a slot for it, else who leaves the slot, and in the
 * end the device's own thread.
 *
 * A child, the rival, takes and leaves the only slot as it is told; this process launches.  What is
 * compared are states and counts, never times: a test that waits for something waits for as long as
 * it takes. */
#include "device/exec/internal.h"
#include "device/exec/segment.h"
#include "device/exec/sm.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

static struct board {
    atomic_uint holds, wanted; /* the rival does; what it is told */
} * board;
static char name[64];
static pid_t rival;
static struct tl_exec_device *device;

static union {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 32];
} info = {.info = {.abi_version = TL_DEV_ABI_VERSION, .block = {32, 1, 1}}};

void setUp(void)
{
    static uint32_t n_tests;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(board != MAP_FAILED);
    snprintf(name, sizeof name, "tally-test-wake-%d-%u", (int)getpid(), n_tests++);
    rival = 0;
    device = NULL;
}

static void kill_rival(void)
{
    if (rival > 0) {
        kill(rival, SIGKILL);
        waitpid(rival, NULL, 0);
        rival = 0;
    }
}

void tearDown(void)
{
    kill_rival();
    tl_exec_device_close(device);
    tl__sm_unlink(name);
    munmap(board, sizeof *board);
}

static struct tl__sm *join(void)
{
    struct tl__sm_config config = {name, 1, TL_EXEC_MPS_PRIORITY, 1000, 2000, false, false};
    struct tl__sm *s = NULL;
    return tl__sm_open(&s, &config, NULL) == 0 ? s : NULL;
}

/* Forks, so that it comes before any thread of this process. */
static void start_rival(void)
{
    rival = fork();
    TEST_ASSERT_TRUE(rival >= 0);
    if (rival > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct tl__sm *s = join();
    for (int slot = -1; s != NULL;) {
        bool wants = atomic_load(&board->wanted) != 0;
        if (wants && slot < 0) {
            tl__sm_set_head(s, tl__sm_arrive(s, 0));
            slot = tl__sm_acquire_or_wait(s, 0);
        } else if (!wants && slot >= 0) {
            tl__sm_set_head(s, TL_EXEC_NO_KEY);
            tl__sm_release(s, (uint32_t)slot);
            slot = -1;
        }
        atomic_store(&board->holds, slot >= 0);
        sched_yield();
    }
    _exit(1);
}

static void rival_holds(bool holds)
{
    atomic_store(&board->wanted, holds);
    while (atomic_load(&board->holds) != holds)
        sched_yield();
}

static void what_a_worker_would_find(void)
{
    start_rival();
    struct tl__sm *s = join();
    TEST_ASSERT_NOT_NULL(s);
    tl__sm_set_head(s, tl__sm_arrive(s, 1));
    TEST_ASSERT_EQUAL_INT(TL__SM_FREE, tl__sm_chance(s));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
    TEST_ASSERT_EQUAL_INT(TL__SM_OWN, tl__sm_chance(s));
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, 0);
    rival_holds(true);
    tl__sm_set_head(s, tl__sm_arrive(s, 1));
    TEST_ASSERT_EQUAL_INT(TL__SM_TAKEN, tl__sm_chance(s));
    kill_rival();
    TEST_ASSERT_EQUAL_INT(TL__SM_FREE, tl__sm_chance(s));
    tl__sm_close(s);
}

/* A slot that is free is not for who comes second. */
static void what_is_free_for_another_is_taken(void)
{
    start_rival();
    struct tl__sm *s = join();
    tl__sm_set_head(s, tl__sm_arrive(s, 1));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
    atomic_store(&board->wanted, 1); /* it waits */
    while (!tl__sm_others_wait(s))
        sched_yield();
    kill(rival, SIGSTOP);
    int status;
    TEST_ASSERT_EQUAL_INT(rival, waitpid(rival, &status, WUNTRACED));
    tl__sm_set_head(s, tl__sm_arrive(s, -1));
    tl__sm_release(s, 0);
    TEST_ASSERT_EQUAL_INT(TL__SM_TAKEN, tl__sm_chance(s));
    tl__sm_set_head(s, tl__sm_arrive(s, 1));
    TEST_ASSERT_EQUAL_INT(TL__SM_FREE, tl__sm_chance(s));
    tl__sm_close(s);
}

static void nothing(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first, (void)count;
}

static void mark_over(struct tl_exec_launch *l)
{
    atomic_store((atomic_bool *)l->user, true);
}

/* How often this process's worker went to sleep, and whether it sleeps now. */
static uint64_t sleeps_of_worker(bool *is_asleep)
{
    DIR *tasks = opendir("/proc/self/task");
    TEST_ASSERT_NOT_NULL(tasks);
    unsigned long long sleeps = 0;
    bool is_worker = false;
    *is_asleep = false;
    for (struct dirent *e; !is_worker && (e = readdir(tasks)) != NULL;) {
        char path[300], line[128];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f != NULL && fgets(line, sizeof line, f) != NULL) {
            is_worker |= strncmp(line, "Name:\ttally-sm", 14) == 0;
            if (strncmp(line, "State:\t", 7) == 0)
                *is_asleep = line[7] == 'S';
            sscanf(line, "voluntary_ctxt_switches: %llu", &sleeps);
        }
        if (f != NULL)
            fclose(f);
    }
    closedir(tasks);
    TEST_ASSERT_TRUE(is_worker);
    return sleeps;
}

/* Waits until the worker is asleep; returns how often it has been. */
static uint64_t settle(void)
{
    bool is_asleep = false;
    uint64_t before = 0, now = 1;
    while (!is_asleep || before != now) {
        before = sleeps_of_worker(&is_asleep);
        usleep(5000);
        now = sleeps_of_worker(&is_asleep);
    }
    return now;
}

static void submit(struct tl_exec_object *o, struct tl_exec_launch *l, atomic_bool *is_over)
{
    atomic_store(is_over, false);
    *l = (struct tl_exec_launch){
        .object = o, .grid = {1, 1, 1}, .priority = 1, .done = mark_over, .user = is_over};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, l));
}

static void wait_over(const atomic_bool *is_over)
{
    while (!atomic_load(is_over))
        usleep(100);
}

/* A rival, and a device with a worker, which a first launch makes. */
static struct tl_exec_object *open_with_worker(void)
{
    struct tl_exec_config config = {.name = name, .n_slots = 1, .mode = "mps-priority"};
    struct tl_exec_object *o = NULL;
    struct tl_exec_launch l;
    atomic_bool is_over;
    start_rival();
    TEST_ASSERT_EQUAL_INT(0, tl_exec_device_open(&device, &config, NULL));
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &info.info, NULL, nothing, NULL));
    submit(o, &l, &is_over);
    wait_over(&is_over);
    return o;
}

/* The worker sleeps on while the slot is taken.  After 2 ms it may look whether the holder lives,
 * so if this process does not get a processor for so long, the test says nothing and is repeated;
 * who wakes in vain does so every time. */
static void nobody_is_woken_for_a_slot_that_is_taken(void)
{
    struct tl_exec_launch l;
    atomic_bool is_over;
    struct tl_exec_object *o = open_with_worker();
    bool has_slept_on = false, is_asleep;
    for (uint32_t tries = 0; tries < 50 && !has_slept_on; tries++) {
        rival_holds(true);
        uint64_t before = settle();
        submit(o, &l, &is_over);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        has_slept_on = sleeps_of_worker(&is_asleep) == before && is_asleep;
        TEST_ASSERT_FALSE(atomic_load(&is_over));
        rival_holds(false);
        wait_over(&is_over); /* the rival has woken it */
    }
    TEST_ASSERT_TRUE(has_slept_on);
    tl_exec_object_unref(o);
}

/* Nobody leaves the slot, and nobody tells. */
static void a_launch_left_to_one_who_dies_is_not_forgotten(void)
{
    for (uint32_t i = 0; i < 20; i++) {
        struct tl_exec_launch l;
        atomic_bool is_over;
        struct tl_exec_object *o = open_with_worker(); /* this process has no threads before */
        rival_holds(true);
        settle();
        submit(o, &l, &is_over);
        kill_rival();
        wait_over(&is_over);
        TEST_ASSERT_EQUAL_UINT32(0, l.fault.what);
        tl_exec_object_unref(o);
        tl_exec_device_close(device);
        device = NULL;
        atomic_store(&board->wanted, 0);
        atomic_store(&board->holds, 0);
    }
}

/* Somebody has written into the segment that nobody waits.  Then the rival wakes nobody, and the
 * process sees to itself. */
static void a_wrong_count_of_those_who_wait_is_survived(void)
{
    char path[100];
    struct tl_exec_launch l;
    atomic_bool is_over;
    struct tl_exec_object *o = open_with_worker();
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    struct tl__segment segment;
    int fd = tl__segment_open(path, &segment, NULL);
    TEST_ASSERT_TRUE(fd >= 0);
    close(fd);
    struct sm_shared *m = segment.m;
    for (uint32_t i = 0; i < 10; i++) {
        rival_holds(true);
        settle();
        for (uint32_t p = 0; p < MAX_PROCS; p++)
            atomic_store(&m->procs[p].waiting, 0);
        submit(o, &l, &is_over);
        rival_holds(false);
        wait_over(&is_over);
        settle();
        for (uint32_t p = 0; p < MAX_PROCS; p++)
            atomic_store(&m->procs[p].waiting, 0);
        submit(o, &l, &is_over); /* there is a slot */
        wait_over(&is_over);
    }
    tl__segment_leave(&segment);
    tl_exec_object_unref(o);
}

static void a_launch_that_is_left_can_be_cancelled(void)
{
    struct tl_exec_launch l;
    atomic_bool is_over;
    struct tl_exec_object *o = open_with_worker();
    rival_holds(true);
    settle();
    submit(o, &l, &is_over);
    tl_exec_cancel(device, &l);
    wait_over(&is_over);
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TIMEOUT, l.fault.what);
    TEST_ASSERT_EQUAL_UINT32(1, atomic_load(&board->holds));
    tl_exec_object_unref(o);
}

int main(void)
{
    UNITY_BEGIN();
    strcpy(info.info.text, "nothing");
    RUN_TEST(what_a_worker_would_find);
    RUN_TEST(what_is_free_for_another_is_taken);
    RUN_TEST(nobody_is_woken_for_a_slot_that_is_taken);
    RUN_TEST(a_launch_left_to_one_who_dies_is_not_forgotten);
    RUN_TEST(a_wrong_count_of_those_who_wait_is_survived);
    RUN_TEST(a_launch_that_is_left_can_be_cancelled);
    return UNITY_END();
}

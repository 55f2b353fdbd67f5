/* The shared device, from several processes: slots, order, shares, faults of others, and damaged
 * memory.
 *
 * What is compared are counts and orders, never times.  test/unit/device/exec/dead_test.c has what
 * the dead leave behind. */
#include "device/exec/sm.h"
#include "test/unit/device/exec/help.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/shm.h>

/* --- one process */

static void settings_are_those_of_the_first(void)
{
    struct tl__sm *s = join(3, TL_EXEC_TIMESLICE);
    TEST_ASSERT_NOT_NULL(s);
    struct tl__sm_config other = {name, 5, TL_EXEC_MPS, 77, 1, false, false};
    TEST_ASSERT_EQUAL_UINT32(3, tl__sm_slots(s));
    tl__sm_close(s);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_open(&s, &other, NULL)); /* alone again: its own */
    TEST_ASSERT_EQUAL_UINT32(5, tl__sm_slots(s));
    TEST_ASSERT_EQUAL_INT(TL_EXEC_MPS, tl__sm_mode(s));
    tl__sm_close(s);
}

static void join_and_wait(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL && tl__sm_memory_take(s, 10) == 0, 1);
    atomic_store(&board->ready, 1);
    wait_for(&board->go, 1);
    tl__sm_close(s);
}

static void the_last_to_leave_takes_the_segment_away(void)
{
    char path[128];
    uint64_t left, all;
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    start(0, join_and_wait);
    wait_for(&board->ready, 1);
    tl__sm_close(join(2, TL_EXEC_MPS));
    TEST_ASSERT_EQUAL_INT(0, access(path, F_OK)); /* the child is still there */
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    tl__sm_memory_info(s, &left, &all);
    TEST_ASSERT_EQUAL_UINT64(990, left);
    atomic_store(&board->go, 1);
    ends_well(0);
    TEST_ASSERT_EQUAL_INT(0, access(path, F_OK));
    tl__sm_close(s);
    TEST_ASSERT_EQUAL_INT(-1, access(path, F_OK));
}

static void names_with_slashes_are_refused(void)
{
    struct tl__sm_config config = {"../etc/passwd", 1, TL_EXEC_MPS, 1, 1, false, false};
    struct tl__sm *s;
    struct tl_error err;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl__sm_open(&s, &config, &err));
    config.name = "";
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl__sm_open(&s, &config, &err));
}

static void a_process_without_grids_gets_no_slot(void)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 0));
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(1, tl__sm_try_acquire(s, 1));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 1));
    TEST_ASSERT_EQUAL_INT(-EAGAIN, tl__sm_try_acquire(s, 1));
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), tl__sm_slot_pid(s, 0));
    tl__sm_release(s, 0);
    TEST_ASSERT_EQUAL_UINT32(0, tl__sm_slot_pid(s, 0));
    tl__sm_release(s, 1);
    tl__sm_close(s);
}

static void memory_is_counted(void)
{
    uint64_t left, all;
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 600));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(s, 401));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(s, UINT64_MAX));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 400));
    tl__sm_memory_info(s, &left, &all);
    TEST_ASSERT_EQUAL_UINT64(0, left);
    TEST_ASSERT_EQUAL_UINT64(1000, all);
    tl__sm_memory_give(s, 1000);
    tl__sm_memory_info(s, &left, &all);
    TEST_ASSERT_EQUAL_UINT64(1000, left);
    tl__sm_close(s);
}

/* --- several processes */

static void use_slots(uint32_t i)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    for (uint32_t k = 0; k < 500; k++) {
        tl__sm_set_head(s, tl__sm_arrive(s, 0));
        uint32_t slot = acquire(s);
        expect(slot < 2, 2);
        if (atomic_fetch_add(&board->inside[slot], 1) != 0)
            atomic_fetch_add(&board->overlaps, 1);
        if (k % 16 == i)
            sched_yield();
        atomic_fetch_sub(&board->inside[slot], 1);
        tl__sm_set_head(s, TL_EXEC_NO_KEY);
        tl__sm_release(s, slot);
    }
    tl__sm_close(s);
}

static void a_slot_has_one_holder(void)
{
    for (uint32_t i = 0; i < CHILDREN; i++)
        start(i, use_slots);
    for (uint32_t i = 0; i < CHILDREN; i++)
        ends_well(i);
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&board->overlaps));
}

/* Arrives when it is its turn, then logs when it gets the slot. */
static void arrive_in_order(uint32_t i)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    expect(s != NULL, 1);
    wait_for(&board->ready, CHILDREN - i); /* the last child first */
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    atomic_fetch_add(&board->ready, 1);
    uint32_t slot = acquire(s);
    atomic_store(&board->log[atomic_fetch_add(&board->n_log, 1)], i);
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, slot);
    tl__sm_close(s);
}

static void grids_come_in_the_order_of_arrival(void)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    uint32_t slot = acquire(s);
    atomic_store(&board->ready, 1);
    for (uint32_t i = 0; i < CHILDREN; i++)
        start(i, arrive_in_order);
    wait_for(&board->ready, CHILDREN + 1); /* all have arrived */
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&board->n_log));
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, slot);
    for (uint32_t i = 0; i < CHILDREN; i++)
        ends_well(i);
    for (uint32_t i = 0; i < CHILDREN; i++)
        TEST_ASSERT_EQUAL_UINT32(CHILDREN - 1 - i, atomic_load(&board->log[i]));
    tl__sm_close(s);
}

static void take_leftover(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    /* slot 1 is free, but the earlier grid has blocks left */
    expect(tl__sm_try_acquire(s, 0) == -EAGAIN, 2);
    atomic_store(&board->ready, 1);
    uint32_t slot = acquire(s);
    expect(slot == 1, 3);
    tl__sm_release(s, slot);
    tl__sm_close(s);
}

static void a_later_grid_gets_what_is_left_over(void)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    tl__sm_set_head(s, tl__sm_arrive(s, 0));
    TEST_ASSERT_EQUAL_INT(0, tl__sm_try_acquire(s, 0));
    start(0, take_leftover);
    wait_for(&board->ready, 1);
    tl__sm_set_head(s, TL_EXEC_NO_KEY); /* all blocks dispatched, one still runs */
    ends_well(0);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), tl__sm_slot_pid(s, 0));
    tl__sm_release(s, 0);
    tl__sm_close(s);
}

static void be_urgent(uint32_t i)
{
    (void)i;
    struct tl__sm *s = join(1, TL_EXEC_MPS_PRIORITY);
    expect(s != NULL, 1);
    tl__sm_set_head(s, tl__sm_arrive(s, 5));
    uint32_t slot = acquire(s);
    atomic_store(&board->ready, 1);
    tl__sm_set_head(s, TL_EXEC_NO_KEY);
    tl__sm_release(s, slot);
    tl__sm_close(s);
}

static void an_urgent_grid_makes_others_yield(void)
{
    struct tl__sm *s = join(1, TL_EXEC_MPS_PRIORITY);
    uint64_t key = tl__sm_arrive(s, 0);
    tl__sm_set_head(s, key);
    uint32_t slot = acquire(s);
    TEST_ASSERT_FALSE(tl__sm_must_yield(s, key));
    start(0, be_urgent);
    while (!tl__sm_must_yield(s, key))
        sched_yield();
    tl__sm_release(s, slot);
    slot = acquire(s); /* not before the urgent one is through */
    TEST_ASSERT_EQUAL_UINT32(1, atomic_load(&board->ready));
    tl__sm_release(s, slot);
    ends_well(0);
    tl__sm_close(s);
}

/* --- shares: whole launches */

#define SHARED_GRIDS 6000

static void run_again(struct tl_exec_launch *l)
{
    struct load *load = l->user;
    atomic_fetch_add(&board->count[load->child], 1);
    if (atomic_fetch_add(&board->total, 1) >= SHARED_GRIDS || tl_exec_submit(load->device, l) < 0)
        atomic_store(&load->is_over, true);
}

static const char *share_mode;

static void take_share(uint32_t i)
{
    struct tl_exec_config config = {
        .name = name, .n_slots = 2, .mode = share_mode, .quantum_us = 2000};
    struct tl_exec_device *d;
    struct tl_exec_object *o;
    expect(tl_exec_device_open(&d, &config, NULL) == 0, 1);
    expect(tl_exec_object_from(&o, &info.info, NULL, burn, NULL) == 0, 2);
    atomic_fetch_add(&board->ready, 1);
    wait_for(&board->ready, 2);
    struct load loads[2];
    memset(loads, 0, sizeof loads);
    for (uint32_t k = 0; k < 2; k++) {
        loads[k].device = d;
        loads[k].child = i;
        loads[k].launch = (struct tl_exec_launch){
            .object = o, .grid = {2, 1, 1}, .done = run_again, .user = &loads[k]};
        expect(tl_exec_submit(d, &loads[k].launch) == 0, 3);
    }
    while (!atomic_load(&loads[0].is_over) || !atomic_load(&loads[1].is_over))
        usleep(1000);
    tl_exec_object_unref(o);
    tl_exec_device_close(d);
}

/* Whatever else runs on the machine can take the processor from one of the two for a while, so a
 * bad share is measured again: a device that is unfair is so every time. */
static void check_shares(const char *mode)
{
    char text[64];
    uint32_t a, b;
    share_mode = mode;
    for (uint32_t attempt = 0; attempt < 4; attempt++) {
        memset(board, 0, sizeof *board);
        start(0, take_share);
        start(1, take_share);
        ends_well(0);
        ends_well(1);
        a = atomic_load(&board->count[0]), b = atomic_load(&board->count[1]);
        snprintf(text, sizeof text, "%s: %u and %u grids", mode, a, b);
        TEST_MESSAGE(text);
        if (a * 100 >= (a + b) * 45 && a * 100 <= (a + b) * 55)
            return;
    }
    TEST_FAIL_MESSAGE(text);
}

static void equal_loads_get_equal_shares_in_order_of_arrival(void)
{
    check_shares("mps");
}

static void equal_loads_get_equal_shares_in_turns(void)
{
    check_shares("timeslice");
}

/* --- a short kernel behind a long grid */

#define LONG_GRID 400

static void long_range(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        atomic_fetch_add(&board->count[0], 1);
        burn(f, first, 1);
        while (atomic_load(&board->go) == 0) /* the other one arrives while the first blocks run */
            sched_yield();
    }
}

static void short_range(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first, (void)count;
    atomic_store(&board->log[0], atomic_load(&board->count[0]));
}

/* With priorities, one slot: on two, the long grid rightly goes on with one while the urgent
 * kernel's worker wakes up for the other, and how many blocks that are is the host's CPU
 * scheduler's affair. */
static uint32_t slots_of(const char *mode)
{
    return strcmp(mode, "mps") == 0 ? 2 : 1;
}

/* Child 0 is the long grid, child 1 the short kernel that comes later. */
static void run_behind(uint32_t i)
{
    struct tl_exec_config settings = {
        .name = name, .n_slots = slots_of(share_mode), .mode = share_mode};
    struct tl_exec_device *d;
    struct tl_exec_object *o;
    atomic_bool is_over = false;
    expect(tl_exec_device_open(&d, &settings, NULL) == 0, 1);
    expect(tl_exec_object_from(&o, &info.info, NULL, i == 0 ? long_range : short_range, NULL) == 0,
           2);
    struct tl_exec_launch l = {.object = o,
                               .grid = {i == 0 ? LONG_GRID : 1, 1, 1},
                               .priority = (int32_t)i,
                               .done = mark_over,
                               .user = &is_over};
    if (i == 1)
        wait_for(&board->count[0], slots_of(share_mode)); /* all slots are taken */
    expect(tl_exec_submit(d, &l) == 0, 3);
    while (!atomic_load(&is_over))
        usleep(100);
    expect(l.fault.what == 0, 4);
    tl_exec_object_unref(o);
    tl_exec_device_close(d);
}

static uint32_t blocks_before_short_one(const char *mode)
{
    share_mode = mode;
    struct tl__sm *s = join(slots_of(mode),
                            strcmp(mode, "mps") == 0 ? TL_EXEC_MPS : TL_EXEC_MPS_PRIORITY);
    start(0, run_behind);
    start(1, run_behind);
    while (!tl__sm_others_wait(s))
        sched_yield();
    atomic_store(&board->go, 1);
    tl__sm_close(s);
    ends_well(0);
    ends_well(1);
    char text[64];
    snprintf(text, sizeof text, "%s: began after %u of %d blocks", mode,
             atomic_load(&board->log[0]), LONG_GRID);
    TEST_MESSAGE(text);
    return atomic_load(&board->log[0]);
}

static void a_short_kernel_waits_behind_a_long_grid(void)
{
    /* All blocks were dispatched; the last ones may not have begun to count. */
    TEST_ASSERT_TRUE(blocks_before_short_one("mps") >= LONG_GRID - 2);
}

static void an_urgent_short_kernel_does_not_wait(void)
{
    TEST_ASSERT_TRUE(blocks_before_short_one("mps-priority") < LONG_GRID / 4);
}

/* --- faults of others */

static uint32_t *volatile nowhere; /* the compiler does not know that it is NULL */

static void __attribute__((no_sanitize("undefined")))
fall(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first, (void)count;
    *nowhere = 1;
}

static void count_block(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    burn(f, first, 1);
    atomic_fetch_add(&board->count[1], count);
}

/* Child 0 faults in every launch, child 1 counts its blocks. */
static void run_beside(uint32_t i)
{
    struct tl_exec_config settings = {.name = name, .n_slots = 2};
    struct tl_exec_device *d;
    struct tl_exec_object *o;
    expect(tl_exec_device_open(&d, &settings, NULL) == 0, 1);
    expect(tl_exec_object_from(&o, &info.info, NULL, i == 0 ? fall : count_block, NULL) == 0, 2);
    atomic_fetch_add(&board->ready, 1);
    wait_for(&board->ready, 2);
    for (uint32_t k = 0; k < 200; k++) {
        atomic_bool is_over = false;
        struct tl_exec_launch l = {
            .object = o, .grid = {8, 1, 1}, .done = mark_over, .user = &is_over};
        expect(tl_exec_submit(d, &l) == 0, 3);
        while (!atomic_load(&is_over))
            sched_yield();
        expect((l.fault.what != TL_DEV_FAULT_NONE) == (i == 0), 4);
    }
    tl_exec_object_unref(o);
    tl_exec_device_close(d);
}

static void a_fault_is_nothing_to_other_processes(void)
{
#if TL_EXEC_TSAN
    TEST_IGNORE_MESSAGE("TSan takes faults for its own");
#endif
    start(0, run_beside);
    start(1, run_beside);
    ends_well(0);
    ends_well(1);
    TEST_ASSERT_EQUAL_UINT32(200 * 8, atomic_load(&board->count[1]));
}

/* --- damage */

static void anything_may_be_in_the_segment(void)
{
    unsigned seed = 7;
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    const size_t size = sizeof *s->m;
    uint8_t *m = (uint8_t *)s->m;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t dense = 1 + round % 64;
        for (size_t i = round % 3 == 0 ? 0 : 24; i < size; i += 1 + rand_r(&seed) % dense)
            m[i] = (uint8_t)(rand_r(&seed) >> 8);
        uint64_t key = tl__sm_arrive(s, (int32_t)round), left, all;
        tl__sm_set_head(s, key);
        int slot = tl__sm_try_acquire(s, round);
        TEST_ASSERT_TRUE(slot < 2);
        tl__sm_must_yield(s, key);
        tl__sm_may_keep(s);
        tl__sm_others_wait(s);
        tl__sm_slot_pid(s, 1);
        if (slot >= 0)
            tl__sm_release(s, (uint32_t)slot);
        if (tl__sm_memory_take(s, 10) == 0)
            tl__sm_memory_give(s, 10);
        tl__sm_memory_info(s, &left, &all);
        /* Somebody who joins now finds a wreck: he gets a new device, or joins, or is told that it
         * is full. */
        struct tl__sm_config config = {name, 2, TL_EXEC_MPS, 1000, 2000, false, false};
        struct tl__sm *other = NULL;
        int rc = tl__sm_open(&other, &config, NULL);
        TEST_ASSERT_TRUE(rc == 0 || rc == -EUSERS);
        if (rc == 0)
            tl__sm_close(other);
    }
    tl__sm_close(s);
}

/* What leads to the device may be anything as well, and so may what it leads to. */
static void a_file_that_leads_nowhere_is_replaced(void)
{
    char path[128];
    uint8_t sign[256];
    unsigned seed = 11;
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    int other = shmget(IPC_PRIVATE, 4096, 0600); /* too small, and not ours */
    TEST_ASSERT_TRUE(other >= 0);
    for (uint32_t round = 0; round < 300; round++) {
        struct tl__sm *s = join(2, TL_EXEC_MPS);
        TEST_ASSERT_NOT_NULL(s);
        int fd = open(path, O_RDWR);
        TEST_ASSERT_TRUE(fd >= 0);
        ssize_t n = read(fd, sign, sizeof sign);
        TEST_ASSERT_TRUE(n >= 32);
        if (round == 0)
            memcpy(sign + 12, &other, sizeof other);
        else
            sign[rand_r(&seed) % 24] ^= (uint8_t)(1 + rand_r(&seed) % 255);
        TEST_ASSERT_EQUAL_INT64(n, pwrite(fd, sign, (size_t)n, 0));
        close(fd);
        struct tl__sm *next = join(2, TL_EXEC_MPS);
        TEST_ASSERT_NOT_NULL(next);
        TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 1000)); /* two devices */
        TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(next, 1000));
        tl__sm_close(next);
        tl__sm_close(s);
    }
    shmctl(other, IPC_RMID, NULL);
}

/* A new namespace has none of the old one's segments: that is told, and nothing is replaced. */
static void a_device_of_another_namespace_is_told(void)
{
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        struct tl__sm_config config = {name, 2, TL_EXEC_MPS, 1000, 2000, false, false};
        struct tl__sm *other = NULL;
        struct tl_error err = {0};
        if (unshare(CLONE_NEWIPC) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWIPC) < 0)
            _exit(33);
        int rc = tl__sm_open(&other, &config, &err);
        _exit(rc == -EXDEV && strstr(err.text, "namespace") != NULL ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    struct tl__sm *again = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(again);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 1000));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl__sm_memory_take(again, 1)); /* the same device */
    tl__sm_close(again);
    tl__sm_close(s);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 33)
        TEST_IGNORE_MESSAGE("no namespaces can be made here");
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Where the first who comes says so, everybody with the same /dev/shm has the same device. */
static void a_device_in_a_file_is_shared_by_all_namespaces(void)
{
    setenv("TALLY_DEVICE_SHM", "file", 1);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    unsetenv("TALLY_DEVICE_SHM");
    TEST_ASSERT_NOT_NULL(s);
    TEST_ASSERT_EQUAL_INT(0, tl__sm_memory_take(s, 900));
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        if (unshare(CLONE_NEWIPC) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWIPC) < 0)
            _exit(33);
        struct tl__sm *other = join(2, TL_EXEC_MPS);
        _exit(other != NULL && tl__sm_memory_take(other, 200) == -ENOMEM &&
                      tl__sm_memory_take(other, 100) == 0
                  ? 0
                  : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    tl__sm_close(s);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl__sm_unlink(name)); /* the last one has taken it away */
    if (WIFEXITED(status) && WEXITSTATUS(status) == 33)
        TEST_IGNORE_MESSAGE("no namespaces can be made here");
    TEST_ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_file_of_the_wrong_size_is_replaced(void)
{
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s.2", name);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL_INT(5, write(fd, "hello", 5));
    close(fd);
    struct tl__sm *s = join(2, TL_EXEC_MPS);
    TEST_ASSERT_NOT_NULL(s);
    tl__sm_close(s);
}

/* Turns are modelled times, so nothing is waited for here. */
static void a_copy_engine_does_one_after_the_other_and_engines_do_not_wait_for_each_other(void)
{
    const uint64_t long_ns = 10000000000;
    struct tl__sm *s = join(1, TL_EXEC_MPS), *other = NULL;
    struct tl__sm_config config = {name, 1, TL_EXEC_MPS, 1000, 2000, false, false};
    TEST_ASSERT_NOT_NULL(s);
    uint64_t first = tl__sm_engine(s, 0, long_ns), apart = tl__sm_engine(s, 1, long_ns);
    TEST_ASSERT_EQUAL_UINT64(first + 1, tl__sm_engine(s, 0, 1));
    TEST_ASSERT_TRUE_MESSAGE(apart < first + long_ns, "another engine is free");
    TEST_ASSERT_EQUAL_INT(0, tl__sm_open(&other, &config, NULL));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(first + 3, tl__sm_engine(other, 0, 2),
                                     "all processes share it");
    tl__sm_close(other);
    tl__sm_close(s);
}

int main(void)
{
    UNITY_BEGIN();
    strcpy(info.info.text, "burn");
    RUN_TEST(settings_are_those_of_the_first);
    RUN_TEST(the_last_to_leave_takes_the_segment_away);
    RUN_TEST(names_with_slashes_are_refused);
    RUN_TEST(a_process_without_grids_gets_no_slot);
    RUN_TEST(memory_is_counted);
    RUN_TEST(a_slot_has_one_holder);
    RUN_TEST(grids_come_in_the_order_of_arrival);
    RUN_TEST(a_later_grid_gets_what_is_left_over);
    RUN_TEST(an_urgent_grid_makes_others_yield);
    RUN_TEST(equal_loads_get_equal_shares_in_order_of_arrival);
    RUN_TEST(equal_loads_get_equal_shares_in_turns);
    RUN_TEST(a_short_kernel_waits_behind_a_long_grid);
    RUN_TEST(an_urgent_short_kernel_does_not_wait);
    RUN_TEST(a_fault_is_nothing_to_other_processes);
    RUN_TEST(anything_may_be_in_the_segment);
    RUN_TEST(a_file_that_leads_nowhere_is_replaced);
    RUN_TEST(a_device_of_another_namespace_is_told);
    RUN_TEST(a_device_in_a_file_is_shared_by_all_namespaces);
    RUN_TEST(a_file_of_the_wrong_size_is_replaced);
    RUN_TEST(a_copy_engine_does_one_after_the_other_and_engines_do_not_wait_for_each_other);
    return UNITY_END();
}

/* Launches as the driver makes them: all blocks once, several at a time, priorities, printf,
 * malloc, fork, cancelling. */
#include "device/exec/internal.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

static char name[64];
static struct tl_exec_device *device;
static struct tl_exec_config config;
static atomic_uint hits[1 << 16];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t n_done, order[64];

union kernel {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 64]; /* for its text */
};

static void open_device(void)
{
    struct tl_error err;
    int rc = tl_exec_device_open(&device, &config, &err);
    TEST_ASSERT_EQUAL_STRING("", rc < 0 ? err.text : "");
}

void setUp(void)
{
    static uint32_t n;
    snprintf(name, sizeof name, "tally-test-launch-%d-%u", (int)getpid(), n++);
    config = (struct tl_exec_config){.name = name, .n_slots = 2};
    device = NULL;
    n_done = 0;
    for (uint32_t i = 0; i < 1 << 16; i++)
        atomic_store_explicit(&hits[i], 0, memory_order_relaxed);
}

void tearDown(void)
{
    tl_exec_device_close(device);
    tl__sm_unlink(name);
}

static struct tl_exec_object *object(union kernel *k, uint32_t threads, tl_exec_warp_fn warp,
                                     tl_exec_blocks_fn blocks)
{
    struct tl_exec_object *o = NULL;
    memset(k, 0, sizeof *k);
    k->info.abi_version = TL_DEV_ABI_VERSION;
    k->info.block[0] = threads;
    k->info.block[1] = k->info.block[2] = 1;
    k->info.n_barriers = blocks == NULL;
    k->info.param_bytes = 16;
    k->info.shared_bytes = 1024;
    strcpy(k->info.text, "kernel");
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &k->info, warp, blocks, NULL));
    return o;
}

static void on_done(struct tl_exec_launch *l)
{
    pthread_mutex_lock(&lock);
    order[n_done++ % 64] = l->user != NULL ? *(const uint32_t *)l->user : 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_done(uint32_t n)
{
    pthread_mutex_lock(&lock);
    while (n_done < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static const uint64_t some_params[2] = {0x1122334455667788, 42};

static void submit(struct tl_exec_launch *l, struct tl_exec_object *o, uint32_t grid)
{
    uint64_t params[2];
    memcpy(params, some_params, sizeof params);
    if (l->object == NULL)
        *l = (struct tl_exec_launch){.object = o, .priority = l->priority, .user = l->user};
    l->grid[0] = grid;
    l->grid[1] = l->grid[2] = 1;
    l->params = params;
    l->done = on_done;
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, l));
    memset(params, 0xee, sizeof params); /* they were copied */
}

/* --- kernels */

static void count_range(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    if (memcmp(f->params, some_params, 16) != 0 || f->smid >= f->nsmid)
        f->calls->fault(f, 0, TL_DEV_FAULT_TRAP, 1);
    for (uint32_t i = 0; i < count; i++)
        atomic_fetch_add_explicit(&hits[first + i], 1, memory_order_relaxed);
}

static void count_warps(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t *sum = (uint32_t *)(void *)f->shared;
    if (warp == 0)
        *sum = 0;
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    ++*sum;
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    if (*sum == 4 && warp == 0)
        atomic_fetch_add_explicit(&hits[f->ctaid[0]], 1, memory_order_relaxed);
}

static void every_block_runs_once(void)
{
    union kernel k[2];
    struct tl_exec_launch l = {0};
    open_device();
    struct tl_exec_object *ranges = object(&k[0], 256, NULL, count_range);
    struct tl_exec_object *warps = object(&k[1], 128, count_warps, NULL);
    TEST_ASSERT_EQUAL_UINT64(0, tl_exec_worked_ns(device));
    submit(&l, ranges, 65536);
    wait_done(1);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l.fault.what, l.fault.text);
    TEST_ASSERT_TRUE(l.begin_ns != 0 && l.end_ns >= l.begin_ns);
    l = (struct tl_exec_launch){0};
    submit(&l, warps, 10000);
    wait_done(2);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l.fault.what, l.fault.text);
    for (uint32_t i = 0; i < 65536; i++)
        TEST_ASSERT_EQUAL_UINT32(i < 10000 ? 2 : 1, atomic_load(&hits[i]));
    /* Ten thousand times four fibers, which nothing does in a microsecond. */
    TEST_ASSERT_TRUE(tl_exec_worked_ns(device) > 1000);
    tl_exec_object_unref(ranges);
    tl_exec_object_unref(warps);
}

static void many_launches_at_once(void)
{
    union kernel k;
    static struct tl_exec_launch l[60];
    memset(l, 0, sizeof l);
    open_device();
    struct tl_exec_object *o = object(&k, 128, count_warps, NULL);
    for (uint32_t i = 0; i < 60; i++)
        submit(&l[i], o, 100 + i);
    tl_exec_object_unref(o); /* the launches keep it */
    wait_done(60);
    for (uint32_t i = 0; i < 160; i++)
        TEST_ASSERT_EQUAL_UINT32(i < 100 ? 60 : 159 - i, atomic_load(&hits[i]));
}

static void grids_out_of_range_are_refused(void)
{
    union kernel k;
    open_device();
    struct tl_exec_object *o = object(&k, 32, NULL, count_range);
    struct tl_exec_launch l = {.object = o, .grid = {1, 0, 1}, .done = on_done};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_submit(device, &l));
    l.grid[0] = l.grid[1] = 65536;
    l.grid[2] = 1;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_submit(device, &l));
    l.grid[1] = 1;
    l.dynamic_shared_bytes = UINT32_MAX;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_submit(device, &l));
    tl_exec_object_unref(o);
}

/* --- order */

static atomic_bool may_go, is_held;
static void hold(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)first, (void)count;
    atomic_store(&is_held, true);
    while (!atomic_load(&may_go))
        f->calls->yield(f, 0);
}

static void urgent_launches_overtake(void)
{
    union kernel k[2];
    static struct tl_exec_launch l[4];
    static uint32_t numbers[4] = {0, 1, 2, 3};
    memset(l, 0, sizeof l);
    config.n_slots = 1;
    open_device();
    struct tl_exec_object *holder = object(&k[0], 32, NULL, hold);
    struct tl_exec_object *o = object(&k[1], 32, NULL, count_range);
    atomic_store(&may_go, false);
    atomic_store(&is_held, false);
    submit(&l[0], holder, 1);
    while (!atomic_load(&is_held))
        sched_yield();
    for (uint32_t i = 1; i < 4; i++) {
        l[i].user = &numbers[i];
        l[i].priority = (int32_t)(i == 3 ? 10 : i == 2 ? 0 : -10);
        submit(&l[i], o, 10);
    }
    atomic_store(&may_go, true);
    wait_done(4);
    const uint32_t expected[] = {0, 3, 2, 1};
    TEST_ASSERT_EQUAL_UINT32_ARRAY(expected, order, 4);
    tl_exec_object_unref(holder);
    tl_exec_object_unref(o);
}

static void launches_use_slots_that_others_leave(void)
{
    union kernel k[2];
    static struct tl_exec_launch l[2];
    memset(l, 0, sizeof l);
    open_device();
    struct tl_exec_object *holder = object(&k[0], 32, NULL, hold);
    struct tl_exec_object *o = object(&k[1], 32, NULL, count_range);
    atomic_store(&may_go, false);
    submit(&l[0], holder, 1);
    submit(&l[1], o, 100);
    wait_done(1); /* the second one, while the first still runs */
    atomic_store(&may_go, true);
    wait_done(2);
    tl_exec_object_unref(holder);
    tl_exec_object_unref(o);
}

static _Atomic uint32_t arrived;
static void meet_grid(struct tl_dev_frame *f, uint32_t warp)
{
    for (uint32_t round = 1; round <= 5; round++) {
        f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
        if (warp == 0) {
            atomic_fetch_add(&arrived, 1);
            while (atomic_load(&arrived) < round * f->grid[0])
                f->calls->yield(f, warp);
        }
        f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    }
}

static void a_whole_grid_can_meet(void)
{
    union kernel k;
    struct tl_exec_launch l = {0};
    open_device();
    struct tl_exec_object *o = object(&k, 64, meet_grid, NULL);
    atomic_store(&arrived, 0);
    submit(&l, o, 40);
    wait_done(1);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l.fault.what, l.fault.text);
    TEST_ASSERT_EQUAL_UINT32(200, atomic_load(&arrived));
    tl_exec_object_unref(o);
}

/* A kernel waits for another one, of another stream or process: on a GPU their blocks share the
 * SMs. */
static _Atomic uint32_t n_waiting;
static void wait_to_go(struct tl_dev_frame *f, uint32_t warp)
{
    if (warp == 0)
        atomic_fetch_add(&n_waiting, 1);
    while (!atomic_load(&may_go))
        f->calls->yield(f, warp);
}

static void let_go(struct tl_dev_frame *f, uint32_t warp)
{
    (void)f, (void)warp;
    atomic_store(&may_go, true);
}

static void a_kernel_may_wait_for_another_that_came_later(void)
{
    union kernel k[2];
    static struct tl_exec_launch l[2];
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t blocks = round % 2 == 0 ? 2 : 40; /* on both SMs */
        memset(l, 0, sizeof l);
        atomic_store(&may_go, false);
        atomic_store(&n_waiting, 0);
        n_done = 0;
        if (device == NULL)
            open_device();
        struct tl_exec_object *waits = object(&k[0], 64, wait_to_go, NULL);
        struct tl_exec_object *lets = object(&k[1], 32, let_go, NULL);
        submit(&l[0], waits, blocks);
        while (atomic_load(&n_waiting) < blocks)
            sched_yield();
        submit(&l[1], lets, 1);
        wait_done(2);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l[0].fault.what, l[0].fault.text);
        TEST_ASSERT_EQUAL_UINT32(blocks, atomic_load(&n_waiting));
        tl_exec_object_unref(waits);
        tl_exec_object_unref(lets);
    }
}

/* But not on an SM that is full. */
static void a_full_sm_is_not_lent(void)
{
    union kernel k[2];
    static struct tl_exec_launch l[2];
    memset(l, 0, sizeof l);
    config.n_slots = 1;
    config.blocks_per_sm = 1;
    open_device();
    struct tl_exec_object *waits = object(&k[0], 32, wait_to_go, NULL);
    struct tl_exec_object *lets = object(&k[1], 32, let_go, NULL);
    atomic_store(&may_go, false);
    atomic_store(&n_waiting, 0);
    submit(&l[0], waits, 1);
    while (atomic_load(&n_waiting) < 1)
        sched_yield();
    submit(&l[1], lets, 1);
#if TL_EXEC_TSAN
    atomic_store(&may_go, true); /* signals come late under TSan */
#endif
    tl_exec_cancel(device, &l[0]);
    wait_done(2);
#if !TL_EXEC_TSAN
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TIMEOUT, l[0].fault.what);
#endif
    TEST_ASSERT_EQUAL_UINT32(0, l[1].fault.what);
    tl_exec_object_unref(waits);
    tl_exec_object_unref(lets);
}

/* How many blocks are inside, and the most that ever were. */
static _Atomic uint32_t inside, most_inside;
static void meet_and_count(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t n = atomic_fetch_add(&inside, 1) + 1, most = atomic_load(&most_inside);
    while (n > most && !atomic_compare_exchange_weak(&most_inside, &most, n))
        ;
    while (atomic_load(&inside) < *(const uint32_t *)f->params)
        f->calls->yield(f, warp);
}

/* 2 SMs with room for 3 blocks each: six blocks can meet, a seventh is not begun. */
static void an_sm_has_no_more_blocks_than_asked_for(void)
{
    union kernel k;
    static struct tl_exec_launch l[2];
    memset(l, 0, sizeof l);
    config.blocks_per_sm = 3;
    open_device();
    TEST_ASSERT_EQUAL_UINT32(3, tl_exec_device_blocks_per_sm(device));
    struct tl_exec_object *o = object(&k, 32, meet_and_count, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t params[4] = {6 + i};
        atomic_store(&inside, 0);
        atomic_store(&most_inside, 0);
        l[i] = (struct tl_exec_launch){
            .object = o, .grid = {6 + i, 1, 1}, .params = params, .done = on_done};
        TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, &l[i]));
        if (i == 0)
            wait_done(1);
        while (atomic_load(&most_inside) < 6)
            sched_yield();
        if (i == 1) { /* all six wait, and nothing else can happen */
#if TL_EXEC_TSAN
            atomic_store(&inside, 7); /* signals come late under TSan */
#endif
            tl_exec_cancel(device, &l[i]);
            wait_done(2);
        }
        TEST_ASSERT_EQUAL_UINT32(6, atomic_load(&most_inside));
    }
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l[0].fault.what, l[0].fault.text);
#if !TL_EXEC_TSAN
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TIMEOUT, l[1].fault.what);
#endif
    tl_exec_object_unref(o);
}

static void cancelling_ends_a_launch(void)
{
    union kernel k;
    struct tl_exec_launch l = {0};
    open_device();
    struct tl_exec_object *o = object(&k, 32, NULL, hold);
    atomic_store(&may_go, false);
    submit(&l, o, 1000);
#if TL_EXEC_TSAN
    /* signals come late under TSan: the launch ends by itself, or by this */
    atomic_store(&may_go, true);
#endif
    tl_exec_cancel(device, &l);
    wait_done(1);
#if !TL_EXEC_TSAN
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TIMEOUT, l.fault.what);
#endif
    tl_exec_object_unref(o);
}

static void a_launch_that_waits_can_be_cancelled(void)
{
    union kernel k[2];
    static struct tl_exec_launch l[2];
    static uint32_t numbers[2] = {0, 1};
    memset(l, 0, sizeof l);
    config.n_slots = 1;
    open_device();
    struct tl_exec_object *holder = object(&k[0], 32, NULL, hold);
    struct tl_exec_object *o = object(&k[1], 32, NULL, count_range);
    atomic_store(&may_go, false);
    atomic_store(&is_held, false);
    l[0].user = &numbers[0], l[1].user = &numbers[1];
    submit(&l[0], holder, 1);
    while (!atomic_load(&is_held))
        sched_yield();
    submit(&l[1], o, 100);
    tl_exec_cancel(device, &l[1]);
    atomic_store(&may_go, true);
    wait_done(2);
    TEST_ASSERT_EQUAL_UINT32(0, l[0].fault.what);
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_TIMEOUT, l[1].fault.what);
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&hits[0]));
    tl_exec_object_unref(holder);
    tl_exec_object_unref(o);
}

/* --- printf, assert, malloc */

static char printed[8192];

/* Runs the kernel and keeps what goes to stdout (1) or stderr (2). */
static struct tl_exec_fault run_printing_to(int where, tl_exec_warp_fn warp)
{
    union kernel k;
    struct tl_exec_launch l = {0};
    FILE *file = tmpfile();
    TEST_ASSERT_NOT_NULL(file);
    fflush(stdout);
    int saved = dup(where);
    open_device();
    struct tl_exec_object *o = object(&k, 32, warp, NULL);
    dup2(fileno(file), where);
    submit(&l, o, 1);
    wait_done(1);
    if (l.fault.what == 0) /* a fault comes after what was printed */
        tl_exec_printf_flush(device);
    fflush(stdout);
    dup2(saved, where);
    close(saved);
    rewind(file);
    printed[fread(printed, 1, sizeof printed - 1, file)] = '\0';
    fclose(file);
    tl_exec_object_unref(o);
    return l.fault;
}

static struct tl_exec_fault run_printing(tl_exec_warp_fn warp)
{
    return run_printing_to(1, warp);
}

static int32_t print_result;
static void print_much(struct tl_dev_frame *f, uint32_t warp)
{
    (void)warp;
    struct {
        int32_t i;
        uint32_t u;
        double d;
        int32_t c;
        int64_t l;
        const char *s;
        int32_t width;
        double e;
        uint64_t z;
        const void *p;
    } args = {-7, 0xbeef, 3.25, 'x', -5000000000, "text", 8, 1e100, 123, (void *)0x10};
    print_result = f->calls->vprintf(f, "%d %x %.2f [%3c] %lld '%-6s' %*.1e %zu%% %p\n", &args);
    f->calls->vprintf(f, "plain\n", NULL);
    struct {
        int32_t i;
    } half = {70000};
    f->calls->vprintf(f, "%hd %y\n", &half);
    TEST_ASSERT_EQUAL_INT32(-1, f->calls->vprintf(f, NULL, NULL));
}

static void printf_is_printed_at_synchronisation(void)
{
    TEST_ASSERT_EQUAL_UINT32(0, run_printing(print_much).what);
    TEST_ASSERT_EQUAL_STRING(
        "-7 beef 3.25 [  x] -5000000000 'text  ' 1.0e+100 123% 0x10\nplain\n4464 %y\n", printed);
    TEST_ASSERT_EQUAL_INT32(10, print_result);
}

static void assert_something(struct tl_dev_frame *f, uint32_t warp)
{
    f->calls->assertfail(f, warp, 5, "a == b", "file.cu", 12, "void k()");
}

static void a_failed_assertion_is_told(void)
{
    struct tl_exec_fault fault = run_printing_to(2, assert_something);
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ASSERT, fault.what);
    TEST_ASSERT_EQUAL_STRING(
        "file.cu:12: void k(): block: [0,0,0], thread: [5,0,0] Assertion `a == b` failed.\n",
        printed);
}

static void use_heap(struct tl_dev_frame *f, uint32_t warp)
{
    (void)warp;
    void *p[64];
    for (uint32_t i = 0; i < 64; i++) {
        p[i] = f->calls->malloc(f, 1 + i * 100);
        if (p[i] == NULL)
            f->calls->fault(f, 0, TL_DEV_FAULT_TRAP, i);
        memset(p[i], (int)i, 1 + i * 100);
    }
    for (uint32_t i = 0; i < 64; i++)
        f->calls->free(f, p[i]);
    f->calls->free(f, NULL);
    /* All of it is one piece again. */
    void *all = f->calls->malloc(f, 8 << 20);
    if (all == NULL || f->calls->malloc(f, 1) != NULL)
        f->calls->fault(f, 0, TL_DEV_FAULT_TRAP, 100);
    f->calls->free(f, all);
}

static void kernels_allocate(void)
{
    struct tl_exec_fault fault = run_printing(use_heap);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, fault.what, fault.text);
}

static void free_twice(struct tl_dev_frame *f, uint32_t warp)
{
    (void)warp;
    void *p = f->calls->malloc(f, 100);
    f->calls->free(f, p);
    f->calls->free(f, p);
}

static void freeing_twice_is_a_fault(void)
{
    TEST_ASSERT_EQUAL_UINT32(TL_DEV_FAULT_ADDRESS, run_printing(free_twice).what);
}

/* --- fork, settings */

static void a_forked_child_begins_anew(void)
{
#if TL_EXEC_TSAN
    TEST_IGNORE_MESSAGE("TSan does not start threads after a fork of many");
#else
    union kernel k;
    struct tl_exec_launch l = {0};
    open_device();
    struct tl_exec_object *o = object(&k, 128, count_warps, NULL);
    submit(&l, o, 10);
    wait_done(1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct tl_exec_launch mine = {
            .object = o, .grid = {10, 1, 1}, .done = on_done, .params = some_params};
        if (tl_exec_submit(device, &mine) != 0)
            _exit(1);
        wait_done(2);
        _exit(atomic_load(&hits[9]) == 2 && mine.fault.what == 0 ? 0 : 2);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    TEST_ASSERT_EQUAL_HEX(0, status);
    l = (struct tl_exec_launch){0};
    submit(&l, o, 10); /* and the parent goes on */
    wait_done(2);
    TEST_ASSERT_EQUAL_UINT32(2, atomic_load(&hits[9]));
    tl_exec_object_unref(o);
#endif
}

/* --- idleness --------------------------------------------------------------------------------- */

/* The time that the device's threads have spent on processors, and whether all of them sleep. */
static uint64_t time_of_threads(bool *all_sleep)
{
    uint64_t sum = 0;
    uint32_t n = 0;
    *all_sleep = true;
    DIR *d = opendir("/proc/self/task");
    TEST_ASSERT_NOT_NULL(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[300], who[64] = "", state = '?';
        unsigned long long ran = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        if (f == NULL || fscanf(f, "%*d (%63[^)]) %c", who, &state) != 2)
            state = '?';
        if (f != NULL)
            fclose(f);
        if (strncmp(who, "tally-", 6) != 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
        f = fopen(path, "r");
        if (f == NULL || fscanf(f, "%llu", &ran) != 1)
            ran = 0;
        if (f != NULL)
            fclose(f);
        *all_sleep &= state == 'S';
        sum += ran;
        n++;
    }
    closedir(d);
    TEST_ASSERT_TRUE(n >= 2); /* a worker and the one that lives for the process */
    return sum;
}

/* Not a little: none at all, once they have gone to sleep. */
static void an_idle_device_uses_no_processor(void)
{
    union kernel k;
    struct tl_exec_launch l = {0};
    struct tl_exec_object *o = object(&k, 32, NULL, count_range);
    bool sleep = false;
    open_device();
    submit(&l, o, 1000);
    wait_done(1);
    uint64_t before = 0, after = 1;
    /* Two looks with the same answer and a pause between them; somebody may have been on his way to
     * sleep at the first. */
    for (uint32_t tries = 0; tries < 100 && (!sleep || before != after); tries++) {
        before = time_of_threads(&sleep);
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        after = time_of_threads(&sleep);
    }
    TEST_ASSERT_TRUE(sleep);
    TEST_ASSERT_EQUAL_UINT64(before, after);
    l = (struct tl_exec_launch){0};
    submit(&l, o, 1000); /* and they wake up again */
    wait_done(2);
    TEST_ASSERT_EQUAL_UINT32(2, atomic_load(&hits[999]));
    tl_exec_object_unref(o);
}

static void tell_nice(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f;
    for (uint32_t i = 0; i < count; i++)
        atomic_store(&hits[first + i], (unsigned)(100 + getpriority(PRIO_PROCESS, (id_t)gettid())));
}

/* The nice value, plus 100, of all workers that ran blocks; 0 if they differ. */
static uint32_t nice_of_workers(void)
{
    union kernel k;
    struct tl_exec_launch l = {0};
    struct tl_exec_object *o = object(&k, 32, NULL, tell_nice);
    submit(&l, o, 1000);
    wait_done(1);
    tl_exec_object_unref(o);
    for (uint32_t i = 1; i < 1000; i++)
        if (atomic_load(&hits[i]) != atomic_load(&hits[0]))
            return 0;
    return atomic_load(&hits[0]);
}

/* Else the CPU's scheduler would decide who computes, and not the device. */
static void workers_of_all_processes_are_equally_nice(void)
{
    int mine = getpriority(PRIO_PROCESS, 0);
    if (mine > 2)
        TEST_IGNORE_MESSAGE("the test itself runs with a nice value too high to compare");
    fflush(stdout);
    pid_t pid = fork(); /* before there are threads */
    if (pid == 0) {
        if (nice(2) == -1)
            _exit(1);
        open_device();
        _exit((int)nice_of_workers());
    }
    int status = -1;
    open_device();
    uint32_t here = nice_of_workers();
    waitpid(pid, &status, 0);
    TEST_ASSERT_TRUE(WIFEXITED(status));
    TEST_ASSERT_EQUAL_UINT32(here, WEXITSTATUS(status));
    TEST_ASSERT_TRUE_MESSAGE((int)here - 100 > mine,
                             "workers must stand behind the program's own threads");
}

static void a_program_may_end_while_kernels_run(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        union kernel k;
        struct tl_exec_launch l = {0};
        open_device();
        atomic_store(&may_go, false);
        atomic_store(&is_held, false);
        submit(&l, object(&k, 32, NULL, hold), 1000);
        while (!atomic_load(&is_held))
            sched_yield();
        exit(0); /* with all that exit does */
    }
    int status = -1;
    waitpid(pid, &status, 0);
    TEST_ASSERT_EQUAL_HEX(0, status);
}

static void settings_come_from_the_environment(void)
{
    uint64_t left, all;
    struct tl_error err;
    config = (struct tl_exec_config){0};
    setenv("TALLY_DEVICE_NAME", name, 1);
    setenv("TALLY_DEVICE_SMS", "7", 1);
    setenv("TALLY_DEVICE_MEM", "3G", 1);
    setenv("TALLY_DEVICE_MODE", "timeslice", 1);
    setenv("TALLY_DEVICE_BLOCKS_PER_SM", "5", 1);
    open_device();
    TEST_ASSERT_EQUAL_UINT32(5, tl_exec_device_blocks_per_sm(device));
    TEST_ASSERT_EQUAL_UINT32(7, tl_exec_device_slots(device));
    TEST_ASSERT_EQUAL_INT(TL_EXEC_TIMESLICE, tl_exec_device_mode(device));
    tl_exec_memory_info(device, &left, &all);
    TEST_ASSERT_EQUAL_UINT64((uint64_t)3 << 30, all);
    TEST_ASSERT_EQUAL_INT(0, tl_exec_memory_take(device, (uint64_t)2 << 30));
    TEST_ASSERT_EQUAL_INT(-ENOMEM, tl_exec_memory_take(device, (uint64_t)2 << 30));
    tl_exec_memory_give(device, (uint64_t)2 << 30);
    static const char *const wrong[][2] = {
        {"TALLY_DEVICE_SMS", "0"},          {"TALLY_DEVICE_SMS", "-3"},
        {"TALLY_DEVICE_SMS", "257"},        {"TALLY_DEVICE_MEM", "12Q"},
        {"TALLY_DEVICE_MEM", ""},           {"TALLY_DEVICE_MODE", "fifo"},
        {"TALLY_DEVICE_BLOCKS_PER_SM", "0"}};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct tl_exec_device *d = NULL;
        char old[32];
        snprintf(old, sizeof old, "%s", getenv(wrong[i][0]));
        setenv(wrong[i][0], wrong[i][1], 1);
        int rc = tl_exec_device_open(&d, NULL, &err);
        if (*wrong[i][1] != '\0') {
            TEST_ASSERT_EQUAL_INT(-EINVAL, rc);
            TEST_ASSERT_NOT_NULL(strstr(err.text, wrong[i][0]));
        } else {
            TEST_ASSERT_EQUAL_INT(0, rc); /* empty is as if it were not there */
        }
        tl_exec_device_close(d);
        setenv(wrong[i][0], old, 1);
    }
    unsetenv("TALLY_DEVICE_NAME");
    unsetenv("TALLY_DEVICE_SMS");
    unsetenv("TALLY_DEVICE_MEM");
    unsetenv("TALLY_DEVICE_MODE");
    unsetenv("TALLY_DEVICE_BLOCKS_PER_SM");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_block_runs_once);
    RUN_TEST(many_launches_at_once);
    RUN_TEST(grids_out_of_range_are_refused);
    RUN_TEST(urgent_launches_overtake);
    RUN_TEST(launches_use_slots_that_others_leave);
    RUN_TEST(a_whole_grid_can_meet);
    RUN_TEST(a_kernel_may_wait_for_another_that_came_later);
    RUN_TEST(a_full_sm_is_not_lent);
    RUN_TEST(an_sm_has_no_more_blocks_than_asked_for);
    RUN_TEST(cancelling_ends_a_launch);
    RUN_TEST(a_launch_that_waits_can_be_cancelled);
    RUN_TEST(printf_is_printed_at_synchronisation);
    RUN_TEST(a_failed_assertion_is_told);
    RUN_TEST(kernels_allocate);
    RUN_TEST(freeing_twice_is_a_fault);
    RUN_TEST(a_forked_child_begins_anew);
    RUN_TEST(an_idle_device_uses_no_processor);
    RUN_TEST(workers_of_all_processes_are_equally_nice);
    RUN_TEST(a_program_may_end_while_kernels_run);
    RUN_TEST(settings_come_from_the_environment);
    return UNITY_END();
}

/* Blocks on one engine, with kernels written in C against the ABI: barriers of all kinds in odd
 * places, early exits, spinning on other blocks, deadlocks. */
#include "device/exec/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

enum { SYNC, ARRIVE, RED_POPC, RED_AND, RED_OR };
#define ALL UINT32_MAX

static struct tl__engine engine;
static struct tl__exec_env env;
static struct tl_exec_object *object;
static union {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 32];
} info;
static struct tl_exec_run *run;
static uint32_t trace[65536], n_trace;
static uint32_t n_drained, stop_after;
static uint32_t values[1024 * 64];

static bool must_stop(struct tl__engine *e, struct tl_exec_run *r)
{
    (void)e, (void)r;
    return stop_after != 0 && --stop_after == 0;
}

static void drained(struct tl__engine *e, struct tl_exec_run *r)
{
    (void)e, (void)r;
    n_drained++;
}

void setUp(void)
{
    env = (struct tl__exec_env){.calls = &tl__exec_calls,
                                .n_slots = 1,
                                .n_told = 1,
                                .max_units = 64,
                                .must_stop = must_stop,
                                .drained = drained};
    TEST_ASSERT_EQUAL_INT(0, tl__engine_init(&engine, &env));
    run = NULL;
    object = NULL;
    memset(&info, 0, sizeof info);
    info.info.n_barriers = 1;
    memset(values, 0, sizeof values);
    n_trace = n_drained = stop_after = 0;
}

void tearDown(void)
{
    tl__engine_finish(&engine);
    tl_exec_object_unref(object);
    free(run);
}

static void prepare(tl_exec_warp_fn warp, tl_exec_blocks_fn blocks, uint32_t threads, uint32_t grid)
{
    tl_exec_object_unref(object);
    free(run);
    memset(values, 0, sizeof values);
    info.info.abi_version = TL_DEV_ABI_VERSION;
    info.info.block[0] = threads;
    info.info.block[1] = info.info.block[2] = 1;
    strcpy(info.info.text, "a_kernel");
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&object, &info.info, warp, blocks, NULL));
    run = aligned_alloc(64, sizeof *run + 64);
    memset(run, 0, sizeof *run + 64);
    run->object = object;
    run->grid[0] = grid;
    run->grid[1] = run->grid[2] = 1;
    run->total = grid;
    atomic_store(&run->chunk, 1);
}

static void runs_well(tl_exec_warp_fn warp, uint32_t threads, uint32_t grid)
{
    prepare(warp, NULL, threads, grid);
    int rc = tl__engine_run(&engine, run);
    TEST_ASSERT_EQUAL_STRING("", rc < 0 ? engine.fault.text : "");
    TEST_ASSERT_EQUAL_INT(0, rc);
    TEST_ASSERT_NULL(engine.units);
    TEST_ASSERT_EQUAL_UINT32(0, engine.n_ready);
}

static void faults(tl_exec_warp_fn warp, uint32_t threads, uint32_t grid, uint32_t what)
{
    prepare(warp, NULL, threads, grid);
    TEST_ASSERT_EQUAL_INT(-EFAULT, tl__engine_run(&engine, run));
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(what, engine.fault.what, engine.fault.text);
    TEST_ASSERT_NOT_NULL(strstr(engine.fault.text, "a_kernel"));
}

/* --- helpers of kernels */

static uint32_t lanes_of(uint32_t warp)
{
    uint32_t threads = info.info.block[0], first = warp * TL_DEV_WARP;
    return threads - first >= TL_DEV_WARP ? ALL : (1U << (threads - first)) - 1;
}

static uint32_t barrier(struct tl_dev_frame *f, uint32_t warp, uint32_t kind, uint32_t id,
                        uint32_t count, uint32_t lanes, uint32_t votes)
{
    return f->calls->barrier(f, warp, kind, id, count, lanes, votes);
}

static void sync_all(struct tl_dev_frame *f, uint32_t warp)
{
    barrier(f, warp, SYNC, 0, 0, lanes_of(warp) & ~f->exited[warp], 0);
}

static void note(uint32_t what)
{
    trace[n_trace++ % 65536] = what;
}

/* --- whole blocks */

static void kernel_phases(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t *sum = &values[f->ctaid[0] * 16];
    for (uint32_t phase = 0; phase < 10; phase++) {
        sum[phase]++;
        sync_all(f, warp);
        if (sum[phase] != 8) /* all eight warps must have been here */
            f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, phase);
    }
}

static void a_barrier_holds_every_warp_until_the_last(void)
{
    runs_well(kernel_phases, 256, 100);
    for (uint32_t b = 0; b < 100; b++)
        TEST_ASSERT_EQUAL_UINT32(8, values[b * 16 + 9]);
    TEST_ASSERT_EQUAL_UINT32(1, n_drained);
}

static void a_partial_last_warp_counts_its_own_lanes(void)
{
    runs_well(kernel_phases, 225, 10);
    runs_well(kernel_phases, 255, 10);
}

static void kernel_odd_places(struct tl_dev_frame *f, uint32_t warp)
{
    /* Each warp meets the others in its own loop, of its own length, at its own call. */
    if (warp == 0) {
        for (uint32_t i = 0; i < 6; i++)
            sync_all(f, warp);
    } else if (warp == 1) {
        sync_all(f, warp);
        sync_all(f, warp);
        for (uint32_t i = 0; i < 4; i++)
            sync_all(f, warp);
    } else {
        for (uint32_t i = 0; i < 3; i++) {
            sync_all(f, warp);
            note(warp);
            sync_all(f, warp);
        }
    }
}

static void barriers_in_different_places_meet(void)
{
    runs_well(kernel_odd_places, 128, 3);
    TEST_ASSERT_EQUAL_UINT32(3 * 3 * 2, n_trace);
}

static void kernel_early_exit(struct tl_dev_frame *f, uint32_t warp)
{
    for (uint32_t i = 0; i < warp; i++)
        sync_all(f, warp);
    note(warp);
}

static void warps_that_return_are_not_waited_for(void)
{
    runs_well(kernel_early_exit, 1024, 2);
    TEST_ASSERT_EQUAL_UINT32(64, n_trace);
    for (uint32_t w = 0; w < 32; w++)
        TEST_ASSERT_EQUAL_UINT32(w, trace[w]);
}

static void kernel_lanes_exit(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t live = lanes_of(warp);
    for (uint32_t i = 0; i < 31; i++) {
        live &= ~(1U << i);
        f->exited[warp] |= 1U << i;
        uint32_t n = barrier(f, warp, RED_POPC, 0, 0, live, ALL);
        if (n != 4 * (31 - i))
            f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, n);
    }
}

static void lanes_that_returned_are_not_counted(void)
{
    runs_well(kernel_lanes_exit, 128, 2);
}

static void kernel_reductions(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t lanes = lanes_of(warp);
    uint32_t r[6];
    r[0] = barrier(f, warp, RED_POPC, 0, 0, lanes, 0x0f0f0f0f);
    r[1] = barrier(f, warp, RED_AND, 0, 0, lanes, ALL);
    r[2] = barrier(f, warp, RED_AND, 0, 0, lanes, warp == 2 ? ~4U : ALL);
    r[3] = barrier(f, warp, RED_OR, 0, 0, lanes, 0);
    r[4] = barrier(f, warp, RED_OR, 0, 0, lanes, warp == 3 ? 2 : 0);
    r[5] = barrier(f, warp, RED_POPC, 7, 0, lanes, ALL);
    memcpy(&values[warp * 8], r, sizeof r);
}

static void reductions_give_every_warp_the_result(void)
{
    runs_well(kernel_reductions, 100, 1);
    for (uint32_t w = 0; w < 4; w++) {
        const uint32_t expected[] = {3 * 16 + 4, 1, 0, 0, 1, 100};
        TEST_ASSERT_EQUAL_UINT32_ARRAY(expected, &values[w * 8], 6);
    }
}

/* --- named barriers */

static void kernel_named(struct tl_dev_frame *f, uint32_t warp)
{
    /* Pairs of warps meet at their own barriers, a different number of times. */
    uint32_t id = 1 + warp / 2, *met = &values[f->ctaid[0] * 16 + id];
    for (uint32_t i = 0; i < 5 + id; i++) {
        ++*met;
        barrier(f, warp, SYNC, id, 64, ALL, 0);
        if (*met != 2 * (i + 1))
            f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, i);
        barrier(f, warp, SYNC, id, 64, ALL, 0);
    }
    sync_all(f, warp);
}

static void named_barriers_count_threads(void)
{
    runs_well(kernel_named, 256, 20);
}

static void kernel_partial_named(struct tl_dev_frame *f, uint32_t warp)
{
    /* 48 threads, barriers for 64: the missing lanes of the last warp count as present, as on
     * hardware. */
    barrier(f, warp, SYNC, 3, 64, lanes_of(warp), 0);
}

static void counts_are_rounded_up_to_warps(void)
{
    runs_well(kernel_partial_named, 48, 3);
}

/* Warp 0 fills a buffer of four places, warps 1 and 2 empty it: full is barrier 1.., empty 8... */
static void kernel_producer(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t *place = (uint32_t *)(void *)f->shared;
    if (warp == 0) {
        for (uint32_t i = 0; i < 40; i++) {
            if (i >= 4)
                barrier(f, warp, SYNC, 8 + i % 4, 96, ALL, 0);
            place[i % 4] = i;
            barrier(f, warp, ARRIVE, 1 + i % 4, 96, ALL, 0);
        }
    } else {
        for (uint32_t i = 0; i < 40; i++) {
            barrier(f, warp, SYNC, 1 + i % 4, 96, ALL, 0);
            if (place[i % 4] != i)
                f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, i);
            note(i);
            if (i < 36)
                barrier(f, warp, ARRIVE, 8 + i % 4, 96, ALL, 0);
        }
    }
}

static void producers_arrive_and_consumers_wait(void)
{
    info.info.shared_bytes = 16;
    runs_well(kernel_producer, 96, 7);
    TEST_ASSERT_EQUAL_UINT32(7 * 80, n_trace);
}

static void kernel_halves(struct tl_dev_frame *f, uint32_t warp)
{
    /* The lower lanes only arrive, the upper ones come later from another place and wait. */
    barrier(f, warp, ARRIVE, 2, 64, 0x0000ffff, 0);
    values[warp]++;
    barrier(f, warp, SYNC, 2, 64, 0xffff0000, 0);
    if (values[0] != values[1])
        f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, 0);
    uint32_t n = barrier(f, warp, RED_POPC, 2, 64, ALL, ALL);
    values[8 + warp] = n;
}

static void lanes_of_one_warp_may_come_one_after_the_other(void)
{
    runs_well(kernel_halves, 64, 1);
    TEST_ASSERT_EQUAL_UINT32(64, values[8]);
    TEST_ASSERT_EQUAL_UINT32(64, values[9]);
}

static void kernel_half_exits(struct tl_dev_frame *f, uint32_t warp)
{
    /* Warp 1's lower half waits for everybody while its upper half has gone without a word to
     * us. */
    if (warp == 1)
        f->exited[warp] = 0xffff0000;
    barrier(f, warp, SYNC, 0, 0, warp == 1 ? 0x0000ffff : ALL, 0);
}

static void an_exit_that_nobody_announced_is_noticed(void)
{
    runs_well(kernel_half_exits, 64, 2);
}

/* Threads of one warp, each on its own stack: odd ones meet in one place, even ones in another, and
 * some leave early. */
static void kernel_lanes(struct tl_dev_frame *f, uint32_t argument)
{
    uint32_t warp = argument & 0xffff, lane = argument >> 16, bit = 1U << lane;
    values[warp * 32 + lane]++;
    if (lane == 7)
        return;
    if (lane % 2 == 0) {
        barrier(f, warp, SYNC, 0, 0, bit, 0);
    } else {
        note(lane);
        barrier(f, warp, SYNC, 0, 0, bit, 0);
    }
    uint32_t n = barrier(f, warp, RED_POPC, 1, 0, bit, lane % 2 != 0 ? bit : 0);
    if (n != 30 || n_trace != 30)
        f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, n);
}

static void threads_of_a_warp_may_wait_apart(void)
{
    info.info.uses_lanes = 1;
    runs_well(kernel_lanes, 64, 1);
    for (uint32_t i = 0; i < 64; i++)
        TEST_ASSERT_EQUAL_UINT32(1, values[i]);
    info.info.uses_lanes = 0;
    runs_well(kernel_phases, 256, 3); /* the same unit, warps again */
}

/* --- what is wrong */

static void kernel_lonely(struct tl_dev_frame *f, uint32_t warp)
{
    if (warp == 1)
        barrier(f, warp, SYNC, 1, 96, ALL, 0); /* nobody else comes */
}

static void waiting_for_nobody_is_a_fault(void)
{
    faults(kernel_lonely, 128, 3, TL_DEV_FAULT_DEADLOCK);
    TEST_ASSERT_EQUAL_UINT32(1, engine.fault.warp);
    runs_well(kernel_phases, 256, 3); /* and the engine is as good as new */
}

static void kernel_crossed(struct tl_dev_frame *f, uint32_t warp)
{
    barrier(f, warp, SYNC, 1 + warp, 64, ALL, 0);
    barrier(f, warp, SYNC, 2 - warp, 64, ALL, 0);
}

static void crossed_barriers_are_a_fault(void)
{
    faults(kernel_crossed, 64, 1, TL_DEV_FAULT_DEADLOCK);
}

static void kernel_own_lanes(struct tl_dev_frame *f, uint32_t warp)
{
    barrier(f, warp, SYNC, 0, 0, 0xffff, 0);
    barrier(f, warp, SYNC, 0, 0, 0xffff0000, 0);
}

static void waiting_for_lanes_of_the_own_warp_is_told_as_such(void)
{
    faults(kernel_own_lanes, 64, 1, TL_DEV_FAULT_DIVERGED_SYNC);
}

static uint32_t bad_id, bad_count, bad_kind;
static void kernel_bad(struct tl_dev_frame *f, uint32_t warp)
{
    barrier(f, warp, bad_kind, bad_id, bad_count, ALL, 0);
}

static void barriers_out_of_range_are_faults(void)
{
    bad_id = 16, bad_count = 0, bad_kind = SYNC;
    faults(kernel_bad, 64, 1, TL_DEV_FAULT_BARRIER);
    bad_id = 0, bad_count = 1056;
    faults(kernel_bad, 64, 1, TL_DEV_FAULT_BARRIER);
    bad_count = 0, bad_kind = 5;
    faults(kernel_bad, 64, 1, TL_DEV_FAULT_BARRIER);
}

static void kernel_mixed_counts(struct tl_dev_frame *f, uint32_t warp)
{
    barrier(f, warp, SYNC, 1, warp == 0 ? 64 : 96, ALL, 0);
}

static void one_barrier_with_two_counts_is_a_fault(void)
{
    faults(kernel_mixed_counts, 96, 1, TL_DEV_FAULT_BARRIER);
}

static void kernel_trap(struct tl_dev_frame *f, uint32_t warp)
{
    sync_all(f, warp);
    if (f->ctaid[0] == 5 && warp == 3)
        f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, 77);
    sync_all(f, warp);
    note(f->ctaid[0]);
}

static void a_trap_tells_where(void)
{
    faults(kernel_trap, 128, 10, TL_DEV_FAULT_TRAP);
    TEST_ASSERT_EQUAL_UINT32(5, engine.fault.ctaid[0]);
    TEST_ASSERT_EQUAL_UINT32(3, engine.fault.warp);
    TEST_ASSERT_EQUAL_UINT64(77, engine.fault.detail);
    TEST_ASSERT_EQUAL_UINT32(5 * 4, n_trace);
    runs_well(kernel_phases, 256, 3);
}

/* --- waiting in loops */

static _Atomic uint32_t arrived;
static void kernel_grid_sync(struct tl_dev_frame *f, uint32_t warp)
{
    for (uint32_t round = 1; round <= 3; round++) {
        sync_all(f, warp);
        if (warp == 0) {
            atomic_fetch_add(&arrived, 1);
            while (atomic_load(&arrived) < round * f->grid[0])
                f->calls->yield(f, warp);
        }
        sync_all(f, warp);
    }
    if (warp == 0)
        note(f->ctaid[0]);
}

static void blocks_that_wait_for_each_other_run_side_by_side(void)
{
    atomic_store(&arrived, 0);
    runs_well(kernel_grid_sync, 96, 24);
    TEST_ASSERT_EQUAL_UINT32(24, n_trace);
    TEST_ASSERT_EQUAL_UINT32(72, atomic_load(&arrived));
}

/* A loop that waits for the next block's word has a barrier, as those that build trees have for
 * speed: that all warps come by there is no progress. */
static _Atomic uint32_t passed_on[8], n_in_vain;
static void kernel_spin_around_a_barrier(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t b = f->ctaid[0], round = 0;
    while (b + 1 < f->grid[0] && atomic_load(&passed_on[b + 1]) == 0 && ++round < 1000000) {
        f->calls->yield(f, warp);
        sync_all(f, warp);
    }
    n_in_vain += round == 1000000;
    sync_all(f, warp);
    if (warp == 0) {
        atomic_store(&passed_on[b], 1);
        note(b);
    }
}

static void a_loop_with_a_barrier_may_wait_for_another_block(void)
{
    atomic_store(&n_in_vain, 0);
    memset(passed_on, 0, sizeof passed_on);
    runs_well(kernel_spin_around_a_barrier, 96, 8);
    TEST_ASSERT_EQUAL_UINT32(0, atomic_load(&n_in_vain));
    for (uint32_t i = 0; i < 8; i++)
        TEST_ASSERT_EQUAL_UINT32(7 - i, trace[i]);
}

static void claimed_blocks_are_begun_while_others_spin(void)
{
    atomic_store(&arrived, 0);
    prepare(kernel_grid_sync, NULL, 96, 24);
    /* several blocks at a time: those behind the first must not be waited for in vain */
    atomic_store(&run->chunk, 8);
    TEST_ASSERT_EQUAL_INT(0, tl__engine_run(&engine, run));
    TEST_ASSERT_EQUAL_UINT32(24, n_trace);
}

static void kernel_spin_between_warps(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t *turn = (uint32_t *)(void *)f->shared;
    if (warp == 0)
        *turn = 0;
    sync_all(f, warp);
    for (uint32_t round = 0; round < 20; round++) {
        while (*(volatile uint32_t *)turn != round * 4 + warp)
            f->calls->yield(f, warp);
        ++*turn;
    }
}

static void warps_may_spin_on_each_other(void)
{
    info.info.shared_bytes = 16;
    runs_well(kernel_spin_between_warps, 128, 4);
}

/* --- frames, ranges, stopping */

static void kernel_frame(struct tl_dev_frame *f, uint32_t warp)
{
    uint32_t n = f->ctaid[0] + f->grid[0] * (f->ctaid[1] + f->grid[1] * f->ctaid[2]);
    values[n]++;
    if ((uintptr_t)f->shared % 1024 != 0 || f->nsmid != 1)
        f->calls->fault(f, warp, TL_DEV_FAULT_TRAP, 1);
    memset(f->shared, (int)n, 5000);
    memset(f->local, (int)n, 64 * 32);
}

static void every_block_of_a_grid_runs_once_with_its_own_number(void)
{
    info.info.shared_bytes = 4000;
    info.info.local_bytes = 64;
    prepare(kernel_frame, NULL, 32, 5);
    run->grid[1] = 7, run->grid[2] = 11;
    run->total = 5 * 7 * 11;
    run->dynamic_shared_bytes = 1000;
    TEST_ASSERT_EQUAL_INT(0, tl__engine_run(&engine, run));
    for (uint32_t i = 0; i < 5 * 7 * 11; i++)
        TEST_ASSERT_EQUAL_UINT32(1, values[i]);
}

static void blocks_range(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f;
    for (uint32_t i = 0; i < count; i++)
        values[first + i]++;
    note(count);
}

static void kernels_without_barriers_get_ranges(void)
{
    info.info.n_barriers = 0;
    prepare(kernel_frame, blocks_range, 64, 60000);
    TEST_ASSERT_EQUAL_INT(0, tl__engine_run(&engine, run));
    for (uint32_t i = 0; i < 60000; i++)
        TEST_ASSERT_EQUAL_UINT32(1, values[i]);
    TEST_ASSERT_TRUE(n_trace < 6000); /* ranges grow when blocks turn out to be short */
}

static void units_serve_both_kinds_in_turn(void)
{
    for (uint32_t i = 0; i < 5; i++) {
        info.info.n_barriers = 0;
        prepare(kernel_phases, blocks_range, 64, 100);
        TEST_ASSERT_EQUAL_INT(0, tl__engine_run(&engine, run));
        info.info.n_barriers = 1;
        runs_well(kernel_phases, 256, 5);
    }
}

static void a_worker_that_is_asked_to_stop_finishes_its_blocks(void)
{
    prepare(kernel_phases, NULL, 256, 50);
    stop_after = 3;
    TEST_ASSERT_EQUAL_INT(0, tl__engine_run(&engine, run));
    uint64_t next = atomic_load(&run->next_block);
    TEST_ASSERT_TRUE(next < 50);
    for (uint32_t b = 0; b < 50; b++)
        TEST_ASSERT_EQUAL_UINT32(b < next ? 8 : 0, values[b * 16 + 9]);
    TEST_ASSERT_EQUAL_INT(0, tl__engine_run(&engine, run));
    TEST_ASSERT_EQUAL_UINT32(8, values[49 * 16]);
}

/* --- objects */

static void numbers_that_make_no_sense_are_refused(void)
{
    struct tl_error err;
    struct tl_exec_object *o;
    info.info.abi_version = TL_DEV_ABI_VERSION + 1;
    info.info.block[0] = info.info.block[1] = info.info.block[2] = 1;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_object_from(&o, &info.info, kernel_trap, NULL, &err));
    info.info.abi_version = TL_DEV_ABI_VERSION;
    info.info.block[0] = 1025;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_object_from(&o, &info.info, kernel_trap, NULL, &err));
    info.info.block[0] = 512;
    info.info.block[1] = 3;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_object_from(&o, &info.info, kernel_trap, NULL, &err));
    info.info.block[1] = 1;
    info.info.shared_bytes = 1U << 31;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_object_from(&o, &info.info, kernel_trap, NULL, &err));
    info.info.shared_bytes = 0;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_object_from(&o, &info.info, NULL, NULL, &err));
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_exec_object_open(&o, "/nowhere/kernel.so", &err));
    TEST_ASSERT_EQUAL_INT(-EPERM, tl_exec_object_open(&o, "/proc/self/exe", &err)); /* a link */
    char path[32];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    TEST_ASSERT_EQUAL_INT(-ENOEXEC, tl_exec_object_open(&o, path, &err));
    close(fd);
}

/* A frame of a megabyte, as compiled code has that keeps many vectors: its lowest byte is
 * touched. */
static void deep(struct tl_dev_frame *f, uint32_t warp)
{
    volatile uint8_t frame[1 << 20];
    frame[0] = (uint8_t)warp;
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    values[warp] = frame[0] + 1;
}

static void kernels_get_the_stack_that_their_code_needs(void)
{
    runs_well(sync_all, 64, 2); /* whose stacks are too small for the next */
    info.info.stack_bytes = (1 << 20) + 256;
    runs_well(deep, 64, 2);
    TEST_ASSERT_EQUAL_UINT32(1, values[0]);
    TEST_ASSERT_EQUAL_UINT32(2, values[1]);
    info.info.stack_bytes = TL_DEV_MAX_STACK + 1;
    struct tl_exec_object *none;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_exec_object_from(&none, &info.info, deep, NULL, NULL));
    info.info.stack_bytes = 0;
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_barrier_holds_every_warp_until_the_last);
    RUN_TEST(a_partial_last_warp_counts_its_own_lanes);
    RUN_TEST(barriers_in_different_places_meet);
    RUN_TEST(warps_that_return_are_not_waited_for);
    RUN_TEST(lanes_that_returned_are_not_counted);
    RUN_TEST(reductions_give_every_warp_the_result);
    RUN_TEST(named_barriers_count_threads);
    RUN_TEST(counts_are_rounded_up_to_warps);
    RUN_TEST(producers_arrive_and_consumers_wait);
    RUN_TEST(lanes_of_one_warp_may_come_one_after_the_other);
    RUN_TEST(an_exit_that_nobody_announced_is_noticed);
    RUN_TEST(threads_of_a_warp_may_wait_apart);
    RUN_TEST(waiting_for_nobody_is_a_fault);
    RUN_TEST(crossed_barriers_are_a_fault);
    RUN_TEST(waiting_for_lanes_of_the_own_warp_is_told_as_such);
    RUN_TEST(barriers_out_of_range_are_faults);
    RUN_TEST(one_barrier_with_two_counts_is_a_fault);
    RUN_TEST(a_trap_tells_where);
    RUN_TEST(blocks_that_wait_for_each_other_run_side_by_side);
    RUN_TEST(a_loop_with_a_barrier_may_wait_for_another_block);
    RUN_TEST(claimed_blocks_are_begun_while_others_spin);
    RUN_TEST(warps_may_spin_on_each_other);
    RUN_TEST(every_block_of_a_grid_runs_once_with_its_own_number);
    RUN_TEST(kernels_without_barriers_get_ranges);
    RUN_TEST(units_serve_both_kinds_in_turn);
    RUN_TEST(a_worker_that_is_asked_to_stop_finishes_its_blocks);
    RUN_TEST(numbers_that_make_no_sense_are_refused);
    RUN_TEST(kernels_get_the_stack_that_their_code_needs);
    return UNITY_END();
}

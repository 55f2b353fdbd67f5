/* Kernels that wait for each other's blocks on one SM, in turn: each block that was begun goes on,
 * as on a GPU, where they share the SM. */
#include "device/exec/internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

/* Shared by processes. */
static struct board {
    atomic_uint step, n_done;
} * board;
static char name[64];
static struct tl_exec_device *device;

union kernel {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 64]; /* for its text */
};

void setUp(void)
{
    static uint32_t n;
    snprintf(name, sizeof name, "tally-test-lend-%d-%u", (int)getpid(), n++);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(board != MAP_FAILED);
}

void tearDown(void)
{
    tl_exec_device_close(device);
    device = NULL;
    tl__sm_unlink(name);
    munmap(board, sizeof *board);
}

/* One SM with room for so many blocks. */
static void open_device(uint32_t room)
{
    struct tl_error err;
    struct tl_exec_config config = {.name = name, .n_slots = 1, .blocks_per_sm = room};
    int rc = tl_exec_device_open(&device, &config, &err);
    TEST_ASSERT_EQUAL_STRING("", rc < 0 ? err.text : "");
}

static void on_done(struct tl_exec_launch *l)
{
    (void)l;
    atomic_fetch_add(&board->n_done, 1);
}

/* Block 0 of kernel `parity` (0 or 1) takes every second step of TALK, the other blocks wait for
 * the end. */
enum { TALK = 12 };
static void talk(struct tl_dev_frame *f, uint32_t warp, uint32_t parity)
{
    for (uint32_t i = parity; i < TALK && f->ctaid[0] == 0; i += 2) {
        while (atomic_load(&board->step) != i)
            f->calls->yield(f, warp);
        atomic_store(&board->step, i + 1);
    }
    while (atomic_load(&board->step) < TALK)
        f->calls->yield(f, warp);
}

static void talk_first(struct tl_dev_frame *f, uint32_t warp)
{
    talk(f, warp, 0);
}

static void talk_second(struct tl_dev_frame *f, uint32_t warp)
{
    talk(f, warp, 1);
}

static void submit(union kernel *k, struct tl_exec_launch *l, tl_exec_warp_fn warp, uint32_t blocks)
{
    struct tl_exec_object *o = NULL;
    memset(k, 0, sizeof *k);
    k->info = (struct tl_dev_info){
        .abi_version = TL_DEV_ABI_VERSION, .block = {32, 1, 1}, .n_barriers = 1};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &k->info, warp, NULL, NULL));
    *l = (struct tl_exec_launch){.object = o, .grid = {blocks, 1, 1}, .done = on_done};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, l));
    tl_exec_object_unref(o); /* the launch has its own */
}

static void both_in_one_process(uint32_t room, uint32_t first, uint32_t second)
{
    union kernel k[2];
    static struct tl_exec_launch l[2];
    open_device(room);
    submit(&k[0], &l[0], talk_first, first);
    submit(&k[1], &l[1], talk_second, second);
    while (atomic_load(&board->n_done) < 2)
        sched_yield();
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l[0].fault.what, l[0].fault.text);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l[1].fault.what, l[1].fault.text);
    TEST_ASSERT_EQUAL_UINT32(TALK, atomic_load(&board->step));
}

static void two_kernels_talk(void)
{
    both_in_one_process(4, 1, 1);
}

static void two_kernels_talk_on_an_sm_that_they_fill(void)
{
    both_in_one_process(4, 2, 2);
}

static void the_second_has_more_blocks_than_there_is_room_for(void)
{
    both_in_one_process(4, 1, 40);
}

static void kernels_of_two_processes_talk(void)
{
    union kernel k;
    static struct tl_exec_launch l;
    int status;
    fflush(NULL);
    pid_t pid = fork(); /* before there is a device to inherit */
    open_device(3);     /* whoever comes first leaves room for the other */
    submit(&k, &l, pid == 0 ? talk_second : talk_first, pid == 0 ? 2 : 1);
    while (atomic_load(&board->n_done) < 2)
        sched_yield();
    if (pid == 0) {
        tl_exec_device_close(device);
        _exit(l.fault.what != 0);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_EQUAL_INT(0, status);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l.fault.what, l.fault.text);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(two_kernels_talk);
    RUN_TEST(two_kernels_talk_on_an_sm_that_they_fill);
    RUN_TEST(the_second_has_more_blocks_than_there_is_room_for);
    RUN_TEST(kernels_of_two_processes_talk);
    return UNITY_END();
}

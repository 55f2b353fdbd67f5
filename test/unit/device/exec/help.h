/* Several processes on one device: children that tell what they saw, and what they launch.
 *
 * Children tell it through their exit status and through `board`, memory that all of them share. */
#ifndef TALLY_TEST_EXEC_HELP_H
#define TALLY_TEST_EXEC_HELP_H

#include "device/exec/internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unity.h>

#define CHILDREN 4

static struct board {
    atomic_uint ready, go, inside[256], overlaps, n_log, log[256], total, count[CHILDREN];
} * board;
static char name[64];
static pid_t children[CHILDREN];
static uint32_t n_tests;

void setUp(void)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(board != MAP_FAILED);
    snprintf(name, sizeof name, "tally-test-sm-%d-%u", (int)getpid(), n_tests++);
    memset(children, 0, sizeof children);
}

void tearDown(void)
{
    for (uint32_t i = 0; i < CHILDREN; i++) {
        if (children[i] > 0) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
    }
    tl__sm_unlink(name);
    munmap(board, sizeof *board);
}

static inline struct tl__sm *join(uint32_t n_slots, enum tl_exec_mode mode)
{
    struct tl__sm_config config = {name, n_slots, mode, 1000, 2000, false, false};
    struct tl__sm *s = NULL;
    return tl__sm_open(&s, &config, NULL) == 0 ? s : NULL;
}

/* Runs `body(i)` in a child. */
static inline void start(uint32_t i, void (*body)(uint32_t i))
{
    pid_t pid = fork();
    TEST_ASSERT_TRUE(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body(i);
        _exit(0);
    }
    children[i] = pid;
}

static inline void ends_well(uint32_t i)
{
    int status = -1;
    TEST_ASSERT_EQUAL_INT(children[i], waitpid(children[i], &status, 0));
    children[i] = 0;
    TEST_ASSERT_EQUAL_HEX(0, status);
}

static inline void kill_child(uint32_t i)
{
    kill(children[i], SIGKILL);
}

static inline void reap(uint32_t i)
{
    waitpid(children[i], NULL, 0);
    children[i] = 0;
}

static inline void expect(bool is_true, int status)
{
    if (!is_true)
        _exit(status);
}

static inline void wait_for(const atomic_uint *word, uint32_t value)
{
    while (atomic_load(word) < value)
        sched_yield();
}

static inline uint32_t acquire(struct tl__sm *s)
{
    int slot;
    while ((slot = tl__sm_acquire_or_wait(s, 0)) < 0)
        ;
    return (uint32_t)slot;
}

/* --- launches */

static union {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 32];
} info __attribute__((unused)) = {.info = {.abi_version = TL_DEV_ABI_VERSION, .block = {32, 1, 1}}};

/* Some 100 us of work on any machine, all of it processor time. */
static inline void burn(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f, (void)first;
    for (volatile uint32_t i = 0; i < 40000 * count; i++)
        ;
}

/* Submits itself again, so that what is measured is the device and not the program's own thread. */
struct load {
    struct tl_exec_launch launch;
    struct tl_exec_device *device;
    uint32_t child;
    atomic_bool is_over;
};

static inline void mark_over(struct tl_exec_launch *l)
{
    atomic_store((atomic_bool *)l->user, true);
}

#endif

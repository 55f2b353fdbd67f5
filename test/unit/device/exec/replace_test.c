/* A launch under way goes on with another object of the same kernel. */
#include "device/exec/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

enum { SLOTS = 2, BLOCKS = 5000, WARPS = 4 };

static char name[64];
static struct tl_exec_device *device;
static atomic_uint by_first[BLOCKS], by_second[BLOCKS], n_done;
static atomic_bool may_go;

union kernel {
    struct tl_dev_info info;
    uint8_t room[sizeof(struct tl_dev_info) + 64]; /* for its text */
};

void setUp(void)
{
    static uint32_t n;
    struct tl_error err;
    snprintf(name, sizeof name, "tally-test-replace-%d-%u", (int)getpid(), n++);
    struct tl_exec_config config = {.name = name, .n_slots = SLOTS};
    int rc = tl_exec_device_open(&device, &config, &err);
    TEST_ASSERT_EQUAL_STRING("", rc < 0 ? err.text : "");
    atomic_store(&n_done, 0);
    atomic_store(&may_go, false);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        atomic_store(&by_first[i], 0);
        atomic_store(&by_second[i], 0);
    }
}

void tearDown(void)
{
    tl_exec_device_close(device);
    tl__sm_unlink(name);
}

static struct tl_exec_object *object(union kernel *k, const char *text, size_t n,
                                     tl_exec_warp_fn warp, tl_exec_blocks_fn blocks)
{
    struct tl_exec_object *o = NULL;
    memset(k, 0, sizeof *k);
    k->info = (struct tl_dev_info){.abi_version = TL_DEV_ABI_VERSION,
                                   .block = {32 * WARPS, 1, 1},
                                   .n_barriers = blocks == NULL,
                                   .n_variables = n > strlen(text) + 1};
    memcpy(k->room + sizeof k->info, text, n);
    TEST_ASSERT_EQUAL_INT(0, tl_exec_object_from(&o, &k->info, warp, blocks, NULL));
    return o;
}

static void on_done(struct tl_exec_launch *l)
{
    (void)l;
    atomic_fetch_add(&n_done, 1);
}

static void submit(struct tl_exec_launch *l, struct tl_exec_object *o)
{
    *l = (struct tl_exec_launch){.object = o, .grid = {BLOCKS, 1, 1}, .done = on_done};
    TEST_ASSERT_EQUAL_INT(0, tl_exec_submit(device, l));
}

/* --- kernels: the first object's blocks stay until they may go */

static void note_first(uint32_t block)
{
    atomic_fetch_add(&by_first[block], 1);
    while (!atomic_load(&may_go))
        sched_yield();
}

static void first_blocks(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f;
    for (uint32_t i = 0; i < count; i++)
        note_first(first + i);
}

static void second_blocks(struct tl_dev_frame *f, uint32_t first, uint32_t count)
{
    (void)f;
    for (uint32_t i = 0; i < count; i++)
        atomic_fetch_add(&by_second[first + i], 1);
}

static void first_warps(struct tl_dev_frame *f, uint32_t warp)
{
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    if (warp == 0)
        note_first(f->ctaid[0]);
}

static void second_warps(struct tl_dev_frame *f, uint32_t warp)
{
    f->calls->barrier(f, warp, 0, 0, 0, UINT32_MAX, 0);
    if (warp == WARPS - 1)
        atomic_fetch_add(&by_second[f->ctaid[0]], 1);
}

/* --- tests */

static void replace_in_the_middle(struct tl_exec_object *a, struct tl_exec_object *b)
{
    struct tl_exec_launch l;
    submit(&l, a);
    while (atomic_load(&by_first[0]) == 0)
        sched_yield();
    TEST_ASSERT_TRUE(tl_exec_running_ns(device, &l) > 0);
    TEST_ASSERT_EQUAL_INT(0, tl_exec_replace(device, &l, b));
    TEST_ASSERT_EQUAL_INT(-EEXIST, tl_exec_replace(device, &l, b));
    tl_exec_object_unref(b); /* the launch keeps both */
    tl_exec_object_unref(a);
    atomic_store(&may_go, true);
    while (atomic_load(&n_done) == 0)
        sched_yield();
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, l.fault.what, l.fault.text);
    TEST_ASSERT_EQUAL_UINT64(0, tl_exec_running_ns(device, &l));
    uint32_t n_first = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        TEST_ASSERT_EQUAL_UINT32(1, atomic_load(&by_first[i]) + atomic_load(&by_second[i]));
        n_first += atomic_load(&by_first[i]);
    }
    TEST_ASSERT_TRUE(n_first <= SLOTS);
}

static void blocks_that_are_not_claimed_run_the_other_one(void)
{
    union kernel k[2];
    replace_in_the_middle(object(&k[0], "k", 2, NULL, first_blocks),
                          object(&k[1], "k", 2, NULL, second_blocks));
}

static void so_do_blocks_with_barriers(void)
{
    union kernel k[2];
    replace_in_the_middle(object(&k[0], "k", 2, first_warps, NULL),
                          object(&k[1], "k", 2, second_warps, NULL));
}

static void one_may_have_barriers_and_the_other_none(void)
{
    union kernel k[2];
    replace_in_the_middle(object(&k[0], "k", 2, first_warps, NULL),
                          object(&k[1], "k", 2, NULL, second_blocks));
}

static void what_is_another_kernel_is_refused(void)
{
    union kernel k[6];
    struct tl_exec_launch l;
    struct tl_exec_object *a = object(&k[0], "k\0x\0y", 6, NULL, first_blocks), *wrong[5];
    k[0].info.n_variables = 2;
    wrong[0] = object(&k[1], "j\0x\0y", 6, NULL, second_blocks);
    wrong[1] = object(&k[2], "k\0y\0x", 6, NULL, second_blocks);
    for (int i = 0; i < 2; i++)
        k[1 + i].info.n_variables = 2;
    wrong[2] = object(&k[3], "k\0x", 4, NULL, second_blocks);
    for (int i = 3; i < 5; i++) {
        wrong[i] = object(&k[1 + i], "k\0x\0y", 6, NULL, second_blocks);
        k[1 + i].info.n_variables = 2;
    }
    k[4].info.block[0] = 32;
    k[5].info.shared_bytes = 64;
    submit(&l, a);
    while (atomic_load(&by_first[0]) == 0)
        sched_yield();
    for (int i = 0; i < 5; i++)
        TEST_ASSERT_EQUAL_INT_MESSAGE(-EINVAL, tl_exec_replace(device, &l, wrong[i]),
                                      "another kernel took the place");
    atomic_store(&may_go, true);
    while (atomic_load(&n_done) == 0)
        sched_yield();
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_exec_replace(device, &l, a));
    for (int i = 0; i < 5; i++)
        tl_exec_object_unref(wrong[i]);
    tl_exec_object_unref(a);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(blocks_that_are_not_claimed_run_the_other_one);
    RUN_TEST(so_do_blocks_with_barriers);
    RUN_TEST(one_may_have_barriers_and_the_other_none);
    RUN_TEST(what_is_another_kernel_is_refused);
    return UNITY_END();
}

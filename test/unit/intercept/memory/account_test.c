/* The account against a model that keeps everything in lists. */
#include "intercept/memory/account.h"
#include "unity.h"

#include <stdlib.h>
#include <string.h>

static struct tl_account a;
static uint64_t lost_bytes[TL_ACCOUNT_DEVICES];

void setUp(void)
{
    a = (struct tl_account){0};
    memset(lost_bytes, 0, sizeof lost_bytes);
}

void tearDown(void)
{
    tl_account_finish(&a);
}

static void lose(void *data, struct tl_account_lost lost)
{
    (void)data;
    lost_bytes[lost.device] += lost.bytes;
}

static void add(enum tl_account_kind kind, uint64_t key, uint64_t bytes, unsigned device, void *ctx)
{
    struct tl_account_lost lost;
    TEST_ASSERT_EQUAL_INT(0, tl_account_add(&a, kind, key, bytes, device, ctx, &lost));
    TEST_ASSERT_EQUAL_UINT64(0, lost.bytes);
}

static void physical_memory_lives_while_it_has_a_handle_or_a_mapping(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_account_create(&a, 7, 4096, 0));
    TEST_ASSERT_EQUAL_INT(0, tl_account_map(&a, 0x10000, 4096, 7));
    TEST_ASSERT_EQUAL_UINT64(0, tl_account_release(&a, 7).bytes);
    TEST_ASSERT_EQUAL_UINT64(4096, tl_account_held(&a, 0));
    tl_account_retain(&a, 9, 0x10800);
    tl_account_unmap(&a, 0x10000, 4096, lose, NULL);
    TEST_ASSERT_EQUAL_UINT64(0, lost_bytes[0]);
    TEST_ASSERT_EQUAL_UINT64(4096, tl_account_release(&a, 9).bytes);
    TEST_ASSERT_EQUAL_UINT64(0, tl_account_held(&a, 0));
}

static void a_number_of_a_released_handle_may_come_again(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_account_create(&a, 7, 4096, 0));
    TEST_ASSERT_EQUAL_INT(0, tl_account_map(&a, 0x10000, 4096, 7));
    tl_account_release(&a, 7);
    TEST_ASSERT_EQUAL_INT(0, tl_account_create(&a, 7, 8192, 0));
    tl_account_unmap(&a, 0x10000, 4096, lose, NULL);
    TEST_ASSERT_EQUAL_UINT64(4096, lost_bytes[0]);
    TEST_ASSERT_EQUAL_UINT64(8192, tl_account_release(&a, 7).bytes);
}

static void handles_of_other_processes_count_nothing(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_account_map(&a, 0x10000, 4096, 3));
    TEST_ASSERT_EQUAL_UINT64(0, tl_account_release(&a, 3).bytes);
    tl_account_unmap(&a, 0x10000, 4096, lose, NULL);
    TEST_ASSERT_EQUAL_UINT64(0, lost_bytes[0]);
}

static void a_context_takes_its_memory_with_it_and_no_pool(void)
{
    int one, two;
    add(TL_MEM_POINTER, 1, 512, 0, &one);
    add(TL_MEM_ARRAY, 1, 1024, 0, &one);
    add(TL_MEM_POOLED, 2, 2048, 0, &one);
    add(TL_MEM_POINTER, 3, 4096, 1, &two);
    TEST_ASSERT_EQUAL_INT(0, tl_account_create(&a, 5, 8192, 0));
    tl_account_context_gone(&a, &one, lose, NULL);
    TEST_ASSERT_EQUAL_UINT64(1536, lost_bytes[0]);
    TEST_ASSERT_EQUAL_UINT64(2048 + 8192, tl_account_held(&a, 0));
    TEST_ASSERT_EQUAL_UINT64(4096, tl_account_held(&a, 1));
}

static void what_comes_to_the_same_place_replaces_what_went_without_a_word(void)
{
    struct tl_account_lost lost;
    add(TL_MEM_POINTER, 1, 512, 0, NULL);
    TEST_ASSERT_EQUAL_INT(0, tl_account_add(&a, TL_MEM_POINTER, 1, 1024, 0, NULL, &lost));
    TEST_ASSERT_EQUAL_UINT64(512, lost.bytes);
    TEST_ASSERT_EQUAL_UINT64(1024, tl_account_held(&a, 0));
}

static void sizes_are_what_they_take(void)
{
    TEST_ASSERT_EQUAL_UINT64(512, tl_account_round(1));
    TEST_ASSERT_EQUAL_UINT64(512, tl_account_round(512));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, tl_account_round(UINT64_MAX));
    TEST_ASSERT_EQUAL_UINT64(4096, tl_account_array(64, 16, 0, 4, 1));
    TEST_ASSERT_EQUAL_UINT64(4096 + 1024 + 512, tl_account_array(64, 16, 0, 4, 3));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, tl_account_array(UINT64_MAX, 2, 2, 4, 1));
    TEST_ASSERT_EQUAL_UINT64(0, tl_account_array(0, 2, 2, 4, 1));
}

/* --- a random walk ---------------------------------------------------------------------------- */

enum { THINGS = 512, STEPS = 200000 };

/* A thing is there or not; physical ones have handles and mappings. */
static struct thing {
    bool is_there;
    enum tl_account_kind kind;
    uint64_t bytes, handle;
    unsigned device, handles, mappings;
    void *context;
} things[THINGS];
static int contexts[4];

static uint64_t model_of(unsigned device)
{
    uint64_t sum = 0;
    for (int i = 0; i < THINGS; i++)
        if (things[i].is_there && things[i].device == device)
            sum += things[i].bytes;
    return sum;
}

/* Mappings of thing i lie at (i + 1) << 32, a page apart. */
static uint64_t address_of(int i, unsigned mapping)
{
    return ((uint64_t)i + 1) << 32 | (uint64_t)mapping << 13;
}

static void come(int i)
{
    struct thing *t = &things[i];
    *t = (struct thing){.is_there = true,
                        .kind = (enum tl_account_kind)(rand() % TL_MEM_KINDS),
                        .bytes = (uint64_t)(1 + rand() % 64) * 512,
                        .device = (unsigned)rand() % 3,
                        .context = &contexts[rand() % 4]};
    if (t->kind == TL_MEM_HANDLE) {
        t->handles = 1;
        t->handle = (uint64_t)i + 1;
        TEST_ASSERT_EQUAL_INT(0, tl_account_create(&a, t->handle, t->bytes, t->device));
    } else {
        add(t->kind, (uint64_t)i + 1, t->bytes, t->device, t->context);
    }
}

static void step_physical(int i)
{
    struct thing *t = &things[i];
    switch (rand() % 4) {
    case 0:
        if (t->handles > 0) {
            TEST_ASSERT_EQUAL_INT(0,
                                  tl_account_map(&a, address_of(i, t->mappings), 8192, t->handle));
            t->mappings++;
        }
        break;
    case 1:
        if (t->mappings > 0) {
            t->mappings--;
            tl_account_unmap(&a, address_of(i, t->mappings), 8192, lose, NULL);
        }
        break;
    case 2:
        if (t->mappings > 0) {
            tl_account_retain(&a, t->handle, address_of(i, 0) + 100);
            t->handles++;
        }
        break;
    default:
        if (t->handles > 0) {
            tl_account_release(&a, t->handle);
            t->handles--;
        }
    }
    t->is_there = t->handles > 0 || t->mappings > 0;
}

static void a_long_random_walk_agrees_with_the_model(void)
{
    srand(20261118);
    for (int step = 0; step < STEPS; step++) {
        int i = rand() % THINGS;
        struct thing *t = &things[i];
        if (!t->is_there) {
            come(i);
        } else if (t->kind == TL_MEM_HANDLE) {
            step_physical(i);
        } else {
            void *context = NULL;
            struct tl_account_lost lost = tl_account_remove(&a, t->kind, (uint64_t)i + 1, &context);
            TEST_ASSERT_EQUAL_UINT64(t->bytes, lost.bytes);
            TEST_ASSERT_EQUAL_PTR(t->context, context);
            t->is_there = false;
        }
        if (step % 5000 == 0) {
            void *context = &contexts[rand() % 4];
            tl_account_context_gone(&a, context, lose, NULL);
            for (int k = 0; k < THINGS; k++)
                if (things[k].context == context && things[k].kind != TL_MEM_POOLED &&
                    things[k].kind != TL_MEM_HANDLE)
                    things[k].is_there = false;
        }
        if (step % 97 == 0)
            for (unsigned d = 0; d < 3; d++)
                TEST_ASSERT_EQUAL_UINT64(model_of(d), tl_account_held(&a, d));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(physical_memory_lives_while_it_has_a_handle_or_a_mapping);
    RUN_TEST(a_number_of_a_released_handle_may_come_again);
    RUN_TEST(handles_of_other_processes_count_nothing);
    RUN_TEST(a_context_takes_its_memory_with_it_and_no_pool);
    RUN_TEST(what_comes_to_the_same_place_replaces_what_went_without_a_word);
    RUN_TEST(sizes_are_what_they_take);
    RUN_TEST(a_long_random_walk_agrees_with_the_model);
    return UNITY_END();
}

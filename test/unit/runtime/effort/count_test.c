/* Counters of kernels in pieces: what launches are told of them, and what the host learns, against
 * a model of what blocks and workers do with the word that they are given. */
#include "runtime/effort/count.h"

#include <string.h>
#include <unity.h>

#include "runtime/effort/real.h"
#include "runtime/effort/stream.h"
#include "runtime/effort/supply.h"
#include "runtime/effort/variant.h"
#include "test/unit/runtime/effort/facts.h"

static _Alignas(64) uint64_t device_word;
static _Alignas(64) _Atomic uint64_t host_words[8];
static const uint64_t zeros[8];
static struct tl_eff_context context;
static struct tl_eff_control control;
static uint32_t n_copies;

static void *at(CUdeviceptr p)
{
    return (void *)(uintptr_t)p; /* NOLINT(performance-no-int-to-ptr) */
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    (void)stream;
    n_copies++;
    memcpy(at(to), from, n);
    return CUDA_SUCCESS;
}

static CUresult copy_out(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    (void)stream;
    n_copies++;
    memcpy(to, at(from), n);
    return CUDA_SUCCESS;
}

void setUp(void)
{
    tl_eff_real.cuMemcpyHtoDAsync_v2 = copy_in;
    tl_eff_real.cuMemcpyDtoHAsync_v2 = copy_out;
    context = (struct tl_eff_context){.zeros = zeros};
    control = (struct tl_eff_control){.word = host_words,
                                      .told = (uintptr_t)host_words,
                                      .device = (uintptr_t)&device_word,
                                      .is_unknown = true};
    device_word = any(UINT64_MAX); /* it may say anything at first */
    n_copies = 0;
}

void tearDown(void)
{
}

/* One atomic on the counter's word, as variants make it: the old value. */
static uint64_t add(const struct tl_eff_extra *x, uint32_t numbers, uint32_t leaving)
{
    uint64_t *word = at(x->counter - 4), old = *word;
    *word += (uint64_t)numbers << 32 | leaving;
    return old;
}

/* Who makes the number of those that have left what it is at the end stores what the counter
 * says. */
static void leave(const struct tl_eff_extra *x, uint64_t old, uint32_t numbers)
{
    if (x->told != 0 && (uint32_t)old + 1 == x->left_end)
        *(uint32_t *)at(x->told) = (uint32_t)(old >> 32) + numbers - x->base;
}

/* A launch of which some are told to stop; `next` is the number that must come next. */
static void run(const struct tl_eff_extra *x, bool is_ticket, uint32_t grid, uint32_t batch,
                uint32_t end, uint32_t *next)
{
    uint32_t leaving = x->told != 0, stop_after = (uint32_t)any(2 * (uint64_t)grid + 2);
    for (uint32_t i = 0; i < grid; i++) {
        bool stops = i >= stop_after;
        while (!is_ticket && !stops) {
            uint32_t number = (uint32_t)(add(x, batch, 0) >> 32) - x->base;
            TEST_ASSERT_EQUAL_UINT32(*next, number);
            *next += batch;
            if (number + batch > end)
                break;
            stops = any(8) == 0;
        }
        if (is_ticket && !stops) {
            uint64_t old = add(x, 1, leaving);
            TEST_ASSERT_EQUAL_UINT32((*next)++, (uint32_t)(old >> 32) - x->base);
            leave(x, old, 1);
        } else if (leaving) {
            leave(x, add(x, 0, 1), 0);
        }
    }
}

static uint32_t left_half(void)
{
    return (uint32_t)device_word;
}

/* A kernel from its first piece to its last, stopped at random, on the control that many kernels
 * before had.  The rung may change where it was stopped. */
static void run_kernel(void)
{
    uint32_t blocks = 1 + (uint32_t)any_size(9), done = 0;
    while (done < blocks) {
        bool is_ticket = any(2) == 0;
        uint32_t batch = is_ticket || done % 4 != 0 ? 1 : 4, next = done;
        tl_eff_count_begin(&context, &control, is_ticket ? TL_RUNG_TICKET : TL_RUNG_PERSISTENT,
                           done, blocks);
        TEST_ASSERT_EQUAL_UINT64(control.told, control.asked);
        for (uint32_t piece = 0; piece < (is_ticket ? 2 : 1); piece++) {
            struct tl_eff_extra x = {0};
            uint32_t grid = 1 + (uint32_t)any(is_ticket ? blocks - done : 6);
            tl_eff_count_args(&control, grid, true, &x);
            if (any(10) == 0) {
                tl_eff_count_refused(&control, grid);
                continue;
            }
            TEST_ASSERT_EQUAL(CUDA_SUCCESS, tl_eff_count_before(&context, &control, true, NULL));
            run(&x, is_ticket, grid, batch, blocks, &next);
            TEST_ASSERT_EQUAL(CUDA_SUCCESS, tl_eff_count_behind(&control, NULL));
            TEST_ASSERT_EQUAL_UINT32(x.left_end, left_half());
        }
        uint32_t taken = tl_eff_count_end(&control);
        TEST_ASSERT_EQUAL_UINT32(next, taken);
        done = taken < blocks ? taken : blocks;
    }
}

static void by_epochs_the_host_learns_all_and_nothing_is_copied(void)
{
    for (int i = 0; i < 20000; i++)
        run_kernel();
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, n_copies, "the word was zeroed when it was first used");
}

/* The counter may overflow, which nobody notices; who has left must not, into the counter. */
static void it_begins_anew_before_those_who_left_overflow(void)
{
    run_kernel();
    control.left = 0x7fffffff;
    device_word = (uint64_t)control.counter << 32 | control.left;
    n_copies = 0;
    run_kernel();
    TEST_ASSERT_EQUAL_UINT32(1, n_copies);
    TEST_ASSERT_TRUE(left_half() < 1 << 24);
    control.counter = UINT32_MAX - 3;
    device_word = (uint64_t)control.counter << 32 | control.left;
    for (int i = 0; i < 100; i++)
        run_kernel();
    TEST_ASSERT_EQUAL_UINT32(1, n_copies);
}

/* What runs beside others of its kernel does not tell; its counter is fetched, beside the word. */
static void what_runs_beside_is_fetched(void)
{
    struct tl_eff_extra stuck = {0}, beside = {0};
    run_kernel();
    tl_eff_count_begin(&context, &control, TL_RUNG_TICKET, 0, 100);
    tl_eff_count_args(&control, 10, true, &stuck);
    tl_eff_count_args(&control, 90, false, &beside);
    TEST_ASSERT_EQUAL_UINT64(0, beside.told);
    TEST_ASSERT_EQUAL_UINT32(stuck.base, beside.base);
    n_copies = 0;
    for (uint32_t i = 0; i < 90; i++)
        leave(&beside, add(&beside, 1, 0), 1);
    for (uint32_t i = 0; i < 10; i++)
        leave(&stuck, add(&stuck, 1, 1), 1);
    uint64_t word = host_words[0];
    TEST_ASSERT_EQUAL(CUDA_SUCCESS, tl_eff_count_fetch(&control, NULL));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(word, host_words[0], "who stands behind it is not misled");
    TEST_ASSERT_EQUAL_UINT32(100, tl_eff_count_end(&control));
    TEST_ASSERT_EQUAL_UINT32(1, n_copies);
    run_kernel();
    TEST_ASSERT_EQUAL_UINT32(1, n_copies);
}

/* A gate's word is set and fetched by copies, and what epochs know of it is void then. */
static void a_gate_is_counted_by_copies(void)
{
    struct tl_eff_extra x = {0};
    run_kernel();
    n_copies = 0;
    tl_eff_count_begin(&context, &control, TL_RUNG_GATE, 7, 50);
    TEST_ASSERT_EQUAL_UINT64(control.device, control.asked);
    tl_eff_count_args(&control, 50, true, &x);
    TEST_ASSERT_TRUE(x.told == 0 && x.base == 0);
    TEST_ASSERT_EQUAL(CUDA_SUCCESS, tl_eff_count_before(&context, &control, true, NULL));
    TEST_ASSERT_EQUAL_UINT64((uint64_t)7 << 32 | 50, device_word);
    device_word = (uint64_t)50 << 32 | 50;
    TEST_ASSERT_EQUAL(CUDA_SUCCESS, tl_eff_count_behind(&control, NULL));
    TEST_ASSERT_EQUAL_UINT32(50, tl_eff_count_end(&control));
    TEST_ASSERT_EQUAL_UINT32(2, n_copies);
    run_kernel();
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(3, n_copies, "zeroed");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(by_epochs_the_host_learns_all_and_nothing_is_copied);
    RUN_TEST(it_begins_anew_before_those_who_left_overflow);
    RUN_TEST(what_runs_beside_is_fetched);
    RUN_TEST(a_gate_is_counted_by_copies);
    return UNITY_END();
}

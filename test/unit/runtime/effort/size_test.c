/* Decisions about the sizes of pieces: invariants over many random facts, and tables. */
#include "runtime/effort/plan.h"

#include <unity.h>

#include "test/unit/runtime/effort/facts.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* --- sizes: invariants ------------------------------------------------------------------------ */

static void a_piece_has_blocks_and_no_more_than_are_left(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        struct tl_eff_size size = tl_eff_plan_size(&f);
        TEST_ASSERT_TRUE(size.blocks >= 1 && size.blocks <= f.blocks - f.launched);
        TEST_ASSERT_TRUE(size.batch >= 1 && size.batch <= 64);
        TEST_ASSERT_EQUAL_MESSAGE(0, size.batch & (size.batch - 1), "it is used as a mask");
        TEST_ASSERT_EQUAL_MESSAGE(0, f.done % size.batch, "a batch begins at a multiple");
        if (f.rung != TL_RUNG_PERSISTENT)
            TEST_ASSERT_EQUAL(1, size.batch);
    }
}

/* Blocks that share an SM while all are at work: what the driver says that it holds, of the variant
 * or else of the original, but for small grids. */
static uint64_t true_beside(const struct tl_eff_facts *f)
{
    uint64_t sms = tl_eff_plan_sms(f), each = (f->blocks + sms - 1) / sms;
    uint64_t most = f->occupancy != 0 ? f->occupancy : f->resident != 0 ? f->resident : 32;
    return f->runs_block_by_block ? 1 : most < each ? most : each;
}

/* A device that is full of blocks does as many of them in a wave as it has SMs.  So each of them
 * takes as many waves as there are blocks on its SM. */
static void a_block_takes_as_many_waves_as_there_are_blocks_on_its_sm(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        uint64_t beside = tl_eff_plan_beside(&f), wave_ns = any_size(30);
        TEST_ASSERT_EQUAL_UINT64(true_beside(&f), beside);
        TEST_ASSERT_EQUAL_UINT64(wave_ns * beside, tl_eff_plan_block_ns(&f, wave_ns));
        /* Little's law: workers at once = blocks per time, times what a block takes. */
        f.rung = TL_RUNG_PERSISTENT;
        uint64_t workers = tl_eff_plan_workers(&f, f.blocks), sms = tl_eff_plan_sms(&f);
        if (workers == sms * beside)
            TEST_ASSERT_EQUAL_UINT64(workers * wave_ns, sms * tl_eff_plan_block_ns(&f, wave_ns));
        f.runs_block_by_block = true;
        TEST_ASSERT_EQUAL_UINT64(1, tl_eff_plan_beside(&f));
    }
    struct tl_eff_facts f = {.sms = 1, .occupancy = 32, .blocks = 100};
    TEST_ASSERT_TRUE_MESSAGE(tl_eff_plan_block_ns(&f, UINT64_MAX / 3) > UINT64_MAX / 3,
                             "no product overflows");
}

static void pieces_of_known_length_keep_to_the_budget(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.is_chained = false;
        f.rung = TL_RUNG_SLICE;
        if (tl_eff_plan_is_trial(&f) || !f.has_profile || f.rungs[TL_RUNG_SLICE].wave_ns == 0)
            continue;
        uint64_t sms = tl_eff_plan_sms(&f), blocks = tl_eff_plan_size(&f).blocks;
        uint64_t waves = (blocks + sms - 1) / sms;
        if (waves <= 1)
            continue; /* less than a wave would leave SMs idle */
        TEST_ASSERT_TRUE(waves * f.rungs[TL_RUNG_SLICE].wave_ns <= f.turnaround_ns / 2);
        /* Also if a block takes as long as on a full SM, however many others are there. */
        uint64_t beside = true_beside(&f), rounds = (waves + beside - 1) / beside;
        if (waves > beside && blocks < f.blocks - f.launched)
            TEST_ASSERT_TRUE(rounds * beside * f.rungs[TL_RUNG_SLICE].wave_ns <=
                             f.turnaround_ns / 2);
    }
}

static void a_longer_budget_never_makes_smaller_pieces(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts(), longer = f;
        longer.turnaround_ns += any_size(35);
        TEST_ASSERT_TRUE(tl_eff_plan_size(&longer).blocks >= tl_eff_plan_size(&f).blocks);
        if (tl_eff_plan_may_follow(&f))
            TEST_ASSERT_TRUE(tl_eff_plan_may_follow(&longer));
    }
}

static void a_batch_is_no_longer_than_it_takes_to_leave(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.rung = TL_RUNG_PERSISTENT;
        f.launched = f.done;
        uint32_t batch = tl_eff_plan_size(&f).batch;
        if (batch == 1)
            continue;
        TEST_ASSERT_FALSE(f.takes_singly);
        uint64_t ns = f.wave_ns != 0 ? f.wave_ns : f.rungs[TL_RUNG_PERSISTENT].wave_ns;
        TEST_ASSERT_TRUE(ns != 0 && batch * true_beside(&f) * ns <= 8 * US);
        /* and each worker takes several */
        uint64_t workers = tl_eff_plan_workers(&f, f.blocks);
        TEST_ASSERT_TRUE((uint64_t)batch * 8 * workers <= f.blocks - f.done);
    }
}

static void workers_fit_on_the_granted_sms_and_have_something_to_do(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.rung = TL_RUNG_PERSISTENT;
        f.launched = f.done;
        struct tl_eff_size size = tl_eff_plan_size(&f);
        uint32_t n = tl_eff_plan_workers(&f, size.blocks);
        TEST_ASSERT_TRUE(n >= 1 && n <= size.blocks);
        TEST_ASSERT_TRUE(n <= tl_eff_plan_sms(&f) * true_beside(&f));
    }
}

/* Workers as the rewritten kernel has them: they take batches until one begins behind the end. */
static void the_counter_ends_where_it_is_expected(void)
{
    for (int i = 0; i < 2000; i++) {
        struct tl_eff_facts f = any_facts();
        f.rung = TL_RUNG_PERSISTENT;
        f.blocks = 1 + (uint32_t)any(3000);
        f.done = f.launched = (uint32_t)any(f.blocks);
        f.occupancy = 1 + (uint32_t)any(4);
        struct tl_eff_size size = tl_eff_plan_size(&f);
        uint32_t workers = tl_eff_plan_workers(&f, size.blocks);
        uint32_t counter = f.done, end = f.done + size.blocks, at_work = workers;
        /* A worker leaves when its batch begins behind the end, or is cut off by it. */
        while (at_work > 0) {
            uint32_t first = counter;
            counter += size.batch;
            if (first + size.batch > end)
                at_work--;
        }
        TEST_ASSERT_EQUAL_UINT32(counter, tl_eff_plan_expected(&f, size, workers));
    }
}

/* What holds blocks back is the word alone, so that one look at it tells which they are. */
static void a_gated_launch_takes_all_that_is_left(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.rung = TL_RUNG_GATE;
        f.launched = f.done;
        TEST_ASSERT_EQUAL_UINT32(f.blocks - f.done, tl_eff_plan_size(&f).blocks);
        TEST_ASSERT_EQUAL_MESSAGE(1, tl_eff_plan_at_once(&f), "two would share a word");
    }
}

/* A gated launch in bites, and what it is judged by: nothing overflows. */
static struct tl_eff_facts any_bites(void)
{
    struct tl_eff_facts f = any_facts();
    f.rung = TL_RUNG_GATE;
    f.launched = f.done;
    f.has_profile = true;
    f.leave_ns = 1 + any_size(20);
    f.skip_ns = 1 + any_size(20);
    f.wave_ns = 1 + any_size(25);
    return f;
}

static uint64_t bite_ns(const struct tl_eff_facts *f, uint32_t bite)
{
    uint64_t wave_ns = f->rungs[TL_RUNG_GATE].wave_ns != 0 ? f->rungs[TL_RUNG_GATE].wave_ns
                                                           : f->wave_ns;
    return bite / (f->sms > 0 ? f->sms : 1) * wave_ns;
}

static void a_bite_is_as_long_as_what_a_stop_costs_and_no_longer(void)
{
    uint32_t n_bites = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_bites(), patient = f;
        struct tl_eff_size size = tl_eff_plan_size(&f);
        uint64_t lost_ns = tl_eff_plan_stop_ns(&f), wave_ns = bite_ns(&f, f.sms > 0 ? f.sms : 1);
        TEST_ASSERT_TRUE(size.bite <= size.blocks);
        patient.turnaround_ns += any_size(35);
        TEST_ASSERT_TRUE(tl_eff_plan_size(&patient).bite <= size.bite);
        if (size.bite == 0) {
            TEST_ASSERT_TRUE(f.is_chained || lost_ns <= f.turnaround_ns / 2);
            continue;
        }
        n_bites++;
        TEST_ASSERT_FALSE_MESSAGE(f.is_chained, "it may have to leave without a single block");
        TEST_ASSERT_TRUE(size.bite == size.blocks || bite_ns(&f, size.bite) >= lost_ns);
        TEST_ASSERT_TRUE(bite_ns(&f, size.bite) < lost_ns + wave_ns);
    }
    TEST_ASSERT_TRUE(n_bites > ROUNDS / 100);
}

/* Stopped as soon as it begins, again and again, a kernel in bites comes to its end, and at least
 * half of its time is work. */
static void a_kernel_in_bites_ends_however_often_it_is_stopped(void)
{
    uint32_t n_ended = 0;
    for (int i = 0; i < 2000; i++) {
        struct tl_eff_facts f = any_bites();
        uint64_t worked_ns = 0, lost_ns = 0;
        f.is_chained = false;
        f.turnaround_ns = 0;
        f.blocks = 1 + (uint32_t)any(100000);
        f.done = f.launched = 0;
        for (uint32_t n = 0; f.done < f.blocks; n++) {
            TEST_ASSERT_TRUE_MESSAGE(n < 100000, "every launch is a step");
            uint32_t bite = tl_eff_plan_size(&f).bite;
            TEST_ASSERT_GREATER_THAN(0, bite);
            worked_ns += bite_ns(&f, bite);
            f.done = f.launched = f.done + bite;
            if (f.done < f.blocks) /* else nothing was stopped */
                lost_ns += tl_eff_plan_stop_ns(&f);
            n_ended += f.done == f.blocks && n > 0;
        }
        uint64_t once_ns = tl_eff_plan_leaving_ns(&f);
        f.leave_ns = f.skip_ns;
        once_ns += tl_eff_plan_leaving_ns(&f);
        TEST_ASSERT_TRUE(lost_ns <= worked_ns + once_ns);
    }
    TEST_ASSERT_TRUE_MESSAGE(n_ended > 100, "some took several");
}

static void bites_are_those_of_the_table(void)
{
    /* clang-format off */
    static const struct {
        const char *what;
        uint64_t turnaround_ns, leave_ns, skip_ns, wave_ns, rung_ns;
        uint32_t blocks, done;
        bool is_chained;
        uint32_t bite;
    } rows[] = { /* a hundred SMs */
        {"leaving is within the budget",        100 * US, 500, 100, 10 * US, 0, 10000, 0, false, 0},
        {"a million tiny blocks",               100 * US, 500, 100, 10 * US, 0, 1000000, 0, false, 50000},
        {"in the middle: before it is cheaper", 100 * US, 500, 100, 10 * US, 0, 1000000, 500000, false, 30000},
        {"at its end",                          100 * US, 500, 100, 10 * US, 0, 1000000, 999000, false, 1000},
        {"by what the gated form takes",        100 * US, 500, 100, 10 * US, 20 * US, 1000000, 0, false, 25000},
        {"the cost of skipping is not known",   100 * US, 500, 0, 10 * US, 0, 1000000, 500000, false, 50000},
        {"behind another kernel",               100 * US, 500, 100, 10 * US, 0, 1000000, 0, true, 0},
        {"nothing is known of its blocks",      100 * US, 500, 100, 0, 0, 1000000, 0, false, 0},
        {"blocks as short as leaving",          100 * US, 500, 100, 500, 0, 1000000, 0, false, 1000000},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tl_eff_facts f = plain();
        f.rung = TL_RUNG_GATE;
        f.turnaround_ns = rows[i].turnaround_ns;
        f.leave_ns = rows[i].leave_ns;
        f.skip_ns = rows[i].skip_ns;
        f.wave_ns = rows[i].wave_ns;
        f.rungs[TL_RUNG_GATE].wave_ns = rows[i].rung_ns;
        f.blocks = rows[i].blocks;
        f.done = f.launched = rows[i].done;
        f.is_chained = rows[i].is_chained;
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].bite, tl_eff_plan_size(&f).bite, rows[i].what);
    }
}

static void only_what_stops_by_itself_follows_a_kernel_whose_end_is_not_known(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        bool may = tl_eff_plan_may_follow(&f);
        TEST_ASSERT_FALSE(may && f.rung == TL_RUNG_SLICE);
        TEST_ASSERT_FALSE(!may && f.rung == TL_RUNG_PERSISTENT);
        if (may && f.rung == TL_RUNG_GATE)
            TEST_ASSERT_TRUE(tl_eff_plan_leaving_ns(&f) <= f.turnaround_ns / 2);
        uint32_t n = tl_eff_plan_at_once(&f);
        TEST_ASSERT_TRUE(n == 1 || n == 2);
        if (f.is_chained || f.rung == TL_RUNG_PERSISTENT || tl_eff_plan_is_trial(&f))
            TEST_ASSERT_EQUAL(1, n);
    }
}

/* For the tables. */
#define P TL_RUNG_PERSISTENT
#define T TL_RUNG_TICKET
#define S TL_RUNG_SLICE
#define G TL_RUNG_GATE

/* --- single decisions ------------------------------------------------------------------------- */

static void pieces_have_the_sizes_of_the_table(void)
{
    /* clang-format off */
    static const struct {
        const char *what;
        enum tl_rung rung;
        uint64_t turnaround_ns, wave_ns, rung_ns;
        uint32_t n_samples, permille, blocks, done, launched;
        bool is_chained;
        uint32_t expected, batch;
    } rows[] = {
        {"slices: half the budget",        S, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 0, false, 500, 1},
        {"slices: of the granted SMs",     S, 100 * US, 10 * US, 10 * US, 12, 500, 10000, 0, 0, false, 250, 1},
        {"slices: one wave at least",      S, 100 * US, 60 * US, 60 * US, 12, 0, 10000, 0, 0, false, 100, 1},
        {"slices: what is left",           S, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 9900, false, 100, 1},
        {"slices: no time known",          S, 100 * US, 0, 0, 12, 0, 10000, 0, 0, false, 100, 1},
        {"tickets: as many as can leave",  T, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 0, false, 6200, 1},
        {"tickets: what is left",          T, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 6200, 6200, false, 3800, 1},
        {"tickets: all behind another",    T, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 0, true, 10000, 1},
        {"tickets: a trial of 400 us",     T, 100 * US, 10 * US, 10 * US, 2, 0, 10000, 0, 0, false, 4000, 1},
        {"tickets: a trial of four waves", T, 100 * US, 1 * MS, 1 * MS, 2, 0, 10000, 0, 0, false, 400, 1},
        {"slices: a trial ends after 3",   S, 100 * US, 10 * US, 10 * US, 3, 0, 10000, 0, 0, false, 500, 1},
        {"slices: goes on if it is slow",  S, 100 * US, 10 * US, 30 * US, 3, 0, 10000, 0, 0, false, 4000, 1},
        {"workers: all of it",             P, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 0, false, 10000, 1},
        {"workers: the rest",              P, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 77, 77, false, 9923, 1},
        {"workers: a trial",               P, 100 * US, 10 * US, 10 * US, 0, 0, 10000, 0, 0, false, 4000, 1},
        {"workers: blocks of 1 us",        P, 100 * US, 1 * US, 1 * US, 12, 0, 100000, 0, 0, false, 100000, 8},
        {"workers: blocks of 2 us",        P, 100 * US, 2 * US, 2 * US, 12, 0, 100000, 0, 0, false, 100000, 4},
        {"workers: blocks of 4 us",        P, 100 * US, 4 * US, 4 * US, 12, 0, 100000, 0, 0, false, 100000, 2},
        {"workers: blocks of 5 us",        P, 100 * US, 5 * US, 5 * US, 12, 0, 100000, 0, 0, false, 100000, 1},
        {"workers: 1 us, few waves",       P, 100 * US, 1 * US, 1 * US, 12, 0, 3200, 0, 0, false, 3200, 4},
        {"workers: 1 us, from 100 on",     P, 100 * US, 1 * US, 1 * US, 12, 0, 100000, 100, 100, false, 99900, 4},
        {"workers: 1 us, from 101 on",     P, 100 * US, 1 * US, 1 * US, 12, 0, 100000, 101, 101, false, 99899, 1},
        {"workers: blocks of 10 ns",       P, 100 * US, 10, 10, 12, 0, 10000000, 0, 0, false, 10000000, 64},
        {"gated: all of it",               G, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 0, false, 10000, 1},
        {"gated: the rest",                G, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 77, 77, false, 9923, 1},
        {"gated: all behind another",      G, 100 * US, 10 * US, 10 * US, 12, 0, 10000, 0, 0, true, 10000, 1},
        {"gated: a trial is all of it",    G, 100 * US, 1 * MS, 1 * MS, 2, 0, 100000, 0, 0, false, 100000, 1},
        {"workers: a trial in batches",    P, 100 * US, 1500, 1500, 1, 0, 1000000, 0, 0, false, 26600, 4},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tl_eff_facts f = plain();
        f.rung = rows[i].rung;
        f.turnaround_ns = rows[i].turnaround_ns;
        f.wave_ns = rows[i].wave_ns;
        f.rungs[f.rung].wave_ns = rows[i].rung_ns;
        f.rungs[f.rung].n_samples = rows[i].n_samples;
        f.sm_permille = rows[i].permille;
        f.blocks = rows[i].blocks;
        f.done = rows[i].done;
        f.launched = rows[i].launched;
        f.is_chained = rows[i].is_chained;
        struct tl_eff_size size = tl_eff_plan_size(&f);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].expected, size.blocks, rows[i].what);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].batch, size.batch, rows[i].what);
    }
}

/* A hundred SMs with room for several blocks each: a wave of 250 ns is a block of 2 us where eight
 * share an SM. */
static void sizes_with_several_blocks_on_an_sm_are_those_of_the_table(void)
{
    /* clang-format off */
    static const struct {
        const char *what;
        enum tl_rung rung;
        uint64_t wave_ns;
        uint32_t occupancy, resident, n_samples, blocks, expected, batch, workers;
    } rows[] = {
        {"one on an SM",                     P, 250, 1, 1, 12, 1000000, 1000000, 32, 100},
        {"two: half as many at a time",      P, 250, 2, 2, 12, 1000000, 1000000, 16, 200},
        {"four: a quarter",                  P, 250, 4, 4, 12, 1000000, 1000000, 8, 400},
        {"eight: blocks of 2 us",            P, 250, 8, 8, 12, 1000000, 1000000, 4, 800},
        {"32: blocks of 8 us, singly",       P, 250, 32, 32, 12, 1000000, 1000000, 1, 3200},
        {"the variant counts",               P, 250, 2, 8, 12, 1000000, 1000000, 16, 200},
        {"or if unknown, the original",      P, 250, 0, 4, 12, 1000000, 1000000, 8, 400},
        {"each takes several",               P, 100, 4, 4, 12, 12800, 12800, 4, 400},
        {"slices: whole rounds",             S, 7 * US, 4, 4, 12, 10000, 400, 1, 0},
        {"slices: less than a round",        S, 7 * US, 16, 16, 12, 10000, 700, 1, 0},
        {"slices: several rounds",           S, 7 * US, 3, 3, 12, 10000, 600, 1, 0},
        {"a trial fills the SMs",            T, 1 * MS, 16, 16, 2, 100000, 1600, 1, 0},
        {"a trial of whole rounds",          T, 10 * US, 16, 16, 2, 100000, 4800, 1, 0},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tl_eff_facts f = plain();
        f.rung = rows[i].rung;
        f.wave_ns = f.rungs[f.rung].wave_ns = rows[i].wave_ns;
        f.rungs[f.rung].n_samples = rows[i].n_samples;
        f.occupancy = rows[i].occupancy;
        f.resident = rows[i].resident;
        f.blocks = rows[i].blocks;
        struct tl_eff_size size = tl_eff_plan_size(&f);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].expected, size.blocks, rows[i].what);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].batch, size.batch, rows[i].what);
        if (rows[i].workers != 0)
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].workers, tl_eff_plan_workers(&f, size.blocks),
                                             rows[i].what);
    }
}

static void no_rung_is_on_trial_when_one_is_forced(void)
{
    struct tl_eff_facts f = plain();
    f.rung = TL_RUNG_TICKET;
    f.rungs[TL_RUNG_TICKET].n_samples = 0;
    TEST_ASSERT_TRUE(tl_eff_plan_is_trial(&f));
    TEST_ASSERT_EQUAL(1, tl_eff_plan_at_once(&f));
    f.force = TL_RUNG_TICKET;
    TEST_ASSERT_FALSE(tl_eff_plan_is_trial(&f));
    TEST_ASSERT_EQUAL(2, tl_eff_plan_at_once(&f));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_piece_has_blocks_and_no_more_than_are_left);
    RUN_TEST(a_block_takes_as_many_waves_as_there_are_blocks_on_its_sm);
    RUN_TEST(pieces_of_known_length_keep_to_the_budget);
    RUN_TEST(a_longer_budget_never_makes_smaller_pieces);
    RUN_TEST(a_batch_is_no_longer_than_it_takes_to_leave);
    RUN_TEST(workers_fit_on_the_granted_sms_and_have_something_to_do);
    RUN_TEST(the_counter_ends_where_it_is_expected);
    RUN_TEST(a_gated_launch_takes_all_that_is_left);
    RUN_TEST(a_bite_is_as_long_as_what_a_stop_costs_and_no_longer);
    RUN_TEST(a_kernel_in_bites_ends_however_often_it_is_stopped);
    RUN_TEST(bites_are_those_of_the_table);
    RUN_TEST(only_what_stops_by_itself_follows_a_kernel_whose_end_is_not_known);
    RUN_TEST(pieces_have_the_sizes_of_the_table);
    RUN_TEST(sizes_with_several_blocks_on_an_sm_are_those_of_the_table);
    RUN_TEST(no_rung_is_on_trial_when_one_is_forced);
    return UNITY_END();
}

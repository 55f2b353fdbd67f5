/* Decisions about kernels: invariants over many random facts, and tables of single decisions. */
#include "runtime/effort/plan.h"

#include <unity.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

enum { ROUNDS = 200000 };

void setUp(void)
{
}

void tearDown(void)
{
}

/* --- random facts ----------------------------------------------------------------------------- */

static uint64_t random_state = 0x2545F4914F6CDD1Du;

static uint64_t any(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

/* Of any order of magnitude up to 2^bits, 0 among them. */
static uint64_t any_size(uint32_t bits)
{
    return any(UINT64_C(1) << any(bits + 1));
}

static struct tl_eff_facts any_facts(void)
{
    struct tl_eff_facts f = {.sms = (uint32_t)any_size(9),
                             .resident = (uint32_t)any_size(6),
                             .runs_block_by_block = any(2) == 0,
                             .is_capless = any(4) == 0,
                             .force = any(3) == 0 ? (int)any(TL_RUNGS) : -1,
                             .finest = (enum tl_rung)any(TL_RUNGS),
                             .sm_permille = any(2) == 0 ? 0 : (uint32_t)any(1001),
                             .turnaround_ns = any_size(35),
                             .strikes = any(4) == 0 ? (uint32_t)any(4) : 0,
                             .takes_singly = any(4) == 0,
                             .is_alone = any(2) == 0,
                             .has_profile = any(8) != 0,
                             .rung = (enum tl_rung)any(TL_RUNG_WHOLE),
                             .is_chained = any(2) == 0};
    if (f.has_profile) {
        f.whole_ns = any_size(35);
        f.block_ns = any_size(25);
    }
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++) {
        f.rungs[r].form = (enum tl_eff_form)any(4);
        f.rungs[r].was_asked_for = any(2) == 0;
        f.rungs[r].is_slow = f.has_profile && any(3) == 0;
        f.rungs[r].n_samples = f.has_profile ? (uint32_t)any(20) : 0;
        f.rungs[r].block_ns = f.rungs[r].n_samples > 0 ? any_size(25) : 0;
    }
    f.blocks = 1 + (uint32_t)any_size(31) % INT32_MAX;
    f.done = any(2) == 0 ? 0 : (uint32_t)any(f.blocks);
    f.launched = f.done;
    if (f.rung != TL_RUNG_PERSISTENT && any(2) == 0)
        f.launched = f.done + (uint32_t)any(f.blocks - f.done);
    return f;
}

static bool divides_sms(const struct tl_eff_facts *f)
{
    return f->finest == TL_RUNG_CAP && f->sm_permille > 0 && f->sm_permille < 1000;
}

/* Puts the question until it is decided; what is asked for on the way becomes `then`. */
static struct tl_eff_choice decide(struct tl_eff_facts *f, enum tl_eff_form then)
{
    struct tl_eff_choice c = tl_eff_plan_rung(f);
    for (int i = 0; c.asks; i++) {
        TEST_ASSERT_TRUE_MESSAGE(i < TL_RUNG_WHOLE, "each variant is asked for once at most");
        TEST_ASSERT_TRUE(c.rung < TL_RUNG_WHOLE);
        TEST_ASSERT_EQUAL(TL_EFF_FORM_UNASKED, f->rungs[c.rung].form);
        f->rungs[c.rung].form = then;
        c = tl_eff_plan_rung(f);
    }
    return c;
}

/* --- the rung: invariants --------------------------------------------------------------------- */

static void a_rung_is_taken_only_if_its_variant_is_there(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        enum tl_rung was = f.rung;
        struct tl_eff_choice c = decide(&f, (enum tl_eff_form)(1 + any(3)));
        if (c.rung < TL_RUNG_WHOLE && !(f.done > 0 && c.rung == was))
            TEST_ASSERT_EQUAL(TL_EFF_FORM_READY, f.rungs[c.rung].form);
        TEST_ASSERT_TRUE(c.rung <= TL_RUNG_WHOLE);
    }
}

static void what_was_begun_in_pieces_ends_in_pieces(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 1 + (uint32_t)any(f.blocks);
        TEST_ASSERT_TRUE(decide(&f, TL_EFF_FORM_NONE).rung < TL_RUNG_WHOLE);
    }
}

static void a_forced_rung_is_obeyed_or_the_kernel_runs_whole(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        f.force = (int)any(TL_RUNGS);
        struct tl_eff_choice c = decide(&f, (enum tl_eff_form)(1 + any(3)));
        bool is_there = f.force < TL_RUNG_WHOLE && f.rungs[f.force].form == TL_EFF_FORM_READY &&
                        !tl_eff_plan_fits_at_once(&f) && f.strikes < 2;
        TEST_ASSERT_EQUAL(is_there ? f.force : (int)TL_RUNG_WHOLE, (int)c.rung);
    }
}

static void a_rung_that_is_slow_or_finer_than_granted_is_never_begun(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        f.force = -1;
        if (divides_sms(&f))
            continue;
        struct tl_eff_choice c = decide(&f, TL_EFF_FORM_READY);
        if (c.rung >= TL_RUNG_WHOLE)
            continue;
        TEST_ASSERT_FALSE(f.rungs[c.rung].is_slow);
        TEST_ASSERT_TRUE(c.rung >= f.finest);
    }
}

static void a_kernel_shorter_than_the_budget_is_not_cut(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        f.force = -1;
        f.is_chained = false;
        f.has_profile = true;
        f.whole_ns = 1 + any(f.turnaround_ns + 1);
        if (divides_sms(&f) || f.whole_ns > f.turnaround_ns)
            continue;
        struct tl_eff_choice c = tl_eff_plan_rung(&f);
        TEST_ASSERT_EQUAL(TL_RUNG_WHOLE, c.rung);
        TEST_ASSERT_FALSE_MESSAGE(c.asks, "no variant is built for it");
    }
}

static void a_longer_budget_never_cuts_a_kernel_that_a_shorter_one_leaves_whole(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        struct tl_eff_facts longer = f;
        longer.turnaround_ns += any_size(35);
        if (decide(&f, TL_EFF_FORM_READY).rung == TL_RUNG_WHOLE)
            TEST_ASSERT_EQUAL(TL_RUNG_WHOLE, decide(&longer, TL_EFF_FORM_READY).rung);
    }
}

static void with_nobody_above_only_long_kernels_are_cut(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        f.force = -1;
        f.is_alone = true;
        f.is_chained = false;
        struct tl_eff_choice c = decide(&f, TL_EFF_FORM_READY);
        if (c.rung < TL_RUNG_WHOLE && !divides_sms(&f))
            TEST_ASSERT_TRUE(f.whole_ns > TL_EFF_ALONE_NS);
    }
}

/* Whatever is forced, granted, measured or built: a grid that the device could hold at once is
 * given to it at once, and not even asked about.  All others are cut as if there were no such
 * rule. */
static void what_fits_at_once_is_never_cut(void)
{
    uint32_t n_fit = 0, n_cut = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts(), small = f;
        f.done = f.launched = 0;
        if (any(2) == 0 && f.sms > 0 && f.resident > 0) /* near the edge */
            f.blocks = f.sms * f.resident + (uint32_t)any(2);
        f.strikes %= 2;
        bool fits = f.sms == 0 || f.resident == 0 || f.blocks <= f.sms * f.resident;
        TEST_ASSERT_EQUAL(fits, tl_eff_plan_fits_at_once(&f));
        struct tl_eff_choice c = tl_eff_plan_rung(&f);
        if (fits) {
            TEST_ASSERT_EQUAL(TL_RUNG_WHOLE, c.rung);
            TEST_ASSERT_FALSE(c.asks);
            n_fit++;
            continue;
        }
        c = decide(&f, TL_EFF_FORM_READY);
        n_cut += c.rung < TL_RUNG_WHOLE;
        small = f;
        small.resident = 1; /* the least that a device can have */
        if (!tl_eff_plan_fits_at_once(&small))
            TEST_ASSERT_EQUAL(decide(&small, TL_EFF_FORM_READY).rung, c.rung);
    }
    TEST_ASSERT_TRUE(n_fit > ROUNDS / 100 && n_cut > ROUNDS / 100);
}

/* Nor is what was found to wait, twice; once is not enough. */
static void what_was_found_to_wait_twice_is_never_cut(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        f.strikes = 2 + (uint32_t)any(3);
        struct tl_eff_choice c = tl_eff_plan_rung(&f);
        TEST_ASSERT_EQUAL(TL_RUNG_WHOLE, c.rung);
        TEST_ASSERT_FALSE(c.asks);
        if (f.sms > 0 && f.resident > 0 && tl_eff_plan_cap(&f) != 0)
            TEST_ASSERT_TRUE(f.blocks <= tl_eff_plan_cap(&f) * f.resident);
        struct tl_eff_facts once = any_facts(), never = once;
        once.strikes = 1;
        never.strikes = 0;
        TEST_ASSERT_EQUAL(decide(&never, TL_EFF_FORM_READY).rung,
                          decide(&once, TL_EFF_FORM_READY).rung);
    }
}

/* 64 times what it should take, 50 ms at least, twice as long each time. */
static void patience_is_many_times_what_it_should_take(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_wait w = {.block_ns = any_size(40),
                                .side_by_side = (uint32_t)any_size(6),
                                .in_turn = (uint32_t)any_size(31),
                                .strikes = (uint32_t)any(3)};
        uint64_t ns = tl_eff_plan_patience(&w);
        TEST_ASSERT_TRUE(ns >= 50 * MS);
        TEST_ASSERT_TRUE(ns < UINT64_C(1) << 60);
        struct tl_eff_wait more = w;
        more.strikes++;
        TEST_ASSERT_EQUAL_UINT64(2 * ns, tl_eff_plan_patience(&more));
        more = w;
        more.in_turn += (uint32_t)any_size(20);
        more.side_by_side += (uint32_t)any(8);
        TEST_ASSERT_TRUE(tl_eff_plan_patience(&more) >= ns);
        if (w.block_ns != 0) {
            more = w;
            more.block_ns += any_size(30);
            TEST_ASSERT_TRUE(tl_eff_plan_patience(&more) >= ns);
        }
    }
    /* clang-format off */
    static const struct {
        struct tl_eff_wait w;
        uint64_t expected;
    } rows[] = {
        {{10 * US, 1, 1, 0}, 50 * MS},
        {{1 * MS, 1, 1, 0}, 64 * MS},
        {{1 * MS, 1, 1, 1}, 128 * MS},
        {{1 * MS, 8, 1, 0}, 512 * MS},
        {{10 * US, 1, 1000, 0}, 640 * MS},
        {{1 * MS, 0, 0, 0}, 64 * MS},
        {{0, 1, 1, 0}, 500 * MS},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TEST_ASSERT_EQUAL_UINT64(rows[i].expected, tl_eff_plan_patience(&rows[i].w));
}

/* A block that only takes long ends at any time.  Of those that end after the first patience and
 * look as if they had waited, none does so again: by then patience is twice as long. */
static void a_block_that_only_takes_long_never_looks_twice_as_if_it_waited(void)
{
    uint32_t n_once = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_wait w = {.block_ns = 1 + any_size(25), .side_by_side = 1, .in_turn = 1};
        uint64_t takes = any(8 * tl_eff_plan_patience(&w)); /* the same each time */
        uint32_t strikes = 0;
        for (int times = 0; times < 6; times++) {
            w.strikes = strikes;
            uint64_t held = tl_eff_plan_patience(&w);
            if (takes <= held)
                continue; /* it ends before anybody looks */
            struct tl_eff_rescued r = {.held_ns = held, .took_ns = takes - held, .has_taken = true};
            strikes += tl_eff_plan_was_needed(&r);
        }
        n_once += strikes == 1;
        /* up to twice the first patience: once; up to four times: not at all; more: never */
        TEST_ASSERT_TRUE(strikes <= 1);
    }
    TEST_ASSERT_TRUE(n_once > 0);
    struct tl_eff_rescued r = {.held_ns = 50 * MS, .took_ns = 1 * MS};
    TEST_ASSERT_FALSE_MESSAGE(tl_eff_plan_was_needed(&r), "nothing was begun beside it");
}

/* A part of the SMs is a cut, too: who needs all blocks side by side would wait there forever. */
static void what_fits_at_once_is_not_kept_to_a_part_that_is_too_small(void)
{
    uint32_t n = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts(), large = f;
        if (any(2) == 0)
            f.blocks = 1 + (uint32_t)any(2 * (uint64_t)f.sms * f.resident + 1);
        f.done = f.launched = 0;
        uint32_t cap = tl_eff_plan_cap(&f);
        large.done = large.launched = 0;
        large.blocks = INT32_MAX;
        large.resident = 1;
        large.strikes = 0;
        uint32_t otherwise = tl_eff_plan_cap(&large);
        TEST_ASSERT_TRUE(cap == 0 || cap == otherwise);
        if (cap != 0)
            TEST_ASSERT_TRUE(!tl_eff_plan_fits_at_once(&f) || f.blocks <= cap * f.resident ||
                             f.resident == 0);
        n += cap == 0 && otherwise != 0;
    }
    TEST_ASSERT_TRUE(n > ROUNDS / 1000);
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

static void pieces_of_known_length_keep_to_the_budget(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.is_chained = false;
        f.rung = TL_RUNG_SLICE;
        if (tl_eff_plan_is_trial(&f) || !f.has_profile || f.rungs[TL_RUNG_SLICE].block_ns == 0)
            continue;
        uint64_t sms = tl_eff_plan_sms(&f), blocks = tl_eff_plan_size(&f).blocks;
        uint64_t waves = (blocks + sms - 1) / sms;
        if (waves > 1) /* less than a wave would leave SMs idle */
            TEST_ASSERT_TRUE(waves * f.rungs[TL_RUNG_SLICE].block_ns <= f.turnaround_ns / 2);
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
        uint64_t ns = f.block_ns != 0 ? f.block_ns : f.rungs[TL_RUNG_PERSISTENT].block_ns;
        TEST_ASSERT_TRUE(ns != 0 && batch * ns <= 8 * US);
        /* and each worker takes several */
        TEST_ASSERT_TRUE((uint64_t)batch * 8 * tl_eff_plan_sms(&f) <= f.blocks - f.done);
    }
}

static void workers_fit_on_the_granted_sms_and_have_something_to_do(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.rung = TL_RUNG_PERSISTENT;
        f.launched = f.done;
        struct tl_eff_size size = tl_eff_plan_size(&f);
        uint32_t occupancy = 1 + (uint32_t)any(32);
        uint32_t n = tl_eff_plan_workers(&f, occupancy, size.blocks);
        TEST_ASSERT_TRUE(n >= 1 && n <= size.blocks);
        TEST_ASSERT_TRUE(n <= tl_eff_plan_sms(&f) * (f.runs_block_by_block ? 1 : occupancy));
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
        struct tl_eff_size size = tl_eff_plan_size(&f);
        uint32_t workers = tl_eff_plan_workers(&f, 1 + (uint32_t)any(4), size.blocks);
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

static void only_what_stops_by_itself_follows_a_kernel_whose_end_is_not_known(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        bool may = tl_eff_plan_may_follow(&f);
        TEST_ASSERT_FALSE(may && f.rung == TL_RUNG_SLICE);
        TEST_ASSERT_FALSE(!may && f.rung == TL_RUNG_PERSISTENT);
        uint32_t n = tl_eff_plan_at_once(&f);
        TEST_ASSERT_TRUE(n == 1 || n == 2);
        if (f.is_chained || f.rung == TL_RUNG_PERSISTENT || tl_eff_plan_is_trial(&f))
            TEST_ASSERT_EQUAL(1, n);
    }
}

/* --- parts, budgets, trials: invariants ------------------------------------------------------- */

static void a_part_is_within_the_device(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        uint32_t sms = tl_eff_plan_sms(&f), cap = tl_eff_plan_cap(&f);
        TEST_ASSERT_TRUE(sms >= 1 && (sms <= f.sms || f.sms == 0));
        TEST_ASSERT_TRUE(cap == 0 || (cap >= 1 && cap < f.sms));
        if (f.is_capless || (f.force >= 0 && f.force != TL_RUNG_CAP))
            TEST_ASSERT_EQUAL(0, cap);
        if (cap != 0 && f.sm_permille > 0 && f.sm_permille < 1000)
            TEST_ASSERT_TRUE(cap <= sms);
    }
}

static struct tl_eff_budget any_budget(void)
{
    return (struct tl_eff_budget){.turnaround_ns = any_size(30),
                                  .run_ahead_ns = any_size(30),
                                  .round_trip_ns = any_size(30),
                                  .is_asked_for = any(2) == 0,
                                  .caution = (uint32_t)any(5),
                                  .is_alone = any(2) == 0};
}

static void budgets_are_never_less_than_granted_but_for_caution(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_budget b = any_budget();
        uint64_t turnaround = tl_eff_plan_turnaround(&b), ahead = tl_eff_plan_run_ahead(&b);
        TEST_ASSERT_TRUE(turnaround >= b.turnaround_ns);
        TEST_ASSERT_TRUE(turnaround <= b.turnaround_ns || turnaround <= 8 * 12 * US);
        if (b.is_asked_for)
            TEST_ASSERT_EQUAL_UINT64(b.turnaround_ns, turnaround);
        if (b.is_alone)
            TEST_ASSERT_TRUE(ahead >= TL_EFF_ALONE_NS);
        if (b.caution == 0)
            TEST_ASSERT_TRUE(ahead >= turnaround && ahead >= b.run_ahead_ns);
        struct tl_eff_budget more = b;
        more.caution++;
        TEST_ASSERT_TRUE(tl_eff_plan_run_ahead(&more) <= ahead);
    }
}

static void a_trial_ends_and_only_what_was_tried_often_is_called_slow(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_rung_facts r = {.block_ns = any_size(30), .n_samples = (uint32_t)any(20)};
        enum tl_rung rung = (enum tl_rung)any(TL_RUNG_WHOLE);
        uint64_t block_ns = any_size(25), waves = 1 + any_size(20);
        bool is_on_trial = tl_eff_plan_is_on_trial(rung, &r, block_ns);
        TEST_ASSERT_FALSE(is_on_trial && r.n_samples >= 12);
        TEST_ASSERT_FALSE(!is_on_trial && r.n_samples < 3);
        if (tl_eff_plan_is_too_slow(rung, &r, block_ns, waves)) {
            TEST_ASSERT_TRUE(r.n_samples >= 3 && block_ns != 0 && r.block_ns > block_ns);
            struct tl_eff_rung_facts slower = r;
            slower.block_ns += any_size(30);
            TEST_ASSERT_TRUE(tl_eff_plan_is_too_slow(rung, &slower, block_ns, waves));
        }
    }
    for (uint32_t times = 0; times < 40; times++) {
        uint32_t wait = tl_eff_plan_retry_after(times);
        TEST_ASSERT_TRUE(wait >= 128 && wait <= 128 << 8);
        TEST_ASSERT_TRUE(tl_eff_plan_retry_after(times + 1) >= wait);
    }
}

/* For the tables. */
#define P TL_RUNG_PERSISTENT
#define T TL_RUNG_TICKET
#define S TL_RUNG_SLICE
#define W TL_RUNG_WHOLE

/* --- single decisions ------------------------------------------------------------------------- */

/* A kernel of a thousand blocks and 10 ms on 100 SMs, with somebody above and a budget of 100
 * us. */
static struct tl_eff_facts plain(void)
{
    struct tl_eff_facts f = {.sms = 100,
                             .resident = 1,
                             .force = -1,
                             .finest = TL_RUNG_PERSISTENT,
                             .turnaround_ns = 100 * US,
                             .has_profile = true,
                             .whole_ns = 10 * MS,
                             .block_ns = 1 * MS,
                             .blocks = 1000};
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++)
        f.rungs[r] = (struct tl_eff_rung_facts){
            .form = TL_EFF_FORM_READY, .n_samples = 12, .block_ns = 1 * MS};
    return f;
}

static void rungs_are_chosen_as_the_table_says(void)
{
    enum { NO = TL_EFF_FORM_NONE, YES = TL_EFF_FORM_READY, SOON = TL_EFF_FORM_COMING };
    /* clang-format off */
    static const struct {
        const char *what;
        int forms[3], slow; /* slow: a bit per rung */
        enum tl_rung finest;
        uint32_t permille;
        int force;
        bool is_alone, is_chained;
        uint64_t whole_ns;
        uint32_t done;
        enum tl_rung was, expected;
        uint32_t resident; /* of 1000 blocks on 100 SMs; 0: one */
    } rows[] = {
        {"the finest",                        {YES, YES, YES},  0, P, 0, -1, false, false, 10 * MS, 0, W, P, 0},
        {"the next if it is refused",         {NO, YES, YES},   0, P, 0, -1, false, false, 10 * MS, 0, W, T, 0},
        {"the last if two are refused",       {NO, NO, YES},    0, P, 0, -1, false, false, 10 * MS, 0, W, S, 0},
        {"whole if all are",                  {NO, NO, NO},     0, P, 0, -1, false, false, 10 * MS, 0, W, W, 0},
        {"whole while one is being built",    {SOON, YES, YES}, 0, P, 0, -1, false, false, 10 * MS, 0, W, W, 0},
        {"the next if it is slow",            {YES, YES, YES},  1, P, 0, -1, false, false, 10 * MS, 0, W, T, 0},
        {"whole if all are slow",             {YES, YES, YES},  7, P, 0, -1, false, false, 10 * MS, 0, W, W, 0},
        {"slices if no finer is granted",     {YES, YES, YES},  0, S, 0, -1, false, false, 10 * MS, 0, W, S, 0},
        {"whole if no rung is granted",       {YES, YES, YES},  0, W, 0, -1, false, false, 10 * MS, 0, W, W, 0},
        {"whole if short",                    {YES, YES, YES},  0, P, 0, -1, false, false, 100 * US, 0, W, W, 0},
        {"cut if a little longer",            {YES, YES, YES},  0, P, 0, -1, false, false, 100 * US + 1, 0, W, P, 0},
        {"short, but behind another",         {YES, YES, YES},  0, P, 0, -1, false, true, 100 * US, 0, W, P, 0},
        {"short, but begun in pieces",        {YES, YES, YES},  0, P, 0, -1, false, false, 100 * US, 8, T, P, 0},
        {"whole with nobody above",           {YES, YES, YES},  0, P, 0, -1, true, false, 20 * MS, 0, W, W, 0},
        {"cut with nobody above if long",     {YES, YES, YES},  0, P, 0, -1, true, false, 20 * MS + 1, 0, W, P, 0},
        {"behind another with nobody above",  {YES, YES, YES},  0, P, 0, -1, true, true, 20 * MS, 0, W, P, 0},
        {"on as it began if all are slow",    {YES, YES, YES},  7, P, 0, -1, false, false, 10 * MS, 8, T, T, 0},
        {"on as it began if none is left",    {NO, NO, NO},     0, P, 0, -1, false, false, 10 * MS, 8, S, S, 0},
        {"on a finer one if that has come",   {YES, YES, YES},  2, P, 0, -1, false, false, 10 * MS, 8, T, P, 0},
        {"forced",                            {YES, YES, YES},  7, W, 0, T, true, false, 100 * US, 0, W, T, 0},
        {"forced in vain",                    {YES, NO, YES},   0, P, 0, T, false, false, 10 * MS, 0, W, W, 0},
        {"forced whole",                      {YES, YES, YES},  0, P, 0, W, false, false, 10 * MS, 0, W, W, 0},
        {"forced onto a part",                {YES, YES, YES},  0, P, 0, TL_RUNG_CAP, false, false, 10 * MS, 0, W, W, 0},
        {"kept to a part however short",      {YES, YES, YES},  0, TL_RUNG_CAP, 500, -1, true, false, 100 * US, 0, W, P, 0},
        {"kept to a part however slow",       {YES, YES, YES},  1, TL_RUNG_CAP, 500, -1, false, false, 10 * MS, 0, W, P, 0},
        {"the last that fits at once",        {YES, YES, YES},  0, P, 0, -1, false, false, 10 * MS, 0, W, W, 10},
        {"the first that does not",           {YES, YES, YES},  0, P, 0, -1, false, false, 10 * MS, 0, W, P, 9},
        {"forced, but it fits at once",       {YES, YES, YES},  0, P, 0, T, false, false, 10 * MS, 0, W, W, 10},
        {"kept to a part, but it fits",       {YES, YES, YES},  0, TL_RUNG_CAP, 500, -1, false, false, 10 * MS, 0, W, W, 10},
        {"begun in pieces, as if it fitted",  {YES, YES, YES},  0, P, 0, -1, false, false, 10 * MS, 8, T, P, 10},
        {"all SMs granted as a part",         {YES, YES, YES},  0, TL_RUNG_CAP, 1000, -1, false, false, 10 * MS, 0, W, W, 0},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tl_eff_facts f = plain();
        f.finest = rows[i].finest;
        f.sm_permille = rows[i].permille;
        f.force = rows[i].force;
        f.is_alone = rows[i].is_alone;
        f.is_chained = rows[i].is_chained;
        f.whole_ns = rows[i].whole_ns;
        f.done = f.launched = rows[i].done;
        f.rung = rows[i].was;
        f.resident = rows[i].resident != 0 ? rows[i].resident : 1;
        for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++) {
            f.rungs[r].form = (enum tl_eff_form)rows[i].forms[r];
            f.rungs[r].is_slow = (rows[i].slow >> r & 1) != 0;
        }
        struct tl_eff_choice c = tl_eff_plan_rung(&f);
        TEST_ASSERT_FALSE_MESSAGE(c.asks, rows[i].what);
        TEST_ASSERT_EQUAL_MESSAGE(rows[i].expected, c.rung, rows[i].what);
    }
}

static void variants_are_asked_for_one_after_the_other(void)
{
    struct tl_eff_facts f = plain();
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++)
        f.rungs[r].form = TL_EFF_FORM_UNASKED;
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++) {
        struct tl_eff_choice c = tl_eff_plan_rung(&f);
        TEST_ASSERT_TRUE(c.asks);
        TEST_ASSERT_EQUAL(r, c.rung);
        f.rungs[r].form = TL_EFF_FORM_NONE;
    }
    TEST_ASSERT_FALSE(tl_eff_plan_rung(&f).asks);
    /* With nobody above the kernel will run whole, but somebody may come: the variant is asked for
     * all the same. */
    f = plain();
    f.is_alone = true;
    f.rungs[TL_RUNG_PERSISTENT].form = TL_EFF_FORM_UNASKED;
    TEST_ASSERT_TRUE(tl_eff_plan_rung(&f).asks);
    /* A kernel of unknown length may be short: nothing is built for it, what there is is taken. */
    f.whole_ns = 0;
    f.is_alone = false;
    TEST_ASSERT_FALSE(tl_eff_plan_rung(&f).asks);
    TEST_ASSERT_EQUAL(TL_RUNG_WHOLE, tl_eff_plan_rung(&f).rung);
    f.rungs[TL_RUNG_PERSISTENT].was_asked_for = true;
    TEST_ASSERT_TRUE(tl_eff_plan_rung(&f).asks);
}

static void pieces_have_the_sizes_of_the_table(void)
{
    /* clang-format off */
    static const struct {
        const char *what;
        enum tl_rung rung;
        uint64_t turnaround_ns, block_ns, rung_ns;
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
        {"workers: blocks of 2 us",        P, 100 * US, 2 * US, 2 * US, 12, 0, 100000, 0, 0, false, 100000, 1},
        {"workers: 1 us, few waves",       P, 100 * US, 1 * US, 1 * US, 12, 0, 3200, 0, 0, false, 3200, 4},
        {"workers: 1 us, from 100 on",     P, 100 * US, 1 * US, 1 * US, 12, 0, 100000, 100, 100, false, 99900, 4},
        {"workers: 1 us, from 101 on",     P, 100 * US, 1 * US, 1 * US, 12, 0, 100000, 101, 101, false, 99899, 1},
        {"workers: blocks of 10 ns",       P, 100 * US, 10, 10, 12, 0, 10000000, 0, 0, false, 10000000, 64},
        {"workers: a trial in batches",    P, 100 * US, 1500, 1500, 1, 0, 1000000, 0, 0, false, 26600, 4},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tl_eff_facts f = plain();
        f.rung = rows[i].rung;
        f.turnaround_ns = rows[i].turnaround_ns;
        f.block_ns = rows[i].block_ns;
        f.rungs[f.rung].block_ns = rows[i].rung_ns;
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

static void kernels_that_cannot_be_stopped_get_the_part_of_the_table(void)
{
    /* clang-format off */
    static const struct {
        const char *what;
        uint32_t sms, permille;
        int force;
        bool is_capless, is_alone;
        uint64_t whole_ns;
        uint32_t expected;
    } rows[] = {
        {"half if it is long",           100, 0, -1, false, false, 10 * MS, 50},
        {"all if it is short",           100, 0, -1, false, false, 100 * US, 0},
        {"all if its time is not known", 100, 0, -1, false, false, 0, 0},
        {"all with nobody above",        100, 0, -1, false, true, 10 * MS, 0},
        {"what is granted",              100, 300, -1, false, true, 100 * US, 30},
        {"one SM at least",              100, 5, -1, false, true, 100 * US, 1},
        {"all that there are",           100, 1000, -1, false, true, 100 * US, 0},
        {"half if forced",               100, 0, TL_RUNG_CAP, false, true, 100 * US, 50},
        {"another rung is forced",       100, 300, TL_RUNG_WHOLE, false, false, 10 * MS, 0},
        {"no parts on this device",      100, 300, -1, true, false, 10 * MS, 0},
        {"one SM has no half",           1, 0, -1, false, false, 10 * MS, 0},
        {"number of SMs not known",      0, 300, -1, false, false, 10 * MS, 0},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tl_eff_facts f = plain();
        f.sms = rows[i].sms;
        f.sm_permille = rows[i].permille;
        f.force = rows[i].force;
        f.is_capless = rows[i].is_capless;
        f.is_alone = rows[i].is_alone;
        f.whole_ns = rows[i].whole_ns;
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(rows[i].expected, tl_eff_plan_cap(&f), rows[i].what);
    }
}

static void budgets_are_those_of_the_table(void)
{
    /* clang-format off */
    static const struct {
        struct tl_eff_budget b;
        uint64_t turnaround_ns, run_ahead_ns;
    } rows[] = {
        {{31600, 100 * US, 0, false, 0, false}, 31600, 100 * US},
        {{31600, 100 * US, 3 * US, false, 0, false}, 31600, 100 * US},
        {{31600, 100 * US, 5 * US, false, 0, false}, 40 * US, 120 * US},
        {{31600, 100 * US, 1 * MS, false, 0, false}, 96 * US, 288 * US},
        {{31600, 100 * US, 1 * MS, true, 0, false}, 31600, 100 * US},
        {{31600, 10 * US, 0, true, 0, false}, 31600, 31600},
        {{31600, 160 * US, 0, true, 4, false}, 31600, 10 * US},
        {{31600, 160 * US, 0, true, 4, true}, 31600, 20 * MS},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ASSERT_EQUAL_UINT64(rows[i].turnaround_ns, tl_eff_plan_turnaround(&rows[i].b));
        TEST_ASSERT_EQUAL_UINT64(rows[i].run_ahead_ns, tl_eff_plan_run_ahead(&rows[i].b));
    }
}

static void launches_are_measured_often_at_first_and_seldom_later(void)
{
    TEST_ASSERT_TRUE(tl_eff_plan_wants_sample(3, 1001));
    TEST_ASSERT_FALSE(tl_eff_plan_wants_sample(4, 1001));
    TEST_ASSERT_TRUE(tl_eff_plan_wants_sample(31, 32));
    TEST_ASSERT_FALSE(tl_eff_plan_wants_sample(32, 32));
    TEST_ASSERT_TRUE(tl_eff_plan_wants_sample(32, 256));
    TEST_ASSERT_TRUE(tl_eff_plan_goes_whole(100, 100, false));
    TEST_ASSERT_FALSE(tl_eff_plan_goes_whole(101, 100, false));
    TEST_ASSERT_TRUE(tl_eff_plan_goes_whole(20 * MS, 100, true));
    TEST_ASSERT_FALSE(tl_eff_plan_goes_whole(20 * MS + 1, 100, true));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_rung_is_taken_only_if_its_variant_is_there);
    RUN_TEST(what_was_begun_in_pieces_ends_in_pieces);
    RUN_TEST(a_forced_rung_is_obeyed_or_the_kernel_runs_whole);
    RUN_TEST(a_rung_that_is_slow_or_finer_than_granted_is_never_begun);
    RUN_TEST(a_kernel_shorter_than_the_budget_is_not_cut);
    RUN_TEST(a_longer_budget_never_cuts_a_kernel_that_a_shorter_one_leaves_whole);
    RUN_TEST(with_nobody_above_only_long_kernels_are_cut);
    RUN_TEST(what_fits_at_once_is_never_cut);
    RUN_TEST(what_was_found_to_wait_twice_is_never_cut);
    RUN_TEST(patience_is_many_times_what_it_should_take);
    RUN_TEST(a_block_that_only_takes_long_never_looks_twice_as_if_it_waited);
    RUN_TEST(what_fits_at_once_is_not_kept_to_a_part_that_is_too_small);
    RUN_TEST(a_piece_has_blocks_and_no_more_than_are_left);
    RUN_TEST(pieces_of_known_length_keep_to_the_budget);
    RUN_TEST(a_longer_budget_never_makes_smaller_pieces);
    RUN_TEST(a_batch_is_no_longer_than_it_takes_to_leave);
    RUN_TEST(workers_fit_on_the_granted_sms_and_have_something_to_do);
    RUN_TEST(the_counter_ends_where_it_is_expected);
    RUN_TEST(only_what_stops_by_itself_follows_a_kernel_whose_end_is_not_known);
    RUN_TEST(a_part_is_within_the_device);
    RUN_TEST(budgets_are_never_less_than_granted_but_for_caution);
    RUN_TEST(a_trial_ends_and_only_what_was_tried_often_is_called_slow);
    RUN_TEST(rungs_are_chosen_as_the_table_says);
    RUN_TEST(variants_are_asked_for_one_after_the_other);
    RUN_TEST(pieces_have_the_sizes_of_the_table);
    RUN_TEST(no_rung_is_on_trial_when_one_is_forced);
    RUN_TEST(kernels_that_cannot_be_stopped_get_the_part_of_the_table);
    RUN_TEST(budgets_are_those_of_the_table);
    RUN_TEST(launches_are_measured_often_at_first_and_seldom_later);
    return UNITY_END();
}

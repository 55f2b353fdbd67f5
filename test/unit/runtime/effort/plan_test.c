/* Decisions about kernels: invariants over many random facts, and tables of single decisions.
 * Those about the sizes of pieces are in size_test.c. */
#include "runtime/effort/plan.h"

#include <unity.h>

#include "test/unit/runtime/effort/facts.h"

void setUp(void)
{
}

void tearDown(void)
{
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

/* Held back is only what would run whole otherwise, where somebody above would have to wait for the
 * end of it, while its variant is being built, and not for ever. */
static void a_kernel_is_held_only_where_somebody_would_wait_for_it(void)
{
    uint32_t n_held = 0, n_large = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        struct tl_eff_choice c = decide(&f, TL_EFF_FORM_COMING);
        if (!c.holds)
            continue;
        n_held++;
        TEST_ASSERT_EQUAL(TL_RUNG_WHOLE, c.rung);
        TEST_ASSERT_TRUE(!f.is_alone && f.force < 0 && !f.is_chained && f.done == 0);
        TEST_ASSERT_FALSE(tl_eff_plan_fits_at_once(&f) || tl_eff_plan_waits(&f));
        bool is_known = f.has_profile && f.whole_ns != 0;
        bool was_asked_for = false;
        for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++)
            was_asked_for |= f.rungs[r].was_asked_for;
        TEST_ASSERT_TRUE(is_known ? f.whole_ns > f.turnaround_ns
                                  : was_asked_for || f.blocks >= 16 * (uint64_t)f.sms * f.resident);
        n_large += !is_known;
        struct tl_eff_facts later = f;
        for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++)
            later.rungs[r].held_ns = 4000 * MS;
        TEST_ASSERT_FALSE_MESSAGE(decide(&later, TL_EFF_FORM_COMING).holds, "it may never come");
    }
    TEST_ASSERT_TRUE(n_held > ROUNDS / 1000 && n_large > 0);
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
        bool is_large = tl_eff_plan_is_large(f.blocks, f.sms, f.resident);
        bool seems_alike = (f.has_profile && f.whole_ns != 0) ||
                           is_large == tl_eff_plan_is_large(f.blocks, f.sms, 1);
        if (!tl_eff_plan_fits_at_once(&small) && seems_alike)
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
        struct tl_eff_wait w = {.wave_ns = any_size(40),
                                .beside = (uint32_t)any_size(6),
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
        more.beside += (uint32_t)any(8);
        TEST_ASSERT_TRUE(tl_eff_plan_patience(&more) >= ns);
        if (w.wave_ns != 0) {
            more = w;
            more.wave_ns += any_size(30);
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

static void time_without_a_processor_hardly_counts_as_standing_still(void)
{
    /* On a GPU all of it counts, but for what we slept through. */
    TEST_ASSERT_EQUAL_UINT64(3 * MS, tl_eff_plan_still_ns(3 * MS, false, 0));
    TEST_ASSERT_EQUAL_UINT64(8 * MS, tl_eff_plan_still_ns(500 * MS, false, 0));
    /* A worker that had a quarter of its processor counts for a quarter; several count for one. */
    TEST_ASSERT_EQUAL_UINT64(1 * MS, tl_eff_plan_still_ns(4 * MS, true, 1 * MS));
    TEST_ASSERT_EQUAL_UINT64(4 * MS, tl_eff_plan_still_ns(4 * MS, true, 16 * MS));
    TEST_ASSERT_EQUAL_UINT64(8 * MS, tl_eff_plan_still_ns(500 * MS, true, 400 * MS));
    /* Who sleeps until another block wakes him is found to wait all the same, later. */
    TEST_ASSERT_EQUAL_UINT64(MS / 2, tl_eff_plan_still_ns(4 * MS, true, 0));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t gap = any_size(40), worked = any_size(40);
        uint64_t counted = tl_eff_plan_still_ns(gap, true, worked);
        TEST_ASSERT_TRUE(counted <= tl_eff_plan_still_ns(gap, false, 0));
        TEST_ASSERT_TRUE(counted <= tl_eff_plan_still_ns(gap, true, worked + any_size(30)));
    }
}

static void stops_that_went_well_acquit_a_kernel(void)
{
    TEST_ASSERT_EQUAL_UINT32(1, tl_eff_plan_strikes(0, 0));
    TEST_ASSERT_EQUAL_UINT32(2, tl_eff_plan_strikes(1, 0));
    TEST_ASSERT_EQUAL_UINT32(2, tl_eff_plan_strikes(1, 15));
    TEST_ASSERT_EQUAL_UINT32(1, tl_eff_plan_strikes(1, 16));
}

/* A block that only takes long ends at any time.  Of those that end after the first patience and
 * look as if they had waited, none does so again: by then patience is twice as long. */
static void a_block_that_only_takes_long_never_looks_twice_as_if_it_waited(void)
{
    uint32_t n_once = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_wait w = {.wave_ns = 1 + any_size(25), .beside = 1, .in_turn = 1};
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

/* Every launch of a gated kernel has all blocks; the cost of those that only leave is weighed. */
static void a_gate_is_begun_only_where_leaving_is_cheap(void)
{
    uint32_t n_begun = 0, n_left = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct tl_eff_facts f = any_facts();
        f.done = f.launched = 0;
        f.force = -1;
        f.rungs[TL_RUNG_GATE].form = TL_EFF_FORM_READY;
        bool is_known = f.has_profile && f.whole_ns != 0 && f.leave_ns != 0;
        struct tl_eff_choice c = decide(&f, TL_EFF_FORM_NONE);
        uint64_t sms = f.sms > 0 ? f.sms : 1, waves = (f.blocks + sms - 1) / sms;
        if (c.rung == TL_RUNG_GATE) {
            n_begun++;
            TEST_ASSERT_FALSE_MESSAGE(divides_sms(&f), "it would not keep to its part");
            if (is_known && f.leave_ns < UINT32_MAX)
                TEST_ASSERT_TRUE(8 * waves * f.leave_ns <= f.whole_ns);
            struct tl_eff_facts cheaper = f;
            cheaper.leave_ns = f.leave_ns > 1 ? 1 + any(f.leave_ns) : f.leave_ns;
            TEST_ASSERT_EQUAL(TL_RUNG_GATE, decide(&cheaper, TL_EFF_FORM_NONE).rung);
        } else if (c.rung == TL_RUNG_WHOLE) {
            f.leave_ns = 0;
            n_left += decide(&f, TL_EFF_FORM_NONE).rung == TL_RUNG_GATE;
        }
    }
    TEST_ASSERT_TRUE_MESSAGE(n_begun > ROUNDS / 1000 && n_left > ROUNDS / 1000, "both happen");
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
        struct tl_eff_rung_facts r = {.wave_ns = any_size(30), .n_samples = (uint32_t)any(20)};
        enum tl_rung rung = (enum tl_rung)any(TL_RUNG_WHOLE);
        uint64_t wave_ns = any_size(25), waves = 1 + any_size(20);
        bool is_on_trial = tl_eff_plan_is_on_trial(rung, &r, wave_ns);
        TEST_ASSERT_FALSE(is_on_trial && r.n_samples >= 12);
        TEST_ASSERT_FALSE(!is_on_trial && r.n_samples < 3);
        if (tl_eff_plan_is_too_slow(rung, &r, wave_ns, waves)) {
            TEST_ASSERT_TRUE(r.n_samples >= 3 && wave_ns != 0 && r.wave_ns > wave_ns);
            struct tl_eff_rung_facts slower = r;
            slower.wave_ns += any_size(30);
            TEST_ASSERT_TRUE(tl_eff_plan_is_too_slow(rung, &slower, wave_ns, waves));
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
#define G TL_RUNG_GATE
#define W TL_RUNG_WHOLE

/* --- single decisions ------------------------------------------------------------------------- */

struct rung_row {
    const char *what;
    int forms[4], slow; /* slow: a bit per rung */
    enum tl_rung finest;
    uint32_t permille;
    int force;
    bool is_alone, is_chained;
    uint64_t whole_ns;
    uint32_t done;
    enum tl_rung was, expected;
    uint32_t resident; /* of 1000 blocks on 100 SMs; 0: one */
    uint64_t leave_ns;
};

static void check_rung(const struct rung_row *row)
{
    struct tl_eff_facts f = plain();
    f.finest = row->finest;
    f.sm_permille = row->permille;
    f.force = row->force;
    f.is_alone = row->is_alone;
    f.is_chained = row->is_chained;
    f.whole_ns = row->whole_ns;
    f.done = f.launched = row->done;
    f.rung = row->was;
    f.resident = row->resident != 0 ? row->resident : 1;
    f.leave_ns = row->leave_ns;
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++) {
        f.rungs[r].form = (enum tl_eff_form)row->forms[r];
        f.rungs[r].is_slow = (row->slow >> r & 1) != 0;
    }
    struct tl_eff_choice c = tl_eff_plan_rung(&f);
    TEST_ASSERT_FALSE_MESSAGE(c.asks, row->what);
    TEST_ASSERT_EQUAL_MESSAGE(row->expected, c.rung, row->what);
}

static void rungs_are_chosen_as_the_table_says(void)
{
    enum { NO = TL_EFF_FORM_NONE, YES = TL_EFF_FORM_READY, SOON = TL_EFF_FORM_COMING };
    /* clang-format off */
    static const struct rung_row rows[] = {
        {"the finest",                        {YES, YES, YES, NO},  0, P, 0, -1, false, false, 10 * MS, 0, W, P, 0, 0},
        {"the next if it is refused",         {NO, YES, YES, NO},   0, P, 0, -1, false, false, 10 * MS, 0, W, T, 0, 0},
        {"the last if two are refused",       {NO, NO, YES, NO},    0, P, 0, -1, false, false, 10 * MS, 0, W, S, 0, 0},
        {"whole if all are",                  {NO, NO, NO, NO},     0, P, 0, -1, false, false, 10 * MS, 0, W, W, 0, 0},
        {"whole while one is being built",    {SOON, YES, YES, NO}, 0, P, 0, -1, false, false, 10 * MS, 0, W, W, 0, 0},
        {"the next if it is slow",            {YES, YES, YES, NO},  1, P, 0, -1, false, false, 10 * MS, 0, W, T, 0, 0},
        {"whole if all are slow",             {YES, YES, YES, NO},  7, P, 0, -1, false, false, 10 * MS, 0, W, W, 0, 0},
        {"slices if no finer is granted",     {YES, YES, YES, NO},  0, S, 0, -1, false, false, 10 * MS, 0, W, S, 0, 0},
        {"whole if no rung is granted",       {YES, YES, YES, NO},  0, W, 0, -1, false, false, 10 * MS, 0, W, W, 0, 0},
        {"whole if short",                    {YES, YES, YES, NO},  0, P, 0, -1, false, false, 100 * US, 0, W, W, 0, 0},
        {"cut if a little longer",            {YES, YES, YES, NO},  0, P, 0, -1, false, false, 100 * US + 1, 0, W, P, 0, 0},
        {"short, but behind another",         {YES, YES, YES, NO},  0, P, 0, -1, false, true, 100 * US, 0, W, P, 0, 0},
        {"short, but begun in pieces",        {YES, YES, YES, NO},  0, P, 0, -1, false, false, 100 * US, 8, T, P, 0, 0},
        {"whole with nobody above",           {YES, YES, YES, NO},  0, P, 0, -1, true, false, 20 * MS, 0, W, W, 0, 0},
        {"cut with nobody above if long",     {YES, YES, YES, NO},  0, P, 0, -1, true, false, 20 * MS + 1, 0, W, P, 0, 0},
        {"behind another with nobody above",  {YES, YES, YES, NO},  0, P, 0, -1, true, true, 20 * MS, 0, W, P, 0, 0},
        {"on as it began if all are slow",    {YES, YES, YES, NO},  7, P, 0, -1, false, false, 10 * MS, 8, T, T, 0, 0},
        {"on as it began if none is left",    {NO, NO, NO, NO},     0, P, 0, -1, false, false, 10 * MS, 8, S, S, 0, 0},
        {"on a finer one if that has come",   {YES, YES, YES, NO},  2, P, 0, -1, false, false, 10 * MS, 8, T, P, 0, 0},
        {"forced",                            {YES, YES, YES, NO},  7, W, 0, T, true, false, 100 * US, 0, W, T, 0, 0},
        {"forced in vain",                    {YES, NO, YES, NO},   0, P, 0, T, false, false, 10 * MS, 0, W, W, 0, 0},
        {"forced whole",                      {YES, YES, YES, NO},  0, P, 0, W, false, false, 10 * MS, 0, W, W, 0, 0},
        {"forced onto a part",                {YES, YES, YES, NO},  0, P, 0, TL_RUNG_CAP, false, false, 10 * MS, 0, W, W, 0, 0},
        {"kept to a part however short",      {YES, YES, YES, NO},  0, TL_RUNG_CAP, 500, -1, true, false, 100 * US, 0, W, P, 0, 0},
        {"kept to a part however slow",       {YES, YES, YES, NO},  1, TL_RUNG_CAP, 500, -1, false, false, 10 * MS, 0, W, P, 0, 0},
        {"the last that fits at once",        {YES, YES, YES, NO},  0, P, 0, -1, false, false, 10 * MS, 0, W, W, 10, 0},
        {"the first that does not",           {YES, YES, YES, NO},  0, P, 0, -1, false, false, 10 * MS, 0, W, P, 9, 0},
        {"forced, but it fits at once",       {YES, YES, YES, NO},  0, P, 0, T, false, false, 10 * MS, 0, W, W, 10, 0},
        {"kept to a part, but it fits",       {YES, YES, YES, NO},  0, TL_RUNG_CAP, 500, -1, false, false, 10 * MS, 0, W, W, 10, 0},
        {"begun in pieces, as if it fitted",  {YES, YES, YES, NO},  0, P, 0, -1, false, false, 10 * MS, 8, T, P, 10, 0},
        {"all SMs granted as a part",         {YES, YES, YES, NO},  0, TL_RUNG_CAP, 1000, -1, false, false, 10 * MS, 0, W, W, 0, 0},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_rung(&rows[i]);
}

static void gates_are_chosen_as_the_table_says(void)
{
    enum { NO = TL_EFF_FORM_NONE, YES = TL_EFF_FORM_READY };
    /* clang-format off */
    static const struct rung_row rows[] = {
        {"the gate if there is no PTX",       {NO, NO, NO, YES},    0, P, 0, -1, false, false, 10 * MS, 0, W, G, 0, 1 * US},
        {"the gate if all else is slow",      {YES, YES, YES, YES}, 7, P, 0, -1, false, false, 10 * MS, 0, W, G, 0, 1 * US},
        {"no gate if that is slow, too",      {NO, NO, NO, YES},    8, P, 0, -1, false, false, 10 * MS, 0, W, W, 0, 1 * US},
        {"a gate of unknown cost",            {NO, NO, NO, YES},    0, P, 0, -1, false, false, 10 * MS, 0, W, G, 0, 0},
        {"leaving takes an eighth",           {NO, NO, NO, YES},    0, P, 0, -1, false, false, 10 * MS, 0, W, G, 0, 125 * US},
        {"leaving takes more than that",      {NO, NO, NO, YES},    0, P, 0, -1, false, false, 10 * MS, 0, W, W, 0, 126 * US},
        {"forced, whatever leaving takes",    {YES, YES, YES, YES}, 8, P, 0, G, false, false, 10 * MS, 0, W, G, 0, 1 * MS},
        {"gated is not kept to a part",       {NO, NO, NO, YES},    0, TL_RUNG_CAP, 500, -1, false, false, 10 * MS, 0, W, W, 0, 1 * US},
        {"gated with nobody above",           {NO, NO, NO, YES},    0, P, 0, -1, true, false, 20 * MS, 0, W, W, 0, 1 * US},
        {"gated, but it fits at once",        {NO, NO, NO, YES},    0, P, 0, G, false, false, 10 * MS, 0, W, W, 10, 1 * US},
        {"on with the gate",                  {NO, NO, NO, YES},    0, P, 0, -1, false, false, 10 * MS, 8, T, G, 0, 1 * US},
    };
    /* clang-format on */
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_rung(&rows[i]);
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
    /* While that is being built, because it was long in another shape, it counts as long. */
    f.rungs[TL_RUNG_PERSISTENT].form = TL_EFF_FORM_COMING;
    TEST_ASSERT_TRUE(tl_eff_plan_rung(&f).holds);
    f.rungs[TL_RUNG_PERSISTENT].form = TL_EFF_FORM_UNASKED;
    /* Unless its grid is so large that it cannot be short: then its first launch waits for it. */
    f.rungs[TL_RUNG_PERSISTENT].was_asked_for = false;
    f.blocks = 16 * f.sms;
    TEST_ASSERT_TRUE(tl_eff_plan_rung(&f).asks);
    f.rungs[TL_RUNG_PERSISTENT].form = TL_EFF_FORM_COMING;
    TEST_ASSERT_TRUE(tl_eff_plan_rung(&f).holds);
    f.rungs[TL_RUNG_PERSISTENT].held_ns = 4000 * MS;
    TEST_ASSERT_FALSE(tl_eff_plan_rung(&f).holds);
    f.rungs[TL_RUNG_PERSISTENT].held_ns = 0;
    f.is_alone = true;
    TEST_ASSERT_FALSE(tl_eff_plan_rung(&f).holds);
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
    RUN_TEST(a_kernel_is_held_only_where_somebody_would_wait_for_it);
    RUN_TEST(with_nobody_above_only_long_kernels_are_cut);
    RUN_TEST(what_fits_at_once_is_never_cut);
    RUN_TEST(what_was_found_to_wait_twice_is_never_cut);
    RUN_TEST(patience_is_many_times_what_it_should_take);
    RUN_TEST(time_without_a_processor_hardly_counts_as_standing_still);
    RUN_TEST(stops_that_went_well_acquit_a_kernel);
    RUN_TEST(a_block_that_only_takes_long_never_looks_twice_as_if_it_waited);
    RUN_TEST(what_fits_at_once_is_not_kept_to_a_part_that_is_too_small);
    RUN_TEST(a_gate_is_begun_only_where_leaving_is_cheap);
    RUN_TEST(a_part_is_within_the_device);
    RUN_TEST(budgets_are_never_less_than_granted_but_for_caution);
    RUN_TEST(a_trial_ends_and_only_what_was_tried_often_is_called_slow);
    RUN_TEST(rungs_are_chosen_as_the_table_says);
    RUN_TEST(gates_are_chosen_as_the_table_says);
    RUN_TEST(variants_are_asked_for_one_after_the_other);
    RUN_TEST(kernels_that_cannot_be_stopped_get_the_part_of_the_table);
    RUN_TEST(budgets_are_those_of_the_table);
    RUN_TEST(launches_are_measured_often_at_first_and_seldom_later);
    return UNITY_END();
}

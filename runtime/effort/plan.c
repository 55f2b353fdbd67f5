/* Decisions about a kernel, as a pure function of facts; plan.h has the contracts. */
#include "runtime/effort/plan.h"
#include "tally/check.h"

enum {
    /* what a ticket block costs that only leaves, on one SM, with all that it finds cold */
    TICKET_DRAIN_NS = 800,
    LEAVE_NS = 800,  /* the same of a gated block, if that was not measured */
    LEAVE_PART = 8,  /* of what is gained or run, leaving may cost the eighth part */
    BATCH_NS = 8000, /* about as long as it takes to leave the device anyway */
    MOST_BATCH = 64,
    MOST_BESIDE = 32, /* blocks on an SM of every GPU so far */
    BATCHES = 8, /* but each worker several times, so that all are done at about the same time */
    TRIAL_WAVES = 4,
    TRIAL_NS = 400000,
    TRIALS = 3,       /* small pieces by which a variant is judged if it does well, */
    MOST_TRIALS = 12, /* and if it does not */
    VERY_SLOW = 8,
    SLOW_NS = 20000,
    RETRY_AFTER = 128,
    /* of as many blocks as the device has room for; each takes some microseconds at least */
    LARGE_WAVES = 16,
    FIRST_SAMPLES = 4,
    SAMPLE_EVERY = 32,         /* launches, */
    MANY_SAMPLES = 32,         /* and once there are so many, */
    SAMPLE_SELDOM = 256,       /* so: each is a detour by the executor, which short kernels feel */
    MAX_ROUND_TRIP_NS = 12000, /* more was measured on a busy machine */
    PATIENCE_BLOCKS = 64,
    PATIENCE_NS = 50000000,          /* at least; a machine may be busy for so long */
    UNKNOWN_PATIENCE_NS = 500000000, /* where the time of a block is not known */
    AWAKE_NS = 8000000, /* a longer gap between two looks is one in which nobody looked */
    SLEEP_PART = 8,     /* of the time counts for what waits without a processor */
    CLEAN_STOPS = 16,   /* acquit a kernel that was once found to wait */
};
#define HOLD_NS UINT64_C(4000000000) /* in all, for a variant that is being built */

static uint32_t least(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* --- what fits at once ------------------------------------------------------------------------ */

bool tl_eff_plan_fits(const struct tl_eff_facts *f, uint32_t sms)
{
    return sms == 0 || f->resident == 0 || f->blocks <= (uint64_t)sms * f->resident;
}

bool tl_eff_plan_fits_at_once(const struct tl_eff_facts *f)
{
    return tl_eff_plan_fits(f, f->sms);
}

bool tl_eff_plan_waits(const struct tl_eff_facts *f)
{
    return f->strikes >= TL_EFF_STRIKES;
}

/* --- the rung --------------------------------------------------------------------------------- */

/* A policy that divides the SMs: then every kernel that can runs in a form that keeps to its part,
 * however short it is. */
static bool keeps_part(const struct tl_eff_facts *f)
{
    return f->finest == TL_RUNG_CAP && f->sm_permille > 0 && f->sm_permille < 1000;
}

static bool is_known(const struct tl_eff_facts *f)
{
    return f->has_profile && f->whole_ns != 0;
}

/* Every launch of a gated kernel has the whole grid, and of blocks that are over as soon as they
 * have asked whether to begin there may be millions.  So if leaving takes nearly as long as
 * running, there is nothing to gain.  Nor does a gated kernel keep to a part of the SMs. */
static bool gate_is_worth_it(const struct tl_eff_facts *f)
{
    if (keeps_part(f))
        return false;
    return f->leave_ns == 0 || !is_known(f) ||
           tl_eff_plan_leaving_ns(f) <= f->whole_ns / LEAVE_PART;
}

bool tl_eff_plan_is_large(uint32_t blocks, uint32_t sms, uint32_t resident)
{
    uint64_t room = (uint64_t)(sms > 0 ? sms : 1) * (resident > 0 ? resident : 1);
    return blocks / LARGE_WAVES >= room;
}

/* Somebody is above, and the kernel is longer than the budget, or was never seen and is large. */
static bool seems_long(const struct tl_eff_facts *f)
{
    return !f->is_alone && (is_known(f) ? f->whole_ns > f->turnaround_ns
                                        : tl_eff_plan_is_large(f->blocks, f->sms, f->resident));
}

/* Whether the rung comes into question, if there is a variant for it. */
static bool is_offered(const struct tl_eff_facts *f, enum tl_rung rung)
{
    if (rung == TL_RUNG_GATE && !gate_is_worth_it(f))
        return false;
    bool is_short = is_known(f) && f->whole_ns <= f->turnaround_ns && !keeps_part(f);
    if (rung < f->finest && !keeps_part(f))
        return false;
    if (is_short && !f->is_chained && f->done == 0)
        return false;
    if (f->has_profile && f->rungs[rung].is_slow && !keeps_part(f))
        return false;
    /* its time decides whether a variant is worth building, or if nothing is known and somebody
     * would have to wait for it, its size */
    return is_known(f) || f->rungs[rung].was_asked_for || seems_long(f);
}

static struct tl_eff_choice forced(const struct tl_eff_facts *f)
{
    struct tl_eff_choice c = {.rung = TL_RUNG_WHOLE};
    if (f->force < TL_RUNG_WHOLE) {
        enum tl_eff_form form = f->rungs[f->force].form;
        if (form == TL_EFF_FORM_UNASKED || form == TL_EFF_FORM_READY)
            c = (struct tl_eff_choice){.rung = (enum tl_rung)f->force,
                                       .asks = form == TL_EFF_FORM_UNASKED};
    }
    return c;
}

/* A long kernel waits for its variant where it would keep somebody above waiting, for a while: the
 * builder may be waiting for something that the kernel would do.  One of unknown length counts as
 * long if its variant is being built: that was asked for because it was, in another shape. */
static bool is_held_for(const struct tl_eff_facts *f, enum tl_rung rung)
{
    bool was_long = !f->is_alone && !is_known(f) && f->rungs[rung].was_asked_for;
    return (seems_long(f) || was_long) && f->done == 0 && !f->is_chained &&
           f->rungs[rung].held_ns < HOLD_NS;
}

/* The finest that there is.  While one is being built the next best is not worth building. */
static struct tl_eff_choice finest(const struct tl_eff_facts *f)
{
    for (enum tl_rung r = TL_RUNG_PERSISTENT; r < TL_RUNG_WHOLE; r++) {
        enum tl_eff_form form = f->rungs[r].form;
        if (!is_offered(f, r) || form == TL_EFF_FORM_NONE)
            continue;
        if (form == TL_EFF_FORM_COMING)
            return (struct tl_eff_choice){.rung = TL_RUNG_WHOLE, .holds = is_held_for(f, r)};
        return (struct tl_eff_choice){.rung = r, .asks = form == TL_EFF_FORM_UNASKED};
    }
    return (struct tl_eff_choice){.rung = TL_RUNG_WHOLE};
}

struct tl_eff_choice tl_eff_plan_rung(const struct tl_eff_facts *f)
{
    TL_CHECK(f->done == 0 || f->rung < TL_RUNG_WHOLE);
    if (f->done == 0 && (tl_eff_plan_fits_at_once(f) || tl_eff_plan_waits(f))) /* also if forced */
        return (struct tl_eff_choice){.rung = TL_RUNG_WHOLE};
    struct tl_eff_choice c = f->force >= 0 ? forced(f) : finest(f);
    if (c.asks)
        return c;
    if (f->done > 0) { /* what was begun in pieces ends in pieces */
        c.rung = c.rung < TL_RUNG_WHOLE ? c.rung : f->rung;
        return c;
    }
    bool is_harmless = f->is_alone && (!is_known(f) || f->whole_ns <= TL_EFF_ALONE_NS) &&
                       !keeps_part(f);
    if (f->force < 0 && is_harmless && !f->is_chained)
        c.rung = TL_RUNG_WHOLE;
    return c;
}

/* --- parts of the SMs ------------------------------------------------------------------------- */

uint32_t tl_eff_plan_sms(const struct tl_eff_facts *f)
{
    uint32_t sms = f->sms > 0 ? f->sms : 1;
    if (f->sm_permille == 0 || f->sm_permille >= 1000)
        return sms;
    sms = (uint32_t)((uint64_t)sms * f->sm_permille / 1000);
    return sms > 0 ? sms : 1;
}

/* The granted part, or if the policy leaves that to us, half of them for as long as a higher level
 * could be kept waiting for the end of a long one. */
uint32_t tl_eff_plan_cap(const struct tl_eff_facts *f)
{
    bool is_forced = f->force == TL_RUNG_CAP;
    bool is_long = is_known(f) && f->whole_ns > f->turnaround_ns;
    if (f->sms < 2 || f->is_capless || (f->force >= 0 && !is_forced))
        return 0;
    uint32_t sms = tl_eff_plan_sms(f);
    if (sms == f->sms)
        sms = is_forced || (is_long && !f->is_alone) ? f->sms / 2 : 0;
    bool may_hang = tl_eff_plan_waits(f) || tl_eff_plan_fits_at_once(f);
    return sms != 0 && may_hang && !tl_eff_plan_fits(f, sms) ? 0 : sms;
}

/* --- pieces ----------------------------------------------------------------------------------- */

uint32_t tl_eff_plan_beside(const struct tl_eff_facts *f)
{
    if (f->runs_block_by_block)
        return 1;
    uint32_t most = f->occupancy != 0 ? f->occupancy : f->resident != 0 ? f->resident : MOST_BESIDE;
    uint32_t sms = tl_eff_plan_sms(f), share = f->blocks / sms + (f->blocks % sms != 0);
    uint32_t n = most < share ? most : share; /* a small grid does not fill the SMs */
    return n > 0 ? n : 1;
}

uint64_t tl_eff_plan_block_ns(const struct tl_eff_facts *f, uint64_t wave_ns)
{
    const uint64_t most = UINT64_MAX / 2;
    uint32_t n = tl_eff_plan_beside(f);
    return wave_ns < most / n ? wave_ns * n : most;
}

/* How many blocks a persistent worker takes from the counter at a time.  To take and to ask costs
 * as much as to run a short block: a trip over the bus on a GPU, and on a CPU an atomic operation
 * that waits for all stores in front of it.  As many as run within BATCH_NS are over as soon as one
 * of others. */
static uint32_t batch_of(const struct tl_eff_facts *f)
{
    uint64_t wave_ns = !f->has_profile   ? 0
                       : f->wave_ns != 0 ? f->wave_ns
                                         : f->rungs[TL_RUNG_PERSISTENT].wave_ns;
    uint64_t ns = tl_eff_plan_block_ns(f, wave_ns);
    uint64_t workers = (uint64_t)tl_eff_plan_sms(f) * tl_eff_plan_beside(f);
    uint64_t rounds = (f->blocks - f->done) / workers;
    uint32_t n = 1;
    if (ns == 0 || f->takes_singly)
        return 1;
    while (2 * n * ns <= BATCH_NS && 2 * n <= MOST_BATCH && 2 * n * BATCHES <= rounds)
        n *= 2;
    while (n > 1 && f->done % n != 0) /* a worker takes on where a multiple begins */
        n /= 2;
    return n;
}

/* What so many blocks take, if one costs an SM so much; no product overflows. */
static uint64_t empty_ns(const struct tl_eff_facts *f, uint32_t blocks, uint64_t ns)
{
    uint32_t sms = f->sms > 0 ? f->sms : 1;
    uint64_t waves = ((uint64_t)blocks + sms - 1) / sms;
    ns = ns != 0 ? ns : LEAVE_NS;
    return ns < UINT32_MAX ? waves * ns : waves * UINT32_MAX;
}

uint64_t tl_eff_plan_leaving_ns(const struct tl_eff_facts *f)
{
    return empty_ns(f, f->blocks, f->leave_ns);
}

uint64_t tl_eff_plan_stop_ns(const struct tl_eff_facts *f)
{
    return empty_ns(f, f->blocks - f->done, f->leave_ns) +
           empty_ns(f, f->done, f->skip_ns != 0 ? f->skip_ns : f->leave_ns);
}

/* A very large grid takes long to leave and to be skipped, and if stops came one after the other,
 * it would do nothing else.  So it takes a bite that no stop interrupts: what runs for as long as
 * is lost, so that it is never more than half, and who is above waits twice as long at most.  Where
 * leaving is within the budget there are none.  Nor are there any behind a kernel whose end is not
 * known: there the stop words say whether this one may begin. */
static uint32_t bite_of(const struct tl_eff_facts *f)
{
    uint32_t sms = f->sms > 0 ? f->sms : 1, left = f->blocks - f->done;
    uint64_t lost_ns = tl_eff_plan_stop_ns(f);
    uint64_t wave_ns = !f->has_profile                       ? 0
                       : f->rungs[TL_RUNG_GATE].wave_ns != 0 ? f->rungs[TL_RUNG_GATE].wave_ns
                                                             : f->wave_ns;
    if (f->is_chained || wave_ns == 0 || lost_ns <= f->turnaround_ns / 2)
        return 0;
    uint64_t waves = (lost_ns + wave_ns - 1) / wave_ns;
    return waves > left / sms ? left : (uint32_t)waves * sms;
}

/* How many blocks keep to the budget: of slices, as many as run in half of it (two are in flight);
 * of tickets, as many as leave in that time.  One wave at least.  Slices that an SM does not run
 * all at once are multiples of what it does: the blocks beyond would take as long as if it were
 * full. */
static uint32_t within_budget(const struct tl_eff_facts *f)
{
    uint32_t sms = tl_eff_plan_sms(f), left = f->blocks - f->launched;
    uint64_t budget = f->turnaround_ns / 2, waves = budget / TICKET_DRAIN_NS;
    if (f->rung == TL_RUNG_SLICE) {
        uint64_t wave_ns = f->has_profile ? f->rungs[TL_RUNG_SLICE].wave_ns : 0;
        waves = wave_ns != 0 ? budget / wave_ns : 1;
        if (waves > tl_eff_plan_beside(f))
            waves -= waves % tl_eff_plan_beside(f);
    }
    if (waves < 1)
        waves = 1;
    return waves > left / sms ? left : (uint32_t)waves * sms; /* no product overflows */
}

bool tl_eff_plan_is_trial(const struct tl_eff_facts *f)
{
    TL_CHECK(f->rung < TL_RUNG_WHOLE);
    return f->force < 0 && f->has_profile &&
           tl_eff_plan_is_on_trial(f->rung, &f->rungs[f->rung], f->wave_ns);
}

/* Long enough for the launch itself not to count, as far as the original tells; and SMs that are
 * not full would look slow. */
static uint32_t trial_blocks(const struct tl_eff_facts *f)
{
    uint64_t waves = f->wave_ns != 0 ? TRIAL_NS / f->wave_ns : 0, beside = tl_eff_plan_beside(f);
    waves = waves > TRIAL_WAVES ? waves : TRIAL_WAVES;
    waves = (waves + beside - 1) / beside * beside;
    return least(waves * (f->sms > 0 ? f->sms : 1), f->blocks - f->launched);
}

struct tl_eff_size tl_eff_plan_size(const struct tl_eff_facts *f)
{
    TL_CHECK(f->rung < TL_RUNG_WHOLE && f->done <= f->launched && f->launched < f->blocks);
    bool is_trial = tl_eff_plan_is_trial(f);
    struct tl_eff_size size = {.batch = 1};
    if (f->rung == TL_RUNG_PERSISTENT) {
        TL_CHECK(f->launched == f->done); /* one at a time */
        uint32_t left = f->blocks - f->done;
        size.batch = batch_of(f);
        size.blocks = is_trial ? least(((uint64_t)trial_blocks(f) + size.batch - 1) / size.batch *
                                           size.batch,
                                       left)
                               : left;
    } else if (f->rung == TL_RUNG_GATE) {
        TL_CHECK(f->launched == f->done);  /* one at a time */
        size.blocks = f->blocks - f->done; /* also on trial: all others would leave for nothing */
        size.bite = bite_of(f);
    } else if (is_trial) {
        size.blocks = trial_blocks(f);
    } else {
        size.blocks = f->is_chained ? f->blocks - f->launched : within_budget(f);
    }
    TL_CHECK(size.blocks > 0 && size.blocks <= f->blocks - f->launched);
    return size;
}

uint32_t tl_eff_plan_at_once(const struct tl_eff_facts *f)
{
    bool is_one = f->rung == TL_RUNG_PERSISTENT || f->rung == TL_RUNG_GATE;
    return is_one || f->is_chained || tl_eff_plan_is_trial(f) ? 1 : 2;
}

bool tl_eff_plan_may_follow(const struct tl_eff_facts *f)
{
    if (f->rung == TL_RUNG_TICKET)
        return within_budget(f) >= f->blocks;
    if (f->rung == TL_RUNG_GATE)
        return tl_eff_plan_leaving_ns(f) <= f->turnaround_ns / 2;
    return f->rung == TL_RUNG_PERSISTENT;
}

/* Workers that share an SM in turns are as good as one there; more of them would take longer to
 * leave, and spread over SMs that were not granted. */
uint32_t tl_eff_plan_workers(const struct tl_eff_facts *f, uint32_t blocks)
{
    TL_CHECK(blocks > 0);
    uint64_t n = (uint64_t)tl_eff_plan_sms(f) * tl_eff_plan_beside(f);
    return least(least(n, f->blocks), blocks);
}

/* Each worker takes one batch too many when it finds the end, but for the one whose batch is cut
 * off there. */
uint32_t tl_eff_plan_expected(const struct tl_eff_facts *f, struct tl_eff_size size,
                              uint32_t workers)
{
    return f->done + (size.blocks / size.batch + workers) * size.batch;
}

/* --- a kernel in pieces that does not move ---------------------------------------------------- */

uint64_t tl_eff_plan_still_ns(uint64_t gap_ns, bool tells_work, uint64_t worked_ns)
{
    uint64_t gap = gap_ns < AWAKE_NS ? gap_ns : AWAKE_NS;
    if (!tells_work || worked_ns > gap)
        return gap;
    return worked_ns > gap / SLEEP_PART ? worked_ns : gap / SLEEP_PART;
}

uint32_t tl_eff_plan_strikes(uint32_t before, uint32_t n_clean)
{
    return n_clean >= CLEAN_STOPS || before == UINT32_MAX ? 1 : before + 1;
}

/* 64 times as long as it should take until something moves, 50 ms at least; twice that for each
 * time before.  Everything is bounded, so that nothing overflows. */
uint64_t tl_eff_plan_patience(const struct tl_eff_wait *w)
{
    const uint64_t most = (uint64_t)1 << 50;
    uint64_t ns = w->wave_ns != 0 ? w->wave_ns : UNKNOWN_PATIENCE_NS / PATIENCE_BLOCKS;
    uint32_t factors[] = {w->beside > 0 ? w->beside : 1, w->in_turn > 0 ? w->in_turn : 1,
                          PATIENCE_BLOCKS};
    for (uint32_t i = 0; i < sizeof factors / sizeof *factors; i++)
        ns = ns < most / factors[i] ? ns * factors[i] : most;
    ns = ns > PATIENCE_NS ? ns : PATIENCE_NS;
    return ns << (w->strikes < 8 ? w->strikes : 8);
}

/* What was begun beside it may have been what it waited for if it came back soon after: within the
 * time that it had stood still before.  A block that only took long ends at any time, so that may
 * be chance, once. */
bool tl_eff_plan_was_needed(const struct tl_eff_rescued *r)
{
    return r->has_taken && r->took_ns <= r->held_ns;
}

/* --- whole kernels, budgets ------------------------------------------------------------------- */

bool tl_eff_plan_goes_whole(uint64_t whole_ns, uint64_t turnaround_ns, bool is_alone)
{
    return whole_ns <= turnaround_ns || (is_alone && whole_ns <= TL_EFF_ALONE_NS);
}

/* The budgets of a policy are made for a GPU.  Where news take longer to come, keeping them would
 * only leave the device idle; a turnaround that the user asked for stands. */
static uint64_t at_least(const struct tl_eff_budget *b, uint64_t granted_ns, uint64_t round_trips)
{
    uint64_t ns = round_trips * least(b->round_trip_ns, MAX_ROUND_TRIP_NS);
    return b->is_asked_for || granted_ns > ns ? granted_ns : ns;
}

uint64_t tl_eff_plan_turnaround(const struct tl_eff_budget *b)
{
    return at_least(b, b->turnaround_ns, 8);
}

uint64_t tl_eff_plan_run_ahead(const struct tl_eff_budget *b)
{
    uint64_t limit = at_least(b, b->run_ahead_ns, 24), turnaround = tl_eff_plan_turnaround(b);
    if (limit < turnaround) /* so long a single kernel may be that runs whole */
        limit = turnaround;
    limit >>= b->caution;
    return b->is_alone && limit < TL_EFF_ALONE_NS ? TL_EFF_ALONE_NS : limit;
}

/* --- measuring -------------------------------------------------------------------------------- */

bool tl_eff_plan_wants_sample(uint32_t n_samples, uint32_t n_launches)
{
    uint32_t every = n_samples < MANY_SAMPLES ? SAMPLE_EVERY : SAMPLE_SELDOM;
    return n_samples < FIRST_SAMPLES || n_launches % every == 0;
}

/* Other work on the machine makes single measurements too long, never too short; and a few blocks
 * may not spread over the device as many do.  So the least of many counts, and with slices and
 * gates more is put up with: behind them there is no control. */
static bool seems_slow(enum tl_rung rung, uint64_t rung_ns, uint64_t wave_ns, uint64_t slack)
{
    uint64_t most = rung >= TL_RUNG_SLICE ? wave_ns * 9 / 4 : wave_ns * 3 / 2;
    return wave_ns != 0 && rung_ns > most + slack;
}

bool tl_eff_plan_is_on_trial(enum tl_rung rung, const struct tl_eff_rung_facts *r, uint64_t wave_ns)
{
    return r->n_samples < TRIALS ||
           (r->n_samples < MOST_TRIALS && seems_slow(rung, r->wave_ns, wave_ns, 0));
}

bool tl_eff_plan_is_too_slow(enum tl_rung rung, const struct tl_eff_rung_facts *r, uint64_t wave_ns,
                             uint64_t waves)
{
    TL_CHECK(waves > 0);
    uint64_t slack = SLOW_NS / waves; /* what the launch itself may have taken of it */
    if (!seems_slow(rung, r->wave_ns, wave_ns, slack))
        return false;
    return r->n_samples >= MOST_TRIALS ||
           (r->n_samples >= TRIALS && r->wave_ns > VERY_SLOW * wave_ns + slack);
}

uint32_t tl_eff_plan_retry_after(uint32_t times)
{
    return RETRY_AFTER << (times < 8 ? times : 8);
}

/* Invariants of all policies under random events: clients that come, work, change and go. */
#include "tally/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#define MS UINT64_C(1000000)
#define GB (UINT64_C(1) << 30)

enum { CLIENTS = 8, STEPS = 4000, SEQUENCES = 12 };

void setUp(void)
{
}

void tearDown(void)
{
}

static uint64_t random_state;

static uint64_t any(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

struct client {
    bool is_there, has_work, is_paused;
    int level;
    uint64_t memory; /* that it told of */
    uint64_t since;  /* ready and not allowed since then; 0: not waiting */
    /* ready and allowed since then, or since its last operation ended; 0: neither */
    uint64_t turn_since;
    struct tl_grant grant;
    uint64_t version;
};

struct world {
    struct tl_sched *s;
    const char *policy;
    uint64_t now, next, memory;
    struct client clients[CLIENTS];
    /* a turn: from a grant, or the end of an operation, to the end of the next */
    uint64_t longest_wait, longest_turn;
    uint64_t digest;  /* of all grants seen */
    bool is_tight;    /* all jobs together need more memory than there is */
    bool has_no_high; /* all clients are below high priority */
};

static struct tl_sched_client describe(const struct client *c)
{
    return (struct tl_sched_client){
        .level = c->level,
        .weight = (uint32_t)any(3) * 50,
        .min_permille = any(4) == 0 ? 50 : 0,
        .slo_ns = any(3) == 0 ? 5 * MS : 0,
        .slo_percentile = 9900,
        .is_paused = c->is_paused,
        .total_ns = any(2) * any(1000) * MS,
    };
}

static bool same(const struct tl_grant *a, const struct tl_grant *b)
{
    return a->may_run == b->may_run && a->yields == b->yields && a->finest == b->finest &&
           a->turnaround_ns == b->turnaround_ns && a->hysteresis_ns == b->hysteresis_ns &&
           a->run_ahead_ns == b->run_ahead_ns && a->blocks_per_s == b->blocks_per_s &&
           a->sm_permille == b->sm_permille && a->memory_bytes == b->memory_bytes;
}

/* What holds for every policy after every event: grants are in range, high jobs run, versions grow
 * with each change, memory and SMs are not given twice, and somebody who is ready runs. */
static void check_grants(struct world *w)
{
    bool has_ready = false, somebody_runs = false, is_stopped = strcmp(w->policy, "tgs") == 0;
    uint64_t memory = 0, shares = 0;
    for (uint32_t id = 0; id < CLIENTS; id++) {
        struct client *c = &w->clients[id];
        const struct tl_grant *g = tl_sched_grant(w->s, id);
        TEST_ASSERT_EQUAL_INT(c->is_there, g != NULL);
        if (!c->is_there)
            continue;
        bool is_ready = c->has_work && !c->is_paused;
        has_ready |= is_ready;
        somebody_runs |= is_ready && g->may_run;
        if (c->is_paused)
            TEST_ASSERT_FALSE(g->may_run);
        else if (c->level == TL_LEVEL_HIGH && strcmp(w->policy, "timeslice") != 0)
            TEST_ASSERT_TRUE_MESSAGE(g->may_run && !g->yields && g->blocks_per_s == 0, w->policy);
        TEST_ASSERT_TRUE(g->sm_permille >= 1 && g->sm_permille <= 1000);
        TEST_ASSERT_TRUE(g->finest < TL_RUNGS);
        TEST_ASSERT_TRUE(g->memory_bytes <= w->memory);
        TEST_ASSERT_TRUE(g->blocks_per_s <= UINT64_C(1000000000000));
        shares += g->sm_permille;
        memory += is_ready && g->may_run && c->level < TL_LEVEL_HIGH ? c->memory : 0;
        if (!same(g, &c->grant))
            TEST_ASSERT_TRUE(tl_sched_version(w->s, id) > c->version);
        else
            TEST_ASSERT_EQUAL_UINT64(c->version, tl_sched_version(w->s, id));
        c->grant = *g;
        c->version = tl_sched_version(w->s, id);
        if (!is_ready || !g->may_run)
            c->turn_since = 0;
        else if (c->turn_since == 0)
            c->turn_since = w->now;
        if (c->turn_since != 0 && w->now - c->turn_since > w->longest_turn)
            w->longest_turn = w->now - c->turn_since;
        if (!is_ready || g->may_run)
            c->since = 0;
        else if (c->since == 0)
            c->since = w->now;
        if (c->since != 0 && w->now - c->since > w->longest_wait)
            w->longest_wait = w->now - c->since;
        w->digest = (w->digest ^
                     (g->may_run + 2 * g->yields + 4 * g->sm_permille + g->blocks_per_s)) *
                    1099511628211u;
    }
    /* Parts of the SMs are a division of them; somebody who would get nothing gets a thousandth. */
    if (strcmp(w->policy, "gpulet") == 0)
        TEST_ASSERT_TRUE(shares <= 1000 + CLIENTS);
    /* Who runs at the same time has room for all that it needs, also where all together do not
     * fit. */
    if (strcmp(w->policy, "salus") == 0)
        TEST_ASSERT_TRUE(memory <= w->memory);
    /* TGS stops opportunistic jobs while it measures production, whatever production does.  Where
     * memory is short, who is ready may be one that waits for a lane. */
    if (has_ready && !is_stopped && !w->is_tight)
        TEST_ASSERT_TRUE_MESSAGE(somebody_runs, w->policy);
}

/* A client joins, leaves, changes, gets or loses work, or has run for a while. */
static void random_event(struct world *w)
{
    uint32_t id = (uint32_t)any(CLIENTS);
    struct client *c = &w->clients[id];
    if (!c->is_there) {
        static const int levels[] = {
            TL_LEVEL_HIGH, TL_LEVEL_HIGH, TL_LEVEL_LOW, TL_LEVEL_LOW, TL_LEVEL_LOW, 0, 0, 50};
        *c = (struct client){.is_there = true,
                             .level = levels[w->has_no_high ? 2 + any(6) : any(8)]};
        struct tl_sched_client d = describe(c);
        TEST_ASSERT_EQUAL_INT(0, tl_sched_join(w->s, id, &d, w->now));
        return;
    }
    struct tl_usage u = {
        .device_ns = any(MS), .blocks = any(5000), .launches = any(20), .gap_ns = any(3) * any(MS)};
    struct tl_footprint f = {.duration_ns = any(MS),
                             .sm_permille = (uint32_t)any(1001),
                             .bandwidth_permille = (uint32_t)any(1001),
                             .deadline_ns = any(2) * (w->now + any(10 * MS))};
    struct tl_sched_client d;
    switch (any(40)) {
    case 0:
        tl_sched_leave(w->s, id, w->now);
        c->is_there = false;
        break;
    case 1:
        c->is_paused = any(4) == 0;
        d = describe(c);
        TEST_ASSERT_EQUAL_INT(0, tl_sched_change(w->s, id, &d, w->now));
        break;
    case 2: { /* unless it is tight they fit together, so that nobody may be refused for memory */
        uint64_t most = w->memory / (w->is_tight ? 3 : 16), persistent = any(most),
                 ephemeral = any(most);
        c->memory = persistent + ephemeral;
        tl_sched_memory(w->s, id, persistent, ephemeral, w->now);
        break;
    }
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
        c->has_work = any(4) != 0;
        tl_sched_backlog(w->s, id, c->has_work, w->now);
        break;
    case 8:
    case 9:
        tl_sched_request(w->s, id, any(10 * MS), w->now);
        break;
    default:
        if (c->has_work && c->grant.may_run) {
            tl_sched_used(w->s, id, &u, w->now);
            tl_sched_iteration(w->s, id, w->now);
            tl_sched_footprint(w->s, id, &f, w->now);
            c->turn_since = w->now;
        }
    }
}

/* The longest time that a client stood ready and was not allowed to run, and the longest turn of
 * one. */
struct outcome {
    uint64_t digest, wait, turn;
};

static struct outcome play_in(struct world w, const char *parameters, uint64_t seed)
{
    struct tl_sched_options o = {
        .n_sms = 108, .memory_bytes = w.memory, .seed = seed, .parameters = parameters};
    struct tl_error err;
    random_state = seed * 2654435761u + 1;
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_sched_create(&w.s, w.policy, &o, &err), err.text);
    for (int i = 0; i < STEPS; i++) {
        w.now += any(MS);
        random_event(&w);
        w.next = tl_sched_tick(w.s, w.now);
        TEST_ASSERT_TRUE(w.next > w.now);
        check_grants(&w);
    }
    tl_sched_destroy(w.s);
    return (struct outcome){w.digest, w.longest_wait, w.longest_turn};
}

static struct outcome play(const char *policy, const char *parameters, uint64_t seed)
{
    return play_in((struct world){.policy = policy, .memory = 16 * GB, .now = 1}, parameters, seed);
}

static void every_policy_keeps_the_invariants(void)
{
    for (const struct tl_policy *const *p = tl_sched_policies(); *p != NULL; p++)
        for (uint64_t seed = 1; seed <= SEQUENCES; seed++)
            play(tl_policy_name(*p), NULL, seed);
}

static void the_same_events_give_the_same_grants(void)
{
    for (const struct tl_policy *const *p = tl_sched_policies(); *p != NULL; p++) {
        uint64_t first = play(tl_policy_name(*p), NULL, 99).digest;
        TEST_ASSERT_EQUAL_HEX64(first, play(tl_policy_name(*p), NULL, 99).digest);
    }
}

static void salus_keeps_them_in_every_order(void)
{
    static const char *const orders[] = {"order=fifo", "order=srtf", "order=srtf,preempt=no",
                                         "order=fair", "order=rr",   "order=pack"};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        for (uint64_t seed = 1; seed <= SEQUENCES; seed++) {
            play("salus", orders[i], seed);
            play_in(
                (struct world){.policy = "salus", .memory = 16 * GB, .now = 1, .is_tight = true},
                orders[i], seed);
        }
}

/* The bounds that docs/policies.md states, for 8 clients.  Grants are looked at once per event, a
 * millisecond apart at most. */
static void nobody_starves_beyond_the_stated_bound(void)
{
    static const struct {
        const char *policy, *parameters;
        uint64_t bound;
        /* and so many of the longest turn, where turns are as long as operations are */
        uint64_t turns;
    } cases[] = {
        {"tally", "quantum=5ms", (24 + 1) * CLIENTS * (5 + 1) * MS, 0},
        {"slo", "quantum=5ms", (24 + 1) * CLIENTS * (5 + 1) * MS, 0},
        {"kernel", "quantum=5ms", (24 + 1) * CLIENTS * (5 + 1) * MS, 0},
        {"reef", NULL, (24 + 1) * CLIENTS * (5 + 1) * MS, 0},
        {"orion", NULL, (24 + 1) * CLIENTS * (5 + 1) * MS, 0},
        {"timeslice", "quantum=2ms", CLIENTS * (2 + 1) * MS, 0},
        {"none", NULL, 0, 0},
        {"priority", NULL, 0, 0},
        {"gpulet", NULL, 0, 0},
        {"herald", "patience=20ms", 20 * MS, CLIENTS},
        {"salus", "order=rr,lanes=no", 0, 2 * CLIENTS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint64_t seed = 1; seed <= SEQUENCES; seed++) {
            struct world w = {.policy = cases[i].policy,
                              .memory = 16 * GB,
                              .now = 1,
                              .has_no_high = cases[i].turns > 0};
            struct outcome o = play_in(w, cases[i].parameters, seed);
            TEST_ASSERT_TRUE_MESSAGE(o.wait <= cases[i].bound + cases[i].turns * (o.turn + MS),
                                     cases[i].policy);
        }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_policy_keeps_the_invariants);
    RUN_TEST(the_same_events_give_the_same_grants);
    RUN_TEST(salus_keeps_them_in_every_order);
    RUN_TEST(nobody_starves_beyond_the_stated_bound);
    return UNITY_END();
}

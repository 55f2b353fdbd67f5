/* Shares as jobs get them, for jobs of all kinds: pieces of some length, which cannot be stopped
 * once they run and are told of when they end; steps, with pauses of the job's own between them; an
 * arbiter that looks now and then, and grants that take a while to arrive.  Whatever these are,
 * equals have the same of the device, within 5 %, as far as they have work for it. */
#include "tally/sched.h"

#include <stdio.h>
#include <string.h>
#include <unity.h>

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define STEP_NS (50 * US)
#define RUN_NS (10000 * MS)
#define WARM_NS (1000 * MS) /* jobs come one after the other, in less */

enum { JOBS = 6, WORLDS = 60 };

struct job {
    uint64_t piece_ns, step_ns, pause_ns; /* on average; a step is so much of the device */
    struct tl_sched_client c;
    bool is_stuck; /* nothing of its work can run */
    /* State. */
    uint64_t comes, left_ns, rests_until, asked;
    bool may_run, will_run;
    uint64_t heard_at; /* when it hears of will_run */
    uint64_t used_ns, told_ns, at_begin;
};

struct world {
    struct tl_sched *s;
    struct job jobs[JOBS];
    uint32_t n;
    uint64_t now, next_look, turns;
    struct job *on; /* whose piece is on the device */
    uint64_t on_until, on_ns;
    uint64_t idle_ns;   /* nobody had the device though somebody had work */
    uint64_t delay_ns;  /* that a grant takes */
    uint64_t jitter_ns; /* by which a look is late */
};

static struct world w;
static uint64_t random_state;

void setUp(void)
{
    memset(&w, 0, sizeof w);
}

void tearDown(void)
{
    tl_sched_destroy(w.s);
    w.s = NULL;
}

static uint64_t any(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

static uint64_t around(uint64_t ns)
{
    return ns / 2 + any(ns + 1);
}

static bool has_work(const struct job *j)
{
    return w.now >= j->comes && (w.now >= j->rests_until || w.on == j);
}

/* What tallyd does. */
static void look(void)
{
    for (uint32_t i = 0; i < w.n; i++) {
        struct job *j = &w.jobs[i];
        if (w.now < j->comes)
            continue;
        struct tl_usage u = {
            .device_ns = j->used_ns - j->told_ns, .launches = 1, .is_off = w.on != j};
        j->told_ns = j->used_ns;
        tl_sched_backlog(w.s, i + 1, has_work(j), w.now);
        tl_sched_used(w.s, i + 1, &u, w.now);
    }
    uint64_t next = tl_sched_tick(w.s, w.now);
    for (uint32_t i = 0; i < w.n; i++) {
        struct job *j = &w.jobs[i];
        bool may = w.now >= j->comes && tl_sched_grant(w.s, i + 1)->may_run;
        if (may != j->will_run) {
            j->will_run = may;
            j->heard_at = w.now + around(w.delay_ns);
        }
    }
    w.next_look = (next < w.now + 2 * MS ? next : w.now + 2 * MS) + any(w.jitter_ns + 1);
}

/* A piece has ended. */
static void end_piece(void)
{
    struct job *j = w.on;
    j->used_ns += w.on_ns;
    w.on = NULL;
    if (j->left_ns > w.on_ns) {
        j->left_ns -= w.on_ns;
        return;
    }
    j->left_ns = around(j->step_ns);
    if (j->pause_ns > 0)
        j->rests_until = w.now + around(j->pause_ns);
}

/* The device takes the next piece of whoever may run, in the order of their last ones. */
static void begin_piece(void)
{
    struct job *next = NULL;
    for (uint32_t i = 0; i < w.n; i++) {
        struct job *j = &w.jobs[i];
        if (has_work(j) && !j->is_stuck && j->may_run && (next == NULL || j->asked < next->asked))
            next = j;
    }
    if (next == NULL)
        return;
    next->asked = ++w.turns;
    w.on = next;
    w.on_ns = around(next->piece_ns);
    w.on_until = w.now + w.on_ns;
}

static void run(uint64_t ns)
{
    for (uint64_t end = w.now + ns; w.now < end; w.now += STEP_NS) {
        bool somebody_waits = false;
        for (uint32_t i = 0; i < w.n; i++) {
            struct job *j = &w.jobs[i];
            if (j->may_run != j->will_run && w.now >= j->heard_at)
                j->may_run = j->will_run;
            somebody_waits |= has_work(j);
        }
        if (w.on != NULL && w.now >= w.on_until)
            end_piece();
        if (w.now >= w.next_look)
            look();
        if (w.on == NULL)
            begin_piece();
        w.idle_ns += w.on == NULL && somebody_waits ? STEP_NS : 0;
    }
}

static void start(void)
{
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_sched_create(&w.s, "tally", NULL, &err), err.text);
    w.now = MS;
    for (uint32_t i = 0; i < w.n; i++) {
        struct job *j = &w.jobs[i];
        j->left_ns = around(j->step_ns);
        j->comes = w.now + any(WARM_NS / 2);
        TEST_ASSERT_EQUAL_INT(0, tl_sched_join(w.s, i + 1, &j->c, w.now));
    }
}

/* How much of the device each had in the time that counts. */
static void measure(uint64_t ns, uint64_t had[JOBS])
{
    run(WARM_NS);
    for (uint32_t i = 0; i < w.n; i++)
        w.jobs[i].at_begin = w.jobs[i].used_ns;
    run(ns);
    for (uint32_t i = 0; i < w.n; i++)
        had[i] = w.jobs[i].used_ns - w.jobs[i].at_begin;
}

/* A job of any kind whose own pauses leave it at least twice the time that an equal part is.  It
 * has none where pieces are very long: another one's, begun in a pause, would keep it from its
 * part, and nobody can help that. */
static void invent(struct job *j, uint32_t n, uint64_t longest_piece)
{
    *j = (struct job){.piece_ns = 200 * US + any(longest_piece)};
    j->step_ns = j->piece_ns + any(100 * MS);
    if (longest_piece > 40 * MS)
        return;
    uint64_t most = j->step_ns * (n - 2 + (n == 2)) / 4;
    j->pause_ns = any(2) == 0 || n == 2 ? any(j->step_ns / 8 + 1) : any(most + 1);
    if (j->pause_ns > 15 * MS)
        j->pause_ns = 15 * MS; /* longer ones are sleep, for which nobody is owed anything */
}

static void describe(char *text, size_t size, uint64_t seed, const uint64_t had[JOBS])
{
    size_t n = (size_t)snprintf(
        text, size,
        "world %llu, delay %llu us, late %llu us, idle %.1f %%:", (unsigned long long)seed,
        (unsigned long long)(w.delay_ns / US), (unsigned long long)(w.jitter_ns / US),
        100.0 * (double)w.idle_ns / (RUN_NS + WARM_NS));
    for (uint32_t i = 0; i < w.n && n < size; i++)
        n += (size_t)snprintf(text + n, size - n,
                              "  %.1f %% (pieces %.2f, steps %.1f, pauses %.1f ms)",
                              100.0 * (double)had[i] / RUN_NS, (double)w.jobs[i].piece_ns / 1e6,
                              (double)w.jobs[i].step_ns / 1e6, (double)w.jobs[i].pause_ns / 1e6);
}

/* Random jobs, all of one level. */
static void invent_world(uint64_t seed)
{
    static const uint64_t lengths[] = {2 * MS, 2 * MS, 40 * MS, 150 * MS};
    memset(&w, 0, sizeof w);
    random_state = seed * 7919;
    uint32_t n = 2 + (uint32_t)any(JOBS - 1);
    uint64_t longest = lengths[any(4)];
    w.delay_ns = any(500 * US);
    w.jitter_ns = any(2 * MS);
    for (uint32_t i = 0; i < n; i++)
        invent(&w.jobs[i], n, longest);
    w.n = n;
}

static uint64_t longest_piece(void)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < w.n; i++)
        longest = w.jobs[i].piece_ns > longest ? w.jobs[i].piece_ns : longest;
    return longest;
}

/* In 10 s, or if pieces are so long that 10 s are a few of them for each, in a minute. */
static void equals_have_the_same_whatever_they_run(void)
{
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        uint64_t had[JOBS], sum = 0;
        char text[1024];
        invent_world(seed);
        start();
        measure(longest_piece() > 40 * MS ? 6 * RUN_NS : RUN_NS, had);
        for (uint32_t i = 0; i < w.n; i++)
            sum += had[i];
        describe(text, sizeof text, seed, had);
        for (uint32_t i = 0; i < w.n; i++)
            TEST_ASSERT_UINT64_WITHIN_MESSAGE(sum / w.n / 20, sum / w.n, had[i], text);
        tearDown();
    }
}

/* One of them has 30 %, no less and no more, and the others have the same of what is left. */
static void a_share_is_kept_whatever_others_run(void)
{
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        uint64_t had[JOBS], rest = 0;
        char text[1024];
        invent_world(seed);
        while (w.n > 3 || longest_piece() > 3 * MS)
            invent_world(seed += 1000);
        w.jobs[0].pause_ns /= 4;
        w.jobs[0].c = (struct tl_sched_client){.min_permille = 300, .max_permille = 300};
        start();
        measure(RUN_NS, had);
        describe(text, sizeof text, seed, had);
        TEST_ASSERT_UINT64_WITHIN_MESSAGE(RUN_NS * 15 / 1000, RUN_NS * 300 / 1000, had[0], text);
        for (uint32_t i = 1; i < w.n; i++)
            rest += had[i];
        for (uint32_t i = 1; i < w.n; i++)
            TEST_ASSERT_UINT64_WITHIN_MESSAGE(rest / (w.n - 1) / 10, rest / (w.n - 1), had[i],
                                              text);
        tearDown();
        seed %= 1000;
    }
}

/* Its work waits for something that is not the device: a compiler, another process.  It cannot have
 * its part, and must not keep others from all of theirs. */
static void who_has_work_that_cannot_run_does_not_stop_the_others(void)
{
    uint64_t had[JOBS];
    invent_world(3);
    w.n = 3;
    for (uint32_t i = 0; i < w.n; i++)
        w.jobs[i] = (struct job){.piece_ns = MS / 2, .step_ns = 100 * MS};
    w.jobs[0].is_stuck = true;
    start();
    measure(RUN_NS, had);
    TEST_ASSERT_EQUAL_UINT64(0, had[0]);
    TEST_ASSERT_TRUE(had[1] > RUN_NS / 5 && had[2] > RUN_NS / 5);
}

/* A bound that is taken away does not leave a debt of minutes. */
static void a_bound_that_is_lifted_leaves_equals(void)
{
    uint64_t had[JOBS];
    invent_world(3);
    w.n = 2;
    for (uint32_t i = 0; i < w.n; i++)
        w.jobs[i] = (struct job){.piece_ns = MS / 2, .step_ns = 100 * MS};
    w.jobs[0].c.max_permille = 100;
    start();
    run(20 * RUN_NS / 10);
    w.jobs[0].c.max_permille = 0;
    TEST_ASSERT_EQUAL_INT(0, tl_sched_change(w.s, 1, &w.jobs[0].c, w.now));
    measure(RUN_NS, had);
    TEST_ASSERT_UINT64_WITHIN(had[1] / 20, had[1], had[0]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(equals_have_the_same_whatever_they_run);
    RUN_TEST(a_share_is_kept_whatever_others_run);
    RUN_TEST(who_has_work_that_cannot_run_does_not_stop_the_others);
    RUN_TEST(a_bound_that_is_lifted_leaves_equals);
    return UNITY_END();
}

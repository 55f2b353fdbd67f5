/* The policies that arbitrate by levels or turns, driven by hand. */
#include "tally/sched.h"

#include <errno.h>
#include <string.h>
#include <unity.h>

#define MS UINT64_C(1000000)

static struct tl_sched *s;
static uint64_t now;

void setUp(void)
{
    s = NULL;
    now = 1000 * MS;
}

void tearDown(void)
{
    tl_sched_destroy(s);
}

static void start(const char *policy, const char *parameters)
{
    struct tl_error err = {0};
    struct tl_sched_options o = {.parameters = parameters};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_sched_create(&s, policy, &o, &err), err.text);
}

static void join(uint32_t id, struct tl_sched_client c)
{
    TEST_ASSERT_EQUAL_INT(0, tl_sched_join(s, id, &c, now));
    tl_sched_backlog(s, id, true, now);
}

static const struct tl_grant *grant(uint32_t id)
{
    const struct tl_grant *g = tl_sched_grant(s, id);
    TEST_ASSERT_NOT_NULL(g);
    return g;
}

/* Lets whoever may run use the device for `ns`, in steps; returns how much of it each client 1..n
 * had, in permille. */
static void share_device(uint64_t ns, uint32_t n, uint64_t permille[])
{
    uint64_t step = MS / 4;
    memset(permille, 0, (n + 1) * sizeof permille[0]);
    for (uint64_t end = now + ns; now < end; now += step) {
        tl_sched_tick(s, now);
        uint32_t running = 0;
        for (uint32_t id = 1; id <= n; id++)
            running += grant(id)->may_run;
        for (uint32_t id = 1; id <= n; id++)
            if (grant(id)->may_run) {
                struct tl_usage u = {.device_ns = step / running, .launches = 1};
                tl_sched_used(s, id, &u, now + step);
                permille[id] += u.device_ns;
            }
    }
    for (uint32_t id = 1; id <= n; id++)
        permille[id] = permille[id] * 1000 / ns;
}

static void an_unknown_policy_is_refused_with_the_list(void)
{
    struct tl_error err = {0};
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_sched_create(&s, "tallly", NULL, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "tally, "));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "timeslice"));
}

static void bad_parameters_are_refused_with_what_there_is(void)
{
    struct tl_error err = {0};
    struct tl_sched_options o = {.parameters = "turnaround=1ms,quantums=2"};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_sched_create(&s, "tally", &o, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "quantums"));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "hysteresis"));
    o.parameters = "turnaround=soon";
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_sched_create(&s, "tally", &o, &err));
    o.parameters = "turnaround=1x";
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_sched_create(&s, "tally", &o, &err));
}

static void parameters_reach_the_grants(void)
{
    start("tally", "turnaround=31.6us,run-ahead=2ms");
    join(1, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT64(31600, grant(1)->turnaround_ns);
    TEST_ASSERT_EQUAL_UINT64(2 * MS, grant(1)->run_ahead_ns);
}

static void the_same_client_does_not_join_twice(void)
{
    struct tl_sched_client c = {0};
    start("tally", NULL);
    TEST_ASSERT_EQUAL_INT(0, tl_sched_join(s, 7, &c, now));
    TEST_ASSERT_EQUAL_INT(-EEXIST, tl_sched_join(s, 7, &c, now));
    tl_sched_leave(s, 7, now);
    TEST_ASSERT_NULL(tl_sched_grant(s, 7));
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_sched_change(s, 7, &c, now));
    tl_sched_backlog(s, 7, true, now); /* ignored */
    TEST_ASSERT_EQUAL_INT(0, tl_sched_join(s, 7, &c, now));
}

static void high_priority_is_open_and_best_effort_yields(void)
{
    start("tally", NULL);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    tl_sched_tick(s, now);
    TEST_ASSERT_TRUE(grant(1)->may_run);
    TEST_ASSERT_FALSE(grant(1)->yields);
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, grant(1)->run_ahead_ns);
    TEST_ASSERT_TRUE(grant(2)->may_run);
    TEST_ASSERT_TRUE(grant(2)->yields);
    TEST_ASSERT_EQUAL_INT(TL_RUNG_PERSISTENT, grant(2)->finest);
    TEST_ASSERT_TRUE(grant(2)->run_ahead_ns < MS);
}

static void the_kernel_policy_never_splits(void)
{
    start("kernel", NULL);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_INT(TL_RUNG_WHOLE, grant(1)->finest);
    TEST_ASSERT_TRUE(grant(1)->yields);
}

static void equals_share_by_their_weights(void)
{
    uint64_t permille[4];
    start("tally", NULL);
    join(1, (struct tl_sched_client){.weight = 100});
    join(2, (struct tl_sched_client){.weight = 200});
    join(3, (struct tl_sched_client){.weight = 100});
    share_device(10000 * MS, 3, permille);
    TEST_ASSERT_UINT64_WITHIN(20, 250, permille[1]);
    TEST_ASSERT_UINT64_WITHIN(20, 500, permille[2]);
    TEST_ASSERT_UINT64_WITHIN(20, 250, permille[3]);
}

static void who_slept_does_not_take_everything_afterwards(void)
{
    uint64_t permille[3];
    start("tally", NULL);
    join(1, (struct tl_sched_client){0});
    join(2, (struct tl_sched_client){0});
    tl_sched_backlog(s, 2, false, now);
    share_device(5000 * MS, 2, permille);
    TEST_ASSERT_UINT64_WITHIN(10, 1000, permille[1]);
    tl_sched_backlog(s, 2, true, now);
    share_device(1000 * MS, 2, permille);
    TEST_ASSERT_UINT64_WITHIN(20, 500, permille[1]);
}

/* Client 1 has pauses of its own, in which it has no work: after each of its steps, for a while.
 * Client 2 always has work.  What each had of the device in 10 s, in ns. */
static void share_with_pauses(uint64_t work, uint64_t pause, uint64_t had[3])
{
    uint64_t step = MS / 4, done = 0, paused = 0;
    had[1] = had[2] = 0;
    for (uint64_t end = now + 10000 * MS; now < end; now += step) {
        tl_sched_tick(s, now);
        for (uint32_t id = 1; id <= 2; id++)
            if (grant(id)->may_run && !(id == 1 && done >= work)) {
                struct tl_usage u = {.device_ns = step, .launches = 1};
                tl_sched_used(s, id, &u, now + step);
                had[id] += step;
                done += id == 1 ? step : 0;
            }
        if (done < work)
            continue;
        tl_sched_backlog(s, 1, paused >= pause, now + step);
        paused += step;
        if (paused > pause)
            done = paused = 0;
    }
}

static void pauses_between_steps_cost_an_equal_nothing(void)
{
    uint64_t had[3];
    start("tally", NULL);
    join(1, (struct tl_sched_client){0});
    join(2, (struct tl_sched_client){0});
    share_with_pauses(4 * MS, MS / 2, had);
    TEST_ASSERT_UINT64_WITHIN((had[1] + had[2]) / 40, (had[1] + had[2]) / 2, had[1]);
}

/* Kernels of client 1 cannot be stopped: each that it begins takes so long, whoever has the turn
 * then. */
static void long_kernels_are_made_up_for(void)
{
    uint64_t step = MS / 4, kernel = 60 * MS, had[3] = {0}, busy_until = 0;
    start("tally", NULL);
    join(1, (struct tl_sched_client){0});
    join(2, (struct tl_sched_client){0});
    for (uint64_t end = now + 10000 * MS; now < end; now += step) {
        tl_sched_tick(s, now);
        if (busy_until == 0 && grant(1)->may_run)
            busy_until = now + kernel;
        if (busy_until != 0 && now + step >= busy_until) {
            struct tl_usage u = {.device_ns = kernel, .launches = 1};
            tl_sched_used(s, 1, &u, now + step);
            had[1] += kernel;
            busy_until = 0;
        } else if (busy_until == 0 && grant(2)->may_run) {
            struct tl_usage u = {.device_ns = step, .launches = 1};
            tl_sched_used(s, 2, &u, now + step);
            had[2] += step;
        }
    }
    TEST_ASSERT_UINT64_WITHIN((had[1] + had[2]) / 40, (had[1] + had[2]) / 2, had[1]);
}

static void a_bound_forgives_what_one_kernel_took_beyond_a_second(void)
{
    start("tally", NULL);
    join(1, (struct tl_sched_client){.max_permille = 500});
    struct tl_usage u = {.device_ns = 20000 * MS, .launches = 1};
    tl_sched_tick(s, now += 20000 * MS);
    tl_sched_used(s, 1, &u, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(grant(1)->may_run);
    tl_sched_tick(s, now += 1900 * MS); /* half of that is not a second yet */
    TEST_ASSERT_FALSE(grant(1)->may_run);
    tl_sched_tick(s, now += 200 * MS);
    TEST_ASSERT_TRUE(grant(1)->may_run);
}

static void a_minimum_share_is_given_beside_higher_levels(void)
{
    start("tally", NULL);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW, .min_permille = 100});
    uint64_t had = 0, step = MS / 4, begin = now, next = now;
    for (; now < begin + 10000 * MS; now += step) {
        if (now >= next)
            next = tl_sched_tick(s, now);
        if (!grant(2)->yields) { /* high priority is always in flight: who yields does not run */
            struct tl_usage u = {.device_ns = step / 2};
            tl_sched_used(s, 2, &u, now + step);
            had += u.device_ns;
        }
        TEST_ASSERT_TRUE(grant(1)->may_run);
    }
    TEST_ASSERT_UINT64_WITHIN(15, 100, had * 1000 / (now - begin));
}

static void a_largest_share_is_not_exceeded_and_others_have_the_rest(void)
{
    uint64_t had[4];
    start("tally", NULL);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_LOW, .max_permille = 300});
    share_device(20000 * MS, 1, had);
    TEST_ASSERT_UINT64_WITHIN(10, 300, had[1]);
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    share_device(20000 * MS, 2, had);
    TEST_ASSERT_UINT64_WITHIN(10, 300, had[1]);
    TEST_ASSERT_UINT64_WITHIN(15, 700, had[2]);
}

/* Least and most are one: between equals it has just that, also below a busy level. */
static void a_share_of_its_own_is_kept_on_both_sides(void)
{
    uint64_t had[4];
    start("tally", NULL);
    join(1,
         (struct tl_sched_client){.level = TL_LEVEL_LOW, .min_permille = 300, .max_permille = 300});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    join(3, (struct tl_sched_client){.level = TL_LEVEL_LOW, .weight = 500});
    share_device(20000 * MS, 3, had);
    TEST_ASSERT_UINT64_WITHIN(20, 300, had[1]);
    TEST_ASSERT_TRUE(had[2] + had[3] > 670);
}

static void the_hysteresis_follows_the_gaps_above(void)
{
    start("tally", NULL);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    struct tl_usage u = {.device_ns = 1};
    tl_sched_used(s, 1, &u, now); /* which gaps it has is not known yet */
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT64(100000, grant(2)->hysteresis_ns);
    u.gap_ns = 400000;
    tl_sched_used(s, 1, &u, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT64(500000, grant(2)->hysteresis_ns);
    u.gap_ns = 1000;
    for (int i = 0; i < 200; i++)
        tl_sched_used(s, 1, &u, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_UINT64_WITHIN(100, 1250, grant(2)->hysteresis_ns);
    u.gap_ns = 900 * MS; /* a pause between requests, not inside one */
    tl_sched_used(s, 1, &u, now);
    tl_sched_tick(s, now);
    TEST_ASSERT_EQUAL_UINT64(2 * MS, grant(2)->hysteresis_ns);
}

static void turns_go_round_and_end_on_time(void)
{
    uint64_t permille[4];
    start("timeslice", "quantum=2ms");
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH});
    join(2, (struct tl_sched_client){.level = TL_LEVEL_LOW});
    join(3, (struct tl_sched_client){.level = 0});
    share_device(6000 * MS, 3, permille);
    for (int id = 1; id <= 3; id++)
        TEST_ASSERT_UINT64_WITHIN(5, 333, permille[id]);
    tl_sched_backlog(s, 1, false, now);
    tl_sched_backlog(s, 3, false, now);
    share_device(100 * MS, 3, permille);
    TEST_ASSERT_UINT64_WITHIN(5, 1000, permille[2]);
}

static void a_pause_stops_anybody(void)
{
    start("none", NULL);
    join(1, (struct tl_sched_client){.level = TL_LEVEL_HIGH, .is_paused = true});
    tl_sched_tick(s, now);
    TEST_ASSERT_FALSE(grant(1)->may_run);
    uint64_t version = tl_sched_version(s, 1);
    TEST_ASSERT_EQUAL_INT(
        0, tl_sched_change(s, 1, &(struct tl_sched_client){.level = TL_LEVEL_HIGH}, now));
    TEST_ASSERT_TRUE(grant(1)->may_run);
    TEST_ASSERT_TRUE(tl_sched_version(s, 1) > version);
    version = tl_sched_version(s, 1);
    tl_sched_tick(s, now + MS);
    TEST_ASSERT_EQUAL_UINT64(version, tl_sched_version(s, 1));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(an_unknown_policy_is_refused_with_the_list);
    RUN_TEST(bad_parameters_are_refused_with_what_there_is);
    RUN_TEST(parameters_reach_the_grants);
    RUN_TEST(the_same_client_does_not_join_twice);
    RUN_TEST(high_priority_is_open_and_best_effort_yields);
    RUN_TEST(the_kernel_policy_never_splits);
    RUN_TEST(equals_share_by_their_weights);
    RUN_TEST(who_slept_does_not_take_everything_afterwards);
    RUN_TEST(pauses_between_steps_cost_an_equal_nothing);
    RUN_TEST(long_kernels_are_made_up_for);
    RUN_TEST(a_bound_forgives_what_one_kernel_took_beyond_a_second);
    RUN_TEST(a_minimum_share_is_given_beside_higher_levels);
    RUN_TEST(a_largest_share_is_not_exceeded_and_others_have_the_rest);
    RUN_TEST(a_share_of_its_own_is_kept_on_both_sides);
    RUN_TEST(the_hysteresis_follows_the_gaps_above);
    RUN_TEST(turns_go_round_and_end_on_time);
    RUN_TEST(a_pause_stops_anybody);
    return UNITY_END();
}

/* Placement against the plainest way to say each rule: look at every GPU. */
#include "sched/place.h"

#include <stdlib.h>
#include <string.h>
#include <unity.h>

enum { GPUS = 37, PER_NODE = 4, STEPS = 20000, MOST = 2 * GPUS };
static const double memory_mb = 100;
static struct tl_error err;
static struct tl_fleet *fleet;
static uint32_t seed;

/* What is where, kept by the test. */
static struct {
    struct tl_place place;
    struct tl_place_job job;
} there[MOST];
static uint32_t n_there;

void setUp(void)
{
    seed = 7;
    n_there = 0;
}

void tearDown(void)
{
    tl_fleet_destroy(fleet);
    fleet = NULL;
}

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void make(enum tl_placer placer, uint32_t gpus)
{
    struct tl_fleet_options o = {.placer = placer,
                                 .gpus = gpus,
                                 .gpus_per_node = PER_NODE,
                                 .gpu_memory_mb = memory_mb,
                                 .seed = 3};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_fleet_create(&fleet, &o, &err), err.text);
}

static struct tl_place_job random_job(bool may_be_whole)
{
    return (struct tl_place_job){.is_high = draw(3) == 0,
                                 .is_whole = may_be_whole && draw(8) == 0,
                                 .load = (1 + draw(20)) / 20.0,
                                 .memory_mb = 10 + draw(80)};
}

static uint32_t parts_taken(uint32_t gpu)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_there; i++)
        n += there[i].place.gpu == gpu ? (there[i].job.is_whole ? TL_PLACE_SLOTS : 1) : 0;
    return n;
}

/* Whether our rule lets a job onto a GPU, in the words of the header. */
static bool ours_allows(uint32_t gpu, const struct tl_place_job *job)
{
    if (parts_taken(gpu) + (job->is_whole ? TL_PLACE_SLOTS : 1) > TL_PLACE_SLOTS)
        return false;
    for (uint32_t i = 0; i < n_there; i++) {
        const struct tl_place_job *b = &there[i].job;
        if (there[i].place.gpu != gpu)
            continue;
        if (b->memory_mb + job->memory_mb > memory_mb || (b->is_high && job->is_high))
            return false;
        if (!b->is_high && !job->is_high && b->load + job->load > 1)
            return false;
    }
    return true;
}

static void remember(struct tl_place place, const struct tl_place_job *job)
{
    TEST_ASSERT_TRUE(n_there < MOST);
    there[n_there].place = place;
    there[n_there++].job = *job;
}

static void somebody_leaves(void)
{
    uint32_t i = draw(n_there);
    tl_fleet_leave(fleet, there[i].place);
    there[i] = there[--n_there];
}

static void whole_gpus_go_first_come_first(void)
{
    make(TL_PLACE_SLURM, GPUS);
    for (int step = 0; step < STEPS; step++) {
        struct tl_place_job job = random_job(false);
        uint32_t expected = 0;
        while (expected < GPUS && parts_taken(expected) > 0)
            expected++;
        if (expected == GPUS || (n_there > 0 && draw(2) == 0)) {
            if (expected == GPUS)
                TEST_ASSERT_EQUAL_UINT32(TL_PLACE_NOWHERE, tl_fleet_put(fleet, &job).gpu);
            somebody_leaves();
            continue;
        }
        struct tl_place p = tl_fleet_put(fleet, &job);
        TEST_ASSERT_EQUAL_UINT32(expected, p.gpu);
        remember(p, &job);
    }
}

static void parts_go_to_the_first_that_has_them(void)
{
    make(TL_PLACE_SLURM_MPS, GPUS);
    for (int step = 0; step < STEPS; step++) {
        struct tl_place_job job = random_job(true);
        uint32_t expected = 0, asked = job.is_whole ? TL_PLACE_SLOTS : 1;
        while (expected < GPUS && parts_taken(expected) + asked > TL_PLACE_SLOTS)
            expected++;
        if (n_there > 0 && draw(2) == 0) {
            somebody_leaves();
            continue;
        }
        struct tl_place p = tl_fleet_put(fleet, &job);
        TEST_ASSERT_EQUAL_UINT32(expected < GPUS ? expected : TL_PLACE_NOWHERE, p.gpu);
        if (expected < GPUS)
            remember(p, &job);
    }
}

/* A small cluster, in which every node is looked at: the one with the most room gets it. */
static void replicas_are_spread(void)
{
    make(TL_PLACE_REPLICAS, GPUS);
    for (int step = 0; step < STEPS; step++) {
        struct tl_place_job job = random_job(false);
        uint32_t room[GPUS / PER_NODE + 1] = {0}, most = 0, fewest = TL_PLACE_SLOTS;
        if (n_there > 0 && draw(2) == 0) {
            somebody_leaves();
            continue;
        }
        for (uint32_t i = 0; i < GPUS; i++)
            room[i / PER_NODE] += TL_PLACE_SLOTS - parts_taken(i);
        for (uint32_t i = 0; i <= GPUS / PER_NODE; i++)
            most = room[i] > most ? room[i] : most;
        struct tl_place p = tl_fleet_put(fleet, &job);
        if (most == 0) {
            TEST_ASSERT_EQUAL_UINT32(TL_PLACE_NOWHERE, p.gpu);
            continue;
        }
        TEST_ASSERT_EQUAL_UINT32(most, room[p.gpu / PER_NODE]);
        for (uint32_t i = p.gpu / PER_NODE * PER_NODE; i < GPUS && i / PER_NODE == p.gpu / PER_NODE;
             i++)
            fewest = parts_taken(i) < fewest ? parts_taken(i) : fewest;
        TEST_ASSERT_EQUAL_UINT32(fewest, parts_taken(p.gpu));
        remember(p, &job);
    }
}

/* How good a place is for a job: lower is better; the loads of neighbours in the steps of which the
 * lists are made. */
static int rank_of(uint32_t gpu, const struct tl_place_job *job)
{
    for (uint32_t i = 0; i < n_there; i++)
        if (there[i].place.gpu == gpu) {
            int step = (int)(there[i].job.load * 16);
            step = step < 16 ? step : 15;
            return 1 + step + (!job->is_high && !there[i].job.is_high ? 100 : 0);
        }
    return 0;
}

static void ours_keeps_its_word_and_takes_the_best(void)
{
    make(TL_PLACE_TALLY, GPUS);
    for (int step = 0; step < STEPS; step++) {
        struct tl_place_job job = random_job(false);
        int best = 1000;
        uint32_t chance = draw(5);
        if (n_there > 0 && chance < 2) {
            somebody_leaves();
            continue;
        }
        if (n_there > 0 && chance == 2) {
            uint32_t i = draw(n_there);
            there[i].job.load = (1 + draw(20)) / 20.0;
            tl_fleet_set_load(fleet, there[i].place, there[i].job.load);
            continue;
        }
        for (uint32_t i = 0; i < GPUS; i++) {
            TEST_ASSERT_EQUAL_INT(ours_allows(i, &job), tl_fleet_fits(fleet, i, &job));
            if (ours_allows(i, &job) && rank_of(i, &job) < best)
                best = rank_of(i, &job);
        }
        struct tl_place p = tl_fleet_put(fleet, &job);
        TEST_ASSERT_EQUAL_INT(best == 1000, p.gpu == TL_PLACE_NOWHERE);
        if (p.gpu == TL_PLACE_NOWHERE)
            continue;
        TEST_ASSERT_TRUE(ours_allows(p.gpu, &job));
        TEST_ASSERT_EQUAL_INT(best, rank_of(p.gpu, &job));
        TEST_ASSERT_EQUAL_DOUBLE(job.load, tl_fleet_at(fleet, p)->load);
        remember(p, &job);
    }
}

static void large_clusters_are_looked_at_in_part_but_filled_whole(void)
{
    enum { MANY = 4000 };
    make(TL_PLACE_KUBERNETES, MANY);
    static bool is_taken[MANY];
    memset(is_taken, 0, sizeof is_taken);
    struct tl_place_job job = {.load = 1};
    for (uint32_t i = 0; i < MANY; i++) {
        struct tl_place p = tl_fleet_put(fleet, &job);
        TEST_ASSERT_TRUE(p.gpu < MANY && !is_taken[p.gpu]);
        is_taken[p.gpu] = true;
    }
    TEST_ASSERT_EQUAL_UINT32(TL_PLACE_NOWHERE, tl_fleet_put(fleet, &job).gpu);
}

static void names_are_found_and_nonsense_is_not(void)
{
    for (int i = 0; i < TL_PLACERS; i++)
        TEST_ASSERT_EQUAL_INT(i, tl_placer_of(tl_placer_names[i]));
    TEST_ASSERT_EQUAL_INT(TL_PLACERS, tl_placer_of("best"));
    struct tl_fleet_options none = {.gpus_per_node = 8};
    TEST_ASSERT_TRUE(tl_fleet_create(&fleet, &none, &err) < 0);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(whole_gpus_go_first_come_first);
    RUN_TEST(parts_go_to_the_first_that_has_them);
    RUN_TEST(replicas_are_spread);
    RUN_TEST(ours_keeps_its_word_and_takes_the_best);
    RUN_TEST(large_clusters_are_looked_at_in_part_but_filled_whole);
    RUN_TEST(names_are_found_and_nonsense_is_not);
    return UNITY_END();
}

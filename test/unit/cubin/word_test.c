/* The decision word, relaunches and the rescue, in every order of events up to a size: no block is
 * lost, none runs twice, none waits for ever.
 *
 * What is modelled is what the gate's source does (cubin/source.c): a block reads the stop words,
 * then either claims its number or closes the word, in one atomic step; then it runs or leaves.  A
 * stop may come between any two steps.  When all blocks of a launch have left or run, the host
 * launches again from H.  With bites, the word of a launch begins beyond `first`: what is below it
 * runs whatever the stop words say.  With the rescue, the host may instead launch the rest beside a
 * launch that has closed but whose blocks still run: it takes H from the word, closed, and H does
 * not grow any more.
 *
 * The state is small enough to be a number, so every state is visited once. */
#include "tally/cubin.h"

#include <stdlib.h>
#include <string.h>
#include <unity.h>

enum { MOST_BLOCKS = 6, MOST_LAUNCHES = 3 };

void setUp(void)
{
}

void tearDown(void)
{
}

/* --- the model -------------------------------------------------------------------------------- */

/* Where a block of a launch is. */
enum step { WAITS, SAW_GO, SAW_STOP, RUNS, DONE, LEFT };

struct launch {
    uint32_t word, first;
    bool is_there;
    uint8_t step[MOST_BLOCKS];
};

struct state {
    struct launch launches[MOST_LAUNCHES];
    uint8_t n_launches;
    bool stops;                 /* what the stop words say now */
    uint8_t changes;            /* how often they will still change */
    uint8_t ran[MOST_BLOCKS];   /* how often the block has begun to run */
    uint8_t needs[MOST_BLOCKS]; /* the block that a block waits for while it runs, or itself */
};

struct model {
    uint32_t n_blocks, per_cluster;
    uint32_t bite;
    bool rescues;
    bool always_stops; /* also the last launch: only bites bring it to its end */
    struct state *seen;
    size_t n_seen, room;
    size_t *table; /* of n_seen + 1, by hash */
    size_t n_table;
    const char *wrong;
    uint32_t ends;
};

static uint32_t index_of(const struct model *m, uint32_t block)
{
    return block / m->per_cluster;
}

static uint32_t n_indices(const struct model *m)
{
    return (m->n_blocks + m->per_cluster - 1) / m->per_cluster;
}

/* The atomic step of the gate's source; the word's new value and whether the block runs. */
static bool decide(uint32_t *word, uint32_t i, bool saw_stop)
{
    uint32_t old = *word;
    if (saw_stop)
        *word = old | TL_CUBIN_CLOSED;
    else if (i + 1 > old) /* atom.max: a closed word is larger than any number */
        *word = i + 1;
    bool may_leave = saw_stop || (old & TL_CUBIN_CLOSED);
    return !(may_leave && i >= (old & ~TL_CUBIN_CLOSED));
}

/* --- the set of states ------------------------------------------------------------------------ */

static size_t hash(const struct state *s)
{
    const unsigned char *p = (const unsigned char *)s;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof *s; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

static void place(struct model *m, size_t number)
{
    size_t at = hash(&m->seen[number]) & (m->n_table - 1);
    while (m->table[at] != 0)
        at = (at + 1) & (m->n_table - 1);
    m->table[at] = number + 1;
}

/* Adds a state unless it is known. */
static void visit(struct model *m, const struct state *s)
{
    if (m->n_table != 0) {
        size_t at = hash(s) & (m->n_table - 1);
        for (; m->table[at] != 0; at = (at + 1) & (m->n_table - 1))
            /* Two that differ in what lies between members would only be looked at twice. */
            if (memcmp(&m->seen[m->table[at] - 1], s, sizeof *s) == 0) /* NOLINT(bugprone-*) */
                return;
    }
    if (m->n_seen * 2 >= m->n_table) {
        m->n_table = m->n_table == 0 ? 1024 : m->n_table * 2;
        free(m->table);
        m->table = calloc(m->n_table, sizeof *m->table);
        TEST_ASSERT_NOT_NULL(m->table);
        for (size_t i = 0; i < m->n_seen; i++)
            place(m, i);
    }
    if (m->n_seen == m->room) {
        m->room = m->room == 0 ? 1024 : m->room * 2;
        m->seen = realloc(m->seen, m->room * sizeof *m->seen);
        TEST_ASSERT_NOT_NULL(m->seen);
    }
    m->seen[m->n_seen] = *s;
    place(m, m->n_seen++);
}

/* --- steps ------------------------------------------------------------------------------------ */

static bool has_finished(const struct state *s, uint32_t block)
{
    for (uint32_t l = 0; l < s->n_launches; l++)
        if (s->launches[l].step[block] == DONE)
            return true;
    return false;
}

/* One step of a block; false if it cannot go on. */
static bool step_block(struct model *m, const struct state *from, uint32_t l, uint32_t b)
{
    struct state s = *from;
    struct launch *of = &s.launches[l];
    uint32_t i = index_of(m, b);
    switch ((enum step)of->step[b]) {
    case WAITS:
        of->step[b] = i < of->first ? LEFT : s.stops ? SAW_STOP : SAW_GO;
        break;
    case SAW_GO:
    case SAW_STOP:
        if (decide(&of->word, i, of->step[b] == SAW_STOP)) {
            of->step[b] = RUNS;
            if (++s.ran[b] > 1)
                m->wrong = "a block runs twice";
        } else {
            of->step[b] = LEFT;
        }
        break;
    case RUNS:
        if (s.needs[b] != b && !has_finished(&s, s.needs[b]))
            return false;
        of->step[b] = DONE;
        break;
    case DONE:
    case LEFT:
        return false;
    }
    visit(m, &s);
    return true;
}

static bool is_over(const struct model *m, const struct launch *l)
{
    for (uint32_t b = 0; b < m->n_blocks; b++)
        if (l->step[b] != DONE && l->step[b] != LEFT)
            return false;
    return true;
}

/* Whether no block of it can change the word any more: what has not run has left. */
static bool is_decided(const struct model *m, const struct launch *l)
{
    for (uint32_t b = 0; b < m->n_blocks; b++)
        if (l->step[b] == WAITS || l->step[b] == SAW_GO || l->step[b] == SAW_STOP)
            return false;
    return true;
}

/* Where the word of a launch from `first` on begins. */
static uint32_t bitten(const struct model *m, uint32_t first)
{
    uint32_t n = n_indices(m);
    return first + m->bite < n ? first + m->bite : n;
}

/* The host: launches again from H if the last launch is over, or beside it to rescue it. */
static bool step_host(struct model *m, const struct state *from)
{
    const struct launch *last = &from->launches[from->n_launches - 1];
    uint32_t h = last->word & ~TL_CUBIN_CLOSED;
    bool may = is_over(m, last) || (m->rescues && is_decided(m, last));
    if (!may || h >= n_indices(m) || from->n_launches == MOST_LAUNCHES)
        return false;
    struct state s = *from;
    bool is_beside = !is_over(m, last);
    s.launches[s.n_launches] = (struct launch){
        .word = is_beside ? h : bitten(m, h), .first = h, .is_there = true};
    s.n_launches++;
    /* The last launch of the model is not stopped, or nothing would ever end. */
    if (!m->always_stops && (s.n_launches == MOST_LAUNCHES || m->rescues)) {
        s.stops = false;
        s.changes = 0;
    }
    visit(m, &s);
    return true;
}

static void judge_end(struct model *m, const struct state *s)
{
    const struct launch *last = &s->launches[s->n_launches - 1];
    bool is_cut = (last->word & ~TL_CUBIN_CLOSED) < n_indices(m);
    m->ends++;
    for (uint32_t l = 0; l < s->n_launches; l++) {
        if (!is_over(m, &s->launches[l])) {
            m->wrong = "a block waits for ever";
            return;
        }
    }
    for (uint32_t b = 0; b < m->n_blocks; b++)
        if (s->ran[b] != 1 && !is_cut)
            m->wrong = "a block is lost";
    if (is_cut)
        m->wrong = "the last launch leaves blocks over";
}

/* When a launch is decided, exactly the blocks from `first` to H have run or run. */
static void judge_prefix(struct model *m, const struct state *s)
{
    for (uint32_t l = 0; l < s->n_launches; l++) {
        const struct launch *of = &s->launches[l];
        if (!is_decided(m, of))
            continue;
        for (uint32_t b = 0; b < m->n_blocks; b++) {
            uint32_t i = index_of(m, b);
            bool is_below = i >= of->first && i < (of->word & ~TL_CUBIN_CLOSED);
            bool has_run = of->step[b] == RUNS || of->step[b] == DONE;
            if (is_below != has_run)
                m->wrong = "what ran is not what the word says";
        }
    }
}

/* Visits all states that can be reached; the number of them. */
static size_t explore(struct model *m, uint32_t changes, const uint8_t *needs)
{
    struct state begin = {.n_launches = 1, .changes = (uint8_t)changes};
    begin.launches[0].is_there = true;
    begin.launches[0].word = bitten(m, 0);
    begin.stops = m->always_stops;
    for (uint32_t b = 0; b < MOST_BLOCKS; b++)
        begin.needs[b] = needs != NULL && b < m->n_blocks ? needs[b] : (uint8_t)b;
    visit(m, &begin);
    for (size_t at = 0; at < m->n_seen && m->wrong == NULL; at++) {
        struct state s = m->seen[at];
        bool moved = false;
        judge_prefix(m, &s);
        for (uint32_t l = 0; l < s.n_launches; l++)
            for (uint32_t b = 0; b < m->n_blocks; b++)
                moved |= step_block(m, &s, l, b);
        moved |= step_host(m, &s);
        if (!moved)
            judge_end(m, &s);
        if (s.changes > 0) {
            s.stops = !s.stops;
            s.changes--;
            visit(m, &s);
        }
    }
    free(m->seen);
    free(m->table);
    return m->n_seen;
}

static void expect_sound(uint32_t n_blocks, uint32_t per_cluster, bool rescues, uint32_t changes,
                         const uint8_t *needs)
{
    struct model m = {.n_blocks = n_blocks, .per_cluster = per_cluster, .rescues = rescues};
    size_t n = explore(&m, changes, needs);
    TEST_ASSERT_NULL_MESSAGE(m.wrong, m.wrong);
    TEST_ASSERT_GREATER_THAN(0, m.ends);
    TEST_ASSERT_GREATER_THAN(n_blocks, n);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void every_block_runs_once_whenever_the_stop_comes(void)
{
    for (uint32_t n = 1; n <= 4; n++)
        expect_sound(n, 1, false, 2, NULL);
}

static void six_blocks_with_a_stop_that_comes_and_goes(void)
{
    expect_sound(6, 1, false, 2, NULL);
}

static void blocks_of_a_cluster_agree(void)
{
    expect_sound(4, 2, false, 2, NULL);
    expect_sound(6, 3, false, 2, NULL);
    expect_sound(6, 3, true, 1, NULL);
}

static void blocks_may_wait_for_lower_ones(void)
{
    static const uint8_t chain[MOST_BLOCKS] = {0, 0, 1, 2, 3, 4};
    expect_sound(5, 1, false, 2, chain);
    expect_sound(6, 1, true, 1, chain);
}

static void a_wait_for_a_higher_block_is_rescued(void)
{
    static const uint8_t higher[MOST_BLOCKS] = {1, 2, 3, 4, 5, 5};
    expect_sound(6, 1, true, 1, higher);
    struct model m = {.n_blocks = 6, .per_cluster = 1, .rescues = false};
    (void)explore(&m, 1, higher);
    TEST_ASSERT_EQUAL_STRING("a block waits for ever", m.wrong);
}

static void expect_sound_in_bites(uint32_t n_blocks, uint32_t per_cluster, uint32_t bite,
                                  bool rescues, uint32_t changes, const uint8_t *needs)
{
    struct model m = {
        .n_blocks = n_blocks, .per_cluster = per_cluster, .bite = bite, .rescues = rescues};
    (void)explore(&m, changes, needs);
    TEST_ASSERT_NULL_MESSAGE(m.wrong, m.wrong);
    TEST_ASSERT_GREATER_THAN(0, m.ends);
}

static void bites_lose_and_repeat_nothing(void)
{
    static const uint8_t chain[MOST_BLOCKS] = {0, 0, 1, 2, 3, 4};
    for (uint32_t bite = 1; bite <= 5; bite++)
        expect_sound_in_bites(5, 1, bite, false, 2, NULL);
    expect_sound_in_bites(6, 1, 2, false, 2, NULL);
    expect_sound_in_bites(6, 3, 1, false, 2, NULL);
    expect_sound_in_bites(6, 1, 2, true, 1, NULL);
    expect_sound_in_bites(6, 1, 2, false, 1, chain);
}

static void bites_whose_blocks_wait_for_higher_ones_are_rescued(void)
{
    static const uint8_t higher[MOST_BLOCKS] = {1, 2, 3, 4, 5, 5};
    expect_sound_in_bites(6, 1, 2, true, 1, higher);
    struct model m = {.n_blocks = 6, .per_cluster = 1, .bite = 2};
    (void)explore(&m, 1, higher);
    TEST_ASSERT_EQUAL_STRING("a block waits for ever", m.wrong);
}

/* Told to stop from before its begin to its end, a kernel ends in bites, and never without. */
static void bites_end_although_every_launch_is_told_to_stop(void)
{
    struct model m = {.n_blocks = 6, .per_cluster = 1, .bite = 2, .always_stops = true};
    (void)explore(&m, 0, NULL);
    TEST_ASSERT_NULL_MESSAGE(m.wrong, m.wrong);
    TEST_ASSERT_GREATER_THAN(0, m.ends);
    m = (struct model){.n_blocks = 6, .per_cluster = 1, .always_stops = true};
    (void)explore(&m, 0, NULL);
    TEST_ASSERT_EQUAL_STRING("the last launch leaves blocks over", m.wrong);
}

/* The model must be able to fail: a bitmap in place of the word lets a higher block run and a lower
 * one leave. */
static void the_word_is_a_frontier(void)
{
    uint32_t word = 0;
    TEST_ASSERT_TRUE(decide(&word, 3, false));
    TEST_ASSERT_TRUE(
        decide(&word, 1, true)); /* below the frontier: it runs although it saw the stop */
    TEST_ASSERT_EQUAL_HEX32(TL_CUBIN_CLOSED | 4, word);
    TEST_ASSERT_FALSE(decide(&word, 4, false));
    TEST_ASSERT_TRUE(decide(&word, 0, false));
    TEST_ASSERT_EQUAL_HEX32(TL_CUBIN_CLOSED | 4, word);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_block_runs_once_whenever_the_stop_comes);
    RUN_TEST(six_blocks_with_a_stop_that_comes_and_goes);
    RUN_TEST(blocks_of_a_cluster_agree);
    RUN_TEST(blocks_may_wait_for_lower_ones);
    RUN_TEST(a_wait_for_a_higher_block_is_rescued);
    RUN_TEST(bites_lose_and_repeat_nothing);
    RUN_TEST(bites_whose_blocks_wait_for_higher_ones_are_rescued);
    RUN_TEST(bites_end_although_every_launch_is_told_to_stop);
    RUN_TEST(the_word_is_a_frontier);
    return UNITY_END();
}

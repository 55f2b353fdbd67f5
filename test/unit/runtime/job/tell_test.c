/* How those below are told of a burst (runtime/job/client_below.c), as a model of a machine with
 * store buffers.  That is x86-TSO: a thread sees its own stores at once, others see them when they
 * leave its buffer, in order; an atomic addition and a fence empty it first.  All interleavings of
 * threads that begin the same burst are gone through:
 *
 *     add 1 to `began`; store that number in each copy; do something else; fence; load `began`;
 *     if that is another number, store it and look again
 *
 * When all have told, each copy says the latest number.  Before that it says one of this burst, so
 * it never looks idle.  Without the fence the model finds copies that say an old number for
 * good. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unity.h>

enum { MOST_THREADS = 3, COPIES = 2, DEPTH = 8 };

enum at { ADD, STORE, FENCE, LOOK, DONE };

struct thread {
    enum at at;
    uint8_t number, copy; /* that it tells, and where next */
    uint8_t n;            /* stores in its buffer, oldest first */
    struct {
        uint8_t copy, number;
    } buffer[DEPTH];
};

struct machine {
    uint8_t began, copies[COPIES];
    struct thread threads[MOST_THREADS];
};

static uint32_t n_threads, n_states, n_stale, n_idle;
static bool has_fence;

enum { SLOTS = 1 << 20 };
static uint64_t seen[SLOTS];

void setUp(void)
{
    memset(seen, 0, sizeof seen);
    n_states = n_stale = n_idle = 0;
}

void tearDown(void)
{
}

/* Whether the state is new; by a digest of it. */
static bool is_new(const struct machine *m)
{
    uint64_t h = 0xcbf29ce484222325u;
    const uint8_t *bytes = (const uint8_t *)m;
    for (size_t i = 0; i < sizeof *m; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    h |= 1;
    for (uint32_t i = (uint32_t)(h >> 40) % SLOTS;; i = (i + 1) % SLOTS) {
        if (seen[i] == h)
            return false;
        if (seen[i] == 0) {
            seen[i] = h;
            return true;
        }
    }
}

/* The oldest store reaches memory. */
static void drain_one(struct machine *m, struct thread *t)
{
    m->copies[t->buffer[0].copy] = t->buffer[0].number;
    memmove(&t->buffer[0], &t->buffer[1], sizeof t->buffer - sizeof t->buffer[0]);
    memset(&t->buffer[--t->n], 0, sizeof t->buffer[0]);
}

/* One step of a thread; false if it has to wait for its buffer, or is done. */
static bool step(struct machine *m, struct thread *t)
{
    switch (t->at) {
    case ADD:
        t->number = ++m->began;
        t->at = STORE;
        return true;
    case STORE:
        t->buffer[t->n].copy = t->copy;
        t->buffer[t->n++].number = t->number;
        t->copy = (uint8_t)((t->copy + 1) % COPIES);
        t->at = t->copy == 0 ? FENCE : STORE;
        return true;
    case FENCE:
        if (has_fence && t->n > 0)
            return false;
        t->at = LOOK;
        return true;
    case LOOK:
        t->at = t->number == m->began ? DONE : STORE;
        t->number = m->began;
        return true;
    case DONE:
        break;
    }
    return false;
}

static void look_at(const struct machine *m)
{
    bool all_told = true, is_any_told = false;
    for (uint32_t i = 0; i < n_threads; i++) {
        bool is_told = m->threads[i].at == DONE && m->threads[i].n == 0;
        all_told &= is_told;
        is_any_told |= is_told;
    }
    for (uint32_t c = 0; c < COPIES; c++) {
        n_stale += all_told && m->copies[c] != m->began;
        n_idle += is_any_told && m->copies[c] == 0; /* 0 was the number of the burst before */
    }
}

static void explore(const struct machine *m)
{
    if (!is_new(m))
        return;
    n_states++;
    look_at(m);
    for (uint32_t i = 0; i < n_threads; i++) {
        struct machine next = *m;
        if (next.threads[i].n < DEPTH - 1 && step(&next, &next.threads[i]))
            explore(&next);
        next = *m;
        if (next.threads[i].n > 0) {
            drain_one(&next, &next.threads[i]);
            explore(&next);
        }
    }
}

static void explore_all(uint32_t n, bool fence)
{
    struct machine m;
    memset(&m, 0, sizeof m);
    n_threads = n;
    has_fence = fence;
    explore(&m);
}

static void all_copies_say_the_latest_when_all_have_told(void)
{
    for (uint32_t n = 1; n <= MOST_THREADS; n++) {
        setUp();
        explore_all(n, true);
        TEST_ASSERT_TRUE(n_states > 5 * n);
        TEST_ASSERT_EQUAL(0, n_stale);
        TEST_ASSERT_EQUAL_MESSAGE(0, n_idle, "told, and a copy looks idle");
    }
}

static void without_the_fence_an_old_number_may_stay(void)
{
    explore_all(2, false);
    TEST_ASSERT_TRUE(n_stale > 0);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(all_copies_say_the_latest_when_all_have_told);
    RUN_TEST(without_the_fence_an_old_number_may_stay);
    return UNITY_END();
}

/* How those below are told of bursts (runtime/job/client_below.c), as a model of a machine with
 * store buffers.  That is x86-TSO: a thread sees its own stores at once, others see them when they
 * leave its buffer, in order; what changes memory by reading it first empties the buffer.  All
 * interleavings are gone through of threads that launch a piece each, and of a watcher that finds
 * pieces done in any order:
 *
 *     a thread     issued + 1; if it was equal to `completed`, or nobody has told: began + 1, store that number in each
 *                  copy, told = 1; hand the piece over with an addition; load `began`, and if that is another
 *                  number, exchange its own for it where a copy still has it
 *     the watcher  completed + 1; if that is `issued`: told = 0; the number of the burst; look at `issued` again;
 *                  store the number as ended in each copy, and look whether it still is that
 *
 * While a piece is with the driver no copy looks idle, and when all is done all do.  Without the
 * exchange the model finds copies that look busy for good, and with a store in its place copies
 * that look idle while a burst is on. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unity.h>

enum { MOST_THREADS = 3, MOST_COPIES = 2, DEPTH = 4 };

/* Memory: what is only read and stored. */
enum cell { TOLD, BEGAN, ENDED = BEGAN + MOST_COPIES, CELLS = ENDED + MOST_COPIES };

enum at { ISSUE, ADD, STORE, TELL, HAND_OVER, LOOK, MEND, DONE };
enum watching { REST, UNTELL, NUMBER, AGAIN, END, SPREAD, DRAIN, SAME };
enum way { EXCHANGE, NOTHING, PLAIN_STORE }; /* how an old number is mended */

struct buffer {
    uint8_t n; /* stores in it, oldest first */
    struct {
        uint8_t cell, value;
    } stores[DEPTH];
};

struct thread {
    uint8_t at, number, last, copy;
    bool is_done; /* its piece */
    struct buffer buffer;
};

struct machine {
    uint8_t cells[CELLS];
    uint8_t issued, completed, began, ended;
    struct thread threads[MOST_THREADS];
    struct {
        uint8_t at, completed, number, copy;
        struct buffer buffer;
    } watcher;
};

static uint32_t n_threads, n_copies, n_states, n_ends, n_idle, n_busy;
static enum way way;

enum { SLOTS = 1 << 24 };
static uint64_t seen[SLOTS];

void setUp(void)
{
    memset(seen, 0, sizeof seen);
    n_states = n_ends = n_idle = n_busy = 0;
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

/* --- one step of each ------------------------------------------------------------------------- */

static void put(struct buffer *b, enum cell cell, uint8_t value)
{
    TEST_ASSERT_TRUE(b->n < DEPTH);
    b->stores[b->n].cell = (uint8_t)cell;
    b->stores[b->n++].value = value;
}

/* The oldest store reaches memory. */
static void drain_one(struct machine *m, struct buffer *b)
{
    m->cells[b->stores[0].cell] = b->stores[0].value;
    memmove(&b->stores[0], &b->stores[1], sizeof b->stores - sizeof b->stores[0]);
    memset(&b->stores[--b->n], 0, sizeof b->stores[0]);
}

/* What a thread reads: its own last store, or memory. */
static uint8_t get(const struct machine *m, const struct buffer *b, enum cell cell)
{
    for (uint8_t i = b->n; i > 0; i--)
        if (b->stores[i - 1].cell == cell)
            return b->stores[i - 1].value;
    return m->cells[cell];
}

static void mend(struct machine *m, struct thread *t)
{
    uint8_t *copy = &m->cells[BEGAN + t->copy];
    if (way == PLAIN_STORE || (way == EXCHANGE && *copy == t->number))
        *copy = t->last;
}

/* The next copy; the first again behind the last. */
static bool is_last_copy(uint8_t *copy)
{
    *copy = (uint8_t)((*copy + 1u) % n_copies);
    return *copy == 0;
}

/* False if it is done, or has to wait for its buffer. */
static bool step(struct machine *m, struct thread *t)
{
    bool is_locked = t->at == ISSUE || t->at == ADD || t->at == HAND_OVER || t->at == MEND;
    if (is_locked && t->buffer.n > 0)
        return false;
    switch ((enum at)t->at) {
    case ISSUE:
        t->at = m->issued++ == m->completed || !get(m, &t->buffer, TOLD) ? ADD : HAND_OVER;
        return true;
    case ADD:
        t->number = ++m->began;
        t->at = STORE;
        return true;
    case STORE:
        put(&t->buffer, BEGAN + t->copy, t->number);
        t->at = is_last_copy(&t->copy) ? TELL : STORE;
        return true;
    case TELL:
        put(&t->buffer, TOLD, 1);
        t->at = HAND_OVER;
        return true;
    case HAND_OVER:
        t->at = t->number != 0 ? LOOK : DONE;
        return true;
    case LOOK:
        t->last = m->began;
        t->at = t->last == t->number ? DONE : MEND;
        return true;
    case MEND:
        mend(m, t);
        t->at = is_last_copy(&t->copy) ? DONE : MEND;
        return true;
    case DONE:
        break;
    }
    return false;
}

/* The watcher's, once it has found a piece done. */
static bool watch(struct machine *m)
{
    struct buffer *b = &m->watcher.buffer;
    uint8_t *at = &m->watcher.at;
    if ((*at == UNTELL || *at == END || *at == DRAIN) && b->n > 0)
        return false;
    enum watching now = *at;
    switch (now) {
    case REST:
        return false;
    case UNTELL:
        m->cells[TOLD] = 0;
        *at = NUMBER;
        return true;
    case NUMBER:
        m->watcher.number = m->began;
        *at = AGAIN;
        return true;
    case AGAIN:
        *at = m->issued != m->watcher.completed ? REST : END;
        return true;
    case END:
        m->ended = m->watcher.number > m->ended ? m->watcher.number : m->ended;
        *at = SPREAD;
        return true;
    case SPREAD:
        put(b, ENDED + m->watcher.copy, m->ended);
        *at = is_last_copy(&m->watcher.copy) ? DRAIN : SPREAD;
        return true;
    case DRAIN:
        *at = SAME; /* it alone changes `ended` here, so it is what it was */
        return true;
    case SAME:
        m->watcher.number = m->watcher.completed = 0;
        *at = REST;
        return true;
    }
    return false;
}

static bool is_handed_over(const struct thread *t)
{
    return t->at > HAND_OVER && !t->is_done;
}

static void find_done(struct machine *m, struct thread *t)
{
    t->is_done = true;
    m->watcher.completed = ++m->completed;
    m->watcher.at = m->completed == m->issued ? UNTELL : REST;
}

/* --- all of them ------------------------------------------------------------------------------ */

static void look_at(const struct machine *m)
{
    bool is_on = false;
    for (uint32_t i = 0; i < n_threads; i++)
        is_on |= is_handed_over(&m->threads[i]);
    for (uint32_t c = 0; c < n_copies; c++)
        n_idle += is_on && m->cells[BEGAN + c] == m->cells[ENDED + c];
}

static void look_at_end(const struct machine *m)
{
    n_ends++;
    for (uint32_t c = 0; c < n_copies; c++)
        n_busy += m->cells[BEGAN + c] != m->cells[ENDED + c];
}

static void explore(const struct machine *m)
{
    struct machine next = *m;
    if (!is_new(m))
        return;
    n_states++;
    look_at(m);
    bool is_end = true;
#define TRY(condition)                                                                             \
    do {                                                                                           \
        next = *m;                                                                                 \
        if (condition) {                                                                           \
            is_end = false;                                                                        \
            explore(&next);                                                                        \
        }                                                                                          \
    } while (0)
    for (uint32_t i = 0; i < n_threads; i++) {
        struct thread *t = &next.threads[i];
        TRY(step(&next, t));
        TRY(t->buffer.n > 0 && (drain_one(&next, &t->buffer), true));
        TRY(next.watcher.at == REST && next.watcher.buffer.n == 0 && is_handed_over(t) &&
            (find_done(&next, t), true));
    }
    TRY(watch(&next));
    TRY(next.watcher.buffer.n > 0 && (drain_one(&next, &next.watcher.buffer), true));
#undef TRY
    if (is_end)
        look_at_end(m);
}

static void explore_all(uint32_t threads, uint32_t copies, enum way how)
{
    struct machine m;
    memset(&m, 0, sizeof m);
    setUp();
    n_threads = threads;
    n_copies = copies;
    way = how;
    explore(&m);
}

static void copies_are_busy_while_work_is_with_the_driver_and_idle_at_the_end(void)
{
    static const struct {
        uint32_t threads, copies;
    } sizes[] = {{1, 2}, {2, 1}, {2, 2}, {3, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        explore_all(sizes[i].threads, sizes[i].copies, EXCHANGE);
        TEST_ASSERT_TRUE(n_states > 20 && n_states < SLOTS / 2 && n_ends > 0);
        TEST_ASSERT_EQUAL_MESSAGE(0, n_idle, "work is with the driver, and a copy looks idle");
        TEST_ASSERT_EQUAL_MESSAGE(0, n_busy, "all is done, and a copy looks busy");
    }
}

static void without_a_mend_a_copy_may_look_busy_for_good(void)
{
    explore_all(2, 1, NOTHING);
    TEST_ASSERT_TRUE(n_busy > 0);
}

static void with_a_plain_store_a_copy_may_look_idle_during_a_burst(void)
{
    explore_all(3, 1, PLAIN_STORE);
    TEST_ASSERT_TRUE(n_idle > 0);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(copies_are_busy_while_work_is_with_the_driver_and_idle_at_the_end);
    RUN_TEST(without_a_mend_a_copy_may_look_busy_for_good);
    RUN_TEST(with_a_plain_store_a_copy_may_look_idle_during_a_burst);
    return UNITY_END();
}

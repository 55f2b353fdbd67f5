/* Cycles in a sequence of launches.
 *
 * The distance between two launches of the same kernel is a guess at the period; it is believed if
 * the last so many launches equal those before them.  Layers inside a step repeat too, with a
 * shorter period, so a longer one that is confirmed replaces a shorter one: a kernel that comes
 * once per step (a loss, an optimiser's) has the step's length as its distance.  An iteration
 * begins after the longest pause of the cycle, where the host prepares the next one. */
#include "sched/pattern.h"

#include <string.h>

enum {
    MOST_MISSES = 64,
    FEWEST_EQUAL = 64, /* launches that must repeat before a short period is believed */
};

void tl_pattern_init(struct tl_pattern *p)
{
    memset(p, 0, sizeof *p);
}

static uint32_t key_at(const struct tl_pattern *p, uint64_t launch)
{
    return p->history[launch % TL_PATTERN_HISTORY];
}

/* Whether the last `period` launches are those before them once more; a short period must have gone
 * on for some time. */
static bool repeats(const struct tl_pattern *p, uint64_t period)
{
    uint64_t n = period > FEWEST_EQUAL ? period : FEWEST_EQUAL;
    if (p->launches <= n + period)
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (key_at(p, p->launches - i) != key_at(p, p->launches - period - i))
            return false;
    return true;
}

/* The distance to the kernel's launch before this one if it was the same the last time too; else
 * 0. */
static uint64_t steady_distance(struct tl_pattern *p, uint32_t key)
{
    uint32_t slot = key * UINT32_C(2654435761) % TL_PATTERN_KEYS;
    if (p->keys[slot].at == 0 ||
        p->keys[slot].key != key) { /* a new one, or one that shares the place: the later stays */
        p->keys[slot].key = key;
        p->keys[slot].at = p->launches;
        p->keys[slot].distance = 0;
        return 0;
    }
    uint64_t distance = p->launches - p->keys[slot].at;
    bool is_steady = distance == p->keys[slot].distance;
    p->keys[slot].at = p->launches;
    p->keys[slot].distance = distance;
    return is_steady ? distance : 0;
}

/* Remembers where in the cycle the longest pause is; after each cycle iterations begin there. */
static void watch_gaps(struct tl_pattern *p, uint64_t now_ns)
{
    uint64_t gap = p->launches > 1 && now_ns > p->last_ns ? now_ns - p->last_ns : 0;
    if (gap > p->longest_gap_ns) {
        p->longest_gap_ns = gap;
        p->gap_at = p->launches;
    }
    if (p->launches - p->cycle_begin < p->period)
        return;
    if (p->longest_gap_ns > 0)
        p->begin = p->gap_at;
    p->cycle_begin = p->launches;
    p->longest_gap_ns = 0;
}

static void adopt(struct tl_pattern *p, uint64_t period)
{
    p->period = period;
    p->begin = p->cycle_begin = p->launches;
    p->longest_gap_ns = 0;
    p->misses = 0;
}

bool tl_pattern_launch(struct tl_pattern *p, uint32_t key, uint64_t now_ns)
{
    p->launches++;
    p->history[p->launches % TL_PATTERN_HISTORY] = key;
    uint64_t distance = steady_distance(p, key);
    if (distance > p->period && distance <= TL_PATTERN_HISTORY / 2 && p->launches > 2 * distance &&
        repeats(p, distance))
        adopt(p, distance);
    bool is_first = false;
    if (p->period > 0) {
        watch_gaps(p, now_ns);
        bool is_expected = p->launches > p->period && key == key_at(p, p->launches - p->period);
        p->misses = is_expected ? 0 : p->misses + 1;
        if (p->misses > MOST_MISSES) /* the job does something else now */
            p->period = 0;
        else
            is_first = p->launches > p->begin && (p->launches - p->begin) % p->period == 0;
    }
    p->last_ns = now_ns;
    return is_first;
}

void tl_memory_allocated(struct tl_memory_use *m, uint64_t bytes)
{
    m->live += bytes;
    if (m->live > m->peak)
        m->peak = m->live;
    if (m->iterations == 0)
        m->persistent = m->live;
}

void tl_memory_freed(struct tl_memory_use *m, uint64_t bytes)
{
    m->live -= bytes < m->live ? bytes : m->live;
    if (m->iterations == 0)
        m->persistent = m->live;
}

void tl_memory_iteration(struct tl_memory_use *m)
{
    uint64_t ephemeral = m->peak - m->live;
    m->persistent = m->live;
    /* More is believed at once, less slowly: too little would break the lanes' safety. */
    if (m->iterations == 0 || ephemeral > m->ephemeral)
        m->ephemeral = ephemeral;
    else
        m->ephemeral -= (m->ephemeral - ephemeral) / 8;
    m->peak = m->live;
    m->iterations++;
}

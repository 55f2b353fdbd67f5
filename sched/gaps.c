/* Of a gap that has begun nobody knows how long it will be.  To wait for its end costs the lower
 * level that time; to begin costs both, if the gap ends soon after: the higher level waits for what
 * was begun, the lower one loses its start.  So the distribution of the gaps decides, and not the
 * longest of them: requests that come one after another by chance have gaps of any length, and
 * waiting for each of them would leave the device idle.
 *
 *     cost of waiting for h = sum over gaps g of   g            if g <= h
 *                                                  h + START    if not           ... the least
 * counts */
#include "sched/gaps.h"

enum {
    FIRST_SHIFT = 13, /* the first step ends at 8 us */
    ONE = 1024,       /* of a gap that was just seen */
    FADE = 64,
    /* a start in vain.  It takes a tenth of that, but the time of the level above counts more. */
    START_NS = 500000,
};

/* The end of a step: 8 us, 10, 12, 14, 16, 20, ... */
static uint64_t end_of(uint32_t step)
{
    uint64_t octave = (uint64_t)1 << (FIRST_SHIFT + step / 4);
    return octave + octave / 4 * (step % 4);
}

static uint64_t best_wait(const uint32_t seen[TL_GAPS_STEPS])
{
    uint64_t longer = 0, waited = 0, best = 0, least;
    for (uint32_t i = 0; i < TL_GAPS_STEPS; i++)
        longer += seen[i];
    least = longer * START_NS;
    for (uint32_t i = 0; i + 1 < TL_GAPS_STEPS; i++) {
        longer -= seen[i];
        waited += seen[i] * end_of(i);
        uint64_t cost = waited + longer * (end_of(i) + START_NS);
        if (cost < least) {
            least = cost;
            best = end_of(i);
        }
    }
    return best;
}

uint64_t tl_gaps_saw(struct tl_gaps *g, uint64_t gap_ns)
{
    uint32_t seen[TL_GAPS_STEPS], step = 0;
    while (step + 1 < TL_GAPS_STEPS && gap_ns > end_of(step))
        step++;
    for (uint32_t i = 0; i < TL_GAPS_STEPS; i++) {
        uint32_t n = atomic_load_explicit(&g->seen[i], memory_order_relaxed);
        seen[i] = n - n / FADE + (i == step ? ONE : 0);
        if (seen[i] != n)
            atomic_store_explicit(&g->seen[i], seen[i], memory_order_relaxed);
    }
    return best_wait(seen);
}

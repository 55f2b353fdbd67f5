/* Of a gap that has begun nobody knows how long it will be.  To wait for its end costs the lower
 * level that time; to begin costs it a start, and the level above a stop when the gap ends.  So the
 * distribution of the gaps decides, and not the longest of them: requests that come one after
 * another by chance have gaps of any length, and waiting for each of them would leave the device
 * idle.
 *
 *     cost of waiting for h = sum over gaps g of   g            if g <= h
 *                                                  h + START    if not           ... the least
 * counts, of those h with
 *
 *     STOP * number of gaps g with h < g <= 2 ms   <=   1 % of the time that the level above works
 *
 * Stops at the end of longer gaps are the price of sharing; those inside requests are not, and a
 * job of short bursts would feel them. */
#include "sched/gaps.h"

/* What one burst counts for at most: a long one says nothing about those that follow. */
#define MOST_WORK_NS 1000000000ull

enum {
    FIRST_SHIFT = 13, /* the first step ends at 8 us */
    ONE = 1024,       /* of a gap that was just seen */
    FADE = 64,        /* so many gaps later it counts a third of that */
    /* To begin in vain.  It takes a quarter of that, but who is above waits for part of it. */
    START_NS = 350000,
    STOP_NS = 31600, /* as long as a turnaround may take */
    WORK_PER_LOSS = 100,
};

/* The end of a step: 8 us, 10, 12, 14, 16, 20, ... */
static uint64_t end_of(uint32_t step)
{
    uint64_t octave = (uint64_t)1 << (FIRST_SHIFT + step / 4);
    return octave + octave / 4 * (step % 4);
}

static uint64_t best_wait(const uint32_t seen[TL_GAPS_STEPS], uint64_t work_ns)
{
    uint64_t longer = 0, waited = 0, best = 0, least = UINT64_MAX;
    /* so many may be stopped in, beside those that are longer than any wait */
    uint64_t most = work_ns / WORK_PER_LOSS * ONE / STOP_NS + seen[TL_GAPS_STEPS - 1];
    for (uint32_t i = 0; i < TL_GAPS_STEPS; i++)
        longer += seen[i];
    for (uint32_t i = 0; i < TL_GAPS_STEPS; i++) { /* to wait for the steps before the i-th */
        uint64_t wait = i == 0 ? 0 : end_of(i - 1), cost = waited + longer * (wait + START_NS);
        if (longer <= most && cost < least) {
            least = cost;
            best = wait;
        }
        longer -= seen[i];
        waited += seen[i] * end_of(i);
    }
    return best;
}

uint64_t tl_gaps_saw(struct tl_gaps *g, uint64_t gap_ns, uint64_t work_ns)
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
    uint64_t work = atomic_load_explicit(&g->work_ns, memory_order_relaxed);
    work += (work_ns < MOST_WORK_NS ? work_ns : MOST_WORK_NS) - work / FADE;
    atomic_store_explicit(&g->work_ns, work, memory_order_relaxed);
    uint64_t wait = best_wait(seen, work);
    return wait > 0 ? wait : TL_GAPS_NONE;
}

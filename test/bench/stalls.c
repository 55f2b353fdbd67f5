/* What a machine does to a block that nobody disturbs.
 *
 *     stalls SECONDS BLOCK_US...
 *
 * Keeps the last CPU busy, as an SM of the software device, and notes when it stands still:
 * interrupts, and what a hypervisor does with the CPU meanwhile.  From that it tells what the time
 * until a running block is over would be, for stops at random moments, in blocks of the given
 * length: without stalls it is spread evenly between 0 and 1, so P99 is 0.99.  Nobody who waits for
 * a block to end can have less.  Prints one line of JSON. */
#include "test/bench/sm.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 20, STALL_NS = 1000, STOPS = 200000 };

struct stall {
    uint64_t at, ns; /* time without stalls before it; how long it is */
};

static struct stall stalls[MOST];
static uint32_t n_stalls;
static uint64_t worked_ns, stalled_ns;

static void watch(double seconds)
{
    uint64_t begin = now_ns(), last = begin, until = begin + (uint64_t)(seconds * 1e9);
    while (last < until && n_stalls < MOST) {
        uint64_t now = now_ns(), step = now - last;
        last = now;
        if (step < STALL_NS) {
            worked_ns += step;
            continue;
        }
        stalls[n_stalls++] = (struct stall){worked_ns, step};
        stalled_ns += step;
    }
}

/* The first stall at or after a moment of work. */
static uint32_t stall_from(uint64_t at)
{
    uint32_t low = 0, high = n_stalls;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (stalls[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t state = 88172645463325252u;
static double even(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* A stop at a random moment, which may lie inside a stall, while a block has a random part of its
 * work left. */
static double one_stop(double block_ns)
{
    double left = even() * block_ns, extra = 0, total = (double)(worked_ns + stalled_ns);
    uint64_t at = (uint64_t)(even() * (double)worked_ns);
    if (even() < (double)stalled_ns / total) { /* longer ones are met more often */
        uint64_t in = (uint64_t)(even() * (double)stalled_ns), sum = 0;
        uint32_t i = 0;
        while (i + 1 < n_stalls && sum + stalls[i].ns <= in)
            sum += stalls[i++].ns;
        extra = (double)(sum + stalls[i].ns - in);
        at = stalls[i].at + 1;
    }
    for (uint32_t i = stall_from(at); i < n_stalls && (double)(stalls[i].at - at) < left; i++)
        extra += (double)stalls[i].ns;
    return (left + extra) / block_ns;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double ratio[STOPS];
    if (argc < 3) {
        fprintf(stderr, "usage: stalls SECONDS BLOCK_US...\n");
        return 2;
    }
    stay_on_last_cpu();
    watch(atof(argv[1]));
    printf("{\"seconds\": %g, \"stalls_per_s\": %.1f, \"stalled\": %.5f, \"blocks\": [",
           atof(argv[1]), n_stalls * 1e9 / (double)(worked_ns + stalled_ns),
           (double)stalled_ns / (double)(worked_ns + stalled_ns));
    for (int i = 2; i < argc; i++) {
        for (uint32_t k = 0; k < STOPS; k++)
            ratio[k] = one_stop(atof(argv[i]) * 1000);
        qsort(ratio, STOPS, sizeof *ratio, by_size);
        printf("%s{\"block_us\": %g, \"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f}",
               i > 2 ? ", " : "", atof(argv[i]), ratio[STOPS / 2], ratio[STOPS / 10 * 9],
               ratio[STOPS / 100 * 99]);
    }
    printf("]}\n");
    return 0;
}

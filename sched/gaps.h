/* How long a gap in a job's work is worth waiting out before a lower level begins in it.  Learned
 * from the gaps seen so far, pure and of fixed size.  Threads may tell gaps at once: what is lost
 * then is a gap among many. */
#ifndef TALLY_SCHED_GAPS_H
#define TALLY_SCHED_GAPS_H

#include <stdatomic.h>
#include <stdint.h>

enum { TL_GAPS_STEPS = 34 }; /* quarters of octaves from 8 us to 2 ms, and all that is longer */

struct tl_gaps {
    /* how many, the older ones counting less; zeroes at first */
    _Atomic uint32_t seen[TL_GAPS_STEPS];
};

/* A gap, or UINT64_MAX for one that is known to lie between requests.  Returns what gap to expect:
 * as long as it pays to wait for the end of one, 0 if it does not pay at all. */
uint64_t tl_gaps_saw(struct tl_gaps *g, uint64_t gap_ns);

#endif

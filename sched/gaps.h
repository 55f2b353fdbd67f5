/* How long a gap in a job's work is worth waiting out before a lower level begins in it.  Learned
 * from the gaps seen so far, pure and of fixed size.  Threads may tell gaps at once: what is lost
 * then is a gap among many. */
#ifndef TALLY_SCHED_GAPS_H
#define TALLY_SCHED_GAPS_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    TL_GAPS_STEPS = 34, /* quarters of octaves from 8 us to 2 ms, and all that is longer */
    TL_GAPS_NONE = 1,   /* ns: no gap is worth waiting out; 0 would say that nobody knows */
};

struct tl_gaps {
    /* how many, the older ones counting less; zeroes at first */
    _Atomic uint32_t seen[TL_GAPS_STEPS];
    _Atomic uint64_t work_ns; /* of the bursts beside them, in the same way */
};

/* A gap, or UINT64_MAX for one that is known to lie between requests, and how long the burst behind
 * it was.  Returns what gap to expect: as long as it pays to wait for the end of one, TL_GAPS_NONE
 * if it does not pay at all. */
uint64_t tl_gaps_saw(struct tl_gaps *g, uint64_t gap_ns, uint64_t work_ns);

#endif

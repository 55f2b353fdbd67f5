/* Iterations of a job, found in its own launches, for policies that switch between iterations.  A
 * training step launches the same kernels in the same order over and over; this finds the length of
 * that cycle and where it begins.  Pure and of fixed size. */
#ifndef TALLY_SCHED_PATTERN_H
#define TALLY_SCHED_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TL_PATTERN_HISTORY = 16384, /* launches remembered: cycles up to half of that are found */
    TL_PATTERN_KEYS = 4096,     /* different kernels told apart */
};

struct tl_pattern {
    uint32_t history[TL_PATTERN_HISTORY]; /* keys of launches, a ring */
    struct {
        uint32_t key;
        uint64_t at;       /* last launch of it, from 1; 0: none yet */
        uint64_t distance; /* between its last two launches */
    } keys[TL_PATTERN_KEYS];
    uint64_t launches;
    uint64_t period;      /* launches of an iteration; 0: not known */
    uint64_t begin;       /* a launch with which an iteration began */
    uint64_t cycle_begin; /* of the cycle that is watched for where its longest gap is */
    uint64_t longest_gap_ns, gap_at;
    uint64_t last_ns;
    uint32_t misses; /* launches in a row that were not what the cycle says */
};

void tl_pattern_init(struct tl_pattern *p);
/* A launch; `key` tells the kernel and its grid.  True if it is the first of a new iteration, i.e.
 * the one before has ended. */
bool tl_pattern_launch(struct tl_pattern *p, uint32_t key, uint64_t now_ns);

/* --- memory ----------------------------------------------------------------------------------- */

/* Persistent and ephemeral memory of a job, learned from its allocations: what is alive at the end
 * of an iteration is persistent, what an iteration has beyond that at its peak is ephemeral. */
struct tl_memory_use {
    uint64_t live, peak; /* bytes; the peak is of this iteration */
    uint64_t persistent, ephemeral;
    uint64_t iterations;
};

void tl_memory_allocated(struct tl_memory_use *m, uint64_t bytes);
void tl_memory_freed(struct tl_memory_use *m, uint64_t bytes);
/* Brings persistent and ephemeral up to date.  Until the first end of an iteration everything
 * counts as persistent. */
void tl_memory_iteration(struct tl_memory_use *m);

#endif

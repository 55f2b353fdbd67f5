/* Two counters that mostly one thread adds to, and any thread reads.
 *
 * An atomic addition costs as much as everything else that a launch of a job at the highest level
 * does, and a stream or a kernel is mostly one thread's.  So the first thread that adds has a pair
 * of its own, which it alone writes, with loads and stores; all others share another pair, with
 * atomic additions.  Nothing is lost.  libc only. */
#ifndef TALLY_COUNTS_H
#define TALLY_COUNTS_H

#include <stdatomic.h>
#include <stdint.h>

struct tl_counts {
    _Atomic uintptr_t owner; /* 0: nobody has added yet */
    _Atomic uint64_t own[2], others[2];
};

static inline void tl_counts_grow(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Adds to both.  `self` is an address of something of the thread's own, not 0: no two threads may
 * have the same at a time.  Not for signal handlers. */
static inline void tl_counts_add(struct tl_counts *c, uintptr_t self, uint64_t first,
                                 uint64_t second)
{
    uintptr_t owner = atomic_load_explicit(&c->owner, memory_order_relaxed);
    if (owner == 0 && atomic_compare_exchange_strong(&c->owner, &owner, self))
        owner = self;
    if (__builtin_expect(owner == self, 1)) {
        tl_counts_grow(&c->own[0], first);
        tl_counts_grow(&c->own[1], second);
    } else {
        atomic_fetch_add_explicit(&c->others[0], first, memory_order_relaxed);
        atomic_fetch_add_explicit(&c->others[1], second, memory_order_relaxed);
    }
}

/* The sum of the first, or the second. */
static inline uint64_t tl_counts_sum(const struct tl_counts *c, int which)
{
    return atomic_load_explicit(&c->own[which], memory_order_relaxed) +
           atomic_load_explicit(&c->others[which], memory_order_relaxed);
}

#endif

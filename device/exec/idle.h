/* How long nobody had an SM: from when it was left to when somebody took it.  On a GPU the grid
 * that is first would have it in the same moment; here a thread of its process has to get a
 * processor before, and who waits for that loses nothing to the grid.  Only where waits are kept
 * (device/exec/waits.h). */
#ifndef TALLY_DEVICE_EXEC_IDLE_H
#define TALLY_DEVICE_EXEC_IDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of one SM; written by who takes it. */
struct tl__idle {
    _Atomic uint64_t total_ns;
    _Atomic uint64_t until_ns; /* when it was taken last: what came before is in the sum */
};

/* What was known of an SM when a wait began. */
struct tl__idle_then {
    uint64_t total_ns, before_ns; /* the sum, and what is still to come into it of before */
};

/* The calling thread has taken the SM, which was left at `freed_ns`; 0 if it was not left, since
 * who had it died or was set aside, or if nobody had it yet. */
void tl__idle_taken(struct tl__idle *idle, uint64_t freed_ns, uint64_t now_ns);
/* At the begin of a wait. */
struct tl__idle_then tl__idle_begin(const struct tl__idle *idle, const _Atomic uint64_t *freed_ns,
                                    uint64_t now_ns);
/* From that begin to `freed_ns`, when the SM was left last: never more than the truth. */
uint64_t tl__idle_since(const struct tl__idle *idle, const struct tl__idle_then *then,
                        uint64_t freed_ns);

#endif

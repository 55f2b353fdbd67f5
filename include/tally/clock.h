/* Time in nanoseconds.  libc only. */
#ifndef TALLY_CLOCK_H
#define TALLY_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TL_SECOND_NS UINT64_C(1000000000)
#define TL_MS_NS UINT64_C(1000000)

/* What a clock shows; it must be one that the system has. */
uint64_t tl_clock_of(clockid_t clock);
/* CLOCK_MONOTONIC: the same in all processes of a machine, and never set back. */
uint64_t tl_clock_ns(void);
/* The same in milliseconds, signed because what is left of a time may be negative. */
int64_t tl_clock_ms(void);
/* A time or a duration as system calls want it. */
struct timespec tl_clock_timespec(uint64_t ns);

#endif

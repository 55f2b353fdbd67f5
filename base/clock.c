/* Time in nanoseconds; see the header. */
#include "tally/clock.h"

uint64_t tl_clock_of(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * TL_SECOND_NS + (uint64_t)t.tv_nsec;
}

uint64_t tl_clock_ns(void)
{
    return tl_clock_of(CLOCK_MONOTONIC);
}

int64_t tl_clock_ms(void)
{
    return (int64_t)(tl_clock_ns() / TL_MS_NS);
}

struct timespec tl_clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / TL_SECOND_NS),
                             .tv_nsec = (long)(ns % TL_SECOND_NS)};
}

/* For programs that stand in for an SM of the software device: the last CPU, and the time. */
#ifndef TALLY_BENCH_SM_H
#define TALLY_BENCH_SM_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void stay_on_last_cpu(void)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && CPU_COUNT(&one) == 0; cpu--) {
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    }
    (void)sched_setaffinity(0, sizeof one, &one);
}

#endif

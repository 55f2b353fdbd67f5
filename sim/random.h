/* Random numbers that are the same everywhere for the same seed. */
#ifndef TALLY_SIM_RANDOM_H
#define TALLY_SIM_RANDOM_H

#include <math.h>
#include <stdint.h>

struct sim_random {
    uint64_t state;
};

static inline struct sim_random sim_random(uint64_t seed)
{
    return (struct sim_random){seed * UINT64_C(0x9E3779B97F4A7C15) + UINT64_C(0x2545F4914F6CDD1D)};
}

/* splitmix64 */
static inline uint64_t sim_random_bits(struct sim_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* In (0, 1). */
static inline double sim_uniform(struct sim_random *r)
{
    return ((double)(sim_random_bits(r) >> 11) + 0.5) * 0x1p-53;
}

static inline double sim_exponential(struct sim_random *r, double mean)
{
    return -mean * log(sim_uniform(r));
}

static inline double sim_normal(struct sim_random *r)
{
    return sqrt(-2 * log(sim_uniform(r))) * cos(6.283185307179586 * sim_uniform(r));
}

static inline double sim_lognormal(struct sim_random *r, double median, double sigma)
{
    return median * exp(sigma * sim_normal(r));
}

#endif

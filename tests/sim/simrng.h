/* simrng.h - the one source of chance in a simulated run: splitmix64, seeded. */
#ifndef PLX_SIMRNG_H
#define PLX_SIMRNG_H

#include <stdbool.h>
#include <stdint.h>

struct plx_simrng {
    uint64_t state;
};

static inline uint64_t plx_simrng_next(struct plx_simrng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* 0 to n - 1; n is not 0. */
static inline uint64_t plx_simrng_below(struct plx_simrng *rng, uint64_t n)
{
    return plx_simrng_next(rng) % n;
}

static inline bool plx_simrng_chance(struct plx_simrng *rng, unsigned percent)
{
    return plx_simrng_below(rng, 100) < percent;
}

/* A generator of its own for a part of the simulation, so that one part's use of chance does not
 * change what another part sees. */
static inline struct plx_simrng plx_simrng_fork(struct plx_simrng *rng)
{
    return (struct plx_simrng){plx_simrng_next(rng)};
}

#endif

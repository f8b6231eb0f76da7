/* clock.h - the system's clocks, in nanoseconds. */
#ifndef PLX_CLOCK_H
#define PLX_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t plx_clock_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif

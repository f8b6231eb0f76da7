/* today.h - the number of the day, which chooses the seeds of tests that have others each day. */
#ifndef PLX_TESTS_TODAY_H
#define PLX_TESTS_TODAY_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Days since 1970, or PLX_DAY from the environment, to repeat those of another day. */
static inline uint64_t plx_today(void)
{
    const char *day = getenv("PLX_DAY");

    return day ? strtoull(day, NULL, 10) : (uint64_t)time(NULL) / 86400;
}

#endif

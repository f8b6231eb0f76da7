/* every.c - see every.h. */
#include "fault/every.h"

#include <stdlib.h>
#include <time.h>

unsigned fault_every(unsigned *ret_first)
{
    const char *text = getenv("PLX_FAULT_EVERY");
    unsigned every = text ? (unsigned)strtoul(text, NULL, 10) : 1;

    if (!every)
        every = 1;
    *ret_first = every > 1 ? (unsigned)(time(NULL) / 86400) % every : 0;
    return every;
}

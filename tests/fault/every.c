/* every.c - see every.h. */
#include "fault/every.h"

#include <stdlib.h>

#include "today.h"

unsigned fault_every(unsigned *ret_first)
{
    const char *text = getenv("PLX_FAULT_EVERY");
    unsigned every = text ? (unsigned)strtoul(text, NULL, 10) : 1;

    if (!every)
        every = 1;
    *ret_first = (unsigned)(plx_today() % every);
    return every;
}

/* home_clock.c - the time by which a home page is watched.
 *
 * It has a file of its own, since a linker can put another one in its place (tests/crash/stage.c)
 * only where caller and function come from two files.
 */
#include <time.h>

#include "registry/tenancy_inside.h"

uint64_t plx_home_boot_ns(void)
{
    return plx_clock_ns(CLOCK_BOOTTIME); /* this clock goes on while the machine sleeps */
}

void plx_home_rest(uint64_t ns)
{
    struct timespec pause = {.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};

    nanosleep(&pause, NULL);
}
